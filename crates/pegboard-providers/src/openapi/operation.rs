//! One operation of a document, read into a tool.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use http::Method;
use indexmap::IndexMap;
use pegboard_core::entry::{Annotations, ToolEntry};
use pegboard_core::schema::Schema;
use pegboard_core::settings::mcp::Secret;
use pegboard_core::settings::openapi::OpenApiSettings;
use pegboard_json::RawJson;
use reqwest::Url;
use serde_json::{Value, json};

use super::body::{self, Body};
use super::library::{Library, Part, Version, clip};
use super::names;
use super::parameter::{self, Found, Parameter, Place, argument_name, is_json};
use super::request::{BODY, Operation, PathPart};
use super::schema::{Draft, Purpose, Schemas};
use super::security::Security;
use super::server;
use crate::web::{Policy, Web};

/// How large the schema of a tool's arguments may be.
const MAX_INPUT_BYTES: usize = 256 * 1024;
/// How large the schema of an answer may be; one that is larger is not told.
const MAX_OUTPUT_BYTES: usize = 16 * 1024;
/// How many characters of a description are told.
const MAX_DESCRIPTION: usize = 1_000;
/// How many parameters an operation may have.
const MAX_PARAMETERS: usize = 500;

/// Somebody who reads operations.
pub(super) struct Importer<'l> {
    pub(super) library: &'l Library,
    pub(super) settings: &'l OpenApiSettings,
    pub(super) schemas: Schemas<'l>,
    pub(super) security: Security<'l>,
    pub(super) warnings: Vec<String>,
    headers: Arc<IndexMap<String, Secret>>,
    /// The ways out, by origin.
    webs: HashMap<String, Arc<Web>>,
}

/// An operation where it stands in a document.
#[derive(Clone, Copy)]
pub(super) struct Site<'l> {
    pub(super) method: &'l str,
    pub(super) path: &'l str,
    pub(super) item: Part<'l>,
    pub(super) operation: Part<'l>,
}

impl Site<'_> {
    /// How people call it: `GET /items`.
    pub(super) fn label(&self) -> String {
        format!("{} {}", self.method.to_uppercase(), clip(self.path))
    }

    pub(super) fn id(&self) -> Option<&str> {
        self.operation.text("operationId").filter(|id| !id.trim().is_empty())
    }
}

impl<'l> Importer<'l> {
    pub(super) fn new(library: &'l Library, settings: &'l OpenApiSettings) -> Self {
        Self {
            library,
            settings,
            schemas: Schemas::of(library),
            security: Security::of(library, settings),
            warnings: Vec::new(),
            headers: Arc::new(settings.headers.clone()),
            webs: HashMap::new(),
        }
    }

    /// Reads an operation as the tool of this name, or says why it cannot be one.
    pub(super) fn read(&mut self, site: Site<'l>, name: String) -> Result<ToolEntry, String> {
        let method = Method::from_bytes(site.method.to_uppercase().as_bytes())
            .map_err(|_| format!("'{}' is no method", clip(site.method)))?;
        let base = server::base(self.library, self.settings, [Some(site.operation), Some(site.item)])?;
        let written = self.parameters(site)?;
        let mut named = self.read_parameters(site, &written)?;
        let body = match self.library.version {
            Version::V2 => body::read_v2(self.library, &mut self.schemas, site.operation, &written)?,
            Version::V30 | Version::V31 => body::read(self.library, &mut self.schemas, site.operation)?,
        };
        let (path, query) = self.path(site, &mut named)?;
        let (parameters, body, input_schema) = self.arguments(site, named, body)?;
        let output_schema = self.output_schema(site);
        let operation = Operation {
            web: self.web(&base)?,
            accept: accept(self.library, site.operation),
            proofs: self.security.proofs(site.operation),
            headers: Arc::clone(&self.headers),
            method: method.clone(),
            base,
            path,
            query,
            parameters,
            body,
        };
        let tags = site.operation.get("tags").into_iter().flat_map(Part::items);
        let entry = ToolEntry::from_handler(name, description(site), Arc::new(operation))
            .with_input_schema(input_schema)
            .with_annotations(annotations(&method))
            .with_tags(tags.filter_map(|tag| tag.value.as_str()));
        Ok(match output_schema {
            Some(schema) => entry.with_output_schema(Schema::from_raw(RawJson::of(&schema))),
            None => entry,
        })
    }

