//! What a server sees of a request that is given up, and of a link that ends.

use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::scene::{
    accepted, begin, dial, endless, event, loss, result, serve, soon, start, stateless, status,
};

/// Hands out one end of a channel, which closes when the other is dropped.
type Guards = mpsc::UnboundedReceiver<oneshot::Receiver<()>>;

/// A server that never answers a call, but begins a stream and tells when that is closed.
async fn silent() -> (super::scene::Site, Guards) {
    let (opened, guards) = mpsc::unbounded_channel();
    let site = serve(move |seen| {
        let opened = opened.clone();
        async move {
            match seen.what().as_str() {
                "initialize" => result(&seen, &json!({"protocolVersion": "2025-11-25"})),
                "GET" => status(405, ""),
                "tools/call" => {
                    let (guard, dropped) = oneshot::channel::<()>();
                    let _ = opened.send(dropped);
                    let notice = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {}});
                    endless(vec![event(&notice)], guard)
                }
                "slow" => {
                    let (_guard, dropped) = oneshot::channel::<()>();
                    let _ = opened.send(dropped);
                    std::future::pending().await
                }
                _ => accepted(),
            }
        }
    })
    .await;
    (site, guards)
}

#[tokio::test]
async fn a_stateless_request_is_cancelled_by_closing_its_stream() {
    for method in ["tools/call", "slow"] {
        let (mut site, mut guards) = silent().await;
        let connection = dial(&site.url);
        let exchange = start(&connection, method, stateless()).await;
        let dropped = soon(guards.recv()).await.unwrap();
        assert_eq!(site.next().await.what(), method);
        drop(exchange);
        assert!(soon(dropped).await.is_err());
        assert!(site.seen.try_recv().is_err());
    }
}

#[tokio::test]
async fn a_request_of_a_session_is_cancelled_by_a_notification() {
    let (mut site, mut guards) = silent().await;
    let connection = dial(&site.url);
    begin(&connection).await;
    let mut exchange = start(&connection, "tools/call", json!({})).await;
    let id = exchange.id();
    soon(exchange.next()).await;
    let dropped = soon(guards.recv()).await.unwrap();
    drop(exchange);
    let cancelled = loop {
        let seen = site.next().await;
        if seen.what() == "notifications/cancelled" {
            break seen;
        }
    };
    assert_eq!(cancelled.body["params"]["requestId"], json!(id));
    assert_eq!(cancelled.header("mcp-protocol-version"), Some("2025-11-25"));
    assert!(soon(dropped).await.is_err());
}

#[tokio::test]
async fn a_session_that_is_only_beginning_is_not_cancelled() {
    let mut site = serve(|_| std::future::pending()).await;
    let connection = dial(&site.url);
    let exchange = start(&connection, "initialize", json!({})).await;
    site.next().await;
    drop(exchange);
    // What comes next is the next request, not a cancellation.
    let _exchange = start(&connection, "ping", stateless()).await;
    assert_eq!(site.next().await.what(), "ping");
}

#[tokio::test]
async fn dropping_the_connection_cancels_and_says_good_bye() {
    let (mut site, mut guards) = silent().await;
    let connection = dial(&site.url);
    let exchange = start(&connection, "tools/call", json!({})).await;
    let dropped = soon(guards.recv()).await.unwrap();
    assert_eq!(site.next().await.what(), "tools/call");
    drop((connection, exchange));
    assert_eq!(site.next().await.what(), "notifications/cancelled");
    assert!(soon(dropped).await.is_err());
}

#[tokio::test]
async fn a_server_that_is_not_there_loses_the_request_and_not_the_link() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/?key=secret", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let connection = dial(&url);
    for _ in 0..2 {
        let error = loss(&connection, "ping", json!({})).await.to_string();
        assert!(error.starts_with("the server cannot be reached: "), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
    assert!(!connection.is_closed());
}
