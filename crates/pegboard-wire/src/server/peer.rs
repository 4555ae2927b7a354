//! The connection back to a client while its request is in progress.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Number;

use super::DEFAULT_LOG_LEVEL;
use super::notification_stream::NotificationStream;
use crate::connection::WeakConnection;
use crate::era::LogLevel;
use crate::message::{Id, Notification};
use crate::pending_request::RequestError;
use crate::transport::TransportError;
use pegboard_json::RawJson;

/// A handle to the client while its request is in progress.
#[derive(Clone, Debug)]
pub struct Peer {
    route: PeerRoute,
    /// Progress token of the request, if the client wants progress notifications.
    token: Option<RawJson>,
    /// Minimum log level that the client has asked for.
    log_level: Option<LogLevel>,
}

#[derive(Clone, Debug)]
enum PeerRoute {
    /// A connection that carries requests both ways.
    Session { connection: WeakConnection, request_id: Id },
    /// A connection on which the client accepts no requests.
    OneWay { connection: WeakConnection, request_id: Id },
    /// The response stream of one HTTP request.
    Stream(Arc<NotificationStream>),
}

impl Peer {
    pub(super) fn session(connection: WeakConnection, request_id: Id) -> Self {
        Self { route: PeerRoute::Session { connection, request_id }, token: None, log_level: None }
    }

    pub(super) fn one_way(connection: WeakConnection, request_id: Id) -> Self {
        Self { route: PeerRoute::OneWay { connection, request_id }, token: None, log_level: None }
    }

    pub(crate) fn stream(stream: Arc<NotificationStream>) -> Self {
        Self { route: PeerRoute::Stream(stream), token: None, log_level: None }
    }

    pub(super) fn with_progress(mut self, token: Option<RawJson>, log_level: Option<LogLevel>) -> Self {
        self.token = token;
        self.log_level = log_level;
        self
    }

    /// Returns the peer with another minimum log level.
    #[must_use]
    pub fn with_log_level(mut self, log_level: Option<LogLevel>) -> Self {
        self.log_level = log_level;
        self
    }

