//! Change notifications: subscriptions are sent again after every start of a server.

use std::collections::BTreeSet;
use std::future::pending;
use std::time::Duration;

use futures_util::FutureExt;
use pegboard_core::provider::ProviderUpdate;
use pegboard_json::RawJson;
use pegboard_wire::client::{Era, McpClient, RequestOptions};
use pegboard_wire::era::LogLevel;
use pegboard_wire::{Id, PendingRequest, RequestError, ResponseEvent, code};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{self, Instant};

use super::handle::LiveConnection;
use super::in_flight::InFlightCalls;
use super::list::ListKind;
use super::subscriptions::{ServerSubscriptions, SubscriptionSet};

/// Initial delay before a closed change stream is opened again.
const LISTEN_RETRY_DELAY: Duration = Duration::from_secs(5);
/// Maximum delay, for a server that closes every stream.
const MAX_LISTEN_RETRY_DELAY: Duration = Duration::from_mins(5);
/// Time limit for sending one setting.
const RESUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Listens for changes while the server runs. Never completes.
pub(super) async fn listen(live: &LiveConnection, subscriptions: &ServerSubscriptions) {
    let following = async {
        match live.client().era() {
            Era::Session => resubscribe(live, subscriptions.current()).await,
            Era::Stateless => follow_changes(live, subscriptions.watch_changes()).await,
        }
    };
    tokio::join!(following, keep_alive_while_subscribed(live, subscriptions.watch_changes()));
}

/// Returns `true` if the server supports resource subscriptions.
pub(super) fn supports_subscriptions(client: &McpClient) -> bool {
    has_flag(client, &["resources", "subscribe"])
}

/// Returns `true` if the server sends a notification when a list changes.
pub(super) fn notifies_list_changes(client: &McpClient, list: ListKind) -> bool {
    has_flag(client, &[list.capability(), "listChanged"])
}

/// Returns `true` if the server sends log messages.
pub(super) fn supports_logging(client: &McpClient) -> bool {
    client.server().capabilities.get("logging").is_some()
}

/// Sends the minimum log level to a server with sessions.
pub(super) async fn send_log_level(client: &McpClient, level: LogLevel) {
    send_setting(client, "logging/setLevel", json!({"level": level})).await;
}

fn has_flag(client: &McpClient, path: &[&str]) -> bool {
    client.server().capabilities.at(path).is_some_and(|flag| flag.as_str() == "true")
}

/// Keeps the connection from being idle while a resource is subscribed. Never completes.
async fn keep_alive_while_subscribed(
    live: &LiveConnection,
    mut subscriptions_rx: watch::Receiver<SubscriptionSet>,
) {
    loop {
        let is_subscribed = !subscriptions_rx.borrow_and_update().resources.is_empty();
        let _guard = if is_subscribed { live.in_flight().keep_alive() } else { None };
        if subscriptions_rx.changed().await.is_err() {
            return pending().await;
        }
    }
}

/// Sends the settings of earlier connections to a server with sessions. Never completes.
async fn resubscribe(live: &LiveConnection, SubscriptionSet { resources, log_level, .. }: SubscriptionSet) {
    if let Some(level) = log_level.filter(|_| supports_logging(live.client())) {
        send_log_level(live.client(), level).await;
    }
    for uri in &resources {
        send_setting(live.client(), "resources/subscribe", json!({"uri": uri})).await;
    }
    report_possible_changes(live.in_flight(), &resources);
    pending::<()>().await;
}

async fn send_setting(client: &McpClient, method: &str, params: serde_json::Value) {
    let sending = async {
        client.request(method, Some(params.into()), RequestOptions::default()).await?.response().await
    };
    let problem = match time::timeout(RESUBSCRIBE_TIMEOUT, sending).await {
        Ok(Ok(_)) => return,
        Ok(Err(failure)) => failure.to_string(),
        Err(_elapsed) => "the request timed out".to_owned(),
    };
    tracing::warn!(method, "Could not restore a setting of an MCP server: {problem}");
}

/// Reports the resources as updated, because changes may have been missed.
fn report_possible_changes(in_flight: &InFlightCalls, resources: &BTreeSet<String>) {
    for uri in resources {
        in_flight.publish_update(ProviderUpdate::Resource(RawJson::from(json!({"uri": uri}))));
    }
}

/// Follows the change streams of a stateless server. Never completes.
async fn follow_changes(live: &LiveConnection, mut subscriptions_rx: watch::Receiver<SubscriptionSet>) {
    report_possible_changes(live.in_flight(), &subscriptions_rx.borrow().resources);
    let mut delay = LISTEN_RETRY_DELAY;
    loop {
        let started_at = Instant::now();
        match follow_streams(live, &mut subscriptions_rx).await {
            Err(RequestError::Rpc(error)) if error.code == code::METHOD_NOT_FOUND => return pending().await,
            // A broken stream may be the first sign of a lost server.
            Err(RequestError::Transport(_)) => live.in_flight().request_probe(),
            Ok(_) | Err(RequestError::Rpc(_) | RequestError::Overloaded) => {}
        }
        if started_at.elapsed() >= delay {
            delay = LISTEN_RETRY_DELAY;
        }
        tokio::select! {
            () = time::sleep(delay) => {}
            // A new subscription does not wait for the delay.
            Ok(()) = subscriptions_rx.changed() => {}
        }
        delay = (delay * 2).min(MAX_LISTEN_RETRY_DELAY);
        // Changes may have been missed in the meantime.
        for list in ListKind::ALL {
            live.in_flight().mark_list_changed(list);
        }
        report_possible_changes(live.in_flight(), &subscriptions_rx.borrow().resources);
    }
}

