//! Logs, metrics and traces.
//!
//! [`Telemetry`] writes log lines and exports the spans of calls; [`EventLogger`] and [`Metrics`] subscribe to the
//! runtime's events and turn them into log lines and metrics.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use pegboard_core::settings::RuntimeSettings;
use pegboard_core::settings::telemetry::TelemetrySettings;
use pegboard_runtime::spans::{PassthroughPropagator, TracePropagator};
use pegboard_wire::transport::TRACE_TARGET;
use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Metadata};
use tracing_subscriber::filter::{FilterExt, Targets, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::{Registry, fmt as log};

pub use pegboard_core::settings::telemetry::LogFormat as Format;
pub use pegboard_runtime::log::EventLogger;
pub use pegboard_runtime::metrics::{self, Metrics};

use export::Exporter;
pub use live_lines::LiveLine;
use sink::LogSink;
pub use stderr::{
    Stderr, leave_live_lines, line_was_typed, set_live_lines, stderr_size, write_above_live_lines,
    write_stderr,
};

#[cfg(feature = "otel")]
mod export;
#[cfg(not(feature = "otel"))]
#[path = "telemetry/export_unavailable.rs"]
mod export;
mod live_lines;
mod sink;
mod stderr;

/// Options of logging and tracing.
pub struct TelemetryOptions {
    /// Log filter: a level such as `warn`, or levels by target such as `pegboard::tool=debug,warn`.
    pub filter: String,
    /// Format of log lines.
    pub format: Format,
    /// Destination of log lines.
    pub sink: Box<dyn Write + Send>,
    /// Full URL that spans are posted to, including the path; `None` disables export.
    pub traces_endpoint: Option<String>,
    /// Service name in traces.
    pub service_name: String,
    /// Additional resource attributes in traces.
    pub labels: Vec<(String, String)>,
    /// Fraction of calls that are exported, from 0 to 1. A call within a trace of its caller follows the
    /// caller's sampling decision.
    pub traces_ratio: f64,
    /// Logs all messages to and from MCP servers.
    pub traces_mcp: bool,
}

/// Resource attributes and sampling ratio.
#[cfg_attr(not(feature = "otel"), expect(dead_code, reason = "only the exporter reads it"))]
struct ResourceInfo {
    service_name: String,
    labels: Vec<(String, String)>,
    ratio: f64,
}

/// Telemetry cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Invalid log filter.
    #[error(
        "PEGBOARD_LOG: invalid filter {text:?} ({reason}); use off, error, warn, info, debug or trace, \
         or levels by target such as pegboard::tool=debug,warn"
    )]
    Filter {
        /// The given value.
        text: String,
        /// Parse error.
        reason: String,
    },
    /// Unknown log format.
    #[error("PEGBOARD_LOG_FORMAT: invalid format {text:?}; use text or json")]
    Format {
        /// The given value.
        text: String,
    },
    /// Invalid collector URL. It is not quoted, since it may contain a password.
    #[error("OTEL_EXPORTER_OTLP_ENDPOINT: {reason}")]
    Endpoint {
        /// Reason.
        reason: String,
    },
    /// A global subscriber is already installed.
    #[error("a global tracing subscriber is already installed; start telemetry once, before any other")]
    AlreadyStarted,
}

impl Default for TelemetryOptions {
    fn default() -> Self {
        Self {
            filter: "warn".to_owned(),
            format: Format::Text,
            sink: Box::new(Stderr::default()),
            traces_endpoint: None,
            service_name: "pegboard".to_owned(),
            labels: Vec::new(),
            traces_ratio: 1.0,
            traces_mcp: false,
        }
    }
}

