//! REST tools, end to end.

use pegboard::wire::client::Era;
use pegboard_testkit::recorder::{CannedResponse, Recorder};
use serde_json::{Value, json};

use crate::stage::{Seat, Stage, WAYS, call, listed, open, text, use_tool};

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
async fn seat(configuration: Value, way: usize) -> Seat {
    let stage = Stage::new();
    let file = stage.write("pegboard.json", &configuration.to_string());
    Seat::take_with(stage, &file, None, WAYS[way], &[("KEY", "k&y"), ("TOKEN", "hush")]).await
}

#[tokio::test]
async fn a_configured_rest_tool_sends_its_request() {
    for way in 0..WAYS.len() {
        let replies =
            [CannedResponse::json(r#"{"name": "Ada"}"#), CannedResponse::new(404, "text/plain", "nope")];
        let service = Recorder::start(replies).await;
        let seat = seat(configuration(&service), way).await;
        let names: Vec<_> = listed(&seat.client).await.iter().map(|tool| tool["name"].clone()).collect();
        assert!(names.contains(&json!("rest__user")) && !names.contains(&json!("rest__lame")), "{names:?}");

        let ada = call(&seat.client, "rest__user", json!({"id": "a/b"})).await;
        assert_eq!(
            (text(&ada).as_str(), &ada["structuredContent"]),
            (r#"{"name": "Ada"}"#, &json!({"name": "Ada"}))
        );
        let request = service.recorded().remove(0);
        assert_eq!(request.line, "GET /users/a%2Fb?key=k&y HTTP/1.1");
        assert_eq!(request.header("authorization"), Some("Bearer hush"));

        // Successful answers are cached, errors are not.
        assert_eq!(call(&seat.client, "rest__user", json!({"id": "a/b"})).await["content"], ada["content"]);
        let nobody = call(&seat.client, "rest__user", json!({"id": "x"})).await;
        assert_eq!(text(&nobody), "isError: HTTP 404: nope");
        assert_eq!(service.recorded().len(), 2);

        // C49
        let wrong = call(&seat.client, "rest__user", json!({"id": 7})).await;
        assert!(text(&wrong).starts_with("isError: "), "{wrong}");
        assert_eq!(service.recorded().len(), 2);
    }
}

#[tokio::test]
async fn a_streamed_answer_is_assembled() {
    let lines = "{\"type\":\"token\",\"content\":\"Hel\"}\n{\"type\":\"token\",\"content\":\"lo\"}\n{\"type\":\"done\"}";
    for way in 0..WAYS.len() {
        let service = Recorder::start([CannedResponse::new(200, "application/x-ndjson", lines)]).await;
        let seat = seat(configuration(&service), way).await;
        let said = call(&seat.client, "rest__say", json!({"n": 5})).await;
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
    let seat = seat(json!({"toolboxes": {"a": toolbox("/a"), "b": toolbox("/b")}}), 0).await;
    for (name, expected) in [("a", "[1]"), ("b", "2")] {
        assert_eq!(open(&seat.client, name).await["tools"][0]["server"], "rest");
        assert_eq!(text(&use_tool(&seat.client, [name, "rest", "it"], json!({})).await), expected);
    }
    let lines: Vec<_> = service.recorded().into_iter().map(|request| request.line).collect();
    assert_eq!(lines, ["GET /a HTTP/1.1", "GET /b HTTP/1.1"]);
}

#[tokio::test]
async fn structured_content_that_is_not_an_object_needs_a_newer_client() {
    for (way, (_, era)) in WAYS.into_iter().enumerate() {
        let service = Recorder::start([CannedResponse::json("[1]")]).await;
        let tool = json!({"description": "A tool", "url": service.url("/")});
        let seat = seat(json!({"expose": "flat", "restTools": {"list": tool}}), way).await;
        let list = call(&seat.client, "rest__list", json!({})).await;
        let data = match era {
            Era::Session => None,
            Era::Stateless => Some(&json!([1])),
        };
        assert_eq!((text(&list).as_str(), list.get("structuredContent")), ("[1]", data));
    }
}
