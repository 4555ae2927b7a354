//! Servers with a URL, over real sockets.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use pegboard_core::call::CallContext;
use pegboard_core::id::ServerName;
use pegboard_core::provider::{self, Provider, ProviderMethod, ProviderUpdate, ServerState};
use pegboard_core::secret::Secret;
use pegboard_core::settings::mcp::{McpTarget, RemoteEndpoint, ResolvedMcpServer};
use pegboard_providers::mcp::{Connector, HttpConnector, McpServer, SseConnector, WebSocketConnector};
use pegboard_testkit::fixture::Fixture;
use pegboard_testkit::serve::all_transports;
use pegboard_wire::client::Era;
use pegboard_wire::http::server::HttpServerOptions;
use pegboard_wire::server::{self, McpService, ServiceChange};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time;

use crate::mcp::scripted::{
    ERAS, EXACT, ScriptedReply, ScriptedServer, TestClient, WithEra, call, call_text, outcome_text,
    wait_for_state, wait_until,
};

/// Middleware that injects faults between client and server.
#[derive(Clone, Default)]
struct FaultInjector {
    requires_auth: Arc<AtomicBool>,
    forgets_session: Arc<AtomicBool>,
    /// Rejects the next request with a bare 400.
    rejects_next: Arc<AtomicBool>,
    is_unavailable: Arc<AtomicBool>,
    is_stateless_era_unavailable: Arc<AtomicBool>,
    n_requests: Arc<AtomicUsize>,
}

impl FaultInjector {
    async fn handle(self, request: Request, next: Next) -> Response {
        self.n_requests.fetch_add(1, Ordering::SeqCst);
        if self.requires_auth.load(Ordering::SeqCst)
            && request.headers().get("authorization").is_none_or(|value| value != "Bearer right")
        {
            return (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer realm=\"x\"")]).into_response();
        }
        let is_stateless = request.headers().contains_key("mcp-method");
        if self.is_unavailable.load(Ordering::SeqCst)
            || is_stateless && self.is_stateless_era_unavailable.load(Ordering::SeqCst)
        {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        let is_in_session = request.headers().contains_key("mcp-session-id") && request.method() == "POST";
        if is_in_session && self.forgets_session.swap(false, Ordering::SeqCst) {
            return StatusCode::NOT_FOUND.into_response();
        }
        if is_in_session && self.rejects_next.swap(false, Ordering::SeqCst) {
            return StatusCode::BAD_REQUEST.into_response();
        }
        next.run(request).await
    }
}

/// Serves all transports, and returns the address.
async fn serve(service: Arc<dyn McpService>, faults: &FaultInjector) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let faults = faults.clone();
    let router: Router = all_transports(&server::ServiceServer::new(service), &HttpServerOptions::default())
        .layer(middleware::from_fn(move |request, next| faults.clone().handle(request, next)));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address.to_string()
}

fn provider(connect: Arc<dyn Connector>) -> McpServer {
    McpServer::new(ResolvedMcpServer::new(ServerName::new("far").unwrap(), McpTarget::Embedded), connect)
}

fn http(url: &str) -> Arc<dyn Connector> {
    Arc::new(HttpConnector::new(&RemoteEndpoint::new(url)).unwrap())
}

#[tokio::test]
async fn every_transport_lists_and_calls_byte_for_byte() {
    let address = serve(Arc::new(ScriptedServer::new()), &FaultInjector::default()).await;
    let connectors: [Arc<dyn Connector>; 5] = [
        Arc::new(WithEra(Era::Session, http(&format!("http://{address}/mcp")))),
        Arc::new(WithEra(Era::Stateless, http(&format!("http://{address}/mcp")))),
        Arc::new(SseConnector::new(&RemoteEndpoint::new(format!("http://{address}/legacy/sse"))).unwrap()),
        Arc::new(WebSocketConnector::new(&RemoteEndpoint::new(format!("ws://{address}/ws"))).unwrap()),
        // The connector detects the legacy transport by itself.
        http(&format!("http://{address}/legacy/sse")),
    ];
    for connector in connectors {
        let server = provider(connector);
        server.open().await.unwrap();
        let output = call(&server, "exact", json!({}), CallContext::default()).await.unwrap();
        assert_eq!(output.to_result().as_str(), EXACT);
        let ann = TestClient::named("Ann");
        assert_eq!(outcome_text(&call(&server, "count", json!({}), ann.context()).await), "counted");
        assert_eq!(ann.received().len(), 5);
        assert_eq!(outcome_text(&call(&server, "ask", json!({}), ann.context()).await), "Hello, Ann!");
        server.shut_down().await;
    }
}

