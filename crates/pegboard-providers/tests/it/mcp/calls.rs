//! Tool calls.

use pegboard_core::call::{CallContext, SchemaChecks, ValidCall};
use pegboard_core::error::{CallError, Executed};
use pegboard_core::provider::{Provider, ServerState};
use pegboard_json::RawJson;
use pegboard_wire::client::Era;
use serde_json::json;

use crate::mcp::scripted::{ERAS, EXACT, ScriptedServer, TestClient, call, call_text, outcome_text, settle};

#[tokio::test(start_paused = true)]
async fn results_pass_byte_for_byte() {
    for era in ERAS {
        let scripted = ScriptedServer::new();
        let server = scripted.open_provider(era).await;
        let output = call(&server, "exact", json!({}), CallContext::default()).await.unwrap();
        assert_eq!(output.to_result().as_str(), EXACT);
    }
}

#[tokio::test(start_paused = true)]
async fn arguments_pass_byte_for_byte() {
    for era in ERAS {
        let scripted = ScriptedServer::new();
        let server = scripted.open_provider(era).await;
        let written = r#"{"b":  1.0, "a": 12345678901234567890123, "a": "\u0041"}"#;
        let arguments = RawJson::parse(written.into()).unwrap();
        let output = call(&server, "echo", arguments, CallContext::default()).await.unwrap();
        assert_eq!(output.text(), written);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_reports_failure_has_answered() {
    for era in ERAS {
        let scripted = ScriptedServer::new();
        let server = scripted.open_provider(era).await;
        let output = call(&server, "fail", json!({}), CallContext::default()).await.unwrap();
        assert_eq!((output.is_error(), &*output.text()), (true, "no"));
        assert_eq!(call_text(&server, "refuse").await, "execution_error: MCP error -32050: not today");
    }
}

#[tokio::test(start_paused = true)]
async fn notifications_arrive_before_the_result() {
    for era in ERAS {
        let scripted = ScriptedServer::new();
        let server = scripted.open_provider(era).await;
        let ann = TestClient::named("Ann");
        let output = call(&server, "count", json!({}), ann.context()).await.unwrap();
        assert_eq!(output.text(), "counted");
        // On a stream that all calls share, a log message may overtake progress.
        let (lines, progress): (Vec<_>, Vec<_>) =
            ann.received().into_iter().partition(|received| received.starts_with('"'));
        assert_eq!(lines, ["\"begin\"", "\"end\""]);
        assert_eq!(progress, ["1 of Some(3.0)", "2 of Some(3.0)", "3 of Some(3.0)"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_carries_its_trace_parent_and_progress_token_only() {
    let scripted = ScriptedServer::new();
    let server = scripted.open_provider(Era::Session).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut context = TestClient::named("Ann").context();
    context.trace_parent = Some(trace.parse().unwrap());
    call(&server, "echo", json!({"a": 1}), context).await.unwrap();
    call(&server, "echo", json!(null), CallContext::default()).await.unwrap();
    let calls: Vec<_> = scripted.calls.lock().unwrap().iter().map(RawJson::to_value).collect();
    let token = &calls[0]["_meta"]["progressToken"];
    assert!(token.is_number());
    assert_eq!(
        calls,
        [
            json!({"name": "echo", "arguments": {"a": 1}, "_meta": {"progressToken": token, "traceparent": trace}}),
            json!({"name": "echo"}),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn dropping_a_call_cancels_it_at_the_server() {
    for era in ERAS {
        let scripted = ScriptedServer::new();
        let server = scripted.open_provider(era).await;
        {
            let hanging = call(&server, "hang", json!({}), CallContext::default());
            tokio::select! {
                result = hanging => panic!("{result:?}"),
                () = scripted.wait_for_hanging(1) => {}
            }
        }
        scripted.wait_for_hanging(0).await;
        assert_eq!(scripted.n_started(), 1, "a responsive server keeps running");
    }
}

#[tokio::test(start_paused = true)]
async fn shutting_down_a_server_fails_its_calls() {
    for era in ERAS {
        let scripted = ScriptedServer::new();
        let server = scripted.open_provider(era).await;
        let mut hanging = Box::pin(call(&server, "hang", json!({}), CallContext::default()));
        tokio::select! {
            result = &mut hanging => panic!("{result:?}"),
            () = scripted.wait_for_hanging(1) => {}
        }
        server.shut_down().await;
        let error = hanging.await.unwrap_err();
        assert!(matches!(error, CallError::Transport { .. }), "{error:?}");
        assert_eq!(error.executed(), Executed::Yes);
        assert_eq!(
            error.text(),
            "MCP server 'scripted' failed before it responded: it was shut down. The tool may have run"
        );
        assert_eq!(
            call_text(&server, "echo").await,
            "server_unavailable: MCP server 'scripted' was shut down"
        );
        assert!(server.open().await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_a_server_stops_it() {
    let scripted = ScriptedServer::new();
    let server = scripted.open_provider(Era::Session).await;
    let (entry, state) = (server.offering().borrow().tools[0].clone(), server.state());
    drop(server);
    settle().await;
    let call = ValidCall::admit(entry, json!({}).into(), CallContext::default(), SchemaChecks::None);
    assert_eq!(
        outcome_text(&call.unwrap().run().await),
        "server_unavailable: MCP server 'scripted' was shut down"
    );
    assert_eq!(*state.borrow(), ServerState::Stopped);
}
