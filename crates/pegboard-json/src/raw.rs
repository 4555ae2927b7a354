//! JSON that passes through as it came: checked once, then only looked into.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::{Buf, Bytes};
use serde::de::{DeserializeOwned, Error as _};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::scan::{self, Malformed};

/// One JSON value as the bytes it was written in. Clones share the bytes.
///
/// ```
/// use pegboard_json::RawJson;
///
/// let raw = RawJson::parse(r#" {"b": 1e2, "a": "x"} "#.into()).unwrap();
/// assert_eq!(raw.as_str(), r#"{"b": 1e2, "a": "x"}"#);
/// assert_eq!(raw.get("b").unwrap().as_str(), "1e2");
/// assert_eq!(raw.with("c", &RawJson::of(&[7])).as_str(), r#"{"b": 1e2, "a": "x","c":[7]}"#);
/// assert_eq!(raw.without("b").as_str(), r#"{"a": "x"}"#);
/// ```
///
/// What is inside stays as a peer wrote it, members that share a name included. Readers differ in which of
/// them they take; where that matters, [`with`](Self::with) and [`without`](Self::without) leave no second
/// one.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RawJson(Bytes);

impl RawJson {
    /// The value that these bytes spell, without the white space around it.
    ///
    /// It may nest as deep as what a message carries: one level less than [`MAX_DEPTH`](crate::MAX_DEPTH).
    pub fn parse(bytes: Bytes) -> Result<Self, Malformed> {
        let span = scan::whole(&bytes, scan::MAX_DEPTH - 1)?;
        Ok(Self::cut_out(bytes, span))
    }

    /// The value that these bytes begin with, whatever follows it.
    ///
    /// ```
    /// use pegboard_json::RawJson;
    ///
    /// let first = RawJson::parse_first("[1, 2] and that is all".into()).unwrap();
    /// assert_eq!(first.as_str(), "[1, 2]");
    /// ```
    pub fn parse_first(bytes: Bytes) -> Result<Self, Malformed> {
        let span = scan::Scanner::new(&bytes, scan::MAX_DEPTH - 1)?.value()?;
        Ok(Self::cut_out(bytes, span))
    }

    fn cut_out(mut bytes: Bytes, span: Range<usize>) -> Self {
        bytes.truncate(span.end);
        bytes.advance(span.start);
        Self(bytes)
    }

