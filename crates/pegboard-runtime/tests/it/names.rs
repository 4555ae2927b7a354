//! Exposed names and tool filters.

use std::collections::HashSet;

use pegboard_core::id::{ServerName, ToolId, ToolName, ToolboxName};
use pegboard_core::similar::nearest;
use pegboard_runtime::filter::ToolFilter;
use pegboard_runtime::names::{DEFAULT_LIMIT, flat_names, sanitize};
use proptest::prelude::*;

fn id(toolbox: &str, server: &str, name: &str) -> ToolId {
    ToolId {
        toolbox: ToolboxName::new(toolbox).unwrap(),
        server: ServerName::new(server).unwrap(),
        name: ToolName::new(name).unwrap(),
    }
}

#[test]
fn names_are_sanitized_and_never_empty() {
    for (name, expected) in [
        ("<|channel|>github__x", "github__x"),
        ("", "tool_call"),
        ("foo.bar", "foo_bar"),
        ("a b", "a_b"),
        ("tool!", "tool"),
        ("__x", "x"),
        ("é", "tool_call"),
        ("  spaced  ", "spaced"),
        ("a<|b", "a_b"),
        ("ends_", "ends_"),
        ("a--b", "a--b"),
    ] {
        assert_eq!(sanitize(name), expected, "{name:?}");
    }
}

#[test]
fn a_server_name_is_letters_digits_hyphen_and_underscore() {
    let refusal = ServerName::new("Alpha-Server!!").unwrap_err().to_string();
    assert_eq!(refusal, "MCP server names may only contain letters, digits, '-' or '_': Alpha-Server!!");
    assert_eq!(ServerName::new("").unwrap_err().to_string(), "MCP server names must be non-empty strings.");
}

#[test]
fn a_name_that_is_too_long_keeps_its_server_and_its_end() {
    let long = "x".repeat(150) + "_the_end";
    let names =
        flat_names(&[id("t", "github", &long), id("t", "github", &(long.clone() + "2"))], DEFAULT_LIMIT);
    for name in &names {
        assert!(name.len() <= 64 && name.starts_with("github__"), "{name}");
    }
    assert!(names[0].ends_with("_the_end"), "{}", names[0]);
    assert_ne!(names[0], names[1]);
}

#[test]
fn a_server_in_two_toolboxes_is_qualified_by_toolbox() {
    let ids = [id("dev", "github", "a"), id("prod", "github", "a"), id("dev", "files", "b")];
    assert_eq!(flat_names(&ids, DEFAULT_LIMIT), ["dev__github__a", "prod__github__a", "files__b"]);
}

#[test]
fn colliding_names_are_numbered_in_configuration_order() {
    let ids = [id("t", "s", "a b"), id("t", "s", "a_b_2"), id("t", "s", "a.b"), id("t", "s", "a_b")];
    assert_eq!(flat_names(&ids, DEFAULT_LIMIT), ["s__a_b", "s__a_b_2", "s__a_b_3", "s__a_b_4"]);
}

proptest! {
    #[test]
    fn flat_names_are_unique_short_and_plain(
        tools in prop::collection::vec(("[a-c]{1,2}", ".{1,80}"), 1..60),
        limit in 20_usize..200,
    ) {
        let ids: Vec<ToolId> = tools
            .iter()
            .filter(|(_, name)| ToolName::new(name).is_ok())
            .map(|(server, name)| id("t", server, name))
            .collect();
        let names = flat_names(&ids, limit);
        prop_assert_eq!(names.len(), ids.len());
        prop_assert_eq!(names.iter().collect::<HashSet<_>>().len(), ids.len());
        for name in &names {
            prop_assert!(name.len() <= limit, "{name}");
            prop_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'), "{name}");
        }
    }
}

#[test]
fn lists_allow_and_deny_case_insensitively() {
    let tools = ["alphaTool", "betaTool", "gammaTool"];
    let check =
        |filter: ToolFilter, expected: &[&str]| assert_eq!(filter.permitted(&tools), expected, "{filter:?}");
    check(ToolFilter::allow_all(), &tools);
    check(
        ToolFilter::allowing(["alphaTool", "GammaTool"]).denying(["betaTool"]),
        &["alphaTool", "gammaTool"],
    );
    check(ToolFilter::allow_all().denying(["*"]), &[]);
    check(ToolFilter::allow_all().denying(["any"]), &[]);
    check(ToolFilter::allowing([""; 0]), &[]);
    check(ToolFilter::allowing(["*a*"]).denying(["?eta*"]), &["alphaTool", "gammaTool"]);
    check(ToolFilter::allowing(["ghost"]), &[]);
}

#[test]
fn an_entry_in_exact_case_matches_that_tool_only() {
    let filter = ToolFilter::allowing(["Read"]);
    assert_eq!(filter.permitted(&["read", "Read", "READ"]), ["Read"]);
    assert_eq!(filter.permitted(&["read", "READ"]), ["read", "READ"]);
}

#[test]
fn similar_names_are_suggested_and_others_are_not() {
    assert_eq!(
        nearest("serch_code", ["delete", "search_issues", "search_code"], 3),
        ["search_code", "search_issues"]
    );
    assert_eq!(nearest("zzz", ["search_code"], 3), [""; 0]);
}
