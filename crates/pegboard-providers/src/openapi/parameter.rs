//! One parameter of an operation: what it is called, where it stands in a request, and how it is written there.

use serde_json::Value;

use super::library::{Library, Part, Version};
use super::schema::{Draft, Purpose, Schemas};
use super::style::{Escape, Style, Writing, plain};

/// Headers that are not for parameters: others decide them.
const NOT_FOR_PARAMETERS: [&str; 8] = [
    "accept",
    "content-type",
    "authorization",
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
];

/// One parameter of an operation.
#[derive(Clone, Debug)]
pub(super) struct Parameter {
    /// What the service calls it.
    pub(super) name: String,
    /// What the tool calls it.
    pub(super) argument: String,
    pub(super) place: Place,
    pub(super) is_required: bool,
    pub(super) form: Form,
}

/// Where a parameter stands in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Path,
    Query,
    /// It is the whole query.
    WholeQuery,
    Header,
    Cookie,
}

impl Place {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::WholeQuery => "querystring",
            Self::Header => "header",
            Self::Cookie => "cookie",
        }
    }
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// In a style.
    Styled(Writing),
    /// As JSON.
    Json,
    /// As the text that it is.
    Text,
}

impl Parameter {
    /// The value as one text: for paths and headers.
    pub(super) fn text(&self, value: &Value) -> String {
        let escape = if self.place == Place::Header { Escape::Nothing } else { Escape::Reserved };
        match self.form {
            Form::Styled(writing) => writing.text(&self.name, value),
            Form::Json => escape.apply(&value.to_string()).into_owned(),
            Form::Text => escape.apply(&plain(value)).into_owned(),
        }
    }

    /// The value as pairs of names and values: for queries and cookies.
    pub(super) fn pairs(&self, value: &Value) -> Vec<(String, String)> {
        match self.form {
            Form::Styled(writing) => writing.pairs(&self.name, value),
            Form::Json | Form::Text => {
                vec![(Escape::Reserved.apply(&self.name).into_owned(), self.text(value))]
            }
        }
    }
}

/// A parameter as it stands in a document, with its schema; or why it is passed over.
pub(super) enum Found {
    Parameter(Parameter, Draft),
    PassedOver(String),
}

/// Reads one parameter.
pub(super) fn read<'l>(
    library: &'l Library,
    schemas: &mut Schemas<'l>,
    part: Part<'l>,
) -> Result<Found, String> {
    let name = part.text("name").filter(|name| !name.is_empty()).ok_or("a parameter has no name")?;
    let place = match part.text("in") {
        Some("path") => Place::Path,
        Some("query") => Place::Query,
        Some("querystring") => Place::WholeQuery,
        Some("header") => Place::Header,
        Some("cookie") => Place::Cookie,
        other => return Err(format!("the parameter '{name}' stands in '{}'", other.unwrap_or_default())),
    };
    if place == Place::Header && NOT_FOR_PARAMETERS.contains(&name.to_ascii_lowercase().as_str()) {
        return Ok(Found::PassedOver(format!("the header '{name}' is not set by a parameter")));
    }
    let (form, schema) = match part.get("content").and_then(|content| content.members().next()) {
        Some((media, content)) => {
            let form = match (place, media) {
                (Place::WholeQuery, "application/x-www-form-urlencoded") => Form::Styled(Writing::FORM),
                (_, media) if is_json(media) => Form::Json,
                _ => Form::Text,
            };
            (form, content.get("schema"))
        }
        None if library.version == Version::V2 => (Form::Styled(collection(part, place)), Some(part)),
        None => (Form::Styled(style(part, place)?), part.get("schema")),
    };
    let mut draft = match schema {
        Some(schema) => schemas.draft(schema, Purpose::Request)?,
        None => Draft::plain(serde_json::json!({})),
    };
    if let Some(description) = part.text("description").filter(|text| !text.trim().is_empty()) {
        draft.describe(description.trim());
    }
    let parameter = Parameter {
        name: name.to_owned(),
        argument: name.to_owned(),
        place,
        is_required: place == Place::Path || part.says("required"),
        form,
    };
    Ok(Found::Parameter(parameter, draft))
}

/// Whether a type of content is JSON.
pub(super) fn is_json(media: &str) -> bool {
    let essence = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json") || essence == "text/json"
}

/// The style of a parameter, or of a property of a form.
pub(super) fn style(part: Part<'_>, place: Place) -> Result<Writing, String> {
    let escape = match place {
        Place::Header => Escape::Nothing,
        Place::Query | Place::WholeQuery if part.says("allowReserved") => Escape::Delimiting,
        Place::Path | Place::Query | Place::WholeQuery | Place::Cookie => Escape::Reserved,
    };
    let usual = match place {
        Place::Path | Place::Header => "simple",
        Place::Query | Place::WholeQuery | Place::Cookie => "form",
    };
    let word = part.text("style").unwrap_or(usual);
    let (style, delimiter) = match (word, place) {
        ("simple", Place::Path | Place::Header) => (Style::Simple, ','),
        ("label", Place::Path) => (Style::Label, ','),
        ("matrix", Place::Path) => (Style::Matrix, ','),
        ("form", Place::Query | Place::WholeQuery | Place::Cookie) | ("cookie", Place::Cookie) => {
            (Style::Form, ',')
        }
        ("spaceDelimited", Place::Query) => (Style::Form, ' '),
        ("pipeDelimited", Place::Query) => (Style::Form, '|'),
        ("deepObject", Place::Query) => (Style::Deep, ','),
        (word, place) => return Err(format!("there is no style '{word}' in the {}", place.as_str())),
    };
    let explode = part.get("explode").and_then(|explode| explode.value.as_bool());
    Ok(Writing { style, explode: explode.unwrap_or(matches!(word, "form" | "cookie")), delimiter, escape })
}

/// The same, as 2.0 has it.
fn collection(part: Part<'_>, place: Place) -> Writing {
    let usual = match place {
        Place::Path => Writing::SIMPLE,
        Place::Header => Writing { escape: Escape::Nothing, ..Writing::SIMPLE },
        Place::Query | Place::WholeQuery | Place::Cookie => Writing { explode: false, ..Writing::FORM },
    };
    match part.text("collectionFormat") {
        Some("multi") => Writing { explode: true, ..usual },
        Some("ssv") => Writing { delimiter: ' ', ..usual },
        Some("tsv") => Writing { delimiter: '\t', ..usual },
        Some("pipes") => Writing { delimiter: '|', ..usual },
        _ => usual,
    }
}

/// The name that a tool gives a parameter: letters, digits, `_`, `-` and `.`, which every model's interface takes.
pub(super) fn argument_name(name: &str) -> String {
    const MAX_CHARACTERS: usize = 60;
    let mut clean = String::with_capacity(name.len());
    for each in name.chars() {
        match each {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' | '.' => clean.push(each),
            _ if clean.is_empty() || clean.ends_with('_') => {}
            _ => clean.push('_'),
        }
    }
    let clean = clean.trim_end_matches('_');
    // A name that ends in what was there before stays as it is.
    let clean = if name.ends_with('_') { format!("{clean}_") } else { clean.to_owned() };
    if clean.trim_matches('_').is_empty() {
        "value".to_owned()
    } else {
        clean.chars().take(MAX_CHARACTERS).collect()
    }
}
