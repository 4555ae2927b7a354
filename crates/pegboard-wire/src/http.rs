//! Streamable HTTP in both roles and both eras, and the HTTP+SSE transport of revision 2024-11-05.

#[cfg(any(feature = "http-client", feature = "http-server"))]
mod body;
#[cfg(feature = "http-client")]
pub mod client;
pub mod headers;
#[cfg(feature = "http-client")]
pub mod legacy_client;
#[cfg(feature = "http-server")]
pub mod legacy_server;
pub mod received_headers;
pub(crate) mod resend;
#[cfg(feature = "http-server")]
pub mod server;
#[cfg(any(feature = "http-client", feature = "http-server"))]
pub mod sse;
