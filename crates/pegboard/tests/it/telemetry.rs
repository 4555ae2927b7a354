//! Log lines and exported spans.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use pegboard::telemetry::{Format, Telemetry, TelemetryOptions};
use pegboard_core::error::ErrorKind;
use pegboard_core::provider::ToolKind;
use pegboard_core::settings::RuntimeSettings;
use pegboard_core::trace::TraceParent;
use pegboard_runtime::event::{CallEnd, CallInfo};
use pegboard_runtime::spans::{call_span, end_span};
use tracing::dispatcher;

/// Shared buffer for log lines.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Removes the timestamp from each line.
fn without_time(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once("\"timestamp\":\"") {
        Some((before, after)) => format!("{before}\"timestamp\":\"…{}", &after[after.find('"').unwrap()..]),
        None => line.split_once(' ').unwrap().1.trim_start().to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn search() -> CallInfo {
    CallInfo {
        session: "s-20260101120000".into(),
        owner: pegboard::owner::Owner::local(),
        operation: "1-2".parse().unwrap(),
        tool: "github__search".into(),
        server: "github".into(),
        kind: ToolKind::Mcp,
        n_bytes_in: 20,
    }
}

fn timed_out() -> CallEnd {
    CallEnd {
        error: Some(ErrorKind::Timeout),
        message: Some("a server's words".to_owned()),
        duration: Duration::from_millis(12),
        n_bytes_out: 0,
        is_cached: false,
    }
}

/// Starts the span of a call and returns the trace parent sent to the server.
fn call(telemetry: &Telemetry, parent: Option<TraceParent>) -> Option<TraceParent> {
    dispatcher::with_default(telemetry.dispatch(), || {
        let span = call_span(&search());
        let told = telemetry.spans().attach(&span, parent);
        span.in_scope(|| tracing::info!("work"));
        end_span(&span, &timed_out());
        told
    })
}

/// A collector that accepts every request.
fn collector() -> (SocketAddr, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            take(stream.unwrap(), &sender);
        }
    });
    (address, receiver)
}

/// Reads one request: its first line and its body.
fn take(stream: TcpStream, sender: &Sender<(String, Vec<u8>)>) {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() == 0 || line == "\r\n" {
            break;
        }
        head.push(line.trim_end().to_ascii_lowercase());
    }
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    // The receiver may be gone.
    let _ = sender.send((head.swap_remove(0), body));
}

fn contains(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[test]
fn the_environment_sets_filter_and_collector() {
    let check = |variables: &[(&str, &str)], expected: [&str; 4]| {
        let find =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let options = TelemetryOptions::from_variables(find).unwrap();
        let format = format!("{:?}", options.format);
        let endpoint = options.traces_endpoint.unwrap_or_default();
        assert_eq!([&*options.filter, &format, &endpoint, &options.service_name], expected, "{variables:?}");
    };
    check(&[], ["warn", "Text", "", "pegboard"]);
    check(&[("PEGBOARD_LOG", ""), ("OTEL_EXPORTER_OTLP_ENDPOINT", " ")], ["warn", "Text", "", "pegboard"]);
    check(&[("PEGBOARD_LOG", "debug"), ("PEGBOARD_LOG_FORMAT", "json")], ["debug", "Json", "", "pegboard"]);
    check(
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318/"), ("OTEL_SERVICE_NAME", "mine")],
        ["warn", "Text", "http://a:4318/v1/traces", "mine"],
    );
    check(
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a"), ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://b/x")],
        ["warn", "Text", "http://b/x", "pegboard"],
    );
}

