//! A client that tries everything a server offers: each tool, prompt and resource once.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use pegboard_wire::client::{Client, ClientOptions, ConnectError};
use pegboard_wire::http::client::{HttpOptions, connect};
use pegboard_wire::{Id, Inbound, Notification, RawJson, Receiver, RpcError};
use serde_json::{Map, Value, json};

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

/// Tries everything that the server at `url` offers. `context` may name the calls to make.
pub async fn explore(url: &str, context: &Value) -> Result<(), ConnectError> {
    let url = url.parse().map_err(|error| ConnectError::Nonsense(format!("{url} is no URL: {error}")))?;
    let capabilities = json!({"elicitation": {"applyDefaults": true}, "sampling": {}, "roots": {}});
    let options = ClientOptions {
        capabilities: RawJson::from(capabilities),
        ..ClientOptions::new("pegboard-explorer", "1")
    };
    let client = Client::connect(connect(HttpOptions::new(url))?, Arc::new(Agreeable), options).await?;
    for (name, arguments) in calls(&client, context).await {
        let params = RawJson::from(json!({"name": name})).with("arguments", &arguments);
        say(&name, client.call("tools/call", Some(params)).await);
    }
    let prompts = list(&client, "prompts", "prompts/list", "prompts").await;
    for prompt in prompts {
        say("prompts/get", client.call("prompts/get", Some(only(&prompt, "name"))).await);
    }
    for resource in list(&client, "resources", "resources/list", "resources").await {
        say("resources/read", client.call("resources/read", Some(only(&resource, "uri"))).await);
    }
    Ok(())
}

fn say(what: &str, result: Result<RawJson, pegboard_wire::Failure>) {
    match result {
        Ok(_) => println!("{what}: answered"),
        Err(failure) => println!("{what}: {failure}"),
    }
}

/// The calls that the context names, or one of each tool.
async fn calls(client: &Client, context: &Value) -> Vec<(String, RawJson)> {
    let list = match client.call("tools/list", None).await {
        Ok(list) => list,
        Err(failure) => {
            println!("tools/list: {failure}");
            return Vec::new();
        }
    };
    let (tools, refused) = client.take_tools(&list);
    for line in refused {
        println!("{line}");
    }
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
