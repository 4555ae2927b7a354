//! The contents of trace records, and the writer of the call log.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

use std::cell::Cell;
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use pegboard_core::call::{Call, Invoker};
use pegboard_core::owner::OwnerScope;
use pegboard_core::redact::{Redactor, is_secret_name, redacted};
use pegboard_core::store::{
    CallLog, CallQuery, CallSummary, FinishedCall, LogBatch, LogEntry, RefusedEntries, SessionSummary,
    StoreError, StoreFuture, TraceQuery, TraceRecord,
};
use pegboard_runtime::metrics::{Metrics, MetricsLimits};
use pegboard_runtime::sessions::CallerContext;
use pegboard_runtime::trace::{CallFailure, RecordedPayload, TracedCall};
use pegboard_runtime::{CallerOptions, Runtime};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tokio::time;
use tracing::span;

fn traced_call(arguments: &Value) -> TracedCall<'_> {
    let arguments = arguments.as_object().unwrap();
    TracedCall {
        session: Some("s-20260102030405"),
        workspace: "red",
        purpose: CallerContext::of(arguments).purpose,
        agent: "files",
        mode: Some("read"),
        arguments,
        response: None,
        payload: RecordedPayload::Full,
        outcome: Ok(()),
        now: UNIX_EPOCH + Duration::from_millis(1_767_322_845_678),
    }
}

fn record(arguments: &Value) -> TraceRecord {
    traced_call(arguments).record().unwrap()
}

#[test]
fn a_record_contains_tool_purpose_and_outcome() {
    let arguments = json!({
        "filePath": "notes/a.md",
        "apiKey": "abc",
        "context": {
            "sessionId": "budget work", "workspaceId": "ignored", "sessionDescription": "taxes",
            "primaryGoal": "a return", "subgoal": "the sum", "tags": ["tax"],
            "additionalContext": {"token": "abc", "year": 2025},
        },
        "workspaceContext": {"workspaceId": "red"},
    });
    let failure = CallFailure { kind: Some("timeout"), message: Some("too slow"), code: Some("-32001") };
    let record = TracedCall { outcome: Err(failure), ..traced_call(&arguments) }.record().unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&record).unwrap(), @r#"
    {
      "workspaceId": "red",
      "sessionId": "s-20260102030405",
      "type": "tool_call",
      "content": "Failed to execute files.read on file: notes/a.md",
      "timestamp": 1767322845678,
      "metadata": {
        "schemaVersion": 1,
        "tool": {
          "id": "files.read",
          "agent": "files",
          "mode": "read"
        },
        "context": {
          "workspaceId": "red",
          "sessionId": "s-20260102030405",
          "sessionDescription": "taxes",
          "primaryGoal": "a return",
          "subgoal": "the sum",
          "tags": [
            "tax"
          ],
          "additionalContext": {
            "token": "[redacted]",
            "year": 2025
          }
        },
        "input": {
          "arguments": {
            "filePath": "notes/a.md",
            "apiKey": "[redacted]"
          },
          "files": [
            "notes/a.md"
          ]
        },
        "outcome": {
          "success": false,
          "error": {
            "type": "timeout",
            "message": "too slow",
            "code": "-32001"
          }
        }
      }
    }
    "#);
}

#[test]
fn the_content_is_a_one_sentence_summary() {
    let check = |arguments: Value, outcome: Result<(), CallFailure<'_>>, expected: &str| {
        let record = TracedCall { outcome, ..traced_call(&arguments) }.record().unwrap();
        assert_eq!(record.content, expected, "{arguments}");
    };
    let failed = Err(CallFailure::default());
    check(json!({}), Ok(()), "Successfully executed files.read");
    check(json!({}), failed, "Failed to execute files.read");
    check(json!({"filePath": "f"}), Ok(()), "Successfully executed files.read on file: f");
    check(json!({"filePath": "f"}), failed, "Failed to execute files.read on file: f");
    check(json!({"query": "a b"}), Ok(()), "Successfully executed files.read with query: \"a b\"");
    check(json!({"params": {"filePath": "f"}}), Ok(()), "Successfully executed files.read on file: f");
    check(json!({"params": {"query": "q"}}), failed, "Failed to execute files.read with query: \"q\"");
    check(
        json!({"filePath": "top", "query": "q", "params": {"filePath": "inner"}}),
        Ok(()),
        "Successfully executed files.read on file: top",
    );
    check(json!({"filePath": " ", "query": 7, "params": []}), Ok(()), "Successfully executed files.read");
}

