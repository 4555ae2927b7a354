//! `pegboard tools`: searches for tools and shows their signatures.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use pegboard::config::did_you_mean;
use pegboard::error::ErrorKind;
use serde_json::Value;

use super::server_starts::start_servers;
use crate::api_client::{ApiClient, ApiPath, ServerView, ToolView, ToolboxView, view};
use crate::cli::format::{BOLD, DIM, PLAIN, one_line};
use crate::cli::{CliError, Globals, OutputFormat, notice, print};

/// Maximum number of characters of a description.
const MAX_CHARACTERS: usize = 100;

/// Arguments of `pegboard tools`.
#[derive(Args)]
pub(crate) struct ToolsArgs {
    /// Words that describe the tool; best matches come first
    #[arg(num_args = 0..)]
    query: Vec<String>,
    /// Only tools of this toolbox
    #[arg(long, short = 'b', value_name = "NAME")]
    toolbox: Option<String>,
    /// Only tools with this tag
    #[arg(long, value_name = "NAME")]
    tag: Option<String>,
    /// Show the schemas too
    #[arg(long)]
    schema: bool,
    /// Maximum number of tools
    #[arg(long, value_name = "NUMBER", default_value_t = 50)]
    limit: usize,
}

impl ToolsArgs {
    pub(crate) async fn run(&self, globals: &Globals, api: &ApiClient) -> Result<ExitCode, CliError> {
        let query = self.query.join(" ");
        let address = ApiPath::new(&["tools"])
            .with("query", &query)
            .with_some("toolbox", self.toolbox.as_ref())
            .with_some("tag", self.tag.as_ref())
            .with("limit", &self.limit)
            .with("schema", &self.schema);
        let is_wanted =
            |server: &ServerView| self.toolbox.as_ref().is_none_or(|toolbox| *toolbox == server.toolbox);
        let started = Box::pin(start_servers(globals, api, is_wanted)).await?;
        let found = api.get(&address).await?;
        let tools: Vec<ToolView> = view(&found, "tools")?;
        if let Some(toolbox) = self.toolbox.as_deref().filter(|_| tools.is_empty()) {
            require_toolbox(api, toolbox).await?;
        }
        let format = globals.data_format();
        match format {
            OutputFormat::Ndjson => print::list(format, &found["tools"]),
            OutputFormat::Text | OutputFormat::Json | OutputFormat::Yaml => {
                print::document(format, &found, || text(&tools).trim_end().to_owned());
            }
        }
        if tools.is_empty() {
            notice(globals, "No matching tools. List all with pegboard ls");
        }
        let n_all = found["total"].as_u64().unwrap_or_default();
        let n_shown = tools.len() as u64;
        if n_all > n_shown {
            notice(globals, &format!("{} more; show them with --limit {n_all}", n_all - n_shown));
        }
        started.finish()
    }
}

/// Fails if there is no such toolbox.
async fn require_toolbox(api: &ApiClient, name: &str) -> Result<(), CliError> {
    let toolboxes: Vec<ToolboxView> = view(&api.get(&ApiPath::new(&["toolboxes"])).await?, "toolboxes")?;
    if toolboxes.iter().any(|toolbox| toolbox.name == name) {
        return Ok(());
    }
    let names = || toolboxes.iter().map(|toolbox| toolbox.name.as_str());
    let hint = did_you_mean(name, names())
        .unwrap_or_else(|| format!("expected one of {}", names().collect::<Vec<_>>().join(", ")));
    Err(CliError::from_kind(ErrorKind::UnknownToolbox, format!("no toolbox '{name}'")).hint(hint))
}

/// Renders tools under their servers, in the order of the search results.
fn text(tools: &[ToolView]) -> String {
    let mut text = String::new();
    let mut last = None;
    for tool in tools {
        let place = (&tool.toolbox, &tool.server);
        if last != Some(place) {
            let _ = writeln!(text, "{BOLD}{}/{}{PLAIN}", tool.toolbox, tool.server);
            last = Some(place);
        }
        let word = tool.annotations.label();
        let _ = write!(text, "  {}", one_line(&tool.signature, usize::MAX));
        if !word.is_empty() {
            let _ = write!(text, "  {DIM}{word}{PLAIN}");
        }
        for tag in &tool.tags {
            let _ = write!(text, "  {DIM}#{}{PLAIN}", one_line(tag, MAX_CHARACTERS));
        }
        text.push('\n');
        let description = one_line(&tool.description, MAX_CHARACTERS);
        if !description.is_empty() {
            let _ = writeln!(text, "    {DIM}{description}{PLAIN}");
        }
        for (name, schema) in [("input", &tool.input_schema), ("output", &tool.output_schema)] {
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
    fn tools_are_listed_under_servers_with_signatures() {
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
            input {
              "type": "object"
            }
        dev/files
          read(path:str)  reads
        "#);
    }
}
