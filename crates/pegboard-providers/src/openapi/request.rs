//! Operation of a service as a tool: builds the request for a call.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use http::{Method, StatusCode};
use indexmap::IndexMap;
use pegboard_core::call::ValidCall;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::secret::Secret;
use pegboard_core::validation::Violation;
use pegboard_json::RawJson;
use reqwest::Url;
use serde_json::Value;

use super::body::OperationBody;
use super::parameter::{OperationParameter, ParameterEncoding, ParameterLocation};
use super::security::AppliedCredential;
use super::style::Escape;
use pegboard_http::{ResponseLimits, WebClient, WebRequest};

/// Name of the argument for the body.
pub(super) const BODY_ARGUMENT: &str = "body";

/// Operation that can be called.
pub(super) struct OpenApiOperation {
    pub(super) method: Method,
    /// URL that the path is appended to.
    pub(super) base: Url,
    pub(super) path: Vec<PathPart>,
    /// Fixed query string.
    pub(super) query: Option<String>,
    pub(super) parameters: Vec<OperationParameter>,
    pub(super) body: Option<OperationBody>,
    /// Headers of every request to the service.
    pub(super) headers: Arc<IndexMap<String, Secret>>,
    pub(super) accept: String,
    pub(super) credentials: Vec<Arc<AppliedCredential>>,
    pub(super) web: Arc<WebClient>,
}

/// Part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathPart {
    Fixed(String),
    /// Index of a parameter.
    Parameter(usize),
}

impl Handler for OpenApiOperation {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let request = self.request(call.arguments(), call.raw_arguments()).await?;
            let answer = self.web.send(request, ResponseLimits::default()).await?;
            if answer.status == StatusCode::UNAUTHORIZED {
                for credential in &self.credentials {
                    if let AppliedCredential::Token(token_source) = &**credential {
                        token_source.invalidate();
                    }
                }
            }
            Ok(answer.into_output())
        }
        .boxed()
    }
}

/// Returns the argument for a parameter.
fn argument_value(parameter: &OperationParameter, arguments: &Value, raw: &RawJson) -> Option<Value> {
    // Null counts as absent for an optional parameter.
    let value =
        arguments.get(&parameter.argument).filter(|value| parameter.is_required || !value.is_null())?;
    // A number is sent as the caller wrote it, without rounding.
    match (value, raw.get(&parameter.argument)) {
        (Value::Number(_), Some(written)) if parameter.encoding != ParameterEncoding::Json => {
            Some(written.as_str().into())
        }
        (value, _) => Some(value.clone()),
    }
}

impl OpenApiOperation {
    /// Builds the request for these arguments.
    async fn request(&self, arguments: &Value, raw: &RawJson) -> Result<WebRequest, CallError> {
        let values: Vec<Option<Value>> =
            self.parameters.iter().map(|parameter| argument_value(parameter, arguments, raw)).collect();
        let missing = self
            .parameters
            .iter()
            .zip(&values)
            .find(|(parameter, value)| parameter.is_required && value.is_none());
        if let Some((parameter, _)) = missing {
            return Err(invalid_argument(&parameter.argument, "required field missing"));
        }
        let mut query = self.query_pairs(&values);
        let mut cookies = self.pairs(&values, ParameterLocation::Cookie);
        let mut headers = Vec::new();
        for credential in &self.credentials {
            match &**credential {
                AppliedCredential::Header(name, value) => {
                    headers.push((name.clone(), value.reveal().to_owned()));
                }
                AppliedCredential::Query(name, value) => set_pair(&mut query, name, value.reveal()),
                AppliedCredential::Cookie(name, value) => set_pair(&mut cookies, name, value.reveal()),
                AppliedCredential::Token(token_source) => {
                    let token = token_source.token().await?;
                    headers.push(("authorization".to_owned(), format!("Bearer {}", token.reveal())));
                }
            }
        }
        let mut request = WebRequest::new(self.method.clone(), self.url(&values, &query)?);
        request.set_header("accept", &self.accept)?;
        // What the configuration sets comes last, and replaces it.
        for (parameter, value) in self.at_location(&values, ParameterLocation::Header) {
            request.set_header(&parameter.name, &parameter.text(value))?;
        }
        for (name, value) in self.headers.iter() {
            request.set_header(name, value.reveal())?;
        }
        for (name, value) in headers {
            request.set_header(&name, &value)?;
        }
        if !cookies.is_empty() {
            let cookies: Vec<String> =
                cookies.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
            request.set_header("cookie", &cookies.join("; "))?;
        }
        let body = raw
            .get(BODY_ARGUMENT)
            .filter(|body| body.as_str() != "null" || self.body.as_ref().is_some_and(|it| it.is_required));
        if let (Some(body), Some(value)) = (&self.body, body) {
            let (content_type, bytes) =
                body.write(&value).map_err(|why| invalid_argument(BODY_ARGUMENT, &why))?;
            request = request.with_body(pegboard_http::WebBody { content_type, bytes });
        }
        Ok(request)
    }

