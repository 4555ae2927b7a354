//! `pegboard call`: calls a tool and prints its answer.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use pegboard::error::ErrorKind;
use pegboard::json::RawJson;
use serde_json::{Value, json};

use super::trace::drawing::TraceLayout;
use super::{follow_call, trace};
use crate::api_client::{ApiClient, ApiPath, ServerView, ToolView, view};
use crate::cli::arguments::{self, RawArguments};
use crate::cli::spinner::Spinner;
use crate::cli::{CliError, ExitReason, Globals, OutputFormat, notice, print};
use answer::ToolAnswer;

pub(super) mod answer;

/// Arguments of `pegboard call`.
#[derive(Args)]
#[command(after_help = arguments::HELP)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct CallArgs {
    /// Tool: toolbox/server/tool, or any unambiguous suffix of it
    tool: String,
    /// Arguments of the tool: k=v, k:=json, k=@file, '{…}', or - to read standard input
    #[arg(value_name = "ARGUMENT")]
    arguments: Vec<String>,
    /// Print a trace of the call to stderr
    #[arg(long)]
    trace: bool,
    /// Bypass the cache
    #[arg(long)]
    no_cache: bool,
    /// Print the raw result as JSON
    #[arg(long)]
    raw: bool,
    /// Save the answer to a file: its first image or audio if there is one, or else its text
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Exit 0 even if the tool reports an error
    #[arg(long)]
    ignore_tool_error: bool,
}

impl CallArgs {
    pub(crate) async fn run(&self, globals: &Globals, api: &ApiClient) -> Result<ExitCode, CliError> {
        let words = RawArguments::read(&self.arguments)?;
        let spinner = Spinner::new(globals, &self.tool);
        let tool = spinner.during(describe(api, &self.tool)).await.map_err(unknown)?;
        let arguments = if let Some(arguments) = words.as_json() {
            arguments
        } else {
            let schema = tool.input_schema.as_ref().unwrap_or(&Value::Null);
            let arguments = words.coerce(schema).map_err(|failure| failure.detail(&tool.signature))?;
            RawJson::from(Value::Object(arguments))
        };
        let request = self.request(globals, &tool).with("arguments", &arguments);
        let answered =
            follow_call::follow_call(globals, api, &ApiPath::new(&["calls"]), &request, &spinner).await;
        let mut answer = match answered {
            Ok(answer) => ToolAnswer::new(answer),
            Err(failure) if failure.is_kind(ErrorKind::InvalidParameters) => {
                return Err(failure.detail(tool.signature));
            }
            Err(failure) => return Err(failure),
        };
        answer.load_stored(api).await;
        self.print_answer(globals, &answer)?;
        if self.trace {
            print_trace(globals, api, &answer).await?;
        }
        self.end(globals, &answer)
    }

    fn request(&self, globals: &Globals, tool: &ToolView) -> RawJson {
        let mut request = json!({"tool": tool.address, "session": super::session()});
        if tool.start_wait_ms > 0 {
            request["startWaitMs"] = tool.start_wait_ms.into();
        }
        if let Some(timeout) = globals.timeout.map(Duration::from) {
            request["timeoutMs"] = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).into();
        }
        if self.no_cache {
            request["noCache"] = true.into();
        }
        RawJson::from(request)
    }

    fn print_answer(&self, globals: &Globals, answer: &ToolAnswer) -> Result<(), CliError> {
        for warning in answer.warnings() {
            notice(globals, &format!("warning: {warning}"));
        }
        let format = globals.format_or(OutputFormat::Text);
        if let Some(path) = &self.save {
            for saved in answer.save(path)? {
                notice(globals, &saved);
            }
        } else if self.raw {
            print::json(answer.raw_result().as_str());
        } else if format == OutputFormat::Text {
            answer.print();
        } else {
            print::raw_json(format, answer.response());
        }
        if print::is_terminal() && !globals.quiet && format == OutputFormat::Text {
            notice(globals, &answer.footer());
        }
        Ok(())
    }

    fn end(&self, globals: &Globals, answer: &ToolAnswer) -> Result<ExitCode, CliError> {
        let is_text = globals.format_or(OutputFormat::Text) == OutputFormat::Text;
        match answer.is_error() && !self.ignore_tool_error {
            false => Ok(ExitCode::SUCCESS),
            true if self.raw || !is_text => Ok(ExitReason::Failed.into()),
            true => Err(CliError::from_kind(ErrorKind::ExecutionError, "the tool reported an error")),
        }
    }
}

/// Fetches a tool with its schemas. Waits for the servers that the name may refer to.
pub(super) async fn describe(api: &ApiClient, name: &str) -> Result<ToolView, CliError> {
    let found = api.post(&ApiPath::new(&["tool"]), &RawJson::from(json!({"name": name}))).await;
    match found {
        Ok(response) => {
            let start_wait_ms = response["startWaitMs"].as_u64().unwrap_or_default();
            Ok(ToolView { start_wait_ms, ..view(&response, "tool")? })
        }
        Err(failure)
            if failure.is_kind(ErrorKind::UnknownTool)
                || failure.is_kind(ErrorKind::UnknownServer)
                || failure.is_kind(ErrorKind::ServerUnavailable) =>
        {
            Err(explained(api, name, failure).await)
        }
        Err(failure) => Err(failure),
    }
}

/// Adds what to do about the server of a tool: it may be disabled, or have failed.
async fn explained(api: &ApiClient, tool: &str, failure: CliError) -> CliError {
    let Some(server) = server_of(api, tool).await else { return failure };
    if server.is_disabled() {
        let message = format!("{} is disabled", server.address());
        return CliError::from_kind(ErrorKind::ServerUnavailable, message)
            .hint(format!("enable it with pegboard enable {}", server.server));
    }
    match server.hint {
        Some(hint) if failure.is_kind(ErrorKind::ServerUnavailable) => failure.hint_or(&hint),
        Some(_) | None => failure,
    }
}

/// Returns the server that the name of a tool begins with.
async fn server_of(api: &ApiClient, tool: &str) -> Option<ServerView> {
    let servers: Vec<ServerView> = view(&api.get(&ApiPath::new(&["servers"])).await.ok()?, "servers").ok()?;
    let is_of = |server: &ServerView| {
        let in_toolbox = tool.strip_prefix(&format!("{}/", server.toolbox));
        let mut rests =
            in_toolbox.into_iter().chain([tool]).filter_map(|name| name.strip_prefix(&server.server));
        rests.any(|rest| rest.starts_with('/') || rest.starts_with('_'))
    };
    servers.into_iter().filter(is_of).max_by_key(|server| server.server.len())
}

/// Adds a general hint to an unknown tool without suggestions.
pub(super) fn unknown(failure: CliError) -> CliError {
    if failure.is_kind(ErrorKind::UnknownTool) {
        failure.hint_or("search with pegboard tools WORDS, or list all with pegboard ls")
    } else {
        failure
    }
}

/// Prints the trace of a call.
async fn print_trace(globals: &Globals, api: &ApiClient, answer: &ToolAnswer) -> Result<(), CliError> {
    let response = api.get(&ApiPath::new(&["traces", answer.trace()])).await?;
    notice(globals, trace::text(&response["trace"], TraceLayout::Waterfall).trim_end());
    Ok(())
}
