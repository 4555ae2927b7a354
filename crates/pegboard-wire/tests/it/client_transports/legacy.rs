//! The HTTP+SSE transport of revision 2024-11-05.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use pegboard_wire::http::client::HttpOptions;
use pegboard_wire::http::legacy_client;
use pegboard_wire::transport::TransportError;
use serde_json::json;
use tokio::sync::mpsc;

use super::support::{
    ScriptedServer, accepted, answer, call, event, events, open, open_ended_stream, options,
    response_of_type, send_notification, send_request, serve, status, transport_error, with_timeout,
};

/// A server that answers `echo` on its stream, `large`, `large-last` and `nan` with something else, rejects `refuse` and closes the stream on `end`.
async fn serve_echo(endpoint: &'static str) -> ScriptedServer {
    let stream: Arc<Mutex<Option<mpsc::UnboundedSender<Bytes>>>> = Arc::default();
    serve(move |seen| {
        let stream = Arc::clone(&stream);
        async move {
            let mut stream = stream.lock().unwrap();
            match seen.method_name().as_str() {
                "GET" => {
                    let (sender, later) = mpsc::unbounded_channel();
                    *stream = Some(sender);
                    let first = Bytes::from(format!(": hi\n\nevent: endpoint\ndata: {endpoint}\n\n"));
                    return streaming(first, later);
                }
                "echo" => {
                    let notice = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {}});
                    let sender = stream.as_ref().unwrap();
                    sender.send(event(&notice)).unwrap();
                    sender.send(event(&answer(&seen, &json!({"path": seen.path})))).unwrap();
                }
                "large" => {
                    let large = answer(&seen, &json!({"text": "x".repeat(20_000)}));
                    stream.as_ref().unwrap().send(event(&large)).unwrap();
                }
                "large-last" => {
                    let (text, id) = ("x".repeat(20_000), &seen.body["id"]);
                    let last = format!("data: {{\"result\":{{\"text\":\"{text}\"}},\"id\":{id}}}\n\n");
                    stream.as_ref().unwrap().send(last.into()).unwrap();
                }
                "nan" => {
                    let broken = format!(
                        "data: {{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":NaN}}\n\n",
                        seen.body["id"]
                    );
                    stream.as_ref().unwrap().send(broken.into()).unwrap();
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
    let later = stream::unfold(later, |mut later| async { later.recv().await.map(|event| (event, later)) });
    let body = stream::iter([first]).chain(later).map(Ok::<_, Infallible>);
    response_of_type("text/event-stream", Body::from_stream(body))
}

fn open_connection(server: &ScriptedServer) -> pegboard_wire::Connection {
    open(legacy_client::connect(options(&server.url)).unwrap()).0
}

#[tokio::test]
async fn responses_arrive_on_the_event_stream() {
    let mut server = serve_echo("/post?session=1").await;
    let (connection, mut inbound) = open(legacy_client::connect(options(&server.url)).unwrap());
    assert_eq!(call(&connection, "echo", json!({})).await, Ok(json!({"path": "/post"})));
    assert_eq!(with_timeout(inbound.recv()).await.unwrap().2, None);
    assert_eq!(server.next().await.method_name(), "GET");
    send_notification(&connection, "notifications/initialized").await;
    call(&connection, "echo", json!({})).await.unwrap();
    for what in ["echo", "notifications/initialized", "echo"] {
        assert_eq!(server.next().await.method_name(), what);
    }
}

#[tokio::test]
async fn a_rejected_request_fails() {
    let server = serve_echo("post").await;
    let error = transport_error(&open_connection(&server), "refuse", json!({})).await;
    assert_eq!(error, TransportError::Status { status: 400, body: "no".into(), authenticate: None });
}

#[tokio::test]
async fn a_response_that_cannot_be_read_fails_its_request_at_once() {
    let server = serve_echo("post").await;
    let small = HttpOptions { max_body: 10_000, ..options(&server.url) };
    let (connection, _inbound) = open(legacy_client::connect(small).unwrap());
    let other = send_request(&connection, "wait", json!({})).await;
    let large = "the response exceeds 10000 bytes";
    for (method, expected) in [("large", large), ("large-last", large), ("nan", "not JSON")] {
        let error = transport_error(&connection, method, json!({})).await.to_string();
        assert!(error.starts_with("protocol violation: ") && error.contains(expected), "{error}");
    }
    assert_eq!(call(&connection, "echo", json!({})).await, Ok(json!({"path": "/post"})));
    drop(other);
}

#[tokio::test]
async fn a_request_is_cancelled_by_a_notification() {
    let mut server = serve_echo("post").await;
    let connection = open_connection(&server);
    let request = send_request(&connection, "wait", json!({})).await;
    server.next().await;
    server.next().await;
    drop((request, connection));
    assert_eq!(server.next().await.body["params"]["requestId"], json!(1));
}

#[tokio::test]
async fn the_connection_ends_with_the_stream() {
    let server = serve_echo("post").await;
    let connection = open_connection(&server);
    assert_eq!(transport_error(&connection, "end", json!({})).await, TransportError::Closed);
    assert_eq!(with_timeout(connection.closed()).await, TransportError::Closed);
}

#[tokio::test]
async fn an_endpoint_on_another_origin_is_rejected() {
    let server = serve_echo("http://127.0.0.1:9/post").await;
    let expected = "protocol violation: the server sent an endpoint on another origin";
    assert_eq!(with_timeout(open_connection(&server).closed()).await.to_string(), expected);
}

#[tokio::test]
async fn a_server_without_a_stream_closes_the_connection() {
    let server = serve(|_| async { status(404, "no") }).await;
    let expected = TransportError::Status { status: 404, body: "no".into(), authenticate: None };
    assert_eq!(with_timeout(open_connection(&server).closed()).await, expected);

    let server = serve(|_| async { response_of_type("application/json", "{}") }).await;
    let expected = "protocol violation: the server did not answer with an event stream";
    assert_eq!(with_timeout(open_connection(&server).closed()).await.to_string(), expected);
}

#[tokio::test]
async fn a_stream_without_an_endpoint_closes_the_connection() {
    let server = serve(|_| async { open_ended_stream(vec![": nothing\n\n".into()], ()) }).await;
    let expected = "the server sent no endpoint within 0.2 s";
    let brief = HttpOptions { connect_timeout: Duration::from_millis(200), ..options(&server.url) };
    let (connection, _inbound) = open(legacy_client::connect(brief).unwrap());
    assert_eq!(with_timeout(connection.closed()).await.to_string(), expected);

    let server = serve(|_| async { events(&[]) }).await;
    assert_eq!(with_timeout(open_connection(&server).closed()).await, TransportError::Closed);
}
