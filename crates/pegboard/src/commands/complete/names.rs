//! Names that arguments may have: of servers, tools, arguments, clients and agents.

use std::collections::HashMap;

use clap::{Arg, Parser};
use pegboard::config::clients::clients;
use pegboard::config::{Configuration, ToolboxConfig};
use pegboard::telemetry::Telemetry;
use serde_json::Value;

use super::Candidates;
use super::words::{PartialLine, possible_values};
use crate::api_client::{ApiClient, ApiPath, GatewayNeed, ToolView, view};
use crate::cli::Globals;
use crate::paths::ConfigSelection;

/// Maximum number of tools.
const MAX_TOOLS: usize = 5_000;
/// Profiles that every gateway has.
const PROFILES: [&str; 5] = ["meta", "flat", "agent", "hybrid", "auto"];

/// Source of names.
pub(super) struct KnownNames<'t> {
    globals: Globals,
    telemetry: &'t Telemetry,
}

/// The global options alone.
#[derive(Parser)]
struct OnlyGlobals {
    #[command(flatten)]
    globals: Globals,
}

impl<'t> KnownNames<'t> {
    /// Names that a command with these options knows.
    pub(super) fn new(line: &PartialLine<'_>, telemetry: &'t Telemetry) -> Self {
        let mut words = vec!["pegboard".to_owned(), "--no-input".to_owned(), "--quiet".to_owned()];
        for option in ["config", "directory", "set", "state"] {
            words.extend(line.option_values(option).map(|value| format!("--{option}={value}")));
        }
        // A value that is not valid is reported when the command is run.
        let parsed = OnlyGlobals::try_parse_from(&words);
        let parsed =
            parsed.unwrap_or_else(|_| OnlyGlobals::parse_from(["pegboard", "--no-input", "--quiet"]));
        // A folder that does not exist is reported then, too.
        let _ = parsed.globals.enter_directory();
        Self { globals: parsed.globals, telemetry }
    }

    /// Values of an argument. None for paths, which the shell completes.
    pub(super) async fn values_of(&self, line: &PartialLine<'_>, argument: &Arg) -> Candidates {
        let possible = possible_values(argument);
        if !possible.is_empty() {
            return possible;
        }
        match (line.command().as_str(), argument.get_id().as_str()) {
            ("connect", "client") | ("restore", "clients") | ("export", "to") | ("import", "sources") => {
                clients().iter().map(|client| (client.name().to_owned(), client.title().to_owned())).collect()
            }
            ("logs" | "doctor" | "restart", "server") => self.servers().await,
            ("ls", "pattern") => {
                let mut all = self.servers().await;
                all.extend(self.toolboxes());
                all
            }
            ("enable" | "disable" | "rm", "names") => self.entries(),
            ("call" | "bench" | "schema tool", "tool") => self.tools(line).await,
            ("call" | "bench", "arguments") => self.arguments(line).await,
            ("chain run" | "chain check", "chain") => self.chains(),
            ("run" | "agent run", "agent") => self.agents(),
            (_, "toolbox") => self.toolboxes(),
            (_, "profile") => self.profiles(),
            _ => Candidates::new(),
        }
    }

    /// Loads the configuration, without asking, reading URLs or looking up secrets.
    fn configuration(&self) -> Option<Configuration> {
        ConfigSelection::without_probing(&self.globals).ok()?.inspect().ok()
    }

    /// Returns what the running gateway, or else the stored listings, tell at an address.
    async fn get(&self, address: &ApiPath) -> Option<Value> {
        let api = ApiClient::open(&self.globals, self.telemetry, GatewayNeed::Tools).await.ok()?;
        let found = api.get(address).await.ok();
        api.close().await;
        found
    }

    /// Servers by name, and by address if a name is not unique.
    async fn servers(&self) -> Candidates {
        let mut all: Vec<(String, String, String)> = Vec::new();
        match ApiClient::running(&self.globals).await {
            Ok(api) => {
                let listed = api.get(&ApiPath::new(&["servers"])).await.unwrap_or_default();
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let servers = listed["servers"].as_array().into_iter().flatten();
                all.extend(servers.map(|server| {
                    (text(&server["toolbox"]), text(&server["server"]), text(&server["state"]))
                }));
            }
            Err(_) => {
                for (toolbox, contents) in
                    self.configuration().into_iter().flat_map(|loaded| loaded.toolboxes)
                {
                    let names = contents.servers.keys().map(ToString::to_string);
                    all.extend(names.map(|server| (toolbox.to_string(), server, String::new())));
                }
            }
        }
        let is_unique = |name: &str| all.iter().filter(|(_, server, _)| server == name).count() == 1;
        let named = all.iter().map(|(toolbox, server, state)| {
            let name = if is_unique(server) { server.clone() } else { format!("{toolbox}/{server}") };
            (name, state.clone())
        });
        named.collect()
    }

