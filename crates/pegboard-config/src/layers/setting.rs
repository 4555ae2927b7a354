//! Single settings that are in no file: variables such as `PEGBOARD__TOOL_TIMEOUT=30s`, and `--set toolTimeout=30s`.

use crate::dialect::Remarks;
use crate::near::near;
use crate::path::Path;
use crate::schema::Place;
use crate::source::is_veiling;
use crate::tree::{Entry, Node, Span, Value, json};

/// What the names of variables begin with that are settings.
pub(super) const PREFIX: &str = "PEGBOARD__";
/// How many names may lead to a setting.
const MAX_STEPS: usize = 16;

/// The tree that a variable comes to. Its name is looked up in any case and spelling: `TOOL_TIMEOUT` is `toolTimeout`,
/// and `MY_SERVER` is `my-server` if `root` has one.
pub(super) fn of_variable(name: &str, text: Written<'_>, root: &Node, remarks: &mut Remarks) -> Option<Node> {
    let name_span = text.span(0, name.len());
    let mut place = Some(Place::root());
    let mut below = Some(root);
    let mut keys: Vec<String> = Vec::new();
    let written: Vec<&str> = name[PREFIX.len()..].split("__").collect();
    for step in &written {
        let way = keys.iter().fold(Path::default(), |way, key| way.key(key));
        let found = known(step, place, below, keys.last().map(String::as_str));
        let Some(key) = found.filter(|key| !key.is_empty() && written.len() <= MAX_STEPS) else {
            let known = place.map(Place::names).unwrap_or_default();
            let spelled: Vec<(String, &str)> = known.iter().map(|&key| (in_capitals(key), key)).collect();
            let meant = near(step, spelled.iter().map(|(spelling, _)| spelling.as_str()));
            let help = meant.map(|meant| {
                let before = keys.iter().map(|key| in_capitals(key) + "__").collect::<String>();
                format!("did you mean {PREFIX}{before}{meant}?")
            });
            remarks.error(name_span, &way, format!("there is no setting '{step}'"), help);
            return None;
        };
        place = place.and_then(|place| place.child(&key));
        below = below.and_then(|below| below.get(&key));
        keys.push(key);
    }
    Some(nested(&keys, name_span, value(text, name.len() + 1)))
}

/// The tree that a `way=value` comes to. Dots lead from name to name; a name with a dot in it stands in double quotes.
pub(super) fn of_text(text: Written<'_>, remarks: &mut Remarks) -> Option<Node> {
    let equals = text.body.find('=').unwrap_or(text.body.len());
    let keys = steps(&text.body[..equals]).filter(|_| equals < text.body.len());
    let Some(keys) = keys.filter(|keys| keys.len() <= MAX_STEPS) else {
        let help = Some("write --set toolTimeout=30s, or --set mcpServers.github.enabled=false".to_owned());
        let span = text.span(0, text.body.len());
        remarks.error(span, &Path::default(), "this is no setting and its value", help);
        return None;
    };
    Some(nested(&keys, text.span(0, equals), value(text, equals + 1)))
}

/// A text that is in no file, and which of those that are read together it is.
#[derive(Clone, Copy)]
pub(super) struct Written<'t> {
    pub(super) body: &'t str,
    pub(super) index: usize,
}

impl Written<'_> {
    fn span(self, start: usize, end: usize) -> Span {
        Span { text: self.index, ..Span::new(start, end) }
    }
}

/// The names that lead to a setting. `None` if one is empty.
fn steps(written: &str) -> Option<Vec<String>> {
    let mut keys = vec![String::new()];
    let mut is_quoted = false;
    for character in written.trim().chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            '.' if !is_quoted => keys.push(String::new()),
            character => keys.last_mut()?.push(character),
        }
    }
    (!is_quoted && keys.iter().all(|key| !key.is_empty())).then_some(keys)
}

/// What stands behind the `=`: JSON if it is JSON, or else a text.
fn value(text: Written<'_>, start: usize) -> Node {
    let written = &text.body[start..];
    match json::parse(written) {
        Ok(Some(parsed)) if parsed.twins.is_empty() => {
            let mut root = parsed.root;
            root.settle(text.index, start);
            root
        }
        _ => Node::new(text.span(start, text.body.len()), Value::Text(written.to_owned())),
    }
}

fn nested(keys: &[String], key_span: Span, value: Node) -> Node {
    let whole = Span { end: value.span.end, ..key_span };
    keys.iter().rev().fold(value, |value, key| {
        Node::new(whole, Value::Map(vec![Entry { key: key.clone(), key_span, value }]))
    })
}

/// The name that a part of a variable's name stands for: one of the settings there, one that is there already, or a new
/// one where any name may be.
fn known(step: &str, place: Option<Place>, below: Option<&Node>, parent: Option<&str>) -> Option<String> {
    let place = place?;
    let is_meant = |key: &str| plain(key) == plain(step);
    if let Some(key) = place.names().into_iter().find(|key| is_meant(key)) {
        return Some(key.to_owned());
    }
    if !place.is_open() {
        return None;
    }
    let there = below.and_then(Node::entries).unwrap_or_default();
    if let Some(entry) = there.iter().find(|entry| is_meant(&entry.key)) {
        return Some(entry.key.clone());
    }
    match parent {
        // No header has an underscore, and no variable a dash.
        Some("headers") => Some(step.replace('_', "-")),
        Some(parent) if is_veiling(parent) => Some(step.to_owned()),
        _ => Some(step.to_lowercase()),
    }
}

/// A name without what spellings differ in.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|each| each.to_ascii_lowercase()).collect()
}

/// `toolTimeout` as a variable spells it: `TOOL_TIMEOUT`.
fn in_capitals(name: &str) -> String {
    let mut spelled = String::new();
    let mut is_after_lower = false;
    for character in name.chars() {
        if character.is_ascii_uppercase() && is_after_lower {
            spelled.push('_');
        }
        is_after_lower = character.is_ascii_lowercase() || character.is_ascii_digit();
        spelled.push(if character.is_ascii_alphanumeric() { character.to_ascii_uppercase() } else { '_' });
    }
    spelled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_lead_from_name_to_name() {
        for (written, expected) in [
            ("toolTimeout", Some(vec!["toolTimeout"])),
            ("mcpServers.github.url", Some(vec!["mcpServers", "github", "url"])),
            ("providers.\"a.b\".type", Some(vec!["providers", "a.b", "type"])),
            ("a..b", None),
            ("", None),
            ("a.\"b", None),
        ] {
            let expected = expected.map(|keys| keys.into_iter().map(str::to_owned).collect());
            assert_eq!(steps(written), expected, "{written}");
        }
    }

    #[test]
    fn a_setting_is_spelled_as_variables_are() {
        for (name, expected) in [
            ("toolTimeout", "TOOL_TIMEOUT"),
            ("mcpServers", "MCP_SERVERS"),
            ("traceMCP", "TRACE_MCP"),
            ("my-server", "MY_SERVER"),
        ] {
            assert_eq!(in_capitals(name), expected);
        }
    }
}
