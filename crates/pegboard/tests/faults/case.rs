//! A fault, and the invariants that hold for every fault.

use std::fmt;
use std::fs;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use futures_util::future::join_all;
use pegboard_testkit::hostile;
use pegboard_testkit::hostile::SECRET;
use pegboard_testkit::hostile::journal::JOURNAL;
use pegboard_wire::ConnectionStats;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::gateway::{Answer, GatewayProcess};
use crate::processes::{Marker, TEST_TIMEOUT, poll_interval, testkit};
use crate::reliability_page;

/// Number of concurrent cases.
const MAX_AT_ONCE: u32 = 12;

/// Limits concurrent cases, since a starved call is late.
static MACHINE: Semaphore = Semaphore::const_new(MAX_AT_ONCE as usize);

/// Waits until no case runs, for a test that needs the whole machine.
pub(crate) async fn whole_machine() -> SemaphorePermit<'static> {
    MACHINE.acquire_many(MAX_AT_ONCE).await.unwrap()
}

/// Maximum memory growth per fault, in KiB.
const MAX_EXTRA_MEMORY: u64 = 64 * 1024;
/// Secret that must not leak.
const SECRET_VALUE: &str = "hush-7c1f0d94";

/// A fault, the call that triggers it, and the expected result.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) fault: Fault,
    /// Additional settings of the server.
    pub(crate) settings: Value,
    pub(crate) arguments: Value,
    /// Number of concurrent calls.
    pub(crate) n_calls: usize,
    /// Journal line that marks the start of the fault.
    pub(crate) sign: &'static str,
    pub(crate) pace: Pace,
    pub(crate) outcome: Outcome,
    /// Expected number of occurrences of a journal line.
    pub(crate) journal: Vec<(&'static str, RangeInclusive<usize>)>,
    pub(crate) then: Then,
    /// Expected text in the gateway's log.
    pub(crate) log: &'static str,
}

/// Faulty server and its mode.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Program(hostile::stdio::StdioFault),
    Address(hostile::http::HttpFault),
}

/// Expected time of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Immediately.
    Now,
    /// At the timeout. Other calls are served meanwhile.
    AtLimit,
}

/// Expected result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A successful answer.
    Text(&'static str),
    /// An error of this kind that contains this text.
    Error(&'static str, &'static str),
    /// An error that contains this text.
    AnyError(&'static str),
}

/// Expected state of the server afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The server recovers.
    Serves,
    /// The server stays unusable.
    Refuses,
}

impl Case {
    /// A fault that does not affect the answer.
    pub(crate) fn harmless(fault: Fault) -> Self {
        Self {
            fault,
            settings: json!({}),
            arguments: json!({}),
            n_calls: 1,
            sign: "count",
            pace: Pace::Now,
            outcome: Outcome::Text("counted"),
            journal: vec![("count", 1..=1)],
            then: Then::Serves,
            log: "",
        }
    }

    /// A call that times out.
    pub(crate) fn late(fault: Fault) -> Self {
        let outcome = Outcome::Error("timeout", "Tool execution timed out");
        Self { pace: Pace::AtLimit, outcome, ..Self::harmless(fault) }
    }

    /// A call that fails immediately although it was executed.
    pub(crate) fn failed(fault: Fault, kind: &'static str, words: &'static str) -> Self {
        Self { outcome: Outcome::Error(kind, words), ..Self::harmless(fault) }
    }

    /// An unusable server.
    pub(crate) fn unusable(fault: Fault, log: &'static str) -> Self {
        Self {
            sign: "start",
            journal: vec![("count", 0..=0)],
            then: Then::Refuses,
            log,
            ..Self::failed(fault, "server_unavailable", "MCP server 'faulty'")
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(mode) => f.write_str(mode.name()),
            Self::Address(mode) => write!(f, "http {}", mode.name()),
        }
    }
}

/// Runs all cases and reports the failed ones.
pub(crate) async fn check_all(cases: Vec<Case>) {
    let names: Vec<String> = cases.iter().map(|case| case.fault.to_string()).collect();
    let checks = cases.into_iter().zip(names).map(|(case, name)| async move {
        let _permit = MACHINE.acquire().await.unwrap();
        let checked = tokio::spawn(check(case)).await;
        checked.err().map(|error| {
            let panic = error.into_panic();
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()));
            format!("{name}: {}", words.unwrap_or_default())
        })
    });
    let failed: Vec<String> = join_all(checks).await.into_iter().flatten().collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// Invariants of every fault: the gateway survives, other servers keep working, every call has one answer, memory is
