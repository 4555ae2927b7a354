//! Known MCP clients: the locations of their configuration files and the shape of their server entries.
//!
//! All of it is data, in `clients.toml`.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};

mod entry;

use crate::Environment;
use crate::source::ConfigFormat;
use crate::source_spec::SpecContext;
use crate::suggest;
use crate::to_json::to_json;
use crate::tree;
use crate::trust::FileOrigin;

/// An MCP client with a configuration file that lists servers.
///
/// ```
/// use pegboard_config::clients::{Platform, find_client};
/// # use std::path::Path;
///
/// let cursor = find_client("cursor").unwrap();
/// let environment = |name: &str| (name == "HOME").then(|| "/home/ada".to_owned());
/// let paths = cursor.config_paths(&environment, Path::new("/src/rocket"), Platform::Linux);
/// assert_eq!(paths, [Path::new("/src/rocket/.cursor/mcp.json"), Path::new("/home/ada/.cursor/mcp.json")]);
/// let entry = cursor.entry_for_program("notes", "notes-server", &["--quiet".to_owned()]);
/// assert_eq!(entry.to_string(), r#"{"command":"notes-server","args":["--quiet"]}"#);
/// ```
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownClient {
    name: String,
    title: String,
    #[serde(default)]
    aliases: Vec<String>,
    format: TableFormat,
    #[serde(default)]
    project: Vec<String>,
    #[serde(default)]
    user: Vec<String>,
    #[serde(default)]
    linux: Vec<String>,
    #[serde(default)]
    macos: Vec<String>,
    #[serde(default)]
    windows: Vec<String>,
    key_path: Vec<String>,
    local: Option<Vec<String>>,
    members: Option<String>,
    timeout: Option<TimeoutUnit>,
    program: Map<String, Value>,
    url: Option<Map<String, Value>>,
    env: Option<String>,
    headers: Option<String>,
    variable: Option<String>,
}

/// File format as spelled in the table.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TableFormat {
    Json,
    Yaml,
    Toml,
}

/// Unit of the client's numeric `timeout`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TimeoutUnit {
    Milliseconds,
    Seconds,
}

/// Platforms with their own configuration directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// Linux, and other Unix systems.
    Linux,
    /// macOS.
    MacOs,
    /// Windows.
    Windows,
}

impl Platform {
    /// All platforms.
    pub const ALL: [Self; 3] = [Self::Linux, Self::MacOs, Self::Windows];

    /// Returns the platform that this program was compiled for.
    pub fn current() -> Self {
        match std::env::consts::OS {
            "macos" | "ios" => Self::MacOs,
            "windows" => Self::Windows,
            _ => Self::Linux,
        }
    }
}

/// Returns all clients, in the order of the table.
///
/// ```
/// let names: Vec<&str> = pegboard_config::clients::clients().iter().map(|client| client.name()).collect();
/// assert!(names.contains(&"claude-desktop"));
/// ```
pub fn clients() -> &'static [KnownClient] {
    &CLIENTS
}

/// Returns the client with this name or alias, ignoring case.
pub fn find_client(name: &str) -> Option<&'static KnownClient> {
    let is_match = |client: &&KnownClient| client.names().any(|word| word.eq_ignore_ascii_case(name));
    clients().iter().find(is_match)
}

/// Returns the name of the most similar client, if one is similar enough.
///
/// ```
/// assert_eq!(pegboard_config::clients::suggest_client("cursr"), Some("cursor"));
/// assert_eq!(pegboard_config::clients::suggest_client("teapot"), None);
/// ```
pub fn suggest_client(written: &str) -> Option<&'static str> {
    let word = suggest(written, clients().iter().flat_map(KnownClient::names))?;
    find_client(word).map(KnownClient::name)
}

/// Returns the client that owns the file at this path, as far as the path tells.
pub fn client_for_path(path: &Path) -> Option<&'static KnownClient> {
    clients().iter().find(|client| client.path_suffixes().any(|suffix| path.ends_with(suffix)))
}

/// Returns `true` if the file is one that a client keeps for a user, not for a project.
pub fn is_user_file(path: &Path, environment: Environment<'_>) -> bool {
    let platform = Platform::current();
    clients().iter().any(|client| client.user_paths(environment, platform).iter().any(|user| user == path))
}

