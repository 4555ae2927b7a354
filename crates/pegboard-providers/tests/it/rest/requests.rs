//! Requests of REST tools.

use std::collections::HashSet;

use pegboard_core::provider::Provider;
use pegboard_providers::rest;
use pegboard_testkit::recorder::CannedResponse;
use serde_json::{Value, json};

use crate::rest::harness::{RestHarness, parameters, resolve};

/// Returns the request line of a call, or its error.
async fn line(path: &str, settings: Value, arguments: Value) -> String {
    let harness = RestHarness::new(path, settings, [CannedResponse::json("{}")]).await;
    match harness.call(arguments).await {
        Ok(_) => harness.request().line,
        Err(error) => {
            assert_eq!(harness.service.recorded(), [], "a call that is refused sends nothing");
            error
        }
    }
}

/// Returns the content type and body of a call's request.
async fn body(content_type: Option<&str>, template: Value, arguments: &str) -> String {
    let mut settings = json!({
        "method": "POST",
        "bodyTemplate": template,
        "parametersSchema": parameters(&["a", "b", "body"]),
    });
    if let Some(content_type) = content_type {
        settings["headers"] = json!({"Content-Type": content_type});
    }
    let harness = RestHarness::new("/", settings, [CannedResponse::json("{}")]).await;
    harness.call_raw(arguments).await.unwrap();
    let request = harness.request();
    format!("{} {}", request.header("content-type").unwrap_or("-"), request.text())
}

// C41
#[tokio::test]
async fn a_path_value_stays_one_segment() {
    let cases = [
        (json!("a/b c"), "GET /u/a%2Fb%20c/x HTTP/1.1"),
        (json!("../admin"), "GET /u/..%2Fadmin/x HTTP/1.1"),
        (json!("a?b#c&d=%2e"), "GET /u/a%3Fb%23c%26d%3D%252e/x HTTP/1.1"),
        (json!("é😀"), "GET /u/%C3%A9%F0%9F%98%80/x HTTP/1.1"),
        (json!("a\\b\r\nHost: evil"), "GET /u/a%5Cb%0D%0AHost%3A%20evil/x HTTP/1.1"),
        (json!("//evil.example"), "GET /u/%2F%2Fevil.example/x HTTP/1.1"),
        (json!("..."), "GET /u/.../x HTTP/1.1"),
        (json!(7), "GET /u/7/x HTTP/1.1"),
        (json!(true), "GET /u/true/x HTTP/1.1"),
        (json!(".."), "Invalid arguments: $.id: a path segment must not be . or .."),
        (json!("."), "Invalid arguments: $.id: a path segment must not be . or .."),
        (json!(""), "Invalid arguments: $.id: a path segment must not be empty"),
        (json!(["a"]), "Invalid arguments: $.id: expected a string, number or boolean"),
        (json!(null), "Invalid arguments: $.id: required field missing"),
    ];
    for (id, expected) in cases {
        let settings = json!({"parametersSchema": parameters(&["id"])});
        let line = line("/u/${parameters.id}/x", settings, json!({"id": id})).await;
        assert_eq!(line, expected, "{id}");
    }
}

#[tokio::test]
async fn dot_segments_cannot_be_assembled() {
    for path in ["/.${parameters.id}/x", "/%2E${parameters.id}/x", "/${parameters.id}%2e/x"] {
        let settings = json!({"parametersSchema": parameters(&["id"])});
        let line = line(path, settings, json!({"id": "."})).await;
        assert!(line.ends_with("must not be . or .."), "{path}: {line}");
    }
}

// C42
#[tokio::test]
async fn missing_parameters_are_errors_or_omitted() {
    let mut schema = parameters(&["q", "page", "tag"]);
    schema["required"] = json!(["q"]);
    schema["properties"]["page"]["default"] = json!(1);
    let settings = json!({"headers": {"X-Tag": "${parameters.tag}"}, "parametersSchema": schema});
    let path = "/s?q=${parameters.q}&tag=${parameters.tag}&page=${parameters.page}&fixed=1";
    let cases = [
        (json!({}), "Invalid arguments: $.q: required field missing"),
        (json!({"q": "a b&c"}), "GET /s?q=a%20b%26c&page=1&fixed=1 HTTP/1.1"),
        (json!({"q": "", "tag": null, "page": 2}), "GET /s?q=&page=2&fixed=1 HTTP/1.1"),
        (json!({"q": 1.50, "tag": "x"}), "GET /s?q=1.5&tag=x&page=1&fixed=1 HTTP/1.1"),
    ];
    for (arguments, expected) in cases {
        assert_eq!(line(path, settings.clone(), arguments).await, expected);
    }
    let harness = RestHarness::new(path, settings, [CannedResponse::json("{}")]).await;
    harness.call(json!({"q": "a"})).await.unwrap();
    assert_eq!(harness.request().header("x-tag"), None);
}

