//! Web services with an OpenAPI document.

use pegboard_config::Server;
use pegboard_core::settings::mcp::Secret;
use pegboard_core::settings::openapi::{OpenApiSettings, References};

use super::load_text;

fn service(text: &str) -> (OpenApiSettings, Option<String>) {
    let configuration = load_text("pegboard.yaml", text).unwrap();
    assert_eq!(configuration.problems, []);
    let Server::OpenApi { service, tools } = &configuration.toolboxes["default"].servers["shop"] else {
        panic!("{configuration:?}")
    };
    ((**service).clone(), tools.queue.clone())
}

#[test]
fn everything_about_a_service_is_read() {
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
fn an_address_is_left_as_it_is() {
    let (service, _) = service("openapiSpecs: {shop: {spec: 'https://example.com/shop.json'}}");
    assert_eq!(service.spec, "https://example.com/shop.json");
}

#[test]
fn what_is_wrong_with_a_service_is_told_with_its_place() {
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
    let told: Vec<String> = configuration
        .problems
        .iter()
        .map(|problem| {
            let help = problem.help.as_deref().unwrap_or("-");
            format!("{}:{} {}: {} ({help})", problem.line, problem.column, problem.path, problem.message)
        })
        .collect();
    insta::assert_snapshot!(told.join("\n"), @r"
    4:3 openapiSpecs.both: the toolbox has a server 'both' already (call one of them something else)
    5:9 openapiSpecs.none: the service has no OpenAPI document (write spec: and the file or address of the document)
    6:36 openapiSpecs.nowhere.baseUrl: this is no address of a service (write one like https://api.example.com/v1)
    7:48 openapiSpecs.method.includeMethods[1]: there is no such method (did you mean post?)
    8:41 openapiSpecs.key.credentials.k.valeu: unknown setting (did you mean value?)
    9:24 openapiSpecs.typo.tagFiler: unknown setting (did you mean tagFilter?)
    10:9 openapiSpecs.list: a service is an object, not a list (write {spec: …})
    11:54 openapiSpecs.variable.credentials.k.value: the variable NOT_SET is not set (export NOT_SET=…   or give a default: ${NOT_SET:-})
    ");
    assert!(!configuration.problems.iter().any(|problem| problem.render().contains("hush")));
    let servers = &configuration.toolboxes["default"].servers;
    assert_eq!(servers["variable"].obstacle().unwrap(), "needs: NOT_SET");
    assert!(matches!(servers["off"], Server::OpenApi { .. }));
}

#[test]
fn what_a_service_is_shown_is_secret() {
    let text = "openapiSpecs: {shop: {spec: a.json, credentials: {k: {username: ann-of-cleves, password: hush-hush}}}}";
    let configuration = load_text("pegboard.yaml", text).unwrap();
    let secrets: Vec<&str> = configuration.secrets.iter().map(Secret::reveal).collect();
    assert_eq!(secrets, ["ann-of-cleves", "hush-hush"]);
    assert!(!format!("{configuration:?}").contains("hush"));
}
