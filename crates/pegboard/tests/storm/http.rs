//! A raw HTTP client.

use pegboard::wire::client::Era;
use serde_json::{Value, json};
use tokio::time;

use crate::{ClientAction, TEST_TIMEOUT};

/// One client, with a session in the session era.
pub(super) struct HttpClient {
    http: reqwest::Client,
    url: String,
    era: Era,
    /// Name of the server that it calls.
    server: &'static str,
    session: Option<String>,
    next_id: u64,
}

impl HttpClient {
    pub(super) fn new(url: String, era: Era, server: &'static str) -> Self {
        Self { http: reqwest::Client::new(), url, era, server, session: None, next_id: 1 }
    }

    /// Connects, and starts a session in the session era.
    pub(super) async fn connect(&mut self) {
        if self.era == Era::Stateless {
            return;
        }
        let client = json!({"name": "storm", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": client});
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let response = self.request(reqwest::Method::POST).body(body.to_string()).send().await.unwrap();
        let session = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        response.bytes().await.unwrap();
        self.session = Some(session);
        self.send_message(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    }

    /// Closes the session.
    pub(super) async fn disconnect(&mut self) {
        if let Some(session) = &self.session {
            let left = self.request(reqwest::Method::DELETE).send().await.unwrap();
            assert_eq!(left.status(), 204, "{session}");
            self.session = None;
        }
    }

    /// Makes one call.
    pub(super) async fn perform(&mut self, action: ClientAction, tag: &str) {
        let performing = self.perform_untimed(action, tag);
        time::timeout(TEST_TIMEOUT, performing)
            .await
            .unwrap_or_else(|_| panic!("{tag} takes too long: {action:?}"));
    }

    async fn perform_untimed(&mut self, action: ClientAction, tag: &str) {
        match action {
            ClientAction::Complete { n_steps } => {
                let (id, mut events) = self.call("step", tag, n_steps, json!({})).await;
                expect_steps(&mut events, tag, 1..=n_steps).await;
                expect_response(&mut events, id, tag).await;
            }
            ClientAction::Cancel { n_steps, after } => {
                let (id, mut events) = self.call("step", tag, n_steps, json!({})).await;
                expect_steps(&mut events, tag, 1..=after).await;
                self.cancel(id, events, tag, after).await;
            }
            ClientAction::CancelHanging => {
                let (id, mut events) = self.call("hang", tag, 0, json!({})).await;
                expect_steps(&mut events, tag, 1..=1).await;
                self.cancel(id, events, tag, 1).await;
            }
            ClientAction::AnswerElicitation => self.answer(tag).await,
            // A client without a session cannot resume.
            ClientAction::Resume { n_steps, after } if self.session.is_some() => {
                let (id, mut events) = self.call("step", tag, n_steps, json!({})).await;
                expect_steps(&mut events, tag, 1..=after).await;
                let mut events = self.resume(events).await;
                expect_steps(&mut events, tag, after + 1..=n_steps).await;
                expect_response(&mut events, id, tag).await;
            }
            ClientAction::Resume { .. } | ClientAction::Disconnect => {
                let (_, mut events) = self.call("hang", tag, 0, json!({})).await;
                expect_steps(&mut events, tag, 1..=1).await;
                if self.session.is_some() {
                    self.disconnect().await;
                    assert_eq!(events.next().await, None, "{tag}");
                    self.connect().await;
                }
            }
        }
    }

    async fn answer(&mut self, tag: &str) {
        let (id, mut events) = self.call("ask", tag, 0, json!({})).await;
        let asked = events.next().await.unwrap();
        let answer = json!({"action": "accept", "content": {"name": "Ada"}});
        let said = format!("{tag} \"Ada\"");
        if self.session.is_some() {
            assert_eq!(
                (&asked["method"], &asked["params"]["message"]),
                (&json!("elicitation/create"), &json!(tag))
            );
            self.send_message(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": answer})).await;
            return expect_response(&mut events, id, &said).await;
        }
        assert_eq!((&asked["id"], &asked["result"]["resultType"]), (&json!(id), &json!("input_required")));
        assert_eq!(events.next().await, None, "{tag}");
        let questions = asked["result"]["inputRequests"].as_object().unwrap();
        let (name, question) = questions.iter().next().unwrap();
        assert_eq!((questions.len(), &question["params"]["message"]), (1, &json!(tag)));
        let more = json!({"inputResponses": {name: answer}, "requestState": asked["result"]["requestState"]});
        let (id, mut events) = self.call("ask", tag, 0, more).await;
        expect_response(&mut events, id, &said).await;
    }

    /// Cancels a call.
    async fn cancel(&self, id: u64, mut events: Events, tag: &str, n_heard: u64) {
        if self.session.is_none() {
            // Closing the stream cancels the call.
            return drop(events);
        }
        let params = json!({"requestId": id});
        self.send_message(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))
            .await;
        // Messages in flight may still arrive: steps in order, then the answer.
        let (mut last, mut is_answered) = (n_heard, false);
        while let Some(event) = events.next().await {
            assert!(!is_answered, "{tag}: {event}");
            if event["method"] == "notifications/progress" {
                last += 1;
                assert_eq!(
                    event["params"]["progress"].as_f64().map(|step| format!("{step}")),
                    Some(format!("{last}"))
                );
            } else {
                assert_eq!(event["id"], id, "{tag}: {event}");
                is_answered = true;
            }
        }
    }

    /// Drops a stream and resumes it.
    async fn resume(&self, mut events: Events) -> Events {
        if events.last_id.is_none() {
            assert_eq!(events.read().await, Some(None), "it begins with an id and no message");
        }
        let last = events.last_id.clone().expect("a stream of a session has ids from the beginning");
        drop(events);
        let request = self.request(reqwest::Method::GET).header("last-event-id", last);
        Events::of(request.send().await.unwrap())
    }

    async fn call(&mut self, tool: &str, tag: &str, n_steps: u64, more: Value) -> (u64, Events) {
        let id = self.next_id;
        self.next_id += 1;
        let mut params = json!({
            "name": format!("{}__{tool}", self.server),
            "arguments": {"tag": tag, "n": n_steps},
            "_meta": {"progressToken": tag},
        });
        for (name, value) in more.as_object().unwrap() {
            params[name] = value.clone();
        }
        let mut request = self.request(reqwest::Method::POST);
        if self.era == Era::Stateless {
            request = request
                .header("mcp-protocol-version", "2026-07-28")
                .header("mcp-method", "tools/call")
                .header("mcp-name", params["name"].as_str().unwrap());
            add_request_meta(&mut params);
        }
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        let response = request.body(body.to_string()).send().await.unwrap();
        assert_eq!(response.status(), 200, "{tag}");
        (id, Events::of(response))
    }

    /// Sends a notification or response.
    async fn send_message(&self, message: &Value) {
        let response = self.request(reqwest::Method::POST).body(message.to_string()).send().await.unwrap();
        assert_eq!(response.status(), 202);
    }

    fn request(&self, method: reqwest::Method) -> reqwest::RequestBuilder {
        let request = self.http.request(method, &self.url).header("content-type", "application/json");
        // Request a stream even for a single message, so that it can be dropped.
        let request = request.header("accept", "text/event-stream, application/json");
        match &self.session {
            Some(session) => request.header("mcp-session-id", session),
            None => request,
        }
    }
}

/// Adds the metadata of stateless requests.
pub(super) fn add_request_meta(params: &mut Value) {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({"name": "storm", "version": "1"});
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
}

/// Expects these steps of a call as the next events.
async fn expect_steps(events: &mut Events, tag: &str, steps: std::ops::RangeInclusive<u64>) {
    for step in steps {
        let event = events.next().await.unwrap_or_else(|| panic!("{tag} ends before step {step}"));
        let params = &event["params"];
        assert_eq!(params["progressToken"], tag, "{event}");
        assert_eq!(
            params["progress"].as_f64().map(|done| format!("{done}")),
            Some(format!("{step}")),
            "{event}"
        );
    }
}

/// Expects the answer to a call as the last event.
async fn expect_response(events: &mut Events, id: u64, said: &str) {
    let event = events.next().await.unwrap_or_else(|| panic!("there is no answer: {said}"));
    assert_eq!((&event["id"], &event["result"]["content"][0]["text"]), (&json!(id), &json!(said)), "{event}");
    assert_eq!(events.next().await, None, "{said}");
}

/// Messages of a response: a stream or a single message.
struct Events {
    response: reqwest::Response,
    is_stream: bool,
    unread: String,
    last_id: Option<String>,
}

impl Events {
    fn of(response: reqwest::Response) -> Self {
        assert_eq!(response.status(), 200);
        let is_stream = response.headers()["content-type"] == "text/event-stream";
        Self { response, is_stream, unread: String::new(), last_id: None }
    }

    /// Next message; `None` at the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(message) = self.read().await? {
                return Some(message);
            }
        }
    }

    /// Next event, which may have no message; `None` at the end.
    async fn read(&mut self) -> Option<Option<Value>> {
        loop {
            if let Some((event, rest)) = self.unread.split_once("\n\n").filter(|_| self.is_stream) {
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                let message = field("data: ").map(|data| serde_json::from_str(data).unwrap());
                let id = field("id: ").map(str::to_owned);
                (self.unread, self.last_id) = (rest.to_owned(), id.or(self.last_id.take()));
                return Some(message);
            }
            match self.response.chunk().await.unwrap() {
                Some(chunk) => self.unread.push_str(std::str::from_utf8(&chunk).unwrap()),
                None if self.is_stream || self.unread.is_empty() => return None,
                None => return Some(Some(serde_json::from_str(&std::mem::take(&mut self.unread)).unwrap())),
            }
        }
    }
}
