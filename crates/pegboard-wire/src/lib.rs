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

pub mod client;
mod connection;
pub mod era;
mod exchange;
pub mod http;
pub mod link;
mod message;
mod raw;
mod scan;
mod seal;
pub mod server;
pub mod stdio;
pub mod websocket;

pub use connection::{Connection, Inbound, Limits, Oddities, Receiver, WeakConnection};
pub use exchange::{Exchange, Failure, Happening};
pub use message::{Frame, Id, Message, Notification, Request, Response, RpcError, Unreadable, code};
pub use raw::RawJson;
pub use scan::{MAX_DEPTH, Malformed};
pub use seal::{BrokenSeal, Seal};

/// The largest message, in bytes, if nobody says otherwise.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
