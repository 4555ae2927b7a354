//! Queues: waiting, scheduling, and calls that need no slot.

use std::time::Duration;

use pegboard_core::call::{Call, Invoker};
use pegboard_core::settings::QueueSettings;
use pegboard_runtime::event::RuntimeEvent;
use pegboard_runtime::{CallerOptions, StartError};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::calls::fixtures::{ExecutionLog, builder, call, caller, line, settle, test_runtime};

fn one_slot() -> Value {
    json!({"queues": {"q": {"maxConcurrency": 1}}})
}

#[tokio::test(start_paused = true)]
async fn calls_are_queued_in_order_of_arrival_and_reported() {
    let runtime = test_runtime(&ExecutionLog::default(), one_slot(), json!({"queue": "q"})).await;
    let caller = caller(&runtime);
    let mut events = runtime.events().subscribe();
    let started = Instant::now();
    let nap = || call(&caller, "t__nap", json!({"ms": 100}));
    let (first, second, third) = tokio::join!(nap(), nap(), nap());
    let waited = [first, second, third].map(|ended| ended.meta.waited.map(|waited| waited.as_millis()));
    assert_eq!(waited, [None, Some(100), Some(200)]);
    assert_eq!(started.elapsed(), Duration::from_millis(300));
    let mut places = Vec::new();
    while let Ok(event) = events.try_recv() {
        if let RuntimeEvent::Queued { place, queue, .. } = event {
            assert_eq!(&*queue, "q");
            places.push(place);
        }
    }
    assert_eq!(places, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_leaves_no_trace_in_the_queue() {
    let log = ExecutionLog::default();
    let runtime = test_runtime(&log, one_slot(), json!({"queue": "q"})).await;
    let caller = caller(&runtime);
    let running = tokio::spawn(caller.start(Call::new("t__gate", json!({}))));
    settle().await;
    let waiting = tokio::spawn(caller.start(Call::new("t__echo", json!({}))));
    settle().await;
    waiting.abort();
    settle().await;
    let depth = |event: &RuntimeEvent| match event {
        RuntimeEvent::QueueDepth { in_use, waiting, .. } => (*in_use, *waiting),
        other => panic!("{other:?}"),
    };
    assert_eq!(depth(&runtime.queues()[0]), (1, 0));
    log.release_one();
    assert_eq!(line(&running.await.unwrap()), "through");
    assert_eq!(depth(&runtime.queues()[0]), (0, 0));
    let failed = caller.tree().snapshot().to_string();
    assert!(failed.contains("canceled"), "{failed}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_queue_does_not_block_another() {
    let settings = json!({"queues": {"slow": {"maxConcurrency": 1}, "fast": {"maxConcurrency": 1}}});
    let server = json!({"tools": {"nap": {"queue": "slow"}, "echo": {"queue": "fast"}}});
    let runtime = test_runtime(&ExecutionLog::default(), settings, server).await;
    let caller = caller(&runtime);
    let naps = [(), ()].map(|()| tokio::spawn(caller.start(Call::new("t__nap", json!({"ms": 1000})))));
    settle().await;
    let ended = call(&caller, "t__echo", json!({"a": 1})).await;
    assert_eq!((line(&ended).as_str(), ended.meta.waited), (r#"{"a":1}"#, None));
    for nap in naps {
        nap.await.unwrap();
    }
}

#[tokio::test]
async fn an_unknown_queue_fails_the_start() {
    for server in [json!({"queue": "y"}), json!({"tools": {"echo": {"queue": "y"}}})] {
        let error = builder(&ExecutionLog::default(), json!({}), server).start().await.unwrap_err();
        assert!(matches!(error, StartError::UnknownQueue { .. }));
        insta::allow_duplicates! {
            insta::assert_snapshot!(error, @"MCP server 't' references unknown queue 'y'. Add it under configuration.queues.");
        }
    }
    assert!(builder(&ExecutionLog::default(), json!({}), json!({"queue": "default"})).start().await.is_ok());
}

#[test]
fn a_queue_has_a_whole_number_of_slots_and_at_least_one() {
    let slots = |text: &str| serde_json::from_str::<QueueSettings>(text).map(|queue| queue.max_concurrency);
    let cases = [("0.5", Some(1)), ("1.9", Some(1)), ("3", Some(3)), ("null", None)];
    for (number, expected) in cases {
        assert_eq!(slots(&format!(r#"{{"concurrent": {number}}}"#)).unwrap(), expected, "{number}");
        assert_eq!(slots(&format!(r#"{{"maxConcurrency": {number}}}"#)).unwrap(), expected, "{number}");
    }
    for number in ["0", "-1", "\"three\""] {
        assert!(slots(&format!(r#"{{"concurrent": {number}}}"#)).is_err(), "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_grows_and_shrinks_while_it_is_in_use() {
    let log = ExecutionLog::default();
    let runtime = test_runtime(&log, one_slot(), json!({"queue": "q"})).await;
    let caller = caller(&runtime);
    let calls: Vec<_> = (0..4).map(|_| tokio::spawn(caller.start(Call::new("t__gate", json!({}))))).collect();
    settle().await;
    assert_eq!(log.n_begun(), 1);
    let queues = |slots: usize| serde_json::from_value(json!({"q": {"maxConcurrency": slots}})).unwrap();
    runtime.configure_queues(&queues(3));
    settle().await;
    assert_eq!(log.n_begun(), 3);
    runtime.configure_queues(&queues(1));
    log.release_one();
    settle().await;
    assert_eq!((log.n_done(), log.n_begun()), (1, 3), "two still run, and only one may");
    for _ in 0..3 {
        log.release_one();
        settle().await;
    }
    for call in calls {
        assert_eq!(line(&call.await.unwrap()), "through");
    }
}

#[tokio::test(start_paused = true)]
async fn the_more_urgent_call_goes_first() {
    let log = ExecutionLog::default();
    let runtime = test_runtime(&log, one_slot(), json!({"queue": "q"})).await;
    let caller = caller(&runtime);
    let first = tokio::spawn(caller.start(Call::new("t__nap", json!({"ms": 10}))));
    settle().await;
    let with_priority = |priority: i8| {
        let mut call = Call::new("t__nap", json!({"ms": 10}));
        call.context.options.priority = Some(priority);
        let running = caller.start(call);
        async move { running.await.meta.waited.unwrap().as_millis() }
    };
    let (low, high) = tokio::join!(with_priority(-3), with_priority(7));
    assert_eq!((low, high), (20, 10));
    first.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_can_bypass_the_queue() {
    let log = ExecutionLog::default();
    let runtime = test_runtime(&log, one_slot(), json!({"queue": "q"})).await;
    let caller = caller(&runtime);
    let _running = tokio::spawn(caller.start(Call::new("t__gate", json!({}))));
    settle().await;
    let mut call = Call::new("t__echo", json!({}));
    call.context.options.bypass_concurrency = true;
    assert_eq!(line(&caller.start(call).await), "{}");
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_and_a_long_wait_are_errors_with_the_queue_named() {
    let settings = json!({"queues": {"q": {"maxConcurrency": 1, "maxWaiting": 1, "waitTimeoutMs": "5s"}}});
    let runtime = test_runtime(&ExecutionLog::default(), settings, json!({"queue": "q"})).await;
    let caller = caller(&runtime);
    let _running = tokio::spawn(caller.start(Call::new("t__gate", json!({}))));
    settle().await;
    let (long, full) = tokio::join!(call(&caller, "t__echo", json!({})), call(&caller, "t__echo", json!({})));
    assert_eq!(line(&long), "queue_timeout: Queue 'q' had no free slot within 5s");
    assert_eq!(line(&full), "queue_timeout: Queue 'q' is full: 1 calls are waiting; try again later");
    assert_eq!((long.duration, full.duration), (None, None));
}

#[tokio::test(start_paused = true)]
async fn without_a_configured_default_queue_no_call_waits() {
    let log = ExecutionLog::default();
    let runtime = test_runtime(&log, json!({}), json!({})).await;
    let caller = caller(&runtime);
    let calls: Vec<_> =
        (0..100).map(|_| tokio::spawn(caller.start(Call::new("t__gate", json!({}))))).collect();
    settle().await;
    assert_eq!(log.n_begun(), 100);
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    // If it is configured, every server tool without a queue of its own goes through it.
    let runtime = test_runtime(&log, json!({"queues": {"default": {"concurrent": 1}}}), json!({})).await;
    let caller = crate::calls::fixtures::caller(&runtime);
    let (_, second) =
        tokio::join!(call(&caller, "t__nap", json!({"ms": 5})), call(&caller, "t__nap", json!({"ms": 5})));
    assert_eq!(second.meta.waited, Some(Duration::from_millis(5)));
}

#[tokio::test(start_paused = true)]
async fn sessions_take_turns() {
    let log = ExecutionLog::default();
    let runtime = test_runtime(&log, one_slot(), json!({"queue": "q"})).await;
    let (greedy, modest) = (caller(&runtime), runtime.caller(CallerOptions::default()));
    let first = tokio::spawn(greedy.start(Call::new("t__nap", json!({"ms": 10}))));
    settle().await;
    let many: Vec<_> =
        (0..5).map(|_| tokio::spawn(greedy.start(Call::new("t__nap", json!({"ms": 10}))))).collect();
    settle().await;
    let ended = call(&modest, "t__nap", json!({"ms": 10})).await;
    assert!(ended.meta.waited.unwrap() <= Duration::from_millis(20), "{:?}", ended.meta.waited);
    first.await.unwrap();
    for one in many {
        one.await.unwrap();
    }
}
