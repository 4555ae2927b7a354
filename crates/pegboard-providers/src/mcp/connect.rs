//! The seam between a server's life and the way to it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use pegboard_core::server_log::ServerLog;
use pegboard_wire::Receiver;
use pegboard_wire::client::{self, Client, ClientOptions, Era};
use pegboard_wire::link::{Link, TransportError};

/// A way to one server: a program that is started, an address, a pipe.
///
/// It is used again each time the server is started. Dropping the future gives the attempt up, and with it whatever
/// was started for it.
pub trait Connect: Send + Sync + 'static {
    /// Reaches the server and finds out how it is spoken to.
    fn connect(&self, introduction: Introduction) -> BoxFuture<'_, Result<Connected, ConnectError>>;

    /// What the server said beside the protocol since it was last started, for a person who wants to know what is
    /// wrong with it. No secret is in it.
    fn last_words(&self) -> Option<String> {
        None
    }

    /// The process of the program that was started last, while it runs.
    fn pid(&self) -> Option<u32> {
        None
    }

    /// The same way for a server that one session has to itself. `None` if all can use this one, because it remembers
    /// nothing that a server says.
    fn apart(&self) -> Option<Arc<dyn Connect>> {
        None
    }
}

/// How we introduce ourselves to a server.
#[derive(Clone)]
pub struct Introduction {
    /// Who hears what the server says on its own account.
    pub receiver: Arc<dyn Receiver>,
    /// Who we are, and how long we wait.
    pub options: ClientOptions,
    /// Where what the server says beside the protocol is written down.
    pub log: ServerLog,
}

impl Introduction {
    /// Introduces us over a link.
    pub async fn over(self, link: Link) -> Result<Client, ConnectError> {
        Ok(Client::connect(link, self.receiver, self.options).await?)
    }

    /// The introduction to a server of a known era.
    #[must_use]
    pub fn speaking(mut self, era: Era) -> Self {
        self.options.era = Some(era);
        self
    }
}

/// A server that was reached.
pub struct Connected {
    /// The connection to it.
    pub client: Client,
    /// What stands behind the connection and ends with it, if anything does.
    pub backing: Option<Box<dyn Backing>>,
}

impl From<Client> for Connected {
    fn from(client: Client) -> Self {
        Self { client, backing: None }
    }
}

/// What stands behind a connection and ends with it: a process. Dropping it ends it as well as that can be done
/// without waiting.
pub trait Backing: Send {
    /// Waits until it has gone away by itself, and says why.
    fn gone(&mut self) -> BoxFuture<'_, String>;

    /// Ends it, and waits until it has ended.
    fn end(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// Why a server was not reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Somebody must log in first.
    #[error("the server wants a login. {fix}")]
    NeedsLogin {
        /// What to do.
        fix: String,
    },
    /// It cannot be started, or does not answer as it should.
    #[error("{why}")]
    Unavailable {
        /// Why.
        why: String,
        /// What to do.
        fix: String,
    },
}

impl From<client::ConnectError> for ConnectError {
    fn from(error: client::ConnectError) -> Self {
        let fix = match &error {
            client::ConnectError::Transport(error) => return error.clone().into(),
            client::ConnectError::TooSlow(_) => "Give it more time with `startTimeout`, or look at its log.",
            client::ConnectError::Refused(_) => "Look at the server's log.",
            client::ConnectError::NoCommonRevision(_) => {
                "Use a version of the server that speaks a known one."
            }
            client::ConnectError::Nonsense(_) => "Check that it is an MCP server.",
        };
        Self::Unavailable { why: error.to_string(), fix: fix.to_owned() }
    }
}

impl From<TransportError> for ConnectError {
    fn from(error: TransportError) -> Self {
        if let Some(fix) = login(&error) {
            return Self::NeedsLogin { fix };
        }
        let fix = match &error {
            TransportError::Closed => "Look at the server's log: it ended the connection.",
            TransportError::Failed { .. } => "Check that the server runs and that its address is right.",
            TransportError::Status { .. } => "Check the address, and the server's log.",
            TransportError::Protocol { .. } => "Check that it is an MCP server.",
        };
        Self::Unavailable { why: error.to_string(), fix: fix.to_owned() }
    }
}

/// How much of what a server asks for at the door is told.
const MAX_CHALLENGE_CHARS: usize = 200;

/// What to do, if the server wants somebody to log in.
pub(super) fn login(error: &TransportError) -> Option<String> {
    let TransportError::Status { status, authenticate, .. } = error else { return None };
    match (status, authenticate) {
        (401, None) => Some("Put a valid token into its `headers`.".to_owned()),
        (401 | 403, Some(challenge)) => {
            let challenge: String = challenge.chars().take(MAX_CHALLENGE_CHARS).collect();
            Some(format!("Put a valid token into its `headers`; it asks for: {challenge}"))
        }
        _ => None,
    }
}
