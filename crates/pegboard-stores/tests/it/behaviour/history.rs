//! Past calls.

use std::time::Duration;

use bytes::Bytes;
use pegboard_core::store::{
    CallSummary, FinishedCall, HistoryQuery, HistoryStore, SessionSummary, StoreError,
};
use pegboard_stores::limits::HistoryLimits;

use crate::behaviour::engine::{Engine, at, on_every_engine};

on_every_engine!(
    a_call_round_trips_until_it_expires,
    queries_filter_calls_newest_first,
    a_call_replaces_the_one_with_its_id,
    the_oldest_are_evicted_beyond_the_limits,
    an_oversized_call_is_refused_with_its_batch,
    sessions_are_counted_from_their_calls,
);

/// A call of the session `s-<owner>` that started at this second.
fn call(id: &str, owner: &str, started: u64) -> FinishedCall {
    FinishedCall {
        summary: CallSummary {
            id: id.to_owned(),
            session: format!("s-{owner}"),
            owner: owner.to_owned(),
            tool: "notes__add".to_owned(),
            error: None,
            started: at(started),
            duration: Duration::from_micros(1_234),
        },
        expires: at(100),
        body: Bytes::from_static(b"{}"),
    }
}

fn failed(id: &str, owner: &str, started: u64) -> FinishedCall {
    let mut call = call(id, owner, started);
    call.summary.error = Some("timeout".to_owned());
    call
}

async fn found(history: &dyn HistoryStore, query: HistoryQuery, now: u64) -> String {
    let calls = history.calls(query, at(now)).await.unwrap();
    calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>().join(" ")
}

fn all() -> HistoryQuery {
    HistoryQuery { limit: 100, ..HistoryQuery::default() }
}

async fn a_call_round_trips_until_it_expires(engine: Engine) {
    let history = engine.history(HistoryLimits::default());
    let kept = FinishedCall { body: Bytes::from_static(b"\x00\xff"), ..failed("a'; --", "\u{e9}", 3) };
    history.add(vec![kept.clone()], at(0)).await.unwrap();
    assert_eq!(history.get("a'; --".to_owned(), at(99)).await.unwrap(), Some(kept.clone()));
    assert_eq!(history.calls(all(), at(99)).await.unwrap(), [kept.summary]);
    assert_eq!(history.get("a'; --".to_owned(), at(100)).await.unwrap(), None);
    assert_eq!(found(&*history, all(), 100).await, "");
    assert_eq!(history.sessions(None, 10, at(100)).await.unwrap(), []);
}

async fn queries_filter_calls_newest_first(engine: Engine) {
    let history = engine.history(HistoryLimits::default());
    let calls =
        vec![call("aa1", "ann", 1), call("ab2", "bob", 3), call("ab1", "ann", 2), call("b", "bob", 3)];
    history.add(calls, at(0)).await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    for (query, expected) in [
        (all(), "b ab2 ab1 aa1"),
        (HistoryQuery { limit: 1, ..all() }, "b"),
        (HistoryQuery { id_prefix: text("ab"), ..all() }, "ab2 ab1"),
        (HistoryQuery { id_prefix: text("ab1"), ..all() }, "ab1"),
        (HistoryQuery { id_prefix: text("a_"), ..all() }, ""),
        (HistoryQuery { id_prefix: text("a%"), ..all() }, ""),
        (HistoryQuery { session: text("s-ann"), ..all() }, "ab1 aa1"),
        (HistoryQuery { owner: text("bob"), ..all() }, "b ab2"),
        (HistoryQuery { owner: text("bob"), session: text("s-ann"), ..all() }, ""),
        (HistoryQuery { owner: text("bob"), id_prefix: text("a"), ..all() }, "ab2"),
    ] {
        assert_eq!(found(&*history, query.clone(), 0).await, expected, "{query:?}");
    }
}

async fn a_call_replaces_the_one_with_its_id(engine: Engine) {
    let history = engine.history(HistoryLimits { max_calls: 2, ..HistoryLimits::default() });
    history.add(vec![call("a", "ann", 1), call("b", "ann", 2)], at(0)).await.unwrap();
    history.add(vec![failed("a", "ann", 3)], at(0)).await.unwrap();
    assert_eq!(found(&*history, all(), 0).await, "a b");
    assert_eq!(history.get("a".to_owned(), at(0)).await.unwrap(), Some(failed("a", "ann", 3)));
}

async fn the_oldest_are_evicted_beyond_the_limits(engine: Engine) {
    let history = engine.history(HistoryLimits { max_calls: 3, ..HistoryLimits::default() });
    let calls = (0..5).map(|n| call(&format!("c{n}"), "ann", 10 - n)).collect();
    history.add(calls, at(0)).await.unwrap();
    assert_eq!(found(&*history, all(), 0).await, "c0 c1 c2");
    // Expired calls are removed before old ones.
    let brief = FinishedCall { expires: at(5), ..call("d", "ann", 50) };
    history.add(vec![brief], at(0)).await.unwrap();
    history.add(vec![call("e", "ann", 60)], at(6)).await.unwrap();
    assert_eq!(found(&*history, all(), 6).await, "e c0 c1");
    let engine = engine.other();
    let history = engine.history(HistoryLimits { max_bytes: 100, ..HistoryLimits::default() });
    let large = |id: &str, started| FinishedCall { body: vec![b'x'; 60].into(), ..call(id, "ann", started) };
    history.add(vec![large("a", 1), large("b", 2)], at(0)).await.unwrap();
    assert_eq!(found(&*history, all(), 0).await, "b");
}

async fn an_oversized_call_is_refused_with_its_batch(engine: Engine) {
    let history = engine.history(HistoryLimits { max_call_bytes: 50, ..HistoryLimits::default() });
    let large = FinishedCall { body: vec![b'x'; 60].into(), ..call("b", "ann", 1) };
    let refused = history.add(vec![call("a", "ann", 1), large], at(0)).await.unwrap_err();
    let reason = "a call record of 79 bytes exceeds the limit of 50".to_owned();
    assert_eq!(refused, StoreError::Full { reason });
    assert_eq!(found(&*history, all(), 0).await, "");
}

async fn sessions_are_counted_from_their_calls(engine: Engine) {
    let history = engine.history(HistoryLimits::default());
    let calls = vec![call("a", "ann", 5), failed("b", "bob", 7), failed("c", "ann", 9), call("d", "ann", 2)];
    history.add(calls, at(0)).await.unwrap();
    let session = |owner: &str, started, used, n_calls, n_failed| SessionSummary {
        id: format!("s-{owner}"),
        owner: owner.to_owned(),
        started: at(started),
        used: at(used),
        n_calls,
        n_failed,
    };
    let (ann, bob) = (session("ann", 2, 9, 3, 1), session("bob", 7, 7, 1, 1));
    assert_eq!(history.sessions(None, 10, at(0)).await.unwrap(), [ann.clone(), bob.clone()]);
    assert_eq!(history.sessions(None, 1, at(0)).await.unwrap(), [ann]);
    assert_eq!(history.sessions(Some("bob".to_owned()), 10, at(0)).await.unwrap(), [bob]);
    assert_eq!(history.sessions(Some("eve".to_owned()), 10, at(0)).await.unwrap(), []);
}
