//! What the documentation says.

use pegboard_config::{Server, native_schema};
use serde_json::Value;

use super::load_text;

const PAGE: &str = include_str!("../../../../docs/configuration.md");

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
fn every_setting_is_on_the_page() {
    let schema = native_schema();
    let server = &schema["properties"]["mcpServers"]["additionalProperties"];
    let provider = &schema["properties"]["providers"]["additionalProperties"];
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
