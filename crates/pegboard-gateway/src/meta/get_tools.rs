//! `get_tools`: finds tools and returns their input schemas.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use futures_util::future::{FutureExt, join_all, ready};
use parking_lot::Mutex;
use pegboard_core::error::ErrorKind;
use pegboard_core::extensions::ExtensionKey;
use pegboard_core::id::{ServerName, ToolboxName};
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_runtime::Caller;
use pegboard_runtime::catalogue::CatalogueTool;
use pegboard_runtime::search::SearchQuery;
use serde_json::{Value, json};
use tokio::time;

use super::MetaTool;
use super::input::DetailLevel;
use crate::client_request::ClientRequest;
use crate::result;
use crate::surface::ReplyFuture;
use crate::warmup::list_limit;
use entry::{brief, compact, full};
use finder::{MissingTool, ToolFinder};
use query::{IdleServers, QueryTarget, RequestedTool, ToolQuery};

mod entry;
mod finder;
mod overview;
mod query;

/// Maximum number of tools with schemas.
const MAX_FULL: usize = 50;
/// Maximum number of tools without schemas.
const MAX_COMPACT: usize = 200;
/// Maximum number of search hits.
const MAX_HITS: usize = 10;
/// Maximum size of the definitions in an answer to a search.
const MAX_HIT_BYTES: usize = 2_000;
/// Maximum size of the definition of the best hit.
const MAX_BEST_HIT_BYTES: usize = 6_000;
/// Maximum number of unknown names that get suggestions.
const MAX_SUGGESTED: usize = 10;
/// Maximum number of toolboxes that one request opens.
const MAX_OPENED: usize = 8;
/// Number of identical answers in a row before a hint is added.
const MAX_REPEATS: u32 = 3;
/// Maximum length of echoed caller input.
const MAX_ECHO_BYTES: usize = 256;

/// The `get_tools` tool.
pub(super) struct GetTools;

static DEFINITION: LazyLock<RawJson> = LazyLock::new(|| {
    RawJson::from(json!({
        "name": "get_tools",
        "title": "Find tools",
        "description": include_str!("get_tools.md").trim_end(),
        "inputSchema": {
            "type": "object",
            "properties": {
                "tools": {
                    "type": ["object", "array"],
                    "items": {"type": "string"},
                    "description": "{server: [tool, …]} or [name, …]",
                },
                "query": {"type": "string"},
                "detail": {"enum": ["compact", "full"]},
                "connect": {"type": "boolean", "description": "Start the servers named in `tools`"},
                "context": {"type": "object"},
            },
            "additionalProperties": false,
        },
        "annotations": {"readOnlyHint": true},
    }))
});

/// Session extension that holds the last answer.
static LAST_ANSWER: LazyLock<ExtensionKey> = LazyLock::new(ExtensionKey::new);

impl MetaTool for GetTools {
    fn name(&self) -> &'static str {
        "get_tools"
    }

    fn definition(&self, _caller: &Caller) -> Option<RawJson> {
        Some(DEFINITION.clone())
    }

    fn call(&self, request: ClientRequest, arguments: RawJson) -> ReplyFuture {
        let query = match ToolQuery::read(arguments) {
            Ok(query) => query,
            Err(problems) => {
                let text = format!("Invalid parameters: {}", problems.text().unwrap_or_default());
                let kind = ErrorKind::InvalidParameters;
                let error =
                    json!({"kind": kind, "message": text, "executed": false, "violations": problems.all()});
                return ready(Ok(result::meta_tool_error(&text, &error).into())).boxed();
            }
        };
        async move {
            let failed = match (query.idle_servers, &query.target) {
                (IdleServers::Connect, QueryTarget::Named(requested)) => connect(&request, requested).await,
                _ => Vec::new(),
            };
            let finds_nothing = match &query.target {
                QueryTarget::Search(words) => {
                    search(&request, &ToolFinder::new(&request.profile), words).is_empty()
                }
                QueryTarget::Overview | QueryTarget::Named(_) => false,
            };
            if finds_nothing {
                start_unlisted(&request).await;
            }
            Ok(answer(&request, &query, failed).into())
        }
        .boxed()
    }
}

/// Opens the toolboxes of the named servers; returns the servers that failed, with the reason.
async fn connect(request: &ClientRequest, requested: &[RequestedTool]) -> Vec<Value> {
    let mut toolboxes: Vec<_> = {
        let finder = ToolFinder::new(&request.profile);
        requested
            .iter()
            .flat_map(|tool| finder.candidate_servers(tool))
            .map(|agent| agent.toolbox.clone())
            .collect()
    };
    toolboxes.sort();
    toolboxes.dedup();
    toolboxes.truncate(MAX_OPENED);
    let opening = toolboxes.iter().map(|toolbox| request.caller.open(toolbox.as_str()));
    let mut failed = Vec::new();
    for (toolbox, opened) in toolboxes.iter().zip(join_all(opening).await) {
        match opened {
            Ok(opened) => failed.extend(opened.servers_failed.iter().map(|failed| json!(failed))),
            Err(error) => failed.push(json!({"toolbox": toolbox, "error": error.text()})),
        }
    }
    failed
}

