//! JSON Schemas, their validation rules and compiled form.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

use parking_lot::Mutex;
use pegboard_json::RawJson;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::validation::{ValidationResult, Violation};
use dry_run::BudgetExceeded;

mod budget;
mod compat;
mod compilation;
mod derive;
mod dry_run;
mod full;
mod literal;
mod patterns;
mod report;
mod steps;
mod validator_memory;
mod vocabulary;

/// A schema and its validation rules, compiled at first use and shared by its clones.
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
pub struct Schema(Arc<SchemaInner>);

struct SchemaInner {
    /// Schema text from a peer, if it came as such; parsed at first use.
    raw: Option<RawJson>,
    json: OnceLock<Value>,
    rules: SchemaRules,
    /// Boxed, since most schemas are never compiled.
    compiled: OnceLock<Box<Compiled>>,
}

/// Compiled form of a schema.
enum Compiled {
    /// No constraints.
    Anything,
    /// Compat validation works on the schema itself.
    Compat,
    /// Full JSON Schema, with a warning for each part that was dropped.
    Full(full::Validator, Vec<String>),
    /// Unusable schema: nothing is validated.
    Skipped(String),
    /// Unusable schema under strict rules: every value is rejected.
    Rejected(String),
}

/// Validation rules of a schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SchemaRules {
    /// Supported keywords and their meaning.
    pub dialect: SchemaDialect,
    /// Validation of `format`.
    pub formats: FormatChecks,
    /// Treatment of unsupported schemas.
    pub strictness: SchemaStrictness,
}

/// Supported keywords and their meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SchemaDialect {
    /// JSON Schema, draft-07 to 2020-12.
    #[default]
    JsonSchema,
    /// Twelve keywords with Python's type semantics: `true` is an integer, `1.0` is not, and unknown type
    /// names are ignored.
    Compat,
}

/// Validation of `format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FormatChecks {
    /// A value that does not match its format is invalid.
    #[default]
    Assert,
    /// `format` is an annotation only.
    Ignore,
}

/// Treatment of unsupported schemas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SchemaStrictness {
    /// Unknown keywords and formats are ignored; a schema that does not compile produces a warning.
    #[default]
    Lenient,
    /// Unknown keywords and formats, and schemas that do not compile, reject every value.
    Strict,
}

impl SchemaRules {
    /// Compat rules: see [`SchemaDialect::Compat`].
    pub const COMPAT: Self = Self {
        dialect: SchemaDialect::Compat,
        formats: FormatChecks::Ignore,
        strictness: SchemaStrictness::Lenient,
    };
}

impl Schema {
    /// Creates a schema with default rules.
    pub fn new(json: Value) -> Self {
        Self::with_rules(json, SchemaRules::default())
    }

    /// Creates a schema with these rules.
    ///
    /// ```
    /// use pegboard_core::schema::{SchemaRules, Schema};
    /// use serde_json::json;
    ///
    /// let loose = Schema::with_rules(json!({"type": "integer"}), SchemaRules::COMPAT);
    /// assert!(loose.accepts(&json!(true)));
    /// assert_eq!(loose.check(&json!("7")).errors, ["$: expected type integer, got str"]);
    /// ```
    pub fn with_rules(json: Value, rules: SchemaRules) -> Self {
        Self(Arc::new(SchemaInner { raw: None, json: json.into(), rules, compiled: OnceLock::new() }))
    }

