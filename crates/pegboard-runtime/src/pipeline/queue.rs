//! Only so many calls run at once.

use std::sync::Arc;

use pegboard_core::error::CallError;
use pegboard_core::output::Output;
use tokio::time::{self, Instant};

use super::Ring;
use crate::event::Event;
use crate::flight::Flight;
use crate::lease::Lease;
use crate::queue::{Priority, QueueError, Slot};
use crate::queues::NamedQueue;

/// Lets a call wait for a slot of its tool's queue, if it has one.
pub(crate) struct Queue<R>(pub(crate) R);

impl<R: Ring> Ring for Queue<R> {
    async fn call(&self, flight: &Flight) -> Result<Output, CallError> {
        let options = &flight.call.context().options;
        if options.bypass_concurrency || !flight.call.entry().is_managed() {
            return self.0.call(flight).await;
        }
        let Some(queue) = flight.runtime().queues.wanted(flight)? else { return self.0.call(flight).await };
        if let Some(lender) = flight.track.lender(&queue.name) {
            // A call above this one has a slot already, and ends only after this one. The lender is never closed.
            let lent = lender.acquire_owned().await;
            flight.track.hold(&queue.name);
            let result = self.0.call(flight).await;
            drop(lent);
            return result;
        }
        let slot = acquire(flight, &queue).await?;
        let result = self.0.call(flight).await;
        drop(slot);
        result
    }
}

async fn acquire(flight: &Flight, queue: &NamedQueue) -> Result<Held, CallError> {
    let events = &flight.runtime().events;
    let priority = flight.call.context().options.priority.map_or(flight.tool.rules.priority, Priority::new);
    let acquire = queue.queue.acquire(flight.track.caller.key(), priority);
    if let Some(place) = acquire.place() {
        events.emit(|| Event::Queued { call: flight.subject(), queue: Arc::clone(&queue.name), place });
    }
    depth(flight, queue);
    let slot = acquire.await.map_err(|error| refused(queue, error))?;
    if let Some(waited) = slot.wait().waited {
        flight.track.journey().waited = Some(waited);
        events.emit(|| Event::Dequeued { call: flight.subject(), queue: Arc::clone(&queue.name), waited });
        depth(flight, queue);
    }
    let lease = match queue.shared_slots {
        None => None,
        Some(capacity) => lease(flight, queue, capacity).await?,
    };
    flight.track.hold(&queue.name);
    Ok(Held { lease, slot: Some(slot), queue: queue.clone(), events: events.clone() })
}

/// A slot of all processes that share the queue.
async fn lease(flight: &Flight, queue: &NamedQueue, capacity: usize) -> Result<Option<Lease>, CallError> {
    let started = Instant::now();
    let leasing = Lease::of(flight.runtime(), &queue.name, capacity);
    let lease = match queue.wait_timeout {
        // The caller's deadline or its going away ends the wait.
        None => leasing.await,
        Some(limit) => match time::timeout(limit, leasing).await {
            Ok(lease) => lease,
            Err(_) => return Err(refused(queue, QueueError::TimedOut(limit))),
        },
    };
    let waited = started.elapsed();
    if !waited.is_zero() {
        *flight.track.journey().waited.get_or_insert_default() += waited;
    }
    Ok(lease)
}

fn depth(flight: &Flight, queue: &NamedQueue) {
    flight.runtime().events.emit(|| queue.depth());
}

fn refused(queue: &NamedQueue, error: QueueError) -> CallError {
    let reason = match error {
        QueueError::Full { waiting } => format!("is full: {waiting} calls wait already; try again later"),
        QueueError::TimedOut(limit) => format!("had no free slot within {limit:?}"),
    };
    CallError::QueueTimeout { queue: queue.name.to_string(), reason }
}

/// A slot that tells everybody when it is given back.
struct Held {
    lease: Option<Lease>,
    slot: Option<Slot>,
    queue: NamedQueue,
    events: crate::event::Events,
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.lease.take());
        drop(self.slot.take());
        self.events.emit(|| self.queue.depth());
    }
}
