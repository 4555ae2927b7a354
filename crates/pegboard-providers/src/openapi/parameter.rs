//! Parameters of an operation: name, location and serialization.

use serde_json::Value;

use super::document_set::{DocumentNode, DocumentSet, OpenApiVersion};
use super::schema::{SchemaConverter, SchemaDraft, SchemaPurpose};
use super::style::{Escape, SerializationStyle, StyleSerializer, scalar_text};
use pegboard_http::media_essence;

/// Headers that parameters may not set.
const IGNORED_HEADERS: [&str; 8] = [
    "accept",
    "content-type",
    "authorization",
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
];

/// Parameter of an operation.
#[derive(Clone, Debug)]
pub(super) struct OperationParameter {
    /// Name used by the service.
    pub(super) name: String,
    /// Name of the tool's argument.
    pub(super) argument: String,
    pub(super) location: ParameterLocation,
    pub(super) is_required: bool,
    pub(super) encoding: ParameterEncoding,
}

/// Location of a parameter in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ParameterLocation {
    Path,
    Query,
    /// The whole query string.
    QueryString,
    Header,
    Cookie,
}

impl ParameterLocation {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::QueryString => "querystring",
            Self::Header => "header",
            Self::Cookie => "cookie",
        }
    }
}

/// Encoding of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParameterEncoding {
    /// In an OpenAPI style.
    Styled(StyleSerializer),
    /// As JSON.
    Json,
    /// As plain text.
    Text,
}

impl OperationParameter {
    /// Serializes a value for a path or header.
    pub(super) fn text(&self, value: &Value) -> String {
        let escape =
            if self.location == ParameterLocation::Header { Escape::Nothing } else { Escape::Reserved };
        match self.encoding {
            ParameterEncoding::Styled(serializer) => serializer.text(&self.name, value),
            ParameterEncoding::Json => escape.apply(&value.to_string()).into_owned(),
            ParameterEncoding::Text => escape.apply(&scalar_text(value)).into_owned(),
        }
    }

    /// Serializes a value for a query or cookie.
    pub(super) fn pairs(&self, value: &Value) -> Vec<(String, String)> {
        match self.encoding {
            ParameterEncoding::Styled(serializer) => serializer.pairs(&self.name, value),
            ParameterEncoding::Json | ParameterEncoding::Text => {
                vec![(Escape::Reserved.apply(&self.name).into_owned(), self.text(value))]
            }
        }
    }
}

/// Parsed parameter with its schema, or the reason why it is ignored.
pub(super) enum ParsedParameter {
    Parameter(OperationParameter, SchemaDraft),
    Ignored(String),
}

/// Parses a parameter.
pub(super) fn read<'l>(
    documents: &'l DocumentSet,
    schemas: &mut SchemaConverter<'l>,
    part: DocumentNode<'l>,
) -> Result<ParsedParameter, String> {
    let name = part.text("name").filter(|name| !name.is_empty()).ok_or("a parameter has no name")?;
    let location = match part.text("in") {
        Some("path") => ParameterLocation::Path,
        Some("query") => ParameterLocation::Query,
        Some("querystring") => ParameterLocation::QueryString,
        Some("header") => ParameterLocation::Header,
        Some("cookie") => ParameterLocation::Cookie,
        other => {
            return Err(format!(
                "parameter '{name}' has an invalid location '{}'",
                other.unwrap_or_default()
            ));
        }
    };
    if location == ParameterLocation::Header && IGNORED_HEADERS.contains(&name.to_ascii_lowercase().as_str())
    {
        return Ok(ParsedParameter::Ignored(format!("header '{name}' cannot be set by a parameter")));
    }
    let (encoding, schema) = match part.get("content").and_then(|content| content.members().next()) {
        Some((media, content)) => {
            let encoding = match (location, media) {
                (ParameterLocation::QueryString, "application/x-www-form-urlencoded") => {
                    ParameterEncoding::Styled(StyleSerializer::FORM)
                }
                (_, media) if is_json(media) => ParameterEncoding::Json,
                _ => ParameterEncoding::Text,
            };
            (encoding, content.get("schema"))
        }
        None if documents.version == OpenApiVersion::V2 => {
            (ParameterEncoding::Styled(read_collection_format(part, location)), Some(part))
        }
        None => (ParameterEncoding::Styled(read_style(part, location)?), part.get("schema")),
    };
    let mut draft = match schema {
        Some(schema) => schemas.draft(schema, SchemaPurpose::Request)?,
        None => SchemaDraft::plain(serde_json::json!({})),
    };
    if let Some(description) = part.text("description").filter(|text| !text.trim().is_empty()) {
        draft.describe(description.trim());
    }
    let parameter = OperationParameter {
        name: name.to_owned(),
        argument: name.to_owned(),
        location,
        is_required: location == ParameterLocation::Path || part.is_true("required"),
        encoding,
    };
    Ok(ParsedParameter::Parameter(parameter, draft))
}

