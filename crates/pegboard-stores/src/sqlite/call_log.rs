//! The call log, in SQLite: one row per segment of many entries.
//!
//! A batch becomes a segment, or extends the newest one while that is small. A query reads the heads of the
//! segments, newest first, until it has enough; bodies are read only for the entries that it returns. What a call
//! has in common with the previous one of its batch is not written again.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::store::{
    CallLog, CallQuery, CallSummary, FinishedCall, LogBatch, LogEntry, OwnedTrace, RefusedEntries,
    SessionSummary, StoreError, StoreFuture, StoreUsage, TraceQuery, TraceRecord,
};
use rusqlite::{Connection, OptionalExtension, Row, Transaction};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::time::{from_millis, millis};
use super::usage_counter::UsageCounter;
use super::{Database, Durability, JobResult, begin, sql_integer};
use crate::limits::{DatabaseLimits, LogLimits};

/// Maximum size of a segment that is extended by the next batch: each extension writes it anew.
const MAX_EXTENDED_BYTES: u64 = 16 * 1024;
/// Maximum size of a segment, apart from its last entry.
const MAX_SEGMENT_BYTES: u64 = 256 * 1024;
/// Maximum number of entries of a segment.
const MAX_SEGMENT_ENTRIES: u64 = 256;
/// Minimum number of segments in a full log, so that eviction removes a small part of it.
const MIN_SEGMENTS: u64 = 16;
/// Time after its newest entry during which a segment is extended, so that its entries expire together.
const EXTENSION_TIME: Duration = Duration::from_mins(10);
/// Maximum nesting depth of metadata. Deeper values could be written, but not read back.
const MAX_DEPTH: usize = 100;

impl CallLog for Database {
    fn append(&self, batch: LogBatch, now: SystemTime) -> StoreFuture<'_, RefusedEntries> {
        let limits = self.limits;
        self.run_to_completion(move |connection| append(connection, &limits, batch, now))
    }

    fn calls_by_id(
        &self,
        scope: OwnerScope,
        ids: Vec<String>,
        now: SystemTime,
    ) -> StoreFuture<'_, Vec<FinishedCall>> {
        self.run_cancellable(move |connection| {
            let is_match = |head: &CallHead| ids.contains(&head.id) && scope.includes(&head.owner);
            let found = find(connection, now, ids.len(), is_match)?;
            let call = |found: FoundEntry<CallHead>| {
                let body = found.body(connection)?;
                Ok(FinishedCall { summary: found.head.into(), body })
            };
            found.into_iter().map(call).collect()
        })
    }

    fn calls(&self, query: CallQuery, now: SystemTime) -> StoreFuture<'_, Vec<CallSummary>> {
        self.run_cancellable(move |connection| {
            let CallQuery { scope, id_prefix, session, limit } = &query;
            let is_match = |head: &CallHead| {
                id_prefix.as_ref().is_none_or(|prefix| head.id.starts_with(prefix))
                    && session.as_ref().is_none_or(|session| **session == *head.session)
                    && scope.includes(&head.owner)
            };
            let found = find(connection, now, *limit, is_match)?;
            Ok(found.into_iter().map(|found| found.head.into()).collect())
        })
    }

    fn sessions(
        &self,
        scope: OwnerScope,
        limit: usize,
        now: SystemTime,
    ) -> StoreFuture<'_, Vec<SessionSummary>> {
        self.run_cancellable(move |connection| {
            let is_match = |head: &CallHead| scope.includes(&head.owner);
            let calls = find(connection, now, usize::MAX, is_match)?;
            let mut sessions = summarize(calls.into_iter().map(|found| found.head));
            sessions.truncate(limit);
            Ok(sessions)
        })
    }

    fn traces(&self, query: TraceQuery) -> StoreFuture<'_, Vec<TraceRecord>> {
        self.run_cancellable(move |connection| {
            let TraceQuery { scope, workspace, session, limit } = &query;
            let is_match = |head: &TraceHead| {
                scope.includes_stored(&head.owner)
                    && workspace.as_ref().is_none_or(|workspace| *workspace == head.workspace)
                    && session.as_ref().is_none_or(|session| *session == head.session)
            };
            let found = find(connection, SystemTime::UNIX_EPOCH, *limit, is_match)?;
            let record = |found: FoundEntry<TraceHead>| {
                let metadata = parse(&found.body(connection)?)?;
                let TraceHead { owner: _, workspace, session, kind, content, timestamp, body: _ } =
                    found.head;
                Ok(TraceRecord {
                    workspace_id: workspace,
                    session_id: session,
                    kind,
                    content,
                    timestamp,
                    metadata,
                })
            };
            found.into_iter().map(record).collect()
        })
    }
}

