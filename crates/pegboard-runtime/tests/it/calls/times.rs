//! Timeouts, deadlines and input requests.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::{Call, CallResult, Invoker, ToolRef, ValidCall};
use pegboard_core::client::{
    AskError, Client, InputRequest, InputRequests, InputResponses, Notice, ProgressUpdate,
};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, Executed, ToolError};
use pegboard_core::handler::Handler;
use pegboard_core::id::{ServerName, ToolId, ToolName, ToolboxName};
use pegboard_core::output::Output;
use pegboard_core::provider::LocalProvider;
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use serde_json::json;
use tokio::time::{self, Instant};

use crate::calls::fixtures::{ExecutionLog, SlowServer, call, caller, line, test_runtime};

#[tokio::test(start_paused = true)]
async fn a_tool_past_its_timeout_is_cancelled() {
    let log = ExecutionLog::default();
    let runtime = test_runtime(&log, json!({"toolTimeout": 100}), json!({})).await;
    let caller = caller(&runtime);
    let ended = call(&caller, "t__nap", json!({"ms": 101})).await;
    assert_eq!(line(&ended), "timeout: Tool execution timed out");
    assert_eq!((log.n_begun(), log.n_dropped()), (1, 1));
    assert_eq!(line(&call(&caller, "t__nap", json!({"ms": 99})).await), "rested");
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_a_start_no_longer_than_its_limit() {
    // (server settings, the caller's timeout, seconds)
    let cases = [
        (json!({}), None, 5),
        (json!({"requestTimeoutMs": 2000}), None, 2),
        (json!({"tools": {"tool": {"timeout": "7s"}}}), None, 7),
        (json!({"requestTimeoutMs": 2000}), Some(3), 3),
        (json!({"requestTimeoutMs": 0}), None, 40),
    ];
    let id = ToolId {
        toolbox: ToolboxName::new("tools").unwrap(),
        server: ServerName::new("slow").unwrap(),
        name: ToolName::new("tool").unwrap(),
    };
    for tool in [ToolRef::Id(id), ToolRef::Name("slow__tool".to_owned())] {
        for (server, timeout, expected) in &cases {
            let slow = SlowServer::new(&["tool"], None).0.taking(Duration::from_secs(40));
            let server = serde_json::from_value(server.clone()).unwrap();
            let settings = serde_json::from_value(json!({"toolTimeout": "5s"})).unwrap();
            let builder = Runtime::builder().settings(settings).toolbox("tools", "");
            let runtime = builder.provide("slow", slow).server_settings(server).start().await.unwrap();
            let mut call = Call::new(tool.clone(), json!({}));
            call.context.options.timeout = timeout.map(Duration::from_secs);
            let started_at = Instant::now();
            let ended = caller(&runtime).prepare(call).start().await;
            assert_eq!(started_at.elapsed().as_secs(), *expected, "{tool:?}");
            let text = match expected {
                40 => "tool",
                _ => "server_unavailable: MCP server 'slow' is still starting. Call it again in a moment",
            };
            assert_eq!(line(&ended), text);
        }
    }
}

/// (settings, server settings, the caller's timeout, whether the global timeout is disabled, duration)
type Case = (&'static str, &'static str, Option<u64>, bool, u64);

#[tokio::test(start_paused = true)]
async fn the_most_specific_timeout_applies() {
    let cases: [(Case, Option<u64>); 9] = [
        ((r#"{"toolTimeout": 100}"#, "{}", None, false, 1_000), Some(100)),
        ((r#"{"toolTimeout": 100}"#, r#"{"requestTimeoutMs": 200}"#, None, false, 1_000), Some(200)),
        (
            (r#"{"toolTimeout": 100}"#, r#"{"tools": {"nap": {"timeout": "0.3s"}}}"#, None, false, 1_000),
            Some(300),
        ),
        ((r#"{"toolTimeout": 100}"#, r#"{"tools": {"nap": {"timeout": 0}}}"#, None, false, 1_000), None),
        ((r#"{"toolTimeout": 100}"#, "{}", Some(400), false, 1_000), Some(400)),
        ((r#"{"toolTimeout": 100}"#, "{}", None, true, 1_000), None),
        ((r#"{"toolTimeout": 100}"#, "{}", Some(50), true, 1_000), Some(50)),
        ((r#"{"toolTimeout": 0}"#, "{}", None, false, 100_000), None),
        (
            (
                r#"{"toolTimeout": 100, "queues": {"q": {"defaultTimeoutMs": 70}}}"#,
                r#"{"queue": "q"}"#,
                None,
                false,
                1_000,
            ),
            Some(70),
        ),
    ];
    for ((settings, server, timeout, is_off, takes), expected) in cases {
        let read = |text: &str| serde_json::from_str(text).unwrap();
        let runtime = test_runtime(&ExecutionLog::default(), read(settings), read(server)).await;
        let mut call = Call::new("t__nap", json!({"ms": takes}));
        call.context.options.timeout = timeout.map(Duration::from_millis);
        call.context.options.disable_global_timeout = is_off;
        let started = Instant::now();
        let ended = caller(&runtime).start(call).await;
        let given_up = ended.result.is_err().then(|| started.elapsed());
        assert_eq!(given_up, expected.map(Duration::from_millis), "{settings} {server} {timeout:?} {is_off}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_callers_deadline_covers_waiting_and_running() {
    let log = ExecutionLog::default();
    let runtime =
        test_runtime(&log, json!({"queues": {"q": {"maxConcurrency": 1}}}), json!({"queue": "q"})).await;
    let caller = caller(&runtime);
    let running = tokio::spawn(caller.start(Call::new("t__nap", json!({"ms": 500}))));
    crate::calls::fixtures::settle().await;
    let within = |millis| {
        let mut call = Call::new("t__nap", json!({"ms": 500}));
        call.context.deadline = Some(Instant::now() + Duration::from_millis(millis));
        caller.start(call)
    };
    let executed = |ended: &CallResult| match &ended.result {
        Err(CallError::DeadlinePassed { executed }) => *executed,
        other => panic!("{other:?}"),
    };
    let (waiting, begun) = tokio::join!(within(100), within(700));
    assert_eq!((executed(&waiting), executed(&begun)), (Executed::No, Executed::Yes));
    assert_eq!((waiting.duration.is_some(), begun.duration.is_some()), (false, true));
    assert_eq!(line(&running.await.unwrap()), "rested");
}

/// A tool that reports progress at an interval.
struct ReportsProgress {
    n_notices: u32,
    every: Duration,
}

impl Handler for ReportsProgress {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            for done in 0..self.n_notices {
                time::sleep(self.every).await;
                let progress =
                    ProgressUpdate { done: f64::from(done), total: None, message: None, params: None };
                call.context().client().notify(Notice::Progress(progress));
            }
            Ok(Output::new(json!("there")))
        }
        .boxed()
    }
}

/// A client that answers after a delay, or never.
struct DelayedClient {
    takes: Duration,
}

impl Client for DelayedClient {
    fn notify(&self, _notice: Notice) {}

    fn ask(&self, questions: InputRequests) -> BoxFuture<'_, Result<InputResponses, AskError>> {
        async move {
            time::sleep(self.takes).await;
            Ok(questions.keys().map(|name| (name.clone(), RawJson::from(json!("yes")))).collect())
        }
        .boxed()
    }
}

/// A tool that asks its caller for input in the middle of its work.
struct AsksForInput {
    works: Duration,
}

impl Handler for AsksForInput {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            time::sleep(self.works / 2).await;
            let question =
                InputRequest { method: "elicitation/create".to_owned(), params: RawJson::empty_object() };
            let answers =
                call.context().client().ask(InputRequests::from_iter([("q".to_owned(), question)])).await;
            let answers = answers.map_err(|error| CallError::Failed(ToolError::from(error)))?;
            time::sleep(self.works / 2).await;
            Ok(Output::new(answers["q"].to_value()))
        }
        .boxed()
    }
}

async fn runtime_with(settings: serde_json::Value, handler: impl Handler) -> Runtime {
    let entry = ToolEntry::from_handler("tool", "", Arc::new(handler));
    Runtime::builder()
        .settings(serde_json::from_value(settings).unwrap())
        .provide("t", LocalProvider::new([entry]))
        .start()
        .await
        .unwrap()
}

async fn call_with_client(
    runtime: &Runtime,
    client: DelayedClient,
    deadline: Option<Duration>,
) -> CallResult {
    let mut call = Call::new("t__tool", json!({}));
    call.context.client = Some(Arc::new(client));
    call.context.deadline = deadline.map(|deadline| Instant::now() + deadline);
    caller(runtime).start(call).await
}

#[tokio::test(start_paused = true)]
async fn progress_extends_the_timeout_up_to_a_total_if_configured() {
    let cases = [
        (json!({"toolTimeout": 100}), 4, Some(100)),
        (json!({"toolTimeout": 100, "progress": {"extendsUpTo": 1000}}), 4, None),
        (json!({"toolTimeout": 100, "progress": {"extendsUpTo": 250}}), 4, Some(250)),
        (json!({"toolTimeout": 100, "progress": {"extendsUpTo": 10}}), 4, Some(100)),
    ];
    for (settings, n_notices, expected) in cases {
        let slow = ReportsProgress { n_notices, every: Duration::from_millis(80) };
        let runtime = runtime_with(settings.clone(), slow).await;
        let started = Instant::now();
        let ended = call_with_client(&runtime, DelayedClient { takes: Duration::ZERO }, None).await;
        let given_up = ended.result.is_err().then(|| started.elapsed());
        assert_eq!(given_up, expected.map(Duration::from_millis), "{settings}");
    }
}

#[tokio::test(start_paused = true)]
async fn input_requests_pause_the_clock() {
    let minute = Duration::from_mins(1);
    let works = Duration::from_millis(90);
    let runtime = runtime_with(json!({"toolTimeout": 100}), AsksForInput { works }).await;
    let ended =
        call_with_client(&runtime, DelayedClient { takes: minute }, Some(Duration::from_millis(100))).await;
    assert_eq!(line(&ended), "yes");
    // The work itself still counts.
    let runtime = runtime_with(json!({"toolTimeout": 80}), AsksForInput { works }).await;
    assert_eq!(
        line(&call_with_client(&runtime, DelayedClient { takes: minute }, None).await),
        "timeout: Tool execution timed out"
    );
    let ended =
        call_with_client(&runtime, DelayedClient { takes: minute }, Some(Duration::from_millis(70))).await;
    assert_eq!(line(&ended), "timeout: The caller's deadline passed before the tool answered");
}

#[tokio::test(start_paused = true)]
async fn an_input_request_has_its_own_timeout() {
    let works = Duration::from_millis(90);
    let runtime = runtime_with(json!({"questionTimeout": "2m"}), AsksForInput { works }).await;
    let started = Instant::now();
    let ended = call_with_client(&runtime, DelayedClient { takes: Duration::from_hours(1) }, None).await;
    assert_eq!(line(&ended), "execution_error: the caller did not respond within 120s");
    assert_eq!(started.elapsed(), Duration::from_mins(2) + works / 2);
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_input_support_is_reported() {
    let runtime = runtime_with(json!({}), AsksForInput { works: Duration::ZERO }).await;
    let ended = call(&caller(&runtime), "t__tool", json!({})).await;
    assert_eq!(line(&ended), "execution_error: the caller does not support input requests");
}
