//! The schema of the native format.

use std::path::Path;

use pegboard_config::native_schema;
use pegboard_config::settings::{McpServerSettings, RestToolSettings};
use pegboard_core::chain::{ChainSpec, ChainStep};
use pegboard_core::model::Pricing;
use pegboard_core::settings::cache::CacheSettings;
use pegboard_core::settings::gateway::{GatewaySettings, Profile};
use pegboard_core::settings::model::{ModelProviderSettings, ModelSettings};
use pegboard_core::settings::openapi::{Credential, OpenApiSettings};
use pegboard_core::settings::rest::{PaginationSettings, RetrySettings, StreamingSettings};
use pegboard_core::settings::telemetry::{LoggingSettings, TelemetrySettings, TracesSettings};
use pegboard_core::settings::{
    OutputSettings, ProgressRule, QueueSettings, RuntimeSettings, ServerSettings, ToolSettings,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::load_text;

/// Returns the field names of a type, as listed in its own error.
pub(super) fn names_of<T: for<'de> Deserialize<'de>>() -> Vec<String> {
    let error = serde_json::from_value::<T>(json!({"\u{0}": 0})).err().unwrap().to_string();
    error.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}

fn check_names<T: for<'de> Deserialize<'de>>(schema: &Value) {
    let names = names_of::<T>();
    assert!(!names.is_empty());
    for name in names {
        assert!(schema["properties"].get(&name).is_some(), "{name} is not in {schema:#}");
    }
}

#[test]
fn every_name_of_every_setting_is_in_the_schema() {
    let schema = native_schema();
    let server = &schema["$defs"]["McpServer"];
    check_names::<RuntimeSettings>(&schema);
    check_names::<GatewaySettings>(&schema);
    check_names::<CacheSettings>(&schema["$defs"]["Cache"]);
    check_names::<TelemetrySettings>(&schema["$defs"]["Telemetry"]);
    check_names::<TracesSettings>(&schema["$defs"]["TracesSettings"]);
    check_names::<LoggingSettings>(&schema["$defs"]["LoggingSettings"]);
    check_names::<ModelProviderSettings>(&schema["$defs"]["ModelProvider"]);
    check_names::<ModelSettings>(&schema["$defs"]["ModelSettings"]);
    check_names::<Pricing>(&schema["$defs"]["Pricing"]);
    check_names::<McpServerSettings>(server);
    check_names::<ServerSettings>(server);
    let service = &schema["$defs"]["OpenApiSpec"];
    check_names::<OpenApiSettings>(service);
    check_names::<ServerSettings>(service);
    check_names::<Credential>(&schema["$defs"]["Credential"]);
    check_names::<QueueSettings>(&schema["$defs"]["QueueSettings"]);
    check_names::<OutputSettings>(&schema["$defs"]["OutputSettings"]);
    check_names::<ProgressRule>(&schema["$defs"]["ProgressRule"]);
    check_names::<ToolSettings>(&schema["$defs"]["ToolSettings"]);
    check_names::<Profile>(&schema["$defs"]["Profile"]);
    check_names::<ChainSpec>(&schema["$defs"]["ChainSpec"]);
    check_names::<ChainStep>(&schema["$defs"]["ChainStep"]);
    let rest = &schema["$defs"]["RestTool"];
    check_names::<RestToolSettings>(rest);
    check_names::<ToolSettings>(rest);
    check_names::<StreamingSettings>(&schema["$defs"]["StreamingSettings"]);
    check_names::<RetrySettings>(&schema["$defs"]["RetrySettings"]);
    check_names::<PaginationSettings>(&schema["$defs"]["PaginationSettings"]);
    for section in ["mcpServers", "openapiSpecs", "restTools", "chains", "agents"] {
        let toolbox = &schema["$defs"]["Toolbox"];
        assert_eq!(toolbox["properties"][section], schema["properties"][section]);
    }
}

#[test]
fn every_name_in_the_schema_is_read() {
    let schema = native_schema();
    for name in schema["properties"].as_object().unwrap().keys() {
        let text = json!({name: "no value that any setting takes: {", "pegboard": 1}).to_string();
        let error = load_text("a.json", &text).map_or_else(|error| error.to_string(), |_| String::new());
        assert!(!error.contains("unknown setting"), "{error}");
    }
}

#[test]
fn the_schema_accepts_valid_files_only() {
    let validator = jsonschema::validator_for(&native_schema()).unwrap();
    let check = |name: &str| -> Vec<String> {
        let text = std::fs::read_to_string(Path::new("tests/files").join(name)).unwrap();
        let file: Value = if name.ends_with("toml") {
            toml::from_str(&text).unwrap()
        } else {
            serde_saphyr::from_str(&text).unwrap()
        };
        validator.iter_errors(&file).map(|error| format!("{}: {error}", error.instance_path())).collect()
    };
    for name in ["good/pegboard.yaml", "good/pegboard.toml", "good/workbench-config.json"] {
        assert_eq!(check(name), Vec::<String>::new(), "{name}");
    }
    for name in ["bad/pegboard.unknown.yaml", "bad/secrets.json", "bad/version.json"] {
        assert!(!check(name).is_empty(), "{name}");
    }
}

#[test]
fn a_queue_without_slots_is_rejected_by_schema_and_reader() {
    let validator = jsonschema::validator_for(&native_schema()).unwrap();
    for name in ["concurrent", "maxConcurrency"] {
        for (number, is_valid) in
            [(json!(0), false), (json!(-1), false), (json!(0.5), true), (json!(1), true)]
        {
            let file = json!({"queues": {"slow": {name: number}}});
            let is_read = load_text("pegboard.json", &file.to_string()).is_ok();
            assert_eq!((validator.is_valid(&file), is_read), (is_valid, is_valid), "{file}");
        }
    }
}
