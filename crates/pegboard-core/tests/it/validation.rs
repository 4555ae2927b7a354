//! Schema validation: verdicts, messages, paths and their order.

use pegboard_core::schema::{FormatChecks, Schema, SchemaDialect, SchemaRules, SchemaStrictness};
use pegboard_core::validation::{ValidationResult, Violation, validate_input, validate_output};
use serde_json::{Value, json};

/// Both entry points give the same result.
fn check(data: Value, schema: Value, expected: &[&str]) {
    let verdict = validate_input(&data, &schema);
    assert_eq!(verdict.errors, expected, "{data} against {schema}");
    assert_eq!(verdict.valid, expected.is_empty());
    assert_eq!(verdict.warnings, [""; 0]);
    assert_eq!(validate_output(&data, &schema), verdict);
}

fn check_compat(data: Value, schema: Value, expected: &[&str]) {
    let verdict = Schema::with_rules(schema.clone(), SchemaRules::COMPAT).check(&data);
    assert_eq!(verdict.errors, expected, "{data} against {schema}");
    assert_eq!(verdict.valid, expected.is_empty());
}

#[test]
fn an_empty_schema_accepts_anything() {
    for data in [json!(null), json!(1), json!("x"), json!([1, {"a": 2}]), json!({"a": null})] {
        check(data.clone(), json!({}), &[]);
        check(data.clone(), json!(null), &[]);
        check_compat(data.clone(), json!({}), &[]);
        check_compat(data, json!(false), &[]);
    }
}

#[test]
fn a_wrong_type_is_one_error_at_the_root() {
    check(json!(42), json!({"type": "string"}), &["$: expected type string, got integer"]);
    check(json!(4.5), json!({"type": "string"}), &["$: expected type string, got number"]);
    check(json!(null), json!({"type": "string"}), &["$: expected type string, got null"]);
    check_compat(json!(42), json!({"type": "string"}), &["$: expected type string, got int"]);
    check_compat(json!(null), json!({"type": "object"}), &["$: expected type object, got NoneType"]);
    check_compat(json!({}), json!({"type": "array"}), &["$: expected type array, got dict"]);
}

#[test]
fn a_wrong_type_stops_the_other_checks_at_that_location() {
    check(
        json!("x"),
        json!({"type": "object", "required": ["name"]}),
        &["$: expected type object, got string"],
    );
    check(
        json!(7),
        json!({"type": "string", "enum": ["a"], "not": {"const": 7}}),
        &["$: expected type string, got integer"],
    );
    check(
        json!([1, 2]),
        json!({"type": "object", "items": {"type": "string"}}),
        &["$: expected type object, got array"],
    );
}

#[test]
fn one_of_several_types_is_enough() {
    let schema = json!({"type": ["string", "null"]});
    check(json!(42), schema.clone(), &["$: expected type ['string', 'null'], got integer"]);
    check(json!(null), schema.clone(), &[]);
    check_compat(json!(42), schema.clone(), &["$: expected type ['string', 'null'], got int"]);
    check_compat(json!(null), schema, &[]);
}

#[test]
fn a_boolean_is_not_an_integer_except_in_compat() {
    check(json!(true), json!({"type": "integer"}), &["$: expected type integer, got boolean"]);
    check(json!(true), json!({"type": "number"}), &["$: expected type number, got boolean"]);
    check_compat(json!(true), json!({"type": "integer"}), &[]);
    check_compat(json!(true), json!({"type": "number"}), &[]);
}

#[test]
fn a_number_is_not_a_boolean() {
    check(json!(1), json!({"type": "boolean"}), &["$: expected type boolean, got integer"]);
    check_compat(json!(1), json!({"type": "boolean"}), &["$: expected type boolean, got int"]);
}

#[test]
fn a_whole_float_is_an_integer_except_in_compat() {
    check(json!(1.0), json!({"type": "integer"}), &[]);
    check_compat(json!(1.0), json!({"type": "integer"}), &["$: expected type integer, got float"]);
}

