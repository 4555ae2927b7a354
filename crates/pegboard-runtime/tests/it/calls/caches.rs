//! Cached answers and single flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::{Call, Invoker, ValidCall};
use pegboard_core::client::{AskError, Client, InputRequests, InputResponses, Notice};
use pegboard_core::duration::Ttl;
use pegboard_core::entry::{ToolAnnotations, ToolEntry};
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::owner::Owner;
use pegboard_core::provider::{LocalProvider, ToolKind};
use pegboard_core::settings::ServerSettings;
use pegboard_json::RawJson;
use pegboard_runtime::{CallerOptions, Runtime};
use pegboard_stores::limits::CacheLimits;
use pegboard_stores::memory;
use serde_json::{Value, json};
use tokio::time;

use crate::calls::fixtures::{ExecutionLog, call, caller, line, settle, test_runtime};

async fn cached(log: &ExecutionLog) -> Runtime {
    test_runtime(log, json!({"queues": {"q": {"maxConcurrency": 1}}}), json!({"cache": "2m", "queue": "q"}))
        .await
}

#[tokio::test(start_paused = true)]
async fn the_order_of_arguments_does_not_matter() {
    let log = ExecutionLog::default();
    let runtime = cached(&log).await;
    let caller = caller(&runtime);
    let arguments = ["{\"a\": 1, \"b\": [2]}", "{\"b\":[2],\"a\":1}"];
    let mut answers = Vec::new();
    for text in arguments {
        let raw = RawJson::parse(text.into()).unwrap();
        let ended = caller.start(Call::new("t__echo", raw)).await;
        answers.push((ended.result.unwrap().into_data(), ended.meta.is_cached));
    }
    assert_eq!(answers, [(json!({"a": 1, "b": [2]}), false), (json!({"a": 1, "b": [2]}), true)]);
    assert_eq!(log.n_begun(), 1);
    // A different spelling of a value may mean something else to a server.
    let raw = RawJson::parse("{\"a\": 1.0, \"b\": [2]}".into()).unwrap();
    caller.start(Call::new("t__echo", raw)).await;
    assert_eq!(log.n_begun(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_reused_until_it_expires() {
    let log = ExecutionLog::default();
    let runtime = cached(&log).await;
    let caller = caller(&runtime);
    for (wait, n_begun) in [(0, 1), (119, 1), (2, 2), (1, 2)] {
        time::advance(Duration::from_secs(wait)).await;
        call(&caller, "t__echo", json!({})).await;
        assert_eq!(log.n_begun(), n_begun, "after {wait} s more");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hit_needs_no_slot() {
    let log = ExecutionLog::default();
    let runtime = cached(&log).await;
    let caller = caller(&runtime);
    call(&caller, "t__echo", json!({})).await;
    let _running = tokio::spawn(caller.start(Call::new("t__gate", json!({}))));
    settle().await;
    let ended = call(&caller, "t__echo", json!({})).await;
    assert!(ended.meta.is_cached && ended.duration.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_not_cached() {
    let log = ExecutionLog::default();
    let runtime = cached(&log).await;
    let caller = caller(&runtime);
    for n_begun in 1..=3 {
        assert_eq!(line(&call(&caller, "t__fail", json!({})).await), "execution_error: boom");
        assert_eq!(log.n_begun(), n_begun);
    }
}

#[tokio::test(start_paused = true)]
async fn the_ttl_of_a_tool_overrides_that_of_its_server() {
    let cases = [
        (json!({"cache": "2m"}), true),
        (json!({}), false),
        (json!({"cache": "off"}), false),
        (json!({"cache": 0}), false),
        (json!({"cache": "2m", "toolsCache": {"echo": "off"}}), false),
        (json!({"toolsCache": {"echo": 60000}}), true),
        (json!({"cache": "off", "tools": {"echo": {"cache": "1h"}}}), true),
    ];
    for (server, is_cached) in cases {
        let runtime = test_runtime(&ExecutionLog::default(), json!({}), server.clone()).await;
        let caller = caller(&runtime);
        call(&caller, "t__echo", json!({})).await;
        assert_eq!(call(&caller, "t__echo", json!({})).await.meta.is_cached, is_cached, "{server}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_mutating_tool_is_cached_only_if_configured_by_name() {
    let writes = ToolAnnotations { read_only: Some(false), ..ToolAnnotations::default() };
    let repeatable = ToolAnnotations { idempotent: Some(true), ..writes.clone() };
    let destroys = ToolAnnotations { destructive: Some(true), ..ToolAnnotations::default() };
    let cases = [
        (ToolAnnotations::default(), json!({"cache": "1m"}), true),
        (writes.clone(), json!({"cache": "1m"}), false),
        (writes.clone(), json!({"toolsCache": {"tool": "1m"}}), true),
        (destroys, json!({"cache": "1m"}), false),
        (repeatable, json!({"cache": "1m"}), true),
        (writes, json!({"tools": {"tool": {"cache": "1m"}}}), true),
    ];
    for (annotations, server, is_cached) in cases {
        let entry = ToolEntry::from_fn("tool", "", |value: Value| async move { Ok(value) })
            .with_annotations(annotations.clone());
        let runtime = with_cache(entry, server.clone()).await;
        let caller = caller(&runtime);
        call(&caller, "t__tool", json!({})).await;
        let again = call(&caller, "t__tool", json!({})).await;
        assert_eq!(again.meta.is_cached, is_cached, "{annotations:?} {server}");
    }
}

async fn with_cache(entry: ToolEntry, server: Value) -> Runtime {
    let settings: ServerSettings = serde_json::from_value(server).unwrap();
    Runtime::builder()
        .cache(Arc::new(memory::MemoryCache::new(CacheLimits::default())))
        .provide("t", LocalProvider::new([entry]).of_kind(ToolKind::Mcp))
        .server_settings(settings)
        .start()
        .await
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn cached_answers_stay_in_their_scope() {
    let cases = [
        (json!({}), [true, true, false, false]),
        (json!({"cacheScope": "principal"}), [true, true, false, false]),
        (json!({"cacheScope": "global"}), [true, true, true, true]),
        (json!({"cacheScope": "tenant"}), [true, true, true, false]),
        (json!({"cacheScope": "session"}), [true, false, false, false]),
    ];
    for (scope, expected) in cases {
        let mut settings = scope.clone();
        settings["cache"] = "1m".into();
        let runtime = test_runtime(&ExecutionLog::default(), json!({}), settings).await;
        let of = |principal: &str, tenant: &str| {
            let owner = Owner::in_tenant(tenant, principal);
            runtime.caller(CallerOptions { owner, ..CallerOptions::default() })
        };
        let ann = of("ann", "acme");
        call(&ann, "t__echo", json!({})).await;
        let others = [ann, of("ann", "acme"), of("bob", "acme"), of("ann", "evil")];
        let mut hits = Vec::new();
        for caller in others {
            hits.push(call(&caller, "t__echo", json!({})).await.meta.is_cached);
        }
        assert_eq!(hits, expected, "{scope}");
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_identical_calls_run_the_tool_once() {
    let log = ExecutionLog::default();
    let runtime = test_runtime(&log, json!({}), json!({"toolsCache": {"nap": "1m"}})).await;
    let callers = [(); 5].map(|()| caller(&runtime));
    let calls = callers.iter().map(|caller| call(caller, "t__nap", json!({"ms": 10})));
    let ends = futures_util::future::join_all(calls).await;
    assert!(ends.iter().all(|ended| line(ended) == "rested"));
    assert_eq!(log.n_begun(), 1);
}

#[tokio::test(start_paused = true)]
async fn when_the_leader_is_dropped_a_follower_leads() {
    let log = ExecutionLog::default();
    let runtime = test_runtime(&log, json!({}), json!({"toolsCache": {"nap": "1m"}})).await;
    let caller = caller(&runtime);
    let leader = tokio::spawn(caller.start(Call::new("t__nap", json!({"ms": 10}))));
    settle().await;
    let joiners = [(); 3].map(|()| tokio::spawn(caller.start(Call::new("t__nap", json!({"ms": 10})))));
    settle().await;
    leader.abort();
    for joiner in joiners {
        assert_eq!(line(&joiner.await.unwrap()), "rested");
    }
    assert_eq!((log.n_begun(), log.n_dropped()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn followers_of_a_failed_leader_get_the_failure() {
    let log = ExecutionLog::default();
    let runtime = test_runtime(&log, json!({"toolTimeout": 5}), json!({"toolsCache": {"nap": "1m"}})).await;
    let caller = caller(&runtime);
    let nap = || call(&caller, "t__nap", json!({"ms": 10}));
    let (one, two) = tokio::join!(nap(), nap());
    assert_eq!(line(&one), "timeout: Tool execution timed out");
    assert_eq!(line(&two), "timeout: Tool execution timed out");
    assert_eq!(log.n_begun(), 1);
}

/// Asks its caller for input and returns the answer.
struct AsksForInput(AtomicUsize);

impl Handler for AsksForInput {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            self.0.fetch_add(1, Ordering::SeqCst);
            let answers = call.context().client().ask(InputRequests::new()).await.unwrap_or_default();
            Ok(Output::new(answers.get("name").map(RawJson::to_value).unwrap_or_default()))
        }
        .boxed()
    }
}

struct NamedClient(&'static str);

impl Client for NamedClient {
    fn notify(&self, _notice: Notice) {}

    fn ask(&self, _questions: InputRequests) -> BoxFuture<'_, Result<InputResponses, AskError>> {
        async move {
            time::sleep(Duration::from_secs(30)).await;
            Ok(InputResponses::from_iter([("name".to_owned(), RawJson::of(self.0))]))
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_used_caller_input_is_not_shared() {
    let handler = Arc::new(AsksForInput(AtomicUsize::new(0)));
    let entry = ToolEntry::from_handler("tool", "", Arc::clone(&handler) as _);
    let runtime = with_cache(entry, json!({"cache": "1h"})).await;
    let ask = |name| {
        let mut call = Call::new("t__tool", json!({}));
        call.context.client = Some(Arc::new(NamedClient(name)));
        caller(&runtime).start(call)
    };
    let (ann, bob) = tokio::join!(ask("ann"), ask("bob"));
    assert_eq!((line(&ann).as_str(), line(&bob).as_str()), ("ann", "bob"));
    let eve = ask("eve").await;
    assert_eq!((line(&eve).as_str(), eve.meta.is_cached), ("eve", false));
    assert_eq!(handler.0.load(Ordering::SeqCst), 3);
}

#[test]
fn times_to_live_parse_human_notation() {
    let day = 86_400_000;
    let cases: [(&str, Option<u64>); 19] = [
        ("2m", Some(120_000)),
        ("250", Some(250)),
        ("1.9", Some(1)),
        ("1.5h", Some(5_400_000)),
        (" 30S ", Some(30_000)),
        ("500ms", Some(500)),
        ("1d", Some(day)),
        ("2w", Some(14 * day)),
        ("1mo", Some(30 * day)),
        ("1MO", Some(30 * day)),
        ("1y", Some(365 * day)),
        ("off", Some(0)),
        ("OFF", Some(0)),
        ("0", Some(0)),
        ("-5", Some(0)),
        ("5x", None),
        ("soon", None),
        ("", None),
        ("-5m", None),
    ];
    for (text, expected) in cases {
        let read = text.parse::<Ttl>().ok().map(|ttl| ttl.as_duration().unwrap_or_default());
        assert_eq!(read, expected.map(Duration::from_millis), "{text:?}");
    }
    let error = "5x".parse::<Ttl>().unwrap_err();
    insta::assert_snapshot!(error, @"cache duration must be 'off', a millisecond number, or a duration like 5m/2h/1d, not '5x'");
}

#[tokio::test]
async fn an_error_answer_is_not_cached() {
    struct Fails(Arc<AtomicUsize>);
    impl Handler for Fails {
        fn call<'a>(&'a self, _: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
            self.0.fetch_add(1, Ordering::SeqCst);
            let result = json!({"content": [{"type": "text", "text": "not today"}], "isError": true});
            std::future::ready(Ok(Output::result(RawJson::from(result)))).boxed()
        }
    }
    let n_calls = Arc::new(AtomicUsize::new(0));
    let entry = ToolEntry::from_handler("tool", "", Arc::new(Fails(Arc::clone(&n_calls))));
    let runtime = with_cache(entry, json!({"cache": "1h"})).await;
    for _ in 0..2 {
        let ended = call(&caller(&runtime), "t__tool", json!({})).await;
        assert_eq!((line(&ended).as_str(), ended.meta.is_cached), ("isError: not today", false));
    }
    assert_eq!(n_calls.load(Ordering::SeqCst), 2);
}
