//! SQLite stores, in a file that several processes may share or in memory.
//!
//! A dedicated thread owns the connection to a file and runs one job after another, so that no async task ever
//! blocks on the disk. Jobs queue in a bounded channel; a caller that finds it full waits. Jobs in memory wait for
//! nothing, and run where they are awaited.

mod cache;
mod call_log;
mod catalogue;
mod credentials;
mod file;
mod outputs;
mod sessions;
mod slots;
mod time;
mod usage_counter;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use futures_util::FutureExt;
use parking_lot::Mutex;
use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::store::{StoreError, StoreFuture};
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use crate::limits::DatabaseLimits;
use file::{IntegrityCheck, OpenFile};

/// Maximum number of queued jobs. Each may hold an output, so they are few.
const MAX_WAITING: usize = 64;

/// A database that implements all stores. Clones share the database.
///
/// Times are stored to the millisecond, from 1970 to the year 9999, and clamped to that range. A queued write
/// is executed even if its caller has stopped waiting and the last clone is dropped, as long as the process
/// lives; a read, a lease or an output without a waiting caller is skipped.
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
    engine: DatabaseEngine,
    limits: DatabaseLimits,
    file: Arc<FileStatus>,
}

/// Status of a file that is opened in the background.
#[derive(Debug, Default)]
struct FileStatus {
    /// Path of a file that is replaced if it is damaged.
    replaceable: Option<PathBuf>,
    /// Reason why the file is not used.
    problem: OnceLock<StoreError>,
    /// The contents are checked before the next report of a problem.
    is_unchecked: AtomicBool,
    /// The contents were checked because a job has met damage.
    is_suspect: AtomicBool,
}

impl FileStatus {
    /// Opens the file, or a database in memory if that fails.
    fn open(&self, path: &Path, check: IntegrityCheck) -> Connection {
        match file::open_or_replace(path, check) {
            Ok(OpenFile { connection, is_unchecked }) => {
                self.is_unchecked.store(is_unchecked, Ordering::Relaxed);
                connection
            }
            Err(error) => {
                self.problem.get_or_init(|| error);
                file::open_in_memory()
            }
        }
    }

    /// Checks the file if that is due, and replaces it if it is damaged.
    fn check(&self, connection: &mut Connection) {
        if self.is_unchecked.swap(false, Ordering::Relaxed) && file::is_damaged(connection) {
            self.reopen(connection);
        }
    }

    /// Replaces the file if a job has found it damaged.
    fn handle_damage(&self, connection: &mut Connection) {
        if !self.is_suspect.swap(true, Ordering::Relaxed) {
            self.reopen(connection);
        }
    }

    /// Opens the file again, or the one that takes its place if it is damaged.
    fn reopen(&self, connection: &mut Connection) {
        if let Some(path) = &self.replaceable {
            // Closed first, so that the file can be renamed.
            drop(std::mem::replace(connection, file::open_in_memory()));
            *connection = self.open(path, IntegrityCheck::AtOpen);
        }
    }
}

#[derive(Clone, Debug)]
enum DatabaseEngine {
    File(mpsc::Sender<DatabaseJob>),
    /// `None` until the first use.
    Memory(Arc<Mutex<Option<Connection>>>),
}

