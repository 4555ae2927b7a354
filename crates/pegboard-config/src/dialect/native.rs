//! Our own dialect: `toolboxes`, `mcpServers`, `openapiSpecs`, `restTools`, `chains` and `agents`, and beside them what
//! holds for all.

use indexmap::IndexMap;
use pegboard_core::chain::{ChainSpec, Flaw, FlawPlace};
use pegboard_core::id::{ToolName, ToolboxName};
use pegboard_core::settings::RuntimeSettings;
use pegboard_core::settings::gateway::{Expose, GatewaySettings};
use pegboard_core::settings::telemetry::TelemetrySettings;
use serde::de::DeserializeOwned;

use super::{Remarks, agents, openapi, providers, rest, server};
use crate::configuration::{Configuration, Toolbox};
use crate::inputs::InputSettings;
use crate::near::near;
use crate::path::{Path, Step};
use crate::read::{Missing, Reader, Strictness, field_names};
use crate::tree::{Entry, Node, Value};

/// The version of the file that this program reads.
const VERSION: u64 = 1;
/// The toolbox of what stands at the root.
const DEFAULT: &str = "default";
/// What may hold servers, tools, chains and agents.
pub(crate) const SECTIONS: [&str; 5] = ["mcpServers", "openapiSpecs", "restTools", "chains", "agents"];

/// What may stand at the root, beside the settings of the runtime and of the gateway.
const OWN: [&str; 13] = [
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
/// What may stand in a toolbox.
const IN_TOOLBOX: [&str; 7] =
    ["description", "expose", "mcpServers", "openapiSpecs", "restTools", "chains", "agents"];

/// Every name that may stand at the root.
pub(crate) fn root_names() -> Vec<&'static str> {
    let settings = field_names::<RuntimeSettings>().iter().chain(field_names::<GatewaySettings>());
    OWN.iter().chain(settings).copied().collect()
}

/// Every name that may stand in a toolbox.
pub(crate) fn toolbox_names() -> &'static [&'static str] {
    &IN_TOOLBOX
}

pub(crate) fn read(reader: &mut Reader<'_>, root: &Node, configuration: &mut Configuration) {
    check_root(reader, root);
    let way = Path::default();
    let settings = filled_subset(reader, root, field_names::<RuntimeSettings>());
    configuration.settings = reader.read(&settings, &way, &[]).unwrap_or_default();
    check_settings(reader, &settings, &way);

    if SECTIONS.iter().any(|section| root.get(section).is_some()) {
        let mut toolbox = Toolbox { description: "Default toolbox".to_owned(), ..Toolbox::default() };
        read_sections(reader, root, &way, &mut toolbox, configuration);
        let name = ToolboxName::new(DEFAULT).expect("it is a short word");
        configuration.toolboxes.insert(name, toolbox);
    }
    if let Some(toolboxes) = root.get("toolboxes") {
        let way = way.key("toolboxes");
        for entry in entries(reader, toolboxes, &way) {
            read_toolbox(reader, entry, &way, configuration);
        }
    }

    providers::read(reader, root, configuration);
    configuration.cache = read_part(reader, root, "cache");
    configuration.telemetry = read_part(reader, root, "telemetry");
    check_telemetry(reader, root, &configuration.telemetry);
    let gateway = filled_subset(reader, root, field_names::<GatewaySettings>());
    configuration.gateway = reader.read(&gateway, &way, &[]).unwrap_or_default();
    let listed = configuration.toolboxes.iter().filter(|(_, toolbox)| toolbox.expose == Expose::Flat);
    configuration.gateway.listed = listed.map(|(name, _)| name.clone()).collect();
    check_profiles(reader, &gateway, &way, configuration);
}

/// Whether there is anything in a file that makes it a configuration, as far as it does not say that it is one.
pub(crate) fn is_configuration(root: &Node, strictness: Strictness, remarks: &mut Remarks) -> bool {
    // Many call something an agent that is described in the file itself. Ours are files of their own.
    let is_there = |section: &str| {
        root.get(section).is_some_and(|found| section != "agents" || found.entries().is_none())
    };
    let is_one = strictness == Strictness::Strict
        || SECTIONS.iter().chain(&["toolboxes"]).any(|section| is_there(section));
    if !is_one {
        let message = "this is no configuration: it has no mcpServers, no restTools, no toolboxes, no chains and no agents";
        let sections = || SECTIONS.iter().chain(&["toolboxes"]).copied();
        let meant = root.entries().unwrap_or_default().iter().find_map(|entry| near(&entry.key, sections()));
        let help = match meant {
            Some(meant) => format!("did you mean {meant}?"),
            None => "name it pegboard.*, or write pegboard: 1 into it, if it is one all the same".to_owned(),
        };
        let span = root.span.beside(root.span.start, root.span.start + 1);
        remarks.error(span, &Path::default(), message, Some(help));
    }
    is_one
}

