//! Requests with the header of an authorizer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::response::Response;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use pegboard_wire::http::client::{
    self, AuthorizationError, AuthorizationRejection, HttpOptions, RejectionReason, RequestAuthorizer,
};
use pegboard_wire::transport::TransportError;
use serde_json::json;

use super::support::{
    ReceivedRequest, ScriptedServer, call, initialize, open, options, result, serve, status, transport_error,
};

/// An authorizer with tokens that are used one after the other.
struct TokenList {
    /// Index of the current token; the first is none.
    current: AtomicUsize,
    tokens: Vec<&'static str>,
    rejections: Mutex<Vec<AuthorizationRejection>>,
}

impl TokenList {
    fn new(tokens: &[&'static str]) -> Arc<Self> {
        Arc::new(Self { current: AtomicUsize::new(0), tokens: tokens.to_vec(), rejections: Mutex::default() })
    }

    fn header(&self) -> Option<HeaderValue> {
        let token = self.tokens[self.current.load(Ordering::SeqCst)];
        (!token.is_empty()).then(|| HeaderValue::from_str(&format!("Bearer {token}")).unwrap())
    }
}

impl RequestAuthorizer for TokenList {
    fn forget(&self) {}

    fn is_anonymous(&self) -> bool {
        self.header().is_none()
    }

    fn authorize(&self) -> BoxFuture<'_, Result<Option<HeaderValue>, AuthorizationError>> {
        async { Ok(self.header()) }.boxed()
    }

    fn replace_rejected(
        &self,
        rejection: AuthorizationRejection,
    ) -> BoxFuture<'_, Result<HeaderValue, AuthorizationError>> {
        async move {
            let reason = rejection.reason;
            self.rejections.lock().push(rejection);
            let login = AuthorizationError::LoginRequired { reason: "log in".to_owned() };
            match reason {
                RejectionReason::Unauthorized => {
                    self.current.fetch_add(1, Ordering::SeqCst);
                    if self.current.load(Ordering::SeqCst) < self.tokens.len() {
                        return Ok(self.header().unwrap());
                    }
                    Err(login)
                }
                RejectionReason::UnauthorizedAgain => Err(login),
                RejectionReason::InsufficientScope => {
                    Err(AuthorizationError::InsufficientScope { reason: "too narrow".to_owned() })
                }
            }
        }
        .boxed()
    }
}

/// Starts a server that accepts one token; calls of `admin` need another scope.
async fn protected() -> ScriptedServer {
    serve(|seen: ReceivedRequest| async move {
        let challenged = |code: u16, challenge: &'static str| -> Response {
            let mut response = status(code, "");
            response.headers_mut().insert("www-authenticate", HeaderValue::from_static(challenge));
            response
        };
        if seen.header("authorization") != Some("Bearer right") {
            return challenged(401, "Bearer realm=\"x\"");
        }
        match seen.body["params"]["name"].as_str() {
            Some("admin") => challenged(403, "Bearer error=\"insufficient_scope\", scope=\"admin\""),
            Some("forbidden") => status(403, ""),
            _ => result(&seen, &json!({"protocolVersion": "2025-11-25"})),
        }
    })
    .await
}

fn authorized(server: &ScriptedServer, tokens: &Arc<TokenList>) -> HttpOptions {
    HttpOptions { authorizer: Some(Arc::clone(tokens) as _), ..options(&server.url) }
}

#[tokio::test]
async fn a_rejected_request_is_sent_again_once_with_another_token() {
    for tokens in [&["", "right"][..], &["old", "right"]] {
        let (mut server, tokens) = (protected().await, TokenList::new(tokens));
        let (connection, _inbound) = open(client::connect(authorized(&server, &tokens)).unwrap());
        // Not even a tool call is lost: the server has refused it before it ran.
        call(&connection, "tools/call", json!({"name": "echo"})).await.unwrap();
        let sent = [server.next().await, server.next().await].map(|seen| seen.headers);
        assert_eq!(sent[1]["authorization"], "Bearer right");
        assert_eq!(tokens.rejections.lock().len(), 1);
        call(&connection, "tools/call", json!({"name": "echo"})).await.unwrap();
        assert_eq!(server.next().await.header("authorization"), Some("Bearer right"));
        assert!(server.seen.try_recv().is_err());
    }
}

