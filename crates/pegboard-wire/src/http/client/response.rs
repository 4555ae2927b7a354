//! Responses to HTTP requests, however they were sent.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::header::CONTENT_ENCODING;
use http::{HeaderName, HeaderValue, StatusCode};
use tokio::time;

use super::endpoint::{DRAIN_TIMEOUT, MAX_DRAINED_BYTES};
use super::general::body_error;
use super::pool::{PooledResponse, network_error};
use crate::transport::TransportError;

/// A response with its body still to be read. Dropping it closes the connection, or resets the stream.
#[derive(Debug)]
pub(crate) enum HttpResponse {
    /// On a pooled connection.
    Pooled {
        response: PooledResponse,
        /// Decompression, for a server that compresses although it was asked not to.
        decoder: Option<Box<BodyDecoder>>,
    },
    /// From the general client: TLS, HTTP/2, proxies.
    General(reqwest::Response),
}

/// Maximum number of compressed bytes that are inflated at once, which bounds the size of a chunk: the caller
/// checks the size of the body after each.
const INFLATED_AT_ONCE: usize = 4 * 1024;

/// Decompression of a body, in small steps.
#[derive(Debug)]
pub(crate) struct BodyDecoder {
    decoder: MultiGzDecoder<Vec<u8>>,
    /// Bytes that were read and not inflated yet.
    compressed: Bytes,
}

impl Default for BodyDecoder {
    fn default() -> Self {
        Self { decoder: MultiGzDecoder::new(Vec::new()), compressed: Bytes::new() }
    }
}

impl BodyDecoder {
    async fn next_chunk(&mut self, body: &mut PooledResponse) -> Result<Option<Bytes>, TransportError> {
        let cut_off = |error: io::Error| network_error("the response was cut off", &error);
        loop {
            if self.compressed.is_empty() {
                let Some(chunk) = body.chunk().await? else {
                    self.decoder.try_finish().map_err(cut_off)?;
                    let rest = std::mem::take(self.decoder.get_mut());
                    return Ok((!rest.is_empty()).then(|| rest.into()));
                };
                self.compressed = chunk;
            }
            let n_bytes = self.compressed.len().min(INFLATED_AT_ONCE);
            let step = self.compressed.split_to(n_bytes);
            self.decoder.write_all(&step).and_then(|()| self.decoder.flush()).map_err(cut_off)?;
            let inflated = std::mem::take(self.decoder.get_mut());
            if !inflated.is_empty() {
                return Ok(Some(inflated.into()));
            }
        }
    }
}

impl HttpResponse {
    /// Wraps a response on a pooled connection.
    pub(super) fn pooled(response: PooledResponse) -> Result<Self, TransportError> {
        if response.head().is_plain_json {
            return Ok(Self::Pooled { response, decoder: None });
        }
        let decoder = match response.head().header_values(CONTENT_ENCODING.as_str()).next() {
            None => None,
            Some(coding) if is_coding(coding, "identity") => None,
            Some(coding) if is_coding(coding, "gzip") || is_coding(coding, "x-gzip") => Some(Box::default()),
            Some(_) => return Err(unknown_coding()),
        };
        Ok(Self::Pooled { response, decoder })
    }

    /// Wraps a response of the general client, which removes the header of an encoding that it decodes.
    pub(super) fn general(response: reqwest::Response) -> Result<Self, TransportError> {
        match response.headers().get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
            None => Ok(Self::General(response)),
            Some(coding) if is_coding(coding, "identity") => Ok(Self::General(response)),
            Some(_) => Err(unknown_coding()),
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Pooled { response, .. } => response.head().status,
            Self::General(response) => response.status(),
        }
    }

    /// Returns `true` if the body is known to be JSON without a look at the headers.
    pub(crate) fn is_plain_json(&self) -> bool {
        matches!(self, Self::Pooled { response, .. } if response.head().is_plain_json)
    }

    /// Returns the first value of a header.
    pub(crate) fn header<'h>(&'h self, name: &HeaderName) -> Option<&'h [u8]> {
        match self {
            Self::Pooled { response, .. } => response.head().header_values(name.as_str()).next(),
            Self::General(response) => response.headers().get(name).map(HeaderValue::as_bytes),
        }
    }

    /// Returns all values of a header.
    pub(crate) fn header_values<'h>(&'h self, name: &HeaderName) -> Vec<&'h [u8]> {
        match self {
            Self::Pooled { response, .. } => response.head().header_values(name.as_str()).collect(),
            Self::General(response) => {
                response.headers().get_all(name).iter().map(HeaderValue::as_bytes).collect()
            }
        }
    }

    /// Returns the declared length of the body, if there is one.
    pub(crate) fn content_length(&self) -> Option<u64> {
        match self {
            Self::Pooled { decoder: Some(_), .. } => None,
            Self::Pooled { response, .. } => response.content_length(),
            Self::General(response) => response.content_length(),
        }
    }

    /// Reads the next chunk of the body; `None` at the end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, TransportError> {
        match self {
            Self::Pooled { response, decoder: None } => response.chunk().await,
            Self::Pooled { response, decoder: Some(decoder) } => decoder.next_chunk(response).await,
            Self::General(response) => response.chunk().await.map_err(body_error),
        }
    }

    /// Discards the rest of the body, so that its connection can be reused.
    pub(crate) async fn drain(mut self) {
        let reading = async {
            let mut n_read = 0;
            while let Ok(Some(chunk)) = self.chunk().await {
                n_read += chunk.len();
                if n_read > MAX_DRAINED_BYTES {
                    break;
                }
            }
        };
        let _ = time::timeout(DRAIN_TIMEOUT, reading).await;
    }
}

fn is_coding(coding: &[u8], name: &str) -> bool {
    coding.eq_ignore_ascii_case(name.as_bytes())
}

fn unknown_coding() -> TransportError {
    TransportError::protocol("the response has an unknown content encoding")
}
