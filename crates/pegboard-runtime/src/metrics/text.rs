//! Encodes metrics in the Prometheus text format.

use std::borrow::Cow;
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::histogram::{BUCKETS, Histogram};
use super::{LabelCounts, QueueSeries, ServerKey, ToolKey, ToolSeries};

/// Label names and values.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// The text encoded so far.
#[derive(Default)]
pub(super) struct TextEncoder(String);

impl TextEncoder {
    pub(super) fn into_text(self) -> String {
        self.0
    }

    /// Starts a metric; its samples must follow immediately.
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.write(name);
        for (place, (label, text)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            self.write(format_args!("{before}{label}=\"{}\"", escaped(text)));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        self.write(format_args!("{after} {value}\n"));
    }

    /// Writes the samples of a histogram, unless it is empty.
    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        let counts = histogram.cumulative();
        let n_all = counts[BUCKETS.len()];
        if n_all == 0 {
            return;
        }
        let bucket = format!("{name}_bucket");
        let ends = BUCKETS.iter().map(|(_, end)| *end).chain(["+Inf"]);
        for (end, count) in ends.zip(counts) {
            self.sample(&bucket, &[labels, &[("le", end)]].concat(), count);
        }
        self.sample(&format!("{name}_sum"), labels, histogram.sum().as_secs_f64());
        self.sample(&format!("{name}_count"), labels, n_all);
    }

    fn write(&mut self, text: impl Display) {
        // Writing to a `String` is infallible.
        let _ = write!(self.0, "{text}");
    }
}

/// A tool's labels and its metrics.
type KeyedToolSeries = (ToolKey, Arc<ToolSeries>);

pub(super) fn tools(encoder: &mut TextEncoder, tools: &[KeyedToolSeries]) {
    let name = "pegboard_tool_invocations_total";
    encoder.metric(name, "counter", "Finished tool calls by status.");
    for (key, status, histogram) in by_status(tools) {
        let n_calls = histogram.cumulative()[BUCKETS.len()];
        if n_calls > 0 {
            encoder.sample(name, &labels_and(key, "status", status), n_calls);
        }
    }
    let name = "pegboard_tool_latency_seconds";
    encoder.metric(name, "histogram", "Duration of tool calls.");
    for (key, status, histogram) in by_status(tools) {
        encoder.histogram(name, &labels_and(key, "status", status), histogram);
    }
    let name = "pegboard_tool_bytes_in_total";
    encoder.metric(name, "counter", "Bytes of arguments.");
    for (key, series) in tools {
        encoder.sample(name, &labels(key), count(&series.n_bytes_in));
    }
    let name = "pegboard_tool_bytes_out_total";
    encoder.metric(name, "counter", "Bytes of answers.");
    for (key, series) in tools {
        encoder.sample(name, &labels(key), count(&series.n_bytes_out));
    }
    let name = "pegboard_tool_errors_total";
    encoder.metric(name, "counter", "Failed tool calls by error type.");
    for (key, series) in tools {
        counts(encoder, name, (key, "error_type"), &series.errors);
    }
    let name = "pegboard_cache_total";
    encoder.metric(name, "counter", "Cache results.");
    for (key, series) in tools {
        counts(encoder, name, (key, "result"), &series.cache);
    }
    let name = "pegboard_output_stored_total";
    encoder.metric(name, "counter", "Answers stored or truncated, by reason.");
    for (key, series) in tools {
        counts(encoder, name, (key, "reason"), &series.stored);
    }
}

pub(super) fn queues(encoder: &mut TextEncoder, queues: &[(Arc<str>, Arc<QueueSeries>)]) {
    let name = "pegboard_queue_depth";
    encoder.metric(name, "gauge", "Calls in the queue, running or waiting.");
    for (queue, series) in queues {
        encoder.sample(name, &[("queue", queue)], count(&series.in_use) + count(&series.waiting));
    }
    let name = "pegboard_queue_in_use";
    encoder.metric(name, "gauge", "Running calls of the queue.");
    for (queue, series) in queues {
        encoder.sample(name, &[("queue", queue)], count(&series.in_use));
    }
    let name = "pegboard_queue_waiting";
    encoder.metric(name, "gauge", "Calls waiting for a slot of the queue.");
    for (queue, series) in queues {
        encoder.sample(name, &[("queue", queue)], count(&series.waiting));
    }
    let name = "pegboard_queue_wait_seconds";
    encoder.metric(name, "histogram", "Time calls waited for a slot.");
    for (queue, series) in queues {
        encoder.histogram(name, &[("queue", queue)], &series.wait);
    }
}

pub(super) fn servers(encoder: &mut TextEncoder, servers: &[(ServerKey, Arc<AtomicU64>)]) {
    let name = "pegboard_server_up";
    encoder.metric(name, "gauge", "1 if a server in use is ready, 0 otherwise.");
    for (key, is_up) in servers {
        let labels = [("toolbox", key.toolbox.as_str()), ("server", &key.server)];
        encoder.sample(name, &labels, count(is_up));
    }
}

pub(super) fn catalogue(encoder: &mut TextEncoder, n_tools: &AtomicU64) {
    let name = "pegboard_catalogue_tools";
    encoder.metric(name, "gauge", "Tools in the catalogue.");
    encoder.sample(name, &[], count(n_tools));
}

/// Writes nothing until an entry is lost.
pub(super) fn lost_log_entries(encoder: &mut TextEncoder, lost: &LabelCounts) {
    let help = "Entries of the call log that were lost, by reason.";
    losses(encoder, ("pegboard_call_log_lost_total", help), lost);
}

pub(super) fn dropped_notifications(encoder: &mut TextEncoder, dropped: &LabelCounts) {
    let help = "Notifications that clients did not read in time, by reason.";
    losses(encoder, ("pegboard_notifications_dropped_total", help), dropped);
}

/// Writes counters that exist only after a loss.
fn losses(encoder: &mut TextEncoder, (name, help): (&str, &str), lost: &LabelCounts) {
    let lost = lost.all();
    if !lost.is_empty() {
        encoder.metric(name, "counter", help);
    }
    for (reason, count) in lost {
        encoder.sample(name, &[("reason", reason)], count);
    }
}

/// Returns the histograms of each tool, by call status.
fn by_status(tools: &[KeyedToolSeries]) -> impl Iterator<Item = (&ToolKey, &'static str, &Histogram)> {
    tools.iter().flat_map(|(key, series)| [(key, "ok", &series.ok), (key, "failed", &series.failed)])
}

/// Writes one sample per label value.
fn counts(
    encoder: &mut TextEncoder,
    name: &str,
    (key, label): (&ToolKey, &'static str),
    counts: &LabelCounts,
) {
    for (word, count) in counts.all() {
        encoder.sample(name, &labels_and(key, label, word), count);
    }
}

fn labels(key: &ToolKey) -> Labels<'_> {
    vec![("tool", &*key.tool), ("server", &key.server), ("kind", key.kind.as_str())]
}

fn labels_and<'a>(key: &'a ToolKey, label: &'static str, value: &'a str) -> Labels<'a> {
    let mut labels = labels(key);
    labels.push((label, value));
    labels
}

fn count(number: &AtomicU64) -> u64 {
    number.load(Ordering::Relaxed)
}

/// Escapes a label value.
fn escaped(text: &str) -> Cow<'_, str> {
    if text.contains(['\\', '"', '\n']) {
        text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").into()
    } else {
        text.into()
    }
}
