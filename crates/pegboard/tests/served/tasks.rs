//! Tasks between clients and servers of both eras.

use std::sync::Arc;
use std::time::Duration;

use pegboard::wire::client::{Era, McpClient, RequestOptions};
use pegboard::wire::link::InputLimits;
use pegboard::wire::server::ServiceServer;
use pegboard::wire::stdio::line_transport;
use pegboard::wire::{RawJson, RequestError, RpcError};
use pegboard_testkit::fixture::Fixture;
use serde_json::{Value, json};
use tokio::time;

use crate::stage::{LONG, Seat, Stage, WAYS, listed, text};

/// Entry point of the fixture server for one era, not a test.
#[tokio::test]
#[ignore = "what other tests start"]
async fn play() {
    let is_given = |era: &str| std::env::args().any(|argument| argument == era);
    let era = match (is_given("era:session"), is_given("era:stateless")) {
        (true, _) => Era::Session,
        (_, true) => Era::Stateless,
        (false, false) => return,
    };
    // End the line printed by the test harness.
    println!();
    let (link, _) = line_transport(tokio::io::stdin(), tokio::io::stdout(), InputLimits::server());
    ServiceServer::new(Arc::new(Fixture::new())).serving_only(era).serve(link).await;
    std::process::exit(0);
}

fn fixture(era: Era) -> Value {
    let era = if era == Era::Session { "era:session" } else { "era:stateless" };
    let program = std::env::current_exe().unwrap();
    let server = json!({
        "command": program, "args": ["tasks::play", "--exact", "--ignored", "--nocapture", era],
    });
    json!({"toolboxes": {"t": {"description": "Slow", "mcpServers": {"f": server}}}})
}

/// Runs a test with every kind of client and server.
async fn everywhere(scene: impl AsyncFn(&Player)) {
    for way in WAYS {
        for behind in [Era::Session, Era::Stateless] {
            let stage = Stage::new();
            let file = stage.write("workbench-config.json", &fixture(behind).to_string());
            let seat = Seat::take(stage, &file, Some("flat"), way).await;
            let player = Player { seat, behind, case: format!("{way:?} before {behind:?}") };
            let scene = async {
                // A listing does not wait for a slow server, so retry.
                while listed(player.client()).await.len() < 2 {
                    time::sleep(Duration::from_millis(50)).await;
                }
                scene(&player).await;
            };
            time::timeout(LONG, scene).await.unwrap_or_else(|_| panic!("{} takes too long", player.case));
        }
    }
}

/// A client that supports the tasks of its era.
struct Player {
    seat: Seat,
    /// Era of the server.
    behind: Era,
    case: String,
}

impl Player {
    fn client(&self) -> &McpClient {
        &self.seat.client
    }

    async fn ask(&self, method: &str, params: Value) -> Result<Value, RpcError> {
        let extensions = json!({"io.modelcontextprotocol/tasks": {}});
        let capabilities = RawJson::from(json!({"elicitation": {}, "extensions": extensions}));
        let options = RequestOptions { capabilities: Some(capabilities), ..RequestOptions::default() };
        let sent = self.client().request(method, Some(RawJson::from(params)), options).await.unwrap();
        match sent.response().await {
            Ok(result) => Ok(result.to_value()),
            Err(RequestError::Rpc(error)) => Err(error),
            Err(failure) => panic!("{}: {failure}", self.case),
        }
    }

    async fn about(&self, method: &str, id: &str) -> Result<Value, RpcError> {
        self.ask(method, json!({"taskId": id})).await
    }

    /// Calls a tool as a task and returns its id.
    async fn begin(&self, tool: &str, arguments: Value) -> String {
        let params = match self.seat.era {
            Era::Session => json!({"name": tool, "arguments": arguments, "task": {"ttl": 60_000}}),
            Era::Stateless => json!({"name": tool, "arguments": arguments}),
        };
        let created = self.ask("tools/call", params).await.unwrap();
        let task = if self.seat.era == Era::Session { &created["task"] } else { &created };
        assert_eq!(task["status"], "working", "{}: {created}", self.case);
        task["taskId"].as_str().unwrap().to_owned()
    }

