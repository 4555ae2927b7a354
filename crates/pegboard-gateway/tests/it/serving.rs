//! A gateway behind its transports: every profile by its path.

use std::net::Ipv4Addr;

use pegboard_gateway::serve;
use pegboard_runtime::Runtime;
use pegboard_wire::client::{Client, Era};
use pegboard_wire::http::client::HttpOptions;
use pegboard_wire::http::server::HttpServerOptions;
use pegboard_wire::link::{InputLimits, Link};
use pegboard_wire::stdio::lines;
use pegboard_wire::{http, websocket};
use reqwest::header::HeaderMap;
use serde_json::json;
use tokio::net::TcpListener;

use crate::stage::{ERAS, Lazy, call, connect_over, gateway, listed, tells, text, until, use_tool};

/// The address of a gateway with one tool, and its runtime.
async fn served() -> (String, Runtime) {
    let runtime =
        Runtime::builder().toolbox("t", "").provide("s", Lazy::new([tells("s", "x")])).start().await.unwrap();
    let gateway = gateway(&runtime, json!({"profiles": {"mine": {"expose": "flat"}}}));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { serve::http(&gateway, listener, &HttpServerOptions::default()).await });
    (address.to_string(), runtime)
}

fn streamable(url: &str) -> Link {
    http::client::connect(HttpOptions::new(url.parse().unwrap())).unwrap()
}

async fn check_flat(client: &Client) {
    assert_eq!(listed(client).await, ["s__x"]);
    assert_eq!(text(&call(client, "s__x", json!({"n": 1})).await), r#"s/x {"n":1}"#);
}

#[tokio::test]
async fn each_profile_has_a_path_of_its_own() {
    let (address, _runtime) = served().await;
    for era in ERAS {
        let (client, _) = connect_over(streamable(&format!("http://{address}/mcp")), era).await;
        assert_eq!(listed(&client).await[..2], ["open_toolbox", "use_tool"]);
        call(&client, "open_toolbox", json!({"toolbox": "t"})).await;
        assert_eq!(text(&use_tool(&client, ["t", "s", "x"], json!({})).await), "s/x {}");
        for profile in ["flat", "mine"] {
            let (client, _) = connect_over(streamable(&format!("http://{address}/mcp/{profile}")), era).await;
            check_flat(&client).await;
        }
    }
}

#[tokio::test]
async fn a_profile_that_is_not_there_is_not_found() {
    let (address, _runtime) = served().await;
    let answer = reqwest::get(format!("http://{address}/mcp/nope")).await.unwrap();
    assert_eq!(answer.status(), 404);
    insta::assert_snapshot!(answer.text().await.unwrap(), @"There is no profile 'nope'. Profiles: meta, flat, agent, hybrid, auto, mine");
}

#[tokio::test]
async fn a_session_over_http_is_gone_with_its_client() {
    let (address, runtime) = served().await;
    let (client, _) = connect_over(streamable(&format!("http://{address}/mcp")), Era::Session).await;
    listed(&client).await;
    assert_eq!(runtime.callers().len(), 1);
    drop(client);
    until(|| runtime.callers().is_empty()).await;
}

#[tokio::test]
async fn a_client_with_a_session_is_told_why_it_sees_what_it_sees() {
    let (address, _runtime) = served().await;
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
    insta::assert_snapshot!(answer["result"]["_meta"], @r#"{"pegboard/expose":{"chosen":"flat","why":"'claude-code' searches long lists of tools itself"}}"#);
}

#[tokio::test]
async fn older_ways_to_connect_stand_beside_every_profile() {
    let (address, _runtime) = served().await;
    let url = format!("ws://{address}/mcp/flat/ws").parse().unwrap();
    let socket = websocket::client::connect(&url, HeaderMap::new(), InputLimits::client()).await.unwrap();
    check_flat(&connect_over(socket, Era::Session).await.0).await;
    let url = format!("http://{address}/mcp/flat/sse").parse().unwrap();
    let legacy = http::legacy_client::connect(HttpOptions::new(url)).unwrap();
    check_flat(&connect_over(legacy, Era::Session).await.0).await;
    let url = format!("ws://{address}/mcp/ws").parse().unwrap();
    let socket = websocket::client::connect(&url, HeaderMap::new(), InputLimits::client()).await.unwrap();
    assert_eq!(listed(&connect_over(socket, Era::Stateless).await.0).await[0], "open_toolbox");
}

#[tokio::test]
async fn one_client_on_two_streams_is_served_until_it_leaves() {
    let runtime =
        Runtime::builder().toolbox("t", "").provide("s", Lazy::new([tells("s", "x")])).start().await.unwrap();
    let gateway = gateway(&runtime, json!({}));
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(far);
    let serving = tokio::spawn(async move { serve::over(&gateway, Some("flat"), reader, writer).await });
    let (reader, writer) = tokio::io::split(near);
    let (link, _) = lines(reader, writer, InputLimits::client());
    let (client, _) = connect_over(link, Era::Session).await;
    check_flat(&client).await;
    drop(client);
    serving.await.unwrap().unwrap();
}
