//! Malicious and broken documents.

use pegboard_core::settings::openapi::OpenApiSettings;
use pegboard_providers::openapi;
use serde_json::{Value, json};

use crate::openapi::harness::{SeenRequest, Service, call, names};

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
    let import = service.import(&document, json!({"spec": "api/spec.json", "references": "anywhere"})).await;
    assert_eq!((import.tools.len(), service.take_requests().len()), (references.len() - 1, 0));
    // The host of the last one is named by the document alone.
    let reason = &import.skipped[0].reason;
    assert!(reason.contains("127.0.0.1 is not a public host: request not sent"), "{reason}");
}

#[tokio::test]
async fn a_document_cannot_target_private_networks() {
    let service = Service::start().await;
    for server in [
        "http://127.0.0.1:1",
        "http://2130706433",
        "http://0x7f.1",
        "http://[::ffff:127.0.0.1]",
        "http://169.254.169.254/latest",
        "http://10.0.0.1",
        "http://[::1]",
        "http://localhost",
        "http://LOCALHOST.",
        "http://router",
        "http://nas.lan",
        "http://nas.lan.",
        "https://wiki.internal",
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
        let file = OpenApiSettings { spec: "spec.json".to_owned(), ..OpenApiSettings::default() };
        service.write("spec.json", &document.to_string());
        let of_file = openapi::import(&file, service.folder.path()).await.unwrap();
        assert_eq!(of_file.skipped, import.skipped, "{server}");
        service.answer_next(200, document.to_string());
        let import = service.import(&json!({}), json!({"spec": spec, "baseUrl": service.url})).await;
        assert_eq!(import.tools.len(), 1);
    }
}

/// Imports a document at the origin of the service, from a URL or from a file. Returns the request that a call leads
/// to, or the reason why there is none.
async fn keyed_request(
    is_remote: bool,
    document: impl Fn(&Service) -> Value,
    settings: impl Fn(&Service) -> Value,
) -> Result<SeenRequest, String> {
    let service = Service::start().await;
    let document = document(&service);
    let mut settings: OpenApiSettings = serde_json::from_value(settings(&service)).unwrap();
    service.write("spec.json", &document.to_string());
    "spec.json".clone_into(&mut settings.spec);
    if is_remote {
        settings.spec = format!("{}/spec.json", service.url);
        service.answer_next(200, document.to_string());
    }
    let import = openapi::import(&settings, service.folder.path()).await.unwrap();
    if let Some(skipped) = import.skipped.first() {
        return Err(skipped.reason.clone());
    }
    service.take_requests();
    call(&import, 0, json!({})).await.map_err(|error| error.to_string())?;
    service.take_requests().pop().ok_or_else(|| import.warnings.join("; "))
}

#[tokio::test]
async fn credentials_go_only_where_the_configuration_says() {
    let key = json!({"credentials": {"s": {"value": "k"}}});
    let header = json!({"headers": {"x-key": "k"}});
    let elsewhere = "https://collector.example.org";
    let refused =
        Err(format!("only the document names {elsewhere}; set baseUrl to send credentials or headers there"));
    for settings in [key, header] {
        let document = |server: String| {
            json!({
                "openapi": "3.1.0", "servers": [{"url": server}], "security": [{"s": []}],
                "paths": {"/x": {"get": {}}},
                "components": {"securitySchemes": {"s": {"type": "apiKey", "in": "header", "name": "x-key"}}},
            })
        };
        for is_remote in [true, false] {
            let at = |server: &'static str| move |_: &Service| document(server.to_owned());
            let sent = keyed_request(is_remote, at(elsewhere), |_| settings.clone()).await;
            assert_eq!(sent.map(|seen| seen.line), refused, "{settings}");
            // With `baseUrl` the key goes there, whatever the document says.
            let configured = |service: &Service| {
                let mut settings = settings.clone();
                settings["baseUrl"] = format!("{}/b", service.url).into();
                settings
            };
            let seen = keyed_request(is_remote, at(elsewhere), configured).await.unwrap();
            assert_eq!((seen.line.as_str(), seen.header("x-key")), ("GET /b/x", Some("k")));
        }
        // The origin of a document that the configuration names is configured, too.
        let own = |service: &Service| document(service.url.clone());
        let seen = keyed_request(true, own, |_| settings.clone()).await.unwrap();
        assert_eq!((seen.line.as_str(), seen.header("x-key")), ("GET /x", Some("k")));
        // An operation or a path cannot lead them away.
        let nested = |service: &Service| {
            let mut document = document(service.url.clone());
            document["paths"]["/x"]["get"]["servers"] = json!([{"url": elsewhere}]);
            document
        };
        assert_eq!(keyed_request(true, nested, |_| settings.clone()).await.map(|seen| seen.line), refused);
    }
}

