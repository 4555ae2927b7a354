//! Persistent state.
//!
//! Seven small traits. Keys are opaque, values are owned, expiry is explicit and the caller provides the
//! time, so that memory, a local database and a remote engine can all implement them. Every write is atomic.
//!
//! Data of a principal is written with its [`Owner`] and read within an [`OwnerScope`]: ids and handles of
//! others do not exist. A cache key covers the owner where a result is not shared.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::owner::{Owner, OwnerScope};

/// Future returned by store operations.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Reason why a store operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be opened or created.
    #[error("the store at {place} cannot be opened: {reason}")]
    Unusable {
        /// Location of the store.
        place: String,
        /// Cause.
        reason: String,
    },
    /// A quota or the disk is full.
    #[error("the store is full: {reason}")]
    Full {
        /// The limit that was reached.
        reason: String,
    },
    /// Any other failure of the storage engine.
    #[error("the store failed: {reason}")]
    Failed {
        /// Message of the engine.
        reason: String,
    },
}

/// Cache of tool results.
pub trait CacheStore: Send + Sync + 'static {
    /// Returns the result under a key, unless it has expired.
    fn get(&self, key: CacheKey, now: SystemTime) -> StoreFuture<'_, Option<CachedResult>>;
    /// Stores a result, replacing one under the same key. Evicts expired results first, then the oldest.
    fn put(&self, key: CacheKey, answer: CachedResult, now: SystemTime) -> StoreFuture<'_, ()>;
    /// Removes all results.
    fn clear(&self) -> StoreFuture<'_, ()>;
}

/// Cache key: a digest of the tool, its arguments and the scope of the result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey(pub [u8; 32]);

impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A cached result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedResult {
    /// Serialized result, opaque to the store.
    pub body: Bytes,
    /// Tool name, for inspection of the store.
    pub tool: String,
    /// Time of creation.
    pub created: SystemTime,
    /// Time of expiry.
    pub expires: SystemTime,
}

/// Outputs that were too large to return.
pub trait OutputStore: Send + Sync + 'static {
    /// Stores an output. A store without room fails and stores nothing.
    fn put(&self, handle: OutputHandle, output: StoredOutput, now: SystemTime) -> StoreFuture<'_, ()>;
    /// Returns the output under a handle, unless it has expired.
    fn get(
        &self,
        scope: OwnerScope,
        handle: OutputHandle,
        now: SystemTime,
    ) -> StoreFuture<'_, Option<StoredOutput>>;
    /// Returns the outputs that have not expired, newest first, without bodies.
    fn list(&self, query: OutputQuery, now: SystemTime) -> StoreFuture<'_, Vec<OutputSummary>>;
    /// Removes an output; returns `false` if there was none.
    fn remove(&self, scope: OwnerScope, handle: OutputHandle) -> StoreFuture<'_, bool>;
    /// Removes all outputs of a session.
    fn remove_session(&self, owner: Owner, session: String) -> StoreFuture<'_, ()>;
    /// Returns the size of the stored outputs.
    fn usage(&self) -> StoreFuture<'_, StoreUsage>;
}

/// Handle of a stored output: `session-<uuid>/<file-uuid>`. A table key, never a file path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OutputHandle(pub String);

impl fmt::Display for OutputHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A stored output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOutput {
    /// Output as the tool returned it.
    pub body: Bytes,
    /// Content type of the body.
    pub content_type: String,
    /// Tool that produced it.
    pub tool: String,
    /// Session that may read it.
    pub session: String,
    /// Owner, who alone may read it.
    pub owner: Owner,
    /// Time of creation.
    pub created: SystemTime,
    /// Time of expiry.
    pub expires: SystemTime,
}

/// Query for outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputQuery {
    /// Owners of the outputs.
    pub scope: OwnerScope,
    /// Maximum number of results.
    pub limit: usize,
}

/// A stored output without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputSummary {
    /// Handle of the output.
    pub handle: OutputHandle,
    /// Size of the body.
    pub n_bytes: u64,
    /// Content type of the body.
    pub content_type: String,
    /// Tool that produced it.
    pub tool: String,
    /// Session that may read it.
    pub session: String,
    /// Owner, who alone may read it.
    pub owner: Owner,
    /// Time of creation.
    pub created: SystemTime,
    /// Time of expiry.
    pub expires: SystemTime,
}

