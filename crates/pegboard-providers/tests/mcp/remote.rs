//! Servers behind addresses, over real sockets.

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
use pegboard_core::provider::{self, Method, Provider, ServerState, Update};
use pegboard_core::settings::mcp::{Address, Secret, Settings, Target};
use pegboard_providers::mcp::{Connect, Http, Server, Sse, WebSocket};
use pegboard_testkit::fixture::Fixture;
use pegboard_testkit::serve::everywhere;
use pegboard_wire::client::Era;
use pegboard_wire::http::server::HttpServerOptions;
use pegboard_wire::server::{self, Change, Service};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time;

use crate::stage::{Act, ERAS, EXACT, Person, Speaking, Stage, become_true, call, line, said, until};

/// What stands between the client and the server.
#[derive(Clone, Default)]
struct Door {
    is_locked: Arc<AtomicBool>,
    has_forgotten: Arc<AtomicBool>,
    /// Refuses the next request, and says no more than that.
    is_picky: Arc<AtomicBool>,
    is_broken: Arc<AtomicBool>,
    n_requests: Arc<AtomicUsize>,
}

impl Door {
    async fn pass(self, request: Request, next: Next) -> Response {
        self.n_requests.fetch_add(1, Ordering::SeqCst);
        if self.is_locked.load(Ordering::SeqCst)
            && request.headers().get("authorization").is_none_or(|given| given != "Bearer right")
        {
            return (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer realm=\"x\"")]).into_response();
        }
        if self.is_broken.load(Ordering::SeqCst) {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        let is_in_session = request.headers().contains_key("mcp-session-id") && request.method() == "POST";
        if is_in_session && self.has_forgotten.swap(false, Ordering::SeqCst) {
            return StatusCode::NOT_FOUND.into_response();
        }
        if is_in_session && self.is_picky.swap(false, Ordering::SeqCst) {
            return StatusCode::BAD_REQUEST.into_response();
        }
        next.run(request).await
    }
}

/// Serves everywhere, and gives the address of it all.
async fn serve(service: Arc<dyn Service>, door: &Door) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let door = door.clone();
    let router: Router = everywhere(&server::Server::new(service), &HttpServerOptions::default())
        .layer(middleware::from_fn(move |request, next| door.clone().pass(request, next)));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address.to_string()
}

fn provider(connect: Arc<dyn Connect>) -> Server {
    Server::new(Settings::new(ServerName::new("far").unwrap(), Target::Embedded), connect)
}

fn http(url: &str) -> Arc<dyn Connect> {
    Arc::new(Http::new(&Address::new(url)).unwrap())
}

#[tokio::test]
async fn every_transport_lists_and_calls_byte_for_byte() {
    let address = serve(Arc::new(Stage::new()), &Door::default()).await;
    let ways: [Arc<dyn Connect>; 5] = [
        Arc::new(Speaking(Era::Session, http(&format!("http://{address}/mcp")))),
        Arc::new(Speaking(Era::Stateless, http(&format!("http://{address}/mcp")))),
        Arc::new(Sse::new(&Address::new(format!("http://{address}/legacy/sse"))).unwrap()),
        Arc::new(WebSocket::new(&Address::new(format!("ws://{address}/ws"))).unwrap()),
        // It finds out by itself that this is the old transport.
        http(&format!("http://{address}/legacy/sse")),
    ];
    for way in ways {
        let server = provider(way);
        server.open().await.unwrap();
        let output = call(&server, "exact", json!({}), CallContext::default()).await.unwrap();
        assert_eq!(output.to_result().as_str(), EXACT);
        let ann = Person::named("Ann");
        assert_eq!(said(&call(&server, "count", json!({}), ann.context()).await), "counted");
        assert_eq!(ann.heard().len(), 5);
        assert_eq!(said(&call(&server, "ask", json!({}), ann.context()).await), "Hello, Ann!");
        server.shut_down().await;
    }
}

#[tokio::test]
async fn who_subscribes_is_told_over_streams_of_either_era() {
    for era in ERAS {
        let stage = crate::requests::watched();
        let address = serve(Arc::new(stage.clone()), &Door::default()).await;
        let server = provider(Arc::new(Speaking(era, http(&format!("http://{address}/mcp")))));
        let mut updates = server.updates();
        for uri in ["x:a", "x:b"] {
            let request = provider::Request { method: Method::Subscribe, params: json!({"uri": uri}).into() };
            server.request(&request, &CallContext::default()).await.unwrap();
            stage.tell(Change::Resource { uri: uri.to_owned() });
            let update = time::timeout(Duration::from_secs(30), updates.recv()).await.unwrap().unwrap();
            assert_eq!(update, Update::Resource(json!({"uri": uri}).into()));
        }
        server.shut_down().await;
    }
}

