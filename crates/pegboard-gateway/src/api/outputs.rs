//! `/api/outputs`: lists, reads and deletes stored outputs.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pegboard_core::store::{OutputHandle, OutputQuery, OutputStore, StoredOutput};
use pegboard_runtime::output_query::{
    InvalidOutputRequest, OutputRequest, OutputView, WorkBudget, read_within,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::extract::QueryParams;
use super::problem::ApiProblem;
use super::state::{ApiState, SharedApiState};
use super::stream::{json_response, unix_millis};

/// Default length of the list.
const DEFAULT_LIMIT: usize = 100;
/// Maximum length of the list.
const MAX_LIMIT: usize = 1_000;
/// Maximum size of a page.
const PAGE_BYTES: usize = 256 * 1024;
/// Time budget of a page.
const PAGE_TIME_BUDGET: Duration = Duration::from_secs(2);
/// Maximum number of pages computed concurrently.
const MAX_CONCURRENT_READS: usize = 4;

/// Query parameters of the list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OutputsQuery {
    limit: Option<usize>,
}

/// `GET /api/outputs`
pub(super) async fn list(
    State(state): SharedApiState,
    QueryParams(params): QueryParams<OutputsQuery>,
) -> Result<Response, ApiProblem> {
    let n_most = params.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT);
    let query = OutputQuery { scope: state.scope.clone(), limit: n_most };
    let outputs = store(&state)?.list(query, state.now()).await?.into_iter().map(|output| {
        json!({
            "handle": output.handle,
            "tool": output.tool,
            "session": output.session,
            "bytes": output.n_bytes,
            "contentType": output.content_type,
            "createdAt": unix_millis(output.created),
            "expiresAt": unix_millis(output.expires),
        })
    });
    Ok(json_response(json!({"outputs": outputs.collect::<Vec<_>>()})))
}

/// Query parameters of a read; without any, the whole output.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct OutputPartQuery {
    grep: Option<String>,
    ignore_case: Option<bool>,
    context: Option<u64>,
    lines: Option<String>,
    json_path: Option<String>,
    cursor: Option<String>,
}

impl OutputPartQuery {
    /// Translates the parameters into a `tool_output` view; `None` for the whole output.
    fn view(self) -> Result<Option<OutputView>, ApiProblem> {
        let Self { grep, ignore_case, context, lines, json_path, cursor } = self;
        let mut selectors: Vec<Map<String, Value>> = Vec::new();
        let mut add = |selector: Value| selectors.extend(selector.as_object().cloned());
        if let Some(pattern) = grep {
            let (ignore_case, context) = (ignore_case.unwrap_or_default(), context.unwrap_or_default());
            add(json!({"mode": "grep", "pattern": pattern, "ignoreCase": ignore_case, "context": context}));
        } else if ignore_case.is_some() || context.is_some() {
            return Err(ApiProblem::bad_request("ignoreCase and context require grep"));
        }
        if let Some(lines) = lines {
            let (from, to) = range(&lines)?;
            add(json!({"mode": "lines", "from": from, "to": to}));
        }
        if let Some(path) = json_path {
            add(json!({"mode": "jsonpath", "path": path}));
        }
        if let Some(cursor) = cursor {
            add(json!({"mode": "next", "cursor": cursor}));
        }
        let mut selector = match (selectors.pop(), selectors.is_empty()) {
            (None, _) => return Ok(None),
            (Some(selector), true) => selector,
            (Some(_), false) => {
                return Err(ApiProblem::bad_request("give only one of grep, lines, jsonPath and cursor"));
            }
        };
        selector.insert("handle".to_owned(), "-".into());
        let request = OutputRequest::parse(&Value::Object(selector));
        request.map(|request| Some(request.view)).map_err(|error| ApiProblem::bad_request(error_text(&error)))
    }
}

