//! Bridging between clients and servers of different eras.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, join};
use pegboard_core::call::ValidCall;
use pegboard_core::client::{AskError, ClientMeta, InputRequest, InputRequests};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, ProtocolError, ToolError};
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_gateway::Gateway;
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use pegboard_wire::RequestError;
use pegboard_wire::client::{Era, McpClient, RequestOptions};
use pegboard_wire::era::LogLevel;
use serde_json::{Value, json};

use crate::fixture::{
    ERAS, call, connect, connect_as, gateway, mcp_server, scripted_tool, text, text_output, use_tool,
};

/// Sends two separate input requests concurrently, as session servers do.
struct AsksTwiceConcurrently;

impl Handler for AsksTwiceConcurrently {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let ask = |message: &str| call.context().client().ask(form(message));
            let (first, second) = join(ask("first?"), ask("second?")).await;
            let name = |answers: Result<_, AskError>| -> Value {
                let answers: pegboard_core::client::InputResponses = answers.unwrap();
                answers["elicitation/create"].to_value()["content"]["name"].clone()
            };
            Ok(text_output(&format!("{} {}", name(first), name(second))))
        }
        .boxed()
    }
}

/// Fails with an RPC error because its client has no model.
struct NeedsModel;

impl Handler for NeedsModel {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let params = RawJson::from(json!({"messages": [], "maxTokens": 1}));
            let question = InputRequest { method: "sampling/createMessage".to_owned(), params };
            let answers =
                call.context().client().ask(InputRequests::from([("m".to_owned(), question)])).await;
            Err(rpc_failure(-32_603, &format!("I need a model: {}", answers.unwrap_err())))
        }
        .boxed()
    }
}

fn form(message: &str) -> InputRequests {
    let params =
        json!({"mode": "form", "message": message, "requestedSchema": {"type": "object", "properties": {}}});
    let question = InputRequest { method: "elicitation/create".to_owned(), params: RawJson::from(params) };
    InputRequests::from([("elicitation/create".to_owned(), question)])
}

fn rpc_failure(code: i64, message: &str) -> CallError {
    let refused = ProtocolError {
        code,
        message: message.to_owned(),
        data: Some(RawJson::from(json!({"because": "so"}))),
    };
    CallError::Failed(ToolError::new(format!("MCP error {code}: {message}")).with_protocol_error(refused))
}

async fn start_gateway() -> Gateway {
    let tool = |name: &'static str, handler: Arc<dyn Handler>| {
        ToolEntry::from_handler(name, "", handler).with_input_schema(json!({"type": "object"}))
    };
    let tools = [
        scripted_tool("remarks", |call| {
            let ClientMeta { capabilities, log_level, custom } =
                call.context().client().request_meta().unwrap();
            let [capabilities, log_level, custom] =
                [capabilities, log_level, custom].map(|part| part.as_ref().unwrap().to_value());
            let remarks = json!({"capabilities": capabilities, "logLevel": log_level, "custom": custom});
            Ok(text_output(&remarks.to_string()))
        }),
        scripted_tool("refuses", |_| Err(rpc_failure(-32_042, "not yet"))),
        tool("two", Arc::new(AsksTwiceConcurrently)),
        tool("needs_model", Arc::new(NeedsModel)),
    ];
    let runtime = Runtime::builder().toolbox("t", "").provide("s", mcp_server(tools)).start().await.unwrap();
    gateway(&runtime, json!({"expose": "flat"}))
}

async fn call_error(client: &McpClient, tool: &str) -> (i64, String, Value) {
    let params = RawJson::from(json!({"name": tool, "arguments": {}}));
    match client.call("tools/call", Some(params)).await.unwrap_err() {
        RequestError::Rpc(error) => (error.code, error.message, error.data.unwrap().to_value()),
        failure => panic!("{failure}"),
    }
}

