//! Standard input and output of the process as async streams.
//!
//! Pipes and sockets are driven by readiness. The file descriptions are shared with the parent process and with
//! everything else that it has started, so `O_NONBLOCK` is never set on them: a pipe is opened again, which
//! yields a description of our own, and a socket is told not to block with each operation. Files, terminals and
//! platforms without these means go through tokio's blocking threads, and so does everything without the feature
//! `readiness`.

use tokio::io::{AsyncRead, AsyncWrite};

/// A readable stream of any kind.
pub type InputStream = Box<dyn AsyncRead + Send + Unpin>;
/// A writable stream of any kind.
pub type OutputStream = Box<dyn AsyncWrite + Send + Unpin>;

/// Returns the standard input of the process.
pub fn standard_input() -> InputStream {
    #[cfg(all(unix, feature = "readiness"))]
    if let Some(input) = ready_input(std::os::fd::AsFd::as_fd(&std::io::stdin())) {
        return input;
    }
    Box::new(tokio::io::stdin())
}

/// Returns the standard output of the process.
pub fn standard_output() -> OutputStream {
    #[cfg(all(unix, feature = "readiness"))]
    if let Some(output) = ready_output(std::os::fd::AsFd::as_fd(&std::io::stdout())) {
        return output;
    }
    Box::new(tokio::io::stdout())
}

#[cfg(all(unix, feature = "readiness"))]
use unix::{ready_input, ready_output};

