//! Limits the number of concurrent calls.

use std::sync::Arc;

use pegboard_core::error::CallError;
use pegboard_core::output::Output;
use tokio::time::{self, Instant};

use super::Layer;
use super::shared_slot::SharedSlot;
use crate::call::admit::AdmittedCall;
use crate::event::RuntimeEvent;
use crate::queue::{Priority, QueueError, QueueSlot};
use crate::queues::NamedQueue;

/// Waits for a slot of the tool's queue, if it has one.
pub(crate) struct QueueLayer<R>(pub(crate) R);

impl<R: Layer> Layer for QueueLayer<R> {
    async fn call(&self, admitted: &AdmittedCall) -> Result<Output, CallError> {
        let options = &admitted.call.context().options;
        if options.bypass_concurrency || !admitted.call.entry().is_managed() {
            return self.0.call(admitted).await;
        }
        let Some(queue) = admitted.shared().queues.required(admitted)? else {
            return self.0.call(admitted).await;
        };
        if let Some(lendable) = admitted.active_call.lendable_slot(&queue.name) {
            // An ancestor already holds a slot and outlives this call. The semaphore is never closed.
            let lent_slot = lendable.acquire_owned().await;
            admitted.active_call.execution.hold_slot(&queue.name);
            let result = self.0.call(admitted).await;
            drop(lent_slot);
            return result;
        }
        let slot = acquire(admitted, &queue).await?;
        let result = self.0.call(admitted).await;
        drop(slot);
        result
    }
}

async fn acquire(admitted: &AdmittedCall, queue: &NamedQueue) -> Result<QueuePermit, CallError> {
    let events = &admitted.shared().events;
    let priority =
        admitted.call.context().options.priority.map_or(admitted.tool.policy.priority, Priority::new);
    let acquire = queue.queue.acquire(admitted.active_call.caller().key(), priority);
    if let Some(position) = acquire.position() {
        events.emit(|| RuntimeEvent::Queued {
            call: admitted.info(),
            queue: Arc::clone(&queue.name),
            place: position,
        });
    }
    emit_depth(admitted, queue);
    let slot = acquire.await.map_err(|error| queue_error(queue, error))?;
    if let Some(waited) = slot.wait().waited {
        admitted.active_call.recorder.meta().waited = Some(waited);
        events.emit(|| RuntimeEvent::Dequeued {
            call: admitted.info(),
            queue: Arc::clone(&queue.name),
            waited,
        });
        emit_depth(admitted, queue);
    }
    let lease = match queue.shared_slots {
        None => None,
        Some(capacity) => Box::pin(acquire_shared_slot(admitted, queue, capacity)).await?,
    };
    admitted.active_call.execution.hold_slot(&queue.name);
    Ok(QueuePermit { lease, slot: Some(slot), queue: queue.clone(), events: events.clone() })
}

/// Leases a slot shared by all processes.
async fn acquire_shared_slot(
    admitted: &AdmittedCall,
    queue: &NamedQueue,
    capacity: usize,
) -> Result<Option<SharedSlot>, CallError> {
    let started = Instant::now();
    let leasing = SharedSlot::acquire(admitted.shared(), &queue.name, capacity);
    let lease = match queue.wait_timeout {
        // The caller's deadline or cancellation bounds the wait.
        None => leasing.await,
        Some(limit) => match time::timeout(limit, leasing).await {
            Ok(lease) => lease,
            Err(_) => return Err(queue_error(queue, QueueError::TimedOut(limit))),
        },
    };
    let waited = started.elapsed();
    if !waited.is_zero() {
        *admitted.active_call.recorder.meta().waited.get_or_insert_default() += waited;
    }
    Ok(lease)
}

fn emit_depth(admitted: &AdmittedCall, queue: &NamedQueue) {
    admitted.shared().events.emit(|| queue.depth());
}

fn queue_error(queue: &NamedQueue, error: QueueError) -> CallError {
    let reason = match error {
        QueueError::Full { waiting } => format!("is full: {waiting} calls are waiting; try again later"),
        QueueError::TimedOut(limit) => format!("had no free slot within {limit:?}"),
    };
    CallError::QueueTimeout { queue: queue.name.to_string(), reason }
}

/// A held slot; emits the queue depth when released.
struct QueuePermit {
    lease: Option<SharedSlot>,
    slot: Option<QueueSlot>,
    queue: NamedQueue,
    events: crate::event::EventBus,
}

impl Drop for QueuePermit {
    fn drop(&mut self) {
        drop(self.lease.take());
        drop(self.slot.take());
        self.events.emit(|| self.queue.depth());
    }
}
