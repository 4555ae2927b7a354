//! Steps of chains: inputs, outputs and failures.

use pegboard_core::chain::{ChainResult, ChainStep, ExecuteOptions, InputSource, Semantics, ToolChain};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{ErrorKind, ToolError};
use pegboard_core::outcome::OutcomeStatus;
use pegboard_core::registry::ToolRegistry;
use serde_json::{Value, json};

use crate::registry::echo;

/// Tools that double, add, extract, upper-case, fail and violate their output schema.
pub(crate) fn tools() -> ToolRegistry {
    let number = |value: &Value| value["value"].as_i64().unwrap_or_default();
    ToolRegistry::new()
        .with([
            ToolEntry::from_fn("double", "", move |it: Value| async move {
                Ok(json!({"value": number(&it) * 2}))
            }),
            ToolEntry::from_fn("add_ten", "", move |it: Value| async move {
                Ok(json!({"value": number(&it) + 10}))
            }),
            ToolEntry::from_fn("extract", "", |it: Value| async move {
                Ok(json!({"content": format!("Extracted: {}", it["url"].as_str().unwrap_or("nothing"))}))
            }),
            ToolEntry::from_fn("upper", "", |it: Value| async move {
                Ok(json!({"text": it["text"].as_str().unwrap_or_default().to_uppercase()}))
            }),
            ToolEntry::from_fn("fail", "", |_: Value| async { Err::<Value, _>(ToolError::new("boom")) }),
            ToolEntry::from_fn("list", "", |_: Value| async { Ok(json!([1, 2])) }),
            echo("typed").with_output_schema(json!({"type": "string"})),
            echo("echo"),
        ])
        .unwrap()
}

pub(crate) async fn run(steps: impl IntoIterator<Item = ChainStep>, input: Value) -> ChainResult {
    chain_of(&tools(), steps).execute(input).await
}

pub(crate) fn chain_of(tools: &ToolRegistry, steps: impl IntoIterator<Item = ChainStep>) -> ToolChain<'_> {
    steps.into_iter().fold(ToolChain::new(tools), ToolChain::add_step)
}

const KEEP_GOING: ExecuteOptions = ExecuteOptions { stop_on_failure: false, validate_tools: true };

#[tokio::test]
async fn an_output_is_merged_into_the_context_for_the_next_step() {
    let run = run(["double".into(), "add_ten".into()], json!({"value": 5})).await;
    assert!(run.success, "{run:?}");
    assert_eq!(Value::from(run.context), json!({"value": 20}));
    assert_eq!(run.step_results.len(), 2);
}

#[tokio::test]
async fn an_output_key_keeps_the_output_apart() {
    let run = run([ChainStep::new("double").output_key("doubled")], json!({"value": 7})).await;
    assert_eq!(Value::from(run.context), json!({"value": 7, "doubled": {"value": 14}}));
}

#[tokio::test]
async fn a_chain_without_steps_is_rejected_unless_validation_is_off() {
    let tools = tools();
    let chain = ToolChain::new(&tools);
    assert_eq!(chain.validate().errors, ["Chain has no steps."]);
    let run = chain.execute(json!({"a": 1})).await;
    assert_eq!((run.success, run.errors), (false, vec!["Chain has no steps.".to_owned()]));
    assert_eq!(Value::from(run.context), json!({"a": 1}));
    let unvalidated = ExecuteOptions { validate_tools: false, ..ExecuteOptions::default() };
    assert!(chain.execute_with(Value::Null, unvalidated).await.success);
}

#[tokio::test]
async fn an_unknown_tool_is_found_before_anything_runs() {
    let tools = tools();
    let chain = chain_of(&tools, ["double".into(), "".into(), "nonexistent".into(), "double".into()]);
    let expected = ["Step 1: tool_name is empty.", "Step 2: tool 'nonexistent' not found in registry."];
    assert_eq!(chain.validate().errors, expected);
    let run = chain.execute(json!({"value": 1})).await;
    assert_eq!(run.errors, expected);
    assert!(!run.success && run.step_results.is_empty());
    assert_eq!(Value::from(run.context), json!({"value": 1}));
}

#[tokio::test]
async fn an_unknown_tool_fails_its_step_without_validation() {
    let tools = tools();
    let unvalidated = ExecuteOptions { validate_tools: false, ..ExecuteOptions::default() };
    let run = chain_of(&tools, ["nope".into()]).execute_with(json!({}), unvalidated).await;
    assert_eq!(
        run.errors,
        ["Unknown tool: nope", "Step 0 ('nope') failed: Tool 'nope' not found in registry."]
    );
}

