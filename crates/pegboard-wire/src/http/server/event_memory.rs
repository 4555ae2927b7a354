//! The memory of event streams: one limit for all sessions, and one for the sessions of each principal.

use std::cmp::Reverse;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::channel::{Channel, EventClass};

/// Limits the memory of the events that sessions keep for slow and reconnecting clients. Clones share it.
///
/// Beyond the limit, events are dropped in this order: those that were read, notifications that no client reads,
/// other unread notifications, and last the responses that no client reads. A response is never dropped while its
/// client is connected. If nothing more may be dropped, an eighth of the limit is added before the next search.
#[derive(Clone, Debug)]
pub struct EventMemory(Arc<MemoryAccount>);

/// Unread notifications that were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedNotifications {
    /// Their number.
    pub n_notifications: u64,
    /// The reason.
    pub reason: NotificationLoss,
}

/// The reason why a notification was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotificationLoss {
    /// No client has ever read the stream.
    NoReader,
    /// The client does not read fast enough.
    SlowReader,
}

/// Memory with a limit; part of that of its parent.
#[derive(Debug)]
struct MemoryAccount {
    max_bytes: usize,
    n_bytes: AtomicUsize,
    /// Bytes that the last search could not drop, less those that may be dropped since; 0 if it found enough.
    n_stuck_bytes: AtomicUsize,
    parent: Option<Arc<MemoryAccount>>,
    registry: Arc<StreamRegistry>,
}

/// All streams that share the outermost limit.
struct StreamRegistry {
    streams: Mutex<RegisteredStreams>,
    /// Held while memory is reclaimed, so that threads do not drop more than needed.
    reclaiming: Mutex<()>,
    observer: Box<dyn Fn(DroppedNotifications) + Send + Sync>,
}

#[derive(Default)]
struct RegisteredStreams {
    streams: Vec<Weak<Channel>>,
    /// Number of streams at which those that have ended are removed.
    prune_at: usize,
}

impl Default for EventMemory {
    fn default() -> Self {
        Self::new(Self::DEFAULT_BYTES, |_dropped| {})
    }
}

impl EventMemory {
    /// Default limit of a process: 64 MiB.
    pub const DEFAULT_BYTES: usize = 64 << 20;
    /// Default limit of the sessions of one principal: half of the process's.
    pub const PRINCIPAL_BYTES: usize = Self::DEFAULT_BYTES / 2;

    /// Creates a memory of `max_bytes`. `observer` is called whenever unread notifications are dropped; it must not
    /// block.
    pub fn new(max_bytes: usize, observer: impl Fn(DroppedNotifications) + Send + Sync + 'static) -> Self {
        let registry = StreamRegistry {
            streams: Mutex::default(),
            reclaiming: Mutex::default(),
            observer: Box::new(observer),
        };
        Self(Arc::new(MemoryAccount::new(max_bytes, None, Arc::new(registry))))
    }

    /// Returns a part of this memory with a limit of its own.
    #[must_use]
    pub fn part(&self, max_bytes: usize) -> Self {
        let registry = Arc::clone(&self.0.registry);
        Self(Arc::new(MemoryAccount::new(max_bytes, Some(Arc::clone(&self.0)), registry)))
    }

    /// Returns the number of bytes in use.
    pub fn n_bytes(&self) -> usize {
        self.0.n_bytes()
    }

    /// Adds a stream to those that memory is reclaimed from.
    pub(super) fn register(&self, stream: &Arc<Channel>) {
        let mut registered = self.0.registry.streams.lock();
        if registered.streams.len() >= registered.prune_at {
            registered.streams.retain(|stream| stream.strong_count() > 0);
            registered.prune_at = (2 * registered.streams.len()).max(64);
        }
        registered.streams.push(Arc::downgrade(stream));
    }

    pub(super) fn charge(&self, n_bytes: usize) {
        for account in self.accounts() {
            account.n_bytes.fetch_add(n_bytes, Ordering::Relaxed);
        }
    }

    pub(super) fn release(&self, n_bytes: usize) {
        for account in self.accounts() {
            account.n_bytes.fetch_sub(n_bytes, Ordering::Relaxed);
        }
    }

