//! Calls that go on while nobody waits for them.
//!
//! A caller that cannot stay, because the protocol gives it an answer in rounds, leaves its running call here and gets
//! a ticket. Whoever comes back with the ticket goes on waiting; if nobody does in time, the call is cancelled.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use pegboard_core::call::{Ended, Running};
use pegboard_core::error::{CallError, Executed};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

/// How many calls may be parked at once.
pub const MAX_PARKED: usize = 1_000;

/// The calls that are parked.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use pegboard_core::call::{Call, Invoker};
/// use pegboard_core::entry::ToolEntry;
/// use pegboard_core::registry::ToolRegistry;
/// use pegboard_runtime::park::Parking;
/// use serde_json::json;
///
/// let registry = ToolRegistry::new();
/// registry.register(ToolEntry::new("now", "The time", |(): ()| async { Ok(7) })).unwrap();
///
/// let parking = Parking::default();
/// let ticket = parking.park(registry.start(Call::new("now", json!(null))), "ann", Duration::from_secs(60)).unwrap();
/// assert!(parking.resume(&ticket, "bob").is_err());
/// assert!(parking.resume(&ticket, "ann").unwrap().await.result.is_ok());
/// # });
/// ```
#[derive(Default)]
pub struct Parking(Arc<Mutex<HashMap<Ticket, Parked>>>);

/// What a parked call is found again by. It cannot be guessed.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ticket(String);

impl fmt::Debug for Ticket {
    /// Whoever reads a log cannot come for the call.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket")
    }
}

struct Parked {
    principal: String,
    resumed: oneshot::Sender<()>,
    end: oneshot::Receiver<Ended>,
    work: AbortOnDropHandle<()>,
}

/// Why a call cannot be parked or resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParkError {
    /// Too many are parked.
    #[error("{MAX_PARKED} calls wait for their callers already; try again later")]
    Full,
    /// There is none, none any more, or none of this principal.
    #[error("no call waits under this ticket: it may have expired, or this process was started anew")]
    Missing,
}

impl Parking {
    /// Lets a call go on without its caller, until that comes back or the time has passed.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn park(
        &self,
        running: Running,
        principal: &str,
        expires_after: Duration,
    ) -> Result<Ticket, ParkError> {
        let ticket = Ticket(Uuid::new_v4().simple().to_string());
        let (resumed, back) = oneshot::channel();
        let (sender, end) = oneshot::channel();
        let mut parked = self.parked();
        if parked.len() >= MAX_PARKED {
            return Err(ParkError::Full);
        }
        let entry = Entry { table: Arc::downgrade(&self.0), ticket: ticket.clone() };
        let work = tokio::spawn(async move {
            let _entry = entry;
            // Ended, resumed or expired, whatever comes first; only the last of them ends the call early.
            drive(running, sender, back, expires_after).await;
        });
        let work = AbortOnDropHandle::new(work);
        parked.insert(ticket.clone(), Parked { principal: principal.to_owned(), resumed, end, work });
        Ok(ticket)
    }

    /// The call again, for whoever parked it. A ticket is good once.
    pub fn resume(&self, ticket: &Ticket, principal: &str) -> Result<Running, ParkError> {
        let mut table = self.parked();
        if table.get(ticket).is_none_or(|parked| parked.principal != principal) {
            return Err(ParkError::Missing);
        }
        let Parked { resumed, end, work, .. } = table.remove(ticket).ok_or(ParkError::Missing)?;
        drop(table);
        // If nobody hears it the call has ended, and its end is on the way.
        let _ = resumed.send(());
        Ok(Running::new(async move {
            // Dropping this future drops the work, and so cancels the call.
            let _work = work;
            end.await.unwrap_or_else(|_| {
                let reason = "the call expired while nobody waited for it".to_owned();
                Ended::refused(CallError::Canceled { reason, executed: Executed::Yes })
            })
        }))
    }

    /// How many calls are parked.
    pub fn len(&self) -> usize {
        self.parked().len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cancels every parked call.
    pub(crate) fn clear(&self) {
        let parked = std::mem::take(&mut *self.parked());
        drop(parked);
    }

    fn parked(&self) -> MutexGuard<'_, HashMap<Ticket, Parked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the table, which is free again when the work is over, however it ends.
struct Entry {
    table: Weak<Mutex<HashMap<Ticket, Parked>>>,
    ticket: Ticket,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            let gone = table.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.ticket);
            drop(gone);
        }
    }
}

/// Keeps a parked call going. An end that nobody has come for yet waits until it expires, too.
async fn drive(
    running: Running,
    end: oneshot::Sender<Ended>,
    mut back: oneshot::Receiver<()>,
    expires_after: Duration,
) {
    let expiry = time::sleep(expires_after);
    tokio::pin!(running, expiry);
    let ended = tokio::select! {
        biased;
        ended = &mut running => ended,
        resumed = &mut back => {
            if resumed.is_ok() {
                let _ = end.send(running.await);
            }
            return;
        }
        () = &mut expiry => return,
    };
    if end.send(ended).is_ok() {
        tokio::select! {
            _ = back => {}
            () = expiry => {}
        }
    }
}
