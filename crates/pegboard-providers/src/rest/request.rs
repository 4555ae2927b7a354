//! Builds the HTTP request for a call.

use http::header::CONTENT_TYPE;
use pegboard_core::error::CallError;
use pegboard_core::settings::rest::{RestTool, TextTemplate};
use reqwest::Url;

use super::parameters::{CallParameters, invalid_parameter};
use super::{body, http_method, query};
use pegboard_http::{WebBody, WebError, WebRequest};

/// Maximum length of a URL. Few services accept longer ones.
const MAX_URL_BYTES: usize = 32 * 1024;

/// Default content type of a body.
const DEFAULT_CONTENT_TYPE: &str = "application/json";

/// Builds the request for a call.
pub(super) fn fill(tool: &RestTool, parameters: &CallParameters<'_>) -> Result<WebRequest, CallError> {
    let mut request = WebRequest::new(http_method(tool), build_url(tool, parameters)?);
    let mut content_type = DEFAULT_CONTENT_TYPE.to_owned();
    for (name, template) in &tool.headers {
        if let Some(value) = parameters.fill(template, str::to_owned)? {
            request.set_header(name, &value).map_err(|error| header_error(template, error))?;
            if name.eq_ignore_ascii_case(CONTENT_TYPE.as_str()) {
                content_type = value;
            }
        }
    }
    let Some(template) = &tool.body else { return Ok(request) };
    Ok(match body::fill(template, parameters, &content_type)? {
        Some(bytes) => request.with_body(WebBody { content_type, bytes }),
        None => request,
    })
}

/// Attributes an invalid header to the argument that caused it.
fn header_error(template: &TextTemplate, error: WebError) -> CallError {
    match template.parameters().next() {
        Some(name) => invalid_parameter(name, &error.to_string()),
        None => error.into(),
    }
}

/// Builds the URL. Arguments can change neither the origin nor the number of path segments.
fn build_url(tool: &RestTool, parameters: &CallParameters<'_>) -> Result<Url, CallError> {
    let mut address = tool.url.origin.clone();
    for segment in &tool.url.path {
        address.push('/');
        address.push_str(&path_segment(segment, parameters)?);
    }
    let mut pairs = Vec::new();
    for pair in &tool.url.query {
        pairs.extend(parameters.fill(pair, query::percent_encode)?);
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
    match too_long.filter(|_| address.len() > MAX_URL_BYTES) {
        Some(name) => Err(invalid_parameter(name, "the URL would exceed 32 KiB; use a shorter value")),
        None => Ok(address.parse().map_err(|_| WebError::InvalidUrl)?),
    }
}

/// Fills one path segment, which is never empty and never `.` or `..`.
fn path_segment(template: &TextTemplate, parameters: &CallParameters<'_>) -> Result<String, CallError> {
    for name in template.parameters() {
        match parameters.text(name)?.as_deref() {
            None => return Err(invalid_parameter(name, "required field missing")),
            Some("") => {
                return Err(invalid_parameter(name, "a path segment must not be empty"));
            }
            Some(_) => {}
        }
    }
    let part = parameters.fill(template, query::percent_encode)?.unwrap_or_default();
    let dots = part.replace("%2e", ".").replace("%2E", ".");
    match template.parameters().next() {
        Some(name) if dots == "." || dots == ".." => {
            Err(invalid_parameter(name, "a path segment must not be . or .."))
        }
        _ => Ok(part),
    }
}

#[cfg(test)]
mod tests {
    use pegboard_config::RestEntry;
    use pegboard_config::settings::RestToolSettings;
    use pegboard_core::id::ToolName;
    use pegboard_core::settings::ToolSettings;
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
        let written: RestToolSettings = serde_json::from_value(written).unwrap();
        match written.resolve(ToolName::new("it").unwrap(), ToolSettings::default()).unwrap() {
            RestEntry::Usable { request, .. } => *request,
            RestEntry::Unusable { .. } => unreachable!("it was resolved"),
        }
    }

    proptest! {
        #[test]
        fn arbitrary_values_keep_the_shape_of_a_request(a in any::<String>(), b in any::<String>()) {
            let (tool, given) = (tool(), RawJson::of(&json!({"a": a, "b": b})));
            let filled = fill(&tool, &CallParameters::new(&given, &tool.parameters));
            let is_valid = !matches!(a.as_str(), "" | "." | "..");
            prop_assert_eq!(filled.is_ok(), is_valid);
            let Ok(request) = filled else { return Ok(()) };
            let url = &request.url;
            prop_assert_eq!(url.origin().ascii_serialization(), "https://api.example.org:8443");
            let path: Vec<_> = url.path_segments().unwrap().collect();
            let (encoded, mixed) = (query::percent_encode(&a), format!("x-{}", query::percent_encode(&a)));
            prop_assert_eq!(path, ["p", encoded.as_str(), mixed.as_str(), "q"]);
            let pairs: Vec<_> = url.query_pairs().into_owned().collect();
            prop_assert_eq!(pairs, [("k".to_owned(), b.clone()), ("l".to_owned(), "1".to_owned())]);
            let body: Value = serde_json::from_slice(&request.body.as_ref().unwrap().bytes).unwrap();
            prop_assert_eq!(body, json!({"t": format!("<{a}>"), "v": b, "end": true}));
        }
    }
}
