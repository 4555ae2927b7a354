//! Random numbers of the operating system.

use uuid::{Builder, Uuid};

/// Returns unpredictable bytes.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system provides random numbers");
    bytes
}

/// Returns a random UUID, of version 4.
pub fn uuid() -> Uuid {
    Builder::from_random_bytes(bytes()).into_uuid()
}
