//! `pegboard bench` against servers of every kind.

use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use axum::routing::get;
use pegboard_testkit::echo_server::echo_server;
use pegboard_testkit::serve::all_transports;
use pegboard_wire::http::server::{self, HttpServerOptions};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// Number of calls after which the REST service fails.
const N_GOOD: usize = 60;

/// Serves an MCP server at `/mcp`, a REST service at `/rest`, and one that fails after a while at `/failing`.
/// `used` is notified by each request to `/rest`.
async fn serve(used: Arc<Notify>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let n_failing = Arc::new(AtomicUsize::new(0));
    let rest = get(move || {
        used.notify_one();
        async { "42" }
    });
    let failing = get(move || {
        let is_good = n_failing.fetch_add(1, Ordering::Relaxed) < N_GOOD;
        async move { if is_good { StatusCode::OK } else { StatusCode::NOT_FOUND } }
    });
    let routes = all_transports(&echo_server(0), &HttpServerOptions::default());
    let routes = routes.route("/rest", rest).route("/failing", failing);
    tokio::spawn(server::serve(listener, routes));
    address
}

/// Prepares a command in a home directory with a configuration of these servers.
fn bench(home: &TempDir, address: SocketAddr, arguments: &[&str]) -> Command {
    let rest = |path: &str| {
        let schema = json!({"type": "object"});
        json!({"url": format!("http://{address}/{path}"), "description": path, "allowPrivateNetwork": true,
            "parametersSchema": schema})
    };
    let pegboard = env!("CARGO_BIN_EXE_pegboard");
    let configuration = json!({
        "mcpServers": {
            "remote": {"url": format!("http://{address}/mcp")},
            "shop": {"command": [pegboard, "demo-server", "shop"]},
        },
        "restTools": {"answer": rest("rest"), "failing": rest("failing")},
    });
    std::fs::write(home.path().join("pegboard.json"), configuration.to_string()).unwrap();
    let mut command = Command::new(pegboard);
    command
        .args(["--trust", "bench"])
        .args(arguments)
        .arg("--json")
        .current_dir(home.path())
        .env_clear()
        .env("HOME", home.path())
        .env("TMPDIR", home.path())
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null());
    command
}

async fn output(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn report(output: &Output) -> Value {
    let parsed = serde_json::from_slice(&output.stdout);
    parsed.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_of_every_kind_are_measured_on_both_sides() {
    let address = serve(Arc::default()).await;
    for arguments in [
        ["remote/echo", "text=hello", "-n", "40", "-c", "4"].as_slice(),
        &["shop/price", "item=lamp", "-n", "40", "-c", "4"],
        &["rest/answer", "-n", "40", "-c", "4"],
    ] {
        let home = tempfile::tempdir().unwrap();
        let output = output(bench(&home, address, arguments)).await;
        let report = report(&output);
        assert_eq!(output.status.code(), Some(0), "{arguments:?} {report}");
        assert_eq!((&report["calls"], &report["concurrency"]), (&json!(40), &json!(4)));
        for side in ["direct", "viaPegboard"] {
            assert_eq!(report[side]["errors"], 0, "{report}");
            assert!(report[side]["latencyMs"]["p50"].as_f64().unwrap() > 0.0, "{report}");
            assert!(report[side]["cpuMs"].is_number(), "{report}");
        }
        let left: Vec<_> =
            std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("pegboard-bench")), "{left:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_calls_are_counted() {
    let home = tempfile::tempdir().unwrap();
    let address = serve(Arc::default()).await;
    let output = output(bench(&home, address, &["rest/failing", "-n", "400"])).await;
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1), "{report}");
    let n_errors = |side: &str| report[side]["errors"].as_u64().unwrap();
    assert!(n_errors("direct") + n_errors("viaPegboard") > 0, "{report}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("failed: "), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_run_prints_what_was_measured() {
    let home = tempfile::tempdir().unwrap();
    let used = Arc::new(Notify::new());
    let address = serve(Arc::clone(&used)).await;
    let mut command = bench(&home, address, &["rest/answer", "-t", "1h"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Far more calls than the warm-up and the first round make.
    for _ in 0..3_000 {
        used.notified().await;
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    let report = report(&output);
    assert_eq!(output.status.code(), Some(130), "{report}");
    assert_eq!(report["interrupted"], true);
    assert!(report["calls"].as_u64().unwrap() > 0, "{report}");
}
