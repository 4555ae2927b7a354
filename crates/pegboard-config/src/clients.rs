//! The clients that are known: where they keep their servers, and how they write one down.
//!
//! All of it is in one table, `clients.toml`.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};

mod entry;

use crate::near::near;
use crate::plain::plain;
use crate::source::Format;
use crate::tree;

/// A program that people use tools with, and that has a file with servers.
///
/// ```
/// use pegboard_config::clients::{System, client};
/// # use std::path::Path;
///
/// let cursor = client("cursor").unwrap();
/// let environment = |name: &str| (name == "HOME").then(|| "/home/ada".to_owned());
/// let places = cursor.places(&environment, Path::new("/src/rocket"), System::Linux);
/// assert_eq!(places, [Path::new("/src/rocket/.cursor/mcp.json"), Path::new("/home/ada/.cursor/mcp.json")]);
/// let entry = cursor.entry_for_program("notes", "notes-server", &["--quiet".to_owned()]);
/// assert_eq!(entry.to_string(), r#"{"command":"notes-server","args":["--quiet"]}"#);
/// ```
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    name: String,
    title: String,
    #[serde(default)]
    aliases: Vec<String>,
    format: Notation,
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
    way: Vec<String>,
    local: Option<Vec<String>>,
    members: Option<String>,
    timeout: Option<Unit>,
    program: Map<String, Value>,
    url: Option<Map<String, Value>>,
    env: Option<String>,
    headers: Option<String>,
    variable: Option<String>,
}

/// A notation as the table has it.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Notation {
    Json,
    Yaml,
    Toml,
}

/// What a number counts that stands for a time.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unit {
    Milliseconds,
    Seconds,
}

/// The systems that have places of their own for files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Linux, and whatever is like it.
    Linux,
    /// macOS.
    MacOs,
    /// Windows.
    Windows,
}

impl System {
    /// Every system.
    pub const ALL: [Self; 3] = [Self::Linux, Self::MacOs, Self::Windows];

    /// The system that this program was made for.
    pub fn here() -> Self {
        match std::env::consts::OS {
            "macos" | "ios" => Self::MacOs,
            "windows" => Self::Windows,
            _ => Self::Linux,
        }
    }
}

/// How servers are put together in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout<'c> {
    /// An object of servers by their names.
    Object,
    /// A list of servers, each of which has its name under this key.
    List {
        /// The key of the name.
        name: &'c str,
    },
}

/// All clients, in the order of the table.
///
/// ```
/// let names: Vec<&str> = pegboard_config::clients::clients().iter().map(|client| client.name()).collect();
/// assert!(names.contains(&"claude-desktop"));
/// ```
pub fn clients() -> &'static [Client] {
    &CLIENTS
}

/// The client of a name, or of another word for it.
pub fn client(name: &str) -> Option<&'static Client> {
    let is_it = |client: &&Client| client.words().any(|word| word.eq_ignore_ascii_case(name));
    clients().iter().find(is_it)
}

/// The name of the client that was probably meant.
///
/// ```
/// assert_eq!(pegboard_config::clients::near_client("cursr"), Some("cursor"));
/// assert_eq!(pegboard_config::clients::near_client("teapot"), None);
/// ```
pub fn near_client(written: &str) -> Option<&'static str> {
    let word = near(written, clients().iter().flat_map(Client::words))?;
    client(word).map(Client::name)
}

/// The client whose file is at a place, as far as the place tells.
pub fn client_at(path: &Path) -> Option<&'static Client> {
    clients().iter().find(|client| client.endings().any(|ending| path.ends_with(ending)))
}

impl Client {
    /// What somebody types to name it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is called.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Other words for it.
    pub fn aliases(&self) -> &[String] {
        &self.aliases
    }

    /// The notation of its files.
    pub fn format(&self) -> Format {
        match self.format {
            Notation::Json => Format::Json,
            Notation::Yaml => Format::Yaml,
            Notation::Toml => Format::Toml,
        }
    }

