//! Faults of servers that are programs.

use pegboard_testkit::hostile::stdio::Mode;
use serde_json::json;

use crate::case::{Case, Fault, Outcome, Pace, check_all};

fn program(mode: Mode) -> Fault {
    Fault::Program(mode)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_start_is_known_to_fail_and_holds_up_nobody() {
    let starts = ("start", 1..=5);
    let impatient = json!({"startTimeout": "3s"});
    check_all(vec![
        Case {
            journal: vec![starts.clone()],
            ..Case::unusable(program(Mode::ExitAtOnce), "There is no account for the key")
        },
        // It is caught between two starts, or in the middle of one.
        Case {
            journal: vec![starts],
            outcome: Outcome::AnyError("faulty"),
            ..Case::unusable(program(Mode::CrashLoop), "exited with code 4")
        },
        Case {
            settings: impatient.clone(),
            pace: Pace::AtLimit,
            ..Case::unusable(program(Mode::NeverInitialize), "timed out after 3s")
        },
        Case { sign: "initialize", ..Case::harmless(program(Mode::LateInitialize)) },
        Case::unusable(program(Mode::WrongVersion), "1999-12-31"),
        Case::unusable(program(Mode::NonsenseInitialize), "makes no sense"),
        Case { settings: impatient.clone(), ..Case::unusable(program(Mode::Utf16), "timed out after 3s") },
        Case {
            settings: impatient,
            pace: Pace::AtLimit,
            ..Case::unusable(program(Mode::ListNever), "timed out after 3s")
        },
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_away_takes_its_calls_with_it_and_comes_back() {
    let gone = "went away before it answered";
    check_all(vec![
        Case::failed(program(Mode::CrashDuringCall), "transport_error", gone),
        Case::failed(program(Mode::GrandchildHoldsStdout), "transport_error", gone),
        Case::failed(program(Mode::CloseStdout), "transport_error", gone),
        Case::harmless(program(Mode::AnswerAndExit)),
        Case::harmless(program(Mode::NoNewline)),
        Case::harmless(program(Mode::IgnoreSigterm)),
        Case::harmless(program(Mode::ForksSetsid)),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_is_given_up_in_time() {
    let cancelled = || vec![("count", 1..=1), ("notifications/cancelled", 1..=1)];
    check_all(vec![
        Case { journal: cancelled(), ..Case::late(program(Mode::HangCall)) },
        Case { journal: cancelled(), ..Case::late(program(Mode::LateAnswer)) },
        Case::late(program(Mode::Drip)),
        Case::late(program(Mode::Spin)),
        Case {
            n_calls: 3,
            arguments: json!({"text": "x".repeat(1 << 20)}),
            ..Case::late(program(Mode::StopReading))
        },
        Case::late(program(Mode::CloseStdin)),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_lines_are_read_and_others_skipped() {
    let odd = [Mode::Garbage, Mode::Banner, Mode::Binary, Mode::Crlf, Mode::SplitWrites, Mode::Batch];
    check_all(odd.map(program).map(Case::harmless).to_vec()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_have_a_bound() {
    check_all(vec![
        Case::failed(program(Mode::HugeLine), "transport_error", "longer than"),
        Case::late(program(Mode::EndlessLine)),
        Case::late(program(Mode::StdoutFlood)),
        Case::harmless(program(Mode::StderrFlood)),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_thousand_tools_fit_into_64_mib() {
    check_all(vec![Case::harmless(program(Mode::ListHuge))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_lies_is_answered_for_once() {
    check_all(vec![
        Case::harmless(program(Mode::UnknownId)),
        Case::failed(program(Mode::ResultAndError), "execution_error", "both"),
        Case::failed(program(Mode::NeitherResultNorError), "transport_error", "neither"),
        Case::failed(program(Mode::WrongShape), "execution_error", "no object"),
        Case::harmless(program(Mode::AnswerTwice)),
        Case::harmless(program(Mode::ForeignProgress)),
        Case { outcome: Outcome::Text("Hello, Ada!"), ..Case::harmless(program(Mode::Asks)) },
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_read_as_far_as_they_can_be() {
    check_all(vec![
        Case { journal: vec![("tools/list", 1..=1000)], ..Case::harmless(program(Mode::ListEndless)) },
        Case { journal: vec![("tools/list", 1..=3)], ..Case::harmless(program(Mode::ListLoop)) },
        Case::harmless(program(Mode::ListDuplicates)),
        Case::harmless(program(Mode::ListMalformed)),
        Case {
            journal: vec![("tools/list", 2..=50), ("count", 1..=1)],
            ..Case::harmless(program(Mode::ListChangedStorm))
        },
    ])
    .await;
}
