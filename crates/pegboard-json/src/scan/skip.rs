//! Navigation in well-formed JSON: follows strings and brackets without validation.
//!
//! On malformed input the results are wrong, but every function terminates without a panic.

use std::ops::Range;

use super::token;

/// Iterates over the members of an object: the spans of each key (with its quotes) and value.
pub fn members(object: &[u8]) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    let mut at = if object.first() == Some(&b'{') { 1 } else { object.len() };
    std::iter::from_fn(move || {
        at = next_element(object, at);
        if object.get(at) != Some(&b'"') {
            return None;
        }
        let key = at..string(object, at);
        let start = token::space(object, token::space(object, key.end) + 1);
        at = value(object, start);
        Some((key, start.min(at)..at))
    })
}

/// Iterates over the items of an array.
pub fn items(array: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = if array.first() == Some(&b'[') { 1 } else { array.len() };
    std::iter::from_fn(move || {
        let start = next_element(array, at);
        if matches!(array.get(start), None | Some(b']')) {
            return None;
        }
        at = value(array, start);
        Some(start..at)
    })
}

/// Returns the start of the next member or item, behind the comma if there is one.
pub fn next_element(bytes: &[u8], at: usize) -> usize {
    let at = token::space(bytes, at);
    if bytes.get(at) == Some(&b',') { token::space(bytes, at + 1) } else { at }
}

/// Returns the end of the value at `start`.
fn value(bytes: &[u8], start: usize) -> usize {
    match bytes.get(start) {
        Some(b'"') => string(bytes, start),
        Some(b'{' | b'[') => nested(bytes, start),
        _ => {
            let rest = bytes.get(start..).unwrap_or_default();
            let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
            // At least one byte, so that iteration over malformed text terminates.
            rest.iter().position(ends).map_or(bytes.len(), |len| start + len.max(1))
        }
    }
}

/// Returns the end of the object or array at `start`.
fn nested(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at = string(bytes, at);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Returns the end of the string that opens at `quote`.
fn string(bytes: &[u8], quote: usize) -> usize {
    token::string(bytes, quote).unwrap_or(bytes.len())
}
