//! HTTP+SSE of revision 2024-11-05 as a client: one stream for all that the server says, a POST for each letter.

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time;

use crate::connection::cancelled;
use crate::http::client::HttpOptions;
use crate::http::client::endpoint::{self, Endpoint, Events, Format, NoEvent};
use crate::http::client::order::Order;
use crate::link::{Arrival, Cancel, Event, LEAVE_TIMEOUT, Letter, Link, Port, TransportError, link};
use crate::message::Message;

/// Letters that may be under way at the same time; above that no more are taken.
const MAX_TASKS: usize = 16_384;

/// A link to a server that speaks HTTP+SSE; the address is that of its stream.
///
/// If the stream cannot be opened within the time to connect the link ends with the reason, and it ends with the
/// stream.
pub fn connect(options: HttpOptions) -> Result<Link, TransportError> {
    let endpoint = Endpoint::new(options)?;
    let (link, Port { letters, cancels, arrivals }) = link();
    // It ends when the stream does or the link is dropped; before the stream is open, after the time to connect.
    tokio::spawn(async move {
        let limit = endpoint.connect_timeout;
        let opened = time::timeout(limit, open(&endpoint)).await.unwrap_or_else(|_elapsed| {
            let what = format!("the server named no endpoint within {} s", limit.as_secs_f32());
            Err(TransportError::failed(what))
        });
        let reason = match opened {
            Err(reason) => reason,
            Ok((events, target)) => tokio::select! {
                reason = read(&endpoint, events, &arrivals) => reason,
                () = Outbox::new(target, arrivals.clone()).run(letters, cancels) => TransportError::Closed,
            },
        };
        let _ = arrivals.send(Arrival::new(Event::Closed(reason))).await;
    });
    Ok(link)
}

/// Opens the stream, and reads from it where letters go.
async fn open(endpoint: &Endpoint) -> Result<(Events, Endpoint), TransportError> {
    let response = endpoint.get(HeaderMap::new(), None).await?;
    if !response.status().is_success() {
        return Err(endpoint.refusal(response).await.into_error());
    }
    if endpoint::format(&response)? != Format::Events {
        return Err(TransportError::protocol("the server's stream is no stream"));
    }
    let mut events = endpoint.events(response);
    loop {
        let event = events.next().await.map_err(reason_of)?;
        match event.event.as_deref() {
            Some("endpoint") => {
                let target = endpoint.resolve(String::from_utf8_lossy(&event.data).trim())?;
                return Ok((events, target));
            }
            _ if event.is_message() => {
                return Err(TransportError::protocol("the server spoke before it named an endpoint"));
            }
            _ => {}
        }
    }
}

/// Hands on what the server says, until it says no more; why.
async fn read(endpoint: &Endpoint, mut events: Events, arrivals: &mpsc::Sender<Arrival>) -> TransportError {
    loop {
        let event = match events.next().await {
            Ok(event) if event.is_message() => event,
            Ok(_) => continue,
            Err(NoEvent::TooLarge(problem)) => {
                tracing::warn!(%problem, "An event was passed over.");
                continue;
            }
            Err(end) => return reason_of(end),
        };
        for message in endpoint.messages(event.data) {
            match message {
                // If nobody takes it the link is about to end, and this with it.
                Ok(message) => drop(arrivals.send(Arrival::message(message)).await),
                Err(problem) => tracing::debug!(%problem, "An event that is no message was passed over."),
            }
        }
    }
}

fn reason_of(end: NoEvent) -> TransportError {
    match end {
        NoEvent::TooLarge(problem) => TransportError::protocol(problem),
        NoEvent::End => TransportError::Closed,
        NoEvent::Broken(error) => error,
    }
}

/// Sends letters, each after the notification before it.
struct Outbox {
    target: Endpoint,
    order: Order,
    tasks: JoinSet<()>,
    arrivals: mpsc::Sender<Arrival>,
}

impl Outbox {
    fn new(target: Endpoint, arrivals: mpsc::Sender<Arrival>) -> Self {
        Self { target, order: Order::default(), tasks: JoinSet::new(), arrivals }
    }

    /// Sends letters until there are no more.
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
                    Some(cancel) => self.send(Letter::new(cancelled(&cancel))),
                    None => break,
                },
                Some(_done) = self.tasks.join_next() => {}
            }
        }
        while let Ok(cancel) = cancels.try_recv() {
            self.send(Letter::new(cancelled(&cancel)));
        }
        let leaving = async { while self.tasks.join_next().await.is_some() {} };
        let _ = time::timeout(LEAVE_TIMEOUT, leaving).await;
    }

    fn send(&mut self, letter: Letter) {
        let Letter { message, headers, .. } = letter;
        let target = self.target.clone();
        let body = message.encode();
        match message {
            Message::Request(request) => {
                let turn = self.order.turn();
                let arrivals = self.arrivals.clone();
                self.tasks.spawn(async move {
                    turn.wait().await;
                    if let Err(error) = ask(&target, headers, body).await {
                        let about = Some(request.id.clone());
                        let _ = arrivals
                            .send(Arrival::new(Event::Lost { id: request.id, error }).about(about))
                            .await;
                    }
                });
            }
            Message::Notification(_) => {
                let (turn, done) = self.order.hold();
                self.tasks.spawn(async move {
                    turn.wait().await;
                    let response = target.tell(headers, body).await;
                    drop(done);
                    endpoint::drain_if_any(response).await;
                });
            }
            Message::Response(_) => {
                let turn = self.order.turn();
                self.tasks.spawn(async move {
                    turn.wait().await;
                    endpoint::drain_if_any(target.tell(headers, body).await).await;
                });
            }
        }
    }
}

/// Sends a request. The answer comes on the stream, maybe before the server has taken the request, so this has no
/// limit of its own: it ends when the server has taken it or with the link.
async fn ask(target: &Endpoint, headers: HeaderMap, body: Bytes) -> Result<(), TransportError> {
    let response = target.post(headers, body).await?;
    if !response.status().is_success() {
        return Err(target.refusal(response).await.into_error());
    }
    endpoint::drain(response).await;
    Ok(())
}
