//! Headers that mirror parts of the body, so that proxies can route without parsing it.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memmem;
use serde_json::Value;

use crate::era::Revision;
use crate::http::received_headers::NamedHeaders;
use crate::message::{Request, RpcError, code};
use pegboard_json::RawJson;

/// The protocol revision of a request.
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The session of a request.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The method of a request.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// The tool, prompt or resource that a request names.
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The id of the last event that a client received.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Prefix of headers that mirror tool arguments.
pub(crate) const PARAMETER_PREFIX: &str = "mcp-param-";

/// A tool argument mirrored in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderParameter {
    /// The header name after `Mcp-Param-`.
    pub header: String,
    /// Path of the argument.
    pub path: Vec<String>,
}

impl HeaderParameter {
    /// Returns the full header name.
    fn name(&self) -> Option<HeaderName> {
        HeaderName::try_from(format!("{PARAMETER_PREFIX}{}", self.header.to_ascii_lowercase())).ok()
    }
}

/// Method of a tool call.
const TOOL_CALL: &str = "tools/call";

/// Keyword of a schema for an argument that is mirrored in a header.
const MARK: &str = "x-mcp-header";

const SENTINEL_START: &str = "=?base64?";
const SENTINEL_END: &str = "?=";

/// Returns the member of `params` that `Mcp-Name` mirrors for a method.
pub(crate) fn name_member(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// The headers of a stateless request that mirror its body.
#[derive(Debug)]
pub(crate) struct MirroredHeaders {
    revision: Revision,
    method: HeaderValue,
    name: Option<HeaderValue>,
    parameters: Vec<(HeaderName, HeaderValue)>,
}

impl MirroredHeaders {
    /// Returns the headers of a request. `parameters` lists the mirrored arguments.
    pub(crate) fn of(
        revision: Revision,
        method: &str,
        params: Option<&RawJson>,
        parameters: Option<&[HeaderParameter]>,
    ) -> Self {
        let name = name_member(method).and_then(|member| params?.get(member));
        let name = name.as_ref().and_then(RawJson::text).map(|name| encode_value(&name));
        let value = |parameter: &HeaderParameter| {
            let (value, _) = header_argument(params, &parameter.path)?;
            Some((parameter.name()?, encode_value(&value)))
        };
        let parameters = parameters.into_iter().flatten().filter_map(value).collect();
        Self { revision, method: method_value(method), name, parameters }
    }

    /// Returns `true` if the request is a call of a tool with a name.
    pub(crate) fn is_tool_call(&self) -> bool {
        self.method == TOOL_CALL && self.name.is_some()
    }

    /// Sets the headers that all requests with this method have in common.
    pub(crate) fn set_common(&self, headers: &mut HeaderMap) {
        headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(self.revision.as_str()));
        headers.insert(METHOD, self.method.clone());
    }

    /// Returns what the request names.
    pub(crate) fn name(&self) -> Option<&HeaderValue> {
        self.name.as_ref()
    }

    /// Returns `true` if arguments of the request are mirrored.
    pub(crate) fn has_parameters(&self) -> bool {
        !self.parameters.is_empty()
    }

    /// Sets the headers of this request alone.
    pub(crate) fn set_own(&self, headers: &mut HeaderMap) {
        if let Some(name) = &self.name {
            headers.insert(NAME, name.clone());
        }
        for (name, value) in &self.parameters {
            headers.insert(name.clone(), value.clone());
        }
    }
}

/// Sets the headers of `own`, in place of those with the same names.
pub(crate) fn set_all(headers: &mut HeaderMap, own: &HeaderMap) {
    let mut last = None;
    for (name, value) in own {
        if last == Some(name) {
            headers.append(name.clone(), value.clone());
        } else {
            headers.insert(name.clone(), value.clone());
        }
        last = Some(name);
    }
}

/// Encodes a method; the one of every call needs no allocation.
fn method_value(method: &str) -> HeaderValue {
    if method == TOOL_CALL { HeaderValue::from_static(TOOL_CALL) } else { encode_value(method) }
}