#[test]
fn an_enum_violation_lists_the_options() {
    let colours = json!({"enum": ["red", "green"]});
    check(json!("yellow"), colours.clone(), &["$: value 'yellow' not in enum ['red', 'green']"]);
    check_compat(json!("yellow"), colours, &["$: value 'yellow' not in enum ['red', 'green']"]);
    check(json!("it's"), json!({"enum": [true, null]}), &["$: value \"it's\" not in enum [true, null]"]);
    check_compat(json!(null), json!({"enum": [false, 2]}), &["$: value None not in enum [False, 2]"]);
}

#[test]
fn enum_uses_json_equality_except_in_compat() {
    check(json!(1.0), json!({"enum": [1]}), &[]);
    check(json!(true), json!({"enum": [1]}), &["$: value true not in enum [1]"]);
    check_compat(json!(true), json!({"enum": [1]}), &[]);
    check_compat(
        json!(9_007_199_254_740_993_i64),
        json!({"enum": [9_007_199_254_740_992_i64]}),
        &["$: value 9007199254740993 not in enum [9007199254740992]"],
    );
    check_compat(json!([true, {"a": 1.0}]), json!({"enum": [[1, {"a": true}]]}), &[]);
}

#[test]
fn string_length_counts_characters() {
    check(json!("a"), json!({"minLength": 3}), &["$: string length 1 < minLength 3"]);
    check(json!("é😀"), json!({"minLength": 2, "maxLength": 2}), &[]);
    check(json!("é😀"), json!({"maxLength": 1}), &["$: string length 2 > maxLength 1"]);
    check_compat(json!("é😀"), json!({"maxLength": 1}), &["$: string length 2 > maxLength 1"]);
}

#[test]
fn numeric_limits_are_inclusive() {
    check(json!(-1), json!({"minimum": 0}), &["$: value -1 < minimum 0"]);
    check(json!(0), json!({"minimum": 0, "maximum": 0}), &[]);
    check(json!(1.5), json!({"maximum": 1}), &["$: value 1.5 > maximum 1"]);
    check_compat(json!(-1), json!({"minimum": 0}), &["$: value -1 < minimum 0"]);
    check_compat(json!(0), json!({"minimum": 0}), &[]);
    check_compat(json!(true), json!({"minimum": 5}), &[]);
}

#[test]
fn array_lengths_are_counted() {
    check(json!([]), json!({"minItems": 1}), &["$: array length 0 < minItems 1"]);
    check(json!([1, 2]), json!({"maxItems": 1}), &["$: array length 2 > maxItems 1"]);
    check_compat(json!([]), json!({"minItems": 1}), &["$: array length 0 < minItems 1"]);
}

#[test]
fn a_wrong_item_is_named_by_its_index() {
    check(
        json!(["a", 1]),
        json!({"items": {"type": "string"}}),
        &["$[1]: expected type string, got integer"],
    );
    let nested = json!({"items": {"items": {"type": "integer"}}});
    check(json!([[1, "x"]]), nested.clone(), &["$[0][1]: expected type integer, got string"]);
    check_compat(json!([[1, "x"]]), nested, &["$[0][1]: expected type integer, got str"]);
    let many: Vec<Value> = (0..12).map(|_| json!("x")).collect();
    let expected: Vec<String> =
        (0..12).map(|i| format!("$[{i}]: expected type integer, got string")).collect();
    check(
        many.into(),
        json!({"items": {"type": "integer"}}),
        &expected.iter().map(String::as_str).collect::<Vec<_>>(),
    );
}

#[test]
fn missing_fields_are_listed_as_the_schema_lists_them() {
    let schema = json!({"required": ["b", "a"]});
    check(json!({}), schema.clone(), &["$.b: required field missing", "$.a: required field missing"]);
    check_compat(json!({}), schema, &["$.b: required field missing", "$.a: required field missing"]);
}

