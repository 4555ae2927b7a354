//! What passes between a client and a server that speak in different eras.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, join};
use pegboard_core::call::ValidCall;
use pegboard_core::client::{AskError, Question, Questions};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, ProtocolError, ToolError};
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_gateway::Gateway;
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use pegboard_wire::Failure;
use pegboard_wire::client::{Client, Era, RequestOptions};
use pegboard_wire::era::LogLevel;
use serde_json::{Value, json};

use crate::stage::{ERAS, call, connect, connect_as, gateway, mcp, said, scripted, text, use_tool};

/// Asks two things at once, as servers with a session do: each by itself.
struct TwoAtOnce;

impl Handler for TwoAtOnce {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let ask = |message: &str| call.context().client().ask(form(message));
            let (first, second) = join(ask("first?"), ask("second?")).await;
            let name = |answers: Result<_, AskError>| -> Value {
                let answers: pegboard_core::client::Answers = answers.unwrap();
                answers["elicitation/create"].to_value()["content"]["name"].clone()
            };
            Ok(said(&format!("{} {}", name(first), name(second))))
        }
        .boxed()
    }
}

/// Cannot do anything without a model, and says so as servers do.
struct NeedsModel;

impl Handler for NeedsModel {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let params = RawJson::from(json!({"messages": [], "maxTokens": 1}));
            let question = Question { method: "sampling/createMessage".to_owned(), params };
            let asked = call.context().client().ask(Questions::from([("m".to_owned(), question)])).await;
            Err(refusal(-32_603, &format!("I need a model: {}", asked.unwrap_err())))
        }
        .boxed()
    }
}

fn form(message: &str) -> Questions {
    let params =
        json!({"mode": "form", "message": message, "requestedSchema": {"type": "object", "properties": {}}});
    let question = Question { method: "elicitation/create".to_owned(), params: RawJson::from(params) };
    Questions::from([("elicitation/create".to_owned(), question)])
}

fn refusal(code: i64, message: &str) -> CallError {
    let refused = ProtocolError {
        code,
        message: message.to_owned(),
        data: Some(RawJson::from(json!({"because": "so"}))),
    };
    CallError::Failed(ToolError::new(format!("MCP error {code}: {message}")).refused(refused))
}

async fn stage() -> Gateway {
    let asking = |name: &'static str, handler: Arc<dyn Handler>| {
        ToolEntry::from_handler(name, "", handler).with_input_schema(json!({"type": "object"}))
    };
    let tools = [
        scripted("remarks", |call| {
            let remarks = call.context().client().remarks().unwrap();
            Ok(said(remarks.as_str()))
        }),
        scripted("refuses", |_| Err(refusal(-32_042, "not yet"))),
        asking("two", Arc::new(TwoAtOnce)),
        asking("needs_model", Arc::new(NeedsModel)),
    ];
    let runtime = Runtime::builder().toolbox("t", "").provide("s", mcp(tools)).start().await.unwrap();
    gateway(&runtime, json!({"expose": "flat"}))
}

async fn refused(client: &Client, tool: &str) -> (i64, String, Value) {
    let params = RawJson::from(json!({"name": tool, "arguments": {}}));
    match client.call("tools/call", Some(params)).await.unwrap_err() {
        Failure::Refused(error) => (error.code, error.message, error.data.unwrap().to_value()),
        failure => panic!("{failure}"),
    }
}

#[tokio::test]
async fn what_a_client_says_with_its_request_reaches_the_tool() {
    for era in ERAS {
        let capabilities =
            json!({"elicitation": {"form": {}}, "sampling": {"tools": {}}, "tasks": {"list": {}}});
        let (client, _) = connect_as(&stage().await, None, era, "test", capabilities).await;
        if era == Era::Session {
            client.call("logging/setLevel", Some(RawJson::from(json!({"level": "debug"})))).await.unwrap();
        }
        let own = json!({"progressToken": 5, "example.org/tenant": "blue", "tracestate": "a=1"});
        let params = RawJson::from(json!({"name": "s__remarks", "arguments": {}, "_meta": own}));
        let options = RequestOptions { log_level: Some(LogLevel::Debug), ..RequestOptions::default() };
        let exchange = client.request("tools/call", Some(params), options).await.unwrap();
        let remarks: Value =
            serde_json::from_str(&text(&exchange.answer().await.unwrap().to_value())).unwrap();
        let expected = json!({
            "example.org/tenant": "blue",
            "tracestate": "a=1",
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}, "sampling": {"tools": {}}},
            "io.modelcontextprotocol/logLevel": "debug",
        });
        assert_eq!(remarks, expected, "{era:?}");
    }
}

