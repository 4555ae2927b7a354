//! Where tools come from.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, ready};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::entry::ToolEntry;
use crate::error::CallError;

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

    /// Makes it ready for use. One that is ready already has nothing to do.
    fn open(&self) -> BoxFuture<'_, Result<(), CallError>>;

    /// Ends it. Calls of it that are under way fail.
    fn shut_down(&self) -> BoxFuture<'_, ()>;
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
    /// How to use them, for a model.
    pub instructions: Option<String>,
    /// Tells its configuration from every other, so that answers of another never pass for its own.
    pub fingerprint: String,
    /// What is wrong with parts of what it offers, for people.
    pub warnings: Vec<String>,
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
            offer: watch::Sender::new(Arc::new(offer)),
            state: watch::Sender::new(ServerState::Ready),
        }
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
        ready(Ok(())).boxed()
    }

    fn shut_down(&self) -> BoxFuture<'_, ()> {
        self.state.send_replace(ServerState::Stopped);
        ready(()).boxed()
    }
}
