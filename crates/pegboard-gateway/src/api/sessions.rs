//! `/api/sessions`: sessions of callers, and named sessions.

use std::cmp::Reverse;
use std::collections::HashSet;

use axum::extract::{Path, State};
use axum::response::Response;
use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::store::{CallQuery, SessionRecord, SessionSummary};
use pegboard_json::RawJson;
use pegboard_runtime::optree::AccountingScope;
use pegboard_runtime::{CallStatus, Caller, Runtime};
use serde::Deserialize;
use serde_json::{Value, json};

use super::extract::QueryParams;
use super::history::accounting;
use super::problem::ApiProblem;
use super::state::{ApiState, SharedApiState};
use super::stream::{json_response, unix_millis};

/// Default length of the list.
const DEFAULT_LIMIT: usize = 50;
/// Maximum length of the list; also the number of sessions searched by id.
const MAX_LIMIT: usize = 1_000;
/// Maximum number of calls of a past session with full records.
const MAX_CALLS: usize = 200;
/// Prefix of every caller id.
const CALLER_ID_PREFIX: &str = "session-";

/// Query parameters of the list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionsQuery {
    limit: Option<usize>,
}

/// A session in a list.
struct SessionListItem {
    id: String,
    owner: Owner,
    last_used: u64,
    json: Value,
    is_named: bool,
}

/// `GET /api/sessions`
pub(super) async fn list(
    State(state): SharedApiState,
    QueryParams(query): QueryParams<SessionsQuery>,
) -> Result<Response, ApiProblem> {
    let mut sessions = list_sessions(&state).await?;
    sessions.truncate(query.limit.unwrap_or(DEFAULT_LIMIT));
    let sessions: Vec<Value> = sessions.into_iter().map(|session| session.json).collect();
    Ok(json_response(json!({"sessions": sessions})))
}

/// `GET /api/sessions/{session}`
pub(super) async fn one(
    State(state): SharedApiState,
    Path(requested): Path<String>,
) -> Result<Response, ApiProblem> {
    let SessionListItem { id, owner, json, is_named, .. } = find_session(&state, &requested).await?;
    let scope = OwnerScope::Only(owner);
    let base = RawJson::from(json);
    let live = if is_named { Vec::new() } else { live_callers(&state) };
    let session_json = match live.iter().find(|caller| caller.id() == id) {
        Some(caller) => {
            let tree = caller.tree();
            base.with("tree", &RawJson::of(&tree.snapshot()))
                .with("accounting", &RawJson::of(&tree.accounting(AccountingScope::Tree)))
        }
        None if is_named => base,
        None => {
            let operations = past_operations(&state, scope.clone(), &id).await?;
            let entries: Vec<Value> =
                operations.iter().flat_map(|operation| accounting(&operation.to_value())).collect();
            let turns = RawJson::of(&[
                RawJson::from(json!({"id": "1", "index": 1})).with("ops", &RawJson::of(&operations))
            ]);
            let tree = RawJson::from(json!({"id": id})).with("turns", &turns);
            base.with("tree", &tree).with("accounting", &RawJson::of(&entries))
        }
    };
    let records = if is_named { state.records(scope, &id).await? } else { Vec::new() };
    let session_json = session_json.with("records", &RawJson::of(&records));
    Ok(json_response(RawJson::empty_object().with("session", &session_json)))
}

/// Returns the full records of a past session's calls, oldest first; if there are too many, the newest ones.
async fn past_operations(
    state: &ApiState,
    scope: OwnerScope,
    session: &str,
) -> Result<Vec<RawJson>, ApiProblem> {
    let session = Some(session.to_owned());
    let query = CallQuery { session, ..CallQuery::newest(scope, MAX_CALLS) };
    let mut calls = state.call_history(query).await?;
    calls.reverse();
    state.operations(&calls).await
}

/// Finds a session by its id or an unambiguous id prefix. Principals may have sessions with equal ids:
/// `PRINCIPAL:ID` is that of one of them.
async fn find_session(state: &ApiState, requested: &str) -> Result<SessionListItem, ApiProblem> {
    let mut sessions = list_sessions(state).await?;
    let (principal, requested) =
        requested.rsplit_once(':').map_or((None, requested), |(principal, id)| (Some(principal), id));
    sessions.retain(|session| principal.is_none_or(|name| session.owner.principal() == name));
    let exact = sessions.iter().position(|session| session.id == requested);
    if let Some(at) = exact {
        let session = sessions.swap_remove(at);
        let other = sessions.iter().find(|other| other.id == requested && other.owner != session.owner);
        let Some(other) = other else { return Ok(session) };
        let names = [&session, other].map(|session| format!("{}:{requested}", session.owner.principal()));
        return Err(ApiProblem::not_found(format!("several principals have a session '{requested}'"))
            .hint(format!("ask for one of them, such as {}", names.join(" or "))));
    }
    let matches_prefix = |id: &str| {
        id.starts_with(requested)
            || id.strip_prefix(CALLER_ID_PREFIX).is_some_and(|rest| rest.starts_with(requested))
    };
    sessions.retain(|session| matches_prefix(&session.id));
    match (sessions.pop(), sessions.is_empty()) {
        (Some(session), true) => Ok(session),
        (Some(_), false) => Err(ApiProblem::not_found(format!("ambiguous session id '{requested}'"))
            .hint("give more characters of the id")),
        (None, _) => {
            let shown: String = requested.chars().take(80).collect();
            let problem = ApiProblem::not_found(format!("unknown session '{shown}'"));
            Err(problem.hint("GET /api/sessions lists all sessions"))
        }
    }
}

