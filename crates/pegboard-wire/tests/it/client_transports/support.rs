//! Test support: a scripted server on one side, a connection on the other.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::Response;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream;
use http::{HeaderMap, Method, StatusCode};
use pegboard_wire::http::client::{self, HttpOptions};
use pegboard_wire::http::sse::{self, SseEvent};
use pegboard_wire::transport::{TransportError, TransportHandle};
use pegboard_wire::{
    Connection, ConnectionLimits, Id, InboundHandler, InboundRequest, Notification, PendingRequest, RawJson,
    RequestError, RpcError,
};
use reqwest::Url;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time;
use tokio_util::task::AbortOnDropHandle;

/// A request received by a server.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    pub(crate) peer: SocketAddr,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Returns the JSON-RPC method, or the HTTP method if there is none.
    pub(crate) fn method_name(&self) -> String {
        self.body["method"].as_str().map_or_else(|| self.method.to_string(), str::to_owned)
    }
}

/// A scripted server and its received requests, in order.
pub(crate) struct ScriptedServer {
    pub(crate) url: Url,
    pub(crate) seen: mpsc::UnboundedReceiver<ReceivedRequest>,
}

impl ScriptedServer {
    pub(crate) async fn next(&mut self) -> ReceivedRequest {
        with_timeout(self.seen.recv()).await.unwrap()
    }
}

/// Starts a server that answers every request with `script`.
pub(crate) async fn serve<S, F>(script: S) -> ScriptedServer
where
    S: Fn(ReceivedRequest) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/mcp", listener.local_addr().unwrap())).unwrap();
    let (log, seen) = mpsc::unbounded_channel();
    let handler = move |ConnectInfo(peer): ConnectInfo<SocketAddr>, request: http::Request<Body>| async move {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let path = head.uri.path().to_owned();
        let received = ReceivedRequest { method: head.method, path, headers: head.headers, body, peer };
        let _ = log.send(received.clone());
        script(received).await
    };
    let app = Router::new().fallback(handler).into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    ScriptedServer { url, seen }
}

/// Starts a server that reads a request and then passes the socket to `script`.
pub(crate) async fn serve_socket<S, F>(script: S) -> Url
where
    S: Fn(TcpStream) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/mcp", listener.local_addr().unwrap())).unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !is_whole(&request) && socket.read_buf(&mut request).await.is_ok_and(|n_read| n_read > 0) {}
            tokio::spawn(script(socket));
        }
    });
    url
}

/// Returns `true` if a client sends nothing more before it waits: after a JSON POST, a GET, or the beginning
/// of TLS.
fn is_whole(request: &[u8]) -> bool {
    match request.first() {
        None => false,
        Some(b'P') => request.ends_with(b"}"),
        Some(b'G') => request.ends_with(b"\r\n\r\n"),
        Some(_) => true,
    }
}

/// Starts a server that writes these bytes and closes the connection.
pub(crate) async fn serve_bytes(bytes: &'static str) -> Url {
    serve_socket(move |mut socket| async move {
        socket.write_all(bytes.as_bytes()).await.unwrap();
        socket.shutdown().await.unwrap();
    })
    .await
}

pub(crate) fn status(status: u16, body: impl Into<Body>) -> Response {
    Response::builder().status(status).body(body.into()).unwrap()
}

pub(crate) fn accepted() -> Response {
    status(StatusCode::ACCEPTED.as_u16(), "")
}

pub(crate) fn json(value: &Value) -> Response {
    response_of_type("application/json", value.to_string())
}

pub(crate) fn response_of_type(content_type: &str, body: impl Into<Body>) -> Response {
    Response::builder().header("content-type", content_type).body(body.into()).unwrap()
}

/// Returns a response with this result for any request.
pub(crate) fn result(seen: &ReceivedRequest, result: &Value) -> Response {
    json(&answer(seen, result))
}

pub(crate) fn answer(seen: &ReceivedRequest, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result})
}

pub(crate) fn event(value: &Value) -> Bytes {
    sse::encode(&SseEvent::message(value.to_string()))
}