impl TelemetryOptions {
    /// Reads options from the environment: `PEGBOARD_LOG`, `PEGBOARD_LOG_FORMAT`,
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` and `OTEL_SERVICE_NAME`.
    #[expect(clippy::disallowed_methods, reason = "for programs that do not overwrite their environment")]
    pub fn from_environment() -> Result<Self, Error> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// Reads options from the given variables. An empty variable counts as unset.
    ///
    /// ```
    /// use pegboard::telemetry::TelemetryOptions;
    ///
    /// let options = TelemetryOptions::from_variables(|name| {
    ///     (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| "http://localhost:4318".to_owned())
    /// })?;
    /// assert_eq!(options.traces_endpoint.as_deref(), Some("http://localhost:4318/v1/traces"));
    /// # Ok::<(), pegboard::telemetry::Error>(())
    /// ```
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        Self::default().with_variables(variable)
    }

    /// Returns the options of a configuration, with `default_filter` as the log filter if it sets none. Apply
    /// the environment with [`with_variables`](Self::with_variables).
    ///
    /// ```
    /// use pegboard::settings::RuntimeSettings;
    /// use pegboard::settings::telemetry::TelemetrySettings;
    /// use pegboard::telemetry::TelemetryOptions;
    ///
    /// let telemetry: TelemetrySettings =
    ///     serde_json::from_str(r#"{"otlpEndpoint": "http://localhost:4318", "serviceName": "desk"}"#)?;
    /// let settings = RuntimeSettings { trace_mcp: true, ..RuntimeSettings::default() };
    /// let options = TelemetryOptions::from_settings(&telemetry, &settings, "warn").with_variables(|_| None)?;
    /// assert_eq!(options.traces_endpoint.as_deref(), Some("http://localhost:4318/v1/traces"));
    /// assert_eq!(options.filter, "warn,pegboard::mcp=trace");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_settings(
        telemetry: &TelemetrySettings,
        settings: &RuntimeSettings,
        default_filter: &str,
    ) -> Self {
        let TelemetrySettings { enabled, otlp_endpoint, service_name, labels, traces, logging } = telemetry;
        let defaults = Self::default();
        let endpoint = otlp_endpoint.as_ref().filter(|_| *enabled && traces.enabled);
        let level = logging.level.as_deref().filter(|level| !level.trim().is_empty());
        Self {
            filter: level.unwrap_or(default_filter).to_owned(),
            format: logging.format,
            traces_endpoint: endpoint.map(|endpoint| whole_endpoint(endpoint.reveal())),
            service_name: service_name.clone().unwrap_or(defaults.service_name),
            labels: labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            traces_ratio: traces.ratio,
            traces_mcp: settings.trace_mcp,
            sink: defaults.sink,
        }
    }

    /// Overrides options with variables. An empty variable counts as unset.
    pub fn with_variables(self, variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let format = match variable("PEGBOARD_LOG_FORMAT").as_deref() {
            None => self.format,
            Some("text") => Format::Text,
            Some("json") => Format::Json,
            Some(text) => return Err(Error::Format { text: text.to_owned() }),
        };
        let mut filter = variable("PEGBOARD_LOG").unwrap_or(self.filter);
        if self.traces_mcp && !filter.contains(TRACE_TARGET) {
            filter = format!("{filter},{TRACE_TARGET}=trace");
        }
        let of_all = || variable("OTEL_EXPORTER_OTLP_ENDPOINT").map(|endpoint| whole_endpoint(&endpoint));
        let endpoint = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(of_all);
        Ok(Self {
            filter,
            format,
            traces_endpoint: endpoint.or(self.traces_endpoint),
            service_name: variable("OTEL_SERVICE_NAME").unwrap_or(self.service_name),
            ..self
        })
    }
}

/// Returns the trace URL of a collector.
fn whole_endpoint(endpoint: &str) -> String {
    let endpoint = endpoint.trim_end_matches('/');
    if endpoint.ends_with("/v1/traces") { endpoint.to_owned() } else { format!("{endpoint}/v1/traces") }
}

/// Writes log lines and exports spans until it is dropped; the drop flushes pending spans for up to five
/// seconds.
///
/// ```
/// use pegboard::telemetry::{Telemetry, TelemetryOptions};
///
/// let telemetry = Telemetry::start(TelemetryOptions { filter: "info".to_owned(), ..TelemetryOptions::default() })?;
/// telemetry.redact(["correct-horse-battery"]);
/// tracing::info!("a line without any correct-horse-battery in it");
/// telemetry.shutdown();
/// # Ok::<(), pegboard::telemetry::Error>(())
/// ```
pub struct Telemetry {
    dispatch: Dispatch,
    sink: LogSink,
    exporter: Option<Exporter>,
}