/// Head of an entry: everything that a query needs to match it. A line of JSON in the segment.
trait LogHead: Clone {
    /// Kind of the segments with such entries.
    const KIND: &'static str;

    /// Appends the line of the head; `previous` is the head before it in the same batch.
    fn write(&self, previous: Option<&Self>, lines: &mut Vec<u8>);

    /// Reads a line; `previous` is the head before it in the segment.
    fn read(line: &str, previous: Option<&Self>) -> Result<Self, StoreError>;

    /// Time by which entries are ordered, in milliseconds.
    fn time(&self) -> i64;

    /// Length of the body in bytes.
    fn body_len(&self) -> usize;
}

/// Head of a finished call.
#[derive(Clone)]
struct CallHead {
    id: String,
    session: Arc<str>,
    client: Option<Arc<str>>,
    owner: Owner,
    tool: Arc<str>,
    error: Option<String>,
    /// In milliseconds since 1970.
    started: i64,
    /// In microseconds.
    duration: u64,
    body: usize,
}

/// The fields of a [`CallHead`] in order: id, session, owner, tool, error, start, duration, length of the body, client.
/// Session, owner and tool are `None` if they are those of the previous head: most calls have them in common. The client
/// belongs to a session, and is written with it.
#[derive(Serialize, Deserialize)]
struct CallLine<'a>(
    Cow<'a, str>,
    Option<Cow<'a, str>>,
    Option<Cow<'a, str>>,
    Option<Cow<'a, str>>,
    Option<Cow<'a, str>>,
    i64,
    u64,
    usize,
    #[serde(default, skip_serializing_if = "Option::is_none")] Option<Cow<'a, str>>,
);

impl LogHead for CallHead {
    const KIND: &'static str = "call";

    fn write(&self, previous: Option<&Self>, lines: &mut Vec<u8>) {
        fn unless_same<'a>(text: &'a str, previous: Option<&str>) -> Option<Cow<'a, str>> {
            (previous != Some(text)).then_some(Cow::Borrowed(text))
        }
        let session = unless_same(&self.session, previous.map(|previous| &*previous.session));
        let client = self.client.as_deref().filter(|_| session.is_some()).map(Cow::Borrowed);
        let line = CallLine(
            Cow::Borrowed(&self.id),
            session,
            unless_same(self.owner.as_str(), previous.map(|previous| previous.owner.as_str())),
            unless_same(&self.tool, previous.map(|previous| &*previous.tool)),
            self.error.as_deref().map(Cow::Borrowed),
            self.started,
            self.duration,
            self.body,
            client,
        );
        write_line(&line, lines);
    }

    fn read(line: &str, previous: Option<&Self>) -> Result<Self, StoreError> {
        let CallLine(id, session, owner, tool, error, started, duration, body, client) = parse(line)?;
        let incomplete = || damaged("the first of a segment is incomplete");
        let text = |text: Option<Cow<'_, str>>, of: fn(&Self) -> &Arc<str>| {
            let same = || previous.map(|previous| Arc::clone(of(previous)));
            text.map(Arc::from).or_else(same).ok_or_else(incomplete)
        };
        let client = match session {
            Some(_) => client.map(Arc::from),
            None => previous.and_then(|previous| previous.client.clone()),
        };
        let owner = owner.map(|owner| Owner::from_stored(&owner));
        let owner = owner.or_else(|| previous.map(|previous| previous.owner.clone()));
        Ok(Self {
            id: id.into_owned(),
            session: text(session, |head| &head.session)?,
            client,
            owner: owner.ok_or_else(incomplete)?,
            tool: text(tool, |head| &head.tool)?,
            error: error.map(Cow::into_owned),
            started,
            duration,
            body,
        })
    }

    fn time(&self) -> i64 {
        self.started
    }

    fn body_len(&self) -> usize {
        self.body
    }
}

impl CallHead {
    fn new(summary: CallSummary, body: &str) -> Self {
        let CallSummary { id, session, client, owner, tool, error, started, duration } = summary;
        let duration = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self { id, session, client, owner, tool, error, started: millis(started), duration, body: body.len() }
    }
}

