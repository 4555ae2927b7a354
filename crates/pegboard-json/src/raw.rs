//! A JSON value kept as the bytes it was written in.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::de::{DeserializeOwned, Error as _};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::scan::{self, Malformed, MemberSpans};

/// A JSON value as the bytes it was written in. Clones share the bytes.
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
/// Content stays as the peer wrote it, duplicate keys included. Parsers differ in which duplicate they use;
/// where that matters, [`with`](Self::with) and [`without`](Self::without) leave at most one.
#[derive(Clone)]
pub struct RawJson {
    bytes: Bytes,
    /// Positions of all members, if they were recorded when the value was parsed.
    members: Option<Arc<MemberSpans>>,
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for RawJson {}

impl Hash for RawJson {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

impl RawJson {
    /// Parses bytes that hold exactly one value; surrounding white space is dropped.
    ///
    /// The value may nest as deep as the content of a message: one level less than
    /// [`MAX_DEPTH`](crate::MAX_DEPTH).
    pub fn parse(bytes: Bytes) -> Result<Self, Malformed> {
        let span = scan::single_value(&bytes, scan::MAX_DEPTH - 1)?;
        Ok(Self::slice_of(bytes, span))
    }

    /// Parses the value at the start of `bytes`; trailing bytes are ignored.
    ///
    /// ```
    /// use pegboard_json::RawJson;
    ///
    /// let first = RawJson::parse_first("[1, 2] and that is all".into()).unwrap();
    /// assert_eq!(first.as_str(), "[1, 2]");
    /// ```
    pub fn parse_first(bytes: Bytes) -> Result<Self, Malformed> {
        let span = scan::Scanner::new(&bytes, scan::MAX_DEPTH - 1)?.value()?;
        Ok(Self::slice_of(bytes, span))
    }

    fn slice_of(mut bytes: Bytes, span: Range<usize>) -> Self {
        bytes.truncate(span.end);
        bytes.advance(span.start);
        Self::trusted(bytes)
    }

    /// Serializes a value.
    ///
    /// # Panics
    /// If `value` cannot be represented as JSON, which happens only for maps with non-string keys.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Self {
        Self::trusted(serde_json::to_vec(value).expect("plain data can be written as JSON").into())
    }

    /// Wraps bytes that are known to be one JSON value, without validation.
    pub fn trusted(bytes: Bytes) -> Self {
        Self { bytes, members: None }
    }

    /// Wraps an object that was scanned, with the positions of all its members.
    pub fn scanned(bytes: Bytes, members: Option<Arc<MemberSpans>>) -> Self {
        Self { bytes, members }
    }

    /// Returns the empty object.
    pub fn empty_object() -> Self {
        Self::trusted(Bytes::from_static(b"{}"))
    }

    /// Returns an object with these members, and records their positions. The names must be distinct.
    ///
    /// ```
    /// use pegboard_json::RawJson;
    ///
    /// let object = RawJson::object(&[("a", &RawJson::of(&1)), ("b", &RawJson::of("x"))]);
    /// assert_eq!(object.as_str(), r#"{"a":1,"b":"x"}"#);
    /// assert_eq!(object.get("b").unwrap().as_str(), r#""x""#);
    /// ```
    pub fn object(members: &[(&str, &Self)]) -> Self {
        let n_bytes = members.iter().map(|(name, value)| name.len() + value.bytes.len() + 4).sum::<usize>();
        let mut text = Vec::with_capacity(n_bytes + 2);
        let mut spans = MemberSpans::default();
        text.push(b'{');
        for (name, value) in members {
            if text.len() > 1 {
                text.push(b',');
            }
            let key = text.len();
            write_string(&mut text, name);
            let key = key..text.len();
            text.push(b':');
            let start = text.len();
            text.extend_from_slice(&value.bytes);
            spans.push(key, start..text.len());
        }
        text.push(b'}');
        Self { bytes: text.into(), members: spans.complete().cloned().map(Arc::new) }
    }

    /// Returns the text of the value.
    #[expect(clippy::missing_panics_doc, reason = "every value was validated on construction")]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes).expect("validated on construction")
    }

    /// Returns the bytes of the value.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Converts the value into its bytes.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// Replaces the bytes by a copy of them that is owned otherwise.
    ///
    /// # Panics
    ///
    /// If they are other bytes.
    #[must_use]
    pub fn map_bytes(self, map: impl FnOnce(Bytes) -> Bytes) -> Self {
        let place = (self.bytes.as_ptr(), self.bytes.len());
        let bytes = map(self.bytes);
        assert!(place == (bytes.as_ptr(), bytes.len()), "the bytes are the same");
        Self { bytes, members: self.members }
    }

