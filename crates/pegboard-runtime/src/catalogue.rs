//! The tool catalogue and name resolution.
//!
//! A snapshot is built from the servers' listings, in configuration order, and is immutable. When a listing
//! changes, a new snapshot replaces it; readers keep the one they loaded and never block.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use hmac_sha256::Hash as Sha256;
use indexmap::IndexMap;
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, NotFound};
use pegboard_core::extensions::Extensions;
use pegboard_core::id::{ServerName, ToolId, ToolName, ToolboxName};
use pegboard_core::provider::{ServerOffering, ToolKind};

use pegboard_core::settings::{CacheScope, OutputRule, ServerSettings, ValidatedBy};

use crate::call::requests::ServerId;
use crate::drain::DrainCounter;
use crate::queue::Priority;
use crate::search::SearchIndex;
use list::ServerList;
use name_index::NameIndex;

pub use list::{ListFormat, NameStyle, OutputSchemas};
pub use resolve::{NameCorrections, NameScope, Resolved, ToolboxScope};

pub(crate) mod build;
mod instructions;
mod labels;
mod list;
mod name_index;
mod policy;
mod resolve;

/// The listing of one server of a toolbox, with the operator's settings.
#[derive(Clone, Debug)]
pub struct ServerListing {
    /// Toolbox of the server.
    pub toolbox: ToolboxName,
    /// Name of the server.
    pub server: ServerName,
    /// Provider kind.
    pub kind: ToolKind,
    /// Operator's settings.
    pub settings: Arc<ServerSettings>,
    /// Tools, prompts and resources that the server offers.
    pub offer: Arc<ServerOffering>,
    /// `true` if the server has listed its tools, in this run or an earlier one.
    pub is_known: bool,
    /// Counter of calls that use the server.
    pub drain_counter: DrainCounter,
}

/// One tool of the catalogue.
#[derive(Clone, Debug)]
pub struct CatalogueTool {
    /// Stable identity.
    pub id: ToolId,
    /// Entry as offered by the server, with schema, tags and instructions overridden by the operator's
    /// settings.
    pub entry: Arc<ToolEntry>,
    /// Tool kind.
    pub kind: ToolKind,
    /// Name among all tools: `{server}__{tool}`.
    pub flat_name: Arc<str>,
    /// Name on the surfaces of agents and modes: `{server}_{tool}`, with the prefix of flat names.
    pub agent_mode_name: Arc<str>,
    /// Additional names from the operator's settings.
    pub aliases: Vec<Arc<str>>,
    /// Execution policy.
    pub policy: ToolPolicy,
    /// Fingerprint of the server's configuration.
    pub fingerprint: Arc<str>,
    /// Counter of calls that use the server.
    pub(crate) drain_counter: DrainCounter,
    schema_digest: OnceLock<String>,
    is_standalone: bool,
}

impl CatalogueTool {
    /// Creates a tool outside the catalogue.
    pub(crate) fn standalone(
        server: &ServerName,
        entry: Arc<ToolEntry>,
        kind: ToolKind,
        fingerprint: &str,
    ) -> Arc<Self> {
        let flat_name = format!("{server}__{}", entry.name());
        let id = ToolId {
            toolbox: ToolboxName::new("default").expect("the constant is a valid name"),
            server: server.clone(),
            name: ToolName::new(entry.name()).expect("standalone tools have valid names"),
        };
        Arc::new(Self {
            agent_mode_name: format!("{server}_{}", entry.name()).into(),
            flat_name: flat_name.into(),
            id,
            entry,
            kind,
            aliases: Vec::new(),
            policy: ToolPolicy::default(),
            fingerprint: fingerprint.into(),
            drain_counter: DrainCounter::default(),
            schema_digest: OnceLock::new(),
            is_standalone: true,
        })
    }

    /// Returns `true` if the tool is outside the catalogue and can be called by name only.
    pub(crate) fn is_standalone(&self) -> bool {
        self.is_standalone
    }

    /// Returns a digest of the input schema, computed on first use.
    pub(crate) fn schema_digest(&self) -> &str {
        self.schema_digest.get_or_init(|| {
            let digest = Sha256::hash(self.entry.input_schema().as_json().to_string().as_bytes());
            digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
        })
    }

    /// Returns the usage instructions for models.
    pub fn instructions(&self) -> Option<&str> {
        self.entry.instructions()
    }
}

