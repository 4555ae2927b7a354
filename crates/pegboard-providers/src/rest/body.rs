//! Request bodies, with the types and bytes of the call's arguments.

use bytes::Bytes;
use pegboard_core::error::CallError;
use pegboard_core::settings::rest::{BodyTemplate, DataTemplate, TemplatePart, TextTemplate};
use pegboard_json::RawJson;

use super::parameters::{CallParameters, scalar_text};
use super::query;
use pegboard_http::media_essence;

/// Format of a body, derived from its content type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyFormat {
    Json,
    Form,
    Xml,
    Plain,
}

impl BodyFormat {
    fn of(content_type: &str) -> Self {
        match media_essence(content_type).as_str() {
            "application/x-www-form-urlencoded" => Self::Form,
            kind if kind.ends_with("json") => Self::Json,
            kind if kind.ends_with("xml") => Self::Xml,
            _ => Self::Plain,
        }
    }

    /// Escapes a text for this format.
    fn escape(self, text: &str) -> String {
        match self {
            Self::Json => strip_quotes(RawJson::of(text).as_str()).to_owned(),
            Self::Form => query::percent_encode(text),
            Self::Xml => text
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;")
                .replace('"', "&quot;")
                .replace('\'', "&apos;"),
            Self::Plain => text.to_owned(),
        }
    }
}

/// Fills the body template; `None` if it comes out empty.
pub(super) fn fill(
    template: &BodyTemplate,
    parameters: &CallParameters<'_>,
    content_type: &str,
) -> Result<Option<Bytes>, CallError> {
    let format = BodyFormat::of(content_type);
    let written = match template {
        BodyTemplate::Text(text) => match (text.single_parameter(), format) {
            (Some(name), _) => parameters.get(name)?.map(|value| encode_value(&value, format)),
            (None, BodyFormat::Json) => Some(fill_json_text(text, parameters)?),
            (None, BodyFormat::Form | BodyFormat::Xml | BodyFormat::Plain) => {
                parameters.fill(text, |text| format.escape(text))?
            }
        },
        BodyTemplate::Data(data) => {
            let mut written = String::new();
            write_json(data, parameters, &mut written)?
                .then(|| RawJson::trusted(written.into()))
                .map(|value| encode_value(&value, format))
        }
    };
    Ok(written.map(Bytes::from))
}

/// Encodes a value that is the whole body.
fn encode_value(value: &RawJson, format: BodyFormat) -> String {
    match format {
        BodyFormat::Form if value.is_object() => {
            let mut pairs = Vec::new();
            for (name, member) in value.members() {
                query::add_nested(&mut pairs, &query::percent_encode(&name), &member);
            }
            pairs.join("&")
        }
        BodyFormat::Json => value.as_str().to_owned(),
        BodyFormat::Form | BodyFormat::Xml | BodyFormat::Plain => {
            value.text().map_or_else(|| value.as_str().to_owned(), std::borrow::Cow::into_owned)
        }
    }
}

/// Fills a JSON text. A placeholder between quotes takes a string; any other takes a value.
fn fill_json_text(template: &TextTemplate, parameters: &CallParameters<'_>) -> Result<String, CallError> {
    let mut written = String::new();
    let mut position = JsonPosition::Outside;
    for part in template.parts() {
        match part {
            TemplatePart::Text(text) => {
                position = text.chars().fold(position, JsonPosition::after);
                written.push_str(text);
            }
            TemplatePart::Parameter(name) if position == JsonPosition::Outside => {
                let value = parameters.get(name)?;
                written.push_str(value.as_ref().map_or("null", RawJson::as_str));
            }
            TemplatePart::Parameter(name) => {
                let value = parameters.get(name)?.unwrap_or_else(|| RawJson::of(""));
                // A list or object between quotes becomes a JSON string, as some services expect.
                let text = scalar_text(&value).unwrap_or_else(|| value.as_str().into());
                written.push_str(&BodyFormat::Json.escape(&text));
            }
        }
    }
    Ok(written)
}

/// Position within a JSON text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JsonPosition {
    Outside,
    Quoted,
    Escaped,
}

impl JsonPosition {
    fn after(self, character: char) -> Self {
        match (self, character) {
            (Self::Outside, '"') | (Self::Escaped, _) => Self::Quoted,
            (Self::Outside, _) | (Self::Quoted, '"') => Self::Outside,
            (Self::Quoted, '\\') => Self::Escaped,
            (Self::Quoted, _) => Self::Quoted,
        }
    }
}

/// Writes a value. Returns `false` and writes nothing if the value is omitted.
fn write_json(
    template: &DataTemplate,
    parameters: &CallParameters<'_>,
    out: &mut String,
) -> Result<bool, CallError> {
    match template {
        DataTemplate::Constant(value) => out.push_str(RawJson::of(value).as_str()),
        DataTemplate::Text(text) => {
            let value = match text.single_parameter() {
                Some(name) => parameters.get(name)?,
                None => parameters.fill(text, str::to_owned)?.map(|text| RawJson::of(&text)),
            };
            let Some(value) = value else { return Ok(false) };
            out.push_str(value.as_str());
        }
        DataTemplate::List(items) => {
            out.push('[');
            for item in items {
                let mut written = String::new();
                if write_json(item, parameters, &mut written)? {
                    separate(out, '[');
                    out.push_str(&written);
                }
            }
            out.push(']');
        }
        DataTemplate::Object(members) => {
            out.push('{');
            for (name, member) in members {
                let mut written = String::new();
                if write_json(member, parameters, &mut written)? {
                    separate(out, '{');
                    out.push_str(RawJson::of(name).as_str());
                    out.push(':');
                    out.push_str(&written);
                }
            }
            out.push('}');
        }
    }
    Ok(true)
}

/// Writes a comma, unless the list is empty.
fn separate(out: &mut String, open: char) {
    if !out.ends_with(open) {
        out.push(',');
    }
}

/// Removes the quotes of a JSON string.
fn strip_quotes(json: &str) -> &str {
    json.strip_prefix('"').and_then(|json| json.strip_suffix('"')).unwrap_or(json)
}
