//! What was done, written down for people and models that look back.
//!
//! A record says which tool was called, why, with what and how it went. It is bounded in every part, and what sounds
//! secret is blotted out. Writing never holds a call up and never fails it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use indexmap::{IndexMap, IndexSet};
use pegboard_core::store::{StoreError, TraceRecord, TraceStore};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{self, Instant};
use tokio_util::task::AbortOnDropHandle;

use crate::sessions::{Purpose, text, without_context};
use pegboard_core::redact::{redacted, redacted_members};

/// How large the arguments of a record may be, in bytes of JSON; larger ones are left out.
const MAX_ARGUMENTS: usize = 16 * 1024;
/// How large each free value of a record's context may be, in bytes of JSON.
const MAX_CONTEXT_VALUE: usize = 4 * 1024;
/// How long each text of a record's context, and an error's message, may be, in characters.
const MAX_TEXT: usize = 1_000;
/// How long the sentence of a record may be, in characters.
const MAX_CONTENT: usize = 500;
/// How long a name may be that the caller gave, in characters.
const MAX_NAME: usize = 200;
/// How many files a record lists.
const MAX_FILES: usize = 100;
/// How long their paths may be altogether, in bytes.
const MAX_FILES_BYTES: usize = 16 * 1024;

/// How many records wait for the store.
const MAX_WAITING: usize = 1_000;
/// How long the store may take over one record.
const RECORD_PATIENCE: Duration = Duration::from_secs(2);
/// How long all records together may take when somebody waits for them.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);
/// How often a store that fails is complained about.
const COMPLAINT_INTERVAL: Duration = Duration::from_mins(1);

/// What there is to know about a call that has ended.
///
/// ```
/// use pegboard_runtime::sessions::Purpose;
/// use pegboard_runtime::trace::Facts;
/// use serde_json::json;
/// use std::time::UNIX_EPOCH;
///
/// let arguments = json!({"filePath": "notes/a.md"});
/// let facts = Facts {
///     session: Some("s-20260102030405"),
///     workspace: "default",
///     purpose: Purpose::default(),
///     agent: "files",
///     mode: Some("read"),
///     arguments: arguments.as_object().unwrap(),
///     response: None,
///     outcome: Ok(()),
///     now: UNIX_EPOCH,
/// };
/// assert_eq!(facts.record().unwrap().content, "Successfully executed files.read on file: notes/a.md");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The session it was made in. Without one there is no record.
    pub session: Option<&'a str>,
    /// The workspace it was made in.
    pub workspace: &'a str,
    /// Why it was made.
    pub purpose: Purpose<'a>,
    /// The server of the tool.
    pub agent: &'a str,
    /// The name of the tool; `None` if the caller chose it by a `mode` among the arguments.
    pub mode: Option<&'a str>,
    /// The arguments as they came.
    pub arguments: &'a Map<String, Value>,
    /// The structured part of the answer, if there was one.
    pub response: Option<&'a Value>,
    /// How it went.
    pub outcome: Result<(), Failure<'a>>,
    /// When it ended.
    pub now: SystemTime,
}

/// Why a call did not go well, as far as is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failure<'a> {
    /// The word for what happened.
    pub kind: Option<&'a str>,
    /// The sentence for it.
    pub message: Option<&'a str>,
    /// The code that came with it.
    pub code: Option<&'a str>,
}