    /// Tools by name, if it is unique, and by server and name; by address once a slash is typed.
    async fn tools(&self, line: &PartialLine<'_>) -> Candidates {
        let listed = self.get(&ApiPath::new(&["tools"]).with("limit", &MAX_TOOLS)).await.unwrap_or_default();
        let tools: Vec<ToolView> = view(&listed, "tools").unwrap_or_default();
        let mut uses: HashMap<String, usize> = HashMap::new();
        let short = |tool: &ToolView| format!("{}/{}", tool.server, tool.name);
        for tool in &tools {
            *uses.entry(tool.name.clone()).or_default() += 1;
            *uses.entry(short(tool)).or_default() += 1;
        }
        let has_slash = line.current().contains('/');
        let mut all = Candidates::new();
        for tool in tools {
            let (name, short) = (tool.name.clone(), short(&tool));
            let forms = [(name, !has_slash), (short, true), (tool.address, has_slash)];
            let wanted = forms
                .into_iter()
                .filter(|(form, is_wanted)| *is_wanted && uses.get(form).is_none_or(|n| *n == 1));
            all.extend(wanted.map(|(form, _)| (form, tool.description.clone())));
        }
        all
    }

    /// Arguments of the tool on the line that it does not have yet, or values of the one that is typed.
    async fn arguments(&self, line: &PartialLine<'_>) -> Candidates {
        let Some((tool, given)) = line.positionals().split_first() else { return Candidates::new() };
        let found = self.get(&ApiPath::new(&["tool"]).with("name", tool)).await.unwrap_or_default();
        let properties = found["tool"]["inputSchema"]["properties"].as_object();
        let key = line.current().split_once('=').map(|(key, _)| key);
        let mut all = Candidates::new();
        for (name, schema) in properties.into_iter().flatten() {
            let about = schema["description"].as_str().unwrap_or_default();
            let is_given = given.iter().any(|word| word.split(['=', ':']).next() == Some(name));
            match key {
                Some(key) if key == name => {
                    all.extend(
                        values(schema).into_iter().map(|value| (format!("{name}={value}"), about.to_owned())),
                    );
                }
                Some(_) => {}
                None if is_given && schema["type"] != "array" => {}
                None => {
                    all.insert(format!("{name}="), about.to_owned());
                }
            }
        }
        all
    }

    fn toolboxes(&self) -> Candidates {
        let toolboxes = self.configuration().into_iter().flat_map(|loaded| loaded.toolboxes);
        toolboxes.map(|(name, contents)| (name.to_string(), contents.description)).collect()
    }

    /// Names within toolboxes, with their toolbox.
    fn within_toolboxes(&self, names: impl Fn(ToolboxConfig) -> Vec<String>) -> Candidates {
        let mut all = Candidates::new();
        for (toolbox, contents) in self.configuration().into_iter().flat_map(|loaded| loaded.toolboxes) {
            all.extend(names(contents).into_iter().map(|name| (name, toolbox.to_string())));
        }
        all
    }

    /// Entries that can be switched or removed.
    fn entries(&self) -> Candidates {
        self.within_toolboxes(|contents| contents.servers.keys().map(ToString::to_string).collect())
    }

    fn chains(&self) -> Candidates {
        self.within_toolboxes(|contents| contents.chains.into_keys().collect())
    }

    fn agents(&self) -> Candidates {
        self.within_toolboxes(|contents| contents.agents.keys().map(ToString::to_string).collect())
    }

    fn profiles(&self) -> Candidates {
        let own = self.configuration().into_iter().flat_map(|loaded| loaded.gateway.profiles.into_keys());
        let own: Vec<String> = own.collect();
        own.into_iter().chain(PROFILES.map(str::to_owned)).map(|name| (name, String::new())).collect()
    }
}

/// Values that a schema names.
fn values(schema: &Value) -> Vec<String> {
    if let Some(values) = schema["enum"].as_array() {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        return values.iter().map(text).collect();
    }
    match schema["type"].as_str() {
        Some("boolean") => vec!["false".to_owned(), "true".to_owned()],
        _ => Vec::new(),
    }
}
