//! Schemas that make the validation of a value costly.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::{Call, CallHandle, Invoker};
use pegboard_core::chain::{ChainSpec, ToolChain};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::CallError;
use pegboard_core::registry::ToolRegistry;
use pegboard_core::schema::Schema;
use serde_json::{Map, Value, json};

fn names(n: usize) -> Vec<String> {
    (0..n).map(|index| format!("n{index}")).collect()
}

fn by_name(n: usize, value: &Value) -> Value {
    names(n).into_iter().map(|name| (name, value.clone())).collect::<Map<_, _>>().into()
}

/// A list of equal values, or a string of this length.
fn repeated(n: usize, value: Value) -> Value {
    vec![value; n].into()
}

/// A schema and a value that are costly together, of which neither is remarkable to a count of subschemas or values.
#[expect(clippy::too_many_lines, reason = "a table")]
fn combinations() -> Vec<(&'static str, Value, Value)> {
    let options: Vec<Value> = (0..10_000).map(|n| json!({"k": n})).collect();
    let branches: Vec<Value> = (0..100).map(|n| json!({"minimum": n})).collect();
    let any = json!({"anyOf": branches});
    let long = json!("a".repeat(200_000));
    let list = repeated(1_000, json!(1));
    let objects = repeated(10, json!({"n": 1}));
    let pattern = "^([ab]?){100}$";
    let patterns: Value = (0..100).map(|n| (format!("^n.*{n}"), json!(true))).collect::<Map<_, _>>().into();
    let many: Vec<String> = names(10_000);
    let distinct: Vec<usize> = (0..5_000).collect();
    let in_list = |keyword: &str| json!({"items": {keyword: branches}});
    vec![
        ("enum", json!({"items": {"enum": options}}), repeated(10, json!({"k": -1}))),
        ("const", json!({"items": {"const": options}}), repeated(10, json!(options))),
        ("required", json!({"items": {"required": many}}), repeated(10, json!({}))),
        ("dependentRequired", json!({"items": {"dependentRequired": {"n": many}}}), objects.clone()),
        ("dependencies", json!({"items": {"dependencies": {"n": many}}}), objects.clone()),
        (
            "dependentSchemas",
            json!({"items": {"dependentSchemas": {"n": any}}}),
            repeated(1_000, json!({"n": 1})),
        ),
        ("pattern", json!({"pattern": pattern}), long.clone()),
        ("format", json!({"format": "email"}), long.clone()),
        (
            "contentMediaType",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "contentMediaType": "application/json"}),
            long.clone(),
        ),
        ("properties", json!({"properties": by_name(300, &any)}), by_name(1_000, &json!(1))),
        ("names of properties", json!({"properties": by_name(20_000, &json!({}))}), by_name(100, &json!(1))),
        ("patternProperties", json!({"patternProperties": patterns}), by_name(500, &json!(1))),
        ("additionalProperties", json!({"additionalProperties": any}), by_name(1_000, &json!(1))),
        ("propertyNames", json!({"propertyNames": any}), by_name(1_000, &json!(1))),
        (
            "pattern of propertyNames",
            json!({"propertyNames": {"pattern": pattern}}),
            json!({"a".repeat(200_000): 1}),
        ),
        (
            "unevaluatedProperties",
            json!({"allOf": [{"properties": by_name(300, &any)}], "unevaluatedProperties": false}),
            by_name(100, &json!(1)),
        ),
        ("items", json!({"items": any}), list.clone()),
        ("prefixItems", json!({"prefixItems": repeated(300, any.clone())}), list.clone()),
        (
            "additionalItems",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}], "additionalItems": any}),
            list.clone(),
        ),
        ("contains", json!({"contains": any}), list.clone()),
        ("unevaluatedItems", json!({"allOf": [{"items": any}], "unevaluatedItems": false}), list.clone()),
        ("uniqueItems", json!({"uniqueItems": true}), json!(distinct)),
        ("allOf", in_list("allOf"), list.clone()),
        ("anyOf", in_list("anyOf"), list.clone()),
        ("oneOf", in_list("oneOf"), list.clone()),
        ("not", json!({"items": {"not": any}}), list.clone()),
        ("if", json!({"items": {"if": any, "then": true}}), list.clone()),
        ("then", json!({"items": {"if": true, "then": any}}), list.clone()),
        ("else", json!({"items": {"if": false, "else": any}}), list.clone()),
        ("$ref", json!({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": any}}), list.clone()),
        ("$ref to anywhere", json!({"items": {"$ref": "#/x/a"}, "x": {"a": any}}), list.clone()),
        (
            "$dynamicRef",
            json!({"items": {"$dynamicRef": "#a"}, "$defs": {"a": {"$dynamicAnchor": "a", "anyOf": branches}}}),
            list.clone(),
        ),
        (
            "copies for branches",
            json!({"anyOf": branches.iter().map(|_| json!({"type": "null"})).collect::<Vec<_>>()}),
            json!("a".repeat(1 << 20)),
        ),
        (
            "paths of violations",
            json!({"additionalProperties": {"items": {"type": "null"}}}),
            json!({"a".repeat(1 << 20): repeated(100, json!(1))}),
        ),
    ]
}

#[test]
fn a_costly_combination_of_schema_and_value_is_costly() {
    for (keyword, schema, value) in combinations() {
        let schema = Schema::new(schema);
        for small in [json!({}), json!([]), json!("a")] {
            let verdict = schema.check(&small);
            assert_eq!(verdict.warnings, [""; 0], "{keyword}");
            assert!(!schema.is_costly(&small), "{keyword}: {small}");
        }
        assert!(schema.is_costly(&value), "{keyword}");
    }
}

#[test]
fn a_validation_of_minutes_is_refused() {
    let options: Vec<Value> = (0..20_000).map(|n| json!({"k": n})).collect();
    for (schema, value) in [
        (json!({"items": {"enum": options}}), repeated(2_000, json!({"k": -1}))),
        (json!({"items": {"required": names(20_000)}}), repeated(2_000, json!({}))),
        (json!({"pattern": "^([ab]?){2000}$"}), json!("a".repeat(8 << 20))),
    ] {
        let verdict = Schema::new(schema).check(&value);
        assert_eq!(
            verdict.errors,
            ["$: the value is too large or too deeply nested to be validated against its schema"]
        );
    }
}

#[test]
fn a_schema_that_is_costly_to_compile_is_costly_until_it_is_compiled() {
    for schema in [
        json!({"properties": {"a": {"pattern": "^\\pL{18}$"}}}),
        json!({"patternProperties": {"^((a{30}){30}){30}$": true}}),
        json!({"properties": by_name(5_000, &json!({"type": "string"}))}),
        json!({"enum": names(10_000)}),
    ] {
        let schema = Schema::new(schema);
        assert!(schema.is_costly(&json!({})));
        schema.check(&json!({}));
        assert!(!schema.is_costly(&json!({})));
    }
    for schema in [
        json!({"type": "object", "properties": by_name(100, &json!({"type": "string"}))}),
        json!({"pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"}),
        json!({"pattern": "^[A-Za-z0-9_-]{1,64}$"}),
    ] {
        assert!(!Schema::new(schema.clone()).is_costly(&json!({})), "{schema}");
    }
}

#[test]
fn a_common_value_is_not_costly() {
    let issue = json!({
        "type": "object",
        "properties": {
            "number": {"type": "integer"},
            "title": {"type": "string", "maxLength": 256},
            "state": {"enum": ["open", "closed"]},
            "url": {"type": "string", "format": "uri"},
            "assignee": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["number", "title", "state"],
    });
    let schema =
        Schema::new(json!({"type": "object", "properties": {"issues": {"type": "array", "items": issue}}}));
    let one = json!({"number": 7, "title": "t".repeat(80), "state": "open", "url": "https://e.test/7", "assignee": null});
    assert!(!schema.is_costly(&json!({"issues": repeated(100, one)})));
    let countries = Schema::new(json!({"items": {"enum": names(250)}}));
    assert!(!countries.is_costly(&repeated(1_000, json!("n7"))));
}

#[test]
fn patterns_beyond_the_budget_of_a_schema_make_it_unusable() {
    let pattern = |n: usize| json!({"type": "string", "pattern": format!("\\pL{{20}}x{n}")});
    let patterns = |n_patterns: usize| -> Value {
        (0..n_patterns).map(|n| (format!("a{n}"), pattern(n))).collect::<Map<_, _>>().into()
    };
    let many = Schema::new(json!({"properties": patterns(199)})).check(&json!({"a0": "x"}));
    let [warning] = many.warnings.as_slice() else { panic!("{many:?}") };
    assert!(warning.contains("nothing was validated: its pattern is invalid, too large"), "{warning}");
    let some = Schema::new(json!({"properties": patterns(20)})).check(&json!({"a0": "x", "a19": "x"}));
    assert_eq!(some.errors.len(), 1, "{some:?}");
    assert!(
        some.warnings
            .iter()
            .any(|warning| warning.starts_with("the pattern at /properties/a19/pattern is not checked"))
    );
}

#[test]
fn patterns_count_wherever_a_reference_leads() {
    let patterns: Vec<Value> = (0..300).map(|n| json!({"pattern": format!("a{n}")})).collect();
    let verdict = Schema::new(json!({"$ref": "#/x", "x": {"anyOf": patterns}})).check(&json!("a"));
    assert!(verdict.warnings[0].contains("more than 200 patterns"), "{verdict:?}");
}

#[test]
fn paths_of_keywords_are_limited() {
    let schema = json!({"properties": {"a".repeat(1 << 20): {"anyOf": (0..20).map(|n| json!({"minimum": n})).collect::<Vec<_>>()}}});
    let verdict = Schema::new(schema).check(&json!({}));
    assert!(verdict.warnings[0].contains("the paths of its keywords take more than 16 MiB"), "{verdict:?}");
}

#[test]
fn violations_are_short_whatever_they_quote() {
    let options: Vec<String> = (0..60).map(|n| format!("{n}{}", "x".repeat(500))).collect();
    let long = "a".repeat(20_000);
    let pattern = format!("^{}+$", "a".repeat(5_000));
    for (schema, value) in [
        (json!({"items": {"enum": options}}), repeated(900, json!("y"))),
        (json!({"required": [long]}), json!({})),
        (json!({"additionalProperties": false}), json!({long.clone(): 1})),
        (json!({"additionalProperties": {"items": {"type": "null"}}}), json!({long.clone(): [1, 2]})),
        (json!({"pattern": pattern}), json!("y")),
    ] {
        let verdict = Schema::new(schema).check(&value);
        assert!(!verdict.valid);
        assert!(verdict.errors.iter().all(|violation| violation.text().len() < 2_000));
        assert!(verdict.errors.iter().map(|violation| violation.text().len()).sum::<usize>() < 300_000);
    }
}

/// Invoker that counts the costly validations.
struct CountingInvoker {
    tools: ToolRegistry,
    n_apart: AtomicUsize,
}

impl Invoker for CountingInvoker {
    fn find(&self, name: &str) -> Option<Arc<ToolEntry>> {
        self.tools.find(name)
    }

    fn start(&self, call: Call) -> CallHandle {
        Invoker::start(&self.tools, call)
    }

    fn run_apart(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'_, Result<(), CallError>> {
        self.n_apart.fetch_add(1, Ordering::Relaxed);
        async move {
            work();
            Ok(())
        }
        .boxed()
    }
}

#[tokio::test]
async fn the_costly_validations_of_a_chain_run_apart() {
    let options: Vec<Value> = (0..2_000).map(|n| json!({"k": n})).collect();
    let long = json!({"items": {"enum": options}});
    let large = json!({"type": "object", "patternProperties": {"^\\pL{18}$": true}});
    let small = json!({"type": "object"});
    let many = json!({"x": repeated(20, json!({"k": 7}))});
    let wrong = json!({"x": repeated(20, json!({"k": -1}))});
    let when = json!({"path": "x", "is": long});
    let of_input = json!({"properties": {"x": long}});
    let no_condition = Value::Null;
    for (input_schema, output_schema, when, input, expected) in [
        (&small, &small, &no_condition, &many, (0, "ran")),
        (&of_input, &small, &no_condition, &many, (1, "ran")),
        (&of_input, &small, &no_condition, &wrong, (1, "failed")),
        (&large, &small, &no_condition, &many, (1, "ran")),
        (&small, &large, &no_condition, &many, (1, "ran")),
        (&small, &small, &when, &many, (1, "ran")),
        (&small, &small, &when, &wrong, (1, "skipped")),
    ] {
        let tools = ToolRegistry::new();
        let tool = ToolEntry::from_fn("tool", "", |_: Value| async { Ok(json!({"did": "run"})) })
            .with_output_schema(output_schema.clone());
        tools.register(tool).unwrap();
        let mut step = json!({"tool": "tool", "as": "done"});
        if !when.is_null() {
            step["when"] = when.clone();
        }
        let spec: ChainSpec =
            serde_json::from_value(json!({"input_schema": input_schema, "steps": [step]})).unwrap();
        let invoker = CountingInvoker { tools, n_apart: AtomicUsize::new(0) };
        let run = ToolChain::from_spec(spec, &invoker).execute(input.clone()).await;
        let outcome = match (run.success, run.context.contains_key("done")) {
            (true, true) => "ran",
            (true, false) => "skipped",
            (false, _) => "failed",
        };
        assert_eq!((invoker.n_apart.into_inner(), outcome), expected, "{:?}", run.errors);
    }
}
