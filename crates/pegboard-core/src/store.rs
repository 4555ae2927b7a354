//! Where state lives that outlasts a request.
//!
//! Seven small traits. Keys are opaque, values are owned, expiry is explicit and the caller says what time it is, so
//! that memory, a local database and a remote engine can all keep them. Whatever a store is given is there whole or
//! not at all.

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a store has to say, later.
pub type Stored<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Why a store could not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It cannot be opened or created.
    #[error("the store at {place} cannot be opened: {reason}")]
    Unusable {
        /// Where it should be.
        place: String,
        /// Why it is not.
        reason: String,
    },
    /// There is no room left: a quota or a disk is full.
    #[error("the store is full: {reason}")]
    Full {
        /// What is full.
        reason: String,
    },
    /// Anything else that went wrong in the engine.
    #[error("the store did not answer: {reason}")]
    Failed {
        /// What the engine said.
        reason: String,
    },
}

/// Answers that may be given again.
pub trait CacheStore: Send + Sync + 'static {
    /// The answer under a key, unless it has expired.
    fn get(&self, key: CacheKey, now: SystemTime) -> Stored<'_, Option<CachedAnswer>>;
    /// Keeps an answer, in place of one under the same key. What has expired goes first, then the oldest.
    fn put(&self, key: CacheKey, answer: CachedAnswer, now: SystemTime) -> Stored<'_, ()>;
    /// Forgets every answer.
    fn clear(&self) -> Stored<'_, ()>;
}

/// What an answer is kept under: a digest of the tool, its arguments and whoever may see the answer.
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

/// An answer that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedAnswer {
    /// The answer as it is kept; only who put it there reads it.
    pub body: Bytes,
    /// Whose answer it is, for people who look into the store.
    pub tool: String,
    /// When it was given.
    pub made: SystemTime,
    /// Until when it may be given again.
    pub expires: SystemTime,
}

/// Outputs that were too large to hand over.
pub trait OutputStore: Send + Sync + 'static {
    /// Keeps an output. A store that has no room says so and keeps nothing of it.
    fn put(&self, handle: OutputHandle, output: StoredOutput, now: SystemTime) -> Stored<'_, ()>;
    /// The output under a handle, unless it has expired.
    fn get(&self, handle: OutputHandle, now: SystemTime) -> Stored<'_, Option<StoredOutput>>;
    /// Which outputs there are and have not expired, the newest first. Their bodies stay where they are.
    fn list(&self, query: OutputQuery, now: SystemTime) -> Stored<'_, Vec<OutputSummary>>;
    /// Forgets an output; `false` if there was none.
    fn remove(&self, handle: OutputHandle) -> Stored<'_, bool>;
    /// Forgets all outputs of a session.
    fn remove_session(&self, session: String) -> Stored<'_, ()>;
    /// How much is kept.
    fn usage(&self) -> Stored<'_, Usage>;
}

/// The name of a stored output: `session-<uuid>/<file-uuid>`. It is a key of a table and never a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OutputHandle(pub String);

impl fmt::Display for OutputHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An output that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOutput {
    /// The output as the tool gave it.
    pub body: Bytes,
    /// What kind of text or data it is.
    pub content_type: String,
    /// Which tool gave it.
    pub tool: String,
    /// The session that may read it.
    pub session: String,
    /// Who may read it; empty if nobody in particular.
    pub principal: String,
    /// When it was given.
    pub made: SystemTime,
    /// Until when it is kept.
    pub expires: SystemTime,
}

/// Which outputs are wanted. What is not asked for does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputQuery {
    /// Only those that this one may read.
    pub principal: Option<String>,
    /// At most so many.
    pub n_most: usize,
}

/// An output without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputSummary {
    /// Its name.
    pub handle: OutputHandle,
    /// How large its body is.
    pub n_bytes: u64,
    /// What kind of text or data it is.
    pub content_type: String,
    /// Which tool gave it.
    pub tool: String,
    /// The session that may read it.
    pub session: String,
    /// Who may read it; empty if nobody in particular.
    pub principal: String,
    /// When it was given.
    pub made: SystemTime,
    /// Until when it is kept.
    pub expires: SystemTime,
}

/// How much a store keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many things.
    pub n_kept: u64,
    /// How many bytes they are.
    pub n_bytes: u64,
}

/// Sessions that somebody may come back to.
pub trait SessionStore: Send + Sync + 'static {
    /// The session of this id, unless it has expired.
    fn get(&self, id: String, now: SystemTime) -> Stored<'_, Option<SessionRecord>>;
    /// Keeps a session, in place of the one of the same id.
    fn put(&self, session: SessionRecord, now: SystemTime) -> Stored<'_, ()>;
    /// Keeps a session unless one has its id already; `false` if so.
    fn create(&self, session: SessionRecord, now: SystemTime) -> Stored<'_, bool>;
    /// The session that a handle stands for, unless it has expired.
    fn find(&self, handle: SessionHandle, now: SystemTime) -> Stored<'_, Option<SessionRecord>>;
    /// Lets a handle stand for a session, unless it stands for one already; answers the id that it stands for.
    fn bind(&self, handle: SessionHandle, id: String, now: SystemTime) -> Stored<'_, String>;
    /// Forgets a session and its handles; `false` if there was none.
    fn remove(&self, id: String) -> Stored<'_, bool>;
    /// The sessions there are, the one used last first.
    fn list(&self, n_most: usize, now: SystemTime) -> Stored<'_, Vec<SessionRecord>>;
}