#[test]
fn required_fields_come_before_the_errors_of_properties() {
    let schema = json!({"properties": {"user": {
        "properties": {"name": {"type": "string"}, "id": {"type": "integer"}},
        "required": ["id"],
    }}});
    check(
        json!({"user": {"name": 7}}),
        schema.clone(),
        &["$.user.id: required field missing", "$.user.name: expected type string, got integer"],
    );
    check_compat(
        json!({"user": {"name": 7}}),
        schema,
        &["$.user.id: required field missing", "$.user.name: expected type string, got int"],
    );
}

#[test]
fn properties_are_reported_as_the_schema_declares_them() {
    let schema = json!({
        "additionalProperties": false,
        "properties": {"zeta": {"type": "string"}, "alpha": {"properties": {"n": {"type": "integer"}}}, "beta": {"type": "null"}},
        "required": ["gamma"],
    });
    check(
        json!({"beta": 1, "extra": 1, "alpha": {"n": "x"}, "zeta": 1}),
        schema,
        &[
            "$.gamma: required field missing",
            "$.zeta: expected type string, got integer",
            "$.alpha.n: expected type integer, got string",
            "$.beta: expected type null, got integer",
            "$.extra: additional property not allowed",
        ],
    );
}

#[test]
fn additional_properties_are_sorted() {
    let schema = json!({"additionalProperties": false, "properties": {"a": {}}});
    let expected = ["$.b: additional property not allowed", "$.z: additional property not allowed"];
    check(json!({"z": 1, "a": 1, "b": 1}), schema.clone(), &expected);
    check_compat(json!({"z": 1, "a": 1, "b": 1}), schema, &expected);
}

#[test]
fn an_object_without_properties_can_be_closed() {
    let expected = ["$.b: additional property not allowed", "$.z: additional property not allowed"];
    check(json!({"z": 1, "b": 2}), json!({"additionalProperties": false}), &expected);
    check(
        json!({"o": {"x": 1}}),
        json!({"properties": {"o": {"additionalProperties": false}}}),
        &["$.o.x: additional property not allowed"],
    );
}

#[test]
fn properties_with_similar_names_are_distinguished() {
    let schema = json!({"additionalProperties": {"type": "string", "minLength": 3}});
    check(
        json!({"a": 1, "ab": "x", "A": 2}),
        schema,
        &[
            "$.a: expected type string, got integer",
            "$.ab: string length 1 < minLength 3",
            "$.A: expected type string, got integer",
        ],
    );
}

#[test]
fn violations_follow_the_order_of_the_schema() {
    let part =
        |names: [&str; 2]| json!({"properties": {names[0]: {"type": "null"}, names[1]: {"type": "null"}}});
    let data = json!({"p1": 1, "p2": 2});
    check(
        data.clone(),
        part(["p1", "p2"]),
        &["$.p1: expected type null, got integer", "$.p2: expected type null, got integer"],
    );
    check(
        data.clone(),
        part(["p2", "p1"]),
        &["$.p2: expected type null, got integer", "$.p1: expected type null, got integer"],
    );
    let anchored = json!({
        "$defs": {"x": {"$anchor": "here", "properties": {"p2": {"type": ["string", "null"]}, "p1": {"type": "null"}}}},
        "$ref": "#here",
    });
    check(
        data,
        anchored,
        &["$.p2: expected type ['string', 'null'], got integer", "$.p1: expected type null, got integer"],
    );
}

#[test]
fn all_violations_are_listed_with_enum_first() {
    let schema = json!({"minLength": 3, "enum": ["abc"]});
    let expected = ["$: value 'a' not in enum ['abc']", "$: string length 1 < minLength 3"];
    check(json!("a"), schema.clone(), &expected);
    check_compat(json!("a"), schema, &expected);
}

#[test]
fn keys_are_not_quoted_in_paths() {
    let schema = json!({"properties": {"a b": {"type": "string"}, "c.d": {"type": "string"}, "e/f~g": {"type": "string"}}});
    check(
        json!({"a b": 1, "c.d": 1, "e/f~g": 1}),
        schema,
        &[
            "$.a b: expected type string, got integer",
            "$.c.d: expected type string, got integer",
            "$.e/f~g: expected type string, got integer",
        ],
    );
}

