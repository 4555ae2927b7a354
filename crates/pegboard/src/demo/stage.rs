//! What the demo plays on: three servers and a web service behind one MCP endpoint, and clients of it.

use std::sync::{Arc, Mutex, PoisonError};

use pegboard::config::{AgentEntry, Configuration, ModelProvider, RestEntry, Server};
use pegboard::gateway::{Gateway, serve};
use pegboard::id::{ServerName, ToolName, ToolboxName};
use pegboard::json::RawJson;
use pegboard::model::{Delivery, ModelProviderName};
use pegboard::prelude::*;
use pegboard::providers::mcp::PoolOptions;
use pegboard::settings::agent::AgentSettings;
use pegboard::settings::mcp::McpServerEntry;
use pegboard::settings::rest::RestToolEntry;
use pegboard::telemetry::Telemetry;
use pegboard::wiring::{self, Board, Surroundings};
use pegboard_wire::client::{Client, ClientOptions, Era, RequestOptions};
use pegboard_wire::link::InputLimits;
use pegboard_wire::stdio::lines;
use pegboard_wire::{Happening, Id, Inbound, Notification, Receiver, RpcError};

use super::servers::DemoServer;
use super::{Boxed, expect, service};

/// Puts the configuration together that others write into a file, and starts it.
pub(super) async fn set_up(telemetry: &Telemetry) -> Result<Board> {
    let program = std::env::current_exe()?.into_os_string().into_string();
    let program = program
        .map_err(|path| ToolError::new(format!("the path of this program is no text: {}", path.display())))?;
    let mut configuration = Configuration {
        settings: serde_json::from_value(json!({
            "toolTimeout": "30s",
            "toolResponseMaxBytes": 20_000,
            "queues": {"van": {"maxConcurrency": 2}},
        }))?,
        ..Configuration::default()
    };
    let clock = json!({"toolsCache": {"now": "1h"}, "tools": {"snooze": {"timeout": "100ms"}}});
    let shop = json!({"validateArguments": "pegboard", "tools": {"deliver": {"queue": "van"}}});
    for (toolbox, description, server, settings) in [
        ("office", "Time and notes", DemoServer::Clock, clock),
        ("office", "Time and notes", DemoServer::Notes, json!({})),
        ("market", "Things to buy", DemoServer::Shop, shop),
    ] {
        let toolbox = configuration.toolboxes.entry(ToolboxName::new(toolbox)?).or_default();
        description.clone_into(&mut toolbox.description);
        let name = ServerName::new(server.name())?;
        toolbox.servers.insert(name.clone(), describe(&program, name, settings)?);
    }
    let toolbox = configuration.toolboxes.entry(ToolboxName::new("town")?).or_default();
    "What it is like outside".clone_into(&mut toolbox.description);
    let address = service::start().await?;
    let weather = Server::OpenApi {
        service: serde_json::from_value(json!({"spec": format!("{address}/openapi.json")}))?,
        tools: Box::default(),
    };
    toolbox.servers.insert(ServerName::new(service::NAME)?, weather);
    let (name, report) = report(&address)?;
    toolbox.rest_tools.insert(name, report);
    let guide = guide()?;
    toolbox.agents.insert(guide.name.clone(), AgentEntry::Usable(Box::new(guide)));
    let provider = json!({"type": "openai-compatible", "baseUrl": format!("{address}/v1")});
    let provider = ModelProvider::Usable(serde_json::from_value(provider)?);
    configuration.providers.insert(ModelProviderName::new("scripted")?, provider);
    let servers = PoolOptions { supervisor: crate::serve::supervisor() };
    Ok(wiring::start(configuration, Surroundings { servers, ..Surroundings::default() }, telemetry).await?)
}

/// One request to the web service as a tool.
fn report(address: &str) -> Result<(ToolName, RestEntry)> {
    let text = json!({"type": "string"});
    let entry: RestToolEntry = serde_json::from_value(json!({
        "description": "Tell others what you see outside",
        "method": "POST",
        "url": format!("{address}/reports"),
        "bodyTemplate": {"city": "${parameters.city}", "sky": "${parameters.sky}"},
        "parametersSchema": {
            "type": "object", "properties": {"city": text, "sky": text}, "required": ["city", "sky"],
        },
    }))?;
    let name = ToolName::new("tell_others")?;
    let (request, settings) = entry.normalise(name.clone()).map_err(|problems| {
        let messages: Vec<String> = problems.into_iter().map(|problem| problem.message).collect();
        ToolError::new(messages.join(". "))
    })?;
    Ok((name, RestEntry::Usable { is_enabled: true, request: request.into(), settings: settings.into() }))
}

/// An agent that others write into a file.
fn guide() -> Result<AgentSettings> {
    Ok(AgentSettings {
        description: "Tells people what to take along".to_owned(),
        prompt: "Look at the weather, and give advice in one sentence.".to_owned(),
        models: vec!["scripted/model".parse()?],
        tools: vec![service::NAME.to_owned()],
        delivery: Delivery::Whole,
        ..AgentSettings::new(ToolName::new("guide")?)
    })
}

