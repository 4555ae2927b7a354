//! Requests other than tool calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pegboard_core::call::{Call, CallContext, Invoker};
use pegboard_core::error::CallError;
use pegboard_core::provider::{Provider, ProviderMethod, ProviderRequest, ProviderUpdate, ServerState};
use pegboard_json::RawJson;
use pegboard_providers::mcp::McpServer;
use pegboard_runtime::{CallerOptions, Runtime};
use pegboard_wire::client::Era;
use pegboard_wire::server::ServiceChange;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::time;

use crate::mcp::scripted::{
    ERAS, ScriptedReply, ScriptedServer, TestClient, call, outcome_text, settle, wait_for_state,
};

const EXACT: &str = r#"{"contents":[ {"uri":"x:a","text":"\u0041"}],"n":1e2}"#;

async fn request(server: &McpServer, method: ProviderMethod, params: Value) -> Result<RawJson, CallError> {
    let request = ProviderRequest { method, params: params.into() };
    server.request(&request, &CallContext::default()).await
}

/// Returns a server that supports resource subscriptions.
pub(crate) fn subscribable_server() -> ScriptedServer {
    let scripted = ScriptedServer::new();
    scripted.add_capability("resources", json!({"subscribe": true}));
    scripted.add_capability("logging", json!({}));
    for method in ["resources/subscribe", "resources/unsubscribe", "logging/setLevel"] {
        scripted.respond_to(method, ScriptedReply::json(&json!({})));
    }
    scripted
}

