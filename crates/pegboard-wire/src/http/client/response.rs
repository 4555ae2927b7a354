//! Responses to HTTP requests, however they were sent.

use std::io::Write;

use bytes::Bytes;
use flate2::write::GzDecoder;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Response, StatusCode};
use tokio::time;

use super::endpoint::{DRAIN_TIMEOUT, MAX_DRAINED_BYTES, body_error};
use super::pool::{PooledBody, network_error};
use crate::link::TransportError;

/// A response with its body still to be read. Dropping it closes the connection, or resets the stream.
#[derive(Debug)]
pub(crate) enum HttpResponse {
    /// On a pooled connection.
    Pooled {
        response: Response<PooledBody>,
        /// Decoder for a server that compresses although it was asked not to.
        decoder: Option<Box<GzDecoder<Vec<u8>>>>,
    },
    /// From the general client: TLS, HTTP/2, proxies.
    General(reqwest::Response),
}

impl HttpResponse {
    /// Wraps a response on a pooled connection.
    pub(super) fn pooled(response: Response<PooledBody>) -> Result<Self, TransportError> {
        let decoder = match response.headers().get(CONTENT_ENCODING).map(http::HeaderValue::as_bytes) {
            None | Some(b"identity") => None,
            Some(b"gzip" | b"x-gzip") => Some(Box::new(GzDecoder::new(Vec::new()))),
            Some(_) => return Err(TransportError::protocol("the response has an unknown content encoding")),
        };
        Ok(Self::Pooled { response, decoder })
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Pooled { response, .. } => response.status(),
            Self::General(response) => response.status(),
        }
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        match self {
            Self::Pooled { response, .. } => response.headers(),
            Self::General(response) => response.headers(),
        }
    }

    /// Returns the declared length of the body, if there is one.
    pub(crate) fn content_length(&self) -> Option<u64> {
        match self {
            Self::Pooled { decoder: Some(_), .. } => None,
            Self::Pooled { response, .. } => response.body().content_length(),
            Self::General(response) => response.content_length(),
        }
    }

    /// Reads the next chunk of the body; `None` at the end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, TransportError> {
        match self {
            Self::Pooled { response, decoder: None } => response.body_mut().chunk().await,
            Self::Pooled { response, decoder: Some(decoder) } => {
                let chunk = response.body_mut().chunk().await?;
                let written = match &chunk {
                    Some(chunk) => decoder.write_all(chunk).and_then(|()| decoder.flush()),
                    None => decoder.try_finish(),
                };
                written.map_err(|error| network_error("the response was cut off", &error))?;
                let data = Bytes::from(std::mem::take(decoder.get_mut()));
                Ok((chunk.is_some() || !data.is_empty()).then_some(data))
            }
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
