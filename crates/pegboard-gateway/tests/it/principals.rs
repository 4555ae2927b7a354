//! Isolation between principals.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::ValidCall;
use pegboard_core::client::{InputRequest, InputRequests};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_gateway::Gateway;
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use pegboard_wire::RequestError;
use pegboard_wire::client::{Era, McpClient, RequestOptions};
use serde_json::{Value, json};

use crate::fixture::{call, connect, gateway, mcp_server, text, text_output};

/// Asks for a name.
struct AsksForName;

impl Handler for AsksForName {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let params = RawJson::from(json!({"mode": "form", "message": "Who?", "requestedSchema": {}}));
            let question = InputRequest { method: "elicitation/create".to_owned(), params };
            let answers =
                call.context().client().ask(InputRequests::from([("who".to_owned(), question)])).await;
            Ok(text_output(&answers.unwrap()["who"].to_value()["content"]["name"].to_string()))
        }
        .boxed()
    }
}

async fn start_gateway() -> Gateway {
    let name_tool = ToolEntry::from_handler("curious", "", Arc::new(AsksForName));
    let tools = [name_tool.with_input_schema(json!({"type": "object"}))];
    let runtime = Runtime::builder().toolbox("t", "").provide("s", mcp_server(tools)).start().await.unwrap();
    gateway(&runtime, json!({"expose": "flat"}))
}

async fn call_once(client: &McpClient, params: Value) -> Result<Value, String> {
    let pending = client.request("tools/call", Some(RawJson::from(params)), RequestOptions::default());
    match pending.await.unwrap().response().await {
        Ok(answer) => Ok(answer.to_value()),
        Err(RequestError::Rpc(error)) => Err(format!("{}: {}", error.code, error.message)),
        Err(failure) => panic!("{failure}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspended_call_is_private_to_its_principal() {
    let gateway = start_gateway().await;
    let (ann, _) = connect(&gateway.for_principal("ann"), None, Era::Stateless).await;
    let (bob, _) = connect(&gateway.for_principal("bob"), None, Era::Stateless).await;
    let first = json!({"name": "s__curious", "arguments": {}});
    let questions = call_once(&ann, first.clone()).await.unwrap();
    let mut again = first;
    again["requestState"] = questions["requestState"].clone();
    again["inputResponses"] = json!({"who": {"action": "accept", "content": {"name": "Bob"}}});
    let refused = call_once(&bob, again.clone()).await.unwrap_err();
    assert!(refused.starts_with("-32602: "), "{refused}");
    // It still waits for its owner.
    assert_eq!(text(&call_once(&ann, again).await.unwrap()), r#""Bob""#);
}

#[tokio::test]
async fn every_principal_sees_all_tools() {
    let gateway = start_gateway().await;
    let (client, _) = connect(&gateway.for_principal("ann"), None, Era::Session).await;
    assert_eq!(text(&call(&client, "s__curious", json!({})).await), r#""Ada""#);
    assert!(gateway.for_principal("ann").server(Some("meta")).is_ok());
    assert!(gateway.for_principal("ann").server(Some("nowhere")).is_err());
}
