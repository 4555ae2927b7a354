//! Validation of values against schemas.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::schema::{self, SchemaRules};

/// Result of validating a value against a schema.
///
/// ```
/// use pegboard_core::validation::validate_input;
/// use serde_json::json;
///
/// let schema = json!({"type": "object", "required": ["name"]});
/// let verdict = validate_input(&json!({}), &schema);
/// assert!(!verdict.valid);
/// assert_eq!(verdict.errors, ["$.name: required field missing"]);
/// assert_eq!(serde_json::to_value(&verdict).unwrap(), json!({"valid": false, "errors": ["$.name: required field missing"]}));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ValidationResult {
    /// `true` if the value passed every check.
    pub valid: bool,
    /// All violations, in the order of the schema.
    pub errors: Vec<Violation>,
    /// Warnings about parts that could not be validated, for example a schema that does not compile.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl ValidationResult {
    /// Returns a result without violations.
    pub fn ok() -> Self {
        Self { valid: true, errors: Vec::new(), warnings: Vec::new() }
    }

    /// Creates a result from violations; valid if there are none.
    pub fn of(errors: Vec<Violation>) -> Self {
        Self { valid: errors.is_empty(), errors, warnings: Vec::new() }
    }

    /// Combines two results: valid if both are, with the violations of `self` first.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        Self {
            valid: self.valid && other.valid,
            errors: [self.errors.as_slice(), &other.errors].concat(),
            warnings: [self.warnings.as_slice(), &other.warnings].concat(),
        }
    }
}

impl Default for ValidationResult {
    fn default() -> Self {
        Self::ok()
    }
}

/// A violation of a schema.
///
/// The text is for the sender of the value and may quote it. Logs get [`masked`](Self::masked): `Debug`
/// prints only that, and there is no `Display`, so a value cannot leak into a log by accident.
///
/// ```
/// use pegboard_core::validation::validate_input;
/// use serde_json::json;
///
/// let verdict = validate_input(&json!("hunter2"), &json!({"enum": ["red", "green"]}));
/// assert_eq!(verdict.errors[0].text(), "$: value 'hunter2' not in enum ['red', 'green']");
/// assert_eq!(format!("{:?}", verdict.errors[0]), "$: value not in enum ['red', 'green']");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Violation {
    text: String,
    masked: String,
}

impl Violation {
    /// Creates a violation with a `text` that may quote the value and a `masked` form that does not.
    pub fn new(text: impl Into<String>, masked: impl Into<String>) -> Self {
        Self { text: text.into(), masked: masked.into() }
    }

    /// Creates a violation with a text that does not quote the value.
    pub fn plain(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { masked: text.clone(), text }
    }

    /// Returns the full message, for the sender of the value.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the message without the value, for logs.
    pub fn masked(&self) -> &str {
        &self.masked
    }
}

impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked)
    }
}

impl PartialEq<&str> for Violation {
    fn eq(&self, other: &&str) -> bool {
        self.text == *other
    }
}

impl Serialize for Violation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// Validates the input of a tool.
///
/// The schema is full JSON Schema (draft-07 to 2020-12); it is compiled once and cached. An empty or `null`
/// schema accepts everything, and one that does not compile produces a warning.
///
/// ```
/// use pegboard_core::validation::validate_input;
/// use serde_json::json;
///
/// let schema = json!({"properties": {"user": {"required": ["id"], "properties": {"name": {"type": "string"}}}}});
/// let verdict = validate_input(&json!({"user": {"name": 7}}), &schema);
/// assert_eq!(verdict.errors, ["$.user.id: required field missing", "$.user.name: expected type string, got integer"]);
/// ```
pub fn validate_input(data: &Value, schema: &Value) -> ValidationResult {
    schema::cached(schema, SchemaRules::default()).check(data)
}

/// Validates the output of a tool, by the same rules as [`validate_input`].
///
/// ```
/// use pegboard_core::validation::validate_output;
/// use serde_json::json;
///
/// assert!(validate_output(&json!([1, 2]), &json!({"items": {"type": "integer"}})).valid);
/// ```
pub fn validate_output(data: &Value, schema: &Value) -> ValidationResult {
    schema::cached(schema, SchemaRules::default()).check(data)
}
