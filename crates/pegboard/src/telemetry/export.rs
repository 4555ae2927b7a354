//! Export of spans to an OpenTelemetry collector.

use std::time::Duration;

use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanData, SpanExporter as Export,
};
use parking_lot::Mutex;
use pegboard_core::trace::TraceParent;
use pegboard_runtime::spans::{self, TracePropagator};
use tokio::time::Instant;
use tracing::Span;
use tracing::level_filters::LevelFilter;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::Layer;

use super::{Error, ResourceInfo};

/// Interval between batches.
const INTERVAL: Duration = Duration::from_secs(5);
/// Timeout of an export, also at shutdown.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum interval between warnings about failed exports.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// Exports the spans of calls in batches, from its own thread.
pub(super) struct Exporter(SdkTracerProvider);

impl Exporter {
    pub(super) fn new(endpoint: &str, own: ResourceInfo) -> Result<Self, Error> {
        if !(endpoint.starts_with("http://") || endpoint.starts_with("https://")) {
            let reason = "the collector URL must start with http:// or https://".to_owned();
            return Err(Error::Endpoint { reason });
        }
        let sender = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint)
            .with_timeout(TIMEOUT)
            .build()
            // The underlying error would quote the URL.
            .map_err(|_| Error::Endpoint { reason: "invalid collector URL".to_owned() })?;
        let batches = BatchConfigBuilder::default().with_scheduled_delay(INTERVAL).build();
        let processor = BatchSpanProcessor::builder(ThrottledExporter { sender, lost: Mutex::default() })
            .with_batch_config(batches)
            .build();
        let ResourceInfo { service_name, labels, ratio } = own;
        let labels = labels.into_iter().map(|(name, value)| KeyValue::new(name, value));
        let resource = Resource::builder().with_service_name(service_name).with_attributes(labels).build();
        // A trace of the caller keeps its sampling decision.
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio)));
        let provider = SdkTracerProvider::builder().with_sampler(sampler);
        Ok(Self(provider.with_span_processor(processor).with_resource(resource).build()))
    }

    /// Creates the layer that collects the spans of calls, and no other spans or events.
    pub(super) fn layer(&self) -> Box<dyn Layer<Registry> + Send + Sync> {
        let is_call = filter_fn(|metadata| metadata.is_span() && metadata.target() == spans::TARGET)
            .with_max_level_hint(LevelFilter::INFO);
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("pegboard"))
            .with_location(false)
            .with_threads(false)
            .with_level(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_filter(is_call)
            .boxed()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // Failed exports have been logged already.
        let _ = self.0.shutdown_with_timeout(TIMEOUT);
    }
}

/// Links the spans of calls to the traces of their callers and servers.
pub(super) struct TraceLinker;

impl TracePropagator for TraceLinker {
    fn attach(&self, span: &Span, parent: Option<TraceParent>) -> Option<TraceParent> {
        if let Some(parent) = parent {
            // Without a collecting layer the span has no parent either.
            let _ = span.set_parent(Context::new().with_remote_span_context(remote(parent)));
        }
        let context = span.context();
        let own = context.span().span_context().clone();
        if !own.is_valid() {
            return parent;
        }
        Some(TraceParent {
            trace_id: u128::from_be_bytes(own.trace_id().to_bytes()),
            span_id: u64::from_be_bytes(own.span_id().to_bytes()),
            flags: own.trace_flags().to_u8(),
        })
    }
}

fn remote(parent: TraceParent) -> SpanContext {
    let TraceParent { trace_id, span_id, flags } = parent;
    let (trace_id, span_id) = (trace_id.to_be_bytes(), span_id.to_be_bytes());
    SpanContext::new(
        TraceId::from_bytes(trace_id),
        SpanId::from_bytes(span_id),
        TraceFlags::new(flags),
        true,
        TraceState::default(),
    )
}

/// Exporter that logs failures at most once per [`WARNING_INTERVAL`].
#[derive(Debug)]
struct ThrottledExporter {
    sender: SpanExporter,
    lost: Mutex<LostSpans>,
}

impl Export for ThrottledExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let n_spans = batch.len();
        let result = self.sender.export(batch).await;
        if let Err(error) = &result {
            let n_lost = self.lost.lock().add(n_spans, Instant::now());
            if let Some(n_lost) = n_lost {
                tracing::warn!(target: "pegboard::telemetry", n_lost, "Cannot export spans to the collector: {error}");
            }
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.sender.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.sender.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.sender.set_resource(resource);
    }
}

/// Number of spans lost since the last warning.
#[derive(Debug, Default)]
struct LostSpans {
    n_spans: usize,
    warned_at: Option<Instant>,
}

impl LostSpans {
    /// Counts lost spans; returns the total if a warning is due.
    fn add(&mut self, n_spans: usize, now: Instant) -> Option<usize> {
        self.n_spans = self.n_spans.saturating_add(n_spans);
        if self.warned_at.is_some_and(|warned_at| now.duration_since(warned_at) < WARNING_INTERVAL) {
            return None;
        }
        self.warned_at = Some(now);
        Some(std::mem::take(&mut self.n_spans))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_spans_are_logged_once_a_minute() {
        let begin = Instant::now();
        let mut lost = LostSpans::default();
        for (seconds, expected) in
            [(0, Some(2)), (5, None), (59, None), (60, Some(6)), (61, None), (1_000, Some(4))]
        {
            let now = begin + Duration::from_secs(seconds);
            assert_eq!(lost.add(2, now), expected, "after {seconds} s");
        }
    }
}
