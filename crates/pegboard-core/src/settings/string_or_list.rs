//! Deserialization of a string or a list of strings.

use std::fmt;

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Deserializer;
use serde::de::{SeqAccess, Visitor};

/// Deserializes a string, or a list of strings.
pub fn strings<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    deserializer.deserialize_any(StringOrListVisitor("a string, or a list of strings"))
}

/// Deserializes a command, or a list of a command and its arguments.
pub fn command<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    deserializer.deserialize_any(StringOrListVisitor("a command, or a list of a command and its arguments"))
}

/// Schema for both.
pub fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["string", "array", "null"], "items": {"type": "string"}})
}

/// Visitor with a description of the expected input.
struct StringOrListVisitor(&'static str);

impl<'de> Visitor<'de> for StringOrListVisitor {
    type Value = Option<Vec<String>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(vec![text.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut strings = Vec::new();
        while let Some(text) = list.next_element()? {
            strings.push(text);
        }
        Ok(Some(strings))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}
