//! Stress test: ten thousand calls between clients and servers of both eras, with bursts of progress, elicitations,
//! cancellations, lost connections and disconnects. Each call has one outcome, and nothing leaks.
//!
//! A test binary of its own, since it would starve other tests.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use pegboard::wire::client::Era;
use serde_json::json;

use http::HttpClient;
use program::{Program, TestDirectory};
use random::Random;
use server::Backend;
use status::{Status, settled};
use stdio::StdioClient;

mod http;
mod program;
mod random;
mod server;
mod status;
mod stdio;

/// Number of rounds; one-time allocations happen in the first.
const N_ROUNDS: usize = 2;
/// Concurrent HTTP clients per pair of eras, and calls of each client per round.
const N_HTTP_CLIENTS: usize = 4;
const N_HTTP_CALLS: usize = 125;
/// Concurrent calls of a stdio client, and repetitions per round.
const N_LANES: usize = 10;
const N_LANE_CALLS: usize = 150;
/// Maximum memory growth between rounds.
const MAX_GROWTH_KIB: usize = 8 * 1024;
/// Maximum growth of the number of tasks: keep-alive connections come and go.
const MAX_MORE_TASKS: usize = 15;

/// Timeout after which a test fails.
const TEST_TIMEOUT: Duration = Duration::from_mins(1);

/// Action of a client for a call.
#[derive(Clone, Copy, Debug)]
enum ClientAction {
    /// Receives this many steps and the answer.
    Complete { n_steps: u64 },
    /// Cancels after this many steps.
    Cancel { n_steps: u64, after: u64 },
    /// Cancels a call that would never complete.
    CancelHanging,
    /// Answers an elicitation during the call.
    AnswerElicitation,
    /// Loses the connection after this many steps, and resumes.
    Resume { n_steps: u64, after: u64 },
    /// Disconnects during the call.
    Disconnect,
}

impl ClientAction {
    fn random(random: &mut Random) -> Self {
        // Occasional bursts, otherwise few steps or none.
        let n_steps = if random.below(40) == 0 { 50 } else { random.below(4) };
        let after = random.below(n_steps + 1);
        match random.below(100) {
            0..70 => Self::Complete { n_steps },
            70..80 => Self::Cancel { n_steps, after },
            80..85 => Self::CancelHanging,
            85..92 => Self::AnswerElicitation,
            92..98 => Self::Resume { n_steps, after },
            _ => Self::Disconnect,
        }
    }
}

const ERA_PAIRS: [(Era, Era); 4] = [
    (Era::Session, Era::Session),
    (Era::Session, Era::Stateless),
    (Era::Stateless, Era::Session),
    (Era::Stateless, Era::Stateless),
];

fn era_name(era: Era) -> &'static str {
    match era {
        Era::Session => "session",
        Era::Stateless => "stateless",
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_calls_have_one_outcome_each_and_leave_nothing() {
    let per_round = ERA_PAIRS.len() * N_HTTP_CLIENTS * N_HTTP_CALLS + 2 * N_LANES * N_LANE_CALLS;
    assert_eq!(N_ROUNDS * per_round, 10_000);
    let backend = Backend::default();
    let (session, stateless) = (backend.serve(Era::Session).await, backend.serve(Era::Stateless).await);
    let servers = json!({"session": {"url": session}, "stateless": {"url": stateless}});
    let configuration =
        json!({"pegboard": 1, "toolboxes": {"t": {"description": "T", "mcpServers": servers}}});
    let directory = TestDirectory::with(&configuration);
    over_http(&directory, &backend).await;
    over_stdio(&directory, &backend).await;
    backend.check();
}

async fn over_http(directory: &TestDirectory, backend: &Backend) {
    let mut program = Program::start(directory.serving(&["--http", "127.0.0.1:0"]));
    let ready = program.wait_for_line("Ready  MCP ").await;
    let url = format!("{}/flat", ready.strip_prefix("Ready  MCP ").unwrap());
    let mut left = Vec::new();
    for round in 0..N_ROUNDS {
        let clients = ERA_PAIRS.into_iter().flat_map(|(client_era, server_era)| {
            let url = url.clone();
            (0..N_HTTP_CLIENTS).map(move |number| {
                let client = HttpClient::new(url.clone(), client_era, era_name(server_era));
                let name = format!("{round}-{}-{}-{number}", era_name(client_era), era_name(server_era));
                tokio::spawn(run_client(client, name))
            })
        });
        for ended in join_all(clients.collect::<Vec<_>>()).await {
            ended.unwrap();
        }
        left.push(settled(&mut program, backend).await);
    }
    check_for_leaks(&left);
}

async fn run_client(mut client: HttpClient, name: String) {
    let mut random = Random::of(&name);
    client.connect().await;
    for number in 0..N_HTTP_CALLS {
        let action = ClientAction::random(&mut random);
        client.perform(action, &format!("{name}-{number}")).await;
    }
    client.disconnect().await;
}

async fn over_stdio(directory: &TestDirectory, backend: &Backend) {
    for (client_era, server_era) in [(Era::Session, Era::Stateless), (Era::Stateless, Era::Session)] {
        let mut program = Program::start(directory.serving(&["--stdio", "--profile", "flat"]));
        let client = Arc::new(StdioClient::connect(&mut program, client_era, era_name(server_era)).await);
        let mut left = Vec::new();
        for round in 0..N_ROUNDS {
            let lanes = (0..N_LANES).map(|lane| {
                let (client, name) =
                    (Arc::clone(&client), format!("{round}-pipe-{}-{lane}", era_name(client_era)));
                tokio::spawn(async move {
                    let mut random = Random::of(&name);
                    for number in 0..N_LANE_CALLS {
                        let action = ClientAction::random(&mut random);
                        client.perform(action, &format!("{name}-{number}")).await;
                    }
                })
            });
            for lane in join_all(lanes.collect::<Vec<_>>()).await {
                lane.unwrap();
            }
            left.push(settled(&mut program, backend).await);
        }
        check_for_leaks(&left);
    }
}

/// Checks that a round leaks nothing compared to the previous one.
fn check_for_leaks(left: &[Status]) {
    let [first, second] = left else { panic!("{left:?}") };
    assert_eq!(first.n_callers, second.n_callers, "{left:?}");
    assert!(second.n_tasks <= first.n_tasks + MAX_MORE_TASKS, "{left:?}");
    assert!(second.resident_kib <= first.resident_kib + MAX_GROWTH_KIB, "{left:?}");
}
