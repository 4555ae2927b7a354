//! Streamable HTTP client: every message is a separate POST, in both eras.
//!
//! A request is driven by its caller, who awaits its response; notifications, responses and cancellations are
//! sent by a dispatcher.
//!
//! The era follows from the messages: a request with a protocol version in `_meta` is stateless, the answer
//! to `initialize` starts a session.

mod authorization;
pub(crate) mod call;
pub(crate) mod endpoint;
mod general;
mod http1;
mod listen;
mod pool;
pub(crate) mod request_headers;
pub(crate) mod response;
pub(crate) mod send_order;
mod session;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use http::HeaderMap;
use parking_lot::Mutex;
use reqwest::Url;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time;
use tokio_util::sync::DropGuard;

use crate::connection::{ConnectionShared, cancel_notification};
use crate::http::client::endpoint::HttpEndpoint;
use crate::http::client::request_headers::{RequestHeaders, SharedHeaders};
use crate::http::client::response::HttpResponse;
use crate::http::client::send_order::{MessageTurn, SendOrder, SendTurn};
use crate::http::client::session::HttpClientSession;
use crate::http::headers::{self, MirroredHeaders};
use crate::message::Message;
use crate::transport::{
    CAPACITY, CLOSE_TIMEOUT, CancelRequest, OutgoingMessage, RequestPath, TransportError, TransportHandle,
};

pub use authorization::{AuthorizationError, AuthorizationRejection, RejectionReason, RequestAuthorizer};
pub use general::LazyHttpClient;

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
    /// Source of the `Authorization` header. Headers above, and a user in the URL, take precedence.
    pub authorizer: Option<Arc<dyn RequestAuthorizer>>,
    /// Maximum size of a response or event in bytes, after decompression.
    pub max_body: usize,
    /// Maximum nesting depth of JSON.
    pub max_depth: usize,
    /// Time limit for establishing a connection.
    pub connect_timeout: Duration,
    /// The client for TLS, HTTP/2 and proxies, shared by all with a clone of it.
    pub client: LazyHttpClient,
}

impl HttpOptions {
    /// Creates the default options for a server at `url`.
    pub fn new(url: Url) -> Self {
        Self {
            url,
            headers: HeaderMap::new(),
            authorizer: None,
            max_body: crate::MAX_MESSAGE_BYTES,
            max_depth: crate::MAX_DEPTH,
            connect_timeout: Duration::from_secs(10),
            client: LazyHttpClient::default(),
        }
    }
}

/// Creates a transport to a server that speaks streamable HTTP.
///
/// Nothing is sent before the first message. An unreachable server fails the request, never the transport.
/// Dropping the connection deletes the session, if any.
pub fn connect(options: HttpOptions) -> Result<TransportHandle, TransportError> {
    let transport = Arc::new(HttpTransport {
        endpoint: HttpEndpoint::new(options)?,
        session: HttpClientSession::default(),
        permits: Semaphore::new(MAX_IN_FLIGHT),
        order: Mutex::default(),
        call_headers: OnceLock::new(),
    });
    let (outgoing, queued) = mpsc::channel(CAPACITY);
    let (cancels, cancelled) = mpsc::unbounded_channel();
    let dispatcher =
        HttpDispatcher { transport: Arc::clone(&transport), outgoing: queued, cancels: cancelled };
    Ok(TransportHandle { outgoing, cancels, requests: RequestPath::Http { transport, dispatcher } })
}

/// State shared by all requests and tasks of one connection.
#[derive(Debug)]
pub(crate) struct HttpTransport {
    endpoint: HttpEndpoint,
    session: HttpClientSession,
    permits: Semaphore,
    order: Mutex<SendOrder>,
    /// Headers of a stateless tool call.
    call_headers: OnceLock<Arc<SharedHeaders>>,
}

impl HttpTransport {
    /// Returns the turn of a request: after the last notification.
    pub(crate) fn next_turn(&self) -> SendTurn {
        self.order.lock().next_turn()
    }

    /// Returns the turn of a queued message. Later messages wait for a notification, and for nothing else.
    pub(crate) fn turn_of(&self, message: &Message) -> MessageTurn {
        let mut order = self.order.lock();
        match message {
            Message::Notification(_) => {
                let (turn, barrier) = order.barrier();
                MessageTurn { turn, barrier: Some(barrier) }
            }
            Message::Request(_) | Message::Response(_) => {
                MessageTurn { turn: order.next_turn(), barrier: None }
            }
        }
    }