#[tokio::test]
async fn subscriptions_work_over_http_in_both_eras() {
    for era in ERAS {
        let scripted = crate::mcp::requests::subscribable_server();
        let address = serve(Arc::new(scripted.clone()), &FaultInjector::default()).await;
        let server = provider(Arc::new(WithEra(era, http(&format!("http://{address}/mcp")))));
        let mut updates = server.updates();
        for uri in ["x:a", "x:b"] {
            let request = provider::ProviderRequest {
                method: ProviderMethod::Subscribe,
                params: json!({"uri": uri}).into(),
            };
            server.request(&request, &CallContext::default()).await.unwrap();
            scripted.notify_change(ServiceChange::Resource { uri: uri.to_owned(), params: None });
            let update = time::timeout(Duration::from_secs(30), updates.recv()).await.unwrap().unwrap();
            assert_eq!(update, ProviderUpdate::Resource(json!({"uri": uri}).into()));
        }
        server.shut_down().await;
    }
}

#[tokio::test]
async fn the_fixture_works_in_both_eras() {
    let address = serve(Arc::new(Fixture::new()), &FaultInjector::default()).await;
    for era in ERAS {
        let server = provider(Arc::new(WithEra(era, http(&format!("http://{address}/mcp")))));
        server.open().await.unwrap();
        let ann = TestClient::named("Ann");
        let asked =
            call(&server, "test_input_required_result_multiple_inputs", json!({}), ann.context()).await;
        assert_eq!(outcome_text(&asked), "All answers are here.");
        assert_eq!(
            outcome_text(&call(&server, "greet", json!({"name": "Bob"}), ann.context()).await),
            "Hello, Bob!"
        );
        let region = call(&server, "test_header_parameter", json!({"region": "eu"}), ann.context()).await;
        assert_eq!(outcome_text(&region), "Region: \"eu\"");
        wait_until(server.offering(), |offering| {
            [&offering.prompts, &offering.resources, &offering.templates].iter().all(|list| !list.is_empty())
        })
        .await;
        let params = json!({"name": "test_simple_prompt"}).into();
        let request = provider::ProviderRequest { method: ProviderMethod::GetPrompt, params };
        let prompt = server.request(&request, &CallContext::default()).await.unwrap();
        assert_eq!(prompt.to_value()["messages"].as_array().map(Vec::len), Some(1));
    }
}

#[tokio::test]
async fn elicitations_over_http_reach_their_own_callers() {
    let scripted = ScriptedServer::new();
    let address = serve(Arc::new(scripted.clone()), &FaultInjector::default()).await;
    let server = provider(Arc::new(WithEra(Era::Session, http(&format!("http://{address}/mcp")))));
    server.open().await.unwrap();
    let (ann, bob) = (TestClient::named("Ann"), TestClient::named("Bob"));
    let (to_ann, to_bob) = tokio::join!(
        call(&server, "ask", json!({}), ann.context()),
        call(&server, "ask", json!({}), bob.context())
    );
    assert_eq!(
        (outcome_text(&to_ann), outcome_text(&to_bob)),
        ("Hello, Ann!".to_owned(), "Hello, Bob!".to_owned())
    );
}

#[tokio::test]
async fn notifications_over_http_arrive_in_order() {
    let address = serve(Arc::new(ScriptedServer::new()), &FaultInjector::default()).await;
    for era in ERAS {
        let server = provider(Arc::new(WithEra(era, http(&format!("http://{address}/mcp")))));
        server.open().await.unwrap();
        let ann = TestClient::named("Ann");
        call(&server, "count", json!({}), ann.context()).await.unwrap();
        let progress = ["1 of Some(3.0)", "2 of Some(3.0)", "3 of Some(3.0)"];
        assert_eq!(ann.received(), [&["\"begin\""], &progress[..], &["\"end\""]].concat());
    }
}

