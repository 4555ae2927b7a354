//! WebSocket server: a router that can be mounted at any path.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use http::header::SEC_WEBSOCKET_PROTOCOL;
use http::{HeaderMap, HeaderValue, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::http::server::{HttpRejection, HttpServerOptions, check_host_and_origin};
use crate::server::ServiceServer;
use crate::transport::{CLOSE_TIMEOUT, InputLimits, TransportError, channels};
use crate::websocket::message_input::MessageInput;
use crate::websocket::pump::{max_write_buffer, pump};

/// Subprotocol of MCP.
const PROTOCOL: &str = "mcp";

/// Size of the library's read buffer, which grows to that of the parts of frames that it gets.
const READ_BUFFER_BYTES: usize = 4 * 1024;

/// Returns a router that serves `server` over WebSocket. Hosts and origins are checked as for HTTP.
pub fn endpoint(server: ServiceServer, options: HttpServerOptions) -> Router {
    let server = server.with_response_memory(options.response_memory.clone());
    Router::new().fallback(any(upgrade)).with_state(Arc::new((server, options)))
}

async fn upgrade(
    State(endpoint): State<Arc<(ServiceServer, HttpServerOptions)>>,
    mut request: Request,
) -> Response {
    let (_, options) = &*endpoint;
    if let Err(rejection) = check_host_and_origin(request.headers(), request.uri(), options) {
        return rejection.into_response();
    }
    let Ok(mut response) = create_response_with_body(&request, Body::empty) else {
        return HttpRejection(StatusCode::BAD_REQUEST, "expected a WebSocket handshake").into_response();
    };
    if offers_protocol(request.headers()) {
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    }
    let upgrading = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrading.await {
            Ok(upgraded) => serve(&endpoint, upgraded).await,
            Err(error) => tracing::debug!(%error, "A connection could not be upgraded."),
        }
    });
    response
}

fn offers_protocol(headers: &HeaderMap) -> bool {
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|names| names.to_str().ok());
    offered.flat_map(|names| names.split(',')).any(|name| name.trim() == PROTOCOL)
}

/// Serves a client until it disconnects, or until a message of it is refused.
async fn serve(endpoint: &(ServiceServer, HttpServerOptions), upgraded: Upgraded) {
    let (server, options) = endpoint;
    let limits =
        InputLimits { max_bytes: options.max_body, max_depth: options.max_depth, ..InputLimits::server() };
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .max_write_buffer_size(max_write_buffer(limits))
        .max_message_size(Some(limits.max_bytes))
        .max_frame_size(Some(limits.max_bytes));
    let input = MessageInput::new(TokioIo::new(upgraded), options.request_memory.clone(), limits.max_bytes);
    let mut socket = WebSocketStream::from_raw_socket(input, Role::Server, Some(config)).await;
    let (transport, end) = channels();
    let exchange = async {
        pump(Messages(&mut socket), end, limits).await;
        if let Some(frame) = socket.get_mut().take_rejection() {
            let _ = time::timeout(CLOSE_TIMEOUT, socket.send(Message::Close(Some(frame)))).await;
        }
    };
    tokio::join!(server.serve(transport), exchange);
}

/// The messages of a socket. The library answers pings, and a close frame is followed by the end of the stream.
struct Messages<'s, S>(&'s mut WebSocketStream<MessageInput<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for Messages<'_, S> {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let bytes = match ready!(self.0.poll_next_unpin(context)) {
                Some(Ok(Message::Text(text))) => text.into(),
                Some(Ok(Message::Binary(bytes))) => bytes,
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_))) => {
                    continue;
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(TransportError::failed(error)))),
                None => return Poll::Ready(None),
            };
            return Poll::Ready(Some(Ok(self.0.get_mut().complete(bytes))));
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Sink<Bytes> for Messages<'_, S> {
    type Error = TransportError;

    fn poll_ready(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.0.poll_ready_unpin(context).map_err(TransportError::failed)
    }

    fn start_send(mut self: Pin<&mut Self>, bytes: Bytes) -> Result<(), TransportError> {
        let text = Utf8Bytes::try_from(bytes).map_err(TransportError::failed)?;
        self.0.start_send_unpin(Message::Text(text)).map_err(TransportError::failed)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.0.poll_flush_unpin(context).map_err(TransportError::failed)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.0.poll_close_unpin(context).map_err(TransportError::failed)
    }
}

#[cfg(test)]
mod tests;
