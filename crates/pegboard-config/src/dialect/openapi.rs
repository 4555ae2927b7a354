//! One web service with an OpenAPI document.

use std::path::Path as File;

use indexmap::IndexMap;
use pegboard_core::settings::openapi::OpenApiSettings;
use pegboard_core::settings::{QueueSettings, ServerSettings};

use super::server::{check_name, check_queues, filled, is_off, split};
use crate::configuration::{Server, Toolbox};
use crate::near::near;
use crate::path::{Path, Step};
use crate::read::{Missing, Reader};
use crate::tree::{Entry, Node, Origin, Value};

/// Methods that an operation may have.
const METHODS: [&str; 9] = ["get", "post", "put", "patch", "delete", "query", "head", "options", "trace"];
/// What of a credential nobody should see.
const SECRETS: [&str; 5] = ["value", "username", "password", "clientId", "clientSecret"];

/// Reads one service into its toolbox. What is wrong with it leaves out that service alone.
pub(super) fn read(
    reader: &mut Reader<'_>,
    entry: &Entry,
    way: &Path,
    toolbox: &mut Toolbox,
    queues: &IndexMap<String, QueueSettings>,
) {
    let way = way.key(&entry.key);
    let missing = if is_off(&entry.value) { Missing::Ignored } else { Missing::Told };
    reader.begin_part();
    let (name, _) = reader.fill_text(&entry.key, entry.key_span, &way, missing);
    let name = check_name(reader, &name, entry.key_span, &way, toolbox);
    let described = describe(reader, &entry.value, &way, missing);
    if let Some((_, tools)) = &described {
        check_queues(reader, ("OpenAPI spec", entry), &way, tools, queues);
    }
    let part = reader.end_part(&way);
    let Some(name) = name else { return };
    let server = match described.filter(|_| !part.is_wrong) {
        Some((service, tools)) => Server::OpenApi { service: Box::new(service), tools: Box::new(tools) },
        None => Server::Unusable { needs: part.needs, problems: part.problems },
    };
    toolbox.servers.insert(name, server);
}

fn describe(
    reader: &mut Reader<'_>,
    node: &Node,
    way: &Path,
    missing: Missing,
) -> Option<(OpenApiSettings, ServerSettings)> {
    let Value::Map(entries) = &node.value else {
        let help = Some("write {spec: …}".to_owned());
        reader.error(node.span, way, format!("a service is an object, not {}", node.kind()), help);
        return None;
    };
    let mut filled = filled(reader, node, entries, way, (missing, "toolSchemas"));
    if let Value::Map(entries) = &mut filled.value {
        for entry in entries {
            veil_credentials(reader, entry);
        }
    }
    let (settings, rules, _): (Option<OpenApiSettings>, _, _) =
        split(reader, &filled, way, &OpenApiSettings::FIELDS);
    let mut settings = settings?;
    check(reader, &settings, &filled, way);
    let written = node.get("spec").unwrap_or(node);
    settings.spec = beside(&settings.spec, &reader.text(written.span).path);
    Some((settings, rules?))
}

/// Whether there is a document, and whether what is said about it can be meant.
fn check(reader: &mut Reader<'_>, settings: &OpenApiSettings, node: &Node, way: &Path) {
    if settings.spec.trim().is_empty() {
        let help = Some("write spec: and the file or address of the document".to_owned());
        let span = node.get("spec").map_or(node.span, |spec| spec.span);
        reader.error(span, way, "the service has no OpenAPI document", help);
    }
    if let (Some(url), Some(written)) = (&settings.base_url, node.get("baseUrl"))
        && !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme))
    {
        let help = Some("write one like https://api.example.com/v1".to_owned());
        reader.error(written.span, &way.key("baseUrl"), "this is no address of a service", help);
    }
    let Some(methods) = node.get("includeMethods") else { return };
    let way = way.key("includeMethods");
    let items = match &methods.value {
        Value::List(items) => items.as_slice(),
        _ => std::slice::from_ref(methods),
    };
    for (index, item) in items.iter().enumerate() {
        if let Value::Text(method) = &item.value
            && !METHODS.contains(&method.to_ascii_lowercase().as_str())
        {
            let help = near(method, METHODS).map(|meant| format!("did you mean {meant}?"));
            let help = help.or_else(|| Some(format!("there are {}", METHODS.join(", "))));
            let way = way.step(Step::Index(index));
            reader.error(item.span, &way, "there is no such method", help);
        }
    }
}

/// The document, seen from the file that names it.
fn beside(spec: &str, file: &File) -> String {
    if spec.starts_with("http://") || spec.starts_with("https://") {
        return spec.to_owned();
    }
    let folder = file.parent().unwrap_or(File::new(""));
    folder.join(spec).to_string_lossy().into_owned()
}

/// Remembers what is shown at the door.
fn veil_credentials(reader: &mut Reader<'_>, entry: &mut Entry) {
    let ("credentials", Value::Map(schemes)) = (entry.key.as_str(), &mut entry.value.value) else { return };
    for scheme in schemes {
        let Value::Map(words) = &mut scheme.value.value else { continue };
        for word in words.iter_mut().filter(|word| SECRETS.contains(&word.key.as_str())) {
            word.value.origin = Origin::Secret;
            if let Value::Text(text) = &word.value.value {
                reader.keep_secret(text);
            }
        }
    }
}