/// This program as one of the servers, with these settings.
fn describe(program: &str, name: ServerName, mut settings: Value) -> Result<Server> {
    settings["command"] = json!([program, "demo-server", name]);
    let entry: McpServerEntry = serde_json::from_value(settings)?;
    let (connection, tools) = entry.normalise(name)?;
    Ok(Server::Mcp { connection: connection.into(), tools: tools.into() })
}

/// A client of the endpoint, as an agent is one.
#[derive(Clone)]
pub(super) struct Agent {
    client: Client,
    answering: Arc<Answering>,
}

impl Agent {
    /// Connects over a pipe.
    pub(super) async fn connect(gateway: &Gateway, profile: Option<&'static str>, era: Era) -> Result<Self> {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let gateway = gateway.clone();
        tokio::spawn(async move {
            let (reader, writer) = tokio::io::split(far);
            // Without a profile of this name the client finds nobody, and says so.
            let _ = serve::over(&gateway, profile, reader, writer).await;
        });
        let (reader, writer) = tokio::io::split(near);
        let (link, _) = lines(reader, writer, InputLimits::client());
        let answering = Arc::new(Answering::default());
        let options = ClientOptions {
            era: Some(era),
            capabilities: RawJson::from(json!({"elicitation": {}})),
            ..ClientOptions::new("pegboard-demo", env!("CARGO_PKG_VERSION"))
        };
        let client = Client::connect(link, Arc::clone(&answering) as Arc<dyn Receiver>, options).await?;
        Ok(Self { client, answering })
    }

    /// The revision that is spoken.
    pub(super) fn revision(&self) -> String {
        self.client.server().revision.to_string()
    }

    /// What it was told when it connected.
    pub(super) fn instructions(&self) -> &str {
        self.client.server().instructions.as_deref().unwrap_or_default()
    }

    /// The names of the tools in its list.
    pub(super) async fn tools(&self) -> Result<Vec<String>> {
        let list = self.client.call("tools/list", None).await?.to_value();
        let tools = list["tools"].as_array().cloned().unwrap_or_default();
        Ok(tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect())
    }

    /// Calls a tool of its list, and gives the result as it came.
    pub(super) async fn call(&self, tool: &str, arguments: Value) -> Result<RawJson> {
        let params = json!({"name": tool, "arguments": arguments});
        Ok(self.client.call("tools/call", Some(RawJson::from(params))).await?)
    }

    /// Uses a tool of a toolbox: `office/notes/add`.
    pub(super) async fn use_tool(&self, tool: &str, arguments: Value) -> Result<RawJson> {
        self.call("use_tool", json!({"tool": identity(tool), "arguments": arguments})).await
    }

    /// Uses a tool of a toolbox, and gives how far it said to be while it ran.
    pub(super) async fn watch(&self, tool: &str) -> Result<Vec<Value>> {
        let params = json!({
            "name": "use_tool", "arguments": {"tool": identity(tool)}, "_meta": {"progressToken": "mine"},
        });
        let params = Some(RawJson::from(params));
        let mut exchange = self.client.request("tools/call", params, RequestOptions::default()).await?;
        let mut heard = Vec::new();
        loop {
            match exchange.next().await {
                Happening::Notice(notice) => {
                    let params = notice.params.map(|params| params.to_value()).unwrap_or_default();
                    heard.push(params["progress"].clone());
                }
                Happening::End(result) => return result.map(|_| heard).map_err(ToolError::from),
            }
        }
    }

    /// How often it was asked for a name.
    pub(super) fn n_asked(&self) -> usize {
        *self.answering.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn identity(tool: &str) -> Value {
    let mut parts = tool.split('/');
    json!({"toolbox": parts.next(), "server": parts.next(), "name": parts.next()})
}

/// What a good result says.
pub(super) fn good(result: &RawJson) -> Result<String> {
    let (text, is_error) = read(result);
    expect(!is_error, &text)?;
    Ok(text)
}

/// What a good result is, as JSON.
pub(super) fn document(result: &RawJson) -> Result<Value> {
    Ok(serde_json::from_str(&good(result)?)?)
}

/// Why there is no good result.
pub(super) fn refusal(result: &RawJson) -> Result<String> {
    let (text, is_error) = read(result);
    expect(is_error, format_args!("nothing was refused: {text}"))?;
    Ok(text)
}

fn read(result: &RawJson) -> (String, bool) {
    let result = result.to_value();
    (result["content"][0]["text"].as_str().unwrap_or_default().to_owned(), result["isError"] == true)
}

/// A client that tells its name to whoever asks, and counts how often.
#[derive(Default)]
struct Answering(Mutex<usize>);

impl Receiver for Answering {
    fn request(&self, inbound: Inbound) -> Boxed<Result<RawJson, RpcError>> {
        let answer = if &*inbound.request.method == "elicitation/create" {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            Ok(RawJson::from(json!({"action": "accept", "content": {"name": "Ada"}})))
        } else {
            Err(RpcError::method_not_found(&inbound.request.method))
        };
        Box::pin(std::future::ready(answer))
    }

    fn notification(&self, _notification: Notification, _about: Option<Id>) {}
}