#[test]
fn references_are_followed_and_keep_the_order() {
    let schema = json!({
        "$defs": {"user": {"required": ["id"], "properties": {"name": {"type": "string"}, "age": {"minimum": 0}}}},
        "properties": {"second": {"$ref": "#/$defs/user"}, "first": {"$ref": "#/$defs/user"}},
    });
    check(
        json!({"first": {"age": -1, "name": 1}, "second": {}}),
        schema,
        &[
            "$.second.id: required field missing",
            "$.first.id: required field missing",
            "$.first.name: expected type string, got integer",
            "$.first.age: value -1 < minimum 0",
        ],
    );
}

#[test]
fn other_keywords_have_messages_in_the_same_style() {
    check(json!("b"), json!({"pattern": "^a"}), &["$: string does not match pattern '^a'"]);
    check(json!("x"), json!({"format": "email"}), &["$: string is not a valid email"]);
    check(json!(2), json!({"const": 1}), &["$: expected the constant 1"]);
    check(json!(5), json!({"exclusiveMaximum": 5}), &["$: value 5 >= exclusiveMaximum 5"]);
    check(json!(5), json!({"multipleOf": 2}), &["$: value 5 is not a multiple of 2"]);
    check(json!([1, 1]), json!({"uniqueItems": true}), &["$: array items are not unique"]);
    check(json!(1), json!(false), &["$: no value is allowed here"]);
    check(json!({"a": 1}), json!({"minProperties": 2}), &["$: property count 1 < minProperties 2"]);
    check(
        json!(1),
        json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
        &[
            "$: value matches none of the anyOf schemas (expected type string, got integer | expected type null, got integer)",
        ],
    );
    check(
        json!({}),
        json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        &[
            "$: value matches none of the oneOf schemas (a: required field missing | b: required field missing)",
        ],
    );
    check(
        json!({"a": 1}),
        json!({"if": {"required": ["a"]}, "then": {"required": ["b"]}}),
        &["$.b: required field missing"],
    );
    check(json!({"a": 1}), json!({"dependentRequired": {"a": ["b"]}}), &["$.b: required field missing"]);
    check(
        json!(["a", 1]),
        json!({"prefixItems": [{"type": "string"}, {"type": "string"}]}),
        &["$[1]: expected type string, got integer"],
    );
    check(
        json!({"ab": 1}),
        json!({"patternProperties": {"^a": {"type": "string"}}}),
        &["$.ab: expected type string, got integer"],
    );
    check(
        json!({"x": 1}),
        json!({"additionalProperties": {"type": "string"}}),
        &["$.x: expected type string, got integer"],
    );
    check(
        json!({"x": 1}),
        json!({"propertyNames": {"maxLength": 0}}),
        &["$: property name 'x' is not allowed: string length 1 > maxLength 0"],
    );
}

#[test]
fn the_declared_draft_is_used() {
    let old = json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}], "additionalItems": false});
    check(json!(["a"]), old.clone(), &[]);
    check(json!(["a", 1]), old, &["$: array length 2 > 1"]);
    let older =
        json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "items": [{"type": "string"}]});
    check(json!([1]), older, &["$[0]: expected type string, got integer"]);
}

#[test]
fn compat_ignores_unknown_keywords() {
    check_compat(json!("x"), json!({"type": "colour"}), &[]);
    check_compat(
        json!("x"),
        json!({"type": ["colour", "integer"]}),
        &["$: expected type ['colour', 'integer'], got str"],
    );
    check_compat(json!("b"), json!({"pattern": "^a", "const": 1, "oneOf": [false]}), &[]);
    check_compat(json!({"x": 1}), json!({"additionalProperties": {"type": "string"}}), &[]);
}

