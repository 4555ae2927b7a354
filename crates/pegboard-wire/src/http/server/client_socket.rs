//! Streams to clients.

use std::io;

use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, Interest, Ready};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

/// A stream to a client.
pub trait ClientSocket: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// Returns `true` if the client is known to have closed the stream. Input that was sent before may be unread.
    fn is_closed_by_client(&self) -> bool;
}

impl ClientSocket for TcpStream {
    fn is_closed_by_client(&self) -> bool {
        is_closed(self.ready(Interest::READABLE))
    }
}

#[cfg(unix)]
impl ClientSocket for UnixStream {
    fn is_closed_by_client(&self) -> bool {
        is_closed(self.ready(Interest::READABLE))
    }
}

/// In memory nothing is known before it is read.
impl ClientSocket for DuplexStream {
    fn is_closed_by_client(&self) -> bool {
        false
    }
}

fn is_closed(ready: impl Future<Output = io::Result<Ready>>) -> bool {
    match ready.now_or_never() {
        Some(Ok(ready)) => ready.is_read_closed(),
        Some(Err(_)) => true,
        None => false,
    }
}