/// What of the root nobody knows, and whether it is of our version.
fn check_root(reader: &mut Reader<'_>, root: &Node) {
    let way = Path::default();
    let names = root_names();
    for entry in root.entries().unwrap_or_default() {
        if !names.contains(&entry.key.as_str()) {
            reader.unknown_key(&entry.key, entry.key_span, &way.key(&entry.key), &names);
        }
    }
    let version = root.get("pegboard");
    if let Some(found) = version
        && !matches!(&found.value, Value::Number(number) if number.as_u64() == Some(VERSION))
    {
        let message = format!("this program reads version {VERSION} of the file");
        reader.error(found.span, &way.key("pegboard"), message, Some(format!("write pegboard: {VERSION}")));
    }
    let Some(defaults) = root.get("defaults") else { return };
    let way = way.key("defaults");
    let known = field_names::<RuntimeSettings>();
    for entry in entries(reader, defaults, &way) {
        if !known.contains(&entry.key.as_str()) {
            reader.unknown_key(&entry.key, entry.key_span, &way.key(&entry.key), known);
        }
    }
    // Those that count have been moved to the root. The others should be right all the same.
    let mut shadowed = subset(defaults, known);
    reader.fill(&mut shadowed, &way, Missing::Told);
    let _: Option<RuntimeSettings> = reader.read(&shadowed, &way, &[]);
}

/// Moves what stands under `defaults`, where many write what holds for all, to the root; what stands at the root itself
/// counts before it.
pub(crate) fn move_defaults(root: &mut Node) {
    let names = field_names::<RuntimeSettings>();
    let Value::Map(entries) = &mut root.value else { return };
    let there: Vec<String> = entries.iter().map(|entry| entry.key.clone()).collect();
    let defaults = entries.iter_mut().find(|entry| entry.key == "defaults");
    let Some(Value::Map(defaults)) = defaults.map(|entry| &mut entry.value.value) else { return };
    let is_moved = |entry: &Entry| names.contains(&entry.key.as_str()) && !there.contains(&entry.key);
    let (moved, others): (Vec<Entry>, Vec<Entry>) = std::mem::take(defaults).into_iter().partition(is_moved);
    *defaults = others;
    entries.extend(moved);
}

/// How a person is asked for what the configuration does not hold, by its id.
pub(crate) fn inputs(reader: &mut Reader<'_>, root: &Node) -> IndexMap<String, InputSettings> {
    let Some(inputs) = root.get("inputs") else { return IndexMap::new() };
    if matches!(inputs.value, Value::Null) {
        return IndexMap::new();
    }
    reader.read(inputs, &Path::default().key("inputs"), &[]).unwrap_or_default()
}

fn read_toolbox(reader: &mut Reader<'_>, entry: &Entry, way: &Path, configuration: &mut Configuration) {
    let way = way.key(&entry.key);
    let (name, _) = reader.fill_text(&entry.key, entry.key_span, &way, Missing::Told);
    let name = match ToolboxName::new(&name) {
        Ok(name) => name,
        Err(invalid) => return reader.error(entry.key_span, &way, invalid.to_string(), None),
    };
    for inner in entries(reader, &entry.value, &way) {
        if !IN_TOOLBOX.contains(&inner.key.as_str()) {
            reader.unknown_key(&inner.key, inner.key_span, &way.key(&inner.key), &IN_TOOLBOX);
        }
    }
    let mut toolbox = configuration.toolboxes.shift_remove(&name).unwrap_or_default();
    if let Some(description) = entry.value.get("description") {
        let way = way.key("description");
        let mut description = description.clone();
        reader.fill(&mut description, &way, Missing::Told);
        toolbox.description = reader.read(&description, &way, &[]).unwrap_or_default();
    }
    if let Some(expose) = entry.value.get("expose") {
        let way = way.key("expose");
        let mut filled = expose.clone();
        reader.fill(&mut filled, &way, Missing::Told);
        match reader.read(&filled, &way, &[]) {
            Some(chosen @ (Expose::Meta | Expose::Flat)) => toolbox.expose = chosen,
            Some(Expose::Agent | Expose::Hybrid | Expose::Auto) => {
                let help = "write flat to list its tools, or meta to have them behind the few";
                reader.error(expose.span, &way, "a toolbox is flat or meta", Some(help.to_owned()));
            }
            None => {}
        }
    }
    read_sections(reader, &entry.value, &way, &mut toolbox, configuration);
    configuration.toolboxes.insert(name, toolbox);
}

