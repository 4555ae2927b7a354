//! Programs that serve tools of their own.

#![expect(clippy::unused_async, reason = "tools are async functions")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use pegboard::call::Call;
use pegboard::prelude::*;
use pegboard::runtime::CallerOptions;
use pegboard_testkit::example;

/// Convert a temperature to Fahrenheit.
#[tool]
async fn fahrenheit(celsius: f64) -> Result<f64> {
    Ok(celsius * 9.0 / 5.0 + 32.0)
}

#[test]
fn a_program_serves_its_functions_over_stdio() {
    let mut program = Command::new(example::path("serve_tools"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, output) = (program.stdin.take().unwrap(), program.stdout.take().unwrap());
    let mut lines = BufReader::new(output).lines();
    let mut ask = |id: u64, method: &str, params: Value| -> Value {
        writeln!(input, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .unwrap();
        loop {
            let message: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    };
    let client = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    ask(1, "initialize", client);
    let list = ask(2, "tools/list", json!({}));
    assert_eq!((&list["tools"][0]["name"], &list["tools"][1]), (&json!("fahrenheit"), &Value::Null));
    let result = ask(3, "tools/call", json!({"name": "fahrenheit", "arguments": {"celsius": 100}}));
    assert_eq!(result["content"][0]["text"], "212.0", "{result}");
    drop(input);
    assert!(program.wait().unwrap().success());
}

/// A program that ends with the test.
struct RunningProgram(Child);

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[tokio::test]
async fn a_program_serves_its_functions_over_http() {
    let program = Command::new(example::path("serve_http")).stdout(Stdio::piped()).spawn().unwrap();
    let mut program = RunningProgram(program);
    let mut lines = BufReader::new(program.0.stdout.take().unwrap()).lines();
    let url = lines.next().unwrap().unwrap();
    let http = reqwest::Client::new();
    let post = async |session: Option<&str>, message: Value| {
        let mut request = http.post(&url).header("content-type", "application/json");
        request = request.header("accept", "application/json, text/event-stream");
        if let Some(session) = session {
            request = request.header("mcp-session-id", session).header("mcp-protocol-version", "2025-11-25");
        }
        request.body(message.to_string()).send().await.unwrap()
    };
    let request =
        |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let client = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    let session = post(None, request("initialize", client)).await.headers()["mcp-session-id"].clone();
    let session = session.to_str().ok();
    post(session, json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    // The tool is registered after the start: a list may come before it.
    for _ in 0..10_000 {
        let list = post(session, request("tools/list", json!({}))).await.text().await.unwrap();
        if list.contains("words__greet") {
            break;
        }
    }
    let call = request("tools/call", json!({"name": "words__greet", "arguments": {"name": "Ada"}}));
    let answer = post(session, call).await.text().await.unwrap();
    assert!(answer.contains("Hello, Ada!"), "{answer}");
}

#[tokio::test]
async fn a_runtime_offers_what_a_registry_has_at_the_time() {
    let registry = ToolRegistry::new();
    let runtime = Runtime::builder().provide("units", registry.clone()).start().await.unwrap();
    let caller = runtime.caller(CallerOptions::default());
    let call = async || caller.invoke(Call::new("units__fahrenheit", json!({"celsius": 100}))).await;
    assert_eq!(call().await.status, OutcomeStatus::Failure);
    let mut catalogues = runtime.catalogue_changes();
    registry.clone().with(tools![fahrenheit]).unwrap();
    while runtime.catalogue().tools().is_empty() {
        catalogues.changed().await.unwrap();
    }
    assert_eq!(call().await.data, 212.0);
    registry.unregister("fahrenheit");
    while !runtime.catalogue().tools().is_empty() {
        catalogues.changed().await.unwrap();
    }
    assert_eq!(call().await.status, OutcomeStatus::Failure);
}
