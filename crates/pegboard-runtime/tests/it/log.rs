//! The event log.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pegboard_core::error::ErrorKind;
use pegboard_core::owner::Owner;
use pegboard_core::provider::{ServerState, ToolKind};
use pegboard_core::store::OutputHandle;
use pegboard_runtime::event::{
    CacheResult, CallEnd, CallInfo, Observer, RuntimeEvent, ServerStart, StoreReason,
};
use pegboard_runtime::log::EventLogger;
use pegboard_runtime::spans::{call_span, end_span};
use tracing::Level;
use tracing_subscriber::fmt::format::FmtSpan;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the text logged at this level and above while `work` runs.
fn logged(level: Level, work: impl FnOnce()) -> String {
    let lines = Lines::default();
    tracing::subscriber::with_default(subscriber(level, &lines), work);
    let bytes = lines.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

/// Returns a subscriber that writes events at this level and above to `lines`.
fn subscriber(level: Level, lines: &Lines) -> impl tracing::Subscriber + Send + Sync + use<> {
    let writer = lines.clone();
    tracing_subscriber::fmt()
        .with_max_level(level)
        .without_time()
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(move || writer.clone())
        .finish()
}

fn search() -> Arc<CallInfo> {
    Arc::new(CallInfo {
        session: "s-20260101120000".into(),
        owner: Owner::local(),
        operation: "1-2".parse().unwrap(),
        tool: "github__search".into(),
        server: "github".into(),
        kind: ToolKind::Mcp,
        n_bytes_in: 20,
    })
}

fn end(error: Option<ErrorKind>, message: Option<&str>) -> CallEnd {
    let message = message.map(str::to_owned);
    CallEnd { error, message, duration: Duration::from_millis(12), n_bytes_out: 100, is_cached: false }
}

fn every_event() -> Vec<RuntimeEvent> {
    let call = search();
    let queue: Arc<str> = "default".into();
    let stored = |handle: Option<&str>| RuntimeEvent::OutputStored {
        call: search(),
        handle: handle.map(|handle| OutputHandle(handle.to_owned())),
        reason: StoreReason::SizeCap,
        n_bytes: 9_000,
        n_lines: 100,
        n_tokens: 2_000,
    };
    let server =
        |state| RuntimeEvent::Server { toolbox: "dev".to_owned(), server: "github".to_owned(), state };
    vec![
        RuntimeEvent::ToolStarted { call: call.clone() },
        RuntimeEvent::Queued { call: call.clone(), queue: queue.clone(), place: 2 },
        RuntimeEvent::QueueDepth { queue: queue.clone(), capacity: Some(4), in_use: 4, waiting: 2 },
        RuntimeEvent::Dequeued { call: call.clone(), queue, waited: Duration::from_millis(7) },
        RuntimeEvent::Cache { call: call.clone(), result: CacheResult::Hit { age: Duration::from_secs(3) } },
        RuntimeEvent::Cache { call: call.clone(), result: CacheResult::Miss },
        RuntimeEvent::Progress {
            call: call.clone(),
            done: 1.0,
            total: Some(2.0),
            message: Some("half".to_owned()),
        },
        RuntimeEvent::ToolFinished { call: call.clone(), end: end(None, None) },
        RuntimeEvent::ToolFinished {
            call: call.clone(),
            end: end(Some(ErrorKind::ExecutionError), Some("boom")),
        },
        RuntimeEvent::ToolFinished { call, end: end(Some(ErrorKind::Timeout), None) },
        stored(Some("session-1/2")),
        stored(None),
        RuntimeEvent::Corrected { asked: "search_code".to_owned(), tool: "github__search".into() },
        server(ServerState::Ready),
        server(ServerState::Restarting { attempt: 2 }),
        server(ServerState::NeedsLogin { fix: "run pegboard login github".to_owned() }),
        server(ServerState::failed("no such program", "install it")),
        RuntimeEvent::Started {
            servers: vec![
                start("github", 1200, Some("no such program")),
                start("files", 80, None),
                start("time", 7, None),
            ],
        },
        RuntimeEvent::Catalogue { n_tools: 12 },
    ]
}

fn start(server: &str, millis: u64, error: Option<&str>) -> ServerStart {
    ServerStart {
        toolbox: "dev".to_owned(),
        server: server.to_owned(),
        took: Duration::from_millis(millis),
        error: error.map(str::to_owned),
    }
}

#[test]
fn every_event_is_one_line() {
    let events = every_event();
    let logger = EventLogger::default();
    let text = logged(Level::TRACE, || events.iter().for_each(|event| logger.observe(event)));
    assert_eq!(text.lines().count(), events.len());
    insta::assert_snapshot!(text, @r#"
    DEBUG pegboard::tool: started direction="request" type="tool" tool_kind="mcp" remote=mcp:github:github__search session=s-20260101120000 operation=1-2 n_bytes=20
    DEBUG pegboard::queue: queued direction="request" type="tool" tool_kind="mcp" remote=mcp:github:github__search session=s-20260101120000 operation=1-2 event="queue_enqueued" queue=default place=2
    TRACE pegboard::queue: queue depth queue=default capacity=4 in_use=4 waiting=2
    DEBUG pegboard::queue: dequeued direction="request" type="tool" tool_kind="mcp" remote=mcp:github:github__search session=s-20260101120000 operation=1-2 event="queue_dequeued" queue=default wait_ms=7.0
    DEBUG pegboard::cache: cache hit: github__search direction="response" type="tool" tool_kind="mcp" remote=mcp:github:github__search session=s-20260101120000 operation=1-2 age_ms=3000.0
    TRACE pegboard::cache: cache miss: github__search direction="request" type="tool" tool_kind="mcp" remote=mcp:github:github__search session=s-20260101120000 operation=1-2
    TRACE pegboard::tool: progress: half direction="response" type="tool" tool_kind="mcp" remote=mcp:github:github__search session=s-20260101120000 operation=1-2 done=1.0 total=2.0
    DEBUG pegboard::tool: ok direction="response" type="tool" tool_kind="mcp" remote=mcp:github:github__search session=s-20260101120000 operation=1-2 latency_ms=12.0 n_bytes=100 is_cached=false
     WARN pegboard::tool: error github__search: boom direction="response" type="tool" tool_kind="mcp" remote=mcp:github:github__search session=s-20260101120000 operation=1-2 latency_ms=12.0 n_bytes=100 error_type="execution_error"
     WARN pegboard::tool: error github__search: timeout direction="response" type="tool" tool_kind="mcp" remote=mcp:github:github__search session=s-20260101120000 operation=1-2 latency_ms=12.0 n_bytes=100 error_type="timeout"
     WARN pegboard::output: output stored: github__search direction="response" type="tool" tool_kind="mcp" remote=mcp:github:github__search session=s-20260101120000 operation=1-2 event="tool_output_stored" handle=session-1/2 reason="size_cap" bytes=9000 lines=100 tokens=2000
     WARN pegboard::output: output truncated: github__search direction="response" type="tool" tool_kind="mcp" remote=mcp:github:github__search session=s-20260101120000 operation=1-2 event="tool_output_truncated" reason="size_cap" bytes=9000 lines=100 tokens=2000
     WARN pegboard::tool: resolved 'search_code' to 'github__search' event="tool_autocorrected"
     INFO pegboard::server: server is ready toolbox=dev server=github
     WARN pegboard::server: server disconnected; reconnecting toolbox=dev server=github attempt=2
     WARN pegboard::server: server requires login: run pegboard login github toolbox=dev server=github
     WARN pegboard::server: server is unavailable: no such program: install it toolbox=dev server=github
     INFO pegboard::server: 2 of 3 servers are ready: github failed after 1200ms (no such program), files 80ms, time 7ms
     INFO pegboard::catalogue: catalogue changed n_tools=12
    "#);
}

#[test]
fn only_warnings_are_logged_by_default() {
    let logger = EventLogger::default();
    let text = logged(Level::WARN, || every_event().iter().for_each(|event| logger.observe(event)));
    assert!(text.lines().all(|line| line.contains("WARN")), "{text}");
    assert_eq!(text.lines().count(), 8);
}

#[test]
fn server_text_cannot_control_the_terminal_or_forge_a_line() {
    let message = "\u{1b}[2Jgone\r\n WARN forged\u{202e}\u{2028}\0 é 漢";
    let finished = RuntimeEvent::ToolFinished {
        call: search(),
        end: end(Some(ErrorKind::ExecutionError), Some(message)),
    };
    let text = logged(Level::WARN, || EventLogger::default().observe(&finished));
    assert_eq!(text.lines().count(), 1);
    insta::assert_snapshot!(text.split(" direction").next().unwrap(), @r#" WARN pegboard::tool: error github__search: \u{1b}[2Jgone\r\n WARN forged\u{202e}\u{2028}\u{0} é 漢"#);
}

#[tokio::test(start_paused = true)]
async fn refusals_are_logged_once_a_second() {
    for kind in [ErrorKind::LimitExceeded, ErrorKind::QueueTimeout] {
        let logger = EventLogger::default();
        let refused = RuntimeEvent::ToolFinished { call: search(), end: end(Some(kind), Some("too many")) };
        let refuse_many = || logged(Level::WARN, || (0..1_000).for_each(|_| logger.observe(&refused)));
        assert_eq!(refuse_many().lines().count(), 1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let text = refuse_many();
        assert_eq!(text.lines().count(), 2, "{text}");
        let expected = " WARN pegboard::tool: more calls were refused and not logged n_suppressed=999";
        assert_eq!(text.lines().last(), Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn suppressed_refusals_are_counted_when_the_burst_ends() {
    let end = end(Some(ErrorKind::LimitExceeded), Some("too many"));
    let refused = RuntimeEvent::ToolFinished { call: search(), end };
    let expected = " WARN pegboard::tool: more calls were refused and not logged n_suppressed=999";
    let lines = Lines::default();
    let _guard = tracing::subscriber::set_default(subscriber(Level::WARN, &lines));
    let logger = EventLogger::default();
    // A burst that ends, then one that the end of the runtime cuts short, which is reported once.
    for wait in [Duration::from_secs(2), Duration::ZERO] {
        (0..1_000).for_each(|_| logger.observe(&refused));
        tokio::time::sleep(wait).await;
        logger.shut_down();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let text = String::from_utf8(std::mem::take(&mut *lines.0.lock().unwrap())).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert_eq!(text.lines().last(), Some(expected));
    }
}

#[test]
fn a_long_text_is_truncated() {
    let finished = RuntimeEvent::ToolFinished {
        call: search(),
        end: end(Some(ErrorKind::ExecutionError), Some(&"é".repeat(100_000))),
    };
    let text = logged(Level::WARN, || EventLogger::default().observe(&finished));
    assert_eq!(text.matches('é').count(), 500);
    assert!(text.contains("é… direction"), "{text}");
}

#[test]
fn a_call_span_records_tool_and_outcome() {
    let text = logged(Level::INFO, || {
        let span = call_span(&search());
        end_span(&span, &end(Some(ErrorKind::Timeout), Some("a server's words")));
    });
    let (fields, _) = text.split_once("}: ").unwrap();
    insta::assert_snapshot!(fields.replace(' ', "\n"), @r#"
    INFO
    execute_tool{otel.name=execute_tool
    github__search
    otel.kind="client"
    gen_ai.operation.name="execute_tool"
    gen_ai.tool.name="github__search"
    mcp.method.name="tools/call"
    mcp.session.id="s-20260101120000"
    ai.tool.kind="mcp"
    ai.tool.provider="github"
    ai.tool.input_bytes=20
    ai.tool.latency_ms=12.0
    ai.tool.output_bytes=100
    error.type="timeout"
    otel.status_code="ERROR"
    "#);
}

#[test]
fn a_span_without_a_subscriber_is_disabled() {
    let text = logged(Level::WARN, || {
        let span = call_span(&search());
        assert!(span.is_disabled());
        end_span(&span, &end(None, None));
    });
    assert_eq!(text, "");
}
