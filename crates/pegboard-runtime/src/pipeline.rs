//! The rings that a call passes through, from the outside in.

mod cache;
mod cap;
mod execute;
mod queue;
mod timeout;

use pegboard_core::error::CallError;
use pegboard_core::output::Output;

use crate::flight::Flight;

pub(crate) use cache::{Cache, Flights};
pub(crate) use cap::Cap;
pub(crate) use execute::Execute;
pub(crate) use queue::Queue;
pub(crate) use timeout::Timeout;

/// The order of a call. The cap is outside the cache, so that the cache keeps whole answers; the cache is outside the
/// queue, so that a hit takes no slot; the time-out is inside the queue, so that waiting is not running.
pub(crate) type Pipeline = Cap<Cache<Queue<Timeout<Execute>>>>;

/// The rings as every call meets them.
pub(crate) fn pipeline() -> Pipeline {
    Cap(Cache(Queue(Timeout(Execute))))
}

/// One stage of a call.
pub(crate) trait Ring: Send + Sync {
    /// Does its part, and has the rings inside it do theirs.
    fn call(&self, flight: &Flight) -> impl Future<Output = Result<Output, CallError>> + Send;
}