impl From<CallHead> for CallSummary {
    fn from(head: CallHead) -> Self {
        let CallHead { id, session, client, owner, tool, error, started, duration, body: _ } = head;
        let (started, duration) = (from_millis(started), Duration::from_micros(duration));
        Self { id, session, client, owner, tool, error, started, duration }
    }
}

/// Head of a trace record.
#[derive(Clone, Serialize, Deserialize)]
struct TraceHead {
    owner: String,
    workspace: String,
    session: String,
    kind: String,
    content: String,
    timestamp: u64,
    body: usize,
}

impl LogHead for TraceHead {
    const KIND: &'static str = "trace";

    fn write(&self, _: Option<&Self>, lines: &mut Vec<u8>) {
        write_line(self, lines);
    }

    fn read(line: &str, _: Option<&Self>) -> Result<Self, StoreError> {
        parse(line)
    }

    fn time(&self) -> i64 {
        sql_integer(self.timestamp)
    }

    fn body_len(&self) -> usize {
        self.body
    }
}

impl TraceHead {
    /// Splits a record into its head and its metadata, if it is flat enough to be read back.
    fn split(OwnedTrace { owner, record }: OwnedTrace) -> Result<(Self, String), StoreError> {
        let TraceRecord { workspace_id, session_id, kind, content, timestamp, metadata } = record;
        if is_deeper_than(&metadata, MAX_DEPTH) {
            let reason =
                format!("the metadata of a trace record is nested more than {MAX_DEPTH} levels deep");
            return Err(StoreError::Failed { reason });
        }
        let body = metadata.to_string();
        let (owner, workspace, session) = (owner.into(), workspace_id, session_id);
        Ok((Self { owner, workspace, session, kind, content, timestamp, body: body.len() }, body))
    }
}

/// Writes a batch. A refused entry does not keep the others from being written.
fn append(
    connection: &mut Connection,
    limits: &DatabaseLimits,
    batch: LogBatch,
    now: SystemTime,
) -> JobResult<RefusedEntries> {
    let change = begin(connection, Durability::Process)?;
    let mut calls = SegmentWriter::<CallHead>::new(limits.calls, now);
    let mut traces = SegmentWriter::<TraceHead>::new(limits.traces, now);
    let mut refused = RefusedEntries::default();
    for entry in batch {
        let is_added = match entry {
            LogEntry::Call(FinishedCall { summary, body }) => {
                calls.add(&change, CallHead::new(summary, &body), &body)?
            }
            LogEntry::Trace(trace) => match TraceHead::split(trace) {
                Ok((head, body)) => traces.add(&change, head, &body)?,
                Err(refused) => Err(refused),
            },
        };
        if let Err(reason) = is_added {
            refused.add(reason);
        }
    }
    calls.finish(&change)?;
    traces.finish(&change)?;
    change.commit()?;
    Ok(refused)
}

/// Collects entries of one kind and writes them as segments.
struct SegmentWriter<H> {
    limits: LogLimits,
    now: SystemTime,
    /// Size of the segments written so far.
    written: StoreUsage,
    newest_at: i64,
    usage: StoreUsage,
    heads: Vec<u8>,
    bodies: String,
    /// The last entry that was collected.
    last: Option<H>,
}

impl<H: LogHead> SegmentWriter<H> {
    fn new(limits: LogLimits, now: SystemTime) -> Self {
        let (written, usage, heads) = (StoreUsage::default(), StoreUsage::default(), Vec::new());
        Self { limits, now, written, newest_at: 0, usage, heads, bodies: String::new(), last: None }
    }

    /// Adds an entry; the inner error refuses it.
    fn add(&mut self, change: &Transaction<'_>, head: H, body: &str) -> JobResult<Result<(), StoreError>> {
        if self.is_full(self.usage, MAX_SEGMENT_BYTES) {
            self.write(change)?;
        }
        let start = self.heads.len();
        head.write(self.last.as_ref(), &mut self.heads);
        let n_bytes = (self.heads.len() - start + body.len()) as u64;
        if let Err(refused) = self.limits.admit(H::KIND, n_bytes) {
            self.heads.truncate(start);
            return Ok(Err(refused));
        }
        self.bodies.push_str(body);
        self.newest_at = self.newest_at.max(head.time());
        self.usage.n_entries += 1;
        self.usage.n_bytes += n_bytes;
        self.last = Some(head);
        Ok(Ok(()))
    }

