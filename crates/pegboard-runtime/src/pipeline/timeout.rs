//! Limits the run time of tools.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use pegboard_core::call::{Call, ToolRef};
use pegboard_core::error::CallError;
use pegboard_core::output::Output;
use tokio::time::Instant;

use super::Layer;
use crate::call::active::ActiveCall;
use crate::call::admit::AdmittedCall;
use crate::call::clock::ClockReading;
use crate::call::requests::ServerId;
use crate::catalogue::TimeLimit;
use crate::runtime::RuntimeShared;

/// Cancels a tool that exceeds its timeout. Time spent waiting for input from the caller does not count.
pub(crate) struct TimeoutLayer<R>(pub(crate) R);

impl<R: Layer> Layer for TimeoutLayer<R> {
    async fn call(&self, admitted: &AdmittedCall) -> Result<Output, CallError> {
        let Some(limit) = time_limit(admitted) else { return self.0.call(admitted).await };
        let passes = async {
            wait_for_timeout(admitted, limit, &admitted.active_call).await;
            // Marked before the tool is dropped, so that it can tell a timeout from a cancellation.
            admitted.active_call.execution.mark_overdue();
        };
        let mut call = pin!(self.0.call(admitted));
        tokio::select! {
            biased;
            result = &mut call => result,
            // Polled once more: a provider may know a better reason than the time.
            () = passes => call.now_or_never().unwrap_or(Err(CallError::TimedOut { limit })),
        }
    }
}

/// Returns the time limit for the start of the server of a call, before the tool is known: that of the caller,
/// of the tool or of this server, or the default.
pub(crate) fn start_limit(shared: &RuntimeShared, call: &Call, server: &ServerId) -> Option<Duration> {
    let options = &call.context.options;
    let configured = || {
        if options.disable_global_timeout {
            return None;
        }
        let active_plan = shared.active_plan();
        let snapshot = shared.catalogue.load();
        let tool = match &call.tool {
            ToolRef::Id(id) => id.name.as_str(),
            // A short name is the tool's own.
            ToolRef::Name(name) => snapshot.owner(name).map_or(name.as_str(), |(_, tool)| tool),
        };
        let server = active_plan.toolboxes.server(&server.toolbox, &server.server);
        let configured = server.and_then(|server| {
            let of_tool = server.settings.tools.get(tool).and_then(|settings| settings.timeout);
            of_tool.or(server.settings.request_timeout_ms)
        });
        Some(configured.unwrap_or(active_plan.settings.tool_timeout).into())
    };
    options.timeout.or_else(configured).filter(is_finite)
}

/// Waits until the timeout has elapsed, counted from the start of the tool for this call. Progress of the
/// call that runs the tool restarts the timeout, up to a total.
pub(super) async fn wait_for_timeout(admitted: &AdmittedCall, limit: Duration, runner: &ActiveCall) {
    let clock = &admitted.active_call.clock;
    // If the tool has not started, it starts now.
    let started = admitted.active_call.execution.running_since().unwrap_or_else(Instant::now);
    let before = clock.reading().paused;
    let extends_up_to = admitted.shared().settings().progress.extends_up_to.map(Duration::from);
    let due = |reading: ClockReading| {
        if let Some(end) = reading.extended_until {
            return end;
        }
        let paused = reading.paused.saturating_sub(before);
        let without_progress = started + limit + paused;
        match (runner.clock.reading().progress, extends_up_to.filter(is_finite)) {
            (Some(progress), Some(most)) => {
                (progress + limit).min(started + most.max(limit) + paused).max(without_progress)
            }
            _ => without_progress,
        }
    };
    clock.wait_until(due).await;
}

/// Returns the timeout of a call: that of the caller, the tool, its server, its queue, or the default.
pub(super) fn time_limit(admitted: &AdmittedCall) -> Option<Duration> {
    let options = &admitted.call.context().options;
    let configured = || {
        if options.disable_global_timeout || !admitted.call.entry().is_managed() {
            return None;
        }
        match admitted.tool.policy.time_limit {
            TimeLimit::After(limit) => Some(limit),
            TimeLimit::Unlimited => None,
            TimeLimit::Unset => {
                let of_queue =
                    admitted.shared().queues.lookup(admitted).and_then(|queue| queue.default_timeout);
                Some(of_queue.unwrap_or_else(|| admitted.shared().settings().tool_timeout.into()))
            }
        }
    };
    options.timeout.or_else(configured).filter(is_finite)
}

/// A limit above one year counts as none; adding it to an instant could overflow.
fn is_finite(limit: &Duration) -> bool {
    !limit.is_zero() && *limit < Duration::from_hours(24 * 365)
}