/// Returns a stream of these events that ends after them.
pub(crate) fn events(events: &[Bytes]) -> Response {
    response_of_type("text/event-stream", events.concat())
}

/// Returns a stream that stays open after these events until the client closes it, which drops `guard`.
pub(crate) fn open_ended_stream<G: Send + 'static>(events: Vec<Bytes>, guard: G) -> Response {
    let body = stream::unfold((events.into_iter(), guard), |(mut events, guard)| async move {
        match events.next() {
            Some(event) => Some((Ok::<_, Infallible>(event), (events, guard))),
            None => std::future::pending().await,
        }
    });
    response_of_type("text/event-stream", Body::from_stream(body))
}

/// A message that the server initiated: method, parameters, and the related request.
pub(crate) type InboundMessage = (String, Value, Option<Id>);

struct RecordingHandler(mpsc::UnboundedSender<InboundMessage>);

impl RecordingHandler {
    fn record(&self, method: &str, params: Option<&RawJson>, related_request: Option<Id>) {
        let params = params.map(RawJson::to_value).unwrap_or_default();
        let _ = self.0.send((method.to_owned(), params, related_request));
    }
}

impl InboundHandler for RecordingHandler {
    fn request(&self, inbound: InboundRequest) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        self.record(&inbound.request.method, inbound.request.params.as_ref(), inbound.related_request);
        async { Ok(RawJson::of(&json!({"heard": true}))) }.boxed()
    }

    fn notification(&self, notification: Notification, related_request: Option<Id>) {
        self.record(&notification.method, notification.params.as_ref(), related_request);
    }
}

/// Opens a connection, and returns it with the messages that the server initiates.
pub(crate) fn open(transport: TransportHandle) -> (Connection, mpsc::UnboundedReceiver<InboundMessage>) {
    let (sender, inbound) = mpsc::unbounded_channel();
    (Connection::open(transport, Arc::new(RecordingHandler(sender)), ConnectionLimits::default()), inbound)
}

pub(crate) fn options(url: &Url) -> HttpOptions {
    HttpOptions::new(url.clone())
}

pub(crate) fn open_connection(url: &Url) -> Connection {
    open(client::connect(options(url)).unwrap()).0
}

/// Starts a session.
pub(crate) async fn initialize(connection: &Connection) {
    call(connection, "initialize", json!({"protocolVersion": "2025-11-25"})).await.unwrap();
    send_notification(connection, "notifications/initialized").await;
}

pub(crate) async fn send_notification(connection: &Connection, method: &str) {
    connection.notify(Notification::new(method, None), None).await.unwrap();
}

pub(crate) async fn send_request(connection: &Connection, method: &str, params: Value) -> PendingRequest {
    connection.request(method, Some(RawJson::of(&params))).await.unwrap()
}

/// Sends a request that a task drives. Dropping the handle drops the request.
pub(crate) async fn start_request(
    connection: &Connection,
    method: &str,
    params: Value,
) -> AbortOnDropHandle<Result<RawJson, RequestError>> {
    let request = send_request(connection, method, params).await;
    AbortOnDropHandle::new(tokio::spawn(request.response()))
}

pub(crate) async fn call(
    connection: &Connection,
    method: &str,
    params: Value,
) -> Result<Value, RequestError> {
    let request = send_request(connection, method, params).await;
    with_timeout(request.response()).await.map(|result| result.to_value())
}

/// Returns the transport error of a request that must fail.
pub(crate) async fn transport_error(connection: &Connection, method: &str, params: Value) -> TransportError {
    match call(connection, method, params).await {
        Err(RequestError::Transport(error)) => error,
        other => panic!("not a transport error: {other:?}"),
    }
}

/// Returns parameters of the stateless era.
pub(crate) fn stateless() -> Value {
    json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}})
}

/// Awaits a future within the time limit of a test.
pub(crate) async fn with_timeout<F: Future>(future: F) -> F::Output {
    time::timeout(Duration::from_secs(20), future).await.expect("it took too long")
}
