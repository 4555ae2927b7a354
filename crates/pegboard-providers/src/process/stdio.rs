//! The parent's ends of a program's stdin and stdout.

use std::fmt;
use std::io;
#[cfg(unix)]
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
#[cfg(unix)]
use std::task::ready;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
#[cfg(unix)]
use tokio::io::Interest;
#[cfg(unix)]
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::process::{ChildStdin, ChildStdout};
use tokio_util::sync::CancellationToken;

/// Writer to a program's stdin.
///
/// It closes when it is dropped or shut down, or when the shutdown of the program begins; writing is an error
/// then.
#[derive(Debug)]
pub struct Stdin(SharedStdin);

/// Reader of a program's stdout.
#[derive(Debug)]
pub struct Stdout(ChildStdout);

/// Closes a program's stdin independently of its writer.
#[derive(Debug)]
pub(super) struct StdinCloser(SharedStdin);

/// Splits a pipe into a writer and a closer. The token is cancelled when the program closes its end, without
/// having to be written to.
pub(super) fn stdin(pipe: ChildStdin) -> io::Result<(Stdin, StdinCloser, CancellationToken)> {
    let (closing, closed_by_program) = (CancellationToken::new(), CancellationToken::new());
    let pipe = PipeWriter::new(pipe)?;
    // The task ends when the pipe closes, at either end.
    tokio::spawn(pipe.clone().watch(closing.clone(), closed_by_program.clone()));
    let pipe = Arc::new(Mutex::new(StdinPipe { open: Some(pipe), waker: None }));
    let shared = SharedStdin { pipe, closing };
    Ok((Stdin(shared.clone()), StdinCloser(shared), closed_by_program))
}

#[derive(Clone)]
struct SharedStdin {
    pipe: Arc<Mutex<StdinPipe>>,
    closing: CancellationToken,
}

struct StdinPipe {
    open: Option<PipeWriter>,
    /// Task that waits to write, and must be woken when the pipe closes.
    waker: Option<Waker>,
}

impl SharedStdin {
    fn close(&self) {
        let StdinPipe { open, waker } = &mut *self.pipe.lock();
        *open = None;
        self.closing.cancel();
        if let Some(waker) = waker.take() {
            waker.wake();
        }
    }

    fn poll<T>(
        &self,
        context: &mut Context<'_>,
        act: impl FnOnce(&mut PipeWriter, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let StdinPipe { open, waker } = &mut *self.pipe.lock();
        let Some(open) = open else {
            let closed = "the program's stdin is closed";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, closed)));
        };
        let polled = act(open, context);
        *waker = polled.is_pending().then(|| context.waker().clone());
        polled
    }
}

impl fmt::Debug for SharedStdin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.pipe.lock().open.is_some() { "open" } else { "closed" })
    }
}

/// The writing end of a pipe. Clones share it.
#[cfg(unix)]
#[derive(Clone)]
struct PipeWriter(Arc<AsyncFd<OwnedFd>>);

#[cfg(unix)]
impl PipeWriter {
    fn new(pipe: ChildStdin) -> io::Result<Self> {
        let pipe = pipe.into_owned_fd()?;
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let interest = Interest::WRITABLE.add(Interest::ERROR);
        #[expect(deprecated, reason = "its successor is unsafe, and asks only for what an `OwnedFd` is")]
        let pipe = AsyncFd::with_interest(pipe, interest)?;
        Ok(Self(Arc::new(pipe)))
    }

    /// Waits until the other end is closed, or this one is to be closed.
    async fn watch(self, closing: CancellationToken, closed_by_reader: CancellationToken) {
        tokio::select! {
            () = closing.cancelled() => {}
            // A pipe without a reader is in an error state.
            Ok(_) = self.0.ready(Interest::ERROR) => closed_by_reader.cancel(),
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(context))?;
            if let Ok(written) = ready.try_io(|pipe| Ok(rustix::io::write(pipe, bytes)?)) {
                return Poll::Ready(written);
            }
        }
    }

    #[expect(clippy::unused_self, reason = "a pipe has no buffer of its own here")]
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The writing end of a pipe. Clones share it.
#[cfg(not(unix))]
#[derive(Clone)]
struct PipeWriter(Arc<Mutex<ChildStdin>>);

#[cfg(not(unix))]
impl PipeWriter {
    fn new(pipe: ChildStdin) -> io::Result<Self> {
        Ok(Self(Arc::new(Mutex::new(pipe))))
    }

    /// A closed reader is noticed only by writing.
    async fn watch(self, _closing: CancellationToken, _closed_by_reader: CancellationToken) {}

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.lock()).poll_write(context, bytes)
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_flush(context)
    }
}

impl StdinCloser {
    pub(super) fn close(&self) {
        self.0.close();
    }
}

impl Drop for Stdin {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl AsyncWrite for Stdin {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll(context, |pipe, context| pipe.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll(context, PipeWriter::poll_flush)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.close();
        Poll::Ready(Ok(()))
    }
}

impl Stdout {
    pub(super) fn new(pipe: ChildStdout) -> Self {
        Self(pipe)
    }
}

impl AsyncRead for Stdout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}
