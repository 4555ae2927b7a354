//! One span per call, following the OpenTelemetry conventions for tool calls.
//!
//! The span is an ordinary `tracing` span, so any subscriber sees calls as well; without one it is nearly
//! free. A [`TracePropagator`] links it to a trace that began elsewhere.

use std::time::Duration;

use pegboard_core::model::ModelName;
use pegboard_core::provider::ToolKind;
use pegboard_core::trace::TraceParent;
use tracing::Span;
use tracing::field::Empty;

use crate::event::{CallEnd, CallInfo, ModelCallEnd};

/// Target of call spans, for filters.
pub const TARGET: &str = "pegboard::call";

/// Links call spans to traces of other processes.
pub trait TracePropagator: Send + Sync + 'static {
    /// Sets `parent` as the parent of a new span that has not been entered yet. Returns the trace parent to
    /// send to the server, if any.
    fn attach(&self, span: &Span, parent: Option<TraceParent>) -> Option<TraceParent>;
}

/// Passes the caller's trace parent through, for when spans are not exported.
///
/// ```
/// use pegboard_runtime::spans::{PassthroughPropagator, TracePropagator};
/// use tracing::Span;
///
/// let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().ok();
/// assert_eq!(PassthroughPropagator.attach(&Span::none(), parent), parent);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct PassthroughPropagator;

impl TracePropagator for PassthroughPropagator {
    fn attach(&self, _: &Span, parent: Option<TraceParent>) -> Option<TraceParent> {
        parent
    }
}

/// Creates the span of a call.
///
/// ```
/// use std::time::Duration;
///
/// use pegboard_core::provider::ToolKind;
/// use pegboard_runtime::event::{CallEnd, CallInfo};
/// use pegboard_runtime::spans::{call_span, end_span};
///
/// let info = CallInfo {
///     session: "s-20260101120000".into(),
///     owner: Default::default(),
///     operation: "1-1".parse().unwrap(),
///     tool: "github__search".into(),
///     server: "github".into(),
///     kind: ToolKind::Mcp,
///     n_bytes_in: 17,
/// };
/// let span = call_span(&info);
/// // … the call …
/// let duration = Duration::from_millis(12);
/// end_span(&span, &CallEnd { error: None, message: None, duration, n_bytes_out: 90, is_cached: false });
/// ```
pub fn call_span(info: &CallInfo) -> Span {
    let CallInfo { session, tool, server, kind, n_bytes_in, operation: _, owner: _ } = info;
    tracing::info_span!(
        target: TARGET,
        "execute_tool",
        otel.name = %format_args!("execute_tool {tool}"),
        otel.kind = span_kind(*kind),
        otel.status_code = Empty,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = &**tool,
        mcp.method.name = "tools/call",
        mcp.session.id = &**session,
        ai.tool.kind = kind.as_str(),
        ai.tool.provider = &**server,
        ai.tool.input_bytes = as_i64(*n_bytes_in),
        ai.tool.output_bytes = Empty,
        ai.tool.latency_ms = Empty,
        error.type = Empty,
    )
}

/// Records the outcome of a call in its span. The message is omitted: text from servers is not an attribute.
pub fn end_span(span: &Span, end: &CallEnd) {
    if span.is_disabled() {
        return;
    }
    span.record("ai.tool.latency_ms", millis(end.duration));
    span.record("ai.tool.output_bytes", as_i64(end.n_bytes_out));
    if let Some(error) = end.error {
        span.record("error.type", error.as_str());
        span.record("otel.status_code", "ERROR");
    }
}

/// Creates the span of a model request.
pub(crate) fn model_span(session: &str, model: &ModelName) -> Span {
    tracing::info_span!(
        target: TARGET,
        "chat",
        otel.name = %format_args!("chat {}", model.model()),
        otel.kind = "client",
        otel.status_code = Empty,
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = model.provider().as_str(),
        gen_ai.request.model = model.model(),
        gen_ai.response.model = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        mcp.session.id = session,
        error.type = Empty,
    )
}

/// Records the outcome of a model request in its span.
pub(crate) fn end_model_span(span: &Span, end: &ModelCallEnd) {
    if span.is_disabled() {
        return;
    }
    if let Some(error) = end.error {
        span.record("error.type", error);
        span.record("otel.status_code", "ERROR");
        return;
    }
    let tokens = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    span.record("gen_ai.response.model", end.model.model());
    span.record("gen_ai.usage.input_tokens", tokens(end.usage.total_input()));
    span.record("gen_ai.usage.output_tokens", tokens(end.usage.output));
}

/// Returns the OpenTelemetry span kind.
fn span_kind(kind: ToolKind) -> &'static str {
    match kind {
        ToolKind::Mcp => "client",
        ToolKind::Rest | ToolKind::Agent => "internal",
    }
}

/// Collectors support signed integers only and treat anything else as text.
fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Returns a duration in fractional milliseconds.
pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
