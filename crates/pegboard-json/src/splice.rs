//! Parts of a value in place of others, with everything around them as it was written.

use std::ops::Range;

use crate::raw::RawJson;
use crate::scan;
use crate::walk::Walk;

impl RawJson {
    /// Where the objects are whose only member has this name and is a text, in order, each with the text.
    ///
    /// ```
    /// use pegboard_json::RawJson;
    ///
    /// let raw = RawJson::parse(r#"{"a": [{"$ref": "x"}], "b": {"$ref": "y", "c": 1}, "n": 1e999}"#.into()).unwrap();
    /// let found = raw.lone_texts("$ref");
    /// assert_eq!(found, [(7..20, "x".to_owned())]);
    /// let spliced = raw.spliced(&[(found[0].0.clone(), RawJson::of("here"))]);
    /// assert_eq!(spliced.as_str(), r#"{"a": ["here"], "b": {"$ref": "y", "c": 1}, "n": 1e999}"#);
    /// ```
    pub fn lone_texts(&self, name: &str) -> Vec<(Range<usize>, String)> {
        let mut found = Vec::new();
        collect(&mut Walk::of(self.as_bytes()), name, &mut found);
        found
    }

    /// The value with other values in place of these parts, which are given in order and do not overlap.
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

fn collect(walk: &mut Walk<'_>, name: &str, found: &mut Vec<(Range<usize>, String)>) {
    match walk.peek() {
        b'{' => {
            let start = walk.at;
            walk.at += 1;
            let mut lone = None;
            let mut n_members = 0;
            while walk.peek() == b'"' {
                n_members += 1;
                let is_named = scan::spells(&walk.text[walk.string()], name);
                walk.skip(b':');
                if is_named && walk.peek() == b'"' {
                    lone = scan::said(&walk.text[walk.string()]);
                } else {
                    collect(walk, name, found);
                }
                walk.skip(b',');
            }
            walk.skip(b'}');
            if let (1, Some(text)) = (n_members, lone) {
                found.push((start..walk.at, text.into_owned()));
            }
        }
        b'[' => {
            walk.at += 1;
            while !matches!(walk.peek(), b']' | 0) {
                collect(walk, name, found);
                walk.skip(b',');
            }
            walk.skip(b']');
        }
        b'"' => drop(walk.string()),
        _ => drop(walk.scalar()),
    }
}
