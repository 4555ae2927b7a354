//! The body of a request: which type of content it has, and how it is written.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use indexmap::IndexMap;
use pegboard_json::RawJson;
use serde_json::{Map, Value, json};

use super::library::{Library, Part, Version};
use super::multipart::{self, File};
use super::parameter::{Place, is_json, style};
use super::schema::{Draft, Purpose, Schemas};
use super::style::{Writing, plain};

/// How a body is written.
#[derive(Clone, Debug)]
pub(super) struct Body {
    pub(super) content_type: String,
    pub(super) is_required: bool,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Json,
    Form(IndexMap<String, Encoding>),
    Multipart(IndexMap<String, Encoding>),
    /// A text as it is; what is no text is JSON.
    Text,
    /// A text, or bytes in base64.
    Bytes,
}

/// How one property of a form is written.
#[derive(Clone, Debug, Default)]
struct Encoding {
    writing: Option<Writing>,
    content_type: Option<String>,
}

/// A body with its schema, and words about it.
pub(super) type Described = (Body, Draft);

/// Reads the body of an operation in OpenAPI 3.
pub(super) fn read<'l>(
    library: &'l Library,
    schemas: &mut Schemas<'l>,
    operation: Part<'l>,
) -> Result<Option<Described>, String> {
    let Some(body) = operation.get("requestBody") else { return Ok(None) };
    let body = library.follow(body)?;
    let content: Vec<(&str, Part<'l>)> = body.get("content").into_iter().flat_map(Part::members).collect();
    let Some((media, content)) = content.into_iter().min_by_key(|(media, _)| rank(media)) else {
        return Ok(None);
    };
    let content = library.follow(content)?;
    let media = if media.contains('*') { "application/json" } else { media };
    let kind = match rank(media) {
        0 => Kind::Json,
        1 => Kind::Form(encodings(content, library)?),
        2 => Kind::Multipart(encodings(content, library)?),
        3 | 4 => Kind::Text,
        _ => Kind::Bytes,
    };
    let purpose = match kind {
        Kind::Multipart(_) | Kind::Bytes => Purpose::Upload,
        Kind::Json | Kind::Form(_) | Kind::Text => Purpose::Request,
    };
    let mut draft = match (&kind, content.get("schema")) {
        (Kind::Bytes, _) => Draft::plain(super::schema::file_schema()),
        (_, Some(schema)) => schemas.draft(schema, purpose)?,
        (Kind::Text, None) => Draft::plain(json!({"type": "string"})),
        (Kind::Form(_) | Kind::Multipart(_), None) => Draft::plain(json!({"type": "object"})),
        (Kind::Json, None) => Draft::plain(json!({})),
    };
    if let Some(description) = body.text("description").filter(|text| !text.trim().is_empty()) {
        draft.describe(description.trim());
    }
    let is_required = body.says("required");
    Ok(Some((Body { content_type: media.to_owned(), is_required, kind }, draft)))
}

/// Reads the body of an operation in OpenAPI 2: one parameter that is the body, or several that are a form.
pub(super) fn read_v2<'l>(
    library: &'l Library,
    schemas: &mut Schemas<'l>,
    operation: Part<'l>,
    parameters: &[Part<'l>],
) -> Result<Option<Described>, String> {
    let consumes = operation.get("consumes").or_else(|| library.root().get("consumes"));
    let consumes: Vec<&str> =
        consumes.into_iter().flat_map(Part::items).filter_map(|media| media.value.as_str()).collect();
    if let Some(body) = parameters.iter().find(|parameter| parameter.text("in") == Some("body")) {
        let media = consumes.iter().copied().min_by_key(|media| rank(media)).unwrap_or("application/json");
        // A body of its own is never a form there, whatever else the service takes.
        let (media, kind) = match rank(media) {
            3 | 4 => (media, Kind::Text),
            5 => (media, Kind::Bytes),
            _ if is_json(media) => (media, Kind::Json),
            _ => ("application/json", Kind::Json),
        };
        let mut draft = match body.get("schema") {
            Some(schema) => schemas.draft(schema, Purpose::Request)?,
            None => Draft::plain(json!({})),
        };
        if let Some(description) = body.text("description").filter(|text| !text.trim().is_empty()) {
            draft.describe(description.trim());
        }
        let is_required = body.says("required");
        return Ok(Some((Body { content_type: media.to_owned(), is_required, kind }, draft)));
    }
    let fields: Vec<&Part<'l>> =
        parameters.iter().filter(|parameter| parameter.text("in") == Some("formData")).collect();
    if fields.is_empty() {
        return Ok(None);
    }
    let has_file = fields.iter().any(|field| field.text("type") == Some("file"));
    let is_form = !has_file && !consumes.contains(&"multipart/form-data");
    let (mut properties, mut required, mut encodings) = (Vec::new(), Vec::new(), IndexMap::new());
    for field in fields {
        let name = field.text("name").ok_or("a field of the form has no name")?;
        properties.push((name.to_owned(), schemas.draft(*field, Purpose::Upload)?));
        if field.says("required") {
            required.push(name.to_owned());
        }
        let explode = field.text("collectionFormat") == Some("multi");
        let writing =
            Some(Writing { explode, ..Writing::FORM }).filter(|_| field.text("type") == Some("array"));
        encodings.insert(name.to_owned(), Encoding { writing, content_type: None });
    }
    let is_required = !required.is_empty();
    let (content_type, kind) = if is_form {
        ("application/x-www-form-urlencoded", Kind::Form(encodings))
    } else {
        ("multipart/form-data", Kind::Multipart(encodings))
    };
    let body = Body { content_type: content_type.to_owned(), is_required, kind };
    Ok(Some((body, Draft::object(properties, required))))
}

/// Which of several types of content is taken: the lowest.
fn rank(media: &str) -> usize {
    let essence = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        media if is_json(media) => 0,
        "*/*" | "application/*" => 0,
        "application/x-www-form-urlencoded" => 1,
        "multipart/form-data" => 2,
        "text/plain" | "text/*" => 3,
        media if media.starts_with("text/") || media.ends_with("xml") || media.ends_with("yaml") => 4,
        _ => 5,
    }
}

