//! MCP on the wire: JSON-RPC envelopes, the two protocol eras, every transport, both roles.
//!
//! From the bytes up:
//!
//! - [`RawJson`] and [`Message`]: JSON that passes through as it came, and the envelope around it;
//! - [`link`]: the seam between a connection and its transport;
//! - [`stdio`]: messages as lines over any two byte streams;
//! - [`Connection`]: one peer, many requests, each an [`Exchange`];
//! - [`era`]: the revisions of the protocol;
//! - [`http`]: streamable HTTP, both roles and both eras;
//! - [`websocket`]: WebSocket, both roles;
//! - [`server`]: the server role, for clients of both eras;
//! - [`client`]: the client role, for servers of both eras.
//!
//! Nothing in here knows tools, toolboxes, configuration or policy.
//!
//! A server and a client of it, over a pipe:
//!
//! ```
//! use std::sync::Arc;
//!
//! use pegboard_wire::client::{Client, ClientOptions};
//! use pegboard_wire::era::Revision;
//! use pegboard_wire::server::{Description, Reply, Server, ServerRequest, Service};
//! use pegboard_wire::link::InputLimits;
//! use pegboard_wire::stdio::lines;
//! use pegboard_wire::{Id, Inbound, Notification, RawJson, Receiver, RpcError};
//! use futures_util::future::{BoxFuture, FutureExt, ready};
//! use serde_json::json;
//!
//! struct Clock;
//!
//! impl Service for Clock {
//!     fn describe(&self, _revision: Revision) -> Description {
//!         Description {
//!             info: RawJson::from(json!({"name": "clock", "version": "1"})),
//!             capabilities: RawJson::from(json!({"tools": {}})),
//!             instructions: None,
//!         }
//!     }
//!
//!     fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<Reply, RpcError>> {
//!         ready(match &*request.method {
//!             "tools/call" => Ok(RawJson::from(json!({"content": [{"type": "text", "text": "noon"}]})).into()),
//!             method => Err(RpcError::method_not_found(method)),
//!         })
//!         .boxed()
//!     }
//! }
//!
//! /// A client that nobody may ask anything.
//! struct Silent;
//!
//! impl Receiver for Silent {
//!     fn request(&self, inbound: Inbound) -> BoxFuture<'static, Result<RawJson, RpcError>> {
//!         ready(Err(RpcError::method_not_found(&inbound.request.method))).boxed()
//!     }
//!
//!     fn notification(&self, _notification: Notification, _about: Option<Id>) {}
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (near, far) = tokio::io::duplex(4096);
//! let (reader, writer) = tokio::io::split(far);
//! let (link, _) = lines(reader, writer, InputLimits::server());
//! tokio::spawn(async move { Server::new(Arc::new(Clock)).serve(link).await });
//!
//! let (reader, writer) = tokio::io::split(near);
//! let (link, _) = lines(reader, writer, InputLimits::client());
//! let client = Client::connect(link, Arc::new(Silent), ClientOptions::new("example", "1")).await?;
//! let answer = client.call("tools/call", Some(RawJson::from(json!({"name": "now"})))).await?;
//! assert_eq!(answer.to_value()["content"][0]["text"], "noon");
//! # Ok(())
//! # }
//! ```

pub mod client;
mod connection;
pub mod era;
mod exchange;
pub mod http;
pub mod link;
mod message;
mod seal;
pub mod server;
pub mod stdio;
pub mod websocket;

pub use connection::{Connection, Inbound, Limits, Oddities, Receiver, WeakConnection};
pub use exchange::{Exchange, Failure, Happening};
pub use message::{Frame, Id, Message, Notification, Request, Response, RpcError, Unreadable, code};
pub use pegboard_json::{MAX_DEPTH, Malformed, RawJson};
pub use seal::{BrokenSeal, Seal};

/// The largest message, in bytes, if nobody says otherwise.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
