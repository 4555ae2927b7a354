//! The HTTP endpoint as seen by a plain HTTP client.

use std::time::Duration;

use pegboard_wire::http::server::HttpServerOptions;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

use crate::wire::support::serve_http;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

fn post(url: &str, body: impl Into<String>) -> RequestBuilder {
    let body: String = body.into();
    Client::new()
        .post(url)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(body)
}

async fn open_session(url: &str) -> String {
    open_session_of(url, "2025-11-25").await
}

async fn open_session_of(url: &str, revision: &str) -> String {
    let response = post(url, INITIALIZE.replace("2025-11-25", revision)).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.headers()["mcp-session-id"].to_str().unwrap().to_owned()
}

async fn json_of(response: Response) -> Value {
    serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
}

#[tokio::test]
async fn disallowed_requests_are_rejected() {
    let url = serve_http(HttpServerOptions::default()).await;
    let status = |request: RequestBuilder| async move { request.send().await.unwrap().status() };
    assert_eq!(
        status(post(&url, INITIALIZE).header("origin", "https://evil.example")).await,
        StatusCode::FORBIDDEN
    );
    assert_eq!(status(post(&url, INITIALIZE).header("host", "evil.example")).await, StatusCode::FORBIDDEN);
    assert_eq!(status(post(&url, INITIALIZE).header("origin", "null")).await, StatusCode::FORBIDDEN);
    // A page of this machine on another port.
    assert_eq!(
        status(post(&url, INITIALIZE).header("origin", "http://localhost:5173")).await,
        StatusCode::FORBIDDEN
    );
    let own = url.trim_end_matches("/mcp").trim_end_matches('/').to_owned();
    assert_eq!(status(post(&url, INITIALIZE).header("origin", own)).await, StatusCode::OK);
    let plain = Client::new().post(&url).header("content-type", "text/plain").body(INITIALIZE);
    assert_eq!(status(plain).await, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(status(Client::new().put(&url)).await, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(status(Client::new().get(&url)).await, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn an_oversized_body_is_rejected() {
    let url = serve_http(HttpServerOptions { max_body: 1_000, ..HttpServerOptions::default() }).await;
    let response = post(&url, "x".repeat(100_000)).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn malformed_bodies_get_the_right_error_code() {
    let url = serve_http(HttpServerOptions::default()).await;
    for (body, code) in [
        ("{", -32700),
        ("[]", -32600),
        ("{}", -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, -32600),
    ] {
        let response = post(&url, body).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{body}");
        assert_eq!(json_of(response).await["error"]["code"], code, "{body}");
    }
}

#[tokio::test]
async fn a_session_lives_from_initialize_to_delete() {
    let url = serve_http(HttpServerOptions::default()).await;
    let session = open_session(&url).await;
    let ping =
        || post(&url, r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#).header("mcp-session-id", &session);
    assert_eq!(json_of(ping().send().await.unwrap()).await, json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
    let initialized = post(&url, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .header("mcp-session-id", &session);
    assert_eq!(initialized.send().await.unwrap().status(), StatusCode::ACCEPTED);
    let unknown_version = ping().header("mcp-protocol-version", "1999-01-01").send().await.unwrap();
    assert_eq!(unknown_version.status(), StatusCode::BAD_REQUEST);
    let deleted = Client::new().delete(&url).header("mcp-session-id", &session).send().await.unwrap();
    assert_eq!(deleted.status(), StatusCode::NO_CONTENT);
    assert_eq!(ping().send().await.unwrap().status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_batch_is_answered_on_one_stream() {
    let url = serve_http(HttpServerOptions::default()).await;
    let session = open_session_of(&url, "2025-03-26").await;
    let batch =
        r#"[{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"2.0","id":"b","method":"tools/list"}]"#;
    let response = post(&url, batch).header("mcp-session-id", &session).send().await.unwrap();
    let text = response.text().await.unwrap();
    assert!(
        text.contains(r#""id":2,"result":{}"#) && text.contains(r#""id":"b","result":{"tools""#),
        "{text}"
    );
}

#[tokio::test]
async fn a_lost_stream_resumes_after_the_last_event() {
    let url = serve_http(HttpServerOptions::default()).await;
    let session = open_session(&url).await;
    let call = r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"test_reconnection"}}"#;
    let response = post(&url, call).header("mcp-session-id", &session).send().await.unwrap();
    let text = response.text().await.unwrap();
    assert!(
        text.contains("retry: 200") && !text.contains(r#""id":9"#),
        "the stream ends before the answer: {text}"
    );
    let last = text.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    let again = Client::new()
        .get(&url)
        .header("mcp-session-id", &session)
        .header("accept", "text/event-stream")
        .header("last-event-id", last)
        .send()
        .await
        .unwrap();
    assert!(again.text().await.unwrap().contains("The client came back."));
}

#[tokio::test]
async fn sessions_are_limited() {
    let url = serve_http(HttpServerOptions { max_sessions: 2, ..HttpServerOptions::default() }).await;
    let first = open_session(&url).await;
    open_session(&url).await;
    let third = post(&url, INITIALIZE).send().await.unwrap();
    assert_eq!(third.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(third.headers().contains_key("retry-after"));
    Client::new().delete(&url).header("mcp-session-id", &first).send().await.unwrap();
    open_session(&url).await;
}

#[tokio::test]
async fn a_refused_client_takes_no_session() {
    let url = serve_http(HttpServerOptions { max_sessions: 1, ..HttpServerOptions::default() }).await;
    let refused = [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#.to_owned(),
        format!(r#"[{INITIALIZE},{{"jsonrpc":"2.0","id":2,"method":"ping"}}]"#),
    ];
    for body in refused {
        let response = post(&url, body).send().await.unwrap();
        assert!(!response.headers().contains_key("mcp-session-id"));
    }
    open_session(&url).await;
}

#[tokio::test]
async fn an_idle_session_expires() {
    let url = serve_http(HttpServerOptions {
        session_idle: Duration::from_millis(20),
        ..HttpServerOptions::default()
    })
    .await;
    let session = open_session(&url).await;
    // A request would keep it alive, so the test waits until it must be over.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let late = post(&url, r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#).header("mcp-session-id", &session);
    assert_eq!(late.send().await.unwrap().status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_session_with_a_reader_is_not_idle_and_its_stream_ends_with_it() {
    let options = HttpServerOptions {
        session_idle: Duration::from_secs(1),
        keep_alive: Duration::from_millis(50),
        ..HttpServerOptions::default()
    };
    let url = serve_http(options).await;
    let session = open_session(&url).await;
    let listening =
        Client::new().get(&url).header("mcp-session-id", &session).header("accept", "text/event-stream");
    let stream = listening.send().await.unwrap();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let ping = post(&url, r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#).header("mcp-session-id", &session);
    assert_eq!(ping.send().await.unwrap().status(), StatusCode::OK);
    Client::new().delete(&url).header("mcp-session-id", &session).send().await.unwrap();
    assert!(stream.text().await.unwrap().starts_with("id: 0-0"), "the stream has ended");
}

/// Answers with a header of the request.
struct EchoHeader;

impl pegboard_wire::server::McpService for EchoHeader {
    fn describe(&self, _revision: pegboard_wire::era::Revision) -> pegboard_wire::server::ServiceDescription {
        let info = pegboard_wire::RawJson::from(json!({"name": "e", "version": "1"}));
        let capabilities = pegboard_wire::RawJson::empty_object();
        pegboard_wire::server::ServiceDescription { info, capabilities, instructions: None }
    }

    fn call(
        &self,
        request: pegboard_wire::server::ServerRequest,
    ) -> futures_util::future::BoxFuture<
        'static,
        Result<pegboard_wire::server::ServiceReply, pegboard_wire::RpcError>,
    > {
        let user = request
            .headers
            .as_map()
            .get("x-user")
            .and_then(|user| user.to_str().ok())
            .unwrap_or("anonymous")
            .to_owned();
        let reply = pegboard_wire::RawJson::from(json!({"user": user})).into();
        Box::pin(std::future::ready(Ok(reply)))
    }
}

#[tokio::test]
async fn a_service_sees_the_headers_of_each_request() {
    use pegboard_wire::client::{Era, McpClient, RequestOptions};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let server = pegboard_wire::server::ServiceServer::new(std::sync::Arc::new(EchoHeader));
    let app = pegboard_testkit::serve::all_transports(&server, &HttpServerOptions::default());
    tokio::spawn(async move { axum::serve(listener, app).await });
    for (path, era) in [("/mcp", Era::Session), ("/mcp", Era::Stateless), ("/legacy/sse", Era::Session)] {
        let http = pegboard_wire::http::client::HttpOptions::new(url.replace("/mcp", path).parse().unwrap());
        let transport = match path {
            "/mcp" => pegboard_wire::http::client::connect(http).unwrap(),
            _ => pegboard_wire::http::legacy_client::connect(http).unwrap(),
        };
        let handler = std::sync::Arc::new(crate::wire::support::AnsweringHandler::default());
        let client =
            McpClient::connect(transport, handler, crate::wire::support::options(Some(era))).await.unwrap();
        for user in ["ada", "grace"] {
            let headers = [("x-user".parse().unwrap(), user.parse().unwrap())].into_iter().collect();
            let options = RequestOptions { headers, ..RequestOptions::default() };
            let answer = client.request("who/am/i", None, options).await.unwrap().response().await.unwrap();
            assert_eq!(answer.to_value()["user"], user, "{path} {era:?}");
        }
    }
}
