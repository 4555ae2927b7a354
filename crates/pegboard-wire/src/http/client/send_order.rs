//! Ordering of outgoing messages.

use tokio_util::sync::{CancellationToken, DropGuard};

/// Orders outgoing messages: each waits for the preceding notification, and for nothing else.
#[derive(Debug)]
pub(crate) struct SendOrder {
    /// Cancelled when the last notification has been sent.
    last: CancellationToken,
}

impl Default for SendOrder {
    fn default() -> Self {
        let last = CancellationToken::new();
        last.cancel();
        Self { last }
    }
}

/// Position of a message in the send order.
#[derive(Debug)]
pub(crate) struct SendTurn(CancellationToken);

/// Position of a queued message, and its effect on later ones.
#[derive(Debug)]
pub(crate) struct MessageTurn {
    pub(crate) turn: SendTurn,
    /// Later messages wait until it is dropped; `None` if they do not wait.
    pub(crate) barrier: Option<DropGuard>,
}

impl SendOrder {
    /// Returns the turn of a message that later messages do not wait for.
    pub(crate) fn next_turn(&self) -> SendTurn {
        SendTurn(self.last.clone())
    }

    /// Returns the turn of a message that later messages wait for, until the guard is dropped.
    pub(crate) fn barrier(&mut self) -> (SendTurn, DropGuard) {
        let turn = self.next_turn();
        self.last = CancellationToken::new();
        (turn, self.last.clone().drop_guard())
    }
}

impl SendTurn {
    /// Waits for the message's turn. Every notification has a time limit, so the wait is bounded.
    pub(crate) async fn wait(self) {
        if !self.0.is_cancelled() {
            self.0.cancelled().await;
        }
    }
}
