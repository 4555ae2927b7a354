//! Streamable HTTP as a client: every letter is a POST of its own, in both eras.
//!
//! What the eras do differently is decided by what passes through: a request that carries its protocol version in
//! `_meta` is of the stateless era, an answer to `initialize` begins a session.

mod call;
pub(crate) mod endpoint;
mod listen;
pub(crate) mod order;
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

use crate::connection::cancelled;
use crate::http::client::call::{Call, Era};
use crate::http::client::endpoint::Endpoint;
use crate::http::client::order::Order;
use crate::http::client::session::{Session, without_own_headers};
use crate::link::{Arrival, Cancel, LEAVE_TIMEOUT, Letter, Link, Port, TransportError, link};
use crate::message::{Id, Message};

/// Requests whose answers may be under way at the same time; more wait their turn.
const MAX_IN_FLIGHT: usize = 1_000;

/// Letters that may wait or be under way; above that no more are taken.
const MAX_TASKS: usize = 16_384;

/// Where a server is, and what to expect of it.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// The address of the endpoint.
    pub url: Url,
    /// Headers of every request. Those of a letter win over them.
    pub headers: HeaderMap,
    /// The largest answer or event, in bytes, after decompression.
    pub max_body: usize,
    /// The deepest nesting of JSON.
    pub max_depth: usize,
    /// How long it may take to reach the server.
    pub connect_timeout: Duration,
    /// A client to share with others, made by [`shared_client`]; otherwise the link makes one for itself.
    pub client: Option<reqwest::Client>,
}

impl HttpOptions {
    /// The usual options for a server at `url`.
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

/// A client that several links may share: it follows no redirect and repeats no request.
pub fn shared_client(connect_timeout: Duration) -> Result<reqwest::Client, TransportError> {
    endpoint::client(connect_timeout)
}

/// A link to a server that speaks streamable HTTP.
///
/// Nothing is sent before the first letter. A server that cannot be reached is the end of a request, never of the
/// link. When the link is dropped what is under way is given up and the session, if there is one, is ended.
pub fn connect(options: HttpOptions) -> Result<Link, TransportError> {
    let endpoint = Endpoint::new(options)?;
    let (link, Port { letters, cancels, arrivals }) = link();
    let server = Arc::new(Server {
        endpoint,
        session: Session::default(),
        permits: Semaphore::new(MAX_IN_FLIGHT),
        arrivals,
    });
    // It ends when the link is dropped, at most `LEAVE_TIMEOUT` later.
    tokio::spawn(Post::new(server).run(letters, cancels));
    Ok(link)
}

/// What everything that is under way shares.
#[derive(Debug)]
struct Server {
    endpoint: Endpoint,
    session: Session,
    permits: Semaphore,
    arrivals: mpsc::Sender<Arrival>,
}

impl Server {
    async fn arrive(&self, arrival: Arrival) {
        // If nobody takes it the link is about to end, and this with it.
        let _ = self.arrivals.send(arrival).await;
    }

    /// Sends what has no answer; `None` if the server did not take it.
    async fn tell(&self, message: &Message, headers: HeaderMap) -> Option<Response> {
        let headers = self.session.headers_with(headers);
        self.endpoint.tell(headers, message.encode()).await
    }

    async fn tell_and_forget(&self, message: &Message, headers: HeaderMap) -> Done {
        endpoint::drain_if_any(self.tell(message, headers).await).await;
        Done::Told
    }
}

/// Sends letters in order as far as their order matters, and remembers what is under way.
struct Post {
    server: Arc<Server>,
    order: Order,
    tasks: JoinSet<Done>,
    asked: HashMap<Id, Asked>,
    listener: JoinSet<()>,
}

/// A request under way.
struct Asked {
    task: AbortHandle,
    era: Era,
    headers: HeaderMap,
}

/// What a task has done.
enum Done {
    Asked(Id),
    Told,
    /// The server knows that the session has begun, so it may have something to say. Letters wait until it can.
    Began(DropGuard),
}

impl Post {
    fn new(server: Arc<Server>) -> Self {
        Self {
            server,
            order: Order::default(),
            tasks: JoinSet::new(),
            asked: HashMap::new(),
            listener: JoinSet::new(),
        }
    }

    async fn run(
        mut self,
        mut letters: mpsc::Receiver<Letter>,
        mut cancels: mpsc::UnboundedReceiver<Cancel>,
    ) {
        loop {
            tokio::select! {
                // A request is cancelled after it was sent, so letters come first.
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
                    Ok(done) => self.settle(done),
                    // It was cancelled.
                    Err(_aborted) => {}
                },
            }
        }
        while let Ok(cancel) = cancels.try_recv() {
            self.cancel(&cancel);
        }
        self.leave().await;
    }

    fn send(&mut self, letter: Letter) {
        let Letter { message, headers, .. } = letter;
        let server = Arc::clone(&self.server);
        match message {
            Message::Request(request) => {
                let turn = self.order.turn();
                let id = request.id.clone();
                let era = Era::of(&request);
                let call = Call::new(server, request, era, headers.clone());
                let task = self.tasks.spawn(async move {
                    turn.wait().await;
                    Done::Asked(call.run().await)
                });
                self.asked.insert(id, Asked { task, era, headers });
            }
            Message::Notification(notification) => {
                let is_begin = &*notification.method == "notifications/initialized";
                let message = Message::Notification(notification);
                let (turn, done) = self.order.hold();
                self.tasks.spawn(async move {
                    turn.wait().await;
                    let Some(response) = server.tell(&message, headers).await else { return Done::Told };
                    if is_begin {
                        endpoint::drain(response).await;
                        return Done::Began(done);
                    }
                    drop(done);
                    endpoint::drain(response).await;
                    Done::Told
                });
            }
            Message::Response(_) => {
                let turn = self.order.turn();
                self.tasks.spawn(async move {
                    turn.wait().await;
                    server.tell_and_forget(&message, headers).await
                });
            }
        }
    }

    fn cancel(&mut self, cancel: &Cancel) {
        let Some(asked) = self.asked.remove(&cancel.id) else { return };
        asked.task.abort();
        match asked.era {
            // The stream that ends says it, and who begins a session may not cancel that.
            Era::Stateless | Era::Beginning => {}
            Era::Session => {
                let server = Arc::clone(&self.server);
                let message = cancelled(cancel);
                let headers = without_own_headers(asked.headers);
                self.tasks.spawn(async move { server.tell_and_forget(&message, headers).await });
            }
        }
    }

    fn settle(&mut self, done: Done) {
        match done {
            Done::Asked(id) => {
                self.asked.remove(&id);
            }
            Done::Told => {}
            Done::Began(others_wait) => {
                // The one before, if any, ends with its set.
                self.listener = JoinSet::new();
                self.listener.spawn(listen::listen(Arc::clone(&self.server), others_wait));
            }
        }
    }

    /// Ends what is under way, and the session.
    async fn leave(mut self) {
        self.listener.abort_all();
        for asked in self.asked.values() {
            asked.task.abort();
        }
        let leaving = async {
            while self.tasks.join_next().await.is_some() {}
            if let Some(headers) = self.server.session.end() {
                self.server.endpoint.delete(headers).await;
            }
        };
        let _ = time::timeout(LEAVE_TIMEOUT, leaving).await;
    }
}
