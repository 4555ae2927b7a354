//! Entries of `restTools`.

use insta::assert_snapshot;
use pegboard_config::{Configuration, RestEntry, native_schema};
use pegboard_core::secret::Secret;
use pegboard_core::settings::ToolSettings;
use pegboard_core::settings::rest::{RestTool, TemplatePart, TextTemplate};
use serde_json::Value;

use super::{load_text, summarize_file};

const PAGE: &str = include_str!("../../../../docs/rest.md");

/// Returns a usable tool of a toolbox.
fn tool<'c>(configuration: &'c Configuration, toolbox: &str, name: &str) -> (&'c RestTool, &'c ToolSettings) {
    match &configuration.toolboxes[toolbox].rest_tools[name] {
        RestEntry::Usable { request, settings, .. } => (request, settings),
        RestEntry::Unusable(entry) => panic!("{}", entry.reason()),
    }
}

fn shown(template: &TextTemplate) -> String {
    let parts = template.parts().iter().map(|part| match part {
        TemplatePart::Text(text) => text.clone(),
        TemplatePart::Parameter(name) => format!("<{name}>"),
    });
    parts.collect()
}

#[test]
fn variables_are_expanded_and_parameters_are_kept() {
    let text = r#"{"restTools": {"a": {
        "description": "${A}",
        "url": "https://x.org/${A}/${parameters.id}?k=${KEY}",
        "headers": {"N": 5, "T": "${parameters.id} ${GITHUB_TOKEN} $${A}"},
        "bodyTemplate": {"a": "${A}${parameters.id}"},
        "parametersSchema": {"properties": {"id": {"pattern": "^${A}"}}},
        "cache": "5m", "queue": "default", "timeout": "7s"
    }}}"#;
    let configuration = load_text("pegboard.json", text).unwrap();
    assert_eq!(configuration.problems, []);
    let (request, settings) = tool(&configuration, "default", "a");
    let path: Vec<_> = request.url.path.iter().map(shown).collect();
    let headers: Vec<_> = request.headers.iter().map(|(_, value)| shown(value)).collect();
    assert_eq!((request.description.as_str(), path), ("1", vec!["1".to_owned(), "<id>".to_owned()]));
    assert_eq!(shown(&request.url.query[0]), "k=sk-from-outside");
    assert_eq!(headers, ["5", "<id> ghp_0123456789 ${A}"]);
    assert_eq!(request.parameters["properties"]["id"]["pattern"], "^${A}");
    assert_eq!((settings.cache.is_some(), settings.queue.as_deref()), (true, Some("default")));
    assert_eq!(request.response_timeout.as_secs(), 7);
    let secrets: Vec<_> = configuration.secrets.iter().map(Secret::reveal).collect();
    assert!(secrets.contains(&"sk-from-outside") && secrets.contains(&"ghp_0123456789"), "{secrets:?}");
}

#[test]
fn tools_may_be_in_toolboxes() {
    let text = "toolboxes: {web: {description: x, restTools: {a: {description: b, url: 'https://x.org'}}}}";
    let configuration = load_text("any.yaml", text).unwrap();
    assert_eq!(tool(&configuration, "web", "a").0.url.origin, "https://x.org");
}

