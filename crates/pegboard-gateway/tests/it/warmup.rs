//! The wait of a list for servers.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::error::CallError;
use pegboard_core::provider::{Provider, ServerOffering, ServerState, ToolKind};
use pegboard_runtime::Runtime;
use pegboard_wire::client::Era;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{self, Duration, Instant};

use crate::fixture::{LazyServer, connect, echo_tool, gateway, tool_names};

/// A server that takes this long to start.
struct SlowServer(Duration, LazyServer);

impl Provider for SlowServer {
    fn kind(&self) -> ToolKind {
        self.1.kind()
    }

    fn offering(&self) -> watch::Receiver<Arc<ServerOffering>> {
        self.1.offering()
    }

    fn state(&self) -> watch::Receiver<ServerState> {
        self.1.state()
    }

    fn open(&self) -> BoxFuture<'_, Result<(), CallError>> {
        async {
            time::sleep(self.0).await;
            self.1.open().await
        }
        .boxed()
    }

    fn shut_down(&self) -> BoxFuture<'_, ()> {
        self.1.shut_down()
    }
}

/// The first tool list of servers with these delays, and the time it took in milliseconds.
async fn first_list(delays: &[u64]) -> (Vec<String>, u128) {
    let names = ["a", "b", "c", "d"];
    let mut builder = Runtime::builder().toolbox("t", "");
    for (name, delay) in names.into_iter().zip(delays) {
        builder = builder.provide(
            name,
            SlowServer(Duration::from_millis(*delay), LazyServer::new([echo_tool(name, "x")])),
        );
    }
    let runtime = builder.start().await.unwrap();
    let started = Instant::now();
    let (client, _) = connect(&gateway(&runtime, json!({})), Some("flat"), Era::Stateless).await;
    (tool_names(&client).await, started.elapsed().as_millis())
}

#[tokio::test(start_paused = true)]
async fn a_list_waits_for_servers_that_come_up_together_and_not_for_stragglers() {
    let never = 50_000;
    let cases: [(&[u64], &[&str], u128); 5] = [
        (&[300], &["a__x"], 300),
        (&[300, never, never, never], &["a__x"], 360),
        (&[1000, 1100, 1050, never], &["a__x", "b__x", "c__x"], 1300),
        (&[10, 2000], &["a__x"], 40),
        (&[never, never], &[], 5000),
    ];
    for (delays, expected, at_most) in cases {
        let (list, elapsed) = first_list(delays).await;
        assert_eq!(list, expected, "{delays:?}");
        assert!(elapsed <= at_most, "{delays:?}: {elapsed} ms");
    }
}