/// Starts the servers with tools that were never listed, so that a search finds them, and waits as long as a list does.
async fn start_unlisted(request: &ClientRequest) {
    let unlisted = ToolFinder::new(&request.profile).unlisted_servers();
    if unlisted.is_empty() {
        return;
    }
    let is_unlisted = |toolbox: &ToolboxName, server: &ServerName| {
        unlisted.iter().any(|(in_toolbox, name)| in_toolbox == toolbox && name == server)
    };
    let limit = list_limit(&request.profile, &request.client).time();
    // A start goes on without a waiter.
    let _ = time::timeout(limit, request.profile.runtime.open_servers(is_unlisted)).await;
}

/// Returns the best hits of a search.
fn search(request: &ClientRequest, finder: &ToolFinder<'_>, words: &str) -> Vec<Arc<CatalogueTool>> {
    request.profile.with_scope(|scope| {
        let query = SearchQuery { scope, n_most: MAX_HITS, ..SearchQuery::new(words) };
        finder.snapshot.search(&query).iter().map(|hit| Arc::clone(hit.tool)).collect()
    })
}

/// Answers a query.
fn answer(request: &ClientRequest, query: &ToolQuery, failed: Vec<Value>) -> RawJson {
    let finder = ToolFinder::new(&request.profile);
    let mut answer = match &query.target {
        QueryTarget::Overview => {
            let mut answer = json!({"success": true, "overview": overview::of(&finder)});
            let context = query.caller_context();
            if let Some(session) = context.session {
                answer["sessionId"] = clipped(session, MAX_ECHO_BYTES).into();
            }
            answer["workspaceId"] = context.workspace(None).id.into();
            answer["instruction"] = include_str!("get_tools/overview.md").trim_end().into();
            answer
        }
        QueryTarget::Search(words) => {
            let hits = search(request, &finder, words);
            let mut answer = json!({"success": true, "query": clipped(words, MAX_ECHO_BYTES)});
            match query.detail {
                Some(detail) => add_tools(&mut answer, &request.caller, &hits, detail),
                None => add_hits(&mut answer, &request.caller, &hits),
            }
            let not_started = finder.not_started();
            if !not_started.is_empty() {
                answer["notSearched"] = json!({
                    "servers": not_started,
                    "why": "they have not been started; open their toolbox, or name them in `tools` with connect: true",
                });
            }
            if hits.is_empty() {
                answer["instruction"] = include_str!("get_tools/nothing.md").trim_end().into();
                let starting = finder.starting();
                if !starting.is_empty() {
                    answer["starting"] = json!(starting);
                }
            }
            answer
        }
        QueryTarget::Named(requested) => {
            match describe_named(&request.caller, &finder, requested, query.detail) {
                Ok(answer) => answer,
                Err(answer) => return not_found_result(answer, failed),
            }
        }
    };
    if !failed.is_empty() {
        answer["serversFailed"] = failed.into();
    }
    if is_repeated(&request.caller, &answer) {
        answer["hint"] = include_str!("get_tools/again.md").trim_end().into();
    }
    result::text_result(&answer.to_string())
}

/// Renders an answer without any tool as an error result.
fn not_found_result(mut answer: Value, failed: Vec<Value>) -> RawJson {
    if !failed.is_empty() {
        answer["serversFailed"] = failed.into();
    }
    let error = json!({
        "kind": ErrorKind::UnknownTool,
        "message": answer["error"],
        "executed": false,
        "notFound": answer["notFound"],
    });
    result::meta_tool_error(&answer.to_string(), &error)
}

