//! Capacity limits of the stores.

use std::time::Duration;

use pegboard_core::store::{StoreError, StoreUsage, StoredOutput};

const MIB: u64 = 1024 * 1024;

/// Limits of a cache. Beyond them the oldest results are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Maximum number of results.
    pub max_entries: u64,
    /// Maximum total size in bytes.
    pub max_bytes: u64,
    /// Maximum size of one result in bytes; a larger one is not cached.
    pub max_entry_bytes: u64,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { max_entries: 5_000, max_bytes: 64 * MIB, max_entry_bytes: 8 * MIB }
    }
}

impl CacheLimits {
    /// Returns `true` if a cache with this usage must evict entries.
    pub(crate) fn are_exceeded_by(self, usage: StoreUsage) -> bool {
        usage.n_entries > self.max_entries || usage.n_bytes > self.max_bytes
    }
}

/// Limits of the output store. Beyond them new outputs are refused: a handle that was given out stays
/// readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimits {
    /// Maximum number of outputs.
    pub max_entries: u64,
    /// Maximum total size in bytes.
    pub max_bytes: u64,
    /// Maximum total size per session in bytes.
    pub max_session_bytes: u64,
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self { max_entries: 10_000, max_bytes: 256 * MIB, max_session_bytes: 64 * MIB }
    }
}

impl OutputLimits {
    /// Checks that another output of `n_bytes` fits, given the total usage and that of its session.
    pub(crate) fn admit(self, all: StoreUsage, session: StoreUsage, n_bytes: u64) -> Result<(), StoreError> {
        let refuse = |reason: String| Err(StoreError::Full { reason });
        if session.n_bytes.saturating_add(n_bytes) > self.max_session_bytes {
            return refuse(format!(
                "the session uses {} of {} bytes for outputs, and this one needs {n_bytes}",
                session.n_bytes, self.max_session_bytes
            ));
        }
        if all.n_bytes.saturating_add(n_bytes) > self.max_bytes {
            return refuse(format!(
                "outputs use {} of {} bytes, and this one needs {n_bytes}",
                all.n_bytes, self.max_bytes
            ));
        }
        if all.n_entries >= self.max_entries {
            return refuse(format!("the limit of {} outputs is reached", all.n_entries));
        }
        Ok(())
    }
}

/// Limits of the session store. Beyond them the least recently used session is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Maximum number of sessions.
    pub max_sessions: u64,
    /// Maximum number of handles per session; more are refused.
    pub max_handles: u64,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { max_sessions: 10_000, max_handles: 32 }
    }
}

impl SessionLimits {
    /// Checks that a session with this many handles may have another.
    pub(crate) fn admit_handle(self, n_handles: u64) -> Result<(), StoreError> {
        if n_handles < self.max_handles {
            return Ok(());
        }
        Err(StoreError::Full { reason: format!("the limit of {n_handles} handles per session is reached") })
    }
}

/// Limits of one kind of entries of the call log. Beyond them the oldest entries are evicted, many at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Maximum number of entries.
    pub max_entries: u64,
    /// Maximum total size in bytes.
    pub max_bytes: u64,
    /// Maximum size of one entry in bytes; a larger one is refused.
    pub max_entry_bytes: u64,
    /// Time after which entries expire; `None` if they do not.
    pub retention: Option<Duration>,
}

impl LogLimits {
    /// Default limits of finished calls: 20,000 calls, 128 MiB, seven days.
    pub const CALLS: Self = Self {
        max_entries: 20_000,
        max_bytes: 128 * MIB,
        max_entry_bytes: MIB,
        retention: Some(Duration::from_hours(7 * 24)),
    };
    /// Default limits of trace records: 10,000 records, 64 MiB.
    pub const TRACES: Self =
        Self { max_entries: 10_000, max_bytes: 64 * MIB, max_entry_bytes: MIB, retention: None };

    /// Checks that an entry of `n_bytes` is small enough.
    pub(crate) fn admit(self, kind: &str, n_bytes: u64) -> Result<(), StoreError> {
        if n_bytes <= self.max_entry_bytes {
            return Ok(());
        }
        let limit = self.max_entry_bytes;
        Err(StoreError::Full {
            reason: format!("a {kind} record of {n_bytes} bytes exceeds the limit of {limit}"),
        })
    }