    /// Returns `true` if the value is an object.
    pub fn is_object(&self) -> bool {
        self.bytes.first() == Some(&b'{')
    }

    /// Returns `true` if the value has no members.
    pub fn is_empty(&self) -> bool {
        self.spans().next().is_none()
    }

    /// Returns the member with this name; `None` if the value is not an object or has no such member.
    ///
    /// Of several members with the name, the first is returned.
    pub fn get(&self, name: &str) -> Option<Self> {
        self.find_member(name).map(|value| Self::trusted(self.bytes.slice(value)))
    }

    /// Returns the position of the member with this name.
    fn find_member(&self, name: &str) -> Option<Range<usize>> {
        match &self.members {
            Some(spans) => spans.find(&self.bytes, name),
            None => {
                scan::members(&self.bytes).find(|(key, _)| self.has_name(key, name)).map(|(_, value)| value)
            }
        }
    }

    /// Returns `true` if a member has a name that fits. Names with escapes are decoded.
    pub fn has_member(&self, fits: impl Fn(&str) -> bool) -> bool {
        self.spans().any(|(key, _)| scan::decode_string(&self.bytes[key]).is_some_and(|name| fits(&name)))
    }

    /// Returns the first of these names that several members have.
    ///
    /// ```
    /// use pegboard_json::RawJson;
    ///
    /// let raw = RawJson::parse(r#"{"a": 1, "b": 2, "\u0062": 3, "a": 4}"#.into()).unwrap();
    /// assert_eq!(raw.first_repeated(["a", "b"]), Some("a"));
    /// assert_eq!(raw.first_repeated(["b", "c"]), Some("b"));
    /// assert_eq!(raw.first_repeated(["c"]), None);
    /// ```
    pub fn first_repeated<const N: usize, S: AsRef<str>>(&self, names: [S; N]) -> Option<S> {
        let mut counts = [0_usize; N];
        for (key, _) in self.spans() {
            let key = MemberName::of(&self.bytes[key]);
            if let Some(at) = names.iter().position(|name| key.is(name.as_ref())) {
                counts[at] += 1;
            }
        }
        names.into_iter().zip(counts).find(|(_, count)| *count > 1).map(|(name, _)| name)
    }

    /// Returns the members with these names, in one pass. Of several members with a name, the first is
    /// returned.
    ///
    /// ```
    /// use pegboard_json::RawJson;
    ///
    /// let raw = RawJson::parse(r#"{"a": 1, "b": 2}"#.into()).unwrap();
    /// let [b, c] = raw.get_all(["b", "c"]);
    /// assert_eq!(b.unwrap().as_str(), "2");
    /// assert_eq!(c, None);
    /// ```
    pub fn get_all<const N: usize>(&self, names: [&str; N]) -> [Option<Self>; N] {
        self.get_known(names).0
    }

    /// Returns the members with these names, and `true` if there are others, in one pass. Of several members with a
    /// name, the first is returned.
    ///
    /// ```
    /// use pegboard_json::RawJson;
    ///
    /// let raw = RawJson::parse(r#"{"a": 1, "b": 2}"#.into()).unwrap();
    /// let ([b], has_others) = raw.get_known(["b"]);
    /// assert_eq!((b.unwrap().as_str(), has_others), ("2", true));
    /// ```
    pub fn get_known<const N: usize>(&self, names: [&str; N]) -> ([Option<Self>; N], bool) {
        let mut found = [const { None }; N];
        let mut has_others = false;
        for (key, value) in self.spans() {
            let key = MemberName::of(&self.bytes[key]);
            match names.iter().zip(&mut found).find(|(name, _)| key.is(name)) {
                Some((_, slot @ None)) => *slot = Some(Self::trusted(self.bytes.slice(value))),
                Some(_) => {}
                None => has_others = true,
            }
        }
        (found, has_others)
    }