// C43, C44
#[tokio::test]
async fn a_body_keeps_the_types_of_its_values() {
    let cases = [
        (
            json!("${parameters.body}"),
            r#"{"body": {"n": 1.10, "l": [null]}}"#,
            r#"application/json {"n": 1.10, "l": [null]}"#,
        ),
        (json!("${parameters.body}"), r#"{"body": "a"}"#, r#"application/json "a""#),
        (
            json!({"n": "${parameters.a}", "t": "is ${parameters.b}"}),
            r#"{"a": 5, "b": 5}"#,
            r#"application/json {"n":5,"t":"is 5"}"#,
        ),
        (json!({"n": "${parameters.a}", "l": ["${parameters.b}", 1]}), "{}", r#"application/json {"l":[1]}"#),
        (
            json!({"n": "${parameters.a}"}),
            r#"{"a": 12345678901234567890123}"#,
            r#"application/json {"n":12345678901234567890123}"#,
        ),
        (json!({"n": "${parameters.a}"}), r#"{"a": null}"#, r#"application/json {"n":null}"#),
        (json!([1, {"x": true}]), "{}", r#"application/json [1,{"x":true}]"#),
    ];
    for (template, arguments, expected) in cases {
        assert_eq!(body(None, template.clone(), arguments).await, expected, "{template}");
    }
}

// C45
#[tokio::test]
async fn a_body_is_encoded_by_content_type() {
    let cases = [
        ("text/plain", json!("Hello ${parameters.a}!"), r#"{"a": "\"you\""}"#, r#"text/plain Hello "you"!"#),
        ("text/plain", json!("${parameters.a}"), r#"{"a": "as it is"}"#, "text/plain as it is"),
        (
            "application/vnd.x+json",
            json!({"a": "${parameters.a}"}),
            r#"{"a": [1]}"#,
            r#"application/vnd.x+json {"a":[1]}"#,
        ),
        (
            "application/x-www-form-urlencoded",
            json!({"a": "${parameters.a}", "b": "${parameters.b}", "c": 1}),
            r#"{"a": "x&y", "b": [1, 2]}"#,
            "application/x-www-form-urlencoded a=x%26y&b[0]=1&b[1]=2&c=1",
        ),
        (
            "application/x-www-form-urlencoded",
            json!("a=${parameters.a}"),
            r#"{"a": "1&b=2"}"#,
            "application/x-www-form-urlencoded a=1%26b%3D2",
        ),
        ("text/xml", json!("<a>${parameters.a}</a>"), r#"{"a": "<b>&"}"#, "text/xml <a>&lt;b&gt;&amp;</a>"),
    ];
    for (content_type, template, arguments, expected) in cases {
        assert_eq!(body(Some(content_type), template.clone(), arguments).await, expected, "{template}");
    }
}

#[tokio::test]
async fn values_cannot_break_out_of_a_json_text() {
    let template =
        json!(r#"{"q": "say \"${parameters.a}\"", "n": ${parameters.b}, "o": ${parameters.body}}"#);
    let arguments = r#"{"a": "x\", \"admin\": true, \"y\": \"", "b": "1, \"admin\": true"}"#;
    insta::assert_snapshot!(body(None, template, arguments).await, @r#"application/json {"q": "say \"x\", \"admin\": true, \"y\": \"\"", "n": "1, \"admin\": true", "o": null}"#);
}

#[tokio::test]
async fn an_empty_body_is_not_sent() {
    assert_eq!(body(None, json!("${parameters.body}"), "{}").await, "- ");
    assert_eq!(body(None, json!(null), "{}").await, "- ");
}

// C46
#[tokio::test]
async fn complex_query_parameters_use_brackets() {
    let settings = json!({
        "hasComplexQueryParams": true,
        "queryParamNames": ["f", "p", "gone", "none"],
        "parametersSchema": parameters(&["f", "p", "gone", "none"]),
    });
    let arguments = json!({"p": [1, "x", null], "f": {"email": "a@b.c", "n": {"d": 1}}, "none": null});
    let expected = "f[0][email]=a%40b.c&f[0][n][d]=1&p[0]=1&p[1]=x&p[2]=";
    let plain = line("/s", settings.clone(), arguments.clone()).await;
    assert_eq!(plain, format!("GET /s?{expected} HTTP/1.1"));
    let joined = line("/s?a=1", settings.clone(), arguments).await;
    assert_eq!(joined, format!("GET /s?a=1&{expected} HTTP/1.1"));
    assert_eq!(line("/s", settings, json!({})).await, "GET /s HTTP/1.1");
}

#[tokio::test]
async fn query_parameters_need_no_placeholder() {
    let settings = json!({"queryParamNames": ["q", "l"], "parametersSchema": parameters(&["q", "l"])});
    let line = line("/s", settings, json!({"l": [1, 2], "q": "a b"})).await;
    assert_eq!(line, "GET /s?q=a%20b&l=1&l=2 HTTP/1.1");
}

// C49
#[tokio::test]
async fn invalid_arguments_send_nothing() {
    let schema =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": false});
    let harness =
        RestHarness::new("/", json!({"parametersSchema": schema}), [CannedResponse::json("{}")]).await;
    let error = harness.call(json!({"n": "one", "m": 1})).await.unwrap_err();
    assert!(error.starts_with("Invalid arguments: $"), "{error}");
    assert_eq!(harness.service.recorded(), []);
}

#[tokio::test]
async fn every_method_is_sent_with_its_headers() {
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
        let settings = json!({
            "method": method,
            "headers": {"Authorization": "Bearer ${parameters.token}", "X-N": "${parameters.n}"},
            "parametersSchema": parameters(&["token", "n"]),
        });
        let harness = RestHarness::new("/", settings, [CannedResponse::json("{}")]).await;
        harness.call(json!({"token": "hush", "n": 7})).await.unwrap();
        let request = harness.request();
        assert_eq!(request.line, format!("{method} / HTTP/1.1"));
        assert_eq!(
            (request.header("authorization"), request.header("x-n")),
            (Some("Bearer hush"), Some("7"))
        );
    }
}

#[tokio::test]
async fn methods_determine_annotations() {
    let annotations = |method: &str| {
        let tool = crate::rest::harness::tool("http://127.0.0.1:1/", &json!({"method": method}));
        serde_json::to_string(tool.annotations()).unwrap()
    };
    let lines =
        ["GET", "POST", "PUT", "PATCH", "DELETE"].map(|method| format!("{method} {}", annotations(method)));
    insta::assert_snapshot!(lines.join("\n"), @r#"
    GET {"readOnlyHint":true,"openWorldHint":true}
    POST {"readOnlyHint":false,"openWorldHint":true}
    PUT {"readOnlyHint":false,"idempotentHint":true,"openWorldHint":true}
    PATCH {"readOnlyHint":false,"openWorldHint":true}
    DELETE {"readOnlyHint":false,"destructiveHint":true,"idempotentHint":true,"openWorldHint":true}
    "#);
}

#[test]
fn an_invalid_tool_is_skipped_with_a_warning() {
    let tool = |name: &str, url: &str, header: &str| {
        resolve(name, json!({"description": "", "url": url, "headers": {header: "x"}}))
    };
    let tools = vec![
        tool("host", "https://example.org/", "Host"),
        tool("port", "https://example.org:99999/", "X-A"),
        tool("fine", "https://example.org/", "X-A"),
    ];
    let offer = rest::provider(tools, vec!["an earlier warning".to_owned()]).offering().borrow().clone();
    assert_eq!(offer.tools.iter().map(|tool| tool.name()).collect::<Vec<_>>(), ["fine"]);
    insta::assert_snapshot!(offer.warnings.join("\n"), @r"
    an earlier warning
    REST tool 'host' cannot be used: cannot send header 'Host': it belongs to the connection, and Pegboard sets it
    REST tool 'port' cannot be used: invalid URL: check its host and port
    ");
}

#[test]
fn any_change_of_a_tool_changes_the_fingerprint() {
    let fingerprint = |settings: Value| {
        let mut written = json!({"description": "", "url": "https://example.org/"});
        written.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        rest::provider(vec![resolve("it", written)], Vec::new()).offering().borrow().fingerprint.clone()
    };
    let changes = [
        json!({}),
        json!({"method": "POST"}),
        json!({"url": "https://example.org/x"}),
        json!({"headers": {"A": "1"}}),
        json!({"headers": {"A": "2"}}),
        json!({"bodyTemplate": 1}),
        json!({"streaming": {}}),
        json!({"parametersSchema": {"properties": {"a": {"default": 1}}}}),
    ];
    let all: HashSet<String> = changes.iter().cloned().map(fingerprint).collect();
    assert_eq!(all.len(), changes.len());
    assert!(all.contains(&fingerprint(json!({}))));
}
