//! One operation as a tool: a call becomes a request.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use http::{Method, StatusCode};
use indexmap::IndexMap;
use pegboard_core::call::ValidCall;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::settings::mcp::Secret;
use pegboard_core::validation::Violation;
use pegboard_json::RawJson;
use reqwest::Url;
use serde_json::Value;

use super::body::Body;
use super::parameter::{Form, Parameter, Place};
use super::security::Proof;
use super::style::Escape;
use crate::web::{self, Limits, Outgoing, Web};

/// The argument that holds the body.
pub(super) const BODY: &str = "body";

/// An operation that can be called.
pub(super) struct Operation {
    pub(super) method: Method,
    /// The address that the path is put behind.
    pub(super) base: Url,
    pub(super) path: Vec<PathPart>,
    /// What always stands in the query.
    pub(super) query: Option<String>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<Body>,
    /// Headers of every request of the service.
    pub(super) headers: Arc<IndexMap<String, Secret>>,
    pub(super) accept: String,
    pub(super) proofs: Vec<Arc<Proof>>,
    pub(super) web: Arc<Web>,
}

/// A part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathPart {
    Fixed(String),
    /// The parameter with this place among all.
    Parameter(usize),
}

impl Handler for Operation {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let outgoing = self.outgoing(call.arguments(), call.raw_arguments()).await?;
            let answer = self.web.send(outgoing, Limits::default()).await?;
            if answer.status == StatusCode::UNAUTHORIZED {
                for proof in &self.proofs {
                    if let Proof::Token(issuer) = &**proof {
                        issuer.forget();
                    }
                }
            }
            Ok(answer.into_output())
        }
        .boxed()
    }
}

impl Operation {
    /// The request that these arguments mean.
    async fn outgoing(&self, arguments: &Value, raw: &RawJson) -> Result<Outgoing, CallError> {
        let given = |parameter: &Parameter| {
            // Nothing, for what need not be there, is not there.
            let value = arguments
                .get(&parameter.argument)
                .filter(|value| parameter.is_required || !value.is_null())?;
            // A number goes out as the caller wrote it, whatever would become of it when it is read.
            match (value, raw.get(&parameter.argument)) {
                (Value::Number(_), Some(written)) if parameter.form != Form::Json => {
                    Some(written.as_str().into())
                }
                (value, _) => Some(value.clone()),
            }
        };
        let values: Vec<Option<Value>> = self.parameters.iter().map(given).collect();
        let missing = self
            .parameters
            .iter()
            .zip(&values)
            .find(|(parameter, value)| parameter.is_required && value.is_none());
        if let Some((parameter, _)) = missing {
            return Err(wrong(&parameter.argument, "it is needed"));
        }
        let mut query = self.query_pairs(&values);
        let mut cookies = self.pairs(&values, Place::Cookie);
        let mut headers: Vec<(String, String)> = Vec::new();
        for (parameter, value) in self.of_place(&values, Place::Header) {
            headers.push((parameter.name.clone(), parameter.text(value)));
        }
        for proof in &self.proofs {
            match &**proof {
                Proof::Header(name, value) => headers.push((name.clone(), value.reveal().to_owned())),
                Proof::Query(name, value) => query.push(pair(name, value.reveal())),
                Proof::Cookie(name, value) => cookies.push(pair(name, value.reveal())),
                Proof::Token(issuer) => {
                    let token = issuer.token().await?;
                    headers.push(("authorization".to_owned(), format!("Bearer {}", token.reveal())));
                }
            }
        }
        let mut outgoing = Outgoing::new(self.method.clone(), self.url(&values, &query)?);
        outgoing.set_header("accept", &self.accept)?;
        for (name, value) in self.headers.iter() {
            outgoing.set_header(name, value.reveal())?;
        }
        for (name, value) in headers {
            outgoing.set_header(&name, &value)?;
        }
        if !cookies.is_empty() {
            let cookies: Vec<String> =
                cookies.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
            outgoing.set_header("cookie", &cookies.join("; "))?;
        }
        let body = raw
            .get(BODY)
            .filter(|body| body.as_str() != "null" || self.body.as_ref().is_some_and(|it| it.is_required));
        if let (Some(body), Some(value)) = (&self.body, body) {
            let (content_type, bytes) = body.write(&value).map_err(|why| wrong(BODY, &why))?;
            outgoing = outgoing.with_body(web::Body { content_type, bytes });
        }
        Ok(outgoing)
    }

    fn of_place<'v>(
        &'v self,
        values: &'v [Option<Value>],
        place: Place,
    ) -> impl Iterator<Item = (&'v Parameter, &'v Value)> {
        let all = self.parameters.iter().zip(values);
        all.filter(move |(parameter, _)| parameter.place == place)
            .filter_map(|(parameter, value)| Some((parameter, value.as_ref()?)))
    }

    fn pairs(&self, values: &[Option<Value>], place: Place) -> Vec<(String, String)> {
        self.of_place(values, place).flat_map(|(parameter, value)| parameter.pairs(value)).collect()
    }

    fn query_pairs(&self, values: &[Option<Value>]) -> Vec<(String, String)> {
        let mut pairs = self.pairs(values, Place::Query);
        for (parameter, value) in self.of_place(values, Place::WholeQuery) {
            match parameter.form {
                Form::Styled(_) => pairs.extend(parameter.pairs(value)),
                // It has no name in the query: the value is all of it.
                Form::Json | Form::Text => {
                    pairs.push((parameter.text(value), String::new()));
                }
            }
        }
        pairs
    }

    /// The address, of which no value can change more than its own segment or pair.
    fn url(&self, values: &[Option<Value>], query: &[(String, String)]) -> Result<Url, CallError> {
        let mut path = String::new();
        for part in &self.path {
            match part {
                PathPart::Fixed(text) => path.push_str(text),
                PathPart::Parameter(at) => {
                    let parameter = &self.parameters[*at];
                    let text = values[*at].as_ref().map(|value| parameter.text(value)).unwrap_or_default();
                    if text.is_empty() {
                        return Err(wrong(
                            &parameter.argument,
                            "it is a part of the path, and must not be empty",
                        ));
                    }
                    path.push_str(&text);
                }
            }
        }
        if path.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(wrong("path", "a part of the path must not be '.' or '..'"));
        }
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        let mut parts: Vec<String> = self.query.iter().cloned().collect();
        parts.extend(query.iter().map(|(name, value)| {
            if value.is_empty() && self.parameters.iter().any(|it| it.place == Place::WholeQuery) {
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

fn pair(name: &str, value: &str) -> (String, String) {
    (Escape::Reserved.apply(name).into_owned(), Escape::Reserved.apply(value).into_owned())
}

/// An argument that cannot be sent.
fn wrong(argument: &str, why: &str) -> CallError {
    let text = format!("$.{argument}: {why}");
    CallError::InvalidParameters { violations: vec![Violation::new(text, "$: an argument cannot be sent")] }
}