/// Follows change streams, one for each version of the subscriptions, until one is closed by the server.
async fn follow_streams(
    live: &LiveConnection,
    subscriptions_rx: &mut watch::Receiver<SubscriptionSet>,
) -> Result<RawJson, RequestError> {
    let mut current = ChangeStream::open(live, subscriptions_rx).await?;
    // A stream is kept until the next one is acknowledged, so that no change is missed in between.
    let mut previous = None;
    let mut unacknowledged = current.id();
    loop {
        if unacknowledged.is_none() {
            live.in_flight().set_subscribed_version(current.version);
            if let Some(stream) = previous.take() {
                ChangeStream::drain(stream, live.in_flight());
            }
        }
        tokio::select! {
            event = current.next() => match event {
                ResponseEvent::Notification(notice) => drop(live.in_flight().handle_notification(notice)),
                ResponseEvent::End(end) => return end,
            },
            () = subscription_acknowledged(live.in_flight(), unacknowledged.as_ref()) => unacknowledged = None,
            changed = subscriptions_rx.changed() => {
                if changed.is_err() {
                    return pending().await;
                }
                let next = ChangeStream::open(live, subscriptions_rx).await?;
                let replaced = std::mem::replace(&mut current, next);
                previous = Some(kept(previous.take(), replaced, unacknowledged.is_none()));
                unacknowledged = current.id();
            }
        }
    }
}

/// Returns the stream to keep until the next one is acknowledged: the one that was acknowledged last, however often the
/// subscriptions change in between.
fn kept<S>(previous: Option<S>, replaced: S, is_acknowledged: bool) -> S {
    previous.filter(|_| !is_acknowledged).unwrap_or(replaced)
}

/// Waits until the server has acknowledged the subscription; forever if none is pending.
async fn subscription_acknowledged(in_flight: &InFlightCalls, unacknowledged: Option<&Id>) {
    match unacknowledged {
        Some(id) => in_flight.subscription_acknowledged(id).await,
        None => pending().await,
    }
}

/// A stream of change notifications.
struct ChangeStream {
    /// `None` if there is nothing to subscribe to.
    request: Option<PendingRequest>,
    /// Version of the subscriptions that it covers.
    version: u64,
}

impl ChangeStream {
    /// Opens a stream for the current subscriptions.
    async fn open(
        live: &LiveConnection,
        subscriptions_rx: &mut watch::Receiver<SubscriptionSet>,
    ) -> Result<Self, RequestError> {
        let client = live.client();
        let SubscriptionSet { resources, version, .. } = subscriptions_rx.borrow_and_update().clone();
        let mut filter = RawJson::empty_object();
        for (list, name) in [
            (ListKind::Tools, "toolsListChanged"),
            (ListKind::Prompts, "promptsListChanged"),
            (ListKind::Resources, "resourcesListChanged"),
        ] {
            if notifies_list_changes(client, list) {
                filter = filter.with(name, &RawJson::of(&true));
            }
        }
        if !resources.is_empty() && supports_subscriptions(client) {
            filter = filter.with("resourceSubscriptions", &RawJson::of(&resources));
        }
        let request = if filter == RawJson::empty_object() {
            None
        } else {
            let params = RawJson::empty_object().with("notifications", &filter);
            Some(client.request("subscriptions/listen", Some(params), RequestOptions::default()).await?)
        };
        Ok(Self { request, version })
    }

    async fn next(&mut self) -> ResponseEvent {
        match &mut self.request {
            Some(request) => request.next_event().await,
            None => pending().await,
        }
    }

    fn id(&self) -> Option<Id> {
        self.request.as_ref().map(PendingRequest::id)
    }

    /// Handles the remaining notifications and closes the stream.
    fn drain(mut self, in_flight: &InFlightCalls) {
        while let Some(ResponseEvent::Notification(notice)) = self.next().now_or_never() {
            in_flight.handle_notification(notice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_that_was_acknowledged_last_is_kept() {
        for (previous, replaced, is_acknowledged, expected) in [
            (None, "first", false, "first"),
            (None, "first", true, "first"),
            (Some("acknowledged"), "pending", false, "acknowledged"),
            (Some("older"), "acknowledged", true, "acknowledged"),
        ] {
            assert_eq!(kept(previous, replaced, is_acknowledged), expected);
        }
    }
}
