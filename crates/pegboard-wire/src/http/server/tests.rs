use futures_util::future::{BoxFuture, FutureExt, ready};
use pegboard_json::RawJson;
use serde_json::json;

use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::*;
use crate::server::{McpService, ServerRequest, ServiceChange, ServiceDescription, ServiceReply};

/// Answers every request with the id of its session.
struct SessionIdEcho;

impl McpService for SessionIdEcho {
    fn describe(&self, _revision: Revision) -> ServiceDescription {
        let info = RawJson::from(json!({"name": "echo", "version": "1"}));
        ServiceDescription { info, capabilities: RawJson::empty_object(), instructions: None }
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        let session = request.session.map(|session| session.as_str().to_owned());
        ready(Ok(RawJson::from(json!({"session": session})).into())).boxed()
    }
}

#[tokio::test]
async fn a_service_sees_the_session_id_of_the_header() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = ServiceServer::new(Arc::new(SessionIdEcho));
    tokio::spawn(serve(listener, HttpServerEndpoint::new(server, HttpServerOptions::default())));
    let post = |body: serde_json::Value| {
        let request = reqwest::Client::new().post(&url).header(header::CONTENT_TYPE, "application/json");
        request.body(body.to_string())
    };
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let opened = post(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}));
    let opened = opened.send().await.unwrap();
    let id = opened.headers()[headers::SESSION_ID].to_str().unwrap().to_owned();
    let call = post(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}));
    let answer = call.header(headers::SESSION_ID, &id).send().await.unwrap().text().await.unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["result"]["session"], id.as_str());
}

/// Asks the client a question in every call, and reports when the call is dropped.
struct Asking(Arc<Notify>);

struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl McpService for Asking {
    fn describe(&self, revision: Revision) -> ServiceDescription {
        SessionIdEcho.describe(revision)
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        let guard = NotifyOnDrop(Arc::clone(&self.0));
        async move {
            let _guard = guard;
            let answer = request.peer.request("elicitation/create", None).await;
            Ok(RawJson::from(json!({"isAnswered": answer.is_ok()})).into())
        }
        .boxed()
    }
}

/// The call ends with its session, even if the client does not read the stream.
#[tokio::test]
async fn a_call_that_waits_for_its_client_ends_with_the_session() {
    for is_read in [true, false] {
        let dropped = Arc::new(Notify::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = ServiceServer::new(Arc::new(Asking(Arc::clone(&dropped))));
        tokio::spawn(serve(listener, HttpServerEndpoint::new(server, HttpServerOptions::default())));
        let client = reqwest::Client::new();
        let post = |body: serde_json::Value| {
            client.post(&url).header(header::CONTENT_TYPE, "application/json").body(body.to_string())
        };
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}});
        let opened = post(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}));
        let opened = opened.send().await.unwrap();
        let id = opened.headers()[headers::SESSION_ID].to_str().unwrap().to_owned();
        let call = post(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call"}));
        let stream = call.header(headers::SESSION_ID, &id).send().await.unwrap();
        assert_eq!(stream.headers()[header::CONTENT_TYPE], "text/event-stream");
        let stream = is_read.then_some(stream);
        let deleted = client.delete(&url).header(headers::SESSION_ID, &id).send().await.unwrap();
        assert_eq!(deleted.status(), StatusCode::NO_CONTENT);
        time::timeout(Duration::from_secs(10), dropped.notified()).await.unwrap();
        drop(stream);
    }
}

/// An id can be used again after its request was cancelled, and the cancelled request has an empty stream.
#[tokio::test]
async fn a_cancelled_request_gets_no_response_and_frees_its_id() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = ServiceServer::new(Arc::new(Asking(Arc::default())));
    tokio::spawn(serve(listener, HttpServerEndpoint::new(server, HttpServerOptions::default())));
    let client = reqwest::Client::new();
    let post = |body: serde_json::Value| {
        client.post(&url).header(header::CONTENT_TYPE, "application/json").body(body.to_string())
    };
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let opened = post(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}));
    let opened = opened.send().await.unwrap();
    let id = opened.headers()[headers::SESSION_ID].to_str().unwrap().to_owned();
    for _ in 0..20 {
        let call = post(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call"}));
        let stream = call.header(headers::SESSION_ID, &id).send().await.unwrap();
        assert_eq!(stream.status(), StatusCode::OK);
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}});
        let cancelled = post(cancel).header(headers::SESSION_ID, &id).send().await.unwrap();
        assert_eq!(cancelled.status(), StatusCode::ACCEPTED);
        let text = stream.text().await.unwrap();
        assert!(!text.contains(r#""id":2,"result""#), "{text}");
        // The stream ends when the request is cancelled; its id is free once the work has ended.
        tokio::task::yield_now().await;
    }
}

