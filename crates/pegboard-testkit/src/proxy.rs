//! A forward proxy that records the requests of its clients.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, copy_bidirectional,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::recorder::RecordedRequest;
use crate::tls::CertificateAuthority;

/// Maximum number of header lines of a request.
const MAX_HEADERS: usize = 100;

/// A proxy in this process, for which every host name is this machine. Dropping it stops it.
///
/// It forwards requests in absolute form, and tunnels those with the method `CONNECT`.
pub struct ForwardProxy {
    address: SocketAddr,
    state: Arc<ProxyState>,
    _service: JoinSet<()>,
}

/// State shared by all connections.
struct ProxyState {
    /// The only accepted value of `Proxy-Authorization`; `None` accepts every request.
    authorization: Option<String>,
    recorded: Mutex<Vec<RecordedRequest>>,
}

impl ForwardProxy {
    /// Starts a proxy that requires this value of `Proxy-Authorization`, if there is one.
    ///
    /// # Panics
    /// If this machine has no free port.
    pub async fn start(authorization: Option<&str>) -> Self {
        Self::start_with(None, authorization).await
    }

    /// Starts a proxy that clients reach over TLS.
    ///
    /// # Panics
    /// If this machine has no free port.
    pub async fn start_tls(authority: &CertificateAuthority, authorization: Option<&str>) -> Self {
        let config = authority.server_config(&["localhost"], &[]);
        Self::start_with(Some(TlsAcceptor::from(Arc::new(config))), authorization).await
    }

    async fn start_with(acceptor: Option<TlsAcceptor>, authorization: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let authorization = authorization.map(str::to_owned);
        let state = Arc::new(ProxyState { authorization, recorded: Mutex::default() });
        let mut service = JoinSet::new();
        service.spawn(accept(listener, acceptor, Arc::clone(&state)));
        Self { address, state, _service: service }
    }

    /// Returns the host and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the heads of the requests so far; the bodies are not recorded.
    pub fn recorded(&self) -> Vec<RecordedRequest> {
        self.state.recorded.lock().clone()
    }
}

async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>, state: Arc<ProxyState>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (acceptor, state) = (acceptor.clone(), Arc::clone(&state));
        connections.spawn(async move {
            // A peer that disconnects ends the connection, and nothing else.
            match acceptor {
                None => forward(BufReader::new(client), &state).await,
                Some(acceptor) => forward(BufReader::new(acceptor.accept(client).await?), &state).await,
            }
        });
    }
}

/// Forwards the one request of a connection.
async fn forward<S>(mut client: BufReader<S>, state: &ProxyState) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let request = read_head(&mut client).await?;
    state.recorded.lock().push(request.clone());
    if state.authorization.is_some()
        && request.header("proxy-authorization") != state.authorization.as_deref()
    {
        let refusal =
            "HTTP/1.1 407 -\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        return client.write_all(refusal.as_bytes()).await;
    }
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let (method, rest) = request.line.split_once(' ').ok_or_else(invalid)?;
    let target = rest.split_once(' ').ok_or_else(invalid)?.0;
    let (authority, path) = if method == "CONNECT" {
        (target, None)
    } else {
        let target = target.strip_prefix("http://").ok_or_else(invalid)?;
        let path = target.find('/').ok_or_else(invalid)?;
        (&target[..path], Some(&target[path..]))
    };
    let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).ok_or_else(invalid)?;
    let mut server = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).await?;
    match path {
        None => client.write_all(b"HTTP/1.1 200 -\r\n\r\n").await?,
        Some(path) => server.write_all(origin_head(method, path, &request).as_bytes()).await?,
    }
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// Returns the head for the server. It closes the connection after its response, so that every request has a
/// connection of its own.
fn origin_head(method: &str, path: &str, request: &RecordedRequest) -> String {
    let is_forwarded = |name: &str| {
        !["proxy-authorization", "proxy-connection", "connection"]
            .iter()
            .any(|hop| name.eq_ignore_ascii_case(hop))
    };
    let headers = request.headers.iter().filter(|(name, _)| is_forwarded(name));
    let headers: Vec<String> = headers.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{method} {path} HTTP/1.1\r\n{}connection: close\r\n\r\n", headers.concat())
}

/// Reads the head of a request; what follows stays in the buffer.
async fn read_head(client: &mut (impl AsyncBufRead + Unpin)) -> io::Result<RecordedRequest> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        let n_bytes = client.read_line(&mut line).await?;
        if n_bytes == 0 || lines.len() > MAX_HEADERS {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut lines = lines.into_iter();
    let line = lines.next().unwrap_or_default();
    let headers = lines.filter_map(|line| {
        line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
    });
    Ok(RecordedRequest { line, headers: headers.collect(), body: Vec::new() })
}
