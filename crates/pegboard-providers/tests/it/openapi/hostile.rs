//! Malicious and broken documents.

use serde_json::{Value, json};

use crate::openapi::harness::{Service, call, names};

#[tokio::test]
async fn invalid_operations_are_skipped() {
    let service = Service::start().await;
    let parameter = |parameter: Value| json!({"get": {"parameters": [parameter]}});
    let mut document = service.document("get", "/good", &json!({"operationId": "good"}));
    let bad = [
        ("/a", parameter(json!({"$ref": "#/nowhere"})), "cannot resolve reference '#/nowhere': no such node"),
        (
            "/b",
            parameter(json!({"$ref": "#/paths/~1b/get/parameters/0"})),
            "a chain of more than 64 references",
        ),
        ("/c", parameter(json!({"name": "x", "in": "body"})), "parameter 'x' has an invalid location 'body'"),
        ("/d", parameter(json!({"in": "query"})), "a parameter has no name"),
        (
            "/e",
            parameter(json!({"name": "x", "in": "query", "style": "matrix"})),
            "style 'matrix' is not allowed in the query",
        ),
        (
            "/f",
            parameter(json!({"name": "x", "in": "query", "schema": {"$ref": "#/components/schemas/Gone"}})),
            "cannot resolve reference '#/components/schemas/Gone': no such node",
        ),
        ("/g/../../admin", json!({"get": {}}), "its path contains '.' or '..'"),
        ("/h/{x", json!({"get": {}}), "its path has an unclosed '{'"),
        ("i", json!({"get": {}}), "its path does not start with '/'"),
        ("/j", json!({"$ref": "other.json#/x"}), "cannot read"),
        ("/k", json!({"additionalOperations": {"BAD METHOD": {}}}), "its method is not in includeMethods"),
        (
            "/l",
            parameter(json!({"name": "x", "in": "query", "schema": {"$ref": "#/components/schemas/Loop"}})),
            "a schema is infinitely recursive",
        ),
    ];
    for (path, item, _) in &bad {
        document["paths"][*path] = item.clone();
    }
    document["components"] = json!({"schemas": {"Loop": {"allOf": [{"$ref": "#/components/schemas/Loop"}]}}});
    let import = service.import(&document, json!({})).await;
    assert_eq!(names(&import), ["good"]);
    assert_eq!(import.skipped.len(), bad.len());
    for (skipped, (path, _, why)) in import.skipped.iter().zip(&bad) {
        assert!(skipped.operation.ends_with(path) && skipped.reason.contains(why), "{path}: {skipped:?}");
    }
}

