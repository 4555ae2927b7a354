//! `/api/traces`: calls with all their child operations.

use axum::extract::{Path, State};
use axum::response::Response;
use pegboard_core::owner::OwnerScope;
use pegboard_core::store::CallQuery;
use pegboard_json::RawJson;
use serde::Deserialize;
use serde_json::{Value, json};

use super::extract::QueryParams;
use super::history::{CallListItem, accounting};
use super::problem::ApiProblem;
use super::state::{ApiState, SharedApiState};
use super::stream::json_response;

/// Default length of the list.
const DEFAULT_LIMIT: usize = 20;
/// Maximum length of the list.
const MAX_LIMIT: usize = 1_000;

/// Query parameters of the list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TracesQuery {
    limit: Option<usize>,
    session: Option<String>,
}

/// `GET /api/traces`
pub(super) async fn list(
    State(state): SharedApiState,
    QueryParams(params): QueryParams<TracesQuery>,
) -> Result<Response, ApiProblem> {
    let n_most = params.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT);
    let query = CallQuery { session: params.session, ..CallQuery::newest(state.scope.clone(), n_most) };
    let calls = state.call_history(query).await?;
    let traces: Vec<Value> = calls.into_iter().map(CallListItem::into_json).collect();
    Ok(json_response(json!({"traces": traces})))
}

/// `GET /api/traces/{trace}`
pub(super) async fn one(
    State(state): SharedApiState,
    Path(requested): Path<String>,
) -> Result<Response, ApiProblem> {
    let item = find(&state, &requested).await?;
    let missing = || ApiProblem::not_found(format!("trace {} is no longer stored", item.id));
    let operation = state.operations(std::slice::from_ref(&item)).await?.pop().ok_or_else(missing)?;
    let value = operation.to_value();
    let records = match value["attributes"]["session"].as_str() {
        Some(session) => {
            let scope = OwnerScope::Only(item.owner.clone());
            records_during(&value, state.records(scope, session).await?)
        }
        None => Vec::new(),
    };
    let trace = RawJson::from(json!({"traceId": item.id, "session": item.session}))
        .with("op", &operation)
        .with("records", &RawJson::from(Value::from(records)))
        .with("accounting", &RawJson::from(Value::from(accounting(&value))));
    Ok(json_response(RawJson::empty_object().with("trace", &trace)))
}

/// Finds a call by `last`, by its trace id or by an unambiguous id prefix.
async fn find(state: &ApiState, requested: &str) -> Result<CallListItem, ApiProblem> {
    let requested = requested.to_ascii_lowercase();
    if requested == "last" {
        let query = CallQuery::newest(state.scope.clone(), 1);
        let newest = state.call_history(query).await?.into_iter().next();
        return newest.ok_or_else(|| ApiProblem::not_found("no calls yet"));
    }
    let id_prefix = Some(requested.clone());
    let query = CallQuery { id_prefix, ..CallQuery::newest(state.scope.clone(), 2) };
    let mut found = state.call_history(query).await?.into_iter();
    match (found.next(), found.next()) {
        (Some(item), None) => Ok(item),
        (Some(_), Some(_)) => Err(ApiProblem::not_found(format!("ambiguous trace id '{requested}'"))
            .hint("give more characters of the id")),
        (None, _) => {
            let shown: String = requested.chars().take(40).collect();
            let problem = ApiProblem::not_found(format!("unknown trace '{shown}'"));
            Err(problem.hint("GET /api/traces lists recent traces"))
        }
    }
}

/// Returns the records written while an operation ran.
fn records_during(operation: &Value, records: Vec<pegboard_core::store::TraceRecord>) -> Vec<Value> {
    let started = operation["startedAt"].as_u64().unwrap_or_default();
    let ended = operation["endedAt"].as_u64().unwrap_or(u64::MAX);
    // The record is written at the very end of the call, with a clock of whole milliseconds.
    let is_match = |at: u64| at >= started && at <= ended.saturating_add(1);
    let matching = records.into_iter().filter(|record| is_match(record.timestamp));
    matching.map(|record| json!(record)).collect()
}
