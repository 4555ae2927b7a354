//! Trace records.

use pegboard_core::store::{StoreError, TraceQuery, TraceRecord, TraceStore};
use pegboard_stores::limits::TraceLimits;
use serde_json::{Value, json};

use crate::behaviour::engine::{Engine, on_every_engine};

on_every_engine!(
    records_are_found_by_workspace_and_session_newest_first,
    a_record_round_trips,
    the_oldest_are_evicted_beyond_the_entry_limit,
    the_oldest_are_evicted_beyond_the_size_limit,
    an_oversized_record_is_refused,
    deeply_nested_metadata_is_refused,
);

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

fn query(workspace: Option<&str>, session: Option<&str>, limit: usize) -> TraceQuery {
    TraceQuery { workspace: workspace.map(str::to_owned), session: session.map(str::to_owned), limit }
}

async fn contents(traces: &dyn TraceStore, query: TraceQuery) -> String {
    let found = traces.find(query).await.unwrap();
    found.into_iter().map(|record| record.content).collect::<Vec<_>>().join(" ")
}

async fn records_are_found_by_workspace_and_session_newest_first(engine: Engine) {
    let traces = engine.traces(TraceLimits::default());
    for (content, workspace, session, timestamp) in
        [("a", "w", "s", 10), ("b", "w", "t", 30), ("c", "v", "s", 20), ("d", "w", "s", 30), ("e", "", "", 5)]
    {
        traces.append(record(content, workspace, session, timestamp)).await.unwrap();
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
        let found = contents(&*traces, query(workspace, session, limit)).await;
        assert_eq!(found, expected, "{workspace:?} {session:?} {limit}");
    }
}

async fn a_record_round_trips(engine: Engine) {
    let traces = engine.traces(TraceLimits::default());
    let kept = TraceRecord {
        kind: "tool_call".to_owned(),
        metadata: json!({"z": [1, 2.5, -3], "a": {"名前": "\u{0}"}, "n": null, "big": u64::MAX}),
        ..record("'; DROP TABLE traces; --\u{0}", "w\u{202e}", "s", 9_007_199_254_740_993)
    };
    traces.append(kept.clone()).await.unwrap();
    let found = traces.find(query(None, None, 1)).await.unwrap();
    assert_eq!(found, std::slice::from_ref(&kept));
    assert_eq!(found[0].metadata.to_string(), kept.metadata.to_string(), "in the order it was written");
}

async fn the_oldest_are_evicted_beyond_the_entry_limit(engine: Engine) {
    let traces = engine.traces(TraceLimits { max_records: 2, ..TraceLimits::default() });
    for (content, timestamp, expected) in
        [("a", 2, "a"), ("b", 1, "a b"), ("c", 3, "c a"), ("d", 3, "d c"), ("e", 0, "d c")]
    {
        traces.append(record(content, "w", "s", timestamp)).await.unwrap();
        assert_eq!(contents(&*traces, query(None, None, 10)).await, expected, "after {content}");
    }
}

async fn the_oldest_are_evicted_beyond_the_size_limit(engine: Engine) {
    let traces = engine.traces(TraceLimits { max_bytes: 10, ..TraceLimits::default() });
    for (content, timestamp, expected) in
        [("aaa", 1, "aaa"), ("bbb", 2, "bbb aaa"), ("c", 3, "c bbb aaa"), ("dddd", 4, "dddd c")]
    {
        // With its metadata each record counts for one byte more than its content.
        traces.append(record(content, "", "", timestamp)).await.unwrap();
        assert_eq!(contents(&*traces, query(None, None, 10)).await, expected, "after {content}");
    }
}

async fn an_oversized_record_is_refused(engine: Engine) {
    let traces = engine.traces(TraceLimits { max_record_bytes: 5, ..TraceLimits::default() });
    traces.append(record("four", "", "", 1)).await.unwrap();
    let reason = "a trace record of 6 bytes exceeds the limit of 5".to_owned();
    assert_eq!(traces.append(record("five!", "", "", 2)).await, Err(StoreError::Full { reason }));
    assert_eq!(contents(&*traces, query(None, None, 10)).await, "four");
}

async fn deeply_nested_metadata_is_refused(engine: Engine) {
    let traces = engine.traces(TraceLimits::default());
    let nested = |depth: usize| (0..depth).fold(Value::Null, |inner, _| json!({ "inner": [inner] }));
    let kept = TraceRecord { metadata: nested(50), ..record("kept", "w", "s", 1) };
    traces.append(kept.clone()).await.unwrap();
    let reason = "the metadata of a trace record is nested more than 100 levels deep".to_owned();
    let refused = TraceRecord { metadata: nested(51), ..record("refused", "w", "s", 2) };
    assert_eq!(traces.append(refused).await, Err(StoreError::Failed { reason }));
    assert_eq!(traces.find(query(None, None, 10)).await.unwrap(), [kept]);
}
