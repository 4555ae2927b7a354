//! Chains as tools.

use pegboard_core::chain::{ChainSpec, ToolChain};
use pegboard_core::entry::{ToolAnnotations, ToolEntry};
use pegboard_core::provider::{LocalProvider, ServerOffering};
use pegboard_runtime::{CallerOptions, Runtime};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::calls::fixtures::{ExecutionLog, builder, call, caller, line};

fn spec(chain: Value) -> ChainSpec {
    serde_json::from_value(chain).unwrap()
}

fn greeting() -> ChainSpec {
    spec(json!({
        "chain": "greet",
        "description": "Greets twice",
        "input_schema": {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]},
        "steps": [
            {"tool": "t__echo", "with": {"text": "who"}, "as": "first"},
            {"tool": "t__echo", "with": {"text": "first.text"}, "as": "second"}
        ],
        "output": "second.text"
    }))
}

#[tokio::test(start_paused = true)]
async fn a_chain_is_a_tool_with_its_own_schema() {
    let runtime =
        builder(&ExecutionLog::default(), json!({}), json!({})).chain(greeting()).start().await.unwrap();
    let caller = caller(&runtime);
    assert_eq!(line(&call(&caller, "chain__greet", json!({"who": "ann"})).await), "ann");
    let refused = call(&caller, "chain__greet", json!({})).await;
    assert_eq!(line(&refused), "invalid_parameters: Invalid arguments: $.who: required field missing");
    let tree = caller.tree().snapshot().to_string();
    assert!(tree.contains("1-1.1-2"), "{tree}");
}

#[tokio::test(start_paused = true)]
async fn a_strict_tool_without_a_mapping_gets_what_it_declares_and_the_rest_is_reported() {
    let strict = |properties: Value| json!({"type": "object", "properties": properties, "additionalProperties": false});
    let tool = |name: &'static str, schema: Value| {
        ToolEntry::from_fn(name, "", |value: Value| async move { Ok(value) }).with_input_schema(schema)
    };
    let tools = LocalProvider::new([
        tool("strict", strict(json!({"city": {}}))),
        tool("nothing", strict(json!({}))),
        tool("open", json!({"type": "object"})),
    ]);
    let chain = spec(json!({
        "chain": "visit",
        "input_schema": strict(json!({"city": {}, "secret": {}})),
        "steps": [
            {"tool": "s__strict", "as": "a"}, {"tool": "s__open", "as": "b"},
            {"tool": "s__nothing", "as": "c"}, {"tool": "s__strict", "with": {"city": "city"}, "as": "d"},
        ],
        "output": "a"
    }));
    let runtime = Runtime::builder().provide("s", tools).chain(chain.clone()).start().await.unwrap();
    let caller = caller(&runtime);
    let warnings = ToolChain::from_spec(chain, &caller).validate().warnings;
    assert_eq!(warnings, ["Step 0: tool 's__strict' does not accept 'secret' of the context; left out."]);
    let answer = call(&caller, "chain__visit", json!({"city": "Oslo", "secret": 7})).await;
    assert_eq!(line(&answer), r#"{"city":"Oslo"}"#);
    let tree = serde_json::to_string(&caller.tree().snapshot()).unwrap();
    let note = "tool 's__strict' does not accept 'secret' of the context; left out";
    assert_eq!(tree.matches(note).count(), 1, "{tree}");
}

#[tokio::test(start_paused = true)]
async fn every_step_is_a_nested_call() {
    let steps = json!({"chain": "naps", "steps": [
        {"tool": "t__nap", "with": {"ms": {"$const": 80}}, "as": "a"}, {"tool": "t__nap", "with": {"ms": {"$const": 80}}, "as": "b"}
    ]});
    let settings = json!({"toolTimeout": 100, "queues": {"default": {"concurrent": 1}}});
    let runtime =
        builder(&ExecutionLog::default(), settings, json!({})).chain(spec(steps)).start().await.unwrap();
    let ended = call(&caller(&runtime), "chain__naps", json!({})).await;
    assert_eq!(ended.result.unwrap().into_data(), json!({"a": "rested", "b": "rested"}));
}

