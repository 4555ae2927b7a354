//! A thousand reloads under load.
//!
//! A test binary of its own, since it keeps the machine busy.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

#[path = "served/harness.rs"]
#[expect(dead_code, reason = "other tests have more to do on it")]
mod harness;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pegboard::wire::client::Era;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tokio::time;

use crate::harness::{Endpoint, TEST_TIMEOUT, TestEnvironment, call, rewrite, text};

/// Makes a gateway reload its file.
fn hang_up(endpoint: &Endpoint) {
    let pid = Pid::from_raw(i32::try_from(endpoint.child.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
}

/// Makes a gateway reload its file in a round of the test, and approves new programs.
async fn reload(endpoint: &Endpoint, round: usize) {
    hang_up(endpoint);
    if matches!(round % 100, 0 | 51) {
        // A signal approves only what was shown before.
        endpoint.wait_for_line("Approve").await;
        hang_up(endpoint);
    }
    let said = endpoint.wait_for_line("Reloaded").await;
    assert!(said.contains(if round % 100 == 51 { "+ t/guest" } else { "~ t/changes" }), "{said}");
}

fn resident_kib(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn of(servers: &Value) -> Value {
    json!({"pegboard": 1, "toolboxes": {"t": {"description": "T", "mcpServers": servers}}})
}

#[tokio::test]
async fn a_thousand_reloads_under_load_fail_no_call_and_leak_nothing() {
    let environment = TestEnvironment::new();
    let servers = |round: usize| {
        let mut changes = environment.server("changes", &["x"]);
        // The program changes now and then, the name of its tool every time.
        changes["env"] = json!({"ROUND": (round / 100).to_string()});
        changes["tools"] = json!({"x": {"aliases": [format!("alias{round}")]}});
        let mut all = json!({"stays": environment.server("stays", &["x"]), "changes": changes});
        if round % 100 > 50 {
            all["guest"] = environment.server("guest", &["x"]);
        }
        all
    };
    let file = environment.write("pegboard.json", &of(&servers(0)).to_string());
    let mut command = environment.serving(&file);
    command.args(["--http", "127.0.0.1:0", "--profile", "flat", "--no-watch"]);
    let endpoint = Endpoint::start(command).await;
    let pid = endpoint.child.id().unwrap();
    let is_done = Arc::new(AtomicBool::new(false));
    let mut load = Vec::new();
    for (number, era) in [Era::Session, Era::Stateless, Era::Session, Era::Stateless].into_iter().enumerate()
    {
        let (client, _) = endpoint.client(None, era).await;
        let is_done = Arc::clone(&is_done);
        load.push(tokio::spawn(async move {
            let mut n_calls = 0_usize;
            while !is_done.load(Ordering::SeqCst) {
                let server = if (n_calls + number).is_multiple_of(2) { "stays" } else { "changes" };
                let answer = call(&client, &format!("{server}__x"), json!({"n": n_calls})).await;
                assert_eq!(text(&answer), format!(r#"{server}/x {{"n":{n_calls}}}"#));
                n_calls += 1;
            }
            n_calls
        }));
    }
    let mut after_some = 0;
    for round in 1..=1_000 {
        rewrite(&file, &of(&servers(round)));
        reload(&endpoint, round).await;
        if round == 200 {
            after_some = resident_kib(pid);
        }
    }
    is_done.store(true, Ordering::SeqCst);
    let mut n_calls = 0;
    for load in load {
        n_calls += load.await.unwrap();
    }
    assert!(n_calls > 1_000, "{n_calls}");
    let gained = resident_kib(pid).saturating_sub(after_some);
    assert!(gained < 8 * 1024, "{gained} KiB in 800 reloads");
    let ending = async {
        while environment.n_running() > 2 {
            environment.wait_for_any_event().await;
        }
    };
    time::timeout(TEST_TIMEOUT, ending).await.unwrap();
    assert!(environment.n_started() > 20, "{} servers were started", environment.n_started());
}
