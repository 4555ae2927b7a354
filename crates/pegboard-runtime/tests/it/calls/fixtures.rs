//! Tools and settings shared by the tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::{Call, CallResult, Invoker};
use pegboard_core::entry::{ToolAnnotations, ToolEntry};
use pegboard_core::error::{CallError, ToolError};
use pegboard_core::provider::{LocalProvider, Provider, ServerOffering, ServerState, ToolKind};
use pegboard_core::settings::{RuntimeSettings, ServerSettings};
use pegboard_runtime::{Caller, CallerOptions, Runtime, RuntimeBuilder};
use pegboard_stores::limits::CacheLimits;
use pegboard_stores::memory;
use pegboard_stores::sqlite::Database;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time;

/// Counts the executions of a test's tools.
#[derive(Clone, Default)]
pub(crate) struct ExecutionLog(Arc<ExecutionCounts>);

#[derive(Default)]
struct ExecutionCounts {
    n_begun: AtomicUsize,
    n_done: AtomicUsize,
    n_dropped: AtomicUsize,
    open: Notify,
}

impl ExecutionLog {
    pub(crate) fn n_begun(&self) -> usize {
        self.0.n_begun.load(Ordering::SeqCst)
    }

    pub(crate) fn n_done(&self) -> usize {
        self.0.n_done.load(Ordering::SeqCst)
    }

    pub(crate) fn n_dropped(&self) -> usize {
        self.0.n_dropped.load(Ordering::SeqCst)
    }

    /// Releases one call of `gate`.
    pub(crate) fn release_one(&self) {
        self.0.open.notify_one();
    }

    fn enter(&self) -> Execution {
        self.0.n_begun.fetch_add(1, Ordering::SeqCst);
        Execution { log: self.clone(), is_done: false }
    }
}

/// An execution of a tool; counts as dropped unless it is done.
struct Execution {
    log: ExecutionLog,
    is_done: bool,
}

