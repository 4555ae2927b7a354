//! Clients, servers and receivers that the tests share.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use pegboard_testkit::fixture::Fixture;
use pegboard_testkit::serve;
use pegboard_wire::client::{Client, ClientOptions, Era};
use pegboard_wire::http::client::HttpOptions;
use pegboard_wire::http::server::HttpServerOptions;
use pegboard_wire::link::InputLimits;
use pegboard_wire::link::Link;
use pegboard_wire::server::Server;
use pegboard_wire::stdio::lines;
use pegboard_wire::{Id, Inbound, Notification, RawJson, Receiver, RpcError};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// A client that answers every question, and remembers what it hears.
#[derive(Default)]
pub(crate) struct Answering {
    pub(crate) heard: Mutex<Vec<String>>,
    pub(crate) asked: Mutex<Vec<String>>,
}

impl Receiver for Answering {
    fn request(&self, inbound: Inbound) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        let method = inbound.request.method.to_string();
        self.asked.lock().unwrap().push(method.clone());
        let answer = match method.as_str() {
            "elicitation/create" => {
                json!({"action": "accept", "content": {"name": "Ada", "username": "ada", "email": "a@b.c", "ok": true, "color": "green"}})
            }
            "sampling/createMessage" => {
                json!({"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "test"})
            }
            "roots/list" => json!({"roots": [{"uri": "file:///home"}]}),
            _ => return std::future::ready(Err(RpcError::method_not_found(&method))).boxed(),
        };
        std::future::ready(Ok(RawJson::from(answer))).boxed()
    }

    fn notification(&self, notification: Notification, _about: Option<Id>) {
        self.heard.lock().unwrap().push(notification.method.to_string());
    }
}

pub(crate) fn options(era: Option<Era>) -> ClientOptions {
    let capabilities = json!({"elicitation": {}, "sampling": {}, "roots": {}});
    ClientOptions { era, capabilities: RawJson::from(capabilities), ..ClientOptions::new("test", "1") }
}

/// A link to a fixture of its own, over a pipe.
pub(crate) fn pipe() -> Link {
    pipe_to(Server::new(Arc::new(Fixture::new())))
}

pub(crate) fn pipe_to(server: Server) -> Link {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (far_reader, far_writer) = tokio::io::split(far);
    let (far_link, _) = lines(far_reader, far_writer, InputLimits::server());
    tokio::spawn(async move { server.serve(far_link).await });
    let (reader, writer) = tokio::io::split(near);
    lines(reader, writer, InputLimits::client()).0
}

/// The address of a fixture behind HTTP.
pub(crate) async fn serve_http(options: HttpServerOptions) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = serve::everywhere(&Server::new(Arc::new(Fixture::new())), &options);
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}/mcp")
}

/// A link to a fixture of its own, over HTTP.
pub(crate) async fn http() -> Link {
    let url = serve_http(HttpServerOptions::default()).await;
    pegboard_wire::http::client::connect(HttpOptions::new(url.parse().unwrap())).unwrap()
}

/// A link to a fixture of its own, over WebSocket.
pub(crate) async fn websocket() -> Link {
    let url =
        serve_http(HttpServerOptions::default()).await.replace("http://", "ws://").replace("/mcp", "/ws");
    let limits = pegboard_wire::link::InputLimits::client();
    pegboard_wire::websocket::client::connect(&url.parse().unwrap(), HeaderMap::new(), limits).await.unwrap()
}

/// A link to a fixture of its own, over HTTP+SSE.
pub(crate) async fn legacy() -> Link {
    let url = serve_http(HttpServerOptions::default()).await.replace("/mcp", "/legacy/sse");
    pegboard_wire::http::legacy_client::connect(HttpOptions::new(url.parse().unwrap())).unwrap()
}

pub(crate) async fn connect(link: Link, era: Option<Era>) -> (Client, Arc<Answering>) {
    let receiver = Arc::new(Answering::default());
    (Client::connect(link, receiver.clone(), options(era)).await.unwrap(), receiver)
}

/// Calls a tool and gives the text of its answer.
pub(crate) async fn call(client: &Client, tool: &str, arguments: Value) -> String {
    let params = RawJson::from(json!({"name": tool, "arguments": arguments}));
    let result = client.call("tools/call", Some(params)).await.unwrap().to_value();
    result["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}