#[tokio::test]
async fn a_refusal_of_a_server_passes_as_it_is_where_the_tool_goes_by_its_own_name() {
    for era in ERAS {
        let (client, _) = connect(&stage().await, None, era).await;
        let expected = (-32_042, "not yet".to_owned(), json!({"because": "so"}));
        assert_eq!(refused(&client, "s__refuses").await, expected);
        // A model reads what this one answers.
        let words = text(&use_tool(&client, ["t", "s", "refuses"], json!({})).await);
        assert_eq!(
            words,
            "isError: Error executing tool 'refuses' in server 's' (toolbox 't'): MCP error -32042: not yet"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn questions_that_are_asked_at_once_come_together() {
    let (client, _) = connect(&stage().await, None, Era::Stateless).await;
    let first = json!({"name": "s__two", "arguments": {}});
    let exchange =
        client.request("tools/call", Some(RawJson::from(first.clone())), RequestOptions::default());
    let asked = exchange.await.unwrap().answer().await.unwrap().to_value();
    let messages = |name: &str| asked["inputRequests"][name]["params"]["message"].clone();
    let mut both = [messages("elicitation/create"), messages("elicitation/create-2")];
    both.sort_by_key(Value::to_string);
    assert_eq!(both, [json!("first?"), json!("second?")]);

    let answer = |name: &str| json!({"action": "accept", "content": {"name": name}});
    let mut again = first;
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] =
        json!({"elicitation/create": answer("Ann"), "elicitation/create-2": answer("Bob")});
    let exchange = client.request("tools/call", Some(RawJson::from(again)), RequestOptions::default());
    let result = exchange.await.unwrap().answer().await.unwrap().to_value();
    assert_eq!(text(&result), r#""Ann" "Bob""#);
}

#[tokio::test]
async fn an_answer_may_come_before_its_question() {
    let (client, _) = connect(&stage().await, None, Era::Stateless).await;
    let answer = json!({"action": "accept", "content": {"name": "Ann"}});
    let params = json!({
        "name": "s__two", "arguments": {},
        "inputResponses": {"elicitation/create": answer, "of no use": {}},
    });
    let exchange = client.request("tools/call", Some(RawJson::from(params)), RequestOptions::default());
    let asked = exchange.await.unwrap().answer().await.unwrap().to_value();
    assert_eq!(asked["inputRequests"].as_object().unwrap().len(), 1, "one of the two is answered: {asked}");
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_is_told_what_it_would_have_to_be_able_to_do() {
    let gateway = stage().await;
    let (client, _) = connect(&gateway, None, Era::Stateless).await;
    let lacks = "The client lacks the capability 'sampling' that this request needs";
    let expected = (-32_021, lacks.to_owned(), json!({"requiredCapabilities": {"sampling": {}}}));
    assert_eq!(refused(&client, "s__needs_model").await, expected);
    // Who has said once and for all what it can do gets the server's own words.
    let (client, _) = connect(&gateway, None, Era::Session).await;
    let words = "I need a model: the caller cannot be asked";
    assert_eq!(
        refused(&client, "s__needs_model").await,
        (-32_603, words.to_owned(), json!({"because": "so"}))
    );
}

#[tokio::test]
async fn a_client_that_knows_forms_alone_is_not_sent_to_an_address() {
    let cases = [
        (json!({"elicitation": {}}), "form", true),
        (json!({"elicitation": {}}), "url", false),
        (json!({"elicitation": {"url": {}}}), "form", false),
        (json!({"elicitation": {"url": {}}}), "url", true),
        (json!({"elicitation": {"form": {}, "url": {}}}), "url", true),
        (json!({}), "form", false),
    ];
    let ask = ToolEntry::from_handler("ask", "", Arc::new(Asks)).with_input_schema(json!({"type": "object"}));
    let runtime = Runtime::builder().toolbox("t", "").provide("s", mcp([ask])).start().await.unwrap();
    let gateway = gateway(&runtime, json!({"expose": "flat"}));
    for (capabilities, mode, is_asked) in cases {
        let (client, _) = connect_as(&gateway, None, Era::Session, "test", capabilities.clone()).await;
        let said = text(&call(&client, "s__ask", json!({"mode": mode})).await);
        let expected = if is_asked { "accept" } else { "the caller cannot be asked" };
        assert_eq!(said, expected, "{capabilities} {mode}");
    }
}

/// Asks something in the mode that it is told.
struct Asks;

impl Handler for Asks {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let mode = call.raw_arguments().get("mode").unwrap();
            let params = RawJson::from(json!({"message": "Where to?"})).with("mode", &mode);
            let question = Question { method: "elicitation/create".to_owned(), params };
            let asked = call.context().client().ask(Questions::from([("q".to_owned(), question)])).await;
            Ok(said(&match asked {
                Ok(answers) => answers["q"].to_value()["action"].as_str().unwrap().to_owned(),
                Err(error) => error.to_string(),
            }))
        }
        .boxed()
    }
}

#[tokio::test]
async fn a_visit_to_an_address_has_an_id_where_there_are_sessions() {
    let visit = ToolEntry::from_handler("visit", "", Arc::new(Visits));
    let visit = visit.with_input_schema(json!({"type": "object"}));
    let runtime = Runtime::builder().toolbox("t", "").provide("s", mcp([visit])).start().await.unwrap();
    let gateway = gateway(&runtime, json!({"expose": "flat"}));
    let capabilities = json!({"elicitation": {"form": {}, "url": {}}});
    for (era, has_session) in [(Era::Session, true), (Era::Stateless, false)] {
        let (client, _) = connect_as(&gateway, None, era, "test", capabilities.clone()).await;
        let heard = text(&call(&client, "s__visit", json!({"elicitationId": "mine"})).await);
        assert_eq!(heard, if has_session { r#"{"name":"Ada","visit":"mine"}"# } else { r#"{"name":"Ada"}"# });
        let heard = text(&call(&client, "s__visit", json!({})).await);
        assert_eq!(heard.starts_with(r#"{"name":"Ada","visit":""#), has_session, "{heard}");
    }
}

/// Sends the client to an address, under the id that it is told.
struct Visits;

impl Handler for Visits {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let asked = json!({"mode": "url", "message": "Go", "url": "https://example.org/"});
            let id = call.raw_arguments().get("elicitationId");
            let params = RawJson::from(asked);
            let params = id.iter().fold(params, |params, id| params.with("elicitationId", id));
            let question = Question { method: "elicitation/create".to_owned(), params };
            let asked = call.context().client().ask(Questions::from([("q".to_owned(), question)])).await;
            Ok(said(asked.unwrap()["q"].get("content").unwrap().as_str()))
        }
        .boxed()
    }
}
