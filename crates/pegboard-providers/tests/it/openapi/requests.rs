//! Requests of operations.

use std::sync::Arc;

use pegboard_core::arguments::CallArguments;
use pegboard_core::call::{CallContext, SchemaChecks, ValidCall};
use pegboard_core::error::ErrorKind;
use pegboard_json::RawJson;
use serde_json::{Value, json};

use crate::openapi::harness::{Service, call};

/// Returns the request line for this parameter in 3.1.
async fn line(parameter: &Value, value: Value) -> String {
    let service = Service::start().await;
    let name = parameter["name"].as_str().unwrap();
    let path = if parameter["in"] == "path" { format!("/x/{{{name}}}/y") } else { "/x".to_owned() };
    let document = service.document("get", &path, &json!({"parameters": [parameter]}));
    service.sent_request(&document, json!({name: value})).await.line
}

#[tokio::test]
async fn parameters_are_serialized_in_their_style() {
    let list = json!(["blue", "black"]);
    let object = json!({"R": 100, "G": 200});
    let cases = [
        (json!({"in": "path"}), list.clone(), "/x/blue,black/y"),
        (json!({"in": "path", "explode": true}), object.clone(), "/x/R=100,G=200/y"),
        (json!({"in": "path", "style": "label"}), list.clone(), "/x/.blue,black/y"),
        (json!({"in": "path", "style": "label", "explode": true}), list.clone(), "/x/.blue.black/y"),
        (json!({"in": "path", "style": "matrix"}), list.clone(), "/x/;color=blue,black/y"),
        (json!({"in": "path", "style": "matrix", "explode": true}), object.clone(), "/x/;R=100;G=200/y"),
        (json!({"in": "query"}), list.clone(), "/x?color=blue&color=black"),
        (json!({"in": "query"}), object.clone(), "/x?R=100&G=200"),
        (json!({"in": "query", "explode": false}), list.clone(), "/x?color=blue,black"),
        (json!({"in": "query", "style": "spaceDelimited"}), list.clone(), "/x?color=blue%20black"),
        (json!({"in": "query", "style": "pipeDelimited"}), list.clone(), "/x?color=blue%7Cblack"),
        (
            json!({"in": "query", "style": "deepObject"}),
            object.clone(),
            "/x?color%5BR%5D=100&color%5BG%5D=200",
        ),
        (json!({"in": "query", "allowReserved": true}), json!("a/b?c&d#e"), "/x?color=a/b?c%26d%23e"),
        (
            json!({"in": "query", "content": {"application/json": {}}}),
            object.clone(),
            "/x?color=%7B%22R%22%3A100%2C%22G%22%3A200%7D",
        ),
        (
            json!({"in": "querystring", "content": {"application/x-www-form-urlencoded": {}}}),
            object,
            "/x?R=100&G=200",
        ),
        (
            json!({"in": "querystring", "content": {"application/json": {}}}),
            list,
            "/x?%5B%22blue%22%2C%22black%22%5D",
        ),
        (json!({"in": "query"}), json!(true), "/x?color=true"),
        (json!({"in": "query"}), json!(-1.5), "/x?color=-1.5"),
        (json!({"in": "query"}), json!(""), "/x?color="),
        (json!({"in": "query"}), json!([]), "/x"),
        (json!({"in": "query"}), Value::Null, "/x"),
        (json!({"in": "query"}), json!("ü &+="), "/x?color=%C3%BC%20%26%2B%3D"),
    ];
    for (mut parameter, value, expected) in cases {
        parameter["name"] = "color".into();
        assert_eq!(line(&parameter, value).await, format!("GET /v1{expected}"), "{parameter}");
    }
}

