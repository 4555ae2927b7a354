//! Credentials of requests.

use pegboard_core::error::ErrorKind;
use serde_json::{Value, json};

use crate::openapi::harness::{SeenRequest, Service, call};

fn document(service: &Service, schemes: &Value, security: &Value) -> Value {
    let mut document = service.document("get", "/x", &json!({"security": security}));
    document["components"] = json!({"securitySchemes": schemes});
    document
}

async fn authenticated_request(service: &Service, scheme: Value, credential: Value) -> SeenRequest {
    let document = document(service, &json!({"s": scheme}), &json!([{"s": []}]));
    let import = service.import(&document, json!({"credentials": {"s": credential}})).await;
    assert_eq!(import.warnings, [""; 0]);
    call(&import, 0, json!({})).await.unwrap();
    service.take_requests().pop().unwrap()
}

#[tokio::test]
async fn every_scheme_places_its_credentials() {
    let service = Service::start().await;
    let value = json!({"value": "k&y"});
    let seen = authenticated_request(
        &service,
        json!({"type": "apiKey", "in": "header", "name": "X-Key"}),
        value.clone(),
    )
    .await;
    assert_eq!(seen.header("x-key"), Some("k&y"));
    let seen = authenticated_request(
        &service,
        json!({"type": "apiKey", "in": "query", "name": "key"}),
        value.clone(),
    )
    .await;
    assert_eq!(seen.line, "GET /v1/x?key=k%26y");
    let seen = authenticated_request(
        &service,
        json!({"type": "apiKey", "in": "cookie", "name": "key"}),
        value.clone(),
    )
    .await;
    assert_eq!(seen.header("cookie"), Some("key=k%26y"));
    for scheme in [
        json!({"type": "http", "scheme": "Bearer"}),
        json!({"type": "openIdConnect"}),
        json!({"type": "oauth2"}),
    ] {
        assert_eq!(
            authenticated_request(&service, scheme, value.clone()).await.header("authorization"),
            Some("Bearer k&y")
        );
    }
    let user = json!({"username": "ann", "password": "pw"});
    let seen = authenticated_request(&service, json!({"type": "http", "scheme": "basic"}), user).await;
    assert_eq!(seen.header("authorization"), Some("Basic YW5uOnB3"));
}

#[tokio::test]
async fn the_first_configured_alternative_is_used_and_missing_credentials_are_reported() {
    let service = Service::start().await;
    let schemes = json!({
        "one": {"type": "apiKey", "in": "header", "name": "one"},
        "two": {"type": "apiKey", "in": "header", "name": "two"},
        "digest": {"type": "http", "scheme": "digest"},
    });
    let credentials = json!({"credentials": {"two": {"value": "2"}, "digest": {"value": "d"}}});
    let cases = [
        (json!([{"one": []}, {"two": []}]), Some("2"), ""),
        (
            json!([{"one": [], "two": []}]),
            None,
            "1 operations are called without credentials: scheme 'one' (apiKey) has no credentials",
        ),
        (
            json!([{"digest": []}]),
            None,
            "1 operations are called without credentials: scheme 'digest' (http digest) is not supported",
        ),
        (
            json!([{"three": []}]),
            None,
            "1 operations are called without credentials: the document does not describe the scheme 'three'",
        ),
        (json!([{}, {"two": []}]), Some("2"), ""),
        (json!([{}, {"one": []}]), None, ""),
        (json!([]), None, ""),
    ];
    for (security, expected, warning) in cases {
        let import = service.import(&document(&service, &schemes, &security), credentials.clone()).await;
        assert_eq!(import.warnings.join("\n"), warning, "{security}");
        call(&import, 0, json!({})).await.unwrap();
        assert_eq!(service.take_requests()[0].header("two"), expected, "{security}");
    }
}

fn with_tokens(service: &Service) -> Value {
    let flows = json!({"clientCredentials": {"tokenUrl": format!("{}/token", service.url)}});
    document(service, &json!({"o": {"type": "oauth2", "flows": flows}}), &json!([{"o": ["read", "write"]}]))
}

