//! Faults of servers behind HTTP.

use pegboard_testkit::hostile::http::Mode;

use crate::case::{Case, Fault, Outcome, Then, check_all};

fn address(mode: Mode) -> Fault {
    Fault::Address(mode)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_answer_is_one_error_and_no_second_call() {
    let gone = "went away before it answered";
    let broken = [
        Mode::Reset,
        Mode::HalfBody,
        Mode::WrongType,
        Mode::Status500,
        Mode::Status502,
        Mode::Status503,
        Mode::Accepted,
        Mode::NoContent,
        Mode::ChunkJunk,
        Mode::GzipBomb,
    ];
    let mut cases: Vec<Case> =
        broken.iter().map(|mode| Case::failed(address(*mode), "transport_error", gone)).collect();
    cases.push(Case::failed(address(Mode::Status429), "server_unavailable", "429"));
    // Nobody goes where it is sent, with or without its token.
    cases.push(Case {
        journal: vec![("count", 1..=1), ("elsewhere", 0..=0)],
        ..Case::failed(address(Mode::Redirect), "transport_error", "307")
    });
    // The chunks count, and nobody hears what comes behind them.
    cases.push(Case::harmless(address(Mode::LengthAndChunks)));
    check_all(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_answer_is_given_up_in_time() {
    let slow = [Mode::SlowHeaders, Mode::SlowBody, Mode::SseComments, Mode::SseFlood];
    check_all(slow.map(address).map(Case::late).to_vec()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_its_answer_is_one_error() {
    let gone = "went away before it answered";
    check_all(vec![
        Case::failed(address(Mode::SseCut), "transport_error", gone),
        Case::failed(address(Mode::SseNoAnswer), "transport_error", gone),
        Case::failed(address(Mode::SseHugeEvent), "transport_error", gone),
        Case::harmless(address(Mode::SseOdd)),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_session_is_begun_again_unnoticed() {
    let once = |n_sessions| vec![("forgotten", 1..=1), ("count", 1..=1), ("initialize", n_sessions)];
    check_all(vec![
        Case { journal: once(2..=2), ..Case::harmless(address(Mode::Session404)) },
        // Whoever says so may also mean the call; a new session is begun only if this one is good for nothing.
        Case { journal: once(1..=2), ..Case::harmless(address(Mode::Session400)) },
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_is_wanted_is_asked_for() {
    check_all(vec![
        Case {
            journal: vec![("count", 0..=0)],
            then: Then::Refuses,
            outcome: Outcome::Error("auth_required", "wants a login"),
            ..Case::unusable(address(Mode::Always401), "")
        },
        Case::failed(address(Mode::Late401), "auth_required", "wants a login"),
    ])
    .await;
}
