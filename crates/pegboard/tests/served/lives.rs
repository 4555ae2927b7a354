//! Ends: of calls, of clients and of the gateway. Nothing is left behind.

use std::time::Duration;

use pegboard::wire::client::{Client, Era, RequestOptions};
use pegboard::wire::{Exchange, RawJson};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::time;

use crate::guards::{INITIALIZE, post};
use crate::stage::{Endpoint, LONG, Seat, Stage, Transport, WAYS, call, everywhere, text};

/// How long it may take until a server knows that nobody waits: shorter than any limit there is, and long enough for
/// tests that run beside others.
const SOON: Duration = Duration::from_secs(4);

fn patient(stage: &Stage) -> Value {
    let servers = json!({"s": stage.server("s", &["hang", "x"]), "other": stage.server("other", &["x"])});
    json!({"toolboxes": {"t": {"description": "T", "mcpServers": servers}}})
}

async fn hang(client: &Client, stage: &Stage) -> Exchange {
    let params = Some(RawJson::from(json!({"name": "s__hang", "arguments": {}})));
    let hanging = client.request("tools/call", params, RequestOptions::default()).await.unwrap();
    stage.told("s hangs").await;
    hanging
}

#[tokio::test]
async fn a_call_that_is_given_up_is_cancelled_at_the_server() {
    everywhere(patient, Some("flat"), async |seat| {
        drop(hang(&seat.client, &seat.stage).await);
        time::timeout(SOON, seat.stage.told("s cancelled")).await.unwrap();
        assert_eq!(text(&call(&seat.client, "s__x", json!({})).await), "s/x {}");
        assert_eq!(seat.stage.n_living(), seat.stage.n_started());
    })
    .await;
}

#[tokio::test]
async fn the_calls_of_a_client_that_vanishes_are_cancelled_at_the_server() {
    // Over HTTP a session goes on without a connection, until its client comes back or ends it.
    for way in WAYS.into_iter().filter(|way| *way != (Transport::Http, Era::Session)) {
        let stage = Stage::new();
        let file = stage.write("workbench-config.json", &patient(&stage).to_string());
        let client_side = runtime();
        let vanishing = client_side.spawn(async move {
            let Seat { client, stage, gateway, .. } = Seat::take(stage, &file, Some("flat"), way).await;
            let hanging = hang(&client, &stage).await;
            // It has no time to say good-bye.
            std::mem::forget((client, hanging));
            (stage, gateway)
        });
        let (stage, _gateway) = vanishing.await.unwrap();
        client_side.shutdown_background();
        // Without its only client a gateway over stdio ends, and its servers with it.
        let heard = time::timeout(SOON, stage.told_one_of(&["s cancelled", "s gone"])).await;
        assert!(heard.is_ok(), "{way:?}");
    }
}

/// Where a client lives that can be ended from one moment to the next.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[tokio::test]
async fn the_calls_of_a_session_that_is_ended_are_cancelled_at_the_server() {
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
    // Whether a call without a session is still answered is all the same.
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

/// How a gateway is made to end.
#[derive(Clone, Copy, Debug)]
enum End {
    Signal(Signal),
    ClientLeaves,
}

#[tokio::test]
async fn with_the_gateway_all_its_servers_end() {
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
