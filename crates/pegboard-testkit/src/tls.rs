//! Servers over TLS in this process, with certificates of a private authority.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, Response, Version};
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use crate::recorder::RecordedRequest;

/// A private certificate authority.
pub struct CertificateAuthority(CertifiedIssuer<'static, KeyPair>);

impl CertificateAuthority {
    /// Creates an authority with this name and a key of its own.
    ///
    /// # Panics
    /// If the system has no random numbers.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("valid parameters"))
    }

    /// Returns the certificate of the authority as PEM, which clients have to trust.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Returns the configuration of a server that has a certificate for these names or addresses, and offers
    /// these protocols, the preferred first.
    pub(crate) fn server_config(&self, names: &[&str], protocols: &[&str]) -> ServerConfig {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let params = CertificateParams::new(names).expect("valid names");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("valid parameters");
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key.into())
            .expect("the key of the certificate");
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        config
    }
}

/// A server in this process that records its requests. Dropping it stops it.
pub struct RecordingServer {
    address: SocketAddr,
    scheme: &'static str,
    state: Arc<ServerRecord>,
    _service: JoinSet<()>,
}

/// Observations of a server.
#[derive(Default)]
struct ServerRecord {
    requests: watch::Sender<Vec<RecordedRequest>>,
    n_connections: AtomicUsize,
    /// Number of responses that the client did not read to their end.
    n_abandoned: watch::Sender<usize>,
}

impl RecordingServer {
    /// Serves a router over TLS, with a certificate for these names or addresses. The client chooses one of
    /// the protocols: `h2`, `http/1.1`.
    pub async fn start_tls(
        authority: &CertificateAuthority,
        names: &[&str],
        protocols: &[&str],
        router: Router,
    ) -> Self {
        let config = authority.server_config(names, protocols);
        Self::start(Some(TlsAcceptor::from(Arc::new(config))), router).await
    }

    /// Serves a router over plain HTTP.
    pub async fn start_plain(router: Router) -> Self {
        Self::start(None, router).await
    }

    async fn start(acceptor: Option<TlsAcceptor>, router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let scheme = if acceptor.is_some() { "https" } else { "http" };
        let state = Arc::<ServerRecord>::default();
        let mut service = JoinSet::new();
        service.spawn(accept(listener, acceptor, router, Arc::clone(&state)));
        Self { address, scheme, state, _service: service }
    }

    /// Returns the URL of a path, with this host.
    pub fn url(&self, host: &str, path: &str) -> String {
        format!("{}://{host}:{}{path}", self.scheme, self.address.port())
    }

    /// Returns the requests so far, with the body.
    pub fn recorded(&self) -> Vec<RecordedRequest> {
        self.state.requests.borrow().clone()
    }

    /// Returns the number of connections so far that completed their TLS handshake, if there is one.
    pub fn n_connections(&self) -> usize {
        self.state.n_connections.load(Ordering::SeqCst)
    }

    /// Waits until a request has a body with this text.
    ///
    /// # Panics
    /// Never: the sender outlives the wait.
    pub async fn wait_for_request(&self, text: &str) {
        let has_text = |request: &RecordedRequest| request.text().contains(text);
        let mut requests = self.state.requests.subscribe();
        requests.wait_for(|requests| requests.iter().any(has_text)).await.expect("the sender is here");
    }

    /// Waits until a client has abandoned this many responses.
    ///
    /// # Panics
    /// Never: the sender outlives the wait.
    pub async fn wait_for_abandoned(&self, n_times: usize) {
        let mut n_abandoned = self.state.n_abandoned.subscribe();
        n_abandoned.wait_for(|n_abandoned| *n_abandoned >= n_times).await.expect("the sender is here");
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    router: Router,
    state: Arc<ServerRecord>,
) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, acceptor.clone(), router.clone(), Arc::clone(&state)));
    }
}

async fn serve(stream: TcpStream, acceptor: Option<TlsAcceptor>, router: Router, state: Arc<ServerRecord>) {
    let service = TowerToHyperService::new(router);
    let record = Arc::clone(&state);
    let service = service_fn(move |request: Request<Incoming>| {
        let (service, record) = (service.clone(), Arc::clone(&record));
        async move {
            // Without its guard, a response that is abandoned before its head would not be counted.
            let guard = AbandonGuard { record: Arc::clone(&record), is_complete: false };
            let request = recorded(request, &record).await?;
            let response = match hyper::service::Service::call(&service, request).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            Ok::<Response<GuardedBody>, hyper::Error>(response.map(|body| GuardedBody::new(body, guard)))
        }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    // A client that disconnects is none of the server's business.
    match acceptor {
        None => {
            state.n_connections.fetch_add(1, Ordering::SeqCst);
            let _ = server.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
        }
        Some(acceptor) => {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            state.n_connections.fetch_add(1, Ordering::SeqCst);
            let _ = server.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
        }
    }
}

/// Reads a request, records it, and returns it with its body.
async fn recorded(request: Request<Incoming>, record: &ServerRecord) -> Result<Request<Body>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let version = match parts.version {
        Version::HTTP_2 => "HTTP/2",
        _ => "HTTP/1.1",
    };
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let request = RecordedRequest {
        line: format!("{} {} {version}", parts.method, parts.uri.path()),
        headers: parts
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), text(value.as_bytes())))
            .collect(),
        body: body.to_vec(),
    };
    record.requests.send_modify(|requests| requests.push(request));
    Ok(Request::from_parts(parts, Body::from(body)))
}

/// Counts a response that is dropped before its end.
struct AbandonGuard {
    record: Arc<ServerRecord>,
    is_complete: bool,
}

impl Drop for AbandonGuard {
    fn drop(&mut self) {
        if !self.is_complete {
            self.record.n_abandoned.send_modify(|n_abandoned| *n_abandoned += 1);
        }
    }
}

/// A response body that notices its end.
struct GuardedBody {
    body: Body,
    guard: AbandonGuard,
}

impl GuardedBody {
    fn new(body: Body, mut guard: AbandonGuard) -> Self {
        // An empty body is not polled.
        guard.is_complete = body.is_end_stream();
        Self { body, guard }
    }
}

impl HttpBody for GuardedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        self.guard.is_complete |= matches!(frame, Poll::Ready(None)) || self.body.is_end_stream();
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
