//! Server logs: read and follow.

use pegboard_core::server_log::{LogStream, ServerLog};
use pegboard_gateway::api::{Api, ApiScope, GatewayInfo};
use pegboard_runtime::Runtime;
use serde_json::json;

use super::api_server::ApiServer;
use crate::fixture::LazyServer;

/// A gateway with one server, and the server's log.
async fn start_gateway() -> (Api, Runtime, ServerLog) {
    let notes = LazyServer::new([]);
    let log = notes.log.clone();
    let builder = Runtime::builder().secrets(["s3cret-s3cret".to_owned()]);
    let runtime = builder.toolbox("dev", "").provide("notes", notes).start().await.unwrap();
    (Api::new(GatewayInfo::default()).runtime(&runtime), runtime, log)
}

#[tokio::test]
async fn server_logs_are_redacted() {
    let (api, _runtime, log) = start_gateway().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    log.write(LogStream::Stderr, None, "the key is s3cret-s3cret");
    log.write(LogStream::Message, Some("error"), "no such note");
    log.write(LogStream::Supervisor, None, "went away");
    let (status, mut body) = server.get("/servers/dev/notes/logs?lines=3").await;
    for line in body["lines"].as_array_mut().unwrap() {
        assert!(line["at"].take().as_u64().unwrap() > 1_700_000_000_000);
    }
    assert_eq!(status, 200);
    insta::assert_snapshot!(body, @r#"{"lines":[{"number":1,"at":null,"stream":"stderr","text":"the key is [redacted]"},{"number":2,"at":null,"stream":"message","text":"no such note","level":"error"},{"number":3,"at":null,"stream":"pegboard","text":"went away"}]}"#);
    let (_, body) = server.get("/servers/dev/notes/logs?lines=1").await;
    assert_eq!(body["lines"][0]["number"], 3);
}

#[tokio::test]
async fn following_returns_past_and_new_lines() {
    let (api, _runtime, log) = start_gateway().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    for text in ["one", "two"] {
        log.write(LogStream::Stderr, None, text);
    }
    let mut lines = server.listen("/servers/dev/notes/logs?follow=true&lines=1").await;
    assert_eq!(lines.expect("line").await["text"], "two");
    log.write(LogStream::Stderr, None, "three");
    assert_eq!(lines.expect("line").await["text"], "three");
}

#[tokio::test]
async fn logs_need_a_known_server_and_an_unrestricted_scope() {
    let (api, _runtime, _log) = start_gateway().await;
    let all = ApiServer::start(&api, ApiScope::All).await;
    let ann = ApiServer::start(&api, ApiScope::Principal("ann".to_owned())).await;
    for (server, path, expected) in [
        (&all, "/servers/dev/nots/logs", (404, "unknown_server", json!("did you mean notes?"))),
        (&all, "/servers/dve/notes/logs", (404, "unknown_toolbox", json!("did you mean dev?"))),
        (
            &ann,
            "/servers/dev/notes/logs",
            (403, "not_permitted", json!("run `pegboard logs` as the user who runs the gateway")),
        ),
    ] {
        let (status, problem) = server.get(path).await;
        let error = &problem["error"];
        assert_eq!((status, error["code"].as_str().unwrap(), error["hint"].clone()), expected, "{path}");
    }
}
