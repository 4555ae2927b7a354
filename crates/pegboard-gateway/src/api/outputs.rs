//! Answers that were too large to hand over: listed, read back, taken away.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pegboard_core::store::{OutputHandle, OutputQuery, OutputStore, StoredOutput};
use pegboard_runtime::reading::{BadRequest, Effort, Request, View, read_within};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::problem::Problem;
use super::question::Asked;
use super::stream::{document, millis};
use super::window::{Shown, Window};

/// How many outputs are listed if nobody says otherwise.
const N_LISTED: usize = 100;
/// How many are listed at most.
const MAX_LISTED: usize = 1_000;
/// How much of an output is read at once.
const PAGE_BYTES: usize = 256 * 1024;
/// How long one page may be worked on.
const PAGE_EFFORT: Duration = Duration::from_secs(2);
/// How many pages are worked on at the same time.
const MAX_READERS: usize = 4;

/// How many outputs are wanted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listed {
    limit: Option<usize>,
}

/// `GET /api/outputs`
pub(super) async fn list(State(window): Shown, Asked(listed): Asked<Listed>) -> Result<Response, Problem> {
    let n_most = listed.limit.unwrap_or(N_LISTED).min(MAX_LISTED);
    let query = OutputQuery { principal: window.who.owner(), n_most };
    let outputs = store(&window)?.list(query, window.now()).await?.into_iter().map(|output| {
        json!({
            "handle": output.handle,
            "tool": output.tool,
            "session": output.session,
            "bytes": output.n_bytes,
            "contentType": output.content_type,
            "madeAt": millis(output.made),
            "expiresAt": millis(output.expires),
        })
    });
    Ok(document(json!({"outputs": outputs.collect::<Vec<_>>()})))
}

/// What of an output is wanted; all of it if nothing is said.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Part {
    grep: Option<String>,
    ignore_case: Option<bool>,
    context: Option<u64>,
    lines: Option<String>,
    json_path: Option<String>,
    cursor: Option<String>,
}

impl Part {
    /// The view that is asked for, in the words in which models ask; `None` for the whole.
    fn view(self) -> Result<Option<View>, Problem> {
        let Self { grep, ignore_case, context, lines, json_path, cursor } = self;
        let mut ways: Vec<Map<String, Value>> = Vec::new();
        let mut add = |way: Value| ways.extend(way.as_object().cloned());
        if let Some(pattern) = grep {
            let (ignore_case, context) = (ignore_case.unwrap_or_default(), context.unwrap_or_default());
            add(json!({"mode": "grep", "pattern": pattern, "ignoreCase": ignore_case, "context": context}));
        } else if ignore_case.is_some() || context.is_some() {
            return Err(Problem::bad_request("ignoreCase and context go with grep"));
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
        let mut way = match (ways.pop(), ways.is_empty()) {
            (None, _) => return Ok(None),
            (Some(way), true) => way,
            (Some(_), false) => {
                return Err(Problem::bad_request("give one of grep, lines, jsonPath and cursor"));
            }
        };
        way.insert("handle".to_owned(), "-".into());
        let request = Request::parse(&Value::Object(way));
        request.map(|request| Some(request.view)).map_err(|error| Problem::bad_request(words(&error)))
    }
}

/// The first and the last line of `10-20`, `10-` or `10`.
fn range(text: &str) -> Result<(u64, Option<u64>), Problem> {
    let wrong = || Problem::bad_request("lines must be like 10-20, 10- or 10");
    let number = |text: &str| text.trim().parse::<u64>().ok().filter(|number| *number > 0).ok_or_else(wrong);
    match text.split_once('-') {
        None => number(text).map(|line| (line, Some(line))),
        Some((from, "")) => Ok((number(from)?, None)),
        Some((from, to)) => {
            let (from, to) = (number(from)?, number(to)?);
            if to < from {
                return Err(Problem::bad_request(format!("line {to} comes before line {from}")));
            }
            Ok((from, Some(to)))
        }
    }
}

/// What is wrong, without the words that are for models, and on one line.
fn words(error: &BadRequest) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("Invalid tool_output parameters: ").unwrap_or(&text);
    let text = text.replace("`pattern`", "the pattern");
    match (text.split_once(": ").map(|(what, _)| what), text.lines().last()) {
        // A pattern is drawn with what is wrong in it below.
        (Some(what), Some(last)) if text.contains('\n') => {
            format!("{what}: {}", last.strip_prefix("error: ").unwrap_or(last))
        }
        _ => text,
    }
}

/// `GET /api/outputs/{handle}`
pub(super) async fn read(
    State(window): Shown,
    Path(handle): Path<String>,
    Asked(part): Asked<Part>,
) -> Result<Response, Problem> {
    let view = part.view()?;
    let output = fetch(&window, &handle).await?;
    let Some(view) = view else { return Ok(whole(output)) };
    let page = {
        static READERS: Semaphore = Semaphore::const_new(MAX_READERS);
        // Each of those before it takes its time, and no longer.
        let permit = READERS.acquire().await;
        let effort = Effort::within(PAGE_EFFORT);
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            read_within(&output.body, &output.content_type, &view, PAGE_BYTES, &effort)
        })
        .await
    };
    let page = page.map_err(|error| Problem::broken(error.to_string()))?;
    let page = page.map_err(|error| Problem::bad_request(error.to_string()))?;
    let mut told = json!({"content": page.content()});
    if page.content().is_empty() {
        told["note"] = page.text.as_str().into();
    }
    if let Some(next) = &page.next {
        told["next"] = next.to_string().into();
    }
    Ok(document(told))
}

/// An output as it is, with its content type. Whatever it says, no browser takes it for a page of this place.
fn whole(output: StoredOutput) -> Response {
    let kind = HeaderValue::from_str(&output.content_type)
        .unwrap_or_else(|_| HeaderValue::from_static("application/octet-stream"));
    let mut response = output.body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    response
}

/// `DELETE /api/outputs/{handle}`
pub(super) async fn remove(State(window): Shown, Path(handle): Path<String>) -> Result<StatusCode, Problem> {
    fetch(&window, &handle).await?;
    store(&window)?.remove(OutputHandle(handle)).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn store(window: &Window) -> Result<&Arc<dyn OutputStore>, Problem> {
    window.api.outputs.as_ref().ok_or_else(Problem::not_kept)
}

/// The output under a handle, if this principal may read it. Whether there is one for somebody else is nobody's business.
async fn fetch(window: &Window, handle: &str) -> Result<StoredOutput, Problem> {
    let output = store(window)?.get(OutputHandle(handle.to_owned()), window.now()).await?;
    output.filter(|output| window.who.sees(&output.principal)).ok_or_else(|| {
        let shown: String = handle.chars().take(100).collect();
        Problem::not_found(format!("No output is kept under '{shown}'; it may have expired"))
            .hint("GET /api/outputs lists those there are")
    })
}
