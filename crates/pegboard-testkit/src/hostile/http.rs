//! Hostile servers behind HTTP.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use self::request::{Request, Visitor};
use super::journal::Journal;
use super::{manners, modes};

mod faults;
mod gzip;
mod request;

modes! {
    /// How a server behind HTTP misbehaves.
    pub enum Mode {
        /// Not at all.
        Decent = "decent",
        /// It resets the connection instead of answering a call.
        Reset = "reset",
        /// It sends half of its answer to a call, and hangs up.
        HalfBody = "half-body",
        /// It takes a call, and never begins to answer.
        SlowHeaders = "slow-headers",
        /// It begins to answer a call, and goes on byte by byte.
        SlowBody = "slow-body",
        /// It answers a call with a page for people.
        WrongType = "wrong-type",
        /// It answers a call with 500.
        Status500 = "status-500",
        /// It answers a call with 502.
        Status502 = "status-502",
        /// It answers a call with 503.
        Status503 = "status-503",
        /// It answers a call with 429.
        Status429 = "status-429",
        /// It answers everything with 401.
        Always401 = "always-401",
        /// It answers a call with 401.
        Late401 = "late-401",
        /// It says to a call that it will see.
        Accepted = "accepted",
        /// It says nothing to a call.
        NoContent = "no-content",
        /// Its answer to a call has two lengths.
        LengthAndChunks = "length-and-chunks",
        /// Its answer to a call comes in chunks that are none.
        ChunkJunk = "chunk-junk",
        /// The stream of a call breaks off.
        SseCut = "sse-cut",
        /// The stream of a call ends without an answer.
        SseNoAnswer = "sse-no-answer",
        /// The stream of a call has nothing but comments.
        SseComments = "sse-comments",
        /// The stream of a call has nothing but notifications.
        SseFlood = "sse-flood",
        /// The answer in a stream has 64 MiB.
        SseHugeEvent = "sse-huge-event",
        /// The stream of a call is written as hardly anybody does, and right.
        SseOdd = "sse-odd",
        /// It forgets the session once, and says 404.
        Session404 = "session-404",
        /// It forgets the session once, and says 400.
        Session400 = "session-400",
        /// Its answer to a call is small, and a GiB when it is unpacked.
        GzipBomb = "gzip-bomb",
        /// It sends whoever calls to another server.
        Redirect = "redirect",
    }
}

/// Misbehaves on a port, or on any if it is 0, and never ends. `ready` hears the address.
pub fn serve(mode: Mode, port: u16, ready: impl FnOnce(&str) -> io::Result<()>) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let journal = Journal::from_environment();
    journal.note("start");
    let elsewhere = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let server = Arc::new(Server {
        mode,
        journal,
        elsewhere: elsewhere.local_addr()?,
        has_forgotten: AtomicBool::new(false),
    });
    ready(&format!("http://{}/mcp", listener.local_addr()?))?;
    let other = Arc::clone(&server);
    std::thread::spawn(move || accept(&elsewhere, move |visitor| other.serve_elsewhere(visitor)));
    accept(&listener, move |visitor| server.serve(visitor));
    Ok(())
}

/// Serves every visitor on a thread of its own, until there is no more.
fn accept(listener: &TcpListener, serve: impl Fn(&mut Visitor) -> io::Result<()> + Clone + Send + 'static) {
    for stream in listener.incoming().flatten() {
        let serve = serve.clone();
        std::thread::spawn(move || {
            // A visitor that is gone is no news.
            let _ = serve(&mut Visitor::new(stream));
        });
    }
}

struct Server {
    mode: Mode,
    journal: Journal,
    /// Another server, which nobody should be sent to.
    elsewhere: SocketAddr,
    has_forgotten: AtomicBool,
}

impl Server {
    fn serve(&self, visitor: &mut Visitor) -> io::Result<()> {
        while let Some(request) = visitor.read()? {
            self.answer(visitor, &request)?;
        }
        Ok(())
    }

    /// Notes whoever comes, with what it has.
    fn serve_elsewhere(&self, visitor: &mut Visitor) -> io::Result<()> {
        while let Some(request) = visitor.read()? {
            self.journal.note("elsewhere");
            if request.has_authorization {
                self.journal.note("elsewhere with a token");
            }
            visitor.status("404 Not Found", &[])?;
        }
        Ok(())
    }

    fn answer(&self, visitor: &mut Visitor, request: &Request) -> io::Result<()> {
        if self.mode == Mode::Always401 {
            return visitor.status("401 Unauthorized", &["WWW-Authenticate: Bearer realm=\"hostile\""]);
        }
        match &*request.method {
            "POST" => {}
            "DELETE" => return visitor.status("200 OK", &[]),
            _ => return visitor.status("405 Method Not Allowed", &[]),
        }
        let message: Value = serde_json::from_slice(&request.body)?;
        if manners::is_count(&message) && self.has_just_forgotten() {
            self.journal.note("forgotten");
            let status = if self.mode == Mode::Session404 { "404 Not Found" } else { "400 Bad Request" };
            return visitor.status(status, &[]);
        }
        match manners::answer(&message, &self.journal) {
            None => visitor.status("202 Accepted", &[]),
            Some(answer) if manners::is_count(&message) => self.misbehave(visitor, &answer),
            Some(answer) => visitor.json(&answer),
        }
    }

    /// Whether it forgets the session with this call, which it does once.
    fn has_just_forgotten(&self) -> bool {
        matches!(self.mode, Mode::Session404 | Mode::Session400)
            && !self.has_forgotten.swap(true, Ordering::Relaxed)
    }
}

/// Tells the address where a program that started the server reads it.
pub fn print_address(address: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{address}")?;
    stdout.flush()
}