impl KnownClient {
    /// Name on the command line.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Display name.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Alternative names.
    pub fn aliases(&self) -> &[String] {
        &self.aliases
    }

    /// Format of its files.
    pub fn format(&self) -> ConfigFormat {
        match self.format {
            TableFormat::Json => ConfigFormat::Json,
            TableFormat::Yaml => ConfigFormat::Yaml,
            TableFormat::Toml => ConfigFormat::Toml,
        }
    }

    /// Returns `true` if its servers are a list, each with its name inside, rather than an object.
    pub fn lists_servers(&self) -> bool {
        self.members.is_some()
    }

    /// Returns the possible paths of its files: those of the project in `folder`, then those of the user.
    pub fn config_paths(
        &self,
        environment: Environment<'_>,
        folder: &Path,
        platform: Platform,
    ) -> Vec<PathBuf> {
        let mut paths = self.project_paths(folder);
        paths.extend(self.user_paths(environment, platform));
        paths
    }

    /// Returns the possible paths of its files for the project in `folder`, the preferred one first.
    pub fn project_paths(&self, folder: &Path) -> Vec<PathBuf> {
        self.project.iter().map(|path_template| folder.join(path_template)).collect()
    }

    /// Returns the possible paths of its files for the user, the preferred one first. A path that starts with
    /// an unset variable is omitted.
    pub fn user_paths(&self, environment: Environment<'_>, platform: Platform) -> Vec<PathBuf> {
        let platform_paths = match platform {
            Platform::Linux => &self.linux,
            Platform::MacOs => &self.macos,
            Platform::Windows => &self.windows,
        };
        let paths = self.user.iter().chain(platform_paths);
        paths.filter_map(|path_template| resolve_path(path_template, environment, platform)).collect()
    }

    /// Returns its existing files: the user's, and then that of the project.
    pub(crate) fn existing_files(&self, context: &SpecContext<'_>) -> Vec<PathBuf> {
        let first = |paths: Vec<PathBuf>| paths.into_iter().find(|path| path.is_file());
        let user = first(self.user_paths(context.environment, context.platform));
        user.into_iter().chain(first(self.project_paths(context.folder))).collect()
    }

    /// Returns the origin of one of its files. In the home directory the project's file may be the user's.
    pub(crate) fn origin_of(&self, path: &Path, context: &SpecContext<'_>) -> FileOrigin {
        let is_user = self.user_paths(context.environment, context.platform).iter().any(|user| user == path);
        if is_user { FileOrigin::User } else { FileOrigin::Project }
    }

    /// Returns the path templates of the table: those of a project, and those of a user on a platform.
    pub fn path_templates(&self, platform: Platform) -> (&[String], Vec<&str>) {
        let platform_paths = match platform {
            Platform::Linux => &self.linux,
            Platform::MacOs => &self.macos,
            Platform::Windows => &self.windows,
        };
        (&self.project, self.user.iter().chain(platform_paths).map(String::as_str).collect())
    }

    /// Keys that lead to its servers.
    pub fn key_path(&self) -> &[String] {
        &self.key_path
    }

    /// Returns the keys that lead to the servers of a single directory, if the client keeps such servers in
    /// the user's file.
    pub fn local_key_path(&self, folder: &Path) -> Option<Vec<String>> {
        let folder = folder.to_string_lossy();
        let key_path = self.local.as_ref()?;
        Some(key_path.iter().map(|key| key.replace("{folder}", &folder)).collect())
    }

    /// Creates the entry of a server that is started as a command.
    pub fn entry_for_program(&self, name: &str, command: &str, args: &[String]) -> Value {
        fill_template(&self.program, &EntryValues { name, command, args, url: "" })
    }

    /// Creates the entry of a server with a URL; `None` if the client does not support such servers.
    pub fn entry_for_url(&self, name: &str, url: &str) -> Option<Value> {
        let template = self.url.as_ref()?;
        Some(fill_template(template, &EntryValues { name, command: "", args: &[], url }))
    }

    /// Unit of the number under `timeout`; `None` if the client has no such setting.
    pub(crate) fn timeout(&self) -> Option<TimeoutUnit> {
        self.timeout
    }

