//! The server role of the HTTP+SSE transport of 2024-11-05: a stream from the server, and POSTs to it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time;

use crate::connection::{Connection, cancelled};
use crate::http::server::{HttpServerOptions, check_sender, events, plain, read_json};
use crate::http::sse::{self, SseEvent};
use crate::link::{Arrival, Cancel, Event, Letter, Port, link};
use crate::message::{Frame, Message};
use crate::server::Server;

/// An endpoint with the stream at `/sse` and the POSTs at `/message`, below wherever it is mounted. `base` is the path
/// it is mounted at, which clients are told.
pub fn endpoint(server: Server, base: &str, options: HttpServerOptions) -> Router {
    let base = base.trim_end_matches('/').to_owned();
    let endpoint = Arc::new(Endpoint { server, base, options, sessions: Mutex::default() });
    Router::new().route("/sse", get(open)).route("/message", post(take)).with_state(endpoint)
}

struct Endpoint {
    server: Server,
    base: String,
    options: HttpServerOptions,
    sessions: Mutex<HashMap<String, mpsc::Sender<Arrival>>>,
}

impl Endpoint {
    fn sessions(&self) -> MutexGuard<'_, HashMap<String, mpsc::Sender<Arrival>>> {
        // An insertion or a removal is whole by itself.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the session out of the table when its stream ends.
struct Open {
    id: String,
    endpoint: Arc<Endpoint>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.endpoint.sessions().remove(&self.id);
    }
}

async fn open(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    if let Err(refusal) = check_sender(request.headers(), request.uri(), &endpoint.options) {
        return refusal.into();
    }
    let (link, Port { letters, cancels, arrivals }) = link();
    let id = format!("{:032x}", rand::random::<u128>());
    {
        let mut sessions = endpoint.sessions();
        if sessions.len() >= endpoint.options.max_sessions {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "there are too many sessions");
        }
        sessions.insert(id.clone(), arrivals);
    }
    let first = SseEvent {
        event: Some("endpoint".to_owned()),
        ..SseEvent::message(format!("{}/message?session={id}", endpoint.base))
    };
    let reading = Reading {
        letters,
        cancels,
        keep_alive: endpoint.options.keep_alive,
        _connection: endpoint.server.open(link),
        _open: Open { id, endpoint },
    };
    events(Body::from_stream(stream::unfold(
        (reading, Some(sse::encode(&first))),
        |(mut reading, first)| async {
            let chunk = match first {
                Some(first) => first,
                None => reading.next().await?,
            };
            Some((Ok::<_, Infallible>(chunk), (reading, None)))
        },
    )))
}

/// A client's stream. Dropping it ends the session.
struct Reading {
    letters: mpsc::Receiver<Letter>,
    cancels: mpsc::UnboundedReceiver<Cancel>,
    keep_alive: Duration,
    _connection: Connection,
    _open: Open,
}

impl Reading {
    async fn next(&mut self) -> Option<Bytes> {
        let message = tokio::select! {
            biased;
            letter = self.letters.recv() => letter?.message,
            Some(cancel) = self.cancels.recv() => cancelled(&cancel),
            () = time::sleep(self.keep_alive) => return Some(Bytes::from_static(sse::KEEP_ALIVE)),
        };
        let event = SseEvent { event: Some("message".to_owned()), ..SseEvent::message(message.encode()) };
        Some(sse::encode(&event))
    }
}

#[derive(Deserialize)]
struct Address {
    session: String,
}

async fn take(State(endpoint): State<Arc<Endpoint>>, address: Query<Address>, request: Request) -> Response {
    if let Err(refusal) = check_sender(request.headers(), request.uri(), &endpoint.options) {
        return refusal.into();
    }
    let Some(arrivals) = endpoint.sessions().get(&address.session).cloned() else {
        return plain(StatusCode::NOT_FOUND, "there is no such session");
    };
    let (parts, body) = request.into_parts();
    let body = match read_json(&parts.headers, body, endpoint.options.max_body).await {
        Ok(body) => body,
        Err(refusal) => return refusal.into(),
    };
    let said = match Message::decode(body, endpoint.options.max_depth) {
        Ok(Frame::One(message)) => vec![Event::Message(message)],
        Ok(Frame::Batch(messages)) => {
            messages.into_iter().map(|message| message.map_or_else(Event::Garbage, Event::Message)).collect()
        }
        Err(garbage) => vec![Event::Garbage(garbage)],
    };
    for event in said {
        if arrivals.send(Arrival::new(event).with_headers(parts.headers.clone())).await.is_err() {
            return plain(StatusCode::NOT_FOUND, "the session has ended");
        }
    }
    plain(StatusCode::ACCEPTED, "Accepted")
}
