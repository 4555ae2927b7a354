//! Inventories of files.

use std::path::Path;

use insta::assert_snapshot;
use pegboard_config::inventory::{Inventory, InventoryItem, inventory_selection, take_inventory};
use pegboard_config::{ConfigurationError, SourceSelection};

use super::environment;

/// Takes inventory of a fixture.
fn inventory_of(name: &str) -> String {
    summarize(take_inventory(&Path::new("tests/fixtures").join(name), &environment))
}

fn summarize(inventory: Result<Inventory, ConfigurationError>) -> String {
    let inventory = inventory.unwrap();
    let here = std::env::current_dir().unwrap().join("tests/fixtures").display().to_string();
    let lines: Vec<String> = inventory.items.iter().map(line).collect();
    format!("{}\n{}", inventory.dialect.title(), lines.join("\n")).replace(&here, "HERE")
}

fn line(part: &InventoryItem) -> String {
    let toolbox = part.toolbox.as_ref().map(|toolbox| format!("{toolbox}/")).unwrap_or_default();
    let off = if part.is_disabled { " off" } else { "" };
    let obstacle = part.unusable_reason.as_ref().map(|obstacle| format!(" ({obstacle})")).unwrap_or_default();
    let identity = part.identity.as_deref().unwrap_or("-");
    let InventoryItem { section, name, transport, value, .. } = part;
    format!("{section} {toolbox}{name} {transport}{off}{obstacle} {identity}\n  {value}")
}

#[test]
fn variables_are_kept_and_paths_become_absolute() {
    assert_snapshot!(inventory_of("vscode/.vscode/mcp.json"), @r#"
    VS Code
    mcpServers api stdio ["node","HERE/vscode${/}api.js","--stage","${input:stage:-test}","--name","vscode"]
      {"type":"stdio","command":"node","args":["HERE/vscode${/}api.js","--stage","${input:stage:-test}","--name","vscode"],"env":{"API_KEY":"${input:key-of-the-api}","TOKEN":"${env:GITHUB_TOKEN}"},"envFile":"HERE/vscode/vscode.env"}
    mcpServers other stdio (needs: PEGBOARD_INPUT_OTHER) ["other-server","${input:other}"]
      {"command":"other-server","args":["${input:other}"]}
    mcpServers docs http https://docs.example.com/mcp
      {"url":"https://docs.example.com/mcp"}
    mcpServers asks stdio (servers.asks.args[0]: only an editor can resolve this reference) ["asks","${command:extension.pick}"]
      {"type":"stdio","command":"asks","args":["${command:extension.pick}"]}
    mcpServers boxed stdio ["boxed-server"]
      {"command":"boxed-server"}
    "#);
}

#[test]
fn a_relative_command_becomes_absolute() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".cursor/mcp.json");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, r#"{"mcpServers": {"a": {"command": "./bin/serve"}, "b": {"command": "serve"}}}"#)
        .unwrap();
    let parts = take_inventory(&path, &environment).unwrap().items;
    let own = folder.path().join("bin/serve").display().to_string();
    assert_eq!((&parts[0].value["command"], &parts[1].value["command"]), (&own.into(), &"serve".into()));
}