#[tokio::test]
async fn a_token_that_is_rejected_again_ends_the_request() {
    let (mut server, tokens) = (protected().await, TokenList::new(&["old", "older", "right"]));
    let (connection, _inbound) = open(client::connect(authorized(&server, &tokens)).unwrap());
    let error = transport_error(&connection, "tools/call", json!({"name": "echo"})).await;
    let login = AuthorizationError::LoginRequired { reason: "log in".to_owned() };
    assert_eq!(error, TransportError::Unauthorized(login));
    assert_eq!(server.next().await.header("authorization"), Some("Bearer old"));
    assert_eq!(server.next().await.header("authorization"), Some("Bearer older"));
    assert!(server.seen.try_recv().is_err());
    let reasons: Vec<_> = tokens.rejections.lock().iter().map(|rejection| rejection.reason).collect();
    assert_eq!(reasons, [RejectionReason::Unauthorized, RejectionReason::UnauthorizedAgain]);
}

#[tokio::test]
async fn a_request_without_the_scope_is_not_sent_again() {
    let (mut server, tokens) = (protected().await, TokenList::new(&["right"]));
    let (connection, _inbound) = open(client::connect(authorized(&server, &tokens)).unwrap());
    let error = transport_error(&connection, "tools/call", json!({"name": "admin"})).await;
    let narrow = AuthorizationError::InsufficientScope { reason: "too narrow".to_owned() };
    assert_eq!(error, TransportError::Unauthorized(narrow));
    server.next().await;
    let rejection = AuthorizationRejection {
        authorization: Some(HeaderValue::from_static("Bearer right")),
        reason: RejectionReason::InsufficientScope,
        challenge: Some("Bearer error=\"insufficient_scope\", scope=\"admin\"".to_owned()),
    };
    assert_eq!(*tokens.rejections.lock(), [rejection]);
    // Other refusals are not about the token.
    let error = transport_error(&connection, "tools/call", json!({"name": "forbidden"})).await;
    assert!(matches!(error, TransportError::Status { status: 403, .. }), "{error:?}");
    assert_eq!(tokens.rejections.lock().len(), 1);
}

#[tokio::test]
async fn every_request_of_a_session_has_the_token() {
    let (mut server, tokens) = (protected().await, TokenList::new(&["right"]));
    let (connection, _inbound) = open(client::connect(authorized(&server, &tokens)).unwrap());
    initialize(&connection).await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.push(server.next().await);
    }
    let methods: Vec<String> = seen.iter().map(ReceivedRequest::method_name).collect();
    assert_eq!(methods, ["initialize", "notifications/initialized", "GET"]);
    assert!(seen.iter().all(|seen| seen.header("authorization") == Some("Bearer right")));
}

#[tokio::test]
async fn configured_credentials_take_precedence() {
    let (mut server, tokens) = (protected().await, TokenList::new(&["of-login", "right"]));
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_static("Bearer configured"));
    let with_header = HttpOptions { headers, ..authorized(&server, &tokens) };
    let mut with_user = authorized(&server, &tokens);
    with_user.url.set_username("user").unwrap();
    for (options, expected) in [(with_header, "Bearer configured"), (with_user, "Basic dXNlcjo=")] {
        let (connection, _inbound) = open(client::connect(options).unwrap());
        let error = transport_error(&connection, "tools/call", json!({"name": "echo"})).await;
        assert!(matches!(error, TransportError::Status { status: 401, .. }), "{error:?}");
        assert_eq!(server.next().await.header("authorization"), Some(expected));
        assert!(server.seen.try_recv().is_err());
    }
    assert!(tokens.rejections.lock().is_empty());
}
