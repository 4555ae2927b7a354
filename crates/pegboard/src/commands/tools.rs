//! `pegboard tools`: finds tools, and shows how they are called.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use crate::cli::waiting::Waiting;
use crate::cli::words::{BOLD, DIM, PLAIN, one_line};
use crate::cli::{Failure, Format, Globals, print, remark};
use crate::desk::{Address, Desk, ToolView, view};

/// How many characters of a description are shown.
const MAX_CHARACTERS: usize = 100;

/// Which tools.
#[derive(Args)]
pub(crate) struct Tools {
    /// What they should do, in a few words; the best come first
    #[arg(num_args = 0..)]
    query: Vec<String>,
    /// Only those of this toolbox
    #[arg(long, short = 'b', value_name = "NAME")]
    toolbox: Option<String>,
    /// Only those with this tag
    #[arg(long, value_name = "NAME")]
    tag: Option<String>,
    /// Show their schemas as well
    #[arg(long)]
    schema: bool,
    /// How many at most
    #[arg(long, value_name = "NUMBER", default_value_t = 50)]
    limit: usize,
}

impl Tools {
    pub(crate) async fn ask(&self, globals: &Globals, desk: &Desk) -> Result<ExitCode, Failure> {
        let query = self.query.join(" ");
        let mut address = Address::of(&["tools"])
            .with("query", &query)
            .with_some("toolbox", self.toolbox.as_ref())
            .with_some("tag", self.tag.as_ref())
            .with("limit", &self.limit)
            .with("schema", &self.schema);
        if desk.is_new() {
            address = address.with("open", &true);
        }
        let found = Waiting::new(globals, "Starting servers").during(desk.get(&address)).await?;
        let tools: Vec<ToolView> = view(&found, "tools")?;
        let format = globals.data_format();
        match format {
            Format::Ndjson => print::list(format, &found["tools"]),
            Format::Text | Format::Json | Format::Yaml => {
                print::document(format, &found, || text(&tools).trim_end().to_owned());
            }
        }
        if tools.is_empty() {
            remark(globals, "No tool is like that. pegboard ls shows everything there is");
        }
        let n_all = found["total"].as_u64().unwrap_or_default();
        let n_shown = tools.len() as u64;
        if n_all > n_shown {
            remark(globals, &format!("{} more; --limit {n_all} shows them", n_all - n_shown));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Tools below their servers, in the order that they came in.
fn text(tools: &[ToolView]) -> String {
    let mut text = String::new();
    let mut last = None;
    for tool in tools {
        let place = (&tool.toolbox, &tool.server);
        if last != Some(place) {
            let _ = writeln!(text, "{BOLD}{}/{}{PLAIN}", tool.toolbox, tool.server);
            last = Some(place);
        }
        let word = tool.annotations.word();
        let _ = write!(text, "  {}", tool.signature);
        if !word.is_empty() {
            let _ = write!(text, "  {DIM}{word}{PLAIN}");
        }
        for tag in &tool.tags {
            let _ = write!(text, "  {DIM}#{tag}{PLAIN}");
        }
        text.push('\n');
        let description = one_line(&tool.description, MAX_CHARACTERS);
        if !description.is_empty() {
            let _ = writeln!(text, "    {DIM}{description}{PLAIN}");
        }
        for (name, schema) in [("takes", &tool.input_schema), ("gives", &tool.output_schema)] {
            if let Some(schema) = schema {
                let _ = writeln!(text, "    {name} {}", indented(schema));
            }
        }
    }
    text
}

fn indented(schema: &Value) -> String {
    format!("{schema:#}").replace('\n', "\n    ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tools_stand_below_their_servers_with_how_they_are_called() {
        let found = json!({"tools": [
            {"toolbox": "dev", "server": "github", "name": "create_issue", "description": "Opens an issue.\nAnd more.",
             "signature": "create_issue(repo:str, title:str, [labels:str[]])", "annotations": {"readOnly": false}, "tags": ["issues"]},
            {"toolbox": "dev", "server": "github", "name": "wipe", "signature": "wipe()", "annotations": {"destructive": true},
             "inputSchema": {"type": "object"}},
            {"toolbox": "dev", "server": "files", "name": "read", "signature": "read(path:str)", "annotations": {"readOnly": true}},
        ]});
        let text = text(&view::<Vec<ToolView>>(&found, "tools").unwrap());
        insta::assert_snapshot!(anstream::adapter::strip_str(&text), @r#"
        dev/github
          create_issue(repo:str, title:str, [labels:str[]])  writes  #issues
            Opens an issue. And more.
          wipe()  destroys
            takes {
              "type": "object"
            }
        dev/files
          read(path:str)  reads
        "#);
    }
}
