//! Entries of `openapiSpecs`.

use pegboard_config::ServerEntry;
use pegboard_core::secret::Secret;
use pegboard_core::settings::openapi::{OpenApiSettings, References};

use super::load_text;

fn service(text: &str) -> (OpenApiSettings, Option<String>) {
    let configuration = load_text("pegboard.yaml", text).unwrap();
    assert_eq!(configuration.problems, []);
    let ServerEntry::OpenApi { service, tools } = &configuration.toolboxes["default"].servers["shop"] else {
        panic!("{configuration:?}")
    };
    ((**service).clone(), tools.queue.clone())
}

#[test]
fn every_setting_of_a_service_is_read() {
    let (service, queue) = service(
        "
queues: {web: {}}
openapiSpecs:
  shop:
    spec: specs/shop.yaml
    serverVariables: {port: 8443}
    headers: {X-Version: 2}
    credentials: {key: {value: '${API_KEY}'}}
    includeMethods: GET
    tagFilter: [a, b]
    references: anywhere
    queue: web
",
    );
    assert!(service.spec.ends_with("/specs/shop.yaml"), "{}", service.spec);
    assert_eq!(service.server_variables["port"], "8443");
    assert_eq!(service.headers["X-Version"].reveal(), "2");
    assert_eq!(service.credentials["key"].value.as_ref().map(Secret::reveal), Some("key-of-the-api"));
    assert_eq!(
        (service.include_methods.unwrap(), service.tag_filter.unwrap().len()),
        (vec!["GET".to_owned()], 2)
    );
    assert_eq!((service.references, queue.as_deref()), (References::Anywhere, Some("web")));
}

#[test]
fn a_url_is_left_unchanged() {
    let (service, _) = service("openapiSpecs: {shop: {spec: 'https://example.com/shop.json'}}");
    assert_eq!(service.spec, "https://example.com/shop.json");
}

#[test]
fn problems_of_a_service_are_reported_with_their_location() {
    let text = "
mcpServers: {both: {command: x}}
openapiSpecs:
  both: {spec: a.json}
  none: {}
  nowhere: {spec: a.json, baseUrl: example.com}
  method: {spec: a.json, includeMethods: [get, pots]}
  key: {spec: a.json, credentials: {k: {valeu: hush-hush}}}
  typo: {spec: a.json, tagFiler: x}
  list: [a.json]
  variable: {spec: a.json, credentials: {k: {value: '${NOT_SET}'}}}
  off: {spec: a.json, enabled: false, credentials: {k: {value: '${NOT_SET}'}}}
";
    let configuration = load_text("pegboard.yaml", text).unwrap();
    let reported: Vec<String> = configuration
        .problems
        .iter()
        .map(|problem| {
            let help = problem.help.as_deref().unwrap_or("-");
            format!("{}:{} {}: {} ({help})", problem.line, problem.column, problem.path, problem.message)
        })
        .collect();
    insta::assert_snapshot!(reported.join("\n"), @r"
    5:9 openapiSpecs.none: the service has no OpenAPI document (set spec to the path or URL of the document)
    6:36 openapiSpecs.nowhere.baseUrl: invalid service URL (use a URL such as https://api.example.com/v1)
    7:48 openapiSpecs.method.includeMethods[1]: unknown method (did you mean post?)
    8:41 openapiSpecs.key.credentials.k.valeu: unknown setting (did you mean value?)
    9:24 openapiSpecs.typo.tagFiler: unknown setting (did you mean tagFilter?)
    10:9 openapiSpecs.list: a service must be an object, not a list (use {spec: …})
    11:54 openapiSpecs.variable.credentials.k.value: the variable NOT_SET is not set (export NOT_SET=…, or add a default: ${NOT_SET:-})
    ");
    assert!(!configuration.problems.iter().any(|problem| problem.render().contains("hush")));
    let servers = &configuration.toolboxes["default"].servers;
    assert_eq!(servers["variable"].unusable().unwrap().reason(), "needs: NOT_SET");
    assert!(matches!(servers["off"], ServerEntry::OpenApi { .. }));
}

#[test]
fn a_service_lives_beside_an_mcp_server_of_its_name() {
    let both = ("mcpServers: {trains: {command: x}}", "openapiSpecs: {trains: {spec: a.json}}");
    let texts = [
        format!("{}\n{}", both.0, both.1),
        format!("{}\n{}", both.1, both.0),
        format!("{}\ntoolboxes: {{default: {{{}}}}}", both.1, both.0),
        format!("{}\ntoolboxes: {{default: {{{}}}}}", both.0, both.1),
    ];
    for text in texts {
        let configuration = load_text("pegboard.yaml", &text).unwrap();
        assert_eq!(configuration.problems.len(), 0, "{text}: {:?}", configuration.problems);
        let servers = &configuration.toolboxes["default"].servers;
        assert!(matches!(servers["trains"], ServerEntry::Mcp { .. }), "{text}: {servers:?}");
        assert!(matches!(servers["rest__trains"], ServerEntry::OpenApi { .. }), "{text}: {servers:?}");
    }
}

#[test]
fn credentials_are_secrets() {
    let text = "openapiSpecs: {shop: {spec: a.json, credentials: {k: {username: ann-of-cleves, password: hush-hush}}}}";
    let configuration = load_text("pegboard.yaml", text).unwrap();
    let secrets: Vec<&str> = configuration.secrets.iter().map(Secret::reveal).collect();
    assert_eq!(secrets, ["ann-of-cleves", "hush-hush"]);
    assert!(!format!("{configuration:?}").contains("hush"));
}
