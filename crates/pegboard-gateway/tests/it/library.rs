//! Prompts and resources of many servers at one endpoint.

use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, FutureExt, ready};
use pegboard_core::call::CallContext;
use pegboard_core::error::{CallError, ProtocolError, ToolError};
use pegboard_core::provider::{Features, Local, Offer, Provider, Request, ServerState, ToolKind, Update};
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use pegboard_wire::Failure;
use pegboard_wire::client::{Client, Era, RequestOptions};
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};

use crate::stage::{ERAS, connect, gateway, tells, until};

/// A server that has a few things to read, and remembers what it was asked for.
#[derive(Clone)]
struct Reader {
    name: &'static str,
    local: Arc<Local>,
    asked: Arc<Mutex<Vec<String>>>,
    updates: broadcast::Sender<Update>,
}

impl Reader {
    fn new(name: &'static str, resources: &[&str], templates: &[&str]) -> Self {
        let offer = Offer {
            prompts: vec![json!({"name": "greet", "description": "Says hello"}).into()],
            resources: resources.iter().map(|uri| json!({"uri": uri, "name": uri}).into()).collect(),
            templates: templates.iter().map(|uri| json!({"uriTemplate": uri, "name": uri}).into()).collect(),
            ..Offer::default()
        };
        Self {
            name,
            local: Arc::new(Local::offering(offer).of_kind(ToolKind::Mcp)),
            asked: Arc::default(),
            updates: broadcast::Sender::new(8),
        }
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl Provider for Reader {
    fn kind(&self) -> ToolKind {
        self.local.kind()
    }

    fn offer(&self) -> watch::Receiver<Arc<Offer>> {
        self.local.offer()
    }

    fn state(&self) -> watch::Receiver<ServerState> {
        self.local.state()
    }

    fn open(&self) -> BoxFuture<'_, Result<(), CallError>> {
        self.local.open()
    }

    fn request<'a>(
        &'a self,
        request: &'a Request,
        _context: &'a CallContext,
    ) -> BoxFuture<'a, Result<RawJson, CallError>> {
        let Request { method, params } = request;
        self.asked.lock().unwrap().push(format!("{} {}", method.as_str(), params.as_str()));
        let is_secret = params.get("uri").is_some_and(|uri| uri.as_str().contains("secret"));
        let answer = if is_secret && self.name != "b" {
            let refused = ProtocolError { code: -32_002, message: "no such thing".to_owned(), data: None };
            Err(CallError::Failed(ToolError::new("no such thing").refused(refused)))
        } else {
            Ok(json!({"from": self.name}).into())
        };
        ready(answer).boxed()
    }

    fn updates(&self) -> broadcast::Receiver<Update> {
        self.updates.subscribe()
    }

    fn shut_down(&self) -> BoxFuture<'_, ()> {
        self.local.shut_down()
    }
}

async fn two() -> (Reader, Reader, Runtime) {
    let a = Reader::new("a", &["file:///shared", "file:///a"], &["db://{table}/{row}"]);
    let b = Reader::new("b", &["file:///shared"], &["note://{+path}"]);
    let builder = Runtime::builder().toolbox("t", "").provide("a", a.clone()).provide("b", b.clone());
    (a, b, builder.start().await.unwrap())
}

async fn ask(client: &Client, method: &str, params: Value) -> Result<Value, String> {
    match client.call(method, Some(RawJson::from(params))).await {
        Ok(answer) => Ok(answer.to_value()),
        Err(Failure::Refused(error)) => Err(format!("{}: {}", error.code, error.message)),
        Err(failure) => panic!("{failure}"),
    }
}

