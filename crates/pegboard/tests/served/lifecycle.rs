//! Cancellation of calls, disconnects of clients, and shutdown of the gateway.

use std::process::Stdio;
use std::time::{Duration, SystemTime};

use pegboard::owner::OwnerScope;
use pegboard::runtime::logged_operation;
use pegboard::store::{CallLog, CallQuery};
use pegboard::stores::sqlite::Database;
use pegboard::wire::client::{Era, McpClient, RequestOptions};
use pegboard::wire::{PendingRequest, RawJson};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Child;
use tokio::time;
use tokio_util::task::AbortOnDropHandle;

use crate::guards::{INITIALIZE, post};
use crate::harness::{
    CLIENT_KINDS, ConnectedClient, Endpoint, TEST_TIMEOUT, TestEnvironment, Transport, call, text,
    with_every_client,
};

/// Time within which a server must see a cancellation: shorter than any timeout, and long enough for tests that run
/// in parallel.
const SOON: Duration = Duration::from_secs(4);

fn patient(environment: &TestEnvironment) -> Value {
    let servers =
        json!({"s": environment.server("s", &["hang", "x"]), "other": environment.server("other", &["x"])});
    json!({"toolboxes": {"t": {"description": "T", "mcpServers": servers}}})
}

/// Starts a call that hangs, driven by a task. Dropping the handle cancels it.
async fn hang(client: &McpClient, environment: &TestEnvironment) -> AbortOnDropHandle<()> {
    let params = Some(RawJson::from(json!({"name": "s__hang", "arguments": {}})));
    let hanging = client.request("tools/call", params, RequestOptions::default()).await.unwrap();
    let hanging = tokio::spawn(async move { drop(hanging.response().await) });
    environment.wait_for_event("s hangs").await;
    AbortOnDropHandle::new(hanging)
}

#[tokio::test]
async fn a_canceled_call_is_canceled_at_the_server() {
    with_every_client(patient, Some("flat"), async |connected| {
        drop(hang(&connected.client, &connected.environment).await);
        time::timeout(SOON, connected.environment.wait_for_event("s cancelled")).await.unwrap();
        assert_eq!(text(&call(&connected.client, "s__x", json!({})).await), "s/x {}");
        assert_eq!(connected.environment.n_running(), connected.environment.n_started());
    })
    .await;
}

#[tokio::test]
async fn calls_of_a_lost_client_are_canceled_at_the_server() {
    // Over HTTP a session outlives its connection.
    for kind in CLIENT_KINDS.into_iter().filter(|kind| *kind != (Transport::Http, Era::Session)) {
        let environment = TestEnvironment::new();
        let file = environment.write("workbench-config.json", &patient(&environment).to_string());
        let client_side = runtime();
        let vanishing = client_side.spawn(async move {
            let ConnectedClient { client, environment, gateway, .. } =
                ConnectedClient::connect(environment, &file, Some("flat"), kind).await;
            let hanging = hang(&client, &environment).await;
            // The process is killed.
            std::mem::forget((client, hanging));
            (environment, gateway)
        });
        let (environment, _gateway) = vanishing.await.unwrap();
        client_side.shutdown_background();
        // A stdio gateway exits with its client, and so do its servers.
        let heard = time::timeout(SOON, environment.wait_for_one_of(&["s cancelled", "s gone"])).await;
        assert!(heard.is_ok(), "{kind:?}");
    }
}

