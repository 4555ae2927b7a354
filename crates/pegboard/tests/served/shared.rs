//! Clients over stdio that share one gateway in the background.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;

use futures_util::future::join_all;
use pegboard::wire::client::{Era, McpClient, RequestOptions};
use pegboard::wire::stdio::line_transport;
use pegboard::wire::transport::InputLimits;
use pegboard::wire::{RawJson, RequestError};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time;

use crate::harness::{
    Endpoint, PROGRAM, RecordingHandler, TEST_TIMEOUT, TestEnvironment, call, handshake, listed, listed_once,
    text,
};

/// A configuration with one server, whose gateway outlives every step of a test, and no test for long.
struct SharedConfiguration {
    environment: TestEnvironment,
    file: PathBuf,
}

impl SharedConfiguration {
    fn new() -> Self {
        Self::with(&json!({}))
    }

    fn with(variables: &Value) -> Self {
        let environment = TestEnvironment::new();
        let mut server = environment.server("s", &["hang", "x"]);
        server["env"] = variables.clone();
        let settings = json!({"mcpServers": {"s": server}, "daemonIdleTimeout": "20s"});
        let file = environment.write("pegboard.json", &settings.to_string());
        Self { environment, file }
    }

    fn serving(&self, options: &[&str]) -> Command {
        let mut command = self.environment.sharing(&self.file);
        command.arg("--stdio").args(options);
        command
    }

    async fn client(&self, options: &[&str]) -> SharedClient {
        SharedClient::start(self.serving(options), Era::Session).await
    }

    /// Runs a command that uses the gateway.
    async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.environment.command(PROGRAM);
        command.args(arguments).arg("--config").arg(&self.file).stdin(Stdio::null());
        time::timeout(TEST_TIMEOUT, command.output()).await.unwrap().unwrap()
    }

    async fn status(&self) -> Value {
        let output = self.run(&["status", "--json"]).await;
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }

    async fn stop(&self) {
        let output = self.run(&["stop"]).await;
        assert!(output.status.success(), "{output:?}");
    }

    fn run_folder(&self) -> PathBuf {
        self.environment.folder().join("state").join("run")
    }

    /// Files in the directory of sockets and locks, by extension.
    fn files(&self, extension: &str) -> Vec<PathBuf> {
        let files = fs::read_dir(self.run_folder()).into_iter().flatten().map(|file| file.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|it| it == extension)).collect()
    }
}

/// A client over stdio.
struct SharedClient {
    client: McpClient,
    handler: Arc<RecordingHandler>,
    process: Child,
    stderr: mpsc::UnboundedReceiver<String>,
}

impl SharedClient {
    async fn start(mut command: Command, era: Era) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (output, input) = (process.stdout.take().unwrap(), process.stdin.take().unwrap());
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let (sender, stderr) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let _ = sender.send(line);
            }
        });
        let (transport, _) = line_transport(output, input, InputLimits::client());
        let (client, handler) = time::timeout(TEST_TIMEOUT, handshake(transport, era)).await.unwrap();
        Self { client, handler, process, stderr }
    }

    /// Reads standard error up to a line with this text.
    async fn wait_for_line(&mut self, part: &str) -> String {
        let mut lines = Vec::new();
        let reading = async {
            while lines.last().is_none_or(|line: &String| !line.contains(part)) {
                lines.push(self.stderr.recv().await.unwrap());
            }
        };
        let is_read = time::timeout(TEST_TIMEOUT, reading).await.is_ok();
        assert!(is_read, "no {part:?} in {lines:?}");
        lines.pop().unwrap()
    }

    async fn leave(self) {
        let Self { client, mut process, .. } = self;
        drop(client);
        let status = time::timeout(TEST_TIMEOUT, process.wait()).await.unwrap().unwrap();
        assert!(status.success());
    }
}

#[tokio::test]
async fn clients_of_a_configuration_share_its_servers_and_have_their_own_profiles() {
    let configuration = SharedConfiguration::new();
    let flat = configuration.client(&["--profile", "flat"]).await;
    let meta = configuration.client(&[]).await;
    let stateless = SharedClient::start(configuration.serving(&["--profile", "flat"]), Era::Stateless).await;
    let names = |tools: &[Value]| tools.iter().map(|tool| tool["name"].clone()).collect::<Vec<_>>();
    assert_eq!(names(&listed_once(&flat.client, 2).await), ["s__hang", "s__x"]);
    assert_eq!(names(&listed(&meta.client).await)[0], "open_toolbox");
    call(&meta.client, "open_toolbox", json!({"toolbox": "default"})).await;
    for client in [&flat, &meta, &stateless] {
        let used = call(&client.client, "s__x", json!({})).await;
        assert!(text(&used).contains("s/x {}"), "{used}");
    }
    assert_eq!((configuration.environment.n_started(), configuration.files("lock").len()), (1, 1));
    let status = configuration.status().await;
    let clients = status["clients"].as_array().unwrap();
    assert_eq!((status["startedBy"]["mode"].as_str(), clients.len()), (Some("background"), 3));
    assert_eq!((&clients[0]["profile"], &clients[1]["profile"]), (&json!("flat"), &Value::Null));

    for client in [flat, meta, stateless] {
        client.leave().await;
    }
    assert_eq!(configuration.status().await["clients"], json!([]));
    assert_eq!(configuration.environment.n_running(), 1, "servers outlive their clients");
    configuration.stop().await;
    configuration.environment.wait_for_event("s gone").await;
    assert_eq!((configuration.files("lock").len(), configuration.files("sock").len()), (0, 0));
}