/// Looks up the named tools; `Err` if none was found.
fn describe_named(
    caller: &Caller,
    finder: &ToolFinder<'_>,
    requested: &[RequestedTool],
    detail: Option<DetailLevel>,
) -> Result<Value, Value> {
    let (mut tools, mut missing): (Vec<Arc<CatalogueTool>>, Vec<MissingTool>) = (Vec::new(), Vec::new());
    // A named tool is wanted with its schema; a named server is an overview of its tools.
    let mut default_detail = DetailLevel::Full;
    for tool in requested {
        match finder.find(tool) {
            Some(found) => {
                if found.len() > 1 {
                    default_detail = DetailLevel::Compact;
                }
                tools.extend(found);
            }
            None if missing.len() < MAX_SUGGESTED => missing.push(finder.missing(tool)),
            None => missing.push(finder.missing_without_suggestions(tool)),
        }
    }
    let mut seen = std::collections::HashSet::new();
    tools.retain(|tool| seen.insert(tool.id.clone()));
    let names: Vec<String> =
        requested.iter().map(|tool| clipped(&tool.text(), MAX_ECHO_BYTES).into_owned()).collect();
    if tools.is_empty() {
        let error = format!("No valid tools found for: {}", names.join(", "));
        return Err(json!({"success": false, "error": error, "notFound": missing}));
    }
    let mut answer = json!({"success": true, "requestedTools": names});
    add_tools(&mut answer, caller, &tools, detail.unwrap_or(default_detail));
    if !missing.is_empty() {
        answer["notFound"] = json!(missing);
    }
    Ok(answer)
}

/// Adds tools and usage instructions to an answer.
fn add_tools(answer: &mut Value, caller: &Caller, tools: &[Arc<CatalogueTool>], detail: DetailLevel) {
    let n_shown = tools.len().min(match detail {
        DetailLevel::Compact => MAX_COMPACT,
        DetailLevel::Full => MAX_FULL,
    });
    let shown = &tools[..n_shown];
    answer["tools"] = match detail {
        DetailLevel::Compact => shown.iter().map(|tool| compact(tool)).collect(),
        DetailLevel::Full => shown.iter().map(|tool| full(tool)).collect(),
    };
    answer["toolCount"] = tools.len().into();
    if n_shown < tools.len() {
        answer["leftOut"] = (tools.len() - n_shown).into();
    }
    if detail == DetailLevel::Full {
        open_on_use(answer, caller, shown);
    }
    answer["instruction"] = match detail {
        DetailLevel::Compact => include_str!("get_tools/compact.md"),
        DetailLevel::Full => include_str!("get_tools/schemas.md"),
    }
    .trim_end()
    .into();
}

/// Adds search hits: the best ones with schemas, as far as these are small, so that the right tool can be called at once.
fn add_hits(answer: &mut Value, caller: &Caller, hits: &[Arc<CatalogueTool>]) {
    let (mut tools, mut n_bytes, mut n_described) = (Vec::new(), 0, 0);
    for (index, hit) in hits.iter().enumerate() {
        let described = (index == n_described).then(|| full(hit));
        let fits = |described: &Value| {
            n_bytes += described.to_string().len();
            n_bytes <= if index == 0 { MAX_BEST_HIT_BYTES } else { MAX_HIT_BYTES }
        };
        tools.push(match described.filter(fits) {
            Some(described) => {
                n_described += 1;
                described
            }
            None => brief(hit),
        });
    }
    answer["toolCount"] = tools.len().into();
    answer["tools"] = tools.into();
    open_on_use(answer, caller, &hits[..n_described]);
    answer["instruction"] = match n_described {
        0 => include_str!("get_tools/compact.md"),
        n_all if n_all == hits.len() => include_str!("get_tools/schemas.md"),
        _ => include_str!("get_tools/hits.md"),
    }
    .trim_end()
    .into();
}

/// Makes described tools callable. Where toolboxes never open automatically, the answer says which to open.
fn open_on_use(answer: &mut Value, caller: &Caller, described: &[Arc<CatalogueTool>]) {
    let mut closed: Vec<&str> = Vec::new();
    for toolbox in described.iter().map(|tool| &tool.id.toolbox) {
        caller.open_on_use(toolbox);
        if !caller.is_toolbox_open(toolbox) && !closed.contains(&toolbox.as_str()) {
            closed.push(toolbox.as_str());
        }
    }
    if !closed.is_empty() {
        answer["openFirst"] = json!(closed);
    }
}

/// Last answer to a session.
#[derive(Default)]
struct LastAnswer {
    digest: u64,
    n_times: u32,
    /// Number of tools called by then.
    n_calls: u64,
}

/// Returns `true` if a session keeps getting the same answer without calling a tool in between.
fn is_repeated(caller: &Caller, answer: &Value) -> bool {
    let Some(extensions) = caller.attachments() else { return false };
    let mut hasher = DefaultHasher::new();
    answer.to_string().hash(&mut hasher);
    let (digest, n_calls) = (hasher.finish(), caller.tree().totals().tools_run);
    let last = extensions.get_or_insert_with(&LAST_ANSWER, Mutex::<LastAnswer>::default);
    let mut last = last.lock();
    let is_same = last.digest == digest && last.n_calls == n_calls;
    let n_times = if is_same { last.n_times.saturating_add(1) } else { 1 };
    *last = LastAnswer { digest, n_times, n_calls };
    n_times >= MAX_REPEATS
}