    pub(super) fn report(&self, dropped: DroppedNotifications) {
        (self.0.registry.observer)(dropped);
    }

    /// Records that events of this size may be dropped from now on: they were read, or their reader is gone.
    pub(super) fn allow_drop(&self, n_bytes: usize) {
        for account in self.accounts() {
            account.allow_drop(n_bytes);
        }
    }

    /// Drops events if a limit is exceeded, until none is, or nothing is left that may be dropped. No lock of a stream
    /// may be held.
    pub(super) fn reclaim(&self) {
        for account in self.accounts() {
            account.reclaim_if(MemoryAccount::is_search_due);
        }
    }

    /// Returns `true` if the limit of this part is exceeded by events that may not be dropped. The limit of the whole
    /// does not count: others may have used it up. No lock of a stream may be held.
    pub(super) fn is_full(&self) -> bool {
        self.0.reclaim_if(|account| account.is_exceeded() && account.n_stuck_bytes() <= account.max_bytes);
        self.0.is_exceeded()
    }

    fn accounts(&self) -> impl Iterator<Item = &MemoryAccount> {
        std::iter::successors(Some(&*self.0), |account| account.parent.as_deref())
    }

    fn is_within(&self, account: &MemoryAccount) -> bool {
        self.accounts().any(|own| std::ptr::eq(own, account))
    }
}

impl MemoryAccount {
    fn new(max_bytes: usize, parent: Option<Arc<Self>>, registry: Arc<StreamRegistry>) -> Self {
        let (n_bytes, n_stuck_bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { max_bytes, n_bytes, n_stuck_bytes, parent, registry }
    }

    fn n_bytes(&self) -> usize {
        self.n_bytes.load(Ordering::Relaxed)
    }

    fn n_stuck_bytes(&self) -> usize {
        self.n_stuck_bytes.load(Ordering::Relaxed)
    }

    fn is_exceeded(&self) -> bool {
        self.n_bytes() > self.max_bytes
    }

    /// Returns `true` if the limit is exceeded, and a search may find much: it looks at all streams, so that one with
    /// each event would cost too much.
    fn is_search_due(&self) -> bool {
        self.is_exceeded() && self.n_bytes().saturating_sub(self.n_stuck_bytes()) >= self.max_bytes / 8
    }

    fn allow_drop(&self, n_bytes: usize) {
        // Nearly always.
        if self.n_stuck_bytes() == 0 {
            return;
        }
        let less = |n_stuck: usize| Some(n_stuck.saturating_sub(n_bytes));
        let _ = self.n_stuck_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    fn reclaim_if(&self, is_due: impl Fn(&Self) -> bool) {
        if !is_due(self) {
            return;
        }
        let _reclaiming = self.registry.reclaiming.lock();
        // Another thread may have done it.
        if is_due(self) {
            self.reclaim();
        }
    }

    fn reclaim(&self) {
        // More than the excess, so that the streams are not searched again with the next event.
        let target = self.max_bytes - self.max_bytes / 8;
        // The streams must not be dropped under the lock of the registry, nor can they be locked under it.
        let mut streams: Vec<Arc<Channel>> =
            self.registry.streams.lock().streams.iter().filter_map(Weak::upgrade).collect();
        streams.retain(|stream| stream.memory().is_within(self));
        // The principal that uses the most comes first, and its largest stream.
        streams.sort_by_cached_key(|stream| Reverse((stream.memory().n_bytes(), stream.n_bytes())));
        for class in EventClass::DROP_ORDER {
            for stream in &streams {
                let n_excess = self.n_bytes().saturating_sub(target);
                if n_excess == 0 {
                    self.n_stuck_bytes.store(0, Ordering::Relaxed);
                    return;
                }
                stream.drop_events(class, n_excess);
            }
        }
        let n_bytes = self.n_bytes();
        self.n_stuck_bytes.store(if n_bytes > target { n_bytes } else { 0 }, Ordering::Relaxed);
    }
}

impl fmt::Debug for StreamRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamRegistry").finish_non_exhaustive()
    }
}
