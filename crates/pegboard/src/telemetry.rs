//! Logs, numbers and traces of what happens.
//!
//! [`Telemetry`] writes log lines and exports the spans of calls; [`Log`] and [`Metrics`] observe the runtime's
//! events and turn them into log lines and numbers.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use pegboard_runtime::spans::{PassOn, Spans};
use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Metadata};
use tracing_subscriber::filter::{FilterExt, Targets, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::{Registry, fmt as log};

pub use pegboard_runtime::log::Log;
pub use pegboard_runtime::metrics::{self, Metrics};

use export::Exporter;
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
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for programs.
    Json,
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
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let Self { filter, sink, service_name, .. } = Self::default();
        let format = match variable("PEGBOARD_LOG_FORMAT").as_deref() {
            None | Some("text") => Format::Text,
            Some("json") => Format::Json,
            Some(text) => return Err(Error::Format { text: text.to_owned() }),
        };
        let of_all = || {
            let endpoint = variable("OTEL_EXPORTER_OTLP_ENDPOINT")?;
            Some(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        };
        Ok(Self {
            filter: variable("PEGBOARD_LOG").unwrap_or(filter),
            format,
            sink,
            traces_endpoint: variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(of_all),
            service_name: variable("OTEL_SERVICE_NAME").unwrap_or(service_name),
        })
    }
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
        let Options { filter, format, sink, traces_endpoint, service_name } = options;
        let targets: Targets = filter.parse().map_err(|error: tracing_subscriber::filter::ParseError| {
            Error::Filter { text: filter.clone(), reason: error.to_string() }
        })?;
        let sink = Sink::new(sink);
        let exporter = traces_endpoint.map(|endpoint| Exporter::new(&endpoint, service_name)).transpose()?;
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
