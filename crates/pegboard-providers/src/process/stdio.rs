//! The parent's ends of a program's stdin and stdout.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::process::{ChildStdin, ChildStdout};

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

/// Splits a pipe into a writer and a closer.
pub(super) fn stdin(pipe: ChildStdin) -> (Stdin, StdinCloser) {
    let shared = SharedStdin(Arc::new(Mutex::new(StdinPipe { open: Some(pipe), waker: None })));
    (Stdin(shared.clone()), StdinCloser(shared))
}

#[derive(Clone)]
struct SharedStdin(Arc<Mutex<StdinPipe>>);

struct StdinPipe {
    open: Option<ChildStdin>,
    /// Task that waits to write, and must be woken when the pipe closes.
    waker: Option<Waker>,
}

impl SharedStdin {
    fn close(&self) {
        let StdinPipe { open, waker } = &mut *self.0.lock();
        *open = None;
        if let Some(waker) = waker.take() {
            waker.wake();
        }
    }

    fn poll<T>(
        &self,
        context: &mut Context<'_>,
        act: impl FnOnce(Pin<&mut ChildStdin>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let StdinPipe { open, waker } = &mut *self.0.lock();
        let Some(open) = open else {
            let closed = "the program's stdin is closed";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, closed)));
        };
        let polled = act(Pin::new(open), context);
        *waker = polled.is_pending().then(|| context.waker().clone());
        polled
    }
}

impl fmt::Debug for SharedStdin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.lock().open.is_some() { "open" } else { "closed" })
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
        self.0.poll(context, ChildStdin::poll_flush)
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
