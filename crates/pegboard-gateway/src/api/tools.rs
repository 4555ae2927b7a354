//! `/api/tools` and `/api/tool`: finds tools by search or by name.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::future::join_all;
use pegboard_core::id::ServerName;
use pegboard_runtime::catalogue::{CatalogueTool, ToolboxScope};
use pegboard_runtime::search::{MAX_HITS, SearchQuery};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::calls::find_and_start;
use super::extract::{QueryParams, RequestBody};
use super::problem::ApiProblem;
use super::signature::signature;
use super::state::SharedApiState;
use super::stream::json_response;

/// Default length of the list.
const DEFAULT_LIMIT: usize = 50;
/// Maximum length of the list.
const MAX_LIMIT: usize = 5_000;

/// Query parameters of the list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ToolsQuery {
    query: String,
    toolbox: Option<String>,
    server: Option<String>,
    tag: Option<String>,
    limit: usize,
    schema: bool,
}

impl Default for ToolsQuery {
    fn default() -> Self {
        Self {
            query: String::new(),
            toolbox: None,
            server: None,
            tag: None,
            limit: DEFAULT_LIMIT,
            schema: false,
        }
    }
}

impl ToolsQuery {
    fn permits(&self, tool: &CatalogueTool) -> bool {
        let is = |filter: &Option<String>, name: &str| filter.as_ref().is_none_or(|filter| filter == name);
        let has_tag = |tag: &String| tool.entry.tags().iter().any(|own| own.eq_ignore_ascii_case(tag));
        is(&self.toolbox, tool.id.toolbox.as_str())
            && is(&self.server, tool.id.server.as_str())
            && self.tag.as_ref().is_none_or(has_tag)
    }
}

/// `GET /api/tools`
pub(super) async fn list(
    State(state): SharedApiState,
    QueryParams(filter): QueryParams<ToolsQuery>,
) -> Result<Response, ApiProblem> {
    let snapshot = state.runtime()?.catalogue();
    let detail = if filter.schema { ToolDetail::Schemas } else { ToolDetail::Summary };
    let (tools, n_all): (Vec<Value>, usize) = if filter.query.trim().is_empty() {
        let permitted = || snapshot.tools().iter().filter(|tool| filter.permits(tool));
        let shown = permitted().take(filter.limit.min(MAX_LIMIT));
        (shown.map(|tool| tool_json(tool, detail)).collect(), permitted().count())
    } else {
        let server = filter.server.as_deref().map(ServerName::new).transpose();
        let server = server.map_err(|error| ApiProblem::bad_request(error.to_string()))?;
        let tags: Vec<String> = filter.tag.iter().cloned().collect();
        let is_match = |toolbox: &pegboard_core::id::ToolboxName| {
            filter.toolbox.as_ref().is_none_or(|filter| filter == toolbox.as_str())
        };
        let query = SearchQuery {
            all_tags: &tags,
            server: server.as_ref(),
            scope: ToolboxScope::Only(&is_match),
            n_most: MAX_HITS,
            ..SearchQuery::new(&filter.query)
        };
        let hits = snapshot.search(&query);
        let shown = hits.iter().take(filter.limit).map(|hit| {
            let mut json = tool_json(hit.tool, detail);
            json["score"] = hit.score.into();
            json
        });
        (shown.collect(), hits.len())
    };
    Ok(json_response(json!({"tools": tools, "total": n_all})))
}

/// Query parameters of a single tool.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolNameQuery {
    name: String,
}

/// `GET /api/tool`: a tool of the catalogue. Starts nothing.
pub(super) async fn known(
    State(state): SharedApiState,
    QueryParams(params): QueryParams<ToolNameQuery>,
) -> Result<Response, ApiProblem> {
    let tool = state.caller(None)?.find_known_tool(&params.name.into())?;
    Ok(json_response(json!({"tool": tool_json(&tool, ToolDetail::Schemas)})))
}

/// `POST /api/tool`: any tool. Starts its server if needed, and says how long that took, for the record of a call.
pub(super) async fn find(
    State(state): SharedApiState,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiProblem> {
    let body = RequestBody::read(&state, &headers, body, &["name"]).await?;
    let name: String = body.require("name", "the name of a tool")?;
    let caller = state.caller(None)?;
    let (tool, start_wait) = find_and_start(&caller, &name.into(), None).await?;
    let start_wait = u64::try_from(start_wait.as_millis()).unwrap_or(u64::MAX);
    Ok(json_response(json!({"tool": tool_json(&tool, ToolDetail::Schemas), "startWaitMs": start_wait})))
}

/// `POST /api/toolboxes/open`: starts the servers of one toolbox, or of all. A server that fails has no tools.
pub(super) async fn open(
    State(state): SharedApiState,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiProblem> {
    let body = RequestBody::read(&state, &headers, body, &["toolbox"]).await?;
    let toolbox: Option<String> = body.get("toolbox", "the name of a toolbox")?;
    let toolboxes = state.runtime()?.toolboxes();
    let caller = state.caller(None)?;
    let names = toolboxes.iter().map(|known| known.name.as_str());
    let names = names.filter(|name| toolbox.as_ref().is_none_or(|toolbox| toolbox == *name));
    let n_opened = join_all(names.map(|name| caller.open(name))).await.len();
    match toolbox {
        Some(unknown) if n_opened == 0 => Err(ApiProblem::not_found(format!("no toolbox '{unknown}'"))),
        _ => Ok(json_response(json!({"toolboxes": n_opened}))),
    }
}

/// Level of detail of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ToolDetail {
    /// Name, description and signature.
    Summary,
    /// Also the schemas.
    Schemas,
}

/// Renders a tool.
fn tool_json(tool: &Arc<CatalogueTool>, detail: ToolDetail) -> Value {
    let entry = &tool.entry;
    let annotations = entry.annotations();
    let effects = [
        ("readOnly", annotations.read_only),
        ("destructive", annotations.destructive),
        ("idempotent", annotations.idempotent),
        ("openWorld", annotations.open_world),
    ];
    let effects = effects.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
    let mut json = json!({
        "address": tool.id.to_string(),
        "toolbox": tool.id.toolbox,
        "server": tool.id.server,
        "name": tool.id.name,
        "kind": tool.kind,
        "description": entry.description(),
        "signature": signature(tool.id.name.as_str(), entry.input_schema().as_json()),
        "annotations": effects.collect::<Map<_, _>>(),
        "tags": entry.tags(),
        "listedAs": &*tool.flat_name,
    });
    if let Some(title) = entry.title() {
        json["title"] = title.into();
    }
    if detail == ToolDetail::Schemas {
        let definition = entry.definition();
        for name in ["inputSchema", "outputSchema"] {
            if let Some(schema) = definition.get(name) {
                json[name] = schema.to_value();
            }
        }
    }
    json
}