fn encodings<'l>(content: Part<'l>, library: &'l Library) -> Result<IndexMap<String, Encoding>, String> {
    let mut encodings = IndexMap::new();
    if library.version == Version::V2 {
        return Ok(encodings);
    }
    for (name, encoding) in content.get("encoding").into_iter().flat_map(Part::members) {
        let has_style = ["style", "explode", "allowReserved"].iter().any(|word| encoding.get(word).is_some());
        let writing = has_style.then(|| style(encoding, Place::Query)).transpose()?;
        let first = |list: &str| list.split(',').next().unwrap_or_default().trim().to_owned();
        let content_type = encoding.text("contentType").map(first).filter(|media| !media.contains('*'));
        encodings.insert(name.to_owned(), Encoding { writing, content_type });
    }
    Ok(encodings)
}

impl Body {
    /// Whether files may stand in it.
    pub(super) fn takes_files(&self) -> bool {
        matches!(self.kind, Kind::Multipart(_) | Kind::Bytes)
    }

    /// The type of content and the bytes of a body, or what is wrong with the value.
    pub(super) fn write(&self, value: &RawJson) -> Result<(String, Bytes), String> {
        match &self.kind {
            // What the caller wrote goes out as it is, so that no number changes on the way.
            Kind::Json => Ok((self.content_type.clone(), Bytes::copy_from_slice(value.as_bytes()))),
            Kind::Form(encodings) => {
                let pairs = members(value)?
                    .into_iter()
                    .flat_map(|(name, value)| field_pairs(encodings, &name, &value));
                let pairs: Vec<String> = pairs.map(|(name, value)| format!("{name}={value}")).collect();
                Ok((self.content_type.clone(), pairs.join("&").into()))
            }
            Kind::Multipart(encodings) => {
                let mut parts = Vec::new();
                for (name, value) in members(value)? {
                    let encoding = encodings.get(&name).cloned().unwrap_or_default();
                    // Each item of a list is a part of its own.
                    let values = match value {
                        Value::Array(items) => items,
                        value => vec![value],
                    };
                    for value in values {
                        parts.push(multipart::Part { name: name.clone(), file: as_file(&value, &encoding)? });
                    }
                }
                multipart::write(&parts)
            }
            Kind::Text => Ok((self.content_type.clone(), plain(&value.to_value()).into_owned().into())),
            Kind::Bytes => {
                let file = as_file(&value.to_value(), &Encoding::default())?;
                let content_type = file.content_type.filter(|_| value.is_object());
                Ok((content_type.unwrap_or_else(|| self.content_type.clone()), file.bytes))
            }
        }
    }
}

fn members(value: &RawJson) -> Result<Map<String, Value>, String> {
    match value.to_value() {
        Value::Object(members) => Ok(members),
        _ => Err("the body of this operation is an object".to_owned()),
    }
}

/// One property of a form: in its style, or as a text, a list of texts, or JSON.
fn field_pairs(encodings: &IndexMap<String, Encoding>, name: &str, value: &Value) -> Vec<(String, String)> {
    let encoding = encodings.get(name);
    if let Some(writing) = encoding.and_then(|encoding| encoding.writing) {
        return writing.pairs(name, value);
    }
    let wants_json = encoding.and_then(|encoding| encoding.content_type.as_deref()).is_some_and(is_json);
    if wants_json || value.is_object() {
        return Writing::FORM.pairs(name, &value.to_string().into());
    }
    Writing::FORM.pairs(name, value)
}

/// A value as a part of a body: bytes with a name and a type, or what it is as a text.
fn as_file(value: &Value, encoding: &Encoding) -> Result<File, String> {
    let text = |member: &str| value.get(member).and_then(Value::as_str);
    if let Some(base64) = text("base64") {
        let compact: String = base64.split_ascii_whitespace().collect();
        let bytes = BASE64.decode(compact).map_err(|_| "a file's 'base64' is no base64")?;
        return Ok(File {
            bytes: bytes.into(),
            filename: Some(text("filename").unwrap_or("file").to_owned()),
            content_type: Some(
                text("contentType")
                    .or(encoding.content_type.as_deref())
                    .unwrap_or("application/octet-stream")
                    .to_owned(),
            ),
        });
    }
    let is_json = value.is_object() || encoding.content_type.as_deref().is_some_and(is_json);
    let content_type =
        encoding.content_type.clone().or_else(|| is_json.then(|| "application/json".to_owned()));
    let written = if is_json { value.to_string() } else { plain(value).into_owned() };
    Ok(File { bytes: written.into(), filename: None, content_type })
}
