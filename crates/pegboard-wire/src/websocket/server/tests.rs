use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use pegboard_json::RawJson;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};

use super::*;
use crate::era::Revision;
use crate::http::server::{BODY_TIMEOUT, HttpApplication};
use crate::message::RpcError;
use crate::server::{McpService, ResponseMemory, ServerRequest, ServiceDescription, ServiceReply};

/// Answers a call with the number of bytes of its arguments.
struct Counting;

impl McpService for Counting {
    fn describe(&self, _revision: Revision) -> ServiceDescription {
        let info = RawJson::from(json!({"name": "counting", "version": "1"}));
        ServiceDescription { info, capabilities: RawJson::empty_object(), instructions: None }
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        let text: String = request.params.at(&["arguments", "text"]).unwrap().read().unwrap();
        futures_util::future::ready(Ok(RawJson::from(json!({"n": text.len()})).into())).boxed()
    }
}

type TestClient = WebSocketStream<DuplexStream>;

fn application(memory: &ResponseMemory) -> Arc<HttpApplication> {
    let options = HttpServerOptions { request_memory: memory.clone(), ..HttpServerOptions::default() };
    Arc::new(endpoint(ServiceServer::new(Arc::new(Counting)), options).into())
}

async fn connect(application: &Arc<HttpApplication>) -> TestClient {
    const HANDSHAKE: &str = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
        sec-websocket-protocol: other, mcp\r\n\r\n";
    let (mut client, server) = duplex(1 << 20);
    let application = Arc::clone(application);
    tokio::spawn(async move { application.serve_connection(server).await });
    client.write_all(HANDSHAKE.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 ") && head.contains("sec-websocket-protocol: mcp\r\n"), "{head}");
    WebSocketStream::from_raw_socket(client, Role::Client, None).await
}

fn call(n_bytes: usize) -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    // Its characters do not end where parts of frames do.
    let arguments = json!({"text": "\u{20ac}".repeat(n_bytes / 3)});
    let params = json!({"name": "t", "arguments": arguments, "_meta": meta});
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string()
}

async fn send_frame(client: &mut TestClient, payload: &[u8], opcode: OpCode, is_final: bool) {
    let frame = Frame::message(payload.to_vec(), opcode, is_final);
    client.send(Message::Frame(frame)).await.unwrap();
}

/// Returns the answer to the only request, and counts the pongs before it.
async fn answer(client: &mut TestClient) -> (Value, usize) {
    let mut n_pongs = 0;
    loop {
        match client.next().await.unwrap().unwrap() {
            Message::Text(text) => return (serde_json::from_str(&text).unwrap(), n_pongs),
            Message::Pong(_) => n_pongs += 1,
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the code of the close frame that the server sends next.
async fn close_code(client: &mut TestClient) -> CloseCode {
    match client.next().await.unwrap().unwrap() {
        Message::Close(Some(frame)) => frame.code,
        other => panic!("{other:?}"),
    }
}

/// Waits until the server has handled all its input.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_is_answered_however_its_frames_are_cut() {
    let memory = ResponseMemory::new(1 << 20);
    let application = application(&memory);
    let mut client = connect(&application).await;
    for n_bytes in [0, 30, 16_000, 16_384, 16_386, 40_000, 300_000] {
        let text = call(n_bytes);
        for n_frame in [text.len(), text.len() - 1, 1 + text.len() / 2, 16_384, 20_000] {
            let frames: Vec<_> = text.as_bytes().chunks(n_frame).collect();
            for (index, payload) in frames.iter().enumerate() {
                let opcode = if index == 0 { Data::Text } else { Data::Continue };
                send_frame(&mut client, payload, OpCode::Data(opcode), index + 1 == frames.len()).await;
                if index + 1 < frames.len() {
                    client.send(Message::Ping("p".into())).await.unwrap();
                    send_frame(&mut client, b"", OpCode::Data(Data::Continue), false).await;
                    tokio::task::yield_now().await;
                }
            }
            let (answer, n_pongs) = answer(&mut client).await;
            assert_eq!(answer["result"]["n"], n_bytes / 3 * 3, "{n_bytes} in {n_frame}: {answer}");
            assert!(n_pongs < frames.len(), "several pings may get one pong");
        }
        assert_eq!(memory.n_bytes(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn incomplete_messages_count_as_requests() {
    let memory = ResponseMemory::new(400 << 10);
    let application = application(&memory);
    let mut clients = Vec::new();
    // In one frame of which the rest is missing, and in a frame after which others are missing.
    for is_final in [true, false] {
        let mut client = connect(&application).await;
        let n_frame: usize = if is_final { 200 << 10 } else { 100 << 10 };
        let mut frame = vec![if is_final { 0x81 } else { 0x01 }, 0xff];
        frame.extend((n_frame as u64).to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(vec![b'x'; 100 << 10]);
        client.get_mut().write_all(&frame).await.unwrap();
        clients.push(client);
    }
    settle().await;
    assert!(memory.n_bytes() >= 200 << 10, "{}", memory.n_bytes());
    let mut refused = connect(&application).await;
    send_frame(&mut refused, &vec![b'x'; 100 << 10], OpCode::Data(Data::Text), false).await;
    assert_eq!(close_code(&mut refused).await, CloseCode::Again);
    drop(clients);
    settle().await;
    assert_eq!(memory.n_bytes(), 0);
    let mut client = connect(&application).await;
    client.send(Message::text(call(90_000))).await.unwrap();
    assert_eq!(answer(&mut client).await.0["result"]["n"], 90_000);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_has_begun_must_end_in_time() {
    let memory = ResponseMemory::new(1 << 20);
    let application = application(&memory);
    for is_drip in [false, true] {
        let mut client = connect(&application).await;
        // Nothing limits the time between messages.
        time::sleep(10 * BODY_TIMEOUT).await;
        send_frame(&mut client, b"{", OpCode::Data(Data::Text), false).await;
        let code = loop {
            match time::timeout(BODY_TIMEOUT / 4, close_code(&mut client)).await {
                Ok(code) => break code,
                Err(_) if is_drip => send_frame(&mut client, b" ", OpCode::Data(Data::Continue), false).await,
                Err(_) => {}
            }
        };
        assert_eq!(code, CloseCode::Policy);
        settle().await;
        assert_eq!(memory.n_bytes(), 0);
    }
}

#[tokio::test]
async fn frames_that_are_not_allowed_close_the_connection() {
    let memory = ResponseMemory::new(1 << 20);
    let application = application(&memory);
    let too_large = [&[0x81, 0xff][..], &(1_u64 << 40).to_be_bytes(), &[0; 4]].concat();
    let endless = [&[0x81, 0xff][..], &u64::MAX.to_be_bytes(), &[0; 4]].concat();
    for (frame, expected) in [
        (too_large, CloseCode::Size),
        (endless, CloseCode::Size),
        (vec![0x83, 0x80, 0, 0, 0, 0], CloseCode::Protocol),
        (vec![0x89, 0xfe, 1, 0, 0, 0, 0, 0], CloseCode::Protocol),
    ] {
        let mut client = connect(&application).await;
        client.get_mut().write_all(&frame).await.unwrap();
        let code = time::timeout(Duration::from_mins(1), close_code(&mut client)).await;
        assert_eq!(code.unwrap(), expected, "{frame:?}");
    }
}
