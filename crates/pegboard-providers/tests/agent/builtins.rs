//! The tools that every agent has of its own.

use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, FutureExt, ready};
use insta::assert_snapshot;
use pegboard_core::call::{Call, Origin};
use pegboard_core::client::{Answers, AskError, Client, Notice, Progress, Questions};
use pegboard_core::settings::agent::{AgentSettings, ReportFormat, ReportSettings};
use pegboard_testkit::model_server::Act;
use serde_json::{Value, json};

use crate::stage::{Stage, agent, names, prompt, report, then};

fn with_status() -> AgentSettings {
    AgentSettings { tools: vec!["task_status".to_owned()], ..agent("worker") }
}

fn status(status: &str, done: &str, ready: bool, more: bool) -> (&'static str, Value) {
    let update = json!({
        "status": status, "done": done, "pending": "", "now": "reading",
        "ready_for_final_report": ready, "need_to_run_more_tools": more,
    });
    ("agent__task_status", update)
}

#[tokio::test]
async fn a_status_is_shown_once_and_a_wrong_one_is_explained() {
    let updates = [
        status("starting", "", false, true),
        status("starting", "", false, true),
        status("in-progress", "half", false, true),
        status("sleeping", "", false, true),
        ("agent__task_status", json!({"status": "starting"})),
    ];
    let script = vec![then("worker", Act::calls(updates)), then("worker", report("sub-agent", "Done."))];
    let mut stage = Stage::new(vec![with_status()], script).await;
    assert_eq!(stage.run("worker", prompt("Work.")).await, "Done.");
    assert_snapshot!(stage.heard("worker").join("\n"), @"
    status shown to user
    status shown to user
    status shown to user
    Invalid status 'sleeping'. Must be one of: starting, in-progress, completed
    agent__task_status requires done (string).
    ");
    let statuses: Vec<String> =
        stage.happened().into_iter().filter(|line| line.contains(" status ")).collect();
    assert_snapshot!(statuses.join("\n"), @"
    agent__worker status starting | reading
    agent__worker status in-progress | half | reading
    ");
}

#[tokio::test]
async fn only_three_flags_together_make_the_next_turn_the_last() {
    let cases = [
        ("in-progress", true, false, false),
        ("completed", false, false, false),
        ("completed", true, true, false),
        ("completed", true, false, true),
    ];
    for (word, ready, more, is_last) in cases {
        let script = vec![
            then("worker", Act::calls([status(word, "", ready, more)])),
            then("worker", report("sub-agent", "Done.")),
        ];
        let stage = Stage::new(vec![with_status()], script).await;
        assert_eq!(stage.run("worker", prompt("Work.")).await, "Done.");
        let last = stage.requests("worker").pop().unwrap();
        assert_eq!(last["tool_choice"] == "none", is_last, "{word} {ready} {more}");
    }
}

#[tokio::test]
async fn a_status_can_only_be_told_where_the_file_says_so() {
    let script = vec![then("worker", report("sub-agent", "Done."))];
    let stage = Stage::new(vec![agent("worker")], script).await;
    stage.run("worker", prompt("Work.")).await;
    assert_eq!(stage.offered("worker"), Vec::<String>::new());
}

#[tokio::test]
async fn a_final_report_by_tool_must_be_as_it_was_asked_for() {
    let schema = json!({
        "type": "object",
        "properties": {"sum": {"type": "integer"}, "parts": {"type": "array"}},
        "required": ["sum"]
    });
    let output = ReportSettings { format: Some(ReportFormat::Json), schema: Some(schema) };
    let worker = AgentSettings { output, max_retries: 5, ..with_status() };
    let calls = [
        json!({"status": "success", "format": "markdown", "content": "3"}),
        json!({"status": "success", "format": "json", "content": "three"}),
        json!({"status": "success", "format": "json", "content_json": {"sum": "three"}}),
        json!({"status": "done", "format": "json", "content_json": {"sum": 3}}),
        json!({"status": "Partial", "report_format": "json", "content_json": {"sum": 3, "parts": "[1, 2]"}}),
    ];
    let turns = calls.map(|call| then("worker", Act::calls([("agent__final_report", call)])));
    let stage = Stage::new(vec![worker], turns.to_vec()).await;
    assert_eq!(stage.run("worker", prompt("Add.")).await, r#"{"sum":3,"parts":[1,2]}"#);
    assert_snapshot!(stage.heard("worker").join("\n"), @"
    agent__final_report: received report_format='markdown', expected 'json'.
    final_report(json) requires `content_json` (object).
    final_report(json) schema validation failed: $.sum: expected type integer, got string
    Invalid status 'done'. Must be one of: success, failure, partial
    ");
}

#[tokio::test]
async fn a_final_report_of_text_must_say_something() {
    let calls = [
        json!({"status": "success", "content": "  "}),
        json!({"status": "failure", "report_content": "No."}),
    ];
    let turns = calls.map(|call| then("worker", Act::calls([("agent__final_report", call)])));
    let stage = Stage::new(vec![with_status()], turns.to_vec()).await;
    assert_eq!(stage.run("worker", prompt("Add.")).await, "failed: No.");
    assert_eq!(stage.heard("worker"), ["agent__final_report requires non-empty report_content field."]);
}

#[tokio::test]
async fn a_batch_of_an_agent_calls_its_own_tools_and_no_others() {
    let tools = ["agent__batch", "library__look_up", "task_status"].map(ToOwned::to_owned).to_vec();
    let batch = json!({"calls": [
        {"id": "1", "tool": "library__look_up", "parameters": {"word": "moss"}},
        {"id": "2", "tool": "rest__weather", "parameters": {}},
        {"id": "3", "tool": {"toolbox": "default", "server": "rest", "name": "weather"}, "parameters": {}},
        {"id": "4", "tool": "agent__task_status", "parameters": status("starting", "", false, true).1},
        {"id": "5", "tool": "agent__final_report", "parameters": {}},
    ]});
    let script = vec![
        then("worker", Act::calls([("agent__batch", batch)])),
        then("worker", report("sub-agent", "Done.")),
    ];
    let stage = Stage::new(vec![AgentSettings { tools, ..agent("worker") }], script).await;
    assert_eq!(stage.run("worker", prompt("Work.")).await, "Done.");
    let heard: Value = serde_json::from_str(&stage.heard("worker")[0]).unwrap();
    let results = heard["results"].as_array().unwrap().iter();
    let told =
        results.map(|result| format!("{} {} {}", result["ok"], result["output"], result["error"]["code"]));
    assert_snapshot!(told.collect::<Vec<_>>().join("\n"), @r#"
    true "about moss" null
    false null "UNKNOWN_TOOL"
    false null "UNKNOWN_TOOL"
    true "status shown to user" null
    false null "INTERNAL_NOT_ALLOWED"
    "#);
}

/// Whoever called an agent, and hears how far it is.
#[derive(Default)]
struct Ears(Mutex<Vec<String>>);

impl Client for Ears {
    fn notify(&self, notice: Notice) {
        if let Notice::Progress(Progress { done, total, message }) = notice {
            let line = format!("{done} of {}: {}", total.unwrap(), message.unwrap());
            self.0.lock().unwrap().push(line);
        }
    }

    fn ask(&self, _questions: Questions) -> BoxFuture<'_, Result<Answers, AskError>> {
        ready(Err(AskError::Nobody)).boxed()
    }
}

#[tokio::test]
async fn whoever_asked_hears_how_far_the_outermost_agent_is() {
    let first = AgentSettings { agents: names(["worker"]), max_turns: 3, ..agent("first") };
    let first = AgentSettings { tools: vec!["task_status".to_owned()], ..first };
    let updates = [status("starting", "", false, true), ("agent__worker", prompt("Work."))];
    let script = vec![
        then("first", Act::calls(updates)),
        then("worker", Act::calls([status("starting", "", false, true)])),
        then("worker", report("sub-agent", "Worked.")),
        then("first", report("sub-agent", "Done.")),
    ];
    let stage = Stage::new(vec![first, with_status()], script).await;
    let ears = Arc::new(Ears::default());
    let mut call = Call::new("agent__first", prompt("Go."));
    call.context.origin = Origin::Client;
    call.context.client = Some(ears.clone());
    assert!(stage.caller.invoke(call).await.is_ok());
    assert_snapshot!(ears.0.lock().unwrap().join("\n"), @"
    0 of 3: turn 1 of at most 3
    0.5 of 3: starting | reading
    1 of 3: turn 2 of at most 3
    ");
}
