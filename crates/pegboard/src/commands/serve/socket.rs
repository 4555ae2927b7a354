//! Local socket for commands of the same user.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use pegboard::wire::descriptors::AcceptErrors;
use pegboard::wire::http::server::HttpApplication;
use tokio::net::UnixListener;

/// Permissions: only this user may access the directory and the socket.
const FOLDER_MODE: u32 = 0o700;
const SOCKET_MODE: u32 = 0o600;

/// Listening socket; removed when it is dropped.
pub(super) struct LocalSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl LocalSocket {
    /// Binds the socket of this process in a directory, which is created if needed.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        create_private_dir(folder)?;
        remove_stale(folder);
        let path = folder.join(format!("{}.sock", std::process::id()));
        // A leftover of an earlier process with the same id.
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(SOCKET_MODE))?;
        Ok(Self { listener, path })
    }

    /// Serves requests while it is polled.
    pub(super) async fn serve(self, application: Router) -> Infallible {
        let Self { listener, path } = self;
        let _gone = RemoveOnDrop(path);
        let application = Arc::new(HttpApplication::from(application));
        let mut errors = AcceptErrors::default();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let application = Arc::clone(&application);
                    // The task ends with the connection, or with the process.
                    tokio::spawn(async move { application.serve_connection(stream).await });
                }
                Err(error) => errors.handle(&error).await,
            }
        }
    }
}

/// Removes the socket file on drop.
struct RemoveOnDrop(PathBuf);

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Creates a directory that only this user can access. A directory of another user is an error.
fn create_private_dir(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() || metadata.uid() != rustix::process::getuid().as_raw() {
        let problem = format!("{} belongs to another user", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(FOLDER_MODE))
}

/// Removes sockets of gateways that did not shut down cleanly.
fn remove_stale(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sockets =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == "sock"));
    for path in sockets {
        if UnixStream::connect(&path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
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

        let socket = LocalSocket::open(&folder).unwrap();
        let path = socket.path.clone();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&path), dead.exists()), (0o700, 0o600, false));

        let serving = tokio::spawn(socket.serve(Router::new()));
        tokio::net::UnixStream::connect(&path).await.unwrap();
        serving.abort();
        assert!(serving.await.unwrap_err().is_cancelled());
        assert!(!path.exists());
    }
}
