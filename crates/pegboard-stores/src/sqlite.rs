//! A file that several processes may share.
//!
//! One thread owns the connection and does one job after another, so that no task of the runtime ever waits for a
//! disk. Jobs queue in a bounded channel; who finds it full waits for as long as it likes.

mod cache;
mod catalogue;
mod file;
mod history;
mod outputs;
mod sessions;
mod slots;
mod tally;
mod time;
mod traces;

use std::path::Path;
use std::thread;

use futures_util::FutureExt;
use pegboard_core::store::{StoreError, Stored};
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use crate::limits::DatabaseLimits;

/// How many jobs may wait for the thread. Each may hold an output, so they are few.
const MAX_WAITING: usize = 64;

/// A database on disk that keeps everything there is to keep. Clones are the same database.
///
/// A moment is kept to the millisecond, from 1970 to the year 9999; what lies outside counts as the nearest of these.
/// A write that was begun is done even if nobody waits for it any more and the last clone is gone, as long as the
/// process lives; a read, a lease and an output that nobody waits for are left.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::time::{Duration, SystemTime};
///
/// use pegboard_core::store::SlotStore;
/// use pegboard_stores::sqlite::Database;
///
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("state").join("pegboard.db");
/// let database = Database::open(&path).unwrap();
/// let (now, expires) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + Duration::from_secs(30));
/// assert!(database.lease("browser".to_owned(), 1, now, expires).await.unwrap().is_some());
///
/// let other = Database::open(&path).unwrap();
/// assert_eq!(other.lease("browser".to_owned(), 1, now, expires).await.unwrap(), None);
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Database {
    jobs: mpsc::Sender<Job>,
    limits: DatabaseLimits,
}

/// Something for the thread to do.
type Job = Box<dyn FnOnce(&mut Connection) + Send>;

impl Database {
    /// The database at a path, made if there is none, with the usual limits.
    ///
    /// It reads the file before it answers, to be sure that it can be used: call it where that may take a moment.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, DatabaseLimits::default())
    }

    /// The database at a path, made if there is none.
    pub fn open_with(path: &Path, limits: DatabaseLimits) -> Result<Self, StoreError> {
        let mut connection = file::open(path)?;
        let (jobs, mut waiting) = mpsc::channel::<Job>(MAX_WAITING);
        let serve = move || {
            while let Some(job) = waiting.blocking_recv() {
                job(&mut connection);
            }
        };
        thread::Builder::new().name("pegboard-database".to_owned()).spawn(serve).map_err(|error| {
            let reason = format!("no thread can be started for it: {error}");
            StoreError::Unusable { place: path.display().to_string(), reason }
        })?;
        Ok(Self { jobs, limits })
    }

    /// Has the thread do what is of use only to the one who waits for it.
    fn ask<T, W>(&self, work: W) -> Stored<'_, T>
    where
        T: Send + 'static,
        W: FnOnce(&mut Connection) -> Answer<T> + Send + 'static,
    {
        self.send(Unwanted::Leave, work)
    }

    /// Has the thread do what must be done even if nobody waits for it any more.
    fn tell<T, W>(&self, work: W) -> Stored<'_, T>
    where
        T: Send + 'static,
        W: FnOnce(&mut Connection) -> Answer<T> + Send + 'static,
    {
        self.send(Unwanted::Finish, work)
    }

    fn send<T, W>(&self, unwanted: Unwanted, work: W) -> Stored<'_, T>
    where
        T: Send + 'static,
        W: FnOnce(&mut Connection) -> Answer<T> + Send + 'static,
    {
        async move {
            let (answer, answered) = oneshot::channel();
            let job: Job = Box::new(move |connection| {
                let is_left = match unwanted {
                    Unwanted::Leave => answer.is_closed(),
                    Unwanted::Finish => false,
                };
                if !is_left {
                    // Who gave up waiting meanwhile need not hear of it.
                    drop(answer.send(work(connection).map_err(StoreError::from)));
                }
            });
            self.jobs.send(job).await.map_err(|_| has_ended())?;
            answered.await.map_err(|_| has_ended())?
        }
        .boxed()
    }
}

/// What becomes of a job that nobody waits for any more.
#[derive(Clone, Copy, Debug)]
enum Unwanted {
    Leave,
    Finish,
}

/// What comes of a job.
type Answer<T> = Result<T, JobError>;

/// Why nothing comes of a job.
#[derive(Debug)]
enum JobError {
    Engine(rusqlite::Error),
    Store(StoreError),
}

impl From<rusqlite::Error> for JobError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<StoreError> for JobError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<JobError> for StoreError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Store(error) => error,
            JobError::Engine(error) => match error.sqlite_error_code() {
                Some(ErrorCode::DiskFull) => {
                    Self::Full { reason: "there is no space left on its disk".to_owned() }
                }
                Some(ErrorCode::TooBig) => {
                    Self::Full { reason: "one value is larger than a database can keep".to_owned() }
                }
                _ => Self::Failed { reason: error.to_string() },
            },
        }
    }
}

