//! Values against schemas: verdicts, messages, paths and their order.

use pegboard_core::schema::{Dialect, Formats, Rules, Schema, Strictness};
use pegboard_core::validation::{ValidationResult, Violation, validate_input, validate_output};
use serde_json::{Value, json};

/// Both entry points say the same.
fn check(data: Value, schema: Value, expected: &[&str]) {
    let verdict = validate_input(&data, &schema);
    assert_eq!(verdict.errors, expected, "{data} against {schema}");
    assert_eq!(verdict.valid, expected.is_empty());
    assert_eq!(verdict.warnings, [""; 0]);
    assert_eq!(validate_output(&data, &schema), verdict);
}

fn check_compat(data: Value, schema: Value, expected: &[&str]) {
    let verdict = Schema::with_rules(schema.clone(), Rules::COMPAT).check(&data);
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
fn a_wrong_type_stops_the_other_checks_of_that_place() {
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
fn a_boolean_is_no_integer_except_in_the_loose_dialect() {
    check(json!(true), json!({"type": "integer"}), &["$: expected type integer, got boolean"]);
    check(json!(true), json!({"type": "number"}), &["$: expected type number, got boolean"]);
    check_compat(json!(true), json!({"type": "integer"}), &[]);
    check_compat(json!(true), json!({"type": "number"}), &[]);
}

#[test]
fn a_number_is_no_boolean() {
    check(json!(1), json!({"type": "boolean"}), &["$: expected type boolean, got integer"]);
    check_compat(json!(1), json!({"type": "boolean"}), &["$: expected type boolean, got int"]);
}

#[test]
fn a_whole_float_is_an_integer_except_in_the_loose_dialect() {
    check(json!(1.0), json!({"type": "integer"}), &[]);
    check_compat(json!(1.0), json!({"type": "integer"}), &["$: expected type integer, got float"]);
}

#[test]
fn a_value_outside_its_enum_is_told_the_options() {
    let colours = json!({"enum": ["red", "green"]});
    check(json!("yellow"), colours.clone(), &["$: value 'yellow' not in enum ['red', 'green']"]);
    check_compat(json!("yellow"), colours, &["$: value 'yellow' not in enum ['red', 'green']"]);
    check(json!("it's"), json!({"enum": [true, null]}), &["$: value \"it's\" not in enum [true, null]"]);
    check_compat(json!(null), json!({"enum": [false, 2]}), &["$: value None not in enum [False, 2]"]);
}

#[test]
fn an_enum_is_by_json_equality_except_in_the_loose_dialect() {
    check(json!(1.0), json!({"enum": [1]}), &[]);
    check(json!(true), json!({"enum": [1]}), &["$: value true not in enum [1]"]);
    check_compat(json!(true), json!({"enum": [1]}), &[]);
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
fn every_broken_rule_is_told_with_the_enum_first() {
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
fn the_rest_of_json_schema_speaks_the_same_language() {
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
        &["$: a property name is not allowed"],
    );
}

#[test]
fn the_draft_a_schema_names_is_the_one_it_is_read_by() {
    let old = json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}], "additionalItems": false});
    check(json!(["a"]), old.clone(), &[]);
    check(json!(["a", 1]), old, &["$: array length 2 > 1"]);
    let older =
        json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "items": [{"type": "string"}]});
    check(json!([1]), older, &["$[0]: expected type string, got integer"]);
}

