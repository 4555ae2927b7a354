//! The throughput of a gateway with one and with two threads, with clients and tools in memory.
//!
//! `cargo bench -p pegboard --bench cores` prints a table; `-- '2 threads'` measures one row, for a profiler. Each thread runs its own runtime, as the threads of
//! `pegboard serve` do, and drives its own clients over in-memory pipes, so that no socket, client process or server
//! competes for the cores. The runs are interleaved and the best of each counts, because machines are noisy; the CPU time
//! per call says the most on a machine that does other things at the same time.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark is a program for people")]
#![expect(clippy::cast_precision_loss, reason = "ratios of measured numbers")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pegboard::config::Configuration;
use pegboard::gateway::serve;
use pegboard::prelude::*;
use pegboard::telemetry::{Telemetry, TelemetryOptions};
use pegboard::wire::http::server::{HttpApplication, HttpServerOptions};
use pegboard::wiring::{self, AppOptions, EmbeddedToolbox};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::{Builder, Runtime};

const N_ROUNDS: usize = 7;
const N_CLIENTS_PER_THREAD: usize = 16;
const ROUND: Duration = Duration::from_millis(500);

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
const CALL: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"s__echo","arguments":{"text":"hello"}}}"#;

/// Ways to use cores.
#[derive(Clone, Copy)]
enum Threading {
    /// This many threads, each with a runtime of its own.
    Separate(usize),
    /// One runtime with this many threads, which take tasks from each other.
    WorkStealing(usize),
    /// This many threads, each with a runtime and a gateway of its own: what the machine allows.
    NothingShared(usize),
}

/// Result of all runs of a way to use cores.
#[derive(Clone, Copy, Default)]
struct Measurement {
    best_calls_per_second: f64,
    n_calls: usize,
    cpu: Duration,
}

impl Measurement {
    fn cpu_per_call(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.n_calls as f64
    }
}

fn main() {
    let gateway = Runtime::new().unwrap();
    let applications: Vec<_> = (0..2).map(|_| gateway.block_on(application())).collect();
    let threadings = [
        ("1 thread", Threading::Separate(1)),
        ("2 threads", Threading::Separate(2)),
        ("2 threads of one runtime", Threading::WorkStealing(2)),
        ("2 threads, nothing shared", Threading::NothingShared(2)),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    let threadings: Vec<_> = threadings.into_iter().filter(|(name, _)| is_wanted(name)).collect();
    let mut measured = vec![Measurement::default(); threadings.len()];
    for _ in 0..N_ROUNDS {
        for (measured, (_, threading)) in measured.iter_mut().zip(&threadings) {
            measure(&applications, *threading, measured);
        }
    }
    let first = measured[0];
    for (measured, (name, _)) in measured.iter().zip(&threadings) {
        println!(
            "{name:26} {:8.0} calls/s {:6.2} x {:7.2} us of CPU per call {:6.2} x",
            measured.best_calls_per_second,
            measured.best_calls_per_second / first.best_calls_per_second,
            measured.cpu_per_call(),
            measured.cpu_per_call() / first.cpu_per_call(),
        );
    }
}

/// A gateway with everything that `pegboard serve` has, and one tool.
async fn application() -> Arc<HttpApplication> {
    let echo =
        ToolEntry::from_fn("echo", "Returns its arguments", |arguments: Value| async move { Ok(arguments) });
    let fallback = EmbeddedToolbox {
        toolbox: "bench".to_owned(),
        description: "Tools in memory".to_owned(),
        server: "s".to_owned(),
        tools: vec![echo],
    };
    let options = AppOptions { fallback: Some(fallback), ..AppOptions::default() };
    let telemetry = Telemetry::new(TelemetryOptions::default()).unwrap();
    let app = wiring::start(Configuration::default(), options, &telemetry).await.unwrap();
    let application = serve::application(&app.gateway, Some("flat"), &HttpServerOptions::default()).unwrap();
    // They run until the process ends.
    std::mem::forget((app, telemetry));
    Arc::new(application)
}

fn measure(applications: &[Arc<HttpApplication>], threading: Threading, measured: &mut Measurement) {
    let is_over = Arc::new(AtomicBool::new(false));
    let (start, cpu) = (Instant::now(), cpu_time());
    let n_calls = match threading {
        Threading::Separate(n_threads) => {
            run_threads(&vec![Arc::clone(&applications[0]); n_threads], &is_over)
        }
        Threading::NothingShared(n_threads) => run_threads(&applications[..n_threads], &is_over),
        Threading::WorkStealing(n_threads) => {
            let runtime = Builder::new_multi_thread().worker_threads(n_threads).enable_all().build().unwrap();
            let (application, over) = (Arc::clone(&applications[0]), Arc::clone(&is_over));
            let n_clients = n_threads * N_CLIENTS_PER_THREAD;
            let clients = runtime.spawn(async move { run_clients(&application, n_clients, &over).await });
            thread::sleep(ROUND);
            is_over.store(true, Ordering::Relaxed);
            runtime.block_on(clients).unwrap()
        }
    };
    let calls_per_second = n_calls as f64 / start.elapsed().as_secs_f64();
    measured.best_calls_per_second = measured.best_calls_per_second.max(calls_per_second);
    measured.n_calls += n_calls;
    measured.cpu += cpu_time().saturating_sub(cpu);
}

/// Runs one thread for each application; returns the number of calls.
fn run_threads(applications: &[Arc<HttpApplication>], is_over: &Arc<AtomicBool>) -> usize {
    let run = |application: &Arc<HttpApplication>| {
        let (application, is_over) = (Arc::clone(application), Arc::clone(is_over));
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(run_clients(&application, N_CLIENTS_PER_THREAD, &is_over))
        })
    };
    let threads: Vec<_> = applications.iter().map(run).collect();
    thread::sleep(ROUND);
    is_over.store(true, Ordering::Relaxed);
    threads.into_iter().map(|thread| thread.join().unwrap()).sum()
}

