//! Streamable HTTP client: every message is a separate POST, in both eras.
//!
//! The era follows from the messages: a request with a protocol version in `_meta` is stateless, the answer
//! to `initialize` starts a session.

mod call;
pub(crate) mod endpoint;
mod listen;
pub(crate) mod send_order;
mod session;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use reqwest::{Response, Url};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time;
use tokio_util::sync::DropGuard;

use crate::connection::cancel_notification;
use crate::http::client::call::HttpCall;
use crate::http::client::endpoint::HttpEndpoint;
use crate::http::client::send_order::SendOrder;
use crate::http::client::session::HttpClientSession;
use crate::link::{Arrival, CLOSE_TIMEOUT, CancelRequest, Letter, Link, Port, TransportError, link};
use crate::message::{Id, Message};

/// Maximum number of requests in flight; more wait for a permit.
const MAX_IN_FLIGHT: usize = 1_000;

/// Maximum number of queued and running sends; beyond that no more messages are accepted.
const MAX_TASKS: usize = 16_384;

/// Address and limits of an HTTP server.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// URL of the endpoint.
    pub url: Url,
    /// Headers of every request. Headers of a single message take precedence.
    pub headers: HeaderMap,
    /// Maximum size of a response or event in bytes, after decompression.
    pub max_body: usize,
    /// Maximum nesting depth of JSON.
    pub max_depth: usize,
    /// Time limit for establishing a connection.
    pub connect_timeout: Duration,
    /// A client to share with others, made by [`shared_client`]; `None` creates one.
    pub client: Option<reqwest::Client>,
}

impl HttpOptions {
    /// Creates the default options for a server at `url`.
    pub fn new(url: Url) -> Self {
        Self {
            url,
            headers: HeaderMap::new(),
            max_body: crate::MAX_MESSAGE_BYTES,
            max_depth: crate::MAX_DEPTH,
            connect_timeout: Duration::from_secs(10),
            client: None,
        }
    }
}

/// Creates an HTTP client that several links can share. It follows no redirects and retries no requests.
pub fn shared_client(connect_timeout: Duration) -> Result<reqwest::Client, TransportError> {
    endpoint::client(connect_timeout)
}

/// Creates a link to a server that speaks streamable HTTP.
///
/// Nothing is sent before the first message. An unreachable server fails the request, never the link.
/// Dropping the link cancels the requests in flight and deletes the session, if any.
pub fn connect(options: HttpOptions) -> Result<Link, TransportError> {
    let endpoint = HttpEndpoint::new(options)?;
    let (link, Port { letters, cancels, arrivals }) = link();
    let server = Arc::new(HttpTransport {
        endpoint,
        session: HttpClientSession::default(),
        permits: Semaphore::new(MAX_IN_FLIGHT),
        arrivals,
    });
    // The task ends when the link is dropped, at most `CLOSE_TIMEOUT` later.
    tokio::spawn(HttpDispatcher::new(server).run(letters, cancels));
    Ok(link)
}

/// State shared by all tasks of one transport.
#[derive(Debug)]
struct HttpTransport {
    endpoint: HttpEndpoint,
    session: HttpClientSession,
    permits: Semaphore,
    arrivals: mpsc::Sender<Arrival>,
}

impl HttpTransport {
    async fn deliver(&self, arrival: Arrival) {
        // If the receiver is gone, the link is closing, and this task with it.
        let _ = self.arrivals.send(arrival).await;
    }

    /// Sends a message without a response body; `None` if the server did not accept it.
    async fn send_oneway(&self, message: &Message, headers: HeaderMap) -> Option<Response> {
        let headers = self.session.headers_with(headers);
        self.endpoint.send_oneway(headers, message.encode()).await
    }

    async fn send_and_drain(&self, message: &Message, headers: HeaderMap) -> SendOutcome {
        endpoint::drain_if_any(self.send_oneway(message, headers).await).await;
        SendOutcome::Sent
    }
}

/// Sends messages, in order where order matters, and tracks requests in flight.
struct HttpDispatcher {
    server: Arc<HttpTransport>,
    order: SendOrder,
    tasks: JoinSet<SendOutcome>,
    in_flight: HashMap<Id, InFlightRequest>,
    listener: JoinSet<()>,
}

