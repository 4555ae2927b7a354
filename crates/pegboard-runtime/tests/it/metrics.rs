//! The Prometheus metrics.

use std::sync::Arc;
use std::time::Duration;

use pegboard_core::error::ErrorKind;
use pegboard_core::owner::Owner;
use pegboard_core::provider::{ServerState, ToolKind};
use pegboard_core::store::OutputHandle;
use pegboard_runtime::event::{
    CacheResult, CallEnd, CallInfo, NotificationDropReason, Observer, RuntimeEvent, StoreReason,
};
use pegboard_runtime::metrics::{Metrics, MetricsLimits};

fn call(tool: &str, server: &str, kind: ToolKind) -> Arc<CallInfo> {
    Arc::new(CallInfo {
        session: "s-secret".into(),
        owner: Owner::local(),
        operation: "1-1".parse().unwrap(),
        tool: tool.into(),
        server: server.into(),
        kind,
        n_bytes_in: 20,
    })
}

fn finished(call: &Arc<CallInfo>, millis: u64, error: Option<ErrorKind>) -> RuntimeEvent {
    let end = CallEnd {
        error,
        message: error.map(|_| "the words of a server".to_owned()),
        duration: Duration::from_millis(millis),
        n_bytes_out: 100,
        is_cached: false,
    };
    RuntimeEvent::ToolFinished { call: call.clone(), end }
}

fn server(name: &str, state: ServerState) -> RuntimeEvent {
    RuntimeEvent::Server { toolbox: "dev".to_owned(), server: name.to_owned(), state }
}

fn metrics_of(events: impl IntoIterator<Item = RuntimeEvent>) -> Metrics {
    let metrics = Metrics::new(MetricsLimits::default());
    events.into_iter().for_each(|event| metrics.observe(&event));
    metrics
}

/// Returns the sample lines of a metric.
fn samples(text: &str, metric: &str) -> Vec<String> {
    text.lines().filter(|line| line.starts_with(metric)).map(str::to_owned).collect()
}

fn sample_metrics() -> Metrics {
    let search = call("github__search", "github", ToolKind::Mcp);
    let queue: Arc<str> = "default".into();
    metrics_of([
        RuntimeEvent::Catalogue { n_tools: 12 },
        server("github", ServerState::Ready),
        server("files", ServerState::failed("gone", "start it")),
        RuntimeEvent::QueueDepth { queue: queue.clone(), capacity: Some(4), in_use: 4, waiting: 2 },
        RuntimeEvent::Dequeued { call: search.clone(), queue, waited: Duration::from_millis(7) },
        RuntimeEvent::Cache { call: search.clone(), result: CacheResult::Miss },
        finished(&search, 1, None),
        finished(&search, 2_500, None),
        finished(&search, 400_000, Some(ErrorKind::Timeout)),
        RuntimeEvent::OutputStored {
            call: search,
            handle: Some(OutputHandle("session-1/2".to_owned())),
            reason: StoreReason::SizeCap,
            n_bytes: 9_000,
            n_lines: 100,
            n_tokens: 2_000,
        },
    ])
}

#[test]
fn every_event_is_counted() {
    let text = sample_metrics().render();
    let lines: Vec<_> = text.lines().filter(|line| !line.contains("_bucket{")).collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    # HELP pegboard_tool_invocations_total Finished tool calls by status.
    # TYPE pegboard_tool_invocations_total counter
    pegboard_tool_invocations_total{tool="github__search",server="github",kind="mcp",status="ok"} 2
    pegboard_tool_invocations_total{tool="github__search",server="github",kind="mcp",status="failed"} 1
    # HELP pegboard_tool_latency_seconds Duration of tool calls.
    # TYPE pegboard_tool_latency_seconds histogram
    pegboard_tool_latency_seconds_sum{tool="github__search",server="github",kind="mcp",status="ok"} 2.501
    pegboard_tool_latency_seconds_count{tool="github__search",server="github",kind="mcp",status="ok"} 2
    pegboard_tool_latency_seconds_sum{tool="github__search",server="github",kind="mcp",status="failed"} 400
    pegboard_tool_latency_seconds_count{tool="github__search",server="github",kind="mcp",status="failed"} 1
    # HELP pegboard_tool_bytes_in_total Bytes of arguments.
    # TYPE pegboard_tool_bytes_in_total counter
    pegboard_tool_bytes_in_total{tool="github__search",server="github",kind="mcp"} 60
    # HELP pegboard_tool_bytes_out_total Bytes of answers.
    # TYPE pegboard_tool_bytes_out_total counter
    pegboard_tool_bytes_out_total{tool="github__search",server="github",kind="mcp"} 300
    # HELP pegboard_tool_errors_total Failed tool calls by error type.
    # TYPE pegboard_tool_errors_total counter
    pegboard_tool_errors_total{tool="github__search",server="github",kind="mcp",error_type="timeout"} 1
    # HELP pegboard_cache_total Cache results.
    # TYPE pegboard_cache_total counter
    pegboard_cache_total{tool="github__search",server="github",kind="mcp",result="miss"} 1
    # HELP pegboard_output_stored_total Answers stored or truncated, by reason.
    # TYPE pegboard_output_stored_total counter
    pegboard_output_stored_total{tool="github__search",server="github",kind="mcp",reason="size_cap"} 1
    # HELP pegboard_queue_depth Calls in the queue, running or waiting.
    # TYPE pegboard_queue_depth gauge
    pegboard_queue_depth{queue="default"} 6
    # HELP pegboard_queue_in_use Running calls of the queue.
    # TYPE pegboard_queue_in_use gauge
    pegboard_queue_in_use{queue="default"} 4
    # HELP pegboard_queue_waiting Calls waiting for a slot of the queue.
    # TYPE pegboard_queue_waiting gauge
    pegboard_queue_waiting{queue="default"} 2
    # HELP pegboard_queue_wait_seconds Time calls waited for a slot.
    # TYPE pegboard_queue_wait_seconds histogram
    pegboard_queue_wait_seconds_sum{queue="default"} 0.007
    pegboard_queue_wait_seconds_count{queue="default"} 1
    # HELP pegboard_server_up 1 if a server in use is ready, 0 otherwise.
    # TYPE pegboard_server_up gauge
    pegboard_server_up{toolbox="dev",server="files"} 0
    pegboard_server_up{toolbox="dev",server="github"} 1
    # HELP pegboard_catalogue_tools Tools in the catalogue.
    # TYPE pegboard_catalogue_tools gauge
    pegboard_catalogue_tools 12
    "#);
}

