//! Several runtimes over one database: persistence and sharing.

use std::sync::Arc;

use pegboard_core::call::{Call, Invoker};
use pegboard_core::settings::ServerSettings;
use pegboard_runtime::{CallerOptions, Runtime, RuntimeBuilder, SessionMode};
use pegboard_stores::sqlite::Database;
use serde_json::json;

use crate::calls::fixtures::{ExecutionLog, call, caller, line, settle, tools};

fn builder_over(
    database: &Database,
    log: &ExecutionLog,
    settings: serde_json::Value,
    server: serde_json::Value,
) -> RuntimeBuilder {
    let server: ServerSettings = serde_json::from_value(server).unwrap();
    Runtime::builder()
        .settings(serde_json::from_value(settings).unwrap())
        .cache(Arc::new(database.clone()))
        .outputs(Arc::new(database.clone()))
        .sessions(Arc::new(database.clone()))
        .call_log(Arc::new(database.clone()))
        .slots(Arc::new(database.clone()))
        .provide("t", pegboard_core::provider::LocalProvider::new(tools(log)))
        .server_settings(server)
}

#[tokio::test]
async fn the_cache_and_sessions_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let log = ExecutionLog::default();
    let mut sessions = Vec::new();
    for is_cached in [false, true] {
        let database = Database::open(&folder.path().join("board.db")).unwrap();
        let runtime = builder_over(&database, &log, json!({}), json!({"cache": "1h"})).start().await.unwrap();
        let caller = caller(&runtime);
        let ended = call(&caller, "t__echo", json!({"a": 1})).await;
        assert_eq!((line(&ended).as_str(), ended.meta.is_cached), (r#"{"a":1}"#, is_cached));
        let mut named = Call::new("t__fail", json!({"context": {"sessionId": "budget work"}}));
        named.context.options.reads_context = true;
        sessions.push(caller.start(named).await.meta.session.unwrap().id);
        runtime.shut_down(std::time::Duration::from_secs(5)).await;
    }
    assert_eq!(sessions[0], sessions[1]);
    assert_eq!(log.n_begun(), 3);
}

#[tokio::test]
async fn a_stored_output_survives_a_restart_for_a_returning_caller() {
    let folder = tempfile::tempdir().unwrap();
    let mut handles = Vec::new();
    for is_first in [true, false] {
        let database = Database::open(&folder.path().join("board.db")).unwrap();
        let settings = json!({"toolResponseMaxBytes": 100});
        let runtime =
            builder_over(&database, &ExecutionLog::default(), settings, json!({})).start().await.unwrap();
        for (session_mode, comes_back) in [(SessionMode::Stateless, true), (SessionMode::Session, false)] {
            let caller = runtime.caller(CallerOptions { session_mode, ..CallerOptions::default() });
            caller.open("default").await.unwrap();
            if is_first {
                let ended = call(&caller, "t__big", json!({"bytes": 500})).await;
                handles.push(ended.meta.stored.unwrap().to_string());
            }
            let handle = &handles[usize::from(!comes_back)];
            let read =
                call(&caller, "tool_output", json!({"handle": handle, "mode": "head", "lines": 1})).await;
            let is_there = line(&read).starts_with("a line");
            assert_eq!(is_there, is_first || comes_back, "{session_mode:?}: {}", line(&read));
        }
        runtime.shut_down(std::time::Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn two_runtimes_share_the_slots_of_a_queue() {
    let folder = tempfile::tempdir().unwrap();
    let log = ExecutionLog::default();
    let open = || async {
        let database = Database::open(&folder.path().join("board.db")).unwrap();
        let settings = json!({"queues": {"q": {"maxConcurrency": 1, "shared": true}}});
        builder_over(&database, &log, settings, json!({"queue": "q"})).start().await.unwrap()
    };
    let (here, there) = (open().await, open().await);
    let first = tokio::spawn(caller(&here).start(Call::new("t__gate", json!({}))));
    while log.n_begun() == 0 {
        tokio::task::yield_now().await;
    }
    let second = tokio::spawn(caller(&there).start(Call::new("t__echo", json!({}))));
    settle().await;
    assert_eq!(log.n_begun(), 1, "the other runtime has the only slot");
    log.release_one();
    assert_eq!(line(&first.await.unwrap()), "through");
    let second = second.await.unwrap();
    assert_eq!(line(&second), "{}");
    assert!(second.meta.waited.is_some());
}

#[tokio::test]
async fn an_unusable_store_fails_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("board.db");
    std::fs::write(&path, "this is no database, and is long enough to be taken for something else").unwrap();
    let error = Database::open(&path).unwrap_err().to_string();
    assert!(error.contains("cannot be opened"), "{error}");
}

#[tokio::test]
async fn a_lease_granted_after_the_caller_left_is_released() {
    use pegboard_core::store::{LeaseId, SlotStore, StoreFuture};
    use pegboard_stores::limits::SlotLimits;
    use std::time::SystemTime;

    /// Grants a slot only after a delay.
    struct SlowSlots(pegboard_stores::memory::MemorySlots);

    impl SlotStore for SlowSlots {
        fn lease(
            &self,
            queue: String,
            capacity: usize,
            now: SystemTime,
            expires: SystemTime,
        ) -> StoreFuture<'_, Option<LeaseId>> {
            Box::pin(async move {
                settle().await;
                self.0.lease(queue, capacity, now, expires).await
            })
        }

        fn renew(&self, lease: LeaseId, now: SystemTime, expires: SystemTime) -> StoreFuture<'_, bool> {
            self.0.renew(lease, now, expires)
        }

        fn release(&self, lease: LeaseId) -> StoreFuture<'_, ()> {
            self.0.release(lease)
        }
    }

    let log = ExecutionLog::default();
    let settings = json!({"queues": {"q": {"maxConcurrency": 1, "shared": true}}});
    let server: ServerSettings = serde_json::from_value(json!({"queue": "q"})).unwrap();
    let runtime = Runtime::builder()
        .settings(serde_json::from_value(settings).unwrap())
        .slots(Arc::new(SlowSlots(pegboard_stores::memory::MemorySlots::new(SlotLimits::default()))))
        .provide("t", pegboard_core::provider::LocalProvider::new(tools(&log)))
        .server_settings(server)
        .start()
        .await
        .unwrap();
    let caller = caller(&runtime);
    let given_up = tokio::spawn(caller.start(Call::new("t__echo", json!({}))));
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    given_up.abort();
    settle().await;
    settle().await;
    let ended =
        tokio::time::timeout(std::time::Duration::from_secs(10), call(&caller, "t__echo", json!({}))).await;
    assert_eq!(line(&ended.expect("the slot is free again")), "{}");
}
