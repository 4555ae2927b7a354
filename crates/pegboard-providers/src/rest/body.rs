//! What is sent with a request, in the types and the bytes that a call gave.

use bytes::Bytes;
use pegboard_core::error::CallError;
use pegboard_core::settings::rest::{BodyTemplate, DataTemplate, Part, Template};
use pegboard_json::RawJson;

use super::parameters::{Parameters, scalar};
use super::query;

/// How a body is written, by its content type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Notation {
    Json,
    Form,
    Xml,
    Plain,
}

impl Notation {
    fn of(content_type: &str) -> Self {
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "application/x-www-form-urlencoded" => Self::Form,
            kind if kind.ends_with("json") => Self::Json,
            kind if kind.ends_with("xml") => Self::Xml,
            _ => Self::Plain,
        }
    }

    /// A text so that it stays one in a body of this notation.
    fn quoted(self, text: &str) -> String {
        match self {
            Self::Json => unquoted(RawJson::of(text).as_str()).to_owned(),
            Self::Form => query::encoded(text),
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

/// The body of a request; `None` if all of it is left out.
pub(super) fn fill(
    template: &BodyTemplate,
    parameters: &Parameters<'_>,
    content_type: &str,
) -> Result<Option<Bytes>, CallError> {
    let notation = Notation::of(content_type);
    let written = match template {
        BodyTemplate::Text(text) => match (text.sole(), notation) {
            (Some(name), _) => parameters.get(name)?.map(|value| whole(&value, notation)),
            (None, Notation::Json) => Some(json_text(text, parameters)?),
            (None, Notation::Form | Notation::Xml | Notation::Plain) => {
                parameters.fill(text, |text| notation.quoted(text))?
            }
        },
        BodyTemplate::Data(data) => {
            let mut written = String::new();
            write(data, parameters, &mut written)?
                .then(|| RawJson::trusted(written.into()))
                .map(|value| whole(&value, notation))
        }
    };
    Ok(written.map(Bytes::from))
}

/// A value that is the whole body.
fn whole(value: &RawJson, notation: Notation) -> String {
    match notation {
        Notation::Form if value.is_object() => {
            let mut pairs = Vec::new();
            for (name, member) in value.members() {
                query::add_nested(&mut pairs, &query::encoded(&name), &member);
            }
            pairs.join("&")
        }
        Notation::Json => value.as_str().to_owned(),
        Notation::Form | Notation::Xml | Notation::Plain => {
            value.text().map_or_else(|| value.as_str().to_owned(), std::borrow::Cow::into_owned)
        }
    }
}

/// A text that is JSON. A place between quotes takes a text, and stays one; any other takes a value.
fn json_text(template: &Template, parameters: &Parameters<'_>) -> Result<String, CallError> {
    let mut written = String::new();
    let mut place = Place::Outside;
    for part in template.parts() {
        match part {
            Part::Text(text) => {
                place = text.chars().fold(place, Place::after);
                written.push_str(text);
            }
            Part::Parameter(name) if place == Place::Outside => {
                let value = parameters.get(name)?;
                written.push_str(value.as_ref().map_or("null", RawJson::as_str));
            }
            Part::Parameter(name) => {
                let value = parameters.get(name)?.unwrap_or_else(|| RawJson::of(""));
                // A list or an object between quotes is its own text, as some services want it.
                let text = scalar(&value).unwrap_or_else(|| value.as_str().into());
                written.push_str(&Notation::Json.quoted(&text));
            }
        }
    }
    Ok(written)
}

/// Where in JSON a character stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Outside,
    Quoted,
    Escaped,
}

impl Place {
    fn after(self, character: char) -> Self {
        match (self, character) {
            (Self::Outside, '"') | (Self::Escaped, _) => Self::Quoted,
            (Self::Outside, _) | (Self::Quoted, '"') => Self::Outside,
            (Self::Quoted, '\\') => Self::Escaped,
            (Self::Quoted, _) => Self::Quoted,
        }
    }
}

/// Writes a value; `false`, and nothing is written, if it is left out.
fn write(template: &DataTemplate, parameters: &Parameters<'_>, out: &mut String) -> Result<bool, CallError> {
    match template {
        DataTemplate::Constant(value) => out.push_str(RawJson::of(value).as_str()),
        DataTemplate::Text(text) => {
            let value = match text.sole() {
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
                if write(item, parameters, &mut written)? {
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
                if write(member, parameters, &mut written)? {
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

/// A comma, unless the list has only begun.
fn separate(out: &mut String, open: char) {
    if !out.ends_with(open) {
        out.push(',');
    }
}

/// A text in JSON without its quotes.
fn unquoted(json: &str) -> &str {
    json.strip_prefix('"').and_then(|json| json.strip_suffix('"')).unwrap_or(json)
}