/// Execution policy of a tool. Settings of the tool override those of its server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolPolicy {
    /// Queue name, if configured.
    pub queue: Option<Arc<str>>,
    /// Queue priority.
    pub priority: Priority,
    /// Time to live of cached answers; `None` disables caching.
    pub cache: Option<Duration>,
    /// Sharing of cached answers.
    pub cache_scope: CacheScope,
    /// Execution timeout.
    pub time_limit: TimeLimit,
    /// Maximum size of a returned answer in bytes, if configured.
    pub max_output: Option<usize>,
    /// Argument validator, if configured.
    pub judge: Option<ValidatedBy>,
    /// Handling of answers that violate the output schema.
    pub output: OutputRule,
}

/// Execution timeout of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeLimit {
    /// Not configured for this tool; the default applies.
    #[default]
    Unset,
    /// No timeout.
    Unlimited,
    /// A fixed timeout.
    After(Duration),
}

/// A tool with a flat name that is taken by an earlier tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// Id of the tool.
    pub tool: ToolId,
    /// Name derived from the id.
    pub wanted: String,
    /// Name assigned instead.
    pub given: Arc<str>,
    /// Id of the tool that holds the desired name.
    pub taken_by: ToolId,
}

/// A problem that the operator should review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Toolbox of the server.
    pub toolbox: ToolboxName,
    /// Name of the server.
    pub server: ServerName,
    /// Description of the problem.
    pub text: String,
}

/// Immutable view of all tools at one point in time.
///
/// ```
/// use std::sync::{Arc, OnceLock};
///
/// use pegboard_core::entry::ToolEntry;
/// use pegboard_core::id::{ServerName, ToolboxName};
/// use pegboard_core::provider::{ServerOffering, ToolKind};
/// use pegboard_runtime::catalogue::{ToolboxScope, ServerListing, Snapshot};
/// use pegboard_runtime::names::DEFAULT_LIMIT;
/// use pegboard_runtime::drain::DrainCounter;
///
/// let search = ToolEntry::new("search.code", "Finds code", |words: Vec<String>| async { Ok(words) });
/// let listing = ServerListing {
///     toolbox: ToolboxName::new("dev")?,
///     server: ServerName::new("github")?,
///     kind: ToolKind::Mcp,
///     settings: Arc::default(),
///     offer: Arc::new(ServerOffering { tools: vec![Arc::new(search)], ..ServerOffering::default() }),
///     is_known: true,
///     drain_counter: DrainCounter::default(),
/// };
/// let snapshot = Snapshot::build(&[listing], DEFAULT_LIMIT);
///
/// let found = snapshot.resolve("github_search_code", ToolboxScope::All).unwrap();
/// assert_eq!(&*found.tool.flat_name, "github__search_code");
/// assert_eq!(found.corrected_from, None);
///
/// let found = snapshot.resolve("search.code", ToolboxScope::All).unwrap();
/// assert_eq!(found.corrected_from.as_deref(), Some("search.code"));
/// # Ok::<(), pegboard_core::id::InvalidName>(())
/// ```
#[derive(Debug, Default)]
pub struct Snapshot {
    /// In configuration order; the tools of one server are contiguous.
    tools: Vec<Arc<CatalogueTool>>,
    slots: Vec<ListingSlot>,
    /// The servers of each toolbox, as indexes into `slots`.
    toolboxes: IndexMap<ToolboxName, IndexMap<ServerName, usize>>,
    names: NameIndex,
    collisions: Vec<Collision>,
    warnings: Vec<Warning>,
    /// Built at the first search.
    index: OnceLock<SearchIndex>,
    extensions: Extensions,
}

/// A listing with its position in the snapshot.
#[derive(Debug)]
struct ListingSlot {
    listing: ServerListing,
    /// Prefix of the server in flat names.
    label: String,
    /// Range of its tools in the snapshot.
    span: Range<usize>,
    /// Offsets into the span.
    by_name: Arc<HashMap<ToolName, usize>>,
    warnings: Arc<[String]>,
    list: Arc<ServerList>,
}

impl Snapshot {
    /// Returns the tool with this id.
    pub fn by_id(&self, id: &ToolId) -> Option<&Arc<CatalogueTool>> {
        self.slot(&id.toolbox, &id.server)?.tool(&self.tools, &id.name)
    }

    /// Returns the tool with this id, or an error naming the part that does not exist.
    pub fn lookup(&self, id: &ToolId) -> Result<&Arc<CatalogueTool>, CallError> {
        let missing = |what| Err(CallError::NotFound(what));
        let toolbox = id.toolbox.to_string();
        let Some(servers) = self.toolboxes.get(&id.toolbox) else {
            return missing(NotFound::Toolbox { toolbox, available: to_strings(self.toolboxes()) });
        };
        let server = id.server.to_string();
        let Some(slot) = servers.get(&id.server).map(|at| &self.slots[*at]) else {
            return missing(NotFound::Server { server, toolbox, available: to_strings(servers.keys()) });
        };
        let Some(tool) = slot.tool(&self.tools, &id.name) else {
            let nearest = self.names.closest_of_server(&self.tools, &slot.span, id.name.as_str());
            return missing(NotFound::ToolOfServer { name: id.name.to_string(), server, toolbox, nearest });
        };
        Ok(tool)
    }