#[tokio::test]
async fn clients_that_start_at_the_same_moment_start_one_gateway() {
    let configuration = SharedConfiguration::new();
    let clients = join_all((0..6).map(|_| configuration.client(&["--profile", "flat"]))).await;
    let calls = clients.iter().map(|client| call(&client.client, "s__x", json!({})));
    for result in join_all(calls).await {
        assert_eq!(text(&result), "s/x {}");
    }
    assert_eq!((configuration.environment.n_started(), configuration.files("sock").len()), (1, 1));
    assert_eq!(configuration.status().await["clients"].as_array().unwrap().len(), 6);
    configuration.stop().await;
}

#[tokio::test]
async fn a_gateway_in_the_background_ends_when_it_is_idle() {
    let configuration = SharedConfiguration::new();
    let idle = ["--set", "daemonIdleTimeout=100ms", "--profile", "flat"];
    let client = configuration.client(&idle).await;
    assert_eq!(text(&call(&client.client, "s__x", json!({})).await), "s/x {}");
    client.leave().await;
    configuration.environment.wait_for_event("s gone").await;
}

#[tokio::test]
async fn a_killed_gateway_is_replaced_and_its_requests_are_answered() {
    let configuration = SharedConfiguration::new();
    let mut client = configuration.client(&["--profile", "flat"]).await;
    let params = Some(RawJson::from(json!({"name": "s__hang", "arguments": {}})));
    let hanging = client.client.request("tools/call", params, RequestOptions::default()).await.unwrap();
    configuration.environment.wait_for_event("s hangs").await;
    let pid = configuration.status().await["pid"].as_i64().unwrap();
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();

    let answer = time::timeout(TEST_TIMEOUT, hanging.response()).await.unwrap();
    let Err(RequestError::Rpc(error)) = answer else { panic!("{answer:?}") };
    assert!(error.message.contains("before it answered tools/call: it may have run"), "{error:?}");
    assert_eq!(error.data.unwrap().to_value()["mayHaveRun"], true);
    client.wait_for_line("it was killed or crashed; 1 request lost").await;
    configuration.environment.wait_for_event("s gone").await;

    // The session continues, without a handshake of the client.
    assert_eq!(text(&call(&client.client, "s__x", json!({})).await), "s/x {}");
    assert!(client.handler.recorded().contains(&"notifications/tools/list_changed".to_owned()));
    let status = configuration.status().await;
    assert_ne!(status["pid"], pid);
    assert_eq!(configuration.files("sock").len(), 1, "the socket of the killed one is removed");
    configuration.stop().await;
}

#[tokio::test]
async fn a_stopped_gateway_is_started_again_when_a_client_needs_it() {
    let configuration = SharedConfiguration::new();
    let mut client = configuration.client(&["--profile", "flat"]).await;
    assert_eq!(text(&call(&client.client, "s__x", json!({})).await), "s/x {}");
    let first = configuration.status().await;
    configuration.stop().await;
    configuration.environment.wait_for_event("s gone").await;
    client.wait_for_line("has gone: it was stopped").await;
    assert_eq!(
        configuration.run(&["status"]).await.status.code(),
        Some(5),
        "nothing is started without need"
    );

    assert_eq!(text(&call(&client.client, "s__x", json!({})).await), "s/x {}");
    let second = configuration.status().await;
    assert_ne!(first["pid"], second["pid"]);

    let restarted = configuration.run(&["restart", "--json"]).await;
    let restarted: Value = serde_json::from_slice(&restarted.stdout).unwrap();
    assert_eq!(restarted["pid"], second["pid"]);
    assert_ne!(restarted["startedAt"], second["startedAt"]);
    assert_eq!(text(&call(&client.client, "s__x", json!({})).await), "s/x {}");

    fs::write(&configuration.file, "{").unwrap();
    let refused = configuration.run(&["restart"]).await;
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert_eq!(text(&call(&client.client, "s__x", json!({})).await), "s/x {}");
    configuration.stop().await;
}

