//! The call log: finished calls and trace records.

use std::time::Duration;

use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::store::{
    CallLog, CallQuery, CallSummary, FinishedCall, LogEntry, OwnedTrace, SessionSummary, StoreError,
    TraceQuery, TraceRecord,
};
use pegboard_stores::limits::{DatabaseLimits, LogLimits};
use pegboard_stores::sqlite::Database;
use serde_json::{Value, json};

use crate::behaviour::engine::{Engine, at, on_every_engine};

on_every_engine!(
    a_call_round_trips_until_it_expires,
    queries_filter_calls_newest_first,
    the_newest_calls_are_found_in_any_batch,
    calls_are_found_by_several_ids,
    the_oldest_calls_are_evicted_beyond_the_limits,
    many_small_batches_share_a_segment,
    an_oversized_call_is_refused_without_its_batch,
    sessions_are_counted_from_their_calls,
    records_are_found_by_workspace_and_session_newest_first,
    calls_and_records_exist_for_their_owner_only,
    a_record_round_trips,
    the_oldest_records_are_evicted_beyond_the_entry_limit,
    the_oldest_records_are_evicted_beyond_the_size_limit,
    an_oversized_record_is_refused,
    deeply_nested_metadata_is_refused,
    calls_and_records_do_not_evict_each_other,
);

fn log(engine: &Engine, calls: LogLimits, traces: LogLimits) -> Database {
    engine.database(DatabaseLimits { calls, traces, ..DatabaseLimits::default() })
}

/// A call of the session `s-<owner>` that started at this second.
fn call(id: &str, owner: &str, started: u64) -> FinishedCall {
    FinishedCall {
        summary: CallSummary {
            id: id.to_owned(),
            session: format!("s-{owner}").into(),
            client: (owner != "bob").then(|| format!("client of {owner}").into()),
            owner: Owner::from_stored(owner),
            tool: "notes__add".into(),
            error: None,
            started: at(started),
            duration: Duration::from_micros(1_234),
        },
        body: format!("{{\"n\":\"{id}\"}}"),
    }
}

fn failed(id: &str, owner: &str, started: u64) -> FinishedCall {
    let mut call = call(id, owner, started);
    call.summary.error = Some("timeout".to_owned());
    call
}

async fn add(log: &Database, calls: Vec<FinishedCall>, now: u64) -> Result<(), StoreError> {
    let refused = log.append(Box::new(calls.into_iter().map(LogEntry::Call)), at(now)).await?;
    refused.reason.map_or(Ok(()), Err)
}

async fn found(log: &Database, query: CallQuery, now: u64) -> String {
    let calls = log.calls(query, at(now)).await.unwrap();
    calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>().join(" ")
}

fn only(owner: &str) -> OwnerScope {
    OwnerScope::Only(Owner::from_stored(owner))
}

fn all() -> CallQuery {
    CallQuery::newest(OwnerScope::All, 100)
}

async fn a_call_round_trips_until_it_expires(engine: Engine) {
    let limits = LogLimits { retention: Some(Duration::from_secs(100)), ..LogLimits::CALLS };
    let log = log(&engine, limits, LogLimits::TRACES);
    let kept = FinishedCall { body: "{\"\u{e9}\": \"\\n\"}".to_owned(), ..failed("a'; --\n", "\u{e9}", 3) };
    add(&log, vec![call("other", "\u{1f600}", 2), kept.clone()], 0).await.unwrap();
    let get =
        async |now| log.calls_by_id(OwnerScope::All, vec!["a'; --\n".to_owned()], at(now)).await.unwrap();
    assert_eq!(get(99).await, std::slice::from_ref(&kept));
    assert_eq!(log.calls(all(), at(99)).await.unwrap()[0], kept.summary);
    assert_eq!(get(100).await, []);
    assert_eq!(found(&log, all(), 100).await, "");
    assert_eq!(log.sessions(OwnerScope::All, 10, at(100)).await.unwrap(), []);
}

async fn queries_filter_calls_newest_first(engine: Engine) {
    let log = log(&engine, LogLimits::CALLS, LogLimits::TRACES);
    let calls =
        vec![call("aa1", "ann", 1), call("ab2", "bob", 3), call("ab1", "ann", 2), call("b", "bob", 3)];
    add(&log, calls, 0).await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    for (query, expected) in [
        (all(), "b ab2 ab1 aa1"),
        (CallQuery { limit: 1, ..all() }, "b"),
        (CallQuery { limit: 0, ..all() }, ""),
        (CallQuery { id_prefix: text("ab"), ..all() }, "ab2 ab1"),
        (CallQuery { id_prefix: text("ab1"), ..all() }, "ab1"),
        (CallQuery { id_prefix: text("a_"), ..all() }, ""),
        (CallQuery { id_prefix: text("a%"), ..all() }, ""),
        (CallQuery { session: text("s-ann"), ..all() }, "ab1 aa1"),
        (CallQuery { scope: only("bob"), ..all() }, "b ab2"),
        (CallQuery { scope: only("bob"), session: text("s-ann"), ..all() }, ""),
        (CallQuery { scope: only("bob"), id_prefix: text("a"), ..all() }, "ab2"),
    ] {
        assert_eq!(found(&log, query.clone(), 0).await, expected, "{query:?}");
    }
}