/// Size of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreUsage {
    /// Number of entries.
    pub n_entries: u64,
    /// Total size in bytes.
    pub n_bytes: u64,
}

/// Resumable sessions. Each owner has its own: two owners may have sessions with the same id.
pub trait SessionStore: Send + Sync + 'static {
    /// Returns the session with this id, unless it has expired.
    fn get(&self, owner: Owner, id: String, now: SystemTime) -> StoreFuture<'_, Option<SessionRecord>>;
    /// Stores a session, replacing the one with the same id.
    fn put(&self, session: SessionRecord, now: SystemTime) -> StoreFuture<'_, ()>;
    /// Creates a session; returns `false` if its id is taken.
    fn create(&self, session: SessionRecord, now: SystemTime) -> StoreFuture<'_, bool>;
    /// Returns the session bound to a handle, unless it has expired.
    fn find(&self, handle: SessionHandle, now: SystemTime) -> StoreFuture<'_, Option<SessionRecord>>;
    /// Binds a handle to a session of its owner unless it is bound already; returns the bound session id.
    fn bind(&self, handle: SessionHandle, id: String, now: SystemTime) -> StoreFuture<'_, String>;
    /// Removes a session and its handles; returns `false` if there was none.
    fn remove(&self, owner: Owner, id: String) -> StoreFuture<'_, bool>;
    /// Returns the sessions, most recently used first.
    fn list(&self, scope: OwnerScope, limit: usize, now: SystemTime) -> StoreFuture<'_, Vec<SessionRecord>>;
}

/// Name that a person or model gave a session, within a workspace of a principal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionHandle {
    /// Owner.
    pub owner: Owner,
    /// Workspace of the name.
    pub workspace: String,
    /// The name.
    pub name: String,
}

/// A stored session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Session id.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Owner.
    pub owner: Owner,
    /// Bound workspace, if any.
    pub workspace: Option<String>,
    /// Time of creation.
    pub created: SystemTime,
    /// Time of last use.
    pub used: SystemTime,
    /// Time of expiry.
    pub expires: SystemTime,
}

/// Queue slots shared by several processes.
pub trait SlotStore: Send + Sync + 'static {
    /// Leases a slot of a queue if fewer than `capacity` are leased. A lease expires unless it is renewed.
    fn lease(
        &self,
        queue: String,
        capacity: usize,
        now: SystemTime,
        expires: SystemTime,
    ) -> StoreFuture<'_, Option<LeaseId>>;
    /// Extends a lease; returns `false` if it has expired already.
    fn renew(&self, lease: LeaseId, now: SystemTime, expires: SystemTime) -> StoreFuture<'_, bool>;
    /// Releases a slot.
    fn release(&self, lease: LeaseId) -> StoreFuture<'_, ()>;
}

/// Id of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseId(pub String);

/// Snapshots of server offerings.
pub trait CatalogueStore: Send + Sync + 'static {
    /// Returns the offering of the server with this fingerprint, opaque to the store.
    fn load(&self, fingerprint: String) -> StoreFuture<'_, Option<Bytes>>;
    /// Stores the offering of a server, replacing the previous one. A full store drops the oldest.
    fn save(&self, fingerprint: String, offering: Bytes, now: SystemTime) -> StoreFuture<'_, ()>;
}

/// Credentials of principals. They are encrypted before they are stored: no store sees a secret.
pub trait CredentialStore: Send + Sync + 'static {
    /// Returns the encrypted credential under a key.
    fn load(&self, owner: Owner, key: CredentialKey) -> StoreFuture<'_, Option<Bytes>>;
    /// Stores an encrypted credential, replacing the one under the same key. A full store refuses it.
    fn save(&self, owner: Owner, key: CredentialKey, sealed: Bytes, now: SystemTime) -> StoreFuture<'_, ()>;
    /// Removes a credential; returns `false` if there was none.
    fn remove(&self, owner: Owner, key: CredentialKey) -> StoreFuture<'_, bool>;
    /// Returns the keys of the credentials, ordered by owner and key.
    fn list(&self, scope: OwnerScope, limit: usize) -> StoreFuture<'_, Vec<(Owner, CredentialKey)>>;
}

/// Key of a credential: what it gives access to, such as the URL of a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CredentialKey(pub String);

/// Entries of a batch that a log refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedEntries {
    /// Number of entries.
    pub n_entries: u64,
    /// Reason for the first one.
    pub reason: Option<StoreError>,
}

