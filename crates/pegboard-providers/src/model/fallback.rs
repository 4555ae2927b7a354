//! Fallback across several models, with retries.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::model::{
    Model, ModelError, ModelErrorKind, ModelInfo, ModelReply, ModelRequest, ReplyEvent, ReplyListener,
};
use tokio::time::{self, Instant};

/// Timeout and retries of model requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelRetryPolicy {
    /// Timeout of one request.
    pub timeout: Duration,
    /// Maximum number of retries per model after transient errors. Timeouts are retried at most once.
    pub max_retries: u32,
    /// Maximum backoff before a retry. If the provider asks for more, the model is not retried.
    pub max_backoff: Duration,
}

impl Default for ModelRetryPolicy {
    fn default() -> Self {
        Self { timeout: Duration::from_mins(10), max_retries: 5, max_backoff: Duration::from_mins(1) }
    }
}

/// Initial backoff if the provider does not specify one.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);

/// Several models as one: the first that replies wins, with retries.
///
/// Models are tried in order. While one backs off, the next is asked; as soon as several are ready, the first
/// in the list has precedence. Only whole requests are retried: the listener receives
/// [`ReplyEvent::Restarted`] before another reply begins. Its info is that of the first model.
#[derive(Debug)]
pub struct FallbackModel {
    models: Vec<Arc<dyn Model>>,
    retry_policy: ModelRetryPolicy,
}

impl FallbackModel {
    /// Creates a fallback chain from a model and its substitutes.
    pub fn new(first: Arc<dyn Model>, others: Vec<Arc<dyn Model>>, retry_policy: ModelRetryPolicy) -> Self {
        Self { models: [first].into_iter().chain(others).collect(), retry_policy }
    }

    async fn query(
        &self,
        request: &ModelRequest,
        listener: ReplyListener<'_>,
    ) -> Result<ModelReply, ModelError> {
        let mut candidates: Vec<FallbackCandidate<'_>> =
            self.models.iter().map(FallbackCandidate::new).collect();
        let mut failures = FailureLog::default();
        let has_output = AtomicBool::new(false);
        let forward = |event: ReplyEvent<'_>| {
            has_output.store(true, Ordering::Relaxed);
            listener(event);
        };
        while let Some(next) = FallbackCandidate::select(&candidates) {
            let candidate = &mut candidates[next];
            time::sleep_until(candidate.ready).await;
            if has_output.swap(false, Ordering::Relaxed) {
                listener(ReplyEvent::Restarted);
            }
            let error = match self.attempt(&**candidate.model, request, &forward).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let wait = candidate.record_failure(&error, &self.retry_policy);
            let kind = error.kind.as_str();
            tracing::warn!(model = %error.model, kind, ?wait, reason = error.reason, "Model request failed.");
            failures.add(error);
        }
        Err(failures.into_error())
    }

    async fn attempt(
        &self,
        model: &dyn Model,
        request: &ModelRequest,
        listener: ReplyListener<'_>,
    ) -> Result<ModelReply, ModelError> {
        let limit = self.retry_policy.timeout;
        time::timeout(limit, model.answer(request, listener)).await.unwrap_or_else(|_elapsed| {
            let reason = format!("no complete reply within {limit:?}");
            Err(ModelError::new(model.info().name.clone(), ModelErrorKind::TimedOut { limit }, reason))
        })
    }
}

impl Model for FallbackModel {
    fn info(&self) -> &ModelInfo {
        self.models[0].info()
    }

    fn answer<'a>(
        &'a self,
        request: &'a ModelRequest,
        listener: ReplyListener<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        self.query(request, listener).boxed()
    }
}

/// Model that can still be tried.
struct FallbackCandidate<'m> {
    model: &'m Arc<dyn Model>,
    n_failed: u32,
    n_timed_out: u32,
    /// End of the backoff.
    ready: Instant,
    is_exhausted: bool,
}

impl<'m> FallbackCandidate<'m> {
    fn new(model: &'m Arc<dyn Model>) -> Self {
        Self { model, n_failed: 0, n_timed_out: 0, ready: Instant::now(), is_exhausted: false }
    }

    /// Selects the first candidate that is ready, or else the one that is ready soonest.
    fn select(candidates: &[Self]) -> Option<usize> {
        let now = Instant::now();
        let left = || candidates.iter().enumerate().filter(|(_, candidate)| !candidate.is_exhausted);
        let ready = left().find(|(_, candidate)| candidate.ready <= now);
        ready.or_else(|| left().min_by_key(|(_, candidate)| candidate.ready)).map(|(at, _)| at)
    }

    /// Records a failure and returns the backoff; `None` if the model is exhausted.
    fn record_failure(&mut self, error: &ModelError, retry_policy: &ModelRetryPolicy) -> Option<Duration> {
        self.n_failed += 1;
        self.n_timed_out += u32::from(matches!(error.kind, ModelErrorKind::TimedOut { .. }));
        let wait = match error.retry_after() {
            // Jitter, so that waiting clients do not retry all at once.
            Some(wait) if wait <= retry_policy.max_backoff => {
                Some(wait.mul_f64(rand::random_range(1.0..1.1)))
            }
            Some(_) => None,
            None => {
                let doubled = INITIAL_BACKOFF.saturating_mul(2_u32.saturating_pow(self.n_failed - 1));
                Some(doubled.min(retry_policy.max_backoff).mul_f64(rand::random_range(0.5..1.0)))
            }
        };
        let may_go_on =
            error.kind.is_transient() && self.n_failed <= retry_policy.max_retries && self.n_timed_out < 2;
        let wait = wait.filter(|_| may_go_on);
        match wait {
            Some(wait) => self.ready = Instant::now() + wait,
            None => self.is_exhausted = true,
        }
        wait
    }
}

/// Errors of all attempts.
#[derive(Default)]
struct FailureLog {
    /// The error to report. A context overflow takes precedence, since the caller can shorten the
    /// conversation.
    reported: Option<ModelError>,
    /// Models with their kinds of errors.
    seen: BTreeSet<(String, &'static str)>,
}

impl FailureLog {
    fn add(&mut self, error: ModelError) {
        self.seen.insert((error.model.to_string(), error.kind.as_str()));
        let is_kept =
            self.reported.as_ref().is_some_and(|reported| reported.kind == ModelErrorKind::ContextTooLong);
        if !is_kept {
            self.reported = Some(error);
        }
    }

    fn into_error(self) -> ModelError {
        let mut reported = self.reported.expect("there is a first model, and it failed");
        let own = (reported.model.to_string(), reported.kind.as_str());
        let others = self.seen.iter().filter(|seen| **seen != own);
        let others: Vec<String> = others.map(|(model, kind)| format!("{model} {kind}")).collect();
        if !others.is_empty() {
            let _ = write!(reported.reason, " (also: {})", others.join(", "));
        }
        reported
    }
}
