//! Validations that take long run on threads of their own, a few at a time, so that other calls do not wait for them.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use pegboard_core::owner::Owner;
use tokio::sync::Semaphore;
use tokio::time;
use tokio_util::task::TaskTracker;

/// Maximum number of validations at once.
const MAX_AT_ONCE: usize = 3;

/// Maximum number of validations of one owner at once, so that none can take all threads.
const MAX_OF_OWNER: usize = 2;

/// Maximum time that a validation waits for others.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Number of owners from which on those without a validation are forgotten.
const MAX_IDLE_OWNERS: usize = 64;

/// Threads for costly validations.
#[derive(Debug)]
pub(crate) struct ValidationThreads {
    slots: Arc<Semaphore>,
    turns: Mutex<HashMap<Owner, Weak<Semaphore>>>,
}

impl Default for ValidationThreads {
    fn default() -> Self {
        Self { slots: Arc::new(Semaphore::new(MAX_AT_ONCE)), turns: Mutex::default() }
    }
}

/// The reason why a value was not validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValidationFailure {
    /// Others took too long.
    #[error("other validations took more than {} s", MAX_WAIT.as_secs())]
    Crowded,
    /// A defect of the validator.
    #[error("the validator failed")]
    Panicked,
    /// The event loop ends.
    #[error("the runtime is shutting down")]
    ShuttingDown,
}

impl ValidationThreads {
    /// Runs a validation for an owner. One that has begun ends, even if its call is cancelled, and counts until then.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        tasks: &TaskTracker,
        owner: &Owner,
        validate: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ValidationFailure> {
        let waiting = async {
            let turn = self.turn_of(owner).acquire_owned().await;
            (turn, Arc::clone(&self.slots).acquire_owned().await)
        };
        let held = time::timeout(MAX_WAIT, waiting).await.map_err(|_elapsed| ValidationFailure::Crowded)?;
        let validation = tasks.spawn_blocking(move || {
            let validated = validate();
            drop(held);
            validated
        });
        validation.await.map_err(|error| {
            if error.is_panic() { ValidationFailure::Panicked } else { ValidationFailure::ShuttingDown }
        })
    }

    /// Returns the semaphore of the validations of an owner.
    fn turn_of(&self, owner: &Owner) -> Arc<Semaphore> {
        let mut turns = self.turns.lock();
        if turns.len() >= MAX_IDLE_OWNERS {
            turns.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = turns.entry(owner.clone()).or_default();
        turn.upgrade().unwrap_or_else(|| {
            let free = Arc::new(Semaphore::new(MAX_OF_OWNER));
            *turn = Arc::downgrade(&free);
            free
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn owner(number: usize) -> Owner {
        Owner::from_stored(&format!("owner-{number}"))
    }

    #[tokio::test(start_paused = true)]
    async fn validations_of_one_owner_do_not_keep_those_of_another_waiting() {
        let (threads, tasks) = (ValidationThreads::default(), TaskTracker::new());
        let one = owner(1);
        let start_long = || {
            let (release, released) = mpsc::channel::<()>();
            let long = threads.run(&tasks, &one, move || {
                let _ = released.recv();
            });
            (Box::pin(long), release)
        };
        let ((mut first, release_first), (mut second, release_second)) = (start_long(), start_long());
        let mut next = Box::pin(threads.run(&tasks, &one, || ()));
        assert!(futures_util::poll!(&mut first).is_pending());
        assert!(futures_util::poll!(&mut second).is_pending());
        assert!(futures_util::poll!(&mut next).is_pending());
        for number in 2..5 {
            assert_eq!(threads.run(&tasks, &owner(number), move || number).await, Ok(number));
        }
        time::advance(2 * MAX_WAIT).await;
        assert_eq!(next.await, Err(ValidationFailure::Crowded));
        release_first.send(()).unwrap();
        release_second.send(()).unwrap();
        assert_eq!((first.await, second.await), (Ok(()), Ok(())));
        assert_eq!(threads.run(&tasks, &one, || 7).await, Ok(7));
    }

    #[tokio::test]
    async fn owners_without_a_validation_are_forgotten() {
        let (threads, tasks) = (ValidationThreads::default(), TaskTracker::new());
        for number in 0..1_000 {
            threads.run(&tasks, &owner(number), || ()).await.unwrap();
        }
        assert!(threads.turns.lock().len() <= MAX_IDLE_OWNERS);
    }

    #[tokio::test]
    async fn a_panic_of_the_validator_is_reported_as_such() {
        let (threads, tasks) = (ValidationThreads::default(), TaskTracker::new());
        let validated = threads.run(&tasks, &owner(1), || panic!("a bug")).await;
        assert_eq!(validated, Err::<(), _>(ValidationFailure::Panicked));
    }
}
