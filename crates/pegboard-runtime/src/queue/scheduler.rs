//! The scheduler of a queue: slots in use, waiters, and the choice of the next one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::iter;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::{Priority, QueueDepth, QueueError, QueueOptions, SessionKey, SlotWait};

/// Maximum number of sessions for which the last service is remembered, when few are waiting.
const MAX_REMEMBERED_SESSIONS: usize = 10_000;

/// State of a queue. Invariant: no slot is free while a call is waiting.
#[derive(Debug)]
pub(super) struct QueueScheduler {
    settings: QueueOptions,
    in_use: usize,
    waiting: BTreeMap<WaiterKey, Waiter>,
    /// Candidates by priority. A priority that was used once stays: there are few.
    heads: BTreeMap<Priority, SessionHeads>,
    /// Granted slots that are not collected yet, by waiter number.
    granted: BTreeMap<u64, SlotWait>,
    /// Sequence number at which each session was last served; kept while calls are waiting.
    last_served: HashMap<SessionKey, u64>,
    n_arrived: u64,
    n_served: u64,
}

/// Key of a waiter. Waiters of one session and priority are adjacent, in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaiterKey {
    session: SessionKey,
    priority: Priority,
    number: u64,
}

/// A waiting call.
#[derive(Debug)]
pub(super) struct Waiter {
    since: Instant,
    position: usize,
    waker: Option<Waker>,
}

impl QueueScheduler {
    pub(super) fn new(settings: QueueOptions) -> Self {
        Self {
            settings,
            in_use: 0,
            waiting: BTreeMap::new(),
            heads: BTreeMap::new(),
            granted: BTreeMap::new(),
            last_served: HashMap::new(),
            n_arrived: 0,
            n_served: 0,
        }
    }

    pub(super) fn depth(&self) -> QueueDepth {
        QueueDepth {
            capacity: self.settings.max_concurrency,
            in_use: self.in_use,
            waiting: self.waiting.len(),
        }
    }

    /// Takes a free slot, if no call is waiting.
    pub(super) fn try_take(&mut self) -> Option<SlotWait> {
        if !self.waiting.is_empty() || !self.has_free_slot() {
            return None;
        }
        self.in_use += 1;
        Some(SlotWait { waited: None, position: 0 })
    }

    /// Adds a waiter; returns its key, position and time limit.
    pub(super) fn enqueue(
        &mut self,
        session: SessionKey,
        priority: Priority,
    ) -> Result<(WaiterKey, usize, Option<Duration>), QueueError> {
        let waiting = self.waiting.len();
        if waiting >= self.settings.max_waiting {
            return Err(QueueError::Full { waiting });
        }
        let key = WaiterKey { session, priority, number: self.n_arrived };
        self.n_arrived += 1;
        let position = waiting + 1;
        self.waiting.insert(key, Waiter { since: Instant::now(), position, waker: None });
        self.heads.entry(priority).or_default();
        self.update_head(key);
        Ok((key, position, self.settings.wait_timeout))
    }

    /// Takes the slot granted to a waiter, if any.
    pub(super) fn take_granted(&mut self, key: WaiterKey) -> Option<SlotWait> {
        self.granted.remove(&key.number)
    }

