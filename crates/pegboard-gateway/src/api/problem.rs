//! Why something is not answered, in one shape for all.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use pegboard_core::error::{CallError, ErrorKind, NotFound};
use pegboard_core::store::StoreError;
use pegboard_runtime::names::nearest;
use pegboard_runtime::trace_id::TraceId;
use pegboard_wire::http::server::Refusal;
use serde::Serialize;
use serde_json::{Value, json};

use crate::token::WANTED;

/// How many names are offered in place of one that is not there.
const N_NEAREST: usize = 3;

/// Why something is not answered: `{"error": {"code": …, "message": …}}` with the status that goes with it.
#[derive(Debug)]
pub(crate) struct Problem(Box<Words>);

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Words {
    #[serde(skip)]
    status: StatusCode,
    code: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    violations: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<TraceId>,
}

impl Problem {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        let (hint, path, violations, trace_id) = (None, None, Vec::new(), None);
        Self(Box::new(Words { status, code, message, hint, path, violations, trace_id }))
    }

    /// The request cannot be understood.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// There is no such thing, or none for this principal.
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// Nobody comes in without a token.
    pub(crate) fn no_token() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, ErrorKind::AuthRequired.as_str(), WANTED)
    }

    /// This principal may not know.
    pub(super) fn not_permitted(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, ErrorKind::NotPermitted.as_str(), message)
    }

    /// Nothing runs here that could answer.
    pub(super) fn not_running() -> Self {
        let message = "No gateway runs here: only what is past can be told";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "not_running", message).hint("start one: pegboard serve")
    }

    /// A bug here.
    pub(super) fn broken(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, ErrorKind::InternalError.as_str(), message)
    }

    /// Nobody keeps what was asked for.
    pub(super) fn not_kept() -> Self {
        let message = "This is not kept here";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "not_running", message)
            .hint("start a gateway: pegboard serve")
    }

    /// The path leads nowhere.
    pub(super) fn no_route() -> Self {
        Self::not_found("There is nothing at this path").hint("GET /api/ lists what there is")
    }

    /// The path does not take this method.
    pub(super) fn no_method() -> Self {
        let message = "This path does not take this method";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "bad_request", message)
    }

    /// The problem with what to do about it.
    #[must_use]
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// The problem with the place in the request that it is at.
    #[must_use]
    pub(super) fn at(mut self, path: impl Into<String>) -> Self {
        self.0.path = Some(path.into());
        self
    }

    /// The problem of a call that can be found again.
    #[must_use]
    pub(super) fn of_call(mut self, trace: Option<TraceId>) -> Self {
        self.0.trace_id = trace;
        self
    }

    /// The whole document.
    pub(super) fn document(&self) -> Value {
        json!({"error": self.0})
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let headers = [(header::CONTENT_TYPE, "application/json")];
        (self.0.status, headers, self.document().to_string()).into_response()
    }
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        let kind = error.kind();
        let mut problem = Self::new(status(kind), kind.as_str(), error.text());
        let words = &mut *problem.0;
        match &error {
            CallError::NotFound(missing) => {
                words.message = plain(missing);
                words.hint = hint(missing);
            }
            CallError::InvalidParameters { .. } | CallError::OutputInvalid { .. } => {
                words.violations = error.texts();
                words.path = words.violations.first().and_then(|first| path_of(first));
            }
            _ => {}
        }
        problem
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, ErrorKind::InternalError.as_str(), error.to_string())
    }
}

impl From<Refusal> for Problem {
    fn from(Refusal(status, reason): Refusal) -> Self {
        let code = if status == StatusCode::FORBIDDEN { "not_permitted" } else { "bad_request" };
        Self::new(status, code, reason)
    }
}

/// The status that goes with why a call has no answer.
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

/// What there is not, without what there is in its place.
fn plain(missing: &NotFound) -> String {
    let mut missing = missing.clone();
    match &mut missing {
        NotFound::Tool { nearest, .. } | NotFound::ToolOfServer { nearest, .. } => nearest.clear(),
        NotFound::Agent { .. }
        | NotFound::Toolbox { .. }
        | NotFound::NotOpen { .. }
        | NotFound::Server { .. } => {}
    }
    missing.to_string()
}

/// What there is in place of what there is not.
fn hint(missing: &NotFound) -> Option<String> {
    let near = |name: &str, names: &[String]| -> Vec<String> {
        let names = names.iter().map(String::as_str);
        nearest(name, names, N_NEAREST).into_iter().map(str::to_owned).collect()
    };
    let names = match missing {
        NotFound::Tool { nearest, .. } | NotFound::ToolOfServer { nearest, .. } => nearest.clone(),
        NotFound::Toolbox { toolbox, available } => near(toolbox, available),
        NotFound::Server { server, available, .. } => near(server, available),
        NotFound::Agent { .. } | NotFound::NotOpen { .. } => Vec::new(),
    };
    match &names[..] {
        [] => None,
        [one] => Some(format!("did you mean {one}?")),
        several => Some(format!("did you mean one of: {}?", several.join(", "))),
    }
}

/// The place that a violation begins with.
fn path_of(violation: &str) -> Option<String> {
    let (path, _) = violation.split_once(": ")?;
    path.starts_with('$').then(|| path.to_owned())
}
