//! One call result in the format of every caller.

use std::time::Duration;

use pegboard_core::call::{CallMeta, CallResult};
use pegboard_core::error::{CallError, Executed, ToolError};
use pegboard_core::outcome::Outcome;
use pegboard_core::output::Output;
use pegboard_core::projection::{ContractResult, ToolExecuteResult, mcp_result};
use pegboard_core::provider::ToolKind;
use pegboard_json::RawJson;
use serde_json::{Value, json};

fn call_result(result: Result<Output, CallError>) -> CallResult {
    CallResult {
        result,
        duration: Some(Duration::from_millis(7)),
        warnings: Vec::new(),
        meta: CallMeta::default(),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "used in a list of results")]
fn server_output(result: Value) -> Result<Output, CallError> {
    Ok(Output::result(RawJson::from(result)))
}

#[test]
fn an_agent_gets_text() {
    let image = json!({"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]});
    let cases = [
        (
            server_output(json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})),
            Ok("ab"),
        ),
        (server_output(json!({"content": [{"type": "text", "text": "no"}], "isError": true})), Err("no")),
        (server_output(json!({"content": []})), Ok(r#"{"content":[]}"#)),
        (server_output(json!({"content": [{"type": "text", "text": ""}]})), Ok("(no output)")),
        (server_output(image.clone()), Ok(&*image.to_string())),
        (server_output(json!({"content": "plain"})), Ok("plain")),
        (Ok(Output::new(json!({"a": 1}))), Ok(r#"{"a":1}"#)),
        (Ok(Output::new(json!(""))), Ok("(no output)")),
        (Err(CallError::Failed(ToolError::new("boom"))), Err("boom")),
    ];
    for (result, expected) in cases {
        let projected = ToolExecuteResult::of(&call_result(result), ToolKind::Mcp, "github");
        let (result, error) = match expected {
            Ok(text) => (Some(text), None),
            Err(text) => (None, Some(text)),
        };
        assert_eq!((projected.result.as_deref(), projected.error.as_deref()), (result, error));
        assert_eq!(
            (projected.ok, projected.latency_ms, projected.namespace.as_str()),
            (error.is_none(), 7, "github")
        );
    }
}

#[test]
fn a_contract_result_reports_success() {
    let cases = [
        (Ok(Output::new(json!({"a": 1}))), json!({"success": true, "data": {"a": 1}})),
        (
            server_output(json!({"content": [], "structuredContent": {"n": 1}})),
            json!({"success": true, "data": {"n": 1}}),
        ),
        (
            server_output(json!({"content": [{"type": "text", "text": ""}], "isError": true})),
            json!({"success": false, "error": "Unknown error"}),
        ),
        (Err(CallError::unknown_tool("x")), json!({"success": false, "error": "Unknown tool: x"})),
    ];
    for (result, expected) in cases {
        assert_eq!(serde_json::to_value(ContractResult::of(&call_result(result))).unwrap(), expected);
    }
}

#[test]
fn an_mcp_result_is_the_servers_result_or_an_error() {
    let written =
        r#"{"content": [], "structuredContent": {"n": 1.50, "x": 12345678901234567890123}, "_meta": {}}"#;
    let raw = RawJson::parse(written.into()).unwrap();
    assert_eq!(mcp_result(&call_result(Ok(Output::result(raw)))).as_str(), written);
    let made = mcp_result(&call_result(Ok(Output::new(json!({"a": 1})))));
    insta::assert_snapshot!(made.as_str(), @r#"{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}"#);
    let error = CallError::Canceled { reason: "the call was cancelled".to_owned(), executed: Executed::No };
    insta::assert_snapshot!(mcp_result(&call_result(Err(error))).as_str(), @r#"{"content":[{"type":"text","text":"the call was cancelled"}],"isError":true,"_meta":{"pegboard/error":{"kind":"canceled","message":"the call was cancelled","executed":false}}}"#);
}

#[test]
fn an_outcome_distinguishes_skipped_from_failed() {
    let status = |error| format!("{:?}", Outcome::of("x", call_result(Err(error))).status);
    let canceled = |executed| CallError::Canceled { reason: String::new(), executed };
    assert_eq!(status(canceled(Executed::No)), "Skipped");
    assert_eq!(status(canceled(Executed::Yes)), "Failure");
    assert_eq!(status(CallError::DeadlinePassed { executed: Executed::No }), "Timeout");
    assert_eq!(status(CallError::TimedOut { limit: Duration::ZERO }), "Timeout");
    let failed = Outcome::of(
        "x",
        call_result(server_output(json!({"content": [{"type": "text", "text": "no"}], "isError": true}))),
    );
    assert_eq!((format!("{:?}", failed.status).as_str(), failed.errors), ("Failure", vec!["no".to_owned()]));
}
