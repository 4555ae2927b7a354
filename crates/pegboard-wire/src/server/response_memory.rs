//! The memory of results that clients have not read yet: one limit for all clients, and one for each principal.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::message::{RpcError, code};
use pegboard_json::RawJson;

/// Limits the memory of large messages: of results from the end of their call until they are written to the client, and
/// in an account of their own of request bodies while they are read and handled. Clones share it.
///
/// A result that does not fit is replaced by an error: it cannot wait without memory, and its server cannot be
/// stopped in the middle of it. A single result always fits.
#[derive(Clone, Debug)]
pub struct ResponseMemory(Arc<ResponseAccount>);

/// Memory with a limit; part of that of its parent.
#[derive(Debug)]
struct ResponseAccount {
    max_bytes: usize,
    n_bytes: AtomicUsize,
    parent: Option<ResponseMemory>,
}

/// A result does not fit into the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "The result of {} KiB was discarded: {} MiB of earlier results wait for the client to read them. The tool has run",
    n_bytes >> 10,
    n_waiting_bytes >> 20
)]
pub struct ResponseMemoryFull {
    n_bytes: usize,
    n_waiting_bytes: usize,
}

impl From<ResponseMemoryFull> for RpcError {
    fn from(full: ResponseMemoryFull) -> Self {
        let data = serde_json::json!({"kind": "limit_exceeded", "executed": true});
        Self::new(code::SERVER_ERROR, full.to_string()).with_data(RawJson::from(data))
    }
}

impl Default for ResponseMemory {
    fn default() -> Self {
        Self::new(Self::DEFAULT_BYTES)
    }
}

impl ResponseMemory {
    /// Default limit of a process: 256 MiB.
    pub const DEFAULT_BYTES: usize = 256 << 20;
    /// Default limit of one principal: half of the process's.
    pub const PRINCIPAL_BYTES: usize = Self::DEFAULT_BYTES / 2;
    /// Default limit of one client over stdio: a quarter of the process's.
    pub const CLIENT_BYTES: usize = Self::DEFAULT_BYTES / 4;
    /// Results below this size are not counted.
    pub const MIN_COUNTED_BYTES: usize = 64 << 10;

    /// Creates a memory of `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Self(Arc::new(ResponseAccount { max_bytes, n_bytes: AtomicUsize::new(0), parent: None }))
    }

    /// Returns a part of this memory with a limit of its own.
    #[must_use]
    pub fn part(&self, max_bytes: usize) -> Self {
        let (n_bytes, parent) = (AtomicUsize::new(0), Some(self.clone()));
        Self(Arc::new(ResponseAccount { max_bytes, n_bytes, parent }))
    }

    /// Returns the number of bytes in use.
    pub fn n_bytes(&self) -> usize {
        self.0.n_bytes.load(Ordering::Relaxed)
    }

    /// Counts a result until its last copy is dropped.
    pub fn hold(&self, result: RawJson) -> Result<RawJson, ResponseMemoryFull> {
        let n_bytes = result.as_bytes().len();
        if n_bytes < Self::MIN_COUNTED_BYTES {
            return Ok(result);
        }
        let reservation = self.reserve(n_bytes)?;
        Ok(result.map_bytes(|bytes| reservation.hold(bytes)))
    }

    /// Counts the body of a response until its last copy is dropped.
    pub fn hold_body(&self, body: Bytes) -> Result<Bytes, ResponseMemoryFull> {
        if body.len() < Self::MIN_COUNTED_BYTES { Ok(body) } else { Ok(self.reserve(body.len())?.hold(body)) }
    }

    fn reserve(&self, n_bytes: usize) -> Result<MemoryReservation, ResponseMemoryFull> {
        let mut reservation = self.reservation();
        reservation.grow(n_bytes)?;
        Ok(reservation)
    }

    /// Returns an empty reservation, to count what arrives in pieces.
    pub(crate) fn reservation(&self) -> MemoryReservation {
        let parent = self.0.parent.as_ref().map(|parent| Box::new(parent.reservation()));
        MemoryReservation { memory: self.clone(), n_bytes: 0, parent }
    }
}

/// Bytes that are counted while they live.
struct HeldBytes {
    bytes: Bytes,
    _reservation: MemoryReservation,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A part of the memory in use.
pub(crate) struct MemoryReservation {
    memory: ResponseMemory,
    n_bytes: usize,
    parent: Option<Box<MemoryReservation>>,
}

impl MemoryReservation {
    /// Reserves more bytes. What is alone in the memory always fits.
    pub(crate) fn grow(&mut self, n_bytes: usize) -> Result<(), ResponseMemoryFull> {
        if let Some(parent) = &mut self.parent {
            parent.grow(n_bytes)?;
        }
        let ResponseAccount { max_bytes, n_bytes: used, .. } = &*self.memory.0;
        let fits = |n_before: usize| {
            let n_after = n_before.saturating_add(n_bytes);
            (n_before == self.n_bytes || n_after <= *max_bytes).then_some(n_after)
        };
        match used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => {
                self.n_bytes += n_bytes;
                Ok(())
            }
            Err(n_waiting_bytes) => {
                if let Some(parent) = &mut self.parent {
                    parent.shrink(n_bytes);
                }
                Err(ResponseMemoryFull { n_bytes, n_waiting_bytes })
            }
        }
    }

