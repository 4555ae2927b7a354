//! Why a value cannot be what it should be.

use std::fmt;

use serde::de::{Error, Expected, Unexpected};

use crate::path::Step;

/// Something wrong with a value, and the way to it.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) what: What,
    /// From the value outwards.
    steps: Vec<Step>,
}

#[derive(Debug)]
pub(crate) enum What {
    /// There is no such key here.
    UnknownKey { key: String, known: &'static [&'static str] },
    /// Only some words may stand here.
    UnknownWord { word: String, known: &'static [&'static str] },
    /// A key that must be there is not.
    Missing { key: &'static str },
    /// The same setting under two of its names.
    Twice { key: &'static str },
    /// Anything else.
    Wrong { message: String },
}

impl Fault {
    pub(super) fn new(what: What) -> Self {
        Self { what, steps: Vec::new() }
    }

    pub(super) fn inside(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// A fault of the key that was read last, if it is one of a key at all and has no place yet.
    pub(super) fn of_key(self, key: Option<&str>) -> Self {
        match (&self.what, key) {
            (What::Twice { .. }, Some(key)) if self.steps.is_empty() => {
                self.inside(Step::Key(key.to_owned()))
            }
            _ => self,
        }
    }

    /// The way to the value from where the reading began.
    pub(crate) fn steps(&self) -> Vec<Step> {
        self.steps.iter().rev().cloned().collect()
    }

    pub(crate) fn is_of_key(&self) -> bool {
        matches!(self.what, What::UnknownKey { .. } | What::Twice { .. })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::UnknownKey { .. } => f.write_str("unknown setting"),
            What::UnknownWord { word, known } => {
                write!(f, "'{word}' is none of {}", known.join(", "))
            }
            What::Missing { key } => write!(f, "'{key}' is missing"),
            What::Twice { key } => write!(f, "'{key}' is set twice, by two of its names"),
            What::Wrong { message } => f.write_str(message),
        }
    }
}

impl std::error::Error for Fault {}

impl Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(What::Wrong { message: message.to_string() })
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let message = format!("expected {}, not {}", plain(expected), kind(&unexpected));
        Self::new(What::Wrong { message })
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match unexpected {
            Unexpected::Unsigned(number) => number.to_string(),
            Unexpected::Signed(number) => number.to_string(),
            Unexpected::Float(number) => number.to_string(),
            other => kind(&other).to_owned(),
        };
        Self::new(What::Wrong { message: format!("expected {}, not {found}", plain(expected)) })
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        Self::new(What::UnknownWord { word: word.chars().take(40).collect(), known })
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Self::new(What::UnknownKey { key: key.to_owned(), known })
    }

    fn missing_field(key: &'static str) -> Self {
        Self::new(What::Missing { key })
    }

    fn duplicate_field(key: &'static str) -> Self {
        Self::new(What::Twice { key })
    }
}

/// What was there, without the value itself, which may be a secret.
fn kind(unexpected: &Unexpected<'_>) -> &'static str {
    match unexpected {
        Unexpected::Bool(_) => "true or false",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) => "a number",
        Unexpected::Char(_) | Unexpected::Str(_) => "a text",
        Unexpected::Unit | Unexpected::Option => "nothing",
        Unexpected::Seq => "a list",
        Unexpected::Map => "an object",
        _ => "this",
    }
}

/// What should have been there, in a person's words.
fn plain(expected: &dyn Expected) -> String {
    let expected = expected.to_string();
    match expected.as_str() {
        "a string" | "a borrowed string" => "a text".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0 on".to_owned(),
        "i8" | "i16" | "i32" | "i64" => "a whole number".to_owned(),
        "f64" => "a number".to_owned(),
        other if other.starts_with("struct ") => "an object".to_owned(),
        _ => expected,
    }
}
