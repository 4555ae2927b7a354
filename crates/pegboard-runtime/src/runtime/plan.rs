//! What a runtime is to offer, and how.

use std::sync::Arc;

use indexmap::IndexMap;
use indexmap::map::Entry;
use pegboard_core::chain::ChainSpec;
use pegboard_core::id::{InvalidName, ServerName, ToolboxName};
use pegboard_core::provider::Provider;
use pegboard_core::settings::{RuntimeSettings, ServerSettings};
use pegboard_core::store::StoreError;

use super::DEFAULT_TOOLBOX;
use crate::chains::PublishedChains;
use crate::queues::DEFAULT_QUEUE;
use crate::requests::ServerId;
use crate::toolbox::{Server, Toolbox, Toolboxes};

/// The server of chains.
pub(super) const CHAINS: &str = "chain";

/// What a runtime is to offer, and how: settings, toolboxes with their servers and chains, and what is never written
/// down. A runtime starts with one, and can go on with another; see [`Runtime::prepare`](super::Runtime::prepare).
///
/// ```
/// use pegboard_core::entry::ToolEntry;
/// use pegboard_core::provider::Local;
/// use pegboard_runtime::Plan;
///
/// let double = ToolEntry::new("double", "Twice a number", |n: i64| async move { Ok(n * 2) });
/// let plan = Plan::new().toolbox("math", "Numbers").provide("sums", Local::new([double]));
/// ```
#[derive(Default)]
pub struct Plan {
    settings: RuntimeSettings,
    toolboxes: Toolboxes,
    current: Option<ToolboxName>,
    chains: IndexMap<ToolboxName, Arc<PublishedChains>>,
    secrets: Vec<String>,
    problem: Option<StartError>,
}

/// Why a runtime does not start, or does not go on with another plan.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StartError {
    /// A name cannot be one.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// Two toolboxes have the same name.
    #[error("There are two toolboxes called '{toolbox}'. Give one of them another name")]
    TwoToolboxes {
        /// The name.
        toolbox: ToolboxName,
    },
    /// Two servers of a toolbox have the same name.
    #[error("Toolbox '{toolbox}' has two servers called '{server}'. Give one of them another name")]
    TwoServers {
        /// The toolbox.
        toolbox: ToolboxName,
        /// The name.
        server: ServerName,
    },
    /// A server or tool names a queue that is not there.
    #[error("MCP server '{server}' references unknown queue '{queue}'. Add it under configuration.queues.")]
    UnknownQueue {
        /// The server.
        server: ServerName,
        /// The queue.
        queue: String,
    },
    /// A chain cannot be a tool.
    #[error("Chain {chain}: {reason}")]
    Chain {
        /// The chain.
        chain: String,
        /// Why it cannot.
        reason: String,
    },
    /// Outputs that are too large could not be stored.
    #[error("Outputs cannot be stored: {0}")]
    Outputs(StoreError),
}

impl Plan {
    /// A plan with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// With these settings.
    #[must_use]
    pub fn settings(mut self, settings: RuntimeSettings) -> Self {
        self.settings = settings;
        self
    }

    /// With a toolbox; servers that are given from here on are in it.
    #[must_use]
    pub fn toolbox(mut self, name: &str, description: impl Into<String>) -> Self {
        match ToolboxName::new(name) {
            Ok(name) => self.begin(name, description.into()),
            Err(error) => self.fail(error.into()),
        }
        self
    }

    /// With a server, in the toolbox given last or else in `default`.
    #[must_use]
    pub fn provide(self, server: &str, provider: impl Provider) -> Self {
        self.provide_with(server, Arc::new(provider), ServerSettings::default())
    }

    /// With a server that has settings of its own.
    #[must_use]
    pub fn provide_with(
        mut self,
        server: &str,
        provider: Arc<dyn Provider>,
        settings: ServerSettings,
    ) -> Self {
        match ServerName::new(server) {
            Ok(server) => self.add(server, Server::new(provider, settings)),
            Err(error) => self.fail(error.into()),
        }
        self
    }

