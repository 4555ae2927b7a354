//! Threads that serve connections, each with a runtime of its own.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Time that blocking work may take to finish after a thread was stopped.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// Threads that serve connections: the one that accepts them, and others that each run a current-thread runtime.
///
/// A connection stays on its thread, and so do its requests. A thread is started when all others have a connection.
/// Dropping this stops the threads and cancels their tasks.
#[derive(Debug)]
pub struct ServerThreads {
    max_threads: usize,
    /// The accepting thread first.
    started: Mutex<Vec<ServerThread>>,
    /// `true` once a thread could not be started.
    has_failed: AtomicBool,
}

#[derive(Debug)]
struct ServerThread {
    runtime: Handle,
    n_connections: Arc<AtomicUsize>,
    /// `None` for the accepting thread.
    stop: Option<StopHandle>,
}

/// Stops a thread when its sender is dropped.
#[derive(Debug)]
struct StopHandle {
    stop: oneshot::Sender<()>,
    /// Disconnected once the thread has ended.
    ended: mpsc::Receiver<()>,
}

/// Counts a connection of a thread until it is dropped.
struct ConnectionGuard(Arc<AtomicUsize>);

impl ServerThreads {
    /// Creates a set of up to `max_threads` threads, among them the current one. Must be called within a Tokio runtime.
    pub fn new(max_threads: usize) -> Self {
        let accepting =
            ServerThread { runtime: Handle::current(), n_connections: Arc::default(), stop: None };
        Self { max_threads, started: Mutex::new(vec![accepting]), has_failed: AtomicBool::new(false) }
    }

    /// Returns the number of tasks on all threads.
    pub fn n_tasks(&self) -> usize {
        self.started.lock().iter().map(|thread| thread.runtime.metrics().num_alive_tasks()).sum()
    }

    /// Serves a connection on the thread with the fewest.
    pub(super) fn spawn<F>(&self, stream: TcpStream, serve: impl FnOnce(TcpStream) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (other, guard) = self.assign();
        let Some(other) = other else {
            tokio::spawn(async move {
                serve(stream).await;
                drop(guard);
            });
            return;
        };
        // The I/O driver of the other runtime takes over.
        match stream.into_std() {
            Ok(stream) => {
                other.spawn(async move {
                    match TcpStream::from_std(stream) {
                        Ok(stream) => serve(stream).await,
                        Err(error) => tracing::error!(%error, "Cannot serve a connection."),
                    }
                    drop(guard);
                });
            }
            Err(error) => tracing::error!(%error, "Cannot serve a connection."),
        }
    }

    /// Assigns a connection to a thread; `None` is the accepting one. Among those with equally many connections, the
    /// thread that was least busy so far gets it: many clients have one connection for requests and another for events.
    fn assign(&self) -> (Option<Handle>, ConnectionGuard) {
        let mut started = self.started.lock();
        let least = started.iter().min_by_key(|thread| {
            let busy = thread.runtime.metrics().worker_total_busy_duration(0);
            (thread.n_connections.load(Ordering::Relaxed), busy)
        });
        let mut chosen = least.expect("the accepting thread is always there");
        if chosen.n_connections.load(Ordering::Relaxed) > 0 && started.len() < self.max_threads {
            match ServerThread::start(started.len()) {
                Ok(thread) => {
                    started.push(thread);
                    chosen = &started[started.len() - 1];
                }
                // Tried again with the next connection, but reported once.
                Err(error) => {
                    if !self.has_failed.swap(true, Ordering::Relaxed) {
                        tracing::warn!(%error, "Cannot start another thread.");
                    }
                }
            }
        }
        let runtime = chosen.stop.is_some().then(|| chosen.runtime.clone());
        (runtime, ConnectionGuard::new(&chosen.n_connections))
    }
}

impl Drop for ServerThreads {
    fn drop(&mut self) {
        let stopping = self.started.get_mut().drain(..).filter_map(|thread| thread.stop);
        // All are told before the first is awaited.
        let ended: Vec<_> = stopping.map(|StopHandle { stop, ended }| (drop(stop), ended).1).collect();
        let deadline = Instant::now() + 2 * SHUTDOWN_TIMEOUT;
        for ended in ended {
            // A thread that blocks ends with the process.
            let _ = ended.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        }
    }
}

