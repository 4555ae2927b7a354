//! What a tool is given: JSON that is read at most once and passed on as it came.

use std::fmt;
use std::sync::{Arc, OnceLock};

use pegboard_json::RawJson;
use serde_json::{Map, Value};

use crate::output;

/// What a tool is given. Clones share it; `Debug` leaves it out, so that it does not reach a log.
///
/// ```
/// use pegboard_core::arguments::Arguments;
/// use pegboard_json::RawJson;
///
/// let raw = RawJson::parse(r#"{"n": 1.0}"#.into()).unwrap();
/// let arguments = Arguments::from(raw);
/// assert_eq!(arguments.value()["n"], 1.0);
/// assert_eq!(arguments.raw().as_str(), r#"{"n": 1.0}"#);
/// ```
#[derive(Clone)]
pub struct Arguments(Arc<Spellings>);

/// One of the two is there from the beginning, the other is made when somebody asks.
#[derive(Default)]
struct Spellings {
    value: OnceLock<Value>,
    raw: OnceLock<RawJson>,
}

impl Arguments {
    /// The arguments as a tree. Null if no tree can hold them, as with `1e999`.
    pub fn value(&self) -> &Value {
        self.0.value.get_or_init(|| self.0.raw.get().map(RawJson::to_value).unwrap_or_default())
    }

    /// The arguments as they were written.
    pub fn raw(&self) -> &RawJson {
        self.0.raw.get_or_init(|| RawJson::of(self.value()))
    }

    /// Whether they were written in a way that no tree can hold.
    pub(crate) fn is_beyond_reading(&self) -> bool {
        self.value().is_null() && self.0.raw.get().is_some_and(|raw| raw.as_str() != "null")
    }

    /// How long they are when written down.
    pub fn n_bytes(&self) -> usize {
        self.0.raw.get().map_or_else(|| output::n_json_bytes(self.value()), |raw| raw.as_bytes().len())
    }

    /// Whether they are an object.
    pub fn is_object(&self) -> bool {
        self.0.raw.get().map_or_else(|| self.value().is_object(), RawJson::is_object)
    }

    /// Whether a member of that name may be in them somewhere. Looking at what was written is much cheaper than a
    /// tree, and may find the name in a text.
    pub fn may_mention(&self, name: &str) -> bool {
        match self.0.raw.get() {
            // A name spelled with escapes counts as well, and every escape has a backslash.
            Some(raw) => {
                let text = raw.as_bytes();
                memchr::memmem::find(text, name.as_bytes()).is_some() || memchr::memchr(b'\\', text).is_some()
            }
            None => mentions(self.value(), name),
        }
    }

    /// The arguments as they were written, if they came that way.
    pub(crate) fn as_written(&self) -> Option<&RawJson> {
        self.0.raw.get()
    }
}

fn mentions(value: &Value, name: &str) -> bool {
    match value {
        Value::Object(members) => {
            members.contains_key(name) || members.values().any(|member| mentions(member, name))
        }
        Value::Array(items) => items.iter().any(|item| mentions(item, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

impl Default for Arguments {
    /// None: an empty object.
    fn default() -> Self {
        Self::from(Value::Object(Map::new()))
    }
}

impl From<Value> for Arguments {
    fn from(value: Value) -> Self {
        Self(Arc::new(Spellings { value: OnceLock::from(value), ..Spellings::default() }))
    }
}

impl From<RawJson> for Arguments {
    fn from(raw: RawJson) -> Self {
        Self(Arc::new(Spellings { raw: OnceLock::from(raw), ..Spellings::default() }))
    }
}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Arguments")
    }
}