#[tokio::test]
async fn a_client_secret_goes_only_where_the_configuration_says() {
    let elsewhere = "https://collector.example.org/token";
    let credentials = |service: &Service| json!({"baseUrl": service.url, "credentials": {"o": {"clientId": "me", "clientSecret": "s"}}});
    let document = |token_url: String| {
        json!({
            "openapi": "3.1.0", "servers": [], "security": [{"o": []}], "paths": {"/x": {"get": {}}},
            "components": {"securitySchemes": {"o": {
                "type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": token_url}},
            }}},
        })
    };
    for is_remote in [true, false] {
        for token_url in
            [elsewhere, "http://127.0.0.1:1/token", "http://localhost./token", "http://nas.lan/token"]
        {
            let seen =
                keyed_request(is_remote, |_| document(token_url.to_owned()), credentials).await.unwrap();
            assert_eq!((seen.line.as_str(), seen.header("authorization")), ("GET /x", None), "{token_url}");
        }
        // Userinfo would replace the client's own credentials.
        let userinfo = |service: &Service| document(service.url.replace("http://", "http://a:b@") + "/token");
        let seen = keyed_request(is_remote, userinfo, credentials).await.unwrap();
        assert_eq!(seen.header("authorization"), None);
        let configured = |service: &Service| {
            let mut settings = credentials(service);
            settings["credentials"]["o"]["tokenUrl"] = format!("{}/token", service.url).into();
            settings
        };
        for token_url in [elsewhere.to_owned(), "SERVICE/token".to_owned()] {
            let own = |service: &Service| document(token_url.replace("SERVICE", &service.url));
            let error = keyed_request(is_remote, own, configured).await.unwrap_err();
            // The service has no token in its answer, so the request for it has reached it.
            assert!(error.contains("the response contains none"), "{error}");
        }
    }
    let service = Service::start().await;
    let import = service.import(&document(elsewhere.to_owned()), credentials(&service)).await;
    insta::assert_snapshot!(
        import.warnings.join("\n"),
        @"1 operations are called without credentials: only the document names the tokenUrl of scheme 'o' (oauth2), at https://collector.example.org; set tokenUrl to send the client secret there"
    );
}

#[tokio::test]
async fn a_redirect_never_takes_credentials_to_another_origin() {
    let (service, other) = (Service::start().await, Service::start().await);
    let port = service.url.rsplit(':').next().unwrap();
    for target in [
        other.url.clone(),
        format!("{}/x", other.url),
        format!("http://localhost:{port}/x"),
        format!("http://user:pw@127.0.0.1:{port}/x"),
        format!("https://127.0.0.1:{port}/x"),
        format!("//{}/x", &other.url["http://".len()..]),
    ] {
        let document = service.document("get", "/x", &json!({}));
        let import = service.import(&document, json!({"headers": {"x-key": "k"}})).await;
        service.redirect_next(&target);
        let error = call(&import, 0, json!({})).await.unwrap_err().to_string();
        assert!(error.contains("redirect"), "{target}: {error}");
        assert_eq!((service.take_requests().len(), other.take_requests().len()), (1, 0), "{target}");
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
