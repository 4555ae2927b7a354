//! Chains as data, in JSON and YAML.

use pegboard_core::chain::{ChainSpec, ChainStep, Condition, ContextPath, InputSource, OnPartial, Semantics};
use serde_json::json;
use std::time::Duration;

fn full_spec() -> ChainSpec {
    ChainSpec {
        name: Some("research".to_owned()),
        description: Some("Looks a thing up".to_owned()),
        input_schema: json!({"required": ["url"]}).into(),
        output: Some(ContextPath::new("page")),
        semantics: Semantics::Compat,
        steps: vec![
            ChainStep::new("fetch")
                .map("url", "url")
                .map("depth", InputSource::constant(2))
                .output_key("page")
                .timeout(Duration::from_secs(90)),
            ChainStep::new("tell")
                .map("text", InputSource::template("about {page.title}"))
                .map("tone", InputSource::or("tone", "kind"))
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
fn a_full_spec_round_trips_through_json_and_yaml() {
    let spec = full_spec();
    let as_json = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<ChainSpec>(&as_json).unwrap(), spec);
    let as_yaml = serde_saphyr::to_string(&spec).unwrap();
    assert_eq!(serde_saphyr::from_str::<ChainSpec>(&as_yaml).unwrap(), spec, "{as_yaml}");
    insta::assert_snapshot!(as_json, @r#"{"chain":"research","description":"Looks a thing up","input_schema":{"required":["url"]},"output":"page","semantics":"compat","steps":[{"tool_name":"fetch","input_mapping":{"url":"url","depth":{"$const":2}},"output_key":"page","timeout":"1m30s"},{"tool_name":"tell","input_mapping":{"text":{"$template":"about {page.title}"},"tone":{"$path":"tone","default":"kind"},"to":"user?"},"output_key":"","when":{"path":"page.size","is":{"minimum":1}},"for_each":"page.links","concurrency":4,"parallel":"g","on_partial":"accept"},{"tool_name":"end","input_mapping":{},"output_key":"","when":"page","parallel":"g"}]}"#);
}

#[test]
fn long_and_short_keys_are_equivalent() {
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

/// Returns the error of a file with this step.
fn parse_error(step: serde_json::Value) -> String {
    serde_json::from_value::<ChainSpec>(json!({"steps": [step]})).unwrap_err().to_string()
}

#[test]
fn errors_in_a_file_are_explained() {
    insta::assert_snapshot!(parse_error(json!({"tool": "a", "when": 7})), @r#"expected a path, or {"path": …, "is": <schema>}, found 7"#);
    insta::assert_snapshot!(parse_error(json!({"tool": "a", "with": {"x": [1]}})), @r#"expected a path such as page.body, a number, a boolean, {"$const": …}, {"$path": …} or {"$template": …}, found [1]"#);
    insta::assert_snapshot!(parse_error(json!({"tool": "a", "with": {"x": {"$pth": "b"}}})), @r#"expected a path such as page.body, a number, a boolean, {"$const": …}, {"$path": …} or {"$template": …}, found {"$pth":"b"}"#);
    insta::assert_snapshot!(parse_error(json!({"tool": "a", "timeout": "soon"})), @"duration must be a millisecond number, or a duration like 5m/2h/1d, not 'soon'");
    insta::assert_snapshot!(parse_error(json!({"tool": "a", "tool_name": "b"})), @"duplicate field `tool_name`");
    insta::assert_snapshot!(parse_error(json!({"with": {}})), @"missing field `tool_name`");
    insta::assert_snapshot!(parse_error(json!({"tool": "a", "wiht": {}})), @"unknown field `wiht`, expected one of `tool`, `tool_name`, `input_mapping`, `with`, `as`, `output_key`, `timeout`, `when`, `for_each`, `concurrency`, `parallel`, `on_partial`");
}
