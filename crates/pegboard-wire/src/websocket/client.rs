//! WebSocket client.

use std::future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::HeaderMap;
use http::header::{HeaderValue, SEC_WEBSOCKET_PROTOCOL, WWW_AUTHENTICATE};
use reqwest::Url;
use rustls::ClientConfig;
use rustls_platform_verifier::ConfigVerifierExt;
use tokio::time;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Response;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Utf8Bytes};
use tokio_tungstenite::{Connector, connect_async_tls_with_config};

use crate::transport::{InputLimits, TransportError, TransportHandle, channels};
use crate::websocket::pump::{READ_BUFFER_BYTES, max_write_buffer, pump};

/// Time limit for connecting and the WebSocket handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to a server at a `ws://` or `wss://` URL and returns the transport.
///
/// The task behind the transport ends when the server closes the connection, or when the transport is dropped.
pub async fn connect(
    url: &Url,
    headers: HeaderMap,
    limits: InputLimits,
) -> Result<TransportHandle, TransportError> {
    let mut request = url.as_str().into_client_request().map_err(|error| transport_error(error, limits))?;
    request.headers_mut().extend(headers);
    request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("mcp"));
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .max_write_buffer_size(max_write_buffer(limits))
        .max_message_size(Some(limits.max_bytes))
        .max_frame_size(Some(limits.max_bytes));
    // Without Nagle's algorithm: small messages go out at once.
    let connecting = Box::pin(connect_async_tls_with_config(request, Some(config), true, connector(url)?));
    let (socket, _response) = match time::timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(connected) => connected.map_err(|error| transport_error(error, limits))?,
        Err(_elapsed) => {
            let what = format!("the WebSocket handshake timed out after {} s", CONNECT_TIMEOUT.as_secs());
            return Err(TransportError::failed(what));
        }
    };
    let socket = socket
        .filter_map(move |message| future::ready(received(message, limits)))
        .sink_map_err(move |error| transport_error(error, limits))
        .with(|bytes| future::ready(text(bytes)));
    let (transport, end) = channels();
    tokio::spawn(pump(socket, end, limits));
    Ok(transport)
}

/// Returns the TLS settings for a `wss://` URL: certificates are verified as those of HTTPS servers.
fn connector(url: &Url) -> Result<Option<Connector>, TransportError> {
    if url.scheme() != "wss" {
        return Ok(None);
    }
    Ok(Some(Connector::Rustls(tls_config()?)))
}

/// Returns the TLS settings of all connections: the trusted certificates are read once. An error is not kept, so that
/// the next connection finds certificates that were repaired.
fn tls_config() -> Result<Arc<ClientConfig>, TransportError> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(Arc::clone(config));
    }
    let created = ClientConfig::with_platform_verifier().map_err(|error| {
        TransportError::untrusted(&error).unwrap_or_else(|| TransportError::failed(error))
    })?;
    Ok(Arc::clone(CONFIG.get_or_init(|| Arc::new(created))))
}

type WebSocketResult = Result<tungstenite::Message, tungstenite::Error>;

/// Returns the payload of a frame. The library answers pings, and a close frame is followed by the end of the
/// stream.
fn received(message: WebSocketResult, limits: InputLimits) -> Option<Result<Bytes, TransportError>> {
    match message {
        Ok(tungstenite::Message::Text(text)) => Some(Ok(text.into())),
        Ok(tungstenite::Message::Binary(bytes)) => Some(Ok(bytes)),
        Ok(
            tungstenite::Message::Ping(_)
            | tungstenite::Message::Pong(_)
            | tungstenite::Message::Close(_)
            | tungstenite::Message::Frame(_),
        ) => None,
        Err(error) => Some(Err(transport_error(error, limits))),
    }
}

fn text(bytes: Bytes) -> Result<tungstenite::Message, TransportError> {
    let text = Utf8Bytes::try_from(bytes).map_err(TransportError::failed)?;
    Ok(tungstenite::Message::Text(text))
}

fn transport_error(error: tungstenite::Error, limits: InputLimits) -> TransportError {
    match error {
        tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed => TransportError::Closed,
        tungstenite::Error::Http(response) => status_error(&response),
        tungstenite::Error::Capacity(_) => {
            TransportError::protocol(format!("a message exceeds {} bytes", limits.max_bytes))
        }
        tungstenite::Error::Protocol(problem) => TransportError::protocol(problem),
        tungstenite::Error::Utf8(problem) => TransportError::protocol(problem),
        other => TransportError::untrusted(&other).unwrap_or_else(|| TransportError::failed(other)),
    }
}

fn status_error(response: &Response) -> TransportError {
    let authenticate = response.headers().get(WWW_AUTHENTICATE);
    TransportError::Status {
        status: response.status().as_u16(),
        body: response.body().clone().unwrap_or_default().into(),
        authenticate: authenticate.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_share_the_trusted_certificates() {
        assert!(Arc::ptr_eq(&tls_config().unwrap(), &tls_config().unwrap()));
    }
}
