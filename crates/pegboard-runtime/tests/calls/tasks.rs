//! How long calls may take that are kept as tasks.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::{Call, Invoker, ValidCall};
use pegboard_core::client::{Answers, AskError, Client, Notice, Question, Questions};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, ToolError};
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::provider::Local;
use pegboard_core::task::{ServerTask, TaskUse};
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use serde_json::json;
use tokio::time::{self, Instant};

use crate::board::{caller, line};

/// A caller that takes so long to answer.
struct Person(TaskUse, Duration);

impl Client for Person {
    fn notify(&self, _notice: Notice) {}

    fn ask(&self, questions: Questions) -> BoxFuture<'_, Result<Answers, AskError>> {
        async move {
            time::sleep(self.1).await;
            Ok(questions.into_keys().map(|name| (name, RawJson::of("yes"))).collect())
        }
        .boxed()
    }

    fn task_use(&self) -> TaskUse {
        self.0
    }
}

/// A tool whose server makes a task of the call, for ten minutes, then asks something and works.
struct Slow(Duration);

impl Handler for Slow {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let client = call.context().client();
            let time_to_live = Some(Duration::from_mins(10));
            client.notify(Notice::Task(ServerTask { time_to_live, ..ServerTask::default() }));
            let params = RawJson::empty_object();
            let question = Question { method: "elicitation/create".to_owned(), params };
            let answers = client.ask(Questions::from_iter([("q".to_owned(), question)])).await;
            answers.map_err(|error| CallError::Failed(ToolError::from(error)))?;
            time::sleep(self.0).await;
            Ok(Output::new(json!("done")))
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_kept_as_a_task_ends_with_the_task() {
    let minutes = Duration::from_mins;
    let late = "timeout: Tool execution timed out";
    let unanswered = "execution_error: the caller did not answer within 300s";
    let cases = [
        // (what the caller does with tasks, how long it takes to answer, how long the tool works, how it ends and when)
        (TaskUse::Hidden, 0, 5, late, 1),
        (TaskUse::Declined, 0, 5, late, 1),
        (TaskUse::Taken, 0, 5, "done", 5),
        (TaskUse::Taken, 0, 11, late, 10),
        (TaskUse::Taken, 7, 2, "done", 9),
        (TaskUse::Hidden, 7, 2, unanswered, 5),
        (TaskUse::Wanted(minutes(30)), 11, 18, "done", 29),
        (TaskUse::Wanted(minutes(30)), 11, 20, late, 30),
    ];
    for (task_use, answers_after, works, expected, after) in cases {
        let entry = ToolEntry::from_handler("tool", "", Arc::new(Slow(minutes(works))));
        let settings = json!({"toolTimeout": 60_000, "questionTimeout": "5m"});
        let runtime = Runtime::builder()
            .settings(serde_json::from_value(settings).unwrap())
            .provide("t", Local::new([entry]))
            .start()
            .await
            .unwrap();
        let mut call = Call::new("t__tool", json!({}));
        call.context.client = Some(Arc::new(Person(task_use, minutes(answers_after))));
        let started = Instant::now();
        let ended = caller(&runtime).start(call).await;
        let case = format!("{task_use:?} {answers_after} {works}");
        assert_eq!(line(&ended), expected, "{case}");
        assert_eq!(started.elapsed(), minutes(after), "{case}");
    }
}