#[test]
fn merging_results_changes_neither() {
    let good = ValidationResult::ok();
    let bad = ValidationResult::of(vec![Violation::plain("$: wrong")]);
    let merged = good.merge(&bad);
    assert!(!merged.valid);
    assert_eq!(merged.errors, ["$: wrong"]);
    assert_eq!((good, bad.errors.len()), (ValidationResult::ok(), 1));
    // `valid` decides, not the list.
    let remark = ValidationResult { valid: true, ..bad };
    assert!(remark.merge(&ValidationResult::ok()).valid);
}

#[test]
fn a_result_serializes_to_two_keys() {
    let verdict = validate_input(&json!(1), &json!({"type": "string"}));
    insta::assert_snapshot!(serde_json::to_string(&verdict).unwrap(), @r#"{"valid":false,"errors":["$: expected type string, got integer"]}"#);
}

/// The value is accepted with a warning that the schema was not used.
fn check_skipped(schema: Value, expected: &str) {
    let verdict = validate_input(&json!({"a": {"a": {}}}), &schema);
    assert!(verdict.valid && verdict.errors.is_empty(), "{verdict:?}");
    let [warning] = verdict.warnings.as_slice() else { panic!("one warning for {schema}: {verdict:?}") };
    assert!(warning.contains(expected), "{warning}");
}

#[test]
fn an_unusable_schema_is_a_warning() {
    check_skipped(json!({"type": "colour"}), "(at /type)");
    check_skipped(json!({"properties": 7}), "(at /properties)");
    check_skipped(json!({"minLength": "x"}), "(at /minLength)");
    check_skipped(json!("not a schema"), "(at its root)");
    check_skipped(json!([]), "(at its root)");
    check_skipped(json!({"$ref": "#/nowhere"}), "it refers to '#/nowhere', which it does not contain");
}

#[test]
fn schemas_are_never_fetched() {
    check_skipped(json!({"$ref": "http://127.0.0.1:9/schema.json"}), "127.0.0.1");
    check_skipped(json!({"$ref": "file:///etc/passwd"}), "passwd");
    check_skipped(json!({"$schema": "http://127.0.0.1:9/draft"}), "127.0.0.1");
}

#[test]
fn a_hostile_schema_is_a_warning() {
    check_skipped(json!({"$ref": "#"}), "refers to itself endlessly");
    check_skipped(
        json!({"$id": "http://example.test/a", "$ref": "http://example.test/a"}),
        "refers to itself",
    );
    check_skipped(
        json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}),
        "itself",
    );
    let mut doubling = json!({"$defs": {"d0": {"type": "object"}}, "$ref": "#/$defs/d30"});
    for level in 1..=30 {
        let below = json!({"$ref": format!("#/$defs/d{}", level - 1)});
        doubling["$defs"][format!("d{level}")] = json!({"allOf": [below, below]});
    }
    check_skipped(doubling, "apply to one value");
    let mut deep = json!({});
    for _ in 0..200 {
        deep = json!({"properties": {"a": deep}});
    }
    check_skipped(deep, "is nested deeper than 128 levels");
    let unevaluated =
        nested(30, json!({}), |inner| json!({"allOf": [inner], "unevaluatedProperties": false}));
    check_skipped(unevaluated, "apply to one value");
    check_skipped(
        json!({"$id": "http://e.test/x", "$ref": "x#/$defs/a", "$defs": {"a": {}}}),
        "which it does not contain",
    );
    check_skipped(
        json!({"$defs": {"a": {"$id": "http://e.test/a", "$ref": "#/$defs/b"}}, "$ref": "#/$defs/a"}),
        "its own '$id'",
    );
    let patterns: Vec<Value> = (0..300).map(|i| json!({"pattern": format!("a{i}")})).collect();
    check_skipped(json!({"anyOf": patterns}), "more than 200 patterns");
}

/// A value that nests `n` levels deep, each wrapped by `wrap`.
fn nested(n: usize, leaf: Value, wrap: impl Fn(Value) -> Value) -> Value {
    (0..n).fold(leaf, |inner, _| wrap(inner))
}