#[test]
fn an_invalid_tool_is_left_out_alone() {
    assert_snapshot!(summarize_file("bad/pegboard.rest.yaml"), @r#"
    pegboard.rest.yaml Yaml Native
    queues={"web":{"maxConcurrency":1,"maxWaiting":10000,"waitTimeoutMs":null,"defaultTimeoutMs":null,"shared":false,"ageing":"5s"}}
    default:
      tool fine: usable
      tool parameter: (restTools.parameter.url: parameter 'idd' is not defined in parametersSchema)
      tool host: (restTools.host.url: a parameter is not allowed in the host or port: callers could choose the server)
      tool unclosed: (restTools.unclosed.bodyTemplate.a: Malformed syntax: unclosed brace)
      tool setting: (restTools.setting: 'url' is missing)
      tool method: (restTools.method.method: unknown value 'FETCH', expected one of GET, POST, PUT, PATCH, DELETE)
      tool needs: (needs: UNSET)
      tool pages: (restTools.pages.priority: expected a number from -10 to 10, not 11)
      tool text: (restTools.text: a REST tool must be an object, not a string)
    error[config_invalid]: pegboard.rest.yaml:6:10  restTools.parameter.url
       6 |     url: https://api.example.com/${parameters.idd}
         |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ parameter 'idd' is not defined in parametersSchema
      help: did you mean id?
    error[config_invalid]: pegboard.rest.yaml:7:24  restTools.parameter.headers.X-Token
       7 |     headers: {X-Token: "${parameters.tokn} ****-****"}
         |                        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ parameter 'tokn' is not defined in parametersSchema
      help: did you mean token?
    error[config_invalid]: pegboard.rest.yaml:9:49  restTools.host.url
       9 |   host: {description: A host from outside, url: "https://${parameters.host}/", parametersSchema: {properties: {host: {}}}}
         |                                                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ a parameter is not allowed in the host or port: callers could choose the server
    error[config_invalid]: pegboard.rest.yaml:10:91  restTools.unclosed.bodyTemplate.a
      10 | …closed, url: "https://api.example.com/", bodyTemplate: {a: "${parameters.a"}}
         |                                                              ^^^^^^^^^^^^^^ Malformed syntax: unclosed brace
      help: close it with }, or use $${ for a literal ${
    error[config_invalid]: pegboard.rest.yaml:11:12  restTools.setting
      11 |   setting: {description: A setting that is misspelt, ulr: "https://api.example.com/"}
         |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ 'url' is missing
    error[config_invalid]: pegboard.rest.yaml:11:54  restTools.setting.ulr
      11 |   setting: {description: A setting that is misspelt, ulr: "https://api.example.com/"}
         |                                                      ^^^ unknown setting
      help: did you mean url?
    error[config_invalid]: pegboard.rest.yaml:12:44  restTools.method.method
      12 |   method: {description: No method, method: FETCH, url: "https://api.example.com/"}
         |                                            ^^^^^ unknown value 'FETCH', expected one of GET, POST, PUT, PATCH, DELETE
    warning: pegboard.rest.yaml:13:86  restTools.needs.headers.X-Token
      13 | …t set, url: "https://api.example.com/", headers: {X-Token: "${UNSET}"}}
         |                                                              ^^^^^^^^ the variable UNSET is not set
      help: export UNSET=…, or add a default: ${UNSET:-}
    error[config_invalid]: pegboard.rest.yaml:14:107  restTools.pages.priority
      14 | …/api.example.com/", pagination: {maxPages: 1000}, priority: 11}
         |                                                              ^^ expected a number from -10 to 10, not 11
    error[config_invalid]: pegboard.rest.yaml:15:9  restTools.text
      15 |   text: nothing
         |         ^^^^^^^ a REST tool must be an object, not a string
    "#);
}

#[test]
fn an_unknown_queue_rejects_the_file() {
    assert_snapshot!(summarize_file("bad/pegboard.rest-queue.json"), @r#"
    error[config_invalid]: pegboard.rest-queue.json:1:112  restTools.a.queue
       1 | … {"a": {"description": "", "url": "https://x.org", "queue": "wep"}}}
         |                                                              ^^^^^ REST tool 'a' references unknown queue 'wep'. Add it under configuration.queues.
      help: did you mean web?
    1 error: this file was not loaded
    "#);
}

#[test]
fn every_example_on_the_page_is_valid() {
    let validator = jsonschema::validator_for(&native_schema()).unwrap();
    let examples: Vec<_> =
        PAGE.split("```yaml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect();
    assert_eq!(examples.len(), 2);
    for example in examples {
        let configuration = load_text("pegboard.yaml", example).unwrap();
        assert_eq!(configuration.problems, []);
        let file: Value = serde_saphyr::from_str(example).unwrap();
        let errors: Vec<_> = validator.iter_errors(&file).map(|error| error.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new());
    }
}

#[test]
fn every_setting_is_documented() {
    let schema = native_schema();
    let tool = &schema["$defs"]["RestTool"];
    let definitions = ["StreamingSettings", "RetrySettings", "PaginationSettings"];
    let tables = definitions.iter().map(|name| &schema["$defs"][*name]).chain([tool]);
    for name in tables.flat_map(|table| table["properties"].as_object().unwrap().keys()) {
        assert!(PAGE.contains(&format!("`{name}`")), "{name} is not on the page");
    }
}
