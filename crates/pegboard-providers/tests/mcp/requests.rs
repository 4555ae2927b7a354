//! What a server is asked to do beside calls of its tools.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pegboard_core::call::{Call, CallContext, Invoker};
use pegboard_core::error::CallError;
use pegboard_core::provider::{Method, Provider, Request, ServerState, Update};
use pegboard_json::RawJson;
use pegboard_providers::mcp::Server;
use pegboard_runtime::{CallerOptions, Runtime};
use pegboard_wire::client::Era;
use pegboard_wire::server::Change;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::time;

use crate::stage::{Act, ERAS, Person, Stage, call, said, settle, until};

const EXACT: &str = r#"{"contents":[ {"uri":"x:a","text":"\u0041"}],"n":1e2}"#;

async fn request(server: &Server, method: Method, params: Value) -> Result<RawJson, CallError> {
    let request = Request { method, params: params.into() };
    server.request(&request, &CallContext::default()).await
}

/// A server that tells when resources change.
pub(crate) fn watched() -> Stage {
    let stage = Stage::new();
    stage.can("resources", json!({"subscribe": true}));
    stage.can("logging", json!({}));
    for method in ["resources/subscribe", "resources/unsubscribe", "logging/setLevel"] {
        stage.on(method, Act::say(&json!({})));
    }
    stage
}

