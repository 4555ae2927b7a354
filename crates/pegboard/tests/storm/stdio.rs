//! A raw stdio client.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pegboard::wire::client::Era;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::time;

use crate::http::add_request_meta;
use crate::program::Program;
use crate::{ClientAction, TEST_TIMEOUT};

/// The only client of a gateway, with many concurrent calls.
pub(super) struct StdioClient {
    era: Era,
    server: &'static str,
    input: Arc<tokio::sync::Mutex<ChildStdin>>,
    calls: Calls,
    next_id: AtomicU64,
}

/// Receivers of messages by call id; removed when the call completes.
type Calls = Arc<Mutex<HashMap<u64, mpsc::UnboundedSender<Value>>>>;

impl StdioClient {
    /// Connects to a program over stdio.
    pub(super) async fn connect(program: &mut Program, era: Era, server: &'static str) -> Self {
        let (input, output) = (program.child.stdin.take().unwrap(), program.child.stdout.take().unwrap());
        let (input, calls) = (Arc::new(tokio::sync::Mutex::new(input)), Calls::default());
        tokio::spawn(dispatch(output, Arc::clone(&input), Arc::clone(&calls)));
        let client = Self { era, server, input, calls, next_id: AtomicU64::new(1) };
        if era == Era::Session {
            let info = json!({"name": "storm", "version": "1"});
            let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": info});
            let (id, mut messages) = client.request("initialize", params).await;
            assert_eq!(messages.recv().await.unwrap()["id"], id);
            client.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        }
        client
    }

    /// Makes one call.
    pub(super) async fn perform(&self, action: ClientAction, tag: &str) {
        let performing = self.perform_untimed(action, tag);
        time::timeout(TEST_TIMEOUT, performing)
            .await
            .unwrap_or_else(|_| panic!("{tag} takes too long: {action:?}"));
    }

    async fn perform_untimed(&self, action: ClientAction, tag: &str) {
        match action {
            // All calls share one connection, so it cannot be dropped.
            ClientAction::Complete { n_steps } | ClientAction::Resume { n_steps, .. } => {
                let (id, mut messages) = self.call("step", tag, n_steps, json!({})).await;
                expect_steps(&mut messages, tag, n_steps).await;
                expect_response(&mut messages, id, tag).await;
            }
            ClientAction::Cancel { n_steps, after } => {
                let (id, mut messages) = self.call("step", tag, n_steps, json!({})).await;
                expect_steps(&mut messages, tag, after).await;
                self.cancel(id).await;
            }
            ClientAction::CancelHanging | ClientAction::Disconnect => {
                let (id, mut messages) = self.call("hang", tag, 0, json!({})).await;
                expect_steps(&mut messages, tag, 1).await;
                self.cancel(id).await;
            }
            ClientAction::AnswerElicitation => self.answer(tag).await,
        }
    }

    async fn answer(&self, tag: &str) {
        let (mut id, mut messages) = self.call("ask", tag, 0, json!({})).await;
        if self.era == Era::Stateless {
            let asked = messages.recv().await.unwrap();
            assert_eq!(
                (&asked["id"], &asked["result"]["resultType"]),
                (&json!(id), &json!("input_required"))
            );
            let questions = asked["result"]["inputRequests"].as_object().unwrap();
            let (name, question) = questions.iter().next().unwrap();
            assert_eq!((questions.len(), &question["params"]["message"]), (1, &json!(tag)));
            let answers = json!({name: {"action": "accept", "content": {"name": "Ada"}}});
            let more = json!({"inputResponses": answers, "requestState": asked["result"]["requestState"]});
            (id, messages) = self.call("ask", tag, 0, more).await;
        }
        expect_response(&mut messages, id, &format!("{tag} \"Ada\"")).await;
    }

    async fn cancel(&self, id: u64) {
        let params = json!({"requestId": id});
        self.write(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})).await;
    }

    async fn call(
        &self,
        tool: &str,
        tag: &str,
        n_steps: u64,
        more: Value,
    ) -> (u64, mpsc::UnboundedReceiver<Value>) {
        let name = format!("{}__{tool}", self.server);
        let mut params = json!({"name": name, "arguments": {"tag": tag, "n": n_steps}});
        for (name, value) in more.as_object().unwrap() {
            params[name] = value.clone();
        }
        self.request("tools/call", params).await
    }

    async fn request(&self, method: &str, mut params: Value) -> (u64, mpsc::UnboundedReceiver<Value>) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        params["_meta"]["progressToken"] = json!(id);
        if self.era == Era::Stateless {
            add_request_meta(&mut params);
        }
        let (hear, messages) = mpsc::unbounded_channel();
        self.calls.lock().unwrap().insert(id, hear);
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        (id, messages)
    }

    async fn write(&self, message: &Value) {
        write(&self.input, message).await;
    }
}

async fn write(input: &tokio::sync::Mutex<ChildStdin>, message: &Value) {
    input.lock().await.write_all(format!("{message}\n").as_bytes()).await.unwrap();
}

/// Dispatches messages of the gateway and answers its requests.
async fn dispatch(output: ChildStdout, input: Arc<tokio::sync::Mutex<ChildStdin>>, calls: Calls) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let message: Value = serde_json::from_str(&line).unwrap();
        if message["method"] == "elicitation/create" {
            let answer = json!({"action": "accept", "content": {"name": "Ada"}});
            write(&input, &json!({"jsonrpc": "2.0", "id": message["id"], "result": answer})).await;
        } else if let Some(id) = message["id"].as_u64() {
            // The answer is the last message of a call.
            let call = calls.lock().unwrap().remove(&id);
            let call = call.unwrap_or_else(|| panic!("a second answer: {line}"));
            // A canceled call has no receiver.
            let _ = call.send(message);
        } else if let Some(id) = message["params"]["progressToken"].as_u64() {
            let calls = calls.lock().unwrap();
            let call = calls.get(&id).unwrap_or_else(|| panic!("progress after the answer: {line}"));
            let _ = call.send(message);
        }
    }
}

/// Expects the first steps of a call as the next messages.
async fn expect_steps(messages: &mut mpsc::UnboundedReceiver<Value>, tag: &str, n_steps: u64) {
    for step in 1..=n_steps {
        let message = messages.recv().await.unwrap();
        let done = message["params"]["progress"].as_f64().map(|done| format!("{done}"));
        assert_eq!(done, Some(format!("{step}")), "{tag}: {message}");
    }
}

/// Expects the answer to a call as the next message.
async fn expect_response(messages: &mut mpsc::UnboundedReceiver<Value>, id: u64, said: &str) {
    let message = messages.recv().await.unwrap();
    assert_eq!(
        (&message["id"], &message["result"]["content"][0]["text"]),
        (&json!(id), &json!(said)),
        "{message}"
    );
    assert!(messages.recv().await.is_none(), "nothing comes after {said}");
}
