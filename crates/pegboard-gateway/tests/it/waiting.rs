//! How long a list waits for servers.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::error::CallError;
use pegboard_core::provider::{Offer, Provider, ServerState, ToolKind};
use pegboard_runtime::Runtime;
use pegboard_wire::client::Era;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{self, Duration, Instant};

use crate::stage::{Lazy, connect, gateway, listed, tells};

/// A server that takes so long to be ready.
struct After(Duration, Lazy);

impl Provider for After {
    fn kind(&self) -> ToolKind {
        self.1.kind()
    }

    fn offer(&self) -> watch::Receiver<Arc<Offer>> {
        self.1.offer()
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

/// What is listed first of servers that take so long, and how long that takes, in milliseconds.
async fn first_list(delays: &[u64]) -> (Vec<String>, u128) {
    let names = ["a", "b", "c", "d"];
    let mut builder = Runtime::builder().toolbox("t", "");
    for (name, delay) in names.into_iter().zip(delays) {
        builder = builder.provide(name, After(Duration::from_millis(*delay), Lazy::new([tells(name, "x")])));
    }
    let runtime = builder.start().await.unwrap();
    let begun = Instant::now();
    let (client, _) = connect(&gateway(&runtime, json!({})), Some("flat"), Era::Stateless).await;
    (listed(&client).await, begun.elapsed().as_millis())
}

#[tokio::test(start_paused = true)]
async fn a_list_waits_for_servers_that_come_up_together_and_not_for_stragglers() {
    let hangs = 50_000;
    let cases: [(&[u64], &[&str], u128); 5] = [
        (&[300], &["a__x"], 300),
        (&[300, hangs, hangs, hangs], &["a__x"], 360),
        (&[1000, 1100, 1050, hangs], &["a__x", "b__x", "c__x"], 1300),
        (&[10, 2000], &["a__x"], 40),
        (&[hangs, hangs], &[], 5000),
    ];
    for (delays, expected, at_most) in cases {
        let (list, took) = first_list(delays).await;
        assert_eq!(list, expected, "{delays:?}");
        assert!(took <= at_most, "{delays:?}: {took} ms");
    }
}
