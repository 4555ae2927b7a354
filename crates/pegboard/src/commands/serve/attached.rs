//! The gateway's side of clients over stdio that are attached through the local socket.

use std::io::Cursor;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use pegboard::gateway::api::{AttachedClient, AttachedClients};
use pegboard::gateway::{Gateway, serve};
use pegboard::wire::http::server::ReadAhead;
use pegboard::wire::stdio::EndableInput;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::activity::Activity;
use super::attachment::{self, AttachReply, AttachRequest};
use crate::cli::format::now_millis;

/// Time that the last responses may take to be written.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between checks of a client that has closed its input.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of clients.
const MAX_CLIENTS: usize = 1_000;
/// Maximum length of the texts that a client tells about itself.
const MAX_CHARACTERS: usize = 200;

/// Clients over stdio that are attached through the local socket.
#[derive(Clone)]
pub(crate) struct PassedClients {
    gateway: Gateway,
    identity: String,
    list: AttachedClients,
    sessions: TaskTracker,
    end_of_input: CancellationToken,
    activity: Activity,
}

impl PassedClients {
    pub(crate) fn new(
        gateway: &Gateway,
        identity: String,
        list: AttachedClients,
        activity: Activity,
    ) -> Self {
        let (sessions, end_of_input) = (TaskTracker::new(), CancellationToken::new());
        Self { gateway: gateway.clone(), identity, list, sessions, end_of_input, activity }
    }

    /// Returns the route that accepts clients. It is for the local socket only, since it needs no token.
    pub(crate) fn route(&self) -> Router {
        Router::new().route(attachment::PATH, get(attach)).with_state(self.clone())
    }

    /// Ends the input of all clients, and waits until the responses to their requests are written.
    pub(crate) async fn close(&self) {
        self.end_of_input.cancel();
        self.sessions.close();
        let _ = time::timeout(WRITE_TIMEOUT, self.sessions.wait()).await;
    }

    /// Serves a client until it disconnects.
    async fn serve(self, upgrade: OnUpgrade, client: AttachedClient) {
        let _active = self.activity.begin();
        let profile = client.profile.clone();
        let _listed = self.list.add(client);
        let Ok(upgraded) = upgrade.await else { return };
        let Ok(parts) = upgraded.downcast::<TokioIo<ReadAhead<UnixStream>>>() else { return };
        let (ahead, stream) = parts.io.into_inner().into_parts();
        let Ok(connection) = stream.as_fd().try_clone_to_owned() else { return };
        let (reader, writer) = stream.into_split();
        let (report, ended) = oneshot::channel();
        let read_before = Cursor::new(parts.read_buf).chain(Cursor::new(ahead));
        let reader = ObservedInput { reader: read_before.chain(reader), report: Some(report) };
        let input = EndableInput::new(reader, self.end_of_input.clone());
        tokio::select! {
            _ = serve::streams(&self.gateway, profile.as_deref(), input, writer) => {}
            // Calls of the client end with it.
            () = disconnected(ended, connection) => {}
        }
    }
}

/// `GET /api/stdio`
async fn attach(State(clients): State<PassedClients>, mut request: Request) -> Response {
    let Some(attaching) = attachment::read_header::<AttachRequest>(request.headers()) else {
        return refusal(StatusCode::BAD_REQUEST, "bad_request", "expected a client over stdio");
    };
    if attaching.identity != clients.identity {
        return refusal(StatusCode::CONFLICT, "other_configuration", "this gateway serves other files");
    }
    if clients.end_of_input.is_cancelled() {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "not_running", "the gateway is shutting down");
    }
    if clients.sessions.len() >= MAX_CLIENTS {
        let message = format!("the gateway has {MAX_CLIENTS} clients already");
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "limit_exceeded", &message);
    }
    if let Some(profile) = &attaching.profile
        && !clients.gateway.profiles().contains(profile)
    {
        let message =
            format!("unknown profile '{profile}'; available: {}", clients.gateway.profiles().join(", "));
        return refusal(StatusCode::NOT_FOUND, "usage", &message);
    }
    let Some(upgrade) = request.extensions_mut().remove::<OnUpgrade>() else {
        return refusal(StatusCode::UPGRADE_REQUIRED, "bad_request", "expected an upgrade");
    };
    let differing = attaching.variables.differing();
    let (version, pid) = (env!("CARGO_PKG_VERSION").to_owned(), std::process::id());
    let reply = attachment::write_header(&AttachReply { version, pid, differing: differing.clone() });
    let short = |text: String| text.chars().take(MAX_CHARACTERS).collect::<String>();
    let client = AttachedClient {
        program: short(attaching.program),
        pid: attaching.pid,
        version: short(attaching.version),
        profile: attaching.profile,
        connected_at: now_millis(),
        differing_variables: differing,
    };
    clients.sessions.spawn(clients.clone().serve(upgrade, client));
    let headers = [(header::CONNECTION, "upgrade"), (header::UPGRADE, attachment::PROTOCOL)];
    let mut response = (StatusCode::SWITCHING_PROTOCOLS, headers).into_response();
    response.headers_mut().extend(reply);
    response
}

fn refusal(status: StatusCode, code: &str, message: &str) -> Response {
    (status, Json(json!({"error": {"code": code, "message": message}}))).into_response()
}

/// Waits until a client has closed both directions. One that has sent its last request closes only its own.
async fn disconnected(input_ended: oneshot::Receiver<()>, connection: OwnedFd) {
    if input_ended.await.is_err() {
        std::future::pending::<()>().await;
    }
    loop {
        // With no events requested, `poll` reports only hang-ups and errors.
        let mut watched = [PollFd::new(&connection, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut watched, Some(&now)).is_ok_and(|n_ready| n_ready > 0) {
            return;
        }
        time::sleep(POLL_INTERVAL).await;
    }
}

/// Input that reports its end.
struct ObservedInput<R> {
    reader: R,
    report: Option<oneshot::Sender<()>>,
}

impl<R: AsyncRead + Unpin> AsyncRead for ObservedInput<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let n_before = buffer.filled().len();
        let read = Pin::new(&mut self.reader).poll_read(context, buffer);
        if let Poll::Ready(Ok(())) = &read
            && buffer.filled().len() == n_before
            && let Some(report) = self.report.take()
        {
            // The receiver may be gone already.
            let _ = report.send(());
        }
        read
    }
}