#[tokio::test]
async fn a_failure_stops_the_chain_unless_stop_on_failure_is_off() {
    let tools = tools();
    let chain = chain_of(&tools, ["fail".into(), "double".into()]);
    let stopped = chain.execute(json!({"value": 1})).await;
    assert_eq!((stopped.success, stopped.step_results.len()), (false, 1));
    let finished = chain.execute_with(json!({"value": 1}), KEEP_GOING).await;
    assert_eq!((finished.success, finished.step_results.len()), (false, 2));
    assert_eq!(Value::from(finished.context), json!({"value": 2}));
}

#[tokio::test]
async fn a_mapping_passes_only_the_named_inputs() {
    let steps = [
        ChainStep::new("extract").map("url", "site").output_key("raw"),
        ChainStep::new("upper").map("text", "raw.content").output_key("loud"),
        ChainStep::new("echo").map("only", "site").output_key("seen"),
    ];
    let run = run(steps, json!({"site": "test.com", "other": 1})).await;
    assert_eq!(run.context["loud"], json!({"text": "EXTRACTED: TEST.COM"}));
    assert_eq!(run.context["seen"], json!({"only": "test.com"}));
}

#[tokio::test]
async fn a_missing_source_is_an_error_unless_optional() {
    let tools = tools();
    let step = |source: InputSource| [ChainStep::new("echo").map("text", source).output_key("out")];
    let input = json!({"a": {}});
    let unvalidated = ExecuteOptions { validate_tools: false, ..ExecuteOptions::default() };
    let run = chain_of(&tools, step("a.b".into())).execute_with(input.clone(), unvalidated).await;
    assert_eq!(
        run.errors,
        [
            "'a.b' is not in the context (for 'text')",
            "Step 0 ('echo') failed: 'a.b' is not in the context (for 'text')."
        ]
    );
    let optional = chain_of(&tools, step(InputSource::optional("a.b"))).execute(input.clone()).await;
    assert_eq!(optional.context["out"], json!({}));
    let default = chain_of(&tools, step(InputSource::or("a.b", 7))).execute(input.clone()).await;
    assert_eq!(default.context["out"], json!({"text": 7}));
    let compat = chain_of(&tools, step("a.b".into())).semantics(Semantics::Compat).execute(input).await;
    assert_eq!(compat.context["out"], json!({"text": null}));
}

#[tokio::test]
async fn a_dotted_path_resolves_all_levels_except_in_compat() {
    let tools = tools();
    let chain = chain_of(
        &tools,
        [ChainStep::new("echo").map("x", InputSource::or("a.b.c", "none")).output_key("out")],
    );
    let compat = chain.clone().semantics(Semantics::Compat);
    let literal = json!({"a": {"b.c": 7}});
    let nested = json!({"a": {"b": {"c": 5}}});
    assert_eq!(chain.execute(literal.clone()).await.context["out"]["x"], 7);
    assert_eq!(chain.execute(nested.clone()).await.context["out"]["x"], 5);
    assert_eq!(compat.execute(literal).await.context["out"]["x"], 7);
    assert_eq!(compat.execute(nested).await.context["out"]["x"], "none");
    let top_level = json!({"a.b.c": 3});
    assert_eq!(chain.execute(top_level.clone()).await.context["out"]["x"], 3);
    assert_eq!(compat.execute(top_level).await.context["out"]["x"], "none");
}

#[tokio::test]
async fn a_non_object_output_without_a_key_is_dropped() {
    let run = run(["list".into()], json!({"a": 1})).await;
    assert!(run.success);
    assert_eq!(Value::from(run.context), json!({"a": 1}));
    assert_eq!(run.step_results[0].data, json!([1, 2]));
}

#[tokio::test]
async fn an_output_that_violates_its_schema_fails_the_step() {
    let run = run([ChainStep::new("typed").map("n", "n").output_key("out")], json!({"n": 1})).await;
    assert!(!run.success);
    assert_eq!(run.step_results[0].status, OutcomeStatus::Partial);
    assert_eq!(
        run.errors,
        [
            "$: expected type string, got object",
            "Step 0 ('typed') failed: Output validation failed for tool 'typed'."
        ]
    );
    assert!(!run.context.contains_key("out"));
}

