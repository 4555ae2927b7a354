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

use dice::Dice;
use http::Visitor;
use pipe::Pipe;
use program::{Program, Stage};
use server::Backend;
use status::{Status, settled};

mod dice;
mod http;
mod pipe;
mod program;
mod server;
mod status;

/// Number of rounds; one-time allocations happen in the first.
const N_ROUNDS: usize = 2;
/// Concurrent HTTP clients per pair of eras, and calls of each client per round.
const N_VISITORS: usize = 4;
const N_VISITOR_CALLS: usize = 125;
/// Concurrent calls of a stdio client, and repetitions per round.
const N_LANES: usize = 10;
const N_LANE_CALLS: usize = 150;
/// Maximum memory growth between rounds.
const MAX_GROWTH_KIB: usize = 8 * 1024;
/// Maximum growth of the number of tasks: keep-alive connections come and go.
const MAX_MORE_TASKS: usize = 15;

/// Timeout after which a test fails.
const LONG: Duration = Duration::from_mins(1);

/// Action of a client for a call.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// Receives this many steps and the answer.
    Finish { n_steps: u64 },
    /// Cancels after this many steps.
    GiveUp { n_steps: u64, after: u64 },
    /// Cancels a call that would never complete.
    Free,
    /// Answers an elicitation during the call.
    Answer,
    /// Loses the connection after this many steps, and resumes.
    Return { n_steps: u64, after: u64 },
    /// Disconnects during the call.
    Leave,
}

impl Deed {
    fn drawn(dice: &mut Dice) -> Self {
        // Occasional bursts, otherwise few steps or none.
        let n_steps = if dice.below(40) == 0 { 50 } else { dice.below(4) };
        let after = dice.below(n_steps + 1);
        match dice.below(100) {
            0..70 => Self::Finish { n_steps },
            70..80 => Self::GiveUp { n_steps, after },
            80..85 => Self::Free,
            85..92 => Self::Answer,
            92..98 => Self::Return { n_steps, after },
            _ => Self::Leave,
        }
    }
}

const CELLS: [(Era, Era); 4] = [
    (Era::Session, Era::Session),
    (Era::Session, Era::Stateless),
    (Era::Stateless, Era::Session),
    (Era::Stateless, Era::Stateless),
];

fn word(era: Era) -> &'static str {
    match era {
        Era::Session => "session",
        Era::Stateless => "stateless",
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_calls_have_one_outcome_each_and_leave_nothing() {
    let per_round = CELLS.len() * N_VISITORS * N_VISITOR_CALLS + 2 * N_LANES * N_LANE_CALLS;
    assert_eq!(N_ROUNDS * per_round, 10_000);
    let backend = Backend::default();
    let (session, stateless) = (backend.serve(Era::Session).await, backend.serve(Era::Stateless).await);
    let servers = json!({"session": {"url": session}, "stateless": {"url": stateless}});
    let configuration =
        json!({"pegboard": 1, "toolboxes": {"t": {"description": "T", "mcpServers": servers}}});
    let stage = Stage::with(&configuration);
    over_http(&stage, &backend).await;
    over_pipes(&stage, &backend).await;
    backend.check();
}

async fn over_http(stage: &Stage, backend: &Backend) {
    let mut program = Program::start(stage.serving(&["--http", "127.0.0.1:0"]));
    let ready = program.says("Ready  MCP ").await;
    let url = format!("{}/flat", ready.strip_prefix("Ready  MCP ").unwrap());
    let mut left = Vec::new();
    for round in 0..N_ROUNDS {
        let visits = CELLS.into_iter().flat_map(|(client, server)| {
            let url = url.clone();
            (0..N_VISITORS).map(move |number| {
                let visitor = Visitor::new(url.clone(), client, word(server));
                let name = format!("{round}-{}-{}-{number}", word(client), word(server));
                tokio::spawn(visit(visitor, name))
            })
        });
        for visited in join_all(visits.collect::<Vec<_>>()).await {
            visited.unwrap();
        }
        left.push(settled(&mut program, backend).await);
    }
    check_left(&left);
}

async fn visit(mut visitor: Visitor, name: String) {
    let mut dice = Dice::of(&name);
    visitor.enter().await;
    for number in 0..N_VISITOR_CALLS {
        let deed = Deed::drawn(&mut dice);
        visitor.act(deed, &format!("{name}-{number}")).await;
    }
    visitor.leave().await;
}

async fn over_pipes(stage: &Stage, backend: &Backend) {
    for (client, server) in [(Era::Session, Era::Stateless), (Era::Stateless, Era::Session)] {
        let mut program = Program::start(stage.serving(&["--stdio", "--profile", "flat"]));
        let pipe = Arc::new(Pipe::begin(&mut program, client, word(server)).await);
        let mut left = Vec::new();
        for round in 0..N_ROUNDS {
            let lanes = (0..N_LANES).map(|lane| {
                let (pipe, name) = (Arc::clone(&pipe), format!("{round}-pipe-{}-{lane}", word(client)));
                tokio::spawn(async move {
                    let mut dice = Dice::of(&name);
                    for number in 0..N_LANE_CALLS {
                        let deed = Deed::drawn(&mut dice);
                        pipe.act(deed, &format!("{name}-{number}")).await;
                    }
                })
            });
            for lane in join_all(lanes.collect::<Vec<_>>()).await {
                lane.unwrap();
            }
            left.push(settled(&mut program, backend).await);
        }
        check_left(&left);
    }
}

/// Checks that a round leaks nothing compared to the previous one.
fn check_left(left: &[Status]) {
    let [first, second] = left else { panic!("{left:?}") };
    assert_eq!(first.n_callers, second.n_callers, "{left:?}");
    assert!(second.n_tasks <= first.n_tasks + MAX_MORE_TASKS, "{left:?}");
    assert!(second.resident_kib <= first.resident_kib + MAX_GROWTH_KIB, "{left:?}");
}
