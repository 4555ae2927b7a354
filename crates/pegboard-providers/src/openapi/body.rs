//! Request body of an operation: media type, schema and encoding.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use indexmap::IndexMap;
use pegboard_json::RawJson;
use serde_json::{Map, Value, json};

use super::document_set::{DocumentNode, DocumentSet, OpenApiVersion};
use super::multipart::{self, FormFile};
use super::parameter::{ParameterLocation, is_json, read_style};
use super::schema::{SchemaConverter, SchemaDraft, SchemaPurpose};
use super::style::{StyleSerializer, scalar_text};
use pegboard_http::media_essence;

/// Body of an operation.
#[derive(Clone, Debug)]
pub(super) struct OperationBody {
    pub(super) content_type: String,
    pub(super) is_required: bool,
    kind: BodyEncoding,
}

#[derive(Clone, Debug)]
enum BodyEncoding {
    Json,
    Form(IndexMap<String, FieldEncoding>),
    Multipart(IndexMap<String, FieldEncoding>),
    /// A string verbatim; anything else as JSON.
    Text,
    /// A string, or bytes in base64.
    Bytes,
}

/// Encoding of one form property.
#[derive(Clone, Debug, Default)]
struct FieldEncoding {
    serializer: Option<StyleSerializer>,
    content_type: Option<String>,
}

/// Body and its schema.
pub(super) type BodyWithSchema = (OperationBody, SchemaDraft);

/// Reads the body of an operation in OpenAPI 3.
pub(super) fn read<'l>(
    documents: &'l DocumentSet,
    schemas: &mut SchemaConverter<'l>,
    operation: DocumentNode<'l>,
) -> Result<Option<BodyWithSchema>, String> {
    let Some(body) = operation.get("requestBody") else { return Ok(None) };
    let body = documents.follow(body)?;
    let content: Vec<(&str, DocumentNode<'l>)> =
        body.get("content").into_iter().flat_map(DocumentNode::members).collect();
    let Some((media, content)) = content.into_iter().min_by_key(|(media, _)| rank(media)) else {
        return Ok(None);
    };
    let content = documents.follow(content)?;
    let media = if media.contains('*') { "application/json" } else { media };
    let kind = match rank(media) {
        0 => BodyEncoding::Json,
        1 => BodyEncoding::Form(encodings(content, documents)?),
        2 => BodyEncoding::Multipart(encodings(content, documents)?),
        3 | 4 => BodyEncoding::Text,
        _ => BodyEncoding::Bytes,
    };
    let purpose = match kind {
        BodyEncoding::Multipart(_) | BodyEncoding::Bytes => SchemaPurpose::Upload,
        BodyEncoding::Json | BodyEncoding::Form(_) | BodyEncoding::Text => SchemaPurpose::Request,
    };
    let mut draft = match (&kind, content.get("schema")) {
        (BodyEncoding::Bytes, _) => SchemaDraft::plain(super::schema::file_schema()),
        (_, Some(schema)) => schemas.draft(schema, purpose)?,
        (BodyEncoding::Text, None) => SchemaDraft::plain(json!({"type": "string"})),
        (BodyEncoding::Form(_) | BodyEncoding::Multipart(_), None) => {
            SchemaDraft::plain(json!({"type": "object"}))
        }
        (BodyEncoding::Json, None) => SchemaDraft::plain(json!({})),
    };
    if let Some(description) = body.text("description").filter(|text| !text.trim().is_empty()) {
        draft.describe(description.trim());
    }
    let is_required = body.is_true("required");
    Ok(Some((OperationBody { content_type: media.to_owned(), is_required, kind }, draft)))
}

/// Reads the body of an operation in OpenAPI 2: one body parameter, or several form fields.
pub(super) fn read_v2<'l>(
    documents: &'l DocumentSet,
    schemas: &mut SchemaConverter<'l>,
    operation: DocumentNode<'l>,
    parameters: &[DocumentNode<'l>],
) -> Result<Option<BodyWithSchema>, String> {
    let consumes = operation.get("consumes").or_else(|| documents.root().get("consumes"));
    let consumes: Vec<&str> =
        consumes.into_iter().flat_map(DocumentNode::items).filter_map(|media| media.value.as_str()).collect();
    if let Some(body) = parameters.iter().find(|parameter| parameter.text("in") == Some("body")) {
        let media = consumes.iter().copied().min_by_key(|media| rank(media)).unwrap_or("application/json");
        // A body parameter is never a form, whatever else the service accepts.
        let (media, kind) = match rank(media) {
            3 | 4 => (media, BodyEncoding::Text),
            5 => (media, BodyEncoding::Bytes),
            _ if is_json(media) => (media, BodyEncoding::Json),
            _ => ("application/json", BodyEncoding::Json),
        };
        let mut draft = match body.get("schema") {
            Some(schema) => schemas.draft(schema, SchemaPurpose::Request)?,
            None => SchemaDraft::plain(json!({})),
        };
        if let Some(description) = body.text("description").filter(|text| !text.trim().is_empty()) {
            draft.describe(description.trim());
        }
        let is_required = body.is_true("required");
        return Ok(Some((OperationBody { content_type: media.to_owned(), is_required, kind }, draft)));
    }
    let fields: Vec<&DocumentNode<'l>> =
        parameters.iter().filter(|parameter| parameter.text("in") == Some("formData")).collect();
    if fields.is_empty() {
        return Ok(None);
    }
    let has_file = fields.iter().any(|field| field.text("type") == Some("file"));
    let is_form = !has_file && !consumes.contains(&"multipart/form-data");
    let (mut properties, mut required, mut encodings) = (Vec::new(), Vec::new(), IndexMap::new());
    for field in fields {
        let name = field.text("name").ok_or("a form field has no name")?;
        properties.push((name.to_owned(), schemas.draft(*field, SchemaPurpose::Upload)?));
        if field.is_true("required") {
            required.push(name.to_owned());
        }
        let explode = field.text("collectionFormat") == Some("multi");
        let serializer = Some(StyleSerializer { explode, ..StyleSerializer::FORM })
            .filter(|_| field.text("type") == Some("array"));
        encodings.insert(name.to_owned(), FieldEncoding { serializer, content_type: None });
    }
    let is_required = !required.is_empty();
    let (content_type, kind) = if is_form {
        ("application/x-www-form-urlencoded", BodyEncoding::Form(encodings))
    } else {
        ("multipart/form-data", BodyEncoding::Multipart(encodings))
    };
    let body = OperationBody { content_type: content_type.to_owned(), is_required, kind };
    Ok(Some((body, SchemaDraft::object(properties, required))))
}

/// Preference of a media type; the lowest wins.
fn rank(media: &str) -> usize {
    match media_essence(media).as_str() {
        media if is_json(media) => 0,
        "*/*" | "application/*" => 0,
        "application/x-www-form-urlencoded" => 1,
        "multipart/form-data" => 2,
        "text/plain" | "text/*" => 3,
        media if media.starts_with("text/") || media.ends_with("xml") || media.ends_with("yaml") => 4,
        _ => 5,
    }
}

fn encodings<'l>(
    content: DocumentNode<'l>,
    documents: &'l DocumentSet,
) -> Result<IndexMap<String, FieldEncoding>, String> {
    let mut encodings = IndexMap::new();
    if documents.version == OpenApiVersion::V2 {
        return Ok(encodings);
    }
    for (name, encoding) in content.get("encoding").into_iter().flat_map(DocumentNode::members) {
        let has_style = ["style", "explode", "allowReserved"].iter().any(|word| encoding.get(word).is_some());
        let serializer = has_style.then(|| read_style(encoding, ParameterLocation::Query)).transpose()?;
        let first = |list: &str| list.split(',').next().unwrap_or_default().trim().to_owned();
        let content_type = encoding.text("contentType").map(first).filter(|media| !media.contains('*'));
        encodings.insert(name.to_owned(), FieldEncoding { serializer, content_type });
    }
    Ok(encodings)
}

