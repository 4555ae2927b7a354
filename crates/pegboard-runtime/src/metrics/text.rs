//! Metrics as Prometheus reads them.

use std::borrow::Cow;
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::histogram::{BUCKETS, Histogram};
use super::{Counts, QueueSeries, ServerKey, ToolKey, ToolSeries};

/// Names of labels and their values.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// The text so far.
#[derive(Default)]
pub(super) struct Page(String);

impl Page {
    pub(super) fn into_text(self) -> String {
        self.0
    }

    /// Begins a metric; its samples must follow at once.
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

    /// The samples of a histogram, unless nothing was added to it yet.
    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        let counts = histogram.cumulated();
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
        // Writing to a string cannot go wrong.
        let _ = write!(self.0, "{text}");
    }
}

/// A tool and what was counted for it.
type Tool = (ToolKey, Arc<ToolSeries>);

pub(super) fn tools(page: &mut Page, tools: &[Tool]) {
    let name = "pegboard_tool_invocations_total";
    page.metric(name, "counter", "Calls that have ended, by how.");
    for (key, status, histogram) in by_status(tools) {
        let n_calls = histogram.cumulated()[BUCKETS.len()];
        if n_calls > 0 {
            page.sample(name, &labels_and(key, "status", status), n_calls);
        }
    }
    let name = "pegboard_tool_latency_seconds";
    page.metric(name, "histogram", "How long calls took, from start to end.");
    for (key, status, histogram) in by_status(tools) {
        page.histogram(name, &labels_and(key, "status", status), histogram);
    }
    let name = "pegboard_tool_bytes_in_total";
    page.metric(name, "counter", "Bytes of arguments.");
    for (key, series) in tools {
        page.sample(name, &labels(key), count(&series.n_bytes_in));
    }
    let name = "pegboard_tool_bytes_out_total";
    page.metric(name, "counter", "Bytes of answers.");
    for (key, series) in tools {
        page.sample(name, &labels(key), count(&series.n_bytes_out));
    }
    let name = "pegboard_tool_errors_total";
    page.metric(name, "counter", "Calls that went wrong, by why.");
    for (key, series) in tools {
        counts(page, name, (key, "error_type"), &series.errors);
    }
    let name = "pegboard_cache_total";
    page.metric(name, "counter", "What the cache did.");
    for (key, series) in tools {
        counts(page, name, (key, "result"), &series.cache);
    }
    let name = "pegboard_output_stored_total";
    page.metric(name, "counter", "Answers that were not handed over whole, by why.");
    for (key, series) in tools {
        counts(page, name, (key, "reason"), &series.stored);
    }
}

pub(super) fn queues(page: &mut Page, queues: &[(Arc<str>, Arc<QueueSeries>)]) {
    let name = "pegboard_queue_depth";
    page.metric(name, "gauge", "Calls in the queue, running or waiting.");
    for (queue, series) in queues {
        page.sample(name, &[("queue", queue)], count(&series.in_use) + count(&series.waiting));
    }
    let name = "pegboard_queue_in_use";
    page.metric(name, "gauge", "Calls of the queue that run.");
    for (queue, series) in queues {
        page.sample(name, &[("queue", queue)], count(&series.in_use));
    }
    let name = "pegboard_queue_waiting";
    page.metric(name, "gauge", "Calls that wait for a slot of the queue.");
    for (queue, series) in queues {
        page.sample(name, &[("queue", queue)], count(&series.waiting));
    }
    let name = "pegboard_queue_wait_seconds";
    page.metric(name, "histogram", "How long calls waited for a slot.");
    for (queue, series) in queues {
        page.histogram(name, &[("queue", queue)], &series.wait);
    }
}

pub(super) fn servers(page: &mut Page, servers: &[(ServerKey, Arc<AtomicU64>)]) {
    let name = "pegboard_server_up";
    page.metric(name, "gauge", "Whether a server that is in use answers.");
    for (key, is_up) in servers {
        let labels = [("toolbox", key.toolbox.as_str()), ("server", &key.server)];
        page.sample(name, &labels, count(is_up));
    }
}

pub(super) fn catalogue(page: &mut Page, n_tools: &AtomicU64) {
    let name = "pegboard_catalogue_tools";
    page.metric(name, "gauge", "Tools in the catalogue.");
    page.sample(name, &[], count(n_tools));
}

/// The histograms of each tool, by how the calls ended.
fn by_status(tools: &[Tool]) -> impl Iterator<Item = (&ToolKey, &'static str, &Histogram)> {
    tools.iter().flat_map(|(key, series)| [(key, "ok", &series.ok), (key, "failed", &series.failed)])
}

/// A sample for each word that came up.
fn counts(page: &mut Page, name: &str, (key, label): (&ToolKey, &'static str), counts: &Counts) {
    for (word, count) in counts.all() {
        page.sample(name, &labels_and(key, label, word), count);
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

/// A label's value between its quotes.
fn escaped(text: &str) -> Cow<'_, str> {
    if text.contains(['\\', '"', '\n']) {
        text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").into()
    } else {
        text.into()
    }
}
