//! Streaming responses.

use pegboard_testkit::recorder::CannedResponse;
use serde_json::{Value, json};
use tokio::time;

use crate::rest::harness::RestHarness;

async fn streamed(streaming: Value, body: impl AsRef<[u8]>) -> (RestHarness, Result<String, String>) {
    let reply = CannedResponse::new(200, "application/x-ndjson", body);
    let harness = RestHarness::new("/", json!({"streaming": streaming}), [reply]).await;
    let answer = harness.call(json!({})).await;
    (harness, answer)
}

/// Returns the result for a text.
fn text_result(text: &str) -> String {
    json!({"content": [{"type": "text", "text": text}]}).to_string()
}

// C47
#[tokio::test]
async fn the_output_is_the_final_answer_or_all_tokens() {
    let hel = r#"{"type":"token","content":"Hel"}"#;
    let lo = r#"{"type":"token","content":"lo"}"#;
    let lines = |lines: &[&str]| lines.join("\n");
    let ours = json!({"mode": "json-stream"});
    let events = json!({"linePrefix": "data: "});
    let other = json!({
        "discriminatorField": "done", "doneValue": true, "tokenValue": false, "tokenField": "response",
        "answerField": "whole",
    });
    let cases = [
        (&ours, lines(&[hel, lo, r#"{"type":"done"}"#, ""]), Ok(text_result("Hello"))),
        (&ours, lines(&[hel, lo, r#"{"type":"done","answer":"FINAL"}"#, lo, ""]), Ok(text_result("FINAL"))),
        // The last line lacks a line end.
        (&ours, lines(&[hel, lo]), Ok(text_result("Hello"))),
        (&ours, lines(&[hel, r#"{"type":"done","answer":"FINAL"}"#]), Ok(text_result("FINAL"))),
        (
            &ours,
            format!("{hel}\r\n\r\n: remark\r\nnull\r\n[1]\r\n{{\"type\":7}}\r\n[DONE]\r\n{lo}\r\n"),
            Ok(text_result("Hello")),
        ),
        (
            &ours,
            r#"{"type":"done","answer":{"n":1.0}}"#.to_owned(),
            Ok(r#"{"content":[{"type":"text","text":"{\"n\":1.0}"}],"structuredContent":{"n":1.0}}"#
                .to_owned()),
        ),
        (
            &events,
            format!("event: x\ndata: {hel}\n\ndata:{lo}\n\ndata: [DONE]\n\n"),
            Ok(text_result("Hello")),
        ),
        (
            &other,
            lines(&[
                r#"{"response":"Hel","done":false}"#,
                r#"{"response":"lo","done":false}"#,
                r#"{"done":true}"#,
            ]),
            Ok(text_result("Hello")),
        ),
        (&ours, "{}".to_owned(), Err("The stream ended without any of the configured fields.".to_owned())),
    ];
    for (settings, body, expected) in cases {
        assert_eq!(streamed(settings.clone(), &body).await.1, expected, "{body}");
    }
}

#[tokio::test]
async fn tokens_are_reported_as_progress() {
    let (harness, _) = streamed(json!({}), "{\"type\":\"token\",\"content\":\"é\"}\n".repeat(500)).await;
    let messages = harness.progress.messages();
    assert_eq!(messages[0], "é");
    assert_eq!(messages.concat(), "é".repeat(500));
}

#[tokio::test]
async fn an_error_response_is_not_streamed() {
    let harness =
        RestHarness::new("/", json!({"streaming": {}}), [CannedResponse::new(400, "text/plain", "no")]).await;
    assert_eq!(harness.call(json!({})).await, Err("HTTP 400: no".to_owned()));
}

#[tokio::test]
async fn a_stream_is_limited_in_size_and_time() {
    let head = "HTTP/1.1 200 -\r\n\r\n";
    let token = "{\"type\":\"token\",\"content\":\"x\"}\n";
    let endless = CannedResponse::endless(head, token.repeat(100));
    let harness = RestHarness::new("/", json!({"streaming": {"maxBytes": 10_000}}), [endless]).await;
    let error = harness.call(json!({})).await.unwrap_err();
    assert_eq!(error, "the response exceeds 10000 bytes: request less, or raise maxBytes");

    let silent = CannedResponse::held(format!("{head}{token}"));
    let harness = RestHarness::new("/", json!({"streaming": {"timeoutMs": "3s"}}), [silent]).await;
    let call = harness.call(json!({}));
    tokio::pin!(call);
    tokio::select! {
        _ = &mut call => panic!("nothing has ended yet"),
        () = harness.service.wait_for_requests(1) => {}
    }
    time::pause();
    assert_eq!(call.await.unwrap_err(), "the response did not end within 3s");
}