/// The names in a list.
async fn names(client: &Client, method: &str, list: &str, key: &str) -> Vec<String> {
    let answer = ask(client, method, json!({})).await.unwrap();
    answer[list].as_array().unwrap().iter().map(|item| item[key].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn everything_is_listed_under_a_name_of_its_own() {
    for era in ERAS {
        let (_a, _b, runtime) = two().await;
        let (client, _) = connect(&gateway(&runtime, json!({})), Some("flat"), era).await;
        assert_eq!(names(&client, "prompts/list", "prompts", "name").await, ["a__greet", "b__greet"]);
        assert_eq!(
            names(&client, "resources/list", "resources", "uri").await,
            ["file:///shared", "file:///a", "pegboard://b/file:///shared"]
        );
        assert_eq!(
            names(&client, "resources/templates/list", "resourceTemplates", "uriTemplate").await,
            ["db://{table}/{row}", "note://{+path}"]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_a_server_has_just_read_to_the_end_is_listed_whole() {
    for era in ERAS {
        let reader = Reader::new("a", &[], &[]);
        let whole = Offer::clone(&reader.offer().borrow());
        let builder = Runtime::builder().toolbox("t", "").provide("a", reader.clone());
        let runtime = builder.start().await.unwrap();
        let (client, _) = connect(&gateway(&runtime, json!({})), Some("flat"), era).await;
        reader.local.replace(Offer { is_partial: true, ..Offer::default() });
        until(|| runtime.catalogue().shelves().any(|(shelf, _)| shelf.offer.is_partial)).await;
        // The catalogue is made anew only a moment later.
        reader.local.replace(whole);
        assert_eq!(names(&client, "prompts/list", "prompts", "name").await, ["a__greet"]);
    }
}

#[tokio::test]
async fn what_is_wanted_is_asked_of_the_server_that_has_it_in_its_own_words() {
    let uri = |uri: &str| json!({ "uri": uri });
    let complete = |reference: Value| json!({"ref": reference, "argument": {"name": "x", "value": "1"}});
    let cases = [
        ("prompts/get", json!({"name": "b__greet", "arguments": {"x": "1"}}), "b", r#""name":"greet""#),
        ("resources/read", uri("file:///shared"), "a", r#""uri":"file:///shared""#),
        ("resources/read", uri("pegboard://b/file:///shared"), "b", r#""uri":"file:///shared""#),
        ("resources/read", uri("db://users/7"), "a", r#""uri":"db://users/7""#),
        ("resources/read", uri("note://x/y"), "b", r#""uri":"note://x/y""#),
        // Nobody lists it: the first one refuses, the second one has it.
        ("resources/read", uri("file:///secret"), "b", r#""uri":"file:///secret""#),
        (
            "completion/complete",
            complete(json!({"type": "ref/prompt", "name": "b__greet"})),
            "b",
            r#""name":"greet""#,
        ),
        (
            "completion/complete",
            complete(json!({"type": "ref/resource", "uri": "note://{+path}"})),
            "b",
            r#""uri":"note://{+path}""#,
        ),
    ];
    for era in ERAS {
        let (a, b, runtime) = two().await;
        let (client, _) = connect(&gateway(&runtime, json!({})), Some("flat"), era).await;
        for (method, params, server, own) in &cases {
            a.asked();
            b.asked();
            let answer = ask(&client, method, params.clone()).await.unwrap();
            assert_eq!(answer["from"], *server, "{method} {params}");
            let asked = if *server == "a" { a.asked() } else { b.asked() };
            assert!(asked.len() == 1 && asked[0].contains(own), "{asked:?}");
        }
    }
}

#[tokio::test]
async fn what_nobody_has_is_refused_in_the_words_of_the_protocol() {
    let (_a, _b, runtime) = two().await;
    let (client, _) = connect(&gateway(&runtime, json!({})), Some("flat"), Era::Session).await;
    let refused = ask(&client, "prompts/get", json!({"name": "c__greet"})).await.unwrap_err();
    assert_eq!(
        refused,
        "-32602: Invalid params: There is no prompt 'c__greet'. prompts/list has their names"
    );
    let secret = json!({"uri": "pegboard://a/file:///secret"});
    let refused = ask(&client, "resources/read", secret).await.unwrap_err();
    assert_eq!(refused, "-32002: no such thing", "as the server said it");
    let empty = Runtime::builder().start().await.unwrap();
    let (client, _) = connect(&gateway(&empty, json!({})), Some("flat"), Era::Session).await;
    let refused = ask(&client, "resources/read", json!({"uri": "file:///a"})).await.unwrap_err();
    assert_eq!(refused, "-32002: Resource not found");
}

#[tokio::test]
async fn a_server_hears_that_nobody_listens_any_more_when_the_last_one_has_gone() {
    let (a, b, runtime) = two().await;
    let gateway = gateway(&runtime, json!({}));
    let (one, heard) = connect(&gateway, Some("flat"), Era::Session).await;
    let (other, also_heard) = connect(&gateway, Some("flat"), Era::Session).await;
    let uri = json!({"uri": "pegboard://b/file:///shared"});
    for client in [&one, &other] {
        ask(client, "resources/subscribe", uri.clone()).await.unwrap();
    }
    b.updates.send(Update::Resource(json!({"uri": "file:///shared"}).into())).unwrap();
    assert_eq!(heard.next().await, "notifications/resources/updated");
    assert_eq!(also_heard.next().await, "notifications/resources/updated");

    b.asked();
    ask(&one, "resources/unsubscribe", uri).await.unwrap();
    assert_eq!(b.asked(), [""; 0], "the other one still listens");
    drop(other);
    let is_told = |asked: &String| asked.starts_with("resources/unsubscribe");
    until(|| b.asked.lock().unwrap().iter().any(is_told)).await;
    assert_eq!(a.asked(), [""; 0]);
}

#[tokio::test]
async fn a_client_without_a_session_hears_of_a_resource_for_as_long_as_it_listens() {
    let (a, b, runtime) = two().await;
    let (client, heard) = connect(&gateway(&runtime, json!({})), Some("flat"), Era::Stateless).await;
    let params = json!({"notifications": {"resourceSubscriptions": ["pegboard://b/file:///shared"]}});
    let options = RequestOptions::default();
    let stream = client.request("subscriptions/listen", Some(params.into()), options).await.unwrap();
    assert_eq!(heard.next().await, "notifications/subscriptions/acknowledged");
    let asked = b.asked();
    assert_eq!(
        asked,
        [r#"resources/subscribe {"uri":"file:///shared"}"#],
        "it is asked before it is promised"
    );
    b.updates.send(Update::Resource(json!({"uri": "file:///else"}).into())).unwrap();
    b.updates.send(Update::Resource(json!({"uri": "file:///shared"}).into())).unwrap();
    assert_eq!(heard.next().await, "notifications/resources/updated");

    drop(stream);
    let is_told = |asked: &String| asked.starts_with("resources/unsubscribe");
    until(|| b.asked.lock().unwrap().iter().any(is_told)).await;
    assert_eq!(a.asked(), [""; 0]);
}

#[tokio::test]
async fn a_line_of_a_log_that_belongs_to_no_call_is_for_those_who_want_its_level() {
    let (a, _b, runtime) = two().await;
    let gateway = gateway(&runtime, json!({}));
    let (usual, usual_ears) = connect(&gateway, Some("flat"), Era::Session).await;
    let (curious, curious_ears) = connect(&gateway, Some("flat"), Era::Session).await;
    a.local
        .replace(Offer { features: Features { logging: true, ..Features::default() }, ..Offer::default() });
    until(|| runtime.catalogue().shelves().any(|(shelf, _)| shelf.offer.features.logging)).await;
    ask(&curious, "logging/setLevel", json!({"level": "debug"})).await.unwrap();
    until(|| a.asked.lock().unwrap().iter().any(|asked| asked == r#"logging/setLevel {"level":"debug"}"#))
        .await;
    for level in ["debug", "warning"] {
        a.updates.send(Update::Log(json!({"level": level, "data": "hm"}).into())).unwrap();
    }
    let line = |level: &str| format!(r#"notifications/message {{"level":"{level}","data":"hm"}}"#);
    for (ears, expected) in
        [(curious_ears, vec![line("debug"), line("warning")]), (usual_ears, vec![line("warning")])]
    {
        let mut lines = Vec::new();
        while lines.last() != expected.last() {
            lines.push(ears.next().await);
            lines.retain(|line| line.starts_with("notifications/message"));
        }
        assert_eq!(lines, expected);
    }
    drop((usual, curious));
}

#[tokio::test]
async fn a_tool_names_the_resource_of_its_view_as_it_is_listed() {
    let shows = |server: &'static str| {
        let definition = json!({
            "name": "show", "inputSchema": {"type": "object"},
            "_meta": {"ui": {"resourceUri": "ui://chart", "visibility": ["model"]}},
        });
        let reader = Reader::new(server, &["ui://chart"], &[]);
        let offer = reader.local.offer().borrow().as_ref().clone();
        let tool = tells(server, "show").with_definition(RawJson::from(definition));
        let extensions = json!({"io.modelcontextprotocol/ui": {"from": server}, "example.org/x": {}}).into();
        reader.local.replace(Offer { tools: vec![Arc::new(tool)], extensions: Some(extensions), ..offer });
        reader
    };
    for (profile, transparent) in [("flat", false), ("flat", true), ("hybrid", false)] {
        let builder = Runtime::builder().toolbox("t", "");
        let runtime = builder.provide("a", shows("a")).provide("b", shows("b")).start().await.unwrap();
        let settings = json!({"transparent": transparent, "pinned": ["*__show"]});
        for era in ERAS {
            let (client, _) = connect(&gateway(&runtime, settings.clone()), Some(profile), era).await;
            let list = ask(&client, "tools/list", json!({})).await.unwrap();
            let tools = list["tools"].as_array().unwrap().iter();
            let views: Vec<Value> =
                tools.map(|tool| tool["_meta"]["ui"].clone()).filter(Value::is_object).collect();
            let view = |uri: &str| json!({"resourceUri": uri, "visibility": ["model"]});
            assert_eq!(views, [view("ui://chart"), view("pegboard://b/ui://chart")], "{profile}");
            let read =
                ask(&client, "resources/read", json!({"uri": "pegboard://b/ui://chart"})).await.unwrap();
            assert_eq!(read["from"], "b");
            let extensions = &client.server().capabilities.to_value()["extensions"];
            assert_eq!(extensions["io.modelcontextprotocol/ui"], json!({"from": "a"}), "the first is heard");
            assert_eq!(extensions["example.org/x"], json!({}));
        }
    }
}
