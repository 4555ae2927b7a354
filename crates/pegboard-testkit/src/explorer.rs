//! A client that tries everything a server offers: each tool, prompt and resource once, or just the calls it is told.

use std::process::Stdio;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use pegboard_wire::client::{Client, ClientOptions, ConnectError, Era, RequestOptions};
use pegboard_wire::http::client::HttpOptions;
use pegboard_wire::link::InputLimits;
use pegboard_wire::link::{Link, TransportError};
use pegboard_wire::stdio::lines;
use pegboard_wire::{
    Failure, Happening, Id, Inbound, Notification, RawJson, Receiver, RpcError, http, websocket,
};
use serde_json::{Map, Value, json};
use tokio::process::{Child, Command};

/// The scenarios of the conformance suite that this client is put through, as `NAME@REVISION`.
pub const SCENARIOS: [&str; 12] = [
    "initialize@2025-11-25",
    "tools_call@2025-11-25",
    "elicitation-sep1034-client-defaults@2025-11-25",
    "sse-retry@2025-11-25",
    "json-schema-2020-12-preservation@2025-11-25",
    "tools_call@2026-07-28",
    "request-metadata@2026-07-28",
    "sep-2322-client-request-state@2026-07-28",
    "http-standard-headers@2026-07-28",
    "http-custom-headers@2026-07-28",
    "http-invalid-tool-headers@2026-07-28",
    "json-schema-ref-no-deref@2026-07-28",
];

/// Where a server is.
pub enum Target {
    /// At an address that speaks streamable HTTP.
    Http(String),
    /// At an address that speaks HTTP+SSE of revision 2024-11-05.
    Sse(String),
    /// At a WebSocket address.
    WebSocket(String),
    /// Behind the standard input and output of a program.
    Stdio(String, Vec<String>),
}

/// What to try.
pub enum Plan {
    /// Everything there is; the context of a conformance scenario may name the calls to make.
    Everything(Value),
    /// Just these calls, tool and arguments, each with all that is said about it.
    Calls(Vec<(String, RawJson)>),
}

/// Connects to a server, says how, and tries what is planned. `era` is found out unless it is given.
pub async fn explore(target: &Target, era: Option<Era>, plan: Plan) -> Result<(), ConnectError> {
    let capabilities = json!({"elicitation": {"applyDefaults": true}, "sampling": {}, "roots": {}});
    let options = ClientOptions {
        capabilities: RawJson::from(capabilities),
        era,
        ..ClientOptions::new("pegboard-explorer", "1")
    };
    // The program behind a pipe is killed when this is dropped.
    let (link, _program) = link_to(target).await?;
    let client = Client::connect(link, Arc::new(Agreeable), options).await?;
    let list = client.call("tools/list", None).await;
    let (tools, refused) = list.as_ref().map(|list| client.take_tools(list)).unwrap_or_default();
    introduce(&client, &tools);
    if let Err(failure) = list {
        println!("tools/list: {failure}");
    }
    for line in refused {
        println!("{line}");
    }
    match plan {
        Plan::Everything(context) => try_everything(&client, &tools, &context).await,
        Plan::Calls(calls) => {
            for (name, arguments) in calls {
                match call_aloud(&client, &name, &arguments).await {
                    Ok(result) => println!("{name}: {}", beginning(&result)),
                    Err(failure) => println!("{name}: {failure}"),
                }
            }
        }
    }
    Ok(())
}

