//! Where tools come from.

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

/// Something that offers tools: an MCP server, a REST service, the tools of this program.
///
/// It offers them as entries with their handlers, so a call goes to the handler and never through here.
pub trait Provider: Send + Sync + 'static {
    /// What sort of provider it is.
    fn kind(&self) -> ToolKind;

    /// What it offers, now and after every change.
    fn offer(&self) -> watch::Receiver<Arc<Offer>>;

    /// How it is, now and after every change.
    fn state(&self) -> watch::Receiver<ServerState>;

    /// What runs behind it now, for people who look; nothing if there is no such thing.
    fn particulars(&self) -> Particulars {
        Particulars::default()
    }

    /// Makes it ready for use. One that is ready already has nothing to do.
    fn open(&self) -> BoxFuture<'_, Result<(), CallError>>;

    /// Does something that is no call of a tool.
    fn request<'a>(
        &'a self,
        request: &'a Request,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<RawJson, CallError>> {
        let _ = context;
        let problem = format!("{} is not offered here", request.method.as_str());
        ready(Err(CallError::Failed(ToolError::new(problem)))).boxed()
    }

    /// What it says that belongs to no call.
    fn updates(&self) -> broadcast::Receiver<Update> {
        broadcast::channel(1).1
    }

    /// What it said beside its answers; nothing if it has no way to.
    fn log(&self) -> ServerLog {
        ServerLog::default()
    }

    /// Ends it. Calls of it that are under way fail.
    fn shut_down(&self) -> BoxFuture<'_, ()>;
}

/// Something that is wanted of a provider, and is no call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What is wanted.
    pub method: Method,
    /// The particulars, as the protocol has them.
    pub params: RawJson,
}

/// What can be wanted of a provider beside calls of its tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// A prompt, with its blanks filled in.
    GetPrompt,
    /// What a resource holds.
    ReadResource,
    /// How what somebody types could go on.
    Complete,
    /// To be told when a resource changes.
    Subscribe,
    /// Not to be told any more.
    Unsubscribe,
    /// From which level on log lines are wanted.
    SetLogLevel,
}

impl Method {
    /// Whether it is about what a provider does from then on, so that nothing it says meanwhile is about the request.
    pub fn outlasts_its_answer(self) -> bool {
        matches!(self, Self::Subscribe | Self::Unsubscribe | Self::SetLogLevel)
    }

    /// What the protocol calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::GetPrompt => "prompts/get",
            Self::ReadResource => "resources/read",
            Self::Complete => "completion/complete",
            Self::Subscribe => "resources/subscribe",
            Self::Unsubscribe => "resources/unsubscribe",
            Self::SetLogLevel => "logging/setLevel",
        }
    }
}

/// Something that a provider says and that belongs to no call.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// A resource is not what it was; the particulars as the protocol has them.
    Resource(RawJson),
    /// A line of its log.
    Log(RawJson),
    /// Somebody has been at the address that it sent them to; the particulars as the protocol has them.
    BeenThere(RawJson),
}

/// What sort of tool it is, for logs, accounts and the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolKind {
    /// A tool of an MCP server.
    Mcp,
    /// A call of a web service.
    Rest,
    /// A tool of this program: built in, a chain, or an agent.
    #[default]
    Agent,
}

impl ToolKind {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Rest => "rest",
            Self::Agent => "agent",
        }
    }
}

/// What a provider offers.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    /// Its tools, in its own order.
    pub tools: Vec<Arc<ToolEntry>>,
    /// Its prompts, as it describes them.
    pub prompts: Vec<RawJson>,
    /// Its resources, as it describes them.
    pub resources: Vec<RawJson>,
    /// Its templates of resources, as it describes them.
    pub templates: Vec<RawJson>,
    /// What else it can do.
    pub features: Features,
    /// The extensions of the protocol that it knows, as it describes them: an object.
    pub extensions: Option<RawJson>,
    /// How to use its tools, for a model.
    pub instructions: Option<String>,
    /// Tells its configuration from every other, so that answers of another never pass for its own.
    pub fingerprint: String,
    /// What is wrong with parts of what it offers, for people.
    pub warnings: Vec<String>,
    /// Whether this is what it offered when it was last there, and it has not been asked since.
    pub is_stale: bool,
    /// Whether some of its lists have yet to be read. Its tools are there.
    pub is_partial: bool,
}

