//! Deadlines of calls that run as tasks.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::{Call, Invoker, ValidCall};
use pegboard_core::client::{AskError, Client, InputRequest, InputRequests, InputResponses, Notice};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, ToolError};
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::provider::LocalProvider;
use pegboard_core::task::{ServerTask, TaskMode};
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use serde_json::json;
use tokio::time::{self, Instant};

use crate::calls::fixtures::{caller, line};

/// A client that answers after a delay.
struct DelayedClient(TaskMode, Duration);

impl Client for DelayedClient {
    fn notify(&self, _notice: Notice) {}

    fn ask(&self, questions: InputRequests) -> BoxFuture<'_, Result<InputResponses, AskError>> {
        async move {
            time::sleep(self.1).await;
            Ok(questions.into_keys().map(|name| (name, RawJson::of("yes"))).collect())
        }
        .boxed()
    }

    fn task_mode(&self) -> TaskMode {
        self.0
    }
}

/// A tool with a server that turns the call into a task for ten minutes, then asks for input and works.
struct TaskTool(Duration);

impl Handler for TaskTool {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let client = call.context().client();
            let time_to_live = Some(Duration::from_mins(10));
            client.notify(Notice::Task(ServerTask { time_to_live, ..ServerTask::default() }));
            let params = RawJson::empty_object();
            let question = InputRequest { method: "elicitation/create".to_owned(), params };
            let answers = client.ask(InputRequests::from_iter([("q".to_owned(), question)])).await;
            answers.map_err(|error| CallError::Failed(ToolError::from(error)))?;
            time::sleep(self.0).await;
            Ok(Output::new(json!("done")))
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_runs_as_a_task_ends_with_the_task() {
    let minutes = Duration::from_mins;
    let late = "timeout: Tool execution timed out";
    let unanswered = "execution_error: the caller did not respond within 300s";
    let cases = [
        // (the caller's use of tasks, its delay, the duration of the work, the outcome and its time)
        (TaskMode::Hidden, 0, 5, late, 1),
        (TaskMode::Declined, 0, 5, late, 1),
        (TaskMode::Accepted, 0, 5, "done", 5),
        (TaskMode::Accepted, 0, 11, late, 10),
        (TaskMode::Accepted, 7, 2, "done", 9),
        (TaskMode::Hidden, 7, 2, unanswered, 5),
        (TaskMode::Requested(minutes(30)), 11, 18, "done", 29),
        (TaskMode::Requested(minutes(30)), 11, 20, late, 30),
    ];
    for (task_use, answers_after, works, expected, after) in cases {
        let entry = ToolEntry::from_handler("tool", "", Arc::new(TaskTool(minutes(works))));
        let settings = json!({"toolTimeout": 60_000, "questionTimeout": "5m"});
        let runtime = Runtime::builder()
            .settings(serde_json::from_value(settings).unwrap())
            .provide("t", LocalProvider::new([entry]))
            .start()
            .await
            .unwrap();
        let mut call = Call::new("t__tool", json!({}));
        call.context.client = Some(Arc::new(DelayedClient(task_use, minutes(answers_after))));
        let started = Instant::now();
        let ended = caller(&runtime).start(call).await;
        let case = format!("{task_use:?} {answers_after} {works}");
        assert_eq!(line(&ended), expected, "{case}");
        assert_eq!(started.elapsed(), minutes(after), "{case}");
    }
}
