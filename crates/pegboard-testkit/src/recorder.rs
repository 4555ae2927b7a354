//! A web service that writes down what it is asked, byte by byte, and answers what it was told to.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How many bytes of a request are read.
const MAX_REQUEST: usize = 1024 * 1024;

/// A request as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The first line, such as `GET /things HTTP/1.1`.
    pub line: String,
    /// The headers in their order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Recorded {
    /// The value of a header, if it is there once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(each, _)| each.eq_ignore_ascii_case(name));
        let (_, value) = values.next()?;
        values.next().is_none().then_some(value)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// What is answered to one request.
#[derive(Clone, Debug)]
pub struct Reply {
    bytes: Bytes,
    /// What is sent behind it, again and again.
    endless: Bytes,
    end: End,
}

/// What becomes of a connection when all has been said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Close,
    Hold,
}

impl Reply {
    /// An answer with a body of this type.
    pub fn new(status: u16, content_type: &str, body: impl AsRef<[u8]>) -> Self {
        Self::with_headers(status, &[("content-type", content_type)], body)
    }

    /// JSON, and all is well.
    pub fn json(body: &str) -> Self {
        Self::new(200, "application/json", body)
    }

    /// An answer with these headers and this body.
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

    /// A way to somewhere else.
    pub fn redirect(status: u16, location: &str) -> Self {
        Self::with_headers(status, &[("location", location)], "")
    }

    /// These very bytes, and then the connection is closed.
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), endless: Bytes::new(), end: End::Close }
    }

    /// These very bytes, and then nothing, for as long as the client waits.
    pub fn held(bytes: impl Into<Bytes>) -> Self {
        Self { end: End::Hold, ..Self::raw(bytes) }
    }

    /// These very bytes, and then others for as long as the client takes them.
    pub fn endless(bytes: impl Into<Bytes>, others: impl Into<Bytes>) -> Self {
        Self { endless: others.into(), ..Self::raw(bytes) }
    }
}

/// A web service of this process. It ends when it is dropped.
pub struct Recorder {
    address: SocketAddr,
    board: Arc<Board>,
    _service: JoinSet<()>,
}

/// What all connections share.
struct Board {
    replies: Mutex<VecDeque<Reply>>,
    recorded: watch::Sender<Vec<Recorded>>,
    /// How many clients went away from an answer that had not ended.
    n_left: watch::Sender<usize>,
}

impl Recorder {
    /// A service that gives these answers, one after another, and refuses everything after them.
    ///
    /// # Panics
    /// If this machine has no free port.
    pub async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let board = Arc::new(Board {
            replies: Mutex::new(replies.into_iter().collect()),
            recorded: watch::Sender::default(),
            n_left: watch::Sender::default(),
        });
        let mut service = JoinSet::new();
        service.spawn(serve(listener, Arc::clone(&board)));
        Self { address, board, _service: service }
    }

    /// An address of the service.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// What it was asked so far.
    pub fn recorded(&self) -> Vec<Recorded> {
        self.board.recorded.borrow().clone()
    }

    /// Waits until it was asked so many times.
    ///
    /// # Panics
    /// Never: the service has what it waits for.
    pub async fn asked(&self, n_times: usize) {
        let mut recorded = self.board.recorded.subscribe();
        recorded.wait_for(|recorded| recorded.len() >= n_times).await.expect("the sender is here");
    }

    /// Waits until a client went away from an answer that had not ended.
    ///
    /// # Panics
    /// Never: the service has what it waits for.
    pub async fn left(&self) {
        self.board.n_left.subscribe().wait_for(|n_left| *n_left > 0).await.expect("the sender is here");
    }
}

async fn serve(listener: TcpListener, board: Arc<Board>) {
    let mut connections = JoinSet::new();
    while let Ok((connection, _)) = listener.accept().await {
        let board = Arc::clone(&board);
        connections.spawn(async move {
            // A client that went away is noted, and is no trouble otherwise.
            if attend(connection, &board).await.is_err() {
                board.n_left.send_modify(|n_left| *n_left += 1);
            }
        });
    }
}

async fn attend(mut connection: TcpStream, board: &Board) -> io::Result<()> {
    let Some(request) = read(&mut connection).await? else { return Ok(()) };
    let reply = board.replies.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    board.recorded.send_modify(|recorded| recorded.push(request));
    let reply = reply.unwrap_or_else(|| Reply::new(500, "text/plain", "there is no answer left"));
    connection.write_all(&reply.bytes).await?;
    while !reply.endless.is_empty() {
        connection.write_all(&reply.endless).await?;
    }
    if reply.end == End::Hold {
        // The client sends nothing more, so this is its going away.
        connection.read_u8().await?;
    }
    connection.shutdown().await
}

/// Reads one request; `None` if there is none.
async fn read(connection: &mut TcpStream) -> io::Result<Option<Recorded>> {
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
    Ok(Some(Recorded { line, headers, body }))
}
