//! The native dialect: `toolboxes`, `mcpServers`, `openapiSpecs`, `restTools`, `chains`, `agents` and global
//! settings.

use indexmap::IndexMap;
use pegboard_core::chain::{ChainError, ChainErrorLocation, ChainSpec};
use pegboard_core::id::{ToolName, ToolboxName};
use pegboard_core::settings::gateway::{Expose, GatewaySettings};
use pegboard_core::settings::telemetry::TelemetrySettings;
use pegboard_core::settings::{MAX_THREADS, RuntimeSettings};
use serde::de::DeserializeOwned;

use super::{TranslationNotes, agents, openapi, providers, rest, server};
use crate::configuration::{Configuration, ToolboxConfig};
use crate::did_you_mean;
use crate::inputs::InputDefinition;
use crate::path::{KeyPath, KeySegment};
use crate::read::{ConfigReader, KeyStrictness, OnUnsetVariable, field_names};
use crate::section::SECTIONS;
use crate::tree::{Node, TreeEntry, Value};

/// Version of the file format.
const FILE_VERSION: u64 = 1;
/// Toolbox of the sections at the root.
const DEFAULT_TOOLBOX: &str = "default";

/// Keys at the root, beside the settings of the runtime and the gateway.
const ROOT_SETTINGS: [&str; 13] = [
    "$schema",
    "pegboard",
    "toolboxes",
    "mcpServers",
    "openapiSpecs",
    "restTools",
    "chains",
    "agents",
    "providers",
    "inputs",
    "cache",
    "telemetry",
    "defaults",
];
/// Keys of a toolbox.
const TOOLBOX_SETTINGS: [&str; 7] =
    ["description", "expose", "mcpServers", "openapiSpecs", "restTools", "chains", "agents"];

/// Returns all valid keys at the root.
pub(crate) fn root_names() -> Vec<&'static str> {
    let settings = field_names::<RuntimeSettings>().iter().chain(field_names::<GatewaySettings>());
    ROOT_SETTINGS.iter().chain(settings).copied().collect()
}

/// Returns all valid keys of a toolbox.
pub(crate) fn toolbox_names() -> &'static [&'static str] {
    &TOOLBOX_SETTINGS
}

pub(crate) fn read(reader: &mut ConfigReader<'_>, root: &Node, configuration: &mut Configuration) {
    check_root(reader, root);
    let key_path = KeyPath::default();
    let settings = expanded_subset(reader, root, field_names::<RuntimeSettings>());
    configuration.settings = reader.read(&settings, &key_path, &[]).unwrap_or_default();
    check_settings(reader, &settings, &key_path);

    if SECTIONS.iter().any(|section| root.get(section).is_some()) {
        let mut toolbox = ToolboxConfig::default();
        read_sections(reader, root, &key_path, &mut toolbox, configuration);
        let name = ToolboxName::new(DEFAULT_TOOLBOX).expect("the name is valid");
        configuration.toolboxes.insert(name, toolbox);
    }
    if let Some(toolboxes) = root.get("toolboxes") {
        let key_path = key_path.key("toolboxes");
        for entry in object_entries(reader, toolboxes, &key_path) {
            read_toolbox(reader, entry, &key_path, configuration);
        }
    }

    providers::read(reader, root, configuration);
    configuration.cache = read_section(reader, root, "cache");
    configuration.telemetry = read_section(reader, root, "telemetry");
    check_telemetry(reader, root, &configuration.telemetry);
    let gateway = expanded_subset(reader, root, field_names::<GatewaySettings>());
    configuration.gateway = reader.read(&gateway, &key_path, &[]).unwrap_or_default();
    let listed = configuration.toolboxes.iter().filter(|(_, toolbox)| toolbox.expose == Expose::Flat);
    configuration.gateway.listed = listed.map(|(name, _)| name.clone()).collect();
    check_profiles(reader, &gateway, &key_path, configuration);
    check_allowed(reader, &gateway, &key_path);
}