    /// Returns the bytes of the members with these names, in one pass. Of several members with a name, the first
    /// is returned.
    ///
    /// ```
    /// use pegboard_json::RawJson;
    ///
    /// let raw = RawJson::parse(r#"{"a": 1, "b": 2}"#.into()).unwrap();
    /// assert_eq!(raw.peek_all(["b", "c"]), [Some(&b"2"[..]), None]);
    /// ```
    pub fn peek_all<const N: usize>(&self, names: [&str; N]) -> [Option<&[u8]>; N] {
        let mut found = [None; N];
        for (key, value) in self.spans() {
            let key = MemberName::of(&self.bytes[key]);
            let slot = names.iter().zip(&mut found).find(|(name, _)| key.is(name));
            if let Some((_, slot @ None)) = slot {
                *slot = Some(&self.bytes[value]);
            }
        }
        found
    }

    /// Returns the spans of the members, recorded or scanned.
    fn spans(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let recorded = self.members.iter().flat_map(|spans| spans.iter());
        let object: &[u8] = if self.members.is_some() { b"" } else { &self.bytes };
        recorded.chain(scan::members(object))
    }

    fn has_name(&self, key: &Range<usize>, name: &str) -> bool {
        scan::string_equals(&self.bytes[key.clone()], name)
    }

    /// Returns the value at `path`, a list of member names.
    pub fn at(&self, path: &[&str]) -> Option<Self> {
        let Some((first, rest)) = path.split_first() else { return Some(self.clone()) };
        rest.iter().try_fold(self.get(first)?, |value, name| value.get(name))
    }

    /// Returns the member names of an object, in order. Names with a lone surrogate are skipped.
    pub fn names(&self) -> Vec<String> {
        self.spans().filter_map(|(key, _)| serde_json::from_slice(&self.bytes[key]).ok()).collect()
    }

    /// Returns the members of an object, in order, each with its name. Names with a lone surrogate are
    /// skipped.
    ///
    /// Use this to visit all members: [`RawJson::get`] scans the whole object for each.
    pub fn members(&self) -> impl Iterator<Item = (String, Self)> {
        let member = |(key, value): (Range<usize>, Range<usize>)| {
            let name = serde_json::from_slice(&self.bytes[key]).ok()?;
            Some((name, Self::trusted(self.bytes.slice(value))))
        };
        self.spans().filter_map(member)
    }

    /// Returns the items of an array, in order; empty if the value is not an array.
    pub fn items(&self) -> impl Iterator<Item = Self> {
        scan::items(&self.bytes).map(|item| Self::trusted(self.bytes.slice(item)))
    }