async fn link_to(target: &Target) -> Result<(Link, Option<Child>), ConnectError> {
    let link = match target {
        Target::Http(url) => http::client::connect(HttpOptions::new(parsed(url)?))?,
        Target::Sse(url) => http::legacy_client::connect(HttpOptions::new(parsed(url)?))?,
        Target::WebSocket(url) => {
            let options = HttpOptions::new(parsed(url)?);
            websocket::client::connect(&options.url, options.headers, InputLimits::client()).await?
        }
        Target::Stdio(program, arguments) => {
            let mut child = Command::new(program)
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .map_err(|error| TransportError::failed(format!("{program} does not start: {error}")))?;
            let pipes = child.stdout.take().zip(child.stdin.take());
            let (stdout, stdin) = pipes.expect("both are piped");
            return Ok((lines(stdout, stdin, InputLimits::client()).0, Some(child)));
        }
    };
    Ok((link, None))
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(url: &str) -> Result<T, ConnectError> {
    url.parse().map_err(|error| ConnectError::Nonsense(format!("{url} is no URL: {error}")))
}

fn introduce(client: &Client, tools: &[RawJson]) {
    let era = match client.era() {
        Era::Session => "session",
        Era::Stateless => "stateless",
    };
    let server = client.server();
    let name = server.info.as_ref().and_then(|info| info.get("name")?.read::<String>().ok());
    let (revision, name) = (server.revision, name.as_deref().unwrap_or("without a name"));
    println!("connected: {era} {revision}, server {name}, {} tools", tools.len());
}

async fn try_everything(client: &Client, tools: &[RawJson], context: &Value) {
    for (name, arguments) in calls(tools, context) {
        let params = RawJson::from(json!({"name": name})).with("arguments", &arguments);
        say(&name, client.call("tools/call", Some(params)).await);
    }
    for prompt in list(client, "prompts", "prompts/list", "prompts").await {
        say("prompts/get", client.call("prompts/get", Some(only(&prompt, "name"))).await);
    }
    for resource in list(client, "resources", "resources/list", "resources").await {
        say("resources/read", client.call("resources/read", Some(only(&resource, "uri"))).await);
    }
}

fn say(what: &str, result: Result<RawJson, Failure>) {
    match result {
        Ok(_) => println!("{what}: answered"),
        Err(failure) => println!("{what}: {failure}"),
    }
}

/// Calls a tool and prints what is said about the call before its end.
async fn call_aloud(client: &Client, name: &str, arguments: &RawJson) -> Result<RawJson, Failure> {
    let params = RawJson::from(json!({"name": name, "_meta": {"progressToken": "explorer"}}));
    let params = params.with("arguments", arguments);
    let mut call = client.request("tools/call", Some(params.clone()), RequestOptions::default()).await?;
    let result = loop {
        match call.next().await {
            Happening::Notice(notice) => {
                let params = notice.params.unwrap_or_else(RawJson::empty_object);
                println!("{name}: {} {}", notice.method, beginning(&params));
            }
            Happening::End(end) => break end?,
        }
    };
    let is_question = result.get("inputRequests").is_some() || result.get("requestState").is_some();
    // Questions are the client's to answer, in a call of its own.
    if is_question { client.call("tools/call", Some(params)).await } else { Ok(result) }
}

/// The first 200 characters.
fn beginning(json: &RawJson) -> String {
    json.as_str().chars().take(200).collect()
}

/// The calls that the context names, or one of each tool.
fn calls(tools: &[RawJson], context: &Value) -> Vec<(String, RawJson)> {
    if let Some(calls) = context["toolCalls"].as_array() {
        let call = |call: &Value| {
            (call["name"].as_str().unwrap_or_default().to_owned(), RawJson::of(&call["arguments"]))
        };
        return calls.iter().map(call).collect();
    }
    let rich =
        tools.iter().find_map(|tool| tool.get("inputSchema").filter(|schema| schema.get("$defs").is_some()));
    let named =
        |tool: &RawJson| tool.get("name").and_then(|name| name.read::<String>().ok()).unwrap_or_default();
    let with_arguments = |tool: &RawJson| {
        let schema = tool.get("inputSchema").unwrap_or_else(RawJson::empty_object);
        let arguments = RawJson::from(arguments_for(&schema.to_value()));
        // A tool that takes a schema is shown the richest one there is, byte for byte.
        match (&rich, schema.at(&["properties", "schema"])) {
            (Some(rich), Some(_)) => arguments.with("schema", rich),
            _ => arguments,
        }
    };
    tools.iter().map(|tool| (named(tool), with_arguments(tool))).collect()
}

/// Arguments that a schema accepts, as far as its types tell.
fn arguments_for(schema: &Value) -> Value {
    let example = |property: &Value| match property["type"].as_str() {
        Some("integer" | "number") => json!(5),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("test"),
    };
    let properties = schema["properties"].as_object().into_iter().flatten();
    Value::Object(properties.map(|(name, property)| (name.clone(), example(property))).collect::<Map<_, _>>())
}

async fn list(client: &Client, capability: &str, method: &str, member: &str) -> Vec<RawJson> {
    if client.server().capabilities.get(capability).is_none() {
        return Vec::new();
    }
    let list = client.call(method, None).await.ok().and_then(|list| list.get(member));
    list.map(|list| list.items().collect()).unwrap_or_default()
}

/// An object with just this member of another.
fn only(object: &RawJson, member: &str) -> RawJson {
    let value = object.get(member).unwrap_or_else(|| RawJson::of(""));
    RawJson::empty_object().with(member, &value)
}

/// Accepts every question, with the defaults that it offers.
struct Agreeable;

impl Receiver for Agreeable {
    fn request(&self, inbound: Inbound) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        let params = inbound.request.params.map(|params| params.to_value()).unwrap_or_default();
        let answer = match &*inbound.request.method {
            "elicitation/create" => {
                Ok(json!({"action": "accept", "content": filled_in(&params["requestedSchema"])}))
            }
            "sampling/createMessage" => {
                Ok(json!({"role": "assistant", "content": {"type": "text", "text": "Yes."}, "model": "none"}))
            }
            "roots/list" => Ok(json!({"roots": []})),
            method => Err(RpcError::method_not_found(method)),
        };
        std::future::ready(answer.map(RawJson::from)).boxed()
    }

    fn notification(&self, _notification: Notification, _about: Option<Id>) {}
}

fn filled_in(schema: &Value) -> Value {
    let examples = arguments_for(schema);
    let properties = schema["properties"].as_object().into_iter().flatten();
    let value = |(name, property): (&String, &Value)| {
        (name.clone(), property.get("default").cloned().unwrap_or_else(|| examples[name].clone()))
    };
    Value::Object(properties.map(value).collect::<Map<_, _>>())
}
