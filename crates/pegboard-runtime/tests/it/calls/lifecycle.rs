//! Cancelled, suspended and drained calls.

use std::time::Duration;

use pegboard_core::call::{Call, Invoker};
use pegboard_core::error::{CallError, Executed};
use pegboard_core::owner::Owner;
use pegboard_runtime::suspended::SuspendError;
use serde_json::json;
use tokio::time::{self, Instant};

use crate::calls::fixtures::{ExecutionLog, call, caller, line, settle, test_runtime};

fn ann() -> Owner {
    Owner::new("ann")
}

#[tokio::test(start_paused = true)]
async fn one_call_or_all_calls_of_a_caller_can_be_cancelled() {
    let log = ExecutionLog::default();
    let runtime = test_runtime(&log, json!({}), json!({})).await;
    let (ann, bob) = (caller(&runtime), caller(&runtime));
    let gate = || Call::new("t__gate", json!({}));
    let calls = [ann.start(gate()), ann.start(gate()), bob.start(gate())].map(tokio::spawn);
    settle().await;
    let in_flight = runtime.calls();
    assert_eq!(in_flight.iter().map(|call| call.tool.as_str()).collect::<Vec<_>>(), ["t__gate"; 3]);
    assert!(runtime.cancel(in_flight[0].id));
    settle().await;
    assert!(!runtime.cancel(in_flight[0].id));
    assert_eq!((ann.cancel_all(), log.n_dropped()), (1, 1));
    settle().await;
    assert_eq!((runtime.cancel_all(), runtime.calls().len()), (1, 1));
    for call in calls {
        let error = call.await.unwrap().result.unwrap_err();
        assert!(matches!(error, CallError::Canceled { executed: Executed::Yes, .. }), "{error:?}");
    }
    assert_eq!((log.n_dropped(), runtime.calls().len()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_queued_call_is_cancelled_before_it_runs() {
    let log = ExecutionLog::default();
    let runtime =
        test_runtime(&log, json!({"queues": {"q": {"concurrent": 1}}}), json!({"queue": "q"})).await;
    let caller = caller(&runtime);
    let _running = tokio::spawn(caller.start(Call::new("t__gate", json!({}))));
    settle().await;
    let waiting = tokio::spawn(caller.start(Call::new("t__echo", json!({}))));
    settle().await;
    runtime.cancel(runtime.calls()[1].id);
    let error = waiting.await.unwrap().result.unwrap_err();
    assert!(matches!(error, CallError::Canceled { executed: Executed::No, .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_suspended_call_continues_and_can_be_resumed_by_its_principal() {
    let log = ExecutionLog::default();
    let runtime = test_runtime(&log, json!({}), json!({})).await;
    let caller = caller(&runtime);
    let hour = Duration::from_hours(1);
    let suspended = runtime.suspended_calls();
    let token =
        suspended.suspend(caller.start(Call::new("t__nap", json!({"ms": 1000}))), &ann(), hour).unwrap();
    assert_eq!(suspended.resume(&token, &Owner::new("bob")).err(), Some(SuspendError::Missing));
    time::sleep(Duration::from_mins(1)).await;
    assert_eq!(log.n_done(), 1, "it runs without a waiting caller");
    assert_eq!(line(&suspended.resume(&token, &ann()).unwrap().await), "rested");
    assert_eq!(
        suspended.resume(&token, &ann()).err(),
        Some(SuspendError::Missing),
        "a token can be used once"
    );
}

#[tokio::test(start_paused = true)]
async fn a_suspended_call_that_is_not_resumed_is_cancelled() {
    let log = ExecutionLog::default();
    let runtime = test_runtime(&log, json!({"toolTimeout": 0}), json!({})).await;
    let caller = caller(&runtime);
    let suspend_for = |minutes| {
        let running = caller.start(Call::new("t__gate", json!({})));
        runtime.suspended_calls().suspend(running, &ann(), Duration::from_mins(minutes)).unwrap()
    };
    let (brief, patient) = (suspend_for(1), suspend_for(10));
    time::sleep(Duration::from_mins(2)).await;
    settle().await;
    assert_eq!((log.n_dropped(), runtime.suspended_calls().len()), (1, 1));
    assert!(runtime.suspended_calls().resume(&brief, &ann()).is_err());
    // A resumed call no longer expires, and is cancelled by dropping.
    let resumed = tokio::spawn(runtime.suspended_calls().resume(&patient, &ann()).unwrap());
    time::sleep(Duration::from_mins(30)).await;
    assert_eq!(log.n_dropped(), 1);
    resumed.abort();
    settle().await;
    assert_eq!(log.n_dropped(), 2);
}

#[tokio::test(start_paused = true)]
async fn shutdown_drains_calls_and_cancels_the_rest() {
    let log = ExecutionLog::default();
    let runtime = test_runtime(&log, json!({}), json!({})).await;
    let caller = caller(&runtime);
    let quick = tokio::spawn(caller.start(Call::new("t__nap", json!({"ms": 500}))));
    let endless = tokio::spawn(caller.start(Call::new("t__gate", json!({}))));
    settle().await;
    let started = Instant::now();
    let closing = {
        let runtime = runtime.clone();
        tokio::spawn(async move { runtime.shut_down(Duration::from_secs(2)).await })
    };
    settle().await;
    assert_eq!(line(&call(&caller, "t__echo", json!({})).await), "canceled: Pegboard is shutting down");
    assert_eq!(closing.await.unwrap(), 1);
    assert_eq!(started.elapsed(), Duration::from_secs(2));
    assert_eq!(line(&quick.await.unwrap()), "rested");
    assert_eq!(line(&endless.await.unwrap()), "canceled: the call was cancelled");
    assert_eq!(runtime.shut_down(Duration::from_secs(1)).await, 0, "once more does no harm");
}

#[tokio::test(start_paused = true)]
async fn calls_per_turn_can_be_limited() {
    let runtime = test_runtime(&ExecutionLog::default(), json!({}), json!({})).await;
    let options = pegboard_runtime::CallerOptions { max_calls_per_turn: Some(1), ..Default::default() };
    let caller = runtime.caller(options);
    assert_eq!(line(&call(&caller, "t__echo", json!({})).await), "{}");
    let second = call(&caller, "t__echo", json!({})).await;
    assert!(
        line(&second).starts_with("limit_exceeded: tool_calls_per_turn_limit_exceeded"),
        "{}",
        line(&second)
    );
    caller.next_turn();
    assert_eq!(line(&call(&caller, "t__echo", json!({})).await), "{}");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_caller_leaves_nothing_behind() {
    let runtime = test_runtime(&ExecutionLog::default(), json!({}), json!({})).await;
    let caller = caller(&runtime);
    assert_eq!(runtime.callers().len(), 1);
    drop(caller);
    assert_eq!(runtime.callers().len(), 0);
}
