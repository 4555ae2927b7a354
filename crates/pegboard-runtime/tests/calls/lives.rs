//! Calls that are called off, parked and waited for.

use std::time::Duration;

use pegboard_core::call::{Call, Invoker};
use pegboard_core::error::{CallError, Executed};
use pegboard_runtime::park::ParkError;
use serde_json::json;
use tokio::time::{self, Instant};

use crate::board::{Log, board, call, caller, line, settle};

#[tokio::test(start_paused = true)]
async fn one_call_or_all_of_a_caller_can_be_called_off() {
    let log = Log::default();
    let runtime = board(&log, json!({}), json!({})).await;
    let (ann, bob) = (caller(&runtime), caller(&runtime));
    let gate = || Call::new("t__gate", json!({}));
    let calls = [ann.start(gate()), ann.start(gate()), bob.start(gate())].map(tokio::spawn);
    settle().await;
    let under_way = runtime.calls();
    assert_eq!(under_way.iter().map(|call| call.tool.as_str()).collect::<Vec<_>>(), ["t__gate"; 3]);
    assert!(runtime.cancel(under_way[0].id));
    settle().await;
    assert!(!runtime.cancel(under_way[0].id));
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
async fn a_call_that_waits_is_called_off_before_it_ran() {
    let log = Log::default();
    let runtime = board(&log, json!({"queues": {"q": {"concurrent": 1}}}), json!({"queue": "q"})).await;
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
async fn a_parked_call_goes_on_and_is_there_for_who_parked_it() {
    let log = Log::default();
    let runtime = board(&log, json!({}), json!({})).await;
    let caller = caller(&runtime);
    let hour = Duration::from_hours(1);
    let parking = runtime.parking();
    let ticket = parking.park(caller.start(Call::new("t__nap", json!({"ms": 1000}))), "ann", hour).unwrap();
    assert_eq!(parking.resume(&ticket, "bob").err(), Some(ParkError::Missing));
    time::sleep(Duration::from_mins(1)).await;
    assert_eq!(log.n_done(), 1, "nobody waits, and it goes on");
    assert_eq!(line(&parking.resume(&ticket, "ann").unwrap().await), "rested");
    assert_eq!(parking.resume(&ticket, "ann").err(), Some(ParkError::Missing), "a ticket is good once");
}

#[tokio::test(start_paused = true)]
async fn a_parked_call_that_nobody_comes_for_is_cancelled() {
    let log = Log::default();
    let runtime = board(&log, json!({"toolTimeout": 0}), json!({})).await;
    let caller = caller(&runtime);
    let park = |minutes| {
        let running = caller.start(Call::new("t__gate", json!({})));
        runtime.parking().park(running, "ann", Duration::from_mins(minutes)).unwrap()
    };
    let (brief, patient) = (park(1), park(10));
    time::sleep(Duration::from_mins(2)).await;
    settle().await;
    assert_eq!((log.n_dropped(), runtime.parking().len()), (1, 1));
    assert!(runtime.parking().resume(&brief, "ann").is_err());
    // One that was resumed does not expire any more, and is cancelled by dropping.
    let resumed = tokio::spawn(runtime.parking().resume(&patient, "ann").unwrap());
    time::sleep(Duration::from_mins(30)).await;
    assert_eq!(log.n_dropped(), 1);
    resumed.abort();
    settle().await;
    assert_eq!(log.n_dropped(), 2);
}

#[tokio::test(start_paused = true)]
async fn shutting_down_waits_for_what_runs_and_calls_off_the_rest() {
    let log = Log::default();
    let runtime = board(&log, json!({}), json!({})).await;
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
    assert_eq!(line(&endless.await.unwrap()), "canceled: the call was called off");
    assert_eq!(runtime.shut_down(Duration::from_secs(1)).await, 0, "once more does no harm");
}

#[tokio::test(start_paused = true)]
async fn a_turn_has_so_many_calls_if_so_set() {
    let runtime = board(&Log::default(), json!({}), json!({})).await;
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
async fn who_is_gone_leaves_nothing_behind() {
    let runtime = board(&Log::default(), json!({}), json!({})).await;
    let caller = caller(&runtime);
    let id = caller.id().to_owned();
    assert_eq!(runtime.callers().len(), 1);
    assert!(runtime.find_caller(&id).is_some());
    drop(caller);
    assert_eq!((runtime.callers().len(), runtime.find_caller(&id).is_some()), (0, false));
}
