//! A deserializer for trees that tracks the path of errors.

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::error::DeserializeError;
use crate::path::KeySegment;
use crate::tree::{Node, TreeEntry, Value, ValueOrigin};

/// Deserializes a node.
#[derive(Clone, Copy)]
pub(super) struct NodeDeserializer<'n>(pub(super) &'n Node);

impl NodeDeserializer<'_> {
    /// Reads a number or boolean. An expanded variable is always a text, so it is parsed if it looks like
    /// one.
    fn read_scalar<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        if let (Value::Text(text), ValueOrigin::Default | ValueOrigin::Secret) =
            (&self.0.value, self.0.origin)
        {
            let meant = Node { value: pegboard_yaml::plain_scalar(text.trim()).into(), ..self.0.clone() };
            if matches!(meant.value, Value::Bool(_) | Value::Number(_)) {
                return NodeDeserializer(&meant).deserialize_any(visitor);
            }
        }
        self.deserialize_any(visitor)
    }
}

/// Expands to one method per scalar type.
macro_rules! scalar_values {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
            self.read_scalar(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for NodeDeserializer<'_> {
    type Error = DeserializeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        match &self.0.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => {
                if let Some(number) = number.as_u64() {
                    visitor.visit_u64(number)
                } else if let Some(number) = number.as_i64() {
                    visitor.visit_i64(number)
                } else {
                    visitor.visit_f64(number.as_f64().unwrap_or(f64::INFINITY))
                }
            }
            Value::Text(text) => visitor.visit_str(text),
            Value::List(items) => {
                let is_there = |(_, item): &(usize, &Node)| item.origin != ValueOrigin::LeftOut;
                visitor.visit_seq(SeqItems { items: items.iter().enumerate().filter(is_there) })
            }
            Value::Map(entries) => {
                let mut access = MapEntries { rest: entries.iter(), current: None };
                visitor
                    .visit_map(&mut access)
                    .map_err(|error| error.of_key(access.current.map(|entry| entry.key.as_str())))
            }
        }
    }

    scalar_values! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8
        deserialize_u16 deserialize_u32 deserialize_u64 deserialize_f32 deserialize_f64
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        match self.0.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        visitor.visit_newtype_struct(self)
    }

    /// Accepts only objects: settings have names.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        match self.0.value {
            Value::Map(_) => self.deserialize_any(visitor),
            _ => Err(DeserializeError::custom(format_args!("expected an object, not {}", self.0.kind()))),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        match &self.0.value {
            Value::Text(word) => visitor.visit_enum(VariantName(word)),
            _ => Err(DeserializeError::custom(format_args!(
                "expected one of {}, not {}",
                variants.join(", "),
                self.0.kind()
            ))),
        }
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

struct SeqItems<I> {
    items: I,
}

impl<'de, 'n, I: Iterator<Item = (usize, &'n Node)>> SeqAccess<'de> for SeqItems<I> {
    type Error = DeserializeError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, DeserializeError> {
        let Some((index, item)) = self.items.next() else { return Ok(None) };
        seed.deserialize(NodeDeserializer(item))
            .map(Some)
            .map_err(|error| error.inside(KeySegment::Index(index)))
    }
}

struct MapEntries<'n> {
    rest: std::slice::Iter<'n, TreeEntry>,
    current: Option<&'n TreeEntry>,
}

impl<'de> MapAccess<'de> for &mut MapEntries<'_> {
    type Error = DeserializeError;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, DeserializeError> {
        self.current = self.rest.next();
        let Some(entry) = self.current else { return Ok(None) };
        let key: StrDeserializer<'_, DeserializeError> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some).map_err(|error| error.inside(KeySegment::Key(entry.key.clone())))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, DeserializeError> {
        let entry = self.current.ok_or_else(|| DeserializeError::custom("value requested before its key"))?;
        seed.deserialize(NodeDeserializer(&entry.value))
            .map_err(|error| error.inside(KeySegment::Key(entry.key.clone())))
    }
}

/// The name of an enum variant.
struct VariantName<'n>(&'n str);

impl<'de> EnumAccess<'de> for VariantName<'_> {
    type Error = DeserializeError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), DeserializeError> {
        let word: StrDeserializer<'_, DeserializeError> = self.0.into_deserializer();
        seed.deserialize(word).map(|value| (value, self))
    }
}

impl<'de> VariantAccess<'de> for VariantName<'_> {
    type Error = DeserializeError;

    fn unit_variant(self) -> Result<(), DeserializeError> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, _seed: S) -> Result<S::Value, DeserializeError> {
        Err(DeserializeError::invalid_type(Unexpected::Str(self.0), &"an object"))
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        _length: usize,
        _visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        Err(DeserializeError::invalid_type(Unexpected::Str(self.0), &"a list"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        Err(DeserializeError::invalid_type(Unexpected::Str(self.0), &"an object"))
    }
}

/// Returns the field names of a type, including aliases.
pub(crate) fn field_names<'de, T: serde::Deserialize<'de>>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // It always fails: it only captures the requested fields.
    let _ = T::deserialize(FieldNameCapture(&mut names));
    names
}

struct FieldNameCapture<'n>(&'n mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNameCapture<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Self::Error> {
        Err(Error::custom("only the field names are captured"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map identifier ignored_any option newtype_struct enum
    }
}
