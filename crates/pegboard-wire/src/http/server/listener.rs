//! The accept loop of the HTTP server.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{Method, Request, Uri};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tower::ServiceExt;

use super::client_socket::ClientSocket;
use super::http1::{self, ReadAhead};
use super::timed_stream::TimedStream;
use super::{HttpReply, HttpServerEndpoint, ReplyBody, ServedConnection, ServerThreads};
use crate::descriptors::AcceptErrors;
use crate::http::received_headers::NamedHeaders;
use crate::server::ArrivingRequest;

/// Maximum number of connections that wait to be accepted. The system may have a lower limit. Beyond it, clients try
/// again only after a second.
pub const BACKLOG: u32 = 65_535;

/// Maximum size of the buffer of a connection that hyper serves, and of a head.
const MAX_BUFFER_BYTES: usize = ArrivingRequest::WAITING_BYTES;

/// Finds the MCP endpoint of a message, so that it need not pass the router.
pub trait DirectRoutes: Send + Sync + 'static {
    /// Returns the endpoint for a POST on a connection; `None` leaves the request to the router.
    fn find(
        &self,
        uri: &Uri,
        headers: &dyn NamedHeaders,
        connection: &ServedConnection,
    ) -> Option<HttpServerEndpoint>;
}

/// The routes that are served on a listener. Clones share them.
#[derive(Clone)]
pub struct HttpApplication {
    direct: Option<Arc<dyn DirectRoutes>>,
    router: Router,
}

impl From<Router> for HttpApplication {
    fn from(router: Router) -> Self {
        Self { direct: None, router }
    }
}

impl From<HttpServerEndpoint> for HttpApplication {
    /// Serves an endpoint at every path.
    fn from(endpoint: HttpServerEndpoint) -> Self {
        let router = endpoint.router();
        Self { direct: Some(Arc::new(endpoint)), router }
    }
}

impl DirectRoutes for HttpServerEndpoint {
    fn find(&self, _: &Uri, _: &dyn NamedHeaders, _: &ServedConnection) -> Option<HttpServerEndpoint> {
        Some(self.clone())
    }
}

impl HttpApplication {
    /// Creates an application with direct routes beside its router.
    pub fn new(direct: Arc<dyn DirectRoutes>, router: Router) -> Self {
        Self { direct: Some(direct), router }
    }

    /// Adds the routes of another router.
    #[must_use]
    pub fn merge(mut self, other: Router) -> Self {
        self.router = self.router.merge(other);
        self
    }

    /// Returns the direct routes, if there are any.
    pub fn direct(&self) -> Option<&Arc<dyn DirectRoutes>> {
        self.direct.as_ref()
    }

    /// Returns the router, which serves every request, too.
    pub fn router(&self) -> &Router {
        &self.router
    }

    /// Serves one connection until it ends. Nothing is known about its client.
    pub async fn serve_connection<S>(self: &Arc<Self>, stream: S)
    where
        S: ClientSocket,
    {
        self.serve_client(stream, ServedConnection::default()).await;
    }

    async fn serve_client<S>(self: &Arc<Self>, stream: S, connection: ServedConnection)
    where
        S: ClientSocket,
    {
        let stream = TimedStream::new(stream);
        let stream = match &self.direct {
            Some(direct) => match http1::serve(stream, &**direct, &connection).await {
                Ok(Some(other)) => other,
                Ok(None) => return,
                Err(error) => return tracing::debug!(%error, "A connection broke."),
            },
            None => ReadAhead::new(Default::default(), stream),
        };
        // Boxed, so that the task of a connection to an endpoint stays small.
        Box::pin(self.serve_with_hyper(stream, connection)).await;
    }

    async fn serve_with_hyper<S>(self: &Arc<Self>, stream: S, connection: ServedConnection)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let service = service_fn(move |request| {
            let (application, connection) = (Arc::clone(self), connection.clone());
            async move { Ok::<_, Infallible>(application.handle(request, connection).await) }
        });
        // Without HTTP/2: its idle connections would have no time limit, and no client needs it without TLS.
        let mut server = hyper::server::conn::http1::Builder::new();
        server
            .timer(TokioTimer::new())
            .header_read_timeout(http1::HEAD_TIMEOUT)
            .max_buf_size(MAX_BUFFER_BYTES);
        if let Err(error) = server.serve_connection(TokioIo::new(stream), service).with_upgrades().await {
            tracing::debug!(%error, "A connection broke.");
        }
    }

    async fn handle(&self, mut request: Request<Incoming>, connection: ServedConnection) -> HttpReply {
        if http1::has_other_coding(request.headers()) {
            return http1::ambiguous_framing();
        }
        if request.method() == Method::POST
            && let Some(direct) = &self.direct
            && let Some(endpoint) = direct.find(request.uri(), request.headers(), &connection)
        {
            return endpoint.handle(request).await;
        }
        request.extensions_mut().insert(connection);
        let response = match self.router.clone().oneshot(request.map(Body::new)).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        response.map(ReplyBody::from)
    }
}

/// Serves an application on a listener, with `TCP_NODELAY`, for as long as it is polled.
///
/// Connections are served by tasks of the current runtime; [`ServerThreads::serve`] uses several threads.
pub async fn serve(listener: TcpListener, application: impl Into<HttpApplication>) -> io::Result<()> {
    ServerThreads::new(1).serve(listener, application).await
}

impl ServerThreads {
    /// Serves an application on a listener, as [`serve`] does, on these threads.
    pub async fn serve(
        &self,
        listener: TcpListener,
        application: impl Into<HttpApplication>,
    ) -> io::Result<()> {
        self.accept_connections(listener, Arc::new(application.into())).await
    }

    // Not generic, so that what serves a connection is compiled and optimized in this crate.
    async fn accept_connections(
        &self,
        listener: TcpListener,
        application: Arc<HttpApplication>,
    ) -> io::Result<()> {
        let mut errors = AcceptErrors::default();
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    errors.handle(&error).await;
                    continue;
                }
            };
            // A connection without `TCP_NODELAY` is served all the same.
            let _ = stream.set_nodelay(true);
            let application = Arc::clone(&application);
            // The task ends with the connection, with its thread, or with the process.
            self.spawn(stream, |stream| async move {
                let connection = ServedConnection::new(&stream);
                application.serve_client(stream, connection).await;
            });
        }
    }
}

/// Listens on an address, with room for many clients that connect at once.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    bind(address)?.listen(BACKLOG)
}

/// Binds an address. Clients can connect only once the socket listens.
pub fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Elsewhere the option would let another process take over the port.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;

    use super::super::served_connection::platform::backlog_of;
    use super::*;

    #[tokio::test]
    async fn as_many_clients_wait_to_be_accepted_as_the_system_allows() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let allowed = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let allowed = allowed.trim().parse::<u32>().unwrap();
        assert_eq!(backlog_of(listener.local_addr().unwrap()), Some(allowed.min(BACKLOG)));
    }
}