impl ServerThread {
    fn start(number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let (running, ended) = mpsc::channel();
        thread::Builder::new().name(format!("pegboard-http-{number}")).spawn(move || {
            // The sender is dropped without a message.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
            drop::<mpsc::Sender<()>>(running);
        })?;
        Ok(Self { runtime: handle, n_connections: Arc::default(), stop: Some(StopHandle { stop, ended }) })
    }
}

impl ConnectionGuard {
    fn new(n_connections: &Arc<AtomicUsize>) -> Self {
        n_connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(n_connections))
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use futures_util::future::{BoxFuture, FutureExt, pending};
    use pegboard_json::RawJson;
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc::UnboundedSender;

    use super::*;
    use crate::era::Revision;
    use crate::http::server::{HttpApplication, HttpServerOptions, endpoint};
    use crate::message::RpcError;
    use crate::server::{McpService, ServerRequest, ServiceDescription, ServiceReply, ServiceServer};

    /// Reports the thread of each call, and its end, which comes only if it is dropped.
    struct Hanging(UnboundedSender<CallEvent>);

    #[derive(Debug)]
    enum CallEvent {
        Began(thread::ThreadId),
        Dropped,
    }

    struct ReportOnDrop(UnboundedSender<CallEvent>);

    impl Drop for ReportOnDrop {
        fn drop(&mut self) {
            let _ = self.0.send(CallEvent::Dropped);
        }
    }

    impl McpService for Hanging {
        fn describe(&self, _revision: Revision) -> ServiceDescription {
            let info = RawJson::from(json!({"name": "hanging", "version": "1"}));
            ServiceDescription { info, capabilities: RawJson::empty_object(), instructions: None }
        }

        fn call(&self, _request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
            let guard = ReportOnDrop(self.0.clone());
            async move {
                let _ = guard.0.send(CallEvent::Began(thread::current().id()));
                pending().await
            }
            .boxed()
        }
    }

    /// Opens a connection with a stateless call that hangs.
    async fn call(listener: &TcpListener) -> TcpStream {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({"name": "x", "arguments": {}, "_meta": meta});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let head = format!(
            "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: x\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        stream
    }

    /// Serves hanging calls on `max_threads` threads; returns the threads of `n_calls` concurrent ones.
    async fn threads_of_calls(max_threads: usize, n_calls: usize) -> Vec<thread::ThreadId> {
        let (report, mut events) = tokio::sync::mpsc::unbounded_channel();
        let server = ServiceServer::new(Arc::new(Hanging(report)));
        let application = Arc::new(HttpApplication::from(endpoint(server, HttpServerOptions::default())));
        let threads = ServerThreads::new(max_threads);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut used = Vec::new();
        let mut clients = Vec::new();
        for _ in 0..n_calls {
            clients.push(call(&listener).await);
            let (stream, _) = listener.accept().await.unwrap();
            let application = Arc::clone(&application);
            threads.spawn(stream, |stream| async move { application.serve_connection(stream).await });
            let Some(CallEvent::Began(thread)) = events.recv().await else { panic!("no call began") };
            used.push(thread);
        }
        drop(threads);
        let here = thread::current().id();
        for _ in used.iter().filter(|thread| **thread != here) {
            assert!(matches!(events.recv().await, Some(CallEvent::Dropped)));
        }
        used
    }

    #[tokio::test]
    async fn a_single_thread_is_the_accepting_one() {
        let here = thread::current().id();
        assert_eq!(threads_of_calls(1, 3).await, [here; 3]);
    }

    #[tokio::test]
    async fn connections_are_spread_and_calls_end_with_their_threads() {
        let used = threads_of_calls(3, 6).await;
        assert_eq!(used[0], thread::current().id());
        let distinct: HashSet<_> = used.iter().collect();
        assert_eq!(distinct.len(), 3);
        for thread in distinct {
            assert_eq!(used.iter().filter(|used| *used == thread).count(), 2, "{used:?}");
        }
    }

    #[tokio::test]
    async fn no_thread_is_started_while_one_has_no_connection() {
        let threads = ServerThreads::new(2);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for _ in 0..3 {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            threads.spawn(stream, |stream| async move { drop(stream) });
            assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        }
        assert_eq!(threads.started.lock().len(), 1);
    }
}
