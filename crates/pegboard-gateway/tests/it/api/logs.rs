//! What servers said, read back and followed.

use pegboard_core::server_log::{ServerLog, Stream};
use pegboard_gateway::api::{About, Api, Principal};
use pegboard_runtime::Runtime;
use serde_json::json;

use super::site::Site;
use crate::stage::Lazy;

/// A gateway with one server, and the log of that.
async fn stage() -> (Api, Runtime, ServerLog) {
    let server = Lazy::new([]);
    let log = server.log.clone();
    let builder = Runtime::builder().secrets(["s3cret-s3cret".to_owned()]);
    let runtime = builder.toolbox("dev", "").provide("notes", server).start().await.unwrap();
    (Api::new(About::default()).runtime(&runtime), runtime, log)
}

#[tokio::test]
async fn what_a_server_said_is_told_without_secrets() {
    let (api, _runtime, log) = stage().await;
    let site = Site::of(&api, Principal::Everybody).await;
    log.write(Stream::Stderr, None, "the key is s3cret-s3cret");
    log.write(Stream::Message, Some("error"), "no such note");
    log.write(Stream::Keeper, None, "went away");
    let (status, mut told) = site.get("/servers/dev/notes/logs?lines=3").await;
    for line in told["lines"].as_array_mut().unwrap() {
        assert!(line["at"].take().as_u64().unwrap() > 1_700_000_000_000);
    }
    assert_eq!(status, 200);
    insta::assert_snapshot!(told, @r#"{"lines":[{"number":1,"at":null,"stream":"stderr","text":"the key is [redacted]"},{"number":2,"at":null,"stream":"message","text":"no such note","level":"error"},{"number":3,"at":null,"stream":"pegboard","text":"went away"}]}"#);
    let (_, told) = site.get("/servers/dev/notes/logs?lines=1").await;
    assert_eq!(told["lines"][0]["number"], 3);
}

#[tokio::test]
async fn whoever_follows_hears_what_was_said_and_what_is() {
    let (api, _runtime, log) = stage().await;
    let site = Site::of(&api, Principal::Everybody).await;
    for text in ["one", "two"] {
        log.write(Stream::Stderr, None, text);
    }
    let mut lines = site.listen("/servers/dev/notes/logs?follow=true&lines=1").await;
    assert_eq!(lines.expect("line").await["text"], "two");
    log.write(Stream::Stderr, None, "three");
    assert_eq!(lines.expect("line").await["text"], "three");
}

#[tokio::test]
async fn a_server_that_is_not_there_has_no_log_and_others_business_stays_theirs() {
    let (api, _runtime, _log) = stage().await;
    let all = Site::of(&api, Principal::Everybody).await;
    let ann = Site::of(&api, Principal::One("ann".to_owned())).await;
    for (site, path, expected) in [
        (&all, "/servers/dev/nots/logs", (404, "unknown_server", json!("did you mean notes?"))),
        (&all, "/servers/dve/notes/logs", (404, "unknown_toolbox", json!("did you mean dev?"))),
        (
            &ann,
            "/servers/dev/notes/logs",
            (403, "not_permitted", json!("ask as the user who runs the gateway: pegboard logs")),
        ),
    ] {
        let (status, problem) = site.get(path).await;
        let error = &problem["error"];
        assert_eq!((status, error["code"].as_str().unwrap(), error["hint"].clone()), expected, "{path}");
    }
}
