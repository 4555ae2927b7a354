//! WebSocket server: a router that can be mounted at any path.

use std::future;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message as Frame, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, Uri};

use crate::http::server::{HttpServerOptions, check_host_and_origin};
use crate::server::ServiceServer;
use crate::transport::{InputLimits, TransportError, channels};
use crate::websocket::pump::{READ_BUFFER_BYTES, max_write_buffer, pump};

/// Returns a router that serves `server` over WebSocket. Hosts and origins are checked as for HTTP.
pub fn endpoint(server: ServiceServer, options: HttpServerOptions) -> Router {
    let server = server.with_response_memory(options.response_memory.clone());
    Router::new().fallback(any(upgrade)).with_state(Arc::new((server, options)))
}

async fn upgrade(
    State(endpoint): State<Arc<(ServiceServer, HttpServerOptions)>>,
    uri: Uri,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let (server, options) = &*endpoint;
    if let Err(rejection) = check_host_and_origin(&headers, &uri, options) {
        return rejection.into_response();
    }
    let limits =
        InputLimits { max_bytes: options.max_body, max_depth: options.max_depth, ..InputLimits::server() };
    let server = server.clone();
    upgrade
        .protocols(["mcp"])
        .read_buffer_size(READ_BUFFER_BYTES)
        .max_write_buffer_size(max_write_buffer(limits))
        .max_message_size(limits.max_bytes)
        .max_frame_size(limits.max_bytes)
        .on_upgrade(move |socket| serve(server, socket, limits))
}

async fn serve(server: ServiceServer, socket: WebSocket, limits: InputLimits) {
    let socket = socket
        .filter_map(|frame| future::ready(received(frame)))
        .sink_map_err(TransportError::failed)
        .with(|bytes: Bytes| future::ready(text(bytes)));
    let (transport, end) = channels();
    tokio::join!(server.serve(transport), pump(socket, end, limits));
}

/// Returns the payload of a frame. The library answers pings, and a close frame is followed by the end of the
/// stream.
fn received(frame: Result<Frame, axum::Error>) -> Option<Result<Bytes, TransportError>> {
    match frame {
        Ok(Frame::Text(text)) => Some(Ok(text.into())),
        Ok(Frame::Binary(bytes)) => Some(Ok(bytes)),
        Ok(Frame::Ping(_) | Frame::Pong(_) | Frame::Close(_)) => None,
        Err(error) => Some(Err(TransportError::failed(error))),
    }
}

fn text(bytes: Bytes) -> Result<Frame, TransportError> {
    Utf8Bytes::try_from(bytes).map(Frame::Text).map_err(TransportError::failed)
}
