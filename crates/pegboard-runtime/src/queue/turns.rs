//! Who has a slot, who waits, and who goes next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::iter;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::{Depth, Priority, QueueError, SessionKey, Settings, Wait};

/// How many sessions a queue knows the last turn of, when few wait.
const MAX_REMEMBERED: usize = 10_000;

/// The state of a queue. It never leaves a slot free while somebody waits.
#[derive(Debug)]
pub(super) struct State {
    settings: Settings,
    in_use: usize,
    waiting: BTreeMap<Ticket, Waiter>,
    /// Who may be next, by priority. A priority that was used once stays: there are few.
    fronts: BTreeMap<Priority, Fronts>,
    /// The slots that nobody has come for yet, by the number of the ticket.
    given: BTreeMap<u64, Wait>,
    /// When each session was last served, as long as anybody waits.
    last_served: HashMap<SessionKey, u64>,
    n_arrived: u64,
    n_served: u64,
}

/// Which waiter it is. Those of one session and priority are neighbours, the first to come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket {
    session: SessionKey,
    priority: Priority,
    number: u64,
}

/// One who waits.
#[derive(Debug)]
pub(super) struct Waiter {
    since: Instant,
    place: usize,
    waker: Option<Waker>,
}

impl State {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            in_use: 0,
            waiting: BTreeMap::new(),
            fronts: BTreeMap::new(),
            given: BTreeMap::new(),
            last_served: HashMap::new(),
            n_arrived: 0,
            n_served: 0,
        }
    }

    pub(super) fn depth(&self) -> Depth {
        Depth { capacity: self.settings.max_concurrency, in_use: self.in_use, waiting: self.waiting.len() }
    }

    /// Takes a slot that is free, if nobody waits for it.
    pub(super) fn take(&mut self) -> Option<Wait> {
        if !self.waiting.is_empty() || !self.has_room() {
            return None;
        }
        self.in_use += 1;
        Some(Wait { waited: None, place: 0 })
    }

    /// Takes a place in the queue, and says for how long.
    pub(super) fn enter(
        &mut self,
        session: SessionKey,
        priority: Priority,
    ) -> Result<(Ticket, usize, Option<Duration>), QueueError> {
        let waiting = self.waiting.len();
        if waiting >= self.settings.max_waiting {
            return Err(QueueError::Full { waiting });
        }
        let ticket = Ticket { session, priority, number: self.n_arrived };
        self.n_arrived += 1;
        let place = waiting + 1;
        self.waiting.insert(ticket, Waiter { since: Instant::now(), place, waker: None });
        self.fronts.entry(priority).or_default();
        self.line_up(ticket);
        Ok((ticket, place, self.settings.wait_timeout))
    }

    /// Takes the slot that was given to a ticket, if it was.
    pub(super) fn collect(&mut self, ticket: Ticket) -> Option<Wait> {
        self.given.remove(&ticket.number)
    }

    /// Remembers whom to wake when a ticket is given its slot. The waker it takes the place of comes back.
    pub(super) fn watch(&mut self, ticket: Ticket, waker: &Waker) -> Option<Waker> {
        let waiter = self.waiting.get_mut(&ticket)?;
        if waiter.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            return None;
        }
        waiter.waker.replace(waker.clone())
    }

    /// Gives a place in the queue up, if it still is one.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiter = self.waiting.remove(&ticket)?;
        self.line_up(ticket);
        self.forget();
        Some(waiter)
    }

    /// Takes a slot back, and gives it to whoever goes next, who is to be woken.
    pub(super) fn release(&mut self) -> Option<Waker> {
        self.in_use -= 1;
        self.next()?.waker
    }

    /// Changes the settings. Those who have a slot by that are to be woken.
    pub(super) fn resize(&mut self, settings: Settings) -> Vec<Waker> {
        self.settings = settings;
        iter::from_fn(|| self.next()).filter_map(|waiter| waiter.waker).collect()
    }

    fn has_room(&self) -> bool {
        self.settings.max_concurrency.is_none_or(|capacity| self.in_use < capacity.max(1))
    }

    /// Gives a free slot to whoever goes next.
    fn next(&mut self) -> Option<Waiter> {
        if self.waiting.is_empty() || !self.has_room() {
            return None;
        }
        let now = Instant::now();
        let urgency = |(priority, fronts): (&Priority, &Fronts)| {
            let (levels, front) = fronts.first(now, self.settings.ageing)?;
            let ticket = Ticket { session: front.session, priority: *priority, number: front.number };
            // The most urgent, then the session that was served longest ago, then the one that came first.
            Some(((aged(*priority, levels), Reverse(front.turn())), ticket))
        };
        let (_, ticket) = self.fronts.iter().filter_map(urgency).max_by_key(|(urgency, _)| *urgency)?;
        let waiter = self.waiting.remove(&ticket)?;
        self.in_use += 1;
        self.n_served += 1;
        self.last_served.insert(ticket.session, self.n_served);
        let wait = Wait { waited: Some(now.duration_since(waiter.since)), place: waiter.place };
        self.given.insert(ticket.number, wait);
        self.line_up(ticket);
        self.forget();
        Some(waiter)
    }

    /// Puts the first of a session in front, in every priority that it waits in, after one came or went.
    fn line_up(&mut self, Ticket { session, number, .. }: Ticket) {
        let last_served = self.last_served.get(&session).copied().unwrap_or_default();
        for (&priority, fronts) in &mut self.fronts {
            fronts.remove(number);
            let line =
                Ticket { session, priority, number: 0 }..=Ticket { session, priority, number: u64::MAX };
            if let Some((ticket, waiter)) = self.waiting.range(line).next() {
                fronts.put(Front { session, number: ticket.number, since: waiter.since, last_served });
            }
        }
    }

    /// Forgets turns that nobody needs to know any more.
    fn forget(&mut self) {
        // A session keeps its turn while it is away for a moment, but not all sessions there ever were. At least
        // half of them go at a time, so that going through all of them is rare.
        if self.waiting.is_empty() {
            self.last_served.clear();
        } else if self.last_served.len() > MAX_REMEMBERED.max(self.waiting.len().saturating_mul(2)) {
            let waiting = &self.waiting;
            self.last_served.retain(|&session, _| {
                let first = Ticket { session, priority: Priority::new(i8::MIN), number: 0 };
                waiting.range(first..).next().is_some_and(|(ticket, _)| ticket.session == session)
            });
        }
    }
}

