//! Answers that come line by line.

use pegboard_testkit::recorder::Reply;
use serde_json::{Value, json};
use tokio::time;

use crate::stage::Stage;

async fn streamed(streaming: Value, body: impl AsRef<[u8]>) -> (Stage, Result<String, String>) {
    let reply = Reply::new(200, "application/x-ndjson", body);
    let stage = Stage::new("/", json!({"streaming": streaming}), [reply]).await;
    let answer = stage.call(json!({})).await;
    (stage, answer)
}

/// An answer that is this text.
fn said(text: &str) -> String {
    json!({"content": [{"type": "text", "text": text}]}).to_string()
}

// C47
#[tokio::test]
async fn an_answer_is_what_its_last_line_says_or_all_its_pieces() {
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
        (&ours, lines(&[hel, lo, r#"{"type":"done"}"#, ""]), Ok(said("Hello"))),
        (&ours, lines(&[hel, lo, r#"{"type":"done","answer":"FINAL"}"#, lo, ""]), Ok(said("FINAL"))),
        // The last line has no line end.
        (&ours, lines(&[hel, lo]), Ok(said("Hello"))),
        (&ours, lines(&[hel, r#"{"type":"done","answer":"FINAL"}"#]), Ok(said("FINAL"))),
        (
            &ours,
            format!("{hel}\r\n\r\n: remark\r\nnull\r\n[1]\r\n{{\"type\":7}}\r\n[DONE]\r\n{lo}\r\n"),
            Ok(said("Hello")),
        ),
        (
            &ours,
            r#"{"type":"done","answer":{"n":1.0}}"#.to_owned(),
            Ok(r#"{"content":[{"type":"text","text":"{\"n\":1.0}"}],"structuredContent":{"n":1.0}}"#
                .to_owned()),
        ),
        (&events, format!("event: x\ndata: {hel}\n\ndata:{lo}\n\ndata: [DONE]\n\n"), Ok(said("Hello"))),
        (
            &other,
            lines(&[
                r#"{"response":"Hel","done":false}"#,
                r#"{"response":"lo","done":false}"#,
                r#"{"done":true}"#,
            ]),
            Ok(said("Hello")),
        ),
        (
            &ours,
            "{}".to_owned(),
            Err("The service ended its answer without saying anything that streaming looks for.".to_owned()),
        ),
    ];
    for (settings, body, expected) in cases {
        assert_eq!(streamed(settings.clone(), &body).await.1, expected, "{body}");
    }
}

#[tokio::test]
async fn pieces_are_told_while_they_come() {
    let (stage, _) = streamed(json!({}), "{\"type\":\"token\",\"content\":\"é\"}\n".repeat(500)).await;
    let heard = stage.hearer.heard();
    assert_eq!(heard[0], "é");
    assert_eq!(heard.concat(), "é".repeat(500));
}

#[tokio::test]
async fn a_refusal_is_no_stream() {
    let stage = Stage::new("/", json!({"streaming": {}}), [Reply::new(400, "text/plain", "no")]).await;
    assert_eq!(stage.call(json!({})).await, Err("HTTP 400: no".to_owned()));
}

#[tokio::test]
async fn a_stream_has_a_most_of_bytes_and_of_time() {
    let head = "HTTP/1.1 200 -\r\n\r\n";
    let token = "{\"type\":\"token\",\"content\":\"x\"}\n";
    let endless = Reply::endless(head, token.repeat(100));
    let stage = Stage::new("/", json!({"streaming": {"maxBytes": 10_000}}), [endless]).await;
    let error = stage.call(json!({})).await.unwrap_err();
    assert_eq!(error, "the answer has more than 10000 bytes. Ask for less, or raise maxBytes");

    let silent = Reply::held(format!("{head}{token}"));
    let stage = Stage::new("/", json!({"streaming": {"timeoutMs": "3s"}}), [silent]).await;
    let call = stage.call(json!({}));
    tokio::pin!(call);
    tokio::select! {
        _ = &mut call => panic!("nothing has ended yet"),
        () = stage.service.asked(1) => {}
    }
    time::pause();
    assert_eq!(call.await.unwrap_err(), "the answer did not end within 3s");
}
