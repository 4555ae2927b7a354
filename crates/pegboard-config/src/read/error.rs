//! Deserialization errors with the path of the invalid value.

use std::fmt;

use serde::de::{Error, Expected, Unexpected};

use crate::path::KeySegment;

/// An invalid value and its path.
#[derive(Debug)]
pub(crate) struct DeserializeError {
    pub(crate) kind: DeserializeErrorKind,
    /// Segments from the value outwards.
    segments: Vec<KeySegment>,
}

#[derive(Debug)]
pub(crate) enum DeserializeErrorKind {
    /// The key is unknown.
    UnknownKey { key: String, known: &'static [&'static str] },
    /// The enum variant is unknown.
    UnknownVariant { word: String, known: &'static [&'static str] },
    /// A required key is missing.
    MissingField { key: &'static str },
    /// A setting occurs under two of its names.
    DuplicateField { key: &'static str },
    /// Any other error.
    Custom { message: String },
}

impl DeserializeError {
    pub(super) fn new(kind: DeserializeErrorKind) -> Self {
        Self { kind, segments: Vec::new() }
    }

    pub(super) fn inside(mut self, segment: KeySegment) -> Self {
        self.segments.push(segment);
        self
    }

    /// Attaches the last read key to a duplicate-field error that has no path yet.
    pub(super) fn of_key(self, key: Option<&str>) -> Self {
        match (&self.kind, key) {
            (DeserializeErrorKind::DuplicateField { .. }, Some(key)) if self.segments.is_empty() => {
                self.inside(KeySegment::Key(key.to_owned()))
            }
            _ => self,
        }
    }

    /// Returns the path of the value.
    pub(crate) fn segments(&self) -> Vec<KeySegment> {
        self.segments.iter().rev().cloned().collect()
    }

    pub(crate) fn is_of_key(&self) -> bool {
        matches!(
            self.kind,
            DeserializeErrorKind::UnknownKey { .. } | DeserializeErrorKind::DuplicateField { .. }
        )
    }
}

impl fmt::Display for DeserializeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            DeserializeErrorKind::UnknownKey { .. } => f.write_str("unknown setting"),
            DeserializeErrorKind::UnknownVariant { word, known } => {
                write!(f, "unknown value '{word}', expected one of {}", known.join(", "))
            }
            DeserializeErrorKind::MissingField { key } => write!(f, "'{key}' is missing"),
            DeserializeErrorKind::DuplicateField { key } => {
                write!(f, "'{key}' is set twice, under two of its names")
            }
            DeserializeErrorKind::Custom { message } => f.write_str(message),
        }
    }
}

impl std::error::Error for DeserializeError {}

impl Error for DeserializeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(DeserializeErrorKind::Custom { message: message.to_string() })
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let message = format!("expected {}, not {}", describe_expected(expected), kind(&unexpected));
        Self::new(DeserializeErrorKind::Custom { message })
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match unexpected {
            Unexpected::Unsigned(number) => number.to_string(),
            Unexpected::Signed(number) => number.to_string(),
            Unexpected::Float(number) => number.to_string(),
            other => kind(&other).to_owned(),
        };
        Self::new(DeserializeErrorKind::Custom {
            message: format!("expected {}, not {found}", describe_expected(expected)),
        })
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        Self::new(DeserializeErrorKind::UnknownVariant { word: word.chars().take(40).collect(), known })
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Self::new(DeserializeErrorKind::UnknownKey { key: key.to_owned(), known })
    }

    fn missing_field(key: &'static str) -> Self {
        Self::new(DeserializeErrorKind::MissingField { key })
    }

    fn duplicate_field(key: &'static str) -> Self {
        Self::new(DeserializeErrorKind::DuplicateField { key })
    }
}

/// Describes the found type, without the value, which may be a secret.
fn kind(unexpected: &Unexpected<'_>) -> &'static str {
    match unexpected {
        Unexpected::Bool(_) => "a boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) => "a number",
        Unexpected::Char(_) | Unexpected::Str(_) => "a string",
        Unexpected::Unit | Unexpected::Option => "null",
        Unexpected::Seq => "a list",
        Unexpected::Map => "an object",
        _ => "this",
    }
}

/// Describes the expected type.
fn describe_expected(expected: &dyn Expected) -> String {
    let expected = expected.to_string();
    match expected.as_str() {
        "a string" | "a borrowed string" => "a string".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "usize" => "a non-negative integer".to_owned(),
        "i8" | "i16" | "i32" | "i64" => "an integer".to_owned(),
        "f64" => "a number".to_owned(),
        other if other.starts_with("struct ") => "an object".to_owned(),
        _ => expected,
    }
}
