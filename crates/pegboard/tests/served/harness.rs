//! Test setup: a gateway process with servers and clients.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join_all, ready};
use pegboard::wire::client::{ClientOptions, Era, McpClient};
use pegboard::wire::http::client::HttpOptions;
use pegboard::wire::stdio::line_transport;
use pegboard::wire::transport::{InputLimits, TransportHandle};
use pegboard::wire::{Id, InboundHandler, InboundRequest, Notification, RawJson, RpcError};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time;

/// Timeout after which a test fails.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Transport between client and gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// A gateway for this client alone.
    Stdio,
    /// A gateway in the background, which ends soon after its last client.
    Shared,
    Http,
}

/// All combinations of transport and era.
pub(crate) const CLIENT_KINDS: [(Transport, Era); 6] = [
    (Transport::Stdio, Era::Session),
    (Transport::Stdio, Era::Stateless),
    (Transport::Shared, Era::Session),
    (Transport::Shared, Era::Stateless),
    (Transport::Http, Era::Session),
    (Transport::Http, Era::Stateless),
];

/// A directory with a configuration, and its servers.
pub(crate) struct TestEnvironment {
    folder: TempDir,
    running: Arc<AtomicUsize>,
    started: Arc<AtomicUsize>,
    events: tokio::sync::Mutex<mpsc::UnboundedReceiver<String>>,
}

impl TestEnvironment {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("events")).unwrap();
        let (report, events) = mpsc::unbounded_channel();
        let (running, started) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counts = (Arc::clone(&running), Arc::clone(&started));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(listen(socket, counts.clone(), report.clone()));
            }
        });
        Self { folder, running, started, events: tokio::sync::Mutex::new(events) }
    }

    /// Configuration entry of a server with these tools.
    pub(crate) fn server(&self, called: &str, tools: &[&str]) -> Value {
        let socket = self.folder.path().join("events");
        json!({"command": testkit(), "args": ["scripted", called, tools.join(","), socket]})
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a configuration.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Number of servers started so far.
    pub(crate) fn n_started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }

    /// Number of running servers.
    pub(crate) fn n_running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    /// Waits for an event of a server.
    pub(crate) async fn wait_for_event(&self, expected: &str) {
        self.wait_for_one_of(&[expected]).await;
    }

    /// Waits for one of several events.
    pub(crate) async fn wait_for_one_of(&self, expected: &[&str]) {
        let mut events = self.events.lock().await;
        let waiting = async { while !expected.contains(&events.recv().await.unwrap().as_str()) {} };
        time::timeout(TEST_TIMEOUT, waiting)
            .await
            .unwrap_or_else(|_| panic!("none of these events: {expected:?}"));
    }

    /// Waits for any event.
    pub(crate) async fn wait_for_any_event(&self) {
        let mut events = self.events.lock().await;
        time::timeout(TEST_TIMEOUT, events.recv()).await.expect("an event");
    }

    /// Command with its own state directory.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path())
            .env("PEGBOARD_STATE", self.folder.path().join("state"))
            .env("XDG_CONFIG_HOME", self.folder.path().join("config"))
            .env_remove("WORKBENCH_CONFIG")
            .env_remove("PEGBOARD_LOG")
            .kill_on_drop(true);
        command
    }

    /// Command that serves a file to its own clients.
    pub(crate) fn serving(&self, file: &Path) -> Command {
        let mut command = self.sharing(file);
        command.arg("--no-daemon");
        command
    }

    /// Command that serves a file to all clients.
    pub(crate) fn sharing(&self, file: &Path) -> Command {
        let mut command = self.command(PROGRAM);
        command.arg("serve").arg(file);
        command
    }
}

/// Returns the path of the testkit.
pub(crate) fn testkit() -> PathBuf {
    pegboard_testkit::example::path("testkit")
}

/// Program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_pegboard");

async fn listen(
    mut socket: UnixStream,
    (running, started): (Arc<AtomicUsize>, Arc<AtomicUsize>),
    report: mpsc::UnboundedSender<String>,
) {
    started.fetch_add(1, Ordering::SeqCst);
    running.fetch_add(1, Ordering::SeqCst);
    let (reader, mut writer) = socket.split();
    let mut lines = BufReader::new(reader).lines();
    let mut called = String::new();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(name) = line.strip_suffix(" started") {
            name.clone_into(&mut called);
            let _ = writer.write_all(b"!").await;
        }
        let _ = report.send(line);
    }
    running.fetch_sub(1, Ordering::SeqCst);
    let _ = report.send(format!("{called} gone"));
}