#[tokio::test]
async fn an_unresolved_compat_path_is_null() {
    let tools = tools();
    let chain = chain_of(&tools, [ChainStep::new("echo").map("x", "a.b.c").output_key("out")])
        .semantics(Semantics::Compat);
    assert_eq!(chain.execute(json!({"a": {"b": {"c": 5}}})).await.context["out"], json!({"x": null}));
    assert_eq!(chain.execute(json!({"a": {"b.c": 7}})).await.context["out"], json!({"x": 7}));
}

#[tokio::test]
async fn a_closed_input_schema_filters_the_context() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct City {
        city: String,
    }
    let tools = ToolRegistry::new()
        .with([
            ToolEntry::new("now", "", |_: Nothing| async { Ok(7) }),
            ToolEntry::new("shout", "", |it: City| async move { Ok(it.city.to_uppercase()) }),
        ])
        .unwrap();
    let chain = chain_of(
        &tools,
        [ChainStep::new("now").output_key("time"), ChainStep::new("shout").output_key("loud")],
    );
    let run = chain.execute(json!({"city": "Oslo", "other": 1})).await;
    assert_eq!(
        (&run.errors, &run.context["time"], &run.context["loud"]),
        (&vec![], &json!(7), &json!("OSLO"))
    );
    assert!(tools.invoke("now", Value::Null).await.is_ok(), "null arguments are an empty object");
}

#[tokio::test]
async fn the_size_of_a_whole_context_input_is_limited() {
    let tools = tools();
    let steps = (0..60).map(|n| ChainStep::new("echo").output_key(format!("k{n}")));
    let run = chain_of(&tools, steps).execute(json!({"a": "x".repeat(1 << 20)})).await;
    let refused = &run.errors[0];
    assert!(refused.starts_with("the input is too large: 32"), "{refused}");
    assert!(refused.ends_with(" of at most 65536 KiB; pass less data, or use several chains"), "{refused}");
    assert_eq!(run.step_results.last().unwrap().error_kind, Some(ErrorKind::LimitExceeded));
}

#[tokio::test]
async fn an_input_that_is_too_large_is_not_built() {
    let mapped = |n_inputs: usize| {
        (0..n_inputs).fold(ChainStep::new("echo"), |step, n| step.map(format!("k{n}"), "a"))
    };
    let template =
        |n_times: usize| ChainStep::new("echo").map("x", InputSource::template("{a}".repeat(n_times)));
    let cases = [
        // The whole text is refused before its first byte.
        (template(2_000), "2048000 KiB do not fit: chains and batches hold 1024 of"),
        (template(64), "65536 KiB do not fit: chains and batches hold 1024 of"),
        // Member by member, until one does not fit.
        (mapped(2_000), "1025 KiB do not fit: chains and batches hold 64"),
        (
            ChainStep::new("echo").for_each("l").map("x", InputSource::template("{a}{item}".repeat(64))),
            "KiB do not fit",
        ),
    ];
    for (step, expected) in cases {
        let run = run([step], json!({"a": "x".repeat(1 << 20), "l": ["y"]})).await;
        assert!(run.errors[0].contains(expected), "{} instead of {expected}", run.errors[0]);
        assert_eq!(run.step_results[0].error_kind, Some(ErrorKind::LimitExceeded));
    }
    let fits = run([template(60).output_key("out")], json!({"a": "x".repeat(1 << 18)})).await;
    assert!(fits.success, "{:?}", fits.errors);
    let input = run(["echo".into()], json!({"a": "x".repeat(65 << 20)})).await;
    assert!(
        input.errors[0].starts_with("the input is too large: 66561 KiB do not fit"),
        "{:?}",
        input.errors
    );
    assert!(input.step_results.is_empty());
}

#[tokio::test]
async fn the_size_of_all_outputs_is_limited() {
    let big = ToolEntry::from_fn("big", "", |_: Value| async { Ok(Value::from("x".repeat(1 << 20))) });
    let tools = ToolRegistry::new().with([big]).unwrap();
    let item_step = ChainStep::new("big").for_each("l").output_key("out");
    let chain_result = chain_of(&tools, [item_step.clone()]).execute(json!({"l": vec![0; 70]})).await;
    let discarded = &chain_result.errors[0];
    let start = "item 63: the output was discarded: 1025 KiB do not fit: chains and batches hold 64";
    assert!(discarded.starts_with(start), "{discarded}");
    assert!(
        discarded.ends_with("the tool has run; let it return less, or use several chains"),
        "{discarded}"
    );
    assert_eq!(chain_result.step_results[0].error_kind, Some(ErrorKind::LimitExceeded));
    let small = InputSource::constant(0);
    let steps = (0..70).map(|n| ChainStep::new("big").map("n", small.clone()).output_key(format!("k{n}")));
    let chain_result = chain_of(&tools, steps).execute(json!({})).await;
    assert!(chain_result.errors[0].starts_with("the output was discarded: 1025 KiB do not fit"));
    assert_eq!((chain_result.context.len(), chain_result.step_results.len()), (63, 64));
    let fits = chain_of(&tools, [item_step]).execute(json!({"l": vec![0; 60]})).await;
    assert!(fits.success, "{:?}", fits.errors);
}