    /// Registers the waker of a waiter; returns the one it replaces.
    pub(super) fn register_waker(&mut self, key: WaiterKey, waker: &Waker) -> Option<Waker> {
        let waiter = self.waiting.get_mut(&key)?;
        if waiter.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            return None;
        }
        waiter.waker.replace(waker.clone())
    }

    /// Removes a waiter that gave up.
    pub(super) fn remove_waiter(&mut self, key: WaiterKey) -> Option<Waiter> {
        let waiter = self.waiting.remove(&key)?;
        self.update_head(key);
        self.prune_sessions();
        Some(waiter)
    }

    /// Releases a slot and grants it to the next waiter; returns the waker.
    pub(super) fn release(&mut self) -> Option<Waker> {
        self.in_use -= 1;
        self.grant_next()?.waker
    }

    /// Changes the options; returns the wakers of waiters that were granted a slot.
    pub(super) fn resize(&mut self, settings: QueueOptions) -> Vec<Waker> {
        self.settings = settings;
        iter::from_fn(|| self.grant_next()).filter_map(|waiter| waiter.waker).collect()
    }

    fn has_free_slot(&self) -> bool {
        self.settings.max_concurrency.is_none_or(|capacity| self.in_use < capacity.max(1))
    }

    /// Grants a free slot to the next waiter.
    fn grant_next(&mut self) -> Option<Waiter> {
        if self.waiting.is_empty() || !self.has_free_slot() {
            return None;
        }
        let now = Instant::now();
        let urgency = |(priority, heads): (&Priority, &SessionHeads)| {
            let (levels, head) = heads.first(now, self.settings.ageing)?;
            let key = WaiterKey { session: head.session, priority: *priority, number: head.number };
            // Most urgent first, then the session served longest ago, then the earliest arrival.
            Some(((effective_priority(*priority, levels), Reverse(head.service_order())), key))
        };
        let (_, key) = self.heads.iter().filter_map(urgency).max_by_key(|(urgency, _)| *urgency)?;
        let waiter = self.waiting.remove(&key)?;
        self.in_use += 1;
        self.n_served += 1;
        self.last_served.insert(key.session, self.n_served);
        let wait = SlotWait { waited: Some(now.duration_since(waiter.since)), position: waiter.position };
        self.granted.insert(key.number, wait);
        self.update_head(key);
        self.prune_sessions();
        Some(waiter)
    }

    /// Updates the head of a session in every priority, after a waiter was added or removed.
    fn update_head(&mut self, WaiterKey { session, number, .. }: WaiterKey) {
        let last_served = self.last_served.get(&session).copied().unwrap_or_default();
        for (&priority, heads) in &mut self.heads {
            heads.remove(number);
            let line = WaiterKey { session, priority, number: 0 }..=WaiterKey {
                session,
                priority,
                number: u64::MAX,
            };
            if let Some((key, waiter)) = self.waiting.range(line).next() {
                heads.put(SessionHead { session, number: key.number, since: waiter.since, last_served });
            }
        }
    }

    /// Drops service records that are no longer needed.
    fn prune_sessions(&mut self) {
        // A session keeps its record while it is briefly absent, but the table must not grow without bound.
        // At least half of the records are dropped at once, so that full scans are rare.
        if self.waiting.is_empty() {
            self.last_served.clear();
        } else if self.last_served.len() > MAX_REMEMBERED_SESSIONS.max(self.waiting.len().saturating_mul(2)) {
            let waiting = &self.waiting;
            self.last_served.retain(|&session, _| {
                let first = WaiterKey { session, priority: Priority::new(i8::MIN), number: 0 };
                waiting.range(first..).next().is_some_and(|(key, _)| key.session == session)
            });
        }
    }
}

/// The first waiter of every session in one priority.
#[derive(Debug, Default)]
struct SessionHeads {
    /// By number, which is by age.
    by_age: BTreeMap<u64, SessionHead>,
    by_service_order: BTreeMap<(u64, u64), SessionHead>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SessionHead {
    session: SessionKey,
    number: u64,
    since: Instant,
    last_served: u64,
}

impl SessionHead {
    /// Order among waiters of equal urgency: lowest first.
    fn service_order(&self) -> (u64, u64) {
        (self.last_served, self.number)
    }
}

impl SessionHeads {
    fn remove(&mut self, number: u64) {
        if let Some(head) = self.by_age.remove(&number) {
            self.by_service_order.remove(&head.service_order());
        }
    }

    /// Adds a head, or updates its order.
    fn put(&mut self, head: SessionHead) {
        if let Some(before) = self.by_age.insert(head.number, head) {
            self.by_service_order.remove(&before.service_order());
        }
        self.by_service_order.insert(head.service_order(), head);
    }

    /// Returns the next head among those that gained the most priority levels by waiting, and the number of
    /// levels.
    fn first(&self, now: Instant, ageing: Duration) -> Option<(u128, SessionHead)> {
        let waited = |head: &SessionHead| now.duration_since(head.since).as_nanos();
        let (_, &oldest) = self.by_age.first_key_value()?;
        let levels = waited(&oldest).checked_div(ageing.as_nanos()).unwrap_or_default();
        let needed = levels * ageing.as_nanos();
        let mut first = oldest;
        // Either many heads have gained as much, and one is found early in service order, or few have, and
        // all are seen early in age order. Walking both orders in step is fast in either case.
        for (by_service_order, by_age) in self.by_service_order.values().zip(self.by_age.values()) {
            if waited(by_service_order) >= needed {
                return Some((levels, *by_service_order));
            }
            if waited(by_age) < needed {
                break;
            }
            if by_age.service_order() < first.service_order() {
                first = *by_age;
            }
        }
        Some((levels, first))
    }
}

/// Returns the urgency of a priority after gaining some levels.
fn effective_priority(priority: Priority, levels: u128) -> u128 {
    levels + u128::from((priority.level() + 10).unsigned_abs())
}
