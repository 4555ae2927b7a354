//! The page on this machine to which the authorization server sends the browser back.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pegboard_auth::oauth::{OAuthError, PendingLogin, Url};
use pegboard_core::text::clipped;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time;

/// Path of the page.
const PATH: &str = "/callback";

/// Time limit for the answer to reach the browser.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of visits that wait.
const MAX_WAITING: usize = 8;

/// Headers of every page: it loads nothing, and no other page sees its URL, which has the code.
const PAGE_HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_TYPE, "text/html; charset=utf-8"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    ),
    (header::CACHE_CONTROL, "no-store"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// Maximum length of a reason on a page.
const MAX_REASON_BYTES: usize = 1_000;

/// The listener for the browser, on a loopback address.
pub struct CallbackListener {
    base: Url,
    visits: mpsc::Receiver<CallbackVisit>,
    close: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

/// The browser has come back, and waits for a page.
pub struct CallbackVisit {
    /// Its URL.
    url: Url,
    reply: oneshot::Sender<CallbackPage>,
}

/// A page for the user.
struct CallbackPage {
    status: StatusCode,
    title: String,
    text: String,
}

impl CallbackPage {
    /// Page of a login that is complete.
    fn success(server: &str) -> Self {
        let title = format!("Logged in to {server}");
        Self { status: StatusCode::OK, title, text: "You can close this window.".to_owned() }
    }

    /// Page of a login that failed.
    fn failure(server: &str, reason: &str) -> Self {
        let title = format!("Not logged in to {server}");
        let text = clipped(reason, MAX_REASON_BYTES).into_owned();
        Self { status: StatusCode::BAD_REQUEST, title, text }
    }

    fn unknown(status: StatusCode) -> Self {
        let text = "This page does not belong to a login in progress.".to_owned();
        Self { status, title: "No login".to_owned(), text }
    }
}

impl IntoResponse for CallbackPage {
    fn into_response(self) -> Response {
        let (title, text) = (escaped(&self.title), escaped(&self.text));
        let page = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
             <style>body{{font-family:sans-serif;margin:4rem auto;max-width:32rem}}</style>\
             <h1>{title}</h1><p>{text}</p><p>Pegboard</p></html>\n"
        );
        (self.status, PAGE_HEADERS, page).into_response()
    }
}

/// Escapes a text for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl CallbackVisit {
    /// Returns the visit if the browser comes back from this login. Otherwise says so on its page.
    pub fn belongs_to(self, login: &PendingLogin) -> Option<Self> {
        if login.is_answered_by(&self.url) {
            return Some(self);
        }
        self.answer(CallbackPage::unknown(StatusCode::BAD_REQUEST));
        None
    }

    /// Completes the login at a server, and shows what has happened.
    pub async fn complete(self, login: PendingLogin, server: &str) -> Result<(), OAuthError> {
        let done = login.complete(&self.url).await;
        self.answer(match &done {
            Ok(()) => CallbackPage::success(server),
            Err(error) => CallbackPage::failure(server, &error.to_string()),
        });
        done
    }

    fn answer(self, page: CallbackPage) {
        // The browser may have gone away.
        let _ = self.reply.send(page);
    }
}

impl CallbackListener {
    /// Listens on a loopback port; 0 is any.
    pub async fn bind(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
        let bound = listener.local_addr()?;
        let base: Url = format!("http://{bound}{PATH}").parse().map_err(io::Error::other)?;
        let (sender, visits) = mpsc::channel(MAX_WAITING);
        let router = Router::new().fallback(visit).with_state((base.clone(), sender));
        let (close, closed) = oneshot::channel();
        // Ends with the listener.
        let server = tokio::spawn(async move {
            let served = axum::serve(listener, router).with_graceful_shutdown(async move {
                let _ = closed.await;
            });
            let _ = served.await;
        });
        Ok(Self { base, visits, close, server })
    }

    /// Returns the URL for the authorization server.
    pub fn url(&self) -> &Url {
        &self.base
    }

    /// Waits for the browser.
    pub async fn visit(&mut self) -> CallbackVisit {
        match self.visits.recv().await {
            Some(visit) => visit,
            // The server runs until it is closed.
            None => std::future::pending().await,
        }
    }

    /// Stops listening, after the pages have been sent.
    pub async fn close(self) {
        let _ = self.close.send(());
        let _ = time::timeout(CLOSE_TIMEOUT, self.server).await;
    }
}

/// Handles one request. A page of another site could send any, so the host must be ours.
async fn visit(
    State((base, visits)): State<(Url, mpsc::Sender<CallbackVisit>)>,
    request: Request,
) -> CallbackPage {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let is_ours =
        host.is_some_and(|host| base.as_str().strip_prefix("http://") == Some(&format!("{host}{PATH}")));
    if !is_ours || request.method() != Method::GET || request.uri().path() != PATH {
        return CallbackPage::unknown(StatusCode::NOT_FOUND);
    }
    let mut url = base;
    url.set_query(request.uri().query());
    let (reply, answered) = oneshot::channel();
    if visits.try_send(CallbackVisit { url, reply }).is_err() {
        return CallbackPage::unknown(StatusCode::SERVICE_UNAVAILABLE);
    }
    answered.await.unwrap_or_else(|_| CallbackPage::unknown(StatusCode::GONE))
}
