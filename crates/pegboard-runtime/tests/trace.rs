//! The contents of trace records, and the trace writer.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

use std::cell::Cell;
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, UNIX_EPOCH};

use futures_util::FutureExt;
use pegboard_core::redact::{Redactor, is_secret_name, redacted};
use pegboard_core::store::{StoreError, StoreFuture, TraceQuery, TraceRecord, TraceStore};
use pegboard_runtime::sessions::CallerContext;
use pegboard_runtime::trace::{CallFailure, TraceCounts, TraceWriter, TracedCall, UnwrittenTraces};
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
    check(&["", "seven77"], "seven77 is too short", "seven77 is too short");
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

/// A store with scripted behaviour.
#[derive(Default)]
struct Store {
    records: Mutex<Vec<TraceRecord>>,
    behaviour: Mutex<StoreBehaviour>,
}

#[derive(Clone, Copy, Default)]
enum StoreBehaviour {
    #[default]
    Well,
    Failing,
    Silent,
}

impl Store {
    fn set_behaviour(&self, behaviour: StoreBehaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }
}

impl TraceStore for Store {
    fn append(&self, record: TraceRecord) -> StoreFuture<'_, ()> {
        match *self.behaviour.lock().unwrap() {
            StoreBehaviour::Well => async {
                self.records.lock().unwrap().push(record);
                Ok(())
            }
            .boxed(),
            StoreBehaviour::Failing => async { Err(StoreError::Full { reason: "no space".into() }) }.boxed(),
            StoreBehaviour::Silent => std::future::pending().boxed(),
        }
    }

    fn find(&self, _query: TraceQuery) -> StoreFuture<'_, Vec<TraceRecord>> {
        async { Ok(self.records.lock().unwrap().clone()) }.boxed()
    }
}

fn traces() -> (Arc<Store>, TraceWriter) {
    // One subscriber for all tests, set before anything is logged: `tracing` caches the interest of a
    // callsite for all threads.
    static LOGGING: Once = Once::new();
    LOGGING.call_once(|| tracing::subscriber::set_global_default(WarningCounter).unwrap());
    let store = Arc::<Store>::default();
    let traces = TraceWriter::new(Arc::clone(&store) as Arc<dyn TraceStore>);
    (store, traces)
}

fn numbered(number: usize) -> TraceRecord {
    record(&json!({"query": number.to_string()}))
}

#[tokio::test(start_paused = true)]
async fn records_are_written_in_order() {
    let (store, traces) = traces();
    let records: Vec<TraceRecord> = (0..100).map(numbered).collect();
    records.iter().cloned().for_each(|record| traces.write(record));
    assert_eq!(traces.flush().await, Ok(()));
    assert_eq!(*store.records.lock().unwrap(), records);
    assert_eq!(traces.counts(), TraceCounts { n_written: 100, ..TraceCounts::default() });
}

#[tokio::test(start_paused = true)]
async fn records_beyond_the_queue_capacity_are_dropped_and_counted() {
    let (store, traces) = traces();
    (0..1_007).map(numbered).for_each(|record| traces.write(record));
    assert_eq!(traces.flush().await, Ok(()));
    assert_eq!(traces.counts(), TraceCounts { n_written: 1_000, n_dropped: 7, n_failed: 0 });
    assert_eq!(store.records.lock().unwrap().last(), Some(&numbered(999)));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_loses_records_and_nothing_else() {
    let (store, traces) = traces();
    store.set_behaviour(StoreBehaviour::Failing);
    (0..3).map(numbered).for_each(|record| traces.write(record));
    assert_eq!(traces.flush().await, Ok(()));
    store.set_behaviour(StoreBehaviour::Well);
    traces.write(numbered(3));
    assert_eq!(traces.flush().await, Ok(()));
    assert_eq!(traces.counts(), TraceCounts { n_written: 1, n_dropped: 0, n_failed: 3 });
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_does_not_block() {
    let (store, traces) = traces();
    store.set_behaviour(StoreBehaviour::Silent);
    (0..4).map(numbered).for_each(|record| traces.write(record));
    let begin = time::Instant::now();
    let unwritten = traces.flush().await.unwrap_err();
    assert_eq!(begin.elapsed(), Duration::from_secs(5));
    insta::assert_snapshot!(unwritten, @"2 trace records were not written within 5s; check the trace store");
    assert_eq!(unwritten, UnwrittenTraces { n_waiting: 2 });
    // Each record takes its timeout, then the next one is attempted.
    assert_eq!(traces.flush().await, Ok(()));
    assert_eq!(traces.counts().n_failed, 4);
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
async fn a_failing_store_is_logged_once_a_minute() {
    let n_before = N_LOGGED.get();
    let (store, traces) = traces();
    store.set_behaviour(StoreBehaviour::Failing);
    for (pause, n_logged) in [(0, 1), (59, 1), (1, 2), (30, 2), (30, 3)] {
        time::advance(Duration::from_secs(pause)).await;
        (0..10).map(numbered).for_each(|record| traces.write(record));
        traces.flush().await.unwrap();
        assert_eq!(N_LOGGED.get() - n_before, n_logged, "after {pause} s");
    }
    assert_eq!(traces.counts().n_failed, 50);
}
