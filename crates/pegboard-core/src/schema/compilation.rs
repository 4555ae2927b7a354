//! Estimated cost of compiling a schema, known before that begins.

use serde_json::Value;

use super::patterns;

/// Size of a schema that takes a few milliseconds to compile.
pub(super) const MAX_CHEAP_BYTES: usize = 32 << 10;
/// Number of states of all patterns that take about as long.
const MAX_CHEAP_STATES: usize = 8 << 10;

/// Returns `true` if a schema may take more than a few milliseconds to compile.
pub(super) fn is_costly(schema: &Value) -> bool {
    CheapCompilation { n_bytes: MAX_CHEAP_BYTES, n_states: MAX_CHEAP_STATES }.spend_on(schema).is_none()
}

/// The rest of the size of a schema that is cheap to compile.
struct CheapCompilation {
    n_bytes: usize,
    n_states: usize,
}

impl CheapCompilation {
    /// Counts a value and its parts; `None` if they are too large.
    fn spend_on(&mut self, value: &Value) -> Option<()> {
        self.spend_bytes(1)?;
        match value {
            Value::String(text) => self.spend_bytes(text.len()),
            Value::Array(items) => items.iter().try_for_each(|item| self.spend_on(item)),
            Value::Object(members) => members.iter().try_for_each(|(name, member)| {
                self.spend_bytes(name.len())?;
                match (name.as_str(), member) {
                    ("pattern", Value::String(pattern)) => self.spend_states(pattern)?,
                    ("patternProperties", Value::Object(patterns)) => {
                        patterns.keys().try_for_each(|pattern| self.spend_states(pattern))?;
                    }
                    _ => {}
                }
                self.spend_on(member)
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => Some(()),
        }
    }

    fn spend_bytes(&mut self, n_bytes: usize) -> Option<()> {
        self.n_bytes = self.n_bytes.checked_sub(n_bytes)?;
        Some(())
    }

    fn spend_states(&mut self, pattern: &str) -> Option<()> {
        self.n_states = self.n_states.checked_sub(patterns::n_states(pattern))?;
        Some(())
    }
}