    /// Returns the decoded text of a JSON string; `None` if the value is not a string.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        scan::decode_string(&self.bytes)
    }

    /// Deserializes the value into `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.bytes)
    }

    /// Returns the value as a tree; null if it cannot be represented, as with `1e999` or a lone surrogate.
    pub fn to_value(&self) -> Value {
        self.read().unwrap_or_default()
    }

    /// Returns the object with a member set; everything else keeps its spelling. A value that is not an
    /// object is replaced by one.
    ///
    /// Of several members with the name, one is left, so that every parser sees the new value.
    #[must_use]
    pub fn with(&self, name: &str, value: &Self) -> Self {
        self.with_all(&[(name, Some(value))])
    }

    /// Returns the object without any member of that name; everything else keeps its spelling.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        if self.is_object() { self.with_all(&[(name, None)]) } else { self.clone() }
    }

    /// Appends members that the object does not have; everything else keeps its spelling. If no other value
    /// shares the bytes and there is space behind them, they are not copied.
    ///
    /// ```
    /// use pegboard_json::RawJson;
    ///
    /// let raw = RawJson::parse(r#"{"a": 1}"#.into()).unwrap();
    /// assert_eq!(raw.append(&[("b", &RawJson::of(&2))]).as_str(), r#"{"a": 1,"b":2}"#);
    /// ```
    #[must_use]
    pub fn append(self, members: &[(&str, &Self)]) -> Self {
        if members.is_empty() || !self.is_object() {
            return self;
        }
        let n_new = members.iter().map(|(name, value)| name.len() + value.bytes.len() + 4).sum::<usize>();
        let mut has_members = !self.is_empty();
        let Self { bytes, members: mut recorded } = self;
        let mut text = bytes.try_into_mut().unwrap_or_else(|shared| {
            let mut copy = BytesMut::with_capacity(shared.len() + n_new);
            copy.extend_from_slice(&shared);
            copy
        });
        text.truncate(text.len() - 1);
        text.reserve(n_new + 1);
        for (name, value) in members {
            if has_members {
                text.extend_from_slice(b",");
            }
            has_members = true;
            let key = text.len();
            write_string(&mut text, name);
            let key = key..text.len();
            text.extend_from_slice(b":");
            let start = text.len();
            text.extend_from_slice(&value.bytes);
            if let Some(spans) = &mut recorded {
                Arc::make_mut(spans).push(key, start..text.len());
            }
        }
        text.extend_from_slice(b"}");
        // With too many members, none are recorded.
        let recorded = recorded.filter(|spans| spans.complete().is_some());
        Self { bytes: text.freeze(), members: recorded }
    }

    /// Removes all members with these names; everything else keeps its spelling. If no other value shares the
    /// bytes, they are not copied: only the shorter end of the text is moved.
    ///
    /// ```
    /// use pegboard_json::RawJson;
    ///
    /// let raw = RawJson::parse(r#"{"a": 1, "b": [2], "c": 3}"#.into()).unwrap();
    /// assert_eq!(raw.remove(&["c", "x"]).as_str(), r#"{"a": 1, "b": [2]}"#);
    /// ```
    #[must_use]
    pub fn remove(mut self, names: &[&str]) -> Self {
        if let Some(members) = &self.members
            && !members.has_any(&self.bytes, names)
        {
            return self;
        }
        while let Some((index, cut)) = self.find_cut(names) {
            if let Some(members) = &mut self.members {
                Arc::make_mut(members).remove(index, cut.len());
            }
            self.bytes = without_range(self.bytes, cut);
        }
        self
    }

    /// Finds the first member with one of these names: its index, and its span with one of its commas.
    fn find_cut(&self, names: &[&str]) -> Option<(usize, Range<usize>)> {
        let mut spans = self.spans().enumerate();
        let mut kept = None;
        loop {
            let (index, (key, value)) = spans.next()?;
            let name = MemberName::of(&self.bytes[key.clone()]);
            if !names.iter().any(|cut| name.is(cut)) {
                kept = Some(value.end);
                continue;
            }
            let cut = match (kept, spans.next()) {
                (Some(end), _) => end..value.end,
                (None, Some((_, (next_key, _)))) => key.start..next_key.start,
                (None, None) => key.start..value.end,
            };
            return Some((index, cut));
        }
    }

    /// Returns the object with several members set or, without a value, removed, in one pass; everything else
    /// keeps its spelling. New members are appended in the order given. The names must be distinct, and there
    /// are at most 64.
    ///
    /// ```
    /// use pegboard_json::RawJson;
    ///
    /// let raw = RawJson::parse(r#"{"a": 1, "b": 2}"#.into()).unwrap();
    /// let changed = raw.with_all(&[("a", None), ("b", Some(&RawJson::of(&3))), ("c", Some(&RawJson::of(&4)))]);
    /// assert_eq!(changed.as_str(), r#"{"b": 3,"c":4}"#);
    /// ```
    #[must_use]
    pub fn with_all(&self, changes: &[(&str, Option<&Self>)]) -> Self {
        debug_assert!(changes.len() <= 64, "one bit is kept per change");
        let is_changed = |key: &Range<usize>| changes.iter().any(|(name, _)| self.has_name(key, name));
        let is_removal = changes.iter().all(|(_, value)| value.is_none());
        if is_removal && !self.spans().any(|(key, _)| is_changed(&key)) {
            return self.clone();
        }
        if !self.is_object() {
            return Self::empty_object().with_all(changes);
        }
        let growth = |(name, value): &(&str, Option<&Self>)| match value {
            Some(value) => name.len() + value.bytes.len() + 4,
            None => 0,
        };
        let mut edit = ObjectEdit::new(&self.bytes, changes.iter().map(growth).sum());
        // One bit per change; there are never more than a few.
        let mut done = 0_u64;
        for (key, span) in self.spans() {
            let change = changes.iter().enumerate().find(|(_, (name, _))| self.has_name(&key, name));
            match change {
                None => edit.keep(key, span),
                Some((index, (_, Some(value)))) if done & 1 << index == 0 => {
                    edit.replace(key, span, &value.bytes);
                    done |= 1 << index;
                }
                Some(_) => edit.cut(key, span),
            }
        }
        for (index, (name, value)) in changes.iter().enumerate() {
            if let Some(value) = value
                && done & 1 << index == 0
            {
                edit.append(name, &value.bytes);
            }
        }
        edit.finish()
    }
}