    /// Reports progress, if the client asked for it.
    pub async fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        #[derive(Serialize)]
        struct ProgressParams<'p> {
            progress: Number,
            #[serde(skip_serializing_if = "Option::is_none")]
            total: Option<Number>,
            #[serde(skip_serializing_if = "Option::is_none")]
            message: Option<&'p str>,
        }
        if let Some(token) = &self.token {
            let (progress, total) = (compact_number(progress), total.map(compact_number));
            let params =
                RawJson::of(&ProgressParams { progress, total, message }).with("progressToken", token);
            self.notify("notifications/progress", params).await;
        }
    }

    /// Sends a log message, if the client wants this level.
    pub async fn log(&self, level: LogLevel, logger: &str, data: &RawJson) {
        #[derive(Serialize)]
        struct LogParams<'p> {
            level: LogLevel,
            logger: &'p str,
        }
        if self.min_log_level().is_some_and(|wanted| level >= wanted) {
            let params = RawJson::of(&LogParams { level, logger }).with("data", data);
            self.notify("notifications/message", params).await;
        }
    }

    /// Forwards a progress notification, if the client asked for progress; only the token is replaced.
    pub async fn forward_progress(&self, params: &RawJson) {
        if let Some(token) = &self.token {
            self.notify("notifications/progress", params.with("progressToken", token)).await;
        }
    }

    /// Forwards a log message of this level, if the client wants it.
    pub async fn forward_log(&self, level: LogLevel, params: RawJson) {
        if self.min_log_level().is_some_and(|wanted| level >= wanted) {
            self.notify("notifications/message", params).await;
        }
    }

    /// Returns the minimum log level that the client has asked for, if any.
    pub fn log_level(&self) -> Option<LogLevel> {
        self.log_level
    }

    /// Returns the minimum level of log messages to send: a client with a session gets the default level
    /// without asking.
    fn min_log_level(&self) -> Option<LogLevel> {
        self.log_level.or_else(|| self.supports_requests().then_some(DEFAULT_LOG_LEVEL))
    }

    /// Sends a notification that belongs to the request. If the client is gone, it is dropped.
    pub async fn notify(&self, method: &str, params: RawJson) {
        let notification = Notification::new(method, Some(params));
        let sent: Result<(), TransportError> = match &self.route {
            PeerRoute::Session { connection, request_id } | PeerRoute::OneWay { connection, request_id } => {
                match connection.upgrade() {
                    Some(connection) => connection.notify(notification, Some(request_id.clone())).await,
                    None => Err(TransportError::Closed),
                }
            }
            PeerRoute::Stream(stream) => stream.send(notification).await,
        };
        if sent.is_err() {
            tracing::debug!(method, "Dropping a notification: the client is gone.");
        }
    }

    /// Sends a notification and closes the stream of the request, if it has its own; the client reconnects
    /// after `retry` for the rest.
    pub async fn notify_and_close_stream(&self, method: &str, params: RawJson, retry: Duration) {
        match &self.route {
            PeerRoute::Session { connection, request_id } => {
                let notification = Notification::new(method, Some(params));
                if let Some(connection) = connection.upgrade() {
                    let _ = connection.notify_and_close_stream(notification, request_id.clone(), retry).await;
                }
            }
            PeerRoute::OneWay { .. } | PeerRoute::Stream(_) => self.notify(method, params).await,
        }
    }

    /// Sends a request to a client with a session, in the middle of its own request.
    pub async fn request(&self, method: &str, params: Option<RawJson>) -> Result<RawJson, RequestError> {
        match &self.route {
            PeerRoute::Session { connection, request_id } => {
                let request_id = Some(request_id.clone());
                let connection = connection.upgrade().ok_or(TransportError::Closed)?;
                let pending =
                    connection.request_with(method, params, request_id, http::HeaderMap::new()).await?;
                pending.response().await
            }
            PeerRoute::OneWay { .. } | PeerRoute::Stream(_) => Err(TransportError::protocol(
                "a client without a session accepts no requests; reply with input requests",
            )
            .into()),
        }
    }

    /// Takes the reason that the client gave when it cancelled its request, as JSON.
    pub fn cancel_reason(&self) -> Option<RawJson> {
        match &self.route {
            PeerRoute::Session { connection, request_id } | PeerRoute::OneWay { connection, request_id } => {
                connection.upgrade()?.take_cancel_reason(request_id)
            }
            PeerRoute::Stream(_) => None,
        }
    }

    /// Waits until the client has closed its input, where that does not end its request.
    pub(super) async fn input_ended(&self) {
        match &self.route {
            PeerRoute::Session { connection, .. } | PeerRoute::OneWay { connection, .. } => {
                connection.input_ended().await;
            }
            PeerRoute::Stream(_) => std::future::pending().await,
        }
    }

    /// Returns `true` if the client accepts requests in the middle of its own request.
    pub fn supports_requests(&self) -> bool {
        matches!(self.route, PeerRoute::Session { .. })
    }
}

/// Formats a whole number without a decimal point. NaN and infinity become 0.
fn compact_number(value: f64) -> Number {
    let is_whole = value.fract() == 0.0 && value.abs() < 1e15;
    #[expect(clippy::cast_possible_truncation, reason = "a whole number of this size fits")]
    let whole = if is_whole { Some(Number::from(value as i64)) } else { None };
    whole.or_else(|| Number::from_f64(value)).unwrap_or_else(|| 0.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_has_no_point() {
        let cases = [(1.0, "1"), (0.5, "0.5"), (-3.0, "-3"), (0.0, "0"), (1e300, "1e+300"), (f64::NAN, "0")];
        for (value, expected) in cases {
            assert_eq!(compact_number(value).to_string(), expected);
        }
    }
}
