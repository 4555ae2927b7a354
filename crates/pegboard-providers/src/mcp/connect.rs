//! The interface between the supervisor of a server and its transport.

use std::sync::Arc;

use super::pool::StartedLogin;
use futures_util::future::BoxFuture;
use pegboard_core::server_log::ServerLog;
use pegboard_core::settings::messages::MessageLimits;
use pegboard_wire::InboundHandler;
use pegboard_wire::client::{self, ClientOptions, Era, McpClient};
use pegboard_wire::http::client::AuthorizationError;
use pegboard_wire::transport::{InputLimits, TransportError, TransportHandle};

/// Establishes connections to one server: a child process, a URL or a byte stream.
///
/// It is used again for every start of the server. Dropping the future abandons the attempt and whatever was
/// started for it.
pub trait Connector: Send + Sync + 'static {
    /// Connects to the server and performs the handshake.
    fn connect(
        &self,
        handshake: HandshakeOptions,
    ) -> BoxFuture<'_, Result<EstablishedConnection, ConnectorError>>;

    /// Returns the end of what the server wrote to stderr since its last start, redacted, for error messages.
    fn stderr_tail(&self) -> Option<String> {
        None
    }

    /// Returns the process id of the current child process, if there is one.
    fn pid(&self) -> Option<u32> {
        None
    }

    /// Begins a login at the server; `None` if it has no logins.
    fn begin_login(&self) -> Option<BoxFuture<'static, Result<StartedLogin, String>>> {
        None
    }

    /// Returns a separate connector for an instance that is dedicated to one session. `None` if instances can
    /// share this one, because it keeps no output of a server.
    fn dedicated(&self) -> Option<Arc<dyn Connector>> {
        None
    }
}

/// Parameters of the handshake with a server.
#[derive(Clone)]
pub struct HandshakeOptions {
    /// Receives requests and notifications from the server.
    pub receiver: Arc<dyn InboundHandler>,
    /// Identity of the client, and timeouts.
    pub options: ClientOptions,
    /// Log for the server's output outside the protocol.
    pub log: ServerLog,
    /// Limits of messages from the server.
    pub message_limits: MessageLimits,
}

impl HandshakeOptions {
    /// Performs the handshake over a transport.
    pub async fn connect_over(self, transport: TransportHandle) -> Result<McpClient, ConnectorError> {
        Ok(McpClient::connect(transport, self.receiver, self.options).await?)
    }

    /// Returns the limits of input from the server.
    pub fn input_limits(&self) -> InputLimits {
        let MessageLimits { max_bytes, max_depth } = self.message_limits;
        InputLimits { max_bytes, max_depth, ..InputLimits::client() }
    }

    /// Returns the options with a known era.
    #[must_use]
    pub fn with_era(mut self, era: Era) -> Self {
        self.options.era = Some(era);
        self
    }
}

/// An established connection to a server.
pub struct EstablishedConnection {
    /// Client side of the connection.
    pub client: McpClient,
    /// Process behind the connection, if there is one.
    pub backend: Option<Box<dyn Backend>>,
}

impl From<McpClient> for EstablishedConnection {
    fn from(client: McpClient) -> Self {
        Self { client, backend: None }
    }
}

/// A resource behind a connection, such as a process, that ends with it. Dropping it ends it as far as
/// possible without waiting.
pub trait Backend: Send {
    /// Waits until it exits by itself, and returns the reason.
    fn exited(&mut self) -> BoxFuture<'_, String>;

    /// Shuts it down and waits until it has ended.
    fn shut_down(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// A failed attempt to connect to a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectorError {
    /// The server requires a login.
    #[error("the server requires a login. {fix}")]
    NeedsLogin {
        /// Hint for the user.
        fix: String,
    },
    /// The server cannot be started, or does not answer as expected.
    #[error("{why}")]
    Unavailable {
        /// Description of the problem.
        why: String,
        /// Hint for the user.
        fix: String,
    },
}

impl From<client::HandshakeError> for ConnectorError {
    fn from(error: client::HandshakeError) -> Self {
        let fix = match &error {
            client::HandshakeError::Transport(error) => return error.clone().into(),
            client::HandshakeError::TimedOut(_) => "Increase `startTimeout`, or check its log.",
            client::HandshakeError::Refused(_) => "Check the server's log.",
            client::HandshakeError::NoCommonRevision(_) => {
                "Use a version of the server that supports a known revision."
            }
            client::HandshakeError::InvalidResponse(_) => "Check that it is an MCP server.",
        };
        Self::Unavailable { why: error.to_string(), fix: fix.to_owned() }
    }
}

impl From<TransportError> for ConnectorError {
    fn from(error: TransportError) -> Self {
        if let Some(fix) = login_hint(&error) {
            return Self::NeedsLogin { fix };
        }
        let fix = match &error {
            TransportError::Closed => "Check the server's log: it closed the connection.",
            TransportError::Failed { .. } | TransportError::Unreachable { .. } => {
                "Check that the server is running and that its URL is correct."
            }
            TransportError::Unauthorized(_) => "Check the network, and the keyring of the system.",
            TransportError::Untrusted { .. } => {
                "Fix the certificate of the server, or the trusted certificates."
            }
            TransportError::Status { status: 300..=399, .. } => {
                "Set its `url` to the address that it redirects to."
            }
            TransportError::Status { status: 407, .. } => "Set the proxy as http://user:password@host:port.",
            TransportError::Status { .. } => "Check the URL and the server's log.",
            TransportError::Protocol { .. } => "Check that it is an MCP server.",
        };
        Self::Unavailable { why: error.to_string(), fix: fix.to_owned() }
    }
}

/// Maximum length of an authentication challenge in a hint.
const MAX_CHALLENGE_CHARS: usize = 200;

/// Returns a hint if the server requires a login.
pub(super) fn login_hint(error: &TransportError) -> Option<String> {
    let (status, authenticate) = match error {
        TransportError::Status { status, authenticate, .. } => (status, authenticate),
        TransportError::Unauthorized(
            AuthorizationError::LoginRequired { reason } | AuthorizationError::InsufficientScope { reason },
        ) => return Some(reason.clone()),
        _ => return None,
    };
    match (status, authenticate) {
        (401, None) => Some("Set a valid token in its `headers`.".to_owned()),
        (401 | 403, Some(challenge)) => {
            let challenge: String = challenge.chars().take(MAX_CHALLENGE_CHARS).collect();
            Some(format!("Set a valid token in its `headers`; challenge: {challenge}"))
        }
        _ => None,
    }
}