/// The first of every session that waits in one priority.
#[derive(Debug, Default)]
struct Fronts {
    /// By number, which is by age.
    by_age: BTreeMap<u64, Front>,
    by_turn: BTreeMap<(u64, u64), Front>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Front {
    session: SessionKey,
    number: u64,
    since: Instant,
    last_served: u64,
}

impl Front {
    /// Who comes first among those of the same urgency: the least.
    fn turn(&self) -> (u64, u64) {
        (self.last_served, self.number)
    }
}

impl Fronts {
    fn remove(&mut self, number: u64) {
        if let Some(front) = self.by_age.remove(&number) {
            self.by_turn.remove(&front.turn());
        }
    }

    /// Adds one, or takes note of its new turn.
    fn put(&mut self, front: Front) {
        if let Some(before) = self.by_age.insert(front.number, front) {
            self.by_turn.remove(&before.turn());
        }
        self.by_turn.insert(front.turn(), front);
    }

    /// Whose turn it is among those who gained most levels of priority by waiting, and how many levels those are.
    fn first(&self, now: Instant, ageing: Duration) -> Option<(u128, Front)> {
        let waited = |front: &Front| now.duration_since(front.since).as_nanos();
        let (_, &oldest) = self.by_age.first_key_value()?;
        let levels = waited(&oldest).checked_div(ageing.as_nanos()).unwrap_or_default();
        let needed = levels * ageing.as_nanos();
        let mut first = oldest;
        // Either many have gained as much, and one of them is soon found in the order of turns, or few have, and all
        // of them are soon seen in the order of age. Walking in both orders at once is quick either way.
        for (by_turn, by_age) in self.by_turn.values().zip(self.by_age.values()) {
            if waited(by_turn) >= needed {
                return Some((levels, *by_turn));
            }
            if waited(by_age) < needed {
                break;
            }
            if by_age.turn() < first.turn() {
                first = *by_age;
            }
        }
        Some((levels, first))
    }
}

/// How urgent a priority is after it gained some levels.
fn aged(priority: Priority, levels: u128) -> u128 {
    levels + u128::from((priority.level() + 10).unsigned_abs())
}
