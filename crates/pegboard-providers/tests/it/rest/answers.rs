//! Responses of REST tools.

use pegboard_testkit::recorder::CannedResponse;
use serde_json::{Value, json};
use tokio::time;

use crate::rest::harness::RestHarness;

async fn answer(
    settings: Value,
    replies: impl IntoIterator<Item = CannedResponse>,
) -> (RestHarness, Result<String, String>) {
    let harness = RestHarness::new("/", settings, replies).await;
    let answer = harness.call(json!({})).await;
    (harness, answer)
}

// C48
#[tokio::test]
async fn an_error_response_gives_status_and_body() {
    let (_harness, answer) = answer(json!({}), [CannedResponse::new(404, "text/plain", "nope")]).await;
    assert_eq!(answer, Err("HTTP 404: nope".to_owned()));
}

#[tokio::test]
async fn responses_become_outputs_of_their_type() {
    // `{"a":1}`, gzipped.
    let packed =
        [31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 171, 86, 74, 84, 178, 50, 172, 5, 0, 175, 172, 27, 86, 7, 0, 0, 0];
    let gzip = CannedResponse::with_headers(
        200,
        &[("content-type", "application/json"), ("content-encoding", "gzip")],
        packed,
    );
    let whole = r#"{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}"#;
    assert_eq!(answer(json!({}), [CannedResponse::json(r#"{"a":1}"#)]).await.1.unwrap(), whole);
    assert_eq!(answer(json!({}), [gzip]).await.1.unwrap(), whole);
    let empty =
        answer(json!({"method": "DELETE"}), [CannedResponse::with_headers(204, &[], "")]).await.1.unwrap();
    assert_eq!(empty, r#"{"content":[{"type":"text","text":"HTTP 204: done, with an empty response."}]}"#);
}

#[tokio::test]
async fn same_origin_redirects_are_followed() {
    let settings = json!({"method": "POST", "bodyTemplate": {"a": 1}, "headers": {"Authorization": "hush"}});
    let cases = [
        (307, "POST /there?x=1 HTTP/1.1", r#"{"a":1}"#),
        (308, "POST /there?x=1 HTTP/1.1", r#"{"a":1}"#),
        (303, "GET /there?x=1 HTTP/1.1", ""),
        (302, "GET /there?x=1 HTTP/1.1", ""),
    ];
    for (status, line, body) in cases {
        let replies = [CannedResponse::redirect(status, "/there?x=1"), CannedResponse::json("1")];
        let (harness, answer) = answer(settings.clone(), replies).await;
        assert!(answer.is_ok(), "{answer:?}");
        let second = &harness.service.recorded()[1];
        assert_eq!((second.line.as_str(), second.text().as_str()), (line, body));
        assert_eq!(second.header("authorization"), Some("hush"));
    }
}

#[tokio::test]
async fn a_busy_service_is_retried() {
    let busy = |wait: &str| CannedResponse::with_headers(429, &[("retry-after", wait)], "busy");
    let mute = CannedResponse::with_headers(503, &[], "busy");
    let done = || CannedResponse::json("1");
    // Settings, responses, expected number of requests, and expected error.
    let cases = [
        (json!({}), vec![busy("0"), done()], 1, "HTTP 429: busy (retry after 0 s)"),
        (json!({"retry": {}}), vec![busy("0"), done()], 2, ""),
        (json!({"retry": {}}), vec![busy("0"), busy("0"), done()], 3, ""),
        (
            json!({"retry": {}}),
            vec![busy("0"), busy("0"), busy("0"), done()],
            3,
            "HTTP 429: busy (retry after 0 s)",
        ),
        (
            json!({"retry": {"attempts": 2, "maxWait": "5s"}}),
            vec![busy("6"), done()],
            1,
            "HTTP 429: busy (retry after 6 s)",
        ),
        (json!({"retry": {"maxWait": 0}}), vec![mute, done()], 2, ""),
        (
            json!({"retry": {}, "method": "POST"}),
            vec![busy("0"), done()],
            1,
            "HTTP 429: busy (retry after 0 s)",
        ),
        (json!({"retry": {"anyMethod": true}, "method": "POST"}), vec![busy("0"), done()], 2, ""),
    ];
    for (settings, replies, n_requests, error) in cases {
        let (harness, answer) = answer(settings.clone(), replies).await;
        assert_eq!(answer.err().unwrap_or_default(), error, "{settings}");
        assert_eq!(harness.service.recorded().len(), n_requests, "{settings}");
    }
}

#[tokio::test]
async fn retry_after_is_respected() {
    let busy = CannedResponse::with_headers(429, &[("retry-after", "20")], "busy");
    let harness = RestHarness::new("/", json!({"retry": {}}), [busy, CannedResponse::json("1")]).await;
    let call = harness.call(json!({}));
    tokio::pin!(call);
    tokio::select! {
        _ = &mut call => panic!("it was asked again at once"),
        () = harness.service.wait_for_requests(1) => {}
    }
    time::pause();
    let before = time::Instant::now();
    assert!(call.await.is_ok());
    assert!(before.elapsed().as_secs() >= 20);
}

#[tokio::test]
async fn pages_are_concatenated_into_one_list() {
    let page = |body: &str, next: Option<&str>| {
        let link = next.map(|next| format!("<{next}>; rel=\"next\"")).unwrap_or_default();
        CannedResponse::with_headers(200, &[("content-type", "application/json"), ("link", &link)], body)
    };
    let settings = json!({"pagination": {"maxPages": 3}, "headers": {"Authorization": "hush"}});
    let pages =
        [page("[1, 2]", Some("/?page=2")), page(" [ ] ", Some("?page=3")), page("[{\"a\": 1.0}]", None)];
    let (harness, all) = answer(settings.clone(), pages).await;
    assert_eq!(
        all.unwrap(),
        r#"{"content":[{"type":"text","text":"[1, 2,{\"a\": 1.0}]"}],"structuredContent":[1, 2,{"a": 1.0}]}"#
    );
    let lines: Vec<_> = harness.service.recorded().into_iter().map(|request| request.line).collect();
    assert_eq!(lines, ["GET / HTTP/1.1", "GET /?page=2 HTTP/1.1", "GET /?page=3 HTTP/1.1"]);
    assert_eq!(harness.service.recorded()[2].header("authorization"), Some("hush"));

    let cases = [
        (
            vec![page("[1]", Some("/2")), page("[2]", Some("/3")), page("[3]", Some("/4"))],
            "There are more pages; 3 were read.",
        ),
        (
            vec![page("[1]", Some("/2")), CannedResponse::new(500, "text/plain", "oh")],
            "Page 2 could not be read: HTTP 500: oh",
        ),
        (
            vec![page("[1]", Some("/2")), CannedResponse::json("{}")],
            "Page 2 could not be read: it is not a list",
        ),
        (
            vec![page("[1]", Some("http://evil.example/"))],
            "Page 2 could not be read: request to http://evil.example refused: only",
        ),
    ];
    for (pages, note) in cases {
        let (_harness, answer) = answer(settings.clone(), pages).await;
        let answer = answer.unwrap();
        assert!(answer.contains(note), "{note}: {answer}");
    }
    let (harness, object) = answer(settings, [page(r#"{"a":1}"#, Some("/2"))]).await;
    assert!(object.unwrap().contains(r#""structuredContent":{"a":1}"#));
    assert_eq!(harness.service.recorded().len(), 1);
}