/// Sends a large notification in every call, then works on.
struct Verbose(Arc<Notify>);

impl McpService for Verbose {
    fn describe(&self, revision: Revision) -> ServiceDescription {
        SessionIdEcho.describe(revision)
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        let done = Arc::clone(&self.0);
        async move {
            let text = "x".repeat(16 << 20);
            request.peer.notify("notifications/message", RawJson::from(json!({"data": text}))).await;
            time::sleep(Duration::from_millis(10)).await;
            done.notify_one();
            Ok(RawJson::empty_object().into())
        }
        .boxed()
    }
}

#[tokio::test]
async fn a_stateless_call_goes_on_while_its_client_does_not_read() {
    let done = Arc::new(Notify::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = ServiceServer::new(Arc::new(Verbose(Arc::clone(&done))));
    tokio::spawn(serve(listener, HttpServerEndpoint::new(server, HttpServerOptions::default())));
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t", "_meta": meta}});
    let body = body.to_string();
    let head = format!(
        "POST / HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: tools/call\r\nmcp-name: t\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut socket, format!("{head}{body}").as_bytes()).await.unwrap();
    time::timeout(Duration::from_secs(10), done.notified()).await.unwrap();
    drop(socket);
}

/// Sends more notifications than any stream keeps, and asks the client in between.
struct Flooding;

impl McpService for Flooding {
    fn describe(&self, revision: Revision) -> ServiceDescription {
        let capabilities = RawJson::from(json!({"logging": {}}));
        ServiceDescription { capabilities, ..SessionIdEcho.describe(revision) }
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        async move {
            let params = RawJson::from(json!({"level": "info", "data": "x".repeat(10_000)}));
            for _ in 0..2_000 {
                request.peer.notify("notifications/message", params.clone()).await;
            }
            Ok(RawJson::from(json!({"is": "answered"})).into())
        }
        .boxed()
    }
}

/// A client that reads nothing until the call has ended, on the first connection or after a reconnect.
#[tokio::test]
async fn the_answer_to_a_flooding_call_arrives_and_a_lost_stream_has_a_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let memory = EventMemory::new(1 << 20, |_| {});
    let options = HttpServerOptions { event_memory: memory.clone(), ..HttpServerOptions::default() };
    tokio::spawn(serve(listener, HttpServerEndpoint::new(ServiceServer::new(Arc::new(Flooding)), options)));
    let client = reqwest::Client::new();
    let post = |body: serde_json::Value| {
        client.post(&url).header(header::CONTENT_TYPE, "application/json").body(body.to_string())
    };
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let opened = post(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}));
    let opened = opened.send().await.unwrap();
    let session = opened.headers()[headers::SESSION_ID].to_str().unwrap().to_owned();
    let resume = async |last: &str| {
        let request = client.get(&url).header(header::ACCEPT, "text/event-stream");
        let request = request.header(headers::SESSION_ID, &session).header(headers::LAST_EVENT_ID, last);
        let response = request.send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    };
    for id in 2..4 {
        let call = post(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call"}));
        let stream = call.header(headers::SESSION_ID, &session).send().await.unwrap();
        let text = if id == 2 {
            stream.text().await.unwrap()
        } else {
            drop(stream);
            resume("2-0").await.1
        };
        assert!(text.contains("messages of this stream were dropped"), "{}", text.len());
        assert!(text.ends_with("\"result\":{\"is\":\"answered\"}}\n\n"));
        assert!(memory.n_bytes() <= 1 << 20);
    }
    let (status, body) = resume("2-999999").await;
    assert_eq!(status, StatusCode::GONE);
    insta::assert_snapshot!(body, @r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"The events after Last-Event-ID were dropped to free memory. The request was processed"}}"#);
    for unknown in ["3-0", "elsewhere"] {
        let (status, body) = resume(unknown).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        insta::allow_duplicates! {
            insta::assert_snapshot!(body, @r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid request: Last-Event-ID is not the id of an event of this session"}}"#);
        }
    }
}

