//! Traces: one call each, with everything under it.

use axum::extract::{Path, State};
use axum::response::Response;
use pegboard_core::store::HistoryQuery;
use pegboard_json::RawJson;
use serde::Deserialize;
use serde_json::{Value, json};

use super::past::{Told, accounting};
use super::problem::Problem;
use super::question::Asked;
use super::stream::document;
use super::window::{Shown, Window};

/// How many traces are listed if nobody says otherwise.
const N_LISTED: usize = 20;
/// How many are listed at most.
const MAX_LISTED: usize = 1_000;

/// Which traces are wanted.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Wanted {
    limit: Option<usize>,
    session: Option<String>,
}

/// `GET /api/traces`
pub(super) async fn list(State(window): Shown, Asked(wanted): Asked<Wanted>) -> Result<Response, Problem> {
    let n_most = wanted.limit.unwrap_or(N_LISTED).min(MAX_LISTED);
    let query = HistoryQuery { session: wanted.session, n_most, ..HistoryQuery::default() };
    let story = window.story(query).await?;
    let traces: Vec<Value> = story.into_iter().map(Told::into_line).collect();
    Ok(document(json!({"traces": traces})))
}

/// `GET /api/traces/{trace}`
pub(super) async fn one(State(window): Shown, Path(asked): Path<String>) -> Result<Response, Problem> {
    let told = find(&window, &asked).await?;
    let missing = || Problem::not_found(format!("The trace {} is kept no more", told.id));
    let operation = window.operation(&told).await?.ok_or_else(missing)?;
    let value = operation.to_value();
    let records = match value["attributes"]["session"].as_str() {
        Some(session) => during(&value, window.records(session).await?),
        None => Vec::new(),
    };
    let trace = RawJson::from(json!({"traceId": told.id, "session": told.session}))
        .with("op", &operation)
        .with("records", &RawJson::from(Value::from(records)))
        .with("accounting", &RawJson::from(Value::from(accounting(&value))));
    Ok(document(RawJson::empty_object().with("trace", &trace)))
}

/// The trace that is meant by `last`, by an id or by the beginning of one.
async fn find(window: &Window, asked: &str) -> Result<Told, Problem> {
    let asked = asked.to_ascii_lowercase();
    if asked == "last" {
        let query = HistoryQuery { n_most: 1, ..HistoryQuery::default() };
        let newest = window.story(query).await?.into_iter().next();
        return newest.ok_or_else(|| Problem::not_found("No call has been made yet"));
    }
    let query = HistoryQuery { id_prefix: Some(asked.clone()), n_most: 2, ..HistoryQuery::default() };
    let mut found = window.story(query).await?.into_iter();
    match (found.next(), found.next()) {
        (Some(told), None) => Ok(told),
        (Some(_), Some(_)) => Err(Problem::not_found(format!("Several traces begin with '{asked}'"))
            .hint("give more digits of its id")),
        (None, _) => {
            let shown: String = asked.chars().take(40).collect();
            let problem = Problem::not_found(format!("There is no trace '{shown}'"));
            Err(problem.hint("GET /api/traces lists those there are"))
        }
    }
}

/// The records that were written down while an operation ran.
fn during(operation: &Value, records: Vec<pegboard_core::store::TraceRecord>) -> Vec<Value> {
    let started = operation["startedAt"].as_u64().unwrap_or_default();
    let ended = operation["endedAt"].as_u64().unwrap_or(u64::MAX);
    // It is written down in the last moment of the call, by a clock that counts whole milliseconds.
    let is_meant = |at: u64| at >= started && at <= ended.saturating_add(1);
    let meant = records.into_iter().filter(|record| is_meant(record.timestamp));
    meant.map(|record| json!(record)).collect()
}
