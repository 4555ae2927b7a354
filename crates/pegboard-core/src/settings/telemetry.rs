//! Settings of logging and tracing.

use std::fmt;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// Logging, and export of traces. Environment variables take precedence.
///
/// ```
/// use pegboard_core::settings::telemetry::TelemetrySettings;
///
/// let settings: TelemetrySettings = serde_json::from_str(
///     r#"{"otlpEndpoint": "http://localhost:4318", "labels": {"team": "search"}, "traces": {"ratio": 0.1}}"#,
/// ).unwrap();
/// assert!(settings.enabled);
/// assert_eq!(settings.labels["team"], "search");
/// ```
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TelemetrySettings {
    /// Enables the export of telemetry.
    pub enabled: bool,
    /// OTLP/HTTP endpoint of the collector: `http://localhost:4318`. Nothing is exported without it.
    pub otlp_endpoint: Option<Secret>,
    /// Service name in traces.
    pub service_name: Option<String>,
    /// Additional resource attributes in traces.
    pub labels: IndexMap<String, String>,
    /// Export of traces.
    pub traces: TracesSettings,
    /// Logging.
    pub logging: LoggingSettings,
}

/// Omits secrets.
impl fmt::Debug for TelemetrySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TelemetrySettings").field("enabled", &self.enabled).finish_non_exhaustive()
    }
}

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self {
            enabled: true,
            otlp_endpoint: None,
            service_name: None,
            labels: IndexMap::new(),
            traces: TracesSettings::default(),
            logging: LoggingSettings::default(),
        }
    }
}

/// Export of traces.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TracesSettings {
    /// Enables the export of traces.
    pub enabled: bool,
    /// Sampling ratio, from 0 to 1. A call within a trace of its caller is exported if that trace is sampled.
    #[schemars(range(min = 0, max = 1))]
    pub ratio: f64,
}

impl Default for TracesSettings {
    fn default() -> Self {
        Self { enabled: true, ratio: 1.0 }
    }
}

/// Logging.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LoggingSettings {
    /// Log level: `off`, `error`, `warn`, `info`, `debug` or `trace`, or levels by target, such as
    /// `pegboard::tool=debug,warn`. The default depends on the command.
    pub level: Option<String>,
    /// Format of log lines.
    pub format: LogFormat,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Human-readable text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}
