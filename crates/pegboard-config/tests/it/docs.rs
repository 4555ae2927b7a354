//! What the documentation says.

use pegboard_config::{Server, native_schema};
use pegboard_core::settings::openapi::OpenApiSettings;
use serde_json::Value;

use super::load_text;

const PAGE: &str = include_str!("../../../../docs/configuration.md");
const AGENTS: &str = include_str!("../../../../docs/agents.md");

#[test]
fn the_whole_example_is_right() {
    let (_, rest) = PAGE.split_once("```yaml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let configuration = load_text("pegboard.yaml", example).unwrap();
    assert_eq!(configuration.problems, []);
    let servers = configuration.toolboxes.values().flat_map(|toolbox| toolbox.servers.values());
    assert_eq!(servers.filter(|server| matches!(server, Server::Mcp { .. })).count(), 3);
    let validator = jsonschema::validator_for(&native_schema()).unwrap();
    let file: Value = serde_saphyr::from_str(example).unwrap();
    assert!(validator.is_valid(&file));
}

#[test]
fn the_example_of_a_service_is_right_and_every_setting_of_one_is_on_its_page() {
    let page = include_str!("../../../../docs/openapi.md");
    let (_, rest) = page.split_once("```yaml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let configuration = load_text("pegboard.yaml", example).unwrap();
    assert_eq!(configuration.problems, []);
    let servers = configuration.toolboxes["default"].servers.values();
    assert_eq!(servers.filter(|server| matches!(server, Server::OpenApi { .. })).count(), 2);
    let schema = native_schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    assert!(validator.is_valid(&serde_saphyr::from_str(example).unwrap()));
    for name in OpenApiSettings::FIELDS {
        assert!(page.contains(&format!("`{name}`")), "{name} is not on the page");
    }
    for name in schema["$defs"]["Credential"]["properties"].as_object().unwrap().keys() {
        assert!(page.contains(name), "{name} is not on the page");
    }
}

#[test]
fn every_setting_is_on_the_page() {
    let schema = native_schema();
    let server = &schema["$defs"]["McpServer"];
    let provider = &schema["$defs"]["ModelProvider"];
    let definitions = [
        "QueueSettings",
        "OutputSettings",
        "ProgressRule",
        "ToolSettings",
        "Profile",
        "ModelSettings",
        "Pricing",
    ];
    let tables = definitions.iter().map(|name| &schema["$defs"][*name]).chain([&schema, server, provider]);
    for name in tables.flat_map(|table| table["properties"].as_object().unwrap().keys()) {
        assert!(PAGE.contains(&format!("`{name}`")) || name == "pegboard", "{name} is not on the page");
    }
}

/// The first text in a page that is fenced as one of this language.
fn example<'p>(page: &'p str, language: &str) -> &'p str {
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

#[test]
fn the_example_of_an_agent_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir(folder.path().join("agents")).unwrap();
    write("pegboard.yaml", example(AGENTS, "yaml"));
    write("agents/reader.md", example(AGENTS, "markdown"));
    write("agents/rules.txt", "Be kind.\n");
    let configuration =
        pegboard_config::load(&folder.path().join("pegboard.yaml"), &super::environment).unwrap();
    assert_eq!(configuration.problems, []);
    assert_eq!(configuration.toolboxes["default"].agents.len(), 1);
}

#[test]
fn every_setting_of_an_agent_is_on_its_page() {
    let (_, header) = super::agents::WHOLE.split_once("---\n").unwrap();
    let header: Value = serde_saphyr::from_str(header.split_once("---\n").unwrap().0).unwrap();
    for name in header.as_object().unwrap().keys() {
        assert!(AGENTS.contains(&format!("`{name}`")), "{name} is not on the page");
    }
}