    /// What the tool is given: every parameter under a name of its own, and the body under its.
    fn arguments(
        &mut self,
        site: Site<'l>,
        mut named: Vec<(Parameter, Draft)>,
        body: Option<body::Described>,
    ) -> Result<(Vec<Parameter>, Option<Body>, Schema), String> {
        give_names(&mut named, body.iter().map(|_| BODY.to_owned()).collect());
        let (mut properties, mut required, mut parameters) = (Vec::new(), Vec::new(), Vec::new());
        for (parameter, mut draft) in named {
            let is_preset = self.headers.keys().any(|header| header.eq_ignore_ascii_case(&parameter.name));
            let is_required = parameter.is_required && !(parameter.place == Place::Header && is_preset);
            if is_required {
                required.push(parameter.argument.clone());
            }
            if parameter.argument != parameter.name {
                note_name(&mut draft, &parameter);
            }
            properties.push((parameter.argument.clone(), draft));
            parameters.push(Parameter { is_required, ..parameter });
        }
        let body = body.map(|(body, draft)| {
            if body.is_required {
                required.push(BODY.to_owned());
            }
            properties.push((BODY.to_owned(), draft));
            body
        });
        let takes_files = body.as_ref().is_some_and(Body::takes_files);
        let purpose = if takes_files { Purpose::Upload } else { Purpose::Request };
        let mut draft = Draft::object(properties, required);
        // Nobody would see that an argument which does not exist was not sent.
        draft.json["additionalProperties"] = false.into();
        let input = self.schemas.assemble(draft, purpose, MAX_INPUT_BYTES)?;
        if input.is_cut {
            self.warnings.push(format!("{}: its schema is very large, and told in part", site.label()));
        }
        Ok((parameters, body, Schema::from_raw(RawJson::of(&input.json))))
    }