/// The value is rejected without running the full validation.
fn check_too_costly(data: &Value, schema: &Value) {
    let verdict = validate_input(data, schema);
    assert_eq!(
        verdict.errors,
        ["$: the value is too large or too deeply nested to be validated against its schema"]
    );
    assert!(!verdict.valid);
}

#[test]
fn exponential_validation_is_rejected_up_front() {
    let schema = json!({"anyOf": [
        {"properties": {"c": {"$ref": "#"}}, "required": ["x"]},
        {"properties": {"c": {"$ref": "#"}}, "required": ["y"]},
    ]});
    check_too_costly(&nested(100, json!({}), |inner| json!({"c": inner})), &schema);
    assert!(!validate_input(&json!({"c": {}}), &schema).valid);
    let patterns: Value = (0..8).map(|n| (format!("^a{{0,{n}}}"), json!({"$ref": "#"}))).collect();
    let schema = json!({"type": "object", "patternProperties": patterns});
    check_too_costly(&nested(20, json!(1), |inner| json!({"a": inner})), &schema);
}

#[test]
fn a_chain_of_references_under_a_deep_value_does_not_exhaust_the_stack() {
    let mut definitions: serde_json::Map<String, Value> =
        (0..98).map(|n| (format!("d{n}"), json!({"$ref": format!("#/$defs/d{}", n + 1)}))).collect();
    definitions
        .insert("d98".to_owned(), json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}}));
    let schema = json!({"$defs": definitions, "$ref": "#/$defs/d0"});
    check_too_costly(&nested(125, json!(1), |inner| json!({"a": inner})), &schema);
    check(json!({"a": {"a": 1}}), schema, &["$.a.a: expected type object, got integer"]);
    // However the definitions are ordered, a chain has a longest length.
    let mut long: serde_json::Map<String, Value> =
        json!({"d1000": {"type": "object"}}).as_object().unwrap().clone();
    for n in (0..1_000).rev() {
        long.insert(format!("d{n}"), json!({"allOf": [{"$ref": format!("#/$defs/d{}", n + 1)}]}));
    }
    check_skipped(
        json!({"$defs": long, "properties": {"a": {"$ref": "#/$defs/d0"}}}),
        "refer to one another",
    );
}

#[test]
fn a_deep_value_under_a_recursive_schema_is_validated_completely() {
    let tree = json!({"type": "object", "properties": {"a": {"$ref": "#"}}});
    check(nested(120, json!({}), |inner| json!({"a": inner})), tree.clone(), &[]);
    let verdict = validate_input(&nested(120, json!(7), |inner| json!({"a": inner})), &tree);
    assert!(verdict.errors[0].text().ends_with(".a.a: expected type object, got integer"), "{verdict:?}");
    let branches: Vec<Value> = ["and", "or", "not", "leaf"]
        .map(|name| json!({"type": "object", "required": [name], "properties": {name: {"$ref": "#"}}}))
        .to_vec();
    let expression = json!({"oneOf": [{"type": "integer"}, {"anyOf": branches}]});
    let deep = |leaf: Value| nested(8, leaf, |inner| json!({"and": inner}));
    assert!(validate_input(&deep(json!(1)), &expression).valid);
    assert!(!validate_input(&deep(json!("x")), &expression).valid, "an invalid leaf is found at any depth");
}

