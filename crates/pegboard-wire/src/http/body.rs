//! An HTTP body under construction.

use bytes::{Bytes, BytesMut};

/// Maximum number of bytes preallocated on the strength of a `Content-Length` header. Memory that is not
/// written is only reserved.
const MAX_PREALLOCATED_BYTES: usize = 4 * 1024 * 1024;

/// Space behind the body for members that are appended to it.
pub(crate) const SPACE_BEHIND: usize = 512;

/// A body read chunk by chunk, up to a size limit: not copied if it arrives in one chunk.
pub(crate) struct BodyBuffer {
    max_bytes: usize,
    /// Promised length of the body; 0 if unknown.
    promised: u64,
    first: Bytes,
    rest: BytesMut,
}

/// The error for a chunk that exceeds the size limit of its body.
#[derive(Debug)]
pub(crate) struct BodyTooLarge;

impl BodyBuffer {
    pub(crate) fn new(max_bytes: usize, promised: u64) -> Self {
        Self { max_bytes, promised, first: Bytes::new(), rest: BytesMut::new() }
    }

    /// Appends a chunk.
    pub(crate) fn push(&mut self, chunk: Bytes) -> Result<(), BodyTooLarge> {
        let n_bytes = self.first.len() + self.rest.len();
        if n_bytes + chunk.len() > self.max_bytes {
            return Err(BodyTooLarge);
        }
        if n_bytes == 0 {
            self.first = chunk;
            return Ok(());
        }
        if self.rest.is_empty() {
            let promised = usize::try_from(self.promised).unwrap_or(usize::MAX).min(MAX_PREALLOCATED_BYTES);
            self.rest.reserve(promised.max(n_bytes + chunk.len()) + SPACE_BEHIND);
            self.rest.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.rest.extend_from_slice(&chunk);
        Ok(())
    }

    /// Returns the whole body.
    pub(crate) fn finish(self) -> Bytes {
        if self.rest.is_empty() { self.first } else { self.rest.freeze() }
    }
}
