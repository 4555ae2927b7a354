//! How many calls run at once, and who goes next.
//!
//! A queue has a number of slots. Who finds none free waits: the highest priority goes first, and whoever waits
//! gains priority with time, so that nobody starves. Within a priority sessions take turns, and within a session
//! the first to come is the first to go.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{self, Instant, Sleep};

/// How many sessions a queue knows the last turn of.
const MAX_REMEMBERED: usize = 10_000;

/// How a queue behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many calls run at once; `None` for as many as come.
    pub max_concurrency: Option<usize>,
    /// How many may wait; more are refused at once.
    pub max_waiting: usize,
    /// How long one may wait; `None` for as long as the caller does.
    pub wait_timeout: Option<Duration>,
    /// After how long a waiter counts as one priority higher.
    pub ageing: Duration,
}

impl Default for Settings {
    /// A queue without a limit.
    fn default() -> Self {
        Self {
            max_concurrency: None,
            max_waiting: 10_000,
            wait_timeout: None,
            ageing: Duration::from_secs(5),
        }
    }
}

impl Settings {
    /// A queue of so many slots, at least one.
    pub fn of(max_concurrency: usize) -> Self {
        Self { max_concurrency: Some(max_concurrency.max(1)), ..Self::default() }
    }
}

/// How urgent a call is, from −10 to 10.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(i8);

impl Priority {
    /// The priority nearest to `level`.
    pub fn new(level: i8) -> Self {
        Self(level.clamp(-10, 10))
    }

    /// The level.
    pub fn level(self) -> i8 {
        self.0
    }
}

/// Whose turn it is to be, among those of one priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(pub u64);

/// Why there is no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// Too many wait already.
    #[error("the queue is full: {waiting} calls wait already")]
    Full {
        /// How many wait.
        waiting: usize,
    },
    /// No slot became free in time.
    #[error("no slot became free within {0:?}")]
    TimedOut(Duration),
}

/// How a slot was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// How long it took; `None` if there was a free one.
    pub waited: Option<Duration>,
    /// The place in the queue at the beginning, from 1; 0 if there was a free one.
    pub place: usize,
}

/// How busy a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// How many calls may run at once; `None` for as many as come.
    pub capacity: Option<usize>,
    /// How many run.
    pub in_use: usize,
    /// How many wait.
    pub waiting: usize,
}

/// A queue. Clones are the same queue.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use pegboard_runtime::queue::{Priority, Queue, SessionKey, Settings};
///
/// let queue = Queue::new(Settings::of(1));
/// let first = queue.acquire(SessionKey(1), Priority::default()).await.unwrap();
/// let waiting = queue.acquire(SessionKey(2), Priority::new(5));
/// drop(first);
/// assert_eq!(waiting.await.unwrap().wait().place, 1);
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Queue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    settings: Settings,
    in_use: usize,
    n_waiting: usize,
    /// Those who wait, by priority and session, first come first.
    lines: BTreeMap<(Priority, SessionKey), VecDeque<Waiter>>,
    /// When each session was last served, as long as anybody waits.
    last_served: HashMap<SessionKey, u64>,
    n_arrived: u64,
    n_served: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    since: Instant,
    place: usize,
    slot: oneshot::Sender<Slot>,
}

impl Queue {
    /// A queue that nobody uses yet.
    pub fn new(settings: Settings) -> Self {
        let state = State {
            settings,
            in_use: 0,
            n_waiting: 0,
            lines: BTreeMap::new(),
            last_served: HashMap::new(),
            n_arrived: 0,
            n_served: 0,
        };
        Self(Arc::new(Shared { state: Mutex::new(state) }))
    }

    /// A slot, now or when it is this one's turn. The place in the queue is taken at once; dropping gives it up.
    pub fn acquire(&self, session: SessionKey, priority: Priority) -> Acquire {
        let mut state = self.0.state();
        if state.n_waiting == 0 && state.has_room() {
            state.in_use += 1;
            let wait = Wait { waited: None, place: 0 };
            return Acquire(Some(Acquiring::Had(Slot { shared: Arc::clone(&self.0), wait })));
        }
        if state.n_waiting >= state.settings.max_waiting {
            return Acquire(Some(Acquiring::Refused(QueueError::Full { waiting: state.n_waiting })));
        }
        let (sender, slot) = oneshot::channel();
        let (key, number) = ((priority, session), state.n_arrived);
        state.n_arrived += 1;
        state.n_waiting += 1;
        let waiter = Waiter { number, since: Instant::now(), place: state.n_waiting, slot: sender };
        state.lines.entry(key).or_default().push_back(waiter);
        let limit = state.settings.wait_timeout.map(|limit| (limit, Box::pin(time::sleep(limit))));
        Acquire(Some(Acquiring::Waiting(Waiting { shared: Arc::clone(&self.0), key, number, slot, limit })))
    }

    /// Changes the queue while it is in use: more slots are given out at once, fewer as they come back.
    pub fn resize(&self, settings: Settings) {
        self.0.change(|state| state.settings = settings);
    }

