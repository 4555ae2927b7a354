//! Access of HTTP clients: hosts, origins, and the application of each token.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any_service};
use hmac_sha256::Hash as Sha256;
use pegboard_core::secret::Secret;
use pegboard_wire::http::received_headers::NamedHeaders;
use pegboard_wire::http::server::{
    DirectRoutes, HttpApplication, HttpRejection, HttpServerEndpoint, HttpServerOptions, ServedConnection,
    check_host_and_origin,
};
use thiserror::Error;

use crate::api::ApiProblem;

/// Message for requests with a missing or wrong token.
pub(crate) const MISSING_TOKEN: &str =
    "missing or invalid token: send the header 'Authorization: Bearer TOKEN'";
/// Prefix of a token in the header.
const SCHEME: &[u8] = b"Bearer ";
/// Minimum length of a token in characters, and minimum number of distinct ones.
const MIN_TOKEN_CHARACTERS: usize = 20;
const MIN_DISTINCT_CHARACTERS: usize = 8;

/// Token of an HTTP client, strong enough that it cannot be guessed.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessToken(Secret);

/// Omits secrets.
impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessToken").finish_non_exhaustive()
    }
}

/// A token is too easy to guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WeakToken {
    /// It is too short.
    #[error("it has {n_characters} characters, and a token needs at least {MIN_TOKEN_CHARACTERS}")]
    Short {
        /// Number of its characters.
        n_characters: usize,
    },
    /// It repeats the same characters.
    #[error(
        "it repeats the same characters, and a token needs at least {MIN_DISTINCT_CHARACTERS} different ones"
    )]
    Repetitive,
}

impl AccessToken {
    /// Accepts a token without the whitespace around it, unless it is weak.
    ///
    /// ```
    /// use pegboard_gateway::access::AccessToken;
    ///
    /// assert!(AccessToken::new("0b7d2c1e9a4f8356").is_err());
    /// assert!(AccessToken::new("0b7d2c1e9a4f83560b7d2c1e9a4f8356").is_ok());
    /// ```
    pub fn new(text: &str) -> Result<Self, WeakToken> {
        let text = text.trim();
        let n_characters = text.chars().count();
        if n_characters < MIN_TOKEN_CHARACTERS {
            return Err(WeakToken::Short { n_characters });
        }
        let distinct: std::collections::BTreeSet<char> = text.chars().collect();
        if distinct.len() < MIN_DISTINCT_CHARACTERS {
            return Err(WeakToken::Repetitive);
        }
        Ok(Self(Secret::new(text)))
    }

    /// Returns the token.
    pub fn reveal(&self) -> &str {
        self.0.reveal()
    }
}

/// Clients that need no token.
#[derive(Clone)]
pub enum TokenlessAccess {
    /// None.
    Denied,
    /// Those that run as the user of this process, where the system can tell, get this application.
    SameUser(HttpApplication),
    /// All of them get this application.
    Everyone(HttpApplication),
}

/// Returns an application that checks the host and the origin of each request, dispatches it to the application of its
/// bearer token, and rejects all others. Clients that need no token are not asked for one.
pub fn restrict(
    tokens: impl IntoIterator<Item = (AccessToken, HttpApplication)>,
    tokenless: TokenlessAccess,
    options: &HttpServerOptions,
) -> HttpApplication {
    let by_token = tokens.into_iter();
    let by_token =
        by_token.map(|(token, application)| (digest(token.reveal()), AccessRoute::new(&application)));
    let (same_user, everyone) = match tokenless {
        TokenlessAccess::Denied => (None, None),
        TokenlessAccess::SameUser(application) => (Some(AccessRoute::new(&application)), None),
        TokenlessAccess::Everyone(application) => (None, Some(AccessRoute::new(&application))),
    };
    let access = AccessRoutes { by_token: by_token.collect(), same_user, everyone, options: options.clone() };
    let access = Arc::new(access);
    let dispatcher = Arc::clone(&access);
    let router = Router::new().fallback(async move |request: Request| dispatcher.dispatch(request).await);
    HttpApplication::new(access, router)
}

/// The applications by client.
struct AccessRoutes {
    /// Those of tokens, by digest.
    by_token: Vec<([u8; 32], AccessRoute)>,
    same_user: Option<AccessRoute>,
    everyone: Option<AccessRoute>,
    options: HttpServerOptions,
}

