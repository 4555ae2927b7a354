//! Members that share a name.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::raw::RawJson;
use crate::scan;
use crate::walk::Walk;

/// How many members are compared with each other; more go through a set.
const FEW: usize = 16;

/// A name that an object anywhere in the value has twice, if there is one.
///
/// ```
/// use pegboard_json::{RawJson, twin_name};
///
/// let read = |text: &'static str| twin_name(&RawJson::parse(text.into()).unwrap());
/// assert_eq!(read(r#"{"a": [{"b": 1, "\u0062": 2}]}"#).as_deref(), Some("b"));
/// assert_eq!(read(r#"{"a": {"a": 1}}"#), None);
/// ```
pub fn twin_name(value: &RawJson) -> Option<String> {
    find(&mut Walk::of(value.as_bytes()))
}

/// A name that the object itself has twice, if there is one; what its members hold is not looked at.
///
/// ```
/// use pegboard_json::{RawJson, twin_member};
///
/// let read = |text: &'static str| twin_member(&RawJson::parse(text.into()).unwrap());
/// assert_eq!(read(r#"{"a": 1, "\u0061": 2}"#).as_deref(), Some("a"));
/// assert_eq!(read(r#"{"a": {"b": 1, "b": 2}}"#), None);
/// ```
pub fn twin_member(object: &RawJson) -> Option<String> {
    let object = object.as_bytes();
    let names: Vec<&[u8]> = scan::members(object).map(|(name, _)| &object[name]).collect();
    twin(&names)
}

fn find(walk: &mut Walk<'_>) -> Option<String> {
    match walk.peek() {
        b'{' => {
            walk.at += 1;
            let mut names = Vec::new();
            while walk.peek() == b'"' {
                names.push(&walk.text[walk.string()]);
                walk.skip(b':');
                if let Some(found) = find(walk) {
                    return Some(found);
                }
                walk.skip(b',');
            }
            walk.skip(b'}');
            return twin(&names);
        }
        b'[' => {
            walk.at += 1;
            while !matches!(walk.peek(), b']' | 0) {
                if let Some(found) = find(walk) {
                    return Some(found);
                }
                walk.skip(b',');
            }
            walk.skip(b']');
        }
        b'"' => drop(walk.string()),
        _ => drop(walk.scalar()),
    }
    None
}

/// A name that is there twice, whatever escapes it is spelled with.
fn twin(names: &[&[u8]]) -> Option<String> {
    let is_plain = names.iter().all(|name| !name.contains(&b'\\'));
    if is_plain && names.len() <= FEW {
        let mut rest = names;
        while let [first, others @ ..] = rest {
            if others.contains(first) {
                return scan::said(first).map(Cow::into_owned);
            }
            rest = others;
        }
        return None;
    }
    let mut seen = HashSet::with_capacity(names.len());
    let said = names.iter().map(|name| scan::said(name).unwrap_or_else(|| String::from_utf8_lossy(name)));
    said.map(Cow::into_owned).find(|name| !seen.insert(name.clone()))
}
