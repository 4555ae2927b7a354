//! `pegboard output`: outputs that were too large to return.

use std::process::ExitCode;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::api_client::{ApiClient, ApiPath};
use crate::cli::format::{ago, columns, now_millis, one_line, size};
use crate::cli::{CliError, Globals, OutputFormat, notice, print};

/// Maximum number of outputs searched for a prefix.
const MAX_LISTED: usize = 1_000;
/// Number of characters shown of a handle; enough to identify it.
const HANDLE_CHARACTERS: usize = 8;

/// Arguments of `pegboard output`.
#[derive(Args)]
pub(crate) struct OutputArgs {
    #[command(subcommand)]
    command: Option<OutputCommand>,
}

#[derive(Subcommand)]
enum OutputCommand {
    /// List stored outputs, newest first
    Ls,
    /// Print an output or a part of it
    Cat {
        /// Handle, or the prefix that ls shows
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        handle: String,
        /// Print only these lines: 10-20, 10- or 10
        #[arg(long, value_name = "LINES")]
        lines: Option<String>,
        /// Print only the value at this path in the JSON: $.items[0].name
        #[arg(long, value_name = "PATH", conflicts_with = "lines")]
        json_path: Option<String>,
    },
    /// Print lines that match a pattern; exits with 1 if there are none
    Grep {
        /// Handle, or the prefix that ls shows
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        handle: String,
        /// Regular expression
        pattern: String,
        /// Match case-insensitively
        #[arg(long, short)]
        ignore_case: bool,
        /// Number of context lines around each match
        #[arg(long, short = 'C', value_name = "NUMBER", default_value_t = 0)]
        context: u64,
    },
    /// Delete outputs
    Rm {
        /// Handles, or the prefixes that ls shows
        #[arg(required = true, value_parser = NonEmptyStringValueParser::new())]
        handles: Vec<String>,
    },
}