/// Parses a line range: `10-20`, `10-` or `10`.
fn range(text: &str) -> Result<(u64, Option<u64>), ApiProblem> {
    let invalid = || ApiProblem::bad_request("lines must be like 10-20, 10- or 10");
    let number =
        |text: &str| text.trim().parse::<u64>().ok().filter(|number| *number > 0).ok_or_else(invalid);
    match text.split_once('-') {
        None => number(text).map(|line| (line, Some(line))),
        Some((from, "")) => Ok((number(from)?, None)),
        Some((from, to)) => {
            let (from, to) = (number(from)?, number(to)?);
            if to < from {
                return Err(ApiProblem::bad_request(format!(
                    "invalid range: line {to} is before line {from}"
                )));
            }
            Ok((from, Some(to)))
        }
    }
}

/// Returns the error without its `tool_output` wording, on one line.
fn error_text(error: &InvalidOutputRequest) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("Invalid tool_output parameters: ").unwrap_or(&text);
    let text = text.replace("`pattern`", "the pattern");
    match (text.split_once(": ").map(|(what, _)| what), text.lines().last()) {
        // A regex error shows the pattern and marks the fault below; keep the reason.
        (Some(what), Some(last)) if text.contains('\n') => {
            format!("{what}: {}", last.strip_prefix("error: ").unwrap_or(last))
        }
        _ => text,
    }
}

/// `GET /api/outputs/{handle}`
pub(super) async fn read(
    State(state): SharedApiState,
    Path(handle): Path<String>,
    QueryParams(params): QueryParams<OutputPartQuery>,
) -> Result<Response, ApiProblem> {
    let view = params.view()?;
    let output = fetch(&state, &handle).await?;
    let Some(view) = view else { return Ok(whole_output(output)) };
    let page = {
        static READ_PERMITS: Semaphore = Semaphore::const_new(MAX_CONCURRENT_READS);
        // Every earlier reader is limited by its time budget.
        let permit = READ_PERMITS.acquire().await;
        let budget = WorkBudget::within(PAGE_TIME_BUDGET);
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            read_within(&output.body, &output.content_type, &view, PAGE_BYTES, &budget)
        })
        .await
    };
    let page = page.map_err(|error| ApiProblem::internal(error.to_string()))?;
    let page = page.map_err(|error| ApiProblem::bad_request(error.to_string()))?;
    let mut json = json!({"content": page.content()});
    if page.content().is_empty() {
        json["note"] = page.text.as_str().into();
    }
    if let Some(next) = &page.next {
        json["next"] = next.to_string().into();
    }
    Ok(json_response(json))
}

/// Responds with an output and its content type. The headers keep browsers from rendering it as a page of
/// this origin.
fn whole_output(output: StoredOutput) -> Response {
    let content_type = HeaderValue::from_str(&output.content_type)
        .unwrap_or_else(|_| HeaderValue::from_static("application/octet-stream"));
    let mut response = output.body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    response
}

/// `DELETE /api/outputs/{handle}`
pub(super) async fn remove(
    State(state): SharedApiState,
    Path(handle): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    fetch(&state, &handle).await?;
    store(&state)?.remove(state.scope.clone(), OutputHandle(handle)).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn store(state: &ApiState) -> Result<&Arc<dyn OutputStore>, ApiProblem> {
    state.api.outputs.as_ref().ok_or_else(ApiProblem::not_stored)
}

/// Returns a stored output if the principal may read it. Outputs of other principals are reported as missing.
async fn fetch(state: &ApiState, handle: &str) -> Result<StoredOutput, ApiProblem> {
    let key = OutputHandle(handle.to_owned());
    let output = store(state)?.get(state.scope.clone(), key, state.now()).await?;
    output.ok_or_else(|| {
        let shown: String = handle.chars().take(100).collect();
        ApiProblem::not_found(format!("no output '{shown}': it may have expired"))
            .hint("GET /api/outputs lists stored outputs")
    })
}
