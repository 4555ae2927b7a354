//! Formats, versions and locations of documents.

use pegboard_core::settings::openapi::OpenApiSettings;
use pegboard_providers::openapi::import;
use serde_json::{Value, json};

use crate::openapi::harness::{Service, call, names};

#[tokio::test]
async fn a_document_may_be_yaml_and_several_files() {
    let service = Service::start().await;
    service.write(
        "api.yaml",
        &format!(
            "
openapi: 3.0.0
servers: [{{url: {}}}]
paths:
  /a~b/{{id}}:
    $ref: 'paths/a.yaml#/a~1item'
  /c:
    get:
      parameters:
        - $ref: 'parts.json#/limit'
",
            service.url
        ),
    );
    service.write(
        "paths/a.yaml",
        "
a/item:
  parameters: [{name: id, in: path, required: true, schema: {$ref: '../schemas/id%20s.yaml'}}]
  put:
    operationId: put
    requestBody: {content: {application/json: {schema: {$ref: '../schemas/node.yaml'}}}}
",
    );
    service.write("schemas/id s.yaml", "{type: integer}");
    service.write(
        "schemas/node.yaml",
        "type: object\nproperties: {next: {$ref: node.yaml}, id: {$ref: 'id s.yaml#'}}\n",
    );
    service.write(
        "parts.json",
        r#"{"limit": {"name": "limit", "in": "query", "schema": {"$ref": "schemas/id%20s.yaml"}}}"#,
    );
    let import = service.import(&json!({}), json!({"spec": "api.yaml"})).await;
    assert_eq!(import.skipped, []);
    assert_eq!(names(&import), ["put", "get_c"]);
    assert_eq!(
        *import.tools[0].entry.input_schema().as_json(),
        json!({
            "type": "object",
            "properties": {"id": {"type": "integer"}, "body": {"$ref": "#/$defs/node"}},
            "required": ["id"],
            "additionalProperties": false,
            "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "id": {"type": "integer"}}}},
        })
    );
    call(&import, 0, json!({"id": 5, "body": {"next": {"id": 1}}})).await.unwrap();
    assert_eq!(service.take_requests()[0].line, "PUT /v1/a~b/5");
    assert!(call(&import, 0, json!({"id": 5, "body": {"next": {"id": "x"}}})).await.is_err());
}

