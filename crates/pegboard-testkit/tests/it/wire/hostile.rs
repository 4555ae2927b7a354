//! Peers that do not read, do not answer, lie or crash must cause neither leaks nor hangs.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use pegboard_wire::client::{ClientOptions, Era, McpClient, RequestOptions};
use pegboard_wire::era::Revision;
use pegboard_wire::http::server::HttpServerOptions;
use pegboard_wire::server::{McpService, ServerRequest, ServiceDescription, ServiceReply, ServiceServer};
use pegboard_wire::stdio::line_transport;
use pegboard_wire::transport::InputLimits;
use pegboard_wire::{
    Connection, ConnectionLimits, Id, InboundHandler, InboundRequest, Notification, RawJson, RequestError,
    RpcError, code,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::time;

use crate::wire::support::{AnsweringHandler, connect, pipe_to, serve_http};

/// Waits for the end of a pump, which must come soon, or there is a leak.
async fn wait_for_end(pump: tokio::task::JoinHandle<()>) {
    time::timeout(Duration::from_secs(8), pump).await.expect("the transport ends").unwrap();
}

fn client_over(far_buffer: usize) -> (Connection, tokio::task::JoinHandle<()>, DuplexStream) {
    let (near, far) = tokio::io::duplex(far_buffer);
    let (reader, writer) = tokio::io::split(near);
    let (transport, pump) = line_transport(reader, writer, InputLimits::client());
    (Connection::open(transport, Arc::new(NeverAnswering), ConnectionLimits::default()), pump, far)
}

/// A handler that never answers.
struct NeverAnswering;

impl InboundHandler for NeverAnswering {
    fn request(&self, _inbound: InboundRequest) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        std::future::pending().boxed()
    }

    fn notification(&self, _notification: Notification, _related_request: Option<Id>) {}
}

#[tokio::test(start_paused = true)]
async fn a_flooding_client_that_never_reads_is_bounded_and_dropped() {
    let (mut near, far) = tokio::io::duplex(4 * 1024);
    let (reader, writer) = tokio::io::split(far);
    let (transport, pump) = line_transport(reader, writer, InputLimits::server());
    let server = ServiceServer::new(Arc::new(PanickingService));
    let serving = tokio::spawn(async move { server.serve(transport).await });
    let flood = async {
        for n in 0..40_000 {
            let ping = format!("{{\"jsonrpc\":\"2.0\",\"id\":{n},\"method\":\"ping\"}}\n");
            near.write_all(ping.as_bytes()).await.unwrap();
        }
    };
    // The flood does not complete: backpressure stops it, since the responses are not read.
    assert!(time::timeout(Duration::from_secs(1), flood).await.is_err());
    near.shutdown().await.unwrap();
    drop(near);
    time::timeout(Duration::from_secs(30), serving).await.unwrap().unwrap();
    wait_for_end(pump).await;
}

#[tokio::test(start_paused = true)]
async fn a_flooding_server_that_never_reads_is_dropped() {
    let (connection, pump, mut far) = client_over(64);
    let flood = tokio::spawn(async move { while far.write_all(b"x\n").await.is_ok() {} });
    tokio::task::yield_now().await;
    drop(connection);
    wait_for_end(pump).await;
    flood.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_request_does_not_keep_the_connection_alive() {
    let (connection, pump, mut far) = client_over(4 * 1024);
    far.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"elicitation/create\"}\n").await.unwrap();
    time::sleep(Duration::from_millis(10)).await;
    drop(connection);
    wait_for_end(pump).await;
}

#[tokio::test(start_paused = true)]
async fn dropping_the_client_closes_a_server_that_never_answers_the_probe() {
    let (near, far) = tokio::io::duplex(16 * 1024);
    let (reader, writer) = tokio::io::split(near);
    let (transport, pump) = line_transport(reader, writer, InputLimits::client());
    let server = tokio::spawn(async move {
        let (reader, mut writer) = tokio::io::split(far);
        let mut methods = Vec::new();
        let mut lines = BufReader::new(reader).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            let message: Value = serde_json::from_str(&line).unwrap();
            methods.push(message["method"].as_str().unwrap_or_default().to_owned());
            if message["method"] == "initialize" {
                let result = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
                writer.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
            }
        }
        methods
    });
    let client = McpClient::connect(transport, Arc::new(NeverAnswering), ClientOptions::new("test", "1"))
        .await
        .unwrap();
    assert_eq!(client.era(), Era::Session);
    drop(client);
    wait_for_end(pump).await;
    assert_eq!(server.await.unwrap(), ["server/discover", "initialize", "notifications/initialized"]);
}

