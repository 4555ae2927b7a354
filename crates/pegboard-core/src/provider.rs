//! Providers: sources of tools.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, ready};
use pegboard_json::RawJson;
use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, watch};

use crate::call::CallContext;
use crate::entry::ToolEntry;
use crate::error::{CallError, ToolError};
use crate::server_log::ServerLog;

/// A source of tools: an MCP server, a REST service, or this program.
///
/// Tools are offered as entries with handlers; a call goes to the handler directly.
pub trait Provider: Send + Sync + 'static {
    /// Returns the kind of its tools.
    fn kind(&self) -> ToolKind;

    /// Returns the current offering and its changes.
    fn offering(&self) -> watch::Receiver<Arc<ServerOffering>>;

    /// Returns the current state and its changes.
    fn state(&self) -> watch::Receiver<ServerState>;

    /// Returns information about the running process or connection, for display.
    fn process_info(&self) -> ProcessInfo {
        ProcessInfo::default()
    }

    /// Returns the time after which [`open`](Self::open) is given up.
    fn open_timeout(&self) -> Duration {
        Duration::from_mins(1)
    }

    /// Makes the provider ready for use; does nothing if it is ready already.
    fn open(&self) -> BoxFuture<'_, Result<(), CallError>>;

    /// Ends what runs and starts it again; completes when it is ready or has failed. Calls in flight fail. Returns
    /// `false` if nothing runs that could be started again.
    fn restart(&self) -> BoxFuture<'_, Result<bool, CallError>> {
        ready(Ok(false)).boxed()
    }

    /// Sends a request other than a tool call.
    fn request<'a>(
        &'a self,
        request: &'a ProviderRequest,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<RawJson, CallError>> {
        let _ = context;
        let problem = format!("{} is not supported by this server", request.method.as_str());
        ready(Err(CallError::Failed(ToolError::new(problem)))).boxed()
    }

    /// Subscribes to notifications that belong to no call.
    fn updates(&self) -> broadcast::Receiver<ProviderUpdate> {
        broadcast::channel(1).1
    }

    /// Returns the log of the provider.
    fn log(&self) -> ServerLog {
        ServerLog::default()
    }

    /// Shuts the provider down. Calls in flight fail.
    fn shut_down(&self) -> BoxFuture<'_, ()>;
}

/// Request to a provider, other than a tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderRequest {
    /// Method of the request.
    pub method: ProviderMethod,
    /// Parameters, as the protocol defines them.
    pub params: RawJson,
}

/// Methods of a provider besides tool calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProviderMethod {
    /// Renders a prompt.
    GetPrompt,
    /// Reads a resource.
    ReadResource,
    /// Completes an argument.
    Complete,
    /// Subscribes to changes of a resource.
    Subscribe,
    /// Ends a subscription.
    Unsubscribe,
    /// Sets the minimum level of log notifications.
    SetLogLevel,
    /// A method that the protocol does not define.
    Custom(Arc<str>),
    /// A notification that the protocol does not define. It has no response.
    CustomNotification(Arc<str>),
}

impl ProviderMethod {
    /// Returns `true` if the effect outlives the response, so that notifications in the meantime are
    /// unrelated to the request.
    pub fn outlives_response(&self) -> bool {
        matches!(self, Self::Subscribe | Self::Unsubscribe | Self::SetLogLevel)
    }

    /// Returns the method name of the protocol.
    pub fn as_str(&self) -> &str {
        match self {
            Self::GetPrompt => "prompts/get",
            Self::ReadResource => "resources/read",
            Self::Complete => "completion/complete",
            Self::Subscribe => "resources/subscribe",
            Self::Unsubscribe => "resources/unsubscribe",
            Self::SetLogLevel => "logging/setLevel",
            Self::Custom(method) | Self::CustomNotification(method) => method,
        }
    }
}

/// Notification of a provider that belongs to no call.
#[derive(Clone, Debug, PartialEq)]
pub enum ProviderUpdate {
    /// A resource has changed; parameters as the protocol defines them.
    Resource(RawJson),
    /// A log message.
    Log(RawJson),
    /// A URL elicitation was completed; parameters as the protocol defines them.
    ElicitationComplete(RawJson),
    /// A notification that the protocol does not define.
    Custom {
        /// Its method.
        method: Arc<str>,
        /// Its parameters.
        params: Option<RawJson>,
    },
}

/// Returns the names of the features of a server that the protocol does not define, given its capabilities
/// `experimental` and `extensions`.
///
/// ```
/// use pegboard_core::provider::custom_features;
///
/// let extensions = serde_json::json!({"com.example/search": {}, "io.modelcontextprotocol/ui": {}}).into();
/// assert_eq!(custom_features(None, Some(&extensions)), ["com.example/search"]);
/// ```
pub fn custom_features(experimental: Option<&RawJson>, extensions: Option<&RawJson>) -> Vec<String> {
    /// Prefix of the extensions of the protocol itself. Their methods are known.
    const OFFICIAL: &str = "io.modelcontextprotocol/";
    let features = [experimental, extensions].into_iter().flatten().flat_map(RawJson::names);
    features.filter(|name| !name.starts_with(OFFICIAL)).collect()
}

