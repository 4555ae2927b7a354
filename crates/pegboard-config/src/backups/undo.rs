//! Undoes a change in a file that its client has changed since.

use std::path::Path;

use serde_json::{Map, Value};

use crate::edit::{ConfigDocument, EditPath};

/// A value that a change added, replaced or removed.
struct ChangedValue {
    path: EditPath,
    before: Option<Value>,
    after: Option<Value>,
}

/// Differences between two documents.
#[derive(Default)]
struct Changes {
    values: Vec<ChangedValue>,
    /// Objects that were added for the entries in them, outer ones first.
    added_sections: Vec<EditPath>,
}

/// Undoes the change from `before` to `after` in the present text, and keeps everything else there. Returns `None` if
/// the values that it is about are no longer as it left them.
pub(super) fn undo(path: &Path, before: Option<&str>, after: &str, present: &str) -> Option<String> {
    let document = |text: &str| ConfigDocument::new(path, text.to_owned()).ok();
    let empty = Value::Object(Map::new());
    let before = match before {
        Some(text) => document(text)?.value().clone(),
        None => empty,
    };
    let mut changes = Changes::default();
    compare(&before, document(after)?.value(), &EditPath::default(), &mut changes);
    let mut present = document(present)?;
    if changes.values.iter().any(|change| present.get(&change.path) != change.after.as_ref()) {
        return None;
    }
    for change in changes.values {
        match &change.before {
            Some(value) => present.set(&change.path, value).ok()?,
            None => drop(present.remove(&change.path).ok()?),
        }
    }
    for path in changes.added_sections.iter().rev() {
        if present.get(path).and_then(Value::as_object).is_some_and(Map::is_empty) {
            present.remove(path).ok()?;
        }
    }
    Some(present.text())
}

/// Collects the values that differ. Objects are compared by member, and sections of entries that were added as well.
fn compare(before: &Value, after: &Value, path: &EditPath, changes: &mut Changes) {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        if before != after {
            let (before, after) = (Some(before.clone()), Some(after.clone()));
            changes.values.push(ChangedValue { path: path.clone(), before, after });
        }
        return;
    };
    for (key, value) in old {
        let path = path.clone().key(key);
        match new.get(key) {
            Some(new) => compare(value, new, &path, changes),
            None => changes.values.push(ChangedValue { path, before: Some(value.clone()), after: None }),
        }
    }
    for (key, value) in new.iter().filter(|(key, _)| !old.contains_key(*key)) {
        let path = path.clone().key(key);
        if is_section(value) {
            changes.added_sections.push(path.clone());
            compare(&Value::Object(Map::new()), value, &path, changes);
        } else {
            changes.values.push(ChangedValue { path, before: None, after: Some(value.clone()) });
        }
    }
}

/// Returns `true` for an object of entries, such as `mcpServers`. An entry itself has values that are no objects.
fn is_section(value: &Value) -> bool {
    value.as_object().is_some_and(|members| !members.is_empty() && members.values().all(Value::is_object))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const BEFORE: &str =
        "{\n  \"starts\": 42,\n  \"mcpServers\": {\n    \"a\": {\"command\": \"a\"}\n  }\n}\n";
    const AFTER: &str =
        "{\n  \"starts\": 42,\n  \"mcpServers\": {\n    \"pegboard\": {\"command\": \"p\"}\n  }\n}\n";

    fn undone(present: &str) -> Option<String> {
        undo(Path::new("mcp.json"), Some(BEFORE), AFTER, present)
    }

    #[test]
    fn later_changes_of_the_client_are_kept() {
        let present =
            AFTER.replace("42", "43").replace("}\n  }", "},\n    \"later\": {\"command\": \"l\"}\n  }");
        insta::assert_snapshot!(undone(&present).unwrap(), @r#"
        {
          "starts": 43,
          "mcpServers": {
            "later": {"command": "l"},
            "a": {
              "command": "a"
            }
          }
        }
        "#);
        let created = undo(Path::new("mcp.json"), None, "{\"mcpServers\": {\"pegboard\": 1}}", &present);
        assert_eq!(created, None);
    }

    #[test]
    fn an_entry_of_the_client_in_a_section_of_ours_is_kept() {
        let before = json!({"starts": 1});
        let pegboard = json!({"command": "p", "env": {"A": "1"}});
        let later = json!({"command": "l"});
        let created = json!({"starts": 1, "mcp": {"servers": {"pegboard": &pegboard}}});
        let with_later =
            |pegboard| json!({"starts": 2, "mcp": {"servers": {"pegboard": pegboard, "later": &later}}});
        for (present, expected) in [
            (json!({"starts": 2, "mcp": {"servers": {"pegboard": &pegboard}}}), Some(json!({"starts": 2}))),
            (with_later(&pegboard), Some(json!({"starts": 2, "mcp": {"servers": {"later": &later}}}))),
            (with_later(&later), None),
        ] {
            let texts = [&before, &created, &present].map(Value::to_string);
            let undone = undo(Path::new("mcp.json"), Some(&texts[0]), &texts[1], &texts[2]);
            let undone = undone.map(|text| serde_json::from_str::<Value>(&text).unwrap());
            assert_eq!(undone, expected, "{present}");
        }
    }

    #[test]
    fn a_value_that_is_no_longer_as_it_was_left_is_not_touched() {
        assert_eq!(undone(&AFTER.replace("\"p\"", "\"other\"")), None);
        assert_eq!(undone(&AFTER.replace("pegboard", "a")), None);
        assert_eq!(undone("{"), None);
    }
}
