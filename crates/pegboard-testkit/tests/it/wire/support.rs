//! Clients, servers and handlers shared by the tests.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use pegboard_testkit::fixture::Fixture;
use pegboard_testkit::serve;
use pegboard_wire::client::{ClientOptions, Era, McpClient};
use pegboard_wire::http::client::HttpOptions;
use pegboard_wire::http::server::HttpServerOptions;
use pegboard_wire::server::ServiceServer;
use pegboard_wire::stdio::line_transport;
use pegboard_wire::transport::InputLimits;
use pegboard_wire::transport::TransportHandle;
use pegboard_wire::{Id, InboundHandler, InboundRequest, Notification, RawJson, RpcError};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// A handler that answers every input request and records notifications.
#[derive(Default)]
pub(crate) struct AnsweringHandler {
    pub(crate) notifications: Mutex<Vec<String>>,
    pub(crate) requests: Mutex<Vec<String>>,
}

impl InboundHandler for AnsweringHandler {
    fn request(&self, inbound: InboundRequest) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        let method = inbound.request.method.to_string();
        self.requests.lock().unwrap().push(method.clone());
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

    fn notification(&self, notification: Notification, _related_request: Option<Id>) {
        self.notifications.lock().unwrap().push(notification.method.to_string());
    }
}

pub(crate) fn options(era: Option<Era>) -> ClientOptions {
    let capabilities = json!({"elicitation": {}, "sampling": {}, "roots": {}});
    ClientOptions { era, capabilities: RawJson::from(capabilities), ..ClientOptions::new("test", "1") }
}

/// Returns a transport to a new fixture, over a pipe.
pub(crate) fn pipe() -> TransportHandle {
    pipe_to(ServiceServer::new(Arc::new(Fixture::new())))
}

pub(crate) fn pipe_to(server: ServiceServer) -> TransportHandle {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (far_reader, far_writer) = tokio::io::split(far);
    let (far_link, _) = line_transport(far_reader, far_writer, InputLimits::server());
    tokio::spawn(async move { server.serve(far_link).await });
    let (reader, writer) = tokio::io::split(near);
    line_transport(reader, writer, InputLimits::client()).0
}

/// Starts a fixture behind HTTP and returns its URL.
pub(crate) async fn serve_http(options: HttpServerOptions) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = serve::all_transports(&ServiceServer::new(Arc::new(Fixture::new())), &options);
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}/mcp")
}

/// Returns a transport to a new fixture, over HTTP.
pub(crate) async fn http() -> TransportHandle {
    let url = serve_http(HttpServerOptions::default()).await;
    pegboard_wire::http::client::connect(HttpOptions::new(url.parse().unwrap())).unwrap()
}

/// Returns a transport to a new fixture, over WebSocket.
pub(crate) async fn websocket() -> TransportHandle {
    let url =
        serve_http(HttpServerOptions::default()).await.replace("http://", "ws://").replace("/mcp", "/ws");
    let limits = pegboard_wire::transport::InputLimits::client();
    pegboard_wire::websocket::client::connect(&url.parse().unwrap(), HeaderMap::new(), limits).await.unwrap()
}

/// Returns a transport to a new fixture, over HTTP+SSE.
pub(crate) async fn legacy() -> TransportHandle {
    let url = serve_http(HttpServerOptions::default()).await.replace("/mcp", "/legacy/sse");
    pegboard_wire::http::legacy_client::connect(HttpOptions::new(url.parse().unwrap())).unwrap()
}

pub(crate) async fn connect(
    transport: TransportHandle,
    era: Option<Era>,
) -> (McpClient, Arc<AnsweringHandler>) {
    let handler = Arc::new(AnsweringHandler::default());
    (McpClient::connect(transport, handler.clone(), options(era)).await.unwrap(), handler)
}

/// Calls a tool and returns the text of its result.
pub(crate) async fn call(client: &McpClient, tool: &str, arguments: Value) -> String {
    let params = RawJson::from(json!({"name": tool, "arguments": arguments}));
    let result = client.call("tools/call", Some(params)).await.unwrap().to_value();
    result["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}
