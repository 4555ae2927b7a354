//! Examples and tables of the documentation.

use pegboard_config::{ServerEntry, native_schema};
use pegboard_core::settings::openapi::OpenApiSettings;
use serde_json::Value;

use super::load_text;
use super::schema::names_of;

const PAGE: &str = include_str!("../../../../docs/configuration.md");
const AGENTS: &str = include_str!("../../../../docs/agents.md");

#[test]
fn the_full_example_is_valid() {
    let (_, rest) = PAGE.split_once("```yaml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let configuration = load_text("pegboard.yaml", example).unwrap();
    assert_eq!(configuration.problems, []);
    let servers = configuration.toolboxes.values().flat_map(|toolbox| toolbox.servers.values());
    assert_eq!(servers.filter(|server| matches!(server, ServerEntry::Mcp { .. })).count(), 3);
    let validator = jsonschema::validator_for(&native_schema()).unwrap();
    let file: Value = serde_saphyr::from_str(example).unwrap();
    assert!(validator.is_valid(&file));
}

#[test]
fn the_service_example_is_valid_and_its_settings_are_documented() {
    let page = include_str!("../../../../docs/openapi.md");
    let (_, rest) = page.split_once("```yaml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let configuration = load_text("pegboard.yaml", example).unwrap();
    assert_eq!(configuration.problems, []);
    let servers = configuration.toolboxes["default"].servers.values();
    assert_eq!(servers.filter(|server| matches!(server, ServerEntry::OpenApi { .. })).count(), 2);
    let schema = native_schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    assert!(validator.is_valid(&serde_saphyr::from_str(example).unwrap()));
    for name in names_of::<OpenApiSettings>() {
        assert!(page.contains(&format!("`{name}`")), "{name} is not on the page");
    }
    for name in schema["$defs"]["Credential"]["properties"].as_object().unwrap().keys() {
        assert!(page.contains(name), "{name} is not on the page");
    }
}

#[test]
fn every_setting_is_documented() {
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

/// Returns the first code block of this language on a page.
fn example<'p>(page: &'p str, language: &str) -> &'p str {
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

#[test]
fn the_agent_example_is_valid() {
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
fn every_agent_setting_is_documented() {
    let (_, header) = super::agents::FULL_AGENT.split_once("---\n").unwrap();
    let header: Value = serde_saphyr::from_str(header.split_once("---\n").unwrap().0).unwrap();
    for name in header.as_object().unwrap().keys() {
        assert!(AGENTS.contains(&format!("`{name}`")), "{name} is not on the page");
    }
}