async fn the_newest_calls_are_found_in_any_batch(engine: Engine) {
    // One call per segment.
    let log = log(&engine, LogLimits { max_entries: 20, ..LogLimits::CALLS }, LogLimits::TRACES);
    // A long call ends, and is written, after calls that began later.
    for (batch, ids) in [[("b", 5), ("c", 3)], [("a", 9), ("e", 1)], [("d", 2), ("f", 0)]].iter().enumerate()
    {
        let calls = ids.iter().map(|(id, started)| call(id, "ann", *started)).collect();
        add(&log, calls, batch as u64).await.unwrap();
    }
    for (limit, expected) in [(1, "a"), (2, "a b"), (3, "a b c"), (5, "a b c d e"), (9, "a b c d e f")] {
        assert_eq!(found(&log, CallQuery { limit, ..all() }, 9).await, expected);
    }
}

async fn calls_are_found_by_several_ids(engine: Engine) {
    let log = log(&engine, LogLimits::CALLS, LogLimits::TRACES);
    let calls: Vec<_> = (0..1_000).map(|n| call(&format!("c{n}"), "ann", n)).collect();
    add(&log, calls.clone(), 0).await.unwrap();
    let ids = ["c999", "c0", "unknown", "c500"].map(str::to_owned).to_vec();
    let found = log.calls_by_id(OwnerScope::All, ids, at(1_000)).await.unwrap();
    assert_eq!(found, [999, 500, 0].map(|n| calls[n].clone()));
}

async fn the_oldest_calls_are_evicted_beyond_the_limits(engine: Engine) {
    let retention = Some(Duration::from_secs(5));
    let log = log(&engine, LogLimits { max_entries: 3, retention, ..LogLimits::CALLS }, LogLimits::TRACES);
    add(&log, vec![call("brief", "ann", 0)], 0).await.unwrap();
    let calls = (0..5).map(|n| call(&format!("c{n}"), "ann", 10 - n)).collect();
    add(&log, calls, 1).await.unwrap();
    assert_eq!(found(&log, all(), 1).await, "c0 c1 c2");
    // Expired calls make room for new ones.
    add(&log, vec![call("d", "ann", 50), call("e", "ann", 60)], 6).await.unwrap();
    assert_eq!(found(&log, all(), 6).await, "e d");
    add(&log, vec![call("f", "ann", 70)], 6).await.unwrap();
    assert_eq!(found(&log, all(), 6).await, "f e d");
    let engine = engine.other();
    let log = self::log(&engine, LogLimits { max_bytes: 180, ..LogLimits::CALLS }, LogLimits::TRACES);
    let large = |id: &str, started| FinishedCall { body: "x".repeat(60), ..call(id, "ann", started) };
    add(&log, vec![large("a", 1), large("b", 2)], 0).await.unwrap();
    assert_eq!(found(&log, all(), 0).await, "b");
}

async fn many_small_batches_share_a_segment(engine: Engine) {
    // A full log of sixteen segments drops one sixteenth at a time.
    let log = log(&engine, LogLimits { max_entries: 160, ..LogLimits::CALLS }, LogLimits::TRACES);
    for n in 0..160 {
        add(&log, vec![call(&format!("c{n}"), "ann", n)], n).await.unwrap();
    }
    let count = async || log.sessions(OwnerScope::All, 10, at(200)).await.unwrap()[0].n_calls;
    assert_eq!(count().await, 160);
    add(&log, vec![call("last", "ann", 160)], 160).await.unwrap();
    assert_eq!(count().await, 151);
    assert_eq!(
        log.calls_by_id(OwnerScope::All, vec!["last".to_owned(), "c9".to_owned()], at(200))
            .await
            .unwrap()
            .len(),
        1
    );
}

async fn an_oversized_call_is_refused_without_its_batch(engine: Engine) {
    let log = log(&engine, LogLimits { max_entry_bytes: 90, ..LogLimits::CALLS }, LogLimits::TRACES);
    let large = FinishedCall { body: "x".repeat(60), ..call("b", "ann", 1) };
    let refused = add(&log, vec![call("a", "ann", 1), large, call("c", "ann", 2)], 0).await.unwrap_err();
    assert_eq!(refused.to_string(), "the store is full: a call record of 105 bytes exceeds the limit of 90");
    assert_eq!(found(&log, all(), 0).await, "c a");
}

