//! A tool may not run longer than its limit.

use std::time::Duration;

use pegboard_core::error::CallError;
use pegboard_core::output::Output;
use tokio::time::Instant;

use super::Ring;
use crate::catalogue::TimeLimit;
use crate::clock::Elapsed;
use crate::flight::{Flight, Track};

/// Gives up on a tool that runs longer than its limit. Time during which the caller is asked does not count.
pub(crate) struct Timeout<R>(pub(crate) R);

impl<R: Ring> Ring for Timeout<R> {
    async fn call(&self, flight: &Flight) -> Result<Output, CallError> {
        let Some(limit) = limit(flight) else { return self.0.call(flight).await };
        let passes = async {
            passes(flight, limit, &flight.track).await;
            // Before the tool is given up, so that it knows why.
            flight.track.note_overdue();
        };
        tokio::select! {
            biased;
            result = self.0.call(flight) => result,
            () = passes => Err(CallError::TimedOut { limit }),
        }
    }
}

/// Waits until the tool has had its time, from when it began for this call. Progress of whoever runs it may give it its
/// time again, up to a total.
pub(super) async fn passes(flight: &Flight, limit: Duration, runner: &Track) {
    let clock = &flight.track.clock;
    // Before the tool has begun it begins now.
    let started = flight.track.begun().unwrap_or_else(Instant::now);
    let before = clock.elapsed().stopped;
    let extends_up_to = flight.runtime().settings().progress.extends_up_to.map(Duration::from);
    let due = |elapsed: Elapsed| {
        if let Some(end) = elapsed.kept_until {
            return end;
        }
        let stopped = elapsed.stopped.saturating_sub(before);
        let by_itself = started + limit + stopped;
        match (runner.clock.elapsed().progress, extends_up_to.filter(is_limit)) {
            (Some(progress), Some(most)) => {
                (progress + limit).min(started + most.max(limit) + stopped).max(by_itself)
            }
            _ => by_itself,
        }
    };
    clock.passes(due).await;
}

/// How long the tool may run: what the caller says, then the tool, its server, its queue and everything.
pub(super) fn limit(flight: &Flight) -> Option<Duration> {
    let options = &flight.call.context().options;
    let configured = || {
        if options.disable_global_timeout || !flight.call.entry().is_managed() {
            return None;
        }
        match flight.tool.rules.time_limit {
            TimeLimit::After(limit) => Some(limit),
            TimeLimit::Never => None,
            TimeLimit::Unset => {
                let of_queue = flight.runtime().queues.of(flight).and_then(|queue| queue.default_timeout);
                Some(of_queue.unwrap_or_else(|| flight.runtime().settings().tool_timeout.into()))
            }
        }
    };
    options.timeout.or_else(configured).filter(is_limit)
}

/// What is longer than a year is no limit, and adding it to a time might overflow.
fn is_limit(limit: &Duration) -> bool {
    !limit.is_zero() && *limit < Duration::from_hours(24 * 365)
}
