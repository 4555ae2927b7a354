//! Ten thousand calls of clients of both eras to servers of both eras: with bursts of progress, questions, clients that
//! change their minds, lose their connection or leave. Each has one outcome, and nothing is left of them.
//!
//! They have a program to themselves, for nothing else that is tested has its time meanwhile.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

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

/// How often everything is done: what is made once for all is made in the first round.
const N_ROUNDS: usize = 2;
/// How many clients each pair of eras has at a time over HTTP, and how many calls each of them makes in a round.
const N_VISITORS: usize = 4;
const N_VISITOR_CALLS: usize = 125;
/// How many calls a client over a pipe makes at a time, and how often in a round.
const N_LANES: usize = 10;
const N_LANE_CALLS: usize = 150;
/// How much more memory the second round may leave behind than the first.
const MAX_GROWTH_KIB: usize = 8 * 1024;
/// How many inner tasks more: connections that are kept open come and go.
const MAX_MORE_TASKS: usize = 15;

/// Who waits for so long has failed.
const LONG: Duration = Duration::from_mins(1);

/// What a client does with one of its calls.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// Hears of so many steps, and takes the answer.
    Finish { n_steps: u64 },
    /// Gives it up after so many steps.
    GiveUp { n_steps: u64, after: u64 },
    /// Gives up one that would never end.
    Free,
    /// Answers a question in the middle of it.
    Answer,
    /// Loses the connection after so many steps, and comes back for the rest.
    Return { n_steps: u64, after: u64 },
    /// Leaves altogether while it runs.
    Leave,
}

impl Deed {
    fn drawn(dice: &mut Dice) -> Self {
        // A burst now and then, and few steps or none otherwise.
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

/// A round leaves no more than the one before it.
fn check_left(left: &[Status]) {
    let [first, second] = left else { panic!("{left:?}") };
    assert_eq!(first.n_callers, second.n_callers, "{left:?}");
    assert!(second.n_tasks <= first.n_tasks + MAX_MORE_TASKS, "{left:?}");
    assert!(second.resident_kib <= first.resident_kib + MAX_GROWTH_KIB, "{left:?}");
}