/// Returns `true` if the file is recognizably a configuration. Otherwise adds an error.
pub(crate) fn is_configuration(root: &Node, strictness: KeyStrictness, notes: &mut TranslationNotes) -> bool {
    // Other programs define agents inline, as an object. Native agents are separate files.
    let is_there = |section: &str| {
        root.get(section).is_some_and(|found| section != "agents" || found.entries().is_none())
    };
    let is_one = strictness == KeyStrictness::Strict
        || SECTIONS.iter().chain(&["toolboxes"]).any(|section| is_there(section));
    if !is_one {
        let message = "not a configuration: no mcpServers, restTools, toolboxes, chains or agents";
        let sections = || SECTIONS.iter().chain(&["toolboxes"]).copied();
        let mut entries = root.entries().unwrap_or_default().iter();
        let help = entries.find_map(|entry| did_you_mean(&entry.key, sections()));
        let help = help.unwrap_or_else(|| "if it is one, name it pegboard.* or add pegboard: 1".to_owned());
        let span = root.span.beside(root.span.start, root.span.start + 1);
        notes.error(span, &KeyPath::default(), message, Some(help));
    }
    is_one
}

/// Reports unknown keys at the root and checks the version.
fn check_root(reader: &mut ConfigReader<'_>, root: &Node) {
    let key_path = KeyPath::default();
    let names = root_names();
    for entry in root.entries().unwrap_or_default() {
        if !names.contains(&entry.key.as_str()) {
            reader.unknown_key(&entry.key, entry.key_span, &key_path.key(&entry.key), &names);
        }
    }
    let version = root.get("pegboard");
    if let Some(found) = version
        && !matches!(&found.value, Value::Number(number) if number.as_u64() == Some(FILE_VERSION))
    {
        let message = format!("unsupported version: this program reads version {FILE_VERSION}");
        reader.error(
            found.span,
            &key_path.key("pegboard"),
            message,
            Some(format!("set pegboard: {FILE_VERSION}")),
        );
    }
    let Some(defaults) = root.get("defaults") else { return };
    let key_path = key_path.key("defaults");
    let known = field_names::<RuntimeSettings>();
    for entry in object_entries(reader, defaults, &key_path) {
        if !known.contains(&entry.key.as_str()) {
            reader.unknown_key(&entry.key, entry.key_span, &key_path.key(&entry.key), known);
        }
    }
    // The effective settings were moved to the root. Shadowed ones are validated as well.
    let mut shadowed = subset(defaults, known);
    reader.expand(&mut shadowed, &key_path, OnUnsetVariable::Report);
    let _: Option<RuntimeSettings> = reader.read(&shadowed, &key_path, &[]);
}

/// Moves the settings under `defaults` to the root. Settings at the root take precedence.
pub(crate) fn move_defaults(root: &mut Node) {
    let names = field_names::<RuntimeSettings>();
    let Value::Map(entries) = &mut root.value else { return };
    let there: Vec<String> = entries.iter().map(|entry| entry.key.clone()).collect();
    let defaults = entries.iter_mut().find(|entry| entry.key == "defaults");
    let Some(Value::Map(defaults)) = defaults.map(|entry| &mut entry.value.value) else { return };
    let is_moved = |entry: &TreeEntry| names.contains(&entry.key.as_str()) && !there.contains(&entry.key);
    let (moved, others): (Vec<TreeEntry>, Vec<TreeEntry>) =
        std::mem::take(defaults).into_iter().partition(is_moved);
    *defaults = others;
    entries.extend(moved);
}

/// Returns the input definitions by ID.
pub(crate) fn inputs(reader: &mut ConfigReader<'_>, root: &Node) -> IndexMap<String, InputDefinition> {
    let Some(inputs) = root.get("inputs") else { return IndexMap::new() };
    if matches!(inputs.value, Value::Null) {
        return IndexMap::new();
    }
    reader.read(inputs, &KeyPath::default().key("inputs"), &[]).unwrap_or_default()
}

