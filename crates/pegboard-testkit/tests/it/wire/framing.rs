//! Line framing: split writes, malformed input, oversized lines, batches.

use std::sync::Arc;
use std::time::Duration;

use pegboard_testkit::fixture::Fixture;
use pegboard_wire::server::ServiceServer;
use pegboard_wire::stdio::line_transport;
use pegboard_wire::transport::InputLimits;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

/// Returns a server's responses to these bytes, written in pieces of this size, after which the input ends.
async fn answers(input: &[u8], piece: usize, limits: InputLimits) -> Vec<Value> {
    let (mut near, far) = tokio::io::duplex(256 * 1024);
    let (reader, writer) = tokio::io::split(far);
    let (transport, pump) = line_transport(reader, writer, limits);
    let server = ServiceServer::new(Arc::new(Fixture::new()));
    let serving = tokio::spawn(async move { server.serve(transport).await });
    for piece in input.chunks(piece.max(1)) {
        near.write_all(piece).await.unwrap();
    }
    near.shutdown().await.unwrap();
    let mut output = String::new();
    near.read_to_string(&mut output).await.unwrap();
    serving.await.unwrap();
    pump.await.unwrap();
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const PING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;

async fn check(input: &[u8], expected: &[Value]) {
    for piece in [1, 3, 1_000_000] {
        let got = answers(input, piece, InputLimits::server()).await;
        let codes: Vec<Value> =
            got.iter().map(|answer| json!([answer["id"], answer["error"]["code"]])).collect();
        assert_eq!(codes, expected, "{:?} in pieces of {piece}", String::from_utf8_lossy(input));
    }
}

#[tokio::test]
async fn valid_but_odd_framing_works() {
    check(format!("{PING}\n").as_bytes(), &[json!([7, null])]).await;
    check(format!("\u{feff}{PING}\r\n\r\n  \n").as_bytes(), &[json!([7, null])]).await;
    check(PING.as_bytes(), &[json!([7, null])]).await;
    check(
        format!("  {PING}  \n{}\n", PING.replace('7', r#""seven""#)).as_bytes(),
        &[json!([7, null]), json!(["seven", null])],
    )
    .await;
    check(format!("[{PING},{}]\n", PING.replace('7', "8")).as_bytes(), &[json!([7, null]), json!([8, null])])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_subscription_ends_with_the_input() {
    let listen = json!({"jsonrpc": "2.0", "id": 7, "method": "subscriptions/listen", "params": {
        "notifications": {"toolsListChanged": true},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }});
    let started_at = Instant::now();
    let got = answers(format!("{listen}\n").as_bytes(), usize::MAX, InputLimits::server()).await;
    let [acknowledged, ended] = &got[..] else { panic!("{got:?}") };
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!((&ended["id"], &ended["result"]["resultType"]), (&json!(7), &json!("complete")));
    assert_eq!(started_at.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn malformed_input_gets_an_error_code_and_later_input_is_served() {
    check(format!("hello\n{PING}\n").as_bytes(), &[json!([null, -32700]), json!([7, null])]).await;
    check(b"{\"jsonrpc\":\"2.0\",\"id\":1}\n", &[json!([1, -32600])]).await;
    check(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"ping\"}\n", &[json!([null, -32600])]).await;
    check(b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}\n", &[json!([null, -32600])]).await;
    check(b"[]\n", &[json!([null, -32600])]).await;
    check(b"\xff\xfe{\x00\n", &[json!([null, -32700])]).await;
    check(b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"tools/list\"}\n", &[json!([3, -32600])]).await;
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"a":{}1{}}}}}"#,
        "[".repeat(500),
        "]".repeat(500)
    );
    check(format!("{deep}\n{PING}\n").as_bytes(), &[json!([1, -32600]), json!([7, null])]).await;
}

#[tokio::test]
async fn an_oversized_line_is_rejected_and_the_next_is_read() {
    let limits = InputLimits { max_bytes: 100, ..InputLimits::server() };
    let long = format!("{}\n{PING}\n", "x".repeat(100_000));
    for piece in [7, 1_000_000] {
        let got = answers(long.as_bytes(), piece, limits).await;
        assert_eq!(got.len(), 2, "{got:?}");
        assert_eq!((&got[0]["error"]["code"], &got[1]["id"]), (&json!(-32600), &json!(7)));
    }
}

#[tokio::test]
async fn a_request_that_came_before_the_end_of_input_is_still_answered() {
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}"#;
    let slow = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"test_tool_with_logging"}}"#;
    let got = answers(format!("{initialize}\n{slow}\n").as_bytes(), 1_000, InputLimits::server()).await;
    let last = got.last().unwrap();
    assert_eq!(
        (&last["id"], got[0]["result"]["protocolVersion"].as_str()),
        (&json!(2), Some("2025-06-18")),
        "{got:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_server_survives_arbitrary_input_until_its_end(input in prop::collection::vec(any::<u8>(), 0..400), piece in 1_usize..50) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut input = input;
        input.extend_from_slice(b"\n");
        input.extend_from_slice(PING.as_bytes());
        let got = runtime.block_on(answers(&input, piece, InputLimits::server()));
        prop_assert_eq!(&got.last().unwrap()["id"], &json!(7));
    }
}

/// Bytes that resemble a message: truncated, with a byte changed, or random.
fn almost_a_message() -> impl Strategy<Value = Vec<u8>> {
    let whole = prop_oneof![
        Just(PING.as_bytes().to_vec()),
        Just(br#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"_meta":{"a":[1,2,{"b":"\u00e9"}]}}}"#.to_vec()),
        Just(format!("[{PING},{PING}]\r\n").into_bytes()),
        prop::collection::vec(any::<u8>(), 0..200),
    ];
    (whole, any::<prop::sample::Index>(), any::<u8>(), 0..3_u8).prop_map(|(mut bytes, at, byte, change)| {
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            match change {
                0 => bytes.truncate(at),
                1 => bytes[at] = byte,
                _ => {}
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_next_client_is_served_after_arbitrary_input(inputs in prop::collection::vec(almost_a_message(), 1..8)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let url = crate::wire::support::serve_http(pegboard_wire::http::server::HttpServerOptions::default()).await;
            let client = reqwest::Client::new();
            let socket_url = url.replace("http://", "ws://").replace("/mcp", "/ws");
            for input in &inputs {
                let posted = client.post(&url).header("content-type", "application/json").body(input.clone());
                posted.send().await.unwrap().bytes().await.unwrap();
                send_and_leave(&socket_url, input).await;
            }
            let http = pegboard_wire::http::client::HttpOptions::new(url.parse().unwrap());
            let (client, _) = crate::wire::support::connect(pegboard_wire::http::client::connect(http).unwrap(), None).await;
            client.call("tools/list", None).await.unwrap();
        });
    }
}

/// Sends bytes as one message, waits for at most one response, and disconnects without a close frame.
async fn send_and_leave(url: &str, bytes: &[u8]) {
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::tungstenite::Message;
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    socket.send(Message::Binary(bytes.to_vec().into())).await.unwrap();
    let _ = tokio::time::timeout(std::time::Duration::from_millis(5), socket.next()).await;
}
