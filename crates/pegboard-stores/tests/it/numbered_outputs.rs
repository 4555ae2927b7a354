//! Outputs that a number identifies, written by tests and by their child process.

use std::time::{Duration, SystemTime};

use pegboard_core::owner::Owner;
use pegboard_core::store::{OutputHandle, StoredOutput};

/// Number of outputs that a child writes unless it is killed.
pub(crate) const N_WRITES: usize = 1_000;

/// Returns the time this many seconds into the test.
pub(crate) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

pub(crate) fn output(body: Vec<u8>) -> StoredOutput {
    StoredOutput {
        body: body.into(),
        content_type: "text/plain".to_owned(),
        tool: "read".to_owned(),
        session: "s".to_owned(),
        owner: Owner::local(),
        created: at(0),
        expires: at(10),
    }
}

pub(crate) fn output_handle(number: usize) -> OutputHandle {
    OutputHandle(format!("session-s/{number}"))
}

/// A body in which every byte identifies the output it belongs to.
pub(crate) fn patterned(number: usize, n_bytes: usize) -> Vec<u8> {
    (0..n_bytes).map(|place| u8::try_from((number * 31 + place / 512) % 251).unwrap()).collect()
}

pub(crate) fn child_body(number: usize) -> Vec<u8> {
    patterned(number, 2_000 + number * 37 % 30_000)
}
