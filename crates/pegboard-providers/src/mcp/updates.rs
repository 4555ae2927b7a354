//! Messages from a server that belong to no call.

use std::sync::Arc;

use pegboard_core::client::{ClientSession, Notice};
use pegboard_core::provider::ProviderUpdate;
use pegboard_core::server_log::{LogStream, ServerLog};
use pegboard_core::settings::mcp::ResolvedMcpServer;
use pegboard_json::RawJson;
use tokio::sync::broadcast;

use crate::process::printable;

/// Maximum number of updates buffered for a slow subscriber.
const CHANNEL_CAPACITY: usize = 256;

/// Publishes messages from a server that belong to no call. Clones publish to the same subscribers.
#[derive(Clone)]
pub(super) struct ServerUpdates {
    sender: broadcast::Sender<ProviderUpdate>,
    scope: UpdateScope,
    /// Log of the server, for display.
    log: ServerLog,
}

/// Sessions that the publishing instance serves.
#[derive(Clone)]
enum UpdateScope {
    AllSessions,
    /// One at a time: the client, if it is the only one for good.
    OneSession(Option<Arc<dyn ClientSession>>),
}

impl ServerUpdates {
    /// Creates the channel for a server with these settings.
    pub(super) fn new(settings: &ResolvedMcpServer) -> Self {
        let scope = if settings.is_shared { UpdateScope::AllSessions } else { UpdateScope::OneSession(None) };
        Self { sender: broadcast::Sender::new(CHANNEL_CAPACITY), scope, log: ServerLog::default() }
    }

    /// Returns a publisher to the same subscribers for an instance that one session uses at a time. Messages that may
    /// be private go to the client, if there is only one.
    pub(super) fn for_one_session(&self, client: Option<Arc<dyn ClientSession>>) -> Self {
        Self { scope: UpdateScope::OneSession(client), ..self.clone() }
    }

    /// Subscribes to updates.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<ProviderUpdate> {
        self.sender.subscribe()
    }

    /// Returns the log of the server.
    pub(super) fn log(&self) -> &ServerLog {
        &self.log
    }

    /// Publishes an update. Without subscribers it is dropped.
    pub(super) fn publish(&self, update: ProviderUpdate) {
        if let ProviderUpdate::Log(line) = &update {
            write_log_message(line, &self.log);
        }
        // All sessions receive updates, and a log message of a dedicated instance may be private to one.
        let client = match &self.scope {
            UpdateScope::AllSessions => return self.send(update),
            UpdateScope::OneSession(client) => client.as_ref(),
        };
        let notice = match update {
            ProviderUpdate::Log(params) => Notice::Log(params),
            ProviderUpdate::Custom { method, params } => Notice::Custom { method, params },
            ProviderUpdate::Resource(_) | ProviderUpdate::ElicitationComplete(_) => return self.send(update),
        };
        if let Some(client) = client {
            client.notify(notice);
        }
    }

    fn send(&self, update: ProviderUpdate) {
        let _ = self.sender.send(update);
    }
}

/// Writes a `notifications/message` to the log.
fn write_log_message(message: &RawJson, log: &ServerLog) {
    let text = |name: &str| Some(message.get(name)?.text()?.into_owned());
    let data = text("data").or_else(|| Some(message.get("data")?.as_str().to_owned())).unwrap_or_default();
    let logger = text("logger").map(|logger| format!("{logger}: ")).unwrap_or_default();
    for line in printable(&format!("{logger}{data}")).lines() {
        log.write(LogStream::Message, text("level").as_deref(), line);
    }
}
