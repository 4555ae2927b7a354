//! Transports: every profile under its path.

use std::net::Ipv4Addr;

use pegboard_gateway::serve;
use pegboard_runtime::Runtime;
use pegboard_wire::client::{Era, McpClient};
use pegboard_wire::http::client::HttpOptions;
use pegboard_wire::http::server::HttpServerOptions;
use pegboard_wire::stdio::line_transport;
use pegboard_wire::transport::{InputLimits, TransportHandle};
use pegboard_wire::{http, websocket};
use reqwest::header::HeaderMap;
use serde_json::json;
use tokio::net::TcpListener;

use crate::fixture::{
    ERAS, LazyServer, call, connect_over, echo_tool, gateway, text, tool_names, use_tool, wait_until,
};

/// Serves a gateway with one tool; returns its address and runtime.
async fn serve_gateway() -> (String, Runtime) {
    let runtime = Runtime::builder()
        .toolbox("t", "")
        .provide("s", LazyServer::new([echo_tool("s", "x")]))
        .start()
        .await
        .unwrap();
    let gateway = gateway(&runtime, json!({"profiles": {"mine": {"expose": "flat"}}}));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { serve::http(&gateway, listener, &HttpServerOptions::default()).await });
    (address.to_string(), runtime)
}

fn streamable(url: &str) -> TransportHandle {
    http::client::connect(HttpOptions::new(url.parse().unwrap())).unwrap()
}

async fn check_flat(client: &McpClient) {
    assert_eq!(tool_names(client).await, ["s__x"]);
    assert_eq!(text(&call(client, "s__x", json!({"n": 1})).await), r#"s/x {"n":1}"#);
}

#[tokio::test]
async fn each_profile_has_a_path_of_its_own() {
    let (address, _runtime) = serve_gateway().await;
    for era in ERAS {
        let (client, _) = connect_over(streamable(&format!("http://{address}/mcp")), era).await;
        assert_eq!(tool_names(&client).await[..2], ["open_toolbox", "use_tool"]);
        call(&client, "open_toolbox", json!({"toolbox": "t"})).await;
        assert_eq!(text(&use_tool(&client, ["t", "s", "x"], json!({})).await), "s/x {}");
        for profile in ["flat", "mine"] {
            let (client, _) = connect_over(streamable(&format!("http://{address}/mcp/{profile}")), era).await;
            check_flat(&client).await;
        }
    }
}

#[tokio::test]
async fn an_unknown_profile_is_not_found() {
    let (address, _runtime) = serve_gateway().await;
    let answer = reqwest::get(format!("http://{address}/mcp/nope")).await.unwrap();
    assert_eq!(answer.status(), 404);
    insta::assert_snapshot!(answer.text().await.unwrap(), @"unknown profile 'nope'; available: meta, flat, agent, hybrid, auto, mine");
}

#[tokio::test]
async fn an_http_session_ends_with_its_client() {
    let (address, runtime) = serve_gateway().await;
    let (client, _) = connect_over(streamable(&format!("http://{address}/mcp")), Era::Session).await;
    tool_names(&client).await;
    assert_eq!(runtime.callers().len(), 1);
    drop(client);
    wait_until(|| runtime.callers().is_empty()).await;
}

#[tokio::test]
async fn a_session_client_gets_the_reason_for_its_surface() {
    let (address, _runtime) = serve_gateway().await;
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "claude-code", "version": "2"},
    });
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let posted = reqwest::Client::new()
        .post(format!("http://{address}/mcp/auto"))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(request.to_string())
        .send();
    let answer: serde_json::Value =
        serde_json::from_str(&posted.await.unwrap().text().await.unwrap()).unwrap();
    insta::assert_snapshot!(answer["result"]["_meta"], @r#"{"pegboard/expose":{"chosen":"flat","why":"'claude-code' searches long tool lists itself"}}"#);
}

#[tokio::test]
async fn websocket_and_legacy_sse_are_served_beside_every_profile() {
    let (address, _runtime) = serve_gateway().await;
    let url = format!("ws://{address}/mcp/flat/ws").parse().unwrap();
    let socket = websocket::client::connect(&url, HeaderMap::new(), InputLimits::client()).await.unwrap();
    check_flat(&connect_over(socket, Era::Session).await.0).await;
    let url = format!("http://{address}/mcp/flat/sse").parse().unwrap();
    let legacy = http::legacy_client::connect(HttpOptions::new(url)).unwrap();
    check_flat(&connect_over(legacy, Era::Session).await.0).await;
    let url = format!("ws://{address}/mcp/ws").parse().unwrap();
    let socket = websocket::client::connect(&url, HeaderMap::new(), InputLimits::client()).await.unwrap();
    assert_eq!(tool_names(&connect_over(socket, Era::Stateless).await.0).await[0], "open_toolbox");
}

#[tokio::test]
async fn a_client_on_byte_streams_is_served_until_it_disconnects() {
    let runtime = Runtime::builder()
        .toolbox("t", "")
        .provide("s", LazyServer::new([echo_tool("s", "x")]))
        .start()
        .await
        .unwrap();
    let gateway = gateway(&runtime, json!({}));
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(far);
    let serving = tokio::spawn(async move { serve::streams(&gateway, Some("flat"), reader, writer).await });
    let (reader, writer) = tokio::io::split(near);
    let (transport, _) = line_transport(reader, writer, InputLimits::client());
    let (client, _) = connect_over(transport, Era::Session).await;
    check_flat(&client).await;
    drop(client);
    serving.await.unwrap().unwrap();
}