/// A name that a person or a model gave a session, within a workspace of a principal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionHandle {
    /// Whose it is; empty if nobody's in particular.
    pub principal: String,
    /// The workspace in which it was said.
    pub workspace: String,
    /// What was said.
    pub name: String,
}

/// A session as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Its id.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// Whose it is; empty if nobody's in particular.
    pub principal: String,
    /// The workspace it is bound to, if it is.
    pub workspace: Option<String>,
    /// When it began.
    pub created: SystemTime,
    /// When it was last used.
    pub used: SystemTime,
    /// Until when it is kept.
    pub expires: SystemTime,
}

/// What was done, for people and models that look back.
pub trait TraceStore: Send + Sync + 'static {
    /// Adds a record. A store that is full forgets the oldest.
    fn append(&self, record: TraceRecord) -> Stored<'_, ()>;
    /// The records that a question asks for, newest first.
    fn find(&self, query: TraceQuery) -> Stored<'_, Vec<TraceRecord>>;
}

/// One thing that was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceRecord {
    /// The workspace it was done in.
    pub workspace_id: String,
    /// The session it was done in.
    pub session_id: String,
    /// What sort of thing it was.
    #[serde(rename = "type")]
    pub kind: String,
    /// One sentence about it.
    pub content: String,
    /// When it was done, in milliseconds since 1970.
    pub timestamp: u64,
    /// Everything else.
    pub metadata: Value,
}

/// Which records are wanted. What is not asked for does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceQuery {
    /// Only those of this workspace.
    pub workspace: Option<String>,
    /// Only those of this session.
    pub session: Option<String>,
    /// At most so many.
    pub n_most: usize,
}

/// Slots that several processes share.
pub trait SlotStore: Send + Sync + 'static {
    /// A slot of a queue, if fewer than `capacity` are leased. A lease that nobody renews ends by itself.
    fn lease(
        &self,
        queue: String,
        capacity: usize,
        now: SystemTime,
        expires: SystemTime,
    ) -> Stored<'_, Option<LeaseId>>;
    /// Keeps a slot for longer; `false` if the lease has ended already.
    fn renew(&self, lease: LeaseId, now: SystemTime, expires: SystemTime) -> Stored<'_, bool>;
    /// Gives a slot back.
    fn release(&self, lease: LeaseId) -> Stored<'_, ()>;
}

/// The name of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseId(pub String);

/// What servers offered when they were last there.
pub trait CatalogueStore: Send + Sync + 'static {
    /// What the server of this fingerprint offered; only who saved it reads it.
    fn load(&self, fingerprint: String) -> Stored<'_, Option<Bytes>>;
    /// Keeps what a server offers, in place of what it offered before. A store that is full forgets the oldest.
    fn save(&self, fingerprint: String, offer: Bytes, now: SystemTime) -> Stored<'_, ()>;
}

/// Calls that have ended, for people who look back when whoever made them is gone.
pub trait HistoryStore: Send + Sync + 'static {
    /// Keeps calls, each in place of the one of the same id. What has expired goes first, then the oldest.
    fn add(&self, calls: Vec<PastCall>, now: SystemTime) -> Stored<'_, ()>;
    /// The call of this id, unless it has expired.
    fn get(&self, id: String, now: SystemTime) -> Stored<'_, Option<PastCall>>;
    /// The calls that a question asks for, the one that began last first. Their bodies stay where they are.
    fn calls(&self, query: HistoryQuery, now: SystemTime) -> Stored<'_, Vec<CallSummary>>;
    /// The sessions that calls were made in, the one used last first: those of one owner, or of all.
    fn sessions(&self, owner: Option<String>, n_most: usize, now: SystemTime)
    -> Stored<'_, Vec<PastSession>>;
}

/// A call that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastCall {
    /// What there is to say of it in few words.
    pub summary: CallSummary,
    /// Until when it is kept.
    pub expires: SystemTime,
    /// All that is known of it; only who put it there reads it.
    pub body: Bytes,
}

/// What there is to say of a call in few words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSummary {
    /// What it is found by.
    pub id: String,
    /// The session it was made in.
    pub session: String,
    /// Whose call it was; empty if nobody's in particular.
    pub owner: String,
    /// The tool.
    pub tool: String,
    /// The word for why it has no answer, or that the tool failed; `None` if all was well.
    pub error: Option<String>,
    /// When it began.
    pub started: SystemTime,
    /// How long it took.
    pub duration: Duration,
}

/// Which calls are wanted. What is not asked for does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Only those whose id begins like this.
    pub id_prefix: Option<String>,
    /// Only those of this session.
    pub session: Option<String>,
    /// Only those of this owner.
    pub owner: Option<String>,
    /// At most so many.
    pub n_most: usize,
}

/// A session as far as its calls are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastSession {
    /// Its id.
    pub id: String,
    /// Whose it was; empty if nobody's in particular.
    pub owner: String,
    /// When the first call of it began.
    pub started: SystemTime,
    /// When the last call of it began.
    pub used: SystemTime,
    /// How many calls there are.
    pub n_calls: u64,
    /// How many of them did not go well.
    pub n_failed: u64,
}
