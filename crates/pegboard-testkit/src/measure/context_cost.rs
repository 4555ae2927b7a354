//! Context cost: what a model reads and writes until its first right call, in characters and tokens.

use std::fmt::Write;
use std::io::{Error, Result};
use std::path::Path;

use pegboard_wire::RawJson;
use pegboard_wire::client::{Era, McpClient};
use serde_json::{Map, Value, json};
use tokio::process::Child;

use super::start;
use crate::echo_server::{OBJECTS, VERBS};

/// Numbers of tools that are measured, each with its number of servers.
const SIZES: [(usize, usize); 3] = [(5, 1), (50, 5), (500, 10)];
/// The tool to find, and the words to search for.
const TOOL: &str = "create_invoice";
const QUERY: &str = "create an invoice";
/// Characters per token: an estimate for English text and JSON that needs no tokenizer.
const CHARS_PER_TOKEN: usize = 4;

/// Cost of the ways to the first right call, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextCost {
    /// Number of tools behind the gateway.
    pub n_tools: usize,
    /// Every tool in the list, and the call.
    pub flat: usize,
    /// Instructions and meta-tools.
    pub surface: usize,
    /// The surface, `get_tools` with a query, and `use_tool`.
    pub search: usize,
    /// The surface, `open_toolbox`, `get_tools` if only summaries were listed, and `use_tool`.
    pub open: usize,
}

/// Measures a gateway and renders the result as a Markdown table, in tokens.
///
/// `program` is the testkit, which runs the servers.
pub async fn table(gateway: &Path, program: &Path) -> Result<String> {
    let mut table =
        "| tools | flat list | default surface | with search | with open_toolbox |\n|---|---|---|---|---|\n"
            .to_owned();
    for ContextCost { n_tools, flat, surface, search, open } in measure(gateway, program).await? {
        let [flat, surface, search, open] =
            [flat, surface, search, open].map(|n_chars| n_chars.div_ceil(CHARS_PER_TOKEN));
        writeln!(table, "| {n_tools} | {flat} | {surface} | {search} | {open} |").map_err(Error::other)?;
    }
    Ok(table)
}

/// Measures a gateway with 5, 50 and 500 tools. It fails if a way does not lead to the right tool.
pub async fn measure(gateway: &Path, program: &Path) -> Result<Vec<ContextCost>> {
    let folder = std::env::temp_dir().join(format!("pegboard-context-{}", std::process::id()));
    let mut costs = Vec::new();
    for (n_tools, n_servers) in SIZES {
        std::fs::create_dir_all(&folder)?;
        let file = folder.join("pegboard.json");
        std::fs::write(&file, configuration(program, n_tools, n_servers).to_string())?;
        let cost = measure_size(gateway, &file, n_tools).await;
        std::fs::remove_dir_all(&folder)?;
        costs.push(cost?);
    }
    Ok(costs)
}

/// A toolbox for each server, as an import makes them. They have no descriptions.
fn configuration(program: &Path, n_tools: usize, n_servers: usize) -> Value {
    let n_each = n_tools / n_servers;
    let n_objects = n_each.div_ceil(VERBS.len());
    let toolbox = |number: usize| {
        let first = number * n_objects;
        let name = format!("{}_desk", OBJECTS[first]);
        let arguments = json!(["office-server", first.to_string(), n_each.to_string()]);
        (name.clone(), json!({"mcpServers": {name: {"command": program, "args": arguments}}}))
    };
    let toolboxes: Map<String, Value> = (0..n_servers).map(toolbox).collect();
    json!({"toolboxes": toolboxes})
}