impl Database {
    /// Opens the database at a path with the default limits; creates it if it does not exist.
    ///
    /// Blocks while it checks the file.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, DatabaseLimits::default())
    }

    /// Opens the database at a path; creates it if it does not exist.
    pub fn open_with(path: &Path, limits: DatabaseLimits) -> Result<Self, StoreError> {
        let OpenFile { connection, .. } = file::open(path, IntegrityCheck::AtOpen)?;
        let jobs = start(move || connection)?;
        Ok(Self { engine: DatabaseEngine::File(jobs), limits, file: Arc::default() })
    }

    /// Opens the database at a path in the background.
    ///
    /// A damaged file is renamed, which is logged, and a new one is begun. If the file cannot be used for
    /// another reason, state is kept in memory, and [`problem`](Self::problem) returns the reason.
    pub fn open_in_background(path: &Path, limits: DatabaseLimits) -> Self {
        let path = path.to_owned();
        let file = Arc::new(FileStatus { replaceable: Some(path.clone()), ..FileStatus::default() });
        let opening = Arc::clone(&file);
        match start(move || opening.open(&path, IntegrityCheck::AfterCrash)) {
            Ok(jobs) => Self { engine: DatabaseEngine::File(jobs), limits, file },
            Err(error) => {
                file.problem.get_or_init(|| error);
                Self { file, ..Self::in_memory_with(limits) }
            }
        }
    }

    /// Returns an empty database in memory with the default limits, which is created at its first use.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use pegboard_core::store::OutputStore;
    /// use pegboard_stores::sqlite::Database;
    ///
    /// assert_eq!(Database::in_memory().usage().await.unwrap().n_entries, 0);
    /// # });
    /// ```
    pub fn in_memory() -> Self {
        Self::in_memory_with(DatabaseLimits::default())
    }

    /// Returns an empty database in memory, which is created at its first use.
    pub fn in_memory_with(limits: DatabaseLimits) -> Self {
        Self { engine: DatabaseEngine::Memory(Arc::default()), limits, file: Arc::default() }
    }

    /// Waits until the database is open; returns the reason why state is kept in memory, if it should be in a
    /// file.
    ///
    /// Checks a file that was opened in the background and not closed by the last process that used it. Jobs
    /// that were queued before do not wait for that.
    pub async fn problem(&self) -> Option<StoreError> {
        let opened = match &self.engine {
            DatabaseEngine::File(_) => {
                let file = Arc::clone(&self.file);
                let check = move |connection: &mut Connection| {
                    file.check(connection);
                    Ok(())
                };
                self.run_to_completion(check).await
            }
            DatabaseEngine::Memory(_) => Ok(()),
        };
        opened.err().or_else(|| self.file.problem.get().cloned())
    }

    /// Runs a job on the database thread; it is skipped if the caller stops waiting.
    fn run_cancellable<T, W>(&self, work: W) -> StoreFuture<'_, T>
    where
        T: Send + 'static,
        W: FnOnce(&mut Connection) -> JobResult<T> + Send + 'static,
    {
        self.submit(AbandonedJob::Skip, work)
    }

    /// Runs a job on the database thread, even if the caller stops waiting.
    fn run_to_completion<T, W>(&self, work: W) -> StoreFuture<'_, T>
    where
        T: Send + 'static,
        W: FnOnce(&mut Connection) -> JobResult<T> + Send + 'static,
    {
        self.submit(AbandonedJob::Finish, work)
    }

    fn submit<T, W>(&self, if_abandoned: AbandonedJob, work: W) -> StoreFuture<'_, T>
    where
        T: Send + 'static,
        W: FnOnce(&mut Connection) -> JobResult<T> + Send + 'static,
    {
        async move {
            let jobs = match &self.engine {
                DatabaseEngine::File(jobs) => jobs,
                DatabaseEngine::Memory(connection) => return run_in_memory(connection, work),
            };
            let (answer, answered) = oneshot::channel();
            let file = Arc::clone(&self.file);
            let job: DatabaseJob = Box::new(move |connection| {
                let is_skipped = match if_abandoned {
                    AbandonedJob::Skip => answer.is_closed(),
                    AbandonedJob::Finish => false,
                };
                if !is_skipped {
                    let result = work(connection);
                    if matches!(&result, Err(JobError::Engine(error)) if file::is_damage(error)) {
                        file.handle_damage(connection);
                    }
                    // The caller may have stopped waiting meanwhile.
                    drop(answer.send(result.map_err(StoreError::from)));
                }
            });
            jobs.send(job).await.map_err(|_| thread_ended())?;
            answered.await.map_err(|_| thread_ended())?
        }
        .boxed()
    }
}

/// A job for the database thread.
type DatabaseJob = Box<dyn FnOnce(&mut Connection) + Send>;

/// Runs a job on a database in memory; creates it if it is the first.
fn run_in_memory<T>(
    connection: &Mutex<Option<Connection>>,
    work: impl FnOnce(&mut Connection) -> JobResult<T>,
) -> Result<T, StoreError> {
    let mut connection = connection.lock();
    work(connection.get_or_insert_with(file::open_in_memory)).map_err(StoreError::from)
}

/// Starts a thread that connects and then runs jobs until all senders are dropped.
fn start(
    connect: impl FnOnce() -> Connection + Send + 'static,
) -> Result<mpsc::Sender<DatabaseJob>, StoreError> {
    let (jobs, mut waiting) = mpsc::channel::<DatabaseJob>(MAX_WAITING);
    let serve = move || {
        let mut connection = connect();
        while let Some(job) = waiting.blocking_recv() {
            job(&mut connection);
        }
    };
    thread::Builder::new().name("pegboard-database".to_owned()).spawn(serve).map_err(|error| {
        StoreError::Failed { reason: format!("cannot start the database thread: {error}") }
    })?;
    Ok(jobs)
}