/// An event without data is a message to clients of older revisions, and an invalid one.
#[tokio::test]
async fn only_clients_of_2025_11_25_get_an_event_without_data() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = ServiceServer::new(Arc::new(SessionIdEcho));
    tokio::spawn(serve(listener, HttpServerEndpoint::new(server, HttpServerOptions::default())));
    let post = |body: serde_json::Value| {
        let request = reqwest::Client::new().post(&url).header(header::CONTENT_TYPE, "application/json");
        request.body(body.to_string())
    };
    let cases = [("2025-03-26", false), ("2025-06-18", false), ("2025-11-25", true)];
    for (revision, is_primed) in cases {
        let params = json!({"protocolVersion": revision, "capabilities": {}});
        let opened = post(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}));
        let opened = opened.send().await.unwrap();
        let id = opened.headers()[headers::SESSION_ID].to_str().unwrap().to_owned();
        let call = post(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}));
        let call = call.header(headers::SESSION_ID, &id).header(header::ACCEPT, "text/event-stream");
        let events = call.send().await.unwrap().text().await.unwrap();
        let events: Vec<&str> = events.split_terminator("\n\n").collect();
        let is_empty = |event: &str| event.lines().any(|line| line == "data:");
        assert_eq!(is_empty(events[0]), is_primed, "{revision} {events:?}");
        assert_eq!(events.len(), if is_primed { 2 } else { 1 }, "{revision} {events:?}");
        // Every stream tells when to reconnect, once.
        let has_retry = |event: &&str| event.lines().any(|line| line == "retry: 1000");
        assert!(has_retry(&events[0]), "{revision} {events:?}");
        assert_eq!(events.iter().filter(|event| has_retry(event)).count(), 1, "{revision} {events:?}");
    }
}

/// Answers every request with 100 KiB.
struct LargeResult;

impl McpService for LargeResult {
    fn describe(&self, revision: Revision) -> ServiceDescription {
        SessionIdEcho.describe(revision)
    }

    fn call(&self, _request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        ready(Ok(RawJson::from(json!({"text": "x".repeat(100 << 10)})).into())).boxed()
    }
}

async fn body_of(reply: HttpReply) -> String {
    String::from_utf8(reply.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

const DISCARDED: &str = "The result of 100 KiB was discarded";

/// A result that does not fit is replaced by an error, until the client has read the others.
#[tokio::test]
async fn unread_results_are_limited_over_http() {
    let response_memory = ResponseMemory::new(250 << 10);
    let options =
        HttpServerOptions { response_memory: response_memory.clone(), ..HttpServerOptions::default() };
    let endpoint = HttpServerEndpoint::new(ServiceServer::new(Arc::new(LargeResult)), options);
    let post = async |session: Option<&HeaderValue>, body: serde_json::Value| {
        let mut request = http::Request::post("/").header(header::CONTENT_TYPE, "application/json");
        request = request.header(header::HOST, "localhost");
        if let Some(session) = session {
            request = request.header(headers::SESSION_ID, session);
        }
        endpoint.handle(request.body(Body::from(body.to_string())).unwrap()).await
    };
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let opened =
        post(None, json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})).await;
    let session = opened.headers()[headers::SESSION_ID].clone();
    let call = async |id: u64| {
        post(Some(&session), json!({"jsonrpc": "2.0", "id": id, "method": "tools/call"})).await
    };
    let unread = [call(2).await, call(3).await];
    let refused = body_of(call(4).await).await;
    assert!(refused.contains(DISCARDED) && refused.contains(r#""executed":true"#), "{refused}");
    for reply in unread {
        assert!(!body_of(reply).await.contains("error"), "the others are complete");
    }
    assert_eq!(response_memory.n_bytes(), 0);
    assert!(!body_of(call(5).await).await.contains("error"));
}

/// Requests that do not fit are refused, and nothing of them is handled.
#[tokio::test]
async fn large_requests_are_limited_while_they_are_read() {
    use futures_util::stream::{self, StreamExt};
    use http_body_util::StreamBody;

    let request_memory = ResponseMemory::new(400 << 10);
    let options =
        HttpServerOptions { request_memory: request_memory.clone(), ..HttpServerOptions::default() };
    let endpoint = HttpServerEndpoint::new(ServiceServer::new(Arc::new(LargeResult)), options);
    let request = || {
        let request = http::Request::post("/").header(header::CONTENT_TYPE, "application/json");
        request.header(header::HOST, "localhost")
    };
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "x".repeat(100 << 10)}});
    // Two clients have sent most of their request.
    let partly = || {
        let chunk = Ok::<_, std::convert::Infallible>(http_body::Frame::data(Bytes::from(body.to_string())));
        let chunks = stream::iter([chunk]).chain(stream::pending());
        request().body(StreamBody::new(Box::pin(chunks))).unwrap()
    };
    let mut reading: Vec<_> = (0..2).map(|_| Box::pin(endpoint.handle(partly()))).collect();
    for reading in &mut reading {
        assert!(reading.now_or_never().is_none());
    }
    let reply = endpoint.handle(request().body(Body::from(body.to_string())).unwrap()).await;
    assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE);
    drop(reading);
    assert_eq!(request_memory.n_bytes(), 0);
    let reply = endpoint.handle(request().body(Body::from(body.to_string())).unwrap()).await;
    assert_ne!(reply.status(), StatusCode::SERVICE_UNAVAILABLE);
    drop(reply);
    assert_eq!(request_memory.n_bytes(), 0);
}