#[test]
fn foreign_variables_are_translated() {
    assert_snapshot!(inventory_of("gemini/settings.json"), @r#"
    Gemini CLI
    mcpServers python stdio ["python","-m","tools"]
      {"command":"python","args":["-m","tools"],"cwd":"HERE/gemini/server","env":{"API_KEY":"${API_KEY:-}","OTHER":"${OTHER_KEY:-}","PRICE":"5$"},"requestTimeoutMs":15000,"toolFilters":["safe_tool","file_reader"],"toolsDenied":["dangerous_tool"]}
    mcpServers http http https://http.example.com/mcp
      {"type":"http","url":"https://http.example.com/mcp","headers":{"Authorization":"Bearer ${GITHUB_TOKEN:-}"}}
    mcpServers old sse https://old.example.com/events
      {"url":"https://old.example.com/events","type":"sse"}
    mcpServers typed http https://typed.example.com/mcp
      {"url":"https://typed.example.com/mcp","type":"http"}
    mcpServers slow stdio off ["slow-server"]
      {"command":"slow-server","enabled":false}
    "#);
}

#[test]
fn services_and_tools_are_items() {
    assert_snapshot!(inventory_of("agentgateway/long.yaml"), @r#"
    agentgateway
    mcpServers time stdio ["uvx","time-server"]
      {"command":"uvx","args":["time-server"]}
    mcpServers time-2 http http://127.0.0.1:8000/mcp
      {"url":"http://127.0.0.1:8000/mcp","type":"http"}
    openapiSpecs petstore openapi HERE/agentgateway/petshop.json
      {"spec":"HERE/agentgateway/petshop.json","baseUrl":"https://petshop.example.com"}
    "#);
    assert_snapshot!(inventory_of("openapi/petshop.yaml"), @r#"
    OpenAPI
    openapiSpecs pet-shop openapi HERE/openapi/petshop.yaml
      {"spec":"HERE/openapi/petshop.yaml"}
    "#);
    assert_snapshot!(inventory_of("ai-agent/.ai-agent.json"), @r#"
    mcpServers
    mcpServers github stdio ["npx","-y","github-server"]
      {"type":"stdio","command":"npx","args":["-y","github-server"],"env":{"TOKEN":"${GITHUB_TOKEN}"},"toolsAllowed":["search_code","get_*"],"toolsDenied":["get_secret"],"queue":"slow","cache":"5m","toolsCache":{"search_code":"1h"},"requestTimeoutMs":120000,"shared":false,"healthProbe":"listTools"}
    mcpServers socket websocket off wss://socket.example.com/mcp
      {"type":"websocket","url":"wss://socket.example.com/mcp","enabled":false}
    restTools ping rest GET https://api.example.com/${parameters.path}
      {"description":"Pings","method":"GET","url":"https://api.example.com/${parameters.path}","parametersSchema":{"type":"object","properties":{"path":{"type":"string"}}}}
    "#);
}

#[test]
fn unknown_keys_are_dropped() {
    let inventory = take_inventory(Path::new("tests/fixtures/roo/.roo/mcp.json"), &environment).unwrap();
    let keys: Vec<&String> = inventory.items[0].value.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["command", "args", "toolsDenied"]);
}

#[test]
fn items_of_toolboxes_have_a_toolbox() {
    let path = Path::new("tests/files/good/workbench-config.json");
    let inventory = take_inventory(path, &environment).unwrap();
    let names: Vec<String> = inventory
        .items
        .iter()
        .map(|part| format!("{}/{}", part.toolbox.as_ref().unwrap(), part.name))
        .collect();
    assert_eq!(names, ["dev/filesystem", "dev/memory", "dev/api", "prod/api", "prod/database"]);
}

#[test]
fn a_selection_applies_to_a_directory() {
    let path = Path::new("tests/fixtures/claude-code/.claude.json");
    let view = SourceSelection { project: Some("/src/rocket".into()), ..SourceSelection::default() };
    assert_snapshot!(summarize(inventory_selection(path, &view, &environment)), @r#"
    Claude Code
    mcpServers clock stdio off ["clock-server"]
      {"type":"stdio","command":"clock-server","args":[],"enabled":false}
    mcpServers notes stdio ["notes-server","--of","rocket"]
      {"type":"stdio","command":"notes-server","args":["--of","rocket"]}
    mcpServers launch http https://launch.example.com/mcp
      {"type":"http","url":"https://launch.example.com/mcp"}
    "#);
    let view = SourceSelection { only: Some("launch".to_owned()), toolbox: Some("dev".to_owned()), ..view };
    assert_snapshot!(summarize(inventory_selection(path, &view, &environment)), @r#"
    Claude Code
    mcpServers dev/launch http https://launch.example.com/mcp
      {"type":"http","url":"https://launch.example.com/mcp"}
    "#);
}

#[test]
fn the_identity_is_independent_of_name_and_dialect() {
    let identity = |text: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.json");
        std::fs::write(&path, text).unwrap();
        take_inventory(&path, &environment).unwrap().items[0].identity.clone().unwrap()
    };
    let program = identity(r#"{"mcpServers": {"a": {"command": "npx", "args": ["-y", "x"]}}}"#);
    assert_eq!(identity(r#"{"mcp": {"b": {"type": "local", "command": ["npx", "-y", "x"]}}}"#), program);
    assert_ne!(identity(r#"{"mcpServers": {"a": {"command": "npx", "args": ["-y x"]}}}"#), program);
    let address = identity(r#"{"mcpServers": {"a": {"url": "https://a.example.com/mcp/"}}}"#);
    assert_eq!(identity(r#"{"servers": {"b": {"url": "https://a.example.com/mcp"}}}"#), address);
}

#[test]
fn problems_are_attached_to_items() {
    let path = Path::new("tests/fixtures/goose/config.yaml");
    let inventory = take_inventory(path, &environment).unwrap();
    assert_eq!(inventory.items[0].problems.len(), 1);
    assert_eq!(inventory.problems.len(), 2);
    assert!(inventory.items[1].problems.is_empty());
}

#[test]
fn root_items_move_into_the_selected_toolbox() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pegboard.yaml");
    let text = "
mcpServers: {a: {command: a}}
chains: {both: {steps: [{tool: x}]}}
toolboxes: {dev: {mcpServers: {b: {command: b}}}, ops: {mcpServers: {c: {command: c}}}}
";
    std::fs::write(&path, text).unwrap();
    let names = |toolbox: &str| {
        let view = SourceSelection { toolbox: Some(toolbox.to_owned()), ..SourceSelection::default() };
        let parts = inventory_selection(&path, &view, &environment).unwrap().items;
        let names = parts.iter().map(|part| format!("{}/{}", part.toolbox.as_ref().unwrap(), part.name));
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names("dev"), "dev/b dev/a dev/both ops/c");
    assert_eq!(names("new"), "dev/b ops/c new/a new/both");
}

#[test]
fn a_relative_cwd_becomes_absolute() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".vscode/mcp.json");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    for (written, expected) in [
        ("tools/notes", "HERE/tools/notes"),
        ("./tools", "HERE/tools"),
        ("${workspaceFolder}/tools", "HERE/tools"),
        ("/srv/notes", "/srv/notes"),
        ("~/notes", "~/notes"),
        ("${env:NOTES}", "${env:NOTES}"),
        (r"C:\\notes", r"C:\notes"),
    ] {
        let text = format!(r#"{{"servers": {{"a": {{"command": "a", "cwd": "{written}"}}}}}}"#);
        std::fs::write(&path, text).unwrap();
        let inventory = take_inventory(&path, &environment).unwrap();
        let here = folder.path().display().to_string();
        assert_eq!(inventory.items[0].value["cwd"].as_str().unwrap().replace(&here, "HERE"), expected);
    }
}
