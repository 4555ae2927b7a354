//! Calls that a server makes tasks of, for callers that know none and for those that take them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::CallContext;
use pegboard_core::client::{Answers, AskError, Client, Notice, Questions};
use pegboard_core::error::CallError;
use pegboard_core::id::ServerName;
use pegboard_core::output::Output;
use pegboard_core::provider::Provider;
use pegboard_core::settings::mcp::{Settings, Target};
use pegboard_core::task::TaskUse;
use pegboard_providers::mcp::{Pipe, Server};
use pegboard_testkit::fixture::Fixture;
use pegboard_wire::client::Era;
use pegboard_wire::era::Revision;
use pegboard_wire::link::InputLimits;
use pegboard_wire::server::{self, Change, Description, Reply, ServerRequest, Service};
use pegboard_wire::stdio::lines;
use pegboard_wire::{RawJson, RpcError};
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};
use tokio::time;

use crate::stage::{Act, ERAS, Speaking, Stage, become_true, call, said};

/// The fixture, which notes what it is asked.
struct Noted {
    fixture: Fixture,
    methods: watch::Sender<Vec<String>>,
}

impl Service for Noted {
    fn describe(&self, revision: Revision) -> Description {
        self.fixture.describe(revision)
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<Reply, RpcError>> {
        self.methods.send_modify(|methods| methods.push(request.method.to_string()));
        self.fixture.call(request)
    }

    fn changes(&self) -> Option<broadcast::Receiver<Change>> {
        self.fixture.changes()
    }
}

/// Somebody who says yes to everything, and remembers what it is told.
struct Person {
    task_use: TaskUse,
    answers: Result<Value, AskError>,
    heard: Mutex<Vec<String>>,
}

impl Person {
    fn with(task_use: TaskUse) -> Arc<Self> {
        let content = json!({"confirm": true, "name": "Ann"});
        let answers = Ok(json!({"action": "accept", "content": content}));
        Arc::new(Self { task_use, answers, heard: Mutex::default() })
    }

