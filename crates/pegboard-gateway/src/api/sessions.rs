//! Sessions: what each caller did, and the sessions that callers name.

use std::cmp::Reverse;
use std::collections::HashSet;

use axum::extract::{Path, State};
use axum::response::Response;
use pegboard_core::store::{HistoryQuery, PastSession, SessionRecord};
use pegboard_json::RawJson;
use pegboard_runtime::optree::Scope;
use pegboard_runtime::{CallStatus, Caller, CallerOptions, Runtime};
use serde::Deserialize;
use serde_json::{Value, json};

use super::past::accounting;
use super::problem::Problem;
use super::question::Asked;
use super::stream::{document, millis};
use super::window::{Shown, Window};

/// How many sessions are listed if nobody says otherwise.
const N_LISTED: usize = 50;
/// How many are listed at most, and looked through for one.
const MAX_LISTED: usize = 1_000;
/// How many calls of a session that is past are told with all that is known of them.
const MAX_CALLS: usize = 200;
/// What stands before the id of every caller.
const PREFIX: &str = "session-";

/// Which sessions are wanted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    limit: Option<usize>,
}

/// A session, in few words.
struct Session {
    id: String,
    used: u64,
    line: Value,
    is_named: bool,
}

/// `GET /api/sessions`
pub(super) async fn list(State(window): Shown, Asked(wanted): Asked<Wanted>) -> Result<Response, Problem> {
    let mut sessions = all(&window).await?;
    sessions.truncate(wanted.limit.unwrap_or(N_LISTED));
    let sessions: Vec<Value> = sessions.into_iter().map(|session| session.line).collect();
    Ok(document(json!({"sessions": sessions})))
}

/// `GET /api/sessions/{session}`
pub(super) async fn one(State(window): Shown, Path(asked): Path<String>) -> Result<Response, Problem> {
    let Session { id, line, is_named, .. } = find(&window, &asked).await?;
    let about = RawJson::from(line);
    let live = if is_named { Vec::new() } else { live(&window) };
    let whole = match live.iter().find(|caller| caller.id() == id) {
        Some(caller) => {
            let tree = caller.tree();
            about
                .with("tree", &RawJson::of(&tree.snapshot()))
                .with("accounting", &RawJson::of(&tree.accounting(Scope::Tree)))
        }
        None if is_named => about,
        None => {
            let operations = operations(&window, &id).await?;
            let entries: Vec<Value> =
                operations.iter().flat_map(|operation| accounting(&operation.to_value())).collect();
            let turns = RawJson::of(&[
                RawJson::from(json!({"id": "1", "index": 1})).with("ops", &RawJson::of(&operations))
            ]);
            let tree = RawJson::from(json!({"id": id})).with("turns", &turns);
            about.with("tree", &tree).with("accounting", &RawJson::of(&entries))
        }
    };
    let records = if is_named { window.records(&id).await? } else { Vec::new() };
    let whole = whole.with("records", &RawJson::of(&records));
    Ok(document(RawJson::empty_object().with("session", &whole)))
}

/// All that is known of the calls of a past session, the oldest first; of many the newest.
async fn operations(window: &Window, session: &str) -> Result<Vec<RawJson>, Problem> {
    let query =
        HistoryQuery { session: Some(session.to_owned()), n_most: MAX_CALLS, ..HistoryQuery::default() };
    let mut operations = Vec::new();
    for told in window.story(query).await?.iter().rev() {
        operations.extend(window.operation(told).await?);
    }
    Ok(operations)
}

