//! Cancellation of calls, disconnects of clients, and shutdown of the gateway.

use std::time::{Duration, SystemTime};

use pegboard::owner::OwnerScope;
use pegboard::runtime::logged_operation;
use pegboard::store::{CallLog, CallQuery};
use pegboard::stores::sqlite::Database;
use pegboard::wire::RawJson;
use pegboard::wire::client::{Era, McpClient, RequestOptions};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
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
