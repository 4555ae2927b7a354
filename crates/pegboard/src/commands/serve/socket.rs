//! The socket through which commands of the same user ask a running gateway.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use axum::Router;
use tokio::net::UnixListener;

/// Who may look into the folder and use the socket: this user alone.
const FOLDER_MODE: u32 = 0o700;
const SOCKET_MODE: u32 = 0o600;

/// A socket that is there for as long as this is.
pub(super) struct LocalSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl LocalSocket {
    /// Opens the socket of this process in a folder, which is made if it is not there.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        make_private(folder)?;
        take_away_dead(folder);
        let path = folder.join(format!("{}.sock", std::process::id()));
        // A process that had this number before is gone.
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(SOCKET_MODE))?;
        Ok(Self { listener, path })
    }

    /// Answers whoever comes, for as long as it is polled.
    pub(super) async fn serve(self, application: Router) -> io::Result<()> {
        let Self { listener, path } = self;
        let _gone = Gone(path);
        axum::serve(listener, application).await
    }
}

/// Takes a socket away when nobody listens to it any more.
struct Gone(PathBuf);

impl Drop for Gone {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Makes a folder that nobody else can look into. One that somebody else owns is refused.
fn make_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() || metadata.uid() != rustix::process::getuid().as_raw() {
        let problem = format!("{} belongs to somebody else", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(FOLDER_MODE))
}

/// Takes away sockets that nobody listens to: their gateways had no time to.
fn take_away_dead(folder: &Path) {
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
    async fn a_socket_is_for_its_user_alone_and_goes_with_its_gateway() {
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