    /// Returns `true` if the user's file may have servers of single directories.
    pub(crate) fn has_local_servers(&self) -> bool {
        self.local.is_some()
    }

    /// Returns the directory of the servers below these keys, if the client keeps servers of single directories in the
    /// user's file.
    pub(crate) fn directory_of<'k>(&self, keys: impl Iterator<Item = &'k str>) -> Option<PathBuf> {
        let local = self.local.as_ref()?;
        let at = local.iter().position(|key| key == "{folder}")?;
        let keys: Vec<&str> = keys.take(at + 1).collect();
        let is_below = keys.len() == at + 1 && keys.iter().zip(&local[..at]).all(|(key, local)| key == local);
        is_below.then(|| PathBuf::from(keys[at])).filter(|folder| folder.is_absolute())
    }

    /// Path templates of its files in a project.
    pub(crate) fn project(&self) -> &[String] {
        &self.project
    }

    /// Returns the path suffixes that identify its files unambiguously.
    fn path_suffixes(&self) -> impl Iterator<Item = PathBuf> {
        let user_suffixes = [&self.user, &self.linux, &self.macos, &self.windows].into_iter().flatten();
        let user_suffixes = user_suffixes.filter_map(|path_template| {
            let (first, rest) = path_template.split_once(['/', '\\'])?;
            // The directory behind a variable is unknown, and many files share one name.
            (first == "~" || rest.contains(['/', '\\'])).then_some(rest)
        });
        let path_suffixes = self.project.iter().map(String::as_str).chain(user_suffixes);
        path_suffixes.map(|suffix| suffix.split(['/', '\\']).collect())
    }

    /// Returns the name and all aliases.
    fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.aliases.iter().map(String::as_str))
    }
}

/// The table, parsed from the embedded file.
static CLIENTS: LazyLock<Vec<KnownClient>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct ClientTable {
        client: Vec<KnownClient>,
    }
    let parsed = tree::parse(include_str!("clients.toml"), ConfigFormat::Toml).ok().flatten();
    let parsed = parsed.expect("the embedded table is valid TOML");
    let table: ClientTable =
        serde_json::from_value(to_json(&parsed.root)).expect("the embedded table has the expected shape");
    table.client
});

/// Values that replace the placeholders of an entry template.
struct EntryValues<'f> {
    name: &'f str,
    command: &'f str,
    args: &'f [String],
    url: &'f str,
}

fn fill_template(template: &Map<String, Value>, values: &EntryValues<'_>) -> Value {
    let filled = |value: &Value| match value.as_str() {
        Some("{name}") => values.name.into(),
        Some("{command}") => values.command.into(),
        Some("{url}") => values.url.into(),
        Some("{args}") => values.args.into(),
        Some("{words}") => {
            std::iter::once(values.command).chain(values.args.iter().map(String::as_str)).collect()
        }
        Some(_) | None => value.clone(),
    };
    Value::Object(template.iter().map(|(key, value)| (key.clone(), filled(value))).collect())
}