/// Returns the live callers visible to this principal.
fn live_callers(state: &ApiState) -> Vec<Caller> {
    let callers = state.api.runtime.as_ref().map(Runtime::callers).unwrap_or_default();
    callers.into_iter().filter(|caller| state.scope.includes(caller.owner())).collect()
}

/// Returns all visible sessions, most recently used first.
async fn list_sessions(state: &ApiState) -> Result<Vec<SessionListItem>, ApiProblem> {
    let now = state.now();
    let past = state.call_log().await?.sessions(state.scope.clone(), MAX_LIMIT, now).await?;
    let live = live_callers(state);
    let is_live = |id: &str| live.iter().find(|caller| caller.id() == id);
    let calls = state.api.runtime.as_ref().map(Runtime::calls).unwrap_or_default();
    let mut sessions: Vec<SessionListItem> =
        past.iter().map(|past| from_history(past, is_live(&past.id))).collect();
    let known: HashSet<&str> = past.iter().map(|past| past.id.as_str()).collect();
    let mut seen = HashSet::new();
    for caller in live.iter().filter(|caller| !known.contains(caller.id())).take(MAX_LIMIT) {
        // Stateless callers share an id.
        if seen.insert(caller.id().to_owned()) {
            sessions.push(from_caller(caller));
        }
    }
    if let Some(store) = &state.api.sessions {
        let named = store.list(state.scope.clone(), MAX_LIMIT, now).await?;
        sessions.extend(named.into_iter().map(from_record));
    }
    for session in &mut sessions {
        // Nested calls are part of their parent.
        let is_top_level = |call: &&CallStatus| call.session == session.id && !call.operation.contains('.');
        let n_running = calls.iter().filter(is_top_level).count();
        if n_running > 0 {
            session.json["inFlight"] = n_running.into();
        }
    }
    sessions.sort_by_key(|session| Reverse(session.last_used));
    Ok(sessions)
}

/// A session with stored calls.
fn from_history(past: &SessionSummary, caller: Option<&Caller>) -> SessionListItem {
    let last_used = unix_millis(past.used);
    let mut json = json!({
        "id": past.id,
        "principal": past.owner.principal(),
        "startedAt": unix_millis(past.started),
        "usedAt": last_used,
        "calls": past.n_calls,
        "failed": past.n_failed,
        "live": caller.is_some(),
    });
    if let Some(caller) = caller {
        json["totals"] = json!(caller.tree().totals());
    }
    add_client(&mut json, caller.and_then(Caller::client).or(past.client.as_deref()));
    SessionListItem { id: past.id.clone(), owner: past.owner.clone(), last_used, json, is_named: false }
}

/// A live caller without finished calls.
fn from_caller(caller: &Caller) -> SessionListItem {
    let started = unix_millis(caller.tree().info().started);
    let mut json = json!({
        "id": caller.id(),
        "principal": caller.owner().principal(),
        "startedAt": started,
        "usedAt": started,
        "calls": 0,
        "failed": 0,
        "live": true,
        "totals": caller.tree().totals(),
    });
    add_client(&mut json, caller.client());
    let (id, owner) = (caller.id().to_owned(), caller.owner().clone());
    SessionListItem { id, owner, last_used: started, json, is_named: false }
}

/// Adds the name that a client gave itself.
fn add_client(json: &mut Value, client: Option<&str>) {
    if let Some(client) = client {
        json["client"] = client.into();
    }
}

/// A named session.
fn from_record(record: SessionRecord) -> SessionListItem {
    let last_used = unix_millis(record.used);
    let mut json = json!({
        "id": record.id,
        "name": record.name,
        "principal": record.owner.principal(),
        "startedAt": unix_millis(record.created),
        "usedAt": last_used,
        "live": false,
    });
    if let Some(workspace) = record.workspace {
        json["workspace"] = workspace.into();
    }
    SessionListItem { id: record.id, owner: record.owner, last_used, json, is_named: true }
}