    /// Returns `true` if a log with this usage must evict entries.
    pub(crate) fn are_exceeded_by(self, usage: StoreUsage) -> bool {
        usage.n_entries > self.max_entries || usage.n_bytes > self.max_bytes
    }
}

/// Limit of slots leased at once, over all queues. More are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLimits {
    /// Maximum number of leases.
    pub max_leases: u64,
}

impl Default for SlotLimits {
    fn default() -> Self {
        Self { max_leases: 100_000 }
    }
}

impl SlotLimits {
    /// Checks that another slot may be leased, given the number of leases.
    pub(crate) fn admit(self, n_leases: u64) -> Result<(), StoreError> {
        if n_leases < self.max_leases {
            return Ok(());
        }
        Err(StoreError::Full { reason: format!("the limit of {n_leases} leased slots is reached") })
    }
}

/// Limits of the catalogue store. Beyond them the oldest listings are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogueLimits {
    /// Maximum number of servers.
    pub max_entries: u64,
    /// Maximum total size in bytes.
    pub max_bytes: u64,
}

impl Default for CatalogueLimits {
    fn default() -> Self {
        Self { max_entries: 1_000, max_bytes: 64 * MIB }
    }
}

impl CatalogueLimits {
    /// Returns `true` if a store with this usage must evict entries.
    pub(crate) fn are_exceeded_by(self, usage: StoreUsage) -> bool {
        usage.n_entries > self.max_entries || usage.n_bytes > self.max_bytes
    }
}

/// Limits of credentials. Beyond them new ones are refused: an existing login stays usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CredentialLimits {
    /// Maximum number of credentials per owner.
    pub max_per_owner: u64,
    /// Maximum size of one credential in bytes.
    pub max_entry_bytes: u64,
}

impl Default for CredentialLimits {
    fn default() -> Self {
        Self { max_per_owner: 1_000, max_entry_bytes: 256 * 1024 }
    }
}

impl CredentialLimits {
    /// Checks that a credential of `n_bytes` fits beside those that its owner has.
    pub(crate) fn admit(self, n_entries: u64, n_bytes: u64) -> Result<(), StoreError> {
        let reason = if n_bytes > self.max_entry_bytes {
            format!("a credential of {n_bytes} bytes exceeds the limit of {}", self.max_entry_bytes)
        } else if n_entries >= self.max_per_owner {
            format!("the limit of {} credentials is reached", self.max_per_owner)
        } else {
            return Ok(());
        };
        Err(StoreError::Full { reason })
    }
}

/// Limits of a database, per store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseLimits {
    /// Limits of cached results.
    pub cache: CacheLimits,
    /// Limits of stored outputs.
    pub outputs: OutputLimits,
    /// Limits of sessions and their handles.
    pub sessions: SessionLimits,
    /// Limits of leased slots.
    pub slots: SlotLimits,
    /// Limits of server listings.
    pub catalogue: CatalogueLimits,
    /// Limits of credentials.
    pub credentials: CredentialLimits,
    /// Limits of finished calls.
    pub calls: LogLimits,
    /// Limits of trace records.
    pub traces: LogLimits,
}

impl Default for DatabaseLimits {
    fn default() -> Self {
        Self {
            cache: CacheLimits::default(),
            outputs: OutputLimits::default(),
            sessions: SessionLimits::default(),
            slots: SlotLimits::default(),
            catalogue: CatalogueLimits::default(),
            credentials: CredentialLimits::default(),
            calls: LogLimits::CALLS,
            traces: LogLimits::TRACES,
        }
    }
}

/// Returns the total accounted size of some parts.
pub(crate) fn total_len<const N: usize>(parts: [usize; N]) -> u64 {
    parts.into_iter().map(|part| u64::try_from(part).unwrap_or(u64::MAX)).fold(0, u64::saturating_add)
}

/// Returns the accounted size of an output.
pub(crate) fn output_len(output: &StoredOutput) -> u64 {
    total_len([output.body.len(), output.content_type.len(), output.tool.len(), output.owner.as_str().len()])
}