/// Kind of a tool, for logs, accounting and the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolKind {
    /// Tool of an MCP server.
    Mcp,
    /// Request to a web service.
    Rest,
    /// Tool of this program: built in, a chain, or an agent.
    #[default]
    Agent,
}

impl ToolKind {
    /// Returns the kind as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Rest => "rest",
            Self::Agent => "agent",
        }
    }
}

/// Tools, prompts and resources of a provider.
#[derive(Clone, Debug, Default)]
pub struct ServerOffering {
    /// Tools, in the provider's order.
    pub tools: Vec<Arc<ToolEntry>>,
    /// Prompt definitions.
    pub prompts: Vec<RawJson>,
    /// Resource definitions.
    pub resources: Vec<RawJson>,
    /// Resource template definitions.
    pub templates: Vec<RawJson>,
    /// Optional features.
    pub features: ServerFeatures,
    /// Protocol extensions, as an object.
    pub extensions: Option<RawJson>,
    /// Experimental features, as an object.
    pub experimental: Option<RawJson>,
    /// Usage instructions for models.
    pub instructions: Option<String>,
    /// Hash of the configuration; keeps cached results of different configurations apart.
    pub fingerprint: String,
    /// Problems with parts of the offering, for display.
    pub warnings: Vec<String>,
    /// `true` if this is a snapshot from an earlier run that has not been refreshed.
    pub is_stale: bool,
    /// `true` if some lists are still loading. Tools are complete.
    pub is_partial: bool,
}

/// Optional features of a provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFeatures {
    /// Argument completion.
    pub completions: bool,
    /// Resource subscriptions.
    pub subscriptions: bool,
    /// Log notifications.
    pub logging: bool,
}

/// A value that a runtime accepts as a server: a provider, a shared provider, a [`ToolRegistry`], or tools.
///
/// [`ToolRegistry`]: crate::registry::ToolRegistry
///
/// ```
/// use pegboard_core::entry::ToolEntry;
/// use pegboard_core::provider::IntoProvider;
///
/// let clock = ToolEntry::new("now", "The time", |(): ()| async { Ok(7) });
/// assert_eq!([clock].into_provider().offering().borrow().tools.len(), 1);
/// ```
pub trait IntoProvider {
    /// Returns the provider.
    fn into_provider(self) -> Arc<dyn Provider>;
}

impl<P: Provider> IntoProvider for P {
    fn into_provider(self) -> Arc<dyn Provider> {
        Arc::new(self)
    }
}

impl<P: Provider> IntoProvider for Arc<P> {
    fn into_provider(self) -> Arc<dyn Provider> {
        self
    }
}

impl IntoProvider for Arc<dyn Provider> {
    fn into_provider(self) -> Arc<dyn Provider> {
        self
    }
}

impl IntoProvider for Vec<ToolEntry> {
    fn into_provider(self) -> Arc<dyn Provider> {
        Arc::new(LocalProvider::new(self))
    }
}

impl<const N: usize> IntoProvider for [ToolEntry; N] {
    fn into_provider(self) -> Arc<dyn Provider> {
        Arc::new(LocalProvider::new(self))
    }
}

/// State of a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum ServerState {
    /// Not used yet.
    #[default]
    Idle,
    /// Starting.
    Starting,
    /// Ready for calls.
    Ready,
    /// Lost and restarting.
    Restarting {
        /// Number of attempts so far.
        attempt: u32,
    },
    /// A login is required.
    NeedsLogin {
        /// Instructions.
        fix: String,
    },
    /// Failed.
    Failed {
        /// Cause.
        why: String,
        /// Instructions.
        fix: String,
        /// End of what the server wrote to stderr, which may be about any of its principals.
        #[serde(skip_serializing_if = "Option::is_none")]
        stderr: Option<String>,
    },
    /// Shut down.
    Stopped,
}

impl ServerState {
    /// Returns `true` if the state carries an explanation and instructions.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::NeedsLogin { .. })
    }

    /// Returns the failure with this cause and these instructions.
    pub fn failed(why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::Failed { why: why.into(), fix: fix.into(), stderr: None }
    }

    /// Returns the cause of a failure together with what the server wrote to stderr.
    pub fn reason(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Failed { why, stderr, .. } => Some(with_stderr(why, stderr.as_deref())),
            _ => None,
        }
    }

    /// Returns the instructions of a failure.
    pub fn fix(&self) -> Option<&str> {
        match self {
            Self::Failed { fix, .. } | Self::NeedsLogin { fix } => Some(fix),
            _ => None,
        }
    }

    /// Returns the state with the output of the server as part of the cause.
    #[must_use]
    pub fn with_stderr(self) -> Self {
        match self {
            Self::Failed { why, fix, stderr } => Self::failed(with_stderr(&why, stderr.as_deref()), fix),
            other => other,
        }
    }

    /// Returns the state without the output of the server.
    #[must_use]
    pub fn without_stderr(self) -> Self {
        match self {
            Self::Failed { why, fix, stderr: _ } => Self::failed(why, fix),
            other => other,
        }
    }
}

