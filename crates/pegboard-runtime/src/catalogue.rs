//! Which tools there are, and how one is found.
//!
//! A snapshot is made from what the servers offer, in the order of the configuration, and never changes. A new one
//! takes its place when a server offers something else; readers keep the one they have and never wait.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use indexmap::IndexMap;
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, NotFound};
use pegboard_core::id::{ServerName, ToolId, ToolName, ToolboxName};
use pegboard_core::provider::{Offer, ToolKind};
use sha2::{Digest, Sha256};

use pegboard_core::settings::{CacheScope, Judge, OutputRule, ServerSettings};

use crate::queue::Priority;
use crate::search::Index;
use crate::usage::Usage;
use list::Lists;
use resolve::Names;

pub use list::{Form, OutputSchemas, View};
pub use resolve::{Resolved, Scope};

mod build;
mod instructions;
mod list;
mod resolve;
mod rules;

/// What one server of a toolbox offers, and what the operator says of it.
#[derive(Clone, Debug)]
pub struct Shelf {
    /// The toolbox.
    pub toolbox: ToolboxName,
    /// The server.
    pub server: ServerName,
    /// What sort of provider it is.
    pub kind: ToolKind,
    /// What the operator says.
    pub settings: Arc<ServerSettings>,
    /// What it offers.
    pub offer: Arc<Offer>,
    /// Who uses it.
    pub usage: Usage,
}

/// One tool of the catalogue.
#[derive(Clone, Debug)]
pub struct Tool {
    /// What it is called for good.
    pub id: ToolId,
    /// The tool as its server offers it, with the operator's schema, tags and instructions in place of its own.
    pub entry: Arc<ToolEntry>,
    /// What sort of tool it is.
    pub kind: ToolKind,
    /// The name among all tools: `{server}__{tool}`.
    pub flat_name: Arc<str>,
    /// The name on the surface of agents and modes: `{server}_{tool}`.
    pub agent_mode_name: Arc<str>,
    /// Other names that the operator gave it.
    pub aliases: Vec<Arc<str>>,
    /// How its calls are carried out.
    pub rules: Rules,
    /// Tells its server's configuration from every other.
    pub fingerprint: Arc<str>,
    /// Who uses its server.
    pub(crate) usage: Usage,
    schema_digest: OnceLock<String>,
    is_lone: bool,
}

impl Tool {
    /// A tool on its own, outside every catalogue.
    pub(crate) fn lone(
        server: &ServerName,
        entry: Arc<ToolEntry>,
        kind: ToolKind,
        fingerprint: &str,
    ) -> Arc<Self> {
        let flat_name = format!("{server}__{}", entry.name());
        let id = ToolId {
            toolbox: ToolboxName::new("default").expect("it is neither empty nor long"),
            server: server.clone(),
            name: ToolName::new(entry.name()).expect("lone tools are well named"),
        };
        Arc::new(Self {
            agent_mode_name: format!("{server}_{}", entry.name()).into(),
            flat_name: flat_name.into(),
            id,
            entry,
            kind,
            aliases: Vec::new(),
            rules: Rules::default(),
            fingerprint: fingerprint.into(),
            usage: Usage::default(),
            schema_digest: OnceLock::new(),
            is_lone: true,
        })
    }

    /// Whether it is in no catalogue, and can be called by its name alone.
    pub(crate) fn is_lone(&self) -> bool {
        self.is_lone
    }

    /// What tells its input schema from every other; made when it is first wanted.
    pub(crate) fn schema_digest(&self) -> &str {
        self.schema_digest.get_or_init(|| {
            let digest = Sha256::digest(self.entry.input_schema().as_json().to_string());
            digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
        })
    }

    /// What a model should know about using it.
    pub fn instructions(&self) -> Option<&str> {
        self.entry.instructions()
    }
}

/// How calls of a tool are carried out. What was set for the tool counts before what was set for its server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The queue they go through, if anybody named one.
    pub queue: Option<Arc<str>>,
    /// How urgent they are.
    pub priority: Priority,
    /// How long an answer may be given again; `None` for never.
    pub cache: Option<Duration>,
    /// Who may be given an answer again.
    pub cache_scope: CacheScope,
    /// How long one may run.
    pub time_limit: TimeLimit,
    /// How many bytes of an answer a caller is handed, if anybody set it.
    pub max_output: Option<usize>,
    /// Who judges arguments, if anybody said so.
    pub judge: Option<Judge>,
    /// What an answer that breaks the output schema is.
    pub output: OutputRule,
}