/// CPU time of this process; zero where the system does not tell.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
    let n_ticks = fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap_or_default()).sum::<u64>();
    Duration::from_millis(n_ticks * 10)
}

/// Lets clients call the tool until it is over; returns the number of calls.
async fn run_clients(
    application: &Arc<HttpApplication>,
    n_clients: usize,
    is_over: &Arc<AtomicBool>,
) -> usize {
    let clients: Vec<_> = (0..n_clients)
        .map(|_| tokio::spawn(run_client(Arc::clone(application), Arc::clone(is_over))))
        .collect();
    let mut n_calls = 0;
    for client in clients {
        n_calls += client.await.unwrap();
    }
    n_calls
}

async fn run_client(application: Arc<HttpApplication>, is_over: Arc<AtomicBool>) -> usize {
    let (mut client, server) = tokio::io::duplex(64 << 10);
    tokio::spawn(async move { application.serve_connection(server).await });
    let mut buffer = Vec::with_capacity(64 << 10);
    exchange(&mut client, &request("", INITIALIZE), &mut buffer).await;
    let session = header(&buffer, "mcp-session-id").to_owned();
    let call = request(&format!("mcp-session-id: {session}\r\n"), CALL);
    let mut n_calls = 0;
    while !is_over.load(Ordering::Relaxed) {
        exchange(&mut client, &call, &mut buffer).await;
        n_calls += 1;
    }
    assert!(buffer.ends_with(b"}"), "{}", String::from_utf8_lossy(&buffer));
    n_calls
}

fn request(headers: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Sends a request and reads its response.
async fn exchange(client: &mut DuplexStream, request: &[u8], buffer: &mut Vec<u8>) {
    client.write_all(request).await.unwrap();
    buffer.clear();
    loop {
        assert_ne!(client.read_buf(buffer).await.unwrap(), 0, "the connection is closed");
        if let Some(head) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let length: usize = header(buffer, "content-length").parse().unwrap();
            if buffer.len() >= head + 4 + length {
                return;
            }
        }
    }
}

/// Returns the value of a header in a response.
fn header<'r>(response: &'r [u8], name: &str) -> &'r str {
    let end = response.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = std::str::from_utf8(&response[..end]).unwrap();
    let line = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("no {name} in {head}"))
}