#[test]
fn a_value_cannot_disable_its_own_validation() {
    let shape = json!({"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}, {"$ref": "#/$defs/c"}]});
    let part = |name: &str| json!({"properties": {name: {"type": "string"}}});
    let schema = json!({
        "$defs": {"a": part("a"), "b": part("b"), "c": part("c")},
        "properties": {"n": {"type": "integer"}, "shape": shape},
        "additionalProperties": false,
    });
    let junk = nested(60, json!(1), |inner| json!([inner]));
    check(
        json!({"n": "bad", "junk": junk}),
        schema,
        &["$.n: expected type integer, got string", "$.junk: additional property not allowed"],
    );
}

#[test]
fn the_size_of_a_report_is_limited() {
    let schema = json!({"anyOf": [
        {"type": "array", "items": {"$ref": "#"}},
        {"type": "array", "minItems": 1, "items": {"$ref": "#"}},
    ]});
    let verdict = validate_input(&nested(17, json!("x"), |inner| json!([inner])), &schema);
    assert_eq!(
        verdict.errors,
        ["$: the value does not match its schema; it is too large to list the violations"]
    );
    let verdict = validate_input(&nested(3, json!("x"), |inner| json!([inner])), &schema);
    assert!(verdict.errors[0].text().len() < 300, "{verdict:?}");
    let options: Vec<Value> =
        (0..1_000).map(|n| json!({"properties": {"k": {"const": n}}, "required": ["k"]})).collect();
    let verdict = validate_input(&json!({"big": "x".repeat(1 << 20)}), &json!({"anyOf": options}));
    assert_eq!(
        verdict.errors,
        ["$: the value does not match its schema; it is too large to list the violations"]
    );
}

#[test]
fn a_recursive_schema_checks_every_level() {
    let tree = json!({"type": "object", "properties": {"children": {"items": {"$ref": "#"}}}});
    check(
        json!({"children": [{"children": []}, {"children": [7]}]}),
        tree,
        &["$.children[1].children[0]: expected type object, got integer"],
    );
}

#[test]
fn only_the_unsupported_pattern_is_dropped() {
    let schema = json!({"properties": {"a": {"pattern": "^(?!x)", "minLength": 2}, "b": {"pattern": "^b"}}});
    let verdict = validate_input(&json!({"a": "x", "b": "c"}), &schema);
    assert_eq!(
        verdict.errors,
        ["$.a: string length 1 < minLength 2", "$.b: string does not match pattern '^b'"]
    );
    insta::assert_snapshot!(verdict.warnings.join("\n"), @"the pattern at /properties/a/pattern is not checked: it is invalid, too large, or uses look-around or back-references");
    let names = json!({"patternProperties": {"^(?!x)/": {"type": "string"}}, "required": ["k"]});
    assert_eq!(validate_input(&json!({"y/": 1}), &names).errors, ["$.k: required field missing"]);
}

#[test]
fn a_pattern_is_kept_if_dropping_it_would_reject_valid_values() {
    check_skipped(
        json!({"patternProperties": {"^(?!_)": {"type": "string"}}, "additionalProperties": false}),
        "patternProperties",
    );
    check_skipped(json!({"not": {"pattern": "^(?=x)x"}}), "/not/pattern");
    check_skipped(json!({"oneOf": [{"pattern": "^(?=a)"}, {"pattern": "^(?=b)"}]}), "/oneOf/0/pattern");
    check_skipped(json!({"if": {"pattern": "^(?=b)"}, "then": {"minLength": 10}}), "/if/pattern");
    check_skipped(
        json!({"$defs": {"p": {"pattern": "(?=a)"}}, "not": {"$ref": "#/$defs/p"}}),
        "/$defs/p/pattern",
    );
    check_skipped(json!({"properties": {"pattern": {"type": "strin"}}}), "(at /properties/pattern/type)");
    check_skipped(
        json!({"properties": {"patternProperties": {"type": "strin"}}}),
        "(at /properties/patternProperties/type)",
    );
}

#[test]
fn properties_named_like_keywords_are_properties() {
    let many: Value =
        (0..250).map(|n| (format!("p{n}"), json!({"properties": {"pattern": {"type": "string"}}}))).collect();
    check(
        json!({"p7": {"pattern": 1}}),
        json!({"properties": many}),
        &["$.p7.pattern: expected type string, got integer"],
    );
    let data =
        json!({"default": {"$ref": "#/default"}, "examples": [{"$ref": "#"}], "const": {"$ref": "#/const"}});
    check(json!({"$ref": "#/const"}), data, &[]);
}

#[test]
fn a_pattern_built_to_explode_is_matched_in_linear_time() {
    let schema = json!({"pattern": "^(a+)+$"});
    check(
        format!("{}b", "a".repeat(100_000)).into(),
        schema,
        &["$: string does not match pattern '^(a+)+$'"],
    );
}

#[test]
fn formats_are_checked_unless_disabled() {
    let schema = json!({"format": "date"});
    let off = SchemaRules { formats: FormatChecks::Ignore, ..SchemaRules::default() };
    assert!(!Schema::new(schema.clone()).accepts(&json!("tomorrow")));
    assert!(Schema::with_rules(schema, off).accepts(&json!("tomorrow")));
}

#[test]
fn strict_rules_reject_unknown_keywords() {
    let strict = |schema| {
        Schema::with_rules(
            schema,
            SchemaRules { strictness: SchemaStrictness::Strict, ..SchemaRules::default() },
        )
    };
    let refused = |schema: Value| strict(schema).check(&json!({})).errors[0].text().to_owned();
    insta::assert_snapshot!(refused(json!({"properties": {"a": {"minLenght": 3}}})), @"$: the schema is rejected: unknown keyword 'minLenght' (at /properties/a/minLenght)");
    assert!(refused(json!({"format": "postcode"})).contains("postcode"));
    assert!(refused(json!({"pattern": "(?=a)"})).starts_with("$: the schema is rejected"));
    assert!(strict(json!({"properties": {"minLenght": {"type": "string"}}, "enum": [{"b": 1}, {}], "default": {"x": 1}})).accepts(&json!({})));
    let lenient = Schema::new(json!({"minLenght": 3, "format": "postcode"}));
    assert!(lenient.accepts(&json!("x")));
}

#[test]
fn values_are_quoted_to_the_sender_but_not_in_logs() {
    let schema = json!({
        "properties": {"pin": {"enum": ["a"]}, "age": {"maximum": 9}},
        "additionalProperties": {"items": {"type": "null"}},
    });
    let verdict = validate_input(&json!({"pin": "hunter2", "age": 4711, "secretkey": ["s3"]}), &schema);
    let logged = format!("{verdict:?}");
    for secret in ["hunter2", "4711", "secretkey", "s3"] {
        assert!(!logged.contains(secret), "{logged}");
    }
    assert!(verdict.errors[0].text().contains("hunter2"));
    insta::assert_snapshot!(verdict.errors.iter().map(Violation::masked).collect::<Vec<_>>().join("\n"), @"
    $.pin: value not in enum ['a']
    $.age: value > maximum 9
    $.*[0]: expected type null, got string
    ");
}

#[test]
fn messages_stay_short_for_long_values() {
    let verdict = validate_input(&json!("x".repeat(1_000_000)), &json!({"enum": ["a"]}));
    assert!(verdict.errors[0].text().len() < 300);
    let options: Vec<u32> = (0..10_000).collect();
    let verdict = validate_input(&json!("x"), &json!({"enum": options}));
    assert!(verdict.errors[0].text().ends_with("49, … 9950 more]"), "{}", verdict.errors[0].text());
    let verdict = validate_input(&json!(vec!["x"; 5_000]), &json!({"items": {"type": "null"}}));
    assert_eq!(verdict.errors.len(), 1_001);
    insta::assert_snapshot!(verdict.errors[1_000].text(), @"$: only the first 1000 violations are listed");
    let extras: Value = (0..5_000).map(|n| (format!("k{n}"), json!(1))).collect();
    let closed = json!({"properties": {"a": {}}, "additionalProperties": false});
    assert_eq!(validate_input(&extras, &closed).errors.len(), 1_001);
    assert_eq!(Schema::with_rules(closed, SchemaRules::COMPAT).check(&extras).errors.len(), 1_001);
}

#[test]
fn clones_of_a_schema_share_its_compiled_form_and_its_rules() {
    let schema = Schema::with_rules(
        json!({"type": "integer"}),
        SchemaRules { dialect: SchemaDialect::Compat, ..SchemaRules::default() },
    );
    assert!(schema.clone().accepts(&json!(true)));
    assert_eq!(schema, schema.clone());
    assert_ne!(schema, Schema::new(json!({"type": "integer"})));
}
