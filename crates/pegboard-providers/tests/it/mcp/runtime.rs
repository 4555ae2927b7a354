//! MCP servers in a runtime.

use std::time::Duration;

use pegboard_core::call::{Call, Invoker};
use pegboard_core::error::ErrorKind;
use pegboard_core::id::{ServerName, ToolId, ToolName, ToolboxName};
use pegboard_core::settings::mcp::{McpTarget, ResolvedMcpServer};
use pegboard_providers::mcp::McpServer;
use pegboard_runtime::{CallerOptions, Runtime};
use pegboard_wire::client::Era;
use serde_json::json;
use tokio::time::Instant;

use crate::mcp::scripted::{EXACT, ScriptedServer, ScriptedStart};

fn named(name: &str, scripted: &ScriptedServer) -> McpServer {
    let settings = ResolvedMcpServer::new(ServerName::new(name).unwrap(), McpTarget::Embedded);
    McpServer::new(settings, scripted.connector(Era::Session))
}

#[tokio::test(start_paused = true)]
async fn a_hanging_server_does_not_delay_others() {
    let (good, bad) = (ScriptedServer::new(), ScriptedServer::new());
    bad.next_starts([ScriptedStart::Hang]);
    let runtime = Runtime::builder()
        .provide("bad", named("bad", &bad))
        .provide("good", named("good", &good))
        .start()
        .await
        .unwrap();
    let caller = runtime.caller(CallerOptions::default());
    let started_at = Instant::now();
    let id = |server: &str| ToolId {
        toolbox: ToolboxName::new("default").unwrap(),
        server: ServerName::new(server).unwrap(),
        name: ToolName::new("exact").unwrap(),
    };
    let (good_ended, bad_ended) = tokio::join!(
        async {
            let ended = caller.start(Call::new(id("good"), json!({}))).await;
            (ended.result.unwrap().to_result(), started_at.elapsed())
        },
        async {
            let ended = caller.start(Call::new(id("bad"), json!({}))).await;
            (ended.result.unwrap_err().kind(), started_at.elapsed())
        }
    );
    assert_eq!((good_ended.0.as_str(), good_ended.1), (EXACT, Duration::ZERO));
    assert_eq!(bad_ended, (ErrorKind::ServerUnavailable, Duration::from_mins(1)));
    // The server is listed now, so its tool is found by its exposed name.
    let ended = caller.start(Call::new("good__exact", json!({}))).await;
    assert_eq!(ended.result.unwrap().to_result().as_str(), EXACT);
    assert_eq!(runtime.shut_down(Duration::from_secs(1)).await, 0);
}