/// Runtime of a client that can be stopped abruptly.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[tokio::test]
async fn calls_of_a_closed_session_are_canceled_at_the_server() {
    let environment = TestEnvironment::new();
    let file = environment.write("workbench-config.json", &patient(&environment).to_string());
    let mut command = environment.serving(&file);
    command.args(["--http", "127.0.0.1:0", "--profile", "flat"]);
    let endpoint = Endpoint::start(command).await;
    let url = endpoint.url(None);
    let session = post(&url, &[], INITIALIZE).await.headers["mcp-session-id"].to_str().unwrap().to_owned();
    let call = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"s__hang","arguments":{}}}"#;
    let named = [("mcp-session-id", session.as_str())];
    let ending = async {
        environment.wait_for_event("s hangs").await;
        let request = reqwest::Client::new().delete(&url).header("mcp-session-id", &session);
        assert_eq!(request.send().await.unwrap().status(), 204);
        time::timeout(SOON, environment.wait_for_event("s cancelled")).await.unwrap();
    };
    // A call without a session may or may not be answered.
    tokio::select! {
        () = ending => {}
        () = async { post(&url, &named, call).await; std::future::pending().await } => {}
    }
    assert_eq!(post(&url, &named, call).await.status, 404);
}

/// Sends a signal to a gateway.
pub(crate) fn signal(gateway: &Child, kind: Signal) {
    let pid = Pid::from_raw(i32::try_from(gateway.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, kind).unwrap();
}

/// Ways to stop a gateway.
#[derive(Clone, Copy, Debug)]
enum End {
    Signal(Signal),
    ClientLeaves,
}

#[tokio::test]
async fn servers_stop_with_the_gateway() {
    // A32
    for (end, transport, code) in [
        (End::Signal(Signal::TERM), Transport::Http, Some(0)),
        (End::Signal(Signal::INT), Transport::Stdio, Some(0)),
        (End::ClientLeaves, Transport::Stdio, Some(0)),
        (End::Signal(Signal::KILL), Transport::Http, None),
    ] {
        let environment = TestEnvironment::new();
        let file = environment.write("workbench-config.json", &patient(&environment).to_string());
        let connected =
            ConnectedClient::connect(environment, &file, Some("flat"), (transport, Era::Session)).await;
        for server in ["s", "other"] {
            call(&connected.client, &format!("{server}__x"), json!({})).await;
        }
        let ConnectedClient { client, environment, mut gateway, .. } = connected;
        assert_eq!(environment.n_running(), 2);
        match end {
            End::Signal(kind) => signal(&gateway, kind),
            End::ClientLeaves => drop(client),
        }
        let status = time::timeout(TEST_TIMEOUT, gateway.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), code, "{end:?}");
        while environment.n_running() > 0 {
            environment.wait_for_any_event().await;
        }
    }
}

/// Sends a call that is not awaited yet.
async fn start(client: &McpClient, tool: &str, arguments: Value) -> PendingRequest {
    let params = Some(RawJson::from(json!({"name": tool, "arguments": arguments})));
    client.request("tools/call", params, RequestOptions::default()).await.unwrap()
}

#[tokio::test]
async fn a_gateway_over_stdio_answers_the_calls_in_flight_before_it_exits() {
    for kind in [Signal::TERM, Signal::INT] {
        let environment = TestEnvironment::new();
        let servers = json!({
            "s": environment.server("s", &["doze", "x"]),
            "other": environment.server("other", &["hang", "x"]),
        });
        let settings = json!({"toolboxes": {"t": {"description": "T", "mcpServers": servers}}});
        let file = environment.write("workbench-config.json", &settings.to_string());
        let stdio = (Transport::Stdio, Era::Session);
        let connected = ConnectedClient::connect(environment, &file, Some("flat"), stdio).await;
        let ConnectedClient { client, environment, mut gateway, .. } = connected;
        let until = environment.folder().join("rested");
        let mut dozing = Vec::new();
        for _ in 0..10 {
            dozing.push(start(&client, "s__doze", json!({"until": until})).await);
        }
        environment.wait_for_event("s dozes").await;
        let hanging = start(&client, "other__hang", json!({})).await;
        environment.wait_for_event("other hangs").await;
        signal(&gateway, kind);
        // New calls are refused from here on, and the others end.
        while !text(&call(&client, "other__x", json!({})).await).contains("Pegboard is shutting down") {}
        std::fs::write(&until, "").unwrap();
        for call in dozing {
            let answer = time::timeout(TEST_TIMEOUT, call.response()).await.unwrap().unwrap();
            assert_eq!(text(&answer.to_value()), "rested", "{kind:?}");
        }
        let answer = time::timeout(TEST_TIMEOUT, hanging.response()).await.unwrap().unwrap().to_value();
        assert_eq!(answer["_meta"]["pegboard/error"]["kind"], "canceled", "{answer}");
        let status = time::timeout(TEST_TIMEOUT, gateway.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(0));
    }
}

