//! One span per call, in the words that OpenTelemetry gives tool calls.
//!
//! The span is an ordinary `tracing` span, so that whoever collects those sees calls too. While nobody does, making
//! one costs next to nothing. What joins it to a trace that began elsewhere is a [`Spans`].

use std::time::Duration;

use pegboard_core::model::ModelName;
use pegboard_core::provider::ToolKind;
use pegboard_core::trace::TraceParent;
use tracing::Span;
use tracing::field::Empty;

use crate::event::{End, ModelEnd, Subject};

/// The target of the spans of calls, for filters.
pub const TARGET: &str = "pegboard::call";

/// Places calls in traces that began elsewhere and go on elsewhere.
pub trait Spans: Send + Sync + 'static {
    /// Takes a call's new span, which nobody has entered yet, and makes `parent` its parent. Gives what the server
    /// that is called is told as its own parent, if there is anything to tell.
    fn begin(&self, span: &Span, parent: Option<TraceParent>) -> Option<TraceParent>;
}

/// Hands the caller's place on as it came, for when spans are not exported.
///
/// ```
/// use pegboard_runtime::spans::{PassOn, Spans};
/// use tracing::Span;
///
/// let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().ok();
/// assert_eq!(PassOn.begin(&Span::none(), parent), parent);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct PassOn;

impl Spans for PassOn {
    fn begin(&self, _: &Span, parent: Option<TraceParent>) -> Option<TraceParent> {
        parent
    }
}

/// The span of a call that begins now.
///
/// ```
/// use std::time::Duration;
///
/// use pegboard_core::provider::ToolKind;
/// use pegboard_runtime::event::{End, Subject};
/// use pegboard_runtime::spans::{call_span, end_span};
///
/// let subject = Subject {
///     session: "s-20260101120000".into(),
///     owner: "".into(),
///     operation: "1-1".to_owned(),
///     tool: "github__search".into(),
///     server: "github".to_owned(),
///     kind: ToolKind::Mcp,
///     n_bytes_in: 17,
/// };
/// let span = call_span(&subject);
/// // … the call …
/// let duration = Duration::from_millis(12);
/// end_span(&span, &End { error: None, message: None, duration, n_bytes_out: 90, is_cached: false });
/// ```
pub fn call_span(subject: &Subject) -> Span {
    let Subject { session, tool, server, kind, n_bytes_in, operation: _, owner: _ } = subject;
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
        ai.tool.provider = server.as_str(),
        ai.tool.input_bytes = number(*n_bytes_in),
        ai.tool.output_bytes = Empty,
        ai.tool.latency_ms = Empty,
        error.type = Empty,
    )
}

/// Notes on a call's span how the call ended. The message stays out: a server's words are no attribute.
pub fn end_span(span: &Span, end: &End) {
    if span.is_disabled() {
        return;
    }
    span.record("ai.tool.latency_ms", millis(end.duration));
    span.record("ai.tool.output_bytes", number(end.n_bytes_out));
    if let Some(error) = end.error {
        span.record("error.type", error.as_str());
        span.record("otel.status_code", "ERROR");
    }
}

/// The span of a model that is asked now.
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

/// Notes on a model's span what came of it.
pub(crate) fn end_model_span(span: &Span, end: &ModelEnd) {
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
    span.record("gen_ai.usage.input_tokens", tokens(end.usage.all_input()));
    span.record("gen_ai.usage.output_tokens", tokens(end.usage.output));
}

/// On which side of a connection the span is.
fn span_kind(kind: ToolKind) -> &'static str {
    match kind {
        ToolKind::Mcp => "client",
        ToolKind::Rest | ToolKind::Agent => "internal",
    }
}

/// Collectors know signed numbers only; anything else they would take for text.
fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A duration in milliseconds, with their fraction.
pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