#[test]
fn the_mode_is_the_tool_name_or_else_from_the_arguments() {
    let check = |mode: Option<&str>, arguments: Value, expected: &str| {
        let record = TracedCall { mode, ..traced_call(&arguments) }.record().unwrap();
        assert_eq!(record.metadata["tool"]["id"], expected, "{arguments}");
    };
    let everywhere = json!({"mode": "a", "params": {"mode": "b"}, "arguments": {"mode": "c"}});
    check(Some("read"), everywhere.clone(), "files.read");
    check(None, everywhere, "files.a");
    check(None, json!({"mode": "", "params": {"mode": "b"}, "arguments": {"mode": "c"}}), "files.b");
    check(None, json!({"params": [], "arguments": {"mode": "c"}}), "files.c");
    check(None, json!({}), "files.unknown");
}

#[test]
fn files_are_listed_once_in_the_order_in_which_they_are_named() {
    let check = |arguments: Value, response: Value, expected: &[&str]| {
        let record = TracedCall { response: Some(&response), ..traced_call(&arguments) }.record().unwrap();
        assert_eq!(record.metadata["input"]["files"], json!(expected), "{arguments} {response}");
    };
    check(json!({}), json!(null), &[]);
    check(
        json!({
            "filePath": "1",
            "params": {"filePath": "2"},
            "paths": ["3", "", "1", 7, null],
            "operations": [{"params": {"filePath": "4", "path": "5"}}, {"path": "6"}, "no", {"params": 1}],
        }),
        json!({
            "filePath": "7", "files": ["8", "2"], "affectedFiles": ["9"], "createdFiles": ["10", "  "],
            "modifiedFiles": "11", "other": ["12"],
        }),
        &["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"],
    );
    check(json!({"filePath": {}, "paths": "one", "operations": {}}), json!([1]), &["one"]);
}

#[test]
fn there_is_no_record_without_a_session() {
    let arguments = json!({});
    assert_eq!(TracedCall { session: None, ..traced_call(&arguments) }.record(), None);
}

#[test]
fn an_error_without_a_message_is_unknown() {
    let check = |failure: CallFailure<'_>, expected: Value| {
        let arguments = json!({});
        let record = TracedCall { outcome: Err(failure), ..traced_call(&arguments) }.record().unwrap();
        assert_eq!(record.metadata["outcome"], json!({"success": false, "error": expected}));
    };
    check(CallFailure::default(), json!({"message": "Unknown error"}));
    check(CallFailure { message: Some("  "), ..CallFailure::default() }, json!({"message": "Unknown error"}));
    check(
        CallFailure { kind: Some("timeout"), message: Some("late"), code: None },
        json!({"type": "timeout", "message": "late"}),
    );
    assert_eq!(record(&json!({})).metadata["outcome"], json!({"success": true}));
}

#[test]
fn every_part_of_a_record_is_bounded() {
    let long = "é".repeat(40_000);
    let many: Vec<String> = (0..1_000).map(|number| format!("file {number}")).collect();
    let arguments = json!({
        "filePath": long,
        "mode": long,
        "paths": many,
        "context": {"sessionMemory": long, "additionalContext": [long], "tags": [long]},
    });
    let outcome = Err(CallFailure { kind: Some(&long), message: Some(&long), code: Some(&long) });
    let record = TracedCall { mode: None, outcome, ..traced_call(&arguments) }.record().unwrap();
    assert_eq!(record.content.chars().count(), 500);
    assert!(record.content.ends_with('…'));
    let arguments = &record.metadata["input"]["arguments"];
    assert_eq!(arguments["omitted"], "too large");
    assert!(arguments["bytes"].as_u64().unwrap() > 160_000);
    assert!(serde_json::to_string(&record).unwrap().len() < 40_000);

    let arguments = json!({"paths": many});
    assert_eq!(self::record(&arguments).metadata["input"]["files"].as_array().unwrap().len(), 100);
}

