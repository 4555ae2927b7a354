//! Connections over arbitrary byte streams.

use std::io;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_wire::stdio::line_transport;
use pegboard_wire::transport::TransportError;
use tokio::io::{AsyncRead, AsyncWrite};

use super::connect::{Connector, ConnectorError, EstablishedConnection, HandshakeOptions};

/// Connector for a server at the other end of two byte streams, one message per line. `open` creates a pair
/// of streams for each start.
///
/// ```
/// use pegboard_providers::mcp::PipeConnector;
///
/// let pipe = PipeConnector::new(|| async {
///     let (near, _far) = tokio::io::duplex(1024);
///     Ok(tokio::io::split(near))
/// });
/// # let _ = pipe;
/// ```
pub struct PipeConnector<F> {
    open: F,
}

impl<F> PipeConnector<F> {
    /// Creates a connector over the streams that `open` returns.
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

impl<F, T, R, W> Connector for PipeConnector<F>
where
    F: Fn() -> T + Send + Sync + 'static,
    T: Future<Output = io::Result<(R, W)>> + Send + 'static,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    fn connect(
        &self,
        handshake: HandshakeOptions,
    ) -> BoxFuture<'_, Result<EstablishedConnection, ConnectorError>> {
        let streams = (self.open)();
        async move {
            let (reader, writer) = streams.await.map_err(TransportError::failed)?;
            // The pump task ends with the transport.
            let (transport, _pump) = line_transport(reader, writer, handshake.input_limits());
            Ok(handshake.connect_over(transport).await?.into())
        }
        .boxed()
    }
}
