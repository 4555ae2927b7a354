//! Canonical form of JSON values, for comparison and hashing.

use std::ops::Range;

use crate::cursor::JsonCursor;
use crate::raw::RawJson;
use crate::scan;

/// Returns the value in canonical form: no white space, members of every object sorted by name. Numbers keep
/// their spelling: `1` and `1.0` stay different.
///
/// If several members share a name, the last one counts, as it does for most parsers.
///
/// ```
/// use pegboard_json::{RawJson, canonical};
///
/// let read = |text: &'static str| canonical(&RawJson::parse(text.into()).unwrap());
/// assert_eq!(read(r#"{"b": [1.0, "\u0041"], "a": 1e2}"#).as_str(), r#"{"a":1e2,"b":[1.0,"A"]}"#);
/// assert_eq!(read(r#"{"a":1,"b":2}"#), read(r#" { "b" : 2, "a" : 1 } "#));
/// assert_eq!(read(r#"{"a":1,"b":[ ],"a":{ }}"#).as_str(), r#"{"a":{},"b":[]}"#);
/// ```
pub fn canonical(value: &RawJson) -> RawJson {
    let mut text = Vec::with_capacity(value.as_bytes().len());
    write(&mut JsonCursor::of(value.as_bytes()), &mut text);
    RawJson::trusted(text.into())
}

/// Writes one value. Recursion is bounded: the depth of a value was limited when it was parsed.
fn write(cursor: &mut JsonCursor<'_>, text: &mut Vec<u8>) {
    match cursor.peek() {
        b'{' => {
            cursor.at += 1;
            text.push(b'{');
            let start = text.len();
            let mut members: Vec<(Vec<u8>, Range<usize>)> = Vec::new();
            while cursor.peek() == b'"' {
                let name = minimally_escaped(&cursor.text[cursor.string()]);
                cursor.skip(b':');
                let member = text.len();
                text.extend_from_slice(&name);
                text.push(b':');
                write(cursor, text);
                members.push((name, member..text.len()));
                text.push(b',');
                cursor.skip(b',');
            }
            cursor.skip(b'}');
            close(text, start, members);
            text.push(b'}');
        }
        b'[' => {
            cursor.at += 1;
            text.push(b'[');
            while !matches!(cursor.peek(), b']' | 0) {
                write(cursor, text);
                if cursor.skip(b',') {
                    text.push(b',');
                }
            }
            cursor.skip(b']');
            text.push(b']');
        }
        b'"' => text.extend_from_slice(&minimally_escaped(&cursor.text[cursor.string()])),
        _ => text.extend_from_slice(&cursor.text[cursor.scalar()]),
    }
}

/// Sorts the members of the object just written and removes duplicates.
fn close(text: &mut Vec<u8>, start: usize, mut members: Vec<(Vec<u8>, Range<usize>)>) {
    if members.is_sorted_by(|(one, _), (next, _)| one < next) {
        // Drop the trailing comma.
        text.truncate(members.last().map_or(start, |(_, member)| member.end));
        return;
    }
    members.sort_by(|(one, at), (other, other_at)| one.cmp(other).then(other_at.start.cmp(&at.start)));
    members.dedup_by(|(later, _), (earlier, _)| later == earlier);
    let parts: Vec<&[u8]> = members.iter().map(|(_, member)| &text[member.clone()]).collect();
    let sorted = parts.join(&b',');
    text.truncate(start);
    text.extend_from_slice(&sorted);
}

/// Returns a string literal with as few escapes as possible. A lone surrogate has no text and stays as it is.
fn minimally_escaped(string: &[u8]) -> Vec<u8> {
    scan::decode_string(string)
        .and_then(|text| serde_json::to_vec(&text).ok())
        .unwrap_or_else(|| string.to_vec())
}