/// How long a call may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeLimit {
    /// As long as other calls: nothing was set for this tool.
    #[default]
    Unset,
    /// As long as it wants.
    Never,
    /// So long.
    After(Duration),
}

/// A tool whose flat name was taken by one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// The tool.
    pub tool: ToolId,
    /// The name it should have had.
    pub wanted: String,
    /// The name it has.
    pub given: Arc<str>,
    /// The tool that has the name.
    pub taken_by: ToolId,
}

/// Something that a person should look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The toolbox.
    pub toolbox: ToolboxName,
    /// The server.
    pub server: ServerName,
    /// What is the matter.
    pub text: String,
}

/// All tools there are at one time.
///
/// ```
/// use std::sync::{Arc, OnceLock};
///
/// use pegboard_core::entry::ToolEntry;
/// use pegboard_core::id::{ServerName, ToolboxName};
/// use pegboard_core::provider::{Offer, ToolKind};
/// use pegboard_runtime::catalogue::{Scope, Shelf, Snapshot};
/// use pegboard_runtime::names::DEFAULT_LIMIT;
/// use pegboard_runtime::usage::Usage;
///
/// let search = ToolEntry::new("search.code", "Finds code", |words: Vec<String>| async { Ok(words) });
/// let shelf = Shelf {
///     toolbox: ToolboxName::new("dev")?,
///     server: ServerName::new("github")?,
///     kind: ToolKind::Mcp,
///     settings: Arc::default(),
///     offer: Arc::new(Offer { tools: vec![Arc::new(search)], ..Offer::default() }),
///     usage: Usage::default(),
/// };
/// let snapshot = Snapshot::build(&[shelf], DEFAULT_LIMIT);
///
/// let found = snapshot.resolve("github_search_code", Scope::All, &|_| true).unwrap();
/// assert_eq!(&*found.tool.flat_name, "github__search_code");
/// assert_eq!(found.corrected_from, None);
///
/// let found = snapshot.resolve("search.code", Scope::All, &|_| true).unwrap();
/// assert_eq!(found.corrected_from.as_deref(), Some("search.code"));
/// # Ok::<(), pegboard_core::id::InvalidName>(())
/// ```
#[derive(Debug, Default)]
pub struct Snapshot {
    /// In the order of the configuration, those of one server together.
    tools: Vec<Arc<Tool>>,
    stands: Vec<Stand>,
    toolboxes: IndexMap<ToolboxName, Toolbox>,
    names: Names,
    collisions: Vec<Collision>,
    warnings: Vec<Warning>,
    lists: Lists,
    /// Made at the first search.
    index: OnceLock<Index>,
}

/// The servers that stand together.
#[derive(Debug, Default)]
struct Toolbox {
    /// Positions in the stands.
    servers: IndexMap<ServerName, usize>,
    lists: Lists,
}

/// A shelf in its place.
#[derive(Debug)]
struct Stand {
    shelf: Shelf,
    /// How its server is called in flat names.
    label: String,
    /// Where its tools are.
    span: Range<usize>,
    /// Positions in the span.
    by_name: Arc<HashMap<ToolName, usize>>,
    warnings: Arc<[String]>,
}

impl Snapshot {
    /// The tool of this id.
    pub fn by_id(&self, id: &ToolId) -> Option<&Arc<Tool>> {
        self.stand(&id.toolbox, &id.server)?.tool(&self.tools, &id.name)
    }

    /// The tool of this id, or what about the id is wrong.
    pub fn lookup(&self, id: &ToolId) -> Result<&Arc<Tool>, CallError> {
        let missing = |what| Err(CallError::NotFound(what));
        let toolbox = id.toolbox.to_string();
        let Some(Toolbox { servers, .. }) = self.toolboxes.get(&id.toolbox) else {
            return missing(NotFound::Toolbox { toolbox, available: texts(self.toolboxes()) });
        };
        let server = id.server.to_string();
        let Some(stand) = servers.get(&id.server).map(|at| &self.stands[*at]) else {
            return missing(NotFound::Server { server, toolbox, available: texts(servers.keys()) });
        };
        let Some(tool) = stand.tool(&self.tools, &id.name) else {
            let nearest = self.names.closest_of_server(&self.tools, &stand.span, id.name.as_str());
            return missing(NotFound::ToolOfServer { name: id.name.to_string(), server, toolbox, nearest });
        };
        Ok(tool)
    }