impl RefusedEntries {
    /// Counts one more entry.
    pub fn add(&mut self, reason: StoreError) {
        self.n_entries += 1;
        self.reason.get_or_insert(reason);
    }
}

/// Log of finished calls, and of trace records of calls in named sessions.
///
/// Entries are written in batches and never change. A full log drops its oldest entries; calls also expire.
pub trait CallLog: Send + Sync + 'static {
    /// Appends a batch. Entries that are too large are refused; the others are stored.
    fn append(&self, batch: LogBatch, now: SystemTime) -> StoreFuture<'_, RefusedEntries>;
    /// Returns the calls with these ids, as far as they are in the log, in no particular order.
    fn calls_by_id(
        &self,
        scope: OwnerScope,
        ids: Vec<String>,
        now: SystemTime,
    ) -> StoreFuture<'_, Vec<FinishedCall>>;
    /// Returns the matching calls, most recently started first, without bodies.
    fn calls(&self, query: CallQuery, now: SystemTime) -> StoreFuture<'_, Vec<CallSummary>>;
    /// Returns the sessions with calls, most recently used first.
    fn sessions(
        &self,
        scope: OwnerScope,
        limit: usize,
        now: SystemTime,
    ) -> StoreFuture<'_, Vec<SessionSummary>>;
    /// Returns the matching trace records, newest first.
    fn traces(&self, query: TraceQuery) -> StoreFuture<'_, Vec<TraceRecord>>;
}

/// Entries for the log, in order. Each is built when the store takes it, which may be on a thread of its own.
pub type LogBatch = Box<dyn Iterator<Item = LogEntry> + Send>;

/// An entry of the call log.
#[derive(Clone, Debug, PartialEq)]
pub enum LogEntry {
    /// A finished call.
    Call(FinishedCall),
    /// A trace record.
    Trace(OwnedTrace),
}

/// A trace record with its owner, which is not part of the record that people and models read.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnedTrace {
    /// Owner.
    pub owner: Owner,
    /// The record.
    pub record: TraceRecord,
}

/// A finished call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedCall {
    /// Summary of the call.
    pub summary: CallSummary,
    /// Details, opaque to the store.
    pub body: String,
}

/// Summary of a finished call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSummary {
    /// Id of the call.
    pub id: String,
    /// Session of the call.
    pub session: Arc<str>,
    /// Name that the client of the session gave itself.
    pub client: Option<Arc<str>>,
    /// Owner.
    pub owner: Owner,
    /// Name of the tool.
    pub tool: Arc<str>,
    /// Error kind, also if the tool itself failed; `None` on success.
    pub error: Option<String>,
    /// Start time.
    pub started: SystemTime,
    /// Duration of the call.
    pub duration: Duration,
}

/// Query for calls; unset criteria match everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallQuery {
    /// Owners of the calls.
    pub scope: OwnerScope,
    /// Prefix of the call id.
    pub id_prefix: Option<String>,
    /// Session id.
    pub session: Option<String>,
    /// Maximum number of results.
    pub limit: usize,
}

impl CallQuery {
    /// Returns the query for the newest calls within a scope.
    pub fn newest(scope: OwnerScope, limit: usize) -> Self {
        Self { scope, id_prefix: None, session: None, limit }
    }
}

/// A session in the call log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSummary {
    /// Session id.
    pub id: String,
    /// Name that its client gave itself.
    pub client: Option<Arc<str>>,
    /// Owner.
    pub owner: Owner,
    /// Start of the first call.
    pub started: SystemTime,
    /// Start of the last call.
    pub used: SystemTime,
    /// Number of calls.
    pub n_calls: u64,
    /// Number of failed calls.
    pub n_failed: u64,
}

/// Trace record of a call, for people and models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceRecord {
    /// Workspace id.
    pub workspace_id: String,
    /// Session id.
    pub session_id: String,
    /// Type of activity.
    #[serde(rename = "type")]
    pub kind: String,
    /// One-sentence summary.
    pub content: String,
    /// Time in milliseconds since 1970.
    pub timestamp: u64,
    /// Additional data.
    pub metadata: Value,
}

/// Query for trace records; unset criteria match everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceQuery {
    /// Owners of the records.
    pub scope: OwnerScope,
    /// Workspace id.
    pub workspace: Option<String>,
    /// Session id.
    pub session: Option<String>,
    /// Maximum number of results.
    pub limit: usize,
}