async fn measure_size(gateway: &Path, file: &Path, n_tools: usize) -> Result<ContextCost> {
    // The gateway knows the tools from an earlier run, as it does after the first day.
    let learner = ModelSession::start(gateway, file, &[]).await?;
    for toolbox in toolboxes(file)? {
        learner.call("open_toolbox", json!({"toolbox": toolbox})).await?;
    }
    learner.end().await?;

    let mut flat = ModelSession::start(gateway, file, &["--profile", "flat"]).await?;
    flat.read_surface().await?;
    flat.call_right(&format!("{}_desk__{TOOL}", OBJECTS[0]), json!({"text": QUERY})).await?;
    let flat = flat.end().await?;

    let mut search = ModelSession::start(gateway, file, &[]).await?;
    search.read_surface().await?;
    let surface = search.n_chars;
    let found = search.ask("get_tools", json!({"query": QUERY})).await?;
    search.use_first(&found).await?;
    let search = search.end().await?;

    let mut open = ModelSession::start(gateway, file, &[]).await?;
    open.read_surface().await?;
    let desk = format!("{}_desk", OBJECTS[0]);
    let mut listed = open.ask("open_toolbox", json!({"toolbox": desk})).await?;
    if listed.get("tools").is_none() {
        listed = open.ask("get_tools", json!({"tools": {&desk: [TOOL]}})).await?;
    }
    if listed["tools"][0].get("tool").is_none() {
        listed["tools"][0]["tool"] = json!({"toolbox": desk, "server": desk, "name": TOOL});
    }
    open.use_first(&listed).await?;
    let open = open.end().await?;
    Ok(ContextCost { n_tools, flat, surface, search, open })
}

/// Names of the configured toolboxes.
fn toolboxes(file: &Path) -> Result<Vec<String>> {
    let configuration: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    Ok(configuration["toolboxes"].as_object().into_iter().flat_map(Map::keys).cloned().collect())
}

/// Session of a client that counts what its model reads and writes.
struct ModelSession {
    gateway: Child,
    client: McpClient,
    n_chars: usize,
}

impl ModelSession {
    async fn start(gateway: &Path, file: &Path, arguments: &[&str]) -> Result<Self> {
        let (gateway, client) = start(gateway, file, Era::Session, arguments).await?;
        Ok(Self { gateway, client, n_chars: 0 })
    }

    /// Counts the instructions and the list of tools.
    async fn read_surface(&mut self) -> Result<()> {
        let list = self.client.call("tools/list", None).await.map_err(Error::other)?;
        let tools = list.get("tools").ok_or_else(|| Error::other("the list has no tools"))?;
        let instructions = self.client.server().instructions.clone().unwrap_or_default();
        self.n_chars += tools.as_str().chars().count() + instructions.chars().count();
        Ok(())
    }

    async fn call(&self, name: &str, arguments: Value) -> Result<String> {
        let params = RawJson::from(json!({"name": name, "arguments": arguments}));
        let answer = self.client.call("tools/call", Some(params)).await.map_err(Error::other)?.to_value();
        let text = answer["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        if answer["isError"] == true { Err(Error::other(format!("{name}: {text}"))) } else { Ok(text) }
    }

    /// Calls a meta-tool, counts the arguments and the answer, and parses the answer.
    async fn ask(&mut self, name: &str, arguments: Value) -> Result<Value> {
        self.n_chars += name.len() + arguments.to_string().chars().count();
        let text = self.call(name, arguments).await?;
        self.n_chars += text.chars().count();
        Ok(serde_json::from_str(&text)?)
    }

    /// Calls the tool that was found first.
    async fn use_first(&mut self, found: &Value) -> Result<()> {
        let tool = &found["tools"][0]["tool"];
        if tool["name"] != TOOL {
            return Err(Error::other(format!("the first tool is {tool} and not {TOOL}")));
        }
        self.call_right("use_tool", json!({"tool": tool, "arguments": {"text": QUERY}})).await
    }

    /// Makes the right call, and counts its arguments.
    async fn call_right(&mut self, name: &str, arguments: Value) -> Result<()> {
        self.n_chars += name.len() + arguments.to_string().chars().count();
        let text = self.call(name, arguments).await?;
        if text == QUERY { Ok(()) } else { Err(Error::other(format!("{name} returned {text}"))) }
    }

    /// Ends the gateway; returns the number of characters.
    async fn end(self) -> Result<usize> {
        let Self { mut gateway, client, n_chars } = self;
        drop(client);
        gateway.wait().await?;
        Ok(n_chars)
    }
}
