//! Tokens that everybody must show who comes over HTTP, and what each of them leads to.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any_service};
use pegboard_core::settings::mcp::Secret;
use sha2::{Digest, Sha256};

use crate::api::Problem;

/// What is told to those who show no token, or another one.
pub(crate) const WANTED: &str = "Show the gateway's token: send the header 'Authorization: Bearer TOKEN'.";
/// What stands before a token.
const SCHEME: &[u8] = b"Bearer ";

/// For whoever shows one of the tokens, as `Authorization: Bearer …`, the application behind it; for nobody else
/// anything.
pub fn guarded(applications: impl IntoIterator<Item = (Secret, Router)>) -> Router {
    let doors = applications.into_iter();
    let doors = doors.map(|(token, application)| (digest(token.reveal()), any_service(application)));
    let doors: Arc<[([u8; 32], MethodRouter)]> = doors.collect();
    Router::new().fallback(async move |request: Request| enter(&doors, request).await)
}

async fn enter(doors: &[([u8; 32], MethodRouter)], request: Request) -> Response {
    let door = doors.iter().find(|(expected, _)| shows(request.headers(), expected));
    if let Some((_, door)) = door {
        return door.clone().call(request, ()).await;
    }
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer realm=\"pegboard\"")];
    if request.uri().path().starts_with("/api") {
        return (StatusCode::UNAUTHORIZED, challenge, Problem::no_token()).into_response();
    }
    (StatusCode::UNAUTHORIZED, challenge, format!("{WANTED}\n")).into_response()
}

/// Whether a request shows the token. Digests are compared, so that the time it takes tells nothing of the token.
fn shows(headers: &HeaderMap, expected: &[u8; 32]) -> bool {
    let mut shown = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(only), None) = (shown.next(), shown.next()) else { return false };
    // A header is bytes: whoever chose the token may have used letters that others would not.
    let Some((scheme, token)) = only.as_bytes().split_at_checked(SCHEME.len()) else { return false };
    scheme.eq_ignore_ascii_case(SCHEME) && digest(token.trim_ascii()) == *expected
}

fn digest(token: impl AsRef<[u8]>) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::HeaderValue;

    use super::*;

    #[tokio::test]
    async fn programs_are_told_in_the_words_of_the_api() {
        let told = async |path: &str| {
            let request = Request::builder().uri(path).body(Body::empty()).unwrap();
            let answer = enter(&[], request).await;
            let status = answer.status().as_u16();
            let body = to_bytes(answer.into_body(), 1_000).await.unwrap();
            format!("{status} {}", String::from_utf8_lossy(&body).trim_end())
        };
        insta::assert_snapshot!(told("/mcp").await, @"401 Show the gateway's token: send the header 'Authorization: Bearer TOKEN'.");
        insta::assert_snapshot!(told("/api/status").await, @r#"401 {"error":{"code":"auth_required","message":"Show the gateway's token: send the header 'Authorization: Bearer TOKEN'."}}"#);
    }

    #[test]
    fn only_the_one_token_is_let_in() {
        let expected = digest("correct-horse");
        let cases: [(&[&str], bool); 8] = [
            (&[], false),
            (&["Bearer correct-horse"], true),
            (&["bearer  correct-horse "], true),
            (&["Bearer correct-horse-2"], false),
            (&["Bearer "], false),
            (&["Basic correct-horse"], false),
            (&["correct-horse"], false),
            (&["Bearer correct-horse", "Bearer correct-horse"], false),
        ];
        for (shown, is_let_in) in cases {
            let mut headers = HeaderMap::new();
            for value in shown {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            assert_eq!(shows(&headers, &expected), is_let_in, "{shown:?}");
        }
    }

    #[test]
    fn a_token_may_have_any_letters() {
        let shown = HeaderValue::from_bytes("Bearer schlüssel".as_bytes()).unwrap();
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, shown)]);
        assert!(shows(&headers, &digest("schlüssel")));
        assert!(!shows(&headers, &digest("schlussel")));
    }
}
