//! Setup of the demo: servers and a web service behind one MCP endpoint, and clients of it.

use std::sync::Arc;

use parking_lot::Mutex;
use pegboard::config::settings::RestToolSettings;
use pegboard::config::{AgentEntry, Configuration, ModelProviderEntry, RestEntry, ServerEntry};
use pegboard::gateway::{Gateway, serve};
use pegboard::id::{ServerName, ToolName, ToolboxName};
use pegboard::json::RawJson;
use pegboard::model::{Delivery, ModelProviderName};
use pegboard::prelude::*;
use pegboard::providers::mcp::PoolOptions;
use pegboard::settings::ToolSettings;
use pegboard::settings::agent::AgentSettings;
use pegboard::settings::mcp::{McpTarget, ResolvedMcpServer, ServerProgram};
use pegboard::telemetry::Telemetry;
use pegboard::wiring::{self, App, AppOptions};
use pegboard_wire::client::{ClientOptions, Era, McpClient, RequestOptions};
use pegboard_wire::stdio::line_transport;
use pegboard_wire::transport::InputLimits;
use pegboard_wire::{Id, InboundHandler, InboundRequest, Notification, ResponseEvent, RpcError};

use super::servers::DemoServer;
use super::{BoxFuture, expect, web_service};

/// Builds the demo's configuration and starts it.
pub(super) async fn set_up(telemetry: &Telemetry) -> Result<App> {
    let program = std::env::current_exe()?.into_os_string().into_string();
    let program = program.map_err(|path| {
        ToolError::new(format!("the path of this program is not valid UTF-8: {}", path.display()))
    })?;
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
    let address = web_service::start().await?;
    let weather = ServerEntry::OpenApi {
        service: serde_json::from_value(json!({"spec": format!("{address}/openapi.json")}))?,
        tools: Box::default(),
    };
    toolbox.servers.insert(ServerName::new(web_service::NAME)?, weather);
    let (name, report) = report(&address)?;
    toolbox.rest_tools.insert(name, report);
    let guide = guide()?;
    toolbox.agents.insert(guide.name.clone(), AgentEntry::Usable(Box::new(guide)));
    let provider = json!({"type": "openai-compatible", "baseUrl": format!("{address}/v1")});
    let provider = ModelProviderEntry::Usable(serde_json::from_value(provider)?);
    configuration.providers.insert(ModelProviderName::new("scripted")?, provider);
    let servers = PoolOptions { supervisor: crate::serve::supervisor(), ..PoolOptions::default() };
    Ok(wiring::start(configuration, AppOptions { servers, ..AppOptions::default() }, telemetry).await?)
}

/// Configures a REST tool for the web service.
fn report(address: &str) -> Result<(ToolName, RestEntry)> {
    let text = json!({"type": "string"});
    let settings: RestToolSettings = serde_json::from_value(json!({
        "description": "Tell others what you see outside",
        "method": "POST",
        "url": format!("{address}/reports"),
        "bodyTemplate": {"city": "${parameters.city}", "sky": "${parameters.sky}"},
        "parametersSchema": {
            "type": "object", "properties": {"city": text, "sky": text}, "required": ["city", "sky"],
        },
    }))?;
    let name = ToolName::new("tell_others")?;
    let entry = settings.resolve(name.clone(), ToolSettings::default()).map_err(|problems| {
        let messages: Vec<String> = problems.into_iter().map(|problem| problem.message).collect();
        ToolError::new(messages.join(". "))
    })?;
    Ok((name, entry))
}

/// Configures an agent.
fn guide() -> Result<AgentSettings> {
    Ok(AgentSettings {
        description: "Tells people what to take along".to_owned(),
        prompt: "Look at the weather, and give advice in one sentence.".to_owned(),
        models: vec!["scripted/model".parse()?],
        tools: vec![web_service::NAME.to_owned()],
        delivery: Delivery::Whole,
        ..AgentSettings::new(ToolName::new("guide")?)
    })
}

/// Configures this program as one of the servers.
fn describe(program: &str, name: ServerName, tools: Value) -> Result<ServerEntry> {
    let args = vec!["demo-server".to_owned(), name.to_string()];
    let program = ServerProgram { args, ..ServerProgram::new(program) };
    let connection = ResolvedMcpServer::new(name, McpTarget::Program(program));
    Ok(ServerEntry::Mcp { connection: connection.into(), tools: serde_json::from_value(tools)? })
}

/// MCP client of the endpoint.
#[derive(Clone)]
pub(super) struct DemoClient {
    client: McpClient,
    answering: Arc<ElicitationResponder>,
}

