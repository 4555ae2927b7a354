//! Server of the HTTP+SSE transport of revision 2024-11-05: an event stream to the client, POSTs from it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time;

use crate::connection::{Connection, cancel_notification};
use crate::http::server::{HttpServerOptions, check_host_and_origin, events, plain_text, read_json};
use crate::http::sse::{self, SseEvent};
use crate::message::{Frame, Message};
use crate::server::{ClientSessionId, ServiceServer};
use crate::transport::{
    CancelRequest, IncomingEvent, OutgoingMessage, TransportEnd, TransportEvent, channels,
};

/// Returns a router with the event stream at `/sse` and POSTs at `/message`. `base` is the path where it is
/// mounted, which clients are told.
pub fn endpoint(server: ServiceServer, base: &str, options: HttpServerOptions) -> Router {
    let base = base.trim_end_matches('/').to_owned();
    let server = server.with_response_memory(options.response_memory.clone());
    let endpoint = Arc::new(LegacyEndpoint { server, base, options, sessions: Mutex::default() });
    Router::new()
        .route("/sse", get(open_stream))
        .route("/message", post(receive_message))
        .with_state(endpoint)
}

struct LegacyEndpoint {
    server: ServiceServer,
    base: String,
    options: HttpServerOptions,
    sessions: Mutex<HashMap<String, mpsc::Sender<IncomingEvent>>>,
}

impl LegacyEndpoint {
    fn sessions(&self) -> MutexGuard<'_, HashMap<String, mpsc::Sender<IncomingEvent>>> {
        // Every change is a single insertion or removal, so a panic cannot leave the map inconsistent.
        self.sessions.lock()
    }
}

/// Removes the session when its event stream ends.
struct LegacySessionGuard {
    id: String,
    endpoint: Arc<LegacyEndpoint>,
}

impl Drop for LegacySessionGuard {
    fn drop(&mut self) {
        self.endpoint.sessions().remove(&self.id);
    }
}

async fn open_stream(State(endpoint): State<Arc<LegacyEndpoint>>, request: Request) -> Response {
    if let Err(rejection) = check_host_and_origin(request.headers(), request.uri(), &endpoint.options) {
        return rejection.into_response();
    }
    let (transport, TransportEnd { outgoing, cancels, incoming }) = channels();
    let session_id = ClientSessionId::random();
    let id = session_id.as_str().to_owned();
    {
        let mut sessions = endpoint.sessions();
        if sessions.len() >= endpoint.options.max_sessions {
            return plain_text(StatusCode::SERVICE_UNAVAILABLE, "too many sessions").into_response();
        }
        sessions.insert(id.clone(), incoming);
    }
    let first = SseEvent {
        event: Some("endpoint".to_owned()),
        ..SseEvent::message(format!("{}/message?session={id}", endpoint.base))
    };
    let stream_state = LegacyEventStream {
        outgoing,
        cancels,
        keep_alive: endpoint.options.keep_alive,
        _connection: endpoint.server.open_session(transport, session_id),
        _open: LegacySessionGuard { id, endpoint },
    };
    events(Body::from_stream(stream::unfold(
        (stream_state, Some(sse::encode(&first))),
        |(mut stream_state, first)| async {
            let chunk = match first {
                Some(first) => first,
                None => stream_state.next().await?,
            };
            Some((Ok::<_, Infallible>(chunk), (stream_state, None)))
        },
    )))
    .into_response()
}

/// The event stream of one client. Dropping it ends the session.
struct LegacyEventStream {
    outgoing: mpsc::Receiver<OutgoingMessage>,
    cancels: mpsc::UnboundedReceiver<CancelRequest>,
    keep_alive: Duration,
    _connection: Connection,
    _open: LegacySessionGuard,
}

impl LegacyEventStream {
    async fn next(&mut self) -> Option<Bytes> {
        let message = tokio::select! {
            biased;
            queued = self.outgoing.recv() => queued?.message,
            Some(cancel) = self.cancels.recv() => cancel_notification(&cancel),
            () = time::sleep(self.keep_alive) => return Some(Bytes::from_static(sse::KEEP_ALIVE)),
        };
        let event = SseEvent { event: Some("message".to_owned()), ..SseEvent::message(message.encode()) };
        Some(sse::encode(&event))
    }
}

#[derive(Deserialize)]
struct MessageQuery {
    session: String,
}

async fn receive_message(
    State(endpoint): State<Arc<LegacyEndpoint>>,
    address: Query<MessageQuery>,
    request: Request,
) -> Response {
    if let Err(rejection) = check_host_and_origin(request.headers(), request.uri(), &endpoint.options) {
        return rejection.into_response();
    }
    let Some(incoming) = endpoint.sessions().get(&address.session).cloned() else {
        return plain_text(StatusCode::NOT_FOUND, "there is no such session").into_response();
    };
    let (parts, body) = request.into_parts();
    let body = match read_json(&parts.headers, body, &endpoint.options).await {
        Ok(body) => body,
        Err(rejection) => return rejection.into_response(),
    };
    let received = match Message::decode(body, endpoint.options.max_depth) {
        Ok(Frame::Single(message)) => vec![TransportEvent::Message(message)],
        Ok(Frame::Batch(messages)) => messages
            .into_iter()
            .map(|message| message.map_or_else(TransportEvent::Malformed, TransportEvent::Message))
            .collect(),
        Err(invalid) => vec![TransportEvent::Malformed(invalid)],
    };
    for event in received {
        if incoming.send(IncomingEvent::new(event).with_headers(parts.headers.clone())).await.is_err() {
            return plain_text(StatusCode::NOT_FOUND, "the session has ended").into_response();
        }
    }
    plain_text(StatusCode::ACCEPTED, "Accepted").into_response()
}
