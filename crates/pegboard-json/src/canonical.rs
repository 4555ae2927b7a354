//! One spelling for values that mean the same.

use std::ops::Range;

use crate::raw::RawJson;
use crate::scan;
use crate::walk::Walk;

/// The value without white space and with the members of every object sorted by name. Numbers stay as they were
/// spelled: `1` and `1.0` are told apart.
///
/// Of members that share a name the last one counts, as it does for most readers.
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
    write(&mut Walk::of(value.as_bytes()), &mut text);
    RawJson::trusted(text.into())
}

/// Writes one value. The depth of a value was bounded when it was checked, and so is the stack.
fn write(walk: &mut Walk<'_>, text: &mut Vec<u8>) {
    match walk.peek() {
        b'{' => {
            walk.at += 1;
            text.push(b'{');
            let start = text.len();
            let mut members: Vec<(Vec<u8>, Range<usize>)> = Vec::new();
            while walk.peek() == b'"' {
                let name = spelled(&walk.text[walk.string()]);
                walk.skip(b':');
                let member = text.len();
                text.extend_from_slice(&name);
                text.push(b':');
                write(walk, text);
                members.push((name, member..text.len()));
                text.push(b',');
                walk.skip(b',');
            }
            walk.skip(b'}');
            close(text, start, members);
            text.push(b'}');
        }
        b'[' => {
            walk.at += 1;
            text.push(b'[');
            while !matches!(walk.peek(), b']' | 0) {
                write(walk, text);
                if walk.skip(b',') {
                    text.push(b',');
                }
            }
            walk.skip(b']');
            text.push(b']');
        }
        b'"' => text.extend_from_slice(&spelled(&walk.text[walk.string()])),
        _ => text.extend_from_slice(&walk.text[walk.scalar()]),
    }
}

/// Puts the members of an object that was just written in order, and leaves one of each name.
fn close(text: &mut Vec<u8>, start: usize, mut members: Vec<(Vec<u8>, Range<usize>)>) {
    if members.is_sorted_by(|(one, _), (next, _)| one < next) {
        // Without the comma after the last.
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

/// A string with no more escapes than it needs. What is no text (half of a surrogate pair) stays as it is.
fn spelled(string: &[u8]) -> Vec<u8> {
    scan::said(string).and_then(|said| serde_json::to_vec(&said).ok()).unwrap_or_else(|| string.to_vec())
}
