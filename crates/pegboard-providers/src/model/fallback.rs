//! Several models as one: the first that replies, with retries.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::model::{
    Listener, Model, ModelError, ModelErrorKind, ModelFacts, ModelReply, ModelRequest, Piece,
};
use tokio::time::{self, Instant};

/// How long is waited for models that do not reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How long one request may take.
    pub timeout: Duration,
    /// How often one model is asked again after something that may pass. After a time-out it is at most once.
    pub max_retries: u32,
    /// The longest wait before it is asked again. A provider that wants to be left alone for longer is.
    pub max_wait: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { timeout: Duration::from_mins(10), max_retries: 5, max_wait: Duration::from_mins(1) }
    }
}

/// The first wait of a provider that does not say how long.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// Several models as one: the first that replies, with retries.
///
/// They are tried in order. While one that failed is waited for, the next is asked; whenever it is one's time again,
/// the earlier in the list goes first. Only whole requests are made again: the listener hears [`Piece::Again`] before
/// a second reply begins. What is known of it beforehand is what is known of the first.
#[derive(Debug)]
pub struct Fallback {
    models: Vec<Arc<dyn Model>>,
    patience: Patience,
}

impl Fallback {
    /// A model, and those that stand in for it.
    pub fn new(first: Arc<dyn Model>, others: Vec<Arc<dyn Model>>, patience: Patience) -> Self {
        Self { models: [first].into_iter().chain(others).collect(), patience }
    }

    async fn ask(&self, request: &ModelRequest, listener: Listener<'_>) -> Result<ModelReply, ModelError> {
        let mut candidates: Vec<Candidate<'_>> = self.models.iter().map(Candidate::new).collect();
        let mut failures = Failures::default();
        let has_heard = AtomicBool::new(false);
        let hear = |piece: Piece<'_>| {
            has_heard.store(true, Ordering::Relaxed);
            listener(piece);
        };
        while let Some(next) = Candidate::next(&candidates) {
            let candidate = &mut candidates[next];
            time::sleep_until(candidate.ready).await;
            if has_heard.swap(false, Ordering::Relaxed) {
                listener(Piece::Again);
            }
            let error = match self.attempt(&**candidate.model, request, &hear).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let wait = candidate.failed(&error, &self.patience);
            let kind = error.kind.as_str();
            tracing::warn!(model = %error.model, kind, ?wait, reason = error.reason, "A model did not reply.");
            failures.add(error);
        }
        Err(failures.into_error())
    }

    async fn attempt(
        &self,
        model: &dyn Model,
        request: &ModelRequest,
        listener: Listener<'_>,
    ) -> Result<ModelReply, ModelError> {
        let limit = self.patience.timeout;
        time::timeout(limit, model.answer(request, listener)).await.unwrap_or_else(|_elapsed| {
            let reason = format!("no whole reply within {limit:?}");
            Err(ModelError::new(model.facts().name.clone(), ModelErrorKind::TimedOut { limit }, reason))
        })
    }
}

impl Model for Fallback {
    fn facts(&self) -> &ModelFacts {
        self.models[0].facts()
    }

    fn answer<'a>(
        &'a self,
        request: &'a ModelRequest,
        listener: Listener<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        self.ask(request, listener).boxed()
    }
}

/// A model that may still reply.
struct Candidate<'m> {
    model: &'m Arc<dyn Model>,
    n_failed: u32,
    n_timed_out: u32,
    /// When it may be asked.
    ready: Instant,
    is_out: bool,
}

impl<'m> Candidate<'m> {
    fn new(model: &'m Arc<dyn Model>) -> Self {
        Self { model, n_failed: 0, n_timed_out: 0, ready: Instant::now(), is_out: false }
    }

    /// The one to ask next: the first that may be asked now, or else the one that may soonest.
    fn next(candidates: &[Self]) -> Option<usize> {
        let now = Instant::now();
        let left = || candidates.iter().enumerate().filter(|(_, candidate)| !candidate.is_out);
        let ready = left().find(|(_, candidate)| candidate.ready <= now);
        ready.or_else(|| left().min_by_key(|(_, candidate)| candidate.ready)).map(|(at, _)| at)
    }

    /// Notes a failure, and says how long it is left alone; `None` if it is not asked again.
    fn failed(&mut self, error: &ModelError, patience: &Patience) -> Option<Duration> {
        self.n_failed += 1;
        self.n_timed_out += u32::from(matches!(error.kind, ModelErrorKind::TimedOut { .. }));
        let wait = match error.retry_after() {
            // A little later than it said, so that not all who wait come at once.
            Some(wait) if wait <= patience.max_wait => Some(wait.mul_f64(rand::random_range(1.0..1.1))),
            Some(_) => None,
            None => {
                let doubled = FIRST_WAIT.saturating_mul(2_u32.saturating_pow(self.n_failed - 1));
                Some(doubled.min(patience.max_wait).mul_f64(rand::random_range(0.5..1.0)))
            }
        };
        let may_go_on =
            error.kind.may_pass() && self.n_failed <= patience.max_retries && self.n_timed_out < 2;
        let wait = wait.filter(|_| may_go_on);
        match wait {
            Some(wait) => self.ready = Instant::now() + wait,
            None => self.is_out = true,
        }
        wait
    }
}

/// What went wrong so far.
#[derive(Default)]
struct Failures {
    /// The one that is told: a conversation that is too long before all others, since whoever holds it can shorten it.
    told: Option<ModelError>,
    /// Which other models there were, and what each had.
    seen: BTreeSet<(String, &'static str)>,
}

impl Failures {
    fn add(&mut self, error: ModelError) {
        self.seen.insert((error.model.to_string(), error.kind.as_str()));
        let is_kept = self.told.as_ref().is_some_and(|told| told.kind == ModelErrorKind::ContextTooLong);
        if !is_kept {
            self.told = Some(error);
        }
    }

    fn into_error(self) -> ModelError {
        let mut told = self.told.expect("there is a first model, and it failed");
        let own = (told.model.to_string(), told.kind.as_str());
        let others = self.seen.iter().filter(|seen| **seen != own);
        let others: Vec<String> = others.map(|(model, kind)| format!("{model} {kind}")).collect();
        if !others.is_empty() {
            let _ = write!(told.reason, " (also: {})", others.join(", "));
        }
        told
    }
}
