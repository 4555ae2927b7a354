//! The same end of a call in every caller's shape.

use std::time::Duration;

use pegboard_core::call::{Ended, Journey};
use pegboard_core::error::{CallError, Executed, ToolError};
use pegboard_core::outcome::Outcome;
use pegboard_core::output::Output;
use pegboard_core::projection::{ContractResult, ToolExecuteResult, mcp_result};
use pegboard_core::provider::ToolKind;
use pegboard_json::RawJson;
use serde_json::{Value, json};

fn ended(result: Result<Output, CallError>) -> Ended {
    Ended {
        result,
        duration: Some(Duration::from_millis(7)),
        warnings: Vec::new(),
        journey: Journey::default(),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it stands among results")]
fn sent(result: Value) -> Result<Output, CallError> {
    Ok(Output::result(RawJson::from(result)))
}

#[test]
fn an_agent_reads_texts() {
    let image = json!({"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]});
    let cases = [
        (sent(json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})), Ok("ab")),
        (sent(json!({"content": [{"type": "text", "text": "no"}], "isError": true})), Err("no")),
        (sent(json!({"content": []})), Ok(r#"{"content":[]}"#)),
        (sent(json!({"content": [{"type": "text", "text": ""}]})), Ok("(no output)")),
        (sent(image.clone()), Ok(&*image.to_string())),
        (sent(json!({"content": "plain"})), Ok("plain")),
        (Ok(Output::new(json!({"a": 1}))), Ok(r#"{"a":1}"#)),
        (Ok(Output::new(json!(""))), Ok("(no output)")),
        (Err(CallError::Failed(ToolError::new("boom"))), Err("boom")),
    ];
    for (result, expected) in cases {
        let said = ToolExecuteResult::of(&ended(result), ToolKind::Mcp, "github");
        let (result, error) = match expected {
            Ok(text) => (Some(text), None),
            Err(text) => (None, Some(text)),
        };
        assert_eq!((said.result.as_deref(), said.error.as_deref()), (result, error));
        assert_eq!((said.ok, said.latency_ms, said.namespace.as_str()), (error.is_none(), 7, "github"));
    }
}

#[test]
fn a_contract_looks_at_success() {
    let cases = [
        (Ok(Output::new(json!({"a": 1}))), json!({"success": true, "data": {"a": 1}})),
        (
            sent(json!({"content": [], "structuredContent": {"n": 1}})),
            json!({"success": true, "data": {"n": 1}}),
        ),
        (
            sent(json!({"content": [{"type": "text", "text": ""}], "isError": true})),
            json!({"success": false, "error": "Unknown error"}),
        ),
        (Err(CallError::unknown_tool("x")), json!({"success": false, "error": "Unknown tool: x"})),
    ];
    for (result, expected) in cases {
        assert_eq!(serde_json::to_value(ContractResult::of(&ended(result))).unwrap(), expected);
    }
}

#[test]
fn the_protocol_gets_what_a_server_wrote_or_why_there_is_nothing() {
    let written =
        r#"{"content": [], "structuredContent": {"n": 1.50, "x": 12345678901234567890123}, "_meta": {}}"#;
    let raw = RawJson::parse(written.into()).unwrap();
    assert_eq!(mcp_result(&ended(Ok(Output::result(raw)))).as_str(), written);
    let made = mcp_result(&ended(Ok(Output::new(json!({"a": 1})))));
    insta::assert_snapshot!(made.as_str(), @r#"{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}"#);
    let error = CallError::Canceled { reason: "the call was called off".to_owned(), executed: Executed::No };
    insta::assert_snapshot!(mcp_result(&ended(Err(error))).as_str(), @r#"{"content":[{"type":"text","text":"the call was called off"}],"isError":true,"_meta":{"pegboard/error":{"kind":"canceled","message":"the call was called off","executed":false}}}"#);
}

#[test]
fn an_outcome_tells_what_was_not_done_from_what_failed() {
    let status = |error| format!("{:?}", Outcome::of("x", ended(Err(error))).status);
    let canceled = |executed| CallError::Canceled { reason: String::new(), executed };
    assert_eq!(status(canceled(Executed::No)), "Skipped");
    assert_eq!(status(canceled(Executed::Yes)), "Failure");
    assert_eq!(status(CallError::DeadlinePassed { executed: Executed::No }), "Timeout");
    assert_eq!(status(CallError::TimedOut { limit: Duration::ZERO }), "Timeout");
    let failed =
        Outcome::of("x", ended(sent(json!({"content": [{"type": "text", "text": "no"}], "isError": true}))));
    assert_eq!((format!("{:?}", failed.status).as_str(), failed.errors), ("Failure", vec!["no".to_owned()]));
}