#[tokio::test]
async fn a_token_is_cached_and_renewed_after_a_401() {
    let service = Service::start().await;
    let settings = json!({"credentials": {"o": {"clientId": "me:", "clientSecret": "s"}}});
    let import = service.import(&with_tokens(&service), settings).await;
    service.answer_next(200, r#"{"access_token": "first", "expires_in": 3600}"#);
    for _ in 0..2 {
        call(&import, 0, json!({})).await.unwrap();
    }
    let seen = service.take_requests();
    let lines: Vec<&str> = seen.iter().map(|seen| seen.line.as_str()).collect();
    assert_eq!(lines, ["POST /token", "GET /v1/x", "GET /v1/x"]);
    assert_eq!(seen[0].text(), "grant_type=client_credentials&scope=read%20write");
    assert_eq!(seen[0].header("authorization"), Some("Basic bWUlM0E6cw=="));
    assert_eq!(seen[2].header("authorization"), Some("Bearer first"));

    service.answer_next(401, "{}");
    assert!(call(&import, 0, json!({})).await.unwrap().is_error());
    // A token without lifetime is used once.
    service.answer_next(200, r#"{"access_token": "second", "expires_in": 0}"#);
    call(&import, 0, json!({})).await.unwrap();
    service.answer_next(200, r#"{"access_token": "third"}"#);
    call(&import, 0, json!({})).await.unwrap();
    let shown: Vec<Option<String>> =
        service.take_requests().iter().map(|seen| seen.header("authorization").map(str::to_owned)).collect();
    let shown: Vec<&str> =
        shown.iter().flatten().map(String::as_str).filter(|shown| shown.starts_with("Bearer")).collect();
    assert_eq!(shown, ["Bearer first", "Bearer second", "Bearer third"]);
}

#[tokio::test]
async fn concurrent_calls_share_one_request_for_a_token() {
    let service = Service::start().await;
    let settings = json!({"credentials": {"o": {"clientId": "me", "clientSecret": "s"}}});
    let import = service.import(&with_tokens(&service), settings).await;
    service.answer_next(200, r#"{"access_token": "only", "expires_in": 3600}"#);
    let (one, other) = tokio::join!(call(&import, 0, json!({})), call(&import, 0, json!({})));
    assert!(one.is_ok() && other.is_ok());
    let lines: Vec<String> = service.take_requests().into_iter().map(|seen| seen.line).collect();
    assert_eq!(lines, ["POST /token", "GET /v1/x", "GET /v1/x"]);
    // A failure is shared as well, and the next call makes a new request.
    let settings = json!({"credentials": {"o": {"clientId": "me", "clientSecret": "s"}}});
    let import = service.import(&with_tokens(&service), settings).await;
    service.answer_next(500, "");
    let (one, other) = tokio::join!(call(&import, 0, json!({})), call(&import, 0, json!({})));
    assert!(one.is_err() && other.is_err());
    service.answer_next(200, r#"{"access_token": "next"}"#);
    call(&import, 0, json!({})).await.unwrap();
    assert_eq!(service.take_requests().len(), 3);
}

#[tokio::test]
async fn a_token_error_gives_the_reason_and_no_secret() {
    let service = Service::start().await;
    let settings = json!({"credentials": {"o": {"clientId": "me", "clientSecret": "hush-hush"}}});
    let import = service.import(&with_tokens(&service), settings).await;
    for (status, body, why) in [
        (400, "hush-hush is wrong", "HTTP 400"),
        (200, r#"{"token": "hush-hush"}"#, "the response contains none"),
    ] {
        service.answer_next(status, body);
        let error = call(&import, 0, json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AuthRequired);
        assert_eq!(error.to_string(), format!("cannot get a token for 'o': {why}. Check its credentials"));
    }
    assert_eq!(service.take_requests().len(), 2);
}

#[tokio::test]
async fn no_argument_replaces_what_the_configuration_sends() {
    let service = Service::start().await;
    let parameter =
        |location: &str, name: &str| json!({"name": name, "in": location, "required": true, "schema": {}});
    let with_header = |name: &str| json!({"headers": {name: "configured"}});
    let credential = json!({"credentials": {"s": {"value": "configured"}}});
    let scheme = |location: &str| json!({"type": "apiKey", "in": location, "name": "key"});
    let cases = [
        (parameter("header", "X-Api-Key"), Value::Null, with_header("x-api-key"), "header 'X-Api-Key'"),
        (parameter("header", "COOKIE"), Value::Null, with_header("Cookie"), "header 'COOKIE'"),
        (parameter("cookie", "id"), Value::Null, with_header("Cookie"), "cookie 'id'"),
        (parameter("header", "Key"), scheme("header"), credential.clone(), "header 'Key'"),
        (parameter("header", "Cookie"), scheme("cookie"), credential.clone(), "header 'Cookie'"),
        (parameter("cookie", "key"), scheme("cookie"), credential.clone(), "cookie 'key'"),
        (parameter("query", "key"), scheme("query"), credential.clone(), "query 'key'"),
    ];
    for (parameter, scheme, settings, dropped) in cases {
        let mut document = document(&service, &json!({"s": scheme}), &json!([{"s": []}]));
        document["paths"]["/x"]["get"]["parameters"] = json!([parameter]);
        if scheme.is_null() {
            document["paths"]["/x"]["get"]["security"] = json!([]);
        }
        let import = service.import(&document, settings).await;
        let warning = format!("GET /x: {dropped} is set by the configuration, not by a parameter");
        assert_eq!(import.warnings, [warning], "{parameter}");
        assert_eq!(import.tools[0].entry.input_schema().as_json()["properties"], json!({}), "{parameter}");
        call(&import, 0, json!({})).await.unwrap();
        let seen = service.take_requests().pop().unwrap();
        let sent = format!("{} {:?}", seen.line, seen.headers);
        assert_eq!(sent.matches("configured").count(), 1, "{sent}");
    }
    // The members of an object choose the names of their pairs.
    for location in ["query", "cookie"] {
        let mut document = document(&service, &json!({"s": scheme(location)}), &json!([{"s": []}]));
        let parameters = json!([{"name": "filter", "in": location, "schema": {"type": "object"}}]);
        document["paths"]["/x"]["get"]["parameters"] = parameters;
        let import = service.import(&document, credential.clone()).await;
        call(&import, 0, json!({"filter": {"key": "forged", "other": "o"}})).await.unwrap();
        let seen = service.take_requests().pop().unwrap();
        let sent = format!("{} {:?}", seen.line, seen.header("cookie"));
        assert!(sent.contains("other=o") && sent.contains("key=configured"), "{sent}");
        assert!(!sent.contains("forged"), "{sent}");
    }
}
