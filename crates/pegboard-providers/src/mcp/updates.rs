//! What a server says that belongs to no call.

use pegboard_core::provider::Update;
use pegboard_core::server_log::{ServerLog, Stream};
use pegboard_core::settings::mcp::Settings;
use pegboard_json::RawJson;
use tokio::sync::broadcast;

use crate::process::shown;

/// How many updates wait for whoever is slow to hear them.
const MAX_WAITING: usize = 256;

/// Passes on what a server says that belongs to no call. Clones speak to the same hearers.
#[derive(Clone)]
pub(super) struct Updates {
    sender: broadcast::Sender<Update>,
    whose: Whose,
    /// What it says, for people who look.
    log: ServerLog,
}

/// Whose server it is that speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Everybody,
    OneSession,
}

impl Updates {
    /// What the server of these settings says.
    pub(super) fn new(settings: &Settings) -> Self {
        let whose = if settings.is_shared { Whose::Everybody } else { Whose::OneSession };
        Self { sender: broadcast::Sender::new(MAX_WAITING), whose, log: ServerLog::default() }
    }

    /// The same hearers, for a server that one session has to itself.
    pub(super) fn of_one_session(&self) -> Self {
        Self { whose: Whose::OneSession, ..self.clone() }
    }

    /// Whoever hears it from now on.
    pub(super) fn hear(&self) -> broadcast::Receiver<Update> {
        self.sender.subscribe()
    }

    /// What it says, for people who look.
    pub(super) fn log(&self) -> &ServerLog {
        &self.log
    }

    /// Passes an update on. If nobody wants to know, that is that.
    pub(super) fn tell(&self, update: Update) {
        if let Update::Log(line) = &update {
            write_down(line, &self.log);
        }
        // Everybody hears it, and a line of the log may hold what is one session's business.
        let is_meant = match (&update, self.whose) {
            (Update::Log(_), Whose::OneSession) => false,
            (Update::Log(_), Whose::Everybody) | (Update::Resource(_) | Update::BeenThere(_), _) => true,
        };
        if is_meant {
            let _ = self.sender.send(update);
        }
    }
}

/// Writes a message of the protocol into a log.
fn write_down(message: &RawJson, log: &ServerLog) {
    let text = |name: &str| Some(message.get(name)?.text()?.into_owned());
    let data = text("data").or_else(|| Some(message.get("data")?.as_str().to_owned())).unwrap_or_default();
    let logger = text("logger").map(|logger| format!("{logger}: ")).unwrap_or_default();
    for line in shown(&format!("{logger}{data}")).lines() {
        log.write(Stream::Message, text("level").as_deref(), line);
    }
}