#[tokio::test]
async fn a_request_goes_out_before_its_cancellation() {
    let (connection, _pump, mut far) = client_over(64 * 1024);
    for _ in 0..50 {
        drop(connection.request("tools/call", None).await.unwrap());
    }
    drop(connection);
    let mut text = String::new();
    far.read_to_string(&mut text).await.unwrap();
    let mut seen = std::collections::HashSet::new();
    for line in text.lines() {
        let message: Value = serde_json::from_str(line).unwrap();
        match message["method"].as_str() {
            Some("tools/call") => assert!(seen.insert(message["id"].to_string())),
            _ => assert!(seen.contains(&message["params"]["requestId"].to_string()), "{line}"),
        }
    }
    assert_eq!(seen.len(), 50);
}

#[tokio::test]
async fn an_oversized_response_ends_its_request() {
    let (near, mut far) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(near);
    let (transport, _pump) =
        line_transport(reader, writer, InputLimits { max_bytes: 1_000, ..InputLimits::client() });
    let connection = Connection::open(transport, Arc::new(NeverAnswering), ConnectionLimits::default());
    let request = connection.request("tools/list", None).await.unwrap();
    let long = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"{}\"}}\nbanner\n", "x".repeat(10_000));
    far.write_all(long.as_bytes()).await.unwrap();
    let failure = request.response().await.unwrap_err().to_string();
    assert_eq!(failure, "protocol violation: the response exceeds 1000 bytes");
    while connection.stats().malformed == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_invalid_response_ends_its_request_but_an_invalid_request_does_not() {
    let (near, mut far) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(near);
    let (transport, _pump) = line_transport(reader, writer, InputLimits::client());
    let connection = Connection::open(transport, Arc::new(NeverAnswering), ConnectionLimits::default());
    let [first, second] = [connection.request("a", None), connection.request("b", None)];
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    let bad = "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":7}\n{\"jsonrpc\":\"2.0\",\"id\":1}\n";
    far.write_all(bad.as_bytes()).await.unwrap();
    let failure = first.response().await.unwrap_err().to_string();
    assert_eq!(failure, "protocol violation: Invalid request: neither a call nor a response");
    far.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n").await.unwrap();
    assert_eq!(second.response().await.unwrap().as_str(), "{}");
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_not_json_ends_its_request() {
    let nan = |id: &str| format!("{{\"jsonrpc\":\"2.0\",{id}\"result\":{{\"content\":[NaN]}}}}\n");
    let large = format!("{{\"result\":\"{}\",\"id\":2}}\n", "x".repeat(20_000));
    let banner = "Listening {\n{\"level\":\"info\"\n\u{1b}[1mready\n".to_owned();
    let notification = "{\"jsonrpc\":\"2.0\",\"method\":\"note\",\"params\":NaN}\n".to_owned();
    // The lines, the number of pending requests, and those that fail.
    let cases: [(String, i64, &[i64]); 9] = [
        (nan("\"id\":2,"), 3, &[2]),
        (nan("\"id\":9,"), 1, &[]),
        (nan(""), 1, &[1]),
        (nan("\"id\":NaN,"), 1, &[1]),
        (nan(""), 2, &[]),
        (large.clone(), 1, &[]),
        (large, 2, &[2]),
        (banner, 1, &[]),
        (notification, 1, &[]),
    ];
    for (lines, n_pending, expected) in cases {
        let (near, mut far) = tokio::io::duplex(64 * 1024);
        let (reader, writer) = tokio::io::split(near);
        let limits = InputLimits { max_bytes: 10_000, ..InputLimits::client() };
        let (transport, _pump) = line_transport(reader, writer, limits);
        let connection = Connection::open(transport, Arc::new(NeverAnswering), ConnectionLimits::default());
        let mut failed = Vec::new();
        let mut pending = Vec::new();
        for _ in 0..n_pending {
            pending.push(connection.request("tools/call", None).await.unwrap());
        }
        far.write_all(lines.as_bytes()).await.unwrap();
        for request in pending {
            let id = request.id();
            // The clock is paused, so the time passes only when nothing happens any more.
            if let Ok(ended) = time::timeout(Duration::from_secs(1), request.response()).await {
                let problem = ended.unwrap_err().to_string();
                assert!(problem.contains("not JSON") || problem.contains("exceeds 10000 bytes"), "{problem}");
                failed.push(id);
            }
        }
        let expected: Vec<Id> = expected.iter().map(|id| Id::Number(*id)).collect();
        assert_eq!(failed, expected, "{} with {n_pending} pending", &lines[..lines.len().min(80)]);
    }
}

/// A service with bugs.
struct PanickingService;

impl McpService for PanickingService {
    fn describe(&self, revision: Revision) -> ServiceDescription {
        assert!(!revision.is_stateless(), "a bug in the description");
        let info = RawJson::from(json!({"name": "b", "version": "1"}));
        ServiceDescription { info, capabilities: RawJson::empty_object(), instructions: None }
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        assert!(&*request.method != "early", "a bug");
        async move {
            assert!(&*request.method != "late", "a bug");
            Ok(ServiceReply::Result(RawJson::empty_object()))
        }
        .boxed()
    }
}

#[tokio::test]
async fn a_bug_in_a_service_costs_one_request() {
    let (client, _) =
        connect(pipe_to(ServiceServer::new(Arc::new(PanickingService))), Some(Era::Session)).await;
    for method in ["early", "late", "server/discover"] {
        let params = (method == "server/discover").then(stateless_meta);
        let failure =
            client.connection().request(method, params).await.unwrap().response().await.unwrap_err();
        assert!(
            matches!(failure, RequestError::Rpc(ref error) if error.code == code::INTERNAL_ERROR),
            "{failure:?}"
        );
    }
    client.call("anything", None).await.unwrap();
}

fn stateless_meta() -> RawJson {
    RawJson::from(json!({"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    }}))
}

fn post(url: &str, body: &Value, headers: &[(&str, &str)]) -> reqwest::RequestBuilder {
    let request =
        reqwest::Client::new().post(url).header("content-type", "application/json").body(body.to_string());
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
}

async fn status_and_code(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let body: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or_default();
    (status, body["error"]["code"].clone())
}

#[tokio::test]
async fn headers_must_match_the_body() {
    let url = serve_http(HttpServerOptions::default()).await;
    let meta = stateless_meta().to_value()["_meta"].clone();
    let standard = |name: &'static str| {
        [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", name)]
    };
    let twice = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"test_simple_text","name":"test_error_handling","_meta":{meta}}}}}"#
    );
    let request = reqwest::Client::new().post(&url).header("content-type", "application/json").body(twice);
    let request = standard("test_simple_text")
        .iter()
        .fold(request, |request, (name, value)| request.header(*name, *value));
    assert_eq!(status_and_code(request).await, (400, json!(code::HEADER_MISMATCH)));
    for (header, region) in [("01", json!("1")), ("1e0", json!("1")), ("0", json!("1e-17"))] {
        let params = json!({"name": "test_header_parameter", "arguments": {"region": region}, "_meta": meta});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let request =
            post(&url, &body, &standard("test_header_parameter")).header("mcp-param-region", header);
        assert_eq!(status_and_code(request).await, (400, json!(code::HEADER_MISMATCH)), "{header}");
    }
}