#[tokio::test]
async fn calls_in_flight_are_answered_after_the_end_of_input() {
    let environment = TestEnvironment::new();
    let servers = json!({
        "s": environment.server("s", &["doze", "x"]),
        "other": environment.server("other", &["hang", "x"]),
    });
    let settings = json!({"toolboxes": {"t": {"description": "T", "mcpServers": servers}}});
    let file = environment.write("workbench-config.json", &settings.to_string());
    let mut command = environment.serving(&file);
    command.args(["--stdio", "--profile", "flat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut gateway = command.stderr(Stdio::null()).spawn().unwrap();
    let until = environment.folder().join("rested");
    let call = |id: u64, tool: &str, arguments: Value| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}});
    let mut input = INITIALIZE.to_owned() + "\n";
    for id in 10..20 {
        input += &call(id, "s__doze", json!({"until": until})).to_string();
        input.push('\n');
    }
    // The last line has no line feed.
    input += &call(20, "other__hang", json!({})).to_string();
    let mut stdin = gateway.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).await.unwrap();
    drop(stdin);
    environment.wait_for_one_of(&["s dozes"]).await;
    std::fs::write(&until, "").unwrap();
    let output = time::timeout(TEST_TIMEOUT, gateway.wait_with_output()).await.unwrap().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for id in 10..20 {
        let answer = answers.iter().filter(|answer| answer["id"] == id).collect::<Vec<_>>();
        assert_eq!((answer.len(), text(&answer[0]["result"])), (1, "rested".to_owned()), "{answer:?}");
    }
    let hanging = answers.iter().find(|answer| answer["id"] == 20).expect("an answer");
    let message = hanging["error"]["message"].as_str().unwrap();
    assert_eq!(message, "The request was cancelled: it did not finish within 5s after the end of the input");
}

#[tokio::test]
async fn a_killed_gateway_leaves_the_calls_that_it_had_logged() {
    let environment = TestEnvironment::new();
    let file = environment.write("workbench-config.json", &patient(&environment).to_string());
    let connected =
        ConnectedClient::connect(environment, &file, Some("flat"), (Transport::Http, Era::Session)).await;
    let path = connected.environment.folder().join("state").join("pegboard.db");
    let calls = async |log: &Database| {
        let query = CallQuery::newest(OwnerScope::All, usize::MAX);
        log.calls(query, SystemTime::now()).await.unwrap()
    };
    // A read through the gateway would write the log at once.
    let log = Database::open(&path).unwrap();
    let mut n_made = 0;
    let making = async {
        loop {
            call(&connected.client, "s__x", json!({})).await;
            n_made += 1;
        }
    };
    let logging = async {
        while calls(&log).await.len() < 20 {
            tokio::task::yield_now().await;
        }
        signal(&connected.gateway, Signal::KILL);
    };
    let killed = async {
        tokio::select! {
            () = making => {}
            () = logging => {}
        }
    };
    time::timeout(TEST_TIMEOUT, killed).await.unwrap();
    let ConnectedClient { mut gateway, environment: _environment, .. } = connected;
    gateway.wait().await.unwrap();
    drop(log);

    let log = Database::open(&path).unwrap();
    let mut left = calls(&log).await;
    left.reverse();
    assert!((20..=n_made + 1).contains(&left.len()), "{} of {n_made} calls are left", left.len());
    for (place, call) in left.iter().enumerate() {
        let found = log.calls_by_id(OwnerScope::All, vec![call.id.clone()], SystemTime::now()).await.unwrap();
        let operation = logged_operation(found[0].clone()).unwrap().to_value();
        assert_eq!(operation["opId"], format!("1-{}", place + 1), "no call is missing");
    }
}
