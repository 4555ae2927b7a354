//! What a value must look like: a JSON Schema, the rules it is read by, and its compiled form.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use pegboard_json::RawJson;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::validation::{ValidationResult, Violation};
use budget::TooCostly;

mod budget;
mod compat;
mod derive;
mod full;
mod literal;
mod report;
mod vocabulary;

/// A schema and the rules it is read by, compiled at its first use and shared by its clones.
///
/// ```
/// use pegboard_core::schema::Schema;
/// use serde_json::json;
///
/// let schema = Schema::new(json!({"type": "integer", "minimum": 0}));
/// assert!(schema.accepts(&json!(7)));
/// assert_eq!(schema.check(&json!(-1)).errors, ["$: value -1 < minimum 0"]);
/// ```
#[derive(Clone)]
pub struct Schema(Arc<Inner>);

struct Inner {
    /// The schema as somebody else wrote it, if it is; it is read at its first use.
    raw: Option<RawJson>,
    json: OnceLock<Value>,
    rules: Rules,
    /// Apart, since most schemas are never compiled.
    compiled: OnceLock<Box<Compiled>>,
}

/// A schema made ready for use.
enum Compiled {
    /// No constraint at all.
    Anything,
    /// The loose rules work on the schema as it stands.
    Compat,
    /// Full JSON Schema, with a remark on each part that had to be left out.
    Full(full::Validator, Vec<String>),
    /// The schema cannot be used, and nothing is checked.
    Skipped(String),
    /// The schema cannot be used, and strict rules refuse every value.
    Refused(String),
}

/// How a schema is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Which keywords there are and what they mean.
    pub dialect: Dialect,
    /// Whether `format` is checked.
    pub formats: Formats,
    /// What happens to a schema that is not understood in full.
    pub strictness: Strictness,
}

/// Which keywords there are and what they mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// JSON Schema, draft-07 to 2020-12.
    #[default]
    JsonSchema,
    /// Twelve keywords with Python's idea of types: `true` is an integer, `1.0` is not, and a name that is
    /// not known is passed over.
    Compat,
}

/// Whether `format` is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Formats {
    /// A value that does not have its format is invalid.
    #[default]
    Assert,
    /// A format is a remark to the reader.
    Ignore,
}

/// What happens to a schema that is not understood in full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strictness {
    /// Unknown keywords and formats are passed over; a schema that does not compile gives a warning.
    #[default]
    Lenient,
    /// Unknown keywords and formats, and schemas that do not compile, refuse every value.
    Strict,
}

impl Rules {
    /// The loose rules: see [`Dialect::Compat`].
    pub const COMPAT: Self =
        Self { dialect: Dialect::Compat, formats: Formats::Ignore, strictness: Strictness::Lenient };
}

impl Schema {
    /// A schema under the default rules.
    pub fn new(json: Value) -> Self {
        Self::with_rules(json, Rules::default())
    }

    /// A schema that is read by `rules`.
    ///
    /// ```
    /// use pegboard_core::schema::{Rules, Schema};
    /// use serde_json::json;
    ///
    /// let loose = Schema::with_rules(json!({"type": "integer"}), Rules::COMPAT);
    /// assert!(loose.accepts(&json!(true)));
    /// assert_eq!(loose.check(&json!("7")).errors, ["$: expected type integer, got str"]);
    /// ```
    pub fn with_rules(json: Value, rules: Rules) -> Self {
        Self(Arc::new(Inner { raw: None, json: json.into(), rules, compiled: OnceLock::new() }))
    }

    /// A schema as somebody else wrote it. It is read at its first use, so that ten thousand schemas of which nine are
    /// used take little room.
    ///
    /// ```
    /// use pegboard_core::schema::Schema;
    /// use pegboard_json::RawJson;
    ///
    /// let schema = Schema::from_raw(RawJson::parse(r#"{"type": "integer"}"#.into()).unwrap());
    /// assert_eq!(schema.check(&"7".into()).errors, ["$: expected type integer, got string"]);
    /// ```
    pub fn from_raw(raw: RawJson) -> Self {
        let (json, compiled) = (OnceLock::new(), OnceLock::new());
        Self(Arc::new(Inner { raw: Some(raw), json, rules: Rules::default(), compiled }))
    }

