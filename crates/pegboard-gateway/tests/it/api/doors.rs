//! Who may come in, and who sees what.

use pegboard_gateway::api::Principal;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HOST, ORIGIN};
use serde_json::{Value, json};

use super::site::{Site, api};

#[tokio::test]
async fn nobody_comes_in_by_another_name_or_from_a_foreign_page() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    for (name, value, expected) in [
        (HOST, "evil.example", 403),
        (ORIGIN, "https://evil.example", 403),
        (ORIGIN, "null", 403),
        (HOST, "localhost", 200),
        (ORIGIN, "http://localhost:3000", 200),
    ] {
        let answer = site.request(Method::GET, "/status").header(name, value).send().await.unwrap();
        assert_eq!(answer.status(), expected, "{value}");
        let problem: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        assert_eq!(problem["error"]["code"] == json!("not_permitted"), expected == 403);
    }
}

#[tokio::test]
async fn a_body_must_be_json_and_not_too_large() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    for (kind, body, status) in [
        ("text/plain", r#"{"tool": "notes__list"}"#.to_owned(), 415),
        ("application/json", "{".to_owned(), 400),
        ("application/json", r#"{"tool": "a", "tool": "b"}"#.to_owned(), 400),
        ("application/json; charset=utf-8", r#"{"tool": "notes__list"}"#.to_owned(), 200),
        ("application/json", format!("[{}]", " ".repeat(pegboard_wire::MAX_MESSAGE_BYTES)), 413),
    ] {
        let sent = site.request(Method::POST, "/calls").header(CONTENT_TYPE, kind).body(body);
        assert_eq!(sent.send().await.unwrap().status(), status, "{kind}");
    }
}

#[tokio::test]
async fn a_path_that_leads_nowhere_says_so() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    let (status, problem) = site.get("/nothing").await;
    assert_eq!((status, &problem["error"]["code"]), (404, &json!("not_found")));
    let (status, problem) = site.delete("/status").await;
    assert_eq!((status, &problem["error"]["code"]), (405, &json!("bad_request")));
}

#[tokio::test]
async fn every_path_that_is_listed_leads_somewhere() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    let (status, told) = site.get("/").await;
    assert_eq!((status, site.get("").await.1), (200, told.clone()));
    for line in told["paths"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()) {
        let (method, path) = line.split_once(" /api").unwrap();
        let path = path.replace(['{', '}', '*'], "");
        let request = site.request(method.parse().unwrap(), &path).header(CONTENT_TYPE, "application/json");
        let answer = request.body("{}").send().await.unwrap();
        // Streams have no end; all others tell what is missing, if anything is.
        let told = if path == "/events" { String::new() } else { answer.text().await.unwrap() };
        assert!(!told.contains("nothing at this path") && !told.contains("this method"), "{line}: {told}");
    }
}

#[tokio::test]
async fn nobody_sees_answers_or_ends_the_calls_of_another() {
    let (api, _runtime, gone) = api().await;
    let [ann, bob, all] =
        [Principal::One("ann".to_owned()), Principal::One("bob".to_owned()), Principal::Everybody]
            .map(|who| Site::of(&api, who));
    let (ann, bob, all) = (ann.await, bob.await, all.await);
    let mut asking = ann.stream("/calls", json!({"tool": "notes__ask"})).await;
    let call = asking.expect("started").await["callId"].as_str().unwrap().to_owned();
    asking.expect("question").await;
    let mut hanging = bob.stream("/calls", json!({"tool": "notes__hang"})).await;
    hanging.expect("started").await;
    for (site, expected) in
        [(&ann, vec!["notes__ask"]), (&bob, vec!["notes__hang"]), (&all, vec!["notes__ask", "notes__hang"])]
    {
        let (_, calls) = site.get("/calls").await;
        let tools: Vec<&str> =
            calls["calls"].as_array().unwrap().iter().map(|call| call["tool"].as_str().unwrap()).collect();
        assert_eq!(tools, expected);
        assert_eq!(site.get("/status").await.1["calls"]["underWay"], expected.len());
    }
    let answers = json!({"id": "1", "answers": {"who": {"action": "accept", "content": {"name": "Ada"}}}});
    assert_eq!(bob.post(&format!("/calls/{call}/answers"), answers.clone()).await.0, 404);
    assert_eq!(bob.delete(&format!("/calls/{call}")).await.0, 404);
    assert_eq!(ann.post(&format!("/calls/{call}/answers"), answers).await.0, 204);
    asking.expect("result").await;
    drop(hanging);
    gone.notified().await;
}
