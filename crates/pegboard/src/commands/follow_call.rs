//! Follows a call while it runs: progress, log messages, input requests and the result.

use pegboard::json::RawJson;
use serde_json::{Value, json};

use crate::api_client::{ApiClient, ApiPath};
use crate::cli::format::{DIM, PLAIN, one_line};
use crate::cli::prompt::terminal::Terminal;
use crate::cli::prompt::{answer, summary};
use crate::cli::spinner::Spinner;
use crate::cli::{CliError, ExitReason, Globals, notice};

/// Maximum number of characters of a log message.
const MAX_CHARACTERS: usize = 400;

/// Starts a call and returns its result. Input requests are answered on the terminal.
pub(super) async fn follow_call(
    globals: &Globals,
    api: &ApiClient,
    address: &ApiPath,
    request: &RawJson,
    spinner: &Spinner,
) -> Result<RawJson, CliError> {
    let mut events = spinner.during(api.events(address, request)).await?;
    let mut call = String::new();
    while let Some(event) = spinner.during(events.next()).await? {
        match event.name.as_str() {
            "started" => call = text(&event.data, "callId"),
            "progress" => {
                let progress = event.data.to_value();
                spinner
                    .set_progress(progress["done"].as_f64().unwrap_or_default(), progress["total"].as_f64());
                if let Some(message) = progress["message"].as_str() {
                    spinner.set_message(message);
                }
            }
            "log" => print_log(globals, &event.data.to_value()),
            "question" => {
                let question = event.data.to_value();
                let Some(terminal) = terminal(globals) else {
                    // Dropping the stream would cancel the call too; deleting it first makes sure that it is
                    // canceled before the error is printed.
                    let _ = api.delete(&ApiPath::new(&["calls", &call])).await;
                    return Err(input_required(&question["questions"]));
                };
                let answers = prompt(terminal, question["questions"].clone()).await;
                let answers = RawJson::from(json!({"id": question["id"], "answers": answers}));
                // If the tool no longer needs the answer, the final result says so.
                let _ = api.post(&ApiPath::new(&["calls", &call, "answers"]), &answers).await;
            }
            "result" => return Ok(event.data),
            "error" => return Err(CliError::from_event(&event.data)),
            // Unknown events are ignored for forward compatibility.
            _ => {}
        }
    }
    Err(CliError::new(ExitReason::Unavailable, "not_running", "the gateway exited before the call finished"))
}

/// Returns the terminal, unless `--no-input` is set.
fn terminal(globals: &Globals) -> Option<Terminal> {
    if globals.no_input { None } else { Terminal::detect() }
}

fn input_required(questions: &Value) -> CliError {
    let message = format!("the tool requests input: {}", summary(questions));
    CliError::new(ExitReason::Refused, "input_required", message)
        .hint("run it on a terminal without --no-input, or pass the input as an argument")
}

/// Prompts on a blocking thread.
async fn prompt(mut terminal: Terminal, questions: Value) -> Value {
    let answers = tokio::task::spawn_blocking(move || answer(&questions, &mut terminal)).await;
    answers.unwrap_or_else(|_| json!({}))
}

/// Prints a log message of the tool: warnings and errors always, others with `--verbose`.
fn print_log(globals: &Globals, line: &Value) {
    let level = line["level"].as_str().unwrap_or("info");
    let is_wrong = matches!(level, "warning" | "error" | "critical" | "alert" | "emergency");
    if is_wrong || globals.verbose > 0 {
        let data = &line["data"];
        let text = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
        notice(globals, &format!("{DIM}{level}: {}{PLAIN}", one_line(&text, MAX_CHARACTERS)));
    }
}

fn text(data: &RawJson, name: &str) -> String {
    data.get(name).and_then(|value| Some(value.text()?.into_owned())).unwrap_or_default()
}
