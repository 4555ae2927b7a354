//! Summary of a large toolbox: names, and one line per tool.

use std::sync::Arc;

use pegboard_runtime::catalogue::CatalogueTool;
use pegboard_runtime::toolbox::OpenedToolbox;
use serde_json::{Map, Value, json};

use crate::meta::summary_line;

/// Lengths of a tool's line, tried in turn until the summary fits; 0 leaves only the names.
const LINE_LENGTHS: [usize; 3] = [100, 40, 0];

/// Summarizes the tools of a toolbox in at most `max_bytes`, by server. Tools that do not fit are counted.
pub(super) fn summarize<'t>(
    opened: &OpenedToolbox,
    tools: impl Iterator<Item = &'t Arc<CatalogueTool>>,
    max_bytes: usize,
) -> Value {
    let tools: Vec<&CatalogueTool> = tools.map(|tool| &**tool).collect();
    let mut summary = json!({
        "toolbox": opened.toolbox,
        "description": opened.description,
        "servers_connected": opened.servers_connected,
    });
    if !opened.servers_failed.is_empty() {
        summary["servers_failed"] = json!(opened.servers_failed);
    }
    summary["tool_count"] = tools.len().into();
    let fitting =
        LINE_LENGTHS.iter().find(|max_line| n_fitting(&tools, **max_line, max_bytes) == tools.len());
    let max_line = fitting.copied().unwrap_or(0);
    let n_shown = n_fitting(&tools, max_line, max_bytes);
    summary["summaries"] = by_server(&tools[..n_shown], max_line);
    if n_shown < tools.len() {
        summary["left_out"] = (tools.len() - n_shown).into();
    }
    summary["instruction"] = include_str!("summary.md").trim_end().into();
    summary
}

/// Counts the tools that fit, from the first on.
fn n_fitting(tools: &[&CatalogueTool], max_line: usize, max_bytes: usize) -> usize {
    /// Quotes and separators of a line.
    const PUNCTUATION: usize = 6;
    let mut n_bytes = 0;
    let does_fit = |tool: &&&CatalogueTool| {
        n_bytes += tool.id.name.as_str().len() + line(tool, max_line).len() + PUNCTUATION;
        n_bytes <= max_bytes
    };
    tools.iter().take_while(does_fit).count()
}

/// Groups tools by server: an object of lines, or a list of names.
fn by_server(tools: &[&CatalogueTool], max_line: usize) -> Value {
    let mut servers: Map<String, Value> = Map::new();
    for tool in tools {
        let (server, name) = (tool.id.server.as_str(), tool.id.name.as_str());
        if max_line == 0 {
            let names = servers.entry(server).or_insert_with(|| json!([]));
            names.as_array_mut().expect("a list of names was inserted").push(name.into());
        } else {
            servers.entry(server).or_insert_with(|| json!({}))[name] = line(tool, max_line).into();
        }
    }
    Value::Object(servers)
}

fn line(tool: &CatalogueTool, max_line: usize) -> String {
    if max_line == 0 { String::new() } else { summary_line(tool.entry.description(), max_line) }
}