/// Rejects a stateless request with headers that contradict its body, which claims this revision. `parameters`
/// returns the mirrored arguments of a tool.
pub(crate) fn check(
    headers: &impl NamedHeaders,
    request: &Request,
    revision: &str,
    parameters: impl FnOnce(&str) -> Vec<HeaderParameter>,
) -> Result<(), RpcError> {
    let params = request.params.as_ref();
    let name = name_member(&request.method).and_then(|member| params?.get(member));
    let name = name.as_ref().and_then(RawJson::text);
    let parameters = match &name {
        Some(tool) if &*request.method == TOOL_CALL => parameters(tool),
        _ => Vec::new(),
    };
    if let Some(name) = duplicate_member(params, &parameters) {
        return Err(RpcError::new(
            code::HEADER_MISMATCH,
            format!("Header mismatch: duplicate member '{name}' in the body"),
        ));
    }
    expect(headers, &PROTOCOL_VERSION, Some(revision), ArgumentKind::Text)?;
    expect(headers, &METHOD, Some(&request.method), ArgumentKind::Text)?;
    if let Some(name) = &name {
        expect(headers, &NAME, Some(name), ArgumentKind::Text)?;
    }
    for parameter in &parameters {
        if let Some(name) = parameter.name() {
            let value = header_argument(params, &parameter.path);
            let kind = if value.as_ref().is_some_and(|(_, kind)| *kind == ArgumentKind::Number) {
                ArgumentKind::Number
            } else {
                ArgumentKind::Text
            };
            expect(headers, &name, value.as_ref().map(|(text, _)| text.as_str()), kind)?;
        }
    }
    Ok(())
}

fn expect(
    headers: &impl NamedHeaders,
    name: &HeaderName,
    expected: Option<&str>,
    kind: ArgumentKind,
) -> Result<(), RpcError> {
    let mismatch =
        |problem: String| RpcError::new(code::HEADER_MISMATCH, format!("Header mismatch: {problem}"));
    let Ok(found) = headers.only(name) else {
        return Err(mismatch(format!("{name} occurs more than once")));
    };
    match (found, expected) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err(mismatch(format!("{name} is missing"))),
        (Some(_), None) => Err(mismatch(format!("{name} is present, but the body has no such value"))),
        // As most values are written.
        (Some(found), Some(expected))
            if found == expected.as_bytes()
                && found.is_ascii()
                && !found.starts_with(SENTINEL_START.as_bytes()) =>
        {
            Ok(())
        }
        (Some(found), Some(expected)) => {
            let found = decode_value(found).ok_or_else(|| mismatch(format!("{name} cannot be read")))?;
            // `42.0` in a header means 42 if the body has a number.
            let number = if kind == ArgumentKind::Number { found.parse::<f64>().ok() } else { None };
            let found = number.and_then(integer_text).map_or(found, Cow::Owned);
            if found == expected { Ok(()) } else { Err(mismatch(format!("{name} does not match the body"))) }
        }
    }
}

/// Finds a duplicate member, which two parsers could read differently.
fn duplicate_member(params: Option<&RawJson>, parameters: &[HeaderParameter]) -> Option<String> {
    let params = params?;
    if let Some(name) = params.first_repeated(["_meta", "name", "uri", "taskId", "arguments"]) {
        return Some(name.to_owned());
    }
    if parameters.is_empty() {
        return None;
    }
    let arguments = params.get("arguments")?;
    parameters.iter().find_map(|parameter| {
        let mut object = arguments.clone();
        for name in &parameter.path {
            if object.first_repeated([name]).is_some() {
                return Some(name.clone());
            }
            object = object.get(name)?;
        }
        None
    })
}

/// Comparison mode of a mirrored argument.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ArgumentKind {
    Text,
    Number,
}