/// What was told of resources by now.
async fn told(updates: &mut broadcast::Receiver<Update>) -> Vec<String> {
    settle().await;
    let mut told = Vec::new();
    loop {
        match updates.try_recv() {
            Ok(Update::Resource(params)) => told.push(params.as_str().to_owned()),
            Ok(other) => panic!("{other:?}"),
            Err(TryRecvError::Empty) => return told,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_starts_the_server_and_passes_byte_for_byte() {
    for era in ERAS {
        for (method, name) in [
            (Method::GetPrompt, "prompts/get"),
            (Method::ReadResource, "resources/read"),
            (Method::Complete, "completion/complete"),
        ] {
            let stage = Stage::new();
            stage.on(name, Act::Say(EXACT.to_owned()));
            let server = stage.provider(era);
            let answer = request(&server, method, json!({"uri": "x:a", "name": "n"})).await.unwrap();
            // How long an answer may be kept is for whoever asked.
            assert_eq!(answer.without("ttlMs").without("cacheScope").as_str(), EXACT);
            let (came, params) = stage.requests.lock().unwrap().last().cloned().unwrap();
            assert_eq!((came.as_str(), params.to_value()["uri"].as_str()), (name, Some("x:a")));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_in_the_servers_words() {
    for era in ERAS {
        let server = Stage::new().opened(era).await;
        let error = request(&server, Method::ReadResource, json!({"uri": "x:a"})).await.unwrap_err();
        assert_eq!(error.text(), "MCP error -32601: Method not found: resources/read");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_about_a_request_goes_to_whoever_made_it() {
    for era in ERAS {
        let server = Stage::new().opened(era).await;
        let ann = Person::named("Ann");
        let asking = Request { method: Method::GetPrompt, params: json!({"name": "ask"}).into() };
        let answer = server.request(&asking, &ann.context()).await.unwrap();
        assert_eq!(answer.to_value()["content"][0]["text"], "Hello, Ann!");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_is_cancelled_at_the_server() {
    for era in ERAS {
        let stage = Stage::new();
        stage.on("resources/read", Act::Hang);
        let server = stage.opened(era).await;
        {
            let hanging = request(&server, Method::ReadResource, json!({}));
            tokio::select! {
                result = hanging => panic!("{result:?}"),
                () = stage.hanging(1) => {}
            }
        }
        stage.hanging(0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_only_reads_is_done_once_more_if_the_server_dies() {
    for era in ERAS {
        let stage = Stage::new();
        stage.on("resources/read", Act::HangOnce(EXACT.to_owned()));
        let server = stage.opened(era).await;
        let killing = async {
            stage.hanging(1).await;
            stage.cut();
        };
        let (answer, ()) = tokio::join!(request(&server, Method::ReadResource, json!({})), killing);
        assert!(answer.unwrap().as_str().starts_with(EXACT.trim_end_matches('}')));
        assert_eq!((stage.n_requests("resources/read"), stage.n_started()), (2, 2));

        // Once more, and not for ever.
        stage.on("resources/read", Act::Hang);
        let killing = async {
            for n_requests in [3, 4] {
                while stage.n_requests("resources/read") < n_requests {
                    time::sleep(Duration::from_millis(10)).await;
                }
                stage.cut();
            }
        };
        let (answer, ()) = tokio::join!(request(&server, Method::ReadResource, json!({})), killing);
        assert_eq!(
            answer.unwrap_err().text(),
            "MCP server 'stage' went away before it answered: the connection was closed"
        );
        assert_eq!(stage.n_requests("resources/read"), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_called_once_more_only_if_that_is_known_to_be_harmless() {
    let lost = "transport_error: MCP server 'stage' went away before it answered: the connection was closed. The \
                tool may have run";
    for era in ERAS {
        for (annotations, expected) in [
            (json!({}), (lost, 1)),
            (json!({"readOnlyHint": false, "idempotentHint": false}), (lost, 1)),
            (json!({"destructiveHint": false}), (lost, 1)),
            (json!({"readOnlyHint": true}), ("done", 2)),
            (json!({"idempotentHint": true}), ("done", 2)),
        ] {
            let stage = Stage::new();
            let tool = json!({"name": "once", "annotations": annotations});
            stage.list_pages(vec![json!({"tools": [tool]}).to_string()]);
            let server = stage.opened(era).await;
            let killing = async {
                stage.hanging(1).await;
                stage.cut();
            };
            let calling = call(&server, "once", json!({}), CallContext::default());
            let (result, ()) = tokio::join!(calling, killing);
            until(&server, &ServerState::Ready).await;
            assert_eq!((said(&result).as_str(), stage.n_calls("once")), expected, "{annotations}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_harmless_call_whose_server_stays_away_is_told_as_a_loss() {
    let stage = Stage::new();
    let tool = json!({"name": "once", "annotations": {"readOnlyHint": true}});
    stage.list_pages(vec![json!({"tools": [tool]}).to_string()]);
    let server = stage.opened(ERAS[0]).await;
    stage.next_starts([crate::stage::Start::Refuse]);
    let killing = async {
        stage.hanging(1).await;
        stage.cut();
    };
    let (result, ()) = tokio::join!(call(&server, "once", json!({}), CallContext::default()), killing);
    assert!(matches!(result, Err(CallError::Transport { .. })), "{}", said(&result));
}

#[tokio::test(start_paused = true)]
async fn who_subscribes_is_told_and_who_does_not_is_not() {
    for era in ERAS {
        let stage = watched();
        let server = stage.provider(era);
        let mut updates = server.updates();
        request(&server, Method::Subscribe, json!({"uri": "x:a"})).await.unwrap();
        request(&server, Method::Subscribe, json!({"uri": "x:b"})).await.unwrap();
        for uri in ["x:a", "x:b", "x:c"] {
            stage.tell(Change::Resource { uri: uri.to_owned() });
        }
        assert_eq!(told(&mut updates).await, [r#"{"uri":"x:a"}"#, r#"{"uri":"x:b"}"#]);

        request(&server, Method::Unsubscribe, json!({"uri": "x:a"})).await.unwrap();
        settle().await;
        for uri in ["x:a", "x:b"] {
            stage.tell(Change::Resource { uri: uri.to_owned() });
        }
        assert_eq!(told(&mut updates).await, [r#"{"uri":"x:b"}"#]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_outlives_the_server() {
    for era in ERAS {
        let stage = watched();
        let server = stage.opened(era).await;
        request(&server, Method::Subscribe, json!({"uri": "x:a"})).await.unwrap();
        request(&server, Method::SetLogLevel, json!({"level": "error"})).await.unwrap();
        let mut updates = server.updates();
        stage.cut();
        stage.starts(2).await;
        until(&server, &ServerState::Ready).await;
        assert_eq!(told(&mut updates).await, [r#"{"uri":"x:a"}"#], "it may have changed meanwhile");
        stage.tell(Change::Resource { uri: "x:a".to_owned() });
        assert_eq!(told(&mut updates).await, [r#"{"uri":"x:a"}"#]);
        let n_levels = if era == Era::Session { 2 } else { 0 };
        assert_eq!(stage.n_requests("logging/setLevel"), n_levels);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_watched_is_not_unused() {
    for era in ERAS {
        let stage = watched();
        let second = Duration::from_secs(1);
        let server = stage.provider_with(era, |settings| settings.idle_stop = Some(second));
        request(&server, Method::Subscribe, json!({"uri": "x:a"})).await.unwrap();
        time::sleep(second * 10).await;
        assert_eq!(*server.state().borrow(), ServerState::Ready);
        request(&server, Method::Unsubscribe, json!({"uri": "x:a"})).await.unwrap();
        until(&server, &ServerState::Idle).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_level_counts_for_every_call() {
    for era in ERAS {
        let stage = watched();
        let server = stage.opened(era).await;
        for (level, n_lines) in [("error", 0), ("debug", 2)] {
            request(&server, Method::SetLogLevel, json!({"level": level})).await.unwrap();
            let ann = Person::named("Ann");
            call(&server, "count", json!({}), ann.context()).await.unwrap();
            let lines = ann.heard().into_iter().filter(|heard| heard.starts_with('"'));
            assert_eq!(lines.count(), n_lines, "{level}");
        }
        let error = request(&server, Method::SetLogLevel, json!({"level": "loud"})).await.unwrap_err();
        assert_eq!(error.text(), "`level` must be a log level, such as info");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_watch_says_so() {
    let cases = [
        (Era::Session, "MCP error -32601: Method not found: resources/subscribe"),
        (Era::Stateless, "MCP server 'stage' does not tell when its resources change"),
    ];
    for (era, expected) in cases {
        let server = Stage::new().opened(era).await;
        let error = request(&server, Method::Subscribe, json!({"uri": "x:a"})).await.unwrap_err();
        assert_eq!(error.text(), expected);
        let error = request(&server, Method::Subscribe, json!({"uri": 5})).await.unwrap_err();
        assert_eq!(error.text(), "`uri` must be a text");
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_of_the_log_that_is_nobodys_is_an_update() {
    let stage = Stage::new();
    stage.list(&["mutter"]);
    let server = stage.opened(Era::Session).await;
    let mut updates = server.updates();
    call(&server, "mutter", json!({}), CallContext::default()).await.unwrap();
    let line = RawJson::from(json!({"level": "info", "data": "by the way"}));
    assert_eq!(updates.recv().await.unwrap(), Update::Log(line));
}

#[tokio::test(start_paused = true)]
async fn a_line_of_the_log_of_one_sessions_server_is_for_nobody_else() {
    let stage = Stage::new();
    stage.list(&["mutter"]);
    let server = stage.provider_with(Era::Session, |settings| settings.is_shared = false);
    let mut updates = server.updates();
    let runtime = Runtime::builder().provide("stage", server).start().await.unwrap();
    let callers = [(); 2].map(|()| runtime.caller(CallerOptions::default()));
    for caller in &callers {
        assert!(caller.start(Call::new("stage__mutter", json!({}))).await.result.is_ok());
    }
    time::sleep(Duration::from_secs(10)).await;
    assert_eq!((updates.try_recv(), stage.n_running()), (Err(TryRecvError::Empty), 3));
}

#[tokio::test(start_paused = true)]
async fn who_is_asked_in_rounds_is_sent_to_an_address_and_the_call_is_made_again() {
    let cases = [
        (true, Some("Ann"), "welcome back", 2),
        // Nobody goes there.
        (true, None, "MCP error -32042: go there first", 1),
        // Who has a session knows the error, and calls again by itself.
        (false, Some("Ann"), "MCP error -32042: go there first", 1),
    ];
    for (comes_again, name, expected, n_calls) in cases {
        let stage = Stage::new();
        stage.list(&["elsewhere"]);
        let server = stage.opened(Era::Session).await;
        let person = Arc::new(Person { name, comes_again, ..Person::default() });
        let said = match call(&server, "elsewhere", json!({}), person.context()).await {
            Ok(output) => output.text().to_string(),
            Err(error) => error.text(),
        };
        assert_eq!((said.as_str(), stage.n_calls("elsewhere")), (expected, n_calls));
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_is_read_again_when_it_may_be_kept_no_longer() {
    let cases = [
        (json!({}), 60_000, 2),
        // One that says when it changes need not be asked.
        (json!({"listChanged": true}), 60_000, 1),
        // One that may not be kept at all is kept all the same.
        (json!({}), 0, 1),
    ];
    for (how, keep, n_lists) in cases {
        let stage = Stage::new();
        stage.can("tools", how.clone());
        let tool = json!({"name": "echo", "inputSchema": {"type": "object"}});
        stage.list_pages(vec![json!({"tools": [tool], "ttlMs": keep, "cacheScope": "public"}).to_string()]);
        let _server = stage.opened(Era::Stateless).await;
        time::sleep(Duration::from_secs(61)).await;
        assert_eq!(stage.n_lists.load(Ordering::SeqCst), n_lists, "{how} {keep}");
    }
}