impl Execution {
    fn done(mut self) {
        self.is_done = true;
        self.log.0.n_done.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        if !self.is_done {
            self.log.0.n_dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// The tools of a test server: `echo`, `nap {ms}`, `gate`, `fail`, `panic`, `big {bytes}`.
pub(crate) fn tools(log: &ExecutionLog) -> Vec<ToolEntry> {
    let object = json!({"type": "object"});
    let reads = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
    let entry = {
        let log = log.clone();
        move |name: &'static str, work: fn(Value, ExecutionLog) -> Work| {
            let log = log.clone();
            ToolEntry::from_fn(name, format!("The tool {name}"), move |arguments: Value| {
                let log = log.clone();
                async move {
                    let execution = log.enter();
                    let answer = work(arguments, log.clone()).await;
                    execution.done();
                    answer
                }
            })
        }
    };
    vec![
        entry("echo", |arguments, _| Box::pin(async move { Ok(arguments) }))
            .with_input_schema(object.clone())
            .with_annotations(reads),
        entry("nap", |arguments, _| {
            Box::pin(async move {
                time::sleep(Duration::from_millis(arguments["ms"].as_u64().unwrap_or(0))).await;
                Ok(json!("rested"))
            })
        })
        .with_input_schema(json!({
            "type": "object", "properties": {"ms": {"type": "integer"}}, "required": ["ms"]
        })),
        entry("gate", |_, log| {
            Box::pin(async move {
                log.0.open.notified().await;
                Ok(json!("through"))
            })
        })
        .with_input_schema(object.clone()),
        entry("fail", |_, _| Box::pin(async { Err(ToolError::new("boom")) }))
            .with_input_schema(object.clone()),
        entry("panic", |_, _| Box::pin(async { panic!("ouch") })).with_input_schema(object.clone()),
        entry("big", |arguments, _| {
            Box::pin(async move {
                let n_bytes = usize::try_from(arguments["bytes"].as_u64().unwrap_or(0)).unwrap();
                let line = "a line of a large text\n";
                Ok(Value::String(line.repeat(n_bytes / line.len() + 1)[..n_bytes].to_owned()))
            })
        })
        .with_input_schema(object),
    ]
}

type Work = std::pin::Pin<Box<dyn Future<Output = Result<Value, ToolError>> + Send>>;

/// A server that opens slowly, or never.
pub(crate) struct SlowServer {
    takes: Duration,
    fails_with: Option<&'static str>,
    n_opened: Arc<AtomicUsize>,
    names: Vec<&'static str>,
    offer: watch::Sender<Arc<ServerOffering>>,
    state: watch::Sender<ServerState>,
}

impl SlowServer {
    /// Sets the time taken to open.
    pub(crate) fn taking(mut self, takes: Duration) -> Self {
        self.takes = takes;
        self
    }

    pub(crate) fn new(names: &[&'static str], fails_with: Option<&'static str>) -> (Self, Arc<AtomicUsize>) {
        let n_opened = Arc::new(AtomicUsize::new(0));
        let slow = Self {
            takes: Duration::from_secs(1),
            fails_with,
            n_opened: Arc::clone(&n_opened),
            names: names.to_vec(),
            offer: watch::Sender::default(),
            state: watch::Sender::default(),
        };
        (slow, n_opened)
    }

    /// A server that opens immediately.
    pub(crate) fn at_once(names: &[&'static str]) -> Self {
        Self { takes: Duration::ZERO, ..Self::new(names, None).0 }
    }

    /// A server that never opens.
    pub(crate) fn stuck() -> Self {
        Self { takes: Duration::MAX, ..Self::new(&[], None).0 }
    }
}

impl Provider for SlowServer {
    fn kind(&self) -> ToolKind {
        ToolKind::Mcp
    }

    fn offering(&self) -> watch::Receiver<Arc<ServerOffering>> {
        self.offer.subscribe()
    }

    fn state(&self) -> watch::Receiver<ServerState> {
        self.state.subscribe()
    }

    fn open(&self) -> BoxFuture<'_, Result<(), CallError>> {
        async move {
            self.n_opened.fetch_add(1, Ordering::SeqCst);
            self.state.send_replace(ServerState::Starting);
            time::sleep(self.takes).await;
            if let Some(why) = self.fails_with {
                self.state.send_replace(ServerState::Idle);
                return Err(CallError::ServerUnavailable { reason: why.to_owned() });
            }
            let tools = self.names.iter().map(|name| Arc::new(name_tool(name))).collect();
            self.offer.send_replace(Arc::new(ServerOffering { tools, ..ServerOffering::default() }));
            self.state.send_replace(ServerState::Ready);
            Ok(())
        }
        .boxed()
    }

    fn shut_down(&self) -> BoxFuture<'_, ()> {
        self.state.send_replace(ServerState::Stopped);
        std::future::ready(()).boxed()
    }
}

/// A tool that returns its own name.
pub(crate) fn name_tool(name: &'static str) -> ToolEntry {
    ToolEntry::from_fn(name, "", move |_: Value| async move { Ok(name) })
}

/// A runtime with the server `t` of the tools above, with a cache and an output store.
pub(crate) async fn test_runtime(log: &ExecutionLog, settings: Value, server: Value) -> Runtime {
    builder(log, settings, server).start().await.unwrap()
}

pub(crate) fn builder(log: &ExecutionLog, settings: Value, server: Value) -> RuntimeBuilder {
    let settings: RuntimeSettings = serde_json::from_value(settings).unwrap();
    let server: ServerSettings = serde_json::from_value(server).unwrap();
    Runtime::builder()
        .settings(settings)
        .cache(Arc::new(memory::MemoryCache::new(CacheLimits::default())))
        .outputs(Arc::new(Database::in_memory()))
        .provide("t", LocalProvider::new(tools(log)).of_kind(ToolKind::Mcp))
        .server_settings(server)
}

/// A caller with all toolboxes open.
pub(crate) fn caller(runtime: &Runtime) -> Caller {
    runtime.caller(CallerOptions::default())
}

/// Calls a tool and waits for the result.
pub(crate) async fn call(caller: &Caller, tool: &str, arguments: Value) -> CallResult {
    caller.start(Call::new(tool, arguments)).await
}

/// Formats a result as one line: the text of the answer, or the kind and the message of the error.
pub(crate) fn line(ended: &CallResult) -> String {
    match &ended.result {
        Ok(output) if output.is_error() => format!("isError: {}", output.text()),
        Ok(output) => output.text().into_owned(),
        Err(error) => format!("{}: {error}", error.kind().as_str()),
    }
}

/// Runs all tasks until they are idle.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
