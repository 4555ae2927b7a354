//! What a server is told it knows before it hears the next letter.

use tokio_util::sync::{CancellationToken, DropGuard};

/// The order of letters: each waits for the notification before it, none for anything else.
#[derive(Debug)]
pub(crate) struct Order {
    /// Cancelled when the last notification has been sent.
    last: CancellationToken,
}

impl Default for Order {
    fn default() -> Self {
        let last = CancellationToken::new();
        last.cancel();
        Self { last }
    }
}

/// A letter's place in the order.
#[derive(Debug)]
pub(crate) struct Turn(CancellationToken);

impl Order {
    /// The place of a letter that nobody waits for.
    pub(crate) fn turn(&self) -> Turn {
        Turn(self.last.clone())
    }

    /// The place of a letter that those after it wait for, until the guard is dropped.
    pub(crate) fn hold(&mut self) -> (Turn, DropGuard) {
        let turn = self.turn();
        self.last = CancellationToken::new();
        (turn, self.last.clone().drop_guard())
    }
}

impl Turn {
    /// Waits until it is the letter's turn. Every notification has a time limit, so the turn comes.
    pub(crate) async fn wait(self) {
        self.0.cancelled().await;
    }
}