#[test]
fn the_loose_dialect_passes_over_what_it_does_not_know() {
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
fn merging_two_verdicts_changes_neither() {
    let good = ValidationResult::ok();
    let bad = ValidationResult::of(vec![Violation::plain("$: wrong")]);
    let merged = good.merge(&bad);
    assert!(!merged.valid);
    assert_eq!(merged.errors, ["$: wrong"]);
    assert_eq!((good, bad.errors.len()), (ValidationResult::ok(), 1));
    // The flags decide, not the lists.
    let remark = ValidationResult { valid: true, ..bad };
    assert!(remark.merge(&ValidationResult::ok()).valid);
}

#[test]
fn a_verdict_is_two_keys_on_the_wire() {
    let verdict = validate_input(&json!(1), &json!({"type": "string"}));
    insta::assert_snapshot!(serde_json::to_string(&verdict).unwrap(), @r#"{"valid":false,"errors":["$: expected type string, got integer"]}"#);
}

/// The value is accepted, and the warning says why nothing was checked.
fn check_skipped(schema: Value, expected: &str) {
    let verdict = validate_input(&json!({"a": {"a": {}}}), &schema);
    assert!(verdict.valid && verdict.errors.is_empty(), "{verdict:?}");
    let [warning] = verdict.warnings.as_slice() else { panic!("one warning for {schema}: {verdict:?}") };
    assert!(warning.contains(expected), "{warning}");
}

#[test]
fn a_schema_that_cannot_be_used_is_a_warning() {
    check_skipped(json!({"type": "colour"}), "(at /type)");
    check_skipped(json!({"properties": 7}), "(at /properties)");
    check_skipped(json!({"minLength": "x"}), "(at /minLength)");
    check_skipped(json!("not a schema"), "(at its root)");
    check_skipped(json!([]), "(at its root)");
    check_skipped(json!({"$ref": "#/nowhere"}), "nowhere");
}

#[test]
fn nothing_is_fetched_to_read_a_schema() {
    check_skipped(json!({"$ref": "http://127.0.0.1:9/schema.json"}), "127.0.0.1");
    check_skipped(json!({"$ref": "file:///etc/passwd"}), "passwd");
    check_skipped(json!({"$schema": "http://127.0.0.1:9/draft"}), "127.0.0.1");
}

#[test]
fn a_hostile_schema_is_a_warning() {
    check_skipped(json!({"$ref": "#"}), "refers to itself without an end");
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
    check_skipped(deep, "nests deeper than 128 levels");
    let patterns: Vec<Value> = (0..300).map(|i| json!({"pattern": format!("a{i}")})).collect();
    check_skipped(json!({"anyOf": patterns}), "more than 200 patterns");
}

#[test]
fn work_that_doubles_with_every_level_of_the_value_is_not_begun() {
    let schema = json!({"anyOf": [
        {"properties": {"c": {"$ref": "#"}}, "required": ["x"]},
        {"properties": {"c": {"$ref": "#"}}, "required": ["y"]},
    ]});
    let mut value = json!({});
    for _ in 0..100 {
        value = json!({"c": value});
    }
    let verdict = validate_input(&value, &schema);
    assert!(verdict.valid);
    assert!(verdict.warnings[0].contains("nests deeper than"), "{verdict:?}");
    assert!(!validate_input(&json!({"c": {}}), &schema).valid);
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
fn only_the_pattern_that_cannot_be_checked_is_left_out() {
    let schema = json!({"properties": {"a": {"pattern": "^(?!x)", "minLength": 2}, "b": {"pattern": "^b"}}});
    let verdict = validate_input(&json!({"a": "x", "b": "c"}), &schema);
    assert_eq!(
        verdict.errors,
        ["$.a: string length 1 < minLength 2", "$.b: string does not match pattern '^b'"]
    );
    insta::assert_snapshot!(verdict.warnings.join("\n"), @"the pattern at /properties/a/pattern is not checked: only patterns without look-around and back-references are");
    let names = json!({"patternProperties": {"^(?!x)/": {"type": "string"}}, "required": ["k"]});
    assert_eq!(validate_input(&json!({"y/": 1}), &names).errors, ["$.k: required field missing"]);
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
fn formats_are_checked_unless_switched_off() {
    let schema = json!({"format": "date"});
    let off = Rules { formats: Formats::Ignore, ..Rules::default() };
    assert!(!Schema::new(schema.clone()).accepts(&json!("tomorrow")));
    assert!(Schema::with_rules(schema, off).accepts(&json!("tomorrow")));
}

#[test]
fn strict_rules_refuse_what_they_do_not_know() {
    let strict =
        |schema| Schema::with_rules(schema, Rules { strictness: Strictness::Strict, ..Rules::default() });
    let refused = |schema: Value| strict(schema).check(&json!({})).errors[0].text().to_owned();
    insta::assert_snapshot!(refused(json!({"properties": {"a": {"minLenght": 3}}})), @"$: the schema is refused: the keyword 'minLenght' is not known (at /properties/a/minLenght)");
    assert!(refused(json!({"format": "postcode"})).contains("postcode"));
    assert!(refused(json!({"pattern": "(?=a)"})).starts_with("$: the schema is refused"));
    assert!(strict(json!({"properties": {"minLenght": {"type": "string"}}, "enum": [{"b": 1}, {}], "default": {"x": 1}})).accepts(&json!({})));
    let lenient = Schema::new(json!({"minLenght": 3, "format": "postcode"}));
    assert!(lenient.accepts(&json!("x")));
}

#[test]
fn a_value_is_in_the_message_for_its_sender_and_never_in_the_log() {
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
fn messages_stay_short_however_long_the_value() {
    let verdict = validate_input(&json!("x".repeat(1_000_000)), &json!({"enum": ["a"]}));
    assert!(verdict.errors[0].text().len() < 300);
    let options: Vec<u32> = (0..10_000).collect();
    let verdict = validate_input(&json!("x"), &json!({"enum": options}));
    assert!(verdict.errors[0].text().ends_with("49, … 9950 more]"), "{}", verdict.errors[0].text());
    let verdict = validate_input(&json!(vec!["x"; 5_000]), &json!({"items": {"type": "null"}}));
    assert_eq!(verdict.errors.len(), 1_001);
    insta::assert_snapshot!(verdict.errors[1_000].text(), @"$: only the first 1000 violations are listed");
}

#[test]
fn clones_of_a_schema_share_its_compiled_form_and_its_rules() {
    let schema = Schema::with_rules(
        json!({"type": "integer"}),
        Rules { dialect: Dialect::Compat, ..Rules::default() },
    );
    assert!(schema.clone().accepts(&json!(true)));
    assert_eq!(schema, schema.clone());
    assert_ne!(schema, Schema::new(json!({"type": "integer"})));
}
