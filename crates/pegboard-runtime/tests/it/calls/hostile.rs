//! Hostile or unlucky tools, callers and arguments.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::{Call, CallContext, CallResult, Invoker, ValidCall};
use pegboard_core::client::{
    AskError, Client, InputRequest, InputRequests, InputResponses, Notice, ProgressUpdate,
};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, ToolError};
use pegboard_core::handler::Handler;
use pegboard_core::id::{ServerName, ToolboxName};
use pegboard_core::output::Output;
use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::provider::{LocalProvider, ProviderMethod, ProviderRequest, ToolKind};
use pegboard_core::settings::ServerSettings;
use pegboard_json::RawJson;
use pegboard_runtime::event::RuntimeEvent;
use pegboard_runtime::requests::ServerId;
use pegboard_runtime::{Caller, CallerOptions, Runtime, RuntimeBuilder, SessionMode};
use pegboard_stores::limits::CacheLimits;
use pegboard_stores::memory;
use pegboard_stores::sqlite::Database;
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use crate::calls::fixtures::{ExecutionLog, SlowServer, builder, call, caller, line, settle, test_runtime};

/// A tool that runs a function.
struct FnTool<F>(F);

impl<F> Handler for FnTool<F>
where
    F: for<'a> Fn(&'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> + Send + Sync + 'static,
{
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        (self.0)(call)
    }
}