#[tokio::test]
async fn serve_replaces_a_gateway_in_the_background_and_refuses_to_be_the_second() {
    let configuration = SharedConfiguration::new();
    let mut client = configuration.client(&["--profile", "flat"]).await;
    assert_eq!(text(&call(&client.client, "s__x", json!({})).await), "s/x {}");
    let mut serve = configuration.environment.sharing(&configuration.file);
    serve.args(["--http", "127.0.0.1:0"]);
    let endpoint = Endpoint::start(serve).await;
    assert!(endpoint.before.iter().any(|line| line.starts_with("Replacing  the gateway in the background")));
    client.wait_for_line("The session continues on another gateway").await;
    assert_eq!(text(&call(&client.client, "s__x", json!({})).await), "s/x {}");
    let status = configuration.status().await;
    assert_eq!(status["startedBy"]["mode"], "foreground");
    assert_eq!(status["clients"].as_array().unwrap().len(), 1);

    let second = configuration.run(&["serve", "--http", "127.0.0.1:0"]).await;
    let message = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(2), "{message}");
    assert!(message.contains("error[already_running]") && message.contains(&endpoint.address), "{message}");
}

#[tokio::test]
async fn a_client_with_other_variables_is_told_their_names() {
    let configuration =
        SharedConfiguration::with(&json!({"KEY": "${SHARED_KEY:-}", "SAME": "${SHARED_SAME:-}"}));
    let serving = |key: &str| {
        let mut command = configuration.serving(&["--profile", "flat"]);
        command.env("SHARED_KEY", key).env("SHARED_SAME", "same").env("UNRELATED", key);
        command
    };
    let _first = SharedClient::start(serving("first-s3cret"), Era::Session).await;
    let mut second = SharedClient::start(serving("second-s3cret"), Era::Session).await;
    let line = second.wait_for_line("has other values for").await;
    assert!(line.contains("other values for SHARED_KEY:") && !line.contains("s3cret"), "{line}");
    let status = configuration.status().await;
    assert_eq!(status["clients"][0]["differingVariables"], json!([]));
    assert_eq!(status["clients"][1]["differingVariables"], json!(["SHARED_KEY"]));
    assert!(!status.to_string().contains("s3cret"));
    configuration.stop().await;
}

/// Acts as the gateway of a configuration, and answers the first client with this head.
async fn other_gateway(folder: &Path, lock: &Path, head: &str) -> String {
    let pid = std::process::id();
    let file = fs::OpenOptions::new().write(true).create(true).truncate(true).open(lock).unwrap();
    file.try_lock().unwrap();
    fs::write(lock, format!("{pid}\n")).unwrap();
    let listener = UnixListener::bind(folder.join(format!("{pid}.sock"))).unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = vec![0; 64 * 1024];
    let n_read = stream.read(&mut request).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    if head.starts_with("HTTP/1.1 101") {
        // It echoes one message.
        let mut line = String::new();
        let (reader, mut writer) = stream.split();
        BufReader::new(reader).read_line(&mut line).await.unwrap();
        writer.write_all(line.as_bytes()).await.unwrap();
    }
    fs::remove_file(lock).unwrap();
    String::from_utf8_lossy(&request[..n_read]).into_owned()
}

#[tokio::test]
async fn a_gateway_of_another_version_is_used_or_left_alone() {
    let upgraded = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: pegboard-stdio\r\n\
        pegboard-attachment: {\"version\":\"9.9.9\",\"pid\":7,\"differing\":[]}\r\n\r\n";
    let unknown = "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}";
    for (head, told) in [(upgraded, "is Pegboard 9.9.9"), (unknown, "this client has a gateway of its own")] {
        let configuration = SharedConfiguration::new();
        // A real gateway tells the names of the files.
        configuration.client(&[]).await.leave().await;
        let lock = configuration.files("lock").remove(0);
        configuration.stop().await;

        let mut command = configuration.serving(&["--profile", "flat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (folder, lock) = (configuration.run_folder(), lock);
        let head_text = head.to_owned();
        let gateway = tokio::spawn(async move { other_gateway(&folder, &lock, &head_text).await });
        time::timeout(TEST_TIMEOUT, async {
            while configuration.files("sock").is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
        let mut process = command.spawn().unwrap();
        let mut input = process.stdin.take().unwrap();
        input.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n").await.unwrap();
        let mut answer = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        time::timeout(TEST_TIMEOUT, output.read_line(&mut answer)).await.unwrap().unwrap();
        assert!(answer.contains("\"id\":1"), "{answer}");
        drop(input);
        let output = time::timeout(TEST_TIMEOUT, process.wait_with_output()).await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(told), "{said}");
        let request = gateway.await.unwrap();
        assert!(request.starts_with("GET /api/stdio"), "{request}");
    }
}
