//! Logs, numbers and traces of what happens.
//!
//! [`Telemetry`] writes log lines and exports the spans of calls; [`Log`] and [`Metrics`] observe the runtime's
//! events and turn them into log lines and numbers.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use pegboard_core::settings::RuntimeSettings;
use pegboard_core::settings::telemetry::TelemetrySettings;
use pegboard_runtime::spans::{PassOn, Spans};
use pegboard_wire::link::TRACE_TARGET;
use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Metadata};
use tracing_subscriber::filter::{FilterExt, Targets, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::{Registry, fmt as log};

pub use pegboard_core::settings::telemetry::LogFormat as Format;
pub use pegboard_runtime::log::Log;
pub use pegboard_runtime::metrics::{self, Metrics};

use export::{Exporter, Own};
use sink::Sink;
pub use stderr::{Stderr, tell};

mod export;
mod sink;
mod stderr;

/// What is written and exported, and where to.
pub struct Options {
    /// What is logged: a level such as `warn`, or levels by target such as `pegboard::tool=debug,warn`.
    pub filter: String,
    /// How log lines look.
    pub format: Format,
    /// Where log lines go.
    pub sink: Box<dyn Write + Send>,
    /// The whole address that spans are posted to, with its path; without it none are exported.
    pub traces_endpoint: Option<String>,
    /// What this program is called in traces.
    pub service_name: String,
    /// What else is said of this program in traces, by name.
    pub labels: Vec<(String, String)>,
    /// How large the share of calls is that are exported, from 0 to 1. A call that belongs to a trace of its caller is
    /// exported if that trace is recorded.
    pub traces_ratio: f64,
    /// Whether everything that goes to MCP servers and comes from them is logged.
    pub traces_mcp: bool,
}

/// Why telemetry did not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The filter cannot be read.
    #[error(
        "PEGBOARD_LOG: {text:?} is no filter ({reason}); write off, error, warn, info, debug or trace, \
         or levels by target such as pegboard::tool=debug,warn"
    )]
    Filter {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no such format.
    #[error("PEGBOARD_LOG_FORMAT: {text:?} is no format; write text or json")]
    Format {
        /// What was given.
        text: String,
    },
    /// Spans cannot be sent there. The address is not quoted: it may hold a password.
    #[error("OTEL_EXPORTER_OTLP_ENDPOINT: {reason}")]
    Endpoint {
        /// What is wrong with it.
        reason: String,
    },
    /// The program has a subscriber already.
    #[error("another subscriber collects what is traced already; start telemetry once, and first")]
    AlreadyStarted,
}

impl Default for Options {
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

impl Options {
    /// What the environment asks for: `PEGBOARD_LOG`, `PEGBOARD_LOG_FORMAT`, `OTEL_EXPORTER_OTLP_ENDPOINT`,
    /// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` and `OTEL_SERVICE_NAME`.
    pub fn from_environment() -> Result<Self, Error> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// The same with variables from elsewhere. One that is empty counts as absent.
    ///
    /// ```
    /// use pegboard::telemetry::Options;
    ///
    /// let options = Options::from_variables(|name| {
    ///     (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| "http://localhost:4318".to_owned())
    /// })?;
    /// assert_eq!(options.traces_endpoint.as_deref(), Some("http://localhost:4318/v1/traces"));
    /// # Ok::<(), pegboard::telemetry::Error>(())
    /// ```
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        Self::default().varied(variable)
    }

