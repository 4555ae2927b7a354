//! HTTP+SSE of 2024-11-05.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use pegboard_wire::http::client::HttpOptions;
use pegboard_wire::http::legacy_client;
use pegboard_wire::link::TransportError;
use serde_json::json;
use tokio::sync::mpsc;

use super::scene::{
    Site, accepted, answer, ask, endless, event, events, loss, open, options, serve, soon, start, status,
    tell, typed,
};

/// A server that answers `echo` on its stream, refuses `refuse` and ends on `end`.
async fn echoing(endpoint: &'static str) -> Site {
    let stream: Arc<Mutex<Option<mpsc::UnboundedSender<Bytes>>>> = Arc::default();
    serve(move |seen| {
        let stream = Arc::clone(&stream);
        async move {
            let mut stream = stream.lock().unwrap();
            match seen.what().as_str() {
                "GET" => {
                    let (said, later) = mpsc::unbounded_channel();
                    *stream = Some(said);
                    let first = Bytes::from(format!(": hi\n\nevent: endpoint\ndata: {endpoint}\n\n"));
                    return streaming(first, later);
                }
                "echo" => {
                    let notice = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {}});
                    let said = stream.as_ref().unwrap();
                    said.send(event(&notice)).unwrap();
                    said.send(event(&answer(&seen, &json!({"path": seen.path})))).unwrap();
                }
                "refuse" => return status(400, "no"),
                "end" => *stream = None,
                _ => {}
            }
            accepted()
        }
    })
    .await
}

fn streaming(first: Bytes, later: mpsc::UnboundedReceiver<Bytes>) -> Response {
    let later = stream::unfold(later, |mut later| async { later.recv().await.map(|said| (said, later)) });
    let body = stream::iter([first]).chain(later).map(Ok::<_, Infallible>);
    typed("text/event-stream", Body::from_stream(body))
}

fn dial(site: &Site) -> pegboard_wire::Connection {
    open(legacy_client::connect(options(&site.url)).unwrap()).0
}

#[tokio::test]
async fn answers_come_on_the_one_stream() {
    let mut site = echoing("/post?session=1").await;
    let (connection, mut told) = open(legacy_client::connect(options(&site.url)).unwrap());
    assert_eq!(ask(&connection, "echo", json!({})).await, Ok(json!({"path": "/post"})));
    assert_eq!(soon(told.recv()).await.unwrap().2, None);
    assert_eq!(site.next().await.what(), "GET");
    tell(&connection, "notifications/initialized").await;
    ask(&connection, "echo", json!({})).await.unwrap();
    for what in ["echo", "notifications/initialized", "echo"] {
        assert_eq!(site.next().await.what(), what);
    }
}

#[tokio::test]
async fn a_request_that_is_refused_is_lost() {
    let site = echoing("post").await;
    let error = loss(&dial(&site), "refuse", json!({})).await;
    assert_eq!(error, TransportError::Status { status: 400, body: "no".into(), authenticate: None });
}

#[tokio::test]
async fn a_request_is_cancelled_by_a_notification() {
    let mut site = echoing("post").await;
    let connection = dial(&site);
    let exchange = start(&connection, "wait", json!({})).await;
    site.next().await;
    site.next().await;
    drop((exchange, connection));
    assert_eq!(site.next().await.body["params"]["requestId"], json!(1));
}

#[tokio::test]
async fn the_connection_ends_with_the_stream() {
    let site = echoing("post").await;
    let connection = dial(&site);
    assert_eq!(loss(&connection, "end", json!({})).await, TransportError::Closed);
    assert_eq!(soon(connection.closed()).await, TransportError::Closed);
}

#[tokio::test]
async fn an_endpoint_on_another_server_is_refused() {
    let site = echoing("http://127.0.0.1:9/post").await;
    let expected = "the peer broke the protocol: an endpoint is on another server than the one that names it";
    assert_eq!(soon(dial(&site).closed()).await.to_string(), expected);
}

#[tokio::test]
async fn a_server_without_a_stream_is_the_end() {
    let site = serve(|_| async { status(404, "no") }).await;
    let expected = TransportError::Status { status: 404, body: "no".into(), authenticate: None };
    assert_eq!(soon(dial(&site).closed()).await, expected);

    let site = serve(|_| async { typed("application/json", "{}") }).await;
    let expected = "the peer broke the protocol: the server's stream is no stream";
    assert_eq!(soon(dial(&site).closed()).await.to_string(), expected);
}

#[tokio::test]
async fn a_stream_that_names_no_endpoint_is_the_end() {
    let site = serve(|_| async { endless(vec![": nothing\n\n".into()], ()) }).await;
    let expected = "the server named no endpoint within 0.2 s";
    let brief = HttpOptions { connect_timeout: Duration::from_millis(200), ..options(&site.url) };
    let (connection, _told) = open(legacy_client::connect(brief).unwrap());
    assert_eq!(soon(connection.closed()).await.to_string(), expected);

    let site = serve(|_| async { events(&[]) }).await;
    assert_eq!(soon(dial(&site).closed()).await, TransportError::Closed);
}
