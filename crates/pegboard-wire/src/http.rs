//! Streamable HTTP, both roles and both eras, and the HTTP+SSE transport of the first revision.

pub mod client;
pub mod headers;
pub mod legacy_client;
pub mod legacy_server;
pub mod server;
pub mod sse;