    /// Returns `true` if a segment of this size gets no more entries.
    fn is_full(&self, usage: StoreUsage, max_bytes: u64) -> bool {
        let LogLimits { max_entries: most_entries, max_bytes: most_bytes, .. } = self.limits;
        usage.n_entries >= MAX_SEGMENT_ENTRIES.min(most_entries / MIN_SEGMENTS).max(1)
            || usage.n_bytes >= max_bytes.min(most_bytes / MIN_SEGMENTS)
    }

    /// Writes the collected entries: to the newest segment, or as a new one.
    fn write(&mut self, change: &Transaction<'_>) -> rusqlite::Result<()> {
        let usage = std::mem::take(&mut self.usage);
        if usage.n_entries == 0 {
            return Ok(());
        }
        let expires = self.limits.retention.and_then(|retention| self.now.checked_add(retention));
        let expires_at = expires.map_or(i64::MAX, millis);
        let (n_entries, n_bytes) = (sql_integer(usage.n_entries), sql_integer(usage.n_bytes));
        let heads = std::str::from_utf8(&self.heads)?;
        match self.extended_segment(change)? {
            Some(id) => change
                .prepare_cached(
                    "UPDATE log_segments SET newest_at = max(newest_at, ?2), expires_at = ?3, \
                     n_entries = n_entries + ?4, n_bytes = n_bytes + ?5, heads = heads || ?6, bodies = bodies || ?7 \
                     WHERE id = ?1",
                )?
                .execute((id, self.newest_at, expires_at, n_entries, n_bytes, heads, &self.bodies))?,
            None => change
                .prepare_cached(
                    "INSERT INTO log_segments (kind, newest_at, expires_at, n_entries, n_bytes, heads, bodies) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )?
                .execute((
                    H::KIND,
                    self.newest_at,
                    expires_at,
                    n_entries,
                    n_bytes,
                    heads,
                    &self.bodies,
                ))?,
        };
        self.written.n_entries += usage.n_entries;
        self.written.n_bytes += usage.n_bytes;
        self.newest_at = 0;
        self.heads.clear();
        self.bodies.clear();
        self.last = None;
        Ok(())
    }

    /// Returns the newest segment if it is small and recent enough to be extended.
    fn extended_segment(&self, change: &Transaction<'_>) -> rusqlite::Result<Option<i64>> {
        let newest = change
            .prepare_cached(
                "SELECT id, newest_at, n_entries, n_bytes FROM log_segments WHERE kind = ?1 \
                 ORDER BY newest_at DESC LIMIT 1",
            )?
            .query_row([H::KIND], |row| {
                Ok((row.get::<_, i64>(0)?, from_millis(row.get(1)?), usage(row.get(2)?, row.get(3)?)))
            })
            .optional()?;
        let is_extended = |(_, newest_at, usage): &(i64, SystemTime, StoreUsage)| {
            let is_recent = self.now.duration_since(*newest_at).unwrap_or_default() < EXTENSION_TIME;
            is_recent && !self.is_full(*usage, MAX_EXTENDED_BYTES)
        };
        Ok(newest.filter(is_extended).map(|(id, ..)| id))
    }

    /// Writes the rest, and removes the oldest segments while they have expired or the limits are exceeded.
    fn finish(mut self, change: &Transaction<'_>) -> rusqlite::Result<()> {
        self.write(change)?;
        if self.written.n_entries == 0 {
            return Ok(());
        }
        let mut total = UsageCounter::Log(H::KIND).usage(change)?;
        total.n_entries += self.written.n_entries;
        total.n_bytes += self.written.n_bytes;
        let mut select = change.prepare_cached(
            "SELECT id, expires_at, n_entries, n_bytes FROM log_segments WHERE kind = ?1 \
             ORDER BY newest_at, id LIMIT 1",
        )?;
        let mut oldest = || {
            let segment = |row: &Row<'_>| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, usage(row.get(2)?, row.get(3)?)))
            };
            select.query_row([H::KIND], segment).optional()
        };
        while let Some((id, expires_at, dropped)) = oldest()?
            && (expires_at <= millis(self.now) || self.limits.are_exceeded_by(total))
        {
            change.prepare_cached("DELETE FROM log_segments WHERE id = ?1")?.execute([id])?;
            total.n_entries = total.n_entries.saturating_sub(dropped.n_entries);
            total.n_bytes = total.n_bytes.saturating_sub(dropped.n_bytes);
        }
        UsageCounter::Log(H::KIND).set(change, total)
    }
}

