//! The plan of a runtime: settings, toolboxes and chains.

use std::sync::Arc;

use indexmap::IndexMap;
use indexmap::map::Entry;
use pegboard_core::chain::ChainSpec;
use pegboard_core::id::{InvalidName, ServerName, ToolboxName};
use pegboard_core::provider::{IntoProvider, Provider};
use pegboard_core::settings::{RuntimeSettings, ServerSettings};

use super::DEFAULT_TOOLBOX;
use crate::call::requests::ServerId;
use crate::chains::PublishedChains;
use crate::queues::DEFAULT_QUEUE;
use crate::toolbox::{ToolboxContents, ToolboxServer, Toolboxes};

/// Name of the server that publishes chains.
pub(super) const CHAIN_SERVER: &str = "chain";

/// Configuration of a runtime: settings, toolboxes with their servers and chains, and secrets to redact. A
/// runtime starts with one plan and can switch to another; see [`Runtime::prepare`](super::Runtime::prepare).
///
/// ```
/// use pegboard_core::entry::ToolEntry;
/// use pegboard_core::provider::LocalProvider;
/// use pegboard_runtime::RuntimePlan;
///
/// let double = ToolEntry::new("double", "Twice a number", |n: i64| async move { Ok(n * 2) });
/// let plan = RuntimePlan::new().toolbox("math", "Numbers").provide("sums", LocalProvider::new([double]));
/// ```
#[derive(Default)]
pub struct RuntimePlan {
    settings: RuntimeSettings,
    toolboxes: Toolboxes,
    current: Option<ToolboxName>,
    chains: IndexMap<ToolboxName, Arc<PublishedChains>>,
    secrets: Vec<String>,
    disabled: Vec<ServerId>,
    problem: Option<StartError>,
}

/// Error of starting a runtime or of switching to another plan.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StartError {
    /// A name is invalid.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// Two toolboxes have the same name.
    #[error("duplicate toolbox '{toolbox}': rename one of them")]
    TwoToolboxes {
        /// Name of the toolboxes.
        toolbox: ToolboxName,
    },
    /// Two servers of a toolbox have the same name.
    #[error("duplicate server '{server}' in toolbox '{toolbox}': rename one of them")]
    TwoServers {
        /// Name of the toolbox.
        toolbox: ToolboxName,
        /// Name of the servers.
        server: ServerName,
    },
    /// A server or tool refers to a queue that does not exist.
    #[error("MCP server '{server}' references unknown queue '{queue}'. Add it under configuration.queues.")]
    UnknownQueue {
        /// Name of the server.
        server: ServerName,
        /// Name of the queue.
        queue: String,
    },
    /// A chain cannot be published as a tool.
    #[error("Chain {chain}: {reason}")]
    Chain {
        /// Name of the chain.
        chain: String,
        /// Reason.
        reason: String,
    },
}

