//! The error response of every API route.

use std::borrow::Cow;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use pegboard_core::error::{CallError, ErrorKind, NotFound};
use pegboard_core::store::StoreError;
use pegboard_json::RawJson;
use pegboard_runtime::trace_id::TraceId;
use pegboard_wire::http::server::HttpRejection;
use pegboard_wire::server::ResponseMemoryFull;
use serde::{Deserialize, Serialize};

use super::stream::json_response;
use crate::access::MISSING_TOKEN;

/// Body of an error response: `{"error": {"code": …, "message": …}}`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ApiErrorResponse {
    /// The error.
    pub error: ApiError,
}

/// Error of a request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiError {
    /// Stable error code.
    pub code: Cow<'static, str>,
    /// Error message.
    pub message: String,
    /// Suggested fix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// JSON path of the offending member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// All violations of the schema, or all problems of a chain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<String>,
    /// Trace id of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
}

/// An error response with its HTTP status.
#[derive(Debug)]
pub(crate) struct ApiProblem {
    status: StatusCode,
    response: Box<ApiErrorResponse>,
}

impl ApiProblem {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let error = ApiError { code: code.into(), message: message.into(), ..ApiError::default() };
        Self { status, response: Box::new(ApiErrorResponse { error }) }
    }

    /// The request is malformed.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// The item does not exist, or is not visible to this principal.
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// The token is missing or wrong.
    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, ErrorKind::AuthRequired.as_str(), MISSING_TOKEN)
    }

    /// The principal lacks permission.
    pub(super) fn not_permitted(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, ErrorKind::NotPermitted.as_str(), message)
    }

    /// There is no runtime.
    pub(super) fn not_running() -> Self {
        let message = "no gateway is running: only history is available";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "not_running", message)
            .hint("start one with `pegboard serve`")
    }

    /// An internal error.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, ErrorKind::InternalError.as_str(), message)
    }

    /// There is no store for the requested data.
    pub(super) fn not_stored() -> Self {
        let message = "no store is available for this data";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "not_running", message)
            .hint("start a gateway with `pegboard serve`")
    }

    /// The path is unknown.
    pub(super) fn unknown_path() -> Self {
        Self::not_found("unknown path").hint("GET /api/ lists all paths")
    }

    /// The path does not support this method.
    pub(super) fn method_not_allowed() -> Self {
        let message = "method not allowed for this path";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "bad_request", message)
    }

    /// Adds a hint.
    #[must_use]
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.response.error.hint = Some(hint.into());
        self
    }

    /// Adds the JSON path of the offending member.
    #[must_use]
    pub(super) fn at(mut self, path: impl Into<String>) -> Self {
        self.response.error.path = Some(path.into());
        self
    }

    /// Adds a list of all problems, of which the message is the first.
    #[must_use]
    pub(super) fn violations(mut self, violations: Vec<String>) -> Self {
        self.response.error.violations = violations;
        self
    }

    /// The response does not fit into the memory for responses.
    pub(super) fn response_too_large(full: &ResponseMemoryFull) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, ErrorKind::LimitExceeded.as_str(), full.to_string())
    }

    /// Adds the trace id of a call.
    #[must_use]
    pub(super) fn with_trace(mut self, trace: Option<TraceId>) -> Self {
        self.response.error.trace_id = trace.map(|trace| trace.to_string());
        self
    }

    /// Returns the error.
    pub(super) fn error(&self) -> &ApiError {
        &self.response.error
    }

    /// Returns the response body.
    pub(super) fn document(&self) -> RawJson {
        RawJson::of(&self.response)
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        (self.status, json_response(self.document())).into_response()
    }
}

impl From<CallError> for ApiProblem {
    fn from(error: CallError) -> Self {
        let kind = error.kind();
        let mut problem = Self::new(status(kind), kind.as_str(), error.text());
        let body = &mut problem.response.error;
        match &error {
            CallError::NotFound(missing) => {
                body.message = missing.message();
                body.hint = suggestion(missing);
            }
            CallError::InvalidParameters { .. } | CallError::OutputInvalid { .. } => {
                body.violations = error.texts();
                body.path = body.violations.first().and_then(|first| violation_path(first));
            }
            _ => {}
        }
        problem
    }
}

impl From<StoreError> for ApiProblem {
    fn from(error: StoreError) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, ErrorKind::InternalError.as_str(), error.to_string())
    }
}

impl From<HttpRejection> for ApiProblem {
    fn from(HttpRejection(status, reason): HttpRejection) -> Self {
        let code = if status == StatusCode::FORBIDDEN { "not_permitted" } else { "bad_request" };
        Self::new(status, code, reason)
    }
}

/// Maps an error kind to an HTTP status.
fn status(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::UnknownTool | ErrorKind::UnknownToolbox | ErrorKind::UnknownServer => {
            StatusCode::NOT_FOUND
        }
        ErrorKind::NotPermitted => StatusCode::FORBIDDEN,
        ErrorKind::InvalidParameters => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorKind::LimitExceeded | ErrorKind::QueueTimeout => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::Canceled => StatusCode::CONFLICT,
        ErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        ErrorKind::CircuitOpen | ErrorKind::AuthRequired | ErrorKind::ServerUnavailable => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        ErrorKind::TransportError | ErrorKind::ExecutionError | ErrorKind::OutputInvalid => {
            StatusCode::BAD_GATEWAY
        }
        ErrorKind::InternalError => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Returns the hint with the suggested names.
fn suggestion(missing: &NotFound) -> Option<String> {
    let names = missing.nearest();
    Some(match (missing, &names[..]) {
        (_, []) => return None,
        (NotFound::Ambiguous { .. }, names) => format!("name the server: {}", names.join(", ")),
        (_, [one]) => format!("did you mean {one}?"),
        (_, several) => format!("did you mean one of: {}?", several.join(", ")),
    })
}

/// Returns the JSON path at the start of a violation.
fn violation_path(violation: &str) -> Option<String> {
    let (path, _) = violation.split_once(": ")?;
    path.starts_with('$').then(|| path.to_owned())
}
