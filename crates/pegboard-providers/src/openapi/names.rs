//! Tool names and name patterns of operations.

use std::collections::HashSet;

use pegboard_core::text::matches_glob;

/// Maximum length of a name, before a number is added.
const MAX_BYTES: usize = 180;

/// Returns the tool name of an operation: its id, or else its method and path.
pub(super) fn tool_name(operation_id: Option<&str>, method: &str, path: &str) -> String {
    let name = operation_id.map(sanitize).filter(|name| !name.is_empty());
    name.unwrap_or_else(|| {
        let path = path.replace(['{', '}'], "");
        let words: Vec<&str> =
            path.split(|each: char| !each.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
        let name: Vec<&str> = std::iter::once(method).chain(words).collect();
        truncated(name.join("_").to_lowercase())
    })
}

/// Reduces a name to letters, digits, `_` and `-`.
pub(super) fn sanitize(name: &str) -> String {
    let mut clean = String::with_capacity(name.len());
    for each in name.trim().chars() {
        match each {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' => clean.push(each),
            _ if clean.is_empty() || clean.ends_with('_') => {}
            _ => clean.push('_'),
        }
    }
    clean.truncate(clean.trim_end_matches('_').len());
    truncated(clean)
}

fn truncated(mut name: String) -> String {
    name.truncate(MAX_BYTES);
    name
}

/// Returns the name, or the next free one: `list_2`, `list_3`.
pub(super) fn unique(name: &str, taken: &mut HashSet<String>) -> String {
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    let free = std::iter::once(name.to_owned()).chain(numbered).find(|name| !taken.contains(name));
    let free = free.expect("numbers do not end");
    taken.insert(free.clone());
    free
}

/// Returns `true` if the text matches a pattern with `*` and `?`, ignoring case.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.to_lowercase(), text.to_lowercase());
    matches_glob(&pattern, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_named_by_id_or_by_method_and_path() {
        let cases = [
            (Some("listItems"), "get", "/items", "listItems"),
            (Some("mk item!"), "post", "/items", "mk_item"),
            (Some("actions/list-jobs"), "get", "/x", "actions_list-jobs"),
            (Some("☃"), "get", "/items", "get_items"),
            (None, "get", "/items/{item-id}", "get_items_item_id"),
            (None, "delete", "/V1/{a}{b}/.c", "delete_v1_ab_c"),
            (None, "get", "/", "get"),
        ];
        for (id, method, path, expected) in cases {
            assert_eq!(tool_name(id, method, path), expected);
        }
        assert_eq!(tool_name(Some(&"x".repeat(1_000)), "get", "/").len(), MAX_BYTES);
    }

    #[test]
    fn duplicate_names_are_numbered() {
        let mut taken = HashSet::new();
        let names = ["a", "a", "a_2", "a"].map(|name| unique(name, &mut taken));
        assert_eq!(names, ["a", "a_2", "a_2_2", "a_3"]);
    }

    #[test]
    fn patterns_match_with_wildcards() {
        for (pattern, text) in
            [("*", ""), ("list*", "listItems"), ("*Item?", "listItems"), ("A*b*C", "axxbxc")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("list", "listItems"), ("?", ""), ("a*b", "acbc")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
        assert!(!matches(&"*a".repeat(40), &"a".repeat(10_000).replace('a', "b")));
    }
}
