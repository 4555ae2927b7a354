//! A client that exercises a server: every tool, prompt and resource once, or just the given calls.

use std::process::Stdio;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use pegboard_wire::client::{ClientOptions, Era, HandshakeError, McpClient, RequestOptions};
use pegboard_wire::http::client::HttpOptions;
use pegboard_wire::stdio::line_transport;
use pegboard_wire::transport::InputLimits;
use pegboard_wire::transport::{TransportError, TransportHandle};
use pegboard_wire::{
    Id, InboundHandler, InboundRequest, Notification, RawJson, RequestError, ResponseEvent, RpcError, http,
    websocket,
};
use serde_json::{Map, Value, json};
use tokio::process::{Child, Command};

/// The conformance scenarios that this client runs, as `NAME@REVISION`.
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

/// The address of a server.
pub enum ServerTarget {
    /// A streamable HTTP URL.
    Http(String),
    /// An HTTP+SSE URL of revision 2024-11-05.
    Sse(String),
    /// A WebSocket URL.
    WebSocket(String),
    /// The standard input and output of a program.
    Stdio(String, Vec<String>),
}

/// The calls to make.
pub enum ExplorePlan {
    /// Every tool, prompt and resource; the context of a conformance scenario may name the calls.
    Everything(Value),
    /// Just these calls, as tool and arguments, with all their notifications.
    Calls(Vec<(String, RawJson)>),
}

/// Connects to a server, prints the handshake and executes the plan. `era` is negotiated unless given.
pub async fn explore(
    target: &ServerTarget,
    era: Option<Era>,
    plan: ExplorePlan,
) -> Result<(), HandshakeError> {
    let capabilities = json!({"elicitation": {"applyDefaults": true}, "sampling": {}, "roots": {}});
    let options = ClientOptions {
        capabilities: RawJson::from(capabilities),
        era,
        ..ClientOptions::new("pegboard-explorer", "1")
    };
    // The program behind a pipe is killed when this is dropped.
    let (transport, _program) = connect_to(target).await?;
    let client = McpClient::connect(transport, Arc::new(AcceptingHandler), options).await?;
    let list = client.call("tools/list", None).await;
    let (tools, refused) = list.as_ref().map(|list| client.register_tools(list)).unwrap_or_default();
    print_handshake(&client, &tools);
    if let Err(failure) = list {
        println!("tools/list: {failure}");
    }
    for line in refused {
        println!("{line}");
    }
    match plan {
        ExplorePlan::Everything(context) => try_everything(&client, &tools, &context).await,
        ExplorePlan::Calls(calls) => {
            for (name, arguments) in calls {
                match call_verbosely(&client, &name, &arguments).await {
                    Ok(result) => println!("{name}: {}", truncated(&result)),
                    Err(failure) => println!("{name}: {failure}"),
                }
            }
        }
    }
    Ok(())
}