/// A gateway over HTTP.
pub(crate) struct Endpoint {
    pub(crate) address: String,
    pub(crate) child: Child,
    /// Lines of standard error before it was ready.
    pub(crate) before: Vec<String>,
    lines: tokio::sync::Mutex<mpsc::UnboundedReceiver<String>>,
}

impl Endpoint {
    /// Starts an HTTP gateway and waits until it is ready.
    pub(crate) async fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = async {
            let mut before = Vec::new();
            while let Some(line) = said.next_line().await.unwrap() {
                if let Some(url) = line.strip_prefix("Ready  MCP http://") {
                    return (url.strip_suffix("/mcp").unwrap().to_owned(), before);
                }
                before.push(line);
            }
            panic!("it does not serve: {}", before.join("\n"));
        };
        let (address, before) = time::timeout(TEST_TIMEOUT, ready).await.unwrap();
        // Keep reading, so that the process does not block.
        let (send_line, lines) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = said.next_line().await {
                let _ = send_line.send(line);
            }
        });
        Self { address, child, before, lines: tokio::sync::Mutex::new(lines) }
    }

    /// Reads standard error up to a line with this prefix.
    pub(crate) async fn wait_for_line(&self, begins: &str) -> String {
        let mut received = self.lines.lock().await;
        let mut lines = Vec::new();
        let saying = async {
            while lines.last().is_none_or(|line: &String| !line.starts_with(begins)) {
                lines.push(received.recv().await.unwrap());
            }
        };
        let is_said = time::timeout(TEST_TIMEOUT, saying).await.is_ok();
        assert!(is_said, "it does not say {begins:?}, but {lines:?}");
        lines.join("\n")
    }

    /// Returns the lines of standard error since the last look.
    pub(crate) async fn new_lines(&self) -> Vec<String> {
        let mut received = self.lines.lock().await;
        std::iter::from_fn(|| received.try_recv().ok()).collect()
    }

    pub(crate) fn url(&self, profile: Option<&str>) -> String {
        let profile = profile.map(|profile| format!("/{profile}")).unwrap_or_default();
        format!("http://{}/mcp{profile}", self.address)
    }

    pub(crate) async fn client(&self, profile: Option<&str>, era: Era) -> (McpClient, Arc<RecordingHandler>) {
        let options = HttpOptions::new(self.url(profile).parse().unwrap());
        handshake(pegboard::wire::http::client::connect(options).unwrap(), era).await
    }
}

/// A client and its gateway.
pub(crate) struct ConnectedClient {
    pub(crate) client: McpClient,
    pub(crate) handler: Arc<RecordingHandler>,
    pub(crate) era: Era,
    pub(crate) environment: TestEnvironment,
    pub(crate) gateway: Child,
}

impl ConnectedClient {
    /// Starts a gateway and connects a client.
    pub(crate) async fn connect(
        environment: TestEnvironment,
        file: &Path,
        profile: Option<&str>,
        kind: (Transport, Era),
    ) -> Self {
        Self::connect_with(environment, file, profile, kind, &[]).await
    }

    /// Same as `connect`, with environment variables.
    pub(crate) async fn connect_with(
        environment: TestEnvironment,
        file: &Path,
        profile: Option<&str>,
        (transport, era): (Transport, Era),
        variables: &[(&str, &str)],
    ) -> Self {
        let mut command = match transport {
            Transport::Stdio | Transport::Http => environment.serving(file),
            Transport::Shared => {
                let mut command = environment.sharing(file);
                command.args(["--set", "daemonIdleTimeout=500ms"]);
                command
            }
        };
        command.envs(variables.iter().copied());
        let (client, handler, gateway) = match transport {
            Transport::Stdio | Transport::Shared => {
                command.arg("--stdio").args(profile.iter().flat_map(|profile| ["--profile", profile]));
                let mut child = command
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap();
                let (output, input) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
                let (transport, _) = line_transport(output, input, InputLimits::client());
                let (client, handler) = handshake(transport, era).await;
                (client, handler, child)
            }
            Transport::Http => {
                command.args(["--http", "127.0.0.1:0"]);
                let endpoint = Endpoint::start(command).await;
                let (client, handler) = endpoint.client(profile, era).await;
                (client, handler, endpoint.child)
            }
        };
        // Listing the tools starts the servers whose tools are listed directly.
        listed(&client).await;
        Self { client, handler, era, environment, gateway }
    }
}

