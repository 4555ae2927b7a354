//! Tasks between clients and servers of both eras.

use std::time::Duration;

use futures_util::future::join_all;
use pegboard::wire::client::{Era, McpClient, RequestOptions};
use pegboard::wire::{RawJson, RequestError, RpcError};
use serde_json::{Value, json};
use tokio::time;

use crate::harness::{CLIENT_KINDS, ConnectedClient, TEST_TIMEOUT, TestEnvironment, listed, testkit, text};

fn fixture(era: Era) -> Value {
    let era = if era == Era::Session { "session" } else { "stateless" };
    let server = json!({"command": testkit(), "args": ["stdio", "--era", era]});
    json!({"toolboxes": {"t": {"description": "Slow", "mcpServers": {"f": server}}}})
}

/// Runs a test with every kind of client and server, concurrently.
async fn with_every_client_and_server(test: impl AsyncFn(&TaskClient)) {
    let test = &test;
    let pairs = CLIENT_KINDS.into_iter().flat_map(|kind| [(kind, Era::Session), (kind, Era::Stateless)]);
    let tests = pairs.map(async |(kind, server_era)| {
        let environment = TestEnvironment::new();
        let file = environment.write("workbench-config.json", &fixture(server_era).to_string());
        let connected = ConnectedClient::connect(environment, &file, Some("flat"), kind).await;
        let client = TaskClient { connected, server_era, case: format!("{kind:?} before {server_era:?}") };
        let test = async {
            // A listing does not wait for a slow server, so retry.
            while listed(client.client()).await.len() < 2 {
                time::sleep(Duration::from_millis(50)).await;
            }
            test(&client).await;
        };
        let timed = time::timeout(TEST_TIMEOUT, test).await;
        timed.unwrap_or_else(|_| panic!("{} takes too long", client.case));
    });
    join_all(tests).await;
}

/// A client that supports the tasks of its era.
struct TaskClient {
    connected: ConnectedClient,
    /// Era of the server.
    server_era: Era,
    case: String,
}

impl TaskClient {
    fn client(&self) -> &McpClient {
        &self.connected.client
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
        let params = match self.connected.era {
            Era::Session => json!({"name": tool, "arguments": arguments, "task": {"ttl": 60_000}}),
            Era::Stateless => json!({"name": tool, "arguments": arguments}),
        };
        let created = self.ask("tools/call", params).await.unwrap();
        let task = if self.connected.era == Era::Session { &created["task"] } else { &created };
        assert_eq!(task["status"], "working", "{}: {created}", self.case);
        task["taskId"].as_str().unwrap().to_owned()
    }

    async fn wait_for_status(&self, id: &str, states: &[&str]) -> Value {
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
            let asked = self.wait_for_status(id, &states).await;
            let Some(questions) = asked["inputRequests"].as_object() else { return };
            let answers: serde_json::Map<String, Value> =
                questions.keys().map(|name| (name.clone(), answer.clone())).collect();
            self.ask("tasks/update", json!({"taskId": id, "inputResponses": answers})).await.unwrap();
        }
    }

    /// Result or error of a task.
    async fn end(&self, id: &str) -> Result<Value, RpcError> {
        match self.connected.era {
            Era::Session => self.about("tasks/result", id).await,
            Era::Stateless => {
                let over = self.wait_for_status(id, &["completed", "failed"]).await;
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
    with_every_client_and_server(async |client| {
        let id = client.begin("f__slow_compute", json!({"seconds": 0.3, "label": "x"})).await;
        assert_eq!(text(&client.end(&id).await.unwrap()), "Computed 'x' for 300ms.", "{}", client.case);
        let id = client.begin("f__failing_job", json!({})).await;
        assert_eq!(text(&client.end(&id).await.unwrap()), "isError: This job always fails.");
        let id = client.begin("f__protocol_error_job", json!({})).await;
        let error = client.end(&id).await.unwrap_err();
        let expected = (-32_603, "This job always ends with a protocol error");
        assert_eq!((error.code, &*error.message), expected, "{}", client.case);
    })
    .await;
}

#[tokio::test]
async fn a_task_can_request_input() {
    with_every_client_and_server(async |client| {
        let id = client.begin("f__multi_input", json!({})).await;
        if client.connected.era == Era::Stateless {
            client.answer_everything(&id).await;
        }
        let said = text(&client.end(&id).await.unwrap());
        assert_eq!(said, r#"The names are "Ada" and "Ada"."#, "{}", client.case);
    })
    .await;
}

#[tokio::test]
async fn a_canceled_or_unknown_task_has_no_result() {
    with_every_client_and_server(async |client| {
        let id = client.begin("f__slow_compute", json!({"seconds": 200, "label": "x"})).await;
        client.about("tasks/cancel", &id).await.unwrap();
        let task = client.about("tasks/get", &id).await.unwrap();
        assert_eq!(task["status"], "cancelled", "{}", client.case);
        // As after a restart of the gateway.
        let error = client.about("tasks/get", "0123456789abcdef").await.unwrap_err();
        let lost = "unknown task: it may have expired, or the gateway was restarted";
        assert_eq!((error.code, error.message), (-32_602, format!("Invalid params: {lost}")));
    })
    .await;
}

#[tokio::test]
async fn a_client_without_tasks_gets_the_result() {
    with_every_client_and_server(async |client| {
        let call = async |tool: &str, arguments: Value| {
            let params = RawJson::from(json!({"name": tool, "arguments": arguments}));
            client.client().call("tools/call", Some(params)).await.map(|result| text(&result.to_value()))
        };
        let computed = call("f__slow_compute", json!({"seconds": 0.3, "label": "x"})).await.unwrap();
        assert_eq!(computed, "Computed 'x' for 300ms.", "{}", client.case);
        let failed = call("f__failing_job", json!({})).await;
        match (client.connected.era, client.server_era) {
            // A server that requires tasks reports an error to clients that could have declared support.
            (Era::Stateless, Era::Stateless) => {
                let Err(RequestError::Rpc(error)) = failed else { panic!("{failed:?}") };
                assert_eq!(error.code, -32_021);
            }
            (Era::Session, _) | (_, Era::Session) => {
                assert_eq!(failed.unwrap(), "isError: This job always fails.", "{}", client.case);
            }
        }
    })
    .await;
}
