//! Built-in tools of agents.

use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, FutureExt, ready};
use insta::assert_snapshot;
use pegboard_core::call::{Call, CallOrigin};
use pegboard_core::client::{AskError, Client, InputRequests, InputResponses, Notice, ProgressUpdate};
use pegboard_core::settings::agent::{AgentOutputSettings, AgentSettings, ReportFormat};
use pegboard_testkit::model_server::ScriptAction;
use serde_json::{Value, json};

use crate::agent::harness::{AgentHarness, agent, names, on_turn, prompt, report};

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
async fn duplicate_statuses_are_shown_once_and_invalid_ones_are_rejected() {
    let updates = [
        status("starting", "", false, true),
        status("starting", "", false, true),
        status("in-progress", "half", false, true),
        status("sleeping", "", false, true),
        ("agent__task_status", json!({"status": "starting"})),
    ];
    let script = vec![
        on_turn("worker", ScriptAction::calls(updates)),
        on_turn("worker", report("sub-agent", "Done.")),
    ];
    let mut harness = AgentHarness::new(vec![with_status()], script).await;
    assert_eq!(harness.run("worker", prompt("Work.")).await, "Done.");
    assert_snapshot!(harness.tool_and_user_messages("worker").join("\n"), @"
    status shown to user
    status shown to user
    status shown to user
    Invalid status 'sleeping'. Must be one of: starting, in-progress, completed
    agent__task_status requires done (string).
    ");
    let statuses: Vec<String> =
        harness.events().into_iter().filter(|line| line.contains(" status ")).collect();
    assert_snapshot!(statuses.join("\n"), @"
    agent__worker status starting | reading
    agent__worker status in-progress | half | reading
    ");
}

#[tokio::test]
async fn completed_status_with_both_flags_makes_the_next_turn_the_last() {
    let cases = [
        ("in-progress", true, false, false),
        ("completed", false, false, false),
        ("completed", true, true, false),
        ("completed", true, false, true),
    ];
    for (word, ready, more, is_last) in cases {
        let script = vec![
            on_turn("worker", ScriptAction::calls([status(word, "", ready, more)])),
            on_turn("worker", report("sub-agent", "Done.")),
        ];
        let harness = AgentHarness::new(vec![with_status()], script).await;
        assert_eq!(harness.run("worker", prompt("Work.")).await, "Done.");
        let last = harness.requests("worker").pop().unwrap();
        assert_eq!(last["tool_choice"] == "none", is_last, "{word} {ready} {more}");
    }
}

#[tokio::test]
async fn task_status_is_offered_only_if_configured() {
    let script = vec![on_turn("worker", report("sub-agent", "Done."))];
    let harness = AgentHarness::new(vec![agent("worker")], script).await;
    harness.run("worker", prompt("Work.")).await;
    assert_eq!(harness.offered("worker"), Vec::<String>::new());
}

#[tokio::test]
async fn a_final_report_by_tool_must_match_format_and_schema() {
    let schema = json!({
        "type": "object",
        "properties": {"sum": {"type": "integer"}, "parts": {"type": "array"}},
        "required": ["sum"]
    });
    let output = AgentOutputSettings { format: Some(ReportFormat::Json), schema: Some(schema) };
    let worker = AgentSettings { output, max_retries: 5, ..with_status() };
    let calls = [
        json!({"status": "success", "format": "markdown", "content": "3"}),
        json!({"status": "success", "format": "json", "content": "three"}),
        json!({"status": "success", "format": "json", "content_json": {"sum": "three"}}),
        json!({"status": "done", "format": "json", "content_json": {"sum": 3}}),
        json!({"status": "Partial", "report_format": "json", "content_json": {"sum": 3, "parts": "[1, 2]"}}),
    ];
    let turns = calls.map(|call| on_turn("worker", ScriptAction::calls([("agent__final_report", call)])));
    let harness = AgentHarness::new(vec![worker], turns.to_vec()).await;
    assert_eq!(harness.run("worker", prompt("Add.")).await, r#"{"sum":3,"parts":[1,2]}"#);
    assert_snapshot!(harness.tool_and_user_messages("worker").join("\n"), @"
    agent__final_report: received report_format='markdown', expected 'json'.
    final_report(json) requires `content_json` (object).
    final_report(json) schema validation failed: $.sum: expected type integer, got string
    Invalid status 'done'. Must be one of: success, failure, partial
    ");
}

#[tokio::test]
async fn an_empty_text_report_is_rejected() {
    let calls = [
        json!({"status": "success", "content": "  "}),
        json!({"status": "failure", "report_content": "No."}),
    ];
    let turns = calls.map(|call| on_turn("worker", ScriptAction::calls([("agent__final_report", call)])));
    let harness = AgentHarness::new(vec![with_status()], turns.to_vec()).await;
    assert_eq!(harness.run("worker", prompt("Add.")).await, "failed: No.");
    assert_eq!(
        harness.tool_and_user_messages("worker"),
        ["agent__final_report requires non-empty report_content field."]
    );
}

#[tokio::test]
async fn a_batch_of_an_agent_is_limited_to_its_tools() {
    let tools = ["agent__batch", "library__look_up", "task_status"].map(ToOwned::to_owned).to_vec();
    let batch = json!({"calls": [
        {"id": "1", "tool": "library__look_up", "parameters": {"word": "moss"}},
        {"id": "2", "tool": "rest__weather", "parameters": {}},
        {"id": "3", "tool": {"toolbox": "default", "server": "rest", "name": "weather"}, "parameters": {}},
        {"id": "4", "tool": "agent__task_status", "parameters": status("starting", "", false, true).1},
        {"id": "5", "tool": "agent__final_report", "parameters": {}},
    ]});
    let script = vec![
        on_turn("worker", ScriptAction::calls([("agent__batch", batch)])),
        on_turn("worker", report("sub-agent", "Done.")),
    ];
    let harness = AgentHarness::new(vec![AgentSettings { tools, ..agent("worker") }], script).await;
    assert_eq!(harness.run("worker", prompt("Work.")).await, "Done.");
    let response: Value = serde_json::from_str(&harness.tool_and_user_messages("worker")[0]).unwrap();
    let results = response["results"].as_array().unwrap().iter();
    let lines =
        results.map(|result| format!("{} {} {}", result["ok"], result["output"], result["error"]["code"]));
    assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r#"
    true "about moss" null
    false null "UNKNOWN_TOOL"
    false null "UNKNOWN_TOOL"
    true "status shown to user" null
    false null "INTERNAL_NOT_ALLOWED"
    "#);
}

/// Client that records progress notifications.
#[derive(Default)]
struct ProgressRecorder(Mutex<Vec<String>>);

impl Client for ProgressRecorder {
    fn notify(&self, notice: Notice) {
        if let Notice::Progress(ProgressUpdate { done, total, message, .. }) = notice {
            let line = format!("{done} of {}: {}", total.unwrap(), message.unwrap());
            self.0.lock().unwrap().push(line);
        }
    }

    fn ask(&self, _questions: InputRequests) -> BoxFuture<'_, Result<InputResponses, AskError>> {
        ready(Err(AskError::Unsupported)).boxed()
    }
}

#[tokio::test]
async fn the_caller_receives_progress_of_the_outermost_agent() {
    let first = AgentSettings { agents: names(["worker"]), max_turns: 3, ..agent("first") };
    let first = AgentSettings { tools: vec!["task_status".to_owned()], ..first };
    let updates = [status("starting", "", false, true), ("agent__worker", prompt("Work."))];
    let script = vec![
        on_turn("first", ScriptAction::calls(updates)),
        on_turn("worker", ScriptAction::calls([status("starting", "", false, true)])),
        on_turn("worker", report("sub-agent", "Worked.")),
        on_turn("first", report("sub-agent", "Done.")),
    ];
    let harness = AgentHarness::new(vec![first, with_status()], script).await;
    let recorder = Arc::new(ProgressRecorder::default());
    let mut call = Call::new("agent__first", prompt("Go."));
    call.context.origin = CallOrigin::Client;
    call.context.client = Some(recorder.clone());
    assert!(harness.caller.invoke(call).await.is_ok());
    assert_snapshot!(recorder.0.lock().unwrap().join("\n"), @"
    0 of 3: turn 1 of 3
    0.5 of 3: starting | reading
    1 of 3: turn 2 of 3
    ");
}
