//! What goes to a server and comes from it, in the log.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use pegboard_core::call::CallContext;
use pegboard_wire::client::Era;
use serde_json::json;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

use crate::stage::{Stage, call};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is logged by this filter while a tool is called.
async fn logged(filter: &str) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let layer = tracing_subscriber::fmt::layer().without_time().with_writer(move || writer.clone());
    let subscriber =
        tracing_subscriber::registry().with(filter.parse::<Targets>().unwrap()).with(layer.with_ansi(false));
    let guard = tracing::subscriber::set_default(subscriber);
    let stage = Stage::new();
    let server = stage.opened(Era::Session).await;
    call(&server, "echo", json!({"word": "hello"}), CallContext::default()).await.unwrap();
    drop(guard);
    let bytes = lines.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test(start_paused = true)]
async fn everything_that_goes_to_and_fro_can_be_logged() {
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
async fn nothing_of_it_is_logged_otherwise() {
    let text = logged("debug").await;
    assert!(!text.contains("hello"), "{text}");
}
