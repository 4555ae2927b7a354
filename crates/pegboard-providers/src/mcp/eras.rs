//! Eras of a server: that of its connection, and what is known of the other one.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pegboard_core::call::CallContext;
use pegboard_core::settings::mcp::EraChoice;
use pegboard_wire::client::{Era, McpClient};
use tokio::time::Instant;

/// Minimum and maximum time after which a server is asked again for an era that it could not be asked for.
const MIN_RETRY_DELAY: Duration = Duration::from_mins(1);
const MAX_RETRY_DELAY: Duration = Duration::from_hours(1);

/// Eras of a server, as far as they are known.
///
/// Many servers of both eras keep that of the first message of a process, so the era of a connection is chosen
/// before it is made. A server that lacks the preferred era is not asked for it again while it runs.
#[derive(Debug)]
pub(super) struct ServerEras {
    /// Era by configuration.
    fixed: Option<Era>,
    prefers_session: AtomicBool,
    /// Era of the last connection, encoded.
    current: AtomicU8,
    /// The era that the last connection does not have is not asked for.
    lacks_other: AtomicBool,
    /// When it is asked for again, if the server could not answer.
    retry: Mutex<Option<EraRetry>>,
}

/// The next attempt to connect in an era.
#[derive(Clone, Copy, Debug)]
struct EraRetry {
    at: Instant,
    delay: Duration,
}

const UNKNOWN: u8 = 0;
const SESSION: u8 = 1;
const STATELESS: u8 = 2;

impl ServerEras {
    /// Creates the state of a server that is not connected yet.
    pub(super) fn new(choice: EraChoice, preferred: Era) -> Self {
        let fixed = match choice {
            EraChoice::Auto => None,
            EraChoice::Session => Some(Era::Session),
            EraChoice::Stateless => Some(Era::Stateless),
        };
        Self {
            fixed,
            prefers_session: AtomicBool::new(preferred == Era::Session),
            current: AtomicU8::new(UNKNOWN),
            lacks_other: AtomicBool::new(false),
            retry: Mutex::default(),
        }
    }

    /// Returns the state of a further instance of the server, for clients of an era.
    pub(super) fn for_instance(&self, preferred: Era) -> Self {
        let known = self.known().filter(|_| self.lacks_other() && self.retry.lock().is_none());
        Self { fixed: self.fixed.or(known), ..Self::new(EraChoice::Auto, preferred) }
    }

    /// Returns the era that is not negotiated.
    pub(super) fn fixed(&self) -> Option<Era> {
        self.fixed
    }

    /// Returns the era to try first.
    pub(super) fn preferred(&self) -> Era {
        if self.prefers_session.load(Ordering::Relaxed) { Era::Session } else { Era::Stateless }
    }

    /// Changes the preferred era to that of sessions.
    pub(super) fn prefer_session(&self) {
        self.prefers_session.store(true, Ordering::Relaxed);
    }

    /// Returns the era of the last connection.
    pub(super) fn known(&self) -> Option<Era> {
        match self.current.load(Ordering::Acquire) {
            SESSION => Some(Era::Session),
            STATELESS => Some(Era::Stateless),
            _ => None,
        }
    }

    /// Returns `true` if the server is known to lack the era of which its connection is not, or not to be asked now.
    pub(super) fn lacks_other(&self) -> bool {
        let is_due = || self.retry.lock().is_some_and(|retry| retry.at <= Instant::now());
        self.lacks_other.load(Ordering::Relaxed) && !is_due()
    }

    /// Returns `true` if clients of an era use this connection, because it has their era or there is no other.
    pub(super) fn is_for(&self, wanted: Era) -> bool {
        self.fixed.is_some() || self.known() == Some(wanted) || self.lacks_other()
    }

    /// Records the era of a connection. One that was negotiated and is not the preferred era is the only one.
    pub(super) fn record(&self, era: Era, negotiation: EraNegotiation) {
        if negotiation != EraNegotiation::Known {
            self.plan_retry(negotiation);
            self.lacks_other.store(era != self.preferred(), Ordering::Relaxed);
        }
        let current = match era {
            Era::Session => SESSION,
            Era::Stateless => STATELESS,
        };
        self.current.store(current, Ordering::Release);
    }

    /// Records that no connection in the other era can be made.
    pub(super) fn set_lacks_other(&self, negotiation: EraNegotiation) {
        self.plan_retry(negotiation);
        self.lacks_other.store(true, Ordering::Relaxed);
    }

    fn plan_retry(&self, negotiation: EraNegotiation) {
        let mut retry = self.retry.lock();
        *retry = (negotiation == EraNegotiation::Uncertain).then(|| {
            let delay = retry.map_or(MIN_RETRY_DELAY, |last| (last.delay * 2).min(MAX_RETRY_DELAY));
            EraRetry { at: Instant::now() + delay, delay }
        });
    }

    /// Forgets what is known: the server may have been replaced.
    pub(super) fn forget(&self) {
        self.current.store(UNKNOWN, Ordering::Relaxed);
        self.lacks_other.store(false, Ordering::Relaxed);
        *self.retry.lock() = None;
    }
}

/// The way in which the era of a connection was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EraNegotiation {
    /// The preferred era was tried first.
    Probed,
    /// The preferred era was tried first, when the server could not be reached in it.
    Uncertain,
    /// The era was known before.
    Known,
}

impl EraNegotiation {
    /// Returns the way in which the era of a connection was negotiated.
    pub(super) fn of(client: &McpClient) -> Self {
        if client.server().may_have_preferred_era { Self::Uncertain } else { Self::Probed }
    }
}

/// Returns the era of the client that a call is made for; stateless without a client.
pub(super) fn wanted_era(context: &CallContext) -> Era {
    if context.client().has_session() { Era::Session } else { Era::Stateless }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_era_other_than_the_preferred_one_is_the_only_one() {
        use Era::{Session, Stateless};
        for (preferred, found, is_only) in [
            (Stateless, Session, true),
            (Stateless, Stateless, false),
            (Session, Stateless, true),
            (Session, Session, false),
        ] {
            let eras = ServerEras::new(EraChoice::Auto, preferred);
            eras.record(found, EraNegotiation::Probed);
            assert_eq!((eras.known(), eras.lacks_other()), (Some(found), is_only), "{preferred:?} {found:?}");
            let other = if found == Session { Stateless } else { Session };
            assert_eq!((eras.is_for(found), eras.is_for(other)), (true, is_only));
            // A further instance is not probed for an era that the server lacks.
            assert_eq!(eras.for_instance(other).fixed(), is_only.then_some(found));
            eras.record(found, EraNegotiation::Known);
            assert_eq!(eras.lacks_other(), is_only);
            eras.forget();
            assert_eq!((eras.known(), eras.is_for(found)), (None, false));
        }
    }
}
