//! Imports one operation as a tool.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use http::Method;
use indexmap::IndexMap;
use pegboard_core::entry::{ToolAnnotations, ToolEntry};
use pegboard_core::schema::Schema;
use pegboard_core::secret::Secret;
use pegboard_core::settings::openapi::OpenApiSettings;
use pegboard_json::RawJson;
use serde_json::{Value, json};

use super::body::{self, OperationBody};
use super::document_set::{DocumentNode, DocumentSet, OpenApiVersion, clip};
use super::names;
use super::parameter::{
    self, OperationParameter, ParameterLocation, ParsedParameter, argument_name, is_json,
};
use super::request::{BODY_ARGUMENT, OpenApiOperation, PathPart};
use super::schema::{SchemaConverter, SchemaDraft, SchemaPurpose};
use super::security::{AppliedCredential, SecurityResolver};
use super::server::{self, BaseUrl, OriginSource};
use pegboard_http::{NetworkAccess, WebClients, origin};

/// Maximum size of an input schema.
const MAX_INPUT_BYTES: usize = 256 * 1024;
/// Maximum size of an output schema; larger ones are omitted.
const MAX_OUTPUT_BYTES: usize = 16 * 1024;
/// Maximum number of characters in a description.
const MAX_DESCRIPTION_CHARS: usize = 1_000;
/// Maximum number of parameters per operation.
const MAX_PARAMETERS: usize = 500;

/// Importer of operations.
pub(super) struct OperationImporter<'l> {
    pub(super) documents: &'l DocumentSet,
    pub(super) settings: &'l OpenApiSettings,
    pub(super) schemas: SchemaConverter<'l>,
    pub(super) security: SecurityResolver<'l>,
    pub(super) warnings: Vec<String>,
    headers: Arc<IndexMap<String, Secret>>,
    clients: WebClients,
}

/// Operation at its path and method in a document.
#[derive(Clone, Copy)]
pub(super) struct OperationNode<'l> {
    pub(super) method: &'l str,
    pub(super) path: &'l str,
    pub(super) item: DocumentNode<'l>,
    pub(super) operation: DocumentNode<'l>,
}

impl OperationNode<'_> {
    /// Returns a label such as `GET /items`.
    pub(super) fn label(&self) -> String {
        format!("{} {}", self.method.to_uppercase(), clip(self.path))
    }

    pub(super) fn id(&self) -> Option<&str> {
        self.operation.text("operationId").filter(|id| !id.trim().is_empty())
    }
}

impl<'l> OperationImporter<'l> {
    pub(super) fn new(documents: &'l DocumentSet, settings: &'l OpenApiSettings) -> Self {
        Self {
            documents,
            settings,
            schemas: SchemaConverter::of(documents),
            security: SecurityResolver::of(documents, settings),
            warnings: Vec::new(),
            headers: Arc::new(settings.headers.clone()),
            clients: WebClients::default(),
        }
    }

    /// Imports the operation as a tool with this name.
    pub(super) fn read(&mut self, node: OperationNode<'l>, name: String) -> Result<ToolEntry, String> {
        let method = Method::from_bytes(node.method.to_uppercase().as_bytes())
            .map_err(|_| format!("invalid method '{}'", clip(node.method)))?;
        let base = server::base_url(self.documents, self.settings, [Some(node.operation), Some(node.item)])?;
        let written = self.parameters(node)?;
        let credentials = self.security.credentials(node.operation);
        let mut named = self.read_parameters(node, &written, &credentials)?;
        let body = match self.documents.version {
            OpenApiVersion::V2 => body::read_v2(self.documents, &mut self.schemas, node.operation, &written)?,
            OpenApiVersion::V30 | OpenApiVersion::V31 => {
                body::read(self.documents, &mut self.schemas, node.operation)?
            }
        };
        let (path, query) = self.path(node, &mut named)?;
        let (parameters, body, input_schema) = self.arguments(node, named, body)?;
        let output_schema = self.output_schema(node);
        let network = network_access(&base, !credentials.is_empty() || !self.headers.is_empty())?;
        let base = base.url;
        let operation = OpenApiOperation {
            web: self.clients.get(&base, network).map_err(|error| error.to_string())?,
            accept: accept(self.documents, node.operation),
            credentials,
            headers: Arc::clone(&self.headers),
            method: method.clone(),
            base,
            path,
            query,
            parameters,
            body,
        };
        let tags = node.operation.get("tags").into_iter().flat_map(DocumentNode::items);
        let entry = ToolEntry::from_handler(name, description(node), Arc::new(operation))
            .with_input_schema(input_schema)
            .with_annotations(annotations(&method))
            .with_tags(tags.filter_map(|tag| tag.value.as_str()));
        Ok(match output_schema {
            Some(schema) => entry.with_output_schema(Schema::from_raw(RawJson::of(&schema))),
            None => entry,
        })
    }