fn has_ended() -> StoreError {
    StoreError::Failed { reason: "the thread of the database has ended".to_owned() }
}

/// What a change must outlive.
#[derive(Clone, Copy, Debug)]
enum Outlives {
    /// The process, however it ends. After a power loss the last such changes may be missing, never half there.
    Process,
    /// A power loss too: the answer waits until the disk has it.
    PowerLoss,
}

/// Begins a change.
///
/// What a caller was promised, a handle or an id to come back with, must outlive a power loss, and that takes a wait
/// for the disk (`FULL`). Answers, records, leases and the time a session was last used are worth no such wait: the
/// log of a killed process is whole without it (`NORMAL`), and after a power loss they are worth little.
fn begin(connection: &mut Connection, outlives: Outlives) -> rusqlite::Result<Transaction<'_>> {
    let level = match outlives {
        Outlives::Process => "NORMAL",
        Outlives::PowerLoss => "FULL",
    };
    connection.pragma_update(None, "synchronous", level)?;
    // The lock is taken before anything is read: two processes that both found room cannot both go on to take it.
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

/// A number as the engine counts.
fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// How many rows are wanted, as the engine counts.
fn limit(n_most: usize) -> i64 {
    i64::try_from(n_most).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as blocking;
    use std::time::{Duration, SystemTime};

    use pegboard_core::store::{OutputHandle, OutputStore, SlotStore, StoredOutput};
    use tempfile::TempDir;

    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn later() -> SystemTime {
        NOW + Duration::from_secs(9)
    }

    fn database() -> (TempDir, Database) {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(&directory.path().join("state.db")).unwrap();
        (directory, database)
    }

    /// Keeps the thread of a database busy until the answer is dropped.
    fn hold(database: &Database) -> blocking::Sender<()> {
        let (held, released) = blocking::channel::<()>();
        let waiting = database.tell(move |_| {
            released.recv().unwrap_err();
            Ok(())
        });
        assert!(waiting.now_or_never().is_none());
        held
    }

    fn output(n_bytes: usize) -> StoredOutput {
        StoredOutput {
            body: vec![7; n_bytes].into(),
            content_type: String::new(),
            tool: String::new(),
            session: "s".to_owned(),
            principal: String::new(),
            made: NOW,
            expires: later(),
        }
    }

    #[tokio::test]
    async fn a_full_disk_is_said_to_be_full_and_nothing_is_kept() {
        let (_directory, database) = database();
        database
            .tell(|connection| {
                Ok(connection.pragma_update_and_check(None, "max_page_count", 100, |_| Ok(()))?)
            })
            .await
            .unwrap();
        let put = |name: &str, n_bytes| database.put(OutputHandle(name.to_owned()), output(n_bytes), NOW);
        let put_large = put("large", 1_000_000).await;
        assert_eq!(
            put_large.unwrap_err().to_string(),
            "the store is full: there is no space left on its disk"
        );
        put("small", 1_000).await.unwrap();
        assert_eq!(database.usage().await.unwrap().n_kept, 1);
        assert_eq!(database.get(OutputHandle("large".to_owned()), NOW).await.unwrap(), None);
    }

    #[tokio::test]
    async fn who_finds_the_channel_full_waits_and_may_give_up() {
        let (_directory, database) = database();
        let held = hold(&database);
        let mut waiting = Vec::new();
        for _ in 0..MAX_WAITING + 5 {
            let mut usage = database.usage();
            assert!((&mut usage).now_or_never().is_none());
            waiting.push(usage);
        }
        assert!(database.jobs.try_reserve().is_err(), "the channel is full");
        waiting.truncate(MAX_WAITING + 3);
        drop(held);
        for usage in waiting {
            assert_eq!(usage.await.unwrap().n_kept, 0);
        }
    }

    #[tokio::test]
    async fn a_lease_and_an_output_that_nobody_waits_for_are_left() {
        let (_directory, database) = database();
        let held = hold(&database);
        assert!(database.lease("q".to_owned(), 1, NOW, later()).now_or_never().is_none());
        assert!(database.put(OutputHandle("h".to_owned()), output(1), NOW).now_or_never().is_none());
        drop(held);
        assert_eq!(database.usage().await.unwrap().n_kept, 0);
        assert!(database.lease("q".to_owned(), 1, NOW, later()).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_database_whose_thread_has_ended_says_so() {
        let (_directory, database) = database();
        let broken = database.tell::<(), _>(|_| panic!("a job that breaks"));
        assert_eq!(broken.await, Err(has_ended()));
        assert_eq!(database.usage().await, Err(has_ended()));
    }
}