#[tokio::test(start_paused = true)]
async fn a_failing_chain_returns_an_error_answer_with_the_reason() {
    let chain = spec(json!({"chain": "bad", "steps": [{"tool": "t__fail", "as": "x"}]}));
    let runtime = builder(&ExecutionLog::default(), json!({}), json!({})).chain(chain).start().await.unwrap();
    let ended = call(&caller(&runtime), "chain__bad", json!({})).await;
    insta::assert_snapshot!(line(&ended), @r"
    isError: boom
    Step 0 ('t__fail') failed: Tool 't__fail' raised an exception: boom
    ");
}

#[tokio::test(start_paused = true)]
async fn a_chain_that_calls_itself_is_stopped() {
    let chain = spec(json!({"chain": "loop", "steps": [{"tool": "chain__loop", "as": "x"}]}));
    let runtime = builder(&ExecutionLog::default(), json!({}), json!({})).chain(chain).start().await.unwrap();
    let text = line(&call(&caller(&runtime), "chain__loop", json!({})).await);
    assert!(text.contains("calls are nested deeper than 16 levels"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_annotations_of_a_chain_derive_from_its_tools() {
    let reads = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
    let writes =
        ToolAnnotations { read_only: Some(false), destructive: Some(true), ..ToolAnnotations::default() };
    let tool = |name: &'static str, annotations: &ToolAnnotations| {
        ToolEntry::from_fn(name, "", |value: Value| async move { Ok(value) })
            .with_annotations(annotations.clone())
    };
    let local = Arc::new(LocalProvider::new([tool("read", &reads), tool("write", &writes)]));
    let chain = |name: &str, steps: [&str; 2]| {
        spec(json!({"chain": name, "steps": steps.map(|step| json!({"tool": step, "as": step}))}))
    };
    let runtime = Runtime::builder()
        .provide("s", Arc::clone(&local))
        .chain(chain("looks", ["s__read", "s__read"]))
        .chain(chain("changes", ["s__read", "s__write"]))
        .chain(chain("unknown", ["s__read", "s__missing"]))
        .start()
        .await
        .unwrap();
    let annotations = || async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        let catalogue = runtime.catalogue();
        let chains = catalogue.tools().iter().filter(|tool| tool.id.server.as_str() == "chain");
        chains
            .map(|tool| (tool.entry.annotations().read_only, tool.entry.annotations().destructive))
            .collect::<Vec<_>>()
    };
    assert_eq!(annotations().await, [(Some(true), Some(false)), (Some(false), Some(true)), (None, None)]);
    local.replace(ServerOffering {
        tools: vec![Arc::new(tool("read", &ToolAnnotations::default()))],
        ..ServerOffering::default()
    });
    assert_eq!(annotations().await, [(None, None), (None, None), (None, None)]);
}

#[tokio::test]
async fn a_dry_run_shows_the_plan_and_its_problems() {
    let runtime = builder(&ExecutionLog::default(), json!({}), json!({})).start().await.unwrap();
    let caller = runtime.caller(CallerOptions::default());
    let chain = spec(json!({"chain": "plan", "steps": [
        {"tool": "t__echo", "with": {"url": "start.url"}, "as": "page"},
        {"tool": "t__echo", "with": {"x": "page.url"}, "as": "a", "parallel": "g"},
        {"tool": "t__nowhere", "with": {"x": {"$const": 1}}, "when": "page", "for_each": "page.list", "parallel": "g"}
    ]}));
    let plan = ToolChain::from_spec(chain, &caller).plan();
    insta::assert_snapshot!(plan, @r#"
    0. t__echo with url = "start.url" -> page (read-only)
    in parallel:
      1. t__echo with x = "page.url" -> a (read-only)
      2. t__nowhere for each of page.list when "page" with x = {"$const":1} -> merged into the context (no such tool)
    ! Step 2: tool 't__nowhere' not found in registry.
    "#);
}

#[tokio::test]
async fn an_invalid_chain_fails_the_start() {
    let cases = [
        (
            spec(json!({"steps": [{"tool": "x"}]})),
            "Chain '': Tool names must be non-empty strings. Give the chain a name",
        ),
        (spec(json!({"chain": "a", "steps": []})), "Chain 'a': Chain has no steps."),
        (
            spec(json!({"chain": "greet", "steps": [{"tool": "x"}]})),
            "Chain 'greet': another chain in this toolbox has the same name",
        ),
    ];
    for (chain, expected) in cases {
        let error = builder(&ExecutionLog::default(), json!({}), json!({}))
            .chain(greeting())
            .chain(chain)
            .start()
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_chain_in_a_chain_shares_its_memory() {
    const MIB: usize = 1 << 20;
    let collect = json!({"tool": "t__big", "for_each": "sizes", "with": {"bytes": "item"}, "as": "out"});
    let inner = spec(json!({"chain": "inner", "steps": [&collect], "output": "n"}));
    let outer = spec(json!({
        "chain": "outer",
        "steps": [&collect, {"tool": "chain__inner", "with": {"sizes": "sizes", "n": "n"}, "as": "result"}],
        "output": "result"
    }));
    // Each output replaces the one before.
    let replaced = json!({"tool": "t__big", "with": {"bytes": {"$const": MIB}}, "as": "out"});
    let replaced = spec(json!({"chain": "replaced", "steps": vec![replaced; 70], "output": "n"}));
    let runtime = builder(&ExecutionLog::default(), json!({}), json!({}));
    let runtime = runtime.chain(inner).chain(outer).chain(replaced).start().await.unwrap();
    let caller = caller(&runtime);
    let input = |n_outputs: usize| json!({"n": 7, "sizes": vec![MIB; n_outputs]});
    // More than the limit of the runtime, so that every call must release its memory.
    for _ in 0..10 {
        assert_eq!(line(&call(&caller, "chain__inner", input(40)).await), "7");
    }
    assert_eq!(line(&call(&caller, "chain__replaced", json!({"n": 7})).await), "7");
    assert_eq!(line(&call(&caller, "chain__outer", input(20)).await), "7");
    let refused = line(&call(&caller, "chain__outer", input(40)).await);
    assert!(refused.contains("item 23: the output was discarded: 1025 KiB do not fit"), "{refused}");
    let steps = json!([{"tool": "chain__inner", "with": {"sizes": "sizes", "n": "n"}}]);
    let inline = json!({"steps": steps, "input": {"n": 7, "sizes": vec![MIB; 70]}});
    let refused = line(&call(&caller, "run_chain", inline).await);
    assert!(refused.contains("KiB do not fit"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn the_steps_of_an_inline_chain_have_a_maximum_size() {
    let runtime = builder(&ExecutionLog::default(), json!({}), json!({})).start().await.unwrap();
    let inline = |n_times: usize| {
        let step =
            json!({"tool": "t__echo", "with": {"x": {"$template": "{a}".repeat(n_times)}}, "as": "out"});
        json!({"steps": [step], "input": {"a": "b"}, "output": "out.x"})
    };
    let caller = caller(&runtime);
    assert_eq!(line(&call(&caller, "run_chain", inline(9)).await), "bbbbbbbbb");
    let refused = call(&caller, "run_chain", inline(100_000)).await.result.unwrap_err();
    let expected = "invalid_chain_input: the steps are larger than 256 KiB: pass large values in 'input'";
    assert_eq!(refused.texts(), [expected]);
}