fn read_toolbox(
    reader: &mut ConfigReader<'_>,
    entry: &TreeEntry,
    key_path: &KeyPath,
    configuration: &mut Configuration,
) {
    let key_path = key_path.key(&entry.key);
    let name = reader.expand_name(&entry.key, entry.key_span, &key_path, OnUnsetVariable::Report);
    let name = match ToolboxName::new(&name) {
        Ok(name) => name,
        Err(invalid) => return reader.error(entry.key_span, &key_path, invalid.to_string(), None),
    };
    for inner in object_entries(reader, &entry.value, &key_path) {
        if !TOOLBOX_SETTINGS.contains(&inner.key.as_str()) {
            reader.unknown_key(&inner.key, inner.key_span, &key_path.key(&inner.key), &TOOLBOX_SETTINGS);
        }
    }
    let mut toolbox = configuration.toolboxes.shift_remove(&name).unwrap_or_default();
    if let Some(description) = entry.value.get("description") {
        let key_path = key_path.key("description");
        let mut description = description.clone();
        reader.expand(&mut description, &key_path, OnUnsetVariable::Report);
        toolbox.description = reader.read(&description, &key_path, &[]).unwrap_or_default();
    }
    if let Some(expose) = entry.value.get("expose") {
        let key_path = key_path.key("expose");
        let mut filled = expose.clone();
        reader.expand(&mut filled, &key_path, OnUnsetVariable::Report);
        match reader.read(&filled, &key_path, &[]) {
            Some(chosen @ (Expose::Meta | Expose::Flat)) => toolbox.expose = chosen,
            Some(Expose::Agent | Expose::Hybrid | Expose::Auto) => {
                let help = "use flat to list its tools, or meta to expose them through the meta-tools";
                reader.error(expose.span, &key_path, "a toolbox must be flat or meta", Some(help.to_owned()));
            }
            None => {}
        }
    }
    read_sections(reader, &entry.value, &key_path, &mut toolbox, configuration);
    configuration.toolboxes.insert(name, toolbox);
}

/// Reads the servers, tools, chains and agents at the root or in a toolbox.
pub(super) fn read_sections(
    reader: &mut ConfigReader<'_>,
    parent: &Node,
    key_path: &KeyPath,
    toolbox: &mut ToolboxConfig,
    configuration: &Configuration,
) {
    if let Some(servers) = parent.get("mcpServers") {
        let key_path = key_path.key("mcpServers");
        for entry in object_entries(reader, servers, &key_path) {
            server::read(reader, entry, &key_path, toolbox, &configuration.settings.queues);
        }
    }
    if let Some(services) = parent.get("openapiSpecs") {
        let key_path = key_path.key("openapiSpecs");
        for entry in object_entries(reader, services, &key_path) {
            openapi::read(reader, entry, &key_path, toolbox, &configuration.settings.queues);
        }
    }
    if let Some(tools) = parent.get("restTools") {
        let key_path = key_path.key("restTools");
        for entry in object_entries(reader, tools, &key_path) {
            rest::read(reader, entry, &key_path, toolbox, &configuration.settings.queues);
        }
    }
    if let Some(chains) = parent.get("chains") {
        let key_path = key_path.key("chains");
        for entry in object_entries(reader, chains, &key_path) {
            read_chain(reader, entry, &key_path, toolbox);
        }
    }
    if let Some(named) = parent.get("agents") {
        agents::read(reader, named, &key_path.key("agents"), toolbox);
    }
}

