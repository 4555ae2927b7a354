//! The scheduler chooses the same waiter as the plain rule.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pegboard_runtime::queue::{Acquire, Priority, Queue, QueueOptions, QueueSlot, SessionKey};
use proptest::prelude::*;
use tokio::time::{self, Instant};

const AGEING: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
enum Step {
    Arrive { session: u64, priority: i8 },
    Serve,
    GiveUp(usize),
    Advance { milliseconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..8_u64, -3..4_i8).prop_map(|(session, priority)| Step::Arrive { session, priority }),
        4 => Just(Step::Serve),
        1 => any::<usize>().prop_map(Step::GiveUp),
        3 => (0..25_u64).prop_map(|milliseconds| Step::Advance { milliseconds }),
    ]
}

struct Waiter {
    number: usize,
    session: u64,
    priority: i8,
    since: Instant,
    acquire: Acquire,
}

/// The waiters of one slot, and the rule in its plainest form.
#[derive(Default)]
struct Model {
    waiting: Vec<Waiter>,
    last_served: HashMap<u64, usize>,
    n_served: usize,
}

impl Model {
    fn remove(&mut self, at: usize) -> Waiter {
        let waiter = self.waiting.remove(at);
        if self.waiting.is_empty() {
            self.last_served.clear();
        }
        waiter
    }

    /// Removes the next waiter.
    fn next(&mut self) -> Option<Waiter> {
        let urgency = |waiter: &Waiter| {
            let levels = waiter.since.elapsed().as_millis() / AGEING.as_millis();
            let aged = i128::from(waiter.priority) + i128::try_from(levels).unwrap();
            let last_served = self.last_served.get(&waiter.session).copied().unwrap_or_default();
            (aged, Reverse(last_served), Reverse(waiter.number))
        };
        let (at, next) = self.waiting.iter().enumerate().max_by_key(|(_, waiter)| urgency(waiter))?;
        self.n_served += 1;
        self.last_served.insert(next.session, self.n_served);
        Some(self.remove(at))
    }
}

fn poll(acquire: &mut Acquire) -> Option<QueueSlot> {
    match Pin::new(acquire).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(slot) => Some(slot.unwrap()),
        Poll::Pending => None,
    }
}

async fn run_steps(steps: Vec<Step>) {
    let queue = Queue::new(QueueOptions { ageing: AGEING, ..QueueOptions::of(1) });
    let mut held = queue.acquire(SessionKey(0), Priority::default()).await.unwrap();
    let mut model = Model::default();
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Arrive { session, priority } => {
                let acquire = queue.acquire(SessionKey(session), Priority::new(priority));
                model.waiting.push(Waiter { number, session, priority, since: Instant::now(), acquire });
            }
            Step::Serve => {
                if let Some(mut next) = model.next() {
                    drop(held);
                    held = poll(&mut next.acquire).expect("the slot goes to whom the rule says");
                }
            }
            Step::GiveUp(n) if !model.waiting.is_empty() => drop(model.remove(n % model.waiting.len())),
            Step::GiveUp(_) => {}
            Step::Advance { milliseconds } => time::advance(Duration::from_millis(milliseconds)).await,
        }
        assert_eq!(queue.depth().waiting, model.waiting.len());
    }
}

proptest! {
    #[test]
    fn the_next_waiter_follows_the_rule(steps in prop::collection::vec(step(), 1..300)) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap().block_on(run_steps(steps));
    }
}
