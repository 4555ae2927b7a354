//! Faults of HTTP servers.

use pegboard_testkit::hostile::http::HttpFault;

use crate::case::{Case, Fault, Outcome, Then, check_all};

fn address(mode: HttpFault) -> Fault {
    Fault::Address(mode)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_answer_is_one_error_and_no_second_call() {
    let gone = "failed before it responded";
    let broken = [
        HttpFault::Reset,
        HttpFault::HalfBody,
        HttpFault::Status500,
        HttpFault::Status502,
        HttpFault::Status503,
        HttpFault::ChunkJunk,
    ];
    let mut cases: Vec<Case> =
        broken.iter().map(|mode| Case::failed(address(*mode), "transport_error", gone)).collect();
    let invalid = [HttpFault::WrongType, HttpFault::Accepted, HttpFault::NoContent, HttpFault::GzipBomb];
    let answered = "sent an invalid response";
    cases.extend(invalid.iter().map(|mode| Case::failed(address(*mode), "transport_error", answered)));
    cases.push(Case::failed(address(HttpFault::Status429), "server_unavailable", "429"));
    // Redirects are not followed, with or without a token.
    cases.push(Case {
        journal: vec![("count", 1..=1), ("elsewhere", 0..=0)],
        ..Case::failed(address(HttpFault::Redirect), "transport_error", "307")
    });
    // The chunked encoding wins, and trailing bytes are ignored.
    cases.push(Case::harmless(address(HttpFault::LengthAndChunks)));
    check_all(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_answer_times_out() {
    let slow = [HttpFault::SlowHeaders, HttpFault::SlowBody, HttpFault::SseComments, HttpFault::SseFlood];
    check_all(slow.map(address).map(Case::late).to_vec()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_its_answer_is_one_error() {
    let gone = "failed before it responded";
    check_all(vec![
        Case::failed(address(HttpFault::SseCut), "transport_error", gone),
        Case::failed(address(HttpFault::SseNoAnswer), "transport_error", "ended without a response"),
        Case::failed(
            address(HttpFault::SseHugeEvent),
            "transport_error",
            "sent an invalid response: the response exceeds 16777216 bytes",
        ),
        Case::harmless(address(HttpFault::SseOdd)),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_session_is_replaced_transparently() {
    let once = |n_sessions| vec![("forgotten", 1..=1), ("count", 1..=1), ("initialize", n_sessions)];
    check_all(vec![
        Case { journal: once(2..=2), ..Case::harmless(address(HttpFault::Session404)) },
        // A 404 may also concern the call; a new session is started only if the old one is unusable.
        Case { journal: once(1..=2), ..Case::harmless(address(HttpFault::Session400)) },
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unauthorized_server_reports_auth_required() {
    check_all(vec![
        Case {
            journal: vec![("count", 0..=0)],
            then: Then::Refuses,
            outcome: Outcome::Error("auth_required", "requires a login"),
            ..Case::unusable(address(HttpFault::Always401), "")
        },
        Case::failed(address(HttpFault::Late401), "auth_required", "requires a login"),
    ])
    .await;
}
