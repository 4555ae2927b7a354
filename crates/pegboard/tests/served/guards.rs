//! Access control of the HTTP endpoint.

use reqwest::header::HeaderMap;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

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

/// Tokens of two clients.
const GATE: &str = "correct-horse-0b7d2c1e9a4f8356";
const DOOR: &str = "battery-staple-c1e9a4f83560b7d2";
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
        (vec![("origin", "http://localhost:3000")], INITIALIZE),
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
        (vec![("origin", url.trim_end_matches("/mcp"))], INITIALIZE),
        (vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")], DISCOVER),
    ] {
        assert_eq!(post(&url, &headers, body).await.status, 200, "{headers:?}");
    }
    for method in [reqwest::Method::GET, reqwest::Method::DELETE, reqwest::Method::PUT] {
        let answer = reqwest::Client::new().request(method.clone(), &url).send().await.unwrap();
        said.push(format!("{method}: {} {}", answer.status().as_u16(), answer.text().await.unwrap()));
    }
    insta::assert_snapshot!(said.join("\n"), @r#"
    [("host", "evil.example")]: 403 this host is not allowed; add its name to allowedHosts in the configuration
    [("host", "127.0.0.1.evil.example")]: 403 this host is not allowed; add its name to allowedHosts in the configuration
    [("origin", "http://evil.example")]: 403 this origin is not allowed
    [("origin", "http://localhost:3000")]: 403 this origin is not allowed
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
        vec!["--http", "127.0.0.1:0", "--token-env", "WEAK"],
        vec!["--http", "0.0.0.0:0", "--open"],
        vec!["--http", "127.0.0.1:0", "--profile", "nope"],
    ] {
        let output =
            environment.serving(&file).args(&arguments).env("WEAK", "s3cret").output().await.unwrap();
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
      help: set it to the token that clients must send: export NO_SUCH_TOKEN=$(openssl rand -hex 32)
    exit 2
    error[usage]: --token-env: the token in WEAK can be guessed: it has 6 characters, and a token needs at least 20
      help: create a strong one: export WEAK=$(openssl rand -hex 32)
    exit 2
    error[usage]: refusing to listen on 0.0.0.0:0 without a token
      help: set --token-env, or use a loopback address such as 127.0.0.1
    exit 2
    error[usage]: unknown profile 'nope'; available: meta, flat, agent, hybrid, auto
    exit 2
    "#);
}