#[test]
fn secret_names_are_recognized_in_every_spelling() {
    for secret in [
        "password",
        "Password",
        "db_password",
        "dbPassword",
        "PASSWORD_2",
        "password1",
        "token",
        "accessToken",
        "access-token",
        "ACCESSTOKEN",
        "GITHUB_TOKEN",
        "secret",
        "clientSecret",
        "client_secrets",
        "api_key",
        "apikey",
        "apiKey",
        "APIKey",
        "x-api-key",
        "openaiAPIKey",
        "Authorization",
        "proxy-authorization",
        "Cookie",
        "Set-Cookie",
        "credentials",
        "privateKey",
        "private key",
        "passphrase",
        "auth",
        "aws.secret.key",
        "jwt",
    ] {
        assert!(is_secret_name(secret), "{secret}");
    }
    for plain in [
        "",
        "key",
        "keyboard",
        "tokenizer",
        "max_tokens",
        "maxTokens",
        "author",
        "secretary",
        "pass",
        "passenger",
        "compass_word",
        "cookiecutter",
        "monkey",
        "api",
        "primaryKey",
        "authenticated",
        "…",
        "日本語",
    ] {
        assert!(!is_secret_name(plain), "{plain}");
    }
}

#[test]
fn values_under_secret_names_are_redacted_at_any_depth() {
    let check = |value: Value, expected: Value| assert_eq!(redacted(&value), expected);
    check(json!({"a": [{"token": "x"}]}), json!({"a": [{"token": "[redacted]"}]}));
    check(json!({"password": {"old": "a", "new": "b"}}), json!({"password": "[redacted]"}));
    check(json!({"pwd": 1234, "cookies": ["a"]}), json!({"pwd": "[redacted]", "cookies": "[redacted]"}));
    check(json!({"token": null, "password": true}), json!({"token": null, "password": true}));
    check(json!("token"), json!("token"));
    let mut deep = json!({"token": "x"});
    for _ in 0..5_000 {
        deep = Value::Array(vec![deep]);
    }
    let text = redacted(&deep).to_string();
    assert!(text.contains("[too deep]") && !text.contains("token"), "{text}");
    let mut level = deep;
    // A value this deep must also be dropped without recursion.
    while let Value::Array(mut items) = level {
        level = items.pop().unwrap_or_default();
    }
}

#[test]
fn known_secrets_are_redacted_from_texts() {
    let check = |known: &[&str], text: &str, expected: &str| {
        assert_eq!(Redactor::new(known).text(text), expected, "{known:?}");
    };
    check(&[], "nothing known", "nothing known");
    check(&["", "abc"], "abc is too short", "abc is too short");
    check(&["four"], "four is not", "[redacted] is not");
    check(&["eight888"], "eight888, eight888!", "[redacted], [redacted]!");
    check(&["eight888"], "eight888eight888", "[redacted][redacted]");
    check(&["abcdefgh", "abcdefghijkl"], "x abcdefghijkl y", "x [redacted] y");
    check(&["abcdefgh", "efghijkl"], "x abcdefghijkl y", "x [redacted] y");
    check(&["schlüssel"], "der schlüssel ß", "der [redacted] ß");
    let secret = Redactor::new(["eight888"]);
    assert_eq!(format!("{secret:?}"), "Redactor(1 secrets)");
}

proptest! {
    #[test]
    fn no_known_secret_is_left(known in prop::collection::vec("[ab]{8,10}", 1..5), text in "[ab ]{0,60}") {
        let clean = Redactor::new(&known).text(&text).into_owned();
        for secret in &known {
            prop_assert!(!clean.contains(secret.as_str()), "{clean}");
        }
        if !known.iter().any(|secret| text.contains(secret.as_str())) {
            prop_assert_eq!(clean, text);
        }
    }

    #[test]
    fn a_record_of_any_arguments_is_bounded(keys in prop::collection::vec((".{0,8}", ".{0,8}", 1_usize..300), 0..40)) {
        let arguments: Map<String, Value> =
            keys.into_iter().map(|(key, value, n_times)| (key, json!({"params": value.repeat(n_times)}))).collect();
        let record = record(&Value::Object(arguments));
        prop_assert!(serde_json::to_string(&record).unwrap().len() < 20_000);
    }
}

/// A log with scripted behaviour.
#[derive(Default)]
struct ScriptedLog {
    tools: Mutex<Vec<String>>,
    behaviour: Mutex<LogBehaviour>,
}