    /// How its servers are put together.
    pub fn layout(&self) -> Layout<'_> {
        self.members.as_deref().map_or(Layout::Object, |name| Layout::List { name })
    }

    /// Where its files may be: those of the project in `folder`, and then those of the user.
    pub fn places(
        &self,
        environment: &dyn Fn(&str) -> Option<String>,
        folder: &Path,
        system: System,
    ) -> Vec<PathBuf> {
        let mut places = self.project_places(folder);
        places.extend(self.user_places(environment, system));
        places
    }

    /// Where its files for the project in `folder` may be, the usual one first.
    pub fn project_places(&self, folder: &Path) -> Vec<PathBuf> {
        self.project.iter().map(|place| folder.join(place)).collect()
    }

    /// Where its files for the user may be, the one that counts first. A place whose variable is not set is none.
    pub fn user_places(&self, environment: &dyn Fn(&str) -> Option<String>, system: System) -> Vec<PathBuf> {
        let of_system = match system {
            System::Linux => &self.linux,
            System::MacOs => &self.macos,
            System::Windows => &self.windows,
        };
        let places = self.user.iter().chain(of_system);
        places.filter_map(|place| resolve(place, environment, system)).collect()
    }

    /// The places as the table has them: those of a project, and those of a user on a system.
    pub fn written_places(&self, system: System) -> (&[String], Vec<&str>) {
        let of_system = match system {
            System::Linux => &self.linux,
            System::MacOs => &self.macos,
            System::Windows => &self.windows,
        };
        (&self.project, self.user.iter().chain(of_system).map(String::as_str).collect())
    }

    /// The keys that lead to its servers.
    pub fn way(&self) -> &[String] {
        &self.way
    }

    /// The keys that lead to those of its servers that are for one folder alone, if it keeps such in the user's file.
    pub fn local_way(&self, folder: &Path) -> Option<Vec<String>> {
        let folder = folder.to_string_lossy();
        let way = self.local.as_ref()?;
        Some(way.iter().map(|key| key.replace("{folder}", &folder)).collect())
    }

    /// How it writes down a server that is a program.
    pub fn entry_for_program(&self, name: &str, command: &str, args: &[String]) -> Value {
        fill(&self.program, &Facts { name, command, args, url: "" })
    }

    /// How it writes down a server at an address; `None` if it has no such servers.
    pub fn entry_for_url(&self, name: &str, url: &str) -> Option<Value> {
        let template = self.url.as_ref()?;
        Some(fill(template, &Facts { name, command: "", args: &[], url }))
    }

    /// What it counts by a number under `timeout`; `None` if that says nothing to it.
    pub(crate) fn timeout(&self) -> Option<Unit> {
        self.timeout
    }

    /// Its files in the folder of a project, as the table has them.
    pub(crate) fn project(&self) -> &[String] {
        &self.project
    }

    /// How the places of its files end, where that is enough to know them by.
    fn endings(&self) -> impl Iterator<Item = PathBuf> {
        let of_user = [&self.user, &self.linux, &self.macos, &self.windows].into_iter().flatten();
        let of_user = of_user.filter_map(|place| {
            let (first, rest) = place.split_once(['/', '\\'])?;
            // What the folder of a variable is called is not known, and many files have one name.
            (first == "~" || rest.contains(['/', '\\'])).then_some(rest)
        });
        let endings = self.project.iter().map(String::as_str).chain(of_user);
        endings.map(|ending| ending.split(['/', '\\']).collect())
    }

    /// Every word for it.
    fn words(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.aliases.iter().map(String::as_str))
    }
}

/// The table as it is compiled in.
static CLIENTS: LazyLock<Vec<Client>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct Table {
        client: Vec<Client>,
    }
    let parsed = tree::parse(include_str!("clients.toml"), Format::Toml).ok().flatten();
    let parsed = parsed.expect("the table is a part of the program, and a test reads it");
    let table: Table =
        serde_json::from_value(plain(&parsed.root)).expect("the table has the shape that a test checks");
    table.client
});

/// What an entry is made of.
struct Facts<'f> {
    name: &'f str,
    command: &'f str,
    args: &'f [String],
    url: &'f str,
}

fn fill(template: &Map<String, Value>, facts: &Facts<'_>) -> Value {
    let filled = |value: &Value| match value.as_str() {
        Some("{name}") => facts.name.into(),
        Some("{command}") => facts.command.into(),
        Some("{url}") => facts.url.into(),
        Some("{args}") => facts.args.into(),
        Some("{words}") => {
            std::iter::once(facts.command).chain(facts.args.iter().map(String::as_str)).collect()
        }
        Some(_) | None => value.clone(),
    };
    Value::Object(template.iter().map(|(key, value)| (key.clone(), filled(value))).collect())
}