impl Facts<'_> {
    /// The record of the call, if it was made in a session.
    pub fn record(&self) -> Option<TraceRecord> {
        let session = self.session?;
        let (agent, mode) = (clipped(self.agent, MAX_NAME), clipped(self.mode(), MAX_NAME));
        let id = format!("{agent}.{mode}");
        Some(TraceRecord {
            workspace_id: self.workspace.to_owned(),
            session_id: session.to_owned(),
            kind: "tool_call".to_owned(),
            content: self.content(&id),
            timestamp: millis(self.now),
            metadata: json!({
                "schemaVersion": 1,
                "tool": {"id": id, "agent": agent, "mode": mode},
                "context": self.context(session),
                "input": {"arguments": self.bounded_arguments(), "files": self.files()},
                "outcome": self.outcome(),
            }),
        })
    }

    fn mode(&self) -> &str {
        let inner = |key: &str| member(self.arguments.get(key), "mode").and_then(text);
        self.mode
            .or_else(|| self.arguments.get("mode").and_then(text))
            .or_else(|| inner("params"))
            .or_else(|| inner("arguments"))
            .unwrap_or("unknown")
    }

    fn content(&self, id: &str) -> String {
        let done = if self.outcome.is_ok() { "Successfully executed" } else { "Failed to execute" };
        let said = |key: &str| {
            let inner = || member(self.arguments.get("params"), key);
            self.arguments.get(key).and_then(text).or_else(|| inner().and_then(text))
        };
        let object = match (said("filePath"), said("query")) {
            (Some(file), _) => format!(" on file: {}", clipped(file, MAX_CONTENT)),
            (None, Some(query)) => format!(" with query: \"{}\"", clipped(query, MAX_CONTENT)),
            (None, None) => String::new(),
        };
        clipped(&format!("{done} {id}{object}"), MAX_CONTENT)
    }

    fn context(&self, session: &str) -> Map<String, Value> {
        let purpose = &self.purpose;
        let said = |text: Option<&str>| text.map(|text| clipped(text, MAX_TEXT).into());
        let free = |value: Option<&Value>| value.map(|value| bounded(redacted(value), MAX_CONTEXT_VALUE));
        let members = [
            ("workspaceId", Some(self.workspace.into())),
            ("sessionId", Some(session.into())),
            ("sessionDescription", said(purpose.session_description)),
            ("sessionMemory", said(purpose.session_memory)),
            ("toolContext", said(purpose.tool_context)),
            ("primaryGoal", said(purpose.primary_goal)),
            ("subgoal", said(purpose.subgoal)),
            ("tags", free(purpose.tags)),
            ("additionalContext", free(purpose.additional_context)),
        ];
        members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }

    fn bounded_arguments(&self) -> Value {
        bounded(Value::Object(redacted_members(without_context(self.arguments))), MAX_ARGUMENTS)
    }

    fn outcome(&self) -> Value {
        let Err(failure) = &self.outcome else { return json!({"success": true}) };
        let message = failure.message.map(str::trim).filter(|message| !message.is_empty());
        let members = [
            ("type", failure.kind),
            ("message", Some(message.unwrap_or("Unknown error"))),
            ("code", failure.code),
        ];
        let known = members.into_iter().filter_map(|(key, said)| Some((key, clipped(said?, MAX_TEXT))));
        json!({"success": false, "error": known.collect::<IndexMap<_, _>>()})
    }

    /// The files that the call was about, in the order in which they are named, each once.
    fn files(&self) -> Vec<&str> {
        let (arguments, params) = (self.arguments, self.arguments.get("params"));
        let named = [arguments.get("filePath"), member(params, "filePath"), arguments.get("paths")];
        let operations = arguments.get("operations").and_then(Value::as_array).into_iter().flatten();
        let changed = operations.flat_map(|operation| {
            let params = operation.get("params");
            [
                member(params, "filePath"),
                member(params, "path"),
                operation.get("filePath"),
                operation.get("path"),
            ]
        });
        let answered = ["filePath", "files", "affectedFiles", "createdFiles", "modifiedFiles"]
            .map(|key| member(self.response, key));
        let mut files = IndexSet::new();
        let mut room = MAX_FILES_BYTES;
        for file in named.into_iter().chain(changed).chain(answered).flatten().flat_map(texts) {
            if files.len() == MAX_FILES || file.len() > room {
                break;
            }
            if files.insert(file) {
                room -= file.len();
            }
        }
        files.into_iter().collect()
    }
}

fn member<'a>(value: Option<&'a Value>, key: &str) -> Option<&'a Value> {
    value?.get(key)
}

/// The text of a value, or the texts of a list.
fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice).iter().filter_map(text)
}

/// The value, or how large it would be.
fn bounded(value: Value, max_bytes: usize) -> Value {
    let n_bytes = value.to_string().len();
    if n_bytes > max_bytes { json!({"omitted": "too large", "bytes": n_bytes}) } else { value }
}

/// The text, or as much of it as may be.
fn clipped(text: &str, max_characters: usize) -> String {
    match text.char_indices().nth(max_characters) {
        None => text.to_owned(),
        Some(_) => text.chars().take(max_characters - 1).chain(['…']).collect(),
    }
}

