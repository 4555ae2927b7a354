//! Logins.

use pegboard_auth::oauth::{LoginRequest, LoginState, OAuthSettings};
use pegboard_testkit::authorization_server::AuthorizationServer;
use serde_json::json;

use crate::client_state::{ClientState, log_in, token_of};

#[tokio::test]
async fn a_login_yields_a_token_that_outlives_the_process() {
    let (server, state) = (AuthorizationServer::start().await, ClientState::new());
    let client = state.client("ann", &server);
    assert_eq!(token_of(&client).await, "you are not logged in");
    assert_eq!(client.state().await.unwrap(), LoginState::LoggedOut);

    log_in(&client, &server, "ann").await.unwrap();
    let token = token_of(&client).await;
    assert!(token.starts_with("access-ann-"), "{token}");
    assert_eq!(token_of(&state.client("ann", &server)).await, token);

    let LoginState::LoggedIn(login) = client.state().await.unwrap() else { panic!("no login") };
    assert_eq!(login.scopes, ["read"]);
    assert_eq!(login.issuer, Some(server.url.origin().ascii_serialization()));
    assert!(login.is_renewable);
    assert_eq!(server.resources(), [server.url.as_str()]);
}

#[tokio::test]
async fn a_login_belongs_to_one_principal() {
    let (server, state) = (AuthorizationServer::start().await, ClientState::new());
    log_in(&state.client("ann", &server), &server, "ann").await.unwrap();
    assert_eq!(token_of(&state.client("bob", &server)).await, "you are not logged in");
    log_in(&state.client("bob", &server), &server, "bob").await.unwrap();
    assert!(token_of(&state.client("ann", &server)).await.starts_with("access-ann-"));
    assert!(token_of(&state.client("bob", &server)).await.starts_with("access-bob-"));
}

#[tokio::test]
async fn a_logout_forgets_the_login_of_one_principal() {
    let (server, state) = (AuthorizationServer::start().await, ClientState::new());
    let (ann, bob) = (state.client("ann", &server), state.client("bob", &server));
    log_in(&ann, &server, "ann").await.unwrap();
    log_in(&bob, &server, "bob").await.unwrap();
    assert!(ann.log_out().await.unwrap());
    assert!(!ann.log_out().await.unwrap());
    assert_eq!(token_of(&ann).await, "you are not logged in");
    assert!(token_of(&bob).await.starts_with("access-bob-"));
}

#[tokio::test]
async fn a_configured_client_is_not_registered() {
    let (server, state) = (AuthorizationServer::start().await, ClientState::new());
    let settings = OAuthSettings { client_id: Some("known".to_owned()), ..OAuthSettings::default() };
    log_in(&state.client_with("ann", &server, settings), &server, "ann").await.unwrap();
    assert_eq!(server.n_registrations(), 0);
    log_in(&state.client("ann", &server), &server, "ann").await.unwrap();
    assert_eq!(server.n_registrations(), 1);
}

#[tokio::test]
async fn metadata_that_would_weaken_a_login_is_refused() {
    let (server, state) = (AuthorizationServer::start().await, ClientState::new());
    let cases = [
        (json!({"code_challenge_methods_supported": null}), "it does not support PKCE with S256"),
        (json!({"code_challenge_methods_supported": ["plain"]}), "it does not support PKCE with S256"),
        (json!({"issuer": "https://other.example.org"}), "issuer"),
        (json!({"authorization_endpoint": "javascript:alert(1)"}), "its login page does not use HTTPS"),
        (json!({"authorization_endpoint": "http://login.example.org/"}), "its login page does not use HTTPS"),
        (json!({"authorization_endpoint": "file:///etc/passwd"}), "its login page does not use HTTPS"),
        (json!({"registration_endpoint": "http://10.0.0.9/register"}), "uses neither HTTPS nor the origin"),
        (json!({"registration_endpoint": "https://169.254.169.254/"}), "which is not public"),
        (json!({"registration_endpoint": null}), "register Pegboard there, and set `clientId`"),
    ];
    for (metadata, expected) in cases {
        server.set(|behaviour| behaviour.metadata = metadata.clone());
        let error = log_in(&state.client("ann", &server), &server, "ann").await.unwrap_err().to_string();
        assert!(error.contains(expected), "{metadata}: {error}");
        assert_eq!(token_of(&state.client("ann", &server)).await, "you are not logged in");
    }
}

#[tokio::test]
async fn metadata_of_a_hostile_resource_is_refused() {
    let (server, state) = (AuthorizationServer::start().await, ClientState::new());
    let cases = [
        json!({"resource": "https://other.example.org/mcp"}),
        json!({"authorization_servers": ["https://10.0.0.9"]}),
        json!({"authorization_servers": ["http://login.example.org"]}),
        json!({"authorization_servers": ["javascript:alert(1)"]}),
        json!({"scopes_supported": ["x".repeat(1024 * 1024)]}),
    ];
    for metadata in cases {
        server.set(|behaviour| behaviour.resource_metadata = metadata.clone());
        let error = log_in(&state.client("ann", &server), &server, "ann").await;
        assert!(error.is_err(), "{}", &metadata.to_string()[..40]);
        assert_eq!(token_of(&state.client("ann", &server)).await, "you are not logged in");
        assert_eq!(server.n_registrations(), 0);
    }
}

#[tokio::test]
async fn an_abandoned_login_leaves_the_present_one_as_it_is() {
    let (server, state) = (AuthorizationServer::start().await, ClientState::new());
    let client = state.client("ann", &server);
    log_in(&client, &server, "ann").await.unwrap();
    let before = (token_of(&client).await, client.state().await.unwrap());
    let settings = OAuthSettings { client_id: Some("other".to_owned()), ..OAuthSettings::default() };
    let request =
        LoginRequest { redirect_uri: "http://127.0.0.1:9/callback".parse().unwrap(), challenge: None };
    drop(state.client_with("ann", &server, settings).begin_login(&request).await.unwrap());
    client.forget();
    assert_eq!((token_of(&client).await, client.state().await.unwrap()), before);
    // It can still be refreshed, as the client that it was granted to.
    let rejected = client.authorization().await.unwrap();
    client.replace_rejected(rejected.as_ref()).await.unwrap();
}

#[tokio::test]
async fn a_redirect_that_does_not_belong_to_the_login_is_refused() {
    let (server, state) = (AuthorizationServer::start().await, ClientState::new());
    let client = state.client("ann", &server);
    let request =
        LoginRequest { redirect_uri: "http://127.0.0.1:9/callback".parse().unwrap(), challenge: None };
    let cases = [
        ("error=access_denied", "the login was refused: access_denied"),
        (
            "error=access_denied&error_description=Ann%20said%20no",
            "the login was refused: Ann said no (access_denied)",
        ),
        ("code=code-0", "missing state"),
        ("state=x", "missing code"),
        ("code=code-0&state=forged", "state not found"),
    ];
    for (query, expected) in cases {
        let login = client.begin_login(&request).await.unwrap();
        let mut callback = request.redirect_uri.clone();
        callback.set_query(Some(query));
        let error = login.complete(&callback).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{query}: {error}");
    }

    server.set(|behaviour| behaviour.redirect_issuer = Some("https://evil.example.org".to_owned()));
    let error = log_in(&client, &server, "ann").await.unwrap_err().to_string();
    assert!(error.contains("issuer mismatch"), "{error}");
    assert_eq!(token_of(&client).await, "you are not logged in");
}
