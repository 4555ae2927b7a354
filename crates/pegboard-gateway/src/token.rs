//! Bearer token authentication for HTTP.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any_service};
use pegboard_core::settings::mcp::Secret;
use sha2::{Digest, Sha256};

use crate::api::ApiProblem;

/// Message for requests with a missing or wrong token.
pub(crate) const MISSING_TOKEN: &str =
    "missing or invalid token: send the header 'Authorization: Bearer TOKEN'";
/// Prefix of a token in the header.
const SCHEME: &[u8] = b"Bearer ";

/// Returns a router that dispatches each request to the application of its bearer token, and rejects all
/// others.
pub fn require_token(applications: impl IntoIterator<Item = (Secret, Router)>) -> Router {
    let routes = applications.into_iter();
    let routes = routes.map(|(token, application)| (digest(token.reveal()), any_service(application)));
    let routes: Arc<[([u8; 32], MethodRouter)]> = routes.collect();
    Router::new().fallback(async move |request: Request| dispatch(&routes, request).await)
}

async fn dispatch(routes: &[([u8; 32], MethodRouter)], request: Request) -> Response {
    let route = routes.iter().find(|(expected, _)| has_token(request.headers(), expected));
    if let Some((_, route)) = route {
        return route.clone().call(request, ()).await;
    }
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer realm=\"pegboard\"")];
    if request.uri().path().starts_with("/api") {
        return (StatusCode::UNAUTHORIZED, challenge, ApiProblem::unauthorized()).into_response();
    }
    (StatusCode::UNAUTHORIZED, challenge, format!("{MISSING_TOKEN}\n")).into_response()
}

/// Returns `true` if a request carries the token. Digests are compared, so timing reveals nothing about the
/// token.
fn has_token(headers: &HeaderMap, expected: &[u8; 32]) -> bool {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(only), None) = (values.next(), values.next()) else { return false };
    // Compare bytes: a token may contain non-ASCII characters.
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
    async fn api_paths_get_a_json_error() {
        let answer_of = async |path: &str| {
            let request = Request::builder().uri(path).body(Body::empty()).unwrap();
            let answer = dispatch(&[], request).await;
            let status = answer.status().as_u16();
            let body = to_bytes(answer.into_body(), 1_000).await.unwrap();
            format!("{status} {}", String::from_utf8_lossy(&body).trim_end())
        };
        insta::assert_snapshot!(answer_of("/mcp").await, @"401 missing or invalid token: send the header 'Authorization: Bearer TOKEN'");
        insta::assert_snapshot!(answer_of("/api/status").await, @r#"401 {"error":{"code":"auth_required","message":"missing or invalid token: send the header 'Authorization: Bearer TOKEN'"}}"#);
    }

    #[test]
    fn only_the_exact_token_is_accepted() {
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
        for (shown, is_accepted) in cases {
            let mut headers = HeaderMap::new();
            for value in shown {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            assert_eq!(has_token(&headers, &expected), is_accepted, "{shown:?}");
        }
    }

    #[test]
    fn a_token_may_contain_non_ascii_characters() {
        let shown = HeaderValue::from_bytes("Bearer schlüssel".as_bytes()).unwrap();
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, shown)]);
        assert!(has_token(&headers, &digest("schlüssel")));
        assert!(!has_token(&headers, &digest("schlussel")));
    }
}
