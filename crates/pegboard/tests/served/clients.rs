//! Malformed input of clients: one error response each, and the next request succeeds.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time;

use crate::guards::{Answer, post};
use crate::harness::{Endpoint, TEST_TIMEOUT, TestEnvironment};

fn configuration(environment: &TestEnvironment) -> String {
    let server = environment.server("s", &["hang", "release", "x"]);
    json!({"toolboxes": {"t": {"description": "T", "mcpServers": {"s": server}}}}).to_string()
}

fn initialize(revision: &str) -> String {
    let params = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}});
    json!({"jsonrpc": "2.0", "id": "first", "method": "initialize", "params": params}).to_string()
}

/// A stdio client that writes raw bytes.
struct Raw {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _gateway: Child,
}

impl Raw {
    async fn start(environment: &TestEnvironment, revision: &str) -> Self {
        let file = environment.write("workbench-config.json", &configuration(environment));
        let mut command = environment.serving(&file);
        command.args(["--stdio", "--profile", "flat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut gateway = command.spawn().unwrap();
        let output = BufReader::new(gateway.stdout.take().unwrap()).lines();
        let mut raw = Self { input: gateway.stdin.take().unwrap(), output, _gateway: gateway };
        raw.send(initialize(revision).as_bytes()).await;
        assert_eq!(raw.hear().await["result"]["protocolVersion"], revision);
        raw.send(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        raw.send(br#"{"jsonrpc":"2.0","id":"list","method":"tools/list"}"#).await;
        assert_eq!(raw.hear().await["id"], "list");
        raw
    }

    async fn send(&mut self, line: &[u8]) {
        self.input.write_all(line).await.unwrap();
        self.input.write_all(b"\n").await.unwrap();
        self.input.flush().await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        loop {
            let line = time::timeout(TEST_TIMEOUT, self.output.next_line()).await.unwrap().unwrap().unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            // The list of tools may change at any time.
            if message.get("method").is_none() {
                return message;
            }
        }
    }

    /// Sends a line and returns all responses.
    async fn answers(&mut self, line: &[u8]) -> Vec<Value> {
        self.send(line).await;
        self.send(br#"{"jsonrpc":"2.0","id":"after","method":"ping"}"#).await;
        let mut answers = Vec::new();
        loop {
            let answer = self.hear().await;
            if answer["id"] == "after" {
                assert_eq!(answer["result"], json!({}));
                return answers;
            }
            answers.push(answer);
        }
    }
}

/// Serves over these streams until the input ends; returns the ids of the responses.
async fn serve_over(
    environment: &TestEnvironment,
    input: impl Into<Stdio>,
    output: (impl Into<Stdio>, impl Read + Send + 'static),
) -> Vec<Value> {
    let file = environment.write("workbench-config.json", &configuration(environment));
    let mut command = environment.serving(&file);
    command.arg("--stdio").stdin(input).stdout(output.0).stderr(Stdio::null());
    let ended = time::timeout(TEST_TIMEOUT, command.status()).await.unwrap().unwrap();
    assert!(ended.success(), "{ended}");
    // The last writer.
    drop(command);
    let mut text = String::new();
    let mut reader = output.1;
    reader.read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].clone()).collect()
}

#[tokio::test]
async fn standard_streams_may_be_pipes_sockets_files_or_nothing() {
    let list = r#"{"jsonrpc":"2.0","id":"list","method":"tools/list"}"#;
    let requests = format!("{}\n{list}\n", initialize("2025-11-25"));
    let environment = TestEnvironment::new();

    let (reader, mut writer) = io::pipe().unwrap();
    writer.write_all(requests.as_bytes()).unwrap();
    drop(writer);
    let (output, writer) = io::pipe().unwrap();
    assert_eq!(serve_over(&environment, reader, (writer, output)).await, ["first", "list"]);

    // Some clients make sockets.
    let (reader, mut writer) = UnixStream::pair().unwrap();
    writer.write_all(requests.as_bytes()).unwrap();
    drop(writer);
    let (output, writer) = UnixStream::pair().unwrap();
    let sockets = (OwnedFd::from(reader), OwnedFd::from(writer));
    assert_eq!(serve_over(&environment, sockets.0, (sockets.1, output)).await, ["first", "list"]);

    let answers = || {
        let file = File::create(environment.folder().join("answers")).unwrap();
        (file, File::open(environment.folder().join("answers")).unwrap())
    };
    let input = File::open(environment.write("requests", &requests)).unwrap();
    assert_eq!(serve_over(&environment, input, answers()).await, ["first", "list"]);
    assert_eq!(serve_over(&environment, Stdio::null(), answers()).await, Vec::<Value>::new());
}

/// Malformed inputs by name.
fn nonsense() -> Vec<(&'static str, Vec<u8>)> {
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"a":{}{}}}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    let texts = [
        ("cut off", r#"{"jsonrpc":"2.0","id":1,"#),
        ("words", "hello"),
        ("a number", "5"),
        ("no method", r#"{"jsonrpc":"2.0","id":1}"#),
        ("another version", r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#),
        ("no text as method", r#"{"jsonrpc":"2.0","id":1,"method":5}"#),
        ("an id that is none", r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#),
        ("an id twice", r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#),
        ("params that are none", r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":5}"#),
        ("empty batch", "[]"),
        ("a batch", r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#),
        ("too deep", &deep),
        ("no such method", r#"{"jsonrpc":"2.0","id":1,"method":"nonsense"}"#),
    ];
    let mut all: Vec<_> = texts.iter().map(|(name, text)| (*name, text.as_bytes().to_vec())).collect();
    all.push(("no text", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}".to_vec()));
    let mut large = br#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":""#.to_vec();
    large.resize(17 * 1024 * 1024, b'x');
    large.extend_from_slice(br#""}}"#);
    all.push(("too large", large));
    all
}

#[tokio::test]
async fn a_malformed_stdio_message_gets_one_response() {
    let environment = TestEnvironment::new();
    let mut raw = Raw::start(&environment, "2025-11-25").await;
    let mut said = Vec::new();
    for (name, bytes) in nonsense() {
        let answers: Vec<String> = raw.answers(&bytes).await.iter().map(ToString::to_string).collect();
        said.push(format!("{name}: {}", answers.join(" ")));
    }
    insta::assert_snapshot!(said.join("\n"), @r#"
    cut off: {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error: not JSON, at byte 24"}}
    words: {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error: not JSON, at byte 0"}}
    a number: {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: a message must be an object"}}
    no method: {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid request: neither a call nor a response"}}
    another version: {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid request: `jsonrpc` must be \"2.0\""}}
    no text as method: {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid request: `method` must be a string"}}
    an id that is none: {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: `id` must be a string or an integer"}}
    an id twice: {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: duplicate `id`"}}
    params that are none: {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid request: `params` must be an object or an array"}}
    empty batch: {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: empty batch"}}
    a batch: {"jsonrpc":"2.0","id":1,"result":{}} {"jsonrpc":"2.0","id":2,"result":{}}
    too deep: {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid request: nested deeper than 128 levels"}}
    no such method: {"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found: nonsense"}}
    no text: {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error: not UTF-8"}}
    too large: {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: a line exceeds 16777216 bytes"}}
    "#);
}

#[tokio::test]
async fn a_malformed_http_request_gets_one_response() {
    let environment = TestEnvironment::new();
    let file = environment.write("workbench-config.json", &configuration(&environment));
    let mut command = environment.serving(&file);
    command.args(["--http", "127.0.0.1:0"]);
    let endpoint = Endpoint::start(command).await;
    let opened = post(&endpoint.url(None), &[], initialize("2025-11-25")).await;
    let session = opened.headers["mcp-session-id"].to_str().unwrap().to_owned();
    let mut said = Vec::new();
    for (name, bytes) in nonsense() {
        let Answer { status, body, .. } =
            post(&endpoint.url(None), &[("mcp-session-id", &session)], bytes).await;
        said.push(format!("{name}: {status} {body}"));
        let ping = r#"{"jsonrpc":"2.0","id":"after","method":"ping"}"#;
        let served = post(&endpoint.url(None), &[("mcp-session-id", &session)], ping).await;
        assert_eq!((served.status, &*served.body), (200, r#"{"jsonrpc":"2.0","id":"after","result":{}}"#));
    }
    insta::assert_snapshot!(said.join("\n"), @r#"
    cut off: 400 {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error: not JSON, at byte 24"}}
    words: 400 {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error: not JSON, at byte 0"}}
    a number: 400 {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: a message must be an object"}}
    no method: 400 {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid request: neither a call nor a response"}}
    another version: 400 {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid request: `jsonrpc` must be \"2.0\""}}
    no text as method: 400 {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid request: `method` must be a string"}}
    an id that is none: 400 {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: `id` must be a string or an integer"}}
    an id twice: 400 {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: duplicate `id`"}}
    params that are none: 400 {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid request: `params` must be an object or an array"}}
    empty batch: 400 {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: empty batch"}}
    a batch: 400 {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: this revision does not support batches"}}
    too deep: 400 {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid request: nested deeper than 128 levels"}}
    no such method: 200 {"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found: nonsense"}}
    no text: 400 {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error: not UTF-8"}}
    too large: 413 the body is too large
    "#);
}

#[tokio::test]
async fn a_duplicate_request_id_is_rejected() {
    let environment = TestEnvironment::new();
    let mut raw = Raw::start(&environment, "2025-11-25").await;
    raw.send(br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"s__hang","arguments":{}}}"#)
        .await;
    environment.wait_for_event("s hangs").await;
    raw.send(br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"s__x","arguments":{}}}"#)
        .await;
    insta::assert_snapshot!(raw.hear().await, @r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"Invalid request: a request with this id is in progress"}}"#);
    raw.send(
        br#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"s__release","arguments":{}}}"#,
    )
    .await;
    let mut answers = [raw.hear().await, raw.hear().await];
    answers.sort_by_key(|answer| answer["id"].as_u64());
    assert_eq!(answers[0]["result"]["content"][0]["text"], "released");
    assert_eq!(answers[1]["result"]["content"][0]["text"], "done");
}

#[tokio::test]
async fn a_batch_of_the_revision_that_has_batches_is_answered() {
    let environment = TestEnvironment::new();
    let mut raw = Raw::start(&environment, "2025-03-26").await;
    let batch =
        br#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"nonsense"},5]"#;
    let answers = raw.answers(batch).await;
    insta::assert_snapshot!(json!(answers), @r#"[{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: a message must be an object"}},{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"Method not found: nonsense"}}]"#);
}
