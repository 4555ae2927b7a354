//! Gateways, servers and clients shared by the tests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::ValidCall;
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, ToolError};
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::provider::{LocalProvider, ProcessInfo, Provider, ServerOffering, ServerState, ToolKind};
use pegboard_core::server_log::ServerLog;
use pegboard_core::settings::gateway::GatewaySettings;
use pegboard_gateway::Gateway;
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use pegboard_wire::client::{ClientOptions, Era, McpClient};
use pegboard_wire::stdio::line_transport;
use pegboard_wire::transport::{InputLimits, TransportHandle};
use pegboard_wire::{Id, InboundHandler, InboundRequest, Notification, RequestError, RpcError};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::{self, Duration};

/// Both protocol eras.
pub(crate) const ERAS: [Era; 2] = [Era::Session, Era::Stateless];

/// Answers every form elicitation, and records notifications.
#[derive(Default)]
pub(crate) struct ClientRecorder {
    received: Mutex<Vec<String>>,
    arrived: Notify,
}

impl ClientRecorder {
    /// Takes the recorded notifications; log and task notifications include their parameters.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.received.lock().unwrap())
    }

    fn pop(&self) -> Option<String> {
        let mut received = self.received.lock().unwrap();
        (!received.is_empty()).then(|| received.remove(0))
    }

    /// Waits for the next notification.
    pub(crate) async fn next(&self) -> String {
        let receiving = async {
            loop {
                let arrived = self.arrived.notified();
                match self.pop() {
                    Some(first) => return first,
                    None => arrived.await,
                }
            }
        };
        time::timeout(Duration::from_mins(5), receiving).await.unwrap()
    }
}

impl InboundHandler for ClientRecorder {
    fn request(&self, inbound: InboundRequest) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        let answer = match &*inbound.request.method {
            "elicitation/create" => {
                // Echoes the id of a URL elicitation, if there is one.
                let elicitation_id = inbound.request.params.and_then(|params| params.get("elicitationId"));
                let content = RawJson::from(json!({"name": "Ada"}));
                let content = elicitation_id
                    .iter()
                    .fold(content, |content, elicitation_id| content.with("visit", elicitation_id));
                Ok(RawJson::from(json!({"action": "accept"})).with("content", &content))
            }
            method => Err(RpcError::method_not_found(method)),
        };
        std::future::ready(answer).boxed()
    }

    fn notification(&self, notification: Notification, _related: Option<Id>) {
        let method = &*notification.method;
        let with_params = matches!(method, "notifications/message" | "notifications/tasks");
        let params = notification.params.filter(|_| with_params);
        let params = params.map(|params| format!(" {}", params.as_str())).unwrap_or_default();
        self.received.lock().unwrap().push(format!("{method}{params}"));
        self.arrived.notify_one();
    }
}

/// Creates the gateway of a runtime.
pub(crate) fn gateway(runtime: &Runtime, settings: Value) -> Gateway {
    let settings: GatewaySettings = serde_json::from_value(settings).unwrap();
    Gateway::new(runtime, &settings).unwrap()
}

/// Connects a client with form elicitation, over a pipe.
pub(crate) async fn connect(
    gateway: &Gateway,
    profile: Option<&str>,
    era: Era,
) -> (McpClient, Arc<ClientRecorder>) {
    connect_as(gateway, profile, era, "test", json!({"elicitation": {}})).await
}

/// Connects a client, over a pipe.
pub(crate) async fn connect_as(
    gateway: &Gateway,
    profile: Option<&str>,
    era: Era,
    name: &str,
    capabilities: Value,
) -> (McpClient, Arc<ClientRecorder>) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(far);
    let (transport, _) = line_transport(reader, writer, InputLimits::server());
    let server = gateway.server(profile).unwrap();
    tokio::spawn(async move { server.serve(transport).await });
    let (reader, writer) = tokio::io::split(near);
    let (transport, _) = line_transport(reader, writer, InputLimits::client());
    handshake(transport, era, name, capabilities).await
}

/// Connects a client over an existing transport.
pub(crate) async fn connect_over(transport: TransportHandle, era: Era) -> (McpClient, Arc<ClientRecorder>) {
    handshake(transport, era, "test", json!({"elicitation": {}})).await
}

async fn handshake(
    transport: TransportHandle,
    era: Era,
    name: &str,
    capabilities: Value,
) -> (McpClient, Arc<ClientRecorder>) {
    let notifications = Arc::new(ClientRecorder::default());
    let capabilities = RawJson::from(capabilities);
    let options = ClientOptions { era: Some(era), capabilities, ..ClientOptions::new(name, "1") };
    (McpClient::connect(transport, notifications.clone(), options).await.unwrap(), notifications)
}

/// Calls a tool; returns the raw result. A JSON-RPC error is a result with the member `rpcError`.
pub(crate) async fn raw_call(client: &McpClient, tool: &str, arguments: RawJson) -> RawJson {
    let params = RawJson::empty_object().with("name", &RawJson::of(tool)).with("arguments", &arguments);
    match client.call("tools/call", Some(params)).await {
        Err(RequestError::Rpc(error)) => RawJson::empty_object().with("rpcError", &RawJson::of(&error)),
        result => result.unwrap(),
    }
}