    /// Assigns an argument to each parameter and to the body, and builds the input schema.
    fn arguments(
        &mut self,
        node: OperationNode<'l>,
        mut named: Vec<(OperationParameter, SchemaDraft)>,
        body: Option<body::BodyWithSchema>,
    ) -> Result<(Vec<OperationParameter>, Option<OperationBody>, Schema), String> {
        assign_argument_names(&mut named, body.iter().map(|_| BODY_ARGUMENT.to_owned()).collect());
        let (mut properties, mut required, mut parameters) = (Vec::new(), Vec::new(), Vec::new());
        for (parameter, mut draft) in named {
            if parameter.is_required {
                required.push(parameter.argument.clone());
            }
            if parameter.argument != parameter.name {
                append_original_name(&mut draft, &parameter);
            }
            properties.push((parameter.argument.clone(), draft));
            parameters.push(parameter);
        }
        let body = body.map(|(body, draft)| {
            if body.is_required {
                required.push(BODY_ARGUMENT.to_owned());
            }
            properties.push((BODY_ARGUMENT.to_owned(), draft));
            body
        });
        let takes_files = body.as_ref().is_some_and(OperationBody::takes_files);
        let purpose = if takes_files { SchemaPurpose::Upload } else { SchemaPurpose::Request };
        let mut draft = SchemaDraft::object(properties, required);
        // Without this, misspelled arguments would be dropped silently.
        draft.json["additionalProperties"] = false.into();
        let input = self.schemas.assemble(draft, purpose, MAX_INPUT_BYTES)?;
        if input.is_truncated {
            self.warnings.push(format!("{}: the schema is too large and was truncated", node.label()));
        }
        Ok((parameters, body, Schema::from_raw(RawJson::of(&input.json))))
    }