/// Reads the servers, tools, chains and agents that stand at the root or in a toolbox.
pub(super) fn read_sections(
    reader: &mut Reader<'_>,
    parent: &Node,
    way: &Path,
    toolbox: &mut Toolbox,
    configuration: &Configuration,
) {
    if let Some(servers) = parent.get("mcpServers") {
        let way = way.key("mcpServers");
        for entry in entries(reader, servers, &way) {
            server::read(reader, entry, &way, toolbox, &configuration.settings.queues);
        }
    }
    if let Some(services) = parent.get("openapiSpecs") {
        let way = way.key("openapiSpecs");
        for entry in entries(reader, services, &way) {
            openapi::read(reader, entry, &way, toolbox, &configuration.settings.queues);
        }
    }
    if let Some(tools) = parent.get("restTools") {
        let way = way.key("restTools");
        for entry in entries(reader, tools, &way) {
            rest::read(reader, entry, &way, toolbox, &configuration.settings.queues);
        }
    }
    if let Some(chains) = parent.get("chains") {
        let way = way.key("chains");
        for entry in entries(reader, chains, &way) {
            read_chain(reader, entry, &way, toolbox);
        }
    }
    if let Some(named) = parent.get("agents") {
        agents::read(reader, named, &way.key("agents"), toolbox);
    }
}

/// Reads one chain. Its paths and templates are a language of their own, so variables are left as they are.
fn read_chain(reader: &mut Reader<'_>, entry: &Entry, way: &Path, toolbox: &mut Toolbox) {
    let way = way.key(&entry.key);
    reader.begin_part();
    if let Err(invalid) = ToolName::new(&entry.key) {
        reader.error(entry.key_span, &way, invalid.to_string(), None);
    }
    let spec = reader.read::<ChainSpec>(&entry.value, &way, &[]);
    if let Some(other) = spec.as_ref().and_then(|spec| spec.name.as_ref()).filter(|name| **name != entry.key)
    {
        let message = format!("the chain is called '{}' here and '{other}' inside", entry.key);
        reader.error(entry.key_span, &way, message, Some("take one of the names away".to_owned()));
    }
    if toolbox.chains.contains_key(&entry.key) {
        reader.error(entry.key_span, &way, "the toolbox has a chain of this name", None);
    }
    if let Some(spec) = spec.as_ref().filter(|_| !reader.is_part_wrong()) {
        for flaw in spec.flaws() {
            tell_flaw(reader, &entry.value, &way, flaw);
        }
    }
    let part = reader.end_part(&way);
    if let Some(spec) = spec.filter(|_| !part.is_wrong) {
        toolbox.chains.insert(entry.key.clone(), ChainSpec { name: Some(entry.key.clone()), ..spec });
    }
}

/// Tells where a chain is written for what it can never work.
fn tell_flaw(reader: &mut Reader<'_>, chain: &Node, way: &Path, flaw: Flaw) {
    let Flaw { place, text } = flaw;
    match place {
        FlawPlace::Chain => reader.error(chain.span, way, format!("the chain {text}"), None),
        FlawPlace::Output => {
            let span = chain.get("output").unwrap_or(chain).span;
            reader.error(span, &way.key("output"), text, None);
        }
        FlawPlace::Step(index) => {
            let step = match chain.get("steps").map(|steps| &steps.value) {
                Some(Value::List(steps)) => steps.get(index),
                _ => None,
            };
            let way = way.key("steps").step(Step::Index(index));
            reader.error(step.unwrap_or(chain).span, &way, text, None);
        }
    }
}

/// Those settings of the root that have one of these names, with their variables filled in.
fn filled_subset(reader: &mut Reader<'_>, root: &Node, names: &[&str]) -> Node {
    let mut settings = subset(root, names);
    reader.fill(&mut settings, &Path::default(), Missing::Told);
    settings
}