    /// A value made here.
    ///
    /// # Panics
    /// If `value` cannot be written as JSON, which only a map with keys that are no strings cannot.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Self {
        Self(serde_json::to_vec(value).expect("plain data can be written as JSON").into())
    }

    /// Bytes that are known to be one JSON value.
    pub fn trusted(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The empty object.
    pub fn empty_object() -> Self {
        Self(Bytes::from_static(b"{}"))
    }

    /// The text of the value.
    #[expect(clippy::missing_panics_doc, reason = "every value was checked when it was made")]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("checked when it was made")
    }

    /// The bytes of the value.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes of the value, to be kept.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        self.0.first() == Some(&b'{')
    }

    /// A member of an object; `None` if it is no object or has no such member.
    ///
    /// If several members have the name, it is the first of them.
    pub fn get(&self, name: &str) -> Option<Self> {
        let (_, value) = scan::members(&self.0).find(|(key, _)| scan::spells(&self.0[key.clone()], name))?;
        Some(Self(self.0.slice(value)))
    }

    /// What is under `path`, member by member.
    pub fn at(&self, path: &[&str]) -> Option<Self> {
        path.iter().try_fold(self.clone(), |value, name| value.get(name))
    }

    /// The names of an object's members, in order; without those that are no text (half of a surrogate pair).
    pub fn names(&self) -> Vec<String> {
        scan::members(&self.0).filter_map(|(key, _)| serde_json::from_slice(&self.0[key]).ok()).collect()
    }

    /// An object's members, in order, each with its name; without those whose names are no text.
    ///
    /// Who needs them all asks here, since [`RawJson::get`] goes through the object for each.
    pub fn members(&self) -> impl Iterator<Item = (String, Self)> {
        let member = |(key, value): (Range<usize>, Range<usize>)| {
            let name = serde_json::from_slice(&self.0[key]).ok()?;
            Some((name, Self(self.0.slice(value))))
        };
        scan::members(&self.0).filter_map(member)
    }

    /// The items of an array, in order; none if it is no array.
    pub fn items(&self) -> impl Iterator<Item = Self> {
        scan::items(&self.0).map(|item| Self(self.0.slice(item)))
    }

    /// The text of a JSON string; `None` if it is none.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        scan::said(&self.0)
    }

    /// The value as `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.0)
    }

    /// The value as a tree; null if no tree can hold it, as with `1e999` or half of a surrogate pair.
    pub fn to_value(&self) -> Value {
        self.read().unwrap_or_default()
    }

    /// The object with a member set; everything else stays as it was written. What is no object becomes one.
    ///
    /// If several members have the name, one is left, so that every reader sees the new value.
    #[must_use]
    pub fn with(&self, name: &str, value: &Self) -> Self {
        if !self.is_object() {
            return Self::empty_object().with(name, value);
        }
        let mut edit = Edit::new(&self.0, name.len() + value.0.len() + 4);
        let mut is_set = false;
        for (key, span) in scan::members(&self.0) {
            if !scan::spells(&self.0[key.clone()], name) {
                edit.keep(span);
            } else if is_set {
                edit.cut(key, span);
            } else {
                edit.replace(span, &value.0);
                is_set = true;
            }
        }
        if !is_set {
            edit.append(name, &value.0);
        }
        edit.finish()
    }

    /// The object without any member of that name; everything else stays as it was written.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        let is_meant = |key: &Range<usize>| scan::spells(&self.0[key.clone()], name);
        if !scan::members(&self.0).any(|(key, _)| is_meant(&key)) {
            return self.clone();
        }
        let mut edit = Edit::new(&self.0, 0);
        for (key, span) in scan::members(&self.0) {
            if is_meant(&key) {
                edit.cut(key, span);
            } else {
                edit.keep(span);
            }
        }
        edit.finish()
    }
}

/// An object on its way to another spelling: its members are given in order, the text between them follows.
struct Edit<'a> {
    object: &'a [u8],
    text: Vec<u8>,
    /// How much of the object is in the text already, or left out of it.
    done: usize,
    /// The end of the last member that stays.
    kept: Option<usize>,
}

impl<'a> Edit<'a> {
    fn new(object: &'a [u8], growth: usize) -> Self {
        Self { object, text: Vec::with_capacity(object.len() + growth), done: 0, kept: None }
    }

    fn keep(&mut self, value: Range<usize>) {
        self.kept = Some(value.end);
    }

    fn replace(&mut self, old: Range<usize>, new: &[u8]) {
        self.copy_until(old.start);
        self.text.extend_from_slice(new);
        self.done = old.end;
        self.kept = Some(old.end);
    }

    /// Leaves a member out, with the comma before it, or the one after it if it is the first.
    fn cut(&mut self, key: Range<usize>, value: Range<usize>) {
        if let Some(end) = self.kept {
            self.copy_until(end);
            self.done = value.end;
        } else {
            self.copy_until(key.start);
            self.done = scan::next(self.object, value.end);
        }
    }

    fn append(&mut self, name: &str, value: &[u8]) {
        self.copy_until(self.object.len() - 1);
        if self.kept.is_some() {
            self.text.push(b',');
        }
        self.text.extend_from_slice(&RawJson::of(name).0);
        self.text.push(b':');
        self.text.extend_from_slice(value);
    }

    fn copy_until(&mut self, end: usize) {
        self.text.extend_from_slice(self.object.get(self.done..end).unwrap_or_default());
        self.done = self.done.max(end);
    }

    fn finish(mut self) -> RawJson {
        self.copy_until(self.object.len());
        RawJson(self.text.into())
    }
}

impl From<Value> for RawJson {
    fn from(value: Value) -> Self {
        Self::of(&value)
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// As it is written; for JSON only.
impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_slice::<&RawValue>(&self.0).map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// As it is written; from JSON only.
impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(Box::<str>::from(raw).into_boxed_bytes().into()).map_err(D::Error::custom)
    }
}