/// Runs a test with all combinations of transport and era, concurrently.
pub(crate) async fn with_every_client(
    configuration: impl Fn(&TestEnvironment) -> Value,
    profile: Option<&str>,
    test: impl AsyncFn(&ConnectedClient),
) {
    let (configuration, test) = (&configuration, &test);
    let tests = CLIENT_KINDS.map(async |kind| {
        let environment = TestEnvironment::new();
        let file = environment.write("workbench-config.json", &configuration(&environment).to_string());
        let connected = ConnectedClient::connect(environment, &file, profile, kind).await;
        let timed = time::timeout(TEST_TIMEOUT, test(&connected)).await;
        timed.unwrap_or_else(|_| panic!("{kind:?} takes too long"));
    });
    join_all(tests).await;
}

pub(crate) async fn handshake(transport: TransportHandle, era: Era) -> (McpClient, Arc<RecordingHandler>) {
    let handler = Arc::new(RecordingHandler::default());
    let capabilities = RawJson::from(json!({"elicitation": {"form": {}, "url": {}}}));
    let options = ClientOptions { era: Some(era), capabilities, ..ClientOptions::new("test", "1") };
    (McpClient::connect(transport, handler.clone(), options).await.unwrap(), handler)
}

/// A client that answers elicitations and records messages.
#[derive(Default)]
pub(crate) struct RecordingHandler(Mutex<Vec<String>>);

impl RecordingHandler {
    pub(crate) fn recorded(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl InboundHandler for RecordingHandler {
    fn request(&self, inbound: InboundRequest) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        self.0.lock().unwrap().push(inbound.request.method.to_string());
        let answer = match &*inbound.request.method {
            "elicitation/create" => {
                Ok(RawJson::from(json!({"action": "accept", "content": {"name": "Ada"}})))
            }
            method => Err(RpcError::method_not_found(method)),
        };
        ready(answer).boxed()
    }

    fn notification(&self, notification: Notification, _about: Option<Id>) {
        self.0.lock().unwrap().push(notification.method.to_string());
    }
}

/// Replaces a file atomically, as editors do.
pub(crate) fn rewrite(file: &Path, configuration: &Value) {
    let new = file.with_extension("new");
    std::fs::write(&new, configuration.to_string()).unwrap();
    std::fs::rename(&new, file).unwrap();
}

/// Calls a tool and returns the raw result.
pub(crate) async fn raw_call(client: &McpClient, tool: &str, arguments: RawJson) -> RawJson {
    let params = RawJson::empty_object().with("name", &RawJson::of(tool)).with("arguments", &arguments);
    client.call("tools/call", Some(params)).await.unwrap()
}

/// Calls a tool and returns the result.
pub(crate) async fn call(client: &McpClient, tool: &str, arguments: Value) -> Value {
    raw_call(client, tool, RawJson::from(arguments)).await.to_value()
}

/// Opens a toolbox and returns its listing.
pub(crate) async fn open(client: &McpClient, toolbox: &str) -> Value {
    let opened = text(&call(client, "open_toolbox", json!({"toolbox": toolbox})).await);
    serde_json::from_str(&opened).unwrap_or(Value::String(opened))
}

/// Calls a tool by its id.
pub(crate) async fn use_tool(
    client: &McpClient,
    [toolbox, server, name]: [&str; 3],
    arguments: Value,
) -> Value {
    let tool = json!({"toolbox": toolbox, "server": server, "name": name});
    call(client, "use_tool", json!({"tool": tool, "arguments": arguments})).await
}

/// Text of a result, with a prefix for errors.
pub(crate) fn text(result: &Value) -> String {
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    if result["isError"] == json!(true) { format!("isError: {text}") } else { text.to_owned() }
}

/// Lists tools until there are this many, since slow servers are listed later.
pub(crate) async fn listed_once(client: &McpClient, n_tools: usize) -> Vec<Value> {
    let listing = async {
        loop {
            let tools = listed(client).await;
            if tools.len() >= n_tools {
                return tools;
            }
            time::sleep(Duration::from_millis(20)).await;
        }
    };
    time::timeout(Duration::from_mins(1), listing).await.unwrap()
}

/// Lists tools.
pub(crate) async fn listed(client: &McpClient) -> Vec<Value> {
    let list = client.call("tools/list", None).await.unwrap().to_value();
    list["tools"].as_array().unwrap().clone()
}
