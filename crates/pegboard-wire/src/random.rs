//! Random numbers of the operating system.

/// Returns unpredictable bytes.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system provides random numbers");
    bytes
}
