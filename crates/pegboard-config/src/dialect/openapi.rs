//! An entry of `openapiSpecs`.

use std::path::Path;

use indexmap::IndexMap;
use pegboard_core::settings::openapi::OpenApiSettings;
use pegboard_core::settings::{QueueSettings, ServerSettings};

use super::server::{check_name, check_queues, expand_entries, is_disabled, read_split};
use crate::configuration::{ServerEntry, ToolboxConfig};
use crate::did_you_mean;
use crate::path::{KeyPath, KeySegment};
use crate::read::{ConfigReader, OnUnsetVariable};
use crate::tree::{Node, TreeEntry, Value, ValueOrigin};

/// HTTP methods of operations.
const METHODS: [&str; 9] = ["get", "post", "put", "patch", "delete", "query", "head", "options", "trace"];
/// Fields of a credential with secret values.
const SECRET_FIELDS: [&str; 5] = ["value", "username", "password", "clientId", "clientSecret"];

/// Reads one service into its toolbox. A problem leaves out only this service.
pub(super) fn read(
    reader: &mut ConfigReader<'_>,
    entry: &TreeEntry,
    key_path: &KeyPath,
    toolbox: &mut ToolboxConfig,
    queues: &IndexMap<String, QueueSettings>,
) {
    let key_path = key_path.key(&entry.key);
    let on_unset = if is_disabled(&entry.value) { OnUnsetVariable::Ignore } else { OnUnsetVariable::Report };
    reader.begin_part();
    let name = reader.expand_name(&entry.key, entry.key_span, &key_path, on_unset);
    // The MCP server keeps a name that both have.
    let name = if toolbox.has_server(&name) { ToolboxConfig::service_name(&name) } else { name };
    let name = check_name(reader, &name, entry.key_span, &key_path, toolbox);
    let described = describe(reader, &entry.value, &key_path, on_unset);
    if let Some((_, tools)) = &described {
        check_queues(reader, ("OpenAPI spec", entry), &key_path, tools, queues);
    }
    let part = reader.end_part(&key_path);
    let Some(name) = name else { return };
    let server = match part.entry(described) {
        Ok((service, tools)) => ServerEntry::OpenApi { service: Box::new(service), tools: Box::new(tools) },
        Err(unusable) => ServerEntry::Unusable(unusable),
    };
    toolbox.servers.insert(name, server);
}

fn describe(
    reader: &mut ConfigReader<'_>,
    node: &Node,
    key_path: &KeyPath,
    on_unset: OnUnsetVariable,
) -> Option<(OpenApiSettings, ServerSettings)> {
    let entries = reader.object(node, key_path, "a service", Some("use {spec: …}"))?;
    let mut expanded = expand_entries(reader, node, entries, key_path, (on_unset, "toolSchemas"));
    if let Value::Map(entries) = &mut expanded.value {
        for entry in entries {
            collect_credential_secrets(reader, entry, &key_path.key("credentials"));
        }
    }
    let (settings, tools, _): (Option<OpenApiSettings>, _, _) = read_split(reader, &expanded, key_path);
    let mut settings = settings?;
    check(reader, &settings, &expanded, key_path);
    let written = node.get("spec").unwrap_or(node);
    settings.spec = resolve_spec(&settings.spec, &reader.text(written.span).path);
    Some((settings, tools?))
}

/// Validates the settings of a service.
fn check(reader: &mut ConfigReader<'_>, settings: &OpenApiSettings, node: &Node, key_path: &KeyPath) {
    if settings.spec.trim().is_empty() {
        let help = Some("set spec to the path or URL of the document".to_owned());
        let span = node.get("spec").map_or(node.span, |spec| spec.span);
        reader.error(span, key_path, "the service has no OpenAPI document", help);
    }
    if let (Some(url), Some(written)) = (&settings.base_url, node.get("baseUrl"))
        && !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme))
    {
        let help = Some("use a URL such as https://api.example.com/v1".to_owned());
        reader.error(written.span, &key_path.key("baseUrl"), "invalid service URL", help);
    }
    let Some(methods) = node.get("includeMethods") else { return };
    let key_path = key_path.key("includeMethods");
    let items = match &methods.value {
        Value::List(items) => items.as_slice(),
        _ => std::slice::from_ref(methods),
    };
    for (index, item) in items.iter().enumerate() {
        if let Value::Text(method) = &item.value
            && !METHODS.contains(&method.to_ascii_lowercase().as_str())
        {
            let help = did_you_mean(method, METHODS)
                .or_else(|| Some(format!("valid methods: {}", METHODS.join(", "))));
            let key_path = key_path.segment(KeySegment::Index(index));
            reader.error(item.span, &key_path, "unknown method", help);
        }
    }
}

/// Resolves the document relative to the file that references it.
fn resolve_spec(spec: &str, file: &Path) -> String {
    if spec.starts_with("http://") || spec.starts_with("https://") {
        return spec.to_owned();
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    folder.join(spec).to_string_lossy().into_owned()
}

/// Marks the values of credentials as secrets.
fn collect_credential_secrets(reader: &mut ConfigReader<'_>, entry: &mut TreeEntry, key_path: &KeyPath) {
    let ("credentials", Value::Map(schemes)) = (entry.key.as_str(), &mut entry.value.value) else { return };
    for scheme in schemes {
        let Value::Map(fields) = &mut scheme.value.value else { continue };
        for field in fields.iter_mut().filter(|field| SECRET_FIELDS.contains(&field.key.as_str())) {
            field.value.origin = ValueOrigin::Secret;
            if let Value::Text(text) = &field.value.value {
                let path = key_path.key(&scheme.key).key(&field.key);
                match field.key.as_str() {
                    "username" | "clientId" => reader.add_secret(text),
                    _ => reader.add_certain_secret(text, field.value.span, &path),
                }
            }
        }
    }
}
