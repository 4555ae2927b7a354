//! Local socket for commands of the same user.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use pegboard::wire::descriptors::AcceptErrors;
use pegboard::wire::http::server::HttpApplication;
use tokio::net::{UnixListener, UnixStream};

use super::activity::Activity;
use crate::paths::PrivateDir;

/// Permissions: only this user may access the socket.
const SOCKET_MODE: u32 = 0o600;

/// Listening socket; removed when it is dropped. Commands that connect before it is served wait.
pub(crate) struct LocalSocket {
    listener: UnixListener,
    file: SocketFile,
}

impl LocalSocket {
    /// Binds the socket of this process in a directory, which is created if needed.
    pub(super) fn open(folder: &PrivateDir) -> io::Result<Self> {
        folder.create()?;
        let folder = folder.path();
        remove_stale(folder);
        let path = folder.join(format!("{}.sock", std::process::id()));
        // A leftover of an earlier process with the same id.
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        let file = SocketFile(path);
        fs::set_permissions(&file.0, fs::Permissions::from_mode(SOCKET_MODE))?;
        Ok(Self { listener, file })
    }

    /// Serves requests while it is polled.
    pub(super) async fn serve(self, application: Router, activity: &Activity) -> Infallible {
        let Self { listener, file: _removed_at_the_end } = self;
        let application = Arc::new(HttpApplication::from(application));
        let mut errors = AcceptErrors::default();
        loop {
            match listener.accept().await {
                Ok((stream, _)) if is_own_user(&stream) => {
                    let (application, active) = (Arc::clone(&application), activity.begin());
                    // The task ends with the connection, or with the process.
                    tokio::spawn(async move {
                        application.serve_connection(stream).await;
                        drop(active);
                    });
                }
                Ok(_rejected) => {}
                Err(error) => errors.handle(&error).await,
            }
        }
    }
}

/// Returns `true` for connections of this user and of root, whatever the permissions of the socket have become.
fn is_own_user(stream: &UnixStream) -> bool {
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == rustix::process::geteuid().as_raw() || peer.uid() == 0 => return true,
        Ok(peer) => tracing::warn!(user = peer.uid(), "Rejected a command of another user."),
        Err(error) => tracing::warn!(%error, "Rejected a command of an unknown user."),
    }
    false
}

/// File of a socket; removed on drop.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Removes sockets of gateways that did not shut down cleanly.
fn remove_stale(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sockets =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == "sock"));
    for path in sockets {
        if std::os::unix::net::UnixStream::connect(&path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        {
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_private_and_removed_on_shutdown() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("state").join("run");
        fs::create_dir_all(&folder).unwrap();
        let dead = folder.join("1.sock");
        drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());

        let socket = LocalSocket::open(&PrivateDir::new(folder.clone())).unwrap();
        let path = socket.file.0.clone();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&path), dead.exists()), (0o700, 0o600, false));

        let serving = tokio::spawn(async move { socket.serve(Router::new(), &Activity::default()).await });
        tokio::net::UnixStream::connect(&path).await.unwrap();
        serving.abort();
        assert!(serving.await.unwrap_err().is_cancelled());
        assert!(!path.exists());
    }
}