#[tokio::test]
async fn a_tool_is_not_said_to_have_run_after_a_refused_connection() {
    for era in ERAS {
        let far = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let serving = async { serve(Arc::new(ScriptedServer::new()), &FaultInjector::default()).await };
        let address = far.spawn(serving).await.unwrap();
        let server = provider(Arc::new(WithEra(era, http(&format!("http://{address}/mcp")))));
        server.open().await.unwrap();
        // Afterwards all its sockets are closed.
        let shutting_down = move || far.shutdown_timeout(std::time::Duration::from_secs(10));
        tokio::task::spawn_blocking(shutting_down).await.unwrap();
        while tokio::net::TcpStream::connect(&address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        let text = call_text(&server, "echo").await;
        // The supervisor may notice first that the server is gone.
        let is_refused = text.starts_with("server_unavailable: ") && text.contains("cannot reach the server");
        assert!(is_refused || text.contains("restart still running"), "{text}");
        assert!(!text.contains("may have run"), "{text}");
    }
}

#[tokio::test]
async fn an_unavailable_http_server_is_reconnected() {
    for era in ERAS {
        let faults = FaultInjector::default();
        let address = serve(Arc::new(ScriptedServer::new()), &faults).await;
        let server = provider(Arc::new(WithEra(era, http(&format!("http://{address}/mcp")))));
        server.open().await.unwrap();
        faults.is_unavailable.store(true, Ordering::SeqCst);
        assert_eq!(
            call_text(&server, "echo").await,
            "transport_error: MCP server 'far' failed before it responded: the server answered with HTTP status \
             503. The tool may have run"
        );
        wait_for_state(&server, &ServerState::Restarting { attempt: 2 }).await;
        faults.is_unavailable.store(false, Ordering::SeqCst);
        wait_for_state(&server, &ServerState::Ready).await;
        assert_eq!(call_text(&server, "echo").await, "{}");
    }
}

#[tokio::test]
async fn an_era_that_was_out_of_reach_is_asked_for_again() {
    let faults = FaultInjector::default();
    let address = serve(Arc::new(ScriptedServer::dual_era()), &faults).await;
    let server = provider(http(&format!("http://{address}/mcp")));
    let (ann, bob) = (TestClient::with_session("Ann"), TestClient::named("Bob"));
    let eras = async || {
        let mut eras = Vec::new();
        for client in [&ann, &bob] {
            eras.push(outcome_text(&call(&server, "era", json!({}), client.context()).await));
        }
        eras
    };
    faults.is_stateless_era_unavailable.store(true, Ordering::SeqCst);
    server.open().await.unwrap();
    assert_eq!(eras().await, ["Session", "Session"]);
    let pass = async |minutes| {
        time::pause();
        time::advance(Duration::from_mins(minutes)).await;
        time::resume();
    };
    // It fails once more, and then it is asked less often.
    pass(1).await;
    let n_requests = faults.n_requests.load(Ordering::SeqCst);
    assert_eq!(eras().await, ["Session", "Session"]);
    assert!(faults.n_requests.load(Ordering::SeqCst) > n_requests + 2, "it was asked again");
    faults.is_stateless_era_unavailable.store(false, Ordering::SeqCst);
    pass(1).await;
    assert_eq!(eras().await, ["Session", "Session"]);
    pass(1).await;
    assert_eq!(eras().await, ["Session", "Stateless"]);
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_over_http() {
    for era in ERAS {
        let scripted = ScriptedServer::new();
        let address = serve(Arc::new(scripted.clone()), &FaultInjector::default()).await;
        let server = provider(Arc::new(WithEra(era, http(&format!("http://{address}/mcp")))));
        server.open().await.unwrap();
        tokio::select! {
            result = call(&server, "hang", json!({}), CallContext::default()) => panic!("{result:?}"),
            () = scripted.wait_for_hanging(1) => {}
        }
        scripted.wait_for_hanging(0).await;
    }
}

#[tokio::test]
async fn a_401_is_reported_as_needs_login_with_a_fix() {
    for era in ERAS {
        let faults = FaultInjector::default();
        faults.requires_auth.store(true, Ordering::SeqCst);
        let address = serve(Arc::new(ScriptedServer::new()), &faults).await;
        let url = format!("http://{address}/mcp");
        let server = provider(Arc::new(WithEra(era, http(&url))));
        let error = server.open().await.unwrap_err();
        assert_eq!(error.kind().as_str(), "auth_required");
        insta::allow_duplicates! {
            insta::assert_snapshot!(
                error.text(),
                @r#"MCP server 'far' requires a login. Set a valid token in its `headers`; challenge: Bearer realm="x""#
            );
        }
        assert!(matches!(&*server.state().borrow(), ServerState::NeedsLogin { .. }));
        let n_requests = faults.n_requests.load(Ordering::SeqCst);
        assert_eq!(server.open().await.unwrap_err().kind().as_str(), "auth_required");
        assert_eq!(faults.n_requests.load(Ordering::SeqCst), n_requests, "no new attempt is made at once");

        let mut address = RemoteEndpoint::new(url);
        address.headers.insert("Authorization".to_owned(), Secret::new("Bearer right"));
        let server = provider(Arc::new(WithEra(era, Arc::new(HttpConnector::new(&address).unwrap()))));
        server.open().await.unwrap();
        assert_eq!(call_text(&server, "echo").await, "{}");
    }
}

#[tokio::test]
async fn a_401_during_a_call_is_reported_as_needs_login() {
    for era in ERAS {
        let faults = FaultInjector::default();
        let address = serve(Arc::new(ScriptedServer::new()), &faults).await;
        let server = provider(Arc::new(WithEra(era, http(&format!("http://{address}/mcp")))));
        server.open().await.unwrap();
        faults.requires_auth.store(true, Ordering::SeqCst);
        assert!(
            call_text(&server, "echo").await.starts_with("auth_required: MCP server 'far' requires a login.")
        );
        let needs_login = |state: &ServerState| matches!(state, ServerState::NeedsLogin { .. });
        wait_until(server.state(), needs_login).await;
        assert!(!server.offering().borrow().tools.is_empty(), "its listing is kept");
    }
}

#[tokio::test]
async fn an_expired_session_is_renewed_transparently() {
    let (faults, scripted) = (FaultInjector::default(), ScriptedServer::new());
    let address = serve(Arc::new(scripted.clone()), &faults).await;
    let server = provider(Arc::new(WithEra(Era::Session, http(&format!("http://{address}/mcp")))));
    server.open().await.unwrap();
    faults.forgets_session.store(true, Ordering::SeqCst);
    assert_eq!(call_text(&server, "echo").await, "{}");
    assert!(!faults.forgets_session.load(Ordering::SeqCst));
    assert_eq!(scripted.calls.lock().unwrap().len(), 1);
    wait_for_state(&server, &ServerState::Ready).await;
    assert_eq!(server.process_info().n_restarts, Some(0));

    scripted.respond_to("resources/read", ScriptedReply::json(&json!({"contents": []})));
    faults.forgets_session.store(true, Ordering::SeqCst);
    let request = provider::ProviderRequest {
        method: ProviderMethod::ReadResource,
        params: json!({"uri": "x:a"}).into(),
    };
    let answer = server.request(&request, &CallContext::default()).await.unwrap();
    assert_eq!(answer.as_str(), r#"{"contents":[]}"#);
    assert_eq!(
        (faults.forgets_session.load(Ordering::SeqCst), scripted.n_requests("resources/read")),
        (false, 1)
    );
}

#[tokio::test]
async fn retrying_a_rejected_request_does_not_fail_other_calls() {
    let (faults, scripted) = (FaultInjector::default(), ScriptedServer::new());
    let address = serve(Arc::new(scripted.clone()), &faults).await;
    let server = provider(Arc::new(WithEra(Era::Session, http(&format!("http://{address}/mcp")))));
    server.open().await.unwrap();
    let hanging = call(&server, "hang", json!({}), CallContext::default());
    let refused = async {
        scripted.wait_for_hanging(1).await;
        faults.rejects_next.store(true, Ordering::SeqCst);
        let refused = call_text(&server, "echo").await;
        // The session is unchanged.
        assert_eq!((call_text(&server, "echo").await.as_str(), *scripted.n_hanging.borrow()), ("{}", 1));
        refused
    };
    let refused = tokio::select! {
        result = hanging => panic!("{}", outcome_text(&result)),
        refused = refused => refused,
    };
    assert_eq!(refused, "{}", "it was not executed, so it was sent again");
}

#[tokio::test]
async fn an_unreachable_address_is_a_failure_with_a_fix() {
    // A port that was free a moment ago.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    for connector in [
        http(&format!("http://{address}/mcp")),
        Arc::new(WebSocketConnector::new(&RemoteEndpoint::new(format!("ws://{address}/ws"))).unwrap()),
    ] {
        let server = provider(connector);
        let error = server.open().await.unwrap_err();
        assert!(error.text().starts_with("MCP server 'far' did not start: "), "{error}");
        let state = server.state().borrow().clone();
        let ServerState::Failed { fix, .. } = state else { panic!("{state:?}") };
        assert_eq!(fix, "Check that the server is running and that its URL is correct.");
    }
}

#[test]
fn invalid_urls_and_headers_are_reported_without_their_values() {
    let mut address = RemoteEndpoint::new("http://h");
    address.headers.insert("Authorization".to_owned(), Secret::new("Bearer hush"));
    let printed = format!("{:?}", HttpConnector::new(&address).unwrap());
    assert!(!printed.contains("hush"), "{printed}");
    address.headers.insert("X".to_owned(), Secret::new("hush\nhush"));
    insta::assert_snapshot!(
        HttpConnector::new(&address).unwrap_err(),
        @"invalid header 'X': its value has characters that are not allowed in a header. Check it for line breaks"
    );
    insta::assert_snapshot!(
        HttpConnector::new(&RemoteEndpoint::new("file:///etc/passwd")).unwrap_err(),
        @"invalid server URL: it must start with http:// or https://. Use a URL such as https://example.org/mcp"
    );
}

/// Serves a read-only tool, and closes the connection of each call without a response. Returns the address, and the
/// number of calls. If it goes away, the request after the first call is the last that is answered.
async fn serve_losing_calls(goes_away: bool) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let n_calls = Arc::<AtomicUsize>::default();
    let n_received = Arc::clone(&n_calls);
    tokio::spawn(async move {
        let mut listener = Some(listener);
        while let Some(open) = &listener {
            let (mut socket, _) = open.accept().await.unwrap();
            let mut text = Vec::new();
            let message = loop {
                if socket.read_buf(&mut text).await.unwrap_or(0) == 0 {
                    break Value::Null;
                }
                let end = text.windows(4).position(|window| window == b"\r\n\r\n");
                if let Some(Ok(message)) = end.map(|end| serde_json::from_slice::<Value>(&text[end + 4..])) {
                    break message;
                }
            };
            if message.is_null() {
                continue;
            }
            if message["method"] == "tools/call" {
                n_received.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            if goes_away && n_received.load(Ordering::SeqCst) > 0 {
                listener = None;
            }
            let tools = json!([{"name": "t", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}}]);
            let result = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "tools": tools,
                "capabilities": {"tools": {}}});
            let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
            let head =
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length:";
            socket.write_all(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes()).await.unwrap();
        }
    });
    (address, n_calls)
}

#[tokio::test]
async fn a_safe_call_is_received_at_most_twice_and_may_have_run() {
    for (goes_away, n_expected) in [(false, 2), (true, 1)] {
        let (address, n_calls) = serve_losing_calls(goes_away).await;
        let server = provider(Arc::new(WithEra(Era::Stateless, http(&format!("http://{address}/mcp")))));
        server.open().await.unwrap();
        let text = call_text(&server, "t").await;
        let start =
            "transport_error: MCP server 'far' failed before it responded: the server did not answer: ";
        assert!(text.starts_with(start) && text.ends_with(". The tool may have run"), "{text}");
        assert_eq!(n_calls.load(Ordering::SeqCst), n_expected, "{goes_away}");
    }
}