    /// The tool that a text means, among those of a scope.
    ///
    /// A name that a tool has, it has; every other text is looked up in its cleaned form, with the prefixes of
    /// agents and web services, and as the plain name of the one tool that `accepts` the arguments.
    pub fn resolve(
        &self,
        name: &str,
        scope: Scope<'_>,
        accepts: &dyn Fn(&Tool) -> bool,
    ) -> Result<Resolved<'_>, CallError> {
        if let Some(tool) = self.names.exact(&self.tools, name, scope) {
            return Ok(Resolved { tool, corrected_from: None });
        }
        match self.names.guess(&self.tools, name, scope, accepts) {
            Some(tool) => Ok(Resolved { tool, corrected_from: Some(name.to_owned()) }),
            None => Err(CallError::NotFound(self.unknown(name, scope))),
        }
    }

    fn unknown(&self, name: &str, scope: Scope<'_>) -> NotFound {
        let spans =
            self.stands.iter().filter(|stand| scope.has(&stand.shelf.toolbox)).map(|stand| &stand.span);
        self.names.unknown(&self.tools, name, scope, spans)
    }

    /// The toolboxes, in order.
    pub fn toolboxes(&self) -> impl Iterator<Item = &ToolboxName> {
        self.toolboxes.keys()
    }

    /// The servers of a toolbox, in order; none if there is no such toolbox.
    pub fn servers(&self, toolbox: &ToolboxName) -> impl Iterator<Item = &ServerName> {
        self.toolboxes.get(toolbox).into_iter().flat_map(|toolbox| toolbox.servers.keys())
    }

    /// All tools, in order.
    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }

    /// The tools of a toolbox, in order.
    pub fn tools_of(&self, toolbox: &ToolboxName) -> impl Iterator<Item = &Arc<Tool>> {
        let servers = self.toolboxes.get(toolbox).into_iter().flat_map(|toolbox| toolbox.servers.values());
        servers.flat_map(|at| &self.tools[self.stands[*at].span.clone()])
    }

    /// The tools of a server, in its own order.
    pub fn tools_of_server(&self, toolbox: &ToolboxName, server: &ServerName) -> &[Arc<Tool>] {
        self.stand(toolbox, server).map_or(&[], |stand| &self.tools[stand.span.clone()])
    }

    /// What every server offers, and how its server is called in flat names, in order.
    pub fn shelves(&self) -> impl Iterator<Item = (&Shelf, &str)> {
        self.stands.iter().map(|stand| (&stand.shelf, stand.label.as_str()))
    }

    /// The tools whose flat name was taken by one before them.
    pub fn collisions(&self) -> &[Collision] {
        &self.collisions
    }

    /// What a person should look at.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    pub(crate) fn index(&self) -> &Index {
        self.index.get_or_init(|| Index::of(&self.tools))
    }

    fn stand(&self, toolbox: &ToolboxName, server: &ServerName) -> Option<&Stand> {
        self.toolboxes.get(toolbox)?.servers.get(server).map(|at| &self.stands[*at])
    }
}

impl Stand {
    /// Whether another toolbox has a server of this name.
    fn is_shared(&self) -> bool {
        self.label != self.shelf.server.as_str()
    }

    fn tool<'t>(&self, tools: &'t [Arc<Tool>], name: &ToolName) -> Option<&'t Arc<Tool>> {
        self.by_name.get(name).map(|at| &tools[self.span.start + at])
    }
}

fn texts<'n, N: ToString + 'n>(names: impl Iterator<Item = &'n N>) -> Vec<String> {
    names.map(ToString::to_string).collect()
}

/// The tools there are now.
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
    /// The snapshot of now. It stays as it is, whatever is published later.
    pub fn load(&self) -> Arc<Snapshot> {
        self.0.load_full()
    }

    /// Puts a snapshot in the place of the one before.
    pub fn publish(&self, snapshot: Snapshot) {
        self.0.store(Arc::new(snapshot));
    }
}
