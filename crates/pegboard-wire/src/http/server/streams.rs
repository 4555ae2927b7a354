//! The event streams of one HTTP session: one for each request that needs it, and a general one.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};

use foldhash::HashMap;
use parking_lot::{Mutex, MutexGuard};

use super::channel::{Channel, EventMemoryFull, Reader, StreamContext, StreamMessage};
use super::event_memory::EventMemory;
use crate::connection::cancelled_id;
use crate::era::{LogLevel, Revision};
use crate::message::{Id, Message, RpcError};
use crate::request_map::RequestMap;
use crate::transport::{OutgoingMessage, TransportError};
use pegboard_json::RawJson;

/// Maximum number of ended streams that a session keeps for a reconnecting client.
const MAX_ENDED_STREAMS: usize = 32;

/// Routes the outgoing messages of a session to its event streams.
#[derive(Debug)]
pub(crate) struct SessionStreams {
    table: Mutex<StreamTable>,
    context: Arc<StreamContext>,
}

#[derive(Debug)]
struct StreamTable {
    context: Arc<StreamContext>,
    is_closed: bool,
    /// The requests in progress.
    by_request: RequestMap<RequestStream>,
    /// `None` for most sessions, which never had a stream.
    channels: Option<Box<SessionChannels>>,
    /// The negotiated revision.
    revision: Option<Revision>,
}

/// The channels of a session.
#[derive(Debug, Default)]
struct SessionChannels {
    /// Messages that belong to no request of the client; `None` until there is one.
    general: Option<Arc<Channel>>,
    /// Number of requests in progress per channel.
    n_open: HashMap<u64, usize>,
    ended: VecDeque<Arc<Channel>>,
    /// Number of channels for requests so far. They are counted from 1; 0 is the general one.
    n_channels: u64,
}

/// The way to the client while its request is in progress.
#[derive(Debug)]
enum RequestStream {
    /// The handler of the request waits for the response. The first other message starts a stream and wakes
    /// the handler.
    Waiting(Option<Waker>),
    /// The client reads a stream.
    Open(Arc<Channel>),
    /// The client has disconnected before there was a stream, or has cancelled the request; messages go to the
    /// general stream.
    Abandoned,
}

/// State of a request after its handler was polled.
pub(super) enum RequestPoll {
    /// There is nothing to stream yet.
    Waiting,
    /// A stream was started, which the client must read.
    Streaming(Reader),
    /// The session has ended.
    Ended,
}

/// The end of a request that its handler drives.
pub(super) enum RequestEnd {
    /// There was nothing to stream before the response.
    Response(Result<RawJson, RpcError>),
    /// The stream that the response went to. A cancelled request has no response, so its stream is empty.
    Stream(Reader),
    /// The session has ended.
    Ended,
}

/// The reason why a stream cannot be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResumeError {
    /// There was never such a stream.
    Unknown,
    /// The events were dropped.
    Dropped,
}

impl SessionStreams {
    /// Creates the streams of a session, which keep their events in this memory.
    pub(crate) fn new(memory: EventMemory) -> Self {
        let context = Arc::new(StreamContext { memory, ..StreamContext::default() });
        let table = Mutex::new(StreamTable {
            is_closed: false,
            context: Arc::clone(&context),
            by_request: RequestMap::default(),
            channels: None,
            revision: None,
        });
        Self { table, context }
    }

    /// Registers a request; `false` if one with this id is in progress.
    pub(super) fn begin(&self, id: &Id) -> bool {
        let mut table = self.table();
        if table.by_request.contains(id) {
            return false;
        }
        table.by_request.insert(id.clone(), RequestStream::Waiting(None));
        true
    }

    /// Registers requests that share a stream; `None` if one with the same id is in progress.
    pub(super) fn begin_streaming(&self, requests: &[Id]) -> Option<Reader> {
        let mut table = self.table();
        let distinct: HashSet<&Id> = requests.iter().collect();
        if distinct.len() < requests.len() || requests.iter().any(|id| table.by_request.contains(id)) {
            return None;
        }
        let channel = table.new_channel(requests.len());
        for id in requests {
            table.by_request.insert(id.clone(), RequestStream::Open(Arc::clone(&channel)));
        }
        Some(channel.reader(0))
    }