async fn sessions_are_counted_from_their_calls(engine: Engine) {
    let log = log(&engine, LogLimits::CALLS, LogLimits::TRACES);
    let calls = vec![call("a", "ann", 5), failed("b", "bob", 7), failed("c", "ann", 9), call("d", "ann", 2)];
    add(&log, calls, 0).await.unwrap();
    let session = |owner: &str, started, used, n_calls, n_failed| SessionSummary {
        id: format!("s-{owner}"),
        client: (owner != "bob").then(|| format!("client of {owner}").into()),
        owner: Owner::from_stored(owner),
        started: at(started),
        used: at(used),
        n_calls,
        n_failed,
    };
    let (ann, bob) = (session("ann", 2, 9, 3, 1), session("bob", 7, 7, 1, 1));
    assert_eq!(log.sessions(OwnerScope::All, 10, at(0)).await.unwrap(), [ann.clone(), bob.clone()]);
    assert_eq!(log.sessions(OwnerScope::All, 1, at(0)).await.unwrap(), [ann]);
    assert_eq!(log.sessions(only("bob"), 10, at(0)).await.unwrap(), [bob]);
    assert_eq!(log.sessions(only("eve"), 10, at(0)).await.unwrap(), []);
}

fn record(content: &str, workspace: &str, session: &str, timestamp: u64) -> TraceRecord {
    TraceRecord {
        workspace_id: workspace.to_owned(),
        session_id: session.to_owned(),
        kind: String::new(),
        content: content.to_owned(),
        timestamp,
        metadata: json!(0),
    }
}

/// A record of an owner without a name.
fn owned(record: TraceRecord) -> OwnedTrace {
    OwnedTrace { owner: Owner::from_stored(""), record }
}

async fn append(log: &Database, record: TraceRecord) -> Result<(), StoreError> {
    let refused = log.append(Box::new([LogEntry::Trace(owned(record))].into_iter()), at(0)).await?;
    refused.reason.map_or(Ok(()), Err)
}

fn query(workspace: Option<&str>, session: Option<&str>, limit: usize) -> TraceQuery {
    let (workspace, session) = (workspace.map(str::to_owned), session.map(str::to_owned));
    TraceQuery { scope: OwnerScope::All, workspace, session, limit }
}

async fn contents(log: &Database, query: TraceQuery) -> String {
    let found = log.traces(query).await.unwrap();
    found.into_iter().map(|record| record.content).collect::<Vec<_>>().join(" ")
}

async fn records_are_found_by_workspace_and_session_newest_first(engine: Engine) {
    let log = log(&engine, LogLimits::CALLS, LogLimits::TRACES);
    for (content, workspace, session, timestamp) in
        [("a", "w", "s", 10), ("b", "w", "t", 30), ("c", "v", "s", 20), ("d", "w", "s", 30), ("e", "", "", 5)]
    {
        append(&log, record(content, workspace, session, timestamp)).await.unwrap();
    }
    for (workspace, session, limit, expected) in [
        (None, None, 10, "d b c a e"),
        (None, None, usize::MAX, "d b c a e"),
        (None, None, 2, "d b"),
        (None, None, 0, ""),
        (Some("w"), None, 10, "d b a"),
        (Some("w"), None, 1, "d"),
        (None, Some("s"), 10, "d c a"),
        (Some("w"), Some("s"), 10, "d a"),
        (Some(""), None, 10, "e"),
        (Some("unknown"), None, 10, ""),
        (Some("v"), Some("t"), 10, ""),
    ] {
        let found = contents(&log, query(workspace, session, limit)).await;
        assert_eq!(found, expected, "{workspace:?} {session:?} {limit}");
    }
}

async fn calls_and_records_exist_for_their_owner_only(engine: Engine) {
    let log = log(&engine, LogLimits::CALLS, LogLimits::TRACES);
    add(&log, vec![call("of-ann", "ann", 1), call("of-bob", "bob", 2)], 0).await.unwrap();
    // Bob's session has the id of one of Ann's, which has expired.
    for (owner, content) in [("ann", "ann's"), ("bob", "bob's")] {
        let record = record(content, "w", "s-20260102030405", 1);
        let trace = OwnedTrace { owner: Owner::from_stored(owner), record };
        log.append(Box::new([LogEntry::Trace(trace)].into_iter()), at(0)).await.unwrap();
    }
    for (scope, calls, records) in [
        (OwnerScope::All, "of-bob of-ann", "bob's ann's"),
        (only("ann"), "of-ann", "ann's"),
        (only("bob"), "of-bob", "bob's"),
        (only("eve"), "", ""),
    ] {
        let ids = vec!["of-ann".to_owned(), "of-bob".to_owned()];
        let by_id = log.calls_by_id(scope.clone(), ids, at(9)).await.unwrap();
        let by_id: Vec<&str> = by_id.iter().map(|call| call.summary.id.as_str()).collect();
        assert_eq!(by_id.join(" "), calls, "{scope:?}");
        assert_eq!(found(&log, CallQuery::newest(scope.clone(), 10), 9).await, calls, "{scope:?}");
        let query = TraceQuery { scope: scope.clone(), ..query(None, Some("s-20260102030405"), 10) };
        assert_eq!(contents(&log, query).await, records, "{scope:?}");
    }
}