#[tokio::test]
async fn lists_of_2_0_use_their_collection_format() {
    let service = Service::start().await;
    let host = service.url.strip_prefix("http://").unwrap();
    let cases = [
        (json!({}), "/x?c=a,b"),
        (json!({"collectionFormat": "csv"}), "/x?c=a,b"),
        (json!({"collectionFormat": "ssv"}), "/x?c=a%20b"),
        (json!({"collectionFormat": "tsv"}), "/x?c=a%09b"),
        (json!({"collectionFormat": "pipes"}), "/x?c=a%7Cb"),
        (json!({"collectionFormat": "multi"}), "/x?c=a&c=b"),
    ];
    for (format, expected) in cases {
        let mut parameter = json!({"name": "c", "in": "query", "type": "array", "items": {"type": "string"}});
        parameter.as_object_mut().unwrap().extend(format.as_object().unwrap().clone());
        let document = json!({"swagger": "2.0", "host": host, "schemes": ["http"], "paths": {"/x": {"get": {"parameters": [parameter]}}}});
        assert_eq!(
            service.sent_request(&document, json!({"c": ["a", "b"]})).await.line,
            format!("GET /v1{expected}")
        );
    }
}

#[tokio::test]
async fn cookies_and_headers_are_sent_and_colliding_names_are_qualified() {
    let service = Service::start().await;
    let parameters = json!([
        {"name": "id", "in": "path", "required": true, "schema": {"type": "string"}},
        {"name": "id", "in": "query", "schema": {"type": "string"}},
        {"name": "id", "in": "header", "schema": {"type": "array"}},
        {"name": "id", "in": "cookie", "schema": {"type": "string"}},
        {"name": "page[size]", "in": "query", "schema": {"type": "integer"}},
        {"name": "body", "in": "query", "schema": {"type": "string"}},
        {"name": "Content-Type", "in": "header", "schema": {"type": "string"}},
    ]);
    let operation = json!({"parameters": parameters, "requestBody": {"content": {"text/plain": {}}}});
    let document = service.document("post", "/x/{id}", &operation);
    let arguments = json!({
        "id": "1", "id_query": "2", "id_header": ["3", "x y"], "id_cookie": "4; evil=1", "page_size": 5,
        "body_query": "6", "body": "7",
    });
    let seen = service.sent_request(&document, arguments).await;
    assert_eq!(seen.line, "POST /v1/x/1?id=2&page%5Bsize%5D=5&body=6");
    assert_eq!((seen.header("id"), seen.header("cookie")), (Some("3,x y"), Some("id=4%3B%20evil%3D1")));
    assert_eq!((seen.header("content-type"), seen.text().as_str()), (Some("text/plain"), "7"));
    let import = service.import(&document, json!({})).await;
    assert_eq!(import.warnings, ["POST /x/{id}: header 'Content-Type' cannot be set by a parameter"]);
    let schema = import.tools[0].entry.input_schema().as_json();
    assert_eq!(schema["properties"]["page_size"]["description"], "(sent as 'page[size]' in the query)");
}

#[tokio::test]
async fn bodies_are_encoded_by_content_type() {
    let service = Service::start().await;
    let body = |content: Value| json!({"requestBody": {"required": true, "content": content}});
    let form = "application/x-www-form-urlencoded";
    let cases = [
        (
            json!({"application/vnd.api+json": {}}),
            json!({"n": 1.5}),
            "application/vnd.api+json",
            r#"{"n":1.5}"#,
        ),
        (json!({"application/xml": {}, "application/json": {}}), json!([1]), "application/json", "[1]"),
        (
            json!({form: {}}),
            json!({"a": "x y&z", "b": [1, 2], "c": {"d": true}}),
            form,
            "a=x%20y%26z&b=1&b=2&c=%7B%22d%22%3Atrue%7D",
        ),
        (
            json!({form: {"encoding": {"b": {"explode": false}, "c": {"style": "deepObject", "explode": true}, "d": {"contentType": "application/json"}}}}),
            json!({"b": [1, 2], "c": {"d": true}, "d": [1]}),
            form,
            "b=1,2&c%5Bd%5D=true&d=%5B1%5D",
        ),
        (json!({"application/xml": {"schema": {"type": "object"}}}), json!({}), "application/xml", "{}"),
        (json!({"text/csv": {}}), json!("a,b"), "text/csv", "a,b"),
        (
            json!({"application/octet-stream": {}}),
            json!({"base64": "aGVs\nbG8="}),
            "application/octet-stream",
            "hello",
        ),
        (json!({"image/png": {}}), json!("text"), "image/png", "text"),
        (json!({"*/*": {}}), json!({}), "application/json", "{}"),
    ];
    for (content, value, content_type, expected) in cases {
        let document = service.document("post", "/x", &body(content.clone()));
        let seen = service.sent_request(&document, json!({"body": value})).await;
        assert_eq!(
            (seen.header("content-type"), seen.text().as_str()),
            (Some(content_type), expected),
            "{content}"
        );
    }
}