#[tokio::test]
async fn references_outside_the_folder_are_refused() {
    let service = Service::start().await;
    service.write("secret.json", r#"{"p": {"name": "q", "in": "query"}}"#);
    service.write("api/inside.json", r#"{"p": {"name": "q", "in": "query"}}"#);
    std::os::unix::fs::symlink(
        service.folder.path().join("secret.json"),
        service.folder.path().join("api/link.json"),
    )
    .unwrap();
    let outside = service.folder.path().join("secret.json").display().to_string();
    let references = [
        "inside.json",
        "./x/../inside.json",
        "../secret.json",
        "link.json",
        &outside,
        &format!("file://{outside}"),
        &format!("{}/web.json", service.url),
    ];
    let paths: serde_json::Map<String, Value> = references
        .iter()
        .enumerate()
        .map(|(at, file)| {
            (format!("/{at}"), json!({"get": {"parameters": [{"$ref": format!("{file}#/p")}]}}))
        })
        .collect();
    let document = json!({"openapi": "3.0.0", "servers": [{"url": service.url}], "paths": paths});
    service.write("api/spec.json", &document.to_string());
    let import = service.import(&document, json!({"spec": "api/spec.json"})).await;
    assert_eq!(names(&import), ["get_0", "get_1"]);
    assert!(
        import.skipped.iter().all(|skipped| skipped.reason.contains("is outside the folder")),
        "{:?}",
        import.skipped
    );
    assert!(service.take_requests().is_empty());
    service.answer_next(200, r#"{"p": {"name": "q", "in": "query"}}"#);
    let import = service.import(&document, json!({"spec": "api/spec.json", "references": "anywhere"})).await;
    assert_eq!((import.tools.len(), service.take_requests().len()), (references.len(), 1));
}

#[tokio::test]
async fn a_remote_document_cannot_target_private_networks() {
    let service = Service::start().await;
    for server in [
        "http://127.0.0.1:1",
        "http://169.254.169.254/latest",
        "http://10.0.0.1",
        "http://[::1]",
        "http://localhost",
        "http://router",
    ] {
        let document =
            json!({"openapi": "3.0.0", "servers": [{"url": server}], "paths": {"/x": {"get": {}}}});
        service.answer_next(200, document.to_string());
        let spec = format!("{}/spec.json", service.url);
        let import = service.import(&json!({}), json!({"spec": spec})).await;
        assert!(
            import.skipped[0].reason.contains("in a private network; set baseUrl to allow it"),
            "{server}"
        );
        service.answer_next(200, document.to_string());
        let import = service.import(&json!({}), json!({"spec": spec, "baseUrl": service.url})).await;
        assert_eq!(import.tools.len(), 1);
    }
}

#[tokio::test]
async fn excessive_documents_are_limited() {
    let service = Service::start().await;
    let mut paths = serde_json::Map::new();
    for at in 0..10_050 {
        paths.insert(format!("/{at}"), json!({"get": {}}));
    }
    let document = json!({"openapi": "3.0.0", "servers": [{"url": service.url}], "paths": paths});
    let import = service.import(&document, json!({})).await;
    assert_eq!(import.tools.len(), 10_000);
    assert_eq!(import.warnings, ["imported only the first 10000 operations"]);

    service.write("huge.json", &format!(r#"{{"openapi": "3.0.0", "x": "{}"}}"#, "x".repeat(33 << 20)));
    let why = service.try_import(&json!({}), json!({"spec": "huge.json"})).await.unwrap_err();
    assert!(why.contains("exceeds the limit of 33554432 bytes"), "{why}");

    let deep = format!("{}{}", r#"{"a":"#.repeat(5_000), "}".repeat(5_000));
    service.write("deep.json", &deep);
    assert!(service.try_import(&json!({}), json!({"spec": "deep.json"})).await.is_err());
}

#[tokio::test]
async fn an_oversized_shared_schema_is_converted_once() {
    let service = Service::start().await;
    let properties: serde_json::Map<String, Value> =
        (0..100_000).map(|at| (format!("p{at}"), json!({}))).collect();
    let large = json!({"content": {"application/json": {"schema": {"properties": properties}}}});
    let paths: serde_json::Map<String, Value> = (0..10_000)
        .map(|at| {
            (format!("/{at}"), json!({"post": {"requestBody": {"$ref": "#/components/requestBodies/B"}}}))
        })
        .collect();
    let document = json!({
        "openapi": "3.0.0", "servers": [{"url": service.url}], "paths": paths,
        "components": {"requestBodies": {"B": large}},
    });
    let import = service.import(&document, json!({})).await;
    assert_eq!(import.skipped.len(), 10_000);
    let why = "a schema has more than 50000 subschemas, not counting references";
    assert!(import.skipped.iter().all(|skipped| skipped.reason == why), "{:?}", import.skipped[0]);
}

#[tokio::test]
async fn an_oversized_schema_is_truncated_and_still_validates() {
    let service = Service::start().await;
    let mut schemas = serde_json::Map::new();
    for at in 0..50 {
        let next = json!({"$ref": format!("#/components/schemas/S{}", at + 1)});
        schemas.insert(format!("S{at}"), json!({"type": "object", "description": "x".repeat(10_000), "properties": {"next": next, "n": {"type": "integer"}}}));
    }
    schemas.insert("S50".to_owned(), json!({"type": "object"}));
    let body = json!({"content": {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}}});
    let mut document = service.document("post", "/x", &json!({"requestBody": body}));
    document["components"] = json!({"schemas": schemas});
    let import = service.import(&document, json!({})).await;
    assert_eq!(import.warnings, ["POST /x: the schema is too large and was truncated"]);
    assert!(import.tools[0].entry.input_schema().as_json().to_string().len() < 300_000);
    assert!(call(&import, 0, json!({"body": {"next": {"n": "x"}}})).await.is_err());
    call(&import, 0, json!({"body": {"next": {"n": 1}}})).await.unwrap();
}
