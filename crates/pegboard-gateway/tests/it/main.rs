//! What clients of both eras see of a gateway, through the real client of the wire.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod stage;

mod agents;
mod api;
mod bridge;
mod bytes;
mod discovery;
mod hostile;
mod library;
mod lives;
mod principals;
mod profiles;
mod reloads;
mod serving;
mod talk;
mod tasks;
mod toolboxes;
mod waiting;