/// Treatment of a job after its caller has stopped waiting.
#[derive(Clone, Copy, Debug)]
enum AbandonedJob {
    Skip,
    Finish,
}

/// Result of a job.
type JobResult<T> = Result<T, JobError>;

/// An error of a job.
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
                Some(ErrorCode::DiskFull) => Self::Full { reason: "no space left on the disk".to_owned() },
                Some(ErrorCode::TooBig) => {
                    Self::Full { reason: "a value exceeds the maximum size of the database".to_owned() }
                }
                _ => Self::Failed { reason: error.to_string() },
            },
        }
    }
}

fn thread_ended() -> StoreError {
    StoreError::Failed { reason: "the database thread has stopped".to_owned() }
}

/// Durability of a transaction.
#[derive(Clone, Copy, Debug)]
enum Durability {
    /// Survives the end of the process. After a power loss the last such changes may be missing, but never
    /// partial.
    Process,
    /// Survives a power loss: the answer waits for the disk.
    PowerLoss,
}

/// Begins a write transaction.
///
/// Handles and ids promised to a caller must survive a power loss, which costs a wait for the disk (`FULL`).
/// Answers, records, leases and session timestamps are not worth that wait: the write-ahead log of a killed
/// process is complete without it (`NORMAL`), and after a power loss they are worth little.
fn begin(connection: &mut Connection, durability: Durability) -> rusqlite::Result<Transaction<'_>> {
    let level = match durability {
        Durability::Process => "NORMAL",
        Durability::PowerLoss => "FULL",
    };
    connection.pragma_update(None, "synchronous", level)?;
    // The lock is taken before anything is read: two processes that both found room cannot both go on to take
    // it.
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

/// Converts a number to SQLite's integer type.
fn sql_integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the owner of the rows that a statement selects; null for all owners.
fn owner_filter(scope: &OwnerScope) -> Option<&str> {
    scope.only().map(Owner::as_str)
}

/// Converts a row limit to SQLite's integer type.
fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
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

    /// Blocks the database thread until the sender is dropped.
    fn hold(database: &Database) -> blocking::Sender<()> {
        let (held, released) = blocking::channel::<()>();
        let waiting = database.run_to_completion(move |_| {
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
            owner: Owner::local(),
            created: NOW,
            expires: later(),
        }
    }

    #[tokio::test]
    async fn a_full_disk_is_reported_and_nothing_is_stored() {
        let (_directory, database) = database();
        database
            .run_to_completion(|connection| {
                Ok(connection.pragma_update_and_check(None, "max_page_count", 100, |_| Ok(()))?)
            })
            .await
            .unwrap();
        let put = |name: &str, n_bytes| database.put(OutputHandle(name.to_owned()), output(n_bytes), NOW);
        let put_large = put("large", 1_000_000).await;
        assert_eq!(put_large.unwrap_err().to_string(), "the store is full: no space left on the disk");
        put("small", 1_000).await.unwrap();
        assert_eq!(database.usage().await.unwrap().n_entries, 1);
        assert_eq!(database.get(OwnerScope::All, OutputHandle("large".to_owned()), NOW).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_caller_waits_for_a_full_queue_and_may_give_up() {
        let (_directory, database) = database();
        let held = hold(&database);
        let mut waiting = Vec::new();
        for _ in 0..MAX_WAITING + 5 {
            let mut usage = database.usage();
            assert!((&mut usage).now_or_never().is_none());
            waiting.push(usage);
        }
        let DatabaseEngine::File(jobs) = &database.engine else { panic!("the database is a file") };
        assert!(jobs.try_reserve().is_err(), "the channel is full");
        waiting.truncate(MAX_WAITING + 3);
        drop(held);
        for usage in waiting {
            assert_eq!(usage.await.unwrap().n_entries, 0);
        }
    }

    #[tokio::test]
    async fn abandoned_leases_and_outputs_are_skipped() {
        let (_directory, database) = database();
        let held = hold(&database);
        assert!(database.lease("q".to_owned(), 1, NOW, later()).now_or_never().is_none());
        assert!(database.put(OutputHandle("h".to_owned()), output(1), NOW).now_or_never().is_none());
        drop(held);
        assert_eq!(database.usage().await.unwrap().n_entries, 0);
        assert!(database.lease("q".to_owned(), 1, NOW, later()).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_stopped_database_thread_is_reported() {
        let (_directory, database) = database();
        let broken = database.run_to_completion::<(), _>(|_| panic!("a job that breaks"));
        assert_eq!(broken.await, Err(thread_ended()));
        assert_eq!(database.usage().await, Err(thread_ended()));
    }
}
