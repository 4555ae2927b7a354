//! Input that can be ended from this side.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Input that ends when the peer closes it, or when a token is cancelled.
#[derive(Debug)]
pub struct EndableInput<R> {
    reader: R,
    end: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<R> EndableInput<R> {
    /// Creates an input that ends, at the latest, when `end` is cancelled.
    pub fn new(reader: R, end: CancellationToken) -> Self {
        Self { reader, end: Box::pin(end.cancelled_owned()) }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for EndableInput<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(read) = Pin::new(&mut self.reader).poll_read(context, buffer) {
            return Poll::Ready(read);
        }
        // Nothing is added to the buffer, which is the end of the input.
        self.end.as_mut().poll(context).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn input_ends_with_its_token_after_what_has_arrived() {
        let (mut peer, local) = tokio::io::duplex(64);
        let end = CancellationToken::new();
        let mut input = EndableInput::new(local, end.clone());
        peer.write_all(b"hello").await.unwrap();
        end.cancel();
        let mut text = String::new();
        input.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello");
    }
}