#[tokio::test]
async fn the_fixture_works_in_both_eras() {
    let address = serve(Arc::new(Fixture::new()), &Door::default()).await;
    for era in ERAS {
        let server = provider(Arc::new(Speaking(era, http(&format!("http://{address}/mcp")))));
        server.open().await.unwrap();
        let ann = Person::named("Ann");
        let asked =
            call(&server, "test_input_required_result_multiple_inputs", json!({}), ann.context()).await;
        assert_eq!(said(&asked), "All answers are here.");
        assert_eq!(said(&call(&server, "greet", json!({"name": "Bob"}), ann.context()).await), "Hello, Bob!");
        let region = call(&server, "test_header_parameter", json!({"region": "eu"}), ann.context()).await;
        assert_eq!(said(&region), "Region: \"eu\"");
        become_true(server.offer(), |offer| {
            [&offer.prompts, &offer.resources, &offer.templates].iter().all(|list| !list.is_empty())
        })
        .await;
        let params = json!({"name": "test_simple_prompt"}).into();
        let request = provider::Request { method: Method::GetPrompt, params };
        let prompt = server.request(&request, &CallContext::default()).await.unwrap();
        assert_eq!(prompt.to_value()["messages"].as_array().map(Vec::len), Some(1));
    }
}

#[tokio::test]
async fn with_a_stream_for_each_call_questions_never_cross() {
    let stage = Stage::new();
    let address = serve(Arc::new(stage.clone()), &Door::default()).await;
    let server = provider(Arc::new(Speaking(Era::Session, http(&format!("http://{address}/mcp")))));
    server.open().await.unwrap();
    let (ann, bob) = (Person::named("Ann"), Person::named("Bob"));
    let (to_ann, to_bob) = tokio::join!(
        call(&server, "ask", json!({}), ann.context()),
        call(&server, "ask", json!({}), bob.context())
    );
    assert_eq!((said(&to_ann), said(&to_bob)), ("Hello, Ann!".to_owned(), "Hello, Bob!".to_owned()));
}

#[tokio::test]
async fn with_a_stream_for_each_call_everything_comes_in_order() {
    let address = serve(Arc::new(Stage::new()), &Door::default()).await;
    for era in ERAS {
        let server = provider(Arc::new(Speaking(era, http(&format!("http://{address}/mcp")))));
        server.open().await.unwrap();
        let ann = Person::named("Ann");
        call(&server, "count", json!({}), ann.context()).await.unwrap();
        let progress = ["1 of Some(3.0)", "2 of Some(3.0)", "3 of Some(3.0)"];
        assert_eq!(ann.heard(), [&["\"begin\""], &progress[..], &["\"end\""]].concat());
    }
}

