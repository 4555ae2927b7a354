//! REST tools, end to end.

use pegboard::wire::client::Era;
use pegboard_testkit::recorder::{CannedResponse, Recorder};
use serde_json::{Value, json};

use crate::harness::{CLIENT_KINDS, ConnectedClient, TestEnvironment, call, listed, open, text, use_tool};

/// Configuration with REST tools.
fn configuration(service: &Recorder) -> Value {
    let id = json!({"type": "object", "properties": {"id": {"type": "string"}}});
    json!({
        "pegboard": 1,
        "expose": "flat",
        "queues": {"web": {"concurrent": 1}},
        "restTools": {
            "user": {
                "description": "One user",
                "url": service.url("/users/${parameters.id}?key=${KEY}"),
                "headers": {"Authorization": "Bearer ${TOKEN}"},
                "parametersSchema": id,
                "cache": "1h",
                "queue": "web",
            },
            "say": {
                "description": "Says something",
                "method": "POST",
                "url": service.url("/say"),
                "bodyTemplate": {"n": "${parameters.n}"},
                "parametersSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
                "streaming": {},
            },
            "lame": {"description": "Not to be used", "url": "https://example.org/${UNSET}"},
        },
    })
}

/// Connects a client to a gateway that serves the file.
async fn connected(configuration: Value, kind: usize) -> ConnectedClient {
    let environment = TestEnvironment::new();
    let file = environment.write("pegboard.json", &configuration.to_string());
    ConnectedClient::connect_with(
        environment,
        &file,
        None,
        CLIENT_KINDS[kind],
        &[("KEY", "k&y"), ("TOKEN", "hush")],
    )
    .await
}

#[tokio::test]
async fn a_configured_rest_tool_sends_its_request() {
    for kind in 0..CLIENT_KINDS.len() {
        let replies =
            [CannedResponse::json(r#"{"name": "Ada"}"#), CannedResponse::new(404, "text/plain", "nope")];
        let service = Recorder::start(replies).await;
        let connected = connected(configuration(&service), kind).await;
        let names: Vec<_> = listed(&connected.client).await.iter().map(|tool| tool["name"].clone()).collect();
        assert!(names.contains(&json!("rest__user")) && !names.contains(&json!("rest__lame")), "{names:?}");

        let ada = call(&connected.client, "rest__user", json!({"id": "a/b"})).await;
        assert_eq!(
            (text(&ada).as_str(), &ada["structuredContent"]),
            (r#"{"name": "Ada"}"#, &json!({"name": "Ada"}))
        );
        let request = service.recorded().remove(0);
        assert_eq!(request.line, "GET /users/a%2Fb?key=k&y HTTP/1.1");
        assert_eq!(request.header("authorization"), Some("Bearer hush"));

        // Successful answers are cached, errors are not.
        assert_eq!(
            call(&connected.client, "rest__user", json!({"id": "a/b"})).await["content"],
            ada["content"]
        );
        let nobody = call(&connected.client, "rest__user", json!({"id": "x"})).await;
        assert_eq!(text(&nobody), "isError: HTTP 404: nope");
        assert_eq!(service.recorded().len(), 2);

        // C49
        let wrong = call(&connected.client, "rest__user", json!({"id": 7})).await;
        assert!(text(&wrong).starts_with("isError: "), "{wrong}");
        assert_eq!(service.recorded().len(), 2);
    }
}

#[tokio::test]
async fn a_streamed_answer_is_assembled() {
    let lines = "{\"type\":\"token\",\"content\":\"Hel\"}\n{\"type\":\"token\",\"content\":\"lo\"}\n{\"type\":\"done\"}";
    for kind in 0..CLIENT_KINDS.len() {
        let service = Recorder::start([CannedResponse::new(200, "application/x-ndjson", lines)]).await;
        let connected = connected(configuration(&service), kind).await;
        let said = call(&connected.client, "rest__say", json!({"n": 5})).await;
        assert_eq!(text(&said), "Hello");
        let request = service.recorded().remove(0);
        assert_eq!((request.line.as_str(), request.text().as_str()), ("POST /say HTTP/1.1", r#"{"n":5}"#));
    }
}

#[tokio::test]
async fn toolboxes_have_tools_of_the_same_name_each() {
    let service = Recorder::start([CannedResponse::json("[1]"), CannedResponse::json("2")]).await;
    let toolbox = |path: &str| {
        let tool = json!({"description": "A tool", "url": service.url(path)});
        json!({"description": "Some", "restTools": {"it": tool}})
    };
    let connected = connected(json!({"toolboxes": {"a": toolbox("/a"), "b": toolbox("/b")}}), 0).await;
    for (name, expected) in [("a", "[1]"), ("b", "2")] {
        assert_eq!(open(&connected.client, name).await["tools"][0]["server"], "rest");
        assert_eq!(text(&use_tool(&connected.client, [name, "rest", "it"], json!({})).await), expected);
    }
    let lines: Vec<_> = service.recorded().into_iter().map(|request| request.line).collect();
    assert_eq!(lines, ["GET /a HTTP/1.1", "GET /b HTTP/1.1"]);
}

#[tokio::test]
async fn structured_content_that_is_not_an_object_needs_a_newer_client() {
    for (kind, (_, era)) in CLIENT_KINDS.into_iter().enumerate() {
        let service = Recorder::start([CannedResponse::json("[1]")]).await;
        let tool = json!({"description": "A tool", "url": service.url("/")});
        let connected = connected(json!({"expose": "flat", "restTools": {"list": tool}}), kind).await;
        let list = call(&connected.client, "rest__list", json!({})).await;
        let data = match era {
            Era::Session => None,
            Era::Stateless => Some(&json!([1])),
        };
        assert_eq!((text(&list).as_str(), list.get("structuredContent")), ("[1]", data));
    }
}
