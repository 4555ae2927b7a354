//! The queue under explored interleavings: the production code, with locks controlled by a scheduler.
//!
//! A lost wake-up leaves all tasks waiting, which the scheduler reports as a deadlock.

use std::future::{self, Future};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use pegboard_runtime::queue::{Priority, QueueDepth, QueueError, QueueOptions, SessionKey, SlotWait};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

use self::slots::{Acquire, Queue, QueueSlot};

#[path = "../../src/queue/scheduler.rs"]
mod scheduler;
#[expect(unreachable_pub, reason = "public in the library, where the file belongs")]
#[path = "../../src/queue/slots.rs"]
mod slots;

/// Synchronization primitives of the queue in this test.
mod sync {
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    pub(super) use shuttle::sync::MutexGuard;

    /// A lock without poisoning, as in production.
    #[derive(Debug)]
    pub(super) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(super) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    /// A timer that elapses after as many polls as it has nanoseconds.
    #[derive(Debug)]
    pub(super) struct Sleep(u32);

    pub(super) fn sleep(limit: Duration) -> Sleep {
        Sleep(limit.subsec_nanos())
    }

    impl Future for Sleep {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            if self.0 == 0 {
                return Poll::Ready(());
            }
            self.0 -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    }
}

const N_TASKS: usize = 4;
const N_ROUNDS: usize = 16;
const MAX_SLOTS: usize = 2;

/// Counts over all runs of a check.
#[derive(Default)]
struct RunCounts {
    served: AtomicUsize,
    given_up: AtomicUsize,
    timed_out: AtomicUsize,
}

/// One run: tasks arrive, give up and finish at random, while the queue grows and shrinks.
fn run(seen: &Arc<RunCounts>, wait_timeout: Option<Duration>) {
    // No ageing, so that a run does not depend on the clock.
    let of =
        move |n_slots| QueueOptions { wait_timeout, ageing: Duration::ZERO, ..QueueOptions::of(n_slots) };
    let queue = Queue::new(of(1));
    let running = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..N_TASKS as u64)
        .map(|session| {
            shuttle::future::spawn(run_task(queue.clone(), session, Arc::clone(&running), Arc::clone(seen)))
        })
        .collect();
    for _ in 0..N_ROUNDS {
        queue.resize(of(thread_rng().gen_range(1..=MAX_SLOTS)));
        let QueueDepth { capacity, in_use, waiting } = queue.depth();
        assert!(waiting == 0 || Some(in_use) >= capacity, "a slot is idle while {waiting} wait");
    }
    for task in tasks {
        shuttle::future::block_on(task).unwrap();
    }
    let QueueDepth { in_use, waiting, .. } = queue.depth();
    assert_eq!((in_use, waiting), (0, 0));
}

async fn run_task(queue: Queue, session: u64, running: Arc<AtomicUsize>, seen: Arc<RunCounts>) {
    for _ in 0..N_ROUNDS {
        let priority = Priority::new(thread_rng().gen_range(-1..=1));
        let mut acquire = queue.acquire(SessionKey(session), priority);
        assert!(acquire.position().is_none_or(|position| (1..=N_TASKS).contains(&position)));
        // Some stay until the end, so that a lost wake-up is noticed.
        let got = match thread_rng().gen_range(0..10) {
            0 => Some(acquire.await),
            n_polls => poll_slot(&mut acquire, n_polls / 4).await,
        };
        match got {
            Some(Ok(slot)) => {
                assert!(slot.wait().position < N_TASKS, "one who has a slot does not wait");
                assert!(
                    running.fetch_add(1, Ordering::Relaxed) < MAX_SLOTS,
                    "more run than there ever were slots"
                );
                shuttle::future::yield_now().await;
                running.fetch_sub(1, Ordering::Relaxed);
                drop(slot);
                count(&seen.served);
            }
            Some(Err(QueueError::TimedOut(_))) => count(&seen.timed_out),
            Some(Err(error @ QueueError::Full { .. })) => panic!("{error}"),
            None => count(&seen.given_up),
        }
    }
}

/// Polls for the slot a number of times; `None` if it never came.
async fn poll_slot(acquire: &mut Acquire, n_polls: u8) -> Option<Result<QueueSlot, QueueError>> {
    for n in 0..n_polls {
        if n > 0 {
            shuttle::future::yield_now().await;
        }
        let polled = future::poll_fn(|context| Poll::Ready(Pin::new(&mut *acquire).poll(context))).await;
        if let Poll::Ready(got) = polled {
            return Some(got);
        }
    }
    None
}

fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Returns how many were served, gave up and timed out, in all runs.
fn check(scheduler: impl Scheduler + 'static, wait_timeout: Option<Duration>) -> [usize; 3] {
    let seen = Arc::new(RunCounts::default());
    let counted = Arc::clone(&seen);
    Runner::new(scheduler, Config::new()).run(move || run(&counted, wait_timeout));
    [&seen.served, &seen.given_up, &seen.timed_out].map(|counter| counter.load(Ordering::Relaxed))
}

#[test]
fn no_waiter_is_lost_when_a_hundred_thousand_give_up() {
    let [served, given_up, timed_out] = check(RandomScheduler::new_from_seed(1, 2_600), None);
    assert!(served > 0 && given_up >= 100_000 && timed_out == 0, "{served} {given_up} {timed_out}");
}

#[test]
fn no_waiter_is_lost_with_a_wait_timeout() {
    let [served, given_up, timed_out] =
        check(RandomScheduler::new_from_seed(2, 400), Some(Duration::from_nanos(3)));
    assert!(served > 0 && given_up > 0 && timed_out > 0, "{served} {given_up} {timed_out}");
}

#[test]
fn no_waiter_is_lost_under_priority_scheduling() {
    let [served, given_up, timed_out] = check(PctScheduler::new_from_seed(3, 3, 400), None);
    assert!(served > 0 && given_up > 0 && timed_out == 0, "{served} {given_up} {timed_out}");
}

/// A waker that holds a slot, as that of a task may.
struct Holder(#[expect(dead_code, reason = "held until it is dropped")] QueueSlot);

impl Wake for Holder {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_may_hold_a_slot_of_the_same_queue() {
    let poll = |acquire: &mut Acquire, waker: &Waker| Pin::new(acquire).poll(&mut Context::from_waker(waker));
    let follow = move || {
        let queue = Queue::new(QueueOptions::of(1));
        let acquire = || queue.acquire(SessionKey(1), Priority::default());
        let holder = || Waker::from(Arc::new(Holder(shuttle::future::block_on(acquire()).unwrap())));

        let (first, mut second) = (holder(), acquire());
        assert!(poll(&mut second, &first).is_pending());
        drop(first);
        assert!(poll(&mut second, Waker::noop()).is_pending(), "the slot comes back with the waker");
        assert!(poll(&mut second, Waker::noop()).is_ready());

        let (first, mut second) = (holder(), acquire());
        assert!(poll(&mut second, &first).is_pending());
        drop((first, second));
        assert_eq!(queue.depth().in_use, 0);
    };
    Runner::new(RandomScheduler::new_from_seed(4, 1), Config::new()).run(follow);
}