fn usage(n_entries: i64, n_bytes: i64) -> StoreUsage {
    let number = |number: i64| u64::try_from(number).unwrap_or_default();
    StoreUsage { n_entries: number(n_entries), n_bytes: number(n_bytes) }
}

/// An entry that matches a query.
struct FoundEntry<H> {
    head: H,
    /// Id of its segment.
    segment: i64,
    /// Position of its body in the bodies of the segment.
    start: usize,
}

impl<H: LogHead> FoundEntry<H> {
    fn body(&self, connection: &Connection) -> JobResult<String> {
        let mut select = connection.prepare_cached("SELECT bodies FROM log_segments WHERE id = ?1")?;
        let end = self.start.saturating_add(self.head.body_len());
        let body = select.query_row([self.segment], |row| {
            Ok(row.get_ref(0)?.as_str()?.get(self.start..end).map(str::to_owned))
        })?;
        body.ok_or_else(|| damaged("a body is missing").into())
    }
}

/// Returns the newest entries that match, newest first.
fn find<H: LogHead>(
    connection: &Connection,
    now: SystemTime,
    limit: usize,
    is_match: impl Fn(&H) -> bool,
) -> JobResult<Vec<FoundEntry<H>>> {
    let mut select = connection.prepare_cached(
        "SELECT id, newest_at, heads FROM log_segments WHERE kind = ?1 AND expires_at > ?2 \
         ORDER BY newest_at DESC, id DESC",
    )?;
    let mut segments = select.query((H::KIND, millis(now)))?;
    let mut found: Vec<FoundEntry<H>> = Vec::new();
    while let Some(row) = segments.next()? {
        let (segment, newest_at) = (row.get(0)?, row.get::<_, i64>(1)?);
        // The rest is older than enough of the entries found so far: calls end in another order than they begin.
        let is_newer = |found: &&FoundEntry<H>| found.head.time() > newest_at;
        if found.len() >= limit && found.iter().filter(is_newer).count() >= limit {
            break;
        }
        let (mut start, mut previous) = (0, None);
        for line in row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?.lines() {
            let head = H::read(line, previous.as_ref())?;
            if is_match(&head) {
                found.push(FoundEntry { head: head.clone(), segment, start });
            }
            start += head.body_len();
            previous = Some(head);
        }
    }
    found.sort_by(|one, other| {
        let key = |found: &FoundEntry<H>| (found.head.time(), found.segment, found.start);
        key(other).cmp(&key(one))
    });
    found.truncate(limit);
    Ok(found)
}

/// Groups calls, newest first, by session and owner.
fn summarize(calls: impl Iterator<Item = CallHead>) -> Vec<SessionSummary> {
    let mut sessions: Vec<SessionSummary> = Vec::new();
    let mut positions: HashMap<(Arc<str>, Owner), usize> = HashMap::new();
    for call in calls {
        let started = from_millis(call.started);
        let client = call.client;
        let at = *positions.entry((call.session, call.owner)).or_insert_with_key(|(session, owner)| {
            let (id, owner) = (session.to_string(), owner.clone());
            sessions.push(SessionSummary {
                id,
                client,
                owner,
                started,
                used: started,
                n_calls: 0,
                n_failed: 0,
            });
            sessions.len() - 1
        });
        let session = &mut sessions[at];
        session.started = started;
        session.n_calls += 1;
        session.n_failed += u64::from(call.error.is_some());
    }
    sessions
}

fn write_line(line: &impl Serialize, lines: &mut Vec<u8>) {
    serde_json::to_writer(&mut *lines, line).expect("the head of an entry is plain data");
    lines.push(b'\n');
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| damaged(&error.to_string()))
}

fn damaged(reason: &str) -> StoreError {
    StoreError::Failed { reason: format!("cannot read an entry of the call log: {reason}") }
}

/// Checks without recursion, so that no value is too deep to be checked.
fn is_deeper_than(value: &Value, max_depth: usize) -> bool {
    let mut open = vec![(value, 0)];
    while let Some((value, depth)) = open.pop() {
        if depth > max_depth {
            return true;
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(members) => open.extend(members.values().map(|member| (member, depth + 1))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    false
}
