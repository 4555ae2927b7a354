//! Protocol messages in the log.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use pegboard_core::call::CallContext;
use pegboard_wire::client::Era;
use serde_json::json;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

use crate::mcp::scripted::{ScriptedServer, call};

#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the log output with this filter while a tool is called.
async fn logged(filter: &str) -> String {
    let lines = LogBuffer::default();
    let writer = lines.clone();
    let layer = tracing_subscriber::fmt::layer().without_time().with_writer(move || writer.clone());
    let subscriber =
        tracing_subscriber::registry().with(filter.parse::<Targets>().unwrap()).with(layer.with_ansi(false));
    let guard = tracing::subscriber::set_default(subscriber);
    let scripted = ScriptedServer::new();
    let server = scripted.open_provider(Era::Session).await;
    call(&server, "echo", json!({"word": "hello"}), CallContext::default()).await.unwrap();
    drop(guard);
    let bytes = lines.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test(start_paused = true)]
async fn all_messages_are_logged_at_trace_level() {
    let text = logged("pegboard::mcp=trace").await;
    let lines: Vec<&str> = text.lines().collect();
    let has = |direction: &str, word: &str| {
        lines.iter().any(|line| {
            line.contains("TRACE pegboard::mcp:")
                && line.contains(&format!("direction=\"{direction}\""))
                && line.contains(word)
        })
    };
    assert!(has("sent", r#""method":"initialize""#), "{text}");
    assert!(has("sent", r#"{"word":"hello"}"#), "{text}");
    assert!(has("received", r#""result""#), "{text}");
}

#[tokio::test(start_paused = true)]
async fn messages_are_not_logged_at_debug_level() {
    let text = logged("debug").await;
    assert!(!text.contains("hello"), "{text}");
}
