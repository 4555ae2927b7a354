//! The scene of these tests: a scripted server on one side, a connection on the other.

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
use pegboard_wire::link::{Link, TransportError};
use pegboard_wire::{
    Connection, Exchange, Failure, Id, Inbound, Limits, Notification, RawJson, Receiver, RpcError,
};
use reqwest::Url;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time;

/// What a server got.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    pub(crate) peer: SocketAddr,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The JSON-RPC method, or the HTTP one if there is none.
    pub(crate) fn what(&self) -> String {
        self.body["method"].as_str().map_or_else(|| self.method.to_string(), str::to_owned)
    }
}

/// A server, and what it got, in order.
pub(crate) struct Site {
    pub(crate) url: Url,
    pub(crate) seen: mpsc::UnboundedReceiver<Seen>,
}

impl Site {
    pub(crate) async fn next(&mut self) -> Seen {
        soon(self.seen.recv()).await.unwrap()
    }
}

/// A server that answers everything with `script`.
pub(crate) async fn serve<S, F>(script: S) -> Site
where
    S: Fn(Seen) -> F + Clone + Send + Sync + 'static,
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
        let it = Seen { method: head.method, path, headers: head.headers, body, peer };
        let _ = log.send(it.clone());
        script(it).await
    };
    let app = Router::new().fallback(handler).into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    Site { url, seen }
}

/// A server that reads a request and then does what `script` says with the socket.
pub(crate) async fn raw<S, F>(script: S) -> Url
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

/// Whether this is all that a client sends before it waits: a POST of JSON, a GET, or the beginning of TLS.
fn is_whole(request: &[u8]) -> bool {
    match request.first() {
        None => false,
        Some(b'P') => request.ends_with(b"}"),
        Some(b'G') => request.ends_with(b"\r\n\r\n"),
        Some(_) => true,
    }
}

/// A server that writes these bytes and hangs up.
pub(crate) async fn canned(bytes: &'static str) -> Url {
    raw(move |mut socket| async move {
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
    typed("application/json", value.to_string())
}

pub(crate) fn typed(content_type: &str, body: impl Into<Body>) -> Response {
    Response::builder().header("content-type", content_type).body(body.into()).unwrap()
}

/// The result of a request, whatever it was.
pub(crate) fn result(seen: &Seen, result: &Value) -> Response {
    json(&answer(seen, result))
}

pub(crate) fn answer(seen: &Seen, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result})
}

pub(crate) fn event(value: &Value) -> Bytes {
    sse::encode(&SseEvent::message(value.to_string()))
}

/// A stream of these events that ends after them.
pub(crate) fn events(events: &[Bytes]) -> Response {
    typed("text/event-stream", events.concat())
}

/// A stream that stays open after these events until the client closes it, which drops `guard`.
pub(crate) fn endless<G: Send + 'static>(events: Vec<Bytes>, guard: G) -> Response {
    let body = stream::unfold((events.into_iter(), guard), |(mut events, guard)| async move {
        match events.next() {
            Some(event) => Some((Ok::<_, Infallible>(event), (events, guard))),
            None => std::future::pending().await,
        }
    });
    typed("text/event-stream", Body::from_stream(body))
}

/// What the other side said on its own account, and about which request.
pub(crate) type Told = (String, Value, Option<Id>);

struct Ear(mpsc::UnboundedSender<Told>);

impl Ear {
    fn hear(&self, method: &str, params: Option<&RawJson>, about: Option<Id>) {
        let params = params.map(RawJson::to_value).unwrap_or_default();
        let _ = self.0.send((method.to_owned(), params, about));
    }
}

impl Receiver for Ear {
    fn request(&self, inbound: Inbound) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        self.hear(&inbound.request.method, inbound.request.params.as_ref(), inbound.about);
        async { Ok(RawJson::of(&json!({"heard": true}))) }.boxed()
    }

    fn notification(&self, notification: Notification, about: Option<Id>) {
        self.hear(&notification.method, notification.params.as_ref(), about);
    }
}

/// A connection, and what it hears.
pub(crate) fn open(link: Link) -> (Connection, mpsc::UnboundedReceiver<Told>) {
    let (ear, told) = mpsc::unbounded_channel();
    (Connection::open(link, Arc::new(Ear(ear)), Limits::default()), told)
}

pub(crate) fn options(url: &Url) -> HttpOptions {
    HttpOptions::new(url.clone())
}

pub(crate) fn dial(url: &Url) -> Connection {
    open(client::connect(options(url)).unwrap()).0
}

/// Begins a session.
pub(crate) async fn begin(connection: &Connection) {
    ask(connection, "initialize", json!({"protocolVersion": "2025-11-25"})).await.unwrap();
    tell(connection, "notifications/initialized").await;
}

pub(crate) async fn tell(connection: &Connection, method: &str) {
    connection.notify(Notification::new(method, None), None).await.unwrap();
}

pub(crate) async fn start(connection: &Connection, method: &str, params: Value) -> Exchange {
    connection.request(method, Some(RawJson::of(&params))).await.unwrap()
}

pub(crate) async fn ask(connection: &Connection, method: &str, params: Value) -> Result<Value, Failure> {
    let exchange = start(connection, method, params).await;
    soon(exchange.answer()).await.map(|result| result.to_value())
}

/// What a request that must be lost was lost to.
pub(crate) async fn loss(connection: &Connection, method: &str, params: Value) -> TransportError {
    match ask(connection, method, params).await {
        Err(Failure::Lost(error)) => error,
        other => panic!("not lost: {other:?}"),
    }
}

/// Parameters of the stateless era.
pub(crate) fn stateless() -> Value {
    json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}})
}

/// What happens within the time that a test has.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    time::timeout(Duration::from_secs(20), future).await.expect("it took too long")
}
