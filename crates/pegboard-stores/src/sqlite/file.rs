//! Opening, creating and checking of a database.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use pegboard_core::store::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

/// The `application_id` in the file header, which distinguishes our files from other SQLite databases.
const APPLICATION_ID: i64 = 0x5045_4742; // "PEGB"
/// Schema migrations: each extends the tables of the previous version, starting with version 1. Released ones
/// never change; a change is a new migration.
const MIGRATIONS: [&str; 8] = [
    include_str!("schema.sql"),
    include_str!("catalogue.sql"),
    include_str!("history.sql"),
    include_str!("call_log.sql"),
    include_str!("call_heads.sql"),
    include_str!("owners.sql"),
    include_str!("credentials.sql"),
    include_str!("clients.sql"),
];
/// The current schema version.
const SCHEMA_VERSION: i64 = 8;
/// Time to wait for the lock of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between attempts to take a lock.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// Maximum size of the write-ahead log file after a checkpoint.
const MAX_WAL_BYTES: i64 = 16 * 1024 * 1024;
/// Capacity of the prepared statement cache; there are fewer statements.
const STATEMENT_CACHE_CAPACITY: usize = 64;

/// Maximum number of damaged files kept beside the current one.
const MAX_SET_ASIDE: usize = 9;

type OpenResult<T> = Result<T, OpenError>;

/// The reason a file cannot be used.
#[derive(Debug)]
enum OpenError {
    /// The file is not a whole database. It can be replaced.
    Damaged(String),
    /// The file is fine, or cannot be judged. It must be left untouched.
    Refused(String),
}

impl OpenError {
    fn into_store_error(self, path: &Path) -> StoreError {
        let reason = match self {
            Self::Damaged(damage) => {
                format!("the file is damaged ({damage}); restore it, or move it away to start afresh")
            }
            Self::Refused(reason) => reason,
        };
        StoreError::Unusable { place: path.display().to_string(), reason }
    }
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            _ if is_damage(&error) => Self::Damaged(error.to_string()),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Refused(format!(
                "the file was locked by another program for {} s; end that program, then restart Pegboard",
                BUSY_TIMEOUT.as_secs()
            )),
            _ => Self::Refused(error.to_string()),
        }
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Refused(error.to_string())
    }
}

/// Returns `true` if an error means that the contents of the file are damaged.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// Time at which the contents of a file are checked, which reads all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntegrityCheck {
    /// While the file is opened.
    AtOpen,
    /// Later, and only if the last process that used the file did not close it. Damage of another kind is an
    /// error of the job that meets it.
    AfterCrash,
}

/// An open file.
pub(super) struct OpenFile {
    pub(super) connection: Connection,
    /// `true` if [`check`] is due.
    pub(super) is_unchecked: bool,
}

/// Opens the database at a path; creates it if it does not exist. A file that is not our database is left
/// untouched.
pub(super) fn open(path: &Path, check: IntegrityCheck) -> Result<OpenFile, StoreError> {
    try_open(path, check).map_err(|error| error.into_store_error(path))
}

/// Opens the database at a path, like [`open`], but sets a damaged file aside and begins a new one.
pub(super) fn open_or_replace(path: &Path, check: IntegrityCheck) -> Result<OpenFile, StoreError> {
    let opened = match try_open(path, check) {
        Err(OpenError::Damaged(_)) => replace_damaged(path, check),
        opened => opened,
    };
    opened.map_err(|error| error.into_store_error(path))
}

/// Returns `true` if the contents of an open file are damaged.
pub(super) fn is_damaged(connection: &Connection) -> bool {
    matches!(check_integrity(connection), Err(OpenError::Damaged(_)))
}

/// Replaces a damaged file, unless another process has replaced it in the meantime. No connection of this
/// process may be open.
fn replace_damaged(path: &Path, check: IntegrityCheck) -> OpenResult<OpenFile> {
    let _lock = lock_beside(path)?;
    match try_open(path, check) {
        Err(OpenError::Damaged(reason)) => {
            let aside = set_aside(path, &reason)?;
            tracing::warn!(
                "The state file {} is damaged ({reason}). It is now {}, and a new one was begun.",
                path.display(),
                aside.display()
            );
            try_open(path, check)
        }
        opened => opened,
    }
}