impl RuntimePlan {
    /// Creates an empty plan.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the settings.
    #[must_use]
    pub fn settings(mut self, settings: RuntimeSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Adds a toolbox; servers added from here on belong to it.
    #[must_use]
    pub fn toolbox(mut self, name: &str, description: impl Into<String>) -> Self {
        match ToolboxName::new(name) {
            Ok(name) => self.add_toolbox(name, description.into()),
            Err(error) => self.record_problem(error.into()),
        }
        self
    }

    /// Adds a server to the last toolbox, or to `default` if there is none.
    ///
    /// ```
    /// use pegboard_core::registry::ToolRegistry;
    /// use pegboard_core::settings::ServerSettings;
    /// use pegboard_runtime::RuntimePlan;
    ///
    /// let settings = ServerSettings { queue: Some("slow".to_owned()), ..ServerSettings::default() };
    /// let plan = RuntimePlan::new().provide("tools", ToolRegistry::new()).server_settings(settings);
    /// assert!(plan.problem().is_some(), "there is no such queue");
    /// ```
    #[must_use]
    pub fn provide(mut self, server: &str, provider: impl IntoProvider) -> Self {
        match ServerName::new(server) {
            Ok(server) => {
                self.add_server(
                    server,
                    ToolboxServer::new(provider.into_provider(), ServerSettings::default()),
                );
            }
            Err(error) => self.record_problem(error.into()),
        }
        self
    }

    /// Sets the settings of the server that was added last; they are ignored if there is none.
    #[must_use]
    pub fn server_settings(mut self, settings: ServerSettings) -> Self {
        let last = self.toolboxes.0.last_mut().and_then(|(_, contents)| contents.servers.last_mut());
        if let Some((_, server)) = last {
            *server = server.with_settings(&Arc::new(settings));
        }
        self
    }

    /// Adds a chain as a tool of the server `chain`, in the last toolbox or else in `default`.
    #[must_use]
    pub fn chain(mut self, chain: ChainSpec) -> Self {
        let toolbox = self.current_toolbox();
        if !self.chains.contains_key(&toolbox) {
            let chains = Arc::new(PublishedChains::default());
            self = self.provide(CHAIN_SERVER, chains.provider());
            self.chains.insert(toolbox.clone(), chains);
        }
        if let Err(error) = self.chains[&toolbox].add(chain) {
            self.record_problem(error);
        }
        self
    }

    /// Adds secrets to redact from logs and records.
    #[must_use]
    pub fn secrets(mut self, secrets: impl IntoIterator<Item = String>) -> Self {
        self.secrets.extend(secrets);
        self
    }

    /// Sets the servers that the configuration disables. Names with their prefixes stay theirs.
    #[must_use]
    pub fn disabled(mut self, servers: impl IntoIterator<Item = ServerId>) -> Self {
        self.disabled.extend(servers);
        self
    }

    /// Validates the plan without starting a runtime; returns the first problem.
    ///
    /// ```
    /// use pegboard_runtime::RuntimePlan;
    ///
    /// assert!(RuntimePlan::new().toolbox("math", "Numbers").problem().is_none());
    /// assert!(RuntimePlan::new().toolbox("math", "Numbers").toolbox("math", "Sums").problem().is_some());
    /// ```
    pub fn problem(&self) -> Option<StartError> {
        self.problem.clone().or_else(|| check_queues(&self.toolboxes, &self.settings).err())
    }

    /// Returns its servers, in order, with their providers.
    pub fn providers(&self) -> impl Iterator<Item = (ServerId, Arc<dyn Provider>)> {
        self.toolboxes.servers().map(|(id, server)| (id, server.provider))
    }

    /// Validates the plan; returns it with the secrets.
    pub(super) fn check(self) -> Result<(ActivePlan, Vec<String>), StartError> {
        if let Some(problem) = self.problem() {
            return Err(problem);
        }
        let name_limit = self.settings.tool_name_max_length.clamp(20, 200);
        let settings = Arc::new(RuntimeSettings { tool_name_max_length: name_limit, ..self.settings });
        let Self { toolboxes, chains, disabled, secrets, .. } = self;
        Ok((ActivePlan { settings, toolboxes, chains, disabled }, secrets))
    }

    fn add_toolbox(&mut self, name: ToolboxName, description: String) {
        match self.toolboxes.0.entry(name.clone()) {
            Entry::Occupied(_) => self.record_problem(StartError::TwoToolboxes { toolbox: name }),
            Entry::Vacant(free) => {
                free.insert(ToolboxContents { description, ..ToolboxContents::default() });
                self.current = Some(name);
            }
        }
    }

    fn add_server(&mut self, name: ServerName, server: ToolboxServer) {
        let toolbox = self.current_toolbox();
        let contents = self.toolboxes.0.entry(toolbox.clone()).or_default();
        if contents.servers.contains_key(&name) {
            self.record_problem(StartError::TwoServers { toolbox, server: name });
        } else {
            contents.servers.insert(name, server);
        }
    }

    fn current_toolbox(&self) -> ToolboxName {
        let default = || ToolboxName::new(DEFAULT_TOOLBOX).expect("the constant is a valid name");
        self.current.clone().unwrap_or_else(default)
    }

    /// Records a problem; only the first one is reported.
    fn record_problem(&mut self, problem: StartError) {
        self.problem.get_or_insert(problem);
    }
}

fn check_queues(toolboxes: &Toolboxes, settings: &RuntimeSettings) -> Result<(), StartError> {
    let is_configured = |queue: &str| queue == DEFAULT_QUEUE || settings.queues.contains_key(queue);
    for (name, server) in toolboxes.0.values().flat_map(|toolbox| &toolbox.servers) {
        let of_tools = server.settings.tools.values().filter_map(|tool| tool.queue.as_ref());
        let mut referenced = server.settings.queue.iter().chain(of_tools);
        if let Some(queue) = referenced.find(|queue| !is_configured(queue)) {
            return Err(StartError::UnknownQueue { server: name.clone(), queue: queue.clone() });
        }
    }
    Ok(())
}

/// A validated plan in effect. It is immutable; another one replaces it.
pub(crate) struct ActivePlan {
    pub(crate) settings: Arc<RuntimeSettings>,
    pub(crate) toolboxes: Toolboxes,
    pub(crate) chains: IndexMap<ToolboxName, Arc<PublishedChains>>,
    /// Servers that the configuration disables.
    pub(crate) disabled: Vec<ServerId>,
}
