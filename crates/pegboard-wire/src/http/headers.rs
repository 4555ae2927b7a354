//! The headers that repeat what the body says, so that proxies can route without reading it.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use crate::era::{Revision, claimed_revision};
use crate::message::{Request, RpcError, code};
use pegboard_json::RawJson;

/// The revision that a request is written in.
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The session that a request belongs to.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// What a request asks for.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// The tool, prompt or resource that a request is about.
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The last event that a client has seen.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// The beginning of the headers that repeat a tool's arguments.
const PARAMETER_PREFIX: &str = "mcp-param-";

/// An argument of a tool that a header repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderParameter {
    /// The end of the header's name, after `Mcp-Param-`.
    pub header: String,
    /// Where the argument is.
    pub path: Vec<String>,
}

impl HeaderParameter {
    /// The header's whole name.
    fn name(&self) -> Option<HeaderName> {
        HeaderName::try_from(format!("{PARAMETER_PREFIX}{}", self.header.to_ascii_lowercase())).ok()
    }
}

const SENTINEL_START: &str = "=?base64?";
const SENTINEL_END: &str = "?=";

/// The part of a body that a method's `Mcp-Name` repeats.
pub(crate) fn name_member(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// The headers of a request in the stateless era. `parameters` names the arguments that are repeated.
pub fn for_request(
    revision: Revision,
    method: &str,
    params: Option<&RawJson>,
    parameters: &[HeaderParameter],
) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(revision.as_str()));
    headers.insert(METHOD, encoded(method));
    let name = name_member(method).and_then(|member| params?.get(member));
    if let Some(name) = name.as_ref().and_then(RawJson::text) {
        headers.insert(NAME, encoded(&name));
    }
    for parameter in parameters {
        if let (Some(name), Some((value, _))) = (parameter.name(), argument(params, &parameter.path)) {
            headers.insert(name, encoded(&value));
        }
    }
    headers
}

/// Refuses a request of the stateless era whose headers say something else than its body.
pub fn check(headers: &HeaderMap, request: &Request, parameters: &[HeaderParameter]) -> Result<(), RpcError> {
    if let Some(name) = twice_in(request.params.as_ref(), parameters) {
        return Err(RpcError::new(
            code::HEADER_MISMATCH,
            format!("Header mismatch: the body has '{name}' twice"),
        ));
    }
    let version = claimed_revision(request.params.as_ref());
    let version = version.as_ref().and_then(RawJson::text).unwrap_or_default();
    expect(headers, &PROTOCOL_VERSION, Some(&version), Reading::Text)?;
    expect(headers, &METHOD, Some(&request.method), Reading::Text)?;
    if let Some(member) = name_member(&request.method) {
        let name = request.params.as_ref().and_then(|params| params.get(member));
        if let Some(name) = name.as_ref().and_then(RawJson::text) {
            expect(headers, &NAME, Some(&name), Reading::Text)?;
        }
    }
    for parameter in parameters {
        if let Some(name) = parameter.name() {
            let value = argument(request.params.as_ref(), &parameter.path);
            let reading = if value.as_ref().is_some_and(|(_, reading)| *reading == Reading::Number) {
                Reading::Number
            } else {
                Reading::Text
            };
            expect(headers, &name, value.as_ref().map(|(text, _)| text.as_str()), reading)?;
        }
    }
    Ok(())
}

fn expect(
    headers: &HeaderMap,
    name: &HeaderName,
    expected: Option<&str>,
    reading: Reading,
) -> Result<(), RpcError> {
    let mismatch =
        |problem: String| RpcError::new(code::HEADER_MISMATCH, format!("Header mismatch: {problem}"));
    let mut values = headers.get_all(name).iter();
    let (found, None) = (values.next(), values.next()) else {
        return Err(mismatch(format!("{name} is given more than once")));
    };
    match (found, expected) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err(mismatch(format!("{name} is missing"))),
        (Some(_), None) => Err(mismatch(format!("{name} is given, but the body has no such value"))),
        (Some(found), Some(expected)) => {
            let found = decoded(found).ok_or_else(|| mismatch(format!("{name} cannot be read")))?;
            // `42.0` in a header means 42, where the body has a number.
            let number = found.parse::<f64>().ok().filter(|_| reading == Reading::Number);
            let found = number.and_then(whole_number).unwrap_or(found);
            if found == expected {
                Ok(())
            } else {
                Err(mismatch(format!("{name} does not say what the body says")))
            }
        }
    }
}