    /// What a configuration asks for. What is logged if nobody says otherwise is `usually`; variables may still change
    /// all of it.
    ///
    /// ```
    /// use pegboard::settings::RuntimeSettings;
    /// use pegboard::settings::telemetry::TelemetrySettings;
    /// use pegboard::telemetry::Options;
    ///
    /// let telemetry: TelemetrySettings =
    ///     serde_json::from_str(r#"{"otlpEndpoint": "http://localhost:4318", "serviceName": "desk"}"#)?;
    /// let settings = RuntimeSettings { trace_mcp: true, ..RuntimeSettings::default() };
    /// let options = Options::configured(&telemetry, &settings, "warn").varied(|_| None)?;
    /// assert_eq!(options.traces_endpoint.as_deref(), Some("http://localhost:4318/v1/traces"));
    /// assert_eq!(options.filter, "warn,pegboard::mcp=trace");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn configured(telemetry: &TelemetrySettings, settings: &RuntimeSettings, usually: &str) -> Self {
        let TelemetrySettings { enabled, otlp_endpoint, service_name, labels, traces, logging } = telemetry;
        let usual = Self::default();
        let endpoint = otlp_endpoint.as_ref().filter(|_| *enabled && traces.enabled);
        let level = logging.level.as_deref().filter(|level| !level.trim().is_empty());
        Self {
            filter: level.unwrap_or(usually).to_owned(),
            format: logging.format,
            traces_endpoint: endpoint.map(|endpoint| whole_endpoint(endpoint.reveal())),
            service_name: service_name.clone().unwrap_or(usual.service_name),
            labels: labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            traces_ratio: traces.ratio,
            traces_mcp: settings.trace_mcp,
            sink: usual.sink,
        }
    }

    /// The same, with what variables say instead. One that is empty counts as absent.
    pub fn varied(self, variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
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

/// The address that spans are posted to, for a collector at this one.
fn whole_endpoint(endpoint: &str) -> String {
    let endpoint = endpoint.trim_end_matches('/');
    if endpoint.ends_with("/v1/traces") { endpoint.to_owned() } else { format!("{endpoint}/v1/traces") }
}

/// Writes log lines and exports spans until it is dropped; then what is left is sent, for at most five seconds.
///
/// ```
/// use pegboard::telemetry::{Options, Telemetry};
///
/// let telemetry = Telemetry::start(Options { filter: "info".to_owned(), ..Options::default() })?;
/// telemetry.redact(["correct-horse-battery"]);
/// tracing::info!("a line without any correct-horse-battery in it");
/// telemetry.shutdown();
/// # Ok::<(), pegboard::telemetry::Error>(())
/// ```
pub struct Telemetry {
    dispatch: Dispatch,
    sink: Sink,
    exporter: Option<Exporter>,
}

impl Telemetry {
    /// Begins, for the whole program.
    pub fn start(options: Options) -> Result<Self, Error> {
        let telemetry = Self::new(options)?;
        tracing::dispatcher::set_global_default(telemetry.dispatch.clone())
            .map_err(|_| Error::AlreadyStarted)?;
        Ok(telemetry)
    }

    /// Begins, for those who make [`dispatch`](Self::dispatch) their own.
    pub fn new(options: Options) -> Result<Self, Error> {
        let Options {
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
        let sink = Sink::new(sink);
        let own = Own { service_name, labels, ratio: traces_ratio };
        let exporter = traces_endpoint.map(|endpoint| Exporter::new(&endpoint, own)).transpose()?;
        let mut layers = vec![log_layer(format, targets, sink.clone())];
        layers.extend(exporter.as_ref().map(Exporter::layer));
        let dispatch = Dispatch::new(tracing_subscriber::registry().with(layers));
        Ok(Self { dispatch, sink, exporter })
    }

    /// What collects log lines and spans.
    pub fn dispatch(&self) -> &Dispatch {
        &self.dispatch
    }

    /// What places calls in traces, for the runtime.
    pub fn spans(&self) -> Arc<dyn Spans> {
        match &self.exporter {
            Some(_) => Arc::new(export::Joined),
            None => Arc::new(PassOn),
        }
    }

    /// Blots these secrets out of every line from now on, instead of those before. Values that are too short to
    /// tell from other words stay.
    pub fn redact(&self, secrets: impl IntoIterator<Item = impl AsRef<str>>) {
        self.sink.redact(secrets);
    }

    /// Sends what is left, for at most five seconds, and ends.
    pub fn shutdown(self) {}
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("exports", &self.exporter.is_some()).finish_non_exhaustive()
    }
}

/// Writes events. Spans stay out: what they say is in the events of the call already.
fn log_layer(format: Format, targets: Targets, sink: Sink) -> Box<dyn Layer<Registry> + Send + Sync> {
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
