//! Detection of duplicate keys.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::cursor::JsonCursor;
use crate::raw::RawJson;
use crate::scan;

/// Maximum number of members that are compared pairwise; more go through a set.
const MAX_PAIRWISE: usize = 16;

/// Returns a key that occurs twice in one object anywhere in the value, if there is one.
///
/// ```
/// use pegboard_json::{RawJson, duplicate_key};
///
/// let read = |text: &'static str| duplicate_key(&RawJson::parse(text.into()).unwrap());
/// assert_eq!(read(r#"{"a": [{"b": 1, "\u0062": 2}]}"#).as_deref(), Some("b"));
/// assert_eq!(read(r#"{"a": {"a": 1}}"#), None);
/// ```
pub fn duplicate_key(value: &RawJson) -> Option<String> {
    find(&mut JsonCursor::of(value.as_bytes()))
}

/// Returns a key that occurs twice in the object itself, if there is one; nested objects are not searched.
///
/// ```
/// use pegboard_json::{RawJson, duplicate_member};
///
/// let read = |text: &'static str| duplicate_member(&RawJson::parse(text.into()).unwrap());
/// assert_eq!(read(r#"{"a": 1, "\u0061": 2}"#).as_deref(), Some("a"));
/// assert_eq!(read(r#"{"a": {"b": 1, "b": 2}}"#), None);
/// ```
pub fn duplicate_member(object: &RawJson) -> Option<String> {
    let object = object.as_bytes();
    let names: Vec<&[u8]> = scan::members(object).map(|(name, _)| &object[name]).collect();
    first_duplicate(&names)
}

fn find(cursor: &mut JsonCursor<'_>) -> Option<String> {
    match cursor.peek() {
        b'{' => {
            cursor.at += 1;
            let mut names = Vec::new();
            while cursor.peek() == b'"' {
                names.push(&cursor.text[cursor.string()]);
                cursor.skip(b':');
                if let Some(found) = find(cursor) {
                    return Some(found);
                }
                cursor.skip(b',');
            }
            cursor.skip(b'}');
            return first_duplicate(&names);
        }
        b'[' => {
            cursor.at += 1;
            while !matches!(cursor.peek(), b']' | 0) {
                if let Some(found) = find(cursor) {
                    return Some(found);
                }
                cursor.skip(b',');
            }
            cursor.skip(b']');
        }
        b'"' => drop(cursor.string()),
        _ => drop(cursor.scalar()),
    }
    None
}

/// Returns a key that occurs twice, however it is escaped.
fn first_duplicate(names: &[&[u8]]) -> Option<String> {
    let is_plain = names.iter().all(|name| !name.contains(&b'\\'));
    if is_plain && names.len() <= MAX_PAIRWISE {
        let mut rest = names;
        while let [first, others @ ..] = rest {
            if others.contains(first) {
                return scan::decode_string(first).map(Cow::into_owned);
            }
            rest = others;
        }
        return None;
    }
    let mut seen = HashSet::with_capacity(names.len());
    let decoded =
        names.iter().map(|name| scan::decode_string(name).unwrap_or_else(|| String::from_utf8_lossy(name)));
    decoded.map(Cow::into_owned).find(|name| !seen.insert(name.clone()))
}