/// What a provider can do beside what it lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// Say how what somebody types could go on.
    pub completions: bool,
    /// Tell when a resource changes.
    pub subscriptions: bool,
    /// Tell its log.
    pub logging: bool,
}

/// How a provider is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum ServerState {
    /// It has not been used yet.
    #[default]
    Idle,
    /// It is being started.
    Starting,
    /// It answers.
    Ready,
    /// It went away and is being started again.
    Restarting {
        /// How often that was tried.
        attempt: u32,
    },
    /// Somebody must log in first.
    NeedsLogin {
        /// What to do.
        fix: String,
    },
    /// It cannot be used.
    Failed {
        /// Why.
        why: String,
        /// What to do.
        fix: String,
    },
    /// It was ended.
    Stopped,
}

impl ServerState {
    /// Whether it says itself why it cannot be used.
    pub fn is_hopeless(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::NeedsLogin { .. })
    }
}

/// What a person may want to know of a server beside how it is. What does not apply, or is not known yet, is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Particulars {
    /// How it is spoken to, by its settings.
    pub transport: Option<Transport>,
    /// The process of the program that its settings name, while that runs: neither who watches it nor what it started.
    pub pid: Option<u32>,
    /// How often it was started again, or reached again, because it went away or did not answer any more. One that was
    /// ended because nobody used it is started anew, and that does not count.
    pub n_restarts: Option<u64>,
    /// How long it took until it was ready, the last time it was.
    pub started_in: Option<Duration>,
}

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Over the input and output of a program.
    Stdio,
    /// Over streamable HTTP.
    Http,
    /// Over HTTP+SSE.
    Sse,
    /// Over a WebSocket.
    WebSocket,
}

impl Transport {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Sse => "sse",
            Self::WebSocket => "websocket",
        }
    }
}

/// Tools of this program as a provider.
///
/// ```
/// use pegboard_core::entry::ToolEntry;
/// use pegboard_core::provider::{Local, Provider};
///
/// let clock = Local::new([ToolEntry::new("now", "The time", |(): ()| async { Ok(7) })]);
/// assert_eq!(clock.offer().borrow().tools[0].name(), "now");
/// ```
pub struct Local {
    kind: ToolKind,
    /// Why it cannot be used.
    problem: Option<String>,
    offer: watch::Sender<Arc<Offer>>,
    state: watch::Sender<ServerState>,
}

impl Local {
    /// A provider of these tools.
    pub fn new(tools: impl IntoIterator<Item = ToolEntry>) -> Self {
        let tools = tools.into_iter().map(Arc::new).collect();
        Self::offering(Offer { tools, ..Offer::default() })
    }

    /// A provider that offers this.
    pub fn offering(offer: Offer) -> Self {
        Self {
            kind: ToolKind::default(),
            problem: None,
            offer: watch::Sender::new(Arc::new(offer)),
            state: watch::Sender::new(ServerState::Ready),
        }
    }

    /// A provider that cannot be used, so that its place is not empty and whoever looks there learns why, and what to
    /// do about it.
    ///
    /// ```
    /// use pegboard_core::provider::{Local, Provider, ServerState};
    ///
    /// let github = Local::unusable("it needs GITHUB_TOKEN", "Set the variable.");
    /// assert!(matches!(&*github.state().borrow(), ServerState::Failed { .. }));
    /// ```
    pub fn unusable(why: impl Into<String>, fix: impl Into<String>) -> Self {
        let (why, fix) = (why.into(), fix.into());
        let state = watch::Sender::new(ServerState::Failed { why: why.clone(), fix });
        Self { problem: Some(why), state, ..Self::new([]) }
    }

    /// The provider as one of another kind.
    #[must_use]
    pub fn of_kind(mut self, kind: ToolKind) -> Self {
        self.kind = kind;
        self
    }

    /// Offers something else from now on.
    pub fn replace(&self, offer: Offer) {
        self.offer.send_replace(Arc::new(offer));
    }
}

impl Provider for Local {
    fn kind(&self) -> ToolKind {
        self.kind
    }

    fn offer(&self) -> watch::Receiver<Arc<Offer>> {
        self.offer.subscribe()
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
