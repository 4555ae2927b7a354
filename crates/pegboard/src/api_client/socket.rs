//! Connection to the local socket of a running gateway.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::http::{Request, Response};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;

use super::{ApiBackend, ApiClient, ApiPath, gateway_gone};
use crate::cli::CliError;
use crate::paths::{PrivateDir, SelectedFiles};

/// Timeout for the status of a gateway.
const STATUS_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of sockets that are tried, newest first.
const MAX_SOCKETS: usize = 64;

/// Local socket of a gateway.
pub(super) struct GatewaySocket(PathBuf);

impl GatewaySocket {
    /// Socket with this path.
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Sends a request on a new connection, which is cheap on a local socket.
    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, CliError> {
        let stream = self.connect().await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|_| gateway_gone())?;
        // The connection task ends with the response.
        tokio::spawn(connection);
        sender.send_request(request).await.map(|answer| answer.map(Body::new)).map_err(|_| gateway_gone())
    }

    /// Opens a connection to a gateway of this user.
    pub(super) async fn connect(&self) -> Result<UnixStream, CliError> {
        let stream = UnixStream::connect(&self.0).await.map_err(|_| gateway_gone())?;
        // Requests may contain secrets.
        if !stream.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw()) {
            let message = format!("{} is served by another user", self.0.display());
            return Err(CliError::system(message).hint("remove it, then restart the gateway"));
        }
        Ok(stream)
    }
}

/// Returns the newest gateway with a socket in this directory that serves the files `wanted`, or any gateway
/// if there are none.
pub(super) async fn find(folder: &PrivateDir, wanted: &SelectedFiles) -> Option<ApiClient> {
    let wanted = wanted.canonical();
    let found = find_where(folder, |status| {
        let files = |key: &str| {
            let files = status[key].as_array().into_iter().flatten().filter_map(Value::as_str);
            files.map(PathBuf::from).collect()
        };
        let served = SelectedFiles { all: files("configuration"), settings_only: files("settingsOnly") };
        wanted.all.is_empty() || served.canonical() == wanted
    });
    found.await.map(|(api, _)| api)
}

/// Returns the newest gateway with a socket in this directory and a matching status, and this status.
pub(super) async fn find_where(
    folder: &PrivateDir,
    is_wanted: impl Fn(&Value) -> bool,
) -> Option<(ApiClient, Value)> {
    if !folder.is_private() {
        return None;
    }
    for path in newest_sockets(folder.path()) {
        let api = ApiClient { backend: ApiBackend::Running(GatewaySocket(path)) };
        let status = ApiPath::new(&["status"]);
        // A gateway that does not answer is gone or stuck.
        let Ok(Ok(status)) = tokio::time::timeout(STATUS_TIMEOUT, api.get(&status)).await else { continue };
        if is_wanted(&status) {
            return Some((api, status));
        }
    }
    None
}

/// Sockets in a directory, newest first.
fn newest_sockets(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sockets =
        entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "sock"));
    let mut sockets: Vec<(SystemTime, PathBuf)> =
        sockets.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    sockets.sort_by(|one, other| other.cmp(one));
    sockets.into_iter().take(MAX_SOCKETS).map(|(_, path)| path).collect()
}
