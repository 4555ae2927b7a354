//! Limits on the size and complexity of files.

use std::fmt::Write;

use pegboard_config::ConfigurationError;
use proptest::prelude::*;

use super::load_text;

/// Checks that a text is rejected with this message.
fn check_refused(name: &str, text: &str, expected: &str) {
    let error = load_text(name, text).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn the_nesting_depth_is_limited() {
    let lists = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    check_refused("a.json", &lists(100_000), "nested deeper than 64 levels");
    check_refused(
        "a.json",
        &format!("{{\"a\": {}", "{\"a\":".repeat(100_000)),
        "nested deeper than 64 levels",
    );
    check_refused("a.yaml", &lists(100_000), "Invalid YAML");
    check_refused("a.toml", &format!("a = {}", lists(10_000)), "Invalid TOML");
    let brackets_in_texts =
        format!(r#"{{"pegboard": 1, "_": "{}" /* {} */}}"#, "[".repeat(100), "{".repeat(100));
    load_text("a.json", &brackets_in_texts).unwrap();
}

#[test]
fn aliases_count_as_if_they_were_written_out() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        let _ = writeln!(bomb, "a{level}: &a{level} [{}]", [before.as_str(); 10].join(", "));
    }
    check_refused("a.yaml", &bomb, "more than 500000 values");

    let mut ladder = "a0: &a0 x\n".to_owned();
    for level in 1..200 {
        let _ = writeln!(ladder, "a{level}: &a{level} [*a{}]", level - 1);
    }
    check_refused("a.yaml", &ladder, "nested deeper than 64 levels");
    check_refused("a.yaml", "a: &a [*a]", "inside its own anchor");
}

#[test]
fn the_file_size_is_limited() {
    let large = format!("{{\"_\": \"{}\"}}", "x".repeat(33 * 1024 * 1024));
    assert!(matches!(load_text("a.json", &large), Err(ConfigurationError::TooLarge { .. })));
}

#[test]
fn the_number_of_problems_is_limited() {
    let many: Vec<String> = (0..1_000).map(|n| format!("\"key{n}\": 1")).collect();
    let error = load_text("pegboard.json", &format!("{{{}}}", many.join(", "))).unwrap_err();
    assert_eq!(error.problems().len(), 100);
    assert!(error.problems().iter().all(|problem| problem.render().len() < 2_000));
}

#[test]
fn too_many_duplicate_keys_reject_the_file() {
    let server = |n_duplicates: usize| {
        let duplicates = "\"command\": \"x\", ".repeat(n_duplicates);
        load_text("a.json", &format!("{{\"mcpServers\": {{\"a\": {{{duplicates}\"command\": \"x\"}}}}}}"))
    };
    assert!(server(1).unwrap().toolboxes["default"].servers["a"].unusable().is_some());
    assert!(server(100).is_ok());
    assert!(server(101).is_err());
}

#[test]
fn long_lines_are_truncated() {
    for text in ["${A".repeat(300_000), "x: ".repeat(300_000), "\"".repeat(300_000), "}".repeat(300_000)] {
        for (name, text) in [
            ("pegboard.json", format!("{{\"x\": {}, \"pinned\": 1}}", serde_json::json!(text))),
            ("pegboard.json", text.clone()),
            ("pegboard.yaml", text),
        ] {
            let error = load_text(name, &text).unwrap_err();
            assert!(error.problems().iter().all(|problem| problem.render().chars().count() < 600), "{name}");
        }
    }
}

#[test]
fn a_byte_order_mark_is_ignored() {
    let error = load_text("pegboard.json", "\u{feff}{\"x\": 1}").unwrap_err();
    assert_eq!((error.problems()[0].line, error.problems()[0].column), (1, 2));
}

#[test]
fn columns_count_characters() {
    let error = load_text("pegboard.yaml", "expose: meta\nprofiles: {\"ünï\": {expos: flat}}").unwrap_err();
    assert_eq!((error.problems()[0].line, error.problems()[0].column), (2, 20));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics_the_reader(text in "([\\[\\]{}\":,#&*$<>|!'\\\\\n\t =-]|mcpServers|toolboxes|command|env|\\PC){0,60}") {
        for name in ["pegboard.json", "pegboard.yaml", "pegboard.toml", "workbench.json"] {
            if let Err(error) = load_text(name, &text) {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}
