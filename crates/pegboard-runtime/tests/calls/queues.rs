//! Queues: who waits, who goes next, and who holds no slot.

use std::time::Duration;

use pegboard_core::call::{Call, Invoker};
use pegboard_core::settings::QueueSettings;
use pegboard_runtime::event::Event;
use pegboard_runtime::{CallerOptions, StartError};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::board::{Log, board, builder, call, caller, line, settle};

fn one_slot() -> Value {
    json!({"queues": {"q": {"maxConcurrency": 1}}})
}

#[tokio::test(start_paused = true)]
async fn calls_wait_in_the_order_they_came_and_say_so() {
    let runtime = board(&Log::default(), one_slot(), json!({"queue": "q"})).await;
    let caller = caller(&runtime);
    let mut events = runtime.events().subscribe();
    let started = Instant::now();
    let nap = || call(&caller, "t__nap", json!({"ms": 100}));
    let (first, second, third) = tokio::join!(nap(), nap(), nap());
    let waited = [first, second, third].map(|ended| ended.journey.waited.map(|waited| waited.as_millis()));
    assert_eq!(waited, [None, Some(100), Some(200)]);
    assert_eq!(started.elapsed(), Duration::from_millis(300));
    let mut places = Vec::new();
    while let Ok(event) = events.try_recv() {
        if let Event::Queued { place, queue, .. } = event {
            assert_eq!(&*queue, "q");
            places.push(place);
        }
    }
    assert_eq!(places, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_waiting_leaves_no_trace_in_the_queue() {
    let log = Log::default();
    let runtime = board(&log, one_slot(), json!({"queue": "q"})).await;
    let caller = caller(&runtime);
    let running = tokio::spawn(caller.start(Call::new("t__gate", json!({}))));
    settle().await;
    let waiting = tokio::spawn(caller.start(Call::new("t__echo", json!({}))));
    settle().await;
    waiting.abort();
    settle().await;
    let depth = |event: &Event| match event {
        Event::QueueDepth { in_use, waiting, .. } => (*in_use, *waiting),
        other => panic!("{other:?}"),
    };
    assert_eq!(depth(&runtime.queues()[0]), (1, 0));
    log.let_one_go();
    assert_eq!(line(&running.await.unwrap()), "through");
    assert_eq!(depth(&runtime.queues()[0]), (0, 0));
    let failed = caller.tree().snapshot().to_string();
    assert!(failed.contains("canceled"), "{failed}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_queue_does_not_hold_up_another() {
    let settings = json!({"queues": {"slow": {"maxConcurrency": 1}, "fast": {"maxConcurrency": 1}}});
    let server = json!({"tools": {"nap": {"queue": "slow"}, "echo": {"queue": "fast"}}});
    let runtime = board(&Log::default(), settings, server).await;
    let caller = caller(&runtime);
    let naps = [(), ()].map(|()| tokio::spawn(caller.start(Call::new("t__nap", json!({"ms": 1000})))));
    settle().await;
    let ended = call(&caller, "t__echo", json!({"a": 1})).await;
    assert_eq!((line(&ended).as_str(), ended.journey.waited), (r#"{"a":1}"#, None));
    for nap in naps {
        nap.await.unwrap();
    }
}

#[tokio::test]
async fn a_queue_that_is_not_configured_is_an_error_at_the_start() {
    for server in [json!({"queue": "y"}), json!({"tools": {"echo": {"queue": "y"}}})] {
        let error = builder(&Log::default(), json!({}), server).start().await.unwrap_err();
        assert!(matches!(error, StartError::UnknownQueue { .. }));
        insta::allow_duplicates! {
            insta::assert_snapshot!(error, @"MCP server 't' references unknown queue 'y'. Add it under configuration.queues.");
        }
    }
    assert!(builder(&Log::default(), json!({}), json!({"queue": "default"})).start().await.is_ok());
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
    let log = Log::default();
    let runtime = board(&log, one_slot(), json!({"queue": "q"})).await;
    let caller = caller(&runtime);
    let calls: Vec<_> = (0..4).map(|_| tokio::spawn(caller.start(Call::new("t__gate", json!({}))))).collect();
    settle().await;
    assert_eq!(log.n_begun(), 1);
    let queues = |slots: usize| serde_json::from_value(json!({"q": {"maxConcurrency": slots}})).unwrap();
    runtime.configure_queues(&queues(3));
    settle().await;
    assert_eq!(log.n_begun(), 3);
    runtime.configure_queues(&queues(1));
    log.let_one_go();
    settle().await;
    assert_eq!((log.n_done(), log.n_begun()), (1, 3), "two still run, and only one may");
    for _ in 0..3 {
        log.let_one_go();
        settle().await;
    }
    for call in calls {
        assert_eq!(line(&call.await.unwrap()), "through");
    }
}

#[tokio::test(start_paused = true)]
async fn the_more_urgent_call_goes_first() {
    let log = Log::default();
    let runtime = board(&log, one_slot(), json!({"queue": "q"})).await;
    let caller = caller(&runtime);
    let first = tokio::spawn(caller.start(Call::new("t__nap", json!({"ms": 10}))));
    settle().await;
    let with_priority = |priority: i8| {
        let mut call = Call::new("t__nap", json!({"ms": 10}));
        call.context.options.priority = Some(priority);
        let running = caller.start(call);
        async move { running.await.journey.waited.unwrap().as_millis() }
    };
    let (low, high) = tokio::join!(with_priority(-3), with_priority(7));
    assert_eq!((low, high), (20, 10));
    first.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_can_pass_by_the_queue() {
    let log = Log::default();
    let runtime = board(&log, one_slot(), json!({"queue": "q"})).await;
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
    let runtime = board(&Log::default(), settings, json!({"queue": "q"})).await;
    let caller = caller(&runtime);
    let _running = tokio::spawn(caller.start(Call::new("t__gate", json!({}))));
    settle().await;
    let (long, full) = tokio::join!(call(&caller, "t__echo", json!({})), call(&caller, "t__echo", json!({})));
    assert_eq!(line(&long), "queue_timeout: Queue 'q' had no free slot within 5s");
    assert_eq!(line(&full), "queue_timeout: Queue 'q' is full: 1 calls wait already; try again later");
    assert_eq!((long.duration, full.duration), (None, None));
}

#[tokio::test(start_paused = true)]
async fn without_a_configured_default_nobody_waits() {
    let log = Log::default();
    let runtime = board(&log, json!({}), json!({})).await;
    let caller = caller(&runtime);
    let calls: Vec<_> =
        (0..100).map(|_| tokio::spawn(caller.start(Call::new("t__gate", json!({}))))).collect();
    settle().await;
    assert_eq!(log.n_begun(), 100);
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    // With one, every tool of a server that names none goes through it.
    let runtime = board(&log, json!({"queues": {"default": {"concurrent": 1}}}), json!({})).await;
    let caller = crate::board::caller(&runtime);
    let (_, second) =
        tokio::join!(call(&caller, "t__nap", json!({"ms": 5})), call(&caller, "t__nap", json!({"ms": 5})));
    assert_eq!(second.journey.waited, Some(Duration::from_millis(5)));
}

#[tokio::test(start_paused = true)]
async fn sessions_take_turns() {
    let log = Log::default();
    let runtime = board(&log, one_slot(), json!({"queue": "q"})).await;
    let (greedy, modest) = (caller(&runtime), runtime.caller(CallerOptions::default()));
    let first = tokio::spawn(greedy.start(Call::new("t__nap", json!({"ms": 10}))));
    settle().await;
    let many: Vec<_> =
        (0..5).map(|_| tokio::spawn(greedy.start(Call::new("t__nap", json!({"ms": 10}))))).collect();
    settle().await;
    let ended = call(&modest, "t__nap", json!({"ms": 10})).await;
    assert!(ended.journey.waited.unwrap() <= Duration::from_millis(20), "{:?}", ended.journey.waited);
    first.await.unwrap();
    for one in many {
        one.await.unwrap();
    }
}
