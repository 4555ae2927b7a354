//! A remote MCP server: an `echo`, an elicitation and an endless call, behind redirects and compression.

use std::future;
use std::io::Write;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, LOCATION};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware;
use axum::response::{AppendHeaders, Response};
use axum::routing::any;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use pegboard_wire::client::Era;
use pegboard_wire::era::Revision;
use pegboard_wire::http::server::HttpServerOptions;
use pegboard_wire::server::{McpService, ServerRequest, ServiceDescription, ServiceReply, ServiceServer};
use pegboard_wire::{RawJson, RpcError, http, websocket};
use serde_json::{Value, json};

/// Maximum size of a compressed response.
const MAX_COMPRESSED: usize = 1024 * 1024;

/// Returns a router with these paths: `/session` and `/stateless` serve one era each, `/mcp` both, `/ws` over
/// WebSocket, `/gzip` with compressed responses; `/307` and `/308` redirect to `/mcp`, and `/away` to
/// another origin.
pub fn router(away: &str) -> Router {
    let server = ServiceServer::new(Arc::new(RemoteService));
    let options = HttpServerOptions {
        allowed_hosts: ["localhost", "mcp.test"].map(str::to_owned).to_vec(),
        allows_addresses: true,
        ..HttpServerOptions::default()
    };
    let serve = |era: Era| http::server::endpoint(server.clone().serving_only(era), options.clone());
    let both = || http::server::endpoint(server.clone(), options.clone());
    let redirect = |status: StatusCode, location: &str| {
        let location = location.to_owned();
        any(async move || (status, AppendHeaders([(LOCATION, location)])))
    };
    Router::new()
        .nest_service("/session", serve(Era::Session))
        .nest_service("/stateless", serve(Era::Stateless))
        .nest_service("/mcp", both())
        .nest_service("/ws", websocket::server::endpoint(server.clone(), options.clone()))
        .nest_service("/gzip", both().layer(middleware::map_response(compress)))
        .route("/307", redirect(StatusCode::TEMPORARY_REDIRECT, "/mcp"))
        .route("/308", redirect(StatusCode::PERMANENT_REDIRECT, "/mcp"))
        .route("/away", redirect(StatusCode::TEMPORARY_REDIRECT, away))
}

/// Compresses a JSON response.
async fn compress(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    let is_json = parts.headers.get("content-type").is_some_and(|kind| kind == "application/json");
    if !is_json {
        return Response::from_parts(parts, body);
    }
    let body = to_bytes(body, MAX_COMPRESSED).await.expect("a small response");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&body).and_then(|()| encoder.flush()).expect("a vector grows");
    let compressed = encoder.finish().expect("a vector grows");
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    Response::from_parts(parts, Body::from(compressed))
}

/// The service of the server.
struct RemoteService;

impl McpService for RemoteService {
    fn describe(&self, _revision: Revision) -> ServiceDescription {
        ServiceDescription {
            info: RawJson::from(json!({"name": "remote", "version": "1"})),
            capabilities: RawJson::from(json!({"tools": {}})),
            instructions: None,
        }
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        async move {
            let params = request.params.to_value();
            match (&*request.method, params["name"].as_str()) {
                ("tools/list", _) => {
                    let tool = |name| json!({"name": name, "inputSchema": {"type": "object"}});
                    let tools = ["echo", "ask", "hang"].map(tool);
                    Ok(RawJson::from(json!({"tools": tools})).into())
                }
                ("tools/call", Some("echo")) => Ok(text(&params["arguments"]["text"])),
                ("tools/call", Some("ask")) => {
                    request.peer.progress(1.0, Some(2.0), None).await;
                    let answer = request.input_responses.as_ref().and_then(|answers| answers.get("name"));
                    Ok(match answer {
                        Some(answer) => text(&answer.to_value()["content"]["name"]),
                        None => ask_for_name(),
                    })
                }
                ("tools/call", Some("hang")) => {
                    request.peer.progress(1.0, Some(2.0), None).await;
                    future::pending().await
                }
                (method, _) => Err(RpcError::method_not_found(method)),
            }
        }
        .boxed()
    }
}

fn text(text: &Value) -> ServiceReply {
    RawJson::from(json!({"content": [{"type": "text", "text": text}]})).into()
}

fn ask_for_name() -> ServiceReply {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    let params = json!({"mode": "form", "message": "What is your name?", "requestedSchema": schema});
    let requests = json!({"name": {"method": "elicitation/create", "params": params}});
    ServiceReply::InputRequired { input_requests: RawJson::from(requests), state: None }
}
