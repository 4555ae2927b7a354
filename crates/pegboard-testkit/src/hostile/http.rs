//! Hostile HTTP servers.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use self::request::{RawConnection, RawRequest};
use super::journal::Journal;
use super::{modes, well_behaved};

mod faults;
mod gzip;
mod request;

modes! {
    /// Fault mode of an HTTP server.
    pub enum HttpFault {
        /// No fault.
        Decent = "decent",
        /// Resets the connection instead of answering a call.
        Reset = "reset",
        /// Sends half of the response to a call, then closes the connection.
        HalfBody = "half-body",
        /// Accepts a call, and never sends response headers.
        SlowHeaders = "slow-headers",
        /// Sends the response to a call byte by byte.
        SlowBody = "slow-body",
        /// Answers a call with an HTML page.
        WrongType = "wrong-type",
        /// Answers a call with 500.
        Status500 = "status-500",
        /// Answers a call with 502.
        Status502 = "status-502",
        /// Answers a call with 503.
        Status503 = "status-503",
        /// Answers a call with 429.
        Status429 = "status-429",
        /// Answers everything with 401.
        Always401 = "always-401",
        /// Answers a call with 401.
        Late401 = "late-401",
        /// Answers a call with 202.
        Accepted = "accepted",
        /// Answers a call with 204.
        NoContent = "no-content",
        /// Answers a call with both a content length and chunked encoding.
        LengthAndChunks = "length-and-chunks",
        /// Answers a call with invalid chunks.
        ChunkJunk = "chunk-junk",
        /// The event stream of a call breaks off.
        SseCut = "sse-cut",
        /// The event stream of a call ends without a response.
        SseNoAnswer = "sse-no-answer",
        /// The event stream of a call contains only comments.
        SseComments = "sse-comments",
        /// The event stream of a call contains only notifications.
        SseFlood = "sse-flood",
        /// The response in the event stream has 64 MiB.
        SseHugeEvent = "sse-huge-event",
        /// The event stream of a call is written in an unusual but valid form.
        SseOdd = "sse-odd",
        /// Forgets the session once, with 404.
        Session404 = "session-404",
        /// Forgets the session once, with 400.
        Session400 = "session-400",
        /// The response to a call is small, and 1 GiB when decompressed.
        GzipBomb = "gzip-bomb",
        /// Redirects calls to another server.
        Redirect = "redirect",
    }
}

/// Serves on a port, or on a free one if it is 0, and never returns. `ready` receives the URL.
pub fn serve(mode: HttpFault, port: u16, ready: impl FnOnce(&str) -> io::Result<()>) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let journal = Journal::from_environment();
    journal.note("start");
    let redirect_target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let server = Arc::new(HostileHttpServer {
        mode,
        journal,
        redirect_target: redirect_target.local_addr()?,
        has_forgotten: AtomicBool::new(false),
    });
    ready(&format!("http://{}/mcp", listener.local_addr()?))?;
    let other = Arc::clone(&server);
    std::thread::spawn(move || {
        accept(&redirect_target, move |connection| other.serve_redirect_target(connection));
    });
    accept(&listener, move |connection| server.serve(connection));
    Ok(())
}

/// Serves each connection on a separate thread.
fn accept(
    listener: &TcpListener,
    serve: impl Fn(&mut RawConnection) -> io::Result<()> + Clone + Send + 'static,
) {
    for stream in listener.incoming().flatten() {
        let serve = serve.clone();
        std::thread::spawn(move || {
            // A closed connection is not an error.
            let _ = serve(&mut RawConnection::new(stream));
        });
    }
}

struct HostileHttpServer {
    mode: HttpFault,
    journal: Journal,
    /// Another server, which no client should follow a redirect to.
    redirect_target: SocketAddr,
    has_forgotten: AtomicBool,
}

impl HostileHttpServer {
    fn serve(&self, connection: &mut RawConnection) -> io::Result<()> {
        while let Some(request) = connection.read()? {
            self.answer(connection, &request)?;
        }
        Ok(())
    }

    /// Records requests, and whether they carry a token.
    fn serve_redirect_target(&self, connection: &mut RawConnection) -> io::Result<()> {
        while let Some(request) = connection.read()? {
            self.journal.note("elsewhere");
            if request.has_authorization {
                self.journal.note("elsewhere with a token");
            }
            connection.status("404 Not Found", &[])?;
        }
        Ok(())
    }

    fn answer(&self, connection: &mut RawConnection, request: &RawRequest) -> io::Result<()> {
        if self.mode == HttpFault::Always401 {
            return connection.status("401 Unauthorized", &["WWW-Authenticate: Bearer realm=\"hostile\""]);
        }
        match &*request.method {
            "POST" => {}
            "DELETE" => return connection.status("200 OK", &[]),
            _ => return connection.status("405 Method Not Allowed", &[]),
        }
        let message: Value = serde_json::from_slice(&request.body)?;
        if well_behaved::is_count(&message) && self.forgets_session_now() {
            self.journal.note("forgotten");
            let status = if self.mode == HttpFault::Session404 { "404 Not Found" } else { "400 Bad Request" };
            return connection.status(status, &[]);
        }
        match well_behaved::answer(&message, &self.journal) {
            None => connection.status("202 Accepted", &[]),
            Some(answer) if well_behaved::is_count(&message) => self.misbehave(connection, &answer),
            Some(answer) => connection.json(&answer),
        }
    }

    /// Forgets the session at the first call; returns `true` if this is it.
    fn forgets_session_now(&self) -> bool {
        matches!(self.mode, HttpFault::Session404 | HttpFault::Session400)
            && !self.has_forgotten.swap(true, Ordering::Relaxed)
    }
}

/// Prints the URL for the parent process.
pub fn print_address(address: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{address}")?;
    stdout.flush()
}
