//! Replacement of parts of a value, with the rest kept as written.

use std::ops::Range;

use crate::cursor::JsonCursor;
use crate::raw::RawJson;
use crate::scan;

impl RawJson {
    /// Finds objects with a single member that has this name and is a string; returns their spans in order,
    /// each with the string.
    ///
    /// ```
    /// use pegboard_json::RawJson;
    ///
    /// let raw = RawJson::parse(r#"{"a": [{"$ref": "x"}], "b": {"$ref": "y", "c": 1}, "n": 1e999}"#.into()).unwrap();
    /// let found = raw.single_string_members("$ref");
    /// assert_eq!(found, [(7..20, "x".to_owned())]);
    /// let spliced = raw.spliced(&[(found[0].0.clone(), RawJson::of("here"))]);
    /// assert_eq!(spliced.as_str(), r#"{"a": ["here"], "b": {"$ref": "y", "c": 1}, "n": 1e999}"#);
    /// ```
    pub fn single_string_members(&self, name: &str) -> Vec<(Range<usize>, String)> {
        let mut found = Vec::new();
        collect(&mut JsonCursor::of(self.as_bytes()), name, &mut found);
        found
    }

    /// Replaces parts of the value. The spans are in order and do not overlap.
    #[must_use]
    pub fn spliced(&self, parts: &[(Range<usize>, Self)]) -> Self {
        let mut text = Vec::with_capacity(self.as_bytes().len());
        let mut done = 0;
        for (span, value) in parts {
            text.extend_from_slice(&self.as_bytes()[done..span.start]);
            text.extend_from_slice(value.as_bytes());
            done = span.end;
        }
        text.extend_from_slice(&self.as_bytes()[done..]);
        Self::trusted(text.into())
    }
}

fn collect(cursor: &mut JsonCursor<'_>, name: &str, found: &mut Vec<(Range<usize>, String)>) {
    match cursor.peek() {
        b'{' => {
            let start = cursor.at;
            cursor.at += 1;
            let mut lone = None;
            let mut n_members = 0;
            while cursor.peek() == b'"' {
                n_members += 1;
                let is_named = scan::string_equals(&cursor.text[cursor.string()], name);
                cursor.skip(b':');
                if is_named && cursor.peek() == b'"' {
                    lone = scan::decode_string(&cursor.text[cursor.string()]);
                } else {
                    collect(cursor, name, found);
                }
                cursor.skip(b',');
            }
            cursor.skip(b'}');
            if let (1, Some(text)) = (n_members, lone) {
                found.push((start..cursor.at, text.into_owned()));
            }
        }
        b'[' => {
            cursor.at += 1;
            while !matches!(cursor.peek(), b']' | 0) {
                collect(cursor, name, found);
                cursor.skip(b',');
            }
            cursor.skip(b']');
        }
        b'"' => drop(cursor.string()),
        _ => drop(cursor.scalar()),
    }
}
