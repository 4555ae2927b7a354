//! MCP servers in a whole runtime.

use std::time::Duration;

use pegboard_core::call::{Call, Invoker};
use pegboard_core::error::ErrorKind;
use pegboard_core::id::{ServerName, ToolId, ToolName, ToolboxName};
use pegboard_core::settings::mcp::{Settings, Target};
use pegboard_providers::mcp::Server;
use pegboard_runtime::{CallerOptions, Runtime};
use pegboard_wire::client::Era;
use serde_json::json;
use tokio::time::Instant;

use crate::stage::{EXACT, Stage, Start};

fn named(name: &str, stage: &Stage) -> Server {
    let settings = Settings::new(ServerName::new(name).unwrap(), Target::Embedded);
    Server::new(settings, stage.connector(Era::Session))
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_delays_nobody_else() {
    let (good, bad) = (Stage::new(), Stage::new());
    bad.next_starts([Start::Hang]);
    let runtime = Runtime::builder()
        .provide("bad", named("bad", &bad))
        .provide("good", named("good", &good))
        .start()
        .await
        .unwrap();
    let caller = runtime.caller(CallerOptions::default());
    let begun = Instant::now();
    let id = |server: &str| ToolId {
        toolbox: ToolboxName::new("default").unwrap(),
        server: ServerName::new(server).unwrap(),
        name: ToolName::new("exact").unwrap(),
    };
    let (good_ended, bad_ended) = tokio::join!(
        async {
            let ended = caller.start(Call::new(id("good"), json!({}))).await;
            (ended.result.unwrap().to_result(), begun.elapsed())
        },
        async {
            let ended = caller.start(Call::new(id("bad"), json!({}))).await;
            (ended.result.unwrap_err().kind(), begun.elapsed())
        }
    );
    assert_eq!((good_ended.0.as_str(), good_ended.1), (EXACT, Duration::ZERO));
    assert_eq!(bad_ended, (ErrorKind::ServerUnavailable, Duration::from_mins(1)));
    // By its name among all tools, now that the server is known.
    let ended = caller.start(Call::new("good__exact", json!({}))).await;
    assert_eq!(ended.result.unwrap().to_result().as_str(), EXACT);
    assert_eq!(runtime.shut_down(Duration::from_secs(1)).await, 0);
}
