//! Request extractors: query parameters, response format and JSON body.

use axum::body::Body;
use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use pegboard_core::similar::nearest;
use pegboard_json::{RawJson, duplicate_member};
use pegboard_wire::http::server::read_json;
use serde::de::DeserializeOwned;

use super::problem::ApiProblem;
use super::state::ApiState;

/// Query parameters, with readable errors.
pub(super) struct QueryParams<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiProblem> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(params)) => Ok(Self(params)),
            Err(error) => {
                let text = error.body_text();
                // The rest of the message is readable.
                let text = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
                Err(ApiProblem::bad_request(text))
            }
        }
    }
}

/// Response format requested by `Accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseFormat {
    /// One JSON document when the result is complete.
    Document,
    /// Server-sent events.
    Events,
    /// Newline-delimited JSON.
    Lines,
}

impl<S: Sync> FromRequestParts<S> for ResponseFormat {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiProblem> {
        let accept = parts.headers.get_all(header::ACCEPT);
        let mut accept = accept.iter().filter_map(|value| value.to_str().ok()).flat_map(|all| all.split(','));
        let format = accept.find_map(|kind| match kind.split(';').next().unwrap_or_default().trim() {
            "text/event-stream" => Some(Self::Events),
            "application/x-ndjson" => Some(Self::Lines),
            "application/json" => Some(Self::Document),
            _ => None,
        });
        Ok(format.unwrap_or(Self::Document))
    }
}

/// A JSON object with known keys.
pub(super) struct RequestBody(RawJson);

impl RequestBody {
    /// Reads a request body; only the `allowed` keys may occur.
    pub(super) async fn read(
        state: &ApiState,
        headers: &HeaderMap,
        body: Body,
        allowed: &[&str],
    ) -> Result<Self, ApiProblem> {
        let body = read_json(headers, body, &state.options).await?;
        let body = RawJson::parse(body)
            .map_err(|error| ApiProblem::bad_request(format!("invalid JSON body: {error}")))?;
        if !body.is_object() {
            return Err(ApiProblem::bad_request("the body must be an object").at("$"));
        }
        if let Some(name) = duplicate_member(&body) {
            return Err(ApiProblem::bad_request(format!("duplicate key '{name}'")).at("$"));
        }
        if let Some(name) = body.names().into_iter().find(|name| !allowed.contains(&name.as_str())) {
            let problem = ApiProblem::bad_request(format!(
                "unknown key '{name}': expected one of {}",
                allowed.join(", ")
            ));
            return Err(match nearest(&name, allowed.iter().copied(), 1).first() {
                Some(suggestion) => problem.hint(format!("did you mean {suggestion}?")),
                None => problem,
            });
        }
        Ok(Self(body))
    }

    /// Returns a member as raw JSON, unless it is absent or null.
    pub(super) fn raw(&self, name: &str) -> Option<RawJson> {
        self.0.get(name).filter(|value| value.as_str() != "null")
    }

    /// Returns an optional member.
    pub(super) fn get<T: DeserializeOwned>(
        &self,
        name: &str,
        expected: &str,
    ) -> Result<Option<T>, ApiProblem> {
        let read = |value: RawJson| {
            value.read().map_err(|_| {
                ApiProblem::bad_request(format!("{name} must be {expected}")).at(format!("$.{name}"))
            })
        };
        self.raw(name).map(read).transpose()
    }

    /// Returns a required member.
    pub(super) fn require<T: DeserializeOwned>(&self, name: &str, expected: &str) -> Result<T, ApiProblem> {
        self.get(name, expected)?.ok_or_else(|| {
            ApiProblem::bad_request(format!("missing {name}: it must be {expected}")).at(format!("$.{name}"))
        })
    }
}