    /// Returns the parameters of the operation and its path; those of the operation take precedence.
    fn parameters(&self, node: OperationNode<'l>) -> Result<Vec<DocumentNode<'l>>, String> {
        let mut all: Vec<DocumentNode<'l>> = Vec::new();
        for level in [node.item, node.operation] {
            for parameter in level.get("parameters").into_iter().flat_map(DocumentNode::items) {
                let parameter = self.documents.follow(parameter)?;
                let key = (parameter.text("name"), parameter.text("in"));
                match all.iter_mut().find(|other| (other.text("name"), other.text("in")) == key) {
                    Some(other) => *other = parameter,
                    None => all.push(parameter),
                }
            }
        }
        if all.len() > MAX_PARAMETERS {
            return Err(format!("it has more than {MAX_PARAMETERS} parameters"));
        }
        Ok(all)
    }

    fn read_parameters(
        &mut self,
        node: OperationNode<'l>,
        written: &[DocumentNode<'l>],
        credentials: &[Arc<AppliedCredential>],
    ) -> Result<Vec<(OperationParameter, SchemaDraft)>, String> {
        let mut named = Vec::new();
        let is_body = |part: &&DocumentNode<'l>| {
            self.documents.version == OpenApiVersion::V2
                && matches!(part.text("in"), Some("body" | "formData"))
        };
        for part in written.iter().filter(|part| !is_body(part)) {
            match parameter::read(self.documents, &mut self.schemas, *part)? {
                ParsedParameter::Parameter(parameter, _) if self.is_configured(&parameter, credentials) => {
                    let OperationParameter { name, location, .. } = parameter;
                    self.warnings.push(format!(
                        "{}: {} '{}' is set by the configuration, not by a parameter",
                        node.label(),
                        location.as_str(),
                        clip(&name)
                    ));
                }
                ParsedParameter::Parameter(parameter, draft) => named.push((parameter, draft)),
                ParsedParameter::Ignored(why) => self.warnings.push(format!("{}: {why}", node.label())),
            }
        }
        Ok(named)
    }

    /// Returns `true` if the configuration sets what the parameter would set: an argument must not replace it.
    fn is_configured(&self, parameter: &OperationParameter, credentials: &[Arc<AppliedCredential>]) -> bool {
        let sets_header = |name: &str| self.headers.keys().any(|header| header.eq_ignore_ascii_case(name));
        let is_header = match parameter.location {
            ParameterLocation::Header => sets_header(&parameter.name),
            ParameterLocation::Cookie => sets_header("cookie"),
            ParameterLocation::Path | ParameterLocation::Query | ParameterLocation::QueryString => false,
        };
        is_header || credentials.iter().any(|credential| credential.replaces(parameter))
    }

    /// Splits the path into fixed parts and parameters, and returns its fixed query.
    fn path(
        &mut self,
        node: OperationNode<'l>,
        named: &mut Vec<(OperationParameter, SchemaDraft)>,
    ) -> Result<(Vec<PathPart>, Option<String>), String> {
        if !node.path.starts_with('/') {
            return Err("its path does not start with '/'".to_owned());
        }
        let (path, _) = node.path.split_once('#').unwrap_or((node.path, ""));
        let (mut rest, query) = match path.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned()).filter(|query| !query.contains('{'))),
            None => (path, None),
        };
        if rest.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err("its path contains '.' or '..'".to_owned());
        }
        let mut parts = Vec::new();
        let mut used = HashSet::new();
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or("its path has an unclosed '{'")?;
            if !before.is_empty() {
                parts.push(PathPart::Fixed(before.to_owned()));
            }
            let is_it = |(parameter, _): &(OperationParameter, SchemaDraft)| {
                parameter.location == ParameterLocation::Path && parameter.name == name
            };
            let at = named.iter().position(is_it).unwrap_or_else(|| {
                self.warnings.push(format!(
                    "{}: path parameter '{}' is not described",
                    node.label(),
                    clip(name)
                ));
                named.push((implicit_path_parameter(name), SchemaDraft::plain(json!({"type": "string"}))));
                named.len() - 1
            });
            used.insert(at);
            parts.push(PathPart::Parameter(at));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(PathPart::Fixed(rest.to_owned()));
        }
        self.drop_unused_path_parameters(node, named, &used, &mut parts);
        Ok((parts, query))
    }

    /// Drops path parameters that the path does not contain.
    fn drop_unused_path_parameters(
        &mut self,
        node: OperationNode<'l>,
        named: &mut Vec<(OperationParameter, SchemaDraft)>,
        used: &HashSet<usize>,
        parts: &mut [PathPart],
    ) {
        let mut moved = HashMap::new();
        let mut kept = Vec::with_capacity(named.len());
        for (at, (parameter, draft)) in std::mem::take(named).into_iter().enumerate() {
            if parameter.location == ParameterLocation::Path && !used.contains(&at) {
                self.warnings.push(format!(
                    "{}: its path has no parameter '{}'",
                    node.label(),
                    clip(&parameter.name)
                ));
                continue;
            }
            moved.insert(at, kept.len());
            kept.push((parameter, draft));
        }
        *named = kept;
        for part in parts {
            if let PathPart::Parameter(at) = part {
                *at = moved[at];
            }
        }
    }

    /// Returns the schema of the only successful response, if it is an object.
    fn output_schema(&mut self, node: OperationNode<'l>) -> Option<Value> {
        let mut schemas = Vec::new();
        for (status, answer) in node.operation.get("responses")?.members() {
            if !status.starts_with('2') {
                continue;
            }
            let answer = self.documents.follow(answer).ok()?;
            let schema = match self.documents.version {
                OpenApiVersion::V2 => answer.get("schema")?,
                OpenApiVersion::V30 | OpenApiVersion::V31 => {
                    let content: Vec<(&str, DocumentNode<'l>)> = answer.get("content")?.members().collect();
                    if !content.iter().all(|(media, _)| is_json(media)) {
                        return None;
                    }
                    content.first()?.1.get("schema")?
                }
            };
            schemas.push(self.documents.follow(schema).ok()?);
        }
        let draft = self.schemas.draft(*schemas.first()?, SchemaPurpose::Response).ok()?;
        let is_object = schemas.iter().all(|schema| schema.text("type") == Some("object"));
        if schemas.len() > 1 || !is_object {
            return None;
        }
        let mut output = self.schemas.assemble(draft, SchemaPurpose::Response, MAX_OUTPUT_BYTES).ok()?;
        if output.is_truncated || output.json.to_string().len() > MAX_OUTPUT_BYTES {
            return None;
        }
        output.json["type"] = "object".into();
        Some(output.json)
    }
}