/// bounded, no secret leaks, and no process is left.
async fn check(case: Case) {
    reliability_page::check(&case);
    let running = RunningCase::start(&case).await;
    let gateway = &running.gateway;
    assert_eq!(healthy(gateway, 0).await, "0");

    let calls = (0..case.n_calls).map(|_| gateway.call("faulty__count", case.arguments.clone()));
    let faulty = async { (join_all(calls).await, Instant::now()) };
    let others = async {
        running.journal.has(case.sign, 1).await;
        for number in 1..=5 {
            assert_eq!(healthy(gateway, number).await, number.to_string());
        }
        Instant::now()
    };
    let ((answers, answered), served) = tokio::join!(faulty, others);
    for answer in &answers {
        case.outcome.check(answer);
    }
    if case.pace == Pace::AtLimit {
        assert!(served < answered, "others waited for the fault");
    }
    for (line, n_times) in &case.journal {
        running.journal.has(line, *n_times.start()).await;
    }
    running.check_recovery(case.then).await;
    assert_eq!(healthy(gateway, 6).await, "6");
    assert_eq!(gateway.connection_stats(), ConnectionStats::default());
    let extra = gateway.extra_memory();
    assert!(extra <= MAX_EXTRA_MEMORY, "the gateway has had {} MiB more than when idle", extra / 1024);

    let shown = format!("{answers:?}");
    let (log, journal) = running.end().await;
    assert!(
        !log.contains(SECRET_VALUE) && !shown.contains(SECRET_VALUE),
        "a secret was shown: {shown} {log}"
    );
    assert!(log.contains(case.log), "the log does not have '{}': {log}", case.log);
    for (line, n_times) in &case.journal {
        let n = journal.count(line);
        assert!(n_times.contains(&n), "'{line}' is {n} times in the journal");
    }
}

/// Calls the healthy server and returns its answer.
async fn healthy(gateway: &GatewayProcess, number: usize) -> String {
    gateway.call("healthy__echo", json!({"text": number.to_string()})).await.text
}

impl Outcome {
    fn check(self, answer: &Answer) {
        let is_as_expected = match self {
            Self::Text(text) => answer.kind.is_none() && answer.text == text,
            Self::AnyError(words) => answer.kind.is_some() && answer.text.contains(words),
            Self::Error(kind, words) => answer.kind.as_deref() == Some(kind) && answer.text.contains(words),
        };
        assert!(is_as_expected, "not {self:?}, but {answer:?}");
        assert!(!answer.progress.iter().any(|progress| progress == "not yours"), "{answer:?}");
    }
}

/// A gateway with a healthy and a faulty server.
struct RunningCase {
    gateway: GatewayProcess,
    marker: Marker,
    journal: Journal,
    /// The faulty server, unless the gateway starts it.
    _address: Option<Child>,
}

impl RunningCase {
    async fn start(case: &Case) -> Self {
        let (marker, journal) = (Marker::new(), Journal::new());
        let env = json!({
            Marker::VARIABLE: marker.value(),
            JOURNAL: journal.path(),
            SECRET: SECRET_VALUE,
        });
        let (mut faulty, address) = match case.fault {
            Fault::Program(mode) => {
                (json!({"command": testkit(), "args": ["hostile", mode.name()], "env": env}), None)
            }
            Fault::Address(mode) => {
                let (child, url) = start_address(mode, &journal).await;
                (
                    json!({"url": url, "headers": {"Authorization": format!("Bearer {SECRET_VALUE}")}}),
                    Some(child),
                )
            }
        };
        // A short limit fails a call that is to succeed on a busy machine.
        let limit = match case.pace {
            Pace::Now => 30_000,
            Pace::AtLimit => 3000,
        };
        faulty["requestTimeoutMs"] = limit.into();
        for (name, value) in case.settings.as_object().unwrap() {
            faulty[name] = value.clone();
        }
        let healthy = json!({
            "command": testkit(),
            "args": ["hostile", "decent"],
            "env": {Marker::VARIABLE: marker.value()},
        });
        let gateway = GatewayProcess::start(&marker, &json!({"healthy": healthy, "faulty": faulty})).await;
        Self { gateway, marker, journal, _address: address }
    }

    /// Checks that the server recovers in time, or stays unusable.
    async fn check_recovery(&self, then: Then) {
        let begun = Instant::now();
        loop {
            let answer = self.gateway.call("faulty__echo", json!({"text": "again"})).await;
            match (then, answer.kind) {
                (Then::Serves, None) => return assert_eq!(answer.text, "again"),
                (Then::Serves, Some(kind)) => {
                    assert!(
                        begun.elapsed() < TEST_TIMEOUT,
                        "it does not serve again, but: {kind} {}",
                        answer.text
                    );
                }
                (Then::Refuses, kind) => return assert!(kind.is_some(), "it serves: {}", answer.text),
            }
            poll_interval().await;
        }
    }

    /// Stops the gateway and checks for leftovers.
    async fn end(self) -> (String, Journal) {
        let log = self.gateway.end().await;
        self.marker.wait_until_gone().await;
        (log, self.journal)
    }
}

async fn start_address(mode: hostile::http::HttpFault, journal: &Journal) -> (Child, String) {
    let mut child = Command::new(testkit())
        .args(["hostile-http", mode.name()])
        .env(JOURNAL, journal.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = lines.next_line().await.unwrap().unwrap();
    (child, url)
}

/// Journal of the faulty server.
struct Journal(TempDir);

impl Journal {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("journal")
    }

    fn count(&self, line: &str) -> usize {
        let text = fs::read_to_string(self.path()).unwrap_or_default();
        text.lines().filter(|written| *written == line).count()
    }

    /// Waits until a line occurs `n_times`.
    async fn has(&self, line: &str, n_times: usize) {
        let begun = Instant::now();
        while self.count(line) < n_times {
            assert!(begun.elapsed() < TEST_TIMEOUT, "'{line}' is {} times in the journal", self.count(line));
            poll_interval().await;
        }
    }
}