/// Transports with a queue, which are stdio and WebSocket, have the same limit.
#[tokio::test]
async fn unread_results_are_limited_in_a_queue() {
    use crate::transport::{IncomingEvent, TransportEnd, channels};

    let memory = ResponseMemory::new(250 << 10);
    let server = ServiceServer::new(Arc::new(LargeResult)).with_response_memory(memory.clone());
    let (transport, end) = channels();
    tokio::spawn(async move { server.serve(transport).await });
    let TransportEnd { mut outgoing, incoming, cancels: _cancels } = end;
    let send = async |id: i64, method: &str, params: serde_json::Value| {
        let message = Message::request(Id::Number(id), method, Some(RawJson::from(params)));
        incoming.send(IncomingEvent::message(message)).await.unwrap();
    };
    send(1, "initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}})).await;
    outgoing.recv().await.unwrap();
    let mut unread = Vec::new();
    for id in 2..5 {
        send(id, "tools/call", json!({})).await;
        unread.push(outgoing.recv().await.unwrap().message);
    }
    let texts = unread.iter().map(|message| String::from_utf8(message.encode().to_vec()).unwrap());
    let is_discarded: Vec<bool> = texts.map(|text| text.contains(DISCARDED)).collect();
    assert_eq!(is_discarded, [false, false, true]);
    drop(unread);
    assert_eq!(memory.n_bytes(), 0);
}

/// A service that announces changes.
struct Changing(tokio::sync::broadcast::Sender<ServiceChange>);

impl McpService for Changing {
    fn describe(&self, revision: Revision) -> ServiceDescription {
        SessionIdEcho.describe(revision)
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        SessionIdEcho.call(request)
    }

    fn changes(&self) -> Option<tokio::sync::broadcast::Receiver<ServiceChange>> {
        Some(self.0.subscribe())
    }
}

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}"#;

/// Sends a request to an endpoint.
async fn send(
    endpoint: &HttpServerEndpoint,
    method: Method,
    headers: &[(http::HeaderName, &str)],
    body: &str,
) -> HttpReply {
    let mut request = http::Request::builder()
        .method(method)
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, text/event-stream");
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    endpoint.handle(request.body(Body::from(body.to_owned())).unwrap()).await
}