    /// Returns the toolboxes, in order.
    pub fn toolboxes(&self) -> impl Iterator<Item = &ToolboxName> {
        self.toolboxes.keys()
    }

    /// Returns the servers of a toolbox, in order; empty if it does not exist.
    pub fn servers(&self, toolbox: &ToolboxName) -> impl Iterator<Item = &ServerName> {
        self.toolboxes.get(toolbox).into_iter().flat_map(IndexMap::keys)
    }

    /// Returns all tools, in order.
    pub fn tools(&self) -> &[Arc<CatalogueTool>] {
        &self.tools
    }

    /// Returns the tools of a toolbox, in order.
    pub fn tools_of(&self, toolbox: &ToolboxName) -> impl Iterator<Item = &Arc<CatalogueTool>> {
        let servers = self.toolboxes.get(toolbox).into_iter().flat_map(IndexMap::values);
        servers.flat_map(|at| &self.tools[self.slots[*at].span.clone()])
    }

    /// Returns the tools of a server, in the server's order.
    pub fn tools_of_server(&self, toolbox: &ToolboxName, server: &ServerName) -> &[Arc<CatalogueTool>] {
        self.slot(toolbox, server).map_or(&[], |slot| &self.tools[slot.span.clone()])
    }

    /// Returns every listing with the prefix of its server in flat names, in order.
    pub fn listings(&self) -> impl Iterator<Item = (&ServerListing, &str)> {
        self.slots.iter().map(|slot| (&slot.listing, slot.label.as_str()))
    }

    /// Returns the tools with a flat name that is taken by an earlier tool.
    pub fn collisions(&self) -> &[Collision] {
        &self.collisions
    }

    /// Returns the problems that the operator should review.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Returns the values that others have computed from this snapshot.
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    pub(crate) fn index(&self) -> &SearchIndex {
        self.index.get_or_init(|| SearchIndex::of(&self.tools))
    }

    /// Returns the number of a server's tools, if this is what it offers.
    pub(crate) fn n_tools_of_offer(
        &self,
        toolbox: &ToolboxName,
        server: &ServerName,
        offer: &Arc<ServerOffering>,
    ) -> Option<usize> {
        let slot = self.slot(toolbox, server)?;
        Arc::ptr_eq(&slot.listing.offer, offer).then(|| slot.span.len())
    }

    fn slot(&self, toolbox: &ToolboxName, server: &ServerName) -> Option<&ListingSlot> {
        self.slot_index(toolbox, server).map(|at| &self.slots[at])
    }

    fn slot_index(&self, toolbox: &ToolboxName, server: &ServerName) -> Option<usize> {
        self.toolboxes.get(toolbox)?.get(server).copied()
    }
}

impl ListingSlot {
    fn id(&self) -> ServerId {
        ServerId { toolbox: self.listing.toolbox.clone(), server: self.listing.server.clone() }
    }

    /// Returns `true` if another toolbox has a server of this name.
    fn is_shared(&self) -> bool {
        self.label != self.listing.server.as_str()
    }

    fn tool<'t>(&self, tools: &'t [Arc<CatalogueTool>], name: &ToolName) -> Option<&'t Arc<CatalogueTool>> {
        self.by_name.get(name).map(|at| &tools[self.span.start + at])
    }
}

fn to_strings<'n, N: ToString + 'n>(names: impl Iterator<Item = &'n N>) -> Vec<String> {
    names.map(ToString::to_string).collect()
}

/// The current catalogue snapshot.
///
/// ```
/// use pegboard_runtime::catalogue::{Catalogue, Snapshot};
///
/// let catalogue = Catalogue::default();
/// let before = catalogue.load();
/// catalogue.publish(Snapshot::build(&[], 64));
/// assert!(before.tools().is_empty());
/// ```
#[derive(Debug, Default)]
pub struct Catalogue(ArcSwap<Snapshot>);

impl Catalogue {
    /// Returns the current snapshot. It is unaffected by later updates.
    pub fn load(&self) -> Arc<Snapshot> {
        self.0.load_full()
    }

    /// Replaces the current snapshot.
    pub fn publish(&self, snapshot: Snapshot) {
        self.0.store(Arc::new(snapshot));
    }
}
