//! Connections to child processes over stdin and stdout.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use pegboard_core::settings::mcp::ServerProgram;
use pegboard_wire::client::{self, McpClient};
use pegboard_wire::stdio::line_transport;
use tokio::time;

use super::connect::{Backend, Connector, ConnectorError, EstablishedConnection, HandshakeOptions};
use crate::process::{
    CommandSpec, PidHandle, Process, ShutdownOutcome, SpawnError, StderrHandle, SupervisorCommand,
};

/// Time limit for the exit of a process that has closed its stdin or stdout: the exit usually follows, and gives
/// a better reason.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

/// Connector for a child process that speaks MCP over stdin and stdout. Each start is a new process.
///
/// ```
/// use pegboard_core::settings::mcp::ServerProgram;
/// use pegboard_providers::mcp::StdioConnector;
///
/// let program = ServerProgram { args: vec!["-y".into(), "some-server".into()], ..ServerProgram::new("npx") };
/// let connector = StdioConnector::new(&program);
/// # let _ = connector;
/// ```
pub struct StdioConnector {
    spec: CommandSpec,
    /// The process that was started last.
    latest: Mutex<Option<LatestProcess>>,
}

/// Handles to a process that is owned elsewhere.
#[derive(Clone)]
struct LatestProcess {
    stderr: StderrHandle,
    pid_handle: PidHandle,
}

impl StdioConnector {
    /// Creates a connector for a program that this process supervises itself.
    pub fn new(program: &ServerProgram) -> Self {
        Self { spec: CommandSpec::new(program.clone()), latest: Mutex::default() }
    }

    /// Runs the program under a supervisor process.
    #[must_use]
    pub fn with_supervisor(mut self, supervisor: SupervisorCommand) -> Self {
        self.spec.supervisor = Some(supervisor);
        self
    }

    fn set_latest(&self, latest: Option<LatestProcess>) {
        *self.latest.lock() = latest;
    }

    fn latest(&self) -> Option<LatestProcess> {
        self.latest.lock().clone()
    }

    async fn spawn_and_connect(
        &self,
        handshake: HandshakeOptions,
    ) -> Result<EstablishedConnection, ConnectorError> {
        // Earlier output does not explain a failure of this start.
        self.set_latest(None);
        let (process, stdin, stdout) = Process::start_logging(&self.spec, handshake.log.clone())?;
        let pid_handle = process.pid_handle();
        self.set_latest(Some(LatestProcess {
            stderr: process.stderr_handle(),
            pid_handle: pid_handle.clone(),
        }));
        let mut backend = ProcessBackend(process);
        // The pump task ends with the transport.
        let (transport, _pump) = line_transport(stdout, stdin, handshake.input_limits());
        let HandshakeOptions { receiver, options, .. } = handshake;
        let handshaken = tokio::select! {
            handshaken = McpClient::connect(transport, receiver, options) => handshaken,
            why = backend.exited() => return Err(exited_error(why)),
        };
        match handshaken {
            Ok(client) => {
                // The supervisor is about to report the process id, if it has not yet.
                tokio::select! {
                    () = pid_handle.wait_for_pid() => {}
                    _why = backend.exited() => {}
                }
                Ok(EstablishedConnection { client, backend: Some(Box::new(backend)) })
            }
            Err(error @ client::HandshakeError::Transport(_)) => {
                match time::timeout(EXIT_TIMEOUT, backend.exited()).await {
                    Ok(why) => Err(exited_error(why)),
                    Err(_elapsed) => Err(error.into()),
                }
            }
            // The server answers, but wrongly. An exit now only follows from the closed connection.
            Err(error) => Err(error.into()),
        }
    }
}

impl Connector for StdioConnector {
    fn connect(
        &self,
        handshake: HandshakeOptions,
    ) -> BoxFuture<'_, Result<EstablishedConnection, ConnectorError>> {
        self.spawn_and_connect(handshake).boxed()
    }

    fn stderr_tail(&self) -> Option<String> {
        let LatestProcess { stderr, .. } = self.latest()?;
        let text = self.spec.redactor().text(&stderr.tail()).into_owned();
        Some(text).filter(|text| !text.trim().is_empty())
    }

    fn pid(&self) -> Option<u32> {
        self.latest()?.pid_handle.pid()
    }

    fn dedicated(&self) -> Option<Arc<dyn Connector>> {
        Some(Arc::new(Self { spec: self.spec.clone(), latest: Mutex::default() }))
    }
}

/// The process behind a connection.
struct ProcessBackend(Process);

impl Backend for ProcessBackend {
    fn exited(&mut self) -> BoxFuture<'_, String> {
        let (mut exited, stdin_closed) = (self.0.exited(), self.0.stdin_closed());
        async move {
            let mut exit = pin!(async move {
                let exit = exited.wait_for(Option::is_some).await.ok().and_then(|exit| *exit);
                exit.map_or_else(|| "the program exited".to_owned(), |exit| format!("the program {exit}"))
            });
            tokio::select! {
                biased;
                why = &mut exit => why,
                // A program that does not read any more will not answer. Usually it has exited.
                () = stdin_closed.cancelled() => match time::timeout(EXIT_TIMEOUT, exit).await {
                    Ok(why) => why,
                    Err(_elapsed) => "the program closed its standard input".to_owned(),
                },
            }
        }
        .boxed()
    }

    fn shut_down(self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            let ShutdownOutcome { left_running, .. } = self.0.shut_down().await;
            if !left_running.is_empty() {
                tracing::warn!(pids = ?left_running, "Processes of an MCP server are still running.");
            }
        }
        .boxed()
    }
}

fn exited_error(why: String) -> ConnectorError {
    ConnectorError::Unavailable { why, fix: "Run its command manually to see its output.".to_owned() }
}

impl From<SpawnError> for ConnectorError {
    fn from(error: SpawnError) -> Self {
        Self::Unavailable { why: error.to_string(), fix: error.fix().to_owned() }
    }
}
