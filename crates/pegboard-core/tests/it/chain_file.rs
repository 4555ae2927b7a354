//! Chains as data, in JSON and YAML.

use pegboard_core::chain::{ChainSpec, ChainStep, Condition, OnPartial, Path, Semantics, Source};
use serde_json::json;
use std::time::Duration;

fn everything() -> ChainSpec {
    ChainSpec {
        name: Some("research".to_owned()),
        description: Some("Looks a thing up".to_owned()),
        input_schema: json!({"required": ["url"]}).into(),
        output: Some(Path::new("page")),
        semantics: Semantics::Compat,
        steps: vec![
            ChainStep::new("fetch")
                .map("url", "url")
                .map("depth", Source::constant(2))
                .output_key("page")
                .timeout(Duration::from_secs(90)),
            ChainStep::new("tell")
                .map("text", Source::template("about {page.title}"))
                .map("tone", Source::or("tone", "kind"))
                .map("to", "user?")
                .when(Condition::is("page.size", json!({"minimum": 1})))
                .for_each("page.links")
                .concurrency(4)
                .parallel("g")
                .on_partial(OnPartial::Accept),
            ChainStep::new("end").when("page").parallel("g"),
        ],
    }
}

#[test]
fn everything_a_chain_can_say_is_written_and_read_back() {
    let spec = everything();
    let as_json = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<ChainSpec>(&as_json).unwrap(), spec);
    let as_yaml = serde_saphyr::to_string(&spec).unwrap();
    assert_eq!(serde_saphyr::from_str::<ChainSpec>(&as_yaml).unwrap(), spec, "{as_yaml}");
    insta::assert_snapshot!(as_json, @r#"{"chain":"research","description":"Looks a thing up","input_schema":{"required":["url"]},"output":"page","semantics":"compat","steps":[{"tool_name":"fetch","input_mapping":{"url":"url","depth":{"$const":2}},"output_key":"page","timeout":"1m30s"},{"tool_name":"tell","input_mapping":{"text":{"$template":"about {page.title}"},"tone":{"$path":"tone","default":"kind"},"to":"user?"},"output_key":"","when":{"path":"page.size","is":{"minimum":1}},"for_each":"page.links","concurrency":4,"parallel":"g","on_partial":"accept"},{"tool_name":"end","input_mapping":{},"output_key":"","when":"page","parallel":"g"}]}"#);
}

#[test]
fn long_and_short_names_mean_the_same() {
    let short = "
chain: research
steps:
  - tool: fetch_page
    with: {url: start.url, depth: 2, deep: true}
    as: page
    timeout: 90s
  - {tool: summarise, with: {text: page.body}, as: summary}
";
    let long = json!({"name": "research", "steps": [
        {"tool_name": "fetch_page", "input_mapping": {"url": "start.url", "depth": {"$const": 2}, "deep": {"$const": true}}, "output_key": "page", "timeout": 90_000},
        {"tool_name": "summarise", "input_mapping": {"text": "page.body"}, "output_key": "summary"},
    ]});
    assert_eq!(serde_saphyr::from_str::<ChainSpec>(short).unwrap(), serde_json::from_value(long).unwrap());
}

#[test]
fn a_plain_step_has_exactly_three_keys() {
    let step = ChainStep::new("double");
    insta::assert_snapshot!(serde_json::to_string(&step).unwrap(), @r#"{"tool_name":"double","input_mapping":{},"output_key":""}"#);
}

/// What is said of a file that is wrong.
fn refusal(step: serde_json::Value) -> String {
    serde_json::from_value::<ChainSpec>(json!({"steps": [step]})).unwrap_err().to_string()
}

#[test]
fn a_mistake_in_a_file_is_explained() {
    insta::assert_snapshot!(refusal(json!({"tool": "a", "when": 7})), @r#"a condition is a path, or {"path": …, "is": a schema}, not 7"#);
    insta::assert_snapshot!(refusal(json!({"tool": "a", "with": {"x": [1]}})), @r#"a source is a path like page.body, a number, true or false, {"$const": …}, {"$path": …} or {"$template": …}, not [1]"#);
    insta::assert_snapshot!(refusal(json!({"tool": "a", "with": {"x": {"$pth": "b"}}})), @r#"a source is a path like page.body, a number, true or false, {"$const": …}, {"$path": …} or {"$template": …}, not {"$pth":"b"}"#);
    insta::assert_snapshot!(refusal(json!({"tool": "a", "timeout": "soon"})), @"duration must be a millisecond number, or a duration like 5m/2h/1d, not 'soon'");
    insta::assert_snapshot!(refusal(json!({"tool": "a", "tool_name": "b"})), @"duplicate field `tool_name`");
    insta::assert_snapshot!(refusal(json!({"with": {}})), @"missing field `tool_name`");
    insta::assert_snapshot!(refusal(json!({"tool": "a", "wiht": {}})), @"unknown field `wiht`, expected one of `tool`, `tool_name`, `input_mapping`, `with`, `as`, `output_key`, `timeout`, `when`, `for_each`, `concurrency`, `parallel`, `on_partial`");
}
