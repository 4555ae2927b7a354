//! A call of a tool as a request.

use http::header::CONTENT_TYPE;
use pegboard_core::error::CallError;
use pegboard_core::settings::rest::{RestTool, Template};
use reqwest::Url;

use super::parameters::{Parameters, wrong};
use super::{body, method_of, query};
use crate::web::{Body, Outgoing, WebError};

/// How long an address may be. Few services take a longer one.
const MAX_ADDRESS: usize = 32 * 1024;

/// What a body is if nobody says otherwise.
const JSON: &str = "application/json";

/// The request that a call comes to.
pub(super) fn fill(tool: &RestTool, parameters: &Parameters<'_>) -> Result<Outgoing, CallError> {
    let mut outgoing = Outgoing::new(method_of(tool), address(tool, parameters)?);
    let mut content_type = JSON.to_owned();
    for (name, template) in &tool.headers {
        if let Some(value) = parameters.fill(template, str::to_owned)? {
            outgoing.set_header(name, &value).map_err(|error| as_parameter(template, error))?;
            if name.eq_ignore_ascii_case(CONTENT_TYPE.as_str()) {
                content_type = value;
            }
        }
    }
    let Some(template) = &tool.body else { return Ok(outgoing) };
    Ok(match body::fill(template, parameters, &content_type)? {
        Some(bytes) => outgoing.with_body(Body { content_type, bytes }),
        None => outgoing,
    })
}

/// A header that cannot be sent because of what a call gave is the call's fault.
fn as_parameter(template: &Template, error: WebError) -> CallError {
    match template.parameters().next() {
        Some(name) => wrong(name, &error.to_string()),
        None => error.into(),
    }
}

/// The address of a request. What a call gives can change neither who is asked nor how many parts a path has.
fn address(tool: &RestTool, parameters: &Parameters<'_>) -> Result<Url, CallError> {
    let mut address = tool.url.origin.clone();
    for segment in &tool.url.path {
        address.push('/');
        address.push_str(&path_part(segment, parameters)?);
    }
    let mut pairs = Vec::new();
    for pair in &tool.url.query {
        pairs.extend(parameters.fill(pair, query::encoded)?);
    }
    for name in &tool.query {
        if let Some(value) = parameters.get(name)? {
            query::add(&mut pairs, name, &value, tool.query_style)?;
        }
    }
    if !pairs.is_empty() {
        address.push('?');
        address.push_str(&pairs.join("&"));
    }
    let too_long = tool.url.parameters().chain(tool.query.iter().map(String::as_str)).next();
    match too_long.filter(|_| address.len() > MAX_ADDRESS) {
        Some(name) => Err(wrong(name, "the address would be longer than 32 KiB. Give less")),
        None => Ok(address.parse().map_err(|_| WebError::BadAddress)?),
    }
}

/// One part of a path. It is never empty, and never leads up.
fn path_part(template: &Template, parameters: &Parameters<'_>) -> Result<String, CallError> {
    for name in template.parameters() {
        match parameters.text(name)?.as_deref() {
            None => return Err(wrong(name, "required field missing")),
            Some("") => {
                return Err(wrong(name, "it stands in the path of the address and must not be empty"));
            }
            Some(_) => {}
        }
    }
    let part = parameters.fill(template, query::encoded)?.unwrap_or_default();
    let dots = part.replace("%2e", ".").replace("%2E", ".");
    match template.parameters().next() {
        Some(name) if dots == "." || dots == ".." => {
            Err(wrong(name, "it stands in the path of the address and must not be . or .."))
        }
        _ => Ok(part),
    }
}

#[cfg(test)]
mod tests {
    use pegboard_core::id::ToolName;
    use pegboard_core::settings::rest::RestToolEntry;
    use pegboard_json::RawJson;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn tool() -> RestTool {
        let written = json!({
            "description": "",
            "method": "POST",
            "url": "https://api.example.org:8443/p/${parameters.a}/x-${parameters.a}/q?k=${parameters.b}&l=1",
            "bodyTemplate": r#"{"t": "<${parameters.a}>", "v": ${parameters.b}, "end": true}"#,
            "parametersSchema": {"properties": {"a": {}, "b": {}}},
        });
        let entry: RestToolEntry = serde_json::from_value(written).unwrap();
        entry.normalise(ToolName::new("it").unwrap()).unwrap().0
    }

    proptest! {
        #[test]
        fn whatever_is_given_a_request_keeps_its_shape(a in any::<String>(), b in any::<String>()) {
            let (tool, given) = (tool(), RawJson::of(&json!({"a": a, "b": b})));
            let filled = fill(&tool, &Parameters::new(&given, &tool.parameters));
            let may_stand = !matches!(a.as_str(), "" | "." | "..");
            prop_assert_eq!(filled.is_ok(), may_stand);
            let Ok(outgoing) = filled else { return Ok(()) };
            let url = &outgoing.url;
            prop_assert_eq!(url.origin().ascii_serialization(), "https://api.example.org:8443");
            let path: Vec<_> = url.path_segments().unwrap().collect();
            let (encoded, mixed) = (query::encoded(&a), format!("x-{}", query::encoded(&a)));
            prop_assert_eq!(path, ["p", encoded.as_str(), mixed.as_str(), "q"]);
            let pairs: Vec<_> = url.query_pairs().into_owned().collect();
            prop_assert_eq!(pairs, [("k".to_owned(), b.clone()), ("l".to_owned(), "1".to_owned())]);
            let body: Value = serde_json::from_slice(&outgoing.body.as_ref().unwrap().bytes).unwrap();
            prop_assert_eq!(body, json!({"t": format!("<{a}>"), "v": b, "end": true}));
        }
    }
}
