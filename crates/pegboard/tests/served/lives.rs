//! Cancellation of calls, disconnects of clients, and shutdown of the gateway.

use std::time::{Duration, SystemTime};

use pegboard::store::{CallLog, CallQuery};
use pegboard::stores::sqlite::Database;
use pegboard::wire::client::{Era, McpClient, RequestOptions};
use pegboard::wire::{PendingRequest, RawJson};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::time;

use crate::guards::{INITIALIZE, post};
use crate::stage::{Endpoint, LONG, Seat, Stage, Transport, WAYS, call, everywhere, text};

/// Time within which a server must see a cancellation: shorter than any timeout, and long enough for tests that run
/// in parallel.
const SOON: Duration = Duration::from_secs(4);

fn patient(stage: &Stage) -> Value {
    let servers = json!({"s": stage.server("s", &["hang", "x"]), "other": stage.server("other", &["x"])});
    json!({"toolboxes": {"t": {"description": "T", "mcpServers": servers}}})
}

async fn hang(client: &McpClient, stage: &Stage) -> PendingRequest {
    let params = Some(RawJson::from(json!({"name": "s__hang", "arguments": {}})));
    let hanging = client.request("tools/call", params, RequestOptions::default()).await.unwrap();
    stage.told("s hangs").await;
    hanging
}

#[tokio::test]
async fn a_canceled_call_is_canceled_at_the_server() {
    everywhere(patient, Some("flat"), async |seat| {
        drop(hang(&seat.client, &seat.stage).await);
        time::timeout(SOON, seat.stage.told("s cancelled")).await.unwrap();
        assert_eq!(text(&call(&seat.client, "s__x", json!({})).await), "s/x {}");
        assert_eq!(seat.stage.n_living(), seat.stage.n_started());
    })
    .await;
}

#[tokio::test]
async fn calls_of_a_lost_client_are_canceled_at_the_server() {
    // Over HTTP a session outlives its connection.
    for way in WAYS.into_iter().filter(|way| *way != (Transport::Http, Era::Session)) {
        let stage = Stage::new();
        let file = stage.write("workbench-config.json", &patient(&stage).to_string());
        let client_side = runtime();
        let vanishing = client_side.spawn(async move {
            let Seat { client, stage, gateway, .. } = Seat::take(stage, &file, Some("flat"), way).await;
            let hanging = hang(&client, &stage).await;
            // The process is killed.
            std::mem::forget((client, hanging));
            (stage, gateway)
        });
        let (stage, _gateway) = vanishing.await.unwrap();
        client_side.shutdown_background();
        // A stdio gateway exits with its client, and so do its servers.
        let heard = time::timeout(SOON, stage.told_one_of(&["s cancelled", "s gone"])).await;
        assert!(heard.is_ok(), "{way:?}");
    }
}

/// Runtime of a client that can be stopped abruptly.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[tokio::test]
async fn calls_of_a_closed_session_are_canceled_at_the_server() {
    let stage = Stage::new();
    let file = stage.write("workbench-config.json", &patient(&stage).to_string());
    let mut command = stage.serving(&file);
    command.args(["--http", "127.0.0.1:0", "--profile", "flat"]);
    let endpoint = Endpoint::start(command).await;
    let url = endpoint.url(None);
    let session = post(&url, &[], INITIALIZE).await.headers["mcp-session-id"].to_str().unwrap().to_owned();
    let call = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"s__hang","arguments":{}}}"#;
    let named = [("mcp-session-id", session.as_str())];
    let ending = async {
        stage.told("s hangs").await;
        let request = reqwest::Client::new().delete(&url).header("mcp-session-id", &session);
        assert_eq!(request.send().await.unwrap().status(), 204);
        time::timeout(SOON, stage.told("s cancelled")).await.unwrap();
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
        let stage = Stage::new();
        let file = stage.write("workbench-config.json", &patient(&stage).to_string());
        let seat = Seat::take(stage, &file, Some("flat"), (transport, Era::Session)).await;
        for server in ["s", "other"] {
            call(&seat.client, &format!("{server}__x"), json!({})).await;
        }
        let Seat { client, stage, mut gateway, .. } = seat;
        assert_eq!(stage.n_living(), 2);
        match end {
            End::Signal(kind) => signal(&gateway, kind),
            End::ClientLeaves => drop(client),
        }
        let status = time::timeout(LONG, gateway.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), code, "{end:?}");
        while stage.n_living() > 0 {
            stage.told_anything().await;
        }
    }
}

#[tokio::test]
async fn a_killed_gateway_leaves_the_calls_that_it_had_logged() {
    let stage = Stage::new();
    let file = stage.write("workbench-config.json", &patient(&stage).to_string());
    let seat = Seat::take(stage, &file, Some("flat"), (Transport::Http, Era::Session)).await;
    let path = seat.stage.folder().join("state").join("pegboard.db");
    let calls = async |log: &Database| {
        let query = CallQuery { limit: usize::MAX, ..CallQuery::default() };
        log.calls(query, SystemTime::now()).await.unwrap()
    };
    // Nobody reads the log through the gateway, which would write it at once.
    let log = Database::open(&path).unwrap();
    let mut n_made = 0;
    let making = async {
        loop {
            call(&seat.client, "s__x", json!({})).await;
            n_made += 1;
        }
    };
    let logging = async {
        while calls(&log).await.len() < 20 {
            tokio::task::yield_now().await;
        }
        signal(&seat.gateway, Signal::KILL);
    };
    let killed = async {
        tokio::select! {
            () = making => {}
            () = logging => {}
        }
    };
    time::timeout(LONG, killed).await.unwrap();
    let Seat { mut gateway, stage: _stage, .. } = seat;
    gateway.wait().await.unwrap();
    drop(log);

    let log = Database::open(&path).unwrap();
    let mut left = calls(&log).await;
    left.reverse();
    assert!((20..=n_made + 1).contains(&left.len()), "{} of {n_made} calls are left", left.len());
    for (place, call) in left.iter().enumerate() {
        let found = log.calls_by_id(vec![call.id.clone()], SystemTime::now()).await.unwrap();
        let operation: Value = serde_json::from_str(&found[0].body).unwrap();
        assert_eq!(operation["opId"], format!("1-{}", place + 1), "no call is missing");
    }
}
