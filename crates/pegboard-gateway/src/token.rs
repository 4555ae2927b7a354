//! Bearer token authentication for HTTP.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any_service};
use pegboard_core::settings::mcp::Secret;
use pegboard_wire::http::server::{DirectRoutes, HttpApplication, HttpServerEndpoint};
use sha2::{Digest, Sha256};

use crate::api::ApiProblem;

/// Message for requests with a missing or wrong token.
pub(crate) const MISSING_TOKEN: &str =
    "missing or invalid token: send the header 'Authorization: Bearer TOKEN'";
/// Prefix of a token in the header.
const SCHEME: &[u8] = b"Bearer ";

/// Returns an application that dispatches each request to the application of its bearer token, and rejects
/// all others.
pub fn require_token(applications: impl IntoIterator<Item = (Secret, HttpApplication)>) -> HttpApplication {
    let by_token = applications.into_iter();
    let by_token = by_token.map(|(token, application)| TokenRoute {
        expected: digest(token.reveal()),
        direct: application.direct().cloned(),
        route: any_service(application.router().clone()),
    });
    let by_token = Arc::new(TokenRoutes(by_token.collect()));
    let dispatcher = Arc::clone(&by_token);
    let router = Router::new().fallback(async move |request: Request| dispatcher.dispatch(request).await);
    HttpApplication::new(by_token, router)
}

/// The applications by token.
struct TokenRoutes(Vec<TokenRoute>);

struct TokenRoute {
    /// Digest of the token.
    expected: [u8; 32],
    direct: Option<Arc<dyn DirectRoutes>>,
    route: MethodRouter,
}

impl DirectRoutes for TokenRoutes {
    fn find(&self, uri: &Uri, headers: &HeaderMap) -> Option<HttpServerEndpoint> {
        self.route(headers)?.direct.as_ref()?.find(uri, headers)
    }
}

impl TokenRoutes {
    /// Returns the route of the token in a request.
    fn route(&self, headers: &HeaderMap) -> Option<&TokenRoute> {
        let shown = shown_digest(headers)?;
        self.0.iter().find(|route| route.expected == shown)
    }

    async fn dispatch(&self, request: Request) -> Response {
        if let Some(found) = self.route(request.headers()) {
            return found.route.clone().call(request, ()).await;
        }
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer realm=\"pegboard\"")];
        if request.uri().path().starts_with("/api") {
            return (StatusCode::UNAUTHORIZED, challenge, ApiProblem::unauthorized()).into_response();
        }
        (StatusCode::UNAUTHORIZED, challenge, format!("{MISSING_TOKEN}\n")).into_response()
    }
}

/// Returns the digest of the token that a request carries. Digests are compared, so timing reveals nothing
/// about the token.
fn shown_digest(headers: &HeaderMap) -> Option<[u8; 32]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(only), None) = (values.next(), values.next()) else { return None };
    // Compare bytes: a token may contain non-ASCII characters.
    let (scheme, token) = only.as_bytes().split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| digest(token.trim_ascii()))
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
            let answer = TokenRoutes(Vec::new()).dispatch(request).await;
            let status = answer.status().as_u16();
            let body = to_bytes(answer.into_body(), 1_000).await.unwrap();
            format!("{status} {}", String::from_utf8_lossy(&body).trim_end())
        };
        insta::assert_snapshot!(answer_of("/mcp").await, @"401 missing or invalid token: send the header 'Authorization: Bearer TOKEN'");
        insta::assert_snapshot!(answer_of("/api/status").await, @r#"401 {"error":{"code":"auth_required","message":"missing or invalid token: send the header 'Authorization: Bearer TOKEN'"}}"#);
    }

    #[test]
    fn only_the_exact_token_is_accepted() {
        let expected = Some(digest("correct-horse"));
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
            assert_eq!(shown_digest(&headers) == expected, is_accepted, "{shown:?}");
        }
    }

    #[test]
    fn a_token_may_contain_non_ascii_characters() {
        let shown = HeaderValue::from_bytes("Bearer schlüssel".as_bytes()).unwrap();
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, shown)]);
        assert_eq!(shown_digest(&headers), Some(digest("schlüssel")));
        assert_ne!(shown_digest(&headers), Some(digest("schlussel")));
    }
}
