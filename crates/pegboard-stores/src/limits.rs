//! How much a store may keep.

use pegboard_core::store::{PastCall, StoreError, StoredOutput, Usage};

const MIB: u64 = 1024 * 1024;

/// How much a cache keeps. Beyond it the oldest answers go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// How many answers.
    pub max_entries: u64,
    /// How many bytes they are together.
    pub max_bytes: u64,
    /// How many bytes one may be; a larger one is not kept.
    pub max_entry_bytes: u64,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { max_entries: 5_000, max_bytes: 64 * MIB, max_entry_bytes: 8 * MIB }
    }
}

impl CacheLimits {
    /// Whether a cache that keeps this much must let go of something.
    pub(crate) fn are_exceeded_by(self, usage: Usage) -> bool {
        usage.n_kept > self.max_entries || usage.n_bytes > self.max_bytes
    }
}

/// How much of outputs is kept. Beyond it new ones are refused: a handle that was given out stays readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimits {
    /// How many outputs.
    pub max_entries: u64,
    /// How many bytes they are together.
    pub max_bytes: u64,
    /// How many bytes those of one session are together.
    pub max_session_bytes: u64,
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self { max_entries: 10_000, max_bytes: 256 * MIB, max_session_bytes: 64 * MIB }
    }
}

impl OutputLimits {
    /// Whether one more output of `n_bytes` fits, beside what is kept in all and in its session.
    pub(crate) fn admit(self, all: Usage, session: Usage, n_bytes: u64) -> Result<(), StoreError> {
        let refuse = |reason: String| Err(StoreError::Full { reason });
        if session.n_bytes.saturating_add(n_bytes) > self.max_session_bytes {
            return refuse(format!(
                "the session keeps {} of at most {} bytes of outputs, and this one is {n_bytes} bytes",
                session.n_bytes, self.max_session_bytes
            ));
        }
        if all.n_bytes.saturating_add(n_bytes) > self.max_bytes {
            return refuse(format!(
                "outputs take {} of at most {} bytes, and this one is {n_bytes} bytes",
                all.n_bytes, self.max_bytes
            ));
        }
        if all.n_kept >= self.max_entries {
            return refuse(format!("{} outputs are kept, and no more may be", all.n_kept));
        }
        Ok(())
    }
}

/// How many sessions are kept. Beyond it the one that was not used for longest goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// How many sessions.
    pub max_sessions: u64,
    /// How many handles may stand for one session; more are refused.
    pub max_handles: u64,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { max_sessions: 10_000, max_handles: 32 }
    }
}

impl SessionLimits {
    /// Whether one more handle may stand for a session that has so many.
    pub(crate) fn admit_handle(self, n_handles: u64) -> Result<(), StoreError> {
        if n_handles < self.max_handles {
            return Ok(());
        }
        Err(StoreError::Full { reason: format!("the session has {n_handles} handles, and no more may be") })
    }
}

/// How much of what was done is kept. Beyond it the oldest records go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceLimits {
    /// How many records.
    pub max_records: u64,
    /// How many bytes they are together.
    pub max_bytes: u64,
    /// How many bytes one may be; a larger one is refused.
    pub max_record_bytes: u64,
}

impl Default for TraceLimits {
    fn default() -> Self {
        Self { max_records: 10_000, max_bytes: 64 * MIB, max_record_bytes: MIB }
    }
}

impl TraceLimits {
    /// Whether a record of `n_bytes` may be kept at all.
    pub(crate) fn admit(self, n_bytes: u64) -> Result<(), StoreError> {
        if n_bytes <= self.max_record_bytes {
            return Ok(());
        }
        let most = self.max_record_bytes;
        Err(StoreError::Full {
            reason: format!("a trace record is at most {most} bytes, and this one {n_bytes}"),
        })
    }

    /// Whether a store that keeps this much must let go of something.
    pub(crate) fn are_exceeded_by(self, usage: Usage) -> bool {
        usage.n_kept > self.max_records || usage.n_bytes > self.max_bytes
    }
}

/// How many slots may be leased at once, over all queues. More are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLimits {
    /// How many leases.
    pub max_leases: u64,
}

impl Default for SlotLimits {
    fn default() -> Self {
        Self { max_leases: 100_000 }
    }
}

impl SlotLimits {
    /// Whether one more slot may be leased beside so many.
    pub(crate) fn admit(self, n_leases: u64) -> Result<(), StoreError> {
        if n_leases < self.max_leases {
            return Ok(());
        }
        Err(StoreError::Full { reason: format!("{n_leases} slots are leased, and no more may be") })
    }
}

/// How much of what servers offered is kept. Beyond it the oldest go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogueLimits {
    /// Of how many servers.
    pub max_entries: u64,
    /// How many bytes it is together.
    pub max_bytes: u64,
}

impl Default for CatalogueLimits {
    fn default() -> Self {
        Self { max_entries: 1_000, max_bytes: 64 * MIB }
    }
}

impl CatalogueLimits {
    /// Whether a store that keeps this much must let go of something.
    pub(crate) fn are_exceeded_by(self, usage: Usage) -> bool {
        usage.n_kept > self.max_entries || usage.n_bytes > self.max_bytes
    }
}

/// How much of past calls is kept. Beyond it the oldest go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimits {
    /// How many calls.
    pub max_calls: u64,
    /// How many bytes they are together.
    pub max_bytes: u64,
    /// How many bytes one may be; a larger one is refused.
    pub max_call_bytes: u64,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self { max_calls: 20_000, max_bytes: 128 * MIB, max_call_bytes: MIB }
    }
}

impl HistoryLimits {
    /// Whether calls may be kept at all.
    pub(crate) fn admit(self, calls: &[PastCall]) -> Result<(), StoreError> {
        let most = self.max_call_bytes;
        match calls.iter().map(past_call_len).find(|n_bytes| *n_bytes > most) {
            None => Ok(()),
            Some(n_bytes) => Err(StoreError::Full {
                reason: format!("a past call is at most {most} bytes, and this one {n_bytes}"),
            }),
        }
    }

    /// Whether a store that keeps this much must let go of something.
    pub(crate) fn are_exceeded_by(self, usage: Usage) -> bool {
        usage.n_kept > self.max_calls || usage.n_bytes > self.max_bytes
    }
}

/// How much a database keeps, for each kind of thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseLimits {
    /// Answers that may be given again.
    pub cache: CacheLimits,
    /// Outputs that were too large to hand over.
    pub outputs: OutputLimits,
    /// Sessions and their handles.
    pub sessions: SessionLimits,
    /// What was done.
    pub traces: TraceLimits,
    /// Leased slots.
    pub slots: SlotLimits,
    /// What servers offered.
    pub catalogue: CatalogueLimits,
    /// Past calls.
    pub history: HistoryLimits,
}

/// How many bytes some texts and a body count for.
pub(crate) fn total_len<const N: usize>(parts: [usize; N]) -> u64 {
    parts.into_iter().map(|part| u64::try_from(part).unwrap_or(u64::MAX)).fold(0, u64::saturating_add)
}

/// How many bytes an output counts for.
pub(crate) fn output_len(output: &StoredOutput) -> u64 {
    total_len([output.body.len(), output.content_type.len(), output.tool.len(), output.principal.len()])
}

/// How many bytes a past call counts for.
pub(crate) fn past_call_len(PastCall { summary, body, .. }: &PastCall) -> u64 {
    let error = summary.error.as_ref().map_or(0, String::len);
    total_len([
        body.len(),
        summary.id.len(),
        summary.session.len(),
        summary.owner.len(),
        summary.tool.len(),
        error,
    ])
}
