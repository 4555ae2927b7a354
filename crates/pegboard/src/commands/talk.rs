//! A call that is followed while it runs: how far it is, what it says, what it asks, and its end.

use pegboard::json::RawJson;
use serde_json::{Value, json};

use crate::cli::question::terminal::Terminal;
use crate::cli::question::{answer, summary};
use crate::cli::waiting::Waiting;
use crate::cli::words::{DIM, PLAIN, one_line};
use crate::cli::{Exit, Failure, Globals, remark};
use crate::desk::{Address, Desk};

/// How many characters of what a tool says are shown.
const MAX_CHARACTERS: usize = 400;

/// Orders a call, and gives what came of it. The person at the terminal answers what the tool asks.
pub(super) async fn accompany(
    globals: &Globals,
    desk: &Desk,
    address: &Address,
    order: &RawJson,
    waiting: &Waiting,
) -> Result<RawJson, Failure> {
    let mut events = waiting.during(desk.events(address, order)).await?;
    let mut call = String::new();
    while let Some(event) = waiting.during(events.next()).await? {
        match event.name.as_str() {
            "started" => call = text(&event.data, "callId"),
            "progress" => {
                let far = event.data.to_value();
                waiting.advance(far["done"].as_f64().unwrap_or_default(), far["total"].as_f64());
                if let Some(message) = far["message"].as_str() {
                    waiting.say(message);
                }
            }
            "log" => tell(globals, &event.data.to_value()),
            "question" => {
                let question = event.data.to_value();
                let Some(terminal) = person(globals) else {
                    // Dropping the events would call it off, too; this is sure before anything is told.
                    let _ = desk.delete(&Address::of(&["calls", &call])).await;
                    return Err(nobody(&question["questions"]));
                };
                let answers = ask(terminal, question["questions"].clone()).await;
                let answers = RawJson::from(json!({"id": question["id"], "answers": answers}));
                // A tool that does not want to know any more says so at its end.
                let _ = desk.post(&Address::of(&["calls", &call, "answers"]), &answers).await;
            }
            "result" => return Ok(event.data),
            "error" => return Err(Failure::of_event(&event.data)),
            // Others may come to be told.
            _ => {}
        }
    }
    Err(Failure::new(Exit::Unavailable, "not_running", "the gateway ended before the call did"))
}

/// Whoever can be asked.
fn person(globals: &Globals) -> Option<Terminal> {
    if globals.no_input { None } else { Terminal::find() }
}

fn nobody(questions: &Value) -> Failure {
    let message = format!("the tool asks, and nobody is there to answer: {}", summary(questions));
    Failure::new(Exit::Refused, "input_required", message)
        .hint("call it on a terminal and without --no-input, or give what it asks for as an argument")
}

/// Asks without keeping anything else waiting.
async fn ask(mut terminal: Terminal, questions: Value) -> Value {
    let answers = tokio::task::spawn_blocking(move || answer(&questions, &mut terminal)).await;
    answers.unwrap_or_else(|_| json!({}))
}

/// Tells a line of a tool's log: what is wrong always, and the rest to whoever wants to know.
fn tell(globals: &Globals, line: &Value) {
    let level = line["level"].as_str().unwrap_or("info");
    let is_wrong = matches!(level, "warning" | "error" | "critical" | "alert" | "emergency");
    if is_wrong || globals.verbose > 0 {
        let data = &line["data"];
        let text = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
        remark(globals, &format!("{DIM}{level}: {}{PLAIN}", one_line(&text, MAX_CHARACTERS)));
    }
}

fn text(data: &RawJson, name: &str) -> String {
    data.get(name).and_then(|value| Some(value.text()?.into_owned())).unwrap_or_default()
}