/// Returns the cause of a failure, followed by the end of what the server wrote to stderr, if there is any.
pub fn with_stderr<'a>(why: &'a str, stderr: Option<&str>) -> Cow<'a, str> {
    match stderr {
        Some(stderr) => format!("{why}. Stderr: {stderr}").into(),
        None => why.into(),
    }
}

/// Information about a server's process or connection. Fields that do not apply or are not known are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessInfo {
    /// Transport, from its settings.
    pub transport: Option<TransportKind>,
    /// Process id of the configured command while it runs, not of wrappers or child processes.
    pub pid: Option<u32>,
    /// Number of restarts or reconnects after a failure. Starts after an idle stop do not count.
    pub n_restarts: Option<u64>,
    /// Duration of the last successful start.
    pub started_in: Option<Duration>,
    /// Number of running instances besides the shared one: in another protocol era, or dedicated to sessions.
    pub n_further_instances: Option<u64>,
}

/// Transport of a server connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TransportKind {
    /// Standard input and output of a child process.
    Stdio,
    /// Streamable HTTP.
    Http,
    /// HTTP+SSE.
    Sse,
    /// WebSocket.
    WebSocket,
}

impl TransportKind {
    /// Returns the transport as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Sse => "sse",
            Self::WebSocket => "websocket",
        }
    }
}

/// Provider of in-process tools.
///
/// ```
/// use pegboard_core::entry::ToolEntry;
/// use pegboard_core::provider::{LocalProvider, Provider};
///
/// let clock = LocalProvider::new([ToolEntry::new("now", "The time", |(): ()| async { Ok(7) })]);
/// assert_eq!(clock.offering().borrow().tools[0].name(), "now");
/// ```
pub struct LocalProvider {
    kind: ToolKind,
    /// Reason why the provider is unavailable.
    problem: Option<String>,
    offering: watch::Sender<Arc<ServerOffering>>,
    state: watch::Sender<ServerState>,
}

impl LocalProvider {
    /// Creates a provider of these tools.
    pub fn new(tools: impl IntoIterator<Item = ToolEntry>) -> Self {
        let tools = tools.into_iter().map(Arc::new).collect();
        Self::from_offering(ServerOffering { tools, ..ServerOffering::default() })
    }

    /// Creates a provider with this offering.
    pub fn from_offering(offering: ServerOffering) -> Self {
        Self {
            kind: ToolKind::default(),
            problem: None,
            offering: watch::Sender::new(Arc::new(offering)),
            state: watch::Sender::new(ServerState::Ready),
        }
    }

    /// Creates a placeholder for a provider that cannot be used, which reports the reason and instructions.
    ///
    /// ```
    /// use pegboard_core::provider::{LocalProvider, Provider, ServerState};
    ///
    /// let github = LocalProvider::unavailable("it needs GITHUB_TOKEN", "Set the variable.");
    /// assert!(matches!(&*github.state().borrow(), ServerState::Failed { .. }));
    /// ```
    pub fn unavailable(why: impl Into<String>, fix: impl Into<String>) -> Self {
        let (why, fix) = (why.into(), fix.into());
        let state = watch::Sender::new(ServerState::failed(why.clone(), fix));
        Self { problem: Some(why), state, ..Self::new([]) }
    }

    /// Sets the kind of the tools.
    #[must_use]
    pub fn of_kind(mut self, kind: ToolKind) -> Self {
        self.kind = kind;
        self
    }

    /// Replaces the offering.
    pub fn replace(&self, offering: ServerOffering) {
        self.offering.send_replace(Arc::new(offering));
    }
}

impl Provider for LocalProvider {
    fn kind(&self) -> ToolKind {
        self.kind
    }

    fn offering(&self) -> watch::Receiver<Arc<ServerOffering>> {
        self.offering.subscribe()
    }

    fn state(&self) -> watch::Receiver<ServerState> {
        self.state.subscribe()
    }

    fn open(&self) -> BoxFuture<'_, Result<(), CallError>> {
        let opened = match &self.problem {
            None => Ok(()),
            Some(why) => Err(CallError::ServerUnavailable { reason: why.clone() }),
        };
        ready(opened).boxed()
    }

    fn shut_down(&self) -> BoxFuture<'_, ()> {
        self.state.send_replace(ServerState::Stopped);
        ready(()).boxed()
    }
}