#[tokio::test]
async fn request_meta_reaches_the_tool() {
    for era in ERAS {
        let capabilities =
            json!({"elicitation": {"form": {}}, "sampling": {"tools": {}}, "tasks": {"list": {}}});
        let (client, _) = connect_as(&start_gateway().await, None, era, "test", capabilities).await;
        if era == Era::Session {
            client.call("logging/setLevel", Some(RawJson::from(json!({"level": "debug"})))).await.unwrap();
        }
        let own = json!({"progressToken": 5, "example.org/tenant": "blue", "tracestate": "a=1"});
        let params = RawJson::from(json!({"name": "s__remarks", "arguments": {}, "_meta": own}));
        let options = RequestOptions { log_level: Some(LogLevel::Debug), ..RequestOptions::default() };
        let pending = client.request("tools/call", Some(params), options).await.unwrap();
        let remarks: Value =
            serde_json::from_str(&text(&pending.response().await.unwrap().to_value())).unwrap();
        let expected = json!({
            "capabilities": {"elicitation": {"form": {}}, "sampling": {"tools": {}}},
            "logLevel": "debug",
            "custom": {"example.org/tenant": "blue", "tracestate": "a=1"},
        });
        assert_eq!(remarks, expected, "{era:?}");
    }
}

#[tokio::test]
async fn rpc_errors_pass_unchanged_for_directly_called_tools() {
    for era in ERAS {
        let (client, _) = connect(&start_gateway().await, None, era).await;
        let expected = (-32_042, "not yet".to_owned(), json!({"because": "so"}));
        assert_eq!(call_error(&client, "s__refuses").await, expected);
        // A model reads the result of `use_tool`.
        let text_seen = text(&use_tool(&client, ["t", "s", "refuses"], json!({})).await);
        assert_eq!(
            text_seen,
            "isError: Error executing tool 'refuses' in server 's' (toolbox 't'): MCP error -32042: not yet"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_input_requests_are_batched() {
    let (client, _) = connect(&start_gateway().await, None, Era::Stateless).await;
    let first = json!({"name": "s__two", "arguments": {}});
    let pending = client.request("tools/call", Some(RawJson::from(first.clone())), RequestOptions::default());
    let reply = pending.await.unwrap().response().await.unwrap().to_value();
    let messages = |name: &str| reply["inputRequests"][name]["params"]["message"].clone();
    let mut both = [messages("elicitation/create"), messages("elicitation/create-2")];
    both.sort_by_key(Value::to_string);
    assert_eq!(both, [json!("first?"), json!("second?")]);

    let answer = |name: &str| json!({"action": "accept", "content": {"name": name}});
    let mut again = first;
    again["requestState"] = reply["requestState"].clone();
    again["inputResponses"] =
        json!({"elicitation/create": answer("Ann"), "elicitation/create-2": answer("Bob")});
    let pending = client.request("tools/call", Some(RawJson::from(again)), RequestOptions::default());
    let result = pending.await.unwrap().response().await.unwrap().to_value();
    assert_eq!(text(&result), r#""Ann" "Bob""#);
}

#[tokio::test]
async fn answers_may_precede_input_requests() {
    let (client, _) = connect(&start_gateway().await, None, Era::Stateless).await;
    let answer = json!({"action": "accept", "content": {"name": "Ann"}});
    let params = json!({
        "name": "s__two", "arguments": {},
        "inputResponses": {"elicitation/create": answer, "of no use": {}},
    });
    let pending = client.request("tools/call", Some(RawJson::from(params)), RequestOptions::default());
    let reply = pending.await.unwrap().response().await.unwrap().to_value();
    assert_eq!(reply["inputRequests"].as_object().unwrap().len(), 1, "one of the two is answered: {reply}");
}

#[tokio::test]
async fn a_missing_capability_is_reported_to_stateless_clients() {
    let gateway = start_gateway().await;
    let (client, _) = connect(&gateway, None, Era::Stateless).await;
    let message = "The client lacks the capability 'sampling' that this request needs";
    let expected = (-32_021, message.to_owned(), json!({"requiredCapabilities": {"sampling": {}}}));
    assert_eq!(call_error(&client, "s__needs_model").await, expected);
    // A session client has declared its capabilities for good, so it gets the server's own error.
    let (client, _) = connect(&gateway, None, Era::Session).await;
    let text_seen = "I need a model: the caller does not support input requests";
    assert_eq!(
        call_error(&client, "s__needs_model").await,
        (-32_603, text_seen.to_owned(), json!({"because": "so"}))
    );
}

#[tokio::test]
async fn url_elicitation_needs_the_url_capability() {
    let cases = [
        (json!({"elicitation": {}}), "form", true),
        (json!({"elicitation": {}}), "url", false),
        (json!({"elicitation": {"url": {}}}), "form", false),
        (json!({"elicitation": {"url": {}}}), "url", true),
        (json!({"elicitation": {"form": {}, "url": {}}}), "url", true),
        (json!({}), "form", false),
    ];
    let ask =
        ToolEntry::from_handler("ask", "", Arc::new(AsksInMode)).with_input_schema(json!({"type": "object"}));
    let runtime = Runtime::builder().toolbox("t", "").provide("s", mcp_server([ask])).start().await.unwrap();
    let gateway = gateway(&runtime, json!({"expose": "flat"}));
    for (capabilities, mode, is_supported) in cases {
        let (client, _) = connect_as(&gateway, None, Era::Session, "test", capabilities.clone()).await;
        let outcome = text(&call(&client, "s__ask", json!({"mode": mode})).await);
        let expected = if is_supported { "accept" } else { "the caller does not support input requests" };
        assert_eq!(outcome, expected, "{capabilities} {mode}");
    }
}

/// Sends an elicitation in the requested mode.
struct AsksInMode;

impl Handler for AsksInMode {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let mode = call.raw_arguments().get("mode").unwrap();
            let params = RawJson::from(json!({"message": "Where to?"})).with("mode", &mode);
            let question = InputRequest { method: "elicitation/create".to_owned(), params };
            let answers =
                call.context().client().ask(InputRequests::from([("q".to_owned(), question)])).await;
            Ok(text_output(&match answers {
                Ok(answers) => answers["q"].to_value()["action"].as_str().unwrap().to_owned(),
                Err(error) => error.to_string(),
            }))
        }
        .boxed()
    }
}

#[tokio::test]
async fn url_elicitations_have_an_id_for_session_clients_only() {
    let url_tool = ToolEntry::from_handler("visit", "", Arc::new(SendsUrlElicitation));
    let url_tool = url_tool.with_input_schema(json!({"type": "object"}));
    let runtime =
        Runtime::builder().toolbox("t", "").provide("s", mcp_server([url_tool])).start().await.unwrap();
    let gateway = gateway(&runtime, json!({"expose": "flat"}));
    let capabilities = json!({"elicitation": {"form": {}, "url": {}}});
    for (era, has_session) in [(Era::Session, true), (Era::Stateless, false)] {
        let (client, _) = connect_as(&gateway, None, era, "test", capabilities.clone()).await;
        let answer = text(&call(&client, "s__visit", json!({"elicitationId": "mine"})).await);
        assert_eq!(
            answer,
            if has_session { r#"{"name":"Ada","visit":"mine"}"# } else { r#"{"name":"Ada"}"# }
        );
        let answer = text(&call(&client, "s__visit", json!({})).await);
        assert_eq!(answer.starts_with(r#"{"name":"Ada","visit":""#), has_session, "{answer}");
    }
}

/// Sends a URL elicitation with the requested id.
struct SendsUrlElicitation;

impl Handler for SendsUrlElicitation {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let params = json!({"mode": "url", "message": "Go", "url": "https://example.org/"});
            let id = call.raw_arguments().get("elicitationId");
            let params = RawJson::from(params);
            let params = id.iter().fold(params, |params, id| params.with("elicitationId", id));
            let question = InputRequest { method: "elicitation/create".to_owned(), params };
            let answers =
                call.context().client().ask(InputRequests::from([("q".to_owned(), question)])).await;
            Ok(text_output(answers.unwrap()["q"].get("content").unwrap().as_str()))
        }
        .boxed()
    }
}
