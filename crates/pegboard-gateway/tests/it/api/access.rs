//! Access checks and visibility by principal.

use pegboard_gateway::api::ApiScope;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HOST, ORIGIN};
use serde_json::{Value, json};

use super::api_server::{ApiServer, api};

#[tokio::test]
async fn foreign_hosts_and_origins_are_rejected() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    for (name, value, expected) in [
        (HOST, "evil.example", 403),
        (ORIGIN, "https://evil.example", 403),
        (ORIGIN, "null", 403),
        (HOST, "localhost", 200),
        (ORIGIN, "http://localhost:3000", 403),
    ] {
        let answer = server.request(Method::GET, "/status").header(name, value).send().await.unwrap();
        assert_eq!(answer.status(), expected, "{value}");
        let problem: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        assert_eq!(problem["error"]["code"] == json!("not_permitted"), expected == 403);
    }
}

#[tokio::test]
async fn a_body_must_be_json_and_not_too_large() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    for (kind, body, status) in [
        ("text/plain", r#"{"tool": "notes__list"}"#.to_owned(), 415),
        ("application/json", "{".to_owned(), 400),
        ("application/json", r#"{"tool": "a", "tool": "b"}"#.to_owned(), 400),
        ("application/json; charset=utf-8", r#"{"tool": "notes__list"}"#.to_owned(), 200),
        ("application/json", format!("[{}]", " ".repeat(pegboard_wire::MAX_MESSAGE_BYTES)), 413),
    ] {
        let sent = server.request(Method::POST, "/calls").header(CONTENT_TYPE, kind).body(body);
        assert_eq!(sent.send().await.unwrap().status(), status, "{kind}");
    }
}

#[tokio::test]
async fn an_unknown_path_is_not_found() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let (status, problem) = server.get("/nothing").await;
    assert_eq!((status, &problem["error"]["code"]), (404, &json!("not_found")));
    let (status, problem) = server.delete("/status").await;
    assert_eq!((status, &problem["error"]["code"]), (405, &json!("bad_request")));
}

#[tokio::test]
async fn every_listed_path_has_a_route() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let (status, body) = server.get("/").await;
    assert_eq!((status, server.get("").await.1), (200, body.clone()));
    for line in body["paths"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()) {
        let (method, path) = line.split_once(" /api").unwrap();
        let path = path.replace(['{', '}', '*'], "");
        let request = server.request(method.parse().unwrap(), &path).header(CONTENT_TYPE, "application/json");
        let answer = request.body("{}").send().await.unwrap();
        // Streams do not end; all others respond with an error, if any.
        let body = if path == "/events" { String::new() } else { answer.text().await.unwrap() };
        assert!(!body.contains("unknown path") && !body.contains("method not allowed"), "{line}: {body}");
    }
}

#[tokio::test]
async fn calls_are_private_to_their_principal() {
    let (api, _runtime, cancelled) = api().await;
    let [ann, bob, all] =
        [ApiScope::Principal("ann".to_owned()), ApiScope::Principal("bob".to_owned()), ApiScope::All]
            .map(|scope| ApiServer::start(&api, scope));
    let (ann, bob, all) = (ann.await, bob.await, all.await);
    let mut asking = ann.stream("/calls", json!({"tool": "notes__ask"})).await;
    let call = asking.expect("started").await["callId"].as_str().unwrap().to_owned();
    asking.expect("question").await;
    let mut hanging = bob.stream("/calls", json!({"tool": "notes__hang"})).await;
    hanging.expect("started").await;
    for (server, expected) in
        [(&ann, vec!["notes__ask"]), (&bob, vec!["notes__hang"]), (&all, vec!["notes__ask", "notes__hang"])]
    {
        let (_, calls) = server.get("/calls").await;
        let tools: Vec<&str> =
            calls["calls"].as_array().unwrap().iter().map(|call| call["tool"].as_str().unwrap()).collect();
        assert_eq!(tools, expected);
        assert_eq!(server.get("/status").await.1["calls"]["inFlight"], expected.len());
    }
    let answers = json!({"id": "1", "answers": {"who": {"action": "accept", "content": {"name": "Ada"}}}});
    assert_eq!(bob.post(&format!("/calls/{call}/answers"), answers.clone()).await.0, 404);
    assert_eq!(bob.delete(&format!("/calls/{call}")).await.0, 404);
    assert_eq!(ann.post(&format!("/calls/{call}/answers"), answers).await.0, 204);
    asking.expect("result").await;
    drop(hanging);
    cancelled.notified().await;
}
