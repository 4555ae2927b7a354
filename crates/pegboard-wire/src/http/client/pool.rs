//! Pooled HTTP/1.1 connections to one origin. Each is polled by the request that uses it, so that a request
//! needs no task of its own, and only on the runtime that opened it, so that nothing is woken across threads.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use parking_lot::Mutex;
use tokio::runtime::{self, Handle};
use tokio::time::{self, Instant};
use tower_service::Service;

use crate::descriptors;
use crate::http::client::http1::{ExchangeError, Http1Connection, RequestBytes, ResponseHead};
use crate::transport::TransportError;

/// Node and uvicorn close idle connections after 5 s; reusing one while it is being closed loses a request.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Interval of keep-alive probes on open connections.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Description of a server without a connection.
pub(super) const UNREACHABLE: &str = "cannot reach the server";

/// Description of a request without a response.
pub(super) const NO_ANSWER: &str = "the server did not answer";

/// Maximum number of idle connections of one runtime.
const MAX_IDLE: usize = 256;

/// Connections to one origin over plain HTTP/1.1.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    origin: Uri,
    connector: HttpConnector,
    connect_timeout: Duration,
    idle: Mutex<Vec<IdleConnections>>,
    has_reaper: AtomicBool,
}

/// Idle connections of one runtime, the most recently used last.
#[derive(Debug)]
struct IdleConnections {
    runtime: runtime::Id,
    connections: Vec<PooledConnection>,
}

/// A connection between two requests, or in use by one.
#[derive(Debug)]
struct PooledConnection {
    /// The runtime that opened it.
    runtime: runtime::Id,
    http: Http1Connection,
    idle_since: Instant,
}

/// A request without a response.
#[derive(Debug)]
pub(super) struct PoolError {
    pub(super) error: TransportError,
    /// `true` if a reused connection broke: the server may have closed it before the request arrived.
    pub(super) is_stale: bool,
}

impl From<TransportError> for PoolError {
    fn from(error: TransportError) -> Self {
        Self { error, is_stale: false }
    }
}

/// A response that reads its own connection, and returns it to the pool at the end.
#[derive(Debug)]
pub(crate) struct PooledResponse {
    head: ResponseHead,
    /// `None` once the connection was returned or has ended.
    connection: Option<PooledConnection>,
    pool: Arc<ConnectionPool>,
}

impl ConnectionPool {
    /// Creates an empty pool for an origin, such as `http://localhost:8080`.
    pub(crate) fn new(origin: Uri, connect_timeout: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_keepalive(Some(KEEP_ALIVE));
        connector.set_connect_timeout(Some(connect_timeout));
        Self {
            origin,
            connector,
            connect_timeout,
            idle: Mutex::default(),
            has_reaper: AtomicBool::new(false),
        }
    }

    /// Sends a request and waits for the head of its response.
    pub(super) async fn send(self: &Arc<Self>, request: &RequestBytes) -> Result<PooledResponse, PoolError> {
        let idle = poll_fn(|context| Poll::Ready(self.take_idle(context))).await;
        // Boxed, so that the future of a request on an idle connection stays small.
        let Some(mut connection) = idle else {
            return Ok(Box::pin(self.send_on_new_connection(request)).await?);
        };
        match connection.http.exchange(request).await {
            Ok(head) => Ok(self.response(connection, head)),
            // The server closed the connection before anything was written, so nothing is repeated.
            Err(failure) if failure.is_unsent => Ok(Box::pin(self.send_on_new_connection(request)).await?),
            Err(ExchangeError { error, .. }) => {
                let is_stale = error.kind() != io::ErrorKind::InvalidData;
                Err(PoolError { error: network_error(NO_ANSWER, &error), is_stale })
            }
        }
    }

    /// Sends a request on a connection of its own and waits for the head of its response.
    pub(super) async fn send_on_new_connection(
        self: &Arc<Self>,
        request: &RequestBytes,
    ) -> Result<PooledResponse, TransportError> {
        let mut connection = self.connect().await?;
        match connection.http.exchange(request).await {
            Ok(head) => Ok(self.response(connection, head)),
            Err(failure) => Err(network_error(NO_ANSWER, &failure.error)),
        }
    }

    fn response(self: &Arc<Self>, connection: PooledConnection, head: ResponseHead) -> PooledResponse {
        PooledResponse { head, connection: Some(connection), pool: Arc::clone(self) }
    }

    /// Returns an idle connection that is still open. A closed one is noticed without a system call, because
    /// its socket has reported that it is readable.
    fn take_idle(&self, context: &mut Context<'_>) -> Option<PooledConnection> {
        let runtime = Handle::current().id();
        loop {
            let mut connection = {
                let mut idle = self.idle.lock();
                idle.iter_mut().find(|idle| idle.runtime == runtime)?.connections.pop()?
            };
            if connection.idle_since.elapsed() < IDLE_TIMEOUT && connection.http.is_idle(context) {
                return Some(connection);
            }
        }
    }

    async fn connect(&self) -> Result<PooledConnection, TransportError> {
        let unreachable = |error: &(dyn std::error::Error + 'static)| TransportError::Unreachable {
            what: describe(UNREACHABLE, error),
        };
        let connecting = self.connector.clone().call(self.origin.clone());
        let stream = match time::timeout(self.connect_timeout, connecting).await {
            Ok(connected) => connected.map_err(|error| unreachable(&error))?,
            Err(elapsed) => return Err(unreachable(&elapsed)),
        };
        let http = Http1Connection::new(stream.into_inner());
        Ok(PooledConnection { runtime: Handle::current().id(), http, idle_since: Instant::now() })
    }