    async fn become_one_of(&self, id: &str, states: &[&str]) -> Value {
        loop {
            let task = self.about("tasks/get", id).await.unwrap();
            if states.contains(&task["status"].as_str().unwrap()) {
                return task;
            }
            time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Answers the input requests of a task until it completes.
    async fn answer_everything(&self, id: &str) {
        let states = ["input_required", "completed", "failed"];
        let answer = json!({"action": "accept", "content": {"name": "Ada"}});
        loop {
            let asked = self.become_one_of(id, &states).await;
            let Some(questions) = asked["inputRequests"].as_object() else { return };
            let answers: serde_json::Map<String, Value> =
                questions.keys().map(|name| (name.clone(), answer.clone())).collect();
            self.ask("tasks/update", json!({"taskId": id, "inputResponses": answers})).await.unwrap();
        }
    }

    /// Result or error of a task.
    async fn end(&self, id: &str) -> Result<Value, RpcError> {
        match self.seat.era {
            Era::Session => self.about("tasks/result", id).await,
            Era::Stateless => {
                let over = self.become_one_of(id, &["completed", "failed"]).await;
                match over.get("error") {
                    Some(error) => Err(serde_json::from_value(error.clone()).unwrap()),
                    None => Ok(over["result"].clone()),
                }
            }
        }
    }
}

#[tokio::test]
async fn a_task_ends_as_its_server_ends_it() {
    everywhere(async |player| {
        let id = player.begin("f__slow_compute", json!({"seconds": 0.3, "label": "x"})).await;
        assert_eq!(text(&player.end(&id).await.unwrap()), "Computed 'x' for 300ms.", "{}", player.case);
        let id = player.begin("f__failing_job", json!({})).await;
        assert_eq!(text(&player.end(&id).await.unwrap()), "isError: This job always fails.");
        let id = player.begin("f__protocol_error_job", json!({})).await;
        let error = player.end(&id).await.unwrap_err();
        let expected = (-32_603, "This job always ends with a protocol error");
        assert_eq!((error.code, &*error.message), expected, "{}", player.case);
    })
    .await;
}

#[tokio::test]
async fn a_task_can_request_input() {
    everywhere(async |player| {
        let id = player.begin("f__multi_input", json!({})).await;
        if player.seat.era == Era::Stateless {
            player.answer_everything(&id).await;
        }
        let said = text(&player.end(&id).await.unwrap());
        assert_eq!(said, r#"The names are "Ada" and "Ada"."#, "{}", player.case);
    })
    .await;
}

#[tokio::test]
async fn a_canceled_or_unknown_task_has_no_result() {
    everywhere(async |player| {
        let id = player.begin("f__slow_compute", json!({"seconds": 200, "label": "x"})).await;
        player.about("tasks/cancel", &id).await.unwrap();
        let task = player.about("tasks/get", &id).await.unwrap();
        assert_eq!(task["status"], "cancelled", "{}", player.case);
        // As after a restart of the gateway.
        let error = player.about("tasks/get", "0123456789abcdef").await.unwrap_err();
        let lost = "unknown task: it may have expired, or the gateway was restarted";
        assert_eq!((error.code, error.message), (-32_602, format!("Invalid params: {lost}")));
    })
    .await;
}

#[tokio::test]
async fn a_client_without_tasks_gets_the_result() {
    everywhere(async |player| {
        let call = async |tool: &str, arguments: Value| {
            let params = RawJson::from(json!({"name": tool, "arguments": arguments}));
            player.client().call("tools/call", Some(params)).await.map(|result| text(&result.to_value()))
        };
        let computed = call("f__slow_compute", json!({"seconds": 0.3, "label": "x"})).await.unwrap();
        assert_eq!(computed, "Computed 'x' for 300ms.", "{}", player.case);
        let failed = call("f__failing_job", json!({})).await;
        match (player.seat.era, player.behind) {
            // A server that requires tasks reports an error to clients that could have declared support.
            (Era::Stateless, Era::Stateless) => {
                let Err(RequestError::Rpc(error)) = failed else { panic!("{failed:?}") };
                assert_eq!(error.code, -32_021);
            }
            (Era::Session, _) | (_, Era::Session) => {
                assert_eq!(failed.unwrap(), "isError: This job always fails.", "{}", player.case);
            }
        }
    })
    .await;
}