async fn connect_to(target: &ServerTarget) -> Result<(TransportHandle, Option<Child>), HandshakeError> {
    let transport = match target {
        ServerTarget::Http(url) => http::client::connect(HttpOptions::new(parsed(url)?))?,
        ServerTarget::Sse(url) => http::legacy_client::connect(HttpOptions::new(parsed(url)?))?,
        ServerTarget::WebSocket(url) => {
            let options = HttpOptions::new(parsed(url)?);
            websocket::client::connect(&options.url, options.headers, InputLimits::client()).await?
        }
        ServerTarget::Stdio(program, arguments) => {
            let mut child = Command::new(program)
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .map_err(|error| TransportError::failed(format!("cannot start {program}: {error}")))?;
            let pipes = child.stdout.take().zip(child.stdin.take());
            let (stdout, stdin) = pipes.expect("both are piped");
            return Ok((line_transport(stdout, stdin, InputLimits::client()).0, Some(child)));
        }
    };
    Ok((transport, None))
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(url: &str) -> Result<T, HandshakeError> {
    url.parse().map_err(|error| HandshakeError::InvalidResponse(format!("invalid URL {url}: {error}")))
}

fn print_handshake(client: &McpClient, tools: &[RawJson]) {
    let era = match client.era() {
        Era::Session => "session",
        Era::Stateless => "stateless",
    };
    let server = client.server();
    let name = server.info.as_ref().and_then(|info| info.get("name")?.read::<String>().ok());
    let (revision, name) = (server.revision, name.as_deref().unwrap_or("without a name"));
    println!("connected: {era} {revision}, server {name}, {} tools", tools.len());
}

async fn try_everything(client: &McpClient, tools: &[RawJson], context: &Value) {
    for (name, arguments) in calls(tools, context) {
        let params = RawJson::from(json!({"name": name})).with("arguments", &arguments);
        print_outcome(&name, client.call("tools/call", Some(params)).await);
    }
    for prompt in list(client, "prompts", "prompts/list", "prompts").await {
        print_outcome("prompts/get", client.call("prompts/get", Some(with_only(&prompt, "name"))).await);
    }
    for resource in list(client, "resources", "resources/list", "resources").await {
        print_outcome(
            "resources/read",
            client.call("resources/read", Some(with_only(&resource, "uri"))).await,
        );
    }
}

fn print_outcome(what: &str, result: Result<RawJson, RequestError>) {
    match result {
        Ok(_) => println!("{what}: answered"),
        Err(failure) => println!("{what}: {failure}"),
    }
}

/// Calls a tool and prints the notifications before its result.
async fn call_verbosely(
    client: &McpClient,
    name: &str,
    arguments: &RawJson,
) -> Result<RawJson, RequestError> {
    let params = RawJson::from(json!({"name": name, "_meta": {"progressToken": "explorer"}}));
    let params = params.with("arguments", arguments);
    let mut call = client.request("tools/call", Some(params.clone()), RequestOptions::default()).await?;
    let result = loop {
        match call.next_event().await {
            ResponseEvent::Notification(notice) => {
                let params = notice.params.unwrap_or_else(RawJson::empty_object);
                println!("{name}: {} {}", notice.method, truncated(&params));
            }
            ResponseEvent::End(end) => break end?,
        }
    };
    let is_question = result.get("inputRequests").is_some() || result.get("requestState").is_some();
    // Input requests are answered by the client, in a call of its own.
    if is_question { client.call("tools/call", Some(params)).await } else { Ok(result) }
}

/// Returns the first 200 characters.
fn truncated(json: &RawJson) -> String {
    json.as_str().chars().take(200).collect()
}

/// Returns the calls that the context names, or one of each tool.
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
        // A tool that takes a schema gets the richest one of the list, byte for byte.
        match (&rich, schema.at(&["properties", "schema"])) {
            (Some(rich), Some(_)) => arguments.with("schema", rich),
            _ => arguments,
        }
    };
    tools.iter().map(|tool| (named(tool), with_arguments(tool))).collect()
}

/// Generates arguments that a schema accepts, as far as its types tell.
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

async fn list(client: &McpClient, capability: &str, method: &str, member: &str) -> Vec<RawJson> {
    if client.server().capabilities.get(capability).is_none() {
        return Vec::new();
    }
    let list = client.call(method, None).await.ok().and_then(|list| list.get(member));
    list.map(|list| list.items().collect()).unwrap_or_default()
}

/// Returns an object with just this member of another.
fn with_only(object: &RawJson, member: &str) -> RawJson {
    let value = object.get(member).unwrap_or_else(|| RawJson::of(""));
    RawJson::empty_object().with(member, &value)
}

/// Accepts every input request, with its default values.
struct AcceptingHandler;

impl InboundHandler for AcceptingHandler {
    fn request(&self, inbound: InboundRequest) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        let params = inbound.request.params.map(|params| params.to_value()).unwrap_or_default();
        let answer = match &*inbound.request.method {
            "elicitation/create" => {
                Ok(json!({"action": "accept", "content": form_content(&params["requestedSchema"])}))
            }
            "sampling/createMessage" => {
                Ok(json!({"role": "assistant", "content": {"type": "text", "text": "Yes."}, "model": "none"}))
            }
            "roots/list" => Ok(json!({"roots": []})),
            method => Err(RpcError::method_not_found(method)),
        };
        std::future::ready(answer.map(RawJson::from)).boxed()
    }

    fn notification(&self, _notification: Notification, _related_request: Option<Id>) {}
}

fn form_content(schema: &Value) -> Value {
    let examples = arguments_for(schema);
    let properties = schema["properties"].as_object().into_iter().flatten();
    let value = |(name, property): (&String, &Value)| {
        (name.clone(), property.get("default").cloned().unwrap_or_else(|| examples[name].clone()))
    };
    Value::Object(properties.map(value).collect::<Map<_, _>>())
}
