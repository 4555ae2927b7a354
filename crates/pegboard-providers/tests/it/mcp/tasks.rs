//! Tool calls that run as tasks, for callers with and without task support.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::CallContext;
use pegboard_core::client::{AskError, Client, InputRequests, InputResponses, Notice};
use pegboard_core::error::CallError;
use pegboard_core::id::ServerName;
use pegboard_core::output::Output;
use pegboard_core::provider::Provider;
use pegboard_core::settings::mcp::{McpTarget, ResolvedMcpServer};
use pegboard_core::task::TaskMode;
use pegboard_providers::mcp::{McpServer, PipeConnector};
use pegboard_testkit::fixture::Fixture;
use pegboard_wire::client::Era;
use pegboard_wire::era::Revision;
use pegboard_wire::server::{
    self, McpService, ServerRequest, ServiceChange, ServiceDescription, ServiceReply,
};
use pegboard_wire::stdio::line_transport;
use pegboard_wire::transport::InputLimits;
use pegboard_wire::{RawJson, RpcError};
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};
use tokio::time;

use crate::mcp::scripted::{ERAS, ScriptedReply, ScriptedServer, WithEra, call, outcome_text, wait_until};

/// The fixture, with a record of the requested methods.
struct RecordingService {
    fixture: Fixture,
    methods: watch::Sender<Vec<String>>,
}

impl McpService for RecordingService {
    fn describe(&self, revision: Revision) -> ServiceDescription {
        self.fixture.describe(revision)
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        self.methods.send_modify(|methods| methods.push(request.method.to_string()));
        self.fixture.call(request)
    }

    fn changes(&self) -> Option<broadcast::Receiver<ServiceChange>> {
        self.fixture.changes()
    }
}

/// A client that accepts everything and records notifications.
struct TaskClient {
    task_mode: TaskMode,
    answers: Result<Value, AskError>,
    received: Mutex<Vec<String>>,
}

impl TaskClient {
    fn with(task_mode: TaskMode) -> Arc<Self> {
        let content = json!({"confirm": true, "name": "Ann"});
        let answers = Ok(json!({"action": "accept", "content": content}));
        Arc::new(Self { task_mode, answers, received: Mutex::default() })
    }

    fn context(self: &Arc<Self>) -> CallContext {
        let mut context = CallContext::default();
        context.client = Some(Arc::clone(self) as Arc<dyn Client>);
        context
    }

    fn received(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }
}

impl Client for TaskClient {
    fn notify(&self, notice: Notice) {
        let received = match notice {
            Notice::Progress(progress) => progress.message.unwrap_or_default(),
            Notice::Log(line) => line.as_str().to_owned(),
            Notice::Custom { method, .. } => method.to_string(),
            Notice::Task(task) => format!("task {:?} {:?}", task.time_to_live, task.poll_interval),
        };
        self.received.lock().unwrap().push(received);
    }

    fn ask(&self, questions: InputRequests) -> BoxFuture<'_, Result<InputResponses, AskError>> {
        self.received.lock().unwrap().extend(questions.keys().map(|name| format!("asked {name}")));
        let answers = self
            .answers
            .clone()
            .map(|answer| questions.into_keys().map(|name| (name, RawJson::from(answer.clone()))).collect());
        std::future::ready(answers).boxed()
    }

    fn task_mode(&self) -> TaskMode {
        self.task_mode
    }
}

/// Returns the fixture as a started provider, and the methods it receives.
async fn fixture(era: Era) -> (McpServer, watch::Receiver<Vec<String>>) {
    let methods = watch::Sender::default();
    let service = Arc::new(RecordingService { fixture: Fixture::new(), methods: methods.clone() });
    let serving = server::ServiceServer::new(service);
    let pipe = PipeConnector::new(move || {
        let serving = serving.clone();
        async move {
            let (near, far) = tokio::io::duplex(64 * 1024);
            let (reader, writer) = tokio::io::split(far);
            let (transport, _) = line_transport(reader, writer, InputLimits::server());
            tokio::spawn(async move { serving.serve(transport).await });
            Ok(tokio::io::split(near))
        }
    });
    let settings = ResolvedMcpServer::new(ServerName::new("fixture").unwrap(), McpTarget::Embedded);
    let server = McpServer::new(settings, Arc::new(WithEra(era, Arc::new(pipe))));
    server.open().await.unwrap();
    (server, methods.subscribe())
}