#[test]
fn dropped_notifications_are_counted_by_reason() {
    let dropped = |n_notifications, reason| RuntimeEvent::NotificationsDropped { n_notifications, reason };
    let metrics = metrics_of([
        dropped(2, NotificationDropReason::SlowReader),
        dropped(3, NotificationDropReason::NoReader),
        dropped(5, NotificationDropReason::SlowReader),
    ]);
    let text = metrics.render();
    let samples = text.lines().filter_map(|line| line.strip_prefix("pegboard_notifications_dropped_total"));
    let expected = [r#"{reason="no_reader"} 3"#, r#"{reason="slow_reader"} 7"#];
    assert_eq!(samples.collect::<Vec<_>>(), expected);
}

#[test]
fn a_bucket_counts_durations_up_to_its_bound() {
    let text = sample_metrics().render();
    let buckets = samples(&text, "pegboard_tool_latency_seconds_bucket").join("\n");
    let buckets = buckets.replace(r#"{tool="github__search",server="github",kind="mcp","#, "{…,");
    insta::assert_snapshot!(buckets, @r#"
    pegboard_tool_latency_seconds_bucket{…,status="ok",le="0.001"} 1
    pegboard_tool_latency_seconds_bucket{…,status="ok",le="0.005"} 1
    pegboard_tool_latency_seconds_bucket{…,status="ok",le="0.01"} 1
    pegboard_tool_latency_seconds_bucket{…,status="ok",le="0.02"} 1
    pegboard_tool_latency_seconds_bucket{…,status="ok",le="0.05"} 1
    pegboard_tool_latency_seconds_bucket{…,status="ok",le="0.1"} 1
    pegboard_tool_latency_seconds_bucket{…,status="ok",le="0.2"} 1
    pegboard_tool_latency_seconds_bucket{…,status="ok",le="0.5"} 1
    pegboard_tool_latency_seconds_bucket{…,status="ok",le="1"} 1
    pegboard_tool_latency_seconds_bucket{…,status="ok",le="2"} 1
    pegboard_tool_latency_seconds_bucket{…,status="ok",le="5"} 2
    pegboard_tool_latency_seconds_bucket{…,status="ok",le="10"} 2
    pegboard_tool_latency_seconds_bucket{…,status="ok",le="30"} 2
    pegboard_tool_latency_seconds_bucket{…,status="ok",le="60"} 2
    pegboard_tool_latency_seconds_bucket{…,status="ok",le="120"} 2
    pegboard_tool_latency_seconds_bucket{…,status="ok",le="300"} 2
    pegboard_tool_latency_seconds_bucket{…,status="ok",le="+Inf"} 2
    pegboard_tool_latency_seconds_bucket{…,status="failed",le="0.001"} 0
    pegboard_tool_latency_seconds_bucket{…,status="failed",le="0.005"} 0
    pegboard_tool_latency_seconds_bucket{…,status="failed",le="0.01"} 0
    pegboard_tool_latency_seconds_bucket{…,status="failed",le="0.02"} 0
    pegboard_tool_latency_seconds_bucket{…,status="failed",le="0.05"} 0
    pegboard_tool_latency_seconds_bucket{…,status="failed",le="0.1"} 0
    pegboard_tool_latency_seconds_bucket{…,status="failed",le="0.2"} 0
    pegboard_tool_latency_seconds_bucket{…,status="failed",le="0.5"} 0
    pegboard_tool_latency_seconds_bucket{…,status="failed",le="1"} 0
    pegboard_tool_latency_seconds_bucket{…,status="failed",le="2"} 0
    pegboard_tool_latency_seconds_bucket{…,status="failed",le="5"} 0
    pegboard_tool_latency_seconds_bucket{…,status="failed",le="10"} 0
    pegboard_tool_latency_seconds_bucket{…,status="failed",le="30"} 0
    pegboard_tool_latency_seconds_bucket{…,status="failed",le="60"} 0
    pegboard_tool_latency_seconds_bucket{…,status="failed",le="120"} 0
    pegboard_tool_latency_seconds_bucket{…,status="failed",le="300"} 0
    pegboard_tool_latency_seconds_bucket{…,status="failed",le="+Inf"} 1
    "#);
}

#[test]
fn without_events_there_are_names_and_no_series() {
    let text = Metrics::new(MetricsLimits::default()).render();
    let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(samples, ["pegboard_catalogue_tools 0"]);
}

#[test]
fn tools_beyond_the_limit_share_a_series() {
    let metrics = Metrics::new(MetricsLimits { n_tools: 2, ..MetricsLimits::default() });
    for tool in ["a", "b", "c", "a", "d"] {
        metrics.observe(&finished(&call(tool, "s", ToolKind::Mcp), 1, None));
    }
    metrics.observe(&finished(&call("e", "s", ToolKind::Rest), 1, None));
    insta::assert_snapshot!(samples(&metrics.render(), "pegboard_tool_invocations_total").join("\n"), @r#"
    pegboard_tool_invocations_total{tool="a",server="s",kind="mcp",status="ok"} 2
    pegboard_tool_invocations_total{tool="b",server="s",kind="mcp",status="ok"} 1
    pegboard_tool_invocations_total{tool="other",server="other",kind="mcp",status="ok"} 2
    pegboard_tool_invocations_total{tool="other",server="other",kind="rest",status="ok"} 1
    "#);
}

#[test]
fn the_number_of_series_is_limited() {
    let metrics = Metrics::new(MetricsLimits::default());
    for number in 0..3_000 {
        metrics.observe(&finished(&call(&format!("tool_{number}"), "s", ToolKind::Mcp), 1, None));
        let queue = format!("queue_{number}").into();
        metrics.observe(&RuntimeEvent::QueueDepth { queue, capacity: None, in_use: 1, waiting: 0 });
        metrics.observe(&server(&format!("server_{number}"), ServerState::Ready));
    }
    let text = metrics.render();
    assert_eq!(samples(&text, "pegboard_tool_invocations_total").len(), 1_001);
    assert_eq!(samples(&text, "pegboard_queue_in_use").len(), 1_000);
    assert_eq!(samples(&text, "pegboard_server_up").len(), 1_000);
    assert!(
        text.contains("_total{tool=\"other\",server=\"other\",kind=\"mcp\",status=\"ok\"} 2000\n"),
        "{text}"
    );
}

#[test]
fn an_unknown_tool_name_takes_no_series() {
    for (tool, error) in [
        ("made up", Some(ErrorKind::UnknownTool)),
        ("made up", Some(ErrorKind::UnknownToolbox)),
        ("made up", Some(ErrorKind::UnknownServer)),
        (&*"x".repeat(257), None),
        ("other", None),
    ] {
        let metrics = metrics_of([finished(&call(tool, "other", ToolKind::Mcp), 1, error)]);
        let lines = samples(&metrics.render(), "pegboard_tool_bytes_in_total");
        assert_eq!(lines, [r#"pegboard_tool_bytes_in_total{tool="other",server="other",kind="mcp"} 20"#]);
    }
}

#[test]
fn label_values_are_escaped() {
    let metrics = metrics_of([finished(&call("a\"b\\c\nd é", "s", ToolKind::Agent), 1, None)]);
    let lines = samples(&metrics.render(), "pegboard_tool_bytes_in_total");
    assert_eq!(lines, [r#"pegboard_tool_bytes_in_total{tool="a\"b\\c\nd é",server="s",kind="agent"} 20"#]);
}

#[test]
fn sessions_and_messages_are_not_exported() {
    let search = call("search", "github", ToolKind::Mcp);
    let text = metrics_of([finished(&search, 1, Some(ErrorKind::ExecutionError))]).render();
    assert!(!text.contains("s-secret") && !text.contains("words"), "{text}");
    assert!(text.contains("error_type=\"execution_error\"} 1\n"), "{text}");
}

#[test]
fn a_server_is_exported_while_in_use() {
    let failed = ServerState::failed("", "");
    let login = ServerState::NeedsLogin { fix: String::new() };
    for (state, expected) in [
        (ServerState::Starting, Some("0")),
        (ServerState::Ready, Some("1")),
        (ServerState::Restarting { attempt: 3 }, Some("0")),
        (login, Some("0")),
        (failed, Some("0")),
        (ServerState::Idle, None),
        (ServerState::Stopped, None),
    ] {
        let metrics = metrics_of([server("github", ServerState::Ready), server("github", state.clone())]);
        let lines = samples(&metrics.render(), "pegboard_server_up");
        let value = lines.first().and_then(|line| line.rsplit(' ').next());
        assert_eq!(value, expected, "{state:?}");
    }
}
