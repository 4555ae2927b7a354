//! The wait of a list for servers.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::error::CallError;
use pegboard_core::provider::{Provider, ServerOffering, ServerState, ToolKind};
use pegboard_core::settings::RuntimeSettings;
use pegboard_gateway::Gateway;
use pegboard_runtime::Runtime;
use pegboard_wire::client::{Era, McpClient};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{self, Duration, Instant};

use crate::fixture::{LazyServer, connect, connect_as, echo_tool, gateway, tool_names};

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

/// A server that never starts within a test.
const NEVER: u64 = 50_000;

/// Starts a gateway with servers of these delays; one that takes no time cannot start.
async fn slow_gateway(settings: RuntimeSettings, delays: &[u64]) -> Gateway {
    let mut builder = Runtime::builder().settings(settings).toolbox("t", "");
    for (name, delay) in ["a", "b", "c", "d"].into_iter().zip(delays) {
        let server = match delay {
            0 => LazyServer::broken("no key"),
            _ => LazyServer::new([echo_tool(name, "x")]),
        };
        builder = builder.provide(name, SlowServer(Duration::from_millis(*delay), server));
    }
    gateway(&builder.start().await.unwrap(), json!({}))
}

/// Returns a tool list, and the time it took in milliseconds.
async fn timed_list(client: &McpClient) -> (Vec<String>, u128) {
    let started_at = Instant::now();
    (tool_names(client).await, started_at.elapsed().as_millis())
}

#[tokio::test(start_paused = true)]
async fn a_first_list_waits_for_every_server_until_the_limit() {
    let cases: [(&[u64], &[&str], u128); 8] = [
        (&[300], &["a__x"], 300),
        (&[10, 2000], &["a__x", "b__x"], 2000),
        (&[1000, 9900, 1050], &["a__x", "b__x", "c__x"], 9900),
        // The limit is that of the list: the handshake before it has its own.
        (&[10_200], &["a__x"], 10_200),
        // Servers that have failed are not waited for.
        (&[300, 0], &["a__x"], 300),
        (&[0, 0], &[], 10),
        (&[300, NEVER, NEVER, NEVER], &["a__x"], 10_800),
        (&[NEVER, NEVER], &[], 20_000),
    ];
    for era in [Era::Session, Era::Stateless] {
        for (delays, expected, at_most) in cases {
            let gateway = slow_gateway(RuntimeSettings::default(), delays).await;
            let started_at = Instant::now();
            let (client, _) = connect(&gateway, Some("flat"), era).await;
            assert_eq!(tool_names(&client).await, expected, "{delays:?}");
            let elapsed = started_at.elapsed().as_millis();
            assert!(elapsed <= at_most + 50, "{delays:?}: {elapsed} ms");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_delays_a_list_once() {
    let gateway = slow_gateway(RuntimeSettings::default(), &[10, NEVER]).await;
    let (client, _) = connect(&gateway, Some("flat"), Era::Stateless).await;
    let (list, _) = timed_list(&client).await;
    assert_eq!(list, ["a__x"]);
    assert_eq!(timed_list(&client).await, (list.clone(), 0));
    // Not even for another client, profile or principal.
    let others = [
        connect(&gateway, Some("flat"), Era::Session).await,
        connect(&gateway, Some("hybrid"), Era::Stateless).await,
        connect(&gateway.for_principal("ann"), Some("flat"), Era::Stateless).await,
    ];
    for (client, _) in others {
        assert_eq!(timed_list(&client).await.1, 0);
    }
    // The start goes on, and is announced.
    time::sleep(Duration::from_millis(NEVER)).await;
    assert_eq!(timed_list(&client).await.0, ["a__x", "b__x"]);
}

#[tokio::test(start_paused = true)]
async fn the_limit_is_a_setting_and_less_for_clients_with_less_time() {
    let limited = |seconds| RuntimeSettings {
        list_timeout: Duration::from_secs(seconds).into(),
        ..RuntimeSettings::default()
    };
    for (settings, client, expected) in
        [(limited(3), "test", 6000), (limited(0), "test", 0), (limited(10), "codex-mcp-client", 7000)]
    {
        let gateway = slow_gateway(settings, &[NEVER]).await;
        let started_at = Instant::now();
        let (client, _) = connect_as(&gateway, Some("flat"), Era::Session, client, json!({})).await;
        tool_names(&client).await;
        assert_eq!(started_at.elapsed().as_millis(), expected);
    }
}

/// (delays of servers, servers with instructions that the first session gets, milliseconds of its handshake)
type HandshakeCase = (&'static [u64], &'static [&'static str], u128);

#[tokio::test(start_paused = true)]
async fn the_first_session_gets_the_instructions_of_servers() {
    let cases: [HandshakeCase; 6] = [
        (&[300], &["a"], 300),
        (&[9000], &["a"], 9000),
        (&[10, 700], &["a", "b"], 700),
        // A server that can be used is not kept waiting for the others.
        (&[10, NEVER], &["a"], 800),
        (&[3000, NEVER], &["a"], 3000),
        (&[NEVER], &[], 10_000),
    ];
    for (delays, expected, at_most) in cases {
        let gateway = slow_gateway(RuntimeSettings::default(), delays).await;
        let started_at = Instant::now();
        let (client, _) = connect(&gateway, Some("flat"), Era::Session).await;
        let elapsed = started_at.elapsed().as_millis();
        assert!(elapsed <= at_most + 50, "{delays:?}: {elapsed} ms");
        let instructions = client.server().instructions.as_deref().unwrap_or_default();
        let names = ["a", "b"].into_iter().filter(|name| instructions.contains(&format!("#### {name}")));
        assert_eq!(names.collect::<Vec<_>>(), expected, "{delays:?}");
    }
}