/// A member that two readers of the body could read differently.
fn twice_in(params: Option<&RawJson>, parameters: &[HeaderParameter]) -> Option<String> {
    let twice =
        |object: &RawJson, name: &str| object.names().iter().filter(|member| *member == name).count() > 1;
    let params = params?;
    let members = ["_meta", "name", "uri", "taskId", "arguments"];
    if let Some(name) = members.into_iter().find(|name| twice(params, name)) {
        return Some(name.to_owned());
    }
    let arguments = params.get("arguments")?;
    parameters.iter().find_map(|parameter| {
        let mut object = arguments.clone();
        for name in &parameter.path {
            if twice(&object, name) {
                return Some(name.clone());
            }
            object = object.get(name)?;
        }
        None
    })
}

/// How a header's value is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    Text,
    Number,
}

/// The value of an argument as a header spells it; `None` if it is not there or `null`.
fn argument(params: Option<&RawJson>, path: &[String]) -> Option<(String, Reading)> {
    let start = params?.get("arguments")?;
    let value = path.iter().try_fold(start, |value, name| value.get(name))?;
    if let Some(text) = value.text() {
        return Some((text.into_owned(), Reading::Text));
    }
    // However an integer is spelt, a header spells it in one way.
    match value.read::<f64>() {
        Ok(number) => {
            Some((whole_number(number).unwrap_or_else(|| value.as_str().to_owned()), Reading::Number))
        }
        Err(_) if value.as_str() == "null" => None,
        Err(_) => Some((value.as_str().to_owned(), Reading::Text)),
    }
}

/// The decimal digits of a number without a fraction, within what every reader holds exactly.
fn whole_number(number: f64) -> Option<String> {
    const MAX_SAFE: f64 = 9_007_199_254_740_991.0;
    (number.fract() == 0.0 && number.abs() <= MAX_SAFE).then(|| format!("{number:.0}"))
}

/// A value as a header may carry it: as it is if that is safe, and in Base64 otherwise.
pub fn encoded(value: &str) -> HeaderValue {
    let is_plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'))
        && value.trim_ascii() == value
        && !(value.starts_with(SENTINEL_START) && value.ends_with(SENTINEL_END));
    let text = if is_plain {
        Cow::Borrowed(value)
    } else {
        Cow::Owned(format!("{SENTINEL_START}{}{SENTINEL_END}", STANDARD.encode(value)))
    };
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// The value that a header carries; `None` if it is not one.
fn decoded(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok()?;
    let inner = text.strip_prefix(SENTINEL_START).and_then(|rest| rest.strip_suffix(SENTINEL_END));
    match inner {
        None => Some(text.to_owned()),
        Some(inner) => String::from_utf8(STANDARD.decode(inner).ok()?).ok(),
    }
}

/// The arguments of a tool that headers repeat: the name of each header and the path of its argument. A schema that
/// marks what must not be marked is refused with the reason.
pub fn parameters_of(schema: Option<&RawJson>) -> Result<Vec<HeaderParameter>, String> {
    let Some(schema) = schema.map(RawJson::to_value) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    let n_marks = n_marks(&schema);
    if n_marks > 0 {
        collect(&schema, &mut Vec::new(), &mut found)?;
        if found.len() < n_marks {
            return Err("x-mcp-header stands where no plain property is".to_owned());
        }
    }
    let mut names: Vec<String> =
        found.iter().map(|parameter: &HeaderParameter| parameter.header.to_ascii_lowercase()).collect();
    names.sort();
    names.dedup();
    if names.len() < found.len() {
        return Err("two parameters claim the same x-mcp-header".to_owned());
    }
    Ok(found)
}

fn collect(schema: &Value, path: &mut Vec<String>, found: &mut Vec<HeaderParameter>) -> Result<(), String> {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        path.push(name.clone());
        if let Some(mark) = property.get("x-mcp-header") {
            let header = mark.as_str().filter(|header| HeaderName::try_from(*header).is_ok());
            let header = header.ok_or_else(|| format!("the x-mcp-header {mark} is no header name"))?;
            if !matches!(property["type"].as_str(), Some("string" | "integer" | "boolean")) {
                return Err(format!("the x-mcp-header of '{name}' is on no string, integer or boolean"));
            }
            found.push(HeaderParameter { header: header.to_owned(), path: path.clone() });
        }
        collect(property, path, found)?;
        path.pop();
    }
    Ok(())
}

/// How often a schema is marked, wherever that is.
fn n_marks(value: &Value) -> usize {
    match value {
        Value::Object(members) => {
            members.iter().map(|(name, inner)| usize::from(name == "x-mcp-header") + n_marks(inner)).sum()
        }
        Value::Array(items) => items.iter().map(n_marks).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
