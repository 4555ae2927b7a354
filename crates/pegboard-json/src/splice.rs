//! Parts of a value in place of others, with everything around them as it was written.

use std::ops::Range;

use crate::raw::RawJson;
use crate::scan;

impl RawJson {
    /// Where the objects are that `is_meant` says so of, in order. What is inside of one is not looked at.
    ///
    /// ```
    /// use pegboard_json::RawJson;
    ///
    /// let raw = RawJson::parse(r#"{"a": [{"$ref": 1}], "n": 1e999}"#.into()).unwrap();
    /// let found = raw.objects(&|object| object.get("$ref").is_some());
    /// let spliced = raw.spliced(&[(found[0].clone(), RawJson::of("here"))]);
    /// assert_eq!(spliced.as_str(), r#"{"a": ["here"], "n": 1e999}"#);
    /// ```
    pub fn objects(&self, is_meant: &dyn Fn(&Self) -> bool) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        self.collect(0..self.as_bytes().len(), is_meant, &mut found);
        found
    }

    fn collect(&self, span: Range<usize>, is_meant: &dyn Fn(&Self) -> bool, found: &mut Vec<Range<usize>>) {
        let text = &self.as_bytes()[span.clone()];
        let within = |inner: Range<usize>| span.start + inner.start..span.start + inner.end;
        match text.first() {
            Some(b'{') if is_meant(&self.part(span.clone())) => found.push(span),
            Some(b'{') => {
                for (_, member) in scan::members(text) {
                    self.collect(within(member), is_meant, found);
                }
            }
            Some(b'[') => {
                for item in scan::items(text) {
                    self.collect(within(item), is_meant, found);
                }
            }
            _ => {}
        }
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

    /// The value that a part of this one is.
    #[must_use]
    pub fn part(&self, span: Range<usize>) -> Self {
        Self::trusted(self.clone().into_bytes().slice(span))
    }
}