/// Returns the outcome of a call as text, marked if the result is an error.
fn outcome(result: &Result<Output, CallError>) -> String {
    match result {
        Ok(output) if output.is_error() => format!("isError: {}", output.text()),
        result => outcome_text(result),
    }
}

fn n_requests(methods: &watch::Receiver<Vec<String>>, method: &str) -> usize {
    methods.borrow().iter().filter(|asked| *asked == method).count()
}

#[tokio::test(start_paused = true)]
async fn a_caller_gets_the_final_result_of_a_task() {
    let protocol_error =
        "execution_error: MCP error -32603: This job always ends with a protocol error".to_owned();
    let cases = [
        ("slow_compute", json!({"seconds": 90, "label": "x"}), "Computed 'x' for 90s.".to_owned()),
        ("failing_job", json!({}), "isError: This job always fails.".to_owned()),
        ("protocol_error_job", json!({}), protocol_error),
        ("confirm_delete", json!({"filename": "f"}), "Deleted 'f'.".to_owned()),
        ("multi_input", json!({}), r#"The names are "Ann" and "Ann"."#.to_owned()),
        ("test_tool_with_task", json!({}), "Hello, Ann!".to_owned()),
        ("greet", json!({"name": "Bob"}), "Hello, Bob!".to_owned()),
    ];
    for era in ERAS {
        for task_mode in [TaskMode::Hidden, TaskMode::Accepted, TaskMode::Requested(Duration::from_mins(3))] {
            let (server, methods) = fixture(era).await;
            for (tool, arguments, expected) in &cases {
                let ann = TaskClient::with(task_mode);
                let result = call(&server, tool, arguments.clone(), ann.context()).await;
                assert_eq!(outcome(&result), *expected, "{era:?} {task_mode:?} {tool}");
                let is_exact =
                    result.is_ok_and(|output| !output.to_result().as_str().contains("related-task"));
                assert!(is_exact || *tool == "protocol_error_job");
            }
            assert!(n_requests(&methods, "tasks/get") > 0, "{era:?} {task_mode:?}");
            assert_eq!(n_requests(&methods, "tasks/cancel"), 0, "{era:?} {task_mode:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_is_notified_of_the_task_and_answers_its_inputs() {
    for (era, asked) in [(Era::Session, "elicitation/create"), (Era::Stateless, "confirmation")] {
        let (server, _) = fixture(era).await;
        let ann = TaskClient::with(TaskMode::Requested(Duration::from_mins(10)));
        let arguments = json!({"filename": "f"});
        assert_eq!(
            outcome_text(&call(&server, "confirm_delete", arguments, ann.context()).await),
            "Deleted 'f'."
        );
        assert_eq!(ann.received(), ["task Some(600s) Some(200ms)".to_owned(), format!("asked {asked}")]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_declines_tasks_gets_the_error_of_a_tool_that_requires_one() {
    let (server, methods) = fixture(Era::Stateless).await;
    let ann = TaskClient::with(TaskMode::Declined);
    let refused = call(&server, "failing_job", json!({}), ann.context()).await;
    let Err(CallError::Failed(error)) = &refused else { panic!("{refused:?}") };
    let protocol = error.protocol().unwrap();
    assert_eq!(protocol.code, -32_021);
    assert_eq!(
        protocol.data.as_ref().unwrap().as_str(),
        r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#
    );
    // A tool with optional task support runs without one.
    let arguments = json!({"seconds": 1, "label": "x"});
    assert_eq!(
        outcome_text(&call(&server, "slow_compute", arguments, ann.context()).await),
        "Computed 'x' for 1s."
    );
    assert_eq!(n_requests(&methods, "tasks/get"), 0);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_call_cancels_its_task() {
    for era in ERAS {
        let (server, methods) = fixture(era).await;
        let ann = TaskClient::with(TaskMode::Accepted);
        let arguments = json!({"seconds": 300, "label": "x"});
        let limit = Duration::from_secs(5);
        let slow = call(&server, "slow_compute", arguments, ann.context());
        assert!(time::timeout(limit, slow).await.is_err());
        wait_until(methods, |methods| methods.last().unwrap() == "tasks/cancel").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_with_an_unanswered_input_is_cancelled() {
    let (server, methods) = fixture(Era::Stateless).await;
    let answers = Err(AskError::refused("no"));
    let ann = Arc::new(TaskClient { task_mode: TaskMode::Accepted, answers, received: Mutex::default() });
    let text = outcome_text(&call(&server, "confirm_delete", json!({"filename": "f"}), ann.context()).await);
    assert_eq!(text, "execution_error: the server requested input, but the caller declined: no");
    wait_until(methods, |methods| methods.last().unwrap() == "tasks/cancel").await;
}

#[tokio::test(start_paused = true)]
async fn task_inputs_reach_their_own_callers() {
    for era in ERAS {
        let (server, _) = fixture(era).await;
        let (ann, bob) = (TaskClient::with(TaskMode::Accepted), TaskClient::with(TaskMode::Accepted));
        let arguments = || json!({"filename": "f"});
        let (to_ann, to_bob) = tokio::join!(
            call(&server, "confirm_delete", arguments(), ann.context()),
            call(&server, "confirm_delete", arguments(), bob.context()),
        );
        assert_eq!([outcome_text(&to_ann), outcome_text(&to_bob)], ["Deleted 'f'.", "Deleted 'f'."]);
        assert_eq!((ann.received().len(), bob.received().len()), (2, 2));
        assert_eq!(server.offering().borrow().warnings, [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn every_tool_of_a_stateless_task_server_supports_tasks() {
    let support = |server: &McpServer, tool: &str| {
        let offering = server.offering();
        let offering = offering.borrow();
        let entry = offering.tools.iter().find(|entry| entry.name() == tool).unwrap();
        entry.definition().at(&["execution", "taskSupport"]).map(|support| support.as_str().to_owned())
    };
    let (server, _) = fixture(Era::Stateless).await;
    assert_eq!(support(&server, "greet").as_deref(), Some("\"optional\""));
    let (server, _) = fixture(Era::Session).await;
    assert_eq!(support(&server, "greet"), None);
    assert_eq!(support(&server, "failing_job").as_deref(), Some("\"required\""));
}

#[tokio::test(start_paused = true)]
async fn an_invalid_task_fails_its_call() {
    let working = json!({"resultType": "task", "taskId": "1", "status": "working"});
    let cases = [
        (
            json!({"resultType": "task", "status": "working"}),
            json!({}),
            "the server created a task without an id",
        ),
        (working.clone(), json!({}), "the server's task has the unknown status ''"),
        (working.clone(), json!({"status": "odd"}), "the server's task has the unknown status 'odd'"),
        (working.clone(), json!({"status": "completed"}), "the server's task ended without a result"),
        (
            working.clone(),
            json!({"status": "completed", "result": 1}),
            "the server's task ended without a result",
        ),
        (
            working.clone(),
            json!({"status": "failed", "error": {"code": "x"}}),
            "the server's task ended with an invalid error",
        ),
        (working.clone(), json!({"status": "cancelled"}), "the server cancelled the task"),
        (working, json!({"status": "failed", "error": {"code": -1, "message": "no"}}), "MCP error -1: no"),
    ];
    for (created, then, expected) in cases {
        let scripted = ScriptedServer::new();
        scripted.set_tools(&["task"]);
        scripted.respond_to("tasks/get", ScriptedReply::json(&then));
        let server = scripted.open_provider(Era::Stateless).await;
        let result = call(&server, "task", created, CallContext::default()).await;
        assert_eq!(outcome_text(&result), format!("execution_error: {expected}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_task_poll_is_retried() {
    let scripted = ScriptedServer::new();
    scripted.set_tools(&["task"]);
    let done = json!({"status": "completed", "result": {"content": [{"type": "text", "text": "done"}]}});
    scripted.respond_to("tasks/get", ScriptedReply::HangOnce(done.to_string()));
    let server = scripted.open_provider(Era::Stateless).await;
    let created = || json!({"resultType": "task", "taskId": "1", "status": "working", "pollIntervalMs": 0});
    let result = call(&server, "task", created(), CallContext::default()).await;
    assert_eq!((outcome_text(&result), scripted.n_requests("tasks/get")), ("done".to_owned(), 2));
    // A server that never answers is given up.
    scripted.respond_to("tasks/get", ScriptedReply::Hang);
    let result = call(&server, "task", created(), CallContext::default()).await;
    assert_eq!(
        outcome_text(&result),
        "transport_error: MCP server 'scripted' failed before it responded: tasks/get was not answered within 30s. The \
         tool may have run"
    );
    assert_eq!(scripted.n_requests("tasks/get"), 5);
}

#[tokio::test(start_paused = true)]
async fn a_task_notification_triggers_an_immediate_poll() {
    let scripted = ScriptedServer::new();
    let execution = json!({"taskSupport": "required"});
    let tool = json!({"name": "task", "inputSchema": {"type": "object"}, "execution": execution});
    scripted.set_tool_pages(vec![json!({"tools": [tool]}).to_string()]);
    scripted.add_capability("tasks", json!({"requests": {"tools": {"call": {}}}}));
    scripted
        .respond_to("tasks/get", ScriptedReply::json(&json!({"status": "working", "pollInterval": 60_000})));
    let done = json!({"content": [{"type": "text", "text": "done"}]});
    scripted.respond_to("tasks/result", ScriptedReply::json(&done));
    let server = scripted.open_provider(Era::Session).await;
    let created = json!({"task": {"taskId": "1", "status": "working", "pollInterval": 60_000}});
    let calling = call(&server, "task", created, CallContext::default());
    let ending = async {
        time::sleep(Duration::from_secs(5)).await;
        scripted.respond_to("tasks/get", ScriptedReply::json(&json!({"status": "completed"})));
        scripted.notify_change(ServiceChange::Task {
            id: "1".to_owned(),
            state: RawJson::from(json!({"taskId": "1"})),
        });
    };
    let started = time::Instant::now();
    let (result, ()) = tokio::join!(calling, ending);
    assert_eq!(outcome_text(&result), "done");
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
}

fn working_task(poll_interval_millis: u64) -> Value {
    json!({"resultType": "task", "taskId": "1", "status": "working", "pollIntervalMs": poll_interval_millis})
}

fn completed_task() -> ScriptedReply {
    let result = json!({"content": [{"type": "text", "text": "done"}]});
    ScriptedReply::json(&json!({"taskId": "1", "status": "completed", "result": result}))
}

#[tokio::test(start_paused = true)]
async fn a_task_is_polled_at_once_and_then_less_and_less() {
    // Time at which the task ends, latest time at which the call may end, and maximum number of polls.
    for (ends_at, limit, max_polls) in [(0, 10, 1), (1_000, 1_600, 9), (60_000, 66_000, 25)] {
        let scripted = ScriptedServer::new();
        scripted.set_tools(&["task"]);
        scripted.respond_to("tasks/get", ScriptedReply::json(&working_task(5_000)));
        let server = scripted.open_provider(Era::Stateless).await;
        let started = time::Instant::now();
        let ending = async {
            time::sleep(Duration::from_millis(ends_at)).await;
            scripted.respond_to("tasks/get", completed_task());
        };
        let calling = call(&server, "task", working_task(5_000), CallContext::default());
        let ((), result) = tokio::join!(ending, calling);
        assert_eq!(outcome_text(&result), "done");
        let (elapsed, n_polls) = (started.elapsed(), scripted.n_requests("tasks/get"));
        assert!(elapsed <= Duration::from_millis(limit), "{ends_at} {elapsed:?}");
        assert!(n_polls <= max_polls, "{ends_at} {n_polls}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stateless_server_reports_changes_of_its_tasks() {
    let scripted = ScriptedServer::new();
    scripted.set_tools(&["task"]);
    scripted.add_capability("extensions", json!({"io.modelcontextprotocol/tasks": {}}));
    scripted.respond_to("tasks/get", ScriptedReply::json(&working_task(60_000)));
    let server = scripted.open_provider(Era::Stateless).await;
    let calling = call(&server, "task", working_task(60_000), CallContext::default());
    let ending = async {
        time::sleep(Duration::from_mins(5)).await;
        scripted.respond_to("tasks/get", completed_task());
        let state = RawJson::from(json!({"taskId": "1", "status": "completed"}));
        scripted.notify_change(ServiceChange::Task { id: "1".to_owned(), state });
    };
    let started = time::Instant::now();
    let (result, ()) = tokio::join!(calling, ending);
    assert_eq!(outcome_text(&result), "done");
    assert!(started.elapsed() < Duration::from_secs(302), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_task_support_gets_a_task_only_if_the_tool_requires_one() {
    for era in ERAS {
        let (server, methods) = fixture(era).await;
        let ann = TaskClient::with(TaskMode::Hidden);
        let arguments = json!({"seconds": 1, "label": "x"});
        assert_eq!(
            outcome_text(&call(&server, "slow_compute", arguments, ann.context()).await),
            "Computed 'x' for 1s."
        );
        assert_eq!(n_requests(&methods, "tasks/get"), 0, "{era:?}");
        let result = call(&server, "failing_job", json!({}), ann.context()).await;
        assert_eq!(outcome(&result), "isError: This job always fails.");
        assert!(n_requests(&methods, "tasks/get") > 0, "{era:?}");
    }
}
