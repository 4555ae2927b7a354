//! The way back to a client while its request is under way.

use std::time::Duration;

use serde::Serialize;
use serde_json::Number;
use tokio::sync::mpsc;

use super::DEFAULT_LOG_LEVEL;
use crate::connection::WeakConnection;
use crate::era::LogLevel;
use crate::exchange::Failure;
use crate::link::TransportError;
use crate::message::{Id, Notification};
use pegboard_json::RawJson;

/// The way back to a client while its request is under way.
#[derive(Clone, Debug)]
pub struct Peer {
    way: Way,
    /// The token under which the client wants to hear of progress.
    token: Option<RawJson>,
    /// The mildest log message that the client wants.
    log_level: Option<LogLevel>,
}

#[derive(Clone, Debug)]
enum Way {
    /// A connection that carries requests both ways.
    Session { connection: WeakConnection, about: Id },
    /// A connection that carries requests one way.
    NoAnswers { connection: WeakConnection, about: Id },
    /// The response stream of one HTTP request.
    Stream(mpsc::Sender<Notification>),
}

impl Peer {
    pub(super) fn session(connection: WeakConnection, about: Id) -> Self {
        Self { way: Way::Session { connection, about }, token: None, log_level: None }
    }

    pub(super) fn one_way(connection: WeakConnection, about: Id) -> Self {
        Self { way: Way::NoAnswers { connection, about }, token: None, log_level: None }
    }

    pub(crate) fn stream(stream: mpsc::Sender<Notification>) -> Self {
        Self { way: Way::Stream(stream), token: None, log_level: None }
    }

    pub(super) fn with_wishes(mut self, token: Option<RawJson>, log_level: Option<LogLevel>) -> Self {
        self.token = token;
        self.log_level = log_level;
        self
    }

    /// Tells how far the request has come, if the client wants to know.
    pub async fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        #[derive(Serialize)]
        struct Params<'p> {
            progress: Number,
            #[serde(skip_serializing_if = "Option::is_none")]
            total: Option<Number>,
            #[serde(skip_serializing_if = "Option::is_none")]
            message: Option<&'p str>,
        }
        if let Some(token) = &self.token {
            let (progress, total) = (number(progress), total.map(number));
            let params = RawJson::of(&Params { progress, total, message }).with("progressToken", token);
            self.notify("notifications/progress", params).await;
        }
    }

    /// Sends a log message, if the client wants those of this level.
    pub async fn log(&self, level: LogLevel, logger: &str, data: &RawJson) {
        #[derive(Serialize)]
        struct Params<'p> {
            level: LogLevel,
            logger: &'p str,
        }
        if self.mildest().is_some_and(|wanted| level >= wanted) {
            let params = RawJson::of(&Params { level, logger }).with("data", data);
            self.notify("notifications/message", params).await;
        }
    }

    /// The mildest log message that the client has asked for, if it has.
    pub fn log_level(&self) -> Option<LogLevel> {
        self.log_level
    }

    /// The mildest log message that is sent: who has a session hears the usual ones without asking.
    fn mildest(&self) -> Option<LogLevel> {
        self.log_level.or_else(|| self.can_be_asked().then_some(DEFAULT_LOG_LEVEL))
    }

    /// Sends a notification that belongs to the request. A client that is gone does not hear it.
    pub async fn notify(&self, method: &str, params: RawJson) {
        let notification = Notification::new(method, Some(params));
        let sent: Result<(), TransportError> = match &self.way {
            Way::Session { connection, about } | Way::NoAnswers { connection, about } => {
                match connection.upgrade() {
                    Some(connection) => connection.notify(notification, Some(about.clone())).await,
                    None => Err(TransportError::Closed),
                }
            }
            Way::Stream(stream) => stream.send(notification).await.map_err(|_| TransportError::Closed),
        };
        if sent.is_err() {
            tracing::debug!(method, "A notification found no client.");
        }
    }

    /// Sends a notification and lets go of the client's stream, if it has one of its own for this request; the client
    /// comes back after `retry` for what is said later.
    pub async fn notify_and_hang_up(&self, method: &str, params: RawJson, retry: Duration) {
        match &self.way {
            Way::Session { connection, about } => {
                let notification = Notification::new(method, Some(params));
                if let Some(connection) = connection.upgrade() {
                    let _ = connection.notify_and_hang_up(notification, about.clone(), retry).await;
                }
            }
            Way::NoAnswers { .. } | Way::Stream(_) => self.notify(method, params).await,
        }
    }

    /// Asks a client with a session, in the middle of its request.
    pub async fn ask(&self, method: &str, params: Option<RawJson>) -> Result<RawJson, Failure> {
        match &self.way {
            Way::Session { connection, about } => {
                let about = Some(about.clone());
                let connection = connection.upgrade().ok_or(TransportError::Closed)?;
                let exchange = connection.request_with(method, params, about, http::HeaderMap::new()).await?;
                exchange.answer().await
            }
            Way::NoAnswers { .. } | Way::Stream(_) => Err(TransportError::protocol(
                "a client without a session cannot be asked; reply with questions",
            )
            .into()),
        }
    }

    /// Whether the client can be asked in the middle of its request.
    pub fn can_be_asked(&self) -> bool {
        matches!(self.way, Way::Session { .. })
    }
}

/// A number as people count: a whole one has no point. What is no number is none.
fn number(value: f64) -> Number {
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
            assert_eq!(number(value).to_string(), expected);
        }
    }
}
