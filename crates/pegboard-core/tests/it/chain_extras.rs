//! Timeouts, conditions, `for_each` and groups in chains, and static validation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pegboard_core::chain::{ChainStep, Condition, ExecuteOptions, InputSource, OnPartial};
use pegboard_core::entry::ToolEntry;
use pegboard_core::outcome::OutcomeStatus;
use pegboard_core::registry::ToolRegistry;
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use crate::chain::{chain_of, run, tools};
use crate::registry::echo;

const KEEP_GOING: ExecuteOptions = ExecuteOptions { stop_on_failure: false, validate_tools: true };

/// Tool that sleeps for the given milliseconds and records the maximum concurrency.
fn sleeper(max_concurrent: &Arc<AtomicUsize>) -> ToolEntry {
    let (asleep, max_concurrent) = (Arc::new(AtomicUsize::new(0)), Arc::clone(max_concurrent));
    ToolEntry::from_fn("sleep", "", move |it: Value| {
        let (asleep, max_concurrent) = (Arc::clone(&asleep), Arc::clone(&max_concurrent));
        async move {
            max_concurrent.fetch_max(asleep.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            time::sleep(Duration::from_millis(it["ms"].as_u64().unwrap_or(1))).await;
            asleep.fetch_sub(1, Ordering::SeqCst);
            Ok(it)
        }
    })
}

#[tokio::test]
async fn constants_and_templates_need_no_context() {
    let step = ChainStep::new("echo")
        .map("limit", InputSource::constant(10))
        .map("text", InputSource::template("{user.name} is {user.age}, {{really}}"))
        .output_key("out");
    let run = run([step], json!({"user": {"name": "Ada", "age": 36}})).await;
    assert_eq!(run.context["out"], json!({"limit": 10, "text": "Ada is 36, {really}"}));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_exceeds_its_timeout_is_cancelled() {
    let tools = ToolRegistry::new().with([sleeper(&Arc::default())]).unwrap();
    let step = ChainStep::new("sleep").map("ms", "ms").timeout(Duration::from_millis(30));
    let chain = chain_of(&tools, [step]);
    assert!(chain.execute(json!({"ms": 29})).await.success);
    let late = chain.execute(json!({"ms": 31})).await;
    assert_eq!(late.step_results[0].status, OutcomeStatus::Timeout);
    assert_eq!(
        late.errors,
        ["Tool execution timed out", "Step 0 ('sleep') failed: Tool 'sleep' did not finish within 30ms."]
    );
}

#[tokio::test]
async fn a_step_runs_only_when_its_condition_holds() {
    async fn check(condition: Condition, input: Value, expected: OutcomeStatus) {
        let run =
            run([ChainStep::new("echo").when(condition.clone()).output_key("out")], input.clone()).await;
        assert!(run.success, "{run:?}");
        assert_eq!(run.step_results[0].status, expected, "{condition:?} on {input}");
        assert_eq!(run.context.contains_key("out"), expected == OutcomeStatus::Success);
    }
    check("user".into(), json!({"user": "x"}), OutcomeStatus::Success).await;
    check("user.admin".into(), json!({"user": {"admin": true}}), OutcomeStatus::Success).await;
    for nothing in [
        json!({}),
        json!({"user": null}),
        json!({"user": ""}),
        json!({"user": 0}),
        json!({"user": []}),
        json!({"user": {}}),
        json!({"user": false}),
    ] {
        check("user".into(), nothing, OutcomeStatus::Skipped).await;
    }
    let enough = Condition::is("score", json!({"minimum": 5}));
    check(enough.clone(), json!({"score": 5}), OutcomeStatus::Success).await;
    check(enough.clone(), json!({"score": 4}), OutcomeStatus::Skipped).await;
    check(enough, json!({}), OutcomeStatus::Skipped).await;
}

#[tokio::test(start_paused = true)]
async fn for_each_runs_in_order_with_limited_concurrency() {
    let max_concurrent = Arc::default();
    let tools = ToolRegistry::new().with([sleeper(&max_concurrent)]).unwrap();
    let step =
        ChainStep::new("sleep").for_each("waits").map("ms", "item").map("at", "index").output_key("slept");
    let input = json!({"waits": [50, 10, 30, 20]});
    let started = Instant::now();
    let one_by_one = chain_of(&tools, [step.clone()]).execute(input.clone()).await;
    assert_eq!((started.elapsed().as_millis(), max_concurrent.load(Ordering::SeqCst)), (110, 1));
    let expected =
        json!([{"ms": 50, "at": 0}, {"ms": 10, "at": 1}, {"ms": 30, "at": 2}, {"ms": 20, "at": 3}]);
    assert_eq!(one_by_one.context["slept"], expected);
    let two_by_two = chain_of(&tools, [step.concurrency(2)]).execute(input).await;
    assert_eq!(max_concurrent.load(Ordering::SeqCst), 2);
    assert_eq!(two_by_two.context["slept"], expected);
    assert_eq!(two_by_two.step_results[0].metadata["items"], 4);
}

#[tokio::test]
async fn an_item_is_the_input_without_a_mapping() {
    let run = run(
        [ChainStep::new("double").for_each("numbers").output_key("out")],
        json!({"numbers": [{"value": 1}, {"value": 4}]}),
    )
    .await;
    assert_eq!(run.context["out"], json!([{"value": 2}, {"value": 8}]));
}

#[tokio::test]
async fn a_failing_item_fails_the_step_and_is_named() {
    let tools = ToolRegistry::new()
        .with([echo("positive").with_input_schema(json!({"properties": {"n": {"minimum": 0}}}))])
        .unwrap();
    let chain =
        chain_of(&tools, [ChainStep::new("positive").for_each("list").map("n", "item").output_key("out")]);
    let input = json!({"list": [1, -2, 3, -4]});
    let stopped = chain.execute(input.clone()).await;
    assert_eq!(
        stopped.errors,
        [
            "item 1: $.n: value -2 < minimum 0",
            "Step 0 ('positive') failed: 1 of 4 items failed, 2 were not started. Input validation failed for tool 'positive'.",
        ]
    );
    let finished = chain.execute_with(input, KEEP_GOING).await;
    assert_eq!(finished.step_results[0].data, json!([{"n": 1}, null, {"n": 3}, null]));
    assert_eq!(finished.errors.len(), 3);
    let no_list = chain.execute(json!({"list": 7})).await;
    assert_eq!(no_list.errors[0], "Step 0: for_each: 'list' can never be a list.");
    let unvalidated = ExecuteOptions { validate_tools: false, ..ExecuteOptions::default() };
    let no_list = chain.execute_with(json!({"list": 7}), unvalidated).await;
    assert_eq!(no_list.errors[0], "'list' is not a list");
    let many = chain.execute(json!({"list": vec![1; 10_001]})).await;
    assert_eq!(many.errors[0], "'list' has 10001 items; a step takes at most 10000");
}

#[tokio::test(start_paused = true)]
async fn started_and_cancelled_items_are_reported_separately() {
    let tools = ToolRegistry::new()
        .with([ToolEntry::from_fn("nap", "", |it: Value| async move {
            time::sleep(Duration::from_millis(5)).await;
            if it["n"] == 0 { Err(pegboard_core::error::ToolError::new("tired")) } else { Ok(it) }
        })])
        .unwrap();
    let step = ChainStep::new("nap").for_each("list").map("n", "item").concurrency(3);
    let run = chain_of(&tools, [step]).execute(json!({"list": [0, 1, 2, 3, 4]})).await;
    insta::assert_snapshot!(run.errors[1], @"Step 0 ('nap') failed: 1 of 5 items failed, 2 were started and cancelled, 2 were not started. Tool 'nap' raised an exception: tired");
}

#[tokio::test]
async fn an_item_is_not_confused_with_a_context_key() {
    let step = ChainStep::new("echo").for_each("l").map("w", "item.k?").output_key("out");
    let input = json!({"l": [{"k": 1}, {"z": 1}], "item": {"k": "not this"}});
    assert_eq!(run([step.clone()], input.clone()).await.context["out"], json!([{"w": 1}, {}]));
    let tools = tools();
    let compat =
        chain_of(&tools, [step]).semantics(pegboard_core::chain::Semantics::Compat).execute(input).await;
    assert_eq!(compat.context["out"], json!([{"w": 1}, {}]));
}

#[tokio::test(start_paused = true)]
async fn a_panic_during_cancellation_is_contained() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let tools = ToolRegistry::new()
        .with([ToolEntry::from_fn("bomb", "", |_: Value| async {
            let _bomb = Bomb;
            time::sleep(Duration::MAX).await;
            Ok(Value::Null)
        })])
        .unwrap();
    let run =
        chain_of(&tools, [ChainStep::new("bomb").timeout(Duration::from_millis(5))]).execute(json!({})).await;
    assert_eq!(run.step_results[0].status, OutcomeStatus::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_group_runs_in_parallel_and_merges_its_outputs() {
    let max_concurrent = Arc::default();
    let tools = ToolRegistry::new().with([sleeper(&max_concurrent), echo("echo")]).unwrap();
    let sleep = |ms: u64, key: &str| {
        ChainStep::new("sleep").map("ms", InputSource::constant(ms)).output_key(key).parallel("naps")
    };
    let steps = [
        sleep(40, "a"),
        sleep(30, "b"),
        sleep(20, "c"),
        ChainStep::new("echo").map("first", "a.ms").map("last", "c.ms").output_key("seen"),
    ];
    let started = Instant::now();
    let run = chain_of(&tools, steps).execute(json!({})).await;
    assert!(run.success, "{run:?}");
    assert_eq!((started.elapsed().as_millis(), max_concurrent.load(Ordering::SeqCst)), (40, 3));
    assert_eq!(run.context["seen"], json!({"first": 40, "last": 20}));
    assert_eq!(
        run.step_results.iter().map(|outcome| outcome.data["ms"].clone()).collect::<Vec<_>>(),
        [40, 30, 20, 0].map(|ms| if ms == 0 { Value::Null } else { ms.into() })
    );
}

#[tokio::test]
async fn a_failure_in_a_group_lets_its_neighbours_finish_and_stops_the_chain() {
    let steps = [
        ChainStep::new("fail").parallel("g"),
        ChainStep::new("double").parallel("g").output_key("doubled"),
        ChainStep::new("add_ten"),
    ];
    let run = run(steps, json!({"value": 1})).await;
    assert_eq!(run.step_results.len(), 2);
    assert_eq!(run.context["doubled"], json!({"value": 2}));
    assert_eq!(run.errors, ["boom", "Step 0 ('fail') failed: Tool 'fail' raised an exception: boom"]);
}

#[tokio::test]
async fn an_output_that_violates_its_schema_can_be_accepted() {
    let step = ChainStep::new("typed").map("n", "n").output_key("out").on_partial(OnPartial::Accept);
    let run = run([step], json!({"n": 1})).await;
    assert!(run.success);
    assert_eq!((run.step_results[0].status, &run.context["out"]), (OutcomeStatus::Partial, &json!({"n": 1})));
}

/// Validates a chain over these tools, without input.
fn check(
    entries: impl IntoIterator<Item = ToolEntry>,
    steps: impl IntoIterator<Item = ChainStep>,
    expected: &[&str],
) {
    let tools = tools().with(entries).unwrap();
    assert_eq!(chain_of(&tools, steps).validate().errors, expected);
}

fn closed(name: &str, output: Value) -> ToolEntry {
    echo(name)
        .with_output_schema(json!({"type": "object", "properties": output, "additionalProperties": false}))
}

#[test]
fn a_source_that_can_never_resolve_is_rejected() {
    let fetch = || {
        closed(
            "fetch",
            json!({"body": {"type": "string"}, "links": {"type": "array", "items": {"type": "string"}}}),
        )
    };
    let check = |source: &str, expected: &[&str]| {
        check(
            [fetch()],
            [ChainStep::new("fetch").output_key("page"), ChainStep::new("echo").map("x", source)],
            expected,
        );
    };
    check("page.body", &[]);
    check("page.links[3]", &[]);
    check("page.links.3", &[]);
    check("anything.else", &[]);
    check("page.bodyy", &["Step 1: input 'x': 'page.bodyy' can never be in the context."]);
    check("page.body.text", &["Step 1: input 'x': 'page.body.text' can never be in the context."]);
    check("page.links.first", &["Step 1: input 'x': 'page.links.first' can never be in the context."]);
    check("page[0]", &["Step 1: input 'x': 'page[0]' can never be in the context."]);
    check("page.bodyy?", &[]);
    check("/page/body", &[]);
    check("$.page.body", &[]);
    check("/page/bodyy", &["Step 1: input 'x': '/page/bodyy' can never be in the context."]);
}

#[test]
fn for_each_over_a_non_list_is_rejected() {
    let count = || echo("count").with_output_schema(json!({"type": "integer"}));
    let steps = |list: &str| {
        [ChainStep::new("count").output_key("n"), ChainStep::new("echo").for_each(list).output_key("out")]
    };
    check([count()], steps("n"), &["Step 1: for_each: 'n' can never be a list."]);
    check([count()], steps("other"), &[]);
}

#[test]
fn a_condition_with_an_unusable_schema_is_rejected() {
    let tools = tools();
    let step = ChainStep::new("echo").when(Condition::is("a", json!({"type": "strin"})));
    let verdict = chain_of(&tools, [step]).validate();
    assert!(
        verdict.errors[0]
            .text()
            .starts_with("Step 0: the condition has no effect: the schema cannot be used"),
        "{verdict:?}"
    );
}

#[tokio::test]
async fn a_source_that_may_resolve_is_accepted() {
    let tools = tools()
        .with([closed("part", json!({"body": {}})), echo("odd").with_output_schema(json!({"type": "dict"}))])
        .unwrap();
    let read = |path: &str| ChainStep::new("echo").map("x", path).output_key("seen");
    let accepting = ChainStep::new("part").map("extra", "n").output_key("p").on_partial(OnPartial::Accept);
    let run = chain_of(&tools, [accepting, read("p.extra")]).execute(json!({"n": 7})).await;
    assert_eq!((&run.errors, &run.context["seen"]), (&vec![], &json!({"x": 7})));
    let unusable = ChainStep::new("odd").map("a", "n").output_key("p");
    assert!(chain_of(&tools, [unusable, read("p.a")]).execute(json!({"n": 7})).await.success);
    let failing = ChainStep::new("fail").output_key("page");
    let kept = chain_of(&tools, [failing, read("page.body")])
        .execute_with(json!({"page": {"body": 1}}), KEEP_GOING)
        .await;
    assert_eq!(kept.context["seen"], json!({"x": 1}));
}

#[test]
fn the_output_of_for_each_is_known_to_be_a_list() {
    let steps = |source: &str| {
        [
            ChainStep::new("fetch").for_each("urls").output_key("pages"),
            ChainStep::new("echo").map("x", source),
        ]
    };
    let fetch = || closed("fetch", json!({"body": {}}));
    check([fetch()], steps("pages[0].body"), &[]);
    check([fetch()], steps("pages.body"), &["Step 1: input 'x': 'pages.body' can never be in the context."]);
    check(
        [fetch()],
        steps("pages[0].title"),
        &["Step 1: input 'x': 'pages[0].title' can never be in the context."],
    );
}

#[test]
fn steps_of_a_group_do_not_see_each_other() {
    let tools = tools().with([closed("fetch", json!({"body": {}}))]).unwrap();
    let steps = [
        ChainStep::new("fetch").output_key("page").parallel("g"),
        ChainStep::new("echo").map("x", "page").output_key("copy").parallel("g"),
    ];
    let mut spec = chain_of(&tools, steps).spec().clone();
    spec.input_schema =
        json!({"type": "object", "properties": {"url": {}}, "additionalProperties": false}).into();
    let verdict = pegboard_core::chain::ToolChain::from_spec(spec, &tools).validate();
    assert_eq!(verdict.errors, ["Step 1: input 'x': 'page' can never be in the context."]);
}

#[tokio::test]
async fn keys_missing_in_the_input_are_found_before_anything_runs() {
    let run = run(
        [ChainStep::new("double").output_key("d"), ChainStep::new("echo").map("x", "missing.key")],
        json!({"value": 1}),
    )
    .await;
    assert_eq!(run.errors, ["Step 1: input 'x': 'missing.key' can never be in the context."]);
    assert!(run.step_results.is_empty());
}

#[tokio::test]
async fn the_input_is_validated_against_the_chains_schema() {
    let tools = tools();
    let mut spec = chain_of(&tools, ["echo".into()]).spec().clone();
    spec.input_schema = json!({"required": ["url"]}).into();
    let run = pegboard_core::chain::ToolChain::from_spec(spec, &tools).execute(json!({})).await;
    assert_eq!(run.errors, ["$.url: required field missing"]);
}

#[test]
fn a_mapping_that_violates_the_tools_schema_is_rejected() {
    let strict = || {
        echo("strict").with_input_schema(
            json!({"properties": {"text": {}}, "required": ["text"], "additionalProperties": false}),
        )
    };
    check(
        [strict()],
        [ChainStep::new("strict").map("txt", "a")],
        &[
            "Step 0: tool 'strict' requires 'text', which is not mapped.",
            "Step 0: tool 'strict' has no input 'txt'.",
        ],
    );
    check([strict()], [ChainStep::new("strict").map("text", "a")], &[]);
    check([strict()], ["strict".into()], &[]);
}

#[test]
fn an_invalid_path_is_rejected_with_the_reason() {
    check(
        [],
        [ChainStep::new("echo").map("x", "a..b").map("y", "a[b]").map("z", InputSource::template("{a"))],
        &[
            "Step 0: input 'x': invalid path 'a..b': empty segment.",
            "Step 0: input 'y': invalid path 'a[b]': a bracket must contain an index or a quoted name, such as [0] or [\"name\"].",
            "Step 0: input 'z': unmatched brace in template '{a' (write {{ or }} for a literal brace).",
        ],
    );
    check(
        [],
        [ChainStep::new("echo").for_each("").concurrency(65)],
        &["Step 0: invalid path '': empty segment.", "Step 0: concurrency must be between 1 and 64."],
    );
}

#[test]
fn a_non_adjacent_group_is_rejected() {
    let step = |label: Option<&str>| {
        label.map_or(ChainStep::new("echo"), |label| ChainStep::new("echo").parallel(label))
    };
    check(
        [],
        [step(Some("g")), step(None), step(Some("g"))],
        &["Step 2: the steps of group 'g' must be adjacent."],
    );
    let many = (0..1_001).map(|_| ChainStep::new("echo"));
    check([], many, &["Chain has 1001 steps; at most 1000 are allowed."]);
}