/// Returns the resource updates received so far.
async fn resource_updates(updates: &mut broadcast::Receiver<ProviderUpdate>) -> Vec<String> {
    settle().await;
    let mut updates_seen = Vec::new();
    loop {
        match updates.try_recv() {
            Ok(ProviderUpdate::Resource(params)) => updates_seen.push(params.as_str().to_owned()),
            Ok(other) => panic!("{other:?}"),
            Err(TryRecvError::Empty) => return updates_seen,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_starts_the_server_and_passes_byte_for_byte() {
    for era in ERAS {
        for (method, name) in [
            (ProviderMethod::GetPrompt, "prompts/get"),
            (ProviderMethod::ReadResource, "resources/read"),
            (ProviderMethod::Complete, "completion/complete"),
        ] {
            let scripted = ScriptedServer::new();
            scripted.respond_to(name, ScriptedReply::Raw(EXACT.to_owned()));
            let server = scripted.provider(era);
            let answer = request(&server, method, json!({"uri": "x:a", "name": "n"})).await.unwrap();
            // The time to live of a response is for the caller.
            assert_eq!(answer.without("ttlMs").without("cacheScope").as_str(), EXACT);
            let (received, params) = scripted.requests.lock().unwrap().last().cloned().unwrap();
            assert_eq!((received.as_str(), params.to_value()["uri"].as_str()), (name, Some("x:a")));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_keeps_the_message_of_the_server() {
    for era in ERAS {
        let server = ScriptedServer::new().open_provider(era).await;
        let error = request(&server, ProviderMethod::ReadResource, json!({"uri": "x:a"})).await.unwrap_err();
        assert_eq!(error.text(), "MCP error -32601: Method not found: resources/read");
    }
}

#[tokio::test(start_paused = true)]
async fn an_elicitation_goes_to_the_caller_of_the_request() {
    for era in ERAS {
        let server = ScriptedServer::new().open_provider(era).await;
        let ann = TestClient::named("Ann");
        let asking =
            ProviderRequest { method: ProviderMethod::GetPrompt, params: json!({"name": "ask"}).into() };
        let answer = server.request(&asking, &ann.context()).await.unwrap();
        assert_eq!(answer.to_value()["content"][0]["text"], "Hello, Ann!");
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_a_request_cancels_it_at_the_server() {
    for era in ERAS {
        let scripted = ScriptedServer::new();
        scripted.respond_to("resources/read", ScriptedReply::Hang);
        let server = scripted.open_provider(era).await;
        {
            let hanging = request(&server, ProviderMethod::ReadResource, json!({}));
            tokio::select! {
                result = hanging => panic!("{result:?}"),
                () = scripted.wait_for_hanging(1) => {}
            }
        }
        scripted.wait_for_hanging(0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_is_retried_once_after_a_lost_connection() {
    for era in ERAS {
        let scripted = ScriptedServer::new();
        scripted.respond_to("resources/read", ScriptedReply::HangOnce(EXACT.to_owned()));
        let server = scripted.open_provider(era).await;
        let killing = async {
            scripted.wait_for_hanging(1).await;
            scripted.disconnect();
        };
        let (answer, ()) = tokio::join!(request(&server, ProviderMethod::ReadResource, json!({})), killing);
        assert!(answer.unwrap().as_str().starts_with(EXACT.trim_end_matches('}')));
        assert_eq!((scripted.n_requests("resources/read"), scripted.n_started()), (2, 2));

        // Only once.
        scripted.respond_to("resources/read", ScriptedReply::Hang);
        let killing = async {
            for n_requests in [3, 4] {
                while scripted.n_requests("resources/read") < n_requests {
                    time::sleep(Duration::from_millis(10)).await;
                }
                scripted.disconnect();
            }
        };
        let (answer, ()) = tokio::join!(request(&server, ProviderMethod::ReadResource, json!({})), killing);
        assert_eq!(
            answer.unwrap_err().text(),
            "MCP server 'scripted' failed before it responded: the connection was closed"
        );
        assert_eq!(scripted.n_requests("resources/read"), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_call_is_retried_only_if_it_is_safe_to_repeat() {
    let lost = "transport_error: MCP server 'scripted' failed before it responded: the connection was closed. The \
                tool may have run";
    for era in ERAS {
        for (annotations, expected) in [
            (json!({}), (lost, 1)),
            (json!({"readOnlyHint": false, "idempotentHint": false}), (lost, 1)),
            (json!({"destructiveHint": false}), (lost, 1)),
            (json!({"readOnlyHint": true}), ("done", 2)),
            (json!({"idempotentHint": true}), ("done", 2)),
        ] {
            let scripted = ScriptedServer::new();
            let tool = json!({"name": "once", "annotations": annotations});
            scripted.set_tool_pages(vec![json!({"tools": [tool]}).to_string()]);
            let server = scripted.open_provider(era).await;
            let killing = async {
                scripted.wait_for_hanging(1).await;
                scripted.disconnect();
            };
            let calling = call(&server, "once", json!({}), CallContext::default());
            let (result, ()) = tokio::join!(calling, killing);
            wait_for_state(&server, &ServerState::Ready).await;
            assert_eq!((outcome_text(&result).as_str(), scripted.n_calls("once")), expected, "{annotations}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_safe_call_fails_with_the_loss_if_the_restart_fails() {
    let scripted = ScriptedServer::new();
    let tool = json!({"name": "once", "annotations": {"readOnlyHint": true}});
    scripted.set_tool_pages(vec![json!({"tools": [tool]}).to_string()]);
    let server = scripted.open_provider(ERAS[0]).await;
    scripted.next_starts([crate::mcp::scripted::ScriptedStart::Refuse]);
    let killing = async {
        scripted.wait_for_hanging(1).await;
        scripted.disconnect();
    };
    let (result, ()) = tokio::join!(call(&server, "once", json!({}), CallContext::default()), killing);
    assert!(matches!(result, Err(CallError::Transport { .. })), "{}", outcome_text(&result));
}

#[tokio::test(start_paused = true)]
async fn only_subscribed_resources_are_reported() {
    for era in ERAS {
        let scripted = subscribable_server();
        let server = scripted.provider(era);
        let mut updates = server.updates();
        request(&server, ProviderMethod::Subscribe, json!({"uri": "x:a"})).await.unwrap();
        request(&server, ProviderMethod::Subscribe, json!({"uri": "x:b"})).await.unwrap();
        for uri in ["x:a", "x:b", "x:c"] {
            scripted.notify_change(ServiceChange::Resource { uri: uri.to_owned(), params: None });
        }
        assert_eq!(resource_updates(&mut updates).await, [r#"{"uri":"x:a"}"#, r#"{"uri":"x:b"}"#]);

        request(&server, ProviderMethod::Unsubscribe, json!({"uri": "x:a"})).await.unwrap();
        settle().await;
        for uri in ["x:a", "x:b"] {
            scripted.notify_change(ServiceChange::Resource { uri: uri.to_owned(), params: None });
        }
        assert_eq!(resource_updates(&mut updates).await, [r#"{"uri":"x:b"}"#]);
    }
}

#[tokio::test(start_paused = true)]
async fn subscriptions_survive_a_restart() {
    for era in ERAS {
        let scripted = subscribable_server();
        let server = scripted.open_provider(era).await;
        request(&server, ProviderMethod::Subscribe, json!({"uri": "x:a"})).await.unwrap();
        request(&server, ProviderMethod::SetLogLevel, json!({"level": "error"})).await.unwrap();
        let mut updates = server.updates();
        scripted.disconnect();
        scripted.wait_for_starts(2).await;
        wait_for_state(&server, &ServerState::Ready).await;
        assert_eq!(
            resource_updates(&mut updates).await,
            [r#"{"uri":"x:a"}"#],
            "it may have changed in the meantime"
        );
        scripted.notify_change(ServiceChange::Resource { uri: "x:a".to_owned(), params: None });
        assert_eq!(resource_updates(&mut updates).await, [r#"{"uri":"x:a"}"#]);
        let n_levels = if era == Era::Session { 2 } else { 0 };
        assert_eq!(scripted.n_requests("logging/setLevel"), n_levels);
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_keeps_an_idle_server_running() {
    for era in ERAS {
        let scripted = subscribable_server();
        let second = Duration::from_secs(1);
        let server = scripted.provider_with(era, |settings| settings.idle_stop = Some(second));
        request(&server, ProviderMethod::Subscribe, json!({"uri": "x:a"})).await.unwrap();
        time::sleep(second * 10).await;
        assert_eq!(*server.state().borrow(), ServerState::Ready);
        request(&server, ProviderMethod::Unsubscribe, json!({"uri": "x:a"})).await.unwrap();
        wait_for_state(&server, &ServerState::Idle).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_level_applies_to_every_call_of_a_server_with_sessions() {
    // A stateless server gets the level of the caller with each request, whatever others have asked for.
    for (era, n_lines_of_error) in [(Era::Session, 0), (Era::Stateless, 2)] {
        let scripted = subscribable_server();
        let server = scripted.open_provider(era).await;
        for (level, n_lines) in [("error", n_lines_of_error), ("debug", 2), ("error", n_lines_of_error)] {
            request(&server, ProviderMethod::SetLogLevel, json!({"level": level})).await.unwrap();
            let ann = TestClient::named("Ann");
            call(&server, "count", json!({}), ann.context()).await.unwrap();
            let lines = ann.received().into_iter().filter(|received| received.starts_with('"'));
            assert_eq!(lines.count(), n_lines, "{level}");
        }
        let error =
            request(&server, ProviderMethod::SetLogLevel, json!({"level": "loud"})).await.unwrap_err();
        assert_eq!(error.text(), "`level` must be a log level, such as info");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_without_subscriptions_refuses_them() {
    let cases = [
        (Era::Session, "MCP error -32601: Method not found: resources/subscribe"),
        (Era::Stateless, "MCP server 'scripted' does not support resource subscriptions"),
    ];
    for (era, expected) in cases {
        let server = ScriptedServer::new().open_provider(era).await;
        let error = request(&server, ProviderMethod::Subscribe, json!({"uri": "x:a"})).await.unwrap_err();
        assert_eq!(error.text(), expected);
        let error = request(&server, ProviderMethod::Subscribe, json!({"uri": 5})).await.unwrap_err();
        assert_eq!(error.text(), "`uri` must be a string");
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_message_outside_any_call_is_an_update() {
    let scripted = ScriptedServer::new();
    scripted.set_tools(&["mutter"]);
    let server = scripted.open_provider(Era::Session).await;
    let mut updates = server.updates();
    call(&server, "mutter", json!({}), CallContext::default()).await.unwrap();
    let line = RawJson::from(json!({"level": "info", "data": "by the way"}));
    assert_eq!(updates.recv().await.unwrap(), ProviderUpdate::Log(line));
}

#[tokio::test(start_paused = true)]
async fn log_messages_of_a_dedicated_instance_are_not_updates() {
    let scripted = ScriptedServer::new();
    scripted.set_tools(&["mutter"]);
    let server = scripted.provider_with(Era::Session, |settings| settings.is_shared = false);
    let mut updates = server.updates();
    let runtime = Runtime::builder().provide("scripted", server).start().await.unwrap();
    let callers = [(); 2].map(|()| runtime.caller(CallerOptions::default()));
    for caller in &callers {
        assert!(caller.start(Call::new("scripted__mutter", json!({}))).await.result.is_ok());
    }
    time::sleep(Duration::from_secs(10)).await;
    assert_eq!((updates.try_recv(), scripted.n_running()), (Err(TryRecvError::Empty), 3));
}

#[tokio::test(start_paused = true)]
async fn url_elicitations_are_completed_and_the_call_is_retried() {
    let cases = [
        (true, Some("Ann"), "welcome back", 2),
        // The caller does not accept.
        (true, None, "MCP error -32042: go there first", 1),
        // A caller with a session knows the error and retries by itself.
        (false, Some("Ann"), "MCP error -32042: go there first", 1),
    ];
    for (retries_with_answers, name, expected, n_calls) in cases {
        let scripted = ScriptedServer::new();
        scripted.set_tools(&["elsewhere"]);
        let server = scripted.open_provider(Era::Session).await;
        let client = Arc::new(TestClient { name, retries_with_answers, ..TestClient::default() });
        let text = match call(&server, "elsewhere", json!({}), client.context()).await {
            Ok(output) => output.text().to_string(),
            Err(error) => error.text(),
        };
        assert_eq!((text.as_str(), scripted.n_calls("elsewhere")), (expected, n_calls));
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_is_read_again_when_its_ttl_expires() {
    let cases = [
        (json!({}), 60_000, 2),
        // A server with change notifications is not polled.
        (json!({"listChanged": true}), 60_000, 1),
        // A time to live of zero is ignored.
        (json!({}), 0, 1),
    ];
    for (how, ttl, n_list_requests) in cases {
        let scripted = ScriptedServer::new();
        scripted.add_capability("tools", how.clone());
        let tool = json!({"name": "echo", "inputSchema": {"type": "object"}});
        scripted
            .set_tool_pages(vec![json!({"tools": [tool], "ttlMs": ttl, "cacheScope": "public"}).to_string()]);
        let _server = scripted.open_provider(Era::Stateless).await;
        time::sleep(Duration::from_secs(61)).await;
        assert_eq!(scripted.n_list_requests.load(Ordering::SeqCst), n_list_requests, "{how} {ttl}");
    }
}
