//! Requests from servers to callers during a call.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, ready};
use pegboard_core::call::CallContext;
use pegboard_core::client::{AskError, Client, InputRequests, InputResponses, Notice};
use pegboard_core::error::{CallError, ProtocolError};
use pegboard_core::provider::Provider;
use pegboard_wire::client::Era;
use serde_json::json;

use crate::mcp::scripted::{ERAS, ScriptedServer, TestClient, call, call_text, outcome_text, wait_until};

#[tokio::test(start_paused = true)]
async fn an_elicitation_goes_to_the_caller() {
    for era in ERAS {
        let scripted = ScriptedServer::new();
        let server = scripted.open_provider(era).await;
        let ann = TestClient::named("Ann");
        assert_eq!(outcome_text(&call(&server, "ask", json!({}), ann.context()).await), "Hello, Ann!");
        assert_eq!(ann.received(), ["elicitation/create"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unanswerable_elicitation_fails_the_call() {
    let cases = [
        (
            Era::Session,
            "execution_error: MCP error -32603: The request cannot be answered: the caller does not support input requests",
        ),
        (
            Era::Stateless,
            "execution_error: the server requested input, but the caller does not support input requests",
        ),
    ];
    for (era, expected) in cases {
        let scripted = ScriptedServer::new();
        let server = scripted.open_provider(era).await;
        let unanswering = std::sync::Arc::new(TestClient::default());
        assert_eq!(outcome_text(&call(&server, "ask", json!({}), unanswering.context()).await), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_a_client_is_not_asked() {
    let scripted = ScriptedServer::new();
    let server = scripted.open_provider(Era::Session).await;
    assert_eq!(
        call_text(&server, "ask").await,
        "execution_error: MCP error -32603: The request cannot be answered: it belongs to no call in flight"
    );
    // The request declares no such capability, so the server does not ask.
    let server = scripted.open_provider(Era::Stateless).await;
    assert_eq!(
        call_text(&server, "ask").await,
        "execution_error: MCP error -32021: The client lacks the capability 'elicitation' that this request needs"
    );
}

#[tokio::test(start_paused = true)]
async fn an_ambiguous_elicitation_is_refused_with_a_warning() {
    let scripted = ScriptedServer::new();
    let server = scripted.open_provider(Era::Session).await;
    let offering = server.offering();
    let (ann, bob) = (TestClient::named("Ann"), TestClient::named("Bob"));
    let hanging = call(&server, "hang", json!({}), bob.context());
    let asking = async {
        scripted.wait_for_hanging(1).await;
        outcome_text(&call(&server, "ask", json!({}), ann.context()).await)
    };
    let asked = tokio::select! {
        result = hanging => panic!("{result:?}"),
        asked = asking => asked,
    };
    assert_eq!(
        asked,
        "execution_error: MCP error -32603: The request cannot be answered: calls of several clients are in flight and \
         it does not name one; set `shared: false` for the server"
    );
    wait_until(server.offering(), |offering| !offering.warnings.is_empty()).await;
    insta::assert_snapshot!(offering.borrow().warnings.join("\n"), @"the server sends requests that do not name the call they belong to, so clients that use it at the same time have separate instances with separate state; `shared: false` gives every session its own from the start");
    // With a single call in flight the request is not ambiguous.
    assert_eq!(outcome_text(&call(&server, "ask", json!({}), ann.context()).await), "Hello, Ann!");
    assert_eq!((ann.received().len(), bob.received().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn stateless_elicitations_reach_their_own_callers() {
    let scripted = ScriptedServer::new();
    let server = scripted.open_provider(Era::Stateless).await;
    let (ann, bob) = (TestClient::named("Ann"), TestClient::named("Bob"));
    let (to_ann, to_bob) = tokio::join!(
        call(&server, "ask", json!({}), ann.context()),
        call(&server, "ask", json!({}), bob.context())
    );
    assert_eq!(
        (outcome_text(&to_ann), outcome_text(&to_bob)),
        ("Hello, Ann!".to_owned(), "Hello, Bob!".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_cannot_be_asked_has_no_roots() {
    let scripted = ScriptedServer::new();
    let server = scripted.open_provider(Era::Session).await;
    assert_eq!(call_text(&server, "roots").await, r#"{"where":{"roots":[]}}"#);
    let unanswering = std::sync::Arc::new(TestClient::default());
    assert_eq!(
        outcome_text(&call(&server, "roots", json!({}), unanswering.context()).await),
        r#"{"where":{"roots":[]}}"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_suspended_for_an_unrelated_roots_request() {
    let scripted = ScriptedServer::new();
    let server = scripted.open_provider(Era::Session).await;
    let client = TestClient { name: Some("Ann"), retries_with_answers: true, ..TestClient::default() };
    let ann = std::sync::Arc::new(client);
    assert_eq!(
        outcome_text(&call(&server, "roots", json!({}), ann.context()).await),
        r#"{"where":{"roots":[]}}"#
    );
    assert_eq!(ann.received(), [""; 0]);
    // An elicitation, unlike a roots request, suspends the call.
    assert_eq!(outcome_text(&call(&server, "ask", json!({}), ann.context()).await), "Hello, Ann!");
}

/// Refuses every request with an error of its own.
struct RefusingClient(ProtocolError);

impl Client for RefusingClient {
    fn notify(&self, _notice: Notice) {}

    fn ask(&self, _requests: InputRequests) -> BoxFuture<'_, Result<InputResponses, AskError>> {
        ready(Err(AskError::Refused(Box::new(self.0.clone())))).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_server_gets_the_error_of_the_caller_unchanged() {
    let scripted = ScriptedServer::new();
    let server = scripted.open_provider(Era::Session).await;
    let refusal =
        ProtocolError { code: -1, message: "User rejected".to_owned(), data: Some(json!({"n": 1}).into()) };
    let mut context = CallContext::default();
    context.client = Some(Arc::new(RefusingClient(refusal.clone())));
    let result = call(&server, "ask", json!({}), context).await;
    let Err(CallError::Failed(error)) = &result else { panic!("{result:?}") };
    assert_eq!(error.protocol(), Some(&refusal));
}

#[tokio::test(start_paused = true)]
async fn a_session_server_may_run_an_elicitation_as_a_task() {
    let scripted = ScriptedServer::new();
    scripted.set_tools(&["defer"]);
    let server = scripted.open_provider(Era::Session).await;
    let ann = TestClient::named("Ann");
    let result = call(&server, "defer", json!({}), ann.context()).await;
    assert_eq!(outcome_text(&result), r#""working" "completed" "Ann""#);
    assert_eq!(ann.received(), ["elicitation/create"]);
}
