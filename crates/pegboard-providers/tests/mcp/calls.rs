//! Calls of a server's tools.

use pegboard_core::call::{CallContext, Checks, ValidCall};
use pegboard_core::error::{CallError, Executed};
use pegboard_core::provider::{Provider, ServerState};
use pegboard_json::RawJson;
use pegboard_wire::client::Era;
use serde_json::json;

use crate::stage::{ERAS, EXACT, Person, Stage, call, line, said, settle};

#[tokio::test(start_paused = true)]
async fn an_answer_passes_byte_for_byte() {
    for era in ERAS {
        let stage = Stage::new();
        let server = stage.opened(era).await;
        let output = call(&server, "exact", json!({}), CallContext::default()).await.unwrap();
        assert_eq!(output.to_result().as_str(), EXACT);
    }
}

#[tokio::test(start_paused = true)]
async fn arguments_pass_byte_for_byte() {
    for era in ERAS {
        let stage = Stage::new();
        let server = stage.opened(era).await;
        let written = r#"{"b":  1.0, "a": 12345678901234567890123, "a": "\u0041"}"#;
        let arguments = RawJson::parse(written.into()).unwrap();
        let output = call(&server, "echo", arguments, CallContext::default()).await.unwrap();
        assert_eq!(output.text(), written);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_says_it_failed_has_answered() {
    for era in ERAS {
        let stage = Stage::new();
        let server = stage.opened(era).await;
        let output = call(&server, "fail", json!({}), CallContext::default()).await.unwrap();
        assert_eq!((output.is_error(), &*output.text()), (true, "no"));
        assert_eq!(line(&server, "refuse").await, "execution_error: MCP error -32050: not today");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_said_during_a_call_comes_before_the_answer() {
    for era in ERAS {
        let stage = Stage::new();
        let server = stage.opened(era).await;
        let ann = Person::named("Ann");
        let output = call(&server, "count", json!({}), ann.context()).await.unwrap();
        assert_eq!(output.text(), "counted");
        // On a stream that all calls share a line of the log may overtake progress.
        let (lines, progress): (Vec<_>, Vec<_>) =
            ann.heard().into_iter().partition(|heard| heard.starts_with('"'));
        assert_eq!(lines, ["\"begin\"", "\"end\""]);
        assert_eq!(progress, ["1 of Some(3.0)", "2 of Some(3.0)", "3 of Some(3.0)"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_says_where_it_comes_from_and_no_more() {
    let stage = Stage::new();
    let server = stage.opened(Era::Session).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut context = Person::named("Ann").context();
    context.trace_parent = Some(trace.parse().unwrap());
    call(&server, "echo", json!({"a": 1}), context).await.unwrap();
    call(&server, "echo", json!(null), CallContext::default()).await.unwrap();
    let calls: Vec<_> = stage.calls.lock().unwrap().iter().map(RawJson::to_value).collect();
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
async fn a_call_that_is_dropped_is_cancelled_at_the_server() {
    for era in ERAS {
        let stage = Stage::new();
        let server = stage.opened(era).await;
        {
            let hanging = call(&server, "hang", json!({}), CallContext::default());
            tokio::select! {
                result = hanging => panic!("{result:?}"),
                () = stage.hanging(1) => {}
            }
        }
        stage.hanging(0).await;
        assert_eq!(stage.n_started(), 1, "it still answers, so it runs on");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_end_with_the_server() {
    for era in ERAS {
        let stage = Stage::new();
        let server = stage.opened(era).await;
        let mut hanging = Box::pin(call(&server, "hang", json!({}), CallContext::default()));
        tokio::select! {
            result = &mut hanging => panic!("{result:?}"),
            () = stage.hanging(1) => {}
        }
        server.shut_down().await;
        let error = hanging.await.unwrap_err();
        assert!(matches!(error, CallError::Transport { .. }), "{error:?}");
        assert_eq!(error.executed(), Executed::Yes);
        assert_eq!(
            error.text(),
            "MCP server 'stage' went away before it answered: it was shut down. The tool may have run"
        );
        assert_eq!(line(&server, "echo").await, "server_unavailable: MCP server 'stage' was shut down");
        assert!(server.open().await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_dropped_ends() {
    let stage = Stage::new();
    let server = stage.opened(Era::Session).await;
    let (entry, news) = (server.offer().borrow().tools[0].clone(), server.state());
    drop(server);
    settle().await;
    let call = ValidCall::admit(entry, json!({}).into(), CallContext::default(), Checks::None);
    assert_eq!(said(&call.unwrap().run().await), "server_unavailable: MCP server 'stage' was shut down");
    assert_eq!(*news.borrow(), ServerState::Stopped);
}