/// Calls a tool; returns the result.
pub(crate) async fn call(client: &McpClient, tool: &str, arguments: Value) -> Value {
    raw_call(client, tool, RawJson::from(arguments)).await.to_value()
}

/// Calls a tool by its id.
pub(crate) async fn use_tool(client: &McpClient, tool: [&str; 3], arguments: Value) -> Value {
    let [toolbox, server, name] = tool;
    let tool = json!({"toolbox": toolbox, "server": server, "name": name});
    call(client, "use_tool", json!({"tool": tool, "arguments": arguments})).await
}

/// The text of a result or an error, with a prefix if it is an error.
pub(crate) fn text(result: &Value) -> String {
    if let Some(error) = result.get("rpcError") {
        return format!("{}: {}", error["code"], error["message"].as_str().unwrap_or_default());
    }
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    if result["isError"] == json!(true) { format!("isError: {text}") } else { text.to_owned() }
}

/// Names of the listed tools.
pub(crate) async fn tool_names(client: &McpClient) -> Vec<String> {
    let list = client.call("tools/list", None).await.unwrap().to_value();
    let tools = list["tools"].as_array().unwrap().clone();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// A server of MCP tools.
pub(crate) fn mcp_server(tools: impl IntoIterator<Item = ToolEntry>) -> LocalProvider {
    LocalProvider::new(tools).of_kind(ToolKind::Mcp)
}

/// A tool that returns its server, its name and its arguments.
pub(crate) fn echo_tool(server: &'static str, name: &'static str) -> ToolEntry {
    let answer = move |call: &ValidCall| {
        Ok(text_output(&format!("{server}/{name} {}", call.raw_arguments().as_str())))
    };
    scripted_tool(name, answer)
}

/// A tool backed by a closure.
pub(crate) fn scripted_tool(
    name: &'static str,
    answer: impl Fn(&ValidCall) -> Result<Output, CallError> + Send + Sync + 'static,
) -> ToolEntry {
    struct Scripted<F>(F);
    impl<F: Fn(&ValidCall) -> Result<Output, CallError> + Send + Sync + 'static> Handler for Scripted<F> {
        fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
            std::future::ready((self.0)(call)).boxed()
        }
    }
    ToolEntry::from_handler(name, format!("The tool {name}"), Arc::new(Scripted(answer)))
        .with_input_schema(json!({"type": "object"}))
}

/// A text result of a server.
pub(crate) fn text_output(text: &str) -> Output {
    Output::result(RawJson::from(json!({"content": [{"type": "text", "text": text}]})))
}

/// A tool error of a server.
pub(crate) fn tool_failure(text: &str) -> CallError {
    CallError::Failed(ToolError::new(text))
}

/// A server that starts on demand, or fails to.
pub(crate) struct LazyServer {
    tools: Vec<Arc<ToolEntry>>,
    fails_with: Option<&'static str>,
    gate: Option<Arc<Notify>>,
    pub(crate) n_opened: Arc<AtomicUsize>,
    pub(crate) log: ServerLog,
    pub(crate) process_info: ProcessInfo,
    offer: watch::Sender<Arc<ServerOffering>>,
    state: watch::Sender<ServerState>,
}

impl LazyServer {
    pub(crate) fn new(tools: impl IntoIterator<Item = ToolEntry>) -> Self {
        Self {
            tools: tools.into_iter().map(Arc::new).collect(),
            fails_with: None,
            gate: None,
            n_opened: Arc::default(),
            log: ServerLog::default(),
            process_info: ProcessInfo::default(),
            offer: watch::Sender::default(),
            state: watch::Sender::default(),
        }
    }

    /// Delays the start until the gate is notified.
    pub(crate) fn gated_by(self, gate: &Arc<Notify>) -> Self {
        Self { gate: Some(Arc::clone(gate)), ..self }
    }

    pub(crate) fn broken(reason: &'static str) -> Self {
        Self { fails_with: Some(reason), ..Self::new([]) }
    }
}

impl Provider for LazyServer {
    fn kind(&self) -> ToolKind {
        ToolKind::Mcp
    }

    fn offering(&self) -> watch::Receiver<Arc<ServerOffering>> {
        self.offer.subscribe()
    }

    fn state(&self) -> watch::Receiver<ServerState> {
        self.state.subscribe()
    }

    fn open(&self) -> BoxFuture<'_, Result<(), CallError>> {
        async {
            self.n_opened.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            if let Some(gate) = &self.gate {
                gate.notified().await;
            }
            if let Some(reason) = self.fails_with {
                return Err(CallError::ServerUnavailable { reason: reason.to_owned() });
            }
            self.offer.send_replace(Arc::new(ServerOffering {
                tools: self.tools.clone(),
                ..ServerOffering::default()
            }));
            self.state.send_replace(ServerState::Ready);
            Ok(())
        }
        .boxed()
    }

    fn process_info(&self) -> ProcessInfo {
        self.process_info
    }

    fn log(&self) -> ServerLog {
        self.log.clone()
    }

    fn shut_down(&self) -> BoxFuture<'_, ()> {
        self.state.send_replace(ServerState::Stopped);
        std::future::ready(()).boxed()
    }
}

/// Waits until the condition holds.
pub(crate) async fn wait_until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    time::timeout(Duration::from_secs(10), waiting).await.unwrap();
}