    /// The parameters of an operation and of its path, of which the operation's count.
    fn parameters(&self, site: Site<'l>) -> Result<Vec<Part<'l>>, String> {
        let mut all: Vec<Part<'l>> = Vec::new();
        for level in [site.item, site.operation] {
            for parameter in level.get("parameters").into_iter().flat_map(Part::items) {
                let parameter = self.library.follow(parameter)?;
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
        site: Site<'l>,
        written: &[Part<'l>],
    ) -> Result<Vec<(Parameter, Draft)>, String> {
        let mut named = Vec::new();
        let is_body = |part: &&Part<'l>| {
            self.library.version == Version::V2 && matches!(part.text("in"), Some("body" | "formData"))
        };
        for part in written.iter().filter(|part| !is_body(part)) {
            match parameter::read(self.library, &mut self.schemas, *part)? {
                Found::Parameter(parameter, draft) => named.push((parameter, draft)),
                Found::PassedOver(why) => self.warnings.push(format!("{}: {why}", site.label())),
            }
        }
        Ok(named)
    }

    /// The path with its parameters, and what stands behind it.
    fn path(
        &mut self,
        site: Site<'l>,
        named: &mut Vec<(Parameter, Draft)>,
    ) -> Result<(Vec<PathPart>, Option<String>), String> {
        if !site.path.starts_with('/') {
            return Err("its path does not begin with '/'".to_owned());
        }
        let (path, _) = site.path.split_once('#').unwrap_or((site.path, ""));
        let (mut rest, query) = match path.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned()).filter(|query| !query.contains('{'))),
            None => (path, None),
        };
        if rest.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err("its path has '.' or '..' in it".to_owned());
        }
        let mut parts = Vec::new();
        let mut used = HashSet::new();
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or("its path has a '{' without a '}'")?;
            if !before.is_empty() {
                parts.push(PathPart::Fixed(before.to_owned()));
            }
            let is_it = |(parameter, _): &(Parameter, Draft)| {
                parameter.place == Place::Path && parameter.name == name
            };
            let at = named.iter().position(is_it).unwrap_or_else(|| {
                self.warnings.push(format!(
                    "{}: the parameter '{}' of its path is not described",
                    site.label(),
                    clip(name)
                ));
                named.push((undescribed(name), Draft::plain(json!({"type": "string"}))));
                named.len() - 1
            });
            used.insert(at);
            parts.push(PathPart::Parameter(at));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(PathPart::Fixed(rest.to_owned()));
        }
        self.leave_out_unused(site, named, &used, &mut parts);
        Ok((parts, query))
    }

    /// Leaves out parameters of a path that are not in it.
    fn leave_out_unused(
        &mut self,
        site: Site<'l>,
        named: &mut Vec<(Parameter, Draft)>,
        used: &HashSet<usize>,
        parts: &mut [PathPart],
    ) {
        let mut moved = HashMap::new();
        let mut kept = Vec::with_capacity(named.len());
        for (at, (parameter, draft)) in std::mem::take(named).into_iter().enumerate() {
            if parameter.place == Place::Path && !used.contains(&at) {
                self.warnings.push(format!("{}: its path has no '{}'", site.label(), clip(&parameter.name)));
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

    /// What the first answer that says yes looks like, if every such answer is an object.
    fn output_schema(&mut self, site: Site<'l>) -> Option<Value> {
        let mut schemas = Vec::new();
        for (status, answer) in site.operation.get("responses")?.members() {
            if !status.starts_with('2') {
                continue;
            }
            let answer = self.library.follow(answer).ok()?;
            let schema = match self.library.version {
                Version::V2 => answer.get("schema")?,
                Version::V30 | Version::V31 => {
                    let content: Vec<(&str, Part<'l>)> = answer.get("content")?.members().collect();
                    if !content.iter().all(|(media, _)| is_json(media)) {
                        return None;
                    }
                    content.first()?.1.get("schema")?
                }
            };
            schemas.push(self.library.follow(schema).ok()?);
        }
        let draft = self.schemas.draft(*schemas.first()?, Purpose::Answer).ok()?;
        let is_object = schemas.iter().all(|schema| schema.text("type") == Some("object"));
        if schemas.len() > 1 || !is_object {
            return None;
        }
        let mut output = self.schemas.assemble(draft, Purpose::Answer, MAX_OUTPUT_BYTES).ok()?;
        if output.is_cut || output.json.to_string().len() > MAX_OUTPUT_BYTES {
            return None;
        }
        output.json["type"] = "object".into();
        Some(output.json)
    }

    fn web(&mut self, base: &Url) -> Result<Arc<Web>, String> {
        let origin = base.origin().ascii_serialization();
        if let Some(web) = self.webs.get(&origin) {
            return Ok(Arc::clone(web));
        }
        let web = Arc::new(Web::new(Policy::new(base.clone())).map_err(|error| error.to_string())?);
        self.webs.insert(origin, Arc::clone(&web));
        Ok(web)
    }
}

/// A parameter that stands in a path and nowhere else.
fn undescribed(name: &str) -> Parameter {
    Parameter {
        name: name.to_owned(),
        argument: name.to_owned(),
        place: Place::Path,
        is_required: true,
        form: parameter::Form::Styled(super::style::Writing::SIMPLE),
    }
}

/// Gives every parameter the name of an argument. Of two with one name, the later is called after its place too.
fn give_names(named: &mut [(Parameter, Draft)], mut taken: HashSet<String>) {
    for (parameter, _) in named {
        let plain = argument_name(&parameter.name);
        let wanted =
            if taken.contains(&plain) { format!("{plain}_{}", parameter.place.as_str()) } else { plain };
        parameter.argument = names::unique(&wanted, &mut taken);
    }
}

/// Says what a parameter is called at the service, if the tool calls it something else.
fn note_name(draft: &mut Draft, parameter: &Parameter) {
    let note = format!("(sent as '{}' in the {})", clip(&parameter.name), parameter.place.as_str());
    let described = draft.json.get("description").and_then(Value::as_str);
    let text = described.map_or_else(|| note.clone(), |text| format!("{text} {note}"));
    draft.describe(&text);
}

fn description(site: Site<'_>) -> String {
    let text = |word: &str| site.operation.text(word).map(str::trim).filter(|text| !text.is_empty());
    let summary = text("summary");
    let long = text("description").filter(|long| Some(*long) != summary);
    let mut description = match (summary, long) {
        (Some(summary), Some(long)) => format!("{summary}\n\n{long}"),
        (Some(words), None) | (None, Some(words)) => words.to_owned(),
        (None, None) => site.id().map_or_else(|| site.label(), str::to_owned),
    };
    if let Some((at, _)) = description.char_indices().nth(MAX_DESCRIPTION) {
        description.truncate(at);
        description.push('…');
    }
    if site.operation.says("deprecated") { format!("Deprecated. {description}") } else { description }
}

fn annotations(method: &Method) -> Annotations {
    let is_read_only = matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "QUERY" | "TRACE");
    let is_idempotent = is_read_only || matches!(method.as_str(), "PUT" | "DELETE");
    Annotations {
        read_only: Some(is_read_only),
        destructive: if is_read_only { Some(false) } else { (*method == Method::DELETE).then_some(true) },
        idempotent: is_idempotent.then_some(true),
        open_world: Some(true),
    }
}

/// What the answer should be: what the document says of answers that say yes, or whatever there is.
fn accept<'l>(library: &'l Library, operation: Part<'l>) -> String {
    let mut media: Vec<&str> = match library.version {
        Version::V2 => {
            let produces = operation.get("produces").or_else(|| library.root().get("produces"));
            produces.into_iter().flat_map(Part::items).filter_map(|media| media.value.as_str()).collect()
        }
        Version::V30 | Version::V31 => {
            let answers = operation.get("responses").into_iter().flat_map(Part::members);
            let good = answers.filter(|(status, _)| status.starts_with('2') || *status == "default");
            let contents = good.filter_map(|(_, answer)| library.follow(answer).ok()?.get("content"));
            contents.flat_map(Part::members).map(|(media, _)| media).collect()
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