/// Opens a session and returns its id.
async fn open_session(endpoint: &HttpServerEndpoint) -> String {
    let opened = send(endpoint, Method::POST, &[], INITIALIZE).await;
    opened.headers()[headers::SESSION_ID].to_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_client_is_told_of_changes_only_after_its_handshake() {
    let changes = tokio::sync::broadcast::Sender::new(4);
    let service = ServiceServer::new(Arc::new(Changing(changes.clone())));
    let endpoint = HttpServerEndpoint::new(service, HttpServerOptions::default());
    for (message, n_told) in [("", 0), (INITIALIZED, 1)] {
        let session = open_session(&endpoint).await;
        let session = [(headers::SESSION_ID, session.as_str())];
        if !message.is_empty() {
            send(&endpoint, Method::POST, &session, message).await;
        }
        changes.send(ServiceChange::Tools).unwrap();
        let mut body = send(&endpoint, Method::GET, &session, "").await.into_body();
        let mut told = 0;
        while let Ok(Some(Ok(frame))) = time::timeout(Duration::from_secs(1), body.frame()).await {
            let event = frame.into_data().unwrap();
            told += String::from_utf8_lossy(&event).matches("tools/list_changed").count();
        }
        assert_eq!(told, n_told, "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_session_is_told_of_changes_and_ends_after_its_own_idle_time() {
    const PING: &str = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
    let changes = tokio::sync::broadcast::Sender::new(4);
    let service = ServiceServer::new(Arc::new(Changing(changes.clone())));
    let options = HttpServerOptions { session_idle: Duration::from_mins(10), ..HttpServerOptions::default() };
    let endpoint = HttpServerEndpoint::new(service, options);
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let session = open_session(&endpoint).await;
        send(&endpoint, Method::POST, &[(headers::SESSION_ID, &session)], INITIALIZED).await;
        sessions.push(session);
        time::sleep(Duration::from_mins(2)).await;
    }
    assert_eq!(changes.receiver_count(), 1, "the sessions share a subscription");
    changes.send(ServiceChange::Tools).unwrap();
    for session in &sessions[1..] {
        let stream = send(&endpoint, Method::GET, &[(headers::SESSION_ID, session)], "").await;
        let first = stream.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(String::from_utf8_lossy(&first).contains("tools/list_changed"), "{first:?}");
    }
    // The first session was opened six minutes ago, the others were just used.
    time::sleep(Duration::from_mins(5)).await;
    let statuses = async |endpoint: &HttpServerEndpoint| {
        let mut statuses = Vec::new();
        for session in &sessions[..2] {
            let session = [(headers::SESSION_ID, session.as_str())];
            statuses.push(send(endpoint, Method::POST, &session, PING).await.status().as_u16());
        }
        statuses
    };
    assert_eq!(statuses(&endpoint).await, [404, 200]);
    time::sleep(Duration::from_mins(11)).await;
    assert_eq!(statuses(&endpoint).await, [404, 404]);
}

/// Works until it may finish, and reports that it has.
struct Working {
    may_finish: Arc<Notify>,
    has_finished: Arc<Notify>,
}

impl McpService for Working {
    fn describe(&self, revision: Revision) -> ServiceDescription {
        SessionIdEcho.describe(revision)
    }

    fn call(&self, _request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        let (may_finish, has_finished) = (Arc::clone(&self.may_finish), Arc::clone(&self.has_finished));
        async move {
            may_finish.notified().await;
            has_finished.notify_one();
            Ok(RawJson::empty_object().into())
        }
        .boxed()
    }
}

#[tokio::test]
async fn the_work_of_a_session_goes_on_when_its_client_disconnects() {
    const CALL: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
    let (may_finish, has_finished) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let service = Working { may_finish: Arc::clone(&may_finish), has_finished: Arc::clone(&has_finished) };
    let endpoint =
        HttpServerEndpoint::new(ServiceServer::new(Arc::new(service)), HttpServerOptions::default());
    let session = open_session(&endpoint).await;
    let session = [(headers::SESSION_ID, session.as_str())];
    let mut call = Box::pin(send(&endpoint, Method::POST, &session, CALL));
    assert!(futures_util::poll!(&mut call).is_pending());
    drop(call);
    let again = send(&endpoint, Method::POST, &session, CALL).await;
    assert_eq!(again.status(), StatusCode::BAD_REQUEST, "its id is still in use");
    may_finish.notify_one();
    time::timeout(Duration::from_secs(10), has_finished.notified()).await.unwrap();
}

/// Panics, at once or later.
struct Panicking;

impl McpService for Panicking {
    fn describe(&self, revision: Revision) -> ServiceDescription {
        SessionIdEcho.describe(revision)
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        assert!(&*request.method == "tools/list", "a bug");
        async move {
            tokio::task::yield_now().await;
            panic!("another bug")
        }
        .boxed()
    }
}

#[tokio::test]
async fn a_panic_in_a_service_costs_only_its_request() {
    const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let endpoint =
        HttpServerEndpoint::new(ServiceServer::new(Arc::new(Panicking)), HttpServerOptions::default());
    let session = open_session(&endpoint).await;
    for method in ["tools/list", "prompts/list", "tools/list"] {
        let in_session = [(headers::SESSION_ID, session.as_str())];
        let stateless = [(headers::PROTOCOL_VERSION, "2026-07-28"), (headers::METHOD, method)];
        for (headers, params) in
            [(&in_session[..], "{}".to_owned()), (&stateless, format!(r#"{{"_meta":{META}}}"#))]
        {
            let body = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{params}}}"#);
            let reply = body_of(send(&endpoint, Method::POST, headers, &body).await).await;
            let reply: serde_json::Value = serde_json::from_str(&reply).unwrap();
            assert_eq!(reply["error"]["message"], "Internal error: the request handler panicked", "{reply}");
        }
    }
}