    fn shrink(&mut self, n_bytes: usize) {
        self.n_bytes -= n_bytes;
        self.memory.0.n_bytes.fetch_sub(n_bytes, Ordering::Relaxed);
        if let Some(parent) = &mut self.parent {
            parent.shrink(n_bytes);
        }
    }

    /// Counts these bytes until their last copy is dropped.
    pub(crate) fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(HeldBytes { bytes, _reservation: self })
    }
}

/// Counts a request while it arrives: one that is waited for as a whole, any other from 64 KiB on.
pub(crate) struct ArrivingRequest {
    reservation: MemoryReservation,
    n_uncounted: usize,
    is_waited_for: bool,
}

impl ArrivingRequest {
    /// Memory of a request that is waited for, besides its content: the head, and the buffers of its connection.
    pub(crate) const WAITING_BYTES: usize = 64 << 10;

    /// Creates the count of a request of which nothing has arrived.
    pub(crate) fn new(memory: &ResponseMemory) -> Self {
        Self { reservation: memory.reservation(), n_uncounted: 0, is_waited_for: false }
    }

    /// Adds a part that has arrived.
    pub(crate) fn push(&mut self, n_bytes: usize) -> Result<(), ResponseMemoryFull> {
        self.n_uncounted += n_bytes;
        if self.n_uncounted < ResponseMemory::MIN_COUNTED_BYTES { Ok(()) } else { self.count() }
    }

    /// Counts what has arrived: more is waited for.
    pub(crate) fn wait(&mut self) -> Result<(), ResponseMemoryFull> {
        if !self.is_waited_for {
            self.is_waited_for = true;
            self.n_uncounted += Self::WAITING_BYTES;
        }
        if self.n_uncounted == 0 { Ok(()) } else { self.count() }
    }

    fn count(&mut self) -> Result<(), ResponseMemoryFull> {
        self.reservation.grow(std::mem::take(&mut self.n_uncounted))
    }

    /// Returns the whole request. A large one counts until its last copy is dropped.
    pub(crate) fn complete(mut self, request: Bytes) -> Bytes {
        if self.is_waited_for {
            self.reservation.shrink(Self::WAITING_BYTES);
        }
        if request.len() < ResponseMemory::MIN_COUNTED_BYTES {
            request
        } else {
            self.reservation.hold(request)
        }
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.memory.0.n_bytes.fetch_sub(self.n_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    fn text(n_bytes: usize) -> RawJson {
        RawJson::of(&"x".repeat(n_bytes - 2))
    }

    #[test]
    fn a_result_counts_until_its_last_copy_is_dropped() {
        let memory = ResponseMemory::new(300 * KIB);
        let held = memory.hold(text(200 * KIB)).unwrap();
        let copy = held.clone().into_bytes().slice(5..10);
        assert_eq!((held.as_bytes().len(), memory.n_bytes()), (200 * KIB, 200 * KIB));
        drop(held);
        let refused = memory.hold(text(101 * KIB)).unwrap_err();
        let message = "The result of 101 KiB was discarded: 0 MiB of earlier results wait for the client to read them. The tool has run";
        assert_eq!(refused.to_string(), message);
        // Small results are not counted, so that they are never refused.
        assert!(memory.hold(text(10 * KIB)).is_ok());
        drop(copy);
        assert_eq!(memory.n_bytes(), 0);
        assert!(memory.hold(text(400 * KIB)).is_ok(), "a single result always fits");
        assert_eq!(memory.n_bytes(), 0);
    }

    #[test]
    fn a_principal_has_a_limit_within_that_of_the_process() {
        let process = ResponseMemory::new(500 * KIB);
        let [ann, bob] = [process.part(300 * KIB), process.part(300 * KIB)];
        let held = [ann.hold(text(200 * KIB)).unwrap(), bob.hold(text(200 * KIB)).unwrap()];
        // Neither its own limit nor that of the process is exceeded by a refusal.
        assert!(ann.hold(text(150 * KIB)).is_err() && bob.hold(text(101 * KIB)).is_err());
        assert_eq!((ann.n_bytes(), bob.n_bytes(), process.n_bytes()), (200 * KIB, 200 * KIB, 400 * KIB));
        drop(held);
        assert_eq!((ann.n_bytes(), bob.n_bytes(), process.n_bytes()), (0, 0, 0));
    }
}