/// The session that is meant by an id or by the beginning of one.
async fn find(window: &Window, asked: &str) -> Result<Session, Problem> {
    let mut sessions = all(window).await?;
    if let Some(at) = sessions.iter().position(|session| session.id == asked) {
        return Ok(sessions.swap_remove(at));
    }
    let begins = |id: &str| {
        id.starts_with(asked) || id.strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with(asked))
    };
    sessions.retain(|session| begins(&session.id));
    match (sessions.pop(), sessions.is_empty()) {
        (Some(session), true) => Ok(session),
        (Some(_), false) => {
            Err(Problem::not_found(format!("Several sessions begin with '{asked}'"))
                .hint("give more of its id"))
        }
        (None, _) => {
            let shown: String = asked.chars().take(80).collect();
            let problem = Problem::not_found(format!("There is no session '{shown}'"));
            Err(problem.hint("GET /api/sessions lists those there are"))
        }
    }
}

/// The callers that are there and that this principal sees.
fn live(window: &Window) -> Vec<Caller> {
    let callers = window.api.runtime.as_ref().map(Runtime::callers).unwrap_or_default();
    callers.into_iter().filter(|caller| window.who.sees(caller.owner())).collect()
}

/// All sessions that this principal sees, the one used last first.
async fn all(window: &Window) -> Result<Vec<Session>, Problem> {
    let now = window.now();
    let past = window.history().await?.sessions(window.who.owner(), MAX_LISTED, now).await?;
    let live = live(window);
    let is_live = |id: &str| live.iter().find(|caller| caller.id() == id);
    let calls = window.api.runtime.as_ref().map(Runtime::calls).unwrap_or_default();
    let mut sessions: Vec<Session> = past.iter().map(|past| of_calls(past, is_live(&past.id))).collect();
    let known: HashSet<&str> = past.iter().map(|past| past.id.as_str()).collect();
    let mut seen = HashSet::new();
    for caller in live.iter().filter(|caller| !known.contains(caller.id())).take(MAX_LISTED) {
        // Callers that are not remembered share an id.
        if seen.insert(caller.id().to_owned()) {
            sessions.push(of_caller(caller));
        }
    }
    if let Some(store) = &window.api.sessions {
        let named = store.list(MAX_LISTED, now).await?;
        sessions.extend(named.into_iter().filter(|named| window.who.sees(&named.principal)).map(of_name));
    }
    for session in &mut sessions {
        // Those that a call makes itself are part of it.
        let is_own = |call: &&CallStatus| call.session == session.id && !call.operation.contains('.');
        let n_under_way = calls.iter().filter(is_own).count();
        if n_under_way > 0 {
            session.line["underWay"] = n_under_way.into();
        }
    }
    sessions.sort_by_key(|session| Reverse(session.used));
    Ok(sessions)
}

/// A session whose calls are kept.
fn of_calls(past: &PastSession, caller: Option<&Caller>) -> Session {
    let used = millis(past.used);
    let mut line = json!({
        "id": past.id,
        "principal": CallerOptions::principal_of(&past.owner),
        "startedAt": millis(past.started),
        "usedAt": used,
        "calls": past.n_calls,
        "failed": past.n_failed,
        "live": caller.is_some(),
    });
    if let Some(caller) = caller {
        line["totals"] = json!(caller.tree().totals());
    }
    Session { id: past.id.clone(), used, line, is_named: false }
}

/// A caller of which no call has ended yet.
fn of_caller(caller: &Caller) -> Session {
    let began = millis(caller.tree().about().started);
    let line = json!({
        "id": caller.id(),
        "principal": caller.principal(),
        "startedAt": began,
        "usedAt": began,
        "calls": 0,
        "failed": 0,
        "live": true,
        "totals": caller.tree().totals(),
    });
    Session { id: caller.id().to_owned(), used: began, line, is_named: false }
}

/// A session that somebody named.
fn of_name(record: SessionRecord) -> Session {
    let used = millis(record.used);
    let mut line = json!({
        "id": record.id,
        "name": record.name,
        "principal": CallerOptions::principal_of(&record.principal),
        "startedAt": millis(record.created),
        "usedAt": used,
        "live": false,
    });
    if let Some(workspace) = record.workspace {
        line["workspace"] = workspace.into();
    }
    Session { id: record.id, used, line, is_named: true }
}