/// The name of a member as it is written, to be compared with several names.
struct MemberName<'a> {
    literal: &'a [u8],
    has_escapes: bool,
}

impl<'a> MemberName<'a> {
    fn of(literal: &'a [u8]) -> Self {
        Self { literal, has_escapes: literal.contains(&b'\\') }
    }

    fn is(&self, name: &str) -> bool {
        if self.has_escapes {
            return scan::string_equals(self.literal, name);
        }
        self.literal.len() == name.len() + 2 && &self.literal[1..=name.len()] == name.as_bytes()
    }
}

/// Removes a range, in place if no one else has the bytes.
fn without_range(bytes: Bytes, cut: Range<usize>) -> Bytes {
    match bytes.try_into_mut() {
        Ok(mut bytes) => {
            let n_behind = bytes.len() - cut.end;
            if cut.start <= n_behind {
                bytes.copy_within(..cut.start, cut.len());
                bytes.advance(cut.len());
            } else {
                bytes.copy_within(cut.end.., cut.start);
                bytes.truncate(cut.start + n_behind);
            }
            bytes.freeze()
        }
        Err(shared) => [&shared[..cut.start], &shared[cut.end..]].concat().into(),
    }
}

/// Minimum size of an edited object for which the positions of its members are recorded: a smaller one is
/// scanned again in less time.
const MIN_RECORDED_BYTES: usize = 1024;

/// Copies an object while members are replaced or dropped. Members are passed in order; the text between them
/// is copied along.
struct ObjectEdit<'a> {
    object: &'a [u8],
    text: Vec<u8>,
    /// Number of bytes of `object` already copied or skipped.
    done: usize,
    /// End of the last member that is kept.
    kept: Option<usize>,
    /// Positions of the members in the copy, for a large object.
    spans: Option<MemberSpans>,
}

impl<'a> ObjectEdit<'a> {
    fn new(object: &'a [u8], growth: usize) -> Self {
        let n_bytes = object.len() + growth;
        let spans = (n_bytes >= MIN_RECORDED_BYTES).then(MemberSpans::default);
        Self { object, text: Vec::with_capacity(n_bytes), done: 0, kept: None, spans }
    }

    fn keep(&mut self, key: Range<usize>, value: Range<usize>) {
        // What is not copied yet will be, without a gap.
        let moved = |at: usize| at - self.done + self.text.len();
        if let Some(spans) = &mut self.spans {
            spans.push(moved(key.start)..moved(key.end), moved(value.start)..moved(value.end));
        }
        self.kept = Some(value.end);
    }

    fn replace(&mut self, key: Range<usize>, old: Range<usize>, new: &[u8]) {
        self.copy_until(old.start);
        let start = self.text.len();
        self.text.extend_from_slice(new);
        if let Some(spans) = &mut self.spans {
            let distance = old.start - key.start;
            spans.push(start - distance..start - distance + key.len(), start..self.text.len());
        }
        self.done = old.end;
        self.kept = Some(old.end);
    }

    /// Drops a member together with the comma before it, or after it if it is the first.
    fn cut(&mut self, key: Range<usize>, value: Range<usize>) {
        if let Some(end) = self.kept {
            self.copy_until(end);
            self.done = value.end;
        } else {
            self.copy_until(key.start);
            self.done = scan::next_element(self.object, value.end);
        }
    }

    fn append(&mut self, name: &str, value: &[u8]) {
        self.copy_until(self.object.len() - 1);
        if self.kept.is_some() {
            self.text.push(b',');
        }
        let key = self.text.len();
        write_string(&mut self.text, name);
        let key = key..self.text.len();
        self.text.push(b':');
        let start = self.text.len();
        self.text.extend_from_slice(value);
        if let Some(spans) = &mut self.spans {
            spans.push(key, start..self.text.len());
        }
        self.kept = Some(self.object.len());
    }

    fn copy_until(&mut self, end: usize) {
        self.text.extend_from_slice(self.object.get(self.done..end).unwrap_or_default());
        self.done = self.done.max(end);
    }

    fn finish(mut self) -> RawJson {
        self.copy_until(self.object.len());
        let members = self.spans.as_ref().and_then(MemberSpans::complete).cloned().map(Arc::new);
        RawJson { bytes: self.text.into(), members }
    }
}