    fn context(self: &Arc<Self>) -> CallContext {
        let mut context = CallContext::default();
        context.client = Some(Arc::clone(self) as Arc<dyn Client>);
        context
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

impl Client for Person {
    fn notify(&self, notice: Notice) {
        let heard = match notice {
            Notice::Progress(progress) => progress.message.unwrap_or_default(),
            Notice::Log(line) => line.as_str().to_owned(),
            Notice::Task(task) => format!("task {:?} {:?}", task.time_to_live, task.poll_interval),
        };
        self.heard.lock().unwrap().push(heard);
    }

    fn ask(&self, questions: Questions) -> BoxFuture<'_, Result<Answers, AskError>> {
        self.heard.lock().unwrap().extend(questions.keys().map(|name| format!("asked {name}")));
        let answers = self
            .answers
            .clone()
            .map(|answer| questions.into_keys().map(|name| (name, RawJson::from(answer.clone()))).collect());
        std::future::ready(answers).boxed()
    }

    fn task_use(&self) -> TaskUse {
        self.task_use
    }
}

/// The fixture as a provider, started, and what it is asked.
async fn fixture(era: Era) -> (Server, watch::Receiver<Vec<String>>) {
    let methods = watch::Sender::default();
    let noted = Arc::new(Noted { fixture: Fixture::new(), methods: methods.clone() });
    let serving = server::Server::new(noted);
    let pipe = Pipe::new(move || {
        let serving = serving.clone();
        async move {
            let (near, far) = tokio::io::duplex(64 * 1024);
            let (reader, writer) = tokio::io::split(far);
            let (link, _) = lines(reader, writer, InputLimits::server());
            tokio::spawn(async move { serving.serve(link).await });
            Ok(tokio::io::split(near))
        }
    });
    let settings = Settings::new(ServerName::new("fixture").unwrap(), Target::Embedded);
    let server = Server::new(settings, Arc::new(Speaking(era, Arc::new(pipe))));
    server.open().await.unwrap();
    (server, methods.subscribe())
}

/// How a call went: the text of its answer, marked if it tells of a failure.
fn outcome(result: &Result<Output, CallError>) -> String {
    match result {
        Ok(output) if output.is_error() => format!("isError: {}", output.text()),
        result => said(result),
    }
}

fn n_asked(methods: &watch::Receiver<Vec<String>>, method: &str) -> usize {
    methods.borrow().iter().filter(|asked| *asked == method).count()
}

#[tokio::test(start_paused = true)]
async fn whoever_knows_no_tasks_gets_their_end() {
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
        for task_use in [TaskUse::Hidden, TaskUse::Taken, TaskUse::Wanted(Duration::from_mins(3))] {
            let (server, methods) = fixture(era).await;
            for (tool, arguments, expected) in &cases {
                let ann = Person::with(task_use);
                let result = call(&server, tool, arguments.clone(), ann.context()).await;
                assert_eq!(outcome(&result), *expected, "{era:?} {task_use:?} {tool}");
                let is_exact =
                    result.is_ok_and(|output| !output.to_result().as_str().contains("related-task"));
                assert!(is_exact || *tool == "protocol_error_job");
            }
            assert!(n_asked(&methods, "tasks/get") > 0, "{era:?} {task_use:?}");
            assert_eq!(n_asked(&methods, "tasks/cancel"), 0, "{era:?} {task_use:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_hears_of_the_task_and_is_asked_for_it() {
    for (era, asked) in [(Era::Session, "elicitation/create"), (Era::Stateless, "confirmation")] {
        let (server, _) = fixture(era).await;
        let ann = Person::with(TaskUse::Wanted(Duration::from_mins(10)));
        let arguments = json!({"filename": "f"});
        assert_eq!(said(&call(&server, "confirm_delete", arguments, ann.context()).await), "Deleted 'f'.");
        assert_eq!(ann.heard(), ["task Some(600s) Some(200ms)".to_owned(), format!("asked {asked}")]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_takes_no_tasks_hears_of_a_server_that_insists() {
    let (server, methods) = fixture(Era::Stateless).await;
    let ann = Person::with(TaskUse::Declined);
    let refused = call(&server, "failing_job", json!({}), ann.context()).await;
    let Err(CallError::Failed(error)) = &refused else { panic!("{refused:?}") };
    let protocol = error.protocol().unwrap();
    assert_eq!(protocol.code, -32_021);
    assert_eq!(
        protocol.data.as_ref().unwrap().as_str(),
        r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#
    );
    // One that can do without a task does.
    let arguments = json!({"seconds": 1, "label": "x"});
    assert_eq!(said(&call(&server, "slow_compute", arguments, ann.context()).await), "Computed 'x' for 1s.");
    assert_eq!(n_asked(&methods, "tasks/get"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_nobody_waits_for_is_called_off() {
    for era in ERAS {
        let (server, methods) = fixture(era).await;
        let ann = Person::with(TaskUse::Taken);
        let arguments = json!({"seconds": 300, "label": "x"});
        let patience = Duration::from_secs(5);
        let slow = call(&server, "slow_compute", arguments, ann.context());
        assert!(time::timeout(patience, slow).await.is_err());
        become_true(methods, |methods| methods.last().unwrap() == "tasks/cancel").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_question_has_no_answer_is_called_off() {
    let (server, methods) = fixture(Era::Stateless).await;
    let answers = Err(AskError::Refused("no".to_owned()));
    let ann = Arc::new(Person { task_use: TaskUse::Taken, answers, heard: Mutex::default() });
    let said = said(&call(&server, "confirm_delete", json!({"filename": "f"}), ann.context()).await);
    assert_eq!(said, "execution_error: the server asked a question, and the caller refused: no");
    become_true(methods, |methods| methods.last().unwrap() == "tasks/cancel").await;
}

#[tokio::test(start_paused = true)]
async fn tasks_of_several_callers_ask_each_its_own() {
    for era in ERAS {
        let (server, _) = fixture(era).await;
        let (ann, bob) = (Person::with(TaskUse::Taken), Person::with(TaskUse::Taken));
        let arguments = || json!({"filename": "f"});
        let (to_ann, to_bob) = tokio::join!(
            call(&server, "confirm_delete", arguments(), ann.context()),
            call(&server, "confirm_delete", arguments(), bob.context()),
        );
        assert_eq!([said(&to_ann), said(&to_bob)], ["Deleted 'f'.", "Deleted 'f'."]);
        assert_eq!((ann.heard().len(), bob.heard().len()), (2, 2));
        assert_eq!(server.offer().borrow().warnings, [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn every_tool_of_a_server_that_makes_tasks_may_be_asked_for_one() {
    let support = |server: &Server, tool: &str| {
        let offer = server.offer();
        let offer = offer.borrow();
        let entry = offer.tools.iter().find(|entry| entry.name() == tool).unwrap();
        entry.definition().at(&["execution", "taskSupport"]).map(|support| support.as_str().to_owned())
    };
    let (server, _) = fixture(Era::Stateless).await;
    assert_eq!(support(&server, "greet").as_deref(), Some("\"optional\""));
    let (server, _) = fixture(Era::Session).await;
    assert_eq!(support(&server, "greet"), None);
    assert_eq!(support(&server, "failing_job").as_deref(), Some("\"required\""));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_makes_no_sense_ends_its_call() {
    let working = json!({"resultType": "task", "taskId": "1", "status": "working"});
    let cases = [
        (
            json!({"resultType": "task", "status": "working"}),
            json!({}),
            "the server made a task without an id",
        ),
        (working.clone(), json!({}), "the server's task is in the unknown state ''"),
        (working.clone(), json!({"status": "odd"}), "the server's task is in the unknown state 'odd'"),
        (working.clone(), json!({"status": "completed"}), "the server's task ended without a result"),
        (
            working.clone(),
            json!({"status": "completed", "result": 1}),
            "the server's task ended without a result",
        ),
        (
            working.clone(),
            json!({"status": "failed", "error": {"code": "x"}}),
            "the server's task ended with an error that is none",
        ),
        (working.clone(), json!({"status": "cancelled"}), "the server cancelled the task"),
        (working, json!({"status": "failed", "error": {"code": -1, "message": "no"}}), "MCP error -1: no"),
    ];
    for (created, then, expected) in cases {
        let stage = Stage::new();
        stage.list(&["task"]);
        stage.on("tasks/get", Act::say(&then));
        let server = stage.opened(Era::Stateless).await;
        let result = call(&server, "task", created, CallContext::default()).await;
        assert_eq!(said(&result), format!("execution_error: {expected}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_once_does_not_say_how_a_task_is_is_asked_again() {
    let stage = Stage::new();
    stage.list(&["task"]);
    let done = json!({"status": "completed", "result": {"content": [{"type": "text", "text": "done"}]}});
    stage.on("tasks/get", Act::HangOnce(done.to_string()));
    let server = stage.opened(Era::Stateless).await;
    let created = || json!({"resultType": "task", "taskId": "1", "status": "working", "pollIntervalMs": 0});
    let result = call(&server, "task", created(), CallContext::default()).await;
    assert_eq!((said(&result), stage.n_requests("tasks/get")), ("done".to_owned(), 2));
    // One that never says is given up.
    stage.on("tasks/get", Act::Hang);
    let result = call(&server, "task", created(), CallContext::default()).await;
    assert_eq!(
        said(&result),
        "transport_error: MCP server 'stage' went away before it answered: tasks/get was not answered within 30s. The \
         tool may have run"
    );
    assert_eq!(stage.n_requests("tasks/get"), 5);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_that_a_task_is_over_is_asked_at_once() {
    let stage = Stage::new();
    let execution = json!({"taskSupport": "required"});
    let tool = json!({"name": "task", "inputSchema": {"type": "object"}, "execution": execution});
    stage.list_pages(vec![json!({"tools": [tool]}).to_string()]);
    stage.can("tasks", json!({"requests": {"tools": {"call": {}}}}));
    stage.on("tasks/get", Act::say(&json!({"status": "working", "pollInterval": 60_000})));
    let done = json!({"content": [{"type": "text", "text": "done"}]});
    stage.on("tasks/result", Act::say(&done));
    let server = stage.opened(Era::Session).await;
    let created = json!({"task": {"taskId": "1", "status": "working", "pollInterval": 60_000}});
    let calling = call(&server, "task", created, CallContext::default());
    let ending = async {
        time::sleep(Duration::from_secs(5)).await;
        stage.on("tasks/get", Act::say(&json!({"status": "completed"})));
        stage.tell(Change::Task { id: "1".to_owned(), state: RawJson::from(json!({"taskId": "1"})) });
    };
    let started = time::Instant::now();
    let (result, ()) = tokio::join!(calling, ending);
    assert_eq!(said(&result), "done");
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
}