/// Returns a path parameter that the document does not describe.
fn implicit_path_parameter(name: &str) -> OperationParameter {
    OperationParameter {
        name: name.to_owned(),
        argument: name.to_owned(),
        location: ParameterLocation::Path,
        is_required: true,
        encoding: parameter::ParameterEncoding::Styled(super::style::StyleSerializer::SIMPLE),
    }
}

/// Assigns argument names. On a collision, the later parameter gets its location as a suffix.
fn assign_argument_names(named: &mut [(OperationParameter, SchemaDraft)], mut taken: HashSet<String>) {
    for (parameter, _) in named {
        let plain = argument_name(&parameter.name);
        let wanted =
            if taken.contains(&plain) { format!("{plain}_{}", parameter.location.as_str()) } else { plain };
        parameter.argument = names::unique(&wanted, &mut taken);
    }
}

/// Appends the original name to the description if the argument is named differently.
fn append_original_name(draft: &mut SchemaDraft, parameter: &OperationParameter) {
    let note = format!("(sent as '{}' in the {})", clip(&parameter.name), parameter.location.as_str());
    let described = draft.json.get("description").and_then(Value::as_str);
    let text = described.map_or_else(|| note.clone(), |text| format!("{text} {note}"));
    draft.describe(&text);
}

fn description(node: OperationNode<'_>) -> String {
    let text = |word: &str| node.operation.text(word).map(str::trim).filter(|text| !text.is_empty());
    let summary = text("summary");
    let long = text("description").filter(|long| Some(*long) != summary);
    let mut description = match (summary, long) {
        (Some(summary), Some(long)) => format!("{summary}\n\n{long}"),
        (Some(words), None) | (None, Some(words)) => words.to_owned(),
        (None, None) => node.id().map_or_else(|| node.label(), str::to_owned),
    };
    if let Some((at, _)) = description.char_indices().nth(MAX_DESCRIPTION_CHARS) {
        description.truncate(at);
        description.push('…');
    }
    if node.operation.is_true("deprecated") { format!("Deprecated. {description}") } else { description }
}

/// Returns the addresses that requests to a base URL may reach; fails if requests with credentials would go to an
/// origin that only the document names.
fn network_access(base: &BaseUrl, has_credentials: bool) -> Result<NetworkAccess, String> {
    match base.named_by {
        OriginSource::Configuration => Ok(NetworkAccess::ByName),
        OriginSource::Document if has_credentials => {
            let origin = origin(&base.url);
            Err(format!("only the document names {origin}; set baseUrl to send credentials or headers there"))
        }
        OriginSource::Document => Ok(NetworkAccess::Public),
    }
}

fn annotations(method: &Method) -> ToolAnnotations {
    let is_read_only = matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "QUERY" | "TRACE");
    let is_idempotent = is_read_only || matches!(method.as_str(), "PUT" | "DELETE");
    ToolAnnotations {
        read_only: Some(is_read_only),
        destructive: if is_read_only { Some(false) } else { (*method == Method::DELETE).then_some(true) },
        idempotent: is_idempotent.then_some(true),
        open_world: Some(true),
    }
}

/// Builds the `Accept` header from the documented successful responses.
fn accept<'l>(documents: &'l DocumentSet, operation: DocumentNode<'l>) -> String {
    let mut media: Vec<&str> = match documents.version {
        OpenApiVersion::V2 => {
            let produces = operation.get("produces").or_else(|| documents.root().get("produces"));
            produces
                .into_iter()
                .flat_map(DocumentNode::items)
                .filter_map(|media| media.value.as_str())
                .collect()
        }
        OpenApiVersion::V30 | OpenApiVersion::V31 => {
            let answers = operation.get("responses").into_iter().flat_map(DocumentNode::members);
            let good = answers.filter(|(status, _)| status.starts_with('2') || *status == "default");
            let contents = good.filter_map(|(_, answer)| documents.follow(answer).ok()?.get("content"));
            contents.flat_map(DocumentNode::members).map(|(media, _)| media).collect()
        }
    };
    let is_plain = |media: &&str| {
        media.is_ascii() && media.len() < 100 && !media.contains('*') && !media.chars().any(char::is_control)
    };
    media.retain(|media| is_plain(media));
    media.sort_by_key(|media| !is_json(media));
    let mut seen = HashSet::new();
    media.retain(|media| seen.insert(*media));
    if media.is_empty() {
        media.push("application/json");
    }
    media.truncate(4);
    format!("{}, */*;q=0.5", media.join(", "))
}
