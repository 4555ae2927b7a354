//! Paths into the context.

use pegboard_core::chain::ContextPath;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::validation_properties::any_json;

fn check(path: &str, expected: Option<Value>) {
    let context = json!({
        "a": {"b": {"c": 5}, "b.d": 6},
        "x.y": 1,
        "x": {"y": 2, "z": 3},
        "list": [{"id": 7}, [8, 9]],
        "list[0]": "literal",
        "odd\"key": {"": 4},
        "$": 0,
    });
    assert_eq!(ContextPath::new(path).resolve(&context).cloned(), expected, "{path}");
}

#[test]
fn a_path_follows_names_and_indexes() {
    check("a.b.c", Some(json!(5)));
    check("list[1][0]", Some(json!(8)));
    check("list.1.1", Some(json!(9)));
    check("list[7]", None);
    check("a.b.c.d", None);
    check("a[0]", None);
    check("nowhere", None);
}

#[test]
fn a_literal_key_takes_precedence_over_nesting() {
    check("x.y", Some(json!(1)));
    check("x.z", Some(json!(3)));
    check("a.b.d", Some(json!(6)));
    check("list[0]", Some(json!("literal")));
    check("list[0].id", Some(json!(7)));
}

#[test]
fn names_can_be_quoted_and_pointers_written() {
    check(r#"["x.y"]"#, Some(json!(1)));
    check(r#"["odd\"key"][""]"#, Some(json!(4)));
    check(r#"a["b.d"]"#, Some(json!(6)));
    check("/a/b/c", Some(json!(5)));
    check("/list/0/id", Some(json!(7)));
    check("$.a.b.c", Some(json!(5)));
    check("$", Some(json!(0)));
    assert_eq!(ContextPath::new("$").resolve(&json!({"a": 1})), Some(&json!({"a": 1})));
}

#[test]
fn an_invalid_path_resolves_to_nothing() {
    for wrong in [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "a[",
        "a[]",
        "a[x]",
        "a[-1]",
        "[\"a",
        "[\"a\"",
        "a[99999999999999999999]",
    ] {
        assert!(ContextPath::new(wrong).problem().is_some(), "{wrong}");
        check(wrong, None);
    }
    assert_eq!(
        ContextPath::new("a.".repeat(600) + "a").problem().unwrap().to_string(),
        "longer than 1024 bytes"
    );
}

/// Collects every location of a value, as a path with quoted names and as a JSON pointer.
fn collect_paths(value: &Value, path: &str, pointer: &str, found: &mut Vec<(String, String)>) {
    found.push((path.to_owned(), pointer.to_owned()));
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let quoted = serde_json::to_string(name).unwrap();
                let escaped = name.replace('~', "~0").replace('/', "~1");
                collect_paths(member, &format!("{path}[{quoted}]"), &format!("{pointer}/{escaped}"), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_paths(item, &format!("{path}[{index}]"), &format!("{pointer}/{index}"), found);
            }
        }
        _ => {}
    }
}

proptest! {
    #[test]
    fn every_path_of_a_value_resolves(value in any_json()) {
        let context = json!({"root": value});
        let mut found = Vec::new();
        collect_paths(&context["root"], "root", "/root", &mut found);
        for (path, pointer) in found {
            let expected = context.pointer(&pointer);
            prop_assert_eq!(ContextPath::new(pointer).resolve(&context), expected);
            prop_assert_eq!(ContextPath::new(path).resolve(&context), expected);
        }
    }

    #[test]
    fn no_text_makes_a_path_panic(text in "[a-c.\\[\\]\"$/?0-9é]{0,12}", value in any_json()) {
        let path = ContextPath::new(text.clone());
        prop_assert_eq!(path.as_str(), &text);
        let context = json!({"a": value.clone(), "b": value});
        let found = path.resolve(&context);
        prop_assert!(found.is_none() || path.problem().is_none());
    }
}
