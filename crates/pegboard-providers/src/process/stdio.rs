//! The ends of a program's pipes that are kept here.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::process::{ChildStdin, ChildStdout};

/// What a program reads.
///
/// It closes when it is dropped or shut down, or when the ending of the program begins; writing is an error then.
#[derive(Debug)]
pub struct Stdin(Shared);

/// What a program writes.
#[derive(Debug)]
pub struct Stdout(ChildStdout);

/// Closes a program's standard input, whoever writes to it.
#[derive(Debug)]
pub(super) struct StdinCloser(Shared);

/// The writer and the closer of one pipe.
pub(super) fn stdin(pipe: ChildStdin) -> (Stdin, StdinCloser) {
    let shared = Shared(Arc::new(Mutex::new(Pipe { open: Some(pipe), waiting: None })));
    (Stdin(shared.clone()), StdinCloser(shared))
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Pipe>>);

struct Pipe {
    open: Option<ChildStdin>,
    /// Who waits for room, and would wait for ever if the pipe went away.
    waiting: Option<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Pipe> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        let Pipe { open, waiting } = &mut *self.lock();
        *open = None;
        if let Some(waiting) = waiting.take() {
            waiting.wake();
        }
    }

    fn poll<T>(
        &self,
        context: &mut Context<'_>,
        act: impl FnOnce(Pin<&mut ChildStdin>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Pipe { open, waiting } = &mut *self.lock();
        let Some(open) = open else {
            let closed = "the program's standard input is closed";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, closed)));
        };
        let polled = act(Pin::new(open), context);
        *waiting = polled.is_pending().then(|| context.waker().clone());
        polled
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.lock().open.is_some() { "open" } else { "closed" })
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
