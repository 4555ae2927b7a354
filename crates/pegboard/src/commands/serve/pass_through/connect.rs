//! Finds the gateway of a configuration, or starts one in the background.

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use pegboard::gateway::api::ApiErrorResponse;
use tokio::net::UnixStream;
use tokio::time::{self, Instant};

use super::super::attachment::{self, AttachReply, AttachRequest};
use super::super::gateway_lock::{GatewayLock, LockAttempt};
use super::super::log_file::LogFile;
use crate::cli::CliError;
use crate::paths::PrivateDir;

/// Time limit for a gateway to accept clients.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for the answer of a gateway.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between attempts to reach a gateway that starts.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// Number of lines of its log that are shown if it does not start.
const N_LOG_LINES: usize = 20;
/// Maximum size of a refusal.
const MAX_BYTES: usize = 64 * 1024;

/// Location of the gateway of a configuration.
pub(super) struct GatewayLocation {
    /// Directory of sockets and locks.
    pub(super) folder: PrivateDir,
    pub(super) log: LogFile,
    pub(super) request: AttachRequest,
}

/// A connection to a gateway that carries messages.
pub(super) struct GatewayConnection {
    pub(super) stream: UnixStream,
    /// Bytes that arrived with the answer.
    pub(super) first: axum::body::Bytes,
    pub(super) reply: AttachReply,
}

/// Reason why there is no connection.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// No gateway can be shared, for this reason: the client needs one of its own.
    Unshared(String),
    /// The client cannot be served.
    Failed(CliError),
}

/// Reason why a gateway does not accept a client.
enum AttachError {
    /// It does not accept clients yet, or no more.
    NotReady,
    Final(ConnectError),
}

impl GatewayLocation {
    /// Connects to the gateway of the configuration. If there is none, `start` starts it with the lock.
    pub(super) async fn connect(
        &self,
        mut start: impl FnMut(GatewayLock) -> Result<(), ConnectError>,
    ) -> Result<GatewayConnection, ConnectError> {
        let end = Instant::now() + START_TIMEOUT;
        let mut is_started = false;
        let unshared = |error: io::Error| ConnectError::Unshared(error.to_string());
        loop {
            match self.try_lock().map_err(unshared)? {
                LockAttempt::Acquired(_) if is_started => return Err(self.did_not_start()),
                LockAttempt::Acquired(lock) => {
                    start(lock)?;
                    is_started = true;
                }
                LockAttempt::Held(Some(pid)) => match self.attach(pid).await {
                    Ok(connection) => return Ok(connection),
                    Err(AttachError::NotReady) => {}
                    Err(AttachError::Final(error)) => return Err(error),
                },
                LockAttempt::Held(None) => {}
            }
            if Instant::now() >= end {
                let seconds = START_TIMEOUT.as_secs();
                return Err(ConnectError::Unshared(format!("it does not accept clients within {seconds} s")));
            }
            time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Takes the lock of the configuration, if no gateway has it.
    pub(super) fn try_lock(&self) -> io::Result<LockAttempt> {
        GatewayLock::try_acquire(&self.folder, &self.request.identity)
    }

    /// Asks a gateway to serve this client.
    async fn attach(&self, pid: u32) -> Result<GatewayConnection, AttachError> {
        let path = self.folder.path().join(format!("{pid}.sock"));
        let stream = UnixStream::connect(&path).await.map_err(|_| AttachError::NotReady)?;
        if !stream.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw()) {
            let message = format!("{} is served by another user", path.display());
            let failure = CliError::system(message).hint("remove it, then try again");
            return Err(AttachError::Final(ConnectError::Failed(failure)));
        }
        let upgrading = time::timeout(REPLY_TIMEOUT, self.upgrade(stream)).await;
        upgrading.unwrap_or_else(|_| {
            let message = format!("the gateway with pid {pid} does not answer");
            Err(AttachError::Final(ConnectError::Unshared(message)))
        })
    }

    async fn upgrade(&self, stream: UnixStream) -> Result<GatewayConnection, AttachError> {
        let gone = |_: hyper::Error| AttachError::NotReady;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(gone)?;
        // The task ends with the upgrade.
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::get(attachment::PATH)
            .header(header::HOST, "localhost")
            .header(header::CONNECTION, "upgrade")
            .header(header::UPGRADE, attachment::PROTOCOL)
            .body(Body::empty())
            .map_err(|error| AttachError::Final(ConnectError::Unshared(error.to_string())))?;
        request.headers_mut().extend(attachment::write_header(&self.request));
        let response = sender.send_request(request).await.map_err(gone)?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(refusal(response.map(Body::new)).await);
        }
        let other = || AttachError::Final(ConnectError::Unshared("it speaks another protocol".to_owned()));
        let reply = attachment::read_header(response.headers()).ok_or_else(other)?;
        let upgraded = hyper::upgrade::on(response).await.map_err(gone)?;
        let parts = upgraded.downcast::<TokioIo<UnixStream>>().map_err(|_| other())?;
        Ok(GatewayConnection { stream: parts.io.into_inner(), first: parts.read_buf, reply })
    }

    fn did_not_start(&self) -> ConnectError {
        let message = format!("it exited at its start; its log is {}", self.log.path().display());
        let lines = self.log.tail(N_LOG_LINES);
        ConnectError::Unshared(lines.iter().fold(message, |message, line| format!("{message}\n  {line}")))
    }
}

/// Reads the reason for which a gateway refuses a client.
async fn refusal(response: axum::http::Response<Body>) -> AttachError {
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
    let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let error = serde_json::from_slice::<ApiErrorResponse>(&body).unwrap_or_default().error;
    match status {
        StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE => AttachError::NotReady,
        StatusCode::NOT_FOUND if error.code == "usage" => {
            AttachError::Final(ConnectError::Failed(CliError::usage(error.message)))
        }
        _ => AttachError::Final(ConnectError::Unshared(format!(
            "the running gateway is of another version and answers {status}"
        ))),
    }
}
