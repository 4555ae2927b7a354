//! Access control of the HTTP endpoint.

use reqwest::header::HeaderMap;
use serde_json::json;

use crate::harness::{Endpoint, TestEnvironment};

/// Response to a request.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// Sends a POST request with additional or replaced headers.
pub(crate) async fn post(url: &str, headers: &[(&str, &str)], body: impl Into<reqwest::Body>) -> Answer {
    let mut all = HeaderMap::new();
    // Without events the body is the response.
    for (name, value) in
        [("content-type", "application/json"), ("accept", "application/json")].iter().chain(headers)
    {
        all.insert(name.parse::<reqwest::header::HeaderName>().unwrap(), value.parse().unwrap());
    }
    let sent = reqwest::Client::new().post(url).headers(all).body(body).send().await.unwrap();
    Answer {
        status: sent.status().as_u16(),
        headers: sent.headers().clone(),
        body: sent.text().await.unwrap(),
    }
}

const EMPTY: &str = r#"{"toolboxes": {}}"#;
/// The `initialize` request.
pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}"#;
const DISCOVER: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#;

#[tokio::test]
async fn cross_origin_requests_are_rejected() {
    let environment = TestEnvironment::new();
    let file = environment.write("workbench-config.json", EMPTY);
    let mut command = environment.serving(&file);
    command.args(["--http", "127.0.0.1:0"]);
    let endpoint = Endpoint::start(command).await;
    let url = endpoint.url(None);
    let mut said = Vec::new();
    for (headers, body) in [
        (vec![("host", "evil.example")], INITIALIZE),
        (vec![("host", "127.0.0.1.evil.example")], INITIALIZE),
        (vec![("origin", "http://evil.example")], INITIALIZE),
        (vec![("origin", "null")], INITIALIZE),
        (vec![("content-type", "text/plain")], INITIALIZE),
        (vec![("mcp-session-id", "made-up")], INITIALIZE),
        (vec![("mcp-protocol-version", "1999-01-01")], INITIALIZE),
        (vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call")], DISCOVER),
        (vec![("mcp-protocol-version", "2025-11-25"), ("mcp-method", "tools/list")], DISCOVER),
        (vec![], r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#),
    ] {
        let answer = post(&url, &headers, body).await;
        said.push(format!("{headers:?}: {} {}", answer.status, answer.body));
    }
    for (headers, body) in [
        (vec![("origin", "http://localhost:3000")], INITIALIZE),
        (vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")], DISCOVER),
    ] {
        assert_eq!(post(&url, &headers, body).await.status, 200, "{headers:?}");
    }
    for method in [reqwest::Method::GET, reqwest::Method::DELETE, reqwest::Method::PUT] {
        let answer = reqwest::Client::new().request(method.clone(), &url).send().await.unwrap();
        said.push(format!("{method}: {} {}", answer.status().as_u16(), answer.text().await.unwrap()));
    }
    insta::assert_snapshot!(said.join("\n"), @r#"
    [("host", "evil.example")]: 403 this host is not allowed
    [("host", "127.0.0.1.evil.example")]: 403 this host is not allowed
    [("origin", "http://evil.example")]: 403 this origin is not allowed
    [("origin", "null")]: 403 this origin is not allowed
    [("content-type", "text/plain")]: 415 the body must be application/json
    [("mcp-session-id", "made-up")]: 404 there is no such session
    [("mcp-protocol-version", "1999-01-01")]: 400 unknown protocol version
    [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call")]: 400 {"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"Header mismatch: mcp-method does not match the body"}}
    [("mcp-protocol-version", "2025-11-25"), ("mcp-method", "tools/list")]: 400 {"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"Header mismatch: mcp-protocol-version does not match the body"}}
    []: 400 {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid request: open a session with initialize, or send _meta with every request"}}
    GET: 405 this endpoint accepts POST, and GET and DELETE with a session
    DELETE: 405 this endpoint accepts POST, and GET and DELETE with a session
    PUT: 405 this endpoint accepts POST, and GET and DELETE with a session
    "#);
}

#[tokio::test]
async fn a_public_address_requires_a_token() {
    let environment = TestEnvironment::new();
    let file = environment.write("workbench-config.json", EMPTY);
    let mut said = Vec::new();
    for arguments in [
        vec!["--http", "0.0.0.0:0"],
        vec!["--http", "[::]:0"],
        vec!["--http", "127.0.0.1:0", "--token-env", "NO_SUCH_TOKEN"],
        vec!["--http", "127.0.0.1:0", "--profile", "nope"],
    ] {
        let output = environment.serving(&file).args(&arguments).output().await.unwrap();
        let why = String::from_utf8(output.stderr).unwrap();
        said.push(format!("{why}exit {}", output.status.code().unwrap()));
    }
    insta::assert_snapshot!(said.join("\n"), @r#"
    error[usage]: refusing to listen on 0.0.0.0:0 without a token
      help: set --token-env, or use a loopback address such as 127.0.0.1
    exit 2
    error[usage]: refusing to listen on [::]:0 without a token
      help: set --token-env, or use a loopback address such as 127.0.0.1
    exit 2
    error[usage]: --token-env: NO_SUCH_TOKEN is not set
      help: set it to the token that clients must send
    exit 2
    error[usage]: unknown profile 'nope'; available: meta, flat, agent, hybrid, auto
    exit 2
    "#);
}

#[tokio::test]
async fn requests_without_the_token_are_rejected() {
    let environment = TestEnvironment::new();
    let file = environment.write("workbench-config.json", EMPTY);
    let mut command = environment.serving(&file);
    command.args(["--http", "0.0.0.0:0", "--token-env", "GATE", "--token-env", "DOOR"]);
    command.env("GATE", "correct-horse").env("DOOR", "battery");
    let endpoint = Endpoint::start(command).await;
    let port = endpoint.address.rsplit_once(':').unwrap().1;
    let url = format!("http://127.0.0.1:{port}/mcp");
    for (headers, status) in [
        (vec![], 401),
        (vec![("authorization", "Bearer wrong")], 401),
        (vec![("authorization", "Basic correct-horse")], 401),
        (vec![("authorization", "Bearer correct-horse")], 200),
        (vec![("authorization", "Bearer correct-horse"), ("host", "tools.example")], 200),
        (vec![("authorization", "Bearer battery")], 200),
    ] {
        for path in ["", "/flat"] {
            let answer = post(&format!("{url}{path}"), &headers, INITIALIZE).await;
            assert_eq!(answer.status, status, "{headers:?}");
            assert_eq!(answer.headers.contains_key("www-authenticate"), status == 401);
            assert!(!answer.body.contains("correct-horse"));
        }
    }
    let message = json!({"path": "sse"});
    for path in ["/sse", "/ws", "/message", "/nope"] {
        let answer = post(&format!("{url}{path}"), &[], message.to_string()).await;
        assert_eq!(answer.status, 401, "{path}");
    }
}

#[tokio::test]
async fn sessions_are_separated_by_token() {
    let environment = TestEnvironment::new();
    let file = environment.write("workbench-config.json", EMPTY);
    let mut command = environment.serving(&file);
    command.args(["--http", "127.0.0.1:0", "--token-env", "GATE", "--token-env", "DOOR"]);
    command.env("GATE", "correct-horse").env("DOOR", "battery");
    let endpoint = Endpoint::start(command).await;
    let url = endpoint.url(None);
    let begun = post(&url, &[("authorization", "Bearer correct-horse")], INITIALIZE).await;
    let session = begun.headers["mcp-session-id"].to_str().unwrap().to_owned();
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"}).to_string();
    for (token, status) in [("Bearer battery", 404), ("Bearer correct-horse", 200)] {
        let headers = [("authorization", token), ("mcp-session-id", session.as_str())];
        assert_eq!(post(&url, &headers, ping.clone()).await.status, status, "{token}");
    }
}

#[tokio::test]
async fn duplicate_tokens_are_rejected() {
    let environment = TestEnvironment::new();
    let file = environment.write("workbench-config.json", EMPTY);
    let mut command = environment.serving(&file);
    command.args(["--http", "127.0.0.1:0", "--token-env", "GATE", "--token-env", "DOOR"]);
    let output = command.env("GATE", "same").env("DOOR", "same ").output().await.unwrap();
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(
        String::from_utf8(output.stderr).unwrap(),
        @r#"
    error[usage]: --token-env: DOOR and GATE have the same token
      help: use a different token for each
    "#
    );
}