fn millis(moment: SystemTime) -> u64 {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Writes records to a store, one after another, behind the back of the calls.
///
/// A thousand records may wait; more are dropped and counted. Dropping this drops what waits, so
/// [`flush`](Self::flush) comes first.
///
/// ```
/// use pegboard_core::store::{TraceRecord, TraceStore};
/// use pegboard_runtime::trace::Traces;
/// use std::sync::Arc;
///
/// async fn write_one(store: Arc<dyn TraceStore>, record: TraceRecord) {
///     let traces = Traces::new(store);
///     traces.write(record);
///     if let Err(problem) = traces.flush().await {
///         eprintln!("{problem}");
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Traces {
    queue: mpsc::Sender<Letter>,
    tally: Arc<Tally>,
    _writer: AbortOnDropHandle<()>,
}

/// What became of the records so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceCounts {
    /// How many are in the store.
    pub n_written: u64,
    /// How many found no place to wait.
    pub n_dropped: u64,
    /// How many the store did not take.
    pub n_failed: u64,
}

/// Records that are still on their way, or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{n_waiting} trace records were not written within {FLUSH_PATIENCE:?}; look at the trace store")]
pub struct Unwritten {
    /// How many have not been tried yet.
    pub n_waiting: u64,
}

impl Traces {
    /// Begins to write to a store. There must be a runtime to do it on.
    pub fn new(store: Arc<dyn TraceStore>) -> Self {
        let (queue, letters) = mpsc::channel(MAX_WAITING);
        let tally = Arc::<Tally>::default();
        let writer = tokio::spawn(write_all(store, letters, Arc::clone(&tally)));
        Self { queue, tally, _writer: AbortOnDropHandle::new(writer) }
    }

    /// Hands a record over to be written.
    pub fn write(&self, record: TraceRecord) {
        let place = match self.queue.try_send(Letter::Record(record)) {
            Ok(()) => &self.tally.taken,
            Err(_) => &self.tally.dropped,
        };
        place.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits, for some seconds at most, until everything handed over so far has been tried.
    pub async fn flush(&self) -> Result<(), Unwritten> {
        let (done, finished) = oneshot::channel();
        let flushed = async { self.queue.send(Letter::Flush(done)).await.is_ok() && finished.await.is_ok() };
        match time::timeout(FLUSH_PATIENCE, flushed).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(Unwritten { n_waiting: self.n_waiting() }),
        }
    }

    fn n_waiting(&self) -> u64 {
        let TraceCounts { n_written, n_failed, .. } = self.counts();
        self.tally.taken.load(Ordering::Relaxed).saturating_sub(n_written + n_failed)
    }

    /// What became of the records so far.
    pub fn counts(&self) -> TraceCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TraceCounts {
            n_written: count(&self.tally.written),
            n_dropped: count(&self.tally.dropped),
            n_failed: count(&self.tally.failed),
        }
    }
}

#[derive(Debug)]
enum Letter {
    Record(TraceRecord),
    Flush(oneshot::Sender<()>),
}

#[derive(Debug, Default)]
struct Tally {
    taken: AtomicU64,
    written: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

async fn write_all(store: Arc<dyn TraceStore>, mut letters: mpsc::Receiver<Letter>, tally: Arc<Tally>) {
    let mut last_complaint: Option<Instant> = None;
    while let Some(letter) = letters.recv().await {
        let record = match letter {
            Letter::Record(record) => record,
            Letter::Flush(done) => {
                // Who waited may have given up.
                let _ = done.send(());
                continue;
            }
        };
        let Err(error) = append(&*store, record).await else {
            tally.written.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let n_failed = tally.failed.fetch_add(1, Ordering::Relaxed) + 1;
        if last_complaint.is_none_or(|last| last.elapsed() >= COMPLAINT_INTERVAL) {
            last_complaint = Some(Instant::now());
            tracing::warn!(%error, n_failed, "Trace records are lost.");
        }
    }
}

async fn append(store: &dyn TraceStore, record: TraceRecord) -> Result<(), StoreError> {
    time::timeout(RECORD_PATIENCE, store.append(record))
        .await
        .unwrap_or_else(|_| Err(StoreError::Failed { reason: format!("nothing within {RECORD_PATIENCE:?}") }))
}
