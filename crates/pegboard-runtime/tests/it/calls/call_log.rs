//! The call log.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::future::{FutureExt, join_all};
use pegboard_core::call::{Call, Invoker};
use pegboard_core::owner::OwnerScope;
use pegboard_core::provider::LocalProvider;
use pegboard_core::store::{
    CallLog, CallQuery, CallSummary, FinishedCall, LogBatch, RefusedEntries, SessionSummary, StoreError,
    StoreFuture, TraceQuery, TraceRecord,
};
use pegboard_runtime::{CallerOptions, Runtime, SessionMode};
use pegboard_stores::sqlite::Database;
use serde_json::{Value, json};
use tokio::time;

use crate::calls::fixtures::{ExecutionLog, call, caller, line, tools};

/// A runtime with a call log.
async fn runtime(history: Arc<dyn CallLog>) -> Runtime {
    let chain = json!({"chain": "twice", "steps": [{"tool": "t__echo"}, {"tool": "t__echo"}]});
    Runtime::builder()
        .call_log(history)
        .provide("t", LocalProvider::new(tools(&ExecutionLog::default())))
        .chain(serde_json::from_value(chain).unwrap())
        .start()
        .await
        .unwrap()
}

async fn written(history: &dyn CallLog) -> Vec<CallSummary> {
    let query = CallQuery::newest(OwnerScope::All, 100);
    history.calls(query, SystemTime::now()).await.unwrap()
}

/// Returns the tools called and their outcome, oldest first.
async fn outcomes(history: &dyn CallLog) -> Vec<String> {
    let mut calls = written(history).await;
    calls.sort_by_key(|call| call.started);
    calls.iter().map(|call| format!("{} {}", call.tool, call.error.as_deref().unwrap_or("ok"))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_finished_call_is_persisted_within_200_ms() {
    let history = Arc::new(Database::in_memory());
    let runtime = runtime(history.clone()).await;
    let caller = caller(&runtime);
    for (tool, arguments) in [("t__echo", json!({})), ("t__fail", json!({})), ("t__nap", json!({"ms": 40}))] {
        call(&caller, tool, arguments).await;
        time::sleep(Duration::from_millis(5)).await;
    }
    let given_up = caller.start(Call::new("t__gate", json!({})));
    assert!(time::timeout(Duration::from_millis(1), given_up).await.is_err());
    assert!(written(&*history).await.is_empty());
    time::sleep(Duration::from_millis(200)).await;
    let expected = ["t__echo ok", "t__fail execution_error", "t__nap ok", "t__gate canceled"];
    assert_eq!(outcomes(&*history).await, expected);
    let nap = &written(&*history).await[1];
    assert_eq!((&*nap.session, &nap.owner), (caller.id(), caller.owner()));
    assert!(nap.duration >= Duration::from_millis(40));
}

#[tokio::test(start_paused = true)]
async fn calls_are_persisted_after_their_caller_is_dropped_and_at_shutdown() {
    let history = Arc::new(Database::in_memory());
    let runtime = runtime(history.clone()).await;
    call(&caller(&runtime), "t__echo", json!({})).await;
    runtime.flush_call_log().await;
    assert_eq!(outcomes(&*history).await, ["t__echo ok"]);
    call(&caller(&runtime), "t__fail", json!({})).await;
    runtime.shut_down(Duration::from_secs(1)).await;
    assert_eq!(written(&*history).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn nested_calls_are_persisted_with_their_parent() {
    let history = Arc::new(Database::in_memory());
    let runtime = runtime(history.clone()).await;
    let caller = caller(&runtime);
    assert_eq!(line(&call(&caller, "chain__twice", json!({"a": 1})).await), r#"{"a":1}"#);
    runtime.flush_call_log().await;
    let calls = written(&*history).await;
    assert_eq!(calls.iter().map(|call| &*call.tool).collect::<Vec<_>>(), ["chain__twice"]);
    let past =
        history.calls_by_id(OwnerScope::All, vec![calls[0].id.clone()], SystemTime::now()).await.unwrap();
    let body: Value = serde_json::from_str(&past[0].body).unwrap();
    let steps = body["childSession"]["turns"][0]["ops"].as_array().unwrap();
    assert_eq!(steps.iter().map(|step| &step["name"]).collect::<Vec<_>>(), ["t__echo", "t__echo"]);
}

#[tokio::test(start_paused = true)]
async fn stateless_callers_do_not_lose_calls_to_each_other() {
    let history = Arc::new(Database::in_memory());
    let runtime = runtime(history.clone()).await;
    for _ in 0..3 {
        let options = CallerOptions { session_mode: SessionMode::Stateless, ..CallerOptions::default() };
        call(&runtime.caller(options), "t__echo", json!({})).await;
    }
    runtime.flush_call_log().await;
    assert_eq!(written(&*history).await.len(), 3);
    assert_eq!(history.sessions(OwnerScope::All, 10, SystemTime::now()).await.unwrap()[0].n_calls, 3);
}

/// A store that counts writes and keeps nothing.
#[derive(Default)]
struct Counting {
    n_rounds: AtomicUsize,
    n_calls: AtomicUsize,
}

impl CallLog for Counting {
    fn append(&self, batch: LogBatch, _now: SystemTime) -> StoreFuture<'_, RefusedEntries> {
        self.n_rounds.fetch_add(1, Ordering::SeqCst);
        self.n_calls.fetch_add(batch.count(), Ordering::SeqCst);
        async { Err(StoreError::Failed { reason: "it never does".to_owned() }) }.boxed()
    }

    fn calls_by_id(
        &self,
        _: OwnerScope,
        _: Vec<String>,
        _: SystemTime,
    ) -> StoreFuture<'_, Vec<FinishedCall>> {
        async { Ok(Vec::new()) }.boxed()
    }

    fn calls(&self, _query: CallQuery, _now: SystemTime) -> StoreFuture<'_, Vec<CallSummary>> {
        async { Ok(Vec::new()) }.boxed()
    }

    fn sessions(&self, _: OwnerScope, _: usize, _: SystemTime) -> StoreFuture<'_, Vec<SessionSummary>> {
        async { Ok(Vec::new()) }.boxed()
    }

    fn traces(&self, _query: TraceQuery) -> StoreFuture<'_, Vec<TraceRecord>> {
        async { Ok(Vec::new()) }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn calls_are_written_in_batches_and_a_failing_store_fails_no_call() {
    let history = Arc::new(Counting::default());
    let runtime = runtime(history.clone()).await;
    let caller = caller(&runtime);
    for _ in 0..5 {
        let calls = (0..10).map(|_| call(&caller, "t__nap", json!({"ms": 30})));
        assert!(join_all(calls).await.iter().all(|ended| ended.result.is_ok()));
    }
    time::sleep(Duration::from_secs(3)).await;
    assert_eq!(history.n_calls.load(Ordering::SeqCst), 50);
    assert_eq!(history.n_rounds.load(Ordering::SeqCst), 1);
    call(&caller, "t__echo", json!({})).await;
    time::sleep(Duration::from_secs(3)).await;
    assert_eq!((history.n_calls.load(Ordering::SeqCst), history.n_rounds.load(Ordering::SeqCst)), (51, 2));
}

#[tokio::test]
async fn past_calls_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    for n_before in 0..2 {
        let database = Database::open(&folder.path().join("board.db")).unwrap();
        assert_eq!(written(&database).await.len(), n_before);
        let runtime = runtime(Arc::new(database)).await;
        call(&caller(&runtime), "t__echo", json!({})).await;
        runtime.shut_down(Duration::from_secs(5)).await;
    }
}
