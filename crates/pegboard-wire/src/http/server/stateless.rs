//! One stateless request per POST, answered as JSON, or as an event stream if notifications come first.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use tokio::time;
use tokio_util::task::AbortOnDropHandle;

use super::reply::HttpReply;
use super::{error_response, events, json, status_of};
use crate::era::claimed_revision;
use crate::http::headers;
use crate::http::received_headers::ReceivedHeaders;
use crate::http::sse::{self, SseEvent};
use crate::message::{Id, Message, Notification, Request, RpcError, code};
use crate::server::notification_stream::{NotificationReader, NotificationStream};
use crate::server::stateless::RequestMeta;
use crate::server::{Peer, ServiceServer, stateless};
use pegboard_json::RawJson;

/// Answers a request. Dropping the response cancels the request.
pub(super) async fn answer(
    server: &ServiceServer,
    request: Request,
    headers: ReceivedHeaders,
    keep_alive: Duration,
) -> HttpReply {
    let id = request.id.clone();
    let request_meta = RequestMeta::parse(request.params.as_ref());
    let compare = |revision: &str| {
        headers::check(&headers, &request, revision, |tool| server.service.header_parameters(tool))
    };
    let compared = match &request_meta {
        Ok(request_meta) => compare(request_meta.revision().as_str()),
        // A request without a revision cannot be compared with its headers.
        Err(_) => match claimed_revision(request.params.as_ref()) {
            Some(claimed) => compare(&claimed.text().unwrap_or_default()),
            None => Ok(()),
        },
    };
    let request_meta = match compared.and(request_meta) {
        Ok(request_meta) => request_meta,
        Err(error) => return error_response(StatusCode::BAD_REQUEST, Some(id), error),
    };
    let (stream, notifications) = NotificationStream::new();
    let peer = Peer::stream(stream);
    let work = Box::pin(stateless::call(server.clone(), request, request_meta, headers, peer));
    let mut call = StatelessCall { id, work, notifications, state: StatelessCallState::Running };
    match call.next().await {
        Some(StatelessOutput::Response(Err(error))) => {
            error_response(status_of(&error), Some(call.id), error)
        }
        Some(StatelessOutput::Response(Ok(result))) => {
            json(StatusCode::OK, Message::encode_response(&call.id, Ok(result)))
        }
        Some(StatelessOutput::Notification(first)) => events(Body::from_stream(stream::unfold(
            (call.detached(), Some(StatelessOutput::Notification(first))),
            move |(mut call, first)| async move {
                let output = match first {
                    Some(output) => Some(output),
                    None => call.next_or_keep_alive(keep_alive).await,
                };
                output.map(|output| (Ok::<_, std::convert::Infallible>(call.event(output)), (call, None)))
            },
        ))),
        Some(StatelessOutput::KeepAlive) | None => {
            let error = RpcError::new(code::INTERNAL_ERROR, "The request ended without a response");
            error_response(StatusCode::OK, Some(call.id), error)
        }
    }
}

/// A request in progress, with its notifications.
struct StatelessCall {
    id: Id,
    work: Pin<Box<dyn Future<Output = Result<RawJson, RpcError>> + Send>>,
    notifications: NotificationReader,
    state: StatelessCallState,
}

enum StatelessCallState {
    Running,
    /// The result is available, but notifications before it are still queued.
    Ending(Result<RawJson, RpcError>),
    Ended,
}

enum StatelessOutput {
    Notification(Notification),
    Response(Result<RawJson, RpcError>),
    /// No output within the keep-alive interval.
    KeepAlive,
}

impl StatelessCall {
    /// Lets a task drive the work, so that a client that stops reading cannot stop the clocks of its call.
    /// Dropping the call aborts the task. Work that has ended needs none.
    fn detached(self) -> Self {
        if !matches!(self.state, StatelessCallState::Running) {
            return self;
        }
        let task = AbortOnDropHandle::new(tokio::spawn(self.work));
        let work = Box::pin(async { task.await.unwrap_or_else(|_| Err(RpcError::handler_panicked())) });
        Self { work, ..self }
    }

    async fn next(&mut self) -> Option<StatelessOutput> {
        if matches!(self.state, StatelessCallState::Running) {
            let result = poll_fn(|context| {
                // A panic in the handler costs only this request.
                match catch_unwind(AssertUnwindSafe(|| self.work.as_mut().poll(context))) {
                    Ok(Poll::Ready(result)) => return Poll::Ready(Ok(result)),
                    Ok(Poll::Pending) => {}
                    Err(_panic) => return Poll::Ready(Ok(Err(RpcError::handler_panicked()))),
                }
                self.notifications.poll_next(context).map(Err)
            });
            match result.await {
                Ok(result) => self.state = StatelessCallState::Ending(result),
                Err(notification) => return Some(StatelessOutput::Notification(notification)),
            }
        }
        // All notifications were sent before the work ended, so they are all queued.
        if let Some(notification) = self.notifications.try_next() {
            return Some(StatelessOutput::Notification(notification));
        }
        match std::mem::replace(&mut self.state, StatelessCallState::Ended) {
            StatelessCallState::Ending(result) => Some(StatelessOutput::Response(result)),
            StatelessCallState::Running | StatelessCallState::Ended => None,
        }
    }

    async fn next_or_keep_alive(&mut self, keep_alive: Duration) -> Option<StatelessOutput> {
        time::timeout(keep_alive, self.next()).await.unwrap_or(Some(StatelessOutput::KeepAlive))
    }

    fn event(&self, output: StatelessOutput) -> Bytes {
        let message = match output {
            StatelessOutput::KeepAlive => return Bytes::from_static(sse::KEEP_ALIVE),
            StatelessOutput::Notification(notification) => Message::Notification(notification),
            StatelessOutput::Response(result) => Message::response(Some(self.id.clone()), result),
        };
        sse::encode(&SseEvent::message(message.encode()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Handle;

    use super::*;

    #[tokio::test]
    async fn a_call_that_ends_with_its_first_notification_is_not_driven_again() {
        let (stream, notifications) = NotificationStream::new();
        let peer = Peer::stream(stream);
        let work = Box::pin(async move {
            peer.notify("notifications/message", RawJson::empty_object()).await;
            Ok(RawJson::empty_object())
        });
        let mut call =
            StatelessCall { id: Id::Number(1), work, notifications, state: StatelessCallState::Running };
        assert!(matches!(call.next().await, Some(StatelessOutput::Notification(_))));
        let mut call = call.detached();
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
        assert!(matches!(call.next().await, Some(StatelessOutput::Response(Ok(_)))));
    }
}
