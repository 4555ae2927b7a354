//! Several threads: what one client does reaches the others, whichever thread serves them.

use pegboard::wire::client::Era;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time;

use crate::guards::INITIALIZE;
use crate::harness::{Endpoint, TEST_TIMEOUT, TestEnvironment, call, rewrite, text};
use crate::lifecycle::signal;

/// Number of threads, and of the connections that tests keep open so that each thread has one.
const N_THREADS: usize = 3;

/// Starts a gateway with threads for the server `s`.
async fn start(environment: &TestEnvironment) -> Endpoint {
    let file = environment
        .write("pegboard.json", &configuration(environment, &["hang", "release", "x"]).to_string());
    let mut command = environment.serving(&file);
    command.args(["--http", "127.0.0.1:0", "--profile", "flat", "--threads", &N_THREADS.to_string()]);
    Endpoint::start(command).await
}

fn configuration(environment: &TestEnvironment, tools: &[&str]) -> Value {
    json!({"toolboxes": {"t": {"description": "T", "mcpServers": {"s": environment.server("s", tools)}}}})
}

/// Clients that keep one connection each.
struct Connections {
    url: String,
    clients: Vec<reqwest::Client>,
}

impl Connections {
    fn new(endpoint: &Endpoint) -> Self {
        let client = || reqwest::Client::builder().pool_max_idle_per_host(1).build().unwrap();
        Self { url: endpoint.url(None), clients: (0..N_THREADS).map(|_| client()).collect() }
    }

    /// Sends a message on one of the connections.
    async fn post(
        &self,
        connection: usize,
        session: Option<&str>,
        body: impl Into<String>,
    ) -> reqwest::Response {
        let request = self.clients[connection].post(&self.url).header("content-type", "application/json");
        let request = request.header("accept", "application/json").body(body.into());
        let request = session.into_iter().fold(request, |request, id| request.header("mcp-session-id", id));
        request.send().await.unwrap()
    }

    /// Opens a session on the first connection.
    async fn initialize(&self) -> String {
        let opened = self.post(0, None, INITIALIZE).await;
        let session = opened.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        opened.bytes().await.unwrap();
        session
    }
}

fn tool_call(id: usize, tool: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": {}}})
        .to_string()
}

/// Number of threads that the gateway has started for its clients.
fn n_started_threads(endpoint: &Endpoint) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", endpoint.child.id().unwrap())).unwrap();
    let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap());
    names.filter(|name| name.starts_with("pegboard-http")).count()
}

#[tokio::test]
async fn one_thread_serves_all_connections() {
    let environment = TestEnvironment::new();
    let file = environment.write("pegboard.json", &json!({"pegboard": 1, "threads": 1}).to_string());
    let mut command = environment.serving(&file);
    command.args(["--http", "127.0.0.1:0"]);
    let endpoint = Endpoint::start(command).await;
    let connections = Connections::new(&endpoint);
    for connection in 0..N_THREADS {
        assert_eq!(connections.post(connection, None, INITIALIZE).await.status(), 200);
    }
    assert_eq!(n_started_threads(&endpoint), 0);
}

#[tokio::test]
async fn a_session_is_known_to_all_threads() {
    let environment = TestEnvironment::new();
    let endpoint = start(&environment).await;
    let connections = Connections::new(&endpoint);
    let session = connections.initialize().await;
    for connection in 0..N_THREADS {
        let answer = connections.post(connection, Some(&session), tool_call(7, "s__x")).await;
        let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        assert_eq!(text(&answer["result"]), "s/x {}");
    }
    assert_eq!(environment.n_started(), 1);
    assert_eq!(n_started_threads(&endpoint), N_THREADS - 1);
    // A session that is deleted on one thread is gone on the others.
    let deleted = connections.clients[1].delete(&connections.url).header("mcp-session-id", &session);
    assert_eq!(deleted.send().await.unwrap().status(), 204);
    for connection in 0..N_THREADS {
        let answer = connections.post(connection, Some(&session), tool_call(8, "s__x")).await;
        assert_eq!(answer.status(), 404);
    }
}