    /// Creates a schema from the text of a peer. It is parsed at first use, to save memory for large numbers
    /// of unused schemas.
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
        Self(Arc::new(SchemaInner { raw: Some(raw), json, rules: SchemaRules::default(), compiled }))
    }

    /// Derives the schema of the input of `T`, in a compact form for models.
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

    /// Derives the schema of the serialized form of `T`.
    ///
    /// ```
    /// use pegboard_core::schema::Schema;
    /// assert_eq!(*Schema::of_output::<Vec<f64>>().as_json(), serde_json::json!({"type": "array", "items": {"type": "number"}}));
    /// ```
    pub fn of_output<T: JsonSchema + ?Sized>() -> Self {
        Self::new(derive::output::<T>())
    }

    /// Returns the schema as JSON.
    pub fn as_json(&self) -> &Value {
        let read = || self.0.raw.as_ref().map_or(Value::Null, RawJson::to_value);
        self.0.json.get_or_init(read)
    }

    /// Returns `true` if the schema has no constraints.
    pub fn is_empty(&self) -> bool {
        match self.as_json() {
            Value::Null | Value::Bool(true) => true,
            Value::Object(keywords) => keywords.is_empty(),
            Value::Bool(false) => self.0.rules.dialect == SchemaDialect::Compat,
            Value::Number(_) | Value::String(_) | Value::Array(_) => false,
        }
    }

    /// Returns `true` if `data` is valid; faster than [`check`](Self::check).
    pub fn accepts(&self, data: &Value) -> bool {
        match self.compiled() {
            Compiled::Anything | Compiled::Skipped(_) => true,
            Compiled::Rejected(_) => false,
            Compiled::Compat => compat::violations(data, self.as_json()).is_empty(),
            Compiled::Full(validator, _) => validator.accepts(data, self.as_json()).unwrap_or(false),
        }
    }

    /// Returns `true` if [`check`](Self::check) may take more than a few milliseconds, so that it should not run on a
    /// thread that serves others.
    pub fn is_costly(&self, data: &Value) -> bool {
        if self.0.compiled.get().is_none() && self.is_costly_to_compile() {
            return true;
        }
        match self.compiled() {
            Compiled::Full(validator, _) => validator.is_costly(data, self.as_json()),
            Compiled::Anything | Compiled::Skipped(_) | Compiled::Rejected(_) | Compiled::Compat => false,
        }
    }

    /// Returns `true` if the schema has been compiled.
    pub(crate) fn is_compiled(&self) -> bool {
        self.0.compiled.get().is_some()
    }

    /// Returns `true` if it may take more than a few milliseconds to compile the schema.
    pub(crate) fn is_costly_to_compile(&self) -> bool {
        let is_large = |raw: &RawJson| raw.as_bytes().len() > compilation::MAX_CHEAP_BYTES;
        self.0.raw.as_ref().is_some_and(is_large) || compilation::is_costly(self.as_json())
    }

    /// Validates `data` and returns all violations.
    pub fn check(&self, data: &Value) -> ValidationResult {
        match self.compiled() {
            Compiled::Anything => ValidationResult::ok(),
            Compiled::Compat => ValidationResult::of(compat::violations(data, self.as_json())),
            Compiled::Skipped(why) => {
                ValidationResult { warnings: vec![why.clone()], ..ValidationResult::ok() }
            }
            Compiled::Rejected(why) => ValidationResult::of(vec![Violation::plain(format!("$: {why}"))]),
            Compiled::Full(validator, warnings) => {
                let mut verdict = match validator.accepts(data, self.as_json()) {
                    Ok(true) => ValidationResult::ok(),
                    Ok(false) => ValidationResult::of(validator.violations(data, self.as_json())),
                    Err(BudgetExceeded) => ValidationResult::of(vec![Violation::plain(
                        "$: the value is too large or too deeply nested to be validated against its schema",
                    )]),
                };
                verdict.warnings.extend_from_slice(warnings);
                verdict
            }
        }
    }

    /// Returns the reason why the schema cannot be used, if it cannot.
    pub fn problem(&self) -> Option<&str> {
        match self.compiled() {
            Compiled::Skipped(why) | Compiled::Rejected(why) => Some(why),
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
        let compiled = budget::analyze(json).and_then(|analyzed| match rules.dialect {
            SchemaDialect::Compat => Ok(Compiled::Compat),
            SchemaDialect::JsonSchema => full::compile(json, *rules, analyzed)
                .map(|(validator, warnings)| Compiled::Full(validator, warnings)),
        });
        match (compiled, rules.strictness) {
            (Ok(compiled), _) => compiled,
            (Err(why), SchemaStrictness::Lenient) => {
                Compiled::Skipped(format!("the schema cannot be used, so nothing was validated: {why}"))
            }
            (Err(why), SchemaStrictness::Strict) => {
                Compiled::Rejected(format!("the schema is rejected: {why}"))
            }
        }
    }
}

impl Default for Schema {
    /// Returns the shared schema that accepts everything, `{}`.
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

/// Returns the compiled form of a plain JSON schema from the cache of recently used ones.
pub(crate) fn cached(json: &Value, rules: SchemaRules) -> Schema {
    static CACHE: LazyLock<Mutex<SchemaCache>> = LazyLock::new(Mutex::default);
    // A panic under the lock can only lose a cache entry.
    CACHE.lock().get(json, rules)
}

/// Cache of compiled schemas by text, since the order of keywords matters. Has two generations, so that
/// entries in use survive and the others are dropped.
#[derive(Default)]
struct SchemaCache {
    young: HashMap<(String, SchemaRules), Schema>,
    old: HashMap<(String, SchemaRules), Schema>,
}

impl SchemaCache {
    const GENERATION_SIZE: usize = 512;

    fn get(&mut self, json: &Value, rules: SchemaRules) -> Schema {
        let key = (json.to_string(), rules);
        if let Some(schema) = self.young.get(&key) {
            return schema.clone();
        }
        let schema = self.old.remove(&key).unwrap_or_else(|| Schema::with_rules(json.clone(), rules));
        if self.young.len() >= Self::GENERATION_SIZE {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, schema.clone());
        schema
    }
}
