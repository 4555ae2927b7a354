//! The client transports against scripted servers: streamable HTTP of both eras, HTTP+SSE, WebSocket.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod client_transports {
    mod answers;
    mod cancels;
    mod hostile;
    mod legacy;
    mod scene;
    mod sessions;
    mod sse;
    mod websocket;
}