/// Returns `true` for JSON media types.
pub(super) fn is_json(media: &str) -> bool {
    let essence = media_essence(media);
    essence == "application/json" || essence.ends_with("+json") || essence == "text/json"
}

/// Reads the style of a parameter or form property.
pub(super) fn read_style(
    part: DocumentNode<'_>,
    location: ParameterLocation,
) -> Result<StyleSerializer, String> {
    let escape = match location {
        ParameterLocation::Header => Escape::Nothing,
        ParameterLocation::Query | ParameterLocation::QueryString if part.is_true("allowReserved") => {
            Escape::Delimiting
        }
        ParameterLocation::Path
        | ParameterLocation::Query
        | ParameterLocation::QueryString
        | ParameterLocation::Cookie => Escape::Reserved,
    };
    let usual = match location {
        ParameterLocation::Path | ParameterLocation::Header => "simple",
        ParameterLocation::Query | ParameterLocation::QueryString | ParameterLocation::Cookie => "form",
    };
    let word = part.text("style").unwrap_or(usual);
    let (style, delimiter) = match (word, location) {
        ("simple", ParameterLocation::Path | ParameterLocation::Header) => (SerializationStyle::Simple, ','),
        ("label", ParameterLocation::Path) => (SerializationStyle::Label, ','),
        ("matrix", ParameterLocation::Path) => (SerializationStyle::Matrix, ','),
        ("form", ParameterLocation::Query | ParameterLocation::QueryString | ParameterLocation::Cookie)
        | ("cookie", ParameterLocation::Cookie) => (SerializationStyle::Form, ','),
        ("spaceDelimited", ParameterLocation::Query) => (SerializationStyle::Form, ' '),
        ("pipeDelimited", ParameterLocation::Query) => (SerializationStyle::Form, '|'),
        ("deepObject", ParameterLocation::Query) => (SerializationStyle::Deep, ','),
        (word, location) => {
            return Err(format!("style '{word}' is not allowed in the {}", location.as_str()));
        }
    };
    let explode = part.get("explode").and_then(|explode| explode.value.as_bool());
    Ok(StyleSerializer {
        style,
        explode: explode.unwrap_or(matches!(word, "form" | "cookie")),
        delimiter,
        escape,
    })
}

/// Reads the `collectionFormat` of OpenAPI 2.0.
fn read_collection_format(part: DocumentNode<'_>, location: ParameterLocation) -> StyleSerializer {
    let usual = match location {
        ParameterLocation::Path => StyleSerializer::SIMPLE,
        ParameterLocation::Header => StyleSerializer { escape: Escape::Nothing, ..StyleSerializer::SIMPLE },
        ParameterLocation::Query | ParameterLocation::QueryString | ParameterLocation::Cookie => {
            StyleSerializer { explode: false, ..StyleSerializer::FORM }
        }
    };
    match part.text("collectionFormat") {
        Some("multi") => StyleSerializer { explode: true, ..usual },
        Some("ssv") => StyleSerializer { delimiter: ' ', ..usual },
        Some("tsv") => StyleSerializer { delimiter: '\t', ..usual },
        Some("pipes") => StyleSerializer { delimiter: '|', ..usual },
        _ => usual,
    }
}

/// Returns the argument name for a parameter: letters, digits, `_`, `-` and `.`, which every model API
/// accepts.
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
    // A trailing underscore of the original name is kept.
    let clean = if name.ends_with('_') { format!("{clean}_") } else { clean.to_owned() };
    if clean.trim_matches('_').is_empty() {
        "value".to_owned()
    } else {
        clean.chars().take(MAX_CHARACTERS).collect()
    }
}
