//! The client transports against scripted servers: streamable HTTP of both eras, HTTP+SSE, WebSocket.

mod answers;
mod authorization;
mod cancels;
mod hostile;
mod legacy;
mod sessions;
mod sse;
mod stale;
mod support;
mod websocket;
