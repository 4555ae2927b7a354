//! Streamable HTTP in both roles and both eras, and the HTTP+SSE transport of revision 2024-11-05.

mod body;
pub mod client;
pub mod headers;
pub mod legacy_client;
pub mod legacy_server;
pub mod server;
pub mod sse;