#[tokio::test]
async fn a_remote_document_may_reference_its_folder() {
    let service = Service::start().await;
    let document = json!({
        "openapi": "3.1.0",
        "servers": [{"url": "../api"}],
        "paths": {"/x": {"get": {"parameters": [{"$ref": "parts.json#/p"}]}}, "/y": {"get": {"parameters": [{"$ref": "/other.json#/p"}]}}},
    });
    service.answer_next(200, document.to_string());
    service.answer_next(200, r#"{"p": {"name": "q", "in": "query"}}"#);
    let import =
        service.import(&json!({}), json!({"spec": format!("{}/docs/v1/spec.json", service.url)})).await;
    let lines: Vec<String> = service.take_requests().into_iter().map(|seen| seen.line).collect();
    assert_eq!(lines, ["GET /docs/v1/spec.json", "GET /docs/v1/parts.json"]);
    call(&import, 0, json!({"q": "a"})).await.unwrap();
    assert_eq!(service.take_requests()[0].line, "GET /docs/api/x?q=a");
    assert!(
        import.skipped[0].reason.contains("is outside the folder of the document; set references: anywhere"),
        "{:?}",
        import.skipped
    );
}

/// Returns the request line that a document with these members leads to, or the reason why it is skipped.
async fn base(members: Value, settings: Value) -> Result<String, String> {
    let service = Service::start().await;
    let mut document = json!({"openapi": "3.1.0", "paths": {"/x": {"get": {}}}});
    let text = members.to_string().replace("SERVICE", &service.url).replace("HOST", &service.url[7..]);
    let members: Value = serde_json::from_str(&text).unwrap();
    for (name, value) in members.as_object().unwrap() {
        document[name] = value.clone();
    }
    if document.get("swagger").is_some() {
        document.as_object_mut().unwrap().remove("openapi");
    }
    let settings: Value =
        serde_json::from_str(&settings.to_string().replace("SERVICE", &service.url)).unwrap();
    // A document that the service offers may name it.
    let mut settings: OpenApiSettings = serde_json::from_value(settings).unwrap();
    if settings.spec.is_empty() {
        service.answer_next(200, document.to_string());
        settings.spec = format!("{}/spec.json", service.url);
    }
    service.write("spec.json", &document.to_string());
    let import = import(&settings, service.folder.path()).await.unwrap();
    service.take_requests();
    if let Some(skipped) = import.skipped.first() {
        return Err(skipped.reason.clone());
    }
    call(&import, 0, json!({})).await.map_err(|error| error.to_string())?;
    Ok(service.take_requests()[0].line.clone())
}

#[tokio::test]
async fn the_configured_base_url_overrides_the_document() {
    let regions = json!([{"url": "SERVICE/{region}/", "variables": {"region": {"default": "eu", "enum": ["eu", "us"]}}}]);
    let several =
        json!([{"url": "https://nobody.invalid"}, {"url": "SERVICE/test", "description": "for trying out"}]);
    let cases = [
        (json!({"servers": [{"url": "SERVICE/v1/"}]}), json!({}), "GET /v1/x"),
        (
            json!({"servers": [{"url": "https://nobody.invalid"}]}),
            json!({"baseUrl": "SERVICE/b/?x#y"}),
            "GET /b/x",
        ),
        (json!({"servers": regions}), json!({}), "GET /eu/x"),
        (json!({"servers": regions}), json!({"serverVariables": {"region": "us"}}), "GET /us/x"),
        (
            json!({"servers": [{"url": "SERVICE/{a}/{b}/{a}"}]}),
            json!({"serverVariables": {"a": "1", "b": "{a}"}}),
            "GET /1/%7Ba%7D/1/x",
        ),
        (json!({"servers": several}), json!({"server": "trying"}), "GET /test/x"),
        (
            json!({"servers": [{"url": "https://nobody.invalid"}], "paths": {"/x": {"servers": [{"url": "SERVICE/p"}], "get": {}}}}),
            json!({}),
            "GET /p/x",
        ),
        (
            json!({"paths": {"/x": {"servers": [{"url": "SERVICE/p"}], "get": {"servers": [{"url": "SERVICE/o"}]}}}}),
            json!({}),
            "GET /o/x",
        ),
        (
            json!({"swagger": "2.0", "host": "HOST", "basePath": "/b", "schemes": ["ws", "http"]}),
            json!({}),
            "GET /b/x",
        ),
        (
            json!({"servers": [{"url": "SERVICE"}], "paths": {"/x?fixed=1#frag": {"get": {}}}}),
            json!({}),
            "GET /x?fixed=1",
        ),
    ];
    for (members, settings, line) in cases {
        assert_eq!(base(members.clone(), settings).await.as_deref(), Ok(line), "{members}");
    }
}

#[tokio::test]
async fn an_unusable_server_url_says_what_to_do() {
    let variable = json!({"servers": [{"url": "https://{x}.example.org"}]});
    let choice = json!({"servers": [{"url": "SERVICE/{r}", "variables": {"r": {"enum": ["a"]}}}]});
    let cases = [
        (
            json!({}),
            json!({"spec": "spec.json"}),
            "the document has no absolute URL for the service ('/'); set baseUrl",
        ),
        (
            json!({"servers": [{"url": "/v1"}]}),
            json!({"spec": "spec.json"}),
            "the document has no absolute URL for the service ('/v1'); set baseUrl",
        ),
        (
            variable,
            json!({}),
            "the URL of the service has a variable 'x' without a value; set serverVariables: {x: …}",
        ),
        (choice, json!({"serverVariables": {"r": "b"}}), "invalid serverVariables.r: expected one of a"),
        (
            json!({"servers": [{"url": "file:///etc"}]}),
            json!({}),
            "unsupported URL scheme 'file' of the service: use http or https",
        ),
        (
            json!({"servers": [{"url": "http://a:b@example.org"}]}),
            json!({}),
            "the URL of the service contains a username or password; use credentials instead",
        ),
        (json!({}), json!({"baseUrl": "nowhere"}), "invalid baseUrl: relative URL without a base"),
    ];
    for (members, settings, why) in cases {
        assert_eq!(base(members.clone(), settings).await, Err(why.to_owned()), "{members}");
    }
}

#[tokio::test]
async fn invalid_documents_are_rejected_with_a_reason() {
    let service = Service::start().await;
    let cases = [
        (json!({"swagger": "1.2"}), "unsupported OpenAPI version 1.2: expected 2.0 or 3.0 to 3.2"),
        (json!({"openapi": "4.0"}), "unsupported OpenAPI version 4.0: expected 2.0 or 3.0 to 3.2"),
        (json!({"a": 1}), "not an OpenAPI document: it has neither 'openapi' nor 'swagger' at its root"),
        (json!([]), "not an OpenAPI document: it has neither 'openapi' nor 'swagger' at its root"),
    ];
    for (document, why) in cases {
        assert_eq!(service.try_import(&document, json!({})).await.unwrap_err(), why);
    }
    service.write("broken.json", "{\"a\": ");
    let why = service.try_import(&json!({}), json!({"spec": "broken.json"})).await.unwrap_err();
    assert!(why.contains("broken.json is neither valid JSON nor YAML: EOF while parsing"), "{why}");
    let why = service.try_import(&json!({}), json!({"spec": "missing.json"})).await.unwrap_err();
    assert!(why.contains("missing.json: No such file"), "{why}");
}

#[tokio::test]
async fn different_documents_have_different_fingerprints() {
    let service = Service::start().await;
    let one = service.document("get", "/x", &json!({}));
    let other = service.document("get", "/y", &json!({}));
    let mut fingerprints = Vec::new();
    for document in [&one, &other, &one] {
        fingerprints.push(service.import(document, json!({})).await.fingerprint);
    }
    assert!(fingerprints[0] == fingerprints[2] && fingerprints[0] != fingerprints[1], "{fingerprints:?}");
}