#[tokio::test]
async fn the_data_of_failed_items_is_not_kept() {
    let failing =
        ToolEntry::from_fn("failing", "", |_: Value| async { Ok(Value::from("x".repeat(1 << 20))) })
            .with_output_schema(json!({"type": "object"}));
    let tools = ToolRegistry::new().with([failing]).unwrap();
    let step = ChainStep::new("failing").for_each("l").output_key("out");
    let chain_result = chain_of(&tools, [step]).execute_with(json!({"l": vec![0; 100]}), KEEP_GOING).await;
    let of_items = chain_result.errors.iter().filter(|error| error.starts_with("item ")).count();
    assert_eq!(of_items, 100);
    assert!(chain_result.errors.iter().all(|error| !error.contains("discarded")));
}

#[tokio::test]
async fn the_input_is_not_modified() {
    let input = json!({"value": 5, "nested": {"list": [1]}});
    let run = run(["double".into()], input.clone()).await;
    assert_eq!(run.context["value"], 10);
    assert_eq!(input, json!({"value": 5, "nested": {"list": [1]}}));
}

#[tokio::test]
async fn tool_errors_precede_the_message_of_their_step() {
    let tools = tools();
    let chain = chain_of(&tools, ["fail".into(), ChainStep::new("typed").map("n", "n")]);
    let run = chain.execute_with(json!({"n": 1}), KEEP_GOING).await;
    assert_eq!(
        run.errors,
        [
            "boom",
            "Step 0 ('fail') failed: Tool 'fail' raised an exception: boom",
            "$: expected type string, got object",
            "Step 1 ('typed') failed: Output validation failed for tool 'typed'.",
        ]
    );
}

#[tokio::test]
async fn errors_of_steps_are_clipped() {
    let tools = ToolRegistry::new().with([ToolEntry::from_fn("long", "", |_: Value| async {
        Err::<Value, _>(ToolError::new("x".repeat(1 << 20)))
    })]);
    let chain_result = chain_of(&tools.unwrap(), ["long".into()]).execute(json!({})).await;
    let lengths: Vec<usize> = chain_result.errors.iter().map(String::len).collect();
    assert_eq!(lengths.len(), 2);
    assert!(lengths.iter().all(|length| *length < 4_200), "{lengths:?}");
    assert!(chain_result.step_results[0].message.len() > 1 << 20);
}

#[test]
fn steps_are_added_copied_and_cleared() {
    let tools = tools();
    let mut chain = ToolChain::new(&tools).add_step("double".into()).add_step("add_ten".into());
    assert_eq!(chain.len(), 2);
    assert_eq!(format!("{chain:?}"), r#"ToolChain(steps=["double", "add_ten"])"#);
    let mut copy = chain.steps();
    copy.pop();
    assert_eq!((copy.len(), chain.len()), (1, 2));
    chain.clear();
    assert!(chain.is_empty());
}

#[tokio::test]
async fn the_input_of_a_chain_is_an_object_or_null() {
    let nothing = run([ChainStep::new("echo").output_key("out")], Value::Null).await;
    assert_eq!(nothing.context["out"], json!({}));
    let list = run([ChainStep::new("echo")], json!([1])).await;
    let expected = "The input of a chain must be an object or null.";
    assert_eq!((list.success, list.errors), (false, vec![expected.to_owned()]));
}

#[tokio::test]
async fn a_result_serializes_to_five_keys() {
    let run = run([ChainStep::new("echo").output_key("out")], json!({})).await;
    let written = serde_json::to_value(&run).unwrap();
    let keys: Vec<&str> = written.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["success", "context", "step_results", "errors", "duration_ms"]);
    assert!(written["duration_ms"].as_f64().unwrap() >= 0.0);
}
