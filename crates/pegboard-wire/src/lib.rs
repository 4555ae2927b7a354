//! MCP on the wire: JSON-RPC envelopes, both protocol eras, every transport, both roles.
//!
//! From the bytes up:
//!
//! - [`RawJson`] and [`Message`]: raw JSON values, and the JSON-RPC envelope around them;
//! - [`transport`]: the seam between a connection and its transport;
//! - [`stdio`]: one message per line, over any two byte streams;
//! - [`Connection`]: a connection to one peer; each request is a [`PendingRequest`], which its caller polls;
//! - [`era`]: protocol revisions;
//! - [`http`]: streamable HTTP and HTTP+SSE, both roles and both eras;
//! - [`websocket`]: WebSocket, both roles;
//! - [`server`]: the server role, for clients of both eras;
//! - [`client`]: the client role, for servers of both eras.
//!
//! This crate does not know toolboxes, configuration or policy, and of tools only the arguments that MCP
//! mirrors in headers.
//!
//! The features `http-client` and `http-server` add streamable HTTP, HTTP+SSE and WebSocket in that role.
//!
//! A server and a client, connected by a pipe:
//!
//! ```
//! use std::sync::Arc;
//!
//! use pegboard_wire::client::{McpClient, ClientOptions};
//! use pegboard_wire::era::Revision;
//! use pegboard_wire::server::{ServiceDescription, ServiceReply, ServiceServer, ServerRequest, McpService};
//! use pegboard_wire::transport::InputLimits;
//! use pegboard_wire::stdio::line_transport;
//! use pegboard_wire::{Id, InboundRequest, Notification, RawJson, InboundHandler, RpcError};
//! use futures_util::future::{BoxFuture, FutureExt, ready};
//! use serde_json::json;
//!
//! struct Clock;
//!
//! impl McpService for Clock {
//!     fn describe(&self, _revision: Revision) -> ServiceDescription {
//!         ServiceDescription {
//!             info: RawJson::from(json!({"name": "clock", "version": "1"})),
//!             capabilities: RawJson::from(json!({"tools": {}})),
//!             instructions: None,
//!         }
//!     }
//!
//!     fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
//!         ready(match &*request.method {
//!             "tools/call" => Ok(RawJson::from(json!({"content": [{"type": "text", "text": "noon"}]})).into()),
//!             method => Err(RpcError::method_not_found(method)),
//!         })
//!         .boxed()
//!     }
//! }
//!
//! /// Rejects all requests of the server.
//! struct RejectAll;
//!
//! impl InboundHandler for RejectAll {
//!     fn request(&self, inbound: InboundRequest) -> BoxFuture<'static, Result<RawJson, RpcError>> {
//!         ready(Err(RpcError::method_not_found(&inbound.request.method))).boxed()
//!     }
//!
//!     fn notification(&self, _notification: Notification, _related_request: Option<Id>) {}
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (near, far) = tokio::io::duplex(4096);
//! let (reader, writer) = tokio::io::split(far);
//! let (transport, _) = line_transport(reader, writer, InputLimits::server());
//! tokio::spawn(async move { ServiceServer::new(Arc::new(Clock)).serve(transport).await });
//!
//! let (reader, writer) = tokio::io::split(near);
//! let (transport, _) = line_transport(reader, writer, InputLimits::client());
//! let client = McpClient::connect(transport, Arc::new(RejectAll), ClientOptions::new("example", "1")).await?;
//! let answer = client.call("tools/call", Some(RawJson::from(json!({"name": "now"})))).await?;
//! assert_eq!(answer.to_value()["content"][0]["text"], "noon");
//! # Ok(())
//! # }
//! ```

// What only a transport reads is written without it.
#![cfg_attr(not(all(feature = "http-client", feature = "http-server")), allow(unused))]

#[cfg(feature = "http-client")]
mod certificate_error;
pub mod client;
mod connection;
pub mod descriptors;
pub mod era;
pub mod http;
mod message;
mod pending_request;
mod random;
mod request_map;
pub mod server;
mod state_signer;
pub mod stdio;
pub mod transport;
mod turns;
#[cfg(any(feature = "http-client", feature = "http-server"))]
pub mod websocket;

pub use connection::{
    Connection, ConnectionLimits, ConnectionRole, ConnectionStats, InboundHandler, InboundRequest,
    WeakConnection,
};
pub use message::{Frame, Id, InvalidMessage, Message, Notification, Request, Response, RpcError, code};
pub use pegboard_json::{MAX_DEPTH, Malformed, RawJson};
pub use pending_request::{PendingRequest, RequestError, ResponseEvent};
pub use state_signer::{InvalidState, StateSigner};

/// Maximum number of input rounds per request, in both roles.
pub const MAX_INPUT_ROUNDS: usize = 20;

/// Maximum number of input requests of one result.
pub const MAX_INPUT_REQUESTS: usize = 64;

/// Default maximum size of a message in bytes.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