/// Returns an argument as a header value; `None` if it is missing or `null`.
fn header_argument(params: Option<&RawJson>, path: &[String]) -> Option<(String, ArgumentKind)> {
    let start = params?.get("arguments")?;
    let value = path.iter().try_fold(start, |value, name| value.get(name))?;
    if let Some(text) = value.text() {
        return Some((text.into_owned(), ArgumentKind::Text));
    }
    // However an integer is written in JSON, its header form is canonical.
    match value.read::<f64>() {
        Ok(number) => {
            Some((integer_text(number).unwrap_or_else(|| value.as_str().to_owned()), ArgumentKind::Number))
        }
        Err(_) if value.as_str() == "null" => None,
        Err(_) => Some((value.as_str().to_owned(), ArgumentKind::Text)),
    }
}

/// Formats a number without a fraction, if every JSON parser represents it exactly.
fn integer_text(number: f64) -> Option<String> {
    const MAX_SAFE: f64 = 9_007_199_254_740_991.0;
    (number.fract() == 0.0 && number.abs() <= MAX_SAFE).then(|| format!("{number:.0}"))
}

/// Encodes a value as a header value: verbatim if safe, otherwise as Base64.
pub fn encode_value(value: &str) -> HeaderValue {
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

/// Decodes a header value; `None` if it is invalid.
fn decode_value(value: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(value).ok().filter(|text| text.is_ascii())?;
    let inner = text.strip_prefix(SENTINEL_START).and_then(|rest| rest.strip_suffix(SENTINEL_END));
    match inner {
        None => Some(Cow::Borrowed(text)),
        Some(inner) => String::from_utf8(STANDARD.decode(inner).ok()?).ok().map(Cow::Owned),
    }
}

/// Returns the arguments of a tool that are mirrored in headers. An error if the schema has `x-mcp-header`
/// where it is not allowed.
pub fn header_parameters(schema: Option<&RawJson>) -> Result<Vec<HeaderParameter>, String> {
    // Few schemas have annotations, so most need not be parsed. The escape of a letter begins with `\u`.
    let may_have_marks = |schema: &&RawJson| {
        let text = schema.as_bytes();
        memmem::find(text, MARK.as_bytes()).is_some() || memmem::find(text, br"\u").is_some()
    };
    let Some(schema) = schema.filter(may_have_marks).map(RawJson::to_value) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    let n_marks = count_marks(&schema);
    if n_marks > 0 {
        collect_marked(&schema, &mut Vec::new(), &mut found)?;
        if found.len() < n_marks {
            return Err("x-mcp-header is only allowed on a plain property".to_owned());
        }
    }
    let mut names: Vec<String> =
        found.iter().map(|parameter: &HeaderParameter| parameter.header.to_ascii_lowercase()).collect();
    names.sort();
    names.dedup();
    if names.len() < found.len() {
        return Err("two parameters have the same x-mcp-header".to_owned());
    }
    Ok(found)
}

fn collect_marked(
    schema: &Value,
    path: &mut Vec<String>,
    found: &mut Vec<HeaderParameter>,
) -> Result<(), String> {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        path.push(name.clone());
        if let Some(mark) = property.get(MARK) {
            let header = mark.as_str().filter(|header| HeaderName::try_from(*header).is_ok());
            let header = header.ok_or_else(|| format!("x-mcp-header {mark} is not a header name"))?;
            if !matches!(property["type"].as_str(), Some("string" | "integer" | "boolean")) {
                return Err(format!("x-mcp-header of '{name}' requires a string, integer or boolean"));
            }
            found.push(HeaderParameter { header: header.to_owned(), path: path.clone() });
        }
        collect_marked(property, path, found)?;
        path.pop();
    }
    Ok(())
}

/// Counts all `x-mcp-header` keywords in a schema.
fn count_marks(value: &Value) -> usize {
    match value {
        Value::Object(members) => {
            members.iter().map(|(name, inner)| usize::from(name == MARK) + count_marks(inner)).sum()
        }
        Value::Array(items) => items.iter().map(count_marks).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
