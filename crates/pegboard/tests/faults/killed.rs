//! Gateways that are killed.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::case::whole_machine;
use crate::gateway::GatewayProcess;
use crate::processes::{Marker, testkit};

/// Number of gateways, and how many run concurrently.
const N_ROUNDS: u64 = 100;
const MAX_AT_ONCE: usize = 25;
/// Latest time of the kill after the start.
const LATEST: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "a test has an environment of its own")]
async fn a_gateway_that_is_killed_at_any_moment_leaves_nothing_behind() {
    let _machine = whole_machine().await;
    let seed: u64 = std::env::var("FAULTS_SEED").map_or(1, |seed| seed.parse().unwrap());
    let rounds = (0..N_ROUNDS).map(|round| tokio::spawn(kill_at(moment(seed + round))));
    let rounds: Vec<_> = stream::iter(rounds).buffer_unordered(MAX_AT_ONCE).collect().await;
    let n_failed = rounds.iter().filter(|round| round.is_err()).count();
    assert_eq!(n_failed, 0, "of {N_ROUNDS} gateways; FAULTS_SEED was {seed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_that_are_killed_with_all_supervisors_leave_no_server_behind() {
    let _machine = whole_machine().await;
    let rounds = (0..N_ROUNDS / 5).map(|round| tokio::spawn(kill_all_at(moment(round))));
    let rounds: Vec<_> = stream::iter(rounds).buffer_unordered(MAX_AT_ONCE).collect().await;
    assert_eq!(rounds.iter().filter(|round| round.is_err()).count(), 0);
}

/// Kills a gateway together with the supervisors of its servers, which keep running when their input ends.
async fn kill_all_at(moment: Duration) {
    let marker = Marker::new();
    let server = json!({
        "command": testkit(),
        "args": ["hostile", "ignore-sigterm"],
        "env": {Marker::VARIABLE: marker.value()},
    });
    let gateway = GatewayProcess::start(&marker, &json!({"one": server, "other": server})).await;
    // The delay is the subject of the test.
    let _ = tokio::time::timeout(moment, gateway.call("one__echo", json!({"text": "hello"}))).await;
    for process in marker
        .processes()
        .iter()
        .filter(|process| !process.contains(" hostile ") || process.contains(" supervise "))
    {
        let pid = process.split(' ').next().unwrap().parse().unwrap();
        let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
    drop(gateway);
    marker.wait_until_gone().await;
}

/// Pseudorandom but reproducible delay.
fn moment(number: u64) -> Duration {
    let mut mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^= mixed >> 27;
    LATEST.mul_f64(f64::from((mixed >> 32) as u32) / f64::from(u32::MAX))
}

/// Kills a gateway while its servers start, answer or run in the background. The servers fork, leave their sessions
/// and ignore termination.
async fn kill_at(moment: Duration) {
    let marker = Marker::new();
    let server = json!({
        "command": testkit(),
        "args": ["hostile", "forks-setsid"],
        "env": {Marker::VARIABLE: marker.value()},
    });
    let gateway = GatewayProcess::start(&marker, &json!({"one": server, "other": server})).await;
    let pid = Pid::from_raw(gateway.pid().cast_signed()).unwrap();
    // The delay is the subject of the test.
    let _ = tokio::time::timeout(moment, async {
        loop {
            gateway.call("one__echo", json!({"text": "hello"})).await;
        }
    })
    .await;
    kill_process(pid, Signal::KILL).unwrap();
    drop(gateway);
    marker.wait_until_gone().await;
}