    /// Closes all idle connections, after a response that belonged to no request: the server and this client
    /// may disagree where the next one begins.
    pub(crate) fn clear(&self) {
        let idle = std::mem::take(&mut *self.idle.lock());
        drop(idle);
    }

    /// Keeps a connection for the next request.
    fn put(self: &Arc<Self>, mut connection: PooledConnection) {
        connection.idle_since = Instant::now();
        {
            let mut idle = self.idle.lock();
            match idle.iter_mut().find(|idle| idle.runtime == connection.runtime) {
                Some(idle) if idle.connections.len() >= MAX_IDLE => return,
                Some(idle) => idle.connections.push(connection),
                None => {
                    idle.push(IdleConnections { runtime: connection.runtime, connections: vec![connection] });
                }
            }
        }
        if !self.has_reaper.load(Ordering::Relaxed) && !self.has_reaper.swap(true, Ordering::Relaxed) {
            let pool = Arc::downgrade(self);
            // The task ends when no connection is idle, or with the pool.
            tokio::spawn(async move {
                loop {
                    time::sleep(IDLE_TIMEOUT).await;
                    let Some(pool) = pool.upgrade() else { return };
                    if pool.drop_expired() {
                        return;
                    }
                }
            });
        }
    }

    /// Closes connections that were idle for too long; returns `true` if none is left.
    fn drop_expired(&self) -> bool {
        let mut idle = self.idle.lock();
        let mut expired = Vec::new();
        idle.retain_mut(|IdleConnections { connections, .. }| {
            let is_expired = |connection: &&PooledConnection| connection.idle_since.elapsed() >= IDLE_TIMEOUT;
            let n_expired = connections.iter().take_while(is_expired).count();
            expired.extend(connections.drain(..n_expired));
            !connections.is_empty()
        });
        let is_empty = idle.is_empty();
        if is_empty {
            self.has_reaper.store(false, Ordering::Relaxed);
        }
        drop(idle);
        drop(expired);
        is_empty
    }
}

impl PooledResponse {
    pub(super) fn head(&self) -> &ResponseHead {
        &self.head
    }

    /// Returns the length of the body that is left, if it is known.
    pub(crate) fn content_length(&self) -> Option<u64> {
        self.head.body.length()
    }

    /// Reads the next chunk; `None` at the end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, TransportError> {
        poll_fn(|context| self.poll_chunk(context)).await
    }

    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, TransportError>> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(Ok(None)) };
        let chunk = ready!(connection.http.poll_body(&mut self.head.body, context));
        if chunk.is_err() || self.head.body.is_finished() {
            self.release();
        }
        Poll::Ready(chunk.map_err(|error| network_error("the response was cut off", &error)))
    }

    /// Returns the connection to the pool after the body, unless it closes.
    fn release(&mut self) {
        if let Some(mut connection) = self.connection.take()
            && self.head.body.is_finished()
            && !self.head.is_last
            && connection.http.is_reusable()
        {
            self.pool.put(connection);
        }
    }
}

/// Creates an error on one line.
pub(super) fn network_error(what: &str, error: &(dyn std::error::Error + 'static)) -> TransportError {
    TransportError::failed(describe(what, error))
}

/// Describes a network error on one line: its innermost cause says most.
pub(super) fn describe(what: &str, error: &(dyn std::error::Error + 'static)) -> String {
    if descriptors::is_caused_by_exhaustion(error) {
        return descriptors::TOO_MANY_FILES.to_owned();
    }
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    format!("{what}: {cause}")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use http::{HeaderMap, Method};

    use super::*;
    use crate::http::client::request_headers::RequestHeaders;

    /// Starts a server that answers every read with an empty response; returns its origin and its number of
    /// connections.
    fn start_server() -> (Uri, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let n_connections = Arc::<AtomicUsize>::default();
        let n_accepted = Arc::clone(&n_connections);
        thread::spawn(move || {
            for stream in listener.incoming() {
                n_accepted.fetch_add(1, Ordering::Relaxed);
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    while stream.read(&mut [0; 1024]).is_ok_and(|n_bytes| n_bytes > 0) {
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                    }
                });
            }
        });
        (origin.parse().unwrap(), n_connections)
    }

    #[test]
    fn a_connection_is_reused_only_on_the_runtime_that_opened_it() {
        let (origin, n_connections) = start_server();
        let pool = Arc::new(ConnectionPool::new(origin, Duration::from_secs(10)));
        let runtime = || runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (one, other) = (runtime(), runtime());
        let mut n_opened = Vec::new();
        for runtime in [&one, &one, &other, &other, &one] {
            runtime.block_on(async {
                let headers = RequestHeaders::from(HeaderMap::new());
                let request = RequestBytes::new(&Method::GET, "/", &headers, Bytes::new());
                let mut response = pool.send(&request).await.unwrap();
                assert_eq!(response.chunk().await.unwrap(), None);
            });
            n_opened.push(n_connections.load(Ordering::Relaxed));
        }
        assert_eq!(n_opened, [1, 1, 2, 2, 2]);
    }
}
