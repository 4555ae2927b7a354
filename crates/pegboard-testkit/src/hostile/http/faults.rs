//! What becomes of a call.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use super::gzip;
use super::request::Visitor;
use super::{Mode, Server};
use crate::hostile::manners;

/// How long a server waits between bytes, or comments.
const DRIP: Duration = Duration::from_millis(200);
/// How long a server goes on that nobody ends.
const LONG: Duration = Duration::from_mins(2);
/// How much a huge event has.
const HUGE: usize = 64 * 1024 * 1024;

impl Server {
    /// Answers the call that the faults are of.
    pub(super) fn misbehave(&self, visitor: &mut Visitor, answer: &Value) -> io::Result<()> {
        match self.mode {
            Mode::Reset => visitor.reset(),
            Mode::HalfBody => {
                let (head, body) = whole(answer);
                visitor.send([head.as_bytes(), &body.as_bytes()[..body.len() / 2]].concat())?;
                visitor.hang_up()
            }
            Mode::SlowHeaders => {
                std::thread::sleep(LONG);
                visitor.hang_up()
            }
            Mode::SlowBody => {
                let (head, body) = whole(answer);
                visitor.send(head)?;
                body.as_bytes().chunks(1).try_for_each(|byte| {
                    std::thread::sleep(DRIP);
                    visitor.send(byte)
                })
            }
            Mode::WrongType => visitor.send(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 20\r\n\r\n<p>Please log in</p>",
            ),
            Mode::Status500 => visitor.status("500 Internal Server Error", &[]),
            Mode::Status502 => visitor.status("502 Bad Gateway", &[]),
            Mode::Status503 => visitor.status("503 Service Unavailable", &["Retry-After: 0"]),
            Mode::Status429 => visitor.status("429 Too Many Requests", &["Retry-After: 0"]),
            Mode::Late401 => visitor.status("401 Unauthorized", &["WWW-Authenticate: Bearer realm=\"hostile\""]),
            Mode::Accepted => visitor.status("202 Accepted", &[]),
            Mode::NoContent => visitor.send("HTTP/1.1 204 No Content\r\n\r\n"),
            Mode::LengthAndChunks => self.two_lengths(visitor, answer),
            Mode::ChunkJunk => {
                visitor.begin_stream()?;
                visitor.send("zebra\r\nthis is no chunk\r\n")?;
                visitor.hang_up()
            }
            Mode::GzipBomb => gzip::send_bomb(visitor),
            Mode::Redirect => {
                let location = format!("Location: http://{}/mcp", self.elsewhere);
                visitor.status("307 Temporary Redirect", &[&location])
            }
            _ => self.stream(visitor, answer),
        }
    }

    /// Sends what is another answer for whoever believes the other length.
    #[expect(clippy::unused_self, reason = "it is a fault like the others")]
    fn two_lengths(&self, visitor: &mut Visitor, answer: &Value) -> io::Result<()> {
        let body = answer.to_string();
        let smuggled = manners::text(&answer["id"], "smuggled").to_string();
        visitor.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\
             Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n\
             HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{smuggled}",
            body.len(),
            smuggled.len(),
        ))
    }

    /// Answers in a stream.
    fn stream(&self, visitor: &mut Visitor, answer: &Value) -> io::Result<()> {
        if matches!(self.mode, Mode::Decent | Mode::Session404 | Mode::Session400 | Mode::Always401) {
            return visitor.json(answer);
        }
        visitor.begin_stream()?;
        match self.mode {
            Mode::SseCut => {
                visitor.chunk(format!("data: {}", &answer.to_string()[..20]))?;
                return visitor.hang_up();
            }
            Mode::SseComments => loop {
                visitor.chunk(": still here\n\n")?;
                std::thread::sleep(DRIP);
            },
            Mode::SseFlood => {
                let params = json!({"level": "info", "data": "x".repeat(1000)});
                let notification = manners::notification("notifications/message", &params);
                let events = format!("data: {notification}\n\n").repeat(64);
                loop {
                    visitor.chunk(&events)?;
                }
            }
            Mode::SseHugeEvent => {
                visitor
                    .chunk(format!(r#"data: {{"jsonrpc":"2.0","id":{},"result":{{"text":""#, answer["id"]))?;
                let piece = b"x".repeat(64 * 1024);
                (0..HUGE / piece.len()).try_for_each(|_| visitor.chunk(&piece))?;
                visitor.chunk("\"}}\n\n")?;
            }
            Mode::SseOdd => visitor.chunk(odd(answer))?,
            _ => {}
        }
        visitor.chunk("")
    }
}

/// A decent answer: its head, and its body.
fn whole(answer: &Value) -> (String, String) {
    let body = answer.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    (head, body)
}

/// An answer over two lines, with every sort of line end and every field there is, and some there are not.
fn odd(answer: &Value) -> String {
    let pretty = format!("{answer:#}");
    let lines: Vec<String> = pretty.lines().map(|line| format!("data:{line}\r\n")).collect();
    format!("\u{feff}: hello\r\n\r\nretry:10\rid\rdata\r\revent: message\nfield: none\n{}\n", lines.concat())
}
