//! Headers of a request: those that it shares with other requests, encoded once, and its own.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::http::headers::{self, NAME};

/// Headers that many requests have in common.
#[derive(Debug)]
pub(crate) struct SharedHeaders {
    map: HeaderMap,
    encoded: Vec<u8>,
}

impl SharedHeaders {
    pub(crate) fn new(map: HeaderMap) -> Arc<Self> {
        let mut encoded = Vec::new();
        encode(&map, &mut encoded);
        Arc::new(Self { map, encoded })
    }

    pub(crate) fn map(&self) -> &HeaderMap {
        &self.map
    }
}

/// All headers of a request.
#[derive(Clone, Debug)]
pub(crate) struct RequestHeaders<'h> {
    shared: Arc<SharedHeaders>,
    /// Headers of this request alone, which take precedence.
    own: Cow<'h, HeaderMap>,
    /// Value of the name header, beside the others: all that differs between most stateless calls.
    name: Option<HeaderValue>,
    /// The `Authorization` header, if it is not among the others.
    authorization: Option<HeaderValue>,
}

impl From<HeaderMap> for RequestHeaders<'_> {
    fn from(headers: HeaderMap) -> Self {
        Self::new(SharedHeaders::new(headers), Cow::Owned(HeaderMap::new()))
    }
}

impl<'h> RequestHeaders<'h> {
    pub(crate) fn new(shared: Arc<SharedHeaders>, own: Cow<'h, HeaderMap>) -> Self {
        Self { shared, own, name: None, authorization: None }
    }

    /// Creates the headers of a request with a name, which the shared headers do not have.
    pub(crate) fn named(shared: Arc<SharedHeaders>, name: Option<HeaderValue>) -> Self {
        Self { shared, own: Cow::Owned(HeaderMap::new()), name, authorization: None }
    }

    /// Returns the headers with an `Authorization` header, in place of one that they have.
    pub(super) fn authorized(&self, authorization: Option<HeaderValue>) -> RequestHeaders<'_> {
        let own = Cow::Borrowed(&*self.own);
        RequestHeaders { shared: Arc::clone(&self.shared), own, name: self.name.clone(), authorization }
    }

    /// Returns a size that suffices for most encoded headers.
    pub(super) fn n_bytes(&self) -> usize {
        const OWN_BYTES: usize = 64;
        let n_name_bytes = self.name.as_ref().map_or(0, |name| NAME.as_str().len() + name.len() + 4);
        let n_authorization = self.authorization.as_ref().map_or(0, |value| OWN_BYTES + value.len());
        self.shared.encoded.len() + OWN_BYTES * self.own.len() + n_name_bytes + n_authorization
    }

    /// Appends the headers as they are sent over HTTP/1.1.
    pub(super) fn encode(&self, head: &mut Vec<u8>) {
        let is_replaced = self.authorization.is_some() && self.own.contains_key(AUTHORIZATION);
        if is_replaced || self.own.keys().any(|name| self.shared.map.contains_key(name)) {
            return encode(&self.to_map(), head);
        }
        head.extend_from_slice(&self.shared.encoded);
        if let Some(name) = &self.name {
            encode_field(&NAME, name, head);
        }
        encode(&self.own, head);
        if let Some(value) = &self.authorization {
            encode_field(&AUTHORIZATION, value, head);
        }
    }

    /// Returns the headers as a map.
    pub(super) fn to_map(&self) -> HeaderMap {
        let mut all = self.shared.map.clone();
        all.extend(self.name.clone().map(|name| (NAME, name)));
        headers::set_all(&mut all, &self.own);
        if let Some(value) = &self.authorization {
            all.insert(AUTHORIZATION, value.clone());
        }
        all
    }
}

fn encode(headers: &HeaderMap, head: &mut Vec<u8>) {
    for (name, value) in headers {
        encode_field(name, value, head);
    }
}

fn encode_field(name: &HeaderName, value: &HeaderValue, head: &mut Vec<u8>) {
    for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
        head.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_headers_replace_shared_ones_of_the_same_name() {
        let map = |headers: &[(&'static str, &'static str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            map
        };
        let check = |shared: &[_], own: &[_], expected: &str| {
            let headers = RequestHeaders::new(SharedHeaders::new(map(shared)), Cow::Owned(map(own)));
            let authorization = expected.contains("Bearer").then(|| HeaderValue::from_static("Bearer t"));
            let headers = headers.authorized(authorization);
            let mut encoded = Vec::new();
            headers.encode(&mut encoded);
            assert_eq!(String::from_utf8(encoded).unwrap(), expected);
            let mut from_map = Vec::new();
            encode(&headers.to_map(), &mut from_map);
            assert_eq!(String::from_utf8(from_map).unwrap(), expected);
        };
        check(&[("a", "1"), ("b", "2")], &[], "a: 1\r\nb: 2\r\n");
        check(&[("a", "1")], &[("b", "2")], "a: 1\r\nb: 2\r\n");
        check(&[("a", "1")], &[("b", "2")], "a: 1\r\nb: 2\r\nauthorization: Bearer t\r\n");
        check(&[("a", "1")], &[("authorization", "of-caller")], "a: 1\r\nauthorization: Bearer t\r\n");
        check(&[("a", "1"), ("b", "2")], &[("a", "3"), ("a", "4")], "a: 3\r\na: 4\r\nb: 2\r\n");
    }

    #[test]
    fn a_name_is_one_of_the_headers() {
        let shared = HeaderMap::from_iter([(HeaderName::from_static("a"), HeaderValue::from_static("1"))]);
        let name = Some(HeaderValue::from_static("echo"));
        let headers = RequestHeaders::named(SharedHeaders::new(shared), name);
        let mut encoded = Vec::new();
        headers.encode(&mut encoded);
        assert_eq!(String::from_utf8(encoded).unwrap(), "a: 1\r\nmcp-name: echo\r\n");
        assert_eq!(headers.to_map()[NAME], "echo");
    }
}
