//! What comes of two trees when one is put upon the other.

use crate::schema::{AS_WRITTEN, Place};
use crate::source::{Medium, Strictness, Text};
use crate::tree::{Entry, Node, Span, Value};

/// Settings of a server that have two names.
const NAMES_OF_SERVER: [(&str, &str); 2] = [("type", "transport"), ("env", "environment")];
/// Settings of a queue that have two names.
const NAMES_OF_QUEUE: [(&str, &str); 3] = [
    ("maxConcurrency", "concurrent"),
    ("waitTimeoutMs", "waitTimeout"),
    ("defaultTimeoutMs", "defaultTimeout"),
];
/// What belongs to a server that is a program.
const OF_PROGRAM: [&str; 7] = ["command", "args", "env", "environment", "envFile", "passEnv", "cwd"];
/// What belongs to a server that has an address.
const OF_ADDRESS: [&str; 2] = ["url", "headers"];

/// One tree upon another: objects are merged key by key, everything else is replaced, and `null` takes away.
pub(super) fn merge(below: Node, above: Node, texts: &[Text]) -> Node {
    Merging { texts, way: Vec::new() }.node(below, above)
}

/// Takes out what is nothing: `null` is as if it were not there. What holds other things may have nothing left in it.
pub(super) fn drop_nothing(root: &mut Node, texts: &[Text]) {
    drop_inside(root, Place::root(), texts);
}

fn drop_inside(node: &mut Node, place: Place, texts: &[Text]) {
    let Value::Map(entries) = &mut node.value else { return };
    entries.retain_mut(|entry| {
        // A name that nobody knows is told, whatever stands there.
        let is_known = place.is_open() || place.names().contains(&entry.key.as_str());
        let Some(inner) = place.child(&entry.key).filter(|_| is_known) else { return true };
        if matches!(entry.value.value, Value::Null) {
            let is_written = !texts[entry.value.span.text].slice(entry.value.span).is_empty();
            return !is_written && inner.holds_others();
        }
        match (entry.key.as_str(), &mut entry.value.value) {
            // In a chain nothing is a value like any other.
            ("chains", Value::Map(chains)) => {
                chains.retain(|chain| !matches!(chain.value.value, Value::Null));
            }
            (name, _) if AS_WRITTEN.contains(&name) => {}
            _ => drop_inside(&mut entry.value, inner, texts),
        }
        true
    });
}

struct Merging<'t> {
    texts: &'t [Text],
    way: Vec<String>,
}

/// What two objects at some place describe, as far as it matters to how they are merged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Server,
    Queue,
    Other,
}

impl Merging<'_> {
    fn node(&mut self, below: Node, above: Node) -> Node {
        match (below.value, above.value) {
            (Value::Map(mut entries), Value::Map(others)) => {
                let subject = self.subject();
                if subject == Subject::Server {
                    if self.is_whole(&others, above.span) {
                        return Node { span: above.span, value: Value::Map(others), origin: above.origin };
                    }
                    leave_other_target(&mut entries, &others);
                }
                for entry in others {
                    self.entry(&mut entries, entry, subject);
                }
                // Whoever describes a thing first describes it; whoever comes later changes something about it.
                Node { span: below.span, value: Value::Map(entries), origin: below.origin }
            }
            (_, value) => Node { span: above.span, value, origin: above.origin },
        }
    }

    fn entry(&mut self, entries: &mut Vec<Entry>, above: Entry, subject: Subject) {
        if subject == Subject::Server {
            let opposite = match above.key.as_str() {
                "enabled" => "disabled",
                "disabled" => "enabled",
                _ => "",
            };
            entries.retain(|entry| entry.key != opposite);
        }
        let Some(at) = entries.iter().position(|below| is_same(&below.key, &above.key, subject)) else {
            // There is nothing to be taken away.
            let is_file = self.texts[above.key_span.text].medium == Medium::File;
            if is_file || !matches!(above.value.value, Value::Null) {
                entries.push(above);
            }
            return;
        };
        if matches!(above.value.value, Value::Null) {
            // A section that nothing is left in says nothing about those below.
            let is_written = !self.texts[above.value.span.text].slice(above.value.span).is_empty();
            if is_written {
                entries.remove(at);
            }
            return;
        }
        let below = &mut entries[at];
        let are_maps = matches!((&below.value.value, &above.value.value), (Value::Map(_), Value::Map(_)));
        self.way.push(below.key.clone());
        let value = std::mem::replace(&mut below.value, Node::new(above.value.span, Value::Null));
        below.value = self.node(value, above.value);
        self.way.pop();
        if !are_maps {
            (below.key, below.key_span) = (above.key, above.key_span);
        }
    }

    /// Whether a server is described from beginning to end. Other programs do not change one here and there.
    fn is_whole(&self, entries: &[Entry], span: Span) -> bool {
        let is_foreign = self.texts[span.text].strictness == Strictness::Lenient;
        is_foreign && entries.iter().any(|entry| entry.key == "command" || entry.key == "url")
    }

    fn subject(&self) -> Subject {
        match self.way.iter().rev().nth(1).map(String::as_str) {
            Some("mcpServers") => Subject::Server,
            Some("queues") if self.way.len() == 2 => Subject::Queue,
            _ => Subject::Other,
        }
    }
}

/// Whether two keys are names of the same setting.
fn is_same(below: &str, above: &str, subject: Subject) -> bool {
    let names: &[(&str, &str)] = match subject {
        Subject::Server => &NAMES_OF_SERVER,
        Subject::Queue => &NAMES_OF_QUEUE,
        Subject::Other => &[],
    };
    below == above || names.contains(&(below, above)) || names.contains(&(above, below))
}

/// A server that was a program and has an address now is no program any more, and the other way round.
fn leave_other_target(below: &mut Vec<Entry>, above: &[Entry]) {
    let has = |entries: &[Entry], key: &str| entries.iter().any(|entry| entry.key == key);
    let gone: &[&str] = match (has(above, "command"), has(above, "url")) {
        (true, false) if has(below, "url") => &OF_ADDRESS,
        (false, true) if has(below, "command") => &OF_PROGRAM,
        _ => return,
    };
    below.retain(|entry| {
        !gone.contains(&entry.key.as_str()) && !matches!(entry.key.as_str(), "type" | "transport")
    });
}
