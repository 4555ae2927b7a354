//! The queue under all kinds of orders of events: its own code, with locks that a scheduler decides about.
//!
//! A wake-up that is lost leaves everybody waiting, which the scheduler reports as a deadlock.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::future::{self, Future};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use pegboard_runtime::queue::{Depth, Priority, QueueError, SessionKey, Settings, Wait};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

use self::slots::{Acquire, Queue, Slot};

#[expect(unreachable_pub, reason = "public in the library, where the file belongs")]
#[path = "../src/queue/slots.rs"]
mod slots;
#[path = "../src/queue/turns.rs"]
mod turns;

/// What the queue locks and waits with here.
mod sync {
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    pub(super) use shuttle::sync::{Mutex, MutexGuard};

    /// A time that is over after as many looks at it as it has nanoseconds.
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
const MOST_SLOTS: usize = 2;

/// What happened in all the runs of a check.
#[derive(Default)]
struct Seen {
    served: AtomicUsize,
    given_up: AtomicUsize,
    timed_out: AtomicUsize,
}

/// One run: tasks that come, give up and go as chance has it, while the queue grows and shrinks.
fn run(seen: &Arc<Seen>, wait_timeout: Option<Duration>) {
    // Nobody ages, so that a run does not depend on the clock.
    let of = move |n_slots| Settings { wait_timeout, ageing: Duration::ZERO, ..Settings::of(n_slots) };
    let queue = Queue::new(of(1));
    let running = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..N_TASKS as u64)
        .map(|session| {
            shuttle::future::spawn(visit(queue.clone(), session, Arc::clone(&running), Arc::clone(seen)))
        })
        .collect();
    for _ in 0..N_ROUNDS {
        queue.resize(of(thread_rng().gen_range(1..=MOST_SLOTS)));
        let Depth { capacity, in_use, waiting } = queue.depth();
        assert!(waiting == 0 || Some(in_use) >= capacity, "a slot is idle while {waiting} wait");
    }
    for task in tasks {
        shuttle::future::block_on(task).unwrap();
    }
    let Depth { in_use, waiting, .. } = queue.depth();
    assert_eq!((in_use, waiting), (0, 0));
}

async fn visit(queue: Queue, session: u64, running: Arc<AtomicUsize>, seen: Arc<Seen>) {
    for _ in 0..N_ROUNDS {
        let priority = Priority::new(thread_rng().gen_range(-1..=1));
        let mut acquire = queue.acquire(SessionKey(session), priority);
        assert!(acquire.place().is_none_or(|place| (1..=N_TASKS).contains(&place)));
        // Some stay until the end, so that a wake-up that is lost is noticed.
        let got = match thread_rng().gen_range(0..10) {
            0 => Some(acquire.await),
            n_looks => look(&mut acquire, n_looks / 4).await,
        };
        match got {
            Some(Ok(slot)) => {
                assert!(slot.wait().place < N_TASKS, "one who has a slot does not wait");
                assert!(
                    running.fetch_add(1, Ordering::Relaxed) < MOST_SLOTS,
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

/// Looks for the slot so many times; `None` if it never came.
async fn look(acquire: &mut Acquire, n_looks: u8) -> Option<Result<Slot, QueueError>> {
    for n in 0..n_looks {
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

/// How many were served, gave up and waited too long, in all runs.
fn check(scheduler: impl Scheduler + 'static, wait_timeout: Option<Duration>) -> [usize; 3] {
    let seen = Arc::new(Seen::default());
    let counted = Arc::clone(&seen);
    Runner::new(scheduler, Config::new()).run(move || run(&counted, wait_timeout));
    [&seen.served, &seen.given_up, &seen.timed_out].map(|counter| counter.load(Ordering::Relaxed))
}

#[test]
fn a_hundred_thousand_give_up_and_nobody_is_forgotten() {
    let [served, given_up, timed_out] = check(RandomScheduler::new_from_seed(1, 2_600), None);
    assert!(served > 0 && given_up >= 100_000 && timed_out == 0, "{served} {given_up} {timed_out}");
}

#[test]
fn nobody_is_forgotten_when_waiting_has_an_end() {
    let [served, given_up, timed_out] =
        check(RandomScheduler::new_from_seed(2, 400), Some(Duration::from_nanos(3)));
    assert!(served > 0 && given_up > 0 && timed_out > 0, "{served} {given_up} {timed_out}");
}

#[test]
fn nobody_is_forgotten_when_few_tasks_hold_all_others_up() {
    let [served, given_up, timed_out] = check(PctScheduler::new_from_seed(3, 3, 400), None);
    assert!(served > 0 && given_up > 0 && timed_out == 0, "{served} {given_up} {timed_out}");
}

/// A waker that holds a slot, as that of a task may.
struct Holder(#[expect(dead_code, reason = "held until it is dropped")] Slot);

impl Wake for Holder {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_may_hold_a_slot_of_the_same_queue() {
    let poll = |acquire: &mut Acquire, waker: &Waker| Pin::new(acquire).poll(&mut Context::from_waker(waker));
    let follow = move || {
        let queue = Queue::new(Settings::of(1));
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