/// Reads one chain. Chains have their own path and template syntax, so variables are not expanded.
fn read_chain(
    reader: &mut ConfigReader<'_>,
    entry: &TreeEntry,
    key_path: &KeyPath,
    toolbox: &mut ToolboxConfig,
) {
    let key_path = key_path.key(&entry.key);
    reader.begin_part();
    if let Err(invalid) = ToolName::new(&entry.key) {
        reader.error(entry.key_span, &key_path, invalid.to_string(), None);
    }
    let spec = reader.read::<ChainSpec>(&entry.value, &key_path, &[]);
    if let Some(other) = spec.as_ref().and_then(|spec| spec.name.as_ref()).filter(|name| **name != entry.key)
    {
        let message = format!("the chain is named '{}' here but '{other}' inside", entry.key);
        reader.error(entry.key_span, &key_path, message, Some("remove one of the names".to_owned()));
    }
    if toolbox.chains.contains_key(&entry.key) {
        reader.error(entry.key_span, &key_path, "duplicate chain name in the toolbox", None);
    }
    if let Some(spec) = spec.as_ref().filter(|_| !reader.is_part_invalid()) {
        for error in spec.structural_errors() {
            report_chain_error(reader, &entry.value, &key_path, error);
        }
    }
    let part = reader.end_part(&key_path);
    if let Some(spec) = spec.filter(|_| !part.is_invalid) {
        toolbox.chains.insert(entry.key.clone(), ChainSpec { name: Some(entry.key.clone()), ..spec });
    }
}

/// Reports an error of a chain at its location.
fn report_chain_error(reader: &mut ConfigReader<'_>, chain: &Node, key_path: &KeyPath, error: ChainError) {
    let ChainError { location, text } = error;
    match location {
        ChainErrorLocation::Chain => reader.error(chain.span, key_path, format!("the chain {text}"), None),
        ChainErrorLocation::Output => {
            let span = chain.get("output").unwrap_or(chain).span;
            reader.error(span, &key_path.key("output"), text, None);
        }
        ChainErrorLocation::Step(index) => {
            let step = match chain.get("steps").map(|steps| &steps.value) {
                Some(Value::List(steps)) => steps.get(index),
                _ => None,
            };
            let key_path = key_path.key("steps").segment(KeySegment::Index(index));
            reader.error(step.unwrap_or(chain).span, &key_path, text, None);
        }
    }
}

/// Returns the entries of the root with these keys, with variables expanded.
fn expanded_subset(reader: &mut ConfigReader<'_>, root: &Node, names: &[&str]) -> Node {
    let mut settings = subset(root, names);
    reader.expand(&mut settings, &KeyPath::default(), OnUnsetVariable::Report);
    settings
}

/// Reads the section under one key at the root, with variables expanded.
fn read_section<T: DeserializeOwned + Default>(reader: &mut ConfigReader<'_>, root: &Node, name: &str) -> T {
    let Some(part) = root.get(name).filter(|part| !matches!(part.value, Value::Null)) else {
        return T::default();
    };
    let key_path = KeyPath::default().key(name);
    // In a foreign file the key may mean something else.
    if part.entries().is_none() && reader.text(part.span).strictness == KeyStrictness::Lenient {
        reader.warn(part.span, &key_path, "unknown setting, ignored", None);
        return T::default();
    }
    let mut part = part.clone();
    reader.expand(&mut part, &key_path, OnUnsetVariable::Report);
    reader.read(&part, &key_path, &[]).unwrap_or_default()
}

fn check_telemetry(reader: &mut ConfigReader<'_>, root: &Node, settings: &TelemetrySettings) {
    let Some(telemetry) = root.get("telemetry") else { return };
    let key_path = KeyPath::default().key("telemetry");
    if let (Some(endpoint), Some(written)) = (&settings.otlp_endpoint, telemetry.get("otlpEndpoint")) {
        if let Some((owner, _)) = endpoint.reveal().split_once('@') {
            reader.add_secret(owner.rsplit(':').next().unwrap_or_default());
        }
        if !["http://", "https://"].iter().any(|scheme| endpoint.reveal().starts_with(scheme)) {
            let help = Some("use a URL such as http://localhost:4318".to_owned());
            reader.error(written.span, &key_path.key("otlpEndpoint"), "invalid collector URL", help);
        }
    }
    if !(0.0..=1.0).contains(&settings.traces.ratio) {
        let written = telemetry.get("traces").and_then(|traces| traces.get("ratio")).unwrap_or(telemetry);
        let message = "expected a number from 0 to 1";
        reader.error(written.span, &key_path.key("traces").key("ratio"), message, None);
    }
}