#[test]
fn the_environment_overrides_telemetry_settings() {
    let endpoint = r#""otlpEndpoint": "http://c:4318""#;
    let env = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://e/");
    for (telemetry, trace_mcp, variable, filter, sent_to) in [
        ("{}".to_owned(), false, ("", ""), "error", None),
        (format!("{{{endpoint}}}"), false, ("", ""), "error", Some("http://c:4318/v1/traces")),
        (format!("{{{endpoint}, \"enabled\": false}}"), false, ("", ""), "error", None),
        (format!("{{{endpoint}, \"traces\": {{\"enabled\": false}}}}"), false, ("", ""), "error", None),
        (format!("{{{endpoint}}}"), false, env, "error", Some("http://e/v1/traces")),
        (r#"{"logging": {"level": "info"}}"#.to_owned(), false, ("", ""), "info", None),
        (r#"{"logging": {"level": "info"}}"#.to_owned(), false, ("PEGBOARD_LOG", "debug"), "debug", None),
        ("{}".to_owned(), true, ("PEGBOARD_LOG", "info"), "info,pegboard::mcp=trace", None),
        ("{}".to_owned(), true, ("PEGBOARD_LOG", "pegboard::mcp=off"), "pegboard::mcp=off", None),
    ] {
        let settings = RuntimeSettings { trace_mcp, ..RuntimeSettings::default() };
        let options =
            TelemetryOptions::from_settings(&serde_json::from_str(&telemetry).unwrap(), &settings, "error")
                .with_variables(|name| (name == variable.0).then(|| variable.1.to_owned()))
                .unwrap();
        assert_eq!(
            (options.filter.as_str(), options.traces_endpoint.as_deref()),
            (filter, sent_to),
            "{telemetry} {variable:?}"
        );
    }
}

#[test]
fn the_sampling_ratio_and_resource_attributes_apply() {
    let (address, received) = collector();
    let options = |traces_ratio| TelemetryOptions {
        traces_endpoint: Some(format!("http://{address}/v1/traces")),
        labels: vec![("team".to_owned(), "search-and-rescue".to_owned())],
        traces_ratio,
        ..TelemetryOptions::default()
    };
    let telemetry = Telemetry::new(options(0.0)).unwrap();
    call(&telemetry, None);
    telemetry.shutdown();
    assert!(received.try_recv().is_err(), "nothing is sent");
    let telemetry = Telemetry::new(options(1.0)).unwrap();
    call(&telemetry, None);
    telemetry.shutdown();
    let (_, body) = received.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(contains(&body, b"search-and-rescue"));
}

#[test]
fn invalid_telemetry_options_are_rejected_with_a_hint() {
    let format =
        TelemetryOptions::from_variables(|name| (name == "PEGBOARD_LOG_FORMAT").then(|| "xml".to_owned()));
    let filter = Telemetry::new(TelemetryOptions {
        filter: "pegboard=loud".to_owned(),
        ..TelemetryOptions::default()
    });
    let endpoint = |address: &str| {
        Telemetry::new(TelemetryOptions {
            traces_endpoint: Some(address.to_owned()),
            ..TelemetryOptions::default()
        })
        .unwrap_err()
    };
    let texts = [
        format.err().unwrap(),
        filter.unwrap_err(),
        endpoint("user:password@collector:4318"),
        endpoint("http://user:password@ not an address"),
    ];
    insta::assert_snapshot!(texts.map(|error| error.to_string()).join("\n"), @r#"
    PEGBOARD_LOG_FORMAT: invalid format "xml"; use text or json
    PEGBOARD_LOG: invalid filter "pegboard=loud" (error parsing level filter: expected one of "off", "error", "warn", "info", "debug", "trace", or a number 0-5); use off, error, warn, info, debug or trace, or levels by target such as pegboard::tool=debug,warn
    OTEL_EXPORTER_OTLP_ENDPOINT: the collector URL must start with http:// or https://
    OTEL_EXPORTER_OTLP_ENDPOINT: invalid collector URL
    "#);
}

#[test]
fn an_invalid_log_filter_is_a_usage_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_pegboard"))
        .arg("demo")
        .env("PEGBOARD_LOG", "pegboard=loud")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("error[usage]: PEGBOARD_LOG: invalid filter \"pegboard=loud\""), "{text}");
}

#[test]
fn lines_are_filtered_by_target_and_level() {
    let page = Page::default();
    let filter = "warn,pegboard::tool=debug".to_owned();
    let telemetry = Telemetry::new(TelemetryOptions {
        filter,
        sink: Box::new(page.clone()),
        ..TelemetryOptions::default()
    })
    .unwrap();
    dispatcher::with_default(telemetry.dispatch(), || {
        let _span = call_span(&search()).entered();
        tracing::debug!(target: "pegboard::tool", "shown");
        tracing::debug!(target: "pegboard::queue", "not shown");
        tracing::warn!(target: "pegboard::queue", place = 2, "shown");
    });
    insta::assert_snapshot!(without_time(&page.text()), @"
    DEBUG pegboard::tool: shown
    WARN pegboard::queue: shown place=2
    ");
}

#[test]
fn secrets_are_redacted_in_every_escaped_form() {
    for format in [Format::Text, Format::Json] {
        let page = Page::default();
        let telemetry = Telemetry::new(TelemetryOptions {
            format,
            sink: Box::new(page.clone()),
            ..TelemetryOptions::default()
        })
        .unwrap();
        let secrets = ["correct-horse", "say \"friend\"", "two\nlines of it"];
        telemetry.redact(secrets);
        dispatcher::with_default(telemetry.dispatch(), || {
            for secret in secrets {
                tracing::warn!(key = secret, "said {secret}, or {secret:?}");
            }
        });
        let text = page.text();
        assert_eq!(text.matches("[redacted]").count(), 9, "{text}");
        for part in ["horse", "friend", "lines"] {
            assert!(!text.contains(part), "{text}");
        }
    }
}

#[test]
fn json_lines_have_their_fields_at_the_top() {
    let page = Page::default();
    let sink = Box::new(page.clone());
    let telemetry =
        Telemetry::new(TelemetryOptions { format: Format::Json, sink, ..TelemetryOptions::default() })
            .unwrap();
    dispatcher::with_default(telemetry.dispatch(), || {
        tracing::warn!(target: "pegboard::queue", place = 2, "shown");
    });
    insta::assert_snapshot!(without_time(&page.text()), @r#"{"timestamp":"…","level":"WARN","message":"shown","place":2,"target":"pegboard::queue"}"#);
}

#[test]
fn without_a_collector_the_trace_parent_is_passed_through() {
    let telemetry = Telemetry::new(TelemetryOptions::default()).unwrap();
    let parent: TraceParent = PARENT.parse().unwrap();
    assert_eq!(call(&telemetry, Some(parent)), Some(parent));
    assert_eq!(call(&telemetry, None), None);
}

#[test]
fn a_call_is_exported_as_a_part_of_its_callers_trace() {
    let (address, received) = collector();
    let options = TelemetryOptions {
        traces_endpoint: Some(format!("http://{address}/v1/traces")),
        ..TelemetryOptions::default()
    };
    let telemetry = Telemetry::new(options).unwrap();
    let parent: TraceParent = PARENT.parse().unwrap();
    let told = call(&telemetry, Some(parent)).unwrap();
    telemetry.shutdown();

    assert_eq!((told.trace_id, told.flags), (parent.trace_id, 1));
    assert_ne!(told.span_id, parent.span_id);
    let (request, body) = received.recv_timeout(Duration::from_secs(30)).unwrap();
    assert_eq!(request, "post /v1/traces http/1.1");
    for (what, id) in [
        ("the trace", &parent.trace_id.to_be_bytes()[..]),
        ("the caller's span", &parent.span_id.to_be_bytes()),
        ("the call's own span", &told.span_id.to_be_bytes()),
    ] {
        assert!(contains(&body, id), "{what}");
    }
    for text in [
        "service.name",
        "execute_tool github__search",
        "gen_ai.operation.name",
        "gen_ai.tool.name",
        "mcp.method.name",
        "mcp.session.id",
        "ai.tool.kind",
        "ai.tool.provider",
        "ai.tool.latency_ms",
        "ai.tool.input_bytes",
        "ai.tool.output_bytes",
        "error.type",
        "timeout",
    ] {
        assert!(contains(&body, text.as_bytes()), "{text}");
    }
    assert!(!contains(&body, b"words") && !contains(&body, b"work"), "messages stay here");
}

#[test]
fn an_unsampled_trace_stays_unsampled() {
    let (address, received) = collector();
    let options = TelemetryOptions {
        traces_endpoint: Some(format!("http://{address}/v1/traces")),
        ..TelemetryOptions::default()
    };
    let telemetry = Telemetry::new(options).unwrap();
    let parent: TraceParent = PARENT.replace("-01", "-00").parse().unwrap();
    let told = call(&telemetry, Some(parent)).unwrap();
    telemetry.shutdown();
    assert_eq!((told.trace_id, told.flags), (parent.trace_id, 0));
    assert!(received.try_recv().is_err(), "nothing is sent");
}

/// The only test with global telemetry, since the exporter logs from its own thread.
#[test]
fn an_unreachable_collector_is_logged_once() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let page = Page::default();
    let options = || TelemetryOptions {
        traces_endpoint: Some(format!("http://{nobody}/v1/traces")),
        sink: Box::new(page.clone()),
        ..TelemetryOptions::default()
    };
    let telemetry = Telemetry::start(options()).unwrap();
    let second = Telemetry::start(options()).unwrap_err().to_string();
    assert!(second.starts_with("a global tracing subscriber is already installed"), "{second}");
    // More spans than fit into one batch.
    for _ in 0..1_500 {
        assert!(call(&telemetry, None).is_some());
    }
    telemetry.shutdown();
    let text = page.text();
    let complaints: Vec<_> = text.lines().filter(|line| line.contains("pegboard::telemetry")).collect();
    assert_eq!(complaints.len(), 1, "{text}");
    assert!(complaints[0].contains("Cannot export spans to the collector"), "{text}");
}

#[test]
fn the_calls_of_the_demo_reach_a_collector_and_its_log() {
    let (address, received) = collector();
    let output = Command::new(env!("CARGO_BIN_EXE_pegboard"))
        .arg("demo")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"))
        .env("PEGBOARD_LOG", "pegboard::tool=debug")
        .output()
        .expect("the binary was just built");
    assert!(output.status.success());
    let (_, body) = received.recv_timeout(Duration::from_secs(30)).expect("spans are sent at the end");
    for part in ["execute_tool shop__price", "gen_ai.tool.name", "execute_tool agent__batch", "error.type"] {
        assert!(contains(&body, part.as_bytes()), "{part}");
    }
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("started direction=\"request\" type=\"tool\""), "{log}");
    assert!(log.contains("error clock__snooze: Tool execution timed out"), "{log}");
}