#[tokio::test]
async fn a_stateless_request_cannot_hide_in_a_batch() {
    let url = serve_http(HttpServerOptions::default()).await;
    let request =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": stateless_meta().to_value()});
    assert_eq!(
        status_and_code(post(&url, &json!([request]), &[])).await,
        (400, json!(code::INVALID_REQUEST))
    );
}

#[tokio::test]
async fn request_state_is_bound_to_its_request() {
    let (client, _) = connect(crate::wire::support::pipe(), Some(Era::Stateless)).await;
    let ask = |name: &str, arguments: Value, state: Option<RawJson>| {
        let params = RawJson::from(json!({"name": name, "arguments": arguments}));
        match state {
            Some(state) => params.with("requestState", &state),
            None => params,
        }
    };
    let first = ask("test_input_required_result_request_state", json!({}), None);
    let request = client.request("tools/call", Some(first), RequestOptions::default()).await.unwrap();
    let state = request.response().await.unwrap().get("requestState").unwrap();
    for (name, arguments, is_good) in [
        ("test_input_required_result_request_state", json!({}), true),
        ("test_input_required_result_request_state", json!({"other": 1}), false),
        ("test_input_required_result_tampered_state", json!({}), false),
    ] {
        let retry = ask(name, arguments, Some(state.clone()));
        let request = client.request("tools/call", Some(retry), RequestOptions::default()).await.unwrap();
        assert_eq!(request.response().await.is_ok(), is_good, "{name}");
    }
}