#[cfg(all(unix, feature = "readiness"))]
mod unix {
    use std::fs;
    use std::io;
    use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
    use std::path::PathBuf;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};

    use rustix::net::{RecvFlags, SendFlags, SocketType, recv, send, sockopt};
    use tokio::io::unix::AsyncFd;
    use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
    use tokio::net::unix::pipe;

    use super::{InputStream, OutputStream};

    /// Returns a reader driven by readiness; `None` if the file offers none.
    pub(super) fn ready_input(file: BorrowedFd<'_>) -> Option<InputStream> {
        if let Some(path) = pipe_path(file) {
            return Some(Box::new(pipe::OpenOptions::new().open_receiver(path).ok()?));
        }
        Some(Box::new(SharedSocket::new(file, Interest::READABLE)?))
    }

    /// Returns a writer driven by readiness; `None` if the file offers none.
    pub(super) fn ready_output(file: BorrowedFd<'_>) -> Option<OutputStream> {
        if let Some(path) = pipe_path(file) {
            return Some(Box::new(pipe::OpenOptions::new().open_sender(path).ok()?));
        }
        Some(Box::new(SharedSocket::new(file, Interest::WRITABLE)?))
    }

    /// Returns the path through which an anonymous pipe can be opened again, where the system has one.
    ///
    /// A named pipe must not be: if its last writer has gone, the new description never becomes ready.
    fn pipe_path(file: BorrowedFd<'_>) -> Option<PathBuf> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let target = fs::read_link(&path).ok()?;
        target.to_str()?.starts_with("pipe:[").then_some(path)
    }

    /// A stream socket with a file description that belongs to others too.
    struct SharedSocket(AsyncFd<OwnedFd>);

    impl SharedSocket {
        /// Returns `None` if the file is not a stream socket.
        fn new(file: BorrowedFd<'_>, interest: Interest) -> Option<Self> {
            if sockopt::socket_type(file).ok()? != SocketType::STREAM {
                return None;
            }
            let file = file.try_clone_to_owned().ok()?;
            #[expect(deprecated, reason = "its successor is unsafe, and asks only for what an `OwnedFd` is")]
            AsyncFd::with_interest(file, interest).ok().map(Self)
        }
    }

    impl AsyncRead for SharedSocket {
        fn poll_read(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            loop {
                let mut guard = ready!(self.0.poll_read_ready(context))?;
                let unfilled = buffer.initialize_unfilled();
                let receive =
                    |socket: &AsyncFd<OwnedFd>| Ok(recv(socket.get_ref(), unfilled, RecvFlags::DONTWAIT)?.0);
                if let Ok(received) = guard.try_io(receive) {
                    buffer.advance(received?);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }

    impl AsyncWrite for SharedSocket {
        fn poll_write(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            loop {
                let mut guard = ready!(self.0.poll_write_ready(context))?;
                let transmit =
                    |socket: &AsyncFd<OwnedFd>| Ok(send(socket.get_ref(), bytes, SendFlags::DONTWAIT)?);
                if let Ok(sent) = guard.try_io(transmit) {
                    return Poll::Ready(sent);
                }
            }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        /// Leaves the socket open: others may use it.
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
}

#[cfg(test)]
#[cfg(all(target_os = "linux", feature = "readiness"))]
mod tests {
    use std::fs::File;
    use std::io::{self, Read, Write};
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    use rustix::fs::{OFlags, fcntl_getfl};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Two ends of a byte stream: the reading and the writing one.
    fn pipe() -> (OwnedFd, OwnedFd) {
        let (reader, writer) = io::pipe().unwrap();
        (reader.into(), writer.into())
    }

    fn socket_pair() -> (OwnedFd, OwnedFd) {
        let (reader, writer) = UnixStream::pair().unwrap();
        (reader.into(), writer.into())
    }

    fn may_block(file: &OwnedFd) -> bool {
        !fcntl_getfl(file).unwrap().contains(OFlags::NONBLOCK)
    }

    #[tokio::test]
    async fn pipes_and_sockets_are_read_until_their_end() {
        for (reader, writer) in [pipe(), socket_pair()] {
            let mut input = ready_input(reader.as_fd()).unwrap();
            let mut text = [0; 5];
            let reading = input.read_exact(&mut text);
            let mut peer = File::from(writer);
            let writing = async { peer.write_all(b"hello").unwrap() };
            // Reading is polled first, and waits.
            let (read, ()) = tokio::join!(biased; reading, writing);
            read.unwrap();
            assert_eq!(&text, b"hello");

            peer.write_all(b" and the rest").unwrap();
            drop(peer);
            let mut rest = String::new();
            input.read_to_string(&mut rest).await.unwrap();
            assert_eq!(rest, " and the rest");
            assert!(may_block(&reader), "the parent's description is unchanged");
        }
    }

    #[tokio::test]
    async fn a_slow_reader_receives_everything_in_order() {
        let body: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
        for (reader, writer) in [pipe(), socket_pair()] {
            let mut output = ready_output(writer.as_fd()).unwrap();
            let mut written = Box::pin(output.write_all(&body));
            assert!(futures_util::poll!(&mut written).is_pending(), "no reader");

            let n_bytes = body.len();
            let reading = tokio::task::spawn_blocking(move || {
                let mut received = vec![0; n_bytes];
                File::from(reader).read_exact(&mut received).unwrap();
                received
            });
            written.await.unwrap();
            assert!(reading.await.unwrap() == body, "the bytes differ");
            assert!(may_block(&writer), "the parent's description is unchanged");
        }
    }

    #[tokio::test]
    async fn a_reader_that_is_gone_is_an_error() {
        for (reader, writer) in [pipe(), socket_pair()] {
            let mut output = ready_output(writer.as_fd()).unwrap();
            drop(reader);
            let error = output.write_all(b"hello").await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        }
    }

    #[tokio::test]
    async fn an_input_that_ended_before_it_was_opened_has_ended() {
        for (reader, writer) in [pipe(), socket_pair()] {
            drop(writer);
            let mut text = String::new();
            ready_input(reader.as_fd()).unwrap().read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "");
        }
    }

    #[tokio::test]
    async fn files_devices_and_datagrams_are_left_to_blocking_threads() {
        let (datagrams, _) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let device = File::options().read(true).write(true).open("/dev/null").unwrap();
        for file in [datagrams.into(), file.into(), device.into()] {
            let file: OwnedFd = file;
            assert!(ready_input(file.as_fd()).is_none());
            assert!(ready_output(file.as_fd()).is_none());
        }
    }
}