/// A place of the table on this very machine, if what it begins with is known.
fn resolve(written: &str, environment: &dyn Fn(&str) -> Option<String>, system: System) -> Option<PathBuf> {
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    let mut parts = written.split(['/', '\\']);
    let first = parts.next()?;
    let mut parts = parts.peekable();
    let beginning = if first == "~" {
        let of_user =
            if system == System::Windows { ["USERPROFILE", "HOME"] } else { ["HOME", "USERPROFILE"] };
        let configured = (system == System::Linux && parts.peek() == Some(&".config"))
            .then(|| set("XDG_CONFIG_HOME"))
            .flatten();
        if configured.is_some() {
            parts.next();
        }
        configured.or_else(|| of_user.into_iter().find_map(set))?
    } else if let Some(name) = first.strip_prefix('$') {
        set(name)?
    } else if let Some(name) = first.strip_prefix('%') {
        set(name.trim_end_matches('%'))?
    } else if first.is_empty() {
        "/".to_owned()
    } else {
        first.to_owned()
    };
    let mut path = PathBuf::from(beginning);
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
    fn no_word_names_two_clients() {
        let mut words: Vec<&str> = clients().iter().flat_map(Client::words).collect();
        let n_words = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), n_words);
    }

    #[test]
    fn every_client_has_a_place_on_every_system() {
        for client in clients() {
            for system in System::ALL {
                let places = client.places(&environment, Path::new("/src"), system);
                assert!(!places.is_empty(), "{} {system:?}", client.name());
            }
        }
    }

    #[test]
    fn places_begin_where_the_system_says() {
        let places = |name: &str, system| {
            let places = client(name).unwrap().user_places(&environment, system);
            places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join("\n")
        };
        assert_snapshot!(places("claude-desktop", System::Linux), @"
        /home/ada/.config/Claude/claude_desktop_config.json
        /home/ada/.config/claude/claude_desktop_config.json
        ");
        assert_snapshot!(places("claude-desktop", System::MacOs), @"/home/ada/Library/Application Support/Claude/claude_desktop_config.json");
        assert_snapshot!(places("claude-desktop", System::Windows), @"/users/ada/AppData/Roaming/Claude/claude_desktop_config.json");
        assert_snapshot!(places("copilot", System::Linux), @"
        /opt/copilot/mcp-config.json
        /home/ada/.copilot/mcp-config.json
        ");
        assert_snapshot!(places("claude-code", System::Windows), @"/users/ada/.claude.json");
        assert_snapshot!(places("ai-agent", System::Linux), @"
        /home/ada/.ai-agent/ai-agent.json
        /etc/ai-agent/ai-agent.json
        ");
    }

    #[test]
    fn the_folder_of_configurations_may_be_elsewhere_on_linux() {
        let elsewhere = |name: &str| match name {
            "XDG_CONFIG_HOME" => Some("/cfg".to_owned()),
            _ => environment(name),
        };
        let places = |system| client("zed").unwrap().user_places(&elsewhere, system);
        assert_eq!(places(System::Linux), [Path::new("/cfg/zed/settings.json")]);
        assert_eq!(places(System::MacOs), [Path::new("/home/ada/.config/zed/settings.json")]);
    }

    #[test]
    fn a_place_whose_variable_is_not_set_is_none() {
        let codex = client("codex").unwrap();
        assert_eq!(codex.user_places(&|_| None, System::Linux), Vec::<PathBuf>::new());
    }

    #[test]
    fn every_client_writes_a_server_in_its_own_way() {
        let args = ["serve".to_owned(), "--stdio".to_owned()];
        let lines = clients().iter().map(|client| {
            let program = client.entry_for_program("pegboard", "pegboard", &args);
            let url = client.entry_for_url("pegboard", "http://127.0.0.1:7332/mcp");
            let url = url.map_or("-".to_owned(), |url| url.to_string());
            format!("{} {}: {program} {url}", client.name(), client.way().join("."))
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
    fn one_client_keeps_servers_of_single_folders() {
        let way = client("claude-code").unwrap().local_way(Path::new("/src/rocket"));
        assert_eq!(way.unwrap(), ["projects", "/src/rocket", "mcpServers"]);
        assert_eq!(client("cursor").unwrap().local_way(Path::new("/src")), None);
    }

    #[test]
    fn a_file_may_be_known_by_its_place() {
        for (path, name) in [
            ("/home/ada/.codex/config.toml", Some("codex")),
            ("/src/.zed/settings.json", Some("zed")),
            ("/home/ada/.claude.json", Some("claude-code")),
            ("/users/ada/AppData/Roaming/Claude/claude_desktop_config.json", Some("claude-desktop")),
            ("/home/ada/config.toml", None),
            ("/home/ada/settings.json", None),
        ] {
            assert_eq!(client_at(Path::new(path)).map(Client::name), name, "{path}");
        }
    }

    #[test]
    fn a_client_is_found_by_any_word_for_it() {
        for (word, name) in [("claude", "claude-desktop"), ("Cursor", "cursor"), ("lm-studio", "lmstudio")] {
            assert_eq!(client(word).map(Client::name), Some(name));
        }
        assert!(client("teapot").is_none());
    }
}