/// A request in flight.
struct InFlightRequest {
    task: AbortHandle,
    /// Headers of the message that cancels it; `None` if it is not cancelled by a message.
    cancel_headers: Option<HeaderMap>,
}

/// Result of a finished task.
enum SendOutcome {
    RequestDone(Id),
    Sent,
    /// The server has accepted `notifications/initialized`, so it may send messages of its own. Later
    /// messages wait until its stream is open.
    SessionStarted(DropGuard),
}

impl HttpDispatcher {
    fn new(server: Arc<HttpTransport>) -> Self {
        Self {
            server,
            order: SendOrder::default(),
            tasks: JoinSet::new(),
            in_flight: HashMap::new(),
            listener: JoinSet::new(),
        }
    }

    async fn run(
        mut self,
        mut letters: mpsc::Receiver<Letter>,
        mut cancels: mpsc::UnboundedReceiver<CancelRequest>,
    ) {
        loop {
            tokio::select! {
                // A request is cancelled after it was sent, so messages come first.
                biased;
                letter = letters.recv(), if self.tasks.len() < MAX_TASKS => match letter {
                    Some(letter) => self.send(letter),
                    None => break,
                },
                cancel = cancels.recv() => match cancel {
                    Some(cancel) => self.cancel(&cancel),
                    None => break,
                },
                Some(done) = self.tasks.join_next() => match done {
                    Ok(done) => self.on_task_done(done),
                    // The request was cancelled.
                    Err(_aborted) => {}
                },
            }
        }
        while let Ok(cancel) = cancels.try_recv() {
            self.cancel(&cancel);
        }
        self.shut_down().await;
    }

    fn send(&mut self, letter: Letter) {
        let Letter { message, headers, .. } = letter;
        let server = Arc::clone(&self.server);
        match message {
            Message::Request(request) => {
                let turn = self.order.next_turn();
                let id = request.id.clone();
                let call = HttpCall::new(server, request, headers);
                let cancel_headers = call.cancel_headers();
                let task = self.tasks.spawn(async move {
                    turn.wait().await;
                    SendOutcome::RequestDone(call.run().await)
                });
                self.in_flight.insert(id, InFlightRequest { task, cancel_headers });
            }
            Message::Notification(notification) => {
                let is_initialized = &*notification.method == "notifications/initialized";
                let message = Message::Notification(notification);
                let (turn, done) = self.order.barrier();
                self.tasks.spawn(async move {
                    turn.wait().await;
                    let Some(response) = server.send_oneway(&message, headers).await else {
                        return SendOutcome::Sent;
                    };
                    if is_initialized {
                        endpoint::drain(response).await;
                        return SendOutcome::SessionStarted(done);
                    }
                    drop(done);
                    endpoint::drain(response).await;
                    SendOutcome::Sent
                });
            }
            Message::Response(_) => {
                let turn = self.order.next_turn();
                self.tasks.spawn(async move {
                    turn.wait().await;
                    server.send_and_drain(&message, headers).await
                });
            }
        }
    }

    fn cancel(&mut self, cancel: &CancelRequest) {
        let Some(in_flight) = self.in_flight.remove(&cancel.id) else { return };
        in_flight.task.abort();
        if let Some(headers) = in_flight.cancel_headers {
            let server = Arc::clone(&self.server);
            let message = cancel_notification(cancel);
            self.tasks.spawn(async move { server.send_and_drain(&message, headers).await });
        }
    }

    fn on_task_done(&mut self, done: SendOutcome) {
        match done {
            SendOutcome::RequestDone(id) => {
                self.in_flight.remove(&id);
            }
            SendOutcome::Sent => {}
            SendOutcome::SessionStarted(send_barrier) => {
                // The previous listener, if any, ends with its set.
                self.listener = JoinSet::new();
                self.listener.spawn(listen::listen(Arc::clone(&self.server), send_barrier));
            }
        }
    }

    /// Cancels requests in flight and deletes the session.
    async fn shut_down(mut self) {
        self.listener.abort_all();
        for in_flight in self.in_flight.values() {
            in_flight.task.abort();
        }
        let shutting_down = async {
            while self.tasks.join_next().await.is_some() {}
            if let Some(headers) = self.server.session.end() {
                self.server.endpoint.delete(headers).await;
            }
        };
        let _ = time::timeout(CLOSE_TIMEOUT, shutting_down).await;
    }
}
