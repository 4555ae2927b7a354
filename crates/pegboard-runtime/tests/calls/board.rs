//! Tools and settings that the tests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::{Call, Ended, Invoker};
use pegboard_core::entry::{Annotations, ToolEntry};
use pegboard_core::error::{CallError, ToolError};
use pegboard_core::provider::{Local, Offer, Provider, ServerState, ToolKind};
use pegboard_core::settings::{RuntimeSettings, ServerSettings};
use pegboard_runtime::{Builder, Caller, CallerOptions, Runtime};
use pegboard_stores::limits::{CacheLimits, OutputLimits};
use pegboard_stores::memory;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time;

/// What the tools of a test have done.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Counts>);

#[derive(Default)]
struct Counts {
    n_begun: AtomicUsize,
    n_done: AtomicUsize,
    n_dropped: AtomicUsize,
    open: Notify,
}

impl Log {
    pub(crate) fn n_begun(&self) -> usize {
        self.0.n_begun.load(Ordering::SeqCst)
    }

    pub(crate) fn n_done(&self) -> usize {
        self.0.n_done.load(Ordering::SeqCst)
    }

    pub(crate) fn n_dropped(&self) -> usize {
        self.0.n_dropped.load(Ordering::SeqCst)
    }

    /// Lets one call of `gate` go.
    pub(crate) fn let_one_go(&self) {
        self.0.open.notify_one();
    }

    fn enter(&self) -> Stay {
        self.0.n_begun.fetch_add(1, Ordering::SeqCst);
        Stay { log: self.clone(), is_done: false }
    }
}

/// A tool that runs; it notices when it is dropped before its end.
struct Stay {
    log: Log,
    is_done: bool,
}

impl Stay {
    fn done(mut self) {
        self.is_done = true;
        self.log.0.n_done.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        if !self.is_done {
            self.log.0.n_dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// The tools of a test server: `echo`, `nap {ms}`, `gate`, `fail`, `panic`, `big {bytes}`.
pub(crate) fn tools(log: &Log) -> Vec<ToolEntry> {
    let object = json!({"type": "object"});
    let reads = Annotations { read_only: Some(true), ..Annotations::default() };
    let entry = {
        let log = log.clone();
        move |name: &'static str, work: fn(Value, Log) -> Work| {
            let log = log.clone();
            ToolEntry::from_fn(name, format!("The tool {name}"), move |arguments: Value| {
                let log = log.clone();
                async move {
                    let stay = log.enter();
                    let answer = work(arguments, log.clone()).await;
                    stay.done();
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

/// A server that takes a while to be ready, or never is.
pub(crate) struct Slow {
    takes: Duration,
    fails_with: Option<&'static str>,
    n_opened: Arc<AtomicUsize>,
    names: Vec<&'static str>,
    offer: watch::Sender<Arc<Offer>>,
    state: watch::Sender<ServerState>,
}

impl Slow {
    /// The same, but it takes so long.
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

    /// One that is ready at once when it is opened.
    pub(crate) fn at_once(names: &[&'static str]) -> Self {
        Self { takes: Duration::ZERO, ..Self::new(names, None).0 }
    }

    /// One that is never ready.
    pub(crate) fn stuck() -> Self {
        Self { takes: Duration::MAX, ..Self::new(&[], None).0 }
    }
}

impl Provider for Slow {
    fn kind(&self) -> ToolKind {
        ToolKind::Mcp
    }

    fn offer(&self) -> watch::Receiver<Arc<Offer>> {
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
            let tools = self.names.iter().map(|name| Arc::new(says(name))).collect();
            self.offer.send_replace(Arc::new(Offer { tools, ..Offer::default() }));
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

/// A tool that answers its own name.
pub(crate) fn says(name: &'static str) -> ToolEntry {
    ToolEntry::from_fn(name, "", move |_: Value| async move { Ok(name) })
}

/// A runtime with the server `t` of the tools above, with a cache and stored outputs.
pub(crate) async fn board(log: &Log, settings: Value, server: Value) -> Runtime {
    builder(log, settings, server).start().await.unwrap()
}

pub(crate) fn builder(log: &Log, settings: Value, server: Value) -> Builder {
    let settings: RuntimeSettings = serde_json::from_value(settings).unwrap();
    let server: ServerSettings = serde_json::from_value(server).unwrap();
    Runtime::builder()
        .settings(settings)
        .cache(Arc::new(memory::Cache::new(CacheLimits::default())))
        .outputs(Arc::new(memory::Outputs::new(OutputLimits::default())))
        .provide_with("t", Arc::new(Local::new(tools(log)).of_kind(ToolKind::Mcp)), server)
}

/// A caller for whom everything is open.
pub(crate) fn caller(runtime: &Runtime) -> Caller {
    runtime.caller(CallerOptions::default())
}

/// Calls a tool and waits for the end.
pub(crate) async fn call(caller: &Caller, tool: &str, arguments: Value) -> Ended {
    caller.start(Call::new(tool, arguments)).await
}

/// An end as one line: the answer's text, or the kind of the error and its words.
pub(crate) fn line(ended: &Ended) -> String {
    match &ended.result {
        Ok(output) if output.is_error() => format!("isError: {}", output.text()),
        Ok(output) => output.text().into_owned(),
        Err(error) => format!("{}: {error}", error.kind().as_str()),
    }
}

/// Lets every task run until all of them wait.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