#[tokio::test]
async fn requests_without_the_token_are_rejected() {
    let environment = TestEnvironment::new();
    let file = environment.write("pegboard.json", r#"{"allowedHosts": ["tools.example"], "toolboxes": {}}"#);
    let mut command = environment.serving(&file);
    command.args(["--http", "0.0.0.0:0", "--token-env", "GATE", "--token-env", "DOOR"]);
    command.env("GATE", GATE).env("DOOR", DOOR);
    let endpoint = Endpoint::start(command).await;
    let port = endpoint.address.rsplit_once(':').unwrap().1;
    let url = format!("http://127.0.0.1:{port}/mcp");
    let (gate, door) = (format!("Bearer {GATE}"), format!("Bearer {DOOR}"));
    for (headers, status) in [
        (vec![], 401),
        (vec![("authorization", "Bearer wrong")], 401),
        (vec![("authorization", "Basic correct-horse-0b7d2c1e9a4f8356")], 401),
        (vec![("authorization", &gate)], 200),
        (vec![("authorization", &gate), ("host", "192.168.1.7:7332")], 200),
        (vec![("authorization", &gate), ("host", "tools.example")], 200),
        (vec![("authorization", &gate), ("host", "evil.example")], 403),
        (vec![("authorization", &gate), ("origin", "http://evil.example")], 403),
        (vec![("authorization", &door)], 200),
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
    command.env("GATE", GATE).env("DOOR", DOOR);
    let endpoint = Endpoint::start(command).await;
    let url = endpoint.url(None);
    let [gate, door] = [GATE, DOOR].map(|token| format!("Bearer {token}"));
    let begun = post(&url, &[("authorization", &gate)], INITIALIZE).await;
    let session = begun.headers["mcp-session-id"].to_str().unwrap().to_owned();
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"}).to_string();
    for (token, status) in [(door, 404), (gate, 200)] {
        let headers = [("authorization", token.as_str()), ("mcp-session-id", session.as_str())];
        assert_eq!(post(&url, &headers, ping.clone()).await.status, status, "{token}");
    }
}

#[tokio::test]
async fn duplicate_tokens_are_rejected() {
    let environment = TestEnvironment::new();
    let file = environment.write("workbench-config.json", EMPTY);
    let mut command = environment.serving(&file);
    command.args(["--http", "127.0.0.1:0", "--token-env", "GATE", "--token-env", "DOOR"]);
    let output = command.env("GATE", GATE).env("DOOR", format!("{GATE} ")).output().await.unwrap();
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(
        String::from_utf8(output.stderr).unwrap(),
        @r#"
    error[usage]: --token-env: DOOR and GATE have the same token
      help: use a different token for each
    "#
    );
}

/// Sends a request as written, and returns the status.
async fn raw_status(address: &str, request: &str) -> u16 {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await.unwrap();
    line.split(' ').nth(1).unwrap_or_else(|| panic!("no status in {line:?}")).parse().unwrap()
}

/// Requests that the gateway answers in different places.
const ROUTES: [(&str, &str, &str); 17] = [
    ("POST", "/mcp", ""),
    ("POST", "/mcp/flat", ""),
    ("GET", "/mcp", ""),
    ("DELETE", "/mcp", ""),
    ("OPTIONS", "/mcp", ""),
    ("GET", "/mcp/sse", ""),
    ("GET", "/mcp/flat/sse", ""),
    ("POST", "/mcp/message?session=x", ""),
    ("GET", "/mcp/ws", WEBSOCKET),
    ("GET", "/mcp/flat/ws", WEBSOCKET),
    ("GET", "/mcp/no-such-profile", ""),
    ("GET", "/mcp/flat/no-such-path", ""),
    ("GET", "/api/tools", ""),
    ("POST", "/api/tool", ""),
    ("GET", "/api/no-such-path", ""),
    ("GET", "/healthz", ""),
    ("GET", "/", ""),
];
const WEBSOCKET: &str = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
    sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";

#[tokio::test]
async fn every_route_checks_host_and_origin_however_clients_are_admitted() {
    for arguments in [vec![], vec!["--open"], vec!["--token-env", "GATE"]] {
        let environment = TestEnvironment::new();
        let file = environment
            .write("pegboard.json", r#"{"toolboxes": {}, "allowedOrigins": ["http://app.example:3000"]}"#);
        let mut command = environment.serving(&file);
        command.args(["--http", "127.0.0.1:0"]).args(&arguments).env("GATE", GATE);
        let endpoint = Endpoint::start(command).await;
        let own = format!("host: {}\r\n", endpoint.address);
        let port = endpoint.address.rsplit_once(':').unwrap().1;
        let cases = [
            (String::new(), 400),
            (format!("{own}{own}"), 400),
            ("host: evil.example\r\n".to_owned(), 403),
            (format!("host: evil.example:{port}\r\n"), 403),
            (format!("{own}origin: http://evil.example\r\n"), 403),
            (format!("{own}origin: null\r\n"), 403),
            (format!("{own}origin: http://localhost:3000\r\n"), 403),
            (format!("{own}origin: http://app.example\r\n"), 403),
            (format!("{own}sec-fetch-site: cross-site\r\n"), 403),
            (format!("{own}sec-fetch-site: same-site\r\n"), 403),
            // Admitted here; what the route says is its own matter.
            (format!("{own}origin: http://app.example:3000\r\nsec-fetch-site: cross-site\r\n"), 0),
            (format!("{own}origin: http://localhost:{port}\r\nsec-fetch-site: same-origin\r\n"), 0),
            (format!("{own}sec-fetch-site: none\r\n"), 0),
            (own.clone(), 0),
        ];
        for (method, path, more) in ROUTES {
            for (headers, expected) in &cases {
                let request = format!(
                    "{method} {path} HTTP/1.1\r\n{headers}{more}authorization: Bearer {GATE}\r\n\
                     content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
                );
                let status = raw_status(&endpoint.address, &request).await;
                let is_expected =
                    if *expected == 0 { ![401, 403].contains(&status) } else { status == *expected };
                assert!(is_expected, "{arguments:?} {method} {path} {headers:?}: {status}");
            }
        }
    }
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_can_call_tools() {
    let environment = TestEnvironment::new();
    let configuration = r#"{"toolboxes": {}, "allowedOrigins": ["http://app.example:3000"]}"#;
    let file = environment.write("pegboard.json", configuration);
    let mut command = environment.serving(&file);
    command.args(["--http", "127.0.0.1:0", "--token-env", "GATE"]).env("GATE", GATE);
    let endpoint = Endpoint::start(command).await;
    let page = [("origin", "http://app.example:3000"), ("sec-fetch-site", "cross-site")];
    for path in ["/mcp", "/mcp/flat", "/api/tools"] {
        let url = format!("http://{}{path}", endpoint.address);
        let preflight = reqwest::Client::new().request(reqwest::Method::OPTIONS, &url);
        let preflight = preflight
            .header("origin", page[0].1)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization,content-type,mcp-session-id");
        let allowed = preflight.send().await.unwrap();
        assert_eq!(allowed.status(), 204, "{path}");
        assert_eq!(allowed.headers()["access-control-allow-origin"], page[0].1);
        let headers = &allowed.headers()["access-control-allow-headers"];
        assert_eq!(headers, "authorization,content-type,mcp-session-id");
    }
    let (url, gate) = (endpoint.url(None), format!("Bearer {GATE}"));
    let called = post(&url, &[page[0], page[1], ("authorization", &gate)], INITIALIZE).await;
    assert_eq!(
        (called.status, &called.headers["access-control-allow-origin"]),
        (200, &page[0].1.parse().unwrap())
    );
    let rejected = post(&url, &page, INITIALIZE).await;
    assert_eq!((rejected.status, rejected.headers.contains_key("access-control-allow-origin")), (401, true));
    let foreign = post(&url, &[("authorization", &gate)], INITIALIZE).await;
    assert!(!foreign.headers.contains_key("access-control-allow-origin"));
}