#[derive(Clone, Copy, Default)]
enum LogBehaviour {
    #[default]
    Well,
    Failing,
    Silent,
    /// It takes half a minute.
    Slow,
    RefusingTheFirst,
}

impl ScriptedLog {
    fn set_behaviour(&self, behaviour: LogBehaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    /// Returns the names of the tools called, in the order in which they were written.
    fn tools(&self) -> Vec<String> {
        self.tools.lock().unwrap().clone()
    }
}

impl CallLog for ScriptedLog {
    fn append(&self, batch: LogBatch, _: SystemTime) -> StoreFuture<'_, RefusedEntries> {
        match *self.behaviour.lock().unwrap() {
            LogBehaviour::Well => async {
                self.tools.lock().unwrap().extend(batch.map(|entry| match entry {
                    LogEntry::Call(call) => call.summary.tool.to_string(),
                    LogEntry::Trace(trace) => trace.record.content,
                }));
                Ok(RefusedEntries::default())
            }
            .boxed(),
            LogBehaviour::Slow => async move {
                time::sleep(Duration::from_secs(30)).await;
                *self.behaviour.lock().unwrap() = LogBehaviour::Well;
                self.append(batch, SystemTime::UNIX_EPOCH).await
            }
            .boxed(),
            LogBehaviour::RefusingTheFirst => async move {
                let mut batch = batch;
                let mut refused = RefusedEntries::default();
                batch.next();
                refused.add(StoreError::Full { reason: "too large".into() });
                *self.behaviour.lock().unwrap() = LogBehaviour::Well;
                self.append(batch, SystemTime::UNIX_EPOCH).await.map(|_| refused)
            }
            .boxed(),
            LogBehaviour::Failing => async { Err(StoreError::Full { reason: "no space".into() }) }.boxed(),
            LogBehaviour::Silent => std::future::pending().boxed(),
        }
    }

    fn calls_by_id(
        &self,
        _: OwnerScope,
        _: Vec<String>,
        _: SystemTime,
    ) -> StoreFuture<'_, Vec<FinishedCall>> {
        async { Ok(Vec::new()) }.boxed()
    }

    fn calls(&self, _: CallQuery, _: SystemTime) -> StoreFuture<'_, Vec<CallSummary>> {
        async { Ok(Vec::new()) }.boxed()
    }

    fn sessions(&self, _: OwnerScope, _: usize, _: SystemTime) -> StoreFuture<'_, Vec<SessionSummary>> {
        async { Ok(Vec::new()) }.boxed()
    }

    fn traces(&self, _: TraceQuery) -> StoreFuture<'_, Vec<TraceRecord>> {
        async { Ok(Vec::new()) }.boxed()
    }
}

/// A runtime without tools: calls fail, but are logged under the name that was asked for.
struct LoggedRuntime {
    log: Arc<ScriptedLog>,
    runtime: Runtime,
    metrics: Arc<Metrics>,
}

impl LoggedRuntime {
    async fn start() -> Self {
        // One subscriber for all tests, set before anything is logged: `tracing` caches the interest of a
        // callsite for all threads.
        static LOGGING: Once = Once::new();
        LOGGING.call_once(|| tracing::subscriber::set_global_default(WarningCounter).unwrap());
        let log = Arc::<ScriptedLog>::default();
        let metrics = Arc::new(Metrics::new(MetricsLimits::default()));
        let builder = Runtime::builder().call_log(Arc::clone(&log) as _).observe(Arc::clone(&metrics) as _);
        Self { log, runtime: builder.start().await.unwrap(), metrics }
    }

    /// Makes this many calls, without leaving time to write them.
    fn call(&self, numbers: std::ops::Range<usize>) {
        let caller = self.runtime.caller(CallerOptions::default());
        for number in numbers {
            let call = caller.start(Call::new(format!("tool-{number}").as_str(), json!({})));
            assert!(call.now_or_never().unwrap().result.is_err());
        }
    }

    /// Returns the numbers of lost entries by reason.
    fn lost(&self) -> String {
        let text = self.metrics.render();
        let samples = text.lines().filter_map(|line| line.strip_prefix("pegboard_call_log_lost_total"));
        samples.collect::<Vec<_>>().join(" ")
    }
}

fn names(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("tool-{number}")).collect()
}

