//! Looks into JSON that is known to be well-formed: follows strings and brackets, checks nothing.
//!
//! On other bytes the answers are wrong, but there are always some.

use std::ops::Range;

use super::token;

/// The members of an object: where each key (with its quotes) and value is.
pub fn members(object: &[u8]) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    let mut at = if object.first() == Some(&b'{') { 1 } else { object.len() };
    std::iter::from_fn(move || {
        at = next(object, at);
        if object.get(at) != Some(&b'"') {
            return None;
        }
        let key = at..string(object, at);
        let start = token::space(object, token::space(object, key.end) + 1);
        at = value(object, start);
        Some((key, start.min(at)..at))
    })
}

/// The items of an array.
pub fn items(array: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = if array.first() == Some(&b'[') { 1 } else { array.len() };
    std::iter::from_fn(move || {
        let start = next(array, at);
        if matches!(array.get(start), None | Some(b']')) {
            return None;
        }
        at = value(array, start);
        Some(start..at)
    })
}

/// Where the next member or item begins, behind the comma if there is one.
pub fn next(bytes: &[u8], at: usize) -> usize {
    let at = token::space(bytes, at);
    if bytes.get(at) == Some(&b',') { token::space(bytes, at + 1) } else { at }
}

/// The end of the value at `start`.
fn value(bytes: &[u8], start: usize) -> usize {
    match bytes.get(start) {
        Some(b'"') => string(bytes, start),
        Some(b'{' | b'[') => nested(bytes, start),
        _ => {
            let rest = bytes.get(start..).unwrap_or_default();
            let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
            // One byte at least, so that a walk over broken text gets to its end.
            rest.iter().position(ends).map_or(bytes.len(), |len| start + len.max(1))
        }
    }
}

/// The end of the object or array at `start`.
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

/// The end of the string whose opening quote is at `quote`.
fn string(bytes: &[u8], quote: usize) -> usize {
    token::string(bytes, quote).unwrap_or(bytes.len())
}
