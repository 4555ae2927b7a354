//! `get_tools`: finds tools and tells their input schemas.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use futures_util::future::{FutureExt, join_all, ready};
use pegboard_core::attachment::Slot;
use pegboard_core::error::ErrorKind;
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_runtime::Caller;
use pegboard_runtime::catalogue::Tool;
use pegboard_runtime::search::Query;
use serde_json::{Value, json};

use super::MetaTool;
use crate::result;
use crate::surface::Answering;
use crate::visit::Visit;
use entry::{compact, full};
use find::{Finder, Missing};
use request::{About, Asked, Detail, Request, Servers};

mod entry;
mod find;
mod overview;
mod request;

/// How many tools are told with their schemas at a time.
const MAX_FULL: usize = 50;
/// How many are told without.
const MAX_COMPACT: usize = 200;
/// How many a search finds.
const N_FOUND: usize = 10;
/// For how many names that mean nothing others are suggested.
const MAX_SUGGESTED: usize = 10;
/// How many toolboxes one request may open.
const MAX_OPENED: usize = 8;
/// How often the same may be asked in a row before the caller is told.
const N_PATIENCE: u32 = 3;
/// How much of a caller's word is said again.
const MAX_SAID_BYTES: usize = 256;

/// Finds tools and tells their input schemas.
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

/// Where it is kept what a session asked last.
static LAST: LazyLock<Slot> = LazyLock::new(Slot::new);

impl MetaTool for GetTools {
    fn name(&self) -> &'static str {
        "get_tools"
    }

    fn definition(&self, _caller: &Caller) -> Option<RawJson> {
        Some(DEFINITION.clone())
    }

    fn call(&self, visit: Visit, arguments: RawJson) -> Answering {
        let request = match Request::read(arguments) {
            Ok(request) => request,
            Err(problems) => {
                let text = format!("Invalid parameters: {}", problems.text().unwrap_or_default());
                let kind = ErrorKind::InvalidParameters;
                let error =
                    json!({"kind": kind, "message": text, "executed": false, "violations": problems.texts()});
                return ready(Ok(result::failure(&text, &error).into())).boxed();
            }
        };
        async move {
            let failed = match (request.servers, &request.about) {
                (Servers::Connected, About::Named(asked)) => connect(&visit, asked).await,
                _ => Vec::new(),
            };
            Ok(answer(&visit, &request, failed).into())
        }
        .boxed()
    }
}

/// Opens the toolboxes of the servers that are named; gives what cannot be used, and why.
async fn connect(visit: &Visit, asked: &[Asked]) -> Vec<Value> {
    let mut toolboxes: Vec<_> = {
        let finder = Finder::new(&visit.board);
        asked.iter().flat_map(|asked| finder.places(asked)).map(|agent| agent.toolbox.clone()).collect()
    };
    toolboxes.sort();
    toolboxes.dedup();
    toolboxes.truncate(MAX_OPENED);
    let opening = toolboxes.iter().map(|toolbox| visit.caller.open(toolbox.as_str()));
    let mut failed = Vec::new();
    for (toolbox, opened) in toolboxes.iter().zip(join_all(opening).await) {
        match opened {
            Ok(opened) => failed.extend(opened.servers_failed.iter().map(|failed| json!(failed))),
            Err(error) => failed.push(json!({"toolbox": toolbox, "error": error.text()})),
        }
    }
    failed
}

/// What the caller wants to know, as a result.
fn answer(visit: &Visit, request: &Request, failed: Vec<Value>) -> RawJson {
    let finder = Finder::new(&visit.board);
    let mut answer = match &request.about {
        About::Everything => {
            let mut answer = json!({"success": true, "overview": overview::of(&finder)});
            let said = request.said();
            if let Some(session) = said.session {
                answer["sessionId"] = clipped(session, MAX_SAID_BYTES).into();
            }
            answer["workspaceId"] = said.workspace(None).id.into();
            answer["instruction"] = include_str!("get_tools/overview.md").trim_end().into();
            answer
        }
        About::Query(query) => {
            let detail = request.detail.unwrap_or(Detail::Compact);
            let hits = visit.board.with_scope(|scope| {
                let hits = finder.snapshot.search(&Query { scope, n_most: N_FOUND, ..Query::new(query) });
                hits.iter().map(|hit| Arc::clone(hit.tool)).collect::<Vec<_>>()
            });
            let mut answer = json!({"success": true, "query": clipped(query, MAX_SAID_BYTES)});
            tell(&mut answer, &visit.caller, &hits, detail);
            let not_started = finder.not_started();
            if !not_started.is_empty() {
                answer["notSearched"] = json!({
                    "servers": not_started,
                    "why": "they have not been started; open their toolbox, or name them in `tools` with connect: true",
                });
            }
            answer
        }
        About::Named(asked) => match named(&visit.caller, &finder, asked, request.detail) {
            Ok(answer) => answer,
            Err(answer) => return refusal(answer, failed),
        },
    };
    if !failed.is_empty() {
        answer["serversFailed"] = failed.into();
    }
    if is_asked_again(&visit.caller, &answer) {
        answer["hint"] = include_str!("get_tools/again.md").trim_end().into();
    }
    result::text(&answer.to_string())
}