    /// The schema of what `T` can be read from, as short as it can be said to a model.
    ///
    /// ```
    /// use pegboard_core::schema::Schema;
    /// use serde_json::json;
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Shout {
    ///     /// What to shout
    ///     text: String,
    ///     times: Option<u8>,
    /// }
    /// assert_eq!(
    ///     *Schema::of_input::<Shout>().as_json(),
    ///     json!({
    ///         "type": "object",
    ///         "properties": {
    ///             "text": {"description": "What to shout", "type": "string"},
    ///             "times": {"type": "integer", "minimum": 0, "maximum": 255},
    ///         },
    ///         "required": ["text"],
    ///     })
    /// );
    /// ```
    pub fn of_input<T: JsonSchema + ?Sized>() -> Self {
        Self::new(derive::input::<T>())
    }

    /// The schema of what `T` is written as.
    ///
    /// ```
    /// use pegboard_core::schema::Schema;
    /// assert_eq!(*Schema::of_output::<Vec<f64>>().as_json(), serde_json::json!({"type": "array", "items": {"type": "number"}}));
    /// ```
    pub fn of_output<T: JsonSchema + ?Sized>() -> Self {
        Self::new(derive::output::<T>())
    }

    /// The schema as JSON.
    pub fn as_json(&self) -> &Value {
        let read = || self.0.raw.as_ref().map_or(Value::Null, RawJson::to_value);
        self.0.json.get_or_init(read)
    }

    /// Whether the schema says nothing, so that every value is valid.
    pub fn is_empty(&self) -> bool {
        match self.as_json() {
            Value::Null | Value::Bool(true) => true,
            Value::Object(keywords) => keywords.is_empty(),
            Value::Bool(false) => self.0.rules.dialect == Dialect::Compat,
            Value::Number(_) | Value::String(_) | Value::Array(_) => false,
        }
    }

    /// Whether `data` is valid; the quick question, without reasons.
    pub fn accepts(&self, data: &Value) -> bool {
        match self.compiled() {
            Compiled::Anything | Compiled::Skipped(_) => true,
            Compiled::Refused(_) => false,
            Compiled::Compat => compat::violations(data, self.as_json()).is_empty(),
            Compiled::Full(validator, _) => validator.accepts(data, self.as_json()).unwrap_or(false),
        }
    }

    /// The verdict on `data`, with everything that is wrong.
    pub fn check(&self, data: &Value) -> ValidationResult {
        match self.compiled() {
            Compiled::Anything => ValidationResult::ok(),
            Compiled::Compat => ValidationResult::of(compat::violations(data, self.as_json())),
            Compiled::Skipped(why) => {
                ValidationResult { warnings: vec![why.clone()], ..ValidationResult::ok() }
            }
            Compiled::Refused(why) => ValidationResult::of(vec![Violation::plain(format!("$: {why}"))]),
            Compiled::Full(validator, remarks) => {
                let mut verdict = match validator.accepts(data, self.as_json()) {
                    Ok(true) => ValidationResult::ok(),
                    Ok(false) => ValidationResult::of(validator.violations(data, self.as_json())),
                    Err(TooCostly) => ValidationResult::of(vec![Violation::plain(
                        "$: the value is too large or nests too deep to be checked against its schema",
                    )]),
                };
                verdict.warnings.extend_from_slice(remarks);
                verdict
            }
        }
    }

    /// Why nothing is checked against this schema, if nothing is.
    pub fn problem(&self) -> Option<&str> {
        match self.compiled() {
            Compiled::Skipped(why) | Compiled::Refused(why) => Some(why),
            Compiled::Anything | Compiled::Compat | Compiled::Full(..) => None,
        }
    }

    fn compiled(&self) -> &Compiled {
        self.0.compiled.get_or_init(|| Box::new(self.compile()))
    }

    fn compile(&self) -> Compiled {
        if self.is_empty() {
            return Compiled::Anything;
        }
        let (json, rules) = (self.as_json(), &self.0.rules);
        let compiled = budget::examine(json).and_then(|budget| match rules.dialect {
            Dialect::Compat => Ok(Compiled::Compat),
            Dialect::JsonSchema => full::compile(json, *rules, budget)
                .map(|(validator, remarks)| Compiled::Full(validator, remarks)),
        });
        match (compiled, rules.strictness) {
            (Ok(compiled), _) => compiled,
            (Err(why), Strictness::Lenient) => {
                Compiled::Skipped(format!("the schema cannot be used, so nothing was checked: {why}"))
            }
            (Err(why), Strictness::Strict) => Compiled::Refused(format!("the schema is refused: {why}")),
        }
    }
}

impl Default for Schema {
    /// The schema that accepts everything, `{}`. All of them are one.
    fn default() -> Self {
        static ANYTHING: LazyLock<Schema> =
            LazyLock::new(|| Schema::new(Value::Object(serde_json::Map::new())));
        ANYTHING.clone()
    }
}

impl From<Value> for Schema {
    fn from(json: Value) -> Self {
        Self::new(json)
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.as_json() == other.as_json() && self.0.rules == other.0.rules)
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_json().fmt(f)
    }
}

impl Serialize for Schema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_json().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::new)
    }
}

/// The compiled form of a schema that comes as plain JSON, from the store of recently used ones.
pub(crate) fn remembered(json: &Value, rules: Rules) -> Schema {
    static RECENT: LazyLock<Mutex<Recent>> = LazyLock::new(Mutex::default);
    // A panic while the lock was held can only have lost an entry of the store.
    RECENT.lock().unwrap_or_else(PoisonError::into_inner).get(json, rules)
}

/// Compiled schemas by their text, since the order of keywords counts: two generations, so that what is in use
/// survives and the rest goes.
#[derive(Default)]
struct Recent {
    young: HashMap<(String, Rules), Schema>,
    old: HashMap<(String, Rules), Schema>,
}

impl Recent {
    const GENERATION: usize = 512;

    fn get(&mut self, json: &Value, rules: Rules) -> Schema {
        let key = (json.to_string(), rules);
        if let Some(schema) = self.young.get(&key) {
            return schema.clone();
        }
        let schema = self.old.remove(&key).unwrap_or_else(|| Schema::with_rules(json.clone(), rules));
        if self.young.len() >= Self::GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, schema.clone());
        schema
    }
}