/// Resolves a path template on this machine, if its first component is known.
fn resolve_path(written: &str, environment: Environment<'_>, platform: Platform) -> Option<PathBuf> {
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    let mut parts = written.split(['/', '\\']);
    let first = parts.next()?;
    let mut parts = parts.peekable();
    let base = if first == "~" {
        let home_variables =
            if platform == Platform::Windows { ["USERPROFILE", "HOME"] } else { ["HOME", "USERPROFILE"] };
        let configured = (platform == Platform::Linux && parts.peek() == Some(&".config"))
            .then(|| set("XDG_CONFIG_HOME"))
            .flatten();
        if configured.is_some() {
            parts.next();
        }
        configured.or_else(|| home_variables.into_iter().find_map(set))?
    } else if let Some(name) = first.strip_prefix('$') {
        set(name)?
    } else if let Some(name) = first.strip_prefix('%') {
        set(name.trim_end_matches('%'))?
    } else if first.is_empty() {
        "/".to_owned()
    } else {
        first.to_owned()
    };
    let mut path = PathBuf::from(base);
    path.extend(parts);
    Some(path)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    fn environment(name: &str) -> Option<String> {
        let value = match name {
            "HOME" => "/home/ada",
            "USERPROFILE" => "/users/ada",
            "APPDATA" => "/users/ada/AppData/Roaming",
            "LOCALAPPDATA" => "/users/ada/AppData/Local",
            "COPILOT_HOME" => "/opt/copilot",
            "CLAUDE_CONFIG_DIR" => "",
            _ => return None,
        };
        Some(value.to_owned())
    }

    #[test]
    fn client_names_are_unique() {
        let mut names: Vec<&str> = clients().iter().flat_map(KnownClient::names).collect();
        let n_names = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), n_names);
    }

    #[test]
    fn every_client_has_a_path_on_every_platform() {
        for client in clients() {
            for platform in Platform::ALL {
                let paths = client.config_paths(&environment, Path::new("/src"), platform);
                assert!(!paths.is_empty(), "{} {platform:?}", client.name());
            }
        }
    }

    #[test]
    fn paths_start_in_the_directories_of_the_platform() {
        let paths = |name: &str, platform| {
            let paths = find_client(name).unwrap().user_paths(&environment, platform);
            paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join("\n")
        };
        assert_snapshot!(paths("claude-desktop", Platform::Linux), @"
        /home/ada/.config/Claude/claude_desktop_config.json
        /home/ada/.config/claude/claude_desktop_config.json
        ");
        assert_snapshot!(paths("claude-desktop", Platform::MacOs), @"/home/ada/Library/Application Support/Claude/claude_desktop_config.json");
        assert_snapshot!(paths("claude-desktop", Platform::Windows), @"/users/ada/AppData/Roaming/Claude/claude_desktop_config.json");
        assert_snapshot!(paths("copilot", Platform::Linux), @"
        /opt/copilot/mcp-config.json
        /home/ada/.copilot/mcp-config.json
        ");
        assert_snapshot!(paths("claude-code", Platform::Windows), @"/users/ada/.claude.json");
        assert_snapshot!(paths("ai-agent", Platform::Linux), @"
        /home/ada/.ai-agent/ai-agent.json
        /etc/ai-agent/ai-agent.json
        ");
    }

    #[test]
    fn xdg_config_home_applies_on_linux() {
        let with_xdg = |name: &str| match name {
            "XDG_CONFIG_HOME" => Some("/cfg".to_owned()),
            _ => environment(name),
        };
        let paths = |platform| find_client("zed").unwrap().user_paths(&with_xdg, platform);
        assert_eq!(paths(Platform::Linux), [Path::new("/cfg/zed/settings.json")]);
        assert_eq!(paths(Platform::MacOs), [Path::new("/home/ada/.config/zed/settings.json")]);
    }

    #[test]
    fn a_path_with_an_unset_variable_is_omitted() {
        let codex = find_client("codex").unwrap();
        assert_eq!(codex.user_paths(&|_| None, Platform::Linux), Vec::<PathBuf>::new());
    }

    #[test]
    fn every_client_has_its_own_entry_format() {
        let args = ["serve".to_owned(), "--stdio".to_owned()];
        let lines = clients().iter().map(|client| {
            let program = client.entry_for_program("pegboard", "pegboard", &args);
            let url = client.entry_for_url("pegboard", "http://127.0.0.1:7332/mcp");
            let url = url.map_or("-".to_owned(), |url| url.to_string());
            format!("{} {}: {program} {url}", client.name(), client.key_path().join("."))
        });
        assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r#"
        claude-desktop mcpServers: {"command":"pegboard","args":["serve","--stdio"]} -
        claude-code mcpServers: {"type":"stdio","command":"pegboard","args":["serve","--stdio"]} {"type":"http","url":"http://127.0.0.1:7332/mcp"}
        vscode servers: {"type":"stdio","command":"pegboard","args":["serve","--stdio"]} {"type":"http","url":"http://127.0.0.1:7332/mcp"}
        copilot mcpServers: {"type":"stdio","command":"pegboard","args":["serve","--stdio"],"tools":["*"]} {"type":"http","url":"http://127.0.0.1:7332/mcp","tools":["*"]}
        cursor mcpServers: {"command":"pegboard","args":["serve","--stdio"]} {"url":"http://127.0.0.1:7332/mcp"}
        windsurf mcpServers: {"command":"pegboard","args":["serve","--stdio"]} {"serverUrl":"http://127.0.0.1:7332/mcp"}
        zed context_servers: {"source":"custom","enabled":true,"command":"pegboard","args":["serve","--stdio"]} {"source":"custom","enabled":true,"url":"http://127.0.0.1:7332/mcp"}
        gemini mcpServers: {"command":"pegboard","args":["serve","--stdio"]} {"httpUrl":"http://127.0.0.1:7332/mcp"}
        codex mcp_servers: {"command":"pegboard","args":["serve","--stdio"]} {"url":"http://127.0.0.1:7332/mcp"}
        opencode mcp: {"type":"local","command":["pegboard","serve","--stdio"],"enabled":true} {"type":"remote","url":"http://127.0.0.1:7332/mcp","enabled":true}
        lmstudio mcpServers: {"command":"pegboard","args":["serve","--stdio"]} {"url":"http://127.0.0.1:7332/mcp"}
        cline mcpServers: {"command":"pegboard","args":["serve","--stdio"],"disabled":false} {"type":"streamableHttp","url":"http://127.0.0.1:7332/mcp","disabled":false}
        roo mcpServers: {"command":"pegboard","args":["serve","--stdio"],"disabled":false} {"type":"streamable-http","url":"http://127.0.0.1:7332/mcp","disabled":false}
        continue mcpServers: {"name":"pegboard","type":"stdio","command":"pegboard","args":["serve","--stdio"]} {"name":"pegboard","type":"streamable-http","url":"http://127.0.0.1:7332/mcp"}
        goose extensions: {"name":"pegboard","type":"stdio","cmd":"pegboard","args":["serve","--stdio"],"enabled":true,"timeout":300} {"name":"pegboard","type":"streamable_http","uri":"http://127.0.0.1:7332/mcp","enabled":true,"timeout":300}
        kiro mcpServers: {"command":"pegboard","args":["serve","--stdio"],"disabled":false} {"url":"http://127.0.0.1:7332/mcp","disabled":false}
        crush mcp: {"type":"stdio","command":"pegboard","args":["serve","--stdio"]} {"type":"http","url":"http://127.0.0.1:7332/mcp"}
        amazonq mcpServers: {"command":"pegboard","args":["serve","--stdio"]} {"type":"http","url":"http://127.0.0.1:7332/mcp"}
        qwen mcpServers: {"command":"pegboard","args":["serve","--stdio"]} {"httpUrl":"http://127.0.0.1:7332/mcp"}
        ai-agent mcpServers: {"type":"stdio","command":"pegboard","args":["serve","--stdio"]} {"type":"http","url":"http://127.0.0.1:7332/mcp"}
        inspector mcpServers: {"type":"stdio","command":"pegboard","args":["serve","--stdio"]} {"type":"streamable-http","url":"http://127.0.0.1:7332/mcp"}
        "#);
    }

    #[test]
    fn claude_code_keeps_servers_of_single_directories() {
        let key_path = find_client("claude-code").unwrap().local_key_path(Path::new("/src/rocket"));
        assert_eq!(key_path.unwrap(), ["projects", "/src/rocket", "mcpServers"]);
        assert_eq!(find_client("cursor").unwrap().local_key_path(Path::new("/src")), None);
    }

    #[test]
    fn a_file_is_identified_by_its_path() {
        for (path, name) in [
            ("/home/ada/.codex/config.toml", Some("codex")),
            ("/src/.zed/settings.json", Some("zed")),
            ("/home/ada/.claude.json", Some("claude-code")),
            ("/users/ada/AppData/Roaming/Claude/claude_desktop_config.json", Some("claude-desktop")),
            ("/home/ada/config.toml", None),
            ("/home/ada/settings.json", None),
        ] {
            assert_eq!(client_for_path(Path::new(path)).map(KnownClient::name), name, "{path}");
        }
    }

    #[test]
    fn a_client_is_found_by_name_or_alias() {
        for (word, name) in [("claude", "claude-desktop"), ("Cursor", "cursor"), ("lm-studio", "lmstudio")] {
            assert_eq!(find_client(word).map(KnownClient::name), Some(name));
        }
        assert!(find_client("teapot").is_none());
    }
}