fn fn_tool<F>(name: &'static str, work: F) -> ToolEntry
where
    F: for<'a> Fn(&'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> + Send + Sync + 'static,
{
    ToolEntry::from_handler(name, "", Arc::new(FnTool(work)))
}

/// Returns a builder with the server `s` of these tools.
fn runtime_with_tools(
    tools: impl IntoIterator<Item = ToolEntry>,
    settings: Value,
    server: Value,
) -> RuntimeBuilder {
    let server: ServerSettings = serde_json::from_value(server).unwrap();
    Runtime::builder()
        .settings(serde_json::from_value(settings).unwrap())
        .cache(Arc::new(memory::MemoryCache::new(CacheLimits::default())))
        .outputs(Arc::new(Database::in_memory()))
        .provide("s", LocalProvider::new(tools).of_kind(ToolKind::Mcp))
        .server_settings(server)
}

/// A client that answers with its name after a delay.
struct DelayedClient(&'static str, Duration);

impl Client for DelayedClient {
    fn notify(&self, _: Notice) {}

    fn ask(&self, _: InputRequests) -> BoxFuture<'_, Result<InputResponses, AskError>> {
        async move {
            time::sleep(self.1).await;
            Ok(InputResponses::from_iter([("name".to_owned(), RawJson::of(self.0))]))
        }
        .boxed()
    }
}

fn call_with_client(client: DelayedClient, tool: &str, arguments: Value) -> Call {
    let mut call = Call::new(tool, arguments);
    call.context.client = Some(Arc::new(client));
    call
}

async fn ask(context: &CallContext) -> Result<Output, CallError> {
    let question = InputRequest { method: "elicitation/create".to_owned(), params: RawJson::empty_object() };
    let answers = context.client().ask(InputRequests::from_iter([("name".to_owned(), question)])).await;
    let answers = answers.map_err(|error| CallError::Failed(ToolError::from(error)))?;
    Ok(Output::new(answers["name"].to_value()))
}

/// A tool that asks its caller for input.
fn asking_tool() -> ToolEntry {
    fn_tool("asks", |call| ask(call.context()).boxed())
}

/// A tool that calls another one and returns its answer.
fn calling_tool(name: &'static str, other: &'static str) -> ToolEntry {
    fn_tool(name, move |call| {
        let running = call.context().tools.as_ref().unwrap().start(Call::new(other, json!({})));
        async move { running.await.result }.boxed()
    })
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_a_tool_is_dropped_stays_within_the_call() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("a bomb in the tool"));
        }
    }
    let bomb = fn_tool("bomb", |_| {
        async {
            let _bomb = Bomb;
            time::sleep(Duration::from_hours(1)).await;
            Ok(Output::new(Value::Null))
        }
        .boxed()
    });
    let runtime = runtime_with_tools([bomb], json!({"toolTimeout": 10}), json!({})).start().await.unwrap();
    let caller = caller(&runtime);
    assert_eq!(line(&call(&caller, "s__bomb", json!({})).await), "timeout: Tool execution timed out");
    let token = runtime
        .suspended_calls()
        .suspend(caller.start(Call::new("s__bomb", json!({}))), caller.owner(), Duration::from_mins(1))
        .unwrap();
    drop(runtime.suspended_calls().resume(&token, caller.owner()).unwrap());
    let _ = runtime
        .suspended_calls()
        .suspend(caller.start(Call::new("s__bomb", json!({}))), caller.owner(), Duration::from_millis(1))
        .unwrap();
    time::sleep(Duration::from_secs(1)).await;
    assert_eq!((runtime.suspended_calls().len(), runtime.calls().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_used_input_of_a_nested_call_is_not_shared() {
    let runtime = runtime_with_tools(
        [asking_tool(), calling_tool("outer", "s__asks")],
        json!({}),
        json!({"toolsCache": {"outer": "1h"}}),
    )
    .start()
    .await
    .unwrap();
    for name in ["ann", "eve"] {
        let ended = caller(&runtime)
            .start(call_with_client(DelayedClient(name, Duration::from_secs(1)), "s__outer", json!({})))
            .await;
        assert_eq!(line(&ended), name);
    }
}

#[tokio::test(start_paused = true)]
async fn an_input_request_pauses_the_clocks_of_all_ancestors() {
    let tools = [asking_tool(), calling_tool("outer", "s__asks")];
    let chain = json!({"chain": "c", "steps": [{"tool": "s__asks", "as": "name", "timeout": "1s"}], "output": "name"});
    let runtime = runtime_with_tools(tools, json!({"toolTimeout": 500}), json!({}))
        .chain(serde_json::from_value(chain).unwrap())
        .start()
        .await
        .unwrap();
    let batch = json!({"calls": [{"tool": "s__asks"}]});
    for (tool, arguments) in [("s__outer", json!({})), ("chain__c", json!({})), ("batch", batch)] {
        let mut call = call_with_client(DelayedClient("ann", Duration::from_mins(1)), tool, arguments);
        call.context.deadline = Some(Instant::now() + Duration::from_millis(500));
        let ended = caller(&runtime).start(call).await;
        assert!(line(&ended).contains("ann"), "{tool}: {}", line(&ended));
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_asks_forever_is_stopped() {
    let nags = fn_tool("nags", |call| {
        async move {
            loop {
                let _ = ask(call.context()).await;
                time::sleep(Duration::from_millis(1)).await;
            }
        }
        .boxed()
    });
    let runtime = runtime_with_tools([nags], json!({"toolTimeout": 1000}), json!({})).start().await.unwrap();
    let started = Instant::now();
    let ended = caller(&runtime)
        .start(call_with_client(DelayedClient("ann", Duration::from_mins(4)), "s__nags", json!({})))
        .await;
    assert_eq!(line(&ended), "timeout: Tool execution timed out");
    assert!(started.elapsed() < Duration::from_hours(2), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_cached_tool_that_calls_itself_does_not_deadlock() {
    let runtime = runtime_with_tools(
        [calling_tool("loops", "s__loops")],
        json!({"toolTimeout": 0}),
        json!({"cache": "1h"}),
    )
    .start()
    .await
    .unwrap();
    let ended =
        time::timeout(Duration::from_mins(1), call(&caller(&runtime), "s__loops", json!({}))).await.unwrap();
    assert_eq!(line(&ended), "limit_exceeded: calls are nested deeper than 16 levels");
}

#[tokio::test(start_paused = true)]
async fn a_nested_call_uses_the_slot_of_its_parent() {
    let inner = ToolEntry::from_fn("inner", "", |_: Value| async { Ok("done") });
    let settings = json!({"toolTimeout": 0, "queues": {"q": {"maxConcurrency": 1}}});
    let runtime =
        runtime_with_tools([inner, calling_tool("outer", "s__inner")], settings, json!({"queue": "q"}))
            .start()
            .await
            .unwrap();
    let ended =
        time::timeout(Duration::from_mins(1), call(&caller(&runtime), "s__outer", json!({}))).await.unwrap();
    assert_eq!(line(&ended), "done");
}

#[tokio::test(start_paused = true)]
async fn every_follower_keeps_its_own_limits() {
    let log = ExecutionLog::default();
    let runtime = test_runtime(&log, json!({}), json!({"toolsCache": {"nap": "1m"}})).await;
    let caller = caller(&runtime);
    let within = |millis: Option<u64>| {
        let mut call = Call::new("t__nap", json!({"ms": 1000}));
        call.context.options.timeout = millis.map(Duration::from_millis);
        caller.start(call)
    };
    let started = Instant::now();
    let (hasty, patient, hasty_too) = tokio::join!(within(Some(10)), within(None), async {
        let ended = within(Some(50)).await;
        (ended, started.elapsed())
    });
    assert_eq!(line(&hasty), "timeout: Tool execution timed out");
    assert_eq!(line(&patient), "rested");
    assert_eq!(
        (line(&hasty_too.0).as_str(), hasty_too.1.as_millis() <= 60),
        ("timeout: Tool execution timed out", true)
    );
}

#[tokio::test]
async fn cached_answers_are_not_shared_between_toolboxes() {
    let says = |text: &'static str| {
        Arc::new(LocalProvider::new([ToolEntry::from_fn("get", "", move |_: Value| async move { Ok(text) })]))
    };
    let cached = || serde_json::from_value::<ServerSettings>(json!({"cache": "1h"})).unwrap();
    let runtime = Runtime::builder()
        .cache(Arc::new(memory::MemoryCache::new(CacheLimits::default())))
        .toolbox("prod", "")
        .provide("db", says("PROD"))
        .server_settings(cached())
        .toolbox("test", "")
        .provide("db", says("TEST"))
        .server_settings(cached())
        .start()
        .await
        .unwrap();
    let caller = caller(&runtime);
    for (tool, expected) in [("prod__db__get", "PROD"), ("test__db__get", "TEST"), ("prod__db__get", "PROD")]
    {
        assert_eq!(line(&call(&caller, tool, json!({})).await), expected);
    }
}

#[tokio::test]
async fn ambiguous_arguments_are_not_cached() {
    let log = ExecutionLog::default();
    let runtime = test_runtime(&log, json!({}), json!({"cache": "1h", "validateArguments": "server"})).await;
    let caller = caller(&runtime);
    for text in [r#"{"id":6,"id":1}"#, r#"{"id":1}"#] {
        let ended = caller.start(Call::new("t__echo", RawJson::parse(text.into()).unwrap())).await;
        assert!(!ended.meta.is_cached, "{text}");
    }
    let checked = test_runtime(&log, json!({}), json!({})).await;
    let twice = Call::new("t__echo", RawJson::parse(r#"{"id":6,"id":1}"#.into()).unwrap());
    let refused = crate::calls::fixtures::caller(&checked).start(twice).await;
    assert_eq!(refused.result.unwrap_err().text(), "Invalid arguments: $: duplicate key 'id'");
}

fn caller_of(runtime: &Runtime, principal: &str, tenant: &str, session_mode: SessionMode) -> Caller {
    let owner = Owner::in_tenant(tenant, principal);
    runtime.caller(CallerOptions { owner, session_mode, ..CallerOptions::default() })
}

#[tokio::test]
async fn a_principal_is_not_a_tenant_of_the_same_name() {
    let runtime =
        test_runtime(&ExecutionLog::default(), json!({}), json!({"cache": "1h", "cacheScope": "tenant"}))
            .await;
    let hits = |caller: Caller| async move { call(&caller, "t__echo", json!({})).await.meta.is_cached };
    assert!(!hits(caller_of(&runtime, "ann", "acme", SessionMode::AllOpen)).await);
    assert!(!hits(caller_of(&runtime, "acme", "", SessionMode::AllOpen)).await);
    assert!(hits(caller_of(&runtime, "bob", "acme", SessionMode::AllOpen)).await);
}

#[tokio::test]
async fn sessions_of_two_tenants_are_separate_even_for_equal_principals() {
    let runtime = builder(&ExecutionLog::default(), json!({}), json!({}))
        .sessions(Arc::new(Database::in_memory()))
        .start()
        .await
        .unwrap();
    let enter = |tenant: &'static str| {
        let caller = caller_of(&runtime, "ann", tenant, SessionMode::AllOpen);
        async move {
            let mut call = Call::new("t__echo", json!({"context": {"sessionId": "w"}}));
            call.context.options.reads_context = true;
            let session = caller.start(call).await.meta.session.unwrap();
            (session.id, session.notice.is_some())
        }
    };
    // A handle of a new session is announced, also if another tenant has a session with the same id.
    let (first, is_new) = enter("a").await;
    assert!(is_new && enter("b").await.1);
    assert_eq!(enter("a").await, (first, false));
}

#[tokio::test]
async fn a_stateless_caller_reads_outputs_stored_for_it_earlier() {
    let runtime =
        test_runtime(&ExecutionLog::default(), json!({"toolResponseMaxBytes": 100}), json!({})).await;
    let big =
        call(&caller_of(&runtime, "ann", "", SessionMode::Stateless), "t__big", json!({"bytes": 500})).await;
    let handle = big.meta.stored.unwrap().to_string();
    for (principal, is_there) in [("ann", true), ("eve", false)] {
        let caller = caller_of(&runtime, principal, "", SessionMode::Stateless);
        let read = call(&caller, "tool_output", json!({"handle": handle, "mode": "stats"})).await;
        assert_eq!(!read.result.unwrap().is_error(), is_there, "{principal}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_stateless_caller_does_not_starve_others() {
    let runtime = test_runtime(
        &ExecutionLog::default(),
        json!({"queues": {"q": {"maxConcurrency": 1}}}),
        json!({"queue": "q"}),
    )
    .await;
    let nap = |who: &str| {
        tokio::spawn(
            caller_of(&runtime, who, "", SessionMode::Stateless)
                .start(Call::new("t__nap", json!({"ms": 100}))),
        )
    };
    let many: Vec<_> = (0..50).map(|_| nap("eve")).collect();
    settle().await;
    let waited = nap("ann").await.unwrap().meta.waited.unwrap();
    assert!(waited <= Duration::from_millis(300), "{waited:?}");
    for one in many {
        one.abort();
    }
}

#[tokio::test]
async fn secrets_are_recorded_nowhere() {
    let leaks = ToolEntry::from_fn("leaks", "", |_: Value| async {
        Err::<Value, _>(ToolError::new("GET https://x/?key=correct-\"horse\"-battery: 403"))
    });
    let says = ToolEntry::from_fn("says", "", |_: Value| async { Ok(r#"{"password": "hunter2hunter2"}"#) });
    let runtime = runtime_with_tools([leaks, says], json!({"tracePayloads": true}), json!({}))
        .secrets(["correct-\"horse\"-battery".to_owned()])
        .start()
        .await
        .unwrap();
    let caller = caller(&runtime);
    let mut events = runtime.events().subscribe();
    call(&caller, "s__leaks", json!({"a": "correct-\"horse\"-battery"})).await;
    call(&caller, "s__says", json!({"text": "{\"token\": \"abcdefghij\"}"})).await;
    let mut recorded = serde_json::to_string(&caller.tree().snapshot()).unwrap();
    recorded +=
        &serde_json::to_string(&caller.tree().accounting(pegboard_runtime::optree::AccountingScope::Tree))
            .unwrap();
    while let Ok(event) = events.try_recv() {
        recorded += &serde_json::to_string(&event).unwrap();
    }
    for secret in ["horse", "hunter2", "abcdefghij"] {
        assert!(!recorded.contains(secret), "{secret}: {recorded}");
    }
    assert!(recorded.contains("[redacted]: 403"), "{recorded}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_repeats_its_key_tells_it_to_nobody() {
    let why = "initialize: invalid API key canary-7d1f9e";
    let start = async || {
        Runtime::builder()
            .secrets(["canary-7d1f9e".to_owned()])
            .toolbox("dev", "")
            .provide("leaky", SlowServer::new(&["tool"], Some(why)).0)
            .start()
            .await
            .unwrap()
    };
    let mut said = Vec::new();
    for name in ["leaky__tool", "leaky/tool", "dev/leaky/tool"] {
        let runtime = start().await;
        said.push(line(&call(&caller(&runtime), name, json!({})).await));
    }
    let id =
        ServerId { toolbox: ToolboxName::new("dev").unwrap(), server: ServerName::new("leaky").unwrap() };
    let request = ProviderRequest { method: ProviderMethod::ReadResource, params: RawJson::empty_object() };
    let runtime = start().await;
    said.push(line(&caller(&runtime).request(&id, request, CallContext::default()).await));
    said.push(start().await.caller(CallerOptions::default()).open("dev").await.unwrap_err().text());
    let opened = start().await.open_server(&OwnerScope::All, "dev", "leaky").await;
    said.push(opened.map_or_else(|error| error.text(), |status| format!("{:?}", status.state)));
    for text in said {
        assert!(!text.contains("canary"), "{text}");
        assert!(!text.contains("API key") || text.contains("API key [redacted]"), "{text}");
    }
}

#[tokio::test]
async fn content_beside_a_small_text_is_limited_too() {
    let long = "x".repeat(100_000);
    let result = json!({"content": [{"type": "text", "text": "small", "annotations": {"a": long}}], "_meta": {"m": long}});
    let raw = fn_tool("raw", move |_| {
        let output = Output::result(RawJson::from(result.clone()));
        async { Ok(output) }.boxed()
    });
    let runtime =
        runtime_with_tools([raw], json!({"toolResponseMaxBytes": 1000}), json!({})).start().await.unwrap();
    let ended = call(&caller(&runtime), "s__raw", json!({})).await;
    assert!(ended.meta.stored.is_some());
    assert!(ended.result.unwrap().n_bytes() < 2_000);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_opens_is_reported_and_the_others_work() {
    let runtime = Runtime::builder()
        .toolbox("dev", "")
        .provide("stuck", SlowServer::stuck())
        .provide("good", SlowServer::at_once(&["tool"]))
        .start()
        .await
        .unwrap();
    let caller = caller_of(&runtime, "", "", SessionMode::Session);
    let opened = serde_json::to_value(caller.open("dev").await.unwrap()).unwrap();
    assert_eq!(
        opened["servers_failed"],
        json!([{"server": "stuck", "error": "MCP server 'stuck' is still starting. Open the toolbox again in a moment"}])
    );
    assert_eq!(line(&call(&caller, "good__tool", json!({})).await), "tool");
}

#[tokio::test(start_paused = true)]
async fn a_call_by_name_does_not_wait_for_a_hanging_server() {
    let runtime = Runtime::builder()
        .toolbox("dev", "")
        .provide("stuck", SlowServer::stuck())
        .provide("good", SlowServer::at_once(&["tool"]))
        .start()
        .await
        .unwrap();
    let started = Instant::now();
    assert_eq!(line(&call(&caller(&runtime), "good__tool", json!({})).await), "tool");
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_call_by_name_waits_for_a_server_that_is_already_starting() {
    let slow = SlowServer::new(&["tool"], None).0;
    let runtime = Runtime::builder().toolbox("dev", "").provide("slow", slow).start().await.unwrap();
    let caller = caller(&runtime);
    let (first, second) =
        tokio::join!(call(&caller, "slow__tool", json!({})), call(&caller, "slow__tool", json!({})));
    assert_eq!([line(&first), line(&second)], ["tool", "tool"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_by_name_starts_only_the_server_of_the_name() {
    let (other, n_opened) = SlowServer::new(&["tool"], None);
    let runtime = Runtime::builder()
        .toolbox("dev", "")
        .provide("other", other)
        .provide("good", SlowServer::at_once(&["tool"]))
        .start()
        .await
        .unwrap();
    let caller = caller(&runtime);
    assert_eq!(line(&call(&caller, "good__tool", json!({})).await), "tool");
    assert_eq!(n_opened.load(Ordering::SeqCst), 0);
    for unknown in ["good__missing", "good/missing", "missing", "tool", "nobody__tool"] {
        assert!(line(&call(&caller, unknown, json!({})).await).starts_with("unknown_tool"), "{unknown}");
    }
    assert_eq!(n_opened.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_by_name_opens_idle_servers_and_is_recorded_under_the_resolved_tool() {
    let runtime = Runtime::builder()
        .toolbox("dev", "")
        .provide("lazy", SlowServer::at_once(&["tool"]))
        .start()
        .await
        .unwrap();
    let caller = caller_of(&runtime, "", "", SessionMode::Stateless);
    let mut events = runtime.events().subscribe();
    let ended = call(&caller, "lazy__tool", json!({})).await;
    assert_eq!(line(&ended), "tool");
    let finished = std::iter::from_fn(|| events.try_recv().ok()).find_map(|event| match event {
        RuntimeEvent::ToolFinished { call, .. } => {
            Some((call.tool.to_string(), call.server.clone(), call.kind))
        }
        _ => None,
    });
    assert_eq!(finished, Some(("lazy__tool".to_owned(), "lazy".into(), ToolKind::Mcp)));
    assert!(caller.tree().snapshot().to_string().contains("lazy/lazy__tool"));
}

#[tokio::test(start_paused = true)]
async fn a_call_past_its_deadline_is_in_the_trace_as_well() {
    use pegboard_core::store::{CallLog, TraceQuery};
    let traces = Arc::new(Database::in_memory());
    let runtime = builder(&ExecutionLog::default(), json!({}), json!({}))
        .sessions(Arc::new(Database::in_memory()))
        .call_log(Arc::clone(&traces) as _)
        .start()
        .await
        .unwrap();
    let mut call = Call::new("t__gate", json!({"filePath": "a.md"}));
    call.context.options.reads_context = true;
    call.context.deadline = Some(Instant::now() + Duration::from_millis(10));
    caller(&runtime).start(call).await;
    runtime.shut_down(Duration::from_secs(1)).await;
    let records = traces
        .traces(TraceQuery { scope: OwnerScope::All, workspace: None, session: None, limit: 10 })
        .await
        .unwrap();
    assert_eq!(records[0].content, "Failed to execute t.gate");
}

#[tokio::test]
async fn output_schema_violations_are_in_the_tree() {
    let raw = fn_tool("raw", |_| {
        let result = RawJson::from(json!({"content": [], "structuredContent": {"n": "three"}}));
        async { Ok(Output::result(result)) }.boxed()
    })
    .with_output_schema(json!({"type": "object", "properties": {"n": {"type": "integer"}}}));
    let runtime = runtime_with_tools([raw], json!({}), json!({})).start().await.unwrap();
    let caller = caller(&runtime);
    let ended = call(&caller, "s__raw", json!({})).await;
    assert_eq!(ended.warnings, ["$.n: expected type integer, got string"]);
    assert!(ended.result.unwrap().mismatches.is_empty(), "the answer of a server stands");
    let tree = serde_json::to_string(&caller.tree().snapshot()).unwrap();
    assert!(tree.contains("$.n: expected type integer, got string"), "{tree}");
}

#[tokio::test(start_paused = true)]
async fn numbers_and_spellings_survive_argument_rewriting() {
    let echo = fn_tool("raw", |call| {
        let text = call.raw_arguments().as_str().to_owned();
        async move { Ok(Output::new(text.into())) }.boxed()
    });
    let raw = runtime_with_tools([echo], json!({}), json!({"validateArguments": "server"}))
        .sessions(Arc::new(Database::in_memory()))
        .start()
        .await
        .unwrap();
    let text = r#"{"n": 12345678901234567890123, "x": 1e999, "context": {"sessionId": "secret plan"}}"#;
    let mut call = Call::new("s__raw", RawJson::parse(text.into()).unwrap());
    call.context.options.reads_context = true;
    let ended = caller(&raw).start(call).await;
    assert_eq!(line(&ended), r#"{"n": 12345678901234567890123, "x": 1e999}"#);
    assert!(ended.meta.session.unwrap().notice.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_ended_session_makes_no_calls_and_leaves_nothing() {
    let runtime =
        test_runtime(&ExecutionLog::default(), json!({"toolResponseMaxBytes": 100}), json!({})).await;
    let caller = caller(&runtime);
    let other = caller.clone();
    caller.end().await;
    assert_eq!(line(&call(&other, "t__echo", json!({})).await), "canceled: the session has ended");
}

#[tokio::test(start_paused = true)]
async fn no_input_request_after_the_end_and_no_nested_call_outlives_its_parent() {
    let late: Arc<std::sync::Mutex<Option<CallContext>>> = Arc::default();
    let kept = Arc::clone(&late);
    let n_dropped = Arc::new(AtomicUsize::new(0));
    let endless = {
        struct Count(Arc<AtomicUsize>);
        impl Drop for Count {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let n_dropped = Arc::clone(&n_dropped);
        fn_tool("endless", move |_| {
            let count = Count(Arc::clone(&n_dropped));
            async move {
                let _count = count;
                std::future::pending().await
            }
            .boxed()
        })
    };
    let sly = fn_tool("sly", move |call| {
        *kept.lock().unwrap() = Some(call.context().clone());
        let detached = call.context().tools.as_ref().unwrap().start(Call::new("s__endless", json!({})));
        tokio::spawn(detached);
        async {
            settle().await;
            Ok(Output::new(json!("bye")))
        }
        .boxed()
    });
    let runtime =
        runtime_with_tools([endless, sly], json!({"toolTimeout": 0}), json!({})).start().await.unwrap();
    let ended = caller(&runtime)
        .start(call_with_client(DelayedClient("ann", Duration::ZERO), "s__sly", json!({})))
        .await;
    assert_eq!(line(&ended), "bye");
    settle().await;
    assert_eq!(n_dropped.load(Ordering::SeqCst), 1);
    let context = late.lock().unwrap().take().unwrap();
    let error = ask(&context).await.unwrap_err();
    assert_eq!(error.to_string(), "the caller has disconnected");
    let late_call = context.tools.unwrap().start(Call::new("s__endless", json!({}))).await;
    assert_eq!(line(&late_call), "canceled: the parent call has ended");
}

#[tokio::test]
async fn texts_in_events_are_bounded() {
    let long = "x".repeat(1 << 20);
    let fails = {
        let long = long.clone();
        fn_tool("fails", move |call| {
            let progress =
                ProgressUpdate { done: 1.0, total: None, message: Some(long.clone()), params: None };
            call.context().client().notify(Notice::Progress(progress));
            let error = CallError::Failed(ToolError::new(&long));
            async { Err(error) }.boxed()
        })
    };
    let runtime = runtime_with_tools([fails], json!({}), json!({})).start().await.unwrap();
    let mut events = runtime.events().subscribe();
    caller(&runtime)
        .start(call_with_client(DelayedClient("ann", Duration::ZERO), "s__fails", json!({})))
        .await;
    call(&caller(&runtime), &long, json!({})).await;
    let mut n_events = 0;
    while let Ok(event) = events.try_recv() {
        n_events += 1;
        assert!(serde_json::to_string(&event).unwrap().len() < 4_000, "{event:?}");
    }
    assert!(n_events >= 5);
}

#[tokio::test(start_paused = true)]
async fn waiting_does_not_count_as_running() {
    let runtime = test_runtime(
        &ExecutionLog::default(),
        json!({"queues": {"q": {"maxConcurrency": 1}}}),
        json!({"queue": "q"}),
    )
    .await;
    let caller = caller(&runtime);
    let nap = || call(&caller, "t__nap", json!({"ms": 100}));
    let (_, second): (CallResult, CallResult) = tokio::join!(nap(), nap());
    assert_eq!(
        (second.meta.waited, second.duration),
        (Some(Duration::from_millis(100)), Some(Duration::from_millis(100)))
    );
}

#[tokio::test(start_paused = true)]
async fn one_caller_cannot_exhaust_the_global_call_limit() {
    let runtime = test_runtime(&ExecutionLog::default(), json!({"toolTimeout": 0}), json!({})).await;
    let greedy = caller(&runtime);
    let many: Vec<_> = (0..=pegboard_runtime::MAX_CALLS_PER_CALLER)
        .map(|_| tokio::spawn(greedy.start(Call::new("t__gate", json!({})))))
        .collect();
    settle().await;
    let over = call(&greedy, "t__echo", json!({})).await;
    assert!(
        line(&over).starts_with("limit_exceeded: 2000 calls of this session are in flight"),
        "{}",
        line(&over)
    );
    assert_eq!(line(&call(&caller(&runtime), "t__echo", json!({})).await), "{}");
    for one in many {
        one.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn extreme_durations_do_not_overflow() {
    let runtime =
        test_runtime(&ExecutionLog::default(), json!({}), json!({"toolsCache": {"echo": "10000y"}})).await;
    let caller = caller(&runtime);
    let mut far = Call::new("t__echo", json!({}));
    far.context.deadline = Instant::now().checked_add(Duration::from_hours(24 * 365 * 50));
    far.context.options.timeout = Some(Duration::MAX);
    assert_eq!(line(&caller.start(far).await), "{}");
    assert_eq!(line(&call(&caller, "t__echo", json!({})).await), "{}");
}

#[tokio::test(start_paused = true)]
async fn the_timeouts_of_followers_do_not_add_up() {
    let runtime = test_runtime(
        &ExecutionLog::default(),
        json!({"toolTimeout": "10s"}),
        json!({"toolsCache": {"gate": "1h"}}),
    )
    .await;
    let callers = [(); 20].map(|()| caller(&runtime));
    let started = Instant::now();
    let ends =
        futures_util::future::join_all(callers.iter().map(|caller| call(caller, "t__gate", json!({})))).await;
    assert!(ends.iter().all(|ended| line(ended) == "timeout: Tool execution timed out"));
    assert!(started.elapsed() <= Duration::from_secs(11), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_follower_of_a_queued_call_waits_with_it() {
    let settings = json!({"toolTimeout": "5s", "queues": {"q": {"maxConcurrency": 1}}});
    let server = json!({"queue": "q", "toolsCache": {"nap": "1h"}, "tools": {"gate": {"timeout": 0}}});
    let log = ExecutionLog::default();
    let runtime = test_runtime(&log, settings, server).await;
    let caller = caller(&runtime);
    let holder = tokio::spawn(caller.start(Call::new("t__gate", json!({}))));
    settle().await;
    let naps = [(); 2].map(|()| tokio::spawn(caller.start(Call::new("t__nap", json!({"ms": 1})))));
    time::sleep(Duration::from_secs(20)).await;
    log.release_one();
    for nap in naps {
        assert_eq!(line(&nap.await.unwrap()), "rested");
    }
    holder.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_holds_a_resource_does_not_wait_for_one_that_wants_it() {
    let naps = fn_tool("inner", |_| {
        async {
            time::sleep(Duration::from_secs(1)).await;
            Ok(Output::new(json!("done")))
        }
        .boxed()
    });
    let slow_outer = fn_tool("outer", |call| {
        let tools = Arc::clone(call.context().tools.as_ref().unwrap());
        async move {
            time::sleep(Duration::from_secs(1)).await;
            tools.start(Call::new("s__inner", json!({}))).await.result
        }
        .boxed()
    });
    let settings = json!({"toolTimeout": 0, "queues": {"q": {"maxConcurrency": 1}}});
    let runtime = runtime_with_tools(
        [naps, slow_outer],
        settings,
        json!({"queue": "q", "toolsCache": {"inner": "1h"}}),
    )
    .start()
    .await
    .unwrap();
    let (one, two) = (caller(&runtime), caller(&runtime));
    let both = async {
        tokio::join!(call(&one, "s__outer", json!({})), async {
            settle().await;
            call(&two, "s__inner", json!({})).await
        })
    };
    let (outer, inner) = time::timeout(Duration::from_mins(1), both).await.expect("nobody waits for itself");
    assert_eq!((line(&outer).as_str(), line(&inner).as_str()), ("done", "done"));

    let crossed = |name, other| {
        fn_tool(name, move |call| {
            let tools = Arc::clone(call.context().tools.as_ref().unwrap());
            async move {
                time::sleep(Duration::from_secs(1)).await;
                tools.start(Call::new(other, json!({}))).await.result
            }
            .boxed()
        })
    };
    let tools = [crossed("a", "s__b"), crossed("b", "s__a")];
    let runtime =
        runtime_with_tools(tools, json!({"toolTimeout": 0}), json!({"cache": "1h"})).start().await.unwrap();
    let (one, two) = (caller(&runtime), caller(&runtime));
    let both = async { tokio::join!(call(&one, "s__a", json!({})), call(&two, "s__b", json!({}))) };
    assert!(time::timeout(Duration::from_mins(10), both).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_lent_to_one_call_at_a_time() {
    let n_running = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let counted = {
        let n_running = Arc::clone(&n_running);
        fn_tool("counted", move |_| {
            let n_running = Arc::clone(&n_running);
            async move {
                let now = n_running.0.fetch_add(1, Ordering::SeqCst) + 1;
                n_running.1.fetch_max(now, Ordering::SeqCst);
                time::sleep(Duration::from_millis(1)).await;
                n_running.0.fetch_sub(1, Ordering::SeqCst);
                Ok(Output::new(json!("ok")))
            }
            .boxed()
        })
    };
    let many = fn_tool("many", |call| {
        let tools = Arc::clone(call.context().tools.as_ref().unwrap());
        async move {
            let calls = (0..50).map(|_| tools.start(Call::new("s__counted", json!({}))));
            let ends = futures_util::future::join_all(calls).await;
            Ok(Output::new(json!(ends.iter().filter(|ended| ended.result.is_ok()).count())))
        }
        .boxed()
    });
    let settings = json!({"queues": {"q": {"maxConcurrency": 1}}});
    let runtime = runtime_with_tools([counted, many], settings, json!({"queue": "q"})).start().await.unwrap();
    assert_eq!(line(&call(&caller(&runtime), "s__many", json!({})).await), "50");
    assert_eq!(n_running.1.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_running_at_shutdown_may_make_nested_calls() {
    let steps = json!({"chain": "c", "steps": [
        {"tool": "t__nap", "with": {"ms": {"$const": 100}}, "as": "a"}, {"tool": "t__nap", "with": {"ms": {"$const": 100}}, "as": "b"}
    ], "output": "b"});
    let runtime = builder(&ExecutionLog::default(), json!({}), json!({}))
        .chain(serde_json::from_value(steps).unwrap())
        .start()
        .await
        .unwrap();
    let running = tokio::spawn(caller(&runtime).start(Call::new("chain__c", json!({}))));
    settle().await;
    assert_eq!(runtime.shut_down(Duration::from_secs(10)).await, 0);
    assert_eq!(line(&running.await.unwrap()), "rested");
}

#[tokio::test(start_paused = true)]
async fn overlapping_input_requests_are_limited_as_well() {
    let nags = fn_tool("nags", |call| {
        async move {
            let nag = || async {
                for _ in 0..1_000 {
                    let _ = ask(call.context()).await;
                    time::sleep(Duration::from_secs(1)).await;
                }
            };
            tokio::join!(nag(), async {
                time::sleep(Duration::from_mins(2)).await;
                nag().await;
            });
            Ok(Output::new(Value::Null))
        }
        .boxed()
    });
    let runtime = runtime_with_tools([nags], json!({"toolTimeout": 1000}), json!({})).start().await.unwrap();
    let started = Instant::now();
    caller(&runtime)
        .start(call_with_client(DelayedClient("ann", Duration::from_mins(4)), "s__nags", json!({})))
        .await;
    assert!(started.elapsed() < Duration::from_hours(2), "{:?}", started.elapsed());
}

#[tokio::test]
async fn an_unchecked_answer_is_not_cached() {
    let wrong = ToolEntry::from_fn("wrong", "", |_: Value| async { Ok(42) })
        .with_output_schema(json!({"type": "object"}));
    let runtime = runtime_with_tools([wrong], json!({}), json!({"cache": "1h", "output": "strict"}))
        .start()
        .await
        .unwrap();
    let caller = caller(&runtime);
    let unchecked =
        Call { checks: pegboard_core::call::SchemaChecks::None, ..Call::new("s__wrong", json!({})) };
    assert_eq!(line(&caller.start(unchecked).await), "42");
    assert!(line(&call(&caller, "s__wrong", json!({})).await).starts_with("output_invalid"));
}

/// A schema whose validation takes time that doubles with each level of the value.
fn doubling_schema() -> Value {
    let inner = json!({"type": "array", "items": {"$ref": "#/$defs/d"}});
    json!({
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/d"}},
        "$defs": {"d": {"anyOf": [inner, inner, {"type": "string"}]}},
    })
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

/// A schema that is costly by the options that each value is compared with.
fn long_schema() -> Value {
    let options: Vec<Value> = (0..2_000).map(|n| json!({"k": n})).collect();
    json!({"type": "object", "properties": {"x": {"items": {"enum": options}}}})
}

/// A schema that is costly to compile.
fn schema_with_large_pattern() -> Value {
    json!({"type": "object", "properties": {"x": {"items": {"pattern": "^\\pL{18}$"}}}})
}

fn answers(name: &'static str, answer: Value, output_schema: Value) -> ToolEntry {
    fn_tool(name, move |_| {
        let answer = answer.clone();
        async move { Ok(Output::new(answer)) }.boxed()
    })
    .with_output_schema(output_schema)
}

#[tokio::test]
async fn a_costly_validation_does_not_delay_other_calls() {
    let accepts = |name: &'static str, input_schema: Value| {
        fn_tool(name, |_| async { Ok(Output::new(json!("done"))) }.boxed()).with_input_schema(input_schema)
    };
    let many = json!({"x": vec![json!({"k": -1}); 20]});
    let tools = [
        accepts("asks", doubling_schema()),
        accepts("asks_for_options", long_schema()),
        accepts("asks_for_matches", schema_with_large_pattern()),
        answers("answers", json!({"x": nested(13)}), doubling_schema()),
        answers("answers_options", many.clone(), long_schema()),
        answers("answers_matches", json!({"x": ["7"]}), schema_with_large_pattern()),
        fn_tool("plain", |_| async { Ok(Output::new(json!("done"))) }.boxed()),
    ];
    let settings = json!({"validateArguments": "pegboard"});
    let runtime = runtime_with_tools(tools, settings, json!({})).start().await.unwrap();
    let caller = caller(&runtime);
    for (tool, arguments) in [
        ("s__asks", json!({"x": nested(13)})),
        ("s__asks_for_options", many),
        ("s__asks_for_matches", json!({"x": ["7"]})),
        ("s__answers", json!({})),
        ("s__answers_options", json!({})),
        ("s__answers_matches", json!({})),
    ] {
        let ended = parking_lot::Mutex::new(Vec::new());
        let costly = async {
            let result = call(&caller, tool, arguments).await;
            ended.lock().push("costly");
            result
        };
        let plain = async {
            call(&caller, "s__plain", json!({})).await.result.unwrap();
            ended.lock().push("plain");
        };
        let (result, ()) = tokio::join!(costly, plain);
        assert_eq!(*ended.lock(), ["plain", "costly"], "{tool}");
        match result.result {
            Err(CallError::InvalidParameters { violations }) => assert!(!violations.is_empty()),
            Ok(output) => assert!(!output.mismatches.is_empty()),
            Err(error) => panic!("{tool}: {error}"),
        }
    }
}
