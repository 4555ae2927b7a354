//! The gateway under test: how it is started and called.

use std::process::Stdio;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use pegboard_wire::client::{ClientOptions, Era, McpClient, RequestOptions};
use pegboard_wire::stdio::line_transport;
use pegboard_wire::transport::InputLimits;
use pegboard_wire::{
    ConnectionStats, Id, InboundHandler, InboundRequest, Notification, RawJson, RequestError, ResponseEvent,
    RpcError,
};
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::processes::{Marker, TEST_TIMEOUT, peak_memory};

/// A running gateway; killed on drop.
pub(crate) struct GatewayProcess {
    child: Child,
    client: McpClient,
    log: JoinHandle<String>,
    /// Idle memory, in KiB.
    idle_memory: u64,
    _settings: NamedTempFile,
    _state: TempDir,
}

/// Result of a call.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// Error code.
    pub(crate) kind: Option<String>,
    pub(crate) text: String,
    /// Progress messages.
    pub(crate) progress: Vec<String>,
}

impl GatewayProcess {
    /// Starts a gateway with these servers, by name.
    pub(crate) async fn start(marker: &Marker, servers: &Value) -> Self {
        let settings = NamedTempFile::new().unwrap();
        serde_json::to_writer(&settings, &json!({"mcpServers": servers})).unwrap();
        let state = TempDir::new().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_pegboard"))
            .arg("serve")
            .arg(settings.path())
            .args(["--stdio", "--no-daemon", "--profile", "flat", "--state"])
            .arg(state.path())
            .env("PEGBOARD_LOG", "info")
            .env(Marker::VARIABLE, marker.value())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut stderr = child.stderr.take().unwrap();
        let log = tokio::spawn(async move {
            let mut text = Vec::new();
            stderr.read_to_end(&mut text).await.unwrap();
            String::from_utf8_lossy(&text).into_owned()
        });
        let (transport, _pump) = line_transport(stdout, stdin, InputLimits::client());
        let options = ClientOptions {
            era: Some(Era::Session),
            capabilities: RawJson::from(json!({"elicitation": {}})),
            ..ClientOptions::new("faults", "1")
        };
        let client =
            timeout(TEST_TIMEOUT, McpClient::connect(transport, Arc::new(AnsweringHandler), options))
                .await
                .unwrap()
                .unwrap();
        let idle_memory = peak_memory(child.id().unwrap());
        Self { child, client, log, idle_memory, _settings: settings, _state: state }
    }

    /// Makes a call and waits for its result.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Answer {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": "own"}});
        let answering = async {
            let mut progress = Vec::new();
            let params = Some(RawJson::from(params));
            let mut exchange =
                self.client.request("tools/call", params, RequestOptions::default()).await.unwrap();
            loop {
                match exchange.next_event().await {
                    ResponseEvent::Notification(notice) => {
                        let params = notice.params.unwrap().to_value();
                        progress.push(params["message"].as_str().unwrap_or_default().to_owned());
                    }
                    ResponseEvent::End(Ok(result)) => break Answer::of(&result.to_value(), progress),
                    // Protocol errors of a server are passed through.
                    ResponseEvent::End(Err(RequestError::Rpc(RpcError { message, .. }))) => {
                        break Answer { kind: Some("execution_error".to_owned()), text: message, progress };
                    }
                    ResponseEvent::End(Err(failure)) => panic!("{failure}"),
                }
            }
        };
        timeout(TEST_TIMEOUT, answering).await.unwrap_or_else(|_| panic!("{tool} is not answered"))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Peak memory above the idle level, in KiB.
    pub(crate) fn extra_memory(&self) -> u64 {
        // The system counts in batches, so that a peak may seem to fall.
        peak_memory(self.pid()).saturating_sub(self.idle_memory)
    }

    /// Unexpected messages.
    pub(crate) fn connection_stats(&self) -> ConnectionStats {
        self.client.connection().stats()
    }

    /// Disconnects the client, waits for the exit, and returns the log.
    pub(crate) async fn end(self) -> String {
        let Self { mut child, client, log, .. } = self;
        drop(client);
        let exit = timeout(TEST_TIMEOUT + TEST_TIMEOUT, child.wait())
            .await
            .expect("the gateway does not end")
            .unwrap();
        assert!(exit.success(), "the gateway ended with {exit}");
        log.await.unwrap()
    }
}

impl Answer {
    fn of(result: &Value, progress: Vec<String>) -> Self {
        let kind = match &result["_meta"]["pegboard/error"]["kind"] {
            Value::String(kind) => Some(kind.clone()),
            _ if result["isError"] == true => Some("is_error".to_owned()),
            _ => None,
        };
        Self { kind, text: result["content"][0]["text"].as_str().unwrap_or_default().to_owned(), progress }
    }
}

/// A client that answers elicitations with a name.
struct AnsweringHandler;

impl InboundHandler for AnsweringHandler {
    fn request(&self, inbound: InboundRequest) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        ready(match &*inbound.request.method {
            "elicitation/create" => {
                Ok(RawJson::from(json!({"action": "accept", "content": {"name": "Ada"}})))
            }
            method => Err(RpcError::method_not_found(method)),
        })
        .boxed()
    }

    fn notification(&self, _notification: Notification, _about: Option<Id>) {}
}