/// What stands under one name at the root, with its variables filled in.
fn read_part<T: DeserializeOwned + Default>(reader: &mut Reader<'_>, root: &Node, name: &str) -> T {
    let Some(part) = root.get(name).filter(|part| !matches!(part.value, Value::Null)) else {
        return T::default();
    };
    let way = Path::default().key(name);
    // In a file that is not ours somebody else may mean something else by it.
    if part.entries().is_none() && reader.text(part.span).strictness == Strictness::Lenient {
        reader.warn(part.span, &way, "unknown setting, which is left alone", None);
        return T::default();
    }
    let mut part = part.clone();
    reader.fill(&mut part, &way, Missing::Told);
    reader.read(&part, &way, &[]).unwrap_or_default()
}

fn check_telemetry(reader: &mut Reader<'_>, root: &Node, settings: &TelemetrySettings) {
    let Some(telemetry) = root.get("telemetry") else { return };
    let way = Path::default().key("telemetry");
    if let (Some(endpoint), Some(written)) = (&settings.otlp_endpoint, telemetry.get("otlpEndpoint")) {
        if let Some((owner, _)) = endpoint.reveal().split_once('@') {
            reader.keep_secret(owner.rsplit(':').next().unwrap_or_default());
        }
        if !["http://", "https://"].iter().any(|scheme| endpoint.reveal().starts_with(scheme)) {
            let help = Some("write one like http://localhost:4318".to_owned());
            reader.error(written.span, &way.key("otlpEndpoint"), "this is no address of a collector", help);
        }
    }
    if !(0.0..=1.0).contains(&settings.traces.ratio) {
        let written = telemetry.get("traces").and_then(|traces| traces.get("ratio")).unwrap_or(telemetry);
        let message = "expected a number from 0 to 1";
        reader.error(written.span, &way.key("traces").key("ratio"), message, None);
    }
}

fn check_settings(reader: &mut Reader<'_>, settings: &Node, way: &Path) {
    check_range(reader, settings, way, "toolNameMaxLength", (20, 200));
    if let Some(output) = settings.get("toolOutput") {
        check_range(reader, output, &way.key("toolOutput"), "overlapPercent", (0, 50));
    }
}

/// Whether a number is between two others, both included.
pub(super) fn check_range(
    reader: &mut Reader<'_>,
    node: &Node,
    way: &Path,
    key: &str,
    (least, most): (i64, i64),
) {
    let Some(found) = node.get(key) else { return };
    let Value::Number(number) = &found.value else { return };
    if !number.as_i64().is_some_and(|number| (least..=most).contains(&number)) {
        let message = format!("expected a number from {least} to {most}, not {number}");
        reader.error(found.span, &way.key(key), message, None);
    }
}

/// Whether every toolbox that a profile names is there.
fn check_profiles(reader: &mut Reader<'_>, gateway: &Node, way: &Path, configuration: &Configuration) {
    let way = way.key("profiles");
    for profile in gateway.get("profiles").and_then(Node::entries).unwrap_or_default() {
        let Some(Value::List(toolboxes)) = profile.value.get("toolboxes").map(|list| &list.value) else {
            continue;
        };
        for (index, toolbox) in toolboxes.iter().enumerate() {
            let Value::Text(name) = &toolbox.value else { continue };
            if !configuration.toolboxes.contains_key(name.as_str()) {
                let way = way.key(&profile.key).key("toolboxes").step(Step::Index(index));
                let names = configuration.toolboxes.keys().map(ToolboxName::as_str);
                let help = near(name, names).map(|meant| format!("did you mean {meant}?"));
                reader.error(toolbox.span, &way, format!("there is no toolbox '{name}'"), help);
            }
        }
    }
}

/// The entries of what should be an object.
pub(super) fn entries<'n>(reader: &mut Reader<'_>, node: &'n Node, way: &Path) -> &'n [Entry] {
    // A section with nothing in it is what remains when its last entry is remarked out.
    if matches!(node.value, Value::Null) {
        return &[];
    }
    node.entries().unwrap_or_else(|| {
        reader.error(node.span, way, format!("expected an object, not {}", node.kind()), None);
        &[]
    })
}

/// Those entries of an object that have one of these keys.
pub(super) fn subset(node: &Node, keys: &[&str]) -> Node {
    let is_wanted = |entry: &&Entry| keys.contains(&entry.key.as_str());
    let kept = node.entries().unwrap_or_default().iter().filter(is_wanted).cloned().collect();
    Node { value: Value::Map(kept), ..node.clone() }
}
