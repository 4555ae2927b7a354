//! What a caller of `get_tools` wants to know.

use pegboard_core::id::{ServerName, ToolId, ToolName, ToolboxName};
use pegboard_core::text::clip;
use pegboard_json::RawJson;
use pegboard_runtime::sessions::Said;
use serde_json::{Map, Value};

use crate::meta::input::{Problems, said};

/// How many tools may be named in one request.
const MAX_NAMED: usize = 200;
/// How much of a name or of a query is looked at. No tool has a name as long as that.
const MAX_READ_BYTES: usize = 1024;
/// What the arguments may have.
const KNOWN: [&str; 5] = ["tools", "query", "detail", "connect", "context"];
/// What else is meant by names that others use.
const MEANT: [(&str, &str); 4] =
    [("tool", "tools"), ("names", "tools"), ("search", "query"), ("sessionId", "context")];

/// What a caller wants to know.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) about: About,
    /// How much of each tool, if the caller says.
    pub(super) detail: Option<Detail>,
    pub(super) servers: Servers,
    /// What the caller says of its session and workspace.
    context: Map<String, Value>,
}

/// What a request is about.
#[derive(Debug)]
pub(super) enum About {
    /// All there is.
    Everything,
    /// The tools that are named.
    Named(Vec<Asked>),
    /// The tools that fit these words.
    Query(String),
}

/// One name of a request.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    /// A tool by any of its names, or a server or toolbox for all of its tools.
    Name(String),
    /// A tool of a server.
    Of { server: String, name: String },
    /// A tool by its identity.
    Id(ToolId),
}

/// How much of each tool is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Its names and what it is for.
    Compact,
    /// Its input schema too.
    Full,
}

/// What becomes of servers that have not been started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Servers {
    /// They stay as they are.
    AsTheyAre,
    /// Those that are named are started.
    Connected,
}

impl Request {
    /// What the arguments ask for, or everything that is wrong with them.
    pub(super) fn read(arguments: RawJson) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let root = problems.object("", Some(arguments)).unwrap_or_else(RawJson::empty_object);
        problems.only("", &root, &KNOWN, &MEANT);
        let named = root.get("tools").filter(|tools| tools.as_str() != "null");
        let named = named.map(|tools| read_tools(&tools, &mut problems)).unwrap_or_default();
        let query = root.get("query").filter(|query| query.as_str() != "null");
        let query = query.and_then(|query| read_text("query", &query, &mut problems));
        let query = query.filter(|query| !query.trim().is_empty());
        let detail = root.get("detail").and_then(|detail| read_detail(&detail, &mut problems));
        let servers = match root.get("connect").as_ref().map_or("false", RawJson::as_str) {
            "true" => Servers::Connected,
            "false" => Servers::AsTheyAre,
            _ => {
                problems.note("connect", "Expected true or false");
                Servers::AsTheyAre
            }
        };
        let about = match (named.is_empty(), query) {
            (true, None) => About::Everything,
            (false, None) => About::Named(named),
            (true, Some(query)) => About::Query(query),
            (false, Some(query)) => {
                problems.note("query", "Give either tools or a query, not both");
                About::Query(query)
            }
        };
        if servers == Servers::Connected && !matches!(about, About::Named(_)) {
            problems.note("connect", "Name the servers to start in `tools`, such as {\"SERVER\": []}");
        }
        let mut context = Map::new();
        if let Some(said) = root.get("context") {
            context.insert("context".to_owned(), said.to_value());
        }
        let request = Self { about, detail, servers, context };
        if problems.text().is_some() { Err(problems) } else { Ok(request) }
    }

    /// What the caller says of its session and workspace. To look around binds nothing.
    pub(super) fn said(&self) -> Said<'_> {
        Said::of(&self.context)
    }
}

impl Asked {
    /// What was asked for, as one name.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Of { server, name } => format!("{server}_{name}"),
            Self::Id(id) => format!("{}_{}", id.server, id.name),
        }
    }
}

/// The names of a request: `{server: [tool, …]}`, `[name, …]`, or one name.
fn read_tools(tools: &RawJson, problems: &mut Problems) -> Vec<Asked> {
    let mut asked = Vec::new();
    if tools.is_object() {
        if problems.object("tools", Some(tools.clone())).is_none() {
            return asked;
        }
        // Every server is at least one name, so no more of them need be read.
        for server in tools.names().into_iter().take(MAX_NAMED + 1) {
            let wanted = tools.get(&server).unwrap_or_else(RawJson::empty_object);
            let server = clip(&server, MAX_READ_BYTES);
            let before = asked.len();
            for name in names(&wanted, &format!("tools.{}", said(server)), problems) {
                asked.push(Asked::Of { server: server.to_owned(), name });
            }
            if before == asked.len() {
                asked.push(Asked::Name(server.to_owned()));
            }
            if asked.len() > MAX_NAMED {
                break;
            }
        }
    } else if tools.as_str().starts_with('[') {
        for item in tools.items().take(MAX_NAMED + 1) {
            asked.extend(if item.is_object() {
                read_id(&item, problems).map(Asked::Id)
            } else {
                read_text("tools", &item, problems).map(Asked::Name)
            });
        }
    } else {
        asked.extend(names(tools, "tools", problems).into_iter().map(Asked::Name));
    }
    if asked.len() > MAX_NAMED {
        problems.note("tools", format_args!("Name at most {MAX_NAMED} at a time"));
    }
    asked
}

/// Several names, or one. Of too many there are some, but still too many.
fn names(value: &RawJson, place: &str, problems: &mut Problems) -> Vec<String> {
    if !value.as_str().starts_with('[') {
        return read_text(place, value, problems).into_iter().filter(|name| !name.is_empty()).collect();
    }
    value.items().take(MAX_NAMED + 1).filter_map(|item| read_text(place, &item, problems)).collect()
}

fn read_text(place: &str, value: &RawJson, problems: &mut Problems) -> Option<String> {
    let text = value.text().map(|text| clip(text.trim(), MAX_READ_BYTES).to_owned());
    if text.is_none() {
        problems.note(place, "Expected string");
    }
    text
}

fn read_id(item: &RawJson, problems: &mut Problems) -> Option<ToolId> {
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
        problems.note("tools", "Expected a name, or {toolbox, server, name}");
    }
    id
}

fn read_detail(value: &RawJson, problems: &mut Problems) -> Option<Detail> {
    match value.text().as_deref() {
        Some("compact") => Some(Detail::Compact),
        Some("full") => Some(Detail::Full),
        Some(_) | None => {
            problems.note("detail", "Expected compact or full");
            None
        }
    }
}