/// Locks a file beside the database, so that only one process replaces it.
fn lock_beside(path: &Path) -> OpenResult<File> {
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).open(with_suffix(path, ".lock"))?;
    let is_locked = || match file.try_lock() {
        Ok(()) => Some(Ok(())),
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Error(error)) => Some(Err(error)),
    };
    let mut waited = Duration::ZERO;
    while waited < BUSY_TIMEOUT {
        if let Some(locked) = is_locked() {
            locked?;
            return Ok(file);
        }
        thread::sleep(BUSY_PAUSE);
        waited += BUSY_PAUSE;
    }
    Err(OpenError::Refused("another process is replacing the damaged file".to_owned()))
}

/// Renames a damaged file and its logs; returns the new path.
fn set_aside(path: &Path, reason: &str) -> OpenResult<PathBuf> {
    let names = (1..=MAX_SET_ASIDE).map(|number| with_suffix(path, &format!(".damaged-{number}")));
    let Some(aside) = names.into_iter().find(|name| !name.exists()) else {
        return Err(OpenError::Refused(format!(
            "{reason}; there are already {MAX_SET_ASIDE} damaged files beside it: move them away"
        )));
    };
    fs::rename(path, &aside)?;
    for log in ["-wal", "-shm"] {
        match fs::rename(with_suffix(path, log), with_suffix(&aside, log)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(aside)
}

/// Returns a path with more text at its end.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Creates an empty database in memory.
pub(super) fn open_in_memory() -> Connection {
    let open = || {
        let mut connection = Connection::open_in_memory()?;
        configure(&connection)?;
        migrate(&mut connection)?;
        OpenResult::Ok(connection)
    };
    open().expect("a database in memory needs nothing but memory")
}

fn try_open(path: &Path, check: IntegrityCheck) -> OpenResult<OpenFile> {
    // SQLite gives names such as `:memory:` a special meaning, but not absolute paths.
    let path = std::path::absolute(path)?;
    create(&path)?;
    check_file(&path)?;
    let is_left_open = has_log(&path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(&path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    configure(&connection)?;
    if connection.is_readonly("main")? {
        return Err(OpenError::Refused("the file is read-only".to_owned()));
    }
    let found = identify(&connection.transaction()?)?;
    match (found, check) {
        (FileContents::Current, IntegrityCheck::AfterCrash) => {}
        (FileContents::Current, IntegrityCheck::AtOpen) => check_integrity(&connection)?,
        (FileContents::Older { .. }, _) => {
            check_integrity(&connection)?;
            migrate(&mut connection)?;
        }
        (FileContents::Empty, _) => migrate(&mut connection)?,
    }
    // Only some systems distinguish: there a sync without it does not reach the disk.
    connection.pragma_update(None, "fullfsync", "ON")?;
    enable_wal(&connection)?;
    Ok(OpenFile { connection, is_unchecked: is_left_open && check == IntegrityCheck::AfterCrash })
}

/// Returns `true` if there is a write-ahead log, which the last process to close the file removes.
fn has_log(path: &Path) -> bool {
    fs::metadata(with_suffix(path, "-wal")).is_ok_and(|metadata| metadata.len() > 0)
}

/// Sets what does not depend on the contents.
fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_CAPACITY);
    // Otherwise a statement is compiled again for every new parameter, in search of a better plan.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "foreign_keys", "ON")
}

/// Creates the file and its parent directories, readable only by the user, unless they exist.
fn create(path: &Path) -> io::Result<()> {
    /// Closing a file releases this process's locks on it, so no connection may lock it before it is closed.
    static CREATING: Mutex<()> = Mutex::new(());

    let mut directory = DirBuilder::new();
    directory.recursive(true);
    let mut file = OpenOptions::new();
    file.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        directory.mode(0o700);
        // SQLite gives the files beside this one the same mode.
        file.mode(0o600);
    }
    if let Some(parent) = path.parent() {
        directory.create(parent).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot create the directory {}: {error}", parent.display()))
        })?;
    }
    let _creating = CREATING.lock();
    match file.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Rejects files that SQLite would misjudge: it treats a very short file as empty, and overwrites it.
