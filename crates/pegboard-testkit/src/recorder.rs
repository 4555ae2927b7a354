//! A web service that records raw requests and returns prepared responses.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Maximum number of bytes read per request.
const MAX_REQUEST: usize = 1024 * 1024;

/// A recorded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// The request line, such as `GET /things HTTP/1.1`.
    pub line: String,
    /// The headers, in order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl RecordedRequest {
    /// Returns the value of a header, if it occurs exactly once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(each, _)| each.eq_ignore_ascii_case(name));
        let (_, value) = values.next()?;
        values.next().is_none().then_some(value)
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A prepared response.
#[derive(Clone, Debug)]
pub struct CannedResponse {
    bytes: Bytes,
    /// Bytes sent repeatedly after the response.
    endless: Bytes,
    end: AfterReply,
}

/// Treatment of the connection after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterReply {
    Close,
    Hold,
}

impl CannedResponse {
    /// Creates a response with a body of this type.
    pub fn new(status: u16, content_type: &str, body: impl AsRef<[u8]>) -> Self {
        Self::with_headers(status, &[("content-type", content_type)], body)
    }

    /// Creates a successful JSON response.
    pub fn json(body: &str) -> Self {
        Self::new(200, "application/json", body)
    }

    /// Creates a response with these headers and this body.
    pub fn with_headers(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let headers: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let headers = headers.concat();
        let length = body.len();
        let head =
            format!("HTTP/1.1 {status} -\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n");
        Self::raw([head.as_bytes(), body].concat())
    }

    /// Creates a redirect.
    pub fn redirect(status: u16, location: &str) -> Self {
        Self::with_headers(status, &[("location", location)], "")
    }

    /// Creates a response of raw bytes, after which the connection is closed.
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), endless: Bytes::new(), end: AfterReply::Close }
    }

    /// Creates a response of raw bytes, after which the connection stays open until the client closes it.
    pub fn held(bytes: impl Into<Bytes>) -> Self {
        Self { end: AfterReply::Hold, ..Self::raw(bytes) }
    }

    /// Creates a response of raw bytes, followed by `others` repeatedly until the client closes the
    /// connection.
    pub fn endless(bytes: impl Into<Bytes>, others: impl Into<Bytes>) -> Self {
        Self { endless: others.into(), ..Self::raw(bytes) }
    }
}

/// A web service in this process. Dropping it stops it.
pub struct Recorder {
    address: SocketAddr,
    state: Arc<RecorderState>,
    _service: JoinSet<()>,
}

/// State shared by all connections.
struct RecorderState {
    replies: Mutex<VecDeque<CannedResponse>>,
    recorded: watch::Sender<Vec<RecordedRequest>>,
    /// Number of clients that disconnected before the end of a response.
    n_left: watch::Sender<usize>,
}

impl Recorder {
    /// Starts a service that returns these responses in order, and 500 after them.
    ///
    /// # Panics
    /// If this machine has no free port.
    pub async fn start(replies: impl IntoIterator<Item = CannedResponse>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let state = Arc::new(RecorderState {
            replies: Mutex::new(replies.into_iter().collect()),
            recorded: watch::Sender::default(),
            n_left: watch::Sender::default(),
        });
        let mut service = JoinSet::new();
        service.spawn(serve(listener, Arc::clone(&state)));
        Self { address, state, _service: service }
    }

    /// Returns the URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the requests so far.
    pub fn recorded(&self) -> Vec<RecordedRequest> {
        self.state.recorded.borrow().clone()
    }

    /// Waits until this many requests have been received.
    ///
    /// # Panics
    /// Never: the sender outlives the wait.
    pub async fn wait_for_requests(&self, n_times: usize) {
        let mut recorded = self.state.recorded.subscribe();
        recorded.wait_for(|recorded| recorded.len() >= n_times).await.expect("the sender is here");
    }

    /// Waits until a client has disconnected before the end of a response.
    ///
    /// # Panics
    /// Never: the sender outlives the wait.
    pub async fn wait_for_disconnect(&self) {
        self.state.n_left.subscribe().wait_for(|n_left| *n_left > 0).await.expect("the sender is here");
    }
}

async fn serve(listener: TcpListener, state: Arc<RecorderState>) {
    let mut connections = JoinSet::new();
    while let Ok((connection, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        connections.spawn(async move {
            // A client that disconnects is counted, and otherwise ignored.
            if serve_connection(connection, &state).await.is_err() {
                state.n_left.send_modify(|n_left| *n_left += 1);
            }
        });
    }
}

async fn serve_connection(mut connection: TcpStream, state: &RecorderState) -> io::Result<()> {
    let Some(request) = read(&mut connection).await? else { return Ok(()) };
    let reply = state.replies.lock().pop_front();
    state.recorded.send_modify(|recorded| recorded.push(request));
    let reply = reply.unwrap_or_else(|| CannedResponse::new(500, "text/plain", "no response left"));
    connection.write_all(&reply.bytes).await?;
    while !reply.endless.is_empty() {
        connection.write_all(&reply.endless).await?;
    }
    if reply.end == AfterReply::Hold {
        // The client sends nothing more, so this waits until it disconnects.
        connection.read_u8().await?;
    }
    connection.shutdown().await
}

/// Reads one request; `None` if the connection ends first.
async fn read(connection: &mut TcpStream) -> io::Result<Option<RecordedRequest>> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > MAX_REQUEST || connection.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let mut body = bytes.split_off(head_end + 4);
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default().to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|(_, length)| length.parse().ok()).unwrap_or(0).min(MAX_REQUEST);
    while body.len() < length && connection.read_buf(&mut body).await? > 0 {}
    Ok(Some(RecordedRequest { line, headers, body }))
}