async fn a_record_round_trips(engine: Engine) {
    let log = log(&engine, LogLimits::CALLS, LogLimits::TRACES);
    let kept = TraceRecord {
        kind: "tool_call".to_owned(),
        metadata: json!({"z": [1, 2.5, -3], "a": {"名前": "\u{0}"}, "n": null, "big": u64::MAX}),
        ..record("'; DROP TABLE traces; --\u{0}", "w\u{202e}", "s", 9_007_199_254_740_993)
    };
    append(&log, kept.clone()).await.unwrap();
    let found = log.traces(query(None, None, 1)).await.unwrap();
    assert_eq!(found, std::slice::from_ref(&kept));
    assert_eq!(found[0].metadata.to_string(), kept.metadata.to_string(), "in the order it was written");
}

async fn the_oldest_records_are_evicted_beyond_the_entry_limit(engine: Engine) {
    let log = log(&engine, LogLimits::CALLS, LogLimits { max_entries: 2, ..LogLimits::TRACES });
    for (content, timestamp, expected) in
        [("a", 2, "a"), ("b", 1, "a b"), ("c", 3, "c a"), ("d", 3, "d c"), ("e", 0, "d c")]
    {
        append(&log, record(content, "w", "s", timestamp)).await.unwrap();
        assert_eq!(contents(&log, query(None, None, 10)).await, expected, "after {content}");
    }
}

async fn the_oldest_records_are_evicted_beyond_the_size_limit(engine: Engine) {
    let log = log(&engine, LogLimits::CALLS, LogLimits { max_bytes: 272, ..LogLimits::TRACES });
    for (content, timestamp, expected) in
        [("aaa", 1, "aaa"), ("bbb", 2, "bbb aaa"), ("c", 3, "c bbb aaa"), ("dddd", 4, "dddd c bbb")]
    {
        // Each record counts for 88 bytes more than its content.
        append(&log, record(content, "", "", timestamp)).await.unwrap();
        assert_eq!(contents(&log, query(None, None, 10)).await, expected, "after {content}");
    }
}

async fn an_oversized_record_is_refused(engine: Engine) {
    let log = log(&engine, LogLimits::CALLS, LogLimits { max_entry_bytes: 92, ..LogLimits::TRACES });
    append(&log, record("four", "", "", 1)).await.unwrap();
    let reason = "a trace record of 93 bytes exceeds the limit of 92".to_owned();
    assert_eq!(append(&log, record("five!", "", "", 2)).await, Err(StoreError::Full { reason }));
    assert_eq!(contents(&log, query(None, None, 10)).await, "four");
}

async fn deeply_nested_metadata_is_refused(engine: Engine) {
    let log = log(&engine, LogLimits::CALLS, LogLimits::TRACES);
    let nested = |depth: usize| (0..depth).fold(Value::Null, |inner, _| json!({ "inner": [inner] }));
    let kept = TraceRecord { metadata: nested(50), ..record("kept", "w", "s", 1) };
    append(&log, kept.clone()).await.unwrap();
    let reason = "the metadata of a trace record is nested more than 100 levels deep".to_owned();
    let refused = TraceRecord { metadata: nested(51), ..record("refused", "w", "s", 2) };
    assert_eq!(append(&log, refused).await, Err(StoreError::Failed { reason }));
    assert_eq!(log.traces(query(None, None, 10)).await.unwrap(), [kept]);
}

async fn calls_and_records_do_not_evict_each_other(engine: Engine) {
    let one = LogLimits { max_entries: 1, ..LogLimits::CALLS };
    let log = log(&engine, one, one);
    let mixed = [
        LogEntry::Call(call("a", "ann", 1)),
        LogEntry::Trace(owned(record("first", "w", "s", 1))),
        LogEntry::Call(call("b", "ann", 2)),
        LogEntry::Trace(owned(record("second", "w", "s", 2))),
    ];
    log.append(Box::new(mixed.into_iter()), at(0)).await.unwrap();
    assert_eq!(found(&log, all(), 0).await, "b");
    assert_eq!(contents(&log, query(None, None, 10)).await, "second");
}
