//! The local socket of a gateway that runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::http::{Request, Response};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use super::{Address, Desk, Way, gone};
use crate::cli::Failure;

/// How long a gateway may take to say what it is.
const PATIENCE: Duration = Duration::from_millis(500);
/// How many sockets are looked at, the newest.
const MAX_SOCKETS: usize = 64;

/// The local socket of a gateway.
pub(super) struct Socket(PathBuf);

impl Socket {
    /// Asks the gateway. Every question has a connection of its own, which costs next to nothing here.
    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, Failure> {
        let stream = UnixStream::connect(&self.0).await.map_err(|_| gone())?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|_| gone())?;
        // It ends with the answer.
        tokio::spawn(connection);
        sender.send_request(request).await.map(|answer| answer.map(Body::new)).map_err(|_| gone())
    }
}

/// The newest gateway whose socket is in this folder and that serves these files, or any if none are wanted.
pub(super) async fn find(folder: &Path, wanted: &[PathBuf]) -> Option<Desk> {
    let wanted = known(wanted.iter().map(PathBuf::as_path));
    for path in newest(folder) {
        let desk = Desk { way: Way::Running(Socket(path)) };
        let status = Address::of(&["status"]);
        // Who does not answer is gone, or has other troubles.
        let Ok(Ok(status)) = tokio::time::timeout(PATIENCE, desk.get(&status)).await else { continue };
        let files = status["configuration"].as_array().into_iter().flatten();
        let files = known(files.filter_map(|file| file.as_str()).map(Path::new));
        if wanted.is_empty() || files == wanted {
            return Some(desk);
        }
    }
    None
}

/// Files, however they are written.
fn known<'f>(files: impl Iterator<Item = &'f Path>) -> BTreeSet<PathBuf> {
    files.map(|file| file.canonicalize().unwrap_or_else(|_| file.to_owned())).collect()
}

/// The sockets of a folder, the newest first.
fn newest(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sockets =
        entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "sock"));
    let mut sockets: Vec<(SystemTime, PathBuf)> =
        sockets.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    sockets.sort_by(|one, other| other.cmp(one));
    sockets.into_iter().take(MAX_SOCKETS).map(|(_, path)| path).collect()
}
