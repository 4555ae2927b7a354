//! The overhead of the call pipeline, relative to the tool itself.
//!
//! `cargo bench -p pegboard-runtime` prints a table. `cargo bench -p pegboard-runtime -- instructions on
//! 1000` makes that many calls (`on`, `off` or `bare`) and nothing else, so that `valgrind --tool=callgrind`
//! can count instructions: the difference between two runs, divided by the difference of their numbers of
//! calls, is the cost of one call.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark is a program for people")]
#![expect(clippy::cast_precision_loss, reason = "ratios of measured times")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use pegboard_core::call::{Call, Invoker};
use pegboard_core::entry::{ToolAnnotations, ToolEntry};
use pegboard_core::provider::{LocalProvider, ToolKind};
use pegboard_core::settings::{RuntimeSettings, ServerSettings};
use pegboard_json::RawJson;
use pegboard_runtime::{Caller, CallerOptions, Runtime, SessionMode};
use pegboard_stores::limits::CacheLimits;
use pegboard_stores::memory;
use pegboard_stores::sqlite::Database;
use serde_json::{Value, json};

const N_CALLS: usize = 20_000;
const N_ROUNDS: usize = 9;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        match &arguments[..] {
            [instructions, which, n_calls] if instructions == "instructions" => {
                count(which, n_calls.parse().unwrap()).await;
            }
            _ => compare().await,
        }
    });
}

/// A no-op tool with validated arguments.
fn tool(name: &str) -> ToolEntry {
    ToolEntry::from_fn(name.to_owned(), "Does nothing", |_: Value| async { Ok(json!({"ok": true})) })
        .with_input_schema(json!({
            "type": "object",
            "properties": {"path": {"type": "string"}, "n": {"type": "integer"}, "deep": {"type": "boolean"}},
            "required": ["path"],
        }))
        .with_output_schema(json!({"type": "object"}))
        .with_annotations(ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() })
}

/// A runtime with all features enabled, among `n_tools` tools.
async fn everything_on(n_tools: usize) -> Runtime {
    let settings: RuntimeSettings = serde_json::from_value(json!({
        "toolTimeout": "5m", "toolResponseMaxBytes": 12_288, "queues": {"q": {"maxConcurrency": 64}},
    }))
    .unwrap();
    let server: ServerSettings = serde_json::from_value(json!({"queue": "q", "cache": "1h"})).unwrap();
    let others = (1..n_tools).map(|number| tool(&format!("tool_{number}")));
    Runtime::builder()
        .settings(settings)
        .cache(Arc::new(memory::MemoryCache::new(CacheLimits::default())))
        .outputs(Arc::new(Database::in_memory()))
        .provide("s", LocalProvider::new(std::iter::once(tool("noop")).chain(others)).of_kind(ToolKind::Mcp))
        .server_settings(server)
        .start()
        .await
        .unwrap()
}

async fn everything_off() -> Runtime {
    let settings: RuntimeSettings = serde_json::from_value(json!({"toolTimeout": 0})).unwrap();
    let server: ServerSettings = serde_json::from_value(json!({"validateArguments": "server"})).unwrap();
    let bare = ToolEntry::from_fn("noop", "", |_: Value| async { Ok(json!({"ok": true})) });
    Runtime::builder()
        .settings(settings)
        .provide("s", LocalProvider::new([bare]))
        .server_settings(server)
        .start()
        .await
        .unwrap()
}

/// Makes calls, each with new arguments.
async fn call(caller: &Caller, from: usize, n_calls: usize) {
    for number in from..from + n_calls {
        let raw = RawJson::parse(format!(r#"{{"path":"/tmp/a","n":{number},"deep":true}}"#).into()).unwrap();
        let ended = caller.start(Call::new("s__noop", raw)).await;
        assert!(ended.result.is_ok());
    }
}

/// The same tool with nothing around it but a timeout.
async fn bare(n_calls: usize) {
    let registry = pegboard_core::registry::ToolRegistry::new().with([tool("noop")]).unwrap();
    let entry = registry.get("noop").unwrap();
    for number in 0..n_calls {
        let arguments = json!({"path": "/tmp/a", "n": number, "deep": true});
        let call = pegboard_core::call::ValidCall::admit(
            Arc::clone(&entry),
            arguments.into(),
            pegboard_core::call::CallContext::default(),
            pegboard_core::call::SchemaChecks::None,
        )
        .unwrap();
        assert!(tokio::time::timeout(Duration::from_mins(5), call.run()).await.unwrap().is_ok());
    }
}

async fn count(which: &str, n_calls: usize) {
    match which {
        "bare" => bare(n_calls).await,
        "off" => call(&everything_off().await.caller(CallerOptions::default()), 0, n_calls).await,
        "on" => {
            let runtime = everything_on(1).await;
            let mut events = runtime.events().subscribe();
            let caller = runtime.caller(CallerOptions::default());
            call(&caller, 0, n_calls).await;
            while events.try_recv().is_ok() {}
        }
        other => panic!("bare, off or on, not {other}"),
    }
}

async fn compare() {
    let few = everything_on(1).await;
    let many = everything_on(100_000).await;
    let off = everything_off().await;
    let (few_caller, many_caller, off_caller) = (
        few.caller(CallerOptions::default()),
        many.caller(CallerOptions::default()),
        off.caller(CallerOptions::default()),
    );
    let mut times: [Vec<f64>; 4] = Default::default();
    for round in 0..N_ROUNDS {
        // One observer, which reads all events.
        let (mut few_events, mut many_events) = (few.events().subscribe(), many.events().subscribe());
        let from = round * N_CALLS;
        let started = Instant::now();
        bare(N_CALLS).await;
        times[0].push(started.elapsed().as_secs_f64());
        let started = Instant::now();
        call(&off_caller, from, N_CALLS).await;
        times[1].push(started.elapsed().as_secs_f64());
        let started = Instant::now();
        call(&few_caller, from, N_CALLS).await;
        times[2].push(started.elapsed().as_secs_f64());
        let started = Instant::now();
        call(&many_caller, from, N_CALLS).await;
        times[3].push(started.elapsed().as_secs_f64());
        while !matches!(few_events.try_recv(), Err(tokio::sync::broadcast::error::TryRecvError::Empty)) {}
        while !matches!(many_events.try_recv(), Err(tokio::sync::broadcast::error::TryRecvError::Empty)) {}
    }
    let [bare_time, off_time, on_time, many_time] = times.map(median);
    let line = |what: &str, time: f64| {
        println!("{what:<44} {:>8.2} µs   {:>6.2} × bare", time / N_CALLS as f64 * 1e6, time / bare_time);
    };
    line("a bare time-out around the tool", bare_time);
    line("the pipeline, everything off", off_time);
    line("the pipeline, everything on", on_time);
    line("the pipeline, everything on, 100,000 tools", many_time);
    println!("100,000 tools against one: {:.3}", many_time / on_time);
    println!("one idle session: {} bytes", idle_session(&off));
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Returns the resident memory of an idle session.
fn idle_session(runtime: &Runtime) -> usize {
    const N_SESSIONS: usize = 100_000;
    let resident = || -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        pages.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or_default() * 4_096
    };
    let options = || CallerOptions { session_mode: SessionMode::Session, ..CallerOptions::default() };
    let mut callers = Vec::with_capacity(N_SESSIONS);
    callers.push(runtime.caller(options()));
    let before = resident();
    callers.extend((1..N_SESSIONS).map(|_| runtime.caller(options())));
    (resident() - before) / N_SESSIONS
}
