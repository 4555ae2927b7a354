//! Suspended calls: calls that continue while their caller is away.
//!
//! A caller that cannot wait, because the protocol answers it in rounds, suspends its running call and
//! receives a resume token. Resuming with the token continues the wait; a call that is not resumed in time is
//! cancelled.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use pegboard_core::call::{CallHandle, CallResult};
use pegboard_core::error::{CallError, Executed};
use pegboard_core::owner::Owner;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time;
use tokio_util::task::AbortOnDropHandle;

use crate::random;

/// Maximum number of suspended calls.
pub const MAX_SUSPENDED: usize = 1_000;

/// The suspended calls.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use pegboard_core::call::{Call, Invoker};
/// use pegboard_core::entry::ToolEntry;
/// use pegboard_core::owner::Owner;
/// use pegboard_core::registry::ToolRegistry;
/// use pegboard_runtime::suspended::SuspendedCallTable;
/// use serde_json::json;
///
/// let registry = ToolRegistry::new();
/// registry.register(ToolEntry::new("now", "The time", |(): ()| async { Ok(7) })).unwrap();
///
/// let suspended = SuspendedCallTable::default();
/// let (ann, running) = (Owner::new("ann"), registry.start(Call::new("now", json!(null))));
/// let token = suspended.suspend(running, &ann, Duration::from_secs(60)).unwrap();
/// assert!(suspended.resume(&token, &Owner::new("bob")).is_err());
/// assert!(suspended.resume(&token, &ann).unwrap().await.result.is_ok());
/// # });
/// ```
#[derive(Default)]
pub struct SuspendedCallTable(Arc<Mutex<HashMap<ResumeToken, SuspendedEntry>>>);

/// Unguessable token that resumes a suspended call.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResumeToken(String);

impl fmt::Debug for ResumeToken {
    /// Redacted: a reader of the log must not be able to resume the call.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResumeToken")
    }
}

struct SuspendedEntry {
    owner: Owner,
    resumed: oneshot::Sender<()>,
    end: oneshot::Receiver<CallResult>,
    /// `None` until the task has been started.
    work: Option<AbortOnDropHandle<()>>,
}

/// Error of suspending or resuming a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuspendError {
    /// Too many calls are suspended.
    #[error("{MAX_SUSPENDED} calls are suspended already; try again later")]
    Full,
    /// The call does not exist, has expired, or belongs to another principal.
    #[error("no suspended call for this token: it may have expired, or the process was restarted")]
    Missing,
}

impl SuspendedCallTable {
    /// Suspends a call until it is resumed or the time has passed.
    ///
    /// # Panics
    /// If called outside a Tokio runtime.
    pub fn suspend(
        &self,
        running: CallHandle,
        owner: &Owner,
        expires_after: Duration,
    ) -> Result<ResumeToken, SuspendError> {
        let token = ResumeToken(random::uuid().simple().to_string());
        let (resumed, back) = oneshot::channel();
        let (sender, end) = oneshot::channel();
        let mut entries = self.0.lock();
        if entries.len() >= MAX_SUSPENDED {
            return Err(SuspendError::Full);
        }
        entries.insert(token.clone(), SuspendedEntry { owner: owner.clone(), resumed, end, work: None });
        // Without the lock: a runtime that is shutting down drops the task at once, and its guard takes the lock.
        drop(entries);
        let guard = SuspendedEntryGuard { table: Arc::downgrade(&self.0), token: token.clone() };
        let work = tokio::spawn(async move {
            let _guard = guard;
            // Ended, resumed or expired, on the first of these events; only expiry ends the call early.
            drive(running, sender, back, expires_after).await;
        });
        let work = AbortOnDropHandle::new(work);
        if let Some(entry) = self.0.lock().get_mut(&token) {
            entry.work = Some(work);
        }
        Ok(token)
    }

    /// Resumes a call of the same owner. A token can be used once.
    pub fn resume(&self, token: &ResumeToken, owner: &Owner) -> Result<CallHandle, SuspendError> {
        let mut table = self.0.lock();
        if table.get(token).is_none_or(|entry| entry.owner != *owner) {
            return Err(SuspendError::Missing);
        }
        let SuspendedEntry { resumed, end, work, .. } = table.remove(token).ok_or(SuspendError::Missing)?;
        drop(table);
        // Sending fails if the call has already ended; its result is then in the channel.
        let _ = resumed.send(());
        Ok(CallHandle::new(async move {
            // Dropping this future aborts the task and thereby cancels the call.
            let _work = work;
            end.await.unwrap_or_else(|_| {
                let reason = "the suspended call expired before it was resumed".to_owned();
                CallResult::rejected(CallError::Canceled { reason, executed: Executed::Yes })
            })
        }))
    }

    /// Returns the number of suspended calls.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Returns `true` if no call is suspended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cancels all suspended calls.
    pub(crate) fn clear(&self) {
        let entries = std::mem::take(&mut *self.0.lock());
        drop(entries);
    }
}

/// Removes the table entry when the task ends, for whatever reason.
struct SuspendedEntryGuard {
    table: Weak<Mutex<HashMap<ResumeToken, SuspendedEntry>>>,
    token: ResumeToken,
}

impl Drop for SuspendedEntryGuard {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            let entry = table.lock().remove(&self.token);
            drop(entry);
        }
    }
}

/// Drives a suspended call. A result that is not collected is kept until it expires.
async fn drive(
    running: CallHandle,
    end: oneshot::Sender<CallResult>,
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