impl DemoClient {
    /// Connects through an in-memory pipe.
    pub(super) async fn connect(gateway: &Gateway, profile: Option<&'static str>, era: Era) -> Result<Self> {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let gateway = gateway.clone();
        tokio::spawn(async move {
            let (reader, writer) = tokio::io::split(far);
            // With an unknown profile the connection closes, and the client reports it.
            let _ = serve::streams(&gateway, profile, reader, writer).await;
        });
        let (reader, writer) = tokio::io::split(near);
        let (transport, _) = line_transport(reader, writer, InputLimits::client());
        let answering = Arc::new(ElicitationResponder::default());
        let options = ClientOptions {
            era: Some(era),
            capabilities: RawJson::from(json!({"elicitation": {}})),
            ..ClientOptions::new("pegboard-demo", env!("CARGO_PKG_VERSION"))
        };
        let client =
            McpClient::connect(transport, Arc::clone(&answering) as Arc<dyn InboundHandler>, options).await?;
        Ok(Self { client, answering })
    }

    /// Negotiated protocol revision.
    pub(super) fn revision(&self) -> String {
        self.client.server().revision.to_string()
    }

    /// Instructions received in the handshake.
    pub(super) fn instructions(&self) -> &str {
        self.client.server().instructions.as_deref().unwrap_or_default()
    }

    /// Names of the listed tools.
    pub(super) async fn tools(&self) -> Result<Vec<String>> {
        let list = self.client.call("tools/list", None).await?.to_value();
        let tools = list["tools"].as_array().cloned().unwrap_or_default();
        Ok(tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect())
    }

    /// Calls a listed tool and returns the raw result.
    pub(super) async fn call(&self, tool: &str, arguments: Value) -> Result<RawJson> {
        let params = json!({"name": tool, "arguments": arguments});
        Ok(self.client.call("tools/call", Some(RawJson::from(params))).await?)
    }

    /// Calls a tool of a toolbox by its address: `office/notes/add`.
    pub(super) async fn use_tool(&self, tool: &str, arguments: Value) -> Result<RawJson> {
        self.call("use_tool", json!({"tool": tool_id(tool), "arguments": arguments})).await
    }

    /// Calls a tool of a toolbox and returns the progress values received.
    pub(super) async fn watch(&self, tool: &str) -> Result<Vec<Value>> {
        let params = json!({
            "name": "use_tool", "arguments": {"tool": tool_id(tool)}, "_meta": {"progressToken": "mine"},
        });
        let params = Some(RawJson::from(params));
        let mut request = self.client.request("tools/call", params, RequestOptions::default()).await?;
        let mut values = Vec::new();
        loop {
            match request.next_event().await {
                ResponseEvent::Notification(notice) => {
                    let params = notice.params.map(|params| params.to_value()).unwrap_or_default();
                    values.push(params["progress"].clone());
                }
                ResponseEvent::End(result) => return result.map(|_| values).map_err(ToolError::from),
            }
        }
    }

    /// Number of elicitation requests received.
    pub(super) fn n_elicitations(&self) -> usize {
        *self.answering.0.lock()
    }
}

fn tool_id(tool: &str) -> Value {
    let mut parts = tool.split('/');
    json!({"toolbox": parts.next(), "server": parts.next(), "name": parts.next()})
}

/// Returns the text of a successful result.
pub(super) fn success_text(result: &RawJson) -> Result<String> {
    let (text, is_error) = read(result);
    expect(!is_error, &text)?;
    Ok(text)
}

/// Returns the JSON of a successful result.
pub(super) fn success_json(result: &RawJson) -> Result<Value> {
    Ok(serde_json::from_str(&success_text(result)?)?)
}

/// Returns the text of an error result.
pub(super) fn error_text(result: &RawJson) -> Result<String> {
    let (text, is_error) = read(result);
    expect(is_error, format_args!("expected an error, got: {text}"))?;
    Ok(text)
}

fn read(result: &RawJson) -> (String, bool) {
    let result = result.to_value();
    (result["content"][0]["text"].as_str().unwrap_or_default().to_owned(), result["isError"] == true)
}

/// Answers elicitation requests with a name, and counts them.
#[derive(Default)]
struct ElicitationResponder(Mutex<usize>);

impl InboundHandler for ElicitationResponder {
    fn request(&self, inbound: InboundRequest) -> BoxFuture<Result<RawJson, RpcError>> {
        let answer = if &*inbound.request.method == "elicitation/create" {
            *self.0.lock() += 1;
            Ok(RawJson::from(json!({"action": "accept", "content": {"name": "Ada"}})))
        } else {
            Err(RpcError::method_not_found(&inbound.request.method))
        };
        Box::pin(std::future::ready(answer))
    }

    fn notification(&self, _notification: Notification, _about: Option<Id>) {}
}