impl OutputArgs {
    pub(crate) async fn run(&self, globals: &Globals, api: &ApiClient) -> Result<ExitCode, CliError> {
        match &self.command {
            None | Some(OutputCommand::Ls) => list(globals, api).await?,
            Some(OutputCommand::Cat { handle, lines: None, json_path: None }) => {
                let bytes = api.bytes(&find(api, handle).await?).await?;
                print_whole(globals, handle, &bytes)?;
            }
            Some(OutputCommand::Cat { handle, lines, json_path }) => {
                let whole = find(api, handle).await?;
                let part = whole.clone().with_some("lines", lines.as_ref());
                pages(globals, api, &whole, part.with_some("jsonPath", json_path.as_ref())).await?;
            }
            Some(OutputCommand::Grep { handle, pattern, ignore_case, context }) => {
                let whole = find(api, handle).await?;
                let part = whole.clone().with("grep", pattern).with("ignoreCase", ignore_case);
                if !pages(globals, api, &whole, part.with("context", context)).await? {
                    return Ok(ExitCode::FAILURE);
                }
            }
            Some(OutputCommand::Rm { handles }) => {
                let mut first = None;
                for handle in handles {
                    match delete(api, handle).await {
                        Ok(()) => notice(globals, &format!("Deleted {}", one_line(handle, 100))),
                        // Continue with the others.
                        Err(failure) => first = first.or(Some(failure)),
                    }
                }
                return first.map_or(Ok(ExitCode::SUCCESS), Err);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn delete(api: &ApiClient, handle: &str) -> Result<(), CliError> {
    api.delete(&find(api, handle).await?).await
}

/// Prints a whole output: verbatim to a file or another program, printable on a terminal.
fn print_whole(globals: &Globals, handle: &str, bytes: &[u8]) -> Result<(), CliError> {
    let text = std::str::from_utf8(bytes);
    match (globals.format_or(OutputFormat::Text), text) {
        (OutputFormat::Text, Ok(text)) if print::is_terminal() => print::text(text),
        (OutputFormat::Text, Err(_)) if print::is_terminal() => {
            let message = format!("{handle} is binary data ({})", size(bytes.len() as u64));
            return Err(CliError::usage(message)
                .hint(format!("save it to a file: pegboard output cat {handle} > FILE")));
        }
        (OutputFormat::Text, _) => print::bytes(bytes),
        (format, Ok(text)) => print::document(format, &json!({"handle": handle, "text": text}), String::new),
        (format, Err(_)) => {
            let document = json!({"handle": handle, "base64": STANDARD.encode(bytes)});
            print::document(format, &document, String::new);
        }
    }
    Ok(())
}

/// Resolves a handle or a prefix of its last part.
async fn find(api: &ApiClient, written: &str) -> Result<ApiPath, CliError> {
    if written.contains('/') {
        return Ok(ApiPath::new(&["outputs", written]));
    }
    let response = api.get(&ApiPath::new(&["outputs"]).with("limit", &MAX_LISTED)).await?;
    let handles =
        response["outputs"].as_array().into_iter().flatten().filter_map(|output| output["handle"].as_str());
    let meant: Vec<&str> = handles.filter(|handle| own(handle).starts_with(written)).collect();
    match meant.as_slice() {
        [handle] => Ok(ApiPath::new(&["outputs", handle])),
        // The API has the better error message.
        [] => Ok(ApiPath::new(&["outputs", written])),
        several => {
            let message = format!("{} outputs start with '{written}'", several.len());
            Err(CliError::not_found("not_found", message).hint("use a longer prefix"))
        }
    }
}

/// Part of a handle after the session.
fn own(handle: &str) -> &str {
    handle.rsplit('/').next().unwrap_or(handle)
}

/// Shortened handle.
pub(super) fn short(handle: &str) -> String {
    own(handle).chars().take(HANDLE_CHARACTERS).collect()
}

/// Prints a part page by page; returns `true` if there was any content.
async fn pages(globals: &Globals, api: &ApiClient, whole: &ApiPath, part: ApiPath) -> Result<bool, CliError> {
    let format = globals.format_or(OutputFormat::Text);
    let (mut next, mut has_any, mut all) = (Some(part), false, String::new());
    while let Some(part) = next.take().filter(|_| !print::is_stdout_closed()) {
        let page = api.get(&part).await?;
        let content = page["content"].as_str().unwrap_or_default();
        has_any |= !content.is_empty();
        match format {
            OutputFormat::Text if content.is_empty() => {}
            OutputFormat::Text => print::text(content),
            OutputFormat::Json | OutputFormat::Ndjson | OutputFormat::Yaml => all.push_str(content),
        }
        if let Some(note) = page["note"].as_str() {
            notice(globals, &one_line(note, 400));
        }
        next = page["next"].as_str().map(|cursor| whole.clone().with("cursor", &cursor));
    }
    match format {
        OutputFormat::Text => {}
        OutputFormat::Json | OutputFormat::Ndjson | OutputFormat::Yaml => {
            print::document(format, &json!({"text": all}), String::new);
        }
    }
    Ok(has_any)
}

async fn list(globals: &Globals, api: &ApiClient) -> Result<(), CliError> {
    let response = api.get(&ApiPath::new(&["outputs"])).await?;
    print::listing(
        globals,
        &response,
        "outputs",
        |outputs| rows(outputs, now_millis()),
        "No outputs are stored. Outputs larger than toolResponseMaxBytes are stored here",
    );
    Ok(())
}

fn rows(outputs: &Value, now: u64) -> String {
    let rows = outputs.as_array().into_iter().flatten().map(|output| {
        let word = |name: &str| one_line(output[name].as_str().unwrap_or_default(), 100);
        vec![
            short(&word("handle")),
            size(output["bytes"].as_u64().unwrap_or_default()),
            ago(now, output["createdAt"].as_u64().unwrap_or_default()),
            word("tool"),
            word("contentType"),
        ]
    });
    columns(&rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_listed_with_their_tools() {
        let outputs = json!([{"handle": "session-1/d33d49fc-069c", "bytes": 1_048_576, "createdAt": 700_000, "tool": "notes__archive",
            "contentType": "text/plain"}]);
        insta::assert_snapshot!(rows(&outputs, 1_000_000), @"d33d49fc  1.0 MB  5 min ago  notes__archive  text/plain");
    }
}
