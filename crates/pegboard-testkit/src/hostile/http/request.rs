//! A minimal HTTP connection that can send invalid responses.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

/// An HTTP request.
pub(super) struct RawRequest {
    pub(super) method: String,
    pub(super) has_authorization: bool,
    pub(super) body: Vec<u8>,
}

/// A client connection.
pub(super) struct RawConnection {
    stream: BufReader<TcpStream>,
}

impl RawConnection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    /// Reads the next request; `None` if the client has closed the connection.
    pub(super) fn read(&mut self) -> io::Result<Option<RawRequest>> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let method = line.split(' ').next().unwrap_or_default().to_owned();
        let (mut length, mut has_authorization) = (0, false);
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().map_err(io::Error::other)?,
                "authorization" => has_authorization = true,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(Some(RawRequest { method, has_authorization, body }))
    }

    /// Sends raw bytes.
    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes.as_ref())
    }

    /// Sends a status without a body.
    pub(super) fn status(&mut self, status: &str, headers: &[&str]) -> io::Result<()> {
        let headers: Vec<String> = headers.iter().map(|header| format!("{header}\r\n")).collect();
        self.send(format!("HTTP/1.1 {status}\r\n{}Content-Length: 0\r\n\r\n", headers.concat()))
    }

    /// Sends a correct JSON response.
    pub(super) fn json(&mut self, answer: &Value) -> io::Result<()> {
        let body = answer.to_string();
        // The `initialize` result starts a session.
        let session =
            if answer["result"]["protocolVersion"].is_null() { "" } else { "Mcp-Session-Id: hostile\r\n" };
        let length = body.len();
        self.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{session}Content-Length: {length}\r\n\r\n{body}"
        ))
    }

    /// Sends the head of an event stream.
    pub(super) fn begin_stream(&mut self) -> io::Result<()> {
        self.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    }

    /// Sends a chunk; an empty one ends the stream.
    pub(super) fn chunk(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let bytes = bytes.as_ref();
        self.send([format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat())
    }

    /// Resets the connection.
    pub(super) fn reset(&mut self) -> io::Result<()> {
        use std::time::Duration;
        rustix::net::sockopt::set_socket_linger(self.stream.get_ref(), Some(Duration::ZERO))?;
        Err(io::ErrorKind::ConnectionReset.into())
    }

    /// Closes the connection.
    #[expect(clippy::unused_self, reason = "the call site names the connection that ends")]
    pub(super) fn close(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::ConnectionAborted.into())
    }
}