impl OperationBody {
    /// Returns `true` if the body may contain files.
    pub(super) fn takes_files(&self) -> bool {
        matches!(self.kind, BodyEncoding::Multipart(_) | BodyEncoding::Bytes)
    }

    /// Encodes a value; returns the content type and the bytes.
    pub(super) fn write(&self, value: &RawJson) -> Result<(String, Bytes), String> {
        match &self.kind {
            // The caller's bytes are sent unchanged, so that numbers keep their precision.
            BodyEncoding::Json => Ok((self.content_type.clone(), Bytes::copy_from_slice(value.as_bytes()))),
            BodyEncoding::Form(encodings) => {
                let pairs = members(value)?
                    .into_iter()
                    .flat_map(|(name, value)| field_pairs(encodings, &name, &value));
                let pairs: Vec<String> = pairs.map(|(name, value)| format!("{name}={value}")).collect();
                Ok((self.content_type.clone(), pairs.join("&").into()))
            }
            BodyEncoding::Multipart(encodings) => {
                let mut parts = Vec::new();
                for (name, value) in members(value)? {
                    let encoding = encodings.get(&name).cloned().unwrap_or_default();
                    // Each list item becomes a part.
                    let values = match value {
                        Value::Array(items) => items,
                        value => vec![value],
                    };
                    for value in values {
                        parts.push(multipart::FormPart {
                            name: name.clone(),
                            file: to_form_file(&value, &encoding)?,
                        });
                    }
                }
                multipart::write(&parts)
            }
            BodyEncoding::Text => {
                Ok((self.content_type.clone(), scalar_text(&value.to_value()).into_owned().into()))
            }
            BodyEncoding::Bytes => {
                let file = to_form_file(&value.to_value(), &FieldEncoding::default())?;
                let content_type = file.content_type.filter(|_| value.is_object());
                Ok((content_type.unwrap_or_else(|| self.content_type.clone()), file.bytes))
            }
        }
    }
}

fn members(value: &RawJson) -> Result<Map<String, Value>, String> {
    match value.to_value() {
        Value::Object(members) => Ok(members),
        _ => Err("the body must be an object".to_owned()),
    }
}

/// Encodes a form property: in its style, or as text, list or JSON.
fn field_pairs(
    encodings: &IndexMap<String, FieldEncoding>,
    name: &str,
    value: &Value,
) -> Vec<(String, String)> {
    let encoding = encodings.get(name);
    if let Some(serializer) = encoding.and_then(|encoding| encoding.serializer) {
        return serializer.pairs(name, value);
    }
    let wants_json = encoding.and_then(|encoding| encoding.content_type.as_deref()).is_some_and(is_json);
    if wants_json || value.is_object() {
        return StyleSerializer::FORM.pairs(name, &value.to_string().into());
    }
    StyleSerializer::FORM.pairs(name, value)
}

/// Converts a value to a part: a file with name and type, or text.
fn to_form_file(value: &Value, encoding: &FieldEncoding) -> Result<FormFile, String> {
    let text = |member: &str| value.get(member).and_then(Value::as_str);
    if let Some(base64) = text("base64") {
        let compact: String = base64.split_ascii_whitespace().collect();
        let bytes = BASE64.decode(compact).map_err(|_| "'base64' of a file is not valid base64")?;
        return Ok(FormFile {
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
    let written = if is_json { value.to_string() } else { scalar_text(value).into_owned() };
    Ok(FormFile { bytes: written.into(), filename: None, content_type })
}
