//! Refresh of tokens.

use std::sync::Arc;

use http::HeaderValue;
use pegboard_auth::oauth::LoginState;
use pegboard_testkit::authorization_server::AuthorizationServer;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::client_state::{ClientState, log_in, token_of};

/// Returns a server, and the state of a principal whose token is about to expire.
async fn with_due_token() -> (AuthorizationServer, ClientState) {
    let (server, state) = (AuthorizationServer::start().await, ClientState::new());
    server.set(|behaviour| behaviour.first_lifetime = 0);
    log_in(&state.client("ann", &server), &server, "ann").await.unwrap();
    (server, state)
}

#[tokio::test]
async fn a_token_is_refreshed_once_for_all_tasks_and_processes() {
    let (server, state) = with_due_token().await;
    let processes: Vec<_> = (0..4).map(|_| Arc::new(state.client("ann", &server))).collect();
    let mut calls = JoinSet::new();
    for number in 0..10_000 {
        let client = Arc::clone(&processes[number % processes.len()]);
        calls.spawn(async move { token_of(&client).await });
    }
    let mut tokens = calls.join_all().await;
    tokens.dedup();
    assert_eq!(tokens.len(), 1, "{tokens:?}");
    assert!(tokens[0].starts_with("access-ann-"), "{tokens:?}");
    assert_eq!(server.n_refreshes(), 1);
}

#[tokio::test]
async fn a_refresh_survives_the_caller_that_began_it() {
    let (server, state) = with_due_token().await;
    let client = state.client("ann", &server);
    let gate = Arc::new(Semaphore::new(0));
    server.set(|behaviour| behaviour.refresh_gate = Some(Arc::clone(&gate)));
    let has_begun = async {
        while server.n_refreshes() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        header = client.authorization() => panic!("{header:?}"),
        () = has_begun => {}
    }
    // The server has exchanged the refresh token, and the caller has given up.
    gate.add_permits(1);
    assert!(token_of(&client).await.starts_with("access-ann-"));
    assert_eq!(server.n_refreshes(), 1);
}

#[tokio::test]
async fn a_temporary_failure_keeps_the_login() {
    let (server, state) = with_due_token().await;
    let client = state.client("ann", &server);
    for (status, body) in [
        (500, json!({})),
        (503, json!({"error": "temporarily_unavailable"})),
        (429, json!({})),
        (200, json!({"neither": "token"})),
    ] {
        server.set(|behaviour| behaviour.refuse_refresh = Some((status, body)));
        let error = token_of(&client).await;
        assert!(error.starts_with("the token cannot be refreshed right now"), "{status}: {error}");
    }
    server.set(|behaviour| behaviour.refuse_refresh = None);
    assert!(token_of(&client).await.starts_with("access-ann-"));
}

#[tokio::test]
async fn a_revoked_login_is_forgotten() {
    let (server, state) = with_due_token().await;
    let client = state.client("ann", &server);
    server.revoke_all();
    assert_eq!(token_of(&client).await, "the login was revoked or has expired at the authorization server");
    assert_eq!(token_of(&client).await, "you are not logged in");
    let lost = "the login was revoked or has expired at the authorization server".to_owned();
    assert_eq!(client.state().await.unwrap(), LoginState::Lost(lost));
}

#[tokio::test]
async fn a_rejected_token_is_replaced_once() {
    let (server, state) = (AuthorizationServer::start().await, ClientState::new());
    let client = Arc::new(state.client("ann", &server));
    log_in(&client, &server, "ann").await.unwrap();
    let rejected = client.authorization().await.unwrap().unwrap();
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        let (client, rejected) = (Arc::clone(&client), rejected.clone());
        calls.spawn(async move { client.replace_rejected(Some(&rejected)).await.unwrap() });
    }
    let mut headers: Vec<HeaderValue> = calls.join_all().await;
    headers.dedup();
    assert_eq!(headers.len(), 1);
    assert_ne!(headers[0], rejected);
    assert_eq!(server.n_refreshes(), 1);
}

#[tokio::test]
async fn tokens_are_not_sent_to_another_authorization_server() {
    let (server, state) = with_due_token().await;
    let client = state.client("ann", &server);
    let other = AuthorizationServer::start().await;
    let origin = other.url.origin().ascii_serialization();
    server.set(|behaviour| {
        behaviour.metadata = json!({"issuer": origin, "token_endpoint": format!("{origin}/token")});
    });
    let error = token_of(&client).await;
    assert!(!error.starts_with("access-"), "{error}");
    assert_eq!((server.n_refreshes(), other.n_refreshes()), (0, 0));
}