impl Telemetry {
    /// Starts telemetry for the whole process.
    pub fn start(options: TelemetryOptions) -> Result<Self, Error> {
        let telemetry = Self::new(options)?;
        tracing::dispatcher::set_global_default(telemetry.dispatch.clone())
            .map_err(|_| Error::AlreadyStarted)?;
        Ok(telemetry)
    }

    /// Starts telemetry without installing it; use [`dispatch`](Self::dispatch) to install it for a scope.
    pub fn new(options: TelemetryOptions) -> Result<Self, Error> {
        let TelemetryOptions {
            filter,
            format,
            sink,
            traces_endpoint,
            service_name,
            labels,
            traces_ratio,
            traces_mcp: _,
        } = options;
        let targets: Targets = filter.parse().map_err(|error: tracing_subscriber::filter::ParseError| {
            Error::Filter { text: filter.clone(), reason: error.to_string() }
        })?;
        // It logs the codes of logins.
        let targets = targets.with_target("rmcp", LevelFilter::OFF);
        let sink = LogSink::new(sink, format);
        let own = ResourceInfo { service_name, labels, ratio: traces_ratio };
        let exporter = traces_endpoint.map(|endpoint| Exporter::new(&endpoint, own)).transpose()?;
        let mut layers = vec![log_layer(format, targets, sink.clone())];
        layers.extend(exporter.as_ref().map(Exporter::layer));
        let dispatch = Dispatch::new(tracing_subscriber::registry().with(layers));
        Ok(Self { dispatch, sink, exporter })
    }

    /// Subscriber that collects log lines and spans.
    pub fn dispatch(&self) -> &Dispatch {
        &self.dispatch
    }

    /// Returns the hook that links the runtime's spans to traces.
    pub fn spans(&self) -> Arc<dyn TracePropagator> {
        match &self.exporter {
            Some(_) => Arc::new(export::TraceLinker),
            None => Arc::new(PassthroughPropagator),
        }
    }

    /// Sets the secrets to redact from log lines, in place of the previous ones. Values too short to be
    /// recognized are not redacted.
    pub fn redact(&self, secrets: impl IntoIterator<Item = impl AsRef<str>>) {
        self.sink.redact(secrets);
    }

    /// Returns a handle with which secrets can be [redacted](Self::redact) later.
    pub(crate) fn log_redactor(&self) -> LogRedactor {
        LogRedactor(self.sink.clone())
    }

    /// Flushes pending spans for up to five seconds, and stops.
    pub fn shutdown(self) {}
}

/// Handle that sets the secrets to redact from log lines.
pub(crate) struct LogRedactor(LogSink);

impl LogRedactor {
    /// Same as [`Telemetry::redact`].
    pub(crate) fn redact(&self, secrets: impl IntoIterator<Item = impl AsRef<str>>) {
        self.0.redact(secrets);
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("exports", &self.exporter.is_some()).finish_non_exhaustive()
    }
}

/// Creates the layer that writes events. Spans are left out, since the events of a call already hold their
/// data.
fn log_layer(format: Format, targets: Targets, sink: LogSink) -> Box<dyn Layer<Registry> + Send + Sync> {
    let filter = targets.and(filter_fn(is_event).with_max_level_hint(LevelFilter::TRACE));
    let layer = log::layer().with_ansi(false).with_writer(sink);
    match format {
        Format::Text => layer.with_filter(filter).boxed(),
        Format::Json => {
            let layer = layer.json().flatten_event(true).with_current_span(false).with_span_list(false);
            layer.with_filter(filter).boxed()
        }
    }
}

fn is_event(metadata: &Metadata<'_>) -> bool {
    metadata.is_event()
}
