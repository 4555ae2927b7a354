//! Headers of a received request.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Headers of a request, by name.
pub trait NamedHeaders {
    /// Returns the first value of a header.
    fn first(&self, name: &HeaderName) -> Option<&[u8]>;

    /// Returns the value of a header that must not occur more than once.
    fn only(&self, name: &HeaderName) -> Result<Option<&[u8]>, RepeatedHeader>;
}

/// A header occurs more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatedHeader;

impl NamedHeaders for HeaderMap {
    fn first(&self, name: &HeaderName) -> Option<&[u8]> {
        self.get(name).map(HeaderValue::as_bytes)
    }

    fn only(&self, name: &HeaderName) -> Result<Option<&[u8]>, RepeatedHeader> {
        only(self.get_all(name).iter().map(HeaderValue::as_bytes))
    }
}

/// Headers of a received request. Clones share them.
///
/// Only a few are ever looked up, so that the text of the head is searched for them. A map of all headers, which takes
/// as long to make as a small request to decode, is made on first use.
#[derive(Clone, Debug, Default)]
pub struct ReceivedHeaders(Option<Arc<HeaderSource>>);

#[derive(Debug)]
enum HeaderSource {
    Text { fields: HeaderText, map: OnceLock<HeaderMap> },
    Map(HeaderMap),
}

/// Headers as they were written, valid for a map.
#[derive(Debug)]
pub(crate) struct HeaderText {
    pub(crate) text: Bytes,
    /// Positions of the names and of the values.
    pub(crate) fields: Vec<(Range<u16>, Range<u16>)>,
}

impl From<HeaderMap> for ReceivedHeaders {
    fn from(map: HeaderMap) -> Self {
        Self((!map.is_empty()).then(|| Arc::new(HeaderSource::Map(map))))
    }
}

impl From<HeaderText> for ReceivedHeaders {
    fn from(fields: HeaderText) -> Self {
        Self(Some(Arc::new(HeaderSource::Text { fields, map: OnceLock::new() })))
    }
}

impl ReceivedHeaders {
    /// Returns all headers as a map.
    pub fn as_map(&self) -> &HeaderMap {
        static NONE: OnceLock<HeaderMap> = OnceLock::new();
        match self.0.as_deref() {
            Some(HeaderSource::Map(map)) => map,
            Some(HeaderSource::Text { fields, map }) => map.get_or_init(|| fields.to_map()),
            None => NONE.get_or_init(HeaderMap::new),
        }
    }
}

impl NamedHeaders for ReceivedHeaders {
    fn first(&self, name: &HeaderName) -> Option<&[u8]> {
        match self.0.as_deref()? {
            HeaderSource::Map(map) => map.first(name),
            HeaderSource::Text { fields, .. } => fields.values(name).next(),
        }
    }

    fn only(&self, name: &HeaderName) -> Result<Option<&[u8]>, RepeatedHeader> {
        match self.0.as_deref() {
            Some(HeaderSource::Map(map)) => map.only(name),
            Some(HeaderSource::Text { fields, .. }) => only(fields.values(name)),
            None => Ok(None),
        }
    }
}

impl HeaderText {
    fn at(&self, span: &Range<u16>) -> &[u8] {
        &self.text[usize::from(span.start)..usize::from(span.end)]
    }

    fn values<'h, 'n>(&'h self, name: &'n HeaderName) -> impl Iterator<Item = &'h [u8]> + use<'h, 'n> {
        let name = name.as_str().as_bytes();
        let is_named = move |key: &Range<u16>| {
            // Mostly the length decides, and most clients write names in lower case.
            key.len() == name.len() && (self.at(key) == name || self.at(key).eq_ignore_ascii_case(name))
        };
        let named = self.fields.iter().filter(move |(key, _)| is_named(key));
        named.map(|(_, value)| self.at(value))
    }

    fn to_map(&self) -> HeaderMap {
        let field = |(name, value): &(Range<u16>, Range<u16>)| {
            let value = self.text.slice_ref(self.at(value));
            Some((HeaderName::from_bytes(self.at(name)).ok()?, HeaderValue::from_maybe_shared(value).ok()?))
        };
        let mut map = HeaderMap::with_capacity(self.fields.len());
        for (name, value) in self.fields.iter().filter_map(field) {
            map.append(name, value);
        }
        map
    }
}

fn only<'h>(mut values: impl Iterator<Item = &'h [u8]>) -> Result<Option<&'h [u8]>, RepeatedHeader> {
    match (values.next(), values.next()) {
        (only, None) => Ok(only),
        (_, Some(_)) => Err(RepeatedHeader),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_found_alike_in_text_and_map() {
        let text = "Host: a\r\nAccept: b\r\naccept: c\r\nx-long-name: \u{e9}\r\n";
        let span = |part: &str| {
            let start = text.find(part).unwrap();
            u16::try_from(start).unwrap()..u16::try_from(start + part.len()).unwrap()
        };
        let names = ["Host", "Accept", "accept", "x-long-name"];
        let values = ["a\r", "b\r", "c\r", "\u{e9}\r"];
        let value_span = |value: &str| {
            let span = span(value);
            span.start..span.end - 1
        };
        let fields = names.iter().zip(values).map(|(name, value)| (span(name), value_span(value))).collect();
        let written = ReceivedHeaders::from(HeaderText { text: Bytes::from(text), fields });
        let mapped = ReceivedHeaders::from(written.as_map().clone());
        for (name, expected) in [
            ("host", Ok(Some("a".as_bytes()))),
            ("accept", Err(RepeatedHeader)),
            ("x-long-name", Ok(Some("\u{e9}".as_bytes()))),
            ("x-long", Ok(None)),
        ] {
            let name = HeaderName::from_static(name);
            for headers in [&written, &mapped] {
                assert_eq!(headers.only(&name), expected, "{name}");
            }
            assert_eq!(written.first(&name), mapped.first(&name), "{name}");
            assert_eq!(ReceivedHeaders::default().first(&name), None);
        }
        assert!(ReceivedHeaders::from(HeaderMap::new()).as_map().is_empty());
    }
}
