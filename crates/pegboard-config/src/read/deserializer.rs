//! Reads typed data out of a tree, and knows where it is when something is wrong.

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::fault::Fault;
use crate::path::Step;
use crate::tree::yaml::plain;
use crate::tree::{Entry, Node, Origin, Value};

/// A value that is to be read.
#[derive(Clone, Copy)]
pub(super) struct Reading<'n>(pub(super) &'n Node);

impl Reading<'_> {
    /// Reads a number, or true or false. A variable is always a text, so it will do if it looks like one.
    fn read_plain<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if let (Value::Text(text), Origin::Default | Origin::Secret) = (&self.0.value, self.0.origin) {
            let meant = Node { value: plain(text.trim()), ..self.0.clone() };
            if matches!(meant.value, Value::Bool(_) | Value::Number(_)) {
                return Reading(&meant).deserialize_any(visitor);
            }
        }
        self.deserialize_any(visitor)
    }
}

/// Expands to a method for each kind of plain value.
macro_rules! plain_values {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            self.read_plain(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for Reading<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
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
                let is_there = |(_, item): &(usize, &Node)| item.origin != Origin::LeftOut;
                visitor.visit_seq(Items { items: items.iter().enumerate().filter(is_there) })
            }
            Value::Map(entries) => {
                let mut access = Entries { rest: entries.iter(), current: None };
                visitor
                    .visit_map(&mut access)
                    .map_err(|fault| fault.of_key(access.current.map(|entry| entry.key.as_str())))
            }
        }
    }

    plain_values! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8
        deserialize_u16 deserialize_u32 deserialize_u64 deserialize_f32 deserialize_f64
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    /// Only an object will do: settings have names.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.0.value {
            Value::Map(_) => self.deserialize_any(visitor),
            _ => Err(Fault::custom(format_args!("expected an object, not {}", self.0.kind()))),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match &self.0.value {
            Value::Text(word) => visitor.visit_enum(Word(word)),
            _ => Err(Fault::custom(format_args!(
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

struct Items<I> {
    items: I,
}

impl<'de, 'n, I: Iterator<Item = (usize, &'n Node)>> SeqAccess<'de> for Items<I> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        let Some((index, item)) = self.items.next() else { return Ok(None) };
        seed.deserialize(Reading(item)).map(Some).map_err(|fault| fault.inside(Step::Index(index)))
    }
}

struct Entries<'n> {
    rest: std::slice::Iter<'n, Entry>,
    current: Option<&'n Entry>,
}

impl<'de> MapAccess<'de> for &mut Entries<'_> {
    type Error = Fault;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        self.current = self.rest.next();
        let Some(entry) = self.current else { return Ok(None) };
        let key: StrDeserializer<'_, Fault> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some).map_err(|fault| fault.inside(Step::Key(entry.key.clone())))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let entry = self.current.ok_or_else(|| Fault::custom("a value was asked for before its key"))?;
        seed.deserialize(Reading(&entry.value)).map_err(|fault| fault.inside(Step::Key(entry.key.clone())))
    }
}

/// A word out of a few.
struct Word<'n>(&'n str);

impl<'de> EnumAccess<'de> for Word<'_> {
    type Error = Fault;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Fault> {
        let word: StrDeserializer<'_, Fault> = self.0.into_deserializer();
        seed.deserialize(word).map(|value| (value, self))
    }
}

impl<'de> VariantAccess<'de> for Word<'_> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, _seed: S) -> Result<S::Value, Fault> {
        Err(Fault::invalid_type(Unexpected::Str(self.0), &"an object"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _length: usize, _visitor: V) -> Result<V::Value, Fault> {
        Err(Fault::invalid_type(Unexpected::Str(self.0), &"a list"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Fault> {
        Err(Fault::invalid_type(Unexpected::Str(self.0), &"an object"))
    }
}

/// What a type's settings are called, aliases too.
pub(crate) fn field_names<'de, T: serde::Deserialize<'de>>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // It never succeeds: it only listens to what is asked for.
    let _ = T::deserialize(Names(&mut names));
    names
}

struct Names<'n>(&'n mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Self::Error> {
        Err(Error::custom("only the names of the settings are asked for"))
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