fn check_settings(reader: &mut ConfigReader<'_>, settings: &Node, key_path: &KeyPath) {
    check_range(reader, settings, key_path, "threads", (1, MAX_THREADS.into()));
    check_range(reader, settings, key_path, "toolNameMaxLength", (20, 200));
    check_range(reader, settings, key_path, "openToolboxMaxBytes", (1_000, 10_000_000));
    if let Some(output) = settings.get("toolOutput") {
        check_range(reader, output, &key_path.key("toolOutput"), "overlapPercent", (0, 50));
    }
}

/// Checks that a number is in an inclusive range.
pub(super) fn check_range(
    reader: &mut ConfigReader<'_>,
    node: &Node,
    key_path: &KeyPath,
    key: &str,
    (least, most): (i64, i64),
) {
    let Some(found) = node.get(key) else { return };
    let Value::Number(number) = &found.value else { return };
    if !number.as_i64().is_some_and(|number| (least..=most).contains(&number)) {
        let message = format!("expected a number from {least} to {most}, not {number}");
        reader.error(found.span, &key_path.key(key), message, None);
    }
}

/// Checks that allowed hosts and origins have the form in which requests name them.
fn check_allowed(reader: &mut ConfigReader<'_>, gateway: &Node, key_path: &KeyPath) {
    let is_host = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    let is_origin = |text: &str| {
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        rest.is_some_and(|rest| match rest.split_once(':') {
            Some((host, port)) => is_host(host) && port.parse::<u16>().is_ok(),
            None => is_host(rest),
        })
    };
    let mut check = |key: &str, is_valid: &dyn Fn(&str) -> bool, message: &str, help: &str| {
        let Some(Value::List(items)) = gateway.get(key).map(|list| &list.value) else { return };
        for (index, item) in items.iter().enumerate() {
            let Value::Text(text) = &item.value else { continue };
            if !is_valid(text) {
                let key_path = key_path.key(key).segment(KeySegment::Index(index));
                reader.error(item.span, &key_path, message, Some(help.to_owned()));
            }
        }
    };
    check("allowedHosts", &is_host, "expected a host name", "without scheme and port: tools.example.com");
    check("allowedOrigins", &is_origin, "expected an origin", "without a path: http://localhost:3000");
}

/// Checks that all toolboxes referenced by profiles exist.
fn check_profiles(
    reader: &mut ConfigReader<'_>,
    gateway: &Node,
    key_path: &KeyPath,
    configuration: &Configuration,
) {
    let key_path = key_path.key("profiles");
    for profile in gateway.get("profiles").and_then(Node::entries).unwrap_or_default() {
        let Some(Value::List(toolboxes)) = profile.value.get("toolboxes").map(|list| &list.value) else {
            continue;
        };
        for (index, toolbox) in toolboxes.iter().enumerate() {
            let Value::Text(name) = &toolbox.value else { continue };
            if !configuration.toolboxes.contains_key(name.as_str()) {
                let key_path = key_path.key(&profile.key).key("toolboxes").segment(KeySegment::Index(index));
                let names = configuration.toolboxes.keys().map(ToolboxName::as_str);
                let help = did_you_mean(name, names);
                reader.error(toolbox.span, &key_path, format!("unknown toolbox '{name}'"), help);
            }
        }
    }
}

/// Returns the entries of an object, or reports the wrong type.
pub(super) fn object_entries<'n>(
    reader: &mut ConfigReader<'_>,
    node: &'n Node,
    key_path: &KeyPath,
) -> &'n [TreeEntry] {
    // A key without a value remains when its last entry is commented out.
    if matches!(node.value, Value::Null) {
        return &[];
    }
    node.entries().unwrap_or_else(|| {
        reader.error(node.span, key_path, format!("expected an object, not {}", node.kind()), None);
        &[]
    })
}

/// Returns an object with only these keys.
pub(super) fn subset(node: &Node, keys: &[&str]) -> Node {
    let is_wanted = |entry: &&TreeEntry| keys.contains(&entry.key.as_str());
    let kept = node.entries().unwrap_or_default().iter().filter(is_wanted).cloned().collect();
    Node { value: Value::Map(kept), ..node.clone() }
}
