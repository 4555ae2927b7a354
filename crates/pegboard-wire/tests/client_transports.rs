//! The client transports against scripted servers: streamable HTTP of both eras, HTTP+SSE, WebSocket.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

mod client_transports {
    mod answers;
    mod cancels;
    mod hostile;
    mod legacy;
    mod sessions;
    mod sse;
    mod support;
    mod websocket;
}
