//! Clients that must not find each other's things.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::ValidCall;
use pegboard_core::client::{Question, Questions};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_gateway::Gateway;
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use pegboard_wire::Failure;
use pegboard_wire::client::{Client, Era, RequestOptions};
use serde_json::{Value, json};

use crate::stage::{call, connect, gateway, mcp, said, text};

/// Asks who is there.
struct Curious;

impl Handler for Curious {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let params = RawJson::from(json!({"mode": "form", "message": "Who?", "requestedSchema": {}}));
            let question = Question { method: "elicitation/create".to_owned(), params };
            let answers = call.context().client().ask(Questions::from([("who".to_owned(), question)])).await;
            Ok(said(&answers.unwrap()["who"].to_value()["content"]["name"].to_string()))
        }
        .boxed()
    }
}

async fn stage() -> Gateway {
    let curious = ToolEntry::from_handler("curious", "", Arc::new(Curious));
    let tools = [curious.with_input_schema(json!({"type": "object"}))];
    let runtime = Runtime::builder().toolbox("t", "").provide("s", mcp(tools)).start().await.unwrap();
    gateway(&runtime, json!({"expose": "flat"}))
}

async fn asked(client: &Client, params: Value) -> Result<Value, String> {
    let exchange = client.request("tools/call", Some(RawJson::from(params)), RequestOptions::default());
    match exchange.await.unwrap().answer().await {
        Ok(answer) => Ok(answer.to_value()),
        Err(Failure::Refused(error)) => Err(format!("{}: {}", error.code, error.message)),
        Err(failure) => panic!("{failure}"),
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_else_goes_on_with_a_call_that_waits_for_its_client() {
    let gateway = stage().await;
    let (ann, _) = connect(&gateway.of("ann"), None, Era::Stateless).await;
    let (bob, _) = connect(&gateway.of("bob"), None, Era::Stateless).await;
    let first = json!({"name": "s__curious", "arguments": {}});
    let questions = asked(&ann, first.clone()).await.unwrap();
    let mut again = first;
    again["requestState"] = questions["requestState"].clone();
    again["inputResponses"] = json!({"who": {"action": "accept", "content": {"name": "Bob"}}});
    let refused = asked(&bob, again.clone()).await.unwrap_err();
    assert!(refused.starts_with("-32602: "), "{refused}");
    // It still waits for the one whose it is.
    assert_eq!(text(&asked(&ann, again).await.unwrap()), r#""Bob""#);
}

#[tokio::test]
async fn whoever_it_is_sees_what_there_is() {
    let gateway = stage().await;
    let (client, _) = connect(&gateway.of("ann"), None, Era::Session).await;
    assert_eq!(text(&call(&client, "s__curious", json!({})).await), r#""Ada""#);
    assert!(gateway.of("ann").server(Some("meta")).is_ok());
    assert!(gateway.of("ann").server(Some("nowhere")).is_err());
}