#[tokio::test]
async fn a_call_is_cancelled_from_another_thread() {
    let environment = TestEnvironment::new();
    let endpoint = start(&environment).await;
    let connections = Connections::new(&endpoint);
    let session = connections.initialize().await;
    let hanging = connections.post(0, Some(&session), tool_call(2, "s__hang"));
    let cancelling = async {
        environment.wait_for_event("s hangs").await;
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#;
        assert_eq!(connections.post(1, Some(&session), cancel).await.status(), 202);
        environment.wait_for_event("s cancelled").await;
    };
    let (hung, ()) = time::timeout(TEST_TIMEOUT, async { tokio::join!(hanging, cancelling) }).await.unwrap();
    let hung = hung.text().await.unwrap();
    assert!(
        !hung.contains("result") && !hung.contains("error"),
        "a cancelled request has no response: {hung}"
    );
    // Its id is free again.
    let again = connections.post(2, Some(&session), tool_call(2, "s__x")).await.text().await.unwrap();
    assert!(again.contains("s/x {}"), "{again}");
}

#[tokio::test]
async fn a_client_on_one_thread_ends_the_wait_of_another() {
    let environment = TestEnvironment::new();
    let endpoint = start(&environment).await;
    let connections = Connections::new(&endpoint);
    let session = connections.initialize().await;
    let hanging = connections.post(0, Some(&session), tool_call(2, "s__hang"));
    let releasing = async {
        environment.wait_for_event("s hangs").await;
        connections.post(1, Some(&session), tool_call(3, "s__release")).await
    };
    let (hung, _) = time::timeout(TEST_TIMEOUT, async { tokio::join!(hanging, releasing) }).await.unwrap();
    let hung: Value = serde_json::from_str(&hung.text().await.unwrap()).unwrap();
    assert_eq!(text(&hung["result"]), "released");
}

#[tokio::test]
async fn a_replaced_server_is_seen_by_clients_of_all_threads() {
    let environment = TestEnvironment::new();
    let endpoint = start(&environment).await;
    let mut clients = Vec::new();
    for _ in 0..N_THREADS {
        clients.push(endpoint.client(None, Era::Session).await.0);
    }
    for client in &clients {
        assert_eq!(text(&call(client, "s__x", json!({})).await), "s/x {}");
    }
    rewrite(&environment.folder().join("pegboard.json"), &configuration(&environment, &["x", "y"]));
    endpoint.wait_for_line("Approve").await;
    signal(&endpoint.child, Signal::HUP);
    endpoint.wait_for_line("Reloaded").await;
    for client in &clients {
        assert_eq!(text(&call(client, "s__y", json!({})).await), "s/y {}");
    }
    assert_eq!(environment.n_started(), 2);
}

#[tokio::test]
async fn calls_in_flight_on_all_threads_end_with_the_gateway() {
    let environment = TestEnvironment::new();
    let mut endpoint = start(&environment).await;
    let connections = Connections::new(&endpoint);
    let session = connections.initialize().await;
    let bodies = (0..N_THREADS).map(|number| tool_call(10 + number, "s__hang"));
    let hanging = bodies.enumerate().map(async |(connection, body)| {
        let request =
            connections.clients[connection].post(&connections.url).header("mcp-session-id", &session);
        let request = request.header("content-type", "application/json").header("accept", "application/json");
        // It is answered with an error, or its connection is closed.
        drop(request.body(body).send().await);
    });
    let ending = async {
        for _ in 0..N_THREADS {
            environment.wait_for_event("s hangs").await;
        }
        signal(&endpoint.child, Signal::TERM);
        endpoint.child.wait().await.unwrap()
    };
    let ending = async { tokio::join!(futures_util::future::join_all(hanging), ending).1 };
    let status = time::timeout(TEST_TIMEOUT, ending).await.unwrap();
    assert_eq!(status.code(), Some(0));
    while environment.n_running() > 0 {
        environment.wait_for_any_event().await;
    }
}
