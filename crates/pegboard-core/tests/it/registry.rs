//! Registering, finding and invoking tools.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{ErrorKind, ToolError};
use pegboard_core::outcome::{Outcome, OutcomeStatus};
use pegboard_core::registry::{RegisterError, ToolRegistry, ToolSearch};
use serde_json::{Map, Value, json};

/// Tool that returns its argument.
pub(crate) fn echo(name: &str) -> ToolEntry {
    ToolEntry::from_fn(name.to_owned(), "Its argument again", |value: Value| async move { Ok(value) })
}

fn registry_of(entries: impl IntoIterator<Item = ToolEntry>) -> ToolRegistry {
    ToolRegistry::new().with(entries).unwrap()
}

fn names(entries: &[Arc<ToolEntry>]) -> Vec<&str> {
    entries.iter().map(|entry| entry.name()).collect()
}

#[test]
fn a_name_can_be_taken_once() {
    let registry = registry_of([echo("echo")]);
    let error = registry.register(echo("echo")).unwrap_err();
    assert_eq!(error, RegisterError::Duplicate { name: "echo".to_owned() });
    insta::assert_snapshot!(error, @"Tool 'echo' is already registered. Unregister it first or use a different name.");
    assert_eq!(registry.len(), 1);
}

#[test]
fn an_invalid_name_is_rejected_with_the_reason() {
    let error_of = |name: &str| ToolRegistry::new().register(echo(name)).unwrap_err().to_string();
    insta::assert_snapshot!(error_of(""), @"Tool names must be non-empty strings.");
    insta::assert_snapshot!(error_of("a\nb"), @r#"Tool names must not contain control characters: "a\nb""#);
    insta::assert_snapshot!(error_of(&"x".repeat(257)), @"Tool names may have at most 256 bytes, not 257");
}

#[test]
fn tools_are_added_together_or_not_at_all() {
    let registry = registry_of([echo("b")]);
    assert!(registry.clone().with([echo("a"), echo("b"), echo("c")]).is_err());
    assert_eq!(registry.list_names(), ["b"]);
}

#[test]
fn unregister_reports_if_the_tool_existed() {
    let registry = registry_of([echo("echo")]);
    assert!(registry.unregister("echo"));
    assert!(!registry.unregister("echo"));
    assert!(registry.is_empty() && !registry.contains("echo") && registry.get("echo").is_none());
}

#[test]
fn tools_are_listed_by_name() {
    let registry = registry_of([echo("b"), echo("C"), echo("a"), echo("é")]);
    assert_eq!(registry.list_names(), ["C", "a", "b", "é"]);
    assert_eq!(names(&registry.list()), ["C", "a", "b", "é"]);
    registry.unregister("a");
    registry.register(echo("aa")).unwrap();
    assert_eq!(registry.list_names(), ["C", "aa", "b", "é"]);
    assert_eq!(format!("{registry:?}"), "ToolRegistry(tools=['C', 'aa', 'b', 'é'])");
}

#[test]
fn a_search_matches_part_of_the_name_ignoring_case() {
    let registry = registry_of([echo("load_data"), echo("DataStore"), echo("fetch")]);
    let found = |part: &str| names(&registry.search(&ToolSearch::new().name(part))).join(" ");
    assert_eq!(found("data"), "DataStore load_data");
    assert_eq!(found("E"), "DataStore fetch");
    assert_eq!(found(""), "DataStore fetch load_data");
    assert_eq!(found("x"), "");
    // Nothing matches across two names.
    assert_eq!(found("h\nl"), "");
}

#[test]
fn a_search_by_tags_takes_any_or_all() {
    let registry = registry_of([
        echo("read").tag("io"),
        echo("fetch").with_tags(["io", "network", "io"]),
        echo("add").tag("math"),
    ]);
    let found = |search: ToolSearch| names(&registry.search(&search)).join(" ");
    assert_eq!(found(ToolSearch::new().any_tags(["io"])), "fetch read");
    assert_eq!(found(ToolSearch::new().all_tags(["io", "network"])), "fetch");
    assert_eq!(found(ToolSearch::new().any_tags(["math", "network"])), "add fetch");
    assert_eq!(found(ToolSearch::new().any_tags([""; 0])), "add fetch read");
    assert_eq!(found(ToolSearch::new().all_tags(["io"]).any_tags(["network", "math"])), "fetch");
    assert_eq!(found(ToolSearch::new().name("EA").any_tags(["io"])), "read");
    assert_eq!(found(ToolSearch::new().any_tags(["unknown"])), "");
}

/// Formats an outcome, with the duration as `set` or `none`.
fn summary(outcome: &Outcome) -> String {
    let time = if outcome.duration.is_some() { "set" } else { "none" };
    format!("{:?} {} {:?} {:?} time {time}", outcome.status, outcome.data, outcome.message, outcome.errors)
}

#[tokio::test]
async fn an_unknown_tool_is_a_failure() {
    let outcome = ToolRegistry::new().invoke("missing", json!({})).await;
    insta::assert_snapshot!(summary(&outcome), @r#"Failure null "Tool 'missing' not found in registry." ["Unknown tool: missing"] time none"#);
    assert_eq!(outcome.error_kind, Some(ErrorKind::UnknownTool));
}

#[tokio::test]
async fn invalid_arguments_are_rejected_before_the_tool_runs() {
    let ran = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&ran);
    let strict = ToolEntry::from_fn("strict", "", move |value: Value| {
        counter.fetch_add(1, Ordering::SeqCst);
        async move { Ok(value) }
    })
    .with_input_schema(json!({"type": "object", "required": ["b", "a"]}));
    let registry = registry_of([strict]);
    let outcome = registry.invoke("strict", json!({})).await;
    insta::assert_snapshot!(summary(&outcome), @r#"Failure null "Input validation failed for tool 'strict'." ["$.b: required field missing", "$.a: required field missing"] time none"#);
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    assert!(registry.invoke("strict", json!({"a": 1, "b": 2})).await.is_ok());
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_error_of_the_tool_is_a_failure() {
    let bad = ToolEntry::from_fn("bad", "", |_: Value| async { Err::<Value, _>(ToolError::new("boom")) });
    let outcome = registry_of([bad]).invoke("bad", Value::Null).await;
    insta::assert_snapshot!(summary(&outcome), @r#"Failure null "Tool 'bad' raised an exception: boom" ["boom"] time set"#);
}

#[tokio::test]
async fn a_panic_of_the_tool_is_a_failure() {
    let registry = registry_of([
        ToolEntry::from_fn(
            "late",
            "",
            |n: u32| async move { if n > 0 { panic!("n is {n}") } else { Ok(n) } },
        ),
        ToolEntry::from_fn("early", "", |n: u32| {
            assert!(n == 0, "too early");
            async move { Ok(n) }
        }),
    ]);
    insta::assert_snapshot!(summary(&registry.invoke("late", 1).await), @r#"Failure null "Tool 'late' panicked: n is 1" ["n is 1"] time set"#);
    insta::assert_snapshot!(summary(&registry.invoke("early", 1).await), @r#"Failure null "Tool 'early' panicked: too early" ["too early"] time set"#);
    assert!(registry.invoke("late", 0).await.is_ok(), "the registry still works");
}

#[tokio::test]
async fn an_output_that_violates_its_schema_is_partial_and_kept() {
    let typed = echo("typed").with_output_schema(json!({"type": "string"}));
    let registry = registry_of([typed]);
    insta::assert_snapshot!(summary(&registry.invoke("typed", 42).await), @r#"Partial 42 "Output validation failed for tool 'typed'." ["$: expected type string, got integer"] time set"#);
    insta::assert_snapshot!(summary(&registry.invoke("typed", "x").await), @r#"Success "x" "Tool 'typed' executed successfully." [] time set"#);
}

#[tokio::test]
async fn unchecked_calls_skip_validation() {
    let typed = echo("typed")
        .with_input_schema(json!({"type": "object"}))
        .with_output_schema(json!({"type": "string"}));
    let outcome = registry_of([typed]).invoke_unchecked("typed", 42).await;
    assert_eq!((outcome.status, outcome.data), (OutcomeStatus::Success, json!(42)));
}

#[tokio::test]
async fn arguments_that_do_not_match_the_function_are_rejected() {
    let double = ToolEntry::new("double", "", |n: u8| async move { Ok(n.saturating_mul(2)) });
    let outcome = registry_of([double]).invoke_unchecked("double", "secret").await;
    insta::assert_snapshot!(summary(&outcome), @r#"Failure null "Input validation failed for tool 'double'." ["$: invalid type: string \"secret\", expected u8"] time none"#);
}

#[tokio::test]
async fn a_tool_without_arguments_gets_null() {
    let outcome = registry_of([echo("echo")]).invoke("echo", None::<Value>).await;
    assert_eq!((outcome.status, outcome.data), (OutcomeStatus::Success, Value::Null));
}

#[tokio::test]
async fn validation_warnings_are_in_the_metadata() {
    let odd = echo("odd").with_input_schema(json!({"type": "colour"}));
    let outcome = registry_of([odd]).invoke("odd", 1).await;
    assert!(outcome.is_ok());
    assert!(
        outcome.metadata["warnings"][0].as_str().unwrap().contains("nothing was validated"),
        "{outcome:?}"
    );
}

#[test]
fn an_entry_serializes_without_its_handler() {
    let entry = echo("echo").tag("text").with_input_schema(json!({"type": "object"})).with_title("Echo");
    insta::assert_snapshot!(
        serde_json::to_string(&entry).unwrap(),
        @r#"{"name":"echo","description":"Its argument again","input_schema":{"type":"object"},"output_schema":{},"tags":["text"]}"#
    );
}

#[test]
fn an_outcome_has_exactly_six_keys() {
    let outcome = Outcome { metadata: Map::from_iter([("k".to_owned(), json!(1))]), ..Outcome::default() };
    insta::assert_snapshot!(
        serde_json::to_string(&outcome).unwrap(),
        @r#"{"status":"failure","data":null,"message":"","errors":[],"metadata":{"k":1},"duration_ms":null}"#
    );
    let read: Outcome = serde_json::from_value(json!({"duration_ms": 1.5})).unwrap();
    assert_eq!(read.status, OutcomeStatus::Failure, "the default status is failure");
    assert_eq!(serde_json::to_value(&read).unwrap()["duration_ms"], 1.5);
    for (status, word) in [
        (OutcomeStatus::Success, "success"),
        (OutcomeStatus::Failure, "failure"),
        (OutcomeStatus::Partial, "partial"),
        (OutcomeStatus::Skipped, "skipped"),
        (OutcomeStatus::Timeout, "timeout"),
    ] {
        assert_eq!(serde_json::to_value(status).unwrap(), word);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_can_change_while_calls_run() {
    let registry = registry_of([echo("steady")]);
    let churn = {
        let registry = registry.clone();
        tokio::spawn(async move {
            for round in 0..500 {
                registry.register(echo(&format!("t{round}"))).unwrap();
                assert!(registry.list().len() >= 2);
                assert!(registry.unregister(&format!("t{round}")));
            }
        })
    };
    for n in 0..500 {
        assert_eq!(registry.invoke("steady", n).await.data, n);
    }
    churn.await.unwrap();
    assert_eq!(registry.list_names(), ["steady"]);
}

#[test]
fn error_messages_do_not_quote_arguments() {
    let verdict = pegboard_core::validation::validate_input(&json!("hunter2"), &json!({"enum": ["a"]}));
    let error = pegboard_core::error::CallError::InvalidParameters { violations: verdict.errors };
    assert!(!format!("{error} {error:?}").contains("hunter2"));
    let call = pegboard_core::call::Call::new("echo", json!({"password": "hunter2"}));
    assert!(!format!("{call:?}").contains("hunter2"));
    insta::assert_snapshot!(error, @"Invalid arguments: $: value not in enum ['a']");
}
