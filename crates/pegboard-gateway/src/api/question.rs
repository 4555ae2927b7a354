//! How requests are read: what their address asks for, and what their body says.

use axum::body::Body;
use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use pegboard_json::{RawJson, twin_member};
use pegboard_runtime::names::nearest;
use pegboard_wire::http::server::read_json;
use serde::de::DeserializeOwned;

use super::problem::Problem;
use super::window::Window;

/// What the address of a request asks for.
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(error) => {
                let text = error.body_text();
                // The rest is in words that people understand.
                let text = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
                Err(Problem::bad_request(text))
            }
        }
    }
}

/// In which form an answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One JSON document, when all is known.
    Document,
    /// Events, as they happen.
    Events,
    /// One JSON document on each line, as they come.
    Lines,
}

impl<S: Sync> FromRequestParts<S> for Form {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let wanted = parts.headers.get_all(header::ACCEPT);
        let mut wanted =
            wanted.iter().filter_map(|wanted| wanted.to_str().ok()).flat_map(|all| all.split(','));
        let form = wanted.find_map(|kind| match kind.split(';').next().unwrap_or_default().trim() {
            "text/event-stream" => Some(Self::Events),
            "application/x-ndjson" => Some(Self::Lines),
            "application/json" => Some(Self::Document),
            _ => None,
        });
        Ok(form.unwrap_or(Self::Document))
    }
}

/// The body of a request: an object whose members are known.
pub(super) struct Order(RawJson);

impl Order {
    /// Reads the body of a request that may say these things and nothing else.
    pub(super) async fn read(
        window: &Window,
        headers: &HeaderMap,
        body: Body,
        known: &[&str],
    ) -> Result<Self, Problem> {
        let body = read_json(headers, body, window.options.max_body).await?;
        let order = RawJson::parse(body)
            .map_err(|error| Problem::bad_request(format!("the body is not JSON: {error}")))?;
        if !order.is_object() {
            return Err(Problem::bad_request("the body must be an object").at("$"));
        }
        if let Some(name) = twin_member(&order) {
            return Err(Problem::bad_request(format!("'{name}' is there twice; give it once")).at("$"));
        }
        if let Some(name) = order.names().into_iter().find(|name| !known.contains(&name.as_str())) {
            let problem =
                Problem::bad_request(format!("'{name}' means nothing here; there are {}", known.join(", ")));
            return Err(match nearest(&name, known.iter().copied(), 1).first() {
                Some(near) => problem.hint(format!("did you mean {near}?")),
                None => problem,
            });
        }
        Ok(Self(order))
    }

    /// A member as it was written, unless it is missing or null.
    pub(super) fn raw(&self, name: &str) -> Option<RawJson> {
        self.0.get(name).filter(|value| value.as_str() != "null")
    }

    /// A member that may be missing.
    pub(super) fn get<T: DeserializeOwned>(&self, name: &str, wanted: &str) -> Result<Option<T>, Problem> {
        let read = |value: RawJson| {
            value
                .read()
                .map_err(|_| Problem::bad_request(format!("{name} must be {wanted}")).at(format!("$.{name}")))
        };
        self.raw(name).map(read).transpose()
    }

    /// A member that must be there.
    pub(super) fn need<T: DeserializeOwned>(&self, name: &str, wanted: &str) -> Result<T, Problem> {
        self.get(name, wanted)?.ok_or_else(|| {
            Problem::bad_request(format!("{name} is missing: it must be {wanted}")).at(format!("$.{name}"))
        })
    }
}