#[tokio::test]
async fn a_server_that_breaks_down_behind_its_address_is_started_again() {
    for era in ERAS {
        let door = Door::default();
        let address = serve(Arc::new(Stage::new()), &door).await;
        let server = provider(Arc::new(Speaking(era, http(&format!("http://{address}/mcp")))));
        server.open().await.unwrap();
        door.is_broken.store(true, Ordering::SeqCst);
        assert_eq!(
            line(&server, "echo").await,
            "transport_error: MCP server 'far' went away before it answered: the server answered with HTTP status \
             503. The tool may have run"
        );
        until(&server, &ServerState::Restarting { attempt: 2 }).await;
        door.is_broken.store(false, Ordering::SeqCst);
        until(&server, &ServerState::Ready).await;
        assert_eq!(line(&server, "echo").await, "{}");
    }
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_over_http() {
    for era in ERAS {
        let stage = Stage::new();
        let address = serve(Arc::new(stage.clone()), &Door::default()).await;
        let server = provider(Arc::new(Speaking(era, http(&format!("http://{address}/mcp")))));
        server.open().await.unwrap();
        tokio::select! {
            result = call(&server, "hang", json!({}), CallContext::default()) => panic!("{result:?}"),
            () = stage.hanging(1) => {}
        }
        stage.hanging(0).await;
    }
}

#[tokio::test]
async fn a_locked_door_is_a_state_with_a_fix() {
    for era in ERAS {
        let door = Door::default();
        door.is_locked.store(true, Ordering::SeqCst);
        let address = serve(Arc::new(Stage::new()), &door).await;
        let url = format!("http://{address}/mcp");
        let server = provider(Arc::new(Speaking(era, http(&url))));
        let error = server.open().await.unwrap_err();
        assert_eq!(error.kind().as_str(), "auth_required");
        insta::allow_duplicates! {
            insta::assert_snapshot!(
                error.text(),
                @r#"MCP server 'far' wants a login. Put a valid token into its `headers`; it asks for: Bearer realm="x""#
            );
        }
        assert!(matches!(&*server.state().borrow(), ServerState::NeedsLogin { .. }));
        let n_requests = door.n_requests.load(Ordering::SeqCst);
        assert_eq!(server.open().await.unwrap_err().kind().as_str(), "auth_required");
        assert_eq!(door.n_requests.load(Ordering::SeqCst), n_requests, "nobody knocks again at once");

        let mut address = Address::new(url);
        address.headers.insert("Authorization".to_owned(), Secret::new("Bearer right"));
        let server = provider(Arc::new(Speaking(era, Arc::new(Http::new(&address).unwrap()))));
        server.open().await.unwrap();
        assert_eq!(line(&server, "echo").await, "{}");
    }
}

#[tokio::test]
async fn a_door_that_closes_later_is_noticed_by_the_call() {
    for era in ERAS {
        let door = Door::default();
        let address = serve(Arc::new(Stage::new()), &door).await;
        let server = provider(Arc::new(Speaking(era, http(&format!("http://{address}/mcp")))));
        server.open().await.unwrap();
        door.is_locked.store(true, Ordering::SeqCst);
        assert!(line(&server, "echo").await.starts_with("auth_required: MCP server 'far' wants a login."));
        let needs_login = |state: &ServerState| matches!(state, ServerState::NeedsLogin { .. });
        become_true(server.state(), needs_login).await;
        assert!(!server.offer().borrow().tools.is_empty(), "what it offered is still known");
    }
}

#[tokio::test]
async fn a_session_that_the_server_forgot_is_begun_again_unseen() {
    let (door, stage) = (Door::default(), Stage::new());
    let address = serve(Arc::new(stage.clone()), &door).await;
    let server = provider(Arc::new(Speaking(Era::Session, http(&format!("http://{address}/mcp")))));
    server.open().await.unwrap();
    door.has_forgotten.store(true, Ordering::SeqCst);
    assert_eq!(line(&server, "echo").await, "{}");
    assert!(!door.has_forgotten.load(Ordering::SeqCst));
    assert_eq!(stage.calls.lock().unwrap().len(), 1);
    until(&server, &ServerState::Ready).await;
    assert_eq!(server.particulars().n_restarts, Some(0));

    stage.on("resources/read", Act::say(&json!({"contents": []})));
    door.has_forgotten.store(true, Ordering::SeqCst);
    let request = provider::Request { method: Method::ReadResource, params: json!({"uri": "x:a"}).into() };
    let answer = server.request(&request, &CallContext::default()).await.unwrap();
    assert_eq!(answer.as_str(), r#"{"contents":[]}"#);
    assert_eq!((door.has_forgotten.load(Ordering::SeqCst), stage.n_requests("resources/read")), (false, 1));
}

#[tokio::test]
async fn a_request_that_the_server_does_not_like_at_first_ends_nobody_elses_call() {
    let (door, stage) = (Door::default(), Stage::new());
    let address = serve(Arc::new(stage.clone()), &door).await;
    let server = provider(Arc::new(Speaking(Era::Session, http(&format!("http://{address}/mcp")))));
    server.open().await.unwrap();
    let hanging = call(&server, "hang", json!({}), CallContext::default());
    let refused = async {
        stage.hanging(1).await;
        door.is_picky.store(true, Ordering::SeqCst);
        let refused = line(&server, "echo").await;
        // Who is there, is there still.
        assert_eq!((line(&server, "echo").await.as_str(), *stage.n_hanging.borrow()), ("{}", 1));
        refused
    };
    let refused = tokio::select! {
        result = hanging => panic!("{}", said(&result)),
        refused = refused => refused,
    };
    assert_eq!(refused, "{}", "it was not done yet, so it was asked for once more");
}

#[tokio::test]
async fn nobody_at_an_address_is_a_failure_with_a_fix() {
    // A port that was free a moment ago.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    for way in [
        http(&format!("http://{address}/mcp")),
        Arc::new(WebSocket::new(&Address::new(format!("ws://{address}/ws"))).unwrap()),
    ] {
        let server = provider(way);
        let error = server.open().await.unwrap_err();
        assert!(error.text().starts_with("MCP server 'far' did not start: "), "{error}");
        let state = server.state().borrow().clone();
        let ServerState::Failed { fix, .. } = state else { panic!("{state:?}") };
        assert_eq!(fix, "Check that the server runs and that its address is right.");
    }
}

#[test]
fn what_cannot_be_an_address_or_a_header_is_told_without_its_value() {
    let mut address = Address::new("http://h");
    address.headers.insert("Authorization".to_owned(), Secret::new("Bearer hush"));
    let printed = format!("{:?}", Http::new(&address).unwrap());
    assert!(!printed.contains("hush"), "{printed}");
    address.headers.insert("X".to_owned(), Secret::new("hush\nhush"));
    insta::assert_snapshot!(
        Http::new(&address).unwrap_err(),
        @"the header 'X' cannot be sent: its value has characters that no header may have. Check it for line breaks"
    );
    insta::assert_snapshot!(
        Http::new(&Address::new("file:///etc/passwd")).unwrap_err(),
        @"the address of the server is none: it must begin with http:// or https://. Write one like https://example.org/mcp"
    );
}
