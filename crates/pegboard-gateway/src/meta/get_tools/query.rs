//! Parses the arguments of `get_tools`.

use pegboard_core::id::{ServerName, ToolId, ToolName, ToolboxName};
use pegboard_core::text::clip;
use pegboard_json::RawJson;
use pegboard_runtime::sessions::CallerContext;
use serde_json::{Map, Value};

use crate::meta::input::{DetailLevel, InputProblems, echo};

/// Maximum number of names per query.
const MAX_NAMED: usize = 200;
/// Maximum length of a name or search text; longer than any tool name.
const MAX_READ_BYTES: usize = 1024;
/// Known keys of the arguments.
const KEYS: [&str; 5] = ["tools", "query", "detail", "connect", "context"];
/// Common wrong keys, and the key that is meant.
const ALIASES: [(&str, &str); 4] =
    [("tool", "tools"), ("names", "tools"), ("search", "query"), ("sessionId", "context")];

/// A parsed `get_tools` query.
#[derive(Debug)]
pub(super) struct ToolQuery {
    pub(super) target: QueryTarget,
    /// Level of detail, if the caller sets one.
    pub(super) detail: Option<DetailLevel>,
    pub(super) idle_servers: IdleServers,
    /// Session and workspace context of the caller.
    context: Map<String, Value>,
}

/// Subject of a query.
#[derive(Debug)]
pub(super) enum QueryTarget {
    /// All servers.
    Overview,
    /// The named tools.
    Named(Vec<RequestedTool>),
    /// The tools matching a search text.
    Search(String),
}

/// One name of a query.
#[derive(Clone, Debug)]
pub(super) enum RequestedTool {
    /// A tool by any of its names, or a server or toolbox for all of its tools.
    Name(String),
    /// A tool of a server.
    ServerTool { server: String, name: String },
    /// A tool by its id.
    Id(ToolId),
}

/// Treatment of servers that have not been started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleServers {
    /// Leave them alone.
    Leave,
    /// Start the named ones.
    Connect,
}

impl ToolQuery {
    /// Parses the arguments; collects all problems.
    pub(super) fn read(arguments: RawJson) -> Result<Self, InputProblems> {
        let mut problems = InputProblems::default();
        let root = problems.object("", Some(arguments)).unwrap_or_else(RawJson::empty_object);
        problems.reject_unknown("", &root, &KEYS, &ALIASES);
        let named = root.get("tools").filter(|tools| tools.as_str() != "null");
        let named = named.map(|tools| read_tools(&tools, &mut problems)).unwrap_or_default();
        let query = root.get("query").filter(|query| query.as_str() != "null");
        let query = query.and_then(|query| read_text("query", &query, &mut problems));
        let query = query.filter(|query| !query.trim().is_empty());
        let detail = problems.detail(root.get("detail"));
        let idle_servers = match root.get("connect").as_ref().map_or("false", RawJson::as_str) {
            "true" => IdleServers::Connect,
            "false" => IdleServers::Leave,
            _ => {
                problems.add("connect", "Expected true or false");
                IdleServers::Leave
            }
        };
        let target = match (named.is_empty(), query) {
            (true, None) => QueryTarget::Overview,
            (false, None) => QueryTarget::Named(named),
            (true, Some(query)) => QueryTarget::Search(query),
            (false, Some(query)) => {
                problems.add("query", "Give either tools or a query, not both");
                QueryTarget::Search(query)
            }
        };
        if idle_servers == IdleServers::Connect && !matches!(target, QueryTarget::Named(_)) {
            problems.add("connect", "Name the servers to start in `tools`, such as {\"SERVER\": []}");
        }
        let mut context = Map::new();
        if let Some(given) = root.get("context") {
            context.insert("context".to_owned(), given.to_value());
        }
        let query = Self { target, detail, idle_servers, context };
        if problems.text().is_some() { Err(problems) } else { Ok(query) }
    }

    /// Returns the session and workspace context. A query binds nothing to them.
    pub(super) fn caller_context(&self) -> CallerContext<'_> {
        CallerContext::of(&self.context)
    }
}

impl RequestedTool {
    /// Returns the request as a single name.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::ServerTool { server, name } => format!("{server}_{name}"),
            Self::Id(id) => format!("{}_{}", id.server, id.name),
        }
    }
}

/// Parses `{server: [tool, …]}`, `[name, …]`, or one name.
fn read_tools(tools: &RawJson, problems: &mut InputProblems) -> Vec<RequestedTool> {
    let mut requested = Vec::new();
    if tools.is_object() {
        if problems.object("tools", Some(tools.clone())).is_none() {
            return requested;
        }
        // Every server counts as at least one name, so reading more is pointless.
        for server in tools.names().into_iter().take(MAX_NAMED + 1) {
            let tools_of_server = tools.get(&server).unwrap_or_else(RawJson::empty_object);
            let server = clip(&server, MAX_READ_BYTES);
            let before = requested.len();
            for name in names(&tools_of_server, &format!("tools.{}", echo(server)), problems) {
                requested.push(RequestedTool::ServerTool { server: server.to_owned(), name });
            }
            if before == requested.len() {
                requested.push(RequestedTool::Name(server.to_owned()));
            }
            if requested.len() > MAX_NAMED {
                break;
            }
        }
    } else if tools.as_str().starts_with('[') {
        for item in tools.items().take(MAX_NAMED + 1) {
            requested.extend(if item.is_object() {
                read_id(&item, problems).map(RequestedTool::Id)
            } else {
                read_text("tools", &item, problems).map(RequestedTool::Name)
            });
        }
    } else {
        match tools.text() {
            Some(name) if name.trim().is_empty() => {}
            Some(name) => requested.push(RequestedTool::Name(clip(name.trim(), MAX_READ_BYTES).to_owned())),
            None => problems.add("tools", "Expected a name, a list of names, or {server: [names]}"),
        }
    }
    if requested.len() > MAX_NAMED {
        problems.add("tools", format_args!("Name at most {MAX_NAMED} at a time"));
    }
    requested
}

/// Parses one name or a list. Stops just above the limit, so the caller can report it.
fn names(value: &RawJson, path: &str, problems: &mut InputProblems) -> Vec<String> {
    if value.as_str().starts_with('[') {
        return value
            .items()
            .take(MAX_NAMED + 1)
            .filter_map(|item| read_text(path, &item, problems))
            .collect();
    }
    let name = value.text().map(|text| clip(text.trim(), MAX_READ_BYTES).to_owned());
    if name.is_none() {
        problems.add(path, "Expected a name or a list of names");
    }
    name.into_iter().filter(|name| !name.is_empty()).collect()
}

fn read_text(path: &str, value: &RawJson, problems: &mut InputProblems) -> Option<String> {
    let text = value.text().map(|text| clip(text.trim(), MAX_READ_BYTES).to_owned());
    if text.is_none() {
        problems.add(path, "Expected string");
    }
    text
}

fn read_id(item: &RawJson, problems: &mut InputProblems) -> Option<ToolId> {
    let part = |name: &str| item.get(name).and_then(|value| Some(value.text()?.into_owned()));
    let id = || {
        Some(ToolId {
            toolbox: ToolboxName::new(part("toolbox")?).ok()?,
            server: ServerName::new(part("server")?).ok()?,
            name: ToolName::new(part("name")?).ok()?,
        })
    };
    let id = id();
    if id.is_none() {
        problems.add("tools", "Expected a name, or {toolbox, server, name}");
    }
    id
}
