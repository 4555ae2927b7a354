//! What a tool is given: JSON that is read at most once and passed on as it came.

use std::fmt;
use std::sync::{Arc, OnceLock};

use pegboard_json::RawJson;
use serde_json::{Map, Value};

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

    /// The arguments as they were written, if they came that way.
    pub(crate) fn as_written(&self) -> Option<&RawJson> {
        self.0.raw.get()
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