///
/// The file is not opened for this: closing it would release this process's locks on it.
fn check_file(path: &Path) -> OpenResult<()> {
    /// Size of the smallest database.
    const MIN_DATABASE_BYTES: u64 = 512;
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(OpenError::Refused("not a regular file".to_owned()));
    }
    if (1..MIN_DATABASE_BYTES).contains(&metadata.len()) {
        return Err(OpenError::Damaged("file is not a database".to_owned()));
    }
    Ok(())
}

/// Contents of a usable file.
enum FileContents {
    Empty,
    /// Tables of an earlier version of this program.
    Older {
        version: usize,
    },
    Current,
}

/// Identifies the contents of the file; in a transaction, so that the values are consistent.
fn identify(reading: &Transaction<'_>) -> OpenResult<FileContents> {
    let header = |name: &str| reading.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, version) = (header("application_id")?, header("user_version")?);
    let n_tables: i64 = reading.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
    match (application, version) {
        (0, 0) if n_tables == 0 => Ok(FileContents::Empty),
        (APPLICATION_ID, SCHEMA_VERSION) => Ok(FileContents::Current),
        (APPLICATION_ID, older @ 1..SCHEMA_VERSION) => {
            let version = usize::try_from(older).expect("it is in the range of the match");
            Ok(FileContents::Older { version })
        }
        (APPLICATION_ID, newer) if newer > SCHEMA_VERSION => {
            let reason = format!(
                "written by a newer version of Pegboard (schema version {newer}, this one supports {SCHEMA_VERSION}); \
                 use that version, or another file"
            );
            Err(OpenError::Refused(reason))
        }
        _ => Err(OpenError::Refused(
            "the file is the database of another program; use another file".to_owned(),
        )),
    }
}

/// Checks the whole file, so that damage is found here and not in the middle of a call.
fn check_integrity(connection: &Connection) -> OpenResult<()> {
    let found: String = connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0))?;
    if found == "ok" {
        return Ok(());
    }
    let damage = found.lines().find(|line| !line.starts_with("***")).unwrap_or_default();
    Err(OpenError::Damaged(damage.to_owned()))
}

/// Creates the missing tables, all or none, unless another process was faster.
fn migrate(connection: &mut Connection) -> OpenResult<()> {
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let n_applied = match identify(&change)? {
        FileContents::Empty => 0,
        FileContents::Older { version } => version,
        FileContents::Current => return Ok(()),
    };
    for migration in MIGRATIONS.iter().skip(n_applied) {
        change.execute_batch(migration)?;
    }
    change.pragma_update(None, "application_id", APPLICATION_ID)?;
    change.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    Ok(change.commit()?)
}

/// Enables the write-ahead log, so that readers and a writer do not block each other.
fn enable_wal(connection: &Connection) -> OpenResult<()> {
    let mode = retry_while_busy(|| {
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))
    })?;
    if mode != "wal" {
        return Err(OpenError::Refused(format!(
            "the file system does not support a write-ahead log (SQLite reports '{mode}')"
        )));
    }
    connection.pragma_update_and_check(None, "journal_size_limit", MAX_WAL_BYTES, |_| Ok(()))?;
    Ok(())
}

/// Retries while the database is busy, where SQLite does not do so itself.
fn retry_while_busy<T>(attempt: impl Fn() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let mut waited = Duration::ZERO;
    loop {
        match attempt() {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && waited < BUSY_TIMEOUT =>
            {
                thread::sleep(BUSY_PAUSE);
                waited += BUSY_PAUSE;
            }
            ended => return ended,
        }
    }
}
