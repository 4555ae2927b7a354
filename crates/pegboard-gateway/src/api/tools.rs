//! Tools: found by words or by name, and told with what their calls look like.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use futures_util::future::join_all;
use pegboard_core::id::ServerName;
use pegboard_runtime::catalogue::{Scope, Tool};
use pegboard_runtime::search::{MAX_HITS, Query};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::problem::Problem;
use super::question::Asked;
use super::signature::signature;
use super::stream::document;
use super::window::{Shown, Window};

/// How many tools are listed if nobody says otherwise.
const N_LISTED: usize = 50;
/// How many are listed at most.
const MAX_LISTED: usize = 5_000;

/// Which tools are wanted, and how much of each.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Wanted {
    query: String,
    toolbox: Option<String>,
    server: Option<String>,
    tag: Option<String>,
    limit: usize,
    schema: bool,
    open: bool,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            query: String::new(),
            toolbox: None,
            server: None,
            tag: None,
            limit: N_LISTED,
            schema: false,
            open: false,
        }
    }
}

impl Wanted {
    fn permits(&self, tool: &Tool) -> bool {
        let is = |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|wanted| wanted == name);
        let has_tag = |tag: &String| tool.entry.tags().iter().any(|own| own.eq_ignore_ascii_case(tag));
        is(&self.toolbox, tool.id.toolbox.as_str())
            && is(&self.server, tool.id.server.as_str())
            && self.tag.as_ref().is_none_or(has_tag)
    }
}

/// `GET /api/tools`
pub(super) async fn list(State(window): Shown, Asked(wanted): Asked<Wanted>) -> Result<Response, Problem> {
    if wanted.open {
        open_all(&window, wanted.toolbox.as_deref()).await?;
    }
    let snapshot = window.runtime()?.catalogue();
    let detail = if wanted.schema { Detail::Schemas } else { Detail::Words };
    let (tools, n_all): (Vec<Value>, usize) = if wanted.query.trim().is_empty() {
        let permitted = || snapshot.tools().iter().filter(|tool| wanted.permits(tool));
        let shown = permitted().take(wanted.limit.min(MAX_LISTED));
        (shown.map(|tool| told(tool, detail)).collect(), permitted().count())
    } else {
        let server = wanted.server.as_deref().map(ServerName::new).transpose();
        let server = server.map_err(|error| Problem::bad_request(error.to_string()))?;
        let tags: Vec<String> = wanted.tag.iter().cloned().collect();
        let is_meant = |toolbox: &pegboard_core::id::ToolboxName| {
            wanted.toolbox.as_ref().is_none_or(|wanted| wanted == toolbox.as_str())
        };
        let query = Query {
            all_tags: &tags,
            server: server.as_ref(),
            scope: Scope::Only(&is_meant),
            n_most: MAX_HITS,
            ..Query::new(&wanted.query)
        };
        let hits = snapshot.search(&query);
        let shown = hits.iter().take(wanted.limit).map(|hit| {
            let mut told = told(hit.tool, detail);
            told["score"] = hit.score.into();
            told
        });
        (shown.collect(), hits.len())
    };
    Ok(document(json!({"tools": tools, "total": n_all})))
}

/// The name of one tool.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    name: String,
}

/// `GET /api/tool`
pub(super) async fn one(State(window): Shown, Asked(named): Asked<Named>) -> Result<Response, Problem> {
    let runtime = window.runtime()?;
    let caller = window.caller(None)?;
    let tool = caller.find_tool(&Window::tool_ref(runtime, &named.name)).await?;
    Ok(document(json!({"tool": told(&tool, Detail::Schemas)})))
}

/// Makes the servers of a toolbox ready, or those of all. Those that cannot be used have no tools.
async fn open_all(window: &Window, toolbox: Option<&str>) -> Result<(), Problem> {
    let toolboxes = window.runtime()?.toolboxes();
    let caller = window.caller(None)?;
    let wanted = toolboxes.iter().map(|known| known.name.as_str());
    let wanted = wanted.filter(|name| toolbox.is_none_or(|toolbox| toolbox == *name));
    join_all(wanted.map(|name| caller.open(name))).await;
    Ok(())
}

/// How much is told of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    /// What it is, and what a call of it looks like.
    Words,
    /// Its schemas as well.
    Schemas,
}

/// A tool as it is told.
fn told(tool: &Arc<Tool>, detail: Detail) -> Value {
    let entry = &tool.entry;
    let annotations = entry.annotations();
    let effects = [
        ("readOnly", annotations.read_only),
        ("destructive", annotations.destructive),
        ("idempotent", annotations.idempotent),
        ("openWorld", annotations.open_world),
    ];
    let effects = effects.into_iter().filter_map(|(name, says)| Some((name.to_owned(), says?.into())));
    let mut told = json!({
        "address": tool.id.to_string(),
        "toolbox": tool.id.toolbox,
        "server": tool.id.server,
        "name": tool.id.name,
        "kind": tool.kind,
        "description": entry.description(),
        "signature": signature(tool.id.name.as_str(), entry.input_schema().as_json()),
        "annotations": effects.collect::<Map<_, _>>(),
        "tags": entry.tags(),
        "listedAs": &*tool.flat_name,
    });
    if let Some(title) = entry.title() {
        told["title"] = title.into();
    }
    if detail == Detail::Schemas {
        let definition = entry.definition();
        for name in ["inputSchema", "outputSchema"] {
            if let Some(schema) = definition.get(name) {
                told[name] = schema.to_value();
            }
        }
    }
    told
}