    /// Returns the headers of a message in the session.
    fn session_headers<'h>(&self, own: &'h HeaderMap) -> RequestHeaders<'h> {
        RequestHeaders::new(self.session.post_headers(&self.endpoint), Cow::Borrowed(own))
    }

    /// Returns the headers of a stateless request.
    fn stateless_headers(&self, mirrored: &MirroredHeaders, own: &HeaderMap) -> RequestHeaders<'static> {
        let common = || {
            let mut headers = self.endpoint.post_headers().map().clone();
            mirrored.set_common(&mut headers);
            SharedHeaders::new(headers)
        };
        // The revision of a connection is fixed, so that only the name and the parameters of calls differ.
        let shared = if mirrored.is_tool_call() {
            Arc::clone(self.call_headers.get_or_init(common))
        } else {
            common()
        };
        if own.is_empty() && !mirrored.has_parameters() {
            return RequestHeaders::named(shared, mirrored.name().cloned());
        }
        let mut headers = HeaderMap::new();
        mirrored.set_own(&mut headers);
        headers::set_all(&mut headers, own);
        RequestHeaders::new(shared, Cow::Owned(headers))
    }

    /// Sends a message without a response body; `None` if the server did not accept it.
    async fn send_oneway(&self, message: &Message, headers: &HeaderMap) -> Option<HttpResponse> {
        self.endpoint.send_oneway(&self.session_headers(headers), message.encode()).await
    }

    async fn send_and_drain(&self, message: &Message, headers: &HeaderMap) {
        if let Some(response) = self.send_oneway(message, headers).await {
            response.drain().await;
        }
    }
}

/// Sends notifications, responses and cancellations, in order where order matters.
#[derive(Debug)]
pub(crate) struct HttpDispatcher {
    transport: Arc<HttpTransport>,
    outgoing: mpsc::Receiver<OutgoingMessage>,
    cancels: mpsc::UnboundedReceiver<CancelRequest>,
}

/// Result of a finished task.
enum SendOutcome {
    Sent,
    /// The server has accepted `notifications/initialized`, so it may send messages of its own. Later
    /// messages wait until its stream is open.
    SessionStarted(Option<DropGuard>),
}

impl HttpDispatcher {
    /// Starts the dispatcher, which ends when the connection is dropped, at most `CLOSE_TIMEOUT` later.
    pub(crate) fn start(self, connection: Weak<ConnectionShared>) {
        tokio::spawn(self.run(connection));
    }

    async fn run(self, connection: Weak<ConnectionShared>) {
        let Self { transport, mut outgoing, mut cancels } = self;
        let mut tasks = JoinSet::new();
        let mut listener = JoinSet::new();
        loop {
            tokio::select! {
                // Requests do not pass through here; messages keep their order.
                biased;
                queued = outgoing.recv(), if tasks.len() < MAX_TASKS => match queued {
                    Some(queued) => {
                        tasks.spawn(send(Arc::clone(&transport), queued));
                    }
                    None => break,
                },
                Some(cancel) = cancels.recv(), if tasks.len() < MAX_TASKS => {
                    tasks.spawn(send_cancel(Arc::clone(&transport), cancel));
                }
                Some(done) = tasks.join_next() => {
                    if let Ok(SendOutcome::SessionStarted(barrier)) = done {
                        // The previous listener, if any, ends with its set.
                        listener = JoinSet::new();
                        listener.spawn(listen::listen(Arc::clone(&transport), connection.clone(), barrier));
                    }
                }
            }
        }
        while let Ok(cancel) = cancels.try_recv() {
            tasks.spawn(send_cancel(Arc::clone(&transport), cancel));
        }
        listener.abort_all();
        let shutting_down = async {
            while tasks.join_next().await.is_some() {}
            if let Some(headers) = transport.session.end() {
                transport.endpoint.delete(&headers).await;
            }
        };
        let _ = time::timeout(CLOSE_TIMEOUT, shutting_down).await;
    }
}

/// Sends a message after those that it must follow.
async fn send(transport: Arc<HttpTransport>, queued: OutgoingMessage) -> SendOutcome {
    let OutgoingMessage { message, headers, turn, .. } = queued;
    let barrier = match turn {
        Some(MessageTurn { turn, barrier }) => {
            turn.wait().await;
            barrier
        }
        None => None,
    };
    let starts_session = matches!(&message, Message::Notification(notification)
        if &*notification.method == "notifications/initialized");
    let Some(response) = transport.send_oneway(&message, &headers).await else { return SendOutcome::Sent };
    if starts_session {
        response.drain().await;
        return SendOutcome::SessionStarted(barrier);
    }
    drop(barrier);
    response.drain().await;
    SendOutcome::Sent
}

/// Tells the server that a request was cancelled.
async fn send_cancel(transport: Arc<HttpTransport>, cancel: CancelRequest) -> SendOutcome {
    transport.send_and_drain(&cancel_notification(&cancel), &cancel.headers).await;
    SendOutcome::Sent
}