#[tokio::test]
async fn multipart_forms_carry_files() {
    let service = Service::start().await;
    let schema = json!({"type": "object", "properties": {
        "note": {"type": "string"},
        "meta": {"type": "object"},
        "file": {"type": "string", "format": "binary", "description": "A picture"},
        "more": {"type": "array", "items": {"type": "string", "format": "binary"}},
    }});
    let content = json!({"multipart/form-data": {"schema": schema, "encoding": {"file": {"contentType": "image/png"}}}});
    let document = service.document("post", "/x", &json!({"requestBody": {"content": content}}));
    let import = service.import(&document, json!({})).await;
    let file = &import.tools[0].entry.input_schema().as_json()["properties"]["body"]["properties"]["file"];
    assert_eq!(
        (&file["description"], &file["anyOf"][1]["required"]),
        (&json!("A picture"), &json!(["base64"]))
    );
    let body = json!({
        "note": "n", "meta": {"a": 1},
        "file": {"base64": "iVBORw==", "filename": "a\"\r\nb.png"},
        "more": ["one", {"base64": "", "filename": "2", "contentType": "text/x"}],
    });
    let seen = service.sent_request(&document, json!({"body": body})).await;
    let boundary =
        seen.header("content-type").unwrap().strip_prefix("multipart/form-data; boundary=").unwrap();
    let text = String::from_utf8_lossy(&seen.body).replace(boundary, "B").replace("\r\n", "\n");
    insta::assert_snapshot!(text, @r#"
    --B
    content-disposition: form-data; name="note"

    n
    --B
    content-disposition: form-data; name="meta"
    content-type: application/json

    {"a":1}
    --B
    content-disposition: form-data; name="file"; filename="a%22%0D%0Ab.png"
    content-type: image/png

    �PNG
    --B
    content-disposition: form-data; name="more"

    one
    --B
    content-disposition: form-data; name="more"; filename="2"
    content-type: text/x


    --B--
    "#);
}

#[tokio::test]
async fn forms_of_2_0_are_encoded() {
    let service = Service::start().await;
    let host = service.url.strip_prefix("http://").unwrap();
    let document = |consumes: &str, kind: &str| {
        json!({"swagger": "2.0", "host": host, "schemes": ["http"], "paths": {"/x": {"post": {
            "consumes": [consumes],
            "parameters": [{"name": "a", "in": "formData", "type": "string", "required": true}, {"name": "f", "in": "formData", "type": kind}],
        }}}})
    };
    let form = "application/x-www-form-urlencoded";
    let seen = service.sent_request(&document(form, "integer"), json!({"body": {"a": "x", "f": 5}})).await;
    assert_eq!((seen.header("content-type"), seen.text().as_str()), (Some(form), "a=x&f=5"));
    let seen =
        service.sent_request(&document(form, "file"), json!({"body": {"a": "x", "f": {"base64": ""}}})).await;
    assert!(seen.header("content-type").unwrap().starts_with("multipart/form-data"));
}

#[tokio::test]
async fn values_cannot_escape_their_segment_or_header() {
    let service = Service::start().await;
    let parameters = json!([
        {"name": "id", "in": "path", "required": true, "schema": {}},
        {"name": "h", "in": "header", "schema": {"type": "string"}},
    ]);
    let document = service.document("delete", "/x/{id}", &json!({"parameters": parameters}));
    let import = service.import(&document, json!({})).await;
    for id in [json!(".."), json!("."), json!(""), json!([]), json!(null)] {
        let error = call(&import, 0, json!({"id": id})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParameters, "{id}");
    }
    for header in ["a\r\nb: c", "a\nb", "a\0b"] {
        call(&import, 0, json!({"id": "1", "h": header})).await.unwrap_err();
    }
    assert!(service.take_requests().is_empty());
    for (id, line) in [
        ("../../admin", "/v1/x/..%2F..%2Fadmin"),
        ("%2e%2e", "/v1/x/%252e%252e"),
        ("a?b#c\\d", "/v1/x/a%3Fb%23c%5Cd"),
        ("...", "/v1/x/..."),
    ] {
        call(&import, 0, json!({"id": id})).await.unwrap();
        assert_eq!(service.take_requests()[0].line, format!("DELETE {line}"));
    }
}

#[tokio::test]
async fn numbers_are_sent_verbatim() {
    let service = Service::start().await;
    let parameters = json!([{"name": "n", "in": "query", "schema": {"type": "number"}}]);
    let body = json!({"content": {"application/json": {}}});
    let document = service.document("post", "/x", &json!({"parameters": parameters, "requestBody": body}));
    let import = service.import(&document, json!({})).await;
    let written = r#"{"n": 103116714634174424981409839673886157490, "body": {"n": 1.10}}"#;
    let arguments = CallArguments::from(RawJson::parse(written.into()).unwrap());
    let entry = Arc::new(import.tools[0].entry.clone());
    ValidCall::admit(entry, arguments, CallContext::default(), SchemaChecks::All)
        .unwrap()
        .run()
        .await
        .unwrap();
    let seen = service.take_requests().pop().unwrap();
    assert_eq!(seen.line, "POST /v1/x?n=103116714634174424981409839673886157490");
    assert_eq!(seen.text(), r#"{"n": 1.10}"#);
}

#[tokio::test]
async fn values_that_share_a_segment_cannot_escape_it() {
    let service = Service::start().await;
    let document = service.document("get", "/media/{id}.{format}/{a}{b}", &json!({}));
    let import = service.import(&document, json!({})).await;
    let arguments = |a: &str, b: &str| json!({"id": "1", "format": "png", "a": a, "b": b});
    call(&import, 0, arguments("x", "y")).await.unwrap();
    assert_eq!(service.take_requests()[0].line, "GET /v1/media/1.png/xy");
    call(&import, 0, arguments(".", ".")).await.unwrap_err();
    assert!(service.take_requests().is_empty());
}

#[tokio::test]
async fn responses_become_outputs_of_their_type() {
    let service = Service::start().await;
    let answers = json!({"200": {"content": {"application/json": {"schema": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer", "minimum": 1}}}}}}});
    let document = service.document("get", "/x", &json!({"responses": answers}));
    let import = service.import(&document, json!({})).await;
    let entry = &import.tools[0].entry;
    assert_eq!(
        *entry.output_schema().as_json(),
        json!({"type": "object", "properties": {"id": {"type": ["integer", "null"]}}})
    );
    service.answer_next(200, r#"{"id": 1.10}"#);
    let output = call(&import, 0, json!({})).await.unwrap();
    assert_eq!(output.to_result().get("structuredContent").unwrap().as_str(), r#"{"id": 1.10}"#);
    service.answer_next(404, "nope");
    let output = call(&import, 0, json!({})).await.unwrap();
    assert!(output.is_error());
    assert_eq!(output.text(), "HTTP 404: nope");
    assert_eq!(service.take_requests()[0].header("accept"), Some("application/json, */*;q=0.5"));
}