    /// How busy the queue is.
    pub fn depth(&self) -> Depth {
        let state = self.0.state();
        Depth { capacity: state.settings.max_concurrency, in_use: state.in_use, waiting: state.n_waiting }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing can panic while the lock is held and the counts do not match.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a change, and hands out whatever slots are free after it.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut State)) {
        let mut given = Vec::new();
        {
            let mut state = self.state();
            change(&mut state);
            while let Some((waiter, wait)) = state.next() {
                given.push((waiter, Slot { shared: Arc::clone(self), wait }));
            }
        }
        // Outside the lock: a slot that nobody takes comes back at once, and that takes the lock again.
        for (waiter, slot) in given {
            drop(waiter.slot.send(slot));
        }
    }
}

impl State {
    fn has_room(&self) -> bool {
        self.settings.max_concurrency.is_none_or(|capacity| self.in_use < capacity.max(1))
    }

    /// Takes a free slot for whoever goes next.
    fn next(&mut self) -> Option<(Waiter, Wait)> {
        if self.n_waiting == 0 || !self.has_room() {
            return None;
        }
        let now = Instant::now();
        let urgency = |(key, line): (&(Priority, SessionKey), &VecDeque<Waiter>)| {
            let first = line.front()?;
            let aged = aged(key.0, now.duration_since(first.since), self.settings.ageing);
            let last_served = self.last_served.get(&key.1).copied().unwrap_or_default();
            // The most urgent, then the session that was served longest ago, then the one that came first.
            Some(((aged, std::cmp::Reverse(last_served), std::cmp::Reverse(first.number)), *key))
        };
        let (_, key) = self.lines.iter().filter_map(urgency).max_by_key(|(urgency, _)| *urgency)?;
        let waiter = self.lines.get_mut(&key)?.pop_front()?;
        self.n_waiting -= 1;
        self.in_use += 1;
        self.n_served += 1;
        self.last_served.insert(key.1, self.n_served);
        self.forget(key);
        let wait = Wait { waited: Some(now.duration_since(waiter.since)), place: waiter.place };
        Some((waiter, wait))
    }

    /// A waiter that has given up leaves at once.
    fn leave(&mut self, key: (Priority, SessionKey), number: u64) {
        let Some(line) = self.lines.get_mut(&key) else { return };
        let Some(at) = line.iter().position(|waiter| waiter.number == number) else { return };
        line.remove(at);
        self.n_waiting -= 1;
        self.forget(key);
    }

    /// Forgets a line that is empty, and turns that nobody needs to know any more.
    fn forget(&mut self, key: (Priority, SessionKey)) {
        if self.lines.get(&key).is_some_and(VecDeque::is_empty) {
            self.lines.remove(&key);
        }
        // A session keeps its turn while it is away for a moment, but not all sessions there ever were.
        if self.n_waiting == 0 {
            self.last_served.clear();
        } else if self.last_served.len() > MAX_REMEMBERED {
            let lines = &self.lines;
            self.last_served.retain(|session, _| lines.keys().any(|(_, waiting)| waiting == session));
        }
    }
}

/// A priority after some time: one level for each time that the ageing takes.
fn aged(priority: Priority, waited: Duration, ageing: Duration) -> u64 {
    let levels = if ageing.is_zero() { 0 } else { waited.as_nanos() / ageing.as_nanos() };
    let base = u64::try_from(i16::from(priority.level()) + 10).unwrap_or_default();
    base.saturating_add(u64::try_from(levels).unwrap_or(u64::MAX))
}

/// The right to run one call. Dropping it lets the next one go.
#[derive(Debug)]
pub struct Slot {
    shared: Arc<Shared>,
    wait: Wait,
}

impl Slot {
    /// How it was had.
    pub fn wait(&self) -> Wait {
        self.wait
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shared.change(|state| state.in_use -= 1);
    }
}

/// A slot to come. Dropping it gives the place in the queue up.
#[derive(Debug)]
pub struct Acquire(Option<Acquiring>);

#[derive(Debug)]
enum Acquiring {
    Had(Slot),
    Refused(QueueError),
    Waiting(Waiting),
}

#[derive(Debug)]
struct Waiting {
    shared: Arc<Shared>,
    key: (Priority, SessionKey),
    number: u64,
    slot: oneshot::Receiver<Slot>,
    limit: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl Future for Acquire {
    type Output = Result<Slot, QueueError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.0.take() {
            Some(Acquiring::Had(slot)) => Poll::Ready(Ok(slot)),
            Some(Acquiring::Refused(error)) => Poll::Ready(Err(error)),
            Some(Acquiring::Waiting(mut waiting)) => {
                let polled = waiting.poll(context);
                if polled.is_pending() {
                    self.0 = Some(Acquiring::Waiting(waiting));
                }
                polled
            }
            None => panic!("a slot is acquired once"),
        }
    }
}

impl Waiting {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Slot, QueueError>> {
        if let Poll::Ready(given) = Pin::new(&mut self.slot).poll(context) {
            // The queue keeps the sender until it gives the slot, so there is one.
            return Poll::Ready(given.map_err(|_| QueueError::Full { waiting: 0 }));
        }
        if let Some((limit, sleep)) = &mut self.limit
            && sleep.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(QueueError::TimedOut(*limit)));
        }
        Poll::Pending
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // If the slot was given in the meantime it is dropped with the receiver, and goes to the next.
        self.shared.state().leave(self.key, self.number);
    }
}
