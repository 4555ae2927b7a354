//! What the operator may set about logs and traces.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mcp::Secret;

/// What is written to the log, and what is sent to a collector of traces. Variables of the environment that say something
/// about it count before this.
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
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TelemetrySettings {
    /// Whether anything is sent to a collector at all.
    pub enabled: bool,
    /// The address of the collector, which speaks OTLP over HTTP: `http://localhost:4318`. Without it nothing is sent.
    pub otlp_endpoint: Option<Secret>,
    /// What this program is called in traces.
    pub service_name: Option<String>,
    /// What else is said of this program in traces, by name.
    pub labels: IndexMap<String, String>,
    /// Which calls are sent.
    pub traces: TracesSettings,
    /// What is logged.
    pub logging: LoggingSettings,
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

/// Which calls are sent to a collector.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TracesSettings {
    /// Whether any are.
    pub enabled: bool,
    /// How large the share of them is, from 0 to 1. A call that belongs to a trace of its caller is sent if that trace is
    /// recorded.
    #[schemars(range(min = 0, max = 1))]
    pub ratio: f64,
}

impl Default for TracesSettings {
    fn default() -> Self {
        Self { enabled: true, ratio: 1.0 }
    }
}

/// What is logged, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LoggingSettings {
    /// What is logged: `off`, `error`, `warn`, `info`, `debug` or `trace`, or levels by target, such as
    /// `pegboard::tool=debug,warn`. Without it, what suits the command.
    pub level: Option<String>,
    /// How log lines look.
    pub format: LogFormat,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for programs.
    Json,
}
