//! Passes messages between a client and its gateway until one of them leaves.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io::{self, Cursor};

use pegboard::wire::Id;
use pegboard::wire::stdio::{InputStream, OutputStream};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

use super::super::shutdown::ShutdownSignals;
use super::connect::GatewayConnection;
use super::exchange::{ExchangeLog, Forwarding};
use super::lines::LineReader;

/// Size of a line of the gateway above which it is not held back until it is complete.
const MAX_HELD_BYTES: usize = 1024 * 1024;

/// Standard input and output.
pub(super) struct ClientStreams {
    pub(super) input: LineReader<InputStream>,
    pub(super) output: OutputStream,
}

/// End of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RelayEnd {
    ClientLeft,
    GatewayLeft,
}

impl ClientStreams {
    /// Passes messages through until one side leaves.
    pub(super) async fn relay(
        &mut self,
        log: &RefCell<ExchangeLog>,
        connection: GatewayConnection,
        signals: &mut ShutdownSignals,
    ) -> io::Result<RelayEnd> {
        let (reader, mut to_gateway) = connection.stream.into_split();
        let replay = log.borrow().replay();
        let Self { input, output } = self;
        let has_left = Cell::new(false);
        let rejected = Notify::new();
        let sending = async {
            let sending = async {
                for line in &replay.lines {
                    to_gateway.write_all(line).await?;
                }
                send((log, &rejected), input, &mut to_gateway).await
            };
            let sent = tokio::select! {
                sent = sending => sent,
                // The requests in flight are answered.
                () = signals.next() => Ok(()),
            };
            // An error is noticed at the end of the gateway's messages.
            if sent.is_err() {
                std::future::pending::<()>().await;
            }
            has_left.set(true);
            let _ = to_gateway.shutdown().await;
            // A second signal ends it.
            signals.next().await;
        };
        let reader = Cursor::new(connection.first).chain(reader);
        tokio::select! {
            () = sending => return Ok(RelayEnd::ClientLeft),
            received = receive((log, &rejected), reader, output, replay.hidden) => received?,
        };
        Ok(if has_left.get() { RelayEnd::ClientLeft } else { RelayEnd::GatewayLeft })
    }

    /// Sends messages to the client.
    pub(super) async fn tell(&mut self, messages: &[Value]) -> io::Result<()> {
        for message in messages {
            self.output.write_all(format!("{message}\n").as_bytes()).await?;
        }
        self.output.flush().await
    }
}

/// Passes on the client's messages until it closes standard input. An error is that of the gateway.
async fn send(
    (log, rejected): (&RefCell<ExchangeLog>, &Notify),
    input: &mut LineReader<InputStream>,
    to_gateway: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    loop {
        // A client that cannot be read has left.
        let Ok(Some(chunk)) = input.next().await else { return Ok(()) };
        let (continuation, lines) = chunk.split();
        if log.borrow().may_withhold(&chunk.bytes) {
            to_gateway.write_all(&continuation).await?;
            for line in lines {
                let forwarding = log.borrow_mut().sent(&line);
                match forwarding {
                    Forwarding::Send => to_gateway.write_all(&line).await?,
                    Forwarding::Drop => {}
                    Forwarding::Reject => rejected.notify_one(),
                }
            }
        } else {
            lines.for_each(|line| {
                log.borrow_mut().sent(&line);
            });
            to_gateway.write_all(&chunk.bytes).await?;
        }
    }
}

/// Passes on the gateway's messages until it closes the connection, but for responses with hidden ids, and answers
/// requests that are too many. An error is that of the client.
async fn receive(
    (log, rejected): (&RefCell<ExchangeLog>, &Notify),
    reader: impl AsyncRead + Unpin,
    output: &mut OutputStream,
    mut hidden: HashSet<Id>,
) -> io::Result<()> {
    let received = |line: &[u8]| log.borrow_mut().received(line);
    let mut reader = LineReader::new(reader, MAX_HELD_BYTES);
    loop {
        let is_mid_line = reader.is_mid_line();
        let chunk = tokio::select! {
            chunk = reader.next() => chunk,
            () = rejected.notified(), if !is_mid_line => {
                let rejections = log.borrow_mut().rejections();
                for rejection in rejections {
                    output.write_all(format!("{rejection}\n").as_bytes()).await?;
                }
                output.flush().await?;
                continue;
            }
        };
        let Ok(Some(chunk)) = chunk else { break };
        if !chunk.bytes.ends_with(b"\n") && !reader.is_mid_line() {
            // A message without its end is none.
            break;
        }
        let (continuation, lines) = chunk.split();
        if hidden.is_empty() {
            lines.for_each(|line| drop(received(&line)));
            output.write_all(&chunk.bytes).await?;
        } else {
            output.write_all(&continuation).await?;
            for line in lines {
                if !received(&line).is_some_and(|id| hidden.remove(&id)) {
                    output.write_all(&line).await?;
                }
            }
        }
        output.flush().await?;
    }
    if reader.is_mid_line() {
        output.write_all(b"\n").await?;
    }
    Ok(())
}
