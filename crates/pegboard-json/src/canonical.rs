//! One spelling for values that mean the same.

use std::collections::BTreeMap;

use crate::raw::RawJson;
use crate::scan;

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
/// ```
pub fn canonical(value: &RawJson) -> RawJson {
    let mut text = Vec::with_capacity(value.as_bytes().len());
    write(value.as_bytes(), &mut text);
    RawJson::trusted(text.into())
}

/// Writes one value. The depth of a value was bounded when it was checked, and so is the stack.
fn write(value: &[u8], text: &mut Vec<u8>) {
    match value.first() {
        Some(b'{') => {
            let members: BTreeMap<Vec<u8>, &[u8]> =
                scan::members(value).map(|(name, member)| (spelled(&value[name]), &value[member])).collect();
            text.push(b'{');
            for (index, (name, member)) in members.into_iter().enumerate() {
                if index > 0 {
                    text.push(b',');
                }
                text.extend_from_slice(&name);
                text.push(b':');
                write(member, text);
            }
            text.push(b'}');
        }
        Some(b'[') => {
            text.push(b'[');
            for (index, item) in scan::items(value).enumerate() {
                if index > 0 {
                    text.push(b',');
                }
                write(&value[item], text);
            }
            text.push(b']');
        }
        Some(b'"') => text.extend_from_slice(&spelled(value)),
        _ => text.extend_from_slice(value),
    }
}

/// A string with no more escapes than it needs. What is no text (half of a surrogate pair) stays as it is.
fn spelled(string: &[u8]) -> Vec<u8> {
    scan::said(string).and_then(|said| serde_json::to_vec(&said).ok()).unwrap_or_else(|| string.to_vec())
}
