//! Arguments of a call: parsed at most once and passed on as they were written.

use std::fmt;
use std::sync::{Arc, OnceLock};

use pegboard_json::RawJson;
use serde_json::{Map, Value};

use crate::output;

/// Arguments of a tool call. Clones share the data; `Debug` omits it to keep it out of logs.
///
/// ```
/// use pegboard_core::arguments::CallArguments;
/// use pegboard_json::RawJson;
///
/// let raw = RawJson::parse(r#"{"n": 1.0}"#.into()).unwrap();
/// let arguments = CallArguments::from(raw);
/// assert_eq!(arguments.value()["n"], 1.0);
/// assert_eq!(arguments.raw().as_str(), r#"{"n": 1.0}"#);
/// ```
#[derive(Clone)]
pub struct CallArguments(Arc<ArgumentForms>);

/// The two representations. One exists from the start, the other is created on demand.
#[derive(Default)]
struct ArgumentForms {
    value: OnceLock<Value>,
    raw: OnceLock<RawJson>,
}

impl CallArguments {
    /// Returns the arguments as a tree; null if they cannot be represented, as with `1e999`.
    pub fn value(&self) -> &Value {
        self.0.value.get_or_init(|| self.0.raw.get().map(RawJson::to_value).unwrap_or_default())
    }

    /// Returns the arguments as JSON text.
    pub fn raw(&self) -> &RawJson {
        self.0.raw.get_or_init(|| RawJson::of(self.value()))
    }

    /// Returns `true` if the JSON text cannot be represented as a tree.
    pub(crate) fn is_unrepresentable(&self) -> bool {
        self.value().is_null() && self.0.raw.get().is_some_and(|raw| raw.as_str() != "null")
    }

    /// Returns the size of the JSON text in bytes.
    pub fn n_bytes(&self) -> usize {
        self.0.raw.get().map_or_else(|| output::n_json_bytes(self.value()), |raw| raw.as_bytes().len())
    }

    /// Returns `true` if the arguments are an object.
    pub fn is_object(&self) -> bool {
        self.0.raw.get().map_or_else(|| self.value().is_object(), RawJson::is_object)
    }

    /// Returns `true` if a member with this name may occur at any depth. Scanning the text is much cheaper
    /// than parsing it, but may also match string content.
    pub fn may_contain_key(&self, name: &str) -> bool {
        match self.0.raw.get() {
            // A key may be spelled with escapes, and every escape has a backslash.
            Some(raw) => {
                let text = raw.as_bytes();
                memchr::memmem::find(text, name.as_bytes()).is_some() || memchr::memchr(b'\\', text).is_some()
            }
            None => mentions(self.value(), name),
        }
    }

    /// Returns the original JSON text, if the arguments came as text.
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

impl Default for CallArguments {
    /// Returns an empty object.
    fn default() -> Self {
        Self::from(Value::Object(Map::new()))
    }
}

impl From<Value> for CallArguments {
    fn from(value: Value) -> Self {
        Self(Arc::new(ArgumentForms { value: OnceLock::from(value), ..ArgumentForms::default() }))
    }
}

impl From<RawJson> for CallArguments {
    fn from(raw: RawJson) -> Self {
        Self(Arc::new(ArgumentForms { raw: OnceLock::from(raw), ..ArgumentForms::default() }))
    }
}

impl fmt::Debug for CallArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallArguments")
    }
}
