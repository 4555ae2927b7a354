//! A way to servers over any two byte streams.

use std::io;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_wire::link::{InputLimits, TransportError};
use pegboard_wire::stdio::lines;
use tokio::io::{AsyncRead, AsyncWrite};

use super::connect::{Connect, ConnectError, Connected, Introduction};

/// A server at the other end of two byte streams, one message a line. `open` makes a new pair for each start.
///
/// ```
/// use pegboard_providers::mcp::Pipe;
///
/// let pipe = Pipe::new(|| async {
///     let (near, _far) = tokio::io::duplex(1024);
///     Ok(tokio::io::split(near))
/// });
/// # let _ = pipe;
/// ```
pub struct Pipe<F> {
    open: F,
}

impl<F> Pipe<F> {
    /// A way over the streams that `open` makes.
    pub fn new<T, R, W>(open: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = io::Result<(R, W)>> + Send + 'static,
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        Self { open }
    }
}

impl<F, T, R, W> Connect for Pipe<F>
where
    F: Fn() -> T + Send + Sync + 'static,
    T: Future<Output = io::Result<(R, W)>> + Send + 'static,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    fn connect(&self, introduction: Introduction) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        let opening = (self.open)();
        async move {
            let (reader, writer) = opening.await.map_err(TransportError::failed)?;
            // The task that moves the lines ends with the link.
            let (link, _pump) = lines(reader, writer, InputLimits::client());
            Ok(introduction.over(link).await?.into())
        }
        .boxed()
    }
}
