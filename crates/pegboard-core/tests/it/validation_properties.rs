//! Property tests of schema validation.

use pegboard_core::schema::{Schema, SchemaRules};
use pegboard_core::validation::validate_input;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Any JSON value, a few levels deep.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-3..3).prop_map(Value::from),
        "[a-c.\\[\\]]{0,3}".prop_map(Value::from),
        ".{0,5}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            btree_map("[a-c]{1,2}", inner, 0..5).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// A mostly valid schema, over the keys that `any_json` uses.
fn any_schema() -> impl Strategy<Value = Value> {
    let types = prop_oneof!["string", "integer", "number", "boolean", "array", "object", "null"];
    let leaf = prop_oneof![
        Just(json!({})),
        types.clone().prop_map(|name| json!({"type": name})),
        vec(types, 1..4).prop_map(|names| json!({"type": names})),
        any_json().prop_map(|value| json!({"enum": [value]})),
        any_json().prop_map(|value| json!({"const": value})),
        (0..4, 0..4).prop_map(
            |(min, max)| json!({"minLength": min, "maxLength": max, "minItems": min, "maxItems": max})
        ),
        (-2..2, -2..2).prop_map(|(min, max)| json!({"minimum": min, "exclusiveMaximum": max})),
        vec("[a-c]{1,2}", 0..3).prop_map(|names| json!({"required": names})),
        Just(json!({"pattern": "^a", "format": "email", "uniqueItems": true})),
        // And some invalid ones.
        any_json(),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        prop_oneof![
            (btree_map("[a-c]{1,2}", inner.clone(), 0..4), any::<bool>())
                .prop_map(|(properties, open)| json!({"type": "object", "properties": properties, "additionalProperties": open})),
            inner.clone().prop_map(|items| json!({"items": items})),
            inner.clone().prop_map(|rest| json!({"additionalProperties": rest, "unevaluatedProperties": false})),
            vec(inner.clone(), 1..3).prop_map(|all| json!({"allOf": all})),
            vec(inner.clone(), 1..3).prop_map(|any| json!({"anyOf": any})),
            vec(inner.clone(), 1..3).prop_map(|one| json!({"oneOf": one})),
            inner.clone().prop_map(|not| json!({"not": not})),
            (inner.clone(), inner).prop_map(|(a, b)| json!({"$defs": {"a": a}, "$ref": "#/$defs/a", "properties": {"b": b}})),
        ]
    })
}

proptest! {
    #[test]
    fn validation_never_panics_and_is_consistent(data in any_json(), schema in any_schema()) {
        for rules in [SchemaRules::default(), SchemaRules::COMPAT] {
            let schema = Schema::with_rules(schema.clone(), rules);
            let verdict = schema.check(&data);
            prop_assert_eq!(verdict.valid, verdict.errors.is_empty());
            prop_assert_eq!(verdict.valid, schema.accepts(&data));
        }
    }

    #[test]
    fn verdicts_match_the_reference_validator(data in any_json(), schema in any_schema()) {
        let reference = jsonschema::options().should_validate_formats(true).build(&schema);
        let verdict = validate_input(&data, &schema);
        match reference {
            Ok(reference) if verdict.warnings.is_empty() => prop_assert_eq!(verdict.valid, reference.is_valid(&data)),
            _ => prop_assert!(schema.is_null() || !verdict.warnings.is_empty(), "{schema} does not compile, but there is no warning"),
        }
    }
}
