//! Responses of each fault mode to a call.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use super::gzip;
use super::request::RawConnection;
use super::{HostileHttpServer, HttpFault};
use crate::hostile::well_behaved;

/// Delay between bytes or comments.
const DRIP_DELAY: Duration = Duration::from_millis(200);
/// Time that a server keeps going if the client does not stop it.
const SAFETY_TIMEOUT: Duration = Duration::from_mins(2);
/// Size of a huge event.
const HUGE_BYTES: usize = 64 * 1024 * 1024;

impl HostileHttpServer {
    /// Answers the faulty call.
    pub(super) fn misbehave(&self, connection: &mut RawConnection, answer: &Value) -> io::Result<()> {
        match self.mode {
            HttpFault::Reset => connection.reset(),
            HttpFault::HalfBody => {
                let (head, body) = whole(answer);
                connection.send([head.as_bytes(), &body.as_bytes()[..body.len() / 2]].concat())?;
                connection.close()
            }
            HttpFault::SlowHeaders => {
                std::thread::sleep(SAFETY_TIMEOUT);
                connection.close()
            }
            HttpFault::SlowBody => {
                let (head, body) = whole(answer);
                connection.send(head)?;
                body.as_bytes().chunks(1).try_for_each(|byte| {
                    std::thread::sleep(DRIP_DELAY);
                    connection.send(byte)
                })
            }
            HttpFault::WrongType => connection.send(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 20\r\n\r\n<p>Please log in</p>",
            ),
            HttpFault::Status500 => connection.status("500 Internal Server Error", &[]),
            HttpFault::Status502 => connection.status("502 Bad Gateway", &[]),
            HttpFault::Status503 => connection.status("503 Service Unavailable", &["Retry-After: 0"]),
            HttpFault::Status429 => connection.status("429 Too Many Requests", &["Retry-After: 0"]),
            HttpFault::Late401 => connection.status("401 Unauthorized", &["WWW-Authenticate: Bearer realm=\"hostile\""]),
            HttpFault::Accepted => connection.status("202 Accepted", &[]),
            HttpFault::NoContent => connection.send("HTTP/1.1 204 No Content\r\n\r\n"),
            HttpFault::LengthAndChunks => self.send_two_lengths(connection, answer),
            HttpFault::ChunkJunk => {
                connection.begin_stream()?;
                connection.send("zebra\r\nthis is no chunk\r\n")?;
                connection.close()
            }
            HttpFault::GzipBomb => gzip::send_bomb(connection),
            HttpFault::Redirect => {
                let location = format!("Location: http://{}/mcp", self.redirect_target);
                connection.status("307 Temporary Redirect", &[&location])
            }
            _ => self.stream(connection, answer),
        }
    }

    /// Sends a response that differs by which of the two lengths the client believes.
    #[expect(clippy::unused_self, reason = "all faults are methods")]
    fn send_two_lengths(&self, connection: &mut RawConnection, answer: &Value) -> io::Result<()> {
        let body = answer.to_string();
        let smuggled = well_behaved::text(&answer["id"], "smuggled").to_string();
        connection.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\
             Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n\
             HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{smuggled}",
            body.len(),
            smuggled.len(),
        ))
    }

    /// Answers with an event stream.
    fn stream(&self, connection: &mut RawConnection, answer: &Value) -> io::Result<()> {
        if matches!(
            self.mode,
            HttpFault::Decent | HttpFault::Session404 | HttpFault::Session400 | HttpFault::Always401
        ) {
            return connection.json(answer);
        }
        connection.begin_stream()?;
        match self.mode {
            HttpFault::SseCut => {
                connection.chunk(format!("data: {}", &answer.to_string()[..20]))?;
                return connection.close();
            }
            HttpFault::SseComments => loop {
                connection.chunk(": still here\n\n")?;
                std::thread::sleep(DRIP_DELAY);
            },
            HttpFault::SseFlood => {
                let params = json!({"level": "info", "data": "x".repeat(1000)});
                let notification = well_behaved::notification("notifications/message", &params);
                let events = format!("data: {notification}\n\n").repeat(64);
                loop {
                    connection.chunk(&events)?;
                }
            }
            HttpFault::SseHugeEvent => {
                connection
                    .chunk(format!(r#"data: {{"jsonrpc":"2.0","id":{},"result":{{"text":""#, answer["id"]))?;
                let piece = b"x".repeat(64 * 1024);
                (0..HUGE_BYTES / piece.len()).try_for_each(|_| connection.chunk(&piece))?;
                connection.chunk("\"}}\n\n")?;
            }
            HttpFault::SseOdd => connection.chunk(unusual_events(answer))?,
            _ => {}
        }
        connection.chunk("")
    }
}

/// Returns the head and body of a correct response.
fn whole(answer: &Value) -> (String, String) {
    let body = answer.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    (head, body)
}

/// Returns a response over several lines, with every sort of line break, and both known and unknown fields.
fn unusual_events(answer: &Value) -> String {
    let pretty = format!("{answer:#}");
    let lines: Vec<String> = pretty.lines().map(|line| format!("data:{line}\r\n")).collect();
    format!("\u{feff}: hello\r\n\r\nretry:10\rid\rdata\r\revent: message\nfield: none\n{}\n", lines.concat())
}
