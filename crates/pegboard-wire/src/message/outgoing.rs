//! Requests that are encoded once, while their `_meta` is assembled.

use std::ops::Range;

use bytes::Bytes;

use super::encode::{self, ByteSink};
use pegboard_json::{RawJson, scan};

/// Space for everything around the parameters and the fields of `_meta`.
const ENVELOPE_BYTES: usize = 128;

/// The `_meta` of a request before it is sent.
#[derive(Default)]
pub(crate) struct OutgoingMeta<'m> {
    /// Fields that are the same in every request, encoded and without braces.
    pub(crate) fixed: &'m [u8],
    /// Fields of this request.
    pub(crate) fields: &'m [(&'static str, &'m RawJson)],
    /// Requests progress notifications; the token is the id of the request.
    pub(crate) has_progress: bool,
    /// Fields given by the caller.
    pub(crate) given: Option<&'m RawJson>,
    /// Names of given fields that are left out.
    pub(crate) hidden: &'m [&'static str],
}

/// An encoded request.
#[derive(Debug)]
pub(crate) struct EncodedRequest {
    text: Bytes,
    /// Position of the parameters; empty if there are none.
    params: Range<usize>,
}

impl EncodedRequest {
    /// Encodes a request. `params` has no `_meta`.
    pub(crate) fn new(id: i64, method: &str, params: Option<&RawJson>, meta: &OutgoingMeta<'_>) -> Self {
        let size = |value: Option<&RawJson>| value.map_or(0, |value| value.as_bytes().len());
        let n_own = meta.fields.iter().map(|(name, value)| name.len() + value.as_bytes().len() + 4);
        let n_meta = meta.fixed.len() + n_own.sum::<usize>() + size(meta.given);
        let mut text = Vec::with_capacity(method.len() + size(params) + n_meta + ENVELOPE_BYTES);
        encode::before_params(id, method, &mut text);
        let after_method = text.len();
        text.put(br#","params":"#);
        let start = text.len();
        let has_fields = match params.map(RawJson::as_bytes) {
            Some([b'{', members @ .., b'}']) => {
                text.put(b"{");
                text.put(members);
                !members.trim_ascii().is_empty()
            }
            // Parameters by position have no `_meta`.
            Some(positional) => {
                text.put(positional);
                return Self::finish(text, start);
            }
            None => {
                text.put(b"{");
                false
            }
        };
        let before_meta = text.len();
        text.put(if has_fields { br#","_meta":{"# } else { br#""_meta":{"# });
        let in_meta = text.len();
        meta.encode_fields(id, &mut text);
        if text.len() > in_meta {
            text.put(b"}}");
            return Self::finish(text, start);
        }
        if params.is_none() {
            text.truncate(after_method);
            return Self::finish(text, after_method);
        }
        text.truncate(before_meta);
        text.put(b"}");
        Self::finish(text, start)
    }

    fn finish(mut text: Vec<u8>, params_start: usize) -> Self {
        let params = params_start..text.len();
        text.put(b"}");
        Self { text: text.into(), params }
    }

    /// Returns the parameters.
    pub(crate) fn params(&self) -> Option<RawJson> {
        let params = Some(self.params.clone()).filter(|span| !span.is_empty())?;
        Some(RawJson::trusted(self.text.slice(params)))
    }

    /// Returns the text of the request.
    pub(crate) fn text(&self) -> &Bytes {
        &self.text
    }
}

impl OutgoingMeta<'_> {
    fn encode_fields(&self, id: i64, text: &mut Vec<u8>) {
        let start = text.len();
        text.put(self.fixed);
        let separate = |text: &mut Vec<u8>| {
            if text.len() > start {
                text.push(b',');
            }
        };
        for (name, value) in self.fields {
            separate(text);
            text.push(b'"');
            text.put(name.as_bytes());
            text.put(b"\":");
            text.put(value.as_bytes());
        }
        if self.has_progress {
            separate(text);
            text.put(br#""progressToken":"#);
            encode::number(id, text);
        }
        let given = self.given.map_or(&b""[..], RawJson::as_bytes);
        for (key, value) in scan::members(given) {
            let (key, value) = (&given[key], &given[value]);
            let is_hidden = self.hidden.iter().any(|name| scan::string_equals(key, name));
            if !is_hidden {
                separate(text);
                text.put(key);
                text.push(b':');
                text.put(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Frame, Message};
    use serde_json::{Value, json};

    #[test]
    fn meta_is_added_to_the_parameters() {
        let one = RawJson::of(&1);
        let given = RawJson::from(json!({"hidden": 2, "own": 3}));
        let fields = [("field", &one)];
        let all = || OutgoingMeta {
            fixed: br#""fixed":0"#,
            fields: &fields,
            has_progress: true,
            given: Some(&given),
            hidden: &["hidden"],
        };
        let none = OutgoingMeta::default;
        let meta = json!({"fixed": 0, "field": 1, "progressToken": 7, "own": 3});
        let only_given = || OutgoingMeta { given: Some(&given), hidden: &["hidden"], ..none() };
        let nothing_left = || OutgoingMeta { given: Some(&given), hidden: &["hidden", "own"], ..none() };
        let cases = [
            (None, none(), None),
            (None, all(), Some(json!({"_meta": meta}))),
            (Some("{}"), none(), Some(json!({}))),
            (Some("{ }"), all(), Some(json!({"_meta": meta}))),
            (Some(r#"{"a": [1]}"#), none(), Some(json!({"a": [1]}))),
            (Some(r#"{"a": [1]}"#), all(), Some(json!({"a": [1], "_meta": meta}))),
            (Some(r#"{"a": [1]}"#), only_given(), Some(json!({"a": [1], "_meta": {"own": 3}}))),
            (Some(r#"{"a": [1]}"#), nothing_left(), Some(json!({"a": [1]}))),
            (None, nothing_left(), None),
            (Some("[1, 2]"), all(), Some(json!([1, 2]))),
        ];
        for (params, meta, expected) in cases {
            let params = params.map(|params| RawJson::parse(params.into()).unwrap());
            let encoded = EncodedRequest::new(7, "a/b", params.as_ref(), &meta);
            let frame = Message::decode(encoded.text().clone(), crate::MAX_DEPTH);
            let Ok(Frame::Single(Message::Request(request))) = frame else {
                panic!("{:?}", encoded.text());
            };
            assert_eq!(&*request.method, "a/b");
            assert_eq!(request.params.as_ref().map(RawJson::to_value), expected);
            assert_eq!(encoded.params().map(|params| params.to_value()), expected);
            assert!(request.params.is_none_or(|params| params.to_value() != Value::Null));
        }
    }
}
