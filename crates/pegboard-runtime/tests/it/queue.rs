//! Queue scheduling.

use std::time::Duration;

use pegboard_runtime::queue::{
    Acquire, Priority, Queue, QueueDepth, QueueError, QueueOptions, QueueSlot, SessionKey,
};
use proptest::prelude::*;
use tokio::time;

fn acquire(queue: &Queue, session: u64, priority: i8) -> Acquire {
    queue.acquire(SessionKey(session), Priority::new(priority))
}

fn depth(queue: &Queue) -> (usize, usize) {
    let QueueDepth { in_use, waiting, .. } = queue.depth();
    (in_use, waiting)
}

/// Returns the names of the waiters, in the order in which they get the one slot.
async fn order(queue: &Queue, first: QueueSlot, waiting: Vec<(&'static str, Acquire)>) -> Vec<&'static str> {
    let (done, mut finished) = tokio::sync::mpsc::unbounded_channel();
    for (name, acquire) in waiting {
        let done = done.clone();
        tokio::spawn(async move {
            let slot = acquire.await.unwrap();
            done.send(name).unwrap();
            drop(slot);
        });
    }
    drop((first, done));
    let mut names = Vec::new();
    while let Some(name) = finished.recv().await {
        names.push(name);
    }
    assert_eq!(depth(queue), (0, 0));
    names
}

#[tokio::test]
async fn three_calls_on_one_slot_run_in_order_of_arrival() {
    let queue = Queue::new(QueueOptions::of(1));
    let first = acquire(&queue, 1, 0).await.unwrap();
    assert_eq!((first.wait().waited, first.wait().position), (None, 0));
    let (second, third) = (acquire(&queue, 1, 0), acquire(&queue, 1, 0));
    assert_eq!(depth(&queue), (1, 2));
    drop(first);
    let second = second.await.unwrap();
    assert_eq!(second.wait().position, 1);
    assert!(second.wait().waited.is_some());
    drop(second);
    assert_eq!(third.await.unwrap().wait().position, 2);
    assert_eq!(depth(&queue), (0, 0));
}

#[tokio::test]
async fn a_waiter_that_gives_up_leaves_at_once_and_leaks_nothing() {
    let queue = Queue::new(QueueOptions::of(1));
    let first = acquire(&queue, 1, 0).await.unwrap();
    let second = acquire(&queue, 1, 0);
    let third = acquire(&queue, 1, 0);
    drop(second);
    assert_eq!(depth(&queue), (1, 1));
    drop(first);
    drop(third.await.unwrap());
    assert_eq!(depth(&queue), (0, 0));
}

#[tokio::test]
async fn a_slot_granted_to_a_dropped_waiter_passes_to_the_next() {
    let queue = Queue::new(QueueOptions::of(1));
    let first = acquire(&queue, 1, 0).await.unwrap();
    let (second, third) = (acquire(&queue, 1, 0), acquire(&queue, 1, 0));
    drop(first);
    drop(second);
    drop(third.await.unwrap());
    assert_eq!(depth(&queue), (0, 0));
}

#[tokio::test]
async fn higher_priority_goes_first_and_sessions_take_turns() {
    let queue = Queue::new(QueueOptions::of(1));
    let first = acquire(&queue, 1, 0).await.unwrap();
    let waiting = vec![
        ("a1", acquire(&queue, 1, 0)),
        ("a2", acquire(&queue, 1, 0)),
        ("a3", acquire(&queue, 1, 0)),
        ("b1", acquire(&queue, 2, 0)),
        ("b2", acquire(&queue, 2, 0)),
        ("urgent", acquire(&queue, 1, 5)),
        ("lazy", acquire(&queue, 3, -5)),
    ];
    assert_eq!(order(&queue, first, waiting).await, ["urgent", "b1", "a1", "b2", "a2", "a3", "lazy"]);
}

#[tokio::test(start_paused = true)]
async fn no_waiter_starves() {
    let queue = Queue::new(QueueOptions { ageing: Duration::from_secs(1), ..QueueOptions::of(1) });
    let first = acquire(&queue, 1, 0).await.unwrap();
    let patient = acquire(&queue, 1, -10);
    time::advance(Duration::from_secs(11)).await;
    let waiting = vec![("patient", patient), ("newcomer", acquire(&queue, 2, 0))];
    assert_eq!(order(&queue, first, waiting).await, ["patient", "newcomer"]);
}

#[tokio::test(start_paused = true)]
async fn waiting_time_and_queue_length_are_limited() {
    let settings =
        QueueOptions { wait_timeout: Some(Duration::from_secs(3)), max_waiting: 1, ..QueueOptions::of(1) };
    let queue = Queue::new(settings);
    let _first = acquire(&queue, 1, 0).await.unwrap();
    let second = acquire(&queue, 1, 0);
    assert_eq!(acquire(&queue, 1, 10).await.unwrap_err(), QueueError::Full { waiting: 1 });
    assert_eq!(second.await.unwrap_err(), QueueError::TimedOut(Duration::from_secs(3)));
    assert_eq!(depth(&queue), (1, 0));
}

#[tokio::test]
async fn a_queue_grows_and_shrinks_while_it_is_used() {
    let queue = Queue::new(QueueOptions::of(1));
    let mut slots = vec![acquire(&queue, 1, 0).await.unwrap()];
    let waiting = [acquire(&queue, 1, 0), acquire(&queue, 1, 0), acquire(&queue, 1, 0)];
    queue.resize(QueueOptions::of(3));
    assert_eq!(depth(&queue), (3, 1));
    for acquire in waiting.into_iter().take(2) {
        slots.push(acquire.await.unwrap());
    }
    queue.resize(QueueOptions::of(1));
    let late = acquire(&queue, 1, 0);
    slots.pop();
    slots.pop();
    assert_eq!(depth(&queue), (1, 1), "two came back, and none was given out");
    slots.pop();
    drop(late.await.unwrap());
    assert_eq!(depth(&queue), (0, 0));
}

#[tokio::test]
async fn an_unlimited_queue_never_waits() {
    let queue = Queue::new(QueueOptions::default());
    let slots: Vec<QueueSlot> = futures(1_000, &queue).await;
    assert_eq!(depth(&queue), (1_000, 0));
    drop(slots);
    assert_eq!(depth(&queue), (0, 0));
}

async fn futures(n: usize, queue: &Queue) -> Vec<QueueSlot> {
    let mut slots = Vec::new();
    for _ in 0..n {
        slots.push(acquire(queue, 1, 0).await.unwrap());
    }
    slots
}

/// One event in the life of a queue.
#[derive(Clone, Debug)]
enum Step {
    Acquire { session: u64, priority: i8 },
    Release(usize),
    GiveUp(usize),
    Poll(usize),
    Resize(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_u64, -2..3_i8).prop_map(|(session, priority)| Step::Acquire { session, priority }),
        3 => any::<usize>().prop_map(Step::Release),
        2 => any::<usize>().prop_map(Step::GiveUp),
        3 => any::<usize>().prop_map(Step::Poll),
        1 => (1..5_usize).prop_map(Step::Resize),
    ]
}

proptest! {
    #[test]
    fn no_slot_is_lost_and_none_is_idle(steps in prop::collection::vec(step(), 1..300)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let queue = Queue::new(QueueOptions::of(2));
            let (mut capacity, mut held, mut waiting) = (2, Vec::<QueueSlot>::new(), Vec::<Acquire>::new());
            for step in steps {
                match step {
                    Step::Acquire { session, priority } => waiting.push(acquire(&queue, session, priority)),
                    Step::Release(n) if !held.is_empty() => drop(held.swap_remove(n % held.len())),
                    Step::GiveUp(n) if !waiting.is_empty() => drop(waiting.swap_remove(n % waiting.len())),
                    Step::Poll(n) if !waiting.is_empty() => {
                        let at = n % waiting.len();
                        if let std::task::Poll::Ready(slot) = futures_poll(&mut waiting[at]).await {
                            held.push(slot.unwrap());
                            drop(waiting.swap_remove(at));
                        }
                    }
                    Step::Resize(n) => {
                        capacity = n;
                        queue.resize(QueueOptions::of(n));
                    }
                    Step::Release(_) | Step::GiveUp(_) | Step::Poll(_) => {}
                }
                let (in_use, n_waiting) = depth(&queue);
                assert!(n_waiting == 0 || in_use >= capacity, "{in_use} of {capacity} in use while {n_waiting} wait");
                assert!(in_use >= held.len() && in_use <= held.len() + waiting.len());
            }
            drop((held, waiting));
            assert_eq!(depth(&queue), (0, 0));
        });
    }
}

/// Polls once.
async fn futures_poll(acquire: &mut Acquire) -> std::task::Poll<Result<QueueSlot, QueueError>> {
    let mut acquire = std::pin::Pin::new(acquire);
    std::future::poll_fn(|context| std::task::Poll::Ready(acquire.as_mut().poll(context))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_thousand_cancellations_leak_no_slot() {
    let queue = Queue::new(QueueOptions { max_waiting: usize::MAX, ..QueueOptions::of(4) });
    let tasks: Vec<_> = (0..8_u64)
        .map(|session| {
            let queue = queue.clone();
            tokio::spawn(async move {
                for n in 0..12_500_u64 {
                    let priority = i8::try_from(n % 3).unwrap();
                    let mut waiting = acquire(&queue, session, priority);
                    match futures_poll(&mut waiting).await {
                        std::task::Poll::Ready(slot) => {
                            let slot = slot.unwrap();
                            if n % 7 == 0 {
                                tokio::task::yield_now().await;
                            }
                            drop(slot);
                        }
                        std::task::Poll::Pending if n % 5 == 0 => drop(waiting.await.unwrap()),
                        std::task::Poll::Pending => drop(waiting),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(depth(&queue), (0, 0));
}