#[tokio::test]
async fn a_cancelled_request_ends_its_stream_and_frees_its_id() {
    let url = serve_http(HttpServerOptions::default()).await;
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-03-26", "capabilities": {}}});
    let opened = post(&url, &initialize, &[]).send().await.unwrap();
    let session = opened.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let slow = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "slow_compute", "arguments": {"seconds": 200}}});
    let mut waiting = tokio::spawn(post(&url, &slow, &[("mcp-session-id", &session)]).send());
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}});
    // A cancellation before its request has no effect, so it is repeated until it works.
    let ended = loop {
        post(&url, &cancel, &[("mcp-session-id", &session)]).send().await.unwrap();
        if let Ok(ended) = time::timeout(Duration::from_millis(50), &mut waiting).await {
            break ended.unwrap().unwrap();
        }
    };
    assert!(!ended.text().await.unwrap().contains("\"id\":2"));
    let again = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    assert_eq!(post(&url, &again, &[("mcp-session-id", &session)]).send().await.unwrap().status(), 200);
    let same =
        json!([{"jsonrpc": "2.0", "id": 7, "method": "ping"}, {"jsonrpc": "2.0", "id": 7, "method": "ping"}]);
    assert_eq!(
        status_and_code(post(&url, &same, &[("mcp-session-id", &session)])).await,
        (400, json!(code::INVALID_REQUEST))
    );
}

#[tokio::test]
async fn only_one_allowed_host_and_allowed_origins_pass() {
    let url = serve_http(HttpServerOptions::default()).await;
    let address = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    for (headers, status) in [
        ("", "400"),
        ("host: localhost\r\nhost: evil.example\r\n", "400"),
        ("host: localhost\r\norigin: http://localhost\r\norigin: https://evil.example\r\n", "403"),
        ("host: LOCALHOST:80\r\n", "405"),
    ] {
        let mut socket = tokio::net::TcpStream::connect(&address).await.unwrap();
        let request = format!("GET /mcp HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{headers:?}: {answer}");
    }
}

#[tokio::test]
async fn a_late_probe_response_still_decides_the_era() {
    // Both handshake requests are pending when the first is answered.
    let (near, far) = tokio::io::duplex(16 * 1024);
    let (reader, writer) = tokio::io::split(near);
    let (transport, _pump) = line_transport(reader, writer, InputLimits::client());
    tokio::spawn(async move {
        let (reader, mut writer) = tokio::io::split(far);
        let mut lines = BufReader::new(reader).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            let message: Value = serde_json::from_str(&line).unwrap();
            assert_ne!(
                message["method"], "notifications/cancelled",
                "a handshake request is never cancelled"
            );
            if message["method"] == "initialize" {
                let result = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}});
                let answer = json!({"jsonrpc": "2.0", "id": 1, "result": result});
                writer.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
            }
        }
    });
    let options =
        ClientOptions { probe_timeout: Duration::from_millis(20), ..ClientOptions::new("test", "1") };
    let client = McpClient::connect(transport, Arc::new(AnsweringHandler::default()), options).await.unwrap();
    assert_eq!(client.era(), Era::Stateless);
}

#[tokio::test]
async fn a_request_with_another_eras_meta_stays_in_its_session() {
    let (client, _) = connect(crate::wire::support::http().await, Some(Era::Session)).await;
    let params = stateless_meta().with("name", &RawJson::of("test_simple_text"));
    let result = client.call("tools/call", Some(params)).await.unwrap();
    assert!(result.get("resultType").is_none(), "the answer is one of the session era: {result:?}");
}