    /// Returns the stream of a request if one was started; otherwise the first message wakes the task.
    pub(super) fn poll_request(&self, id: &Id, context: &Context<'_>) -> RequestPoll {
        match self.table().by_request.get_mut(id) {
            Some(RequestStream::Waiting(waker)) => {
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                    *waker = Some(context.waker().clone());
                }
                RequestPoll::Waiting
            }
            Some(RequestStream::Open(channel)) => RequestPoll::Streaming(channel.reader(0)),
            Some(RequestStream::Abandoned) | None => RequestPoll::Ended,
        }
    }

    /// Ends a request that its handler drives. If it has a stream, its response goes there.
    pub(super) fn finish_waiting(&self, id: &Id, result: Option<Result<RawJson, RpcError>>) -> RequestEnd {
        let mut table = self.table();
        let channel = match (table.by_request.remove(id), &result) {
            (Some(RequestStream::Open(channel)), _) => channel,
            (Some(RequestStream::Waiting(_)), None) => table.new_channel(1),
            (Some(RequestStream::Waiting(_)), Some(_)) => {
                return result.map_or(RequestEnd::Ended, RequestEnd::Response);
            }
            (Some(RequestStream::Abandoned) | None, _) => return RequestEnd::Ended,
        };
        let reader = channel.reader(0);
        table.end_request(channel, result.map(|result| response_event(id, result)));
        RequestEnd::Stream(reader)
    }

    /// Ends a request that a task drives. If it has a stream, its response goes there.
    pub(super) fn finish(&self, id: &Id, result: Option<Result<RawJson, RpcError>>) {
        let mut table = self.table();
        if let Some(RequestStream::Open(channel)) = table.by_request.remove(id) {
            table.end_request(channel, result.map(|result| response_event(id, result)));
        }
    }

    /// Starts a stream for a request that its handler waits for, and returns its reader.
    pub(super) fn start_stream(&self, id: &Id) -> Option<Reader> {
        Some(self.table().open_channel(id)?.reader(0))
    }

    /// Marks a request that its client no longer waits for.
    pub(super) fn abandon(&self, id: &Id) {
        if let Some(stream @ RequestStream::Waiting(_)) = self.table().by_request.get_mut(id) {
            *stream = RequestStream::Abandoned;
        }
    }

    /// Sends a message to the stream of its request, or to the general one. There is an error only if a request to
    /// the client finds no memory.
    pub(crate) fn route(&self, outgoing: &OutgoingMessage) -> Result<(), TransportError> {
        let message = outgoing.message.encode();
        let mut table = self.table();
        let message = match &outgoing.message {
            Message::Response(response) => match &response.id {
                Some(id) => {
                    let message = StreamMessage::Response(id.clone(), message);
                    if let Some(channel) = table.open_channel(id) {
                        table.by_request.remove(id);
                        table.end_request(channel, Some(message));
                        return Ok(());
                    }
                    message
                }
                None => StreamMessage::Notification(message),
            },
            Message::Request(_) => StreamMessage::Request(message),
            // Without it, the client would go on with a request that has ended.
            Message::Notification(notification) if cancelled_id(notification).is_some() => {
                StreamMessage::Request(message)
            }
            Message::Notification(_) => StreamMessage::Notification(message),
        };
        let channel = outgoing.related_request.as_ref().and_then(|id| table.open_channel(id));
        let channel = channel.unwrap_or_else(|| table.general());
        let sent = channel.send(message);
        if let Some(retry) = outgoing.close_stream {
            channel.close_reader(retry);
        }
        sent.map_err(|EventMemoryFull| {
            TransportError::failed("the client has too many unread messages to receive a request")
        })
    }

    /// Returns a reader of the stream that the client last read, or of the general stream.
    pub(super) fn reader_after(&self, last: Option<(u64, u64)>) -> Result<Reader, ResumeError> {
        let mut table = self.table();
        let general = table.general();
        let Some((number, n_seen)) = last else { return Ok(general.reader_of_unread()) };
        let channels = table.channels.as_deref().ok_or(ResumeError::Unknown)?;
        if number > channels.n_channels {
            return Err(ResumeError::Unknown);
        }
        let open = table.by_request.values().filter_map(|stream| match stream {
            RequestStream::Open(channel) => Some(channel),
            RequestStream::Waiting(_) | RequestStream::Abandoned => None,
        });
        let mut known = open.chain(&channels.ended).chain([&general]);
        let channel = known.find(|channel| channel.number() == number).ok_or(ResumeError::Dropped)?;
        channel.resume(n_seen).ok_or(ResumeError::Dropped)
    }

    /// Ends the stream of a cancelled request, which gets no response. The id stays in use until the work has
    /// ended.
    pub(super) fn forget(&self, id: &Id) {
        let mut table = self.table();
        if let Some(stream @ RequestStream::Open(_)) = table.by_request.get_mut(id)
            && let RequestStream::Open(channel) = std::mem::replace(stream, RequestStream::Abandoned)
        {
            table.end_request(channel, None);
        }
    }

    /// Returns `true` while a request is in progress.
    pub(super) fn is_busy(&self) -> bool {
        !self.table().by_request.is_empty()
    }

    /// Records the revision and the capabilities from the result of `initialize`; returns `false` if there is no
    /// revision.
    pub(super) fn set_revision(&self, result: &RawJson) -> bool {
        let has_logging = result.at(&["capabilities", "logging"]).is_some();
        self.context.accepts_warnings.store(has_logging, Ordering::Relaxed);
        let version = result.get("protocolVersion");
        let revision = version.and_then(|version| version.text()?.parse().ok());
        self.table().revision = revision;
        revision.is_some()
    }

    /// Records the minimum level of log messages that the client accepts.
    pub(crate) fn set_log_level(&self, level: LogLevel) {
        self.context.accepts_warnings.store(level <= LogLevel::Warning, Ordering::Relaxed);
    }

    /// Returns `true` if the revision has batches. Only one revision ever had them.
    pub(super) fn has_batches(&self) -> bool {
        self.table().revision == Some(Revision::V2025_03_26)
    }

    /// Returns `true` if the revision has events without data, which tell a client its position. Older clients take
    /// them for messages.
    pub(super) fn has_priming_events(&self) -> bool {
        self.table().revision.is_some_and(|revision| revision >= Revision::V2025_11_25)
    }

    /// Ends every request and closes every stream.
    pub(super) fn close_all(&self) {
        let mut table = self.table();
        table.is_closed = true;
        if let Some(general) = table.channels.as_ref().and_then(|channels| channels.general.as_ref()) {
            general.close();
        }
        for (_, stream) in table.by_request.take() {
            match stream {
                RequestStream::Open(channel) => channel.close(),
                RequestStream::Waiting(waker) => waker.into_iter().for_each(Waker::wake),
                RequestStream::Abandoned => {}
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, StreamTable> {
        // A panic while the lock is held cannot leave the table inconsistent.
        self.table.lock()
    }
}

impl StreamTable {
    fn general(&mut self) -> Arc<Channel> {
        let general = self.channels.get_or_insert_default().general.get_or_insert_with(|| {
            let general = Channel::new(0, &self.context);
            if self.is_closed {
                general.close();
            }
            general
        });
        Arc::clone(general)
    }

    fn new_channel(&mut self, n_open: usize) -> Arc<Channel> {
        let channels = self.channels.get_or_insert_default();
        channels.n_channels += 1;
        let channel = Channel::new(channels.n_channels, &self.context);
        channels.n_open.insert(channel.number(), n_open);
        channel
    }

    /// Returns the channel of a request, which begins with the first message.
    fn open_channel(&mut self, id: &Id) -> Option<Arc<Channel>> {
        match self.by_request.get_mut(id)? {
            RequestStream::Open(channel) => return Some(Arc::clone(channel)),
            RequestStream::Abandoned => return None,
            RequestStream::Waiting(waker) => {
                if let Some(waker) = waker.take() {
                    waker.wake();
                }
            }
        }
        let channel = self.new_channel(1);
        self.by_request.insert(id.clone(), RequestStream::Open(Arc::clone(&channel)));
        Some(channel)
    }

    /// Sends a response, if there is one; the stream ends with the last response it waits for.
    fn end_request(&mut self, channel: Arc<Channel>, answer: Option<StreamMessage>) {
        let channels = self.channels.get_or_insert_default();
        let n_open = channels.n_open.entry(channel.number()).or_default();
        *n_open = n_open.saturating_sub(1);
        let is_last = *n_open == 0;
        match (answer, is_last) {
            (Some(answer), false) => channel.send_response(answer),
            (Some(answer), true) => channel.send_last(answer),
            (None, false) => {}
            (None, true) => channel.close(),
        }
        if !is_last {
            return;
        }
        channels.n_open.remove(&channel.number());
        channels.ended.push_back(channel);
        if channels.ended.len() > MAX_ENDED_STREAMS {
            channels.ended.pop_front();
        }
    }
}

fn response_event(id: &Id, result: Result<RawJson, RpcError>) -> StreamMessage {
    StreamMessage::Response(id.clone(), Message::response(Some(id.clone()), result).encode())
}

#[cfg(test)]
mod tests;