    /// With a chain as a tool of the server `chain`, in the toolbox given last or else in `default`.
    #[must_use]
    pub fn chain(mut self, chain: ChainSpec) -> Self {
        let toolbox = self.toolbox_at_hand();
        if !self.chains.contains_key(&toolbox) {
            let chains = Arc::new(PublishedChains::default());
            self = self.provide_with(CHAINS, chains.provider(), ServerSettings::default());
            self.chains.insert(toolbox.clone(), chains);
        }
        if let Err(error) = self.chains[&toolbox].add(chain) {
            self.fail(error);
        }
        self
    }

    /// With texts that are never written down.
    #[must_use]
    pub fn secrets(mut self, secrets: impl IntoIterator<Item = String>) -> Self {
        self.secrets.extend(secrets);
        self
    }

    /// Why no runtime can start with it, without starting one; `None` if one can.
    ///
    /// ```
    /// use pegboard_runtime::Plan;
    ///
    /// assert!(Plan::new().toolbox("math", "Numbers").problem().is_none());
    /// assert!(Plan::new().toolbox("math", "Numbers").toolbox("math", "Sums").problem().is_some());
    /// ```
    pub fn problem(&self) -> Option<StartError> {
        self.problem.clone().or_else(|| check_queues(&self.toolboxes, &self.settings).err())
    }

    /// Its servers, in order, and where the tools of each come from.
    pub fn providers(&self) -> impl Iterator<Item = (ServerId, Arc<dyn Provider>)> {
        self.toolboxes.servers().map(|(place, server)| (place, server.provider))
    }

    /// The plan, if it can be carried out, and what is never written down.
    pub(super) fn check(self) -> Result<(Layout, Vec<String>), StartError> {
        if let Some(problem) = self.problem() {
            return Err(problem);
        }
        let name_limit = self.settings.tool_name_max_length.clamp(20, 200);
        let settings = Arc::new(RuntimeSettings { tool_name_max_length: name_limit, ..self.settings });
        Ok((Layout { settings, toolboxes: self.toolboxes, chains: self.chains }, self.secrets))
    }

    fn begin(&mut self, name: ToolboxName, description: String) {
        match self.toolboxes.0.entry(name.clone()) {
            Entry::Occupied(_) => self.fail(StartError::TwoToolboxes { toolbox: name }),
            Entry::Vacant(free) => {
                free.insert(Toolbox { description, ..Toolbox::default() });
                self.current = Some(name);
            }
        }
    }

    fn add(&mut self, name: ServerName, server: Server) {
        let toolbox = self.toolbox_at_hand();
        let contents = self.toolboxes.0.entry(toolbox.clone()).or_default();
        if contents.servers.contains_key(&name) {
            self.fail(StartError::TwoServers { toolbox, server: name });
        } else {
            contents.servers.insert(name, server);
        }
    }

    fn toolbox_at_hand(&self) -> ToolboxName {
        let default = || ToolboxName::new(DEFAULT_TOOLBOX).expect("it is neither empty nor long");
        self.current.clone().unwrap_or_else(default)
    }

    /// The first problem is the one that is told.
    fn fail(&mut self, problem: StartError) {
        self.problem.get_or_insert(problem);
    }
}

fn check_queues(toolboxes: &Toolboxes, settings: &RuntimeSettings) -> Result<(), StartError> {
    let is_there = |queue: &str| queue == DEFAULT_QUEUE || settings.queues.contains_key(queue);
    for (name, server) in toolboxes.0.values().flat_map(|toolbox| &toolbox.servers) {
        let of_tools = server.settings.tools.values().filter_map(|tool| tool.queue.as_ref());
        let mut wanted = server.settings.queue.iter().chain(of_tools);
        if let Some(queue) = wanted.find(|queue| !is_there(queue)) {
            return Err(StartError::UnknownQueue { server: name.clone(), queue: queue.clone() });
        }
    }
    Ok(())
}

/// A plan that is carried out. It never changes; another takes its place.
pub(crate) struct Layout {
    pub(crate) settings: Arc<RuntimeSettings>,
    pub(crate) toolboxes: Toolboxes,
    pub(crate) chains: IndexMap<ToolboxName, Arc<PublishedChains>>,
}