struct AccessRoute {
    direct: Option<Arc<dyn DirectRoutes>>,
    route: MethodRouter,
}

impl AccessRoute {
    fn new(application: &HttpApplication) -> Self {
        Self { direct: application.direct().cloned(), route: any_service(application.router().clone()) }
    }
}

impl DirectRoutes for AccessRoutes {
    fn find(
        &self,
        uri: &Uri,
        headers: &dyn NamedHeaders,
        connection: &ServedConnection,
    ) -> Option<HttpServerEndpoint> {
        // The endpoint checks the host and the origin.
        self.route(headers, connection)?.direct.as_ref()?.find(uri, headers, connection)
    }
}

impl AccessRoutes {
    /// Returns the route of the client that sent a request. The system is asked for its user only if it has no valid
    /// token, and once per connection.
    fn route(&self, headers: &dyn NamedHeaders, connection: &ServedConnection) -> Option<&AccessRoute> {
        let known = self.same_user.as_ref().filter(|_| connection.is_known_same_user());
        known
            .or(self.everyone.as_ref())
            .or_else(|| self.route_of_token(headers))
            .or_else(|| self.same_user.as_ref().filter(|_| connection.is_same_user()))
    }

    fn route_of_token(&self, headers: &dyn NamedHeaders) -> Option<&AccessRoute> {
        let shown = shown_digest(headers)?;
        self.by_token.iter().find(|(expected, _)| *expected == shown).map(|(_, route)| route)
    }

    async fn dispatch(&self, request: Request) -> Response {
        let is_api = request.uri().path().starts_with("/api");
        let origin = match check_host_and_origin(request.headers(), request.uri(), &self.options) {
            Ok(origin) => origin,
            Err(rejection) if is_api => return ApiProblem::from(rejection).into_response(),
            Err(HttpRejection(status, reason)) => return (status, format!("{reason}\n")).into_response(),
        };
        // A browser sends no token with it.
        let preflight = origin.as_ref().and_then(|it| it.preflight(request.method(), request.headers()));
        if let Some(preflight) = preflight {
            return preflight.into_response();
        }
        let unknown = ServedConnection::default();
        let connection = request.extensions().get::<ServedConnection>().unwrap_or(&unknown);
        let mut response = match self.route(request.headers(), connection) {
            Some(found) => found.route.clone().call(request, ()).await,
            None => unauthorized(if is_api {
                ApiProblem::unauthorized().into_response()
            } else {
                (StatusCode::UNAUTHORIZED, format!("{MISSING_TOKEN}\n")).into_response()
            }),
        };
        if let Some(origin) = origin {
            origin.add_to(response.headers_mut());
        }
        response
    }
}

/// Adds the challenge to a response.
fn unauthorized(mut response: Response) -> Response {
    let challenge = HeaderValue::from_static("Bearer realm=\"pegboard\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}

/// Returns the digest of the token that a request carries. Digests are compared, so timing reveals nothing
/// about the token.
fn shown_digest(headers: &dyn NamedHeaders) -> Option<[u8; 32]> {
    let only = headers.only(&header::AUTHORIZATION).ok().flatten()?;
    // Compare bytes: a token may contain non-ASCII characters.
    let (scheme, token) = only.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| digest(token.trim_ascii()))
}

fn digest(token: impl AsRef<[u8]>) -> [u8; 32] {
    Sha256::hash(token.as_ref())
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::HeaderMap;

    use super::*;

    #[tokio::test]
    async fn api_paths_get_a_json_error() {
        let answer_of = async |path: &str| {
            let request = Request::builder().uri(path).header("host", "localhost");
            let application = restrict([], TokenlessAccess::Denied, &HttpServerOptions::default());
            let request = request.body(Body::empty()).unwrap();
            let answer = any_service(application.router().clone()).call(request, ()).await;
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

    #[test]
    fn a_weak_token_is_refused() {
        let said =
            ["s3cret", " 1234567890123456789 ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "0b7d2c1e9a4f83560b7d"]
                .map(|token| {
                    AccessToken::new(token).map_or_else(|weak| weak.to_string(), |_| "strong".to_owned())
                });
        insta::assert_snapshot!(said.join("\n"), @r"
        it has 6 characters, and a token needs at least 20
        it has 19 characters, and a token needs at least 20
        it repeats the same characters, and a token needs at least 8 different ones
        strong
        ");
    }
}