/// Writes a JSON string. Names of members rarely need an escape.
fn write_string(text: &mut impl BufMut, string: &str) {
    if string.bytes().any(|byte| matches!(byte, b'"' | b'\\' | ..0x20)) {
        return text.put_slice(RawJson::of(string).as_bytes());
    }
    text.put_u8(b'"');
    text.put_slice(string.as_bytes());
    text.put_u8(b'"');
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

/// Writes the raw text; works with JSON serializers only.
impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_slice::<&RawValue>(&self.bytes).map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// Reads the raw text; works with JSON deserializers only.
impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(Box::<str>::from(raw).into_boxed_bytes().into()).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects with members to remove at every place, written in different ways.
    fn objects() -> Vec<String> {
        let long = "x".repeat(2 * MIN_RECORDED_BYTES);
        let mut objects = Vec::new();
        for members in [
            vec![],
            vec![r#""a": 1"#],
            vec![r#""a": 1"#, r#""keep":[2]"#],
            vec![r#""keep":[2]"#, r#""a": 1"#],
            vec![r#""a":1"#, r#""b" : {"a":3}"#, r#""keep":"é\"""#, r#""a":null"#],
            vec![r#""b":1"#, r#""a":{}"#],
        ] {
            for (comma, end) in [(",", ""), (" , ", " "), (",\n  ", "\n")] {
                let text = members.join(comma);
                objects.push(format!("{{{end}{text}{end}}}"));
                let separator = if text.is_empty() { "" } else { comma };
                objects.push(format!("{{{end}{text}{separator}\"long\":\"{long}\"{end}}}"));
                objects.push(format!("{{{end}\"long\":\"{long}\"{separator}{text}{end}}}"));
            }
        }
        objects
    }

    fn recorded(text: &str) -> RawJson {
        let mut spans = MemberSpans::default();
        scan::members(text.as_bytes()).for_each(|(key, value)| spans.push(key, value));
        RawJson::scanned(text.to_owned().into(), Some(Arc::new(spans)))
    }

    fn scanned_again(value: &RawJson) -> Vec<(String, RawJson)> {
        RawJson::trusted(value.bytes.clone()).members().collect()
    }

    #[test]
    fn members_are_removed_in_place_as_in_a_copy() {
        for text in objects() {
            let plain = RawJson::trusted(text.clone().into());
            let expected: Vec<_> =
                plain.members().filter(|(name, _)| !matches!(name.as_str(), "a" | "b")).collect();
            let shared = plain.clone();
            for removed in [plain, recorded(&text)].map(|value| value.remove(&["a", "b"])) {
                RawJson::parse(removed.bytes.clone()).unwrap();
                assert_eq!(removed.members().collect::<Vec<_>>(), expected, "{text}");
                assert_eq!(scanned_again(&removed), expected, "{text}");
            }
            assert_eq!(shared.as_str(), text);
        }
    }

    #[test]
    fn members_are_appended_in_place_as_in_a_copy() {
        let value = RawJson::of(&[1, 2, 3]);
        for text in objects() {
            let expected = recorded(&text).with_all(&[("y", Some(&value)), ("z", Some(&value))]);
            let plain = RawJson::trusted(text.clone().into());
            let with_space = |text: &str| {
                let mut bytes = BytesMut::with_capacity(text.len() + 100);
                bytes.extend_from_slice(text.as_bytes());
                RawJson::trusted(bytes.freeze())
            };
            let shared = plain.clone();
            for object in [plain, recorded(&text), with_space(&text)] {
                let appended = object.append(&[("y", &value), ("z", &value)]);
                assert_eq!(appended.members().collect::<Vec<_>>(), expected.members().collect::<Vec<_>>());
                assert_eq!(scanned_again(&appended), scanned_again(&expected), "{text}");
                RawJson::parse(appended.bytes.clone()).unwrap();
            }
            assert_eq!(shared.as_str(), text);
        }
    }

    #[test]
    fn positions_recorded_by_an_edit_are_those_of_a_scan() {
        let value = RawJson::of(&[1, 2, 3]);
        for text in objects() {
            for changes in [
                &[("a", None)][..],
                &[("a", Some(&value))],
                &[("a", None), ("b", Some(&value)), ("new", Some(&value))],
            ] {
                let edited = RawJson::trusted(text.clone().into()).with_all(changes);
                RawJson::parse(edited.bytes.clone()).unwrap();
                assert_eq!(edited.members().collect::<Vec<_>>(), scanned_again(&edited), "{text}");
            }
        }
    }
}