/// An answer that there is nothing, as a result.
fn refusal(mut answer: Value, failed: Vec<Value>) -> RawJson {
    if !failed.is_empty() {
        answer["serversFailed"] = failed.into();
    }
    let error = json!({
        "kind": ErrorKind::UnknownTool,
        "message": answer["error"],
        "executed": false,
        "notFound": answer["notFound"],
    });
    result::failure(&answer.to_string(), &error)
}

/// The tools that are named, or that there are none.
fn named(
    caller: &Caller,
    finder: &Finder<'_>,
    asked: &[Asked],
    detail: Option<Detail>,
) -> Result<Value, Value> {
    let (mut tools, mut missing): (Vec<Arc<Tool>>, Vec<Missing>) = (Vec::new(), Vec::new());
    // Whoever names tools wants their schemas; whoever names a server wants to see what it has.
    let mut usual = Detail::Full;
    for asked in asked {
        match finder.find(asked) {
            Some(found) => {
                if found.len() > 1 {
                    usual = Detail::Compact;
                }
                tools.extend(found);
            }
            None if missing.len() < MAX_SUGGESTED => missing.push(finder.missing(asked)),
            None => missing.push(finder.missing_in_short(asked)),
        }
    }
    let mut seen = std::collections::HashSet::new();
    tools.retain(|tool| seen.insert(tool.id.clone()));
    let requested: Vec<String> =
        asked.iter().map(|asked| clipped(&asked.text(), MAX_SAID_BYTES).into_owned()).collect();
    if tools.is_empty() {
        let error = format!("No valid tools found for: {}", requested.join(", "));
        return Err(json!({"success": false, "error": error, "notFound": missing}));
    }
    let mut answer = json!({"success": true, "requestedTools": requested});
    tell(&mut answer, caller, &tools, detail.unwrap_or(usual));
    if !missing.is_empty() {
        answer["notFound"] = json!(missing);
    }
    Ok(answer)
}

/// Adds tools to an answer, and how they are used.
fn tell(answer: &mut Value, caller: &Caller, tools: &[Arc<Tool>], detail: Detail) {
    let n_told = tools.len().min(match detail {
        Detail::Compact => MAX_COMPACT,
        Detail::Full => MAX_FULL,
    });
    let told = &tools[..n_told];
    answer["tools"] = match detail {
        Detail::Compact => told.iter().map(|tool| compact(tool)).collect(),
        Detail::Full => told.iter().map(|tool| full(tool)).collect(),
    };
    answer["toolCount"] = tools.len().into();
    if n_told < tools.len() {
        answer["leftOut"] = (tools.len() - n_told).into();
    }
    let mut closed: Vec<&str> = Vec::new();
    for tool in told {
        if !caller.has_open(&tool.id.toolbox) && !closed.contains(&tool.id.toolbox.as_str()) {
            closed.push(tool.id.toolbox.as_str());
        }
    }
    if !closed.is_empty() {
        answer["openFirst"] = json!(closed);
    }
    answer["instruction"] = match detail {
        Detail::Compact => include_str!("get_tools/compact.md"),
        Detail::Full => include_str!("get_tools/schemas.md"),
    }
    .trim_end()
    .into();
}

/// What a session was told last.
#[derive(Default)]
struct Last {
    digest: u64,
    n_times: u32,
    /// How many tools it had called by then.
    n_calls: u64,
}

/// Whether a session was told the same before, and did nothing with it.
fn is_asked_again(caller: &Caller, answer: &Value) -> bool {
    let Some(attachments) = caller.attachments() else { return false };
    let mut hasher = DefaultHasher::new();
    answer.to_string().hash(&mut hasher);
    let (digest, n_calls) = (hasher.finish(), caller.tree().totals().tools_run);
    let last = attachments.get_or_attach(&LAST, Mutex::<Last>::default);
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    let is_same = last.digest == digest && last.n_calls == n_calls;
    let n_times = if is_same { last.n_times.saturating_add(1) } else { 1 };
    *last = Last { digest, n_times, n_calls };
    n_times >= N_PATIENCE
}
