use std::sync::Arc;

use futures_util::future::BoxFuture;
use pegboard_json::RawJson;
use serde_json::json;
use tokio::io::{AsyncReadExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::super::timed_stream::WRITE_TIMEOUT;
use super::*;
use crate::era::Revision;
use crate::http::server::{HttpApplication, HttpServerOptions, endpoint};
use crate::message::RpcError;
use crate::server::{
    McpService, ResponseMemory, ServerRequest, ServiceDescription, ServiceReply, ServiceServer,
};
use crate::turns::MAX_TURNS;

/// Answers every call with a text of the length in its arguments. An odd one comes on a stream, after a notification. A
/// call without a length never ends, and reports when it begins and when it is dropped.
#[derive(Clone, Default)]
struct Texts {
    begun: Arc<Notify>,
    dropped: Arc<Notify>,
}

struct DropNotifier(Arc<Notify>);

impl Drop for DropNotifier {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl McpService for Texts {
    fn describe(&self, _revision: Revision) -> ServiceDescription {
        let info = RawJson::from(json!({"name": "texts", "version": "1"}));
        ServiceDescription { info, capabilities: RawJson::empty_object(), instructions: None }
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        let (begun, on_drop) = (Arc::clone(&self.begun), DropNotifier(Arc::clone(&self.dropped)));
        async move {
            let n_bytes = request.params.at(&["arguments", "length"]).and_then(|length| length.read().ok());
            let Some(n_bytes) = n_bytes else {
                let _on_drop = on_drop;
                begun.notify_one();
                std::future::pending::<()>().await;
                unreachable!("nothing wakes it");
            };
            if n_bytes % 2 == 1 {
                request.peer.notify("notifications/message", RawJson::from(json!({"data": 1}))).await;
            }
            Ok(RawJson::from(json!({"text": "x".repeat(n_bytes)})).into())
        }
        .boxed()
    }
}

/// The same endpoint, served by this module where possible, and by hyper alone.
fn applications(service: &Texts) -> [Arc<HttpApplication>; 2] {
    applications_with(service, HttpServerOptions::default())
}

fn applications_with(service: &Texts, options: HttpServerOptions) -> [Arc<HttpApplication>; 2] {
    let server = ServiceServer::new(Arc::new(service.clone()));
    let direct = HttpServerEndpoint::new(server.clone(), options.clone());
    [Arc::new(direct.into()), Arc::new(endpoint(server, options).into())]
}

fn connect(application: &Arc<HttpApplication>) -> DuplexStream {
    let (client, server) = duplex(1 << 20);
    let application = Arc::clone(application);
    tokio::spawn(async move { application.serve_connection(server).await });
    client
}

/// A call with more headers, which begin with a line.
fn call(id: u32, arguments: &serde_json::Value, more: &str) -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": "t", "arguments": arguments, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string();
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: t\r\n";
    if more.to_ascii_lowercase().contains("chunked") {
        return format!("{head}{more}\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    }
    format!("{head}content-length: {}\r\n{more}\r\n{body}", body.len())
}

/// Sends input in pieces of a size, and returns the responses up to the end of the connection: of each its lines, sorted,
/// without dates and the sizes of chunks.
async fn responses(application: &Arc<HttpApplication>, input: &[u8], n_piece: usize) -> Vec<Vec<String>> {
    let mut client = connect(application);
    for piece in input.chunks(n_piece) {
        // The server may have refused it and closed the connection.
        if client.write_all(piece).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let mut output = Vec::new();
    let reading = client.read_to_end(&mut output);
    time::timeout(Duration::from_secs(100), reading).await.expect("the connection ends").unwrap();
    let output = String::from_utf8(output).unwrap();
    let is_kept = |line: &&str| !line.starts_with("date:") && u64::from_str_radix(line, 16).is_err();
    let lines = |response: &str| {
        let mut lines: Vec<_> = response.lines().filter(is_kept).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    output.split("HTTP/1.").skip(1).map(lines).collect()
}

/// Answers the call with id 0, reports every other call when it begins, and never answers it.
struct Reported(tokio::sync::mpsc::UnboundedSender<u64>);

impl McpService for Reported {
    fn describe(&self, revision: Revision) -> ServiceDescription {
        Texts::default().describe(revision)
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        let number = request.params.at(&["arguments", "number"]).and_then(|number| number.read().ok());
        let reports = self.0.clone();
        async move {
            match number {
                Some(0) | None => return Ok(RawJson::from(json!({"text": ""})).into()),
                Some(number) => reports.send(number).expect("the test listens"),
            }
            std::future::pending().await
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_known_client_waits_only_for_few_requests_of_a_crowd_of_new_connections() {
    const SIBLING: u32 = 1_000;
    let (reports, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let server = ServiceServer::new(Arc::new(Reported(reports)));
    let application = Arc::new(HttpServerEndpoint::new(server, HttpServerOptions::default()).into());
    let numbered = |number: u32| call(number, &json!({"number": number}), "").into_bytes();
    let mut sibling = connect(&application);
    sibling.write_all(&numbered(0)).await.unwrap();
    assert!(sibling.read(&mut [0; 1_024]).await.unwrap() > 0, "it is answered");
    let mut crowd = Vec::new();
    for number in 1..SIBLING {
        let mut client = connect(&application);
        client.write_all(&numbered(number)).await.unwrap();
        crowd.push(client);
    }
    sibling.write_all(&numbered(SIBLING)).await.unwrap();
    let mut n_before = 0;
    while begun.recv().await != Some(u64::from(SIBLING)) {
        n_before += 1;
    }
    assert!(n_before <= 2 * MAX_TURNS, "{n_before} of the crowd went first");
    for _ in n_before + 1..SIBLING as usize {
        begun.recv().await.expect("every request begins");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_holds_up_no_other_client() {
    let [direct, _] = applications(&Texts::default());
    let request = call(1, &json!({"length": 10}), "connection: close\r\n");
    let (head, body) = request.split_at(request.find("\r\n\r\n").unwrap() + 4);
    let mut waiting = Vec::new();
    for _ in 0..2 * MAX_TURNS {
        let mut client = connect(&direct);
        client.write_all(head.as_bytes()).await.unwrap();
        waiting.push(client);
    }
    tokio::task::yield_now().await;
    let started = time::Instant::now();
    let answered = responses(&direct, request.as_bytes(), request.len()).await;
    assert_eq!((answered.len(), started.elapsed()), (1, Duration::ZERO));
    for mut client in waiting {
        client.write_all(body.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

/// A client gets the answers that hyper would give, for every kind of request.
#[tokio::test(start_paused = true)]
async fn every_request_is_answered_as_hyper_answers_it() {
    let [direct, hyper] = applications(&Texts::default());
    let check = async |request: &str, n_expected: usize| {
        let last = call(99, &json!({"length": 2}), "connection: close\r\n");
        let input = format!("{request}{last}").into_bytes();
        for n_piece in [input.len(), 1, 7] {
            let expected = responses(&hyper, &input, n_piece).await;
            let found = responses(&direct, &input, n_piece).await;
            assert_eq!(found, expected, "in pieces of {n_piece}: {request:.300}");
            assert_eq!(found.len(), n_expected, "{request:.300}");
        }
    };
    let text = |id, length: usize| call(id, &json!({"length": length}), "");
    check("", 1).await;
    check(&text(1, 10), 2).await;
    check(&[text(1, 10), text(2, 20_000), text(3, 0)].concat(), 4).await;
    check(&[text(1, 11), text(2, 20_001), text(3, 0)].concat(), 4).await;
    // What this module reads, in other spellings.
    check(&text(1, 10).replace("host:", "HOST:  ").replace("content-length", "Content-Length"), 2).await;
    check(&text(1, 10).replace("\r\n", "\n"), 2).await;
    check(&format!("\r\n\r\n{}", text(1, 10)), 2).await;
    check(&call(1, &json!({"length": 4}), "x-name: \u{e9}\r\nconnection: Keep-Alive\r\n"), 2).await;
    check(&text(1, 10).replace("/mcp", "http://localhost/mcp"), 2).await;
    // What it leaves to hyper.
    for more in
        ["transfer-encoding: chunked\r\n", "Transfer-Encoding: Chunked\r\n", "expect: 100-continue\r\n"]
    {
        let n_responses = if more.contains("expect") { 3 } else { 2 };
        let other = call(2, &json!({"length": 4}), more);
        check(&other, n_responses).await;
        check(&[text(1, 10), other, text(3, 11)].concat(), n_responses + 2).await;
    }
    check("GET /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n", 2).await;
    check("OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n", 2).await;
    check("POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\r\n", 2).await;
    check(&call(1, &json!({"length": 4, "long": "x".repeat(40_000)}), ""), 2).await;
    check(&call(1, &json!({"length": 4}), &format!("x-long: {}\r\n", "x".repeat(20_000))), 2).await;
    let many = (0..80).map(|number| format!("x-{number}: 1\r\n")).collect::<Vec<_>>().concat();
    check(&call(1, &json!({"length": 4}), &many), 2).await;
    // After these the connection ends.
    check(&text(1, 10).replace("HTTP/1.1", "HTTP/1.0"), 1).await;
    for more in [
        "connection: close\r\n",
        "connection: keep-alive, close\r\n",
        "content-length: 3\r\n",
        "na me: 1\r\n",
        "name : 1\r\n",
        "name: \u{1}\r\n",
    ] {
        check(&call(1, &json!({"length": 4}), more), 1).await;
    }
    for length in ["+5", "-1", "", "5, 5", "0x5", "99999999999999999999999"] {
        let head = format!(
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        check(&head, 1).await;
    }
    check("nonsense\r\n\r\n", 1).await;
    check("POST /m cp HTTP/1.1\r\nhost: localhost\r\n\r\n", 1).await;
}

/// Returns the status of each response to an input, up to the end of the connection.
async fn statuses(application: &Arc<HttpApplication>, input: &str) -> Vec<u16> {
    let mut client = connect(application);
    client.write_all(input.as_bytes()).await.unwrap();
    let mut output = Vec::new();
    let reading = client.read_to_end(&mut output);
    time::timeout(Duration::from_secs(10), reading).await.expect("the connection ends").unwrap();
    let output = String::from_utf8(output).unwrap();
    output.split("HTTP/1.1 ").skip(1).map(|response| response[..3].parse().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_body_with_two_ends_is_refused_and_ends_the_connection() {
    let applications = applications(&Texts::default());
    let next = call(9, &json!({"length": 4}), "");
    for more in [
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked, identity\r\n",
    ] {
        let request = call(1, &json!({"length": 4}), more) + &next;
        for application in &applications {
            assert_eq!(statuses(application, &request).await, [400], "{more}");
            let get = "GET /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n";
            assert_eq!(
                statuses(application, &(get.to_owned() + &request)).await.last(),
                Some(&400),
                "{more}"
            );
        }
    }
    let many = (0..80).map(|number| format!("x-{number}: 1\r\n")).collect::<Vec<_>>().concat();
    for more in [
        "transfer-encoding: chunked\r\ncontent-length: 3\r\n",
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        &format!("{many}transfer-encoding: chunked\r\ncontent-length: 3\r\n"),
    ] {
        let request = call(1, &json!({"length": 4}), more) + &next;
        let [direct, hyper] = &applications;
        assert_eq!(statuses(direct, &request).await, [400], "{more}");
        // hyper goes by the chunks, and shows no length.
        assert_eq!(statuses(hyper, &request).await, [200], "{more}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_waited_for_are_counted() {
    let request_memory = ResponseMemory::new(400 << 10);
    let options =
        HttpServerOptions { request_memory: request_memory.clone(), ..HttpServerOptions::default() };
    for application in applications_with(&Texts::default(), options) {
        for n_bytes in [10, 5_000, 60_000] {
            let request = call(1, &json!({"length": 4, "long": "x".repeat(n_bytes)}), "");
            let mut clients = Vec::new();
            let mut n_refused = 0;
            while n_refused == 0 && clients.len() < 8 {
                let mut client = connect(&application);
                client.write_all(&request.as_bytes()[..request.len() - 1]).await.unwrap();
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                let mut output = Vec::new();
                if client.read_buf(&mut output).now_or_never().is_some() {
                    assert!(output.starts_with(b"HTTP/1.1 503 "), "{}", String::from_utf8_lossy(&output));
                    n_refused += 1;
                }
                clients.push(client);
            }
            // The memory has room for the requests, and for the connections of some.
            let n_expected = (400 << 10) / ((64 << 10) + n_bytes) + 1;
            assert_eq!((n_refused, clients.len()), (1, n_expected), "{n_bytes}");
            drop(clients);
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(request_memory.n_bytes(), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_comes_late_is_waited_for() {
    let [direct, _] = applications(&Texts::default());
    let mut client = connect(&direct);
    let input = call(7, &json!({"length": 4}), "connection: keep-alive\r\n");
    let (early, late) = input.split_at(input.len() - 10);
    client.write_all(early.as_bytes()).await.unwrap();
    time::sleep(Duration::from_secs(30)).await;
    client.write_all(late.as_bytes()).await.unwrap();
    let mut output = Vec::new();
    while !output.ends_with(b"}") {
        assert!(client.read_buf(&mut output).await.unwrap() > 0, "it ends before the answer");
    }
    let output = String::from_utf8(output).unwrap();
    assert!(output.starts_with("HTTP/1.1 200 OK\r\n") && output.contains("xxxx"), "{output}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_complete_head_is_closed() {
    let applications = applications(&Texts::default());
    for (input, then) in [
        ("", ""),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0", ""),
        ("POST /mcp HT", ""),
        ("POST /mcp HTTP/1.1\r\nhost: localhost\r\n", "x-slow: 1\r\n"),
        (&*call(1, &json!({"length": 2}), ""), "POST /mcp HTTP/1.1\r\nhost"),
        // Served by hyper, where the time counts from the last response.
        ("GET /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n", "POST /mcp HTTP/1.1\r\nhost"),
        ("GET /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n", ""),
        (&*call(1, &json!({"length": 4, "long": "x".repeat(40_000)}), ""), ""),
    ] {
        for application in &applications {
            let mut client = connect(application);
            client.write_all(input.as_bytes()).await.unwrap();
            time::sleep(HEAD_TIMEOUT / 2).await;
            // It may be closed by now.
            let _ = client.write_all(then.as_bytes()).await;
            let mut output = Vec::new();
            let reading = client.read_to_end(&mut output);
            time::timeout(2 * HEAD_TIMEOUT, reading).await.expect("the connection ends").unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_may_wait_between_two_requests() {
    let [direct, _] = applications(&Texts::default());
    let mut client = connect(&direct);
    for id in [1, 2] {
        client.write_all(call(id, &json!({"length": 4}), "").as_bytes()).await.unwrap();
        let mut output = Vec::new();
        while !output.ends_with(b"}") {
            assert!(client.read_buf(&mut output).await.unwrap() > 0, "it ends before answer {id}");
        }
        time::sleep(10 * HEAD_TIMEOUT).await;
    }
}

/// However a response is written, a client must read some of it in time.
#[tokio::test(start_paused = true)]
async fn a_connection_ends_if_its_client_does_not_read() {
    let response_memory = ResponseMemory::new(1 << 20);
    let options =
        HttpServerOptions { response_memory: response_memory.clone(), ..HttpServerOptions::default() };
    for application in applications_with(&Texts::default(), options) {
        for (length, reads) in [(100_000, false), (100_001, false), (100_000, true), (100_001, true)] {
            let (mut client, server) = duplex(16 * 1024);
            let application = Arc::clone(&application);
            let serving = tokio::spawn(async move { application.serve_connection(server).await });
            client.write_all(call(1, &json!({"length": length}), "").as_bytes()).await.unwrap();
            if reads {
                let mut output = vec![0; length];
                for part in output.chunks_mut(10_000) {
                    client.read_exact(part).await.unwrap();
                    time::sleep(WRITE_TIMEOUT / 2).await;
                }
                client.shutdown().await.unwrap();
            }
            time::timeout(2 * WRITE_TIMEOUT, serving).await.expect("it ends").unwrap();
            assert_eq!(response_memory.n_bytes(), 0);
        }
    }
}

/// A stateless call ends with its connection, even if the client has begun its next request.
#[tokio::test]
async fn a_client_that_disconnects_cancels_a_stateless_call() {
    for next in ["", "POST /mcp HTTP/1.1\r\n"] {
        let service = Texts::default();
        let [direct, _] = applications(&service);
        let mut client = connect(&direct);
        let input = call(1, &json!({}), "") + next;
        client.write_all(input.as_bytes()).await.unwrap();
        tokio::task::yield_now().await;
        drop(client);
        time::timeout(Duration::from_mins(1), service.dropped.notified()).await.unwrap();
    }
}

#[tokio::test]
async fn a_client_that_disconnects_is_noticed_behind_what_it_has_sent() {
    let service = Texts::default();
    let [direct, _] = applications(&service);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    tokio::spawn(async move { direct.serve_connection(server).await });
    let input = call(1, &json!({}), "") + "POST /mcp HTTP/1.1\r\nx-long: " + &"x".repeat(20_000);
    client.write_all(input.as_bytes()).await.unwrap();
    time::timeout(Duration::from_mins(1), service.begun.notified()).await.unwrap();
    assert!(service.dropped.notified().now_or_never().is_none());
    drop(client);
    time::pause();
    time::timeout(Duration::from_mins(1), service.dropped.notified()).await.unwrap();
}

/// A POST in a session, or one that opens it.
fn post_in_session(session: Option<&str>, body: &serde_json::Value) -> String {
    let body = body.to_string();
    let session = session.map(|id| format!("mcp-session-id: {id}\r\n")).unwrap_or_default();
    format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{session}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Sends a request and returns its response, of which the body has a length.
async fn exchange(client: &mut DuplexStream, request: &str) -> String {
    client.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&response).to_string();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() == length.map_or(0, |length| length.parse::<usize>().unwrap()) {
                return text;
            }
        }
        assert!(client.read_buf(&mut response).await.unwrap() > 0, "it ends before the answer: {text}");
    }
}

#[tokio::test]
async fn a_call_of_a_session_outlives_its_connection_but_not_its_session() {
    let service = Texts::default();
    let [direct, _] = applications(&service);
    let mut client = connect(&direct);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let opening = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let opened = exchange(&mut client, &post_in_session(None, &opening)).await;
    let session = opened.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned();
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "t"}});
    let call = post_in_session(Some(&session), &call);
    client.write_all(call.as_bytes()).await.unwrap();
    time::timeout(Duration::from_mins(1), service.begun.notified()).await.unwrap();
    drop(client);
    // Its id is in use until it has ended.
    let mut client = connect(&direct);
    let repeated = exchange(&mut client, &call).await;
    assert!(repeated.contains("a request with this id is in progress"), "{repeated}");
    assert!(service.dropped.notified().now_or_never().is_none());
    let delete = format!("DELETE /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: {session}\r\n\r\n");
    let deleted = exchange(&mut client, &delete).await;
    assert!(deleted.starts_with("HTTP/1.1 204"), "{deleted}");
    time::timeout(Duration::from_mins(1), service.dropped.notified()).await.unwrap();
}