#[tokio::test(start_paused = true)]
async fn calls_are_logged_in_order() {
    let logged = LoggedRuntime::start().await;
    logged.call(0..100);
    assert_eq!(logged.log.tools(), names(0..0));
    logged.runtime.flush_call_log().await;
    assert_eq!(logged.log.tools(), names(0..100));
    assert_eq!(logged.lost(), "");
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_is_written_at_once_and_the_rest_after_200_ms() {
    let logged = LoggedRuntime::start().await;
    for (n_calls, n_millis) in [(1, 200), (255, 200), (256, 0), (257, 0)] {
        let began = time::Instant::now();
        logged.call(0..n_calls);
        while logged.log.tools().len() < n_calls {
            time::sleep(Duration::from_millis(1)).await;
        }
        let took = began.elapsed().as_millis();
        assert!((n_millis..n_millis + 4).contains(&took), "{n_calls} calls took {took} ms");
        logged.log.tools.lock().unwrap().clear();
    }
}

#[tokio::test(start_paused = true)]
async fn the_oldest_entries_are_dropped_and_counted_beyond_the_queue_capacity() {
    let logged = LoggedRuntime::start().await;
    logged.call(0..4_103);
    logged.runtime.flush_call_log().await;
    assert_eq!(logged.log.tools(), names(7..4_103));
    assert_eq!(logged.lost(), r#"{reason="queue_full"} 7"#);
}

#[tokio::test(start_paused = true)]
async fn a_failing_log_loses_entries_and_nothing_else() {
    let logged = LoggedRuntime::start().await;
    logged.log.set_behaviour(LogBehaviour::Failing);
    logged.call(0..3);
    logged.runtime.flush_call_log().await;
    logged.log.set_behaviour(LogBehaviour::Well);
    logged.call(3..4);
    logged.runtime.flush_call_log().await;
    assert_eq!(logged.log.tools(), names(3..4));
    assert_eq!(logged.lost(), r#"{reason="store_failed"} 3"#);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_never_answers_does_not_block() {
    let logged = LoggedRuntime::start().await;
    logged.log.set_behaviour(LogBehaviour::Silent);
    logged.call(0..4);
    let began = time::Instant::now();
    logged.runtime.flush_call_log().await;
    assert_eq!(began.elapsed(), Duration::from_secs(5));
    logged.call(4..5);
    logged.log.set_behaviour(LogBehaviour::Well);
    time::sleep(Duration::from_mins(1)).await;
    logged.runtime.flush_call_log().await;
    assert_eq!(logged.log.tools(), names(4..5));
    assert_eq!(logged.lost(), r#"{reason="store_failed"} 4"#);
}

#[tokio::test(start_paused = true)]
async fn only_entries_that_are_not_in_the_log_are_lost() {
    for (behaviour, logged_calls, lost) in [
        (LogBehaviour::Slow, 0..4, ""),
        (LogBehaviour::RefusingTheFirst, 1..4, r#"{reason="store_failed"} 1"#),
    ] {
        let logged = LoggedRuntime::start().await;
        logged.log.set_behaviour(behaviour);
        logged.call(0..4);
        time::sleep(Duration::from_secs(40)).await;
        assert_eq!(logged.log.tools(), names(logged_calls));
        assert_eq!(logged.lost(), lost);
    }
}

thread_local! {
    /// Number of warnings logged on this thread, which runs one test at a time.
    static N_LOGGED: Cell<usize> = const { Cell::new(0) };
}

/// Counts log events.
struct WarningCounter;

impl tracing::Subscriber for WarningCounter {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN && metadata.target().starts_with("pegboard_runtime")
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        N_LOGGED.set(N_LOGGED.get() + 1);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_failing_log_is_reported_once_a_minute() {
    let n_before = N_LOGGED.get();
    let logged = LoggedRuntime::start().await;
    logged.log.set_behaviour(LogBehaviour::Failing);
    for (pause, n_logged) in [(0, 1), (59, 1), (1, 2), (30, 2), (30, 3)] {
        time::advance(Duration::from_secs(pause)).await;
        logged.call(0..10);
        logged.runtime.flush_call_log().await;
        assert_eq!(N_LOGGED.get() - n_before, n_logged, "after {pause} s");
    }
    assert_eq!(logged.lost(), r#"{reason="store_failed"} 50"#);
}
