//! Faults of stdio servers.

use pegboard_testkit::hostile::stdio::StdioFault;
use serde_json::json;

use crate::case::{Case, Fault, Outcome, Pace, check_all};

fn program(mode: StdioFault) -> Fault {
    Fault::Program(mode)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_start_fails_without_delaying_others() {
    let starts = ("start", 1..=5);
    let impatient = json!({"startTimeout": "3s"});
    check_all(vec![
        Case {
            journal: vec![starts.clone()],
            ..Case::unusable(program(StdioFault::ExitAtOnce), "There is no account for the key")
        },
        // The server may be between two starts or in the middle of one.
        Case {
            journal: vec![starts],
            outcome: Outcome::AnyError("faulty"),
            ..Case::unusable(program(StdioFault::CrashLoop), "exited with code 4")
        },
        Case {
            settings: impatient.clone(),
            pace: Pace::AtLimit,
            ..Case::unusable(program(StdioFault::NeverInitialize), "timed out after 3s")
        },
        // A call waits for a start no longer than its own limit, and the start goes on.
        Case {
            pace: Pace::AtLimit,
            outcome: Outcome::Error("server_unavailable", "MCP server 'faulty' is still starting"),
            journal: vec![("start", 1..=1), ("count", 0..=0)],
            ..Case::unusable(program(StdioFault::NeverInitialize), "")
        },
        Case { sign: "initialize", ..Case::harmless(program(StdioFault::LateInitialize)) },
        Case::unusable(program(StdioFault::WrongVersion), "1999-12-31"),
        Case::unusable(program(StdioFault::NonsenseInitialize), "invalid response"),
        Case {
            settings: impatient.clone(),
            ..Case::unusable(program(StdioFault::Utf16), "timed out after 3s")
        },
        Case {
            settings: impatient,
            pace: Pace::AtLimit,
            ..Case::unusable(program(StdioFault::ListNever), "timed out after 3s")
        },
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_exits_fails_its_calls_and_is_restarted() {
    let gone = "failed before it responded";
    check_all(vec![
        Case::failed(program(StdioFault::CrashDuringCall), "transport_error", gone),
        Case::failed(program(StdioFault::GrandchildHoldsStdout), "transport_error", gone),
        Case::failed(program(StdioFault::CloseStdout), "transport_error", gone),
        Case::failed(program(StdioFault::CloseStdin), "transport_error", "closed its standard input"),
        Case::harmless(program(StdioFault::AnswerAndExit)),
        Case::harmless(program(StdioFault::NoNewline)),
        Case::harmless(program(StdioFault::IgnoreSigterm)),
        Case::harmless(program(StdioFault::ForksSetsid)),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_server_times_out() {
    let cancelled = || vec![("count", 1..=1), ("notifications/cancelled", 1..=1)];
    check_all(vec![
        Case { journal: cancelled(), ..Case::late(program(StdioFault::HangCall)) },
        Case { journal: cancelled(), ..Case::late(program(StdioFault::LateAnswer)) },
        Case::late(program(StdioFault::Drip)),
        Case::late(program(StdioFault::Spin)),
        Case {
            n_calls: 3,
            arguments: json!({"text": "x".repeat(1 << 20)}),
            ..Case::late(program(StdioFault::StopReading))
        },
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unusual_lines_are_parsed_and_invalid_ones_skipped() {
    let odd = [
        StdioFault::Garbage,
        StdioFault::Banner,
        StdioFault::Binary,
        StdioFault::Crlf,
        StdioFault::SplitWrites,
        StdioFault::Batch,
    ];
    check_all(odd.map(program).map(Case::harmless).to_vec()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_have_a_bound() {
    check_all(vec![
        Case::failed(program(StdioFault::HugeLine), "transport_error", "exceeds"),
        Case::late(program(StdioFault::EndlessLine)),
        Case::late(program(StdioFault::StdoutFlood)),
        Case::harmless(program(StdioFault::StderrFlood)),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_thousand_tools_fit_into_64_mib() {
    check_all(vec![Case::harmless(program(StdioFault::ListHuge))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_response_is_reported_once() {
    check_all(vec![
        Case::harmless(program(StdioFault::UnknownId)),
        Case::failed(program(StdioFault::ResultAndError), "execution_error", "both"),
        Case::failed(program(StdioFault::NeitherResultNorError), "transport_error", "neither"),
        Case::failed(program(StdioFault::WrongShape), "execution_error", "not an object"),
        Case::failed(program(StdioFault::NotJson), "transport_error", "sent an invalid response"),
        Case::failed(program(StdioFault::NotJsonWithoutId), "transport_error", "sent an invalid response"),
        Case::failed(
            program(StdioFault::InvalidContent),
            "execution_error",
            "MCP server 'faulty' sent an invalid result: `content` must be an array",
        ),
        Case::failed(
            program(StdioFault::InvalidIsError),
            "execution_error",
            "`isError` must be true or false",
        ),
        Case::harmless(program(StdioFault::AnswerTwice)),
        Case::harmless(program(StdioFault::ForeignProgress)),
        Case { outcome: Outcome::Text("Hello, Ada!"), ..Case::harmless(program(StdioFault::Asks)) },
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn valid_entries_of_a_broken_list_are_used() {
    check_all(vec![
        Case { journal: vec![("tools/list", 1..=1000)], ..Case::harmless(program(StdioFault::ListEndless)) },
        Case { journal: vec![("tools/list", 1..=3)], ..Case::harmless(program(StdioFault::ListLoop)) },
        Case::harmless(program(StdioFault::ListDuplicates)),
        Case::harmless(program(StdioFault::ListMalformed)),
        Case {
            journal: vec![("tools/list", 2..=50), ("count", 1..=1)],
            ..Case::harmless(program(StdioFault::ListChangedStorm))
        },
    ])
    .await;
}