    fn at_location<'v>(
        &'v self,
        values: &'v [Option<Value>],
        location: ParameterLocation,
    ) -> impl Iterator<Item = (&'v OperationParameter, &'v Value)> {
        let all = self.parameters.iter().zip(values);
        all.filter(move |(parameter, _)| parameter.location == location)
            .filter_map(|(parameter, value)| Some((parameter, value.as_ref()?)))
    }

    fn pairs(&self, values: &[Option<Value>], location: ParameterLocation) -> Vec<(String, String)> {
        self.at_location(values, location).flat_map(|(parameter, value)| parameter.pairs(value)).collect()
    }

    fn query_pairs(&self, values: &[Option<Value>]) -> Vec<(String, String)> {
        let mut pairs = self.pairs(values, ParameterLocation::Query);
        for (parameter, value) in self.at_location(values, ParameterLocation::QueryString) {
            match parameter.encoding {
                ParameterEncoding::Styled(_) => pairs.extend(parameter.pairs(value)),
                // It has no name in the query: the value is the whole query string.
                ParameterEncoding::Json | ParameterEncoding::Text => {
                    pairs.push((parameter.text(value), String::new()));
                }
            }
        }
        pairs
    }

    /// Builds the URL. A value can change nothing beyond its own segment or pair.
    fn url(&self, values: &[Option<Value>], query: &[(String, String)]) -> Result<Url, CallError> {
        let mut path = String::new();
        for part in &self.path {
            match part {
                PathPart::Fixed(text) => path.push_str(text),
                PathPart::Parameter(at) => {
                    let parameter = &self.parameters[*at];
                    let text = values[*at].as_ref().map(|value| parameter.text(value)).unwrap_or_default();
                    if text.is_empty() {
                        return Err(invalid_argument(
                            &parameter.argument,
                            "a path segment must not be empty",
                        ));
                    }
                    path.push_str(&text);
                }
            }
        }
        if path.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(invalid_argument("path", "a path segment must not be '.' or '..'"));
        }
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        let mut parts: Vec<String> = self.query.iter().cloned().collect();
        parts.extend(query.iter().map(|(name, value)| {
            if value.is_empty()
                && self.parameters.iter().any(|it| it.location == ParameterLocation::QueryString)
            {
                name.clone()
            } else {
                format!("{name}={value}")
            }
        }));
        if !parts.is_empty() {
            url.set_query(Some(&parts.join("&")));
        }
        Ok(url)
    }
}

/// Adds a pair in the place of those with the same name, which the members of an object can have.
fn set_pair(pairs: &mut Vec<(String, String)>, name: &str, value: &str) {
    let name = Escape::Reserved.apply(name).into_owned();
    pairs.retain(|(other, _)| *other != name);
    pairs.push((name, Escape::Reserved.apply(value).into_owned()));
}

/// Creates the error for an argument that cannot be sent.
fn invalid_argument(argument: &str, why: &str) -> CallError {
    let text = format!("$.{argument}: {why}");
    CallError::InvalidParameters { violations: vec![Violation::new(text, "$: an argument cannot be sent")] }
}
