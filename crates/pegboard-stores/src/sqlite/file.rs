//! Opening, creating and checking of a database.

use std::error::Error;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::path::Path;
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
const MIGRATIONS: [&str; 6] = [
    include_str!("schema.sql"),
    include_str!("catalogue.sql"),
    include_str!("history.sql"),
    include_str!("call_log.sql"),
    include_str!("call_heads.sql"),
    include_str!("owners.sql"),
];
/// The current schema version.
const SCHEMA_VERSION: i64 = 6;
/// Time to wait for the lock of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of the write-ahead log file after a checkpoint.
const MAX_WAL_BYTES: i64 = 16 * 1024 * 1024;
/// Capacity of the prepared statement cache; there are fewer statements.
const STATEMENT_CACHE_CAPACITY: usize = 64;

type OpenResult<T> = Result<T, Box<dyn Error>>;

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
    try_open(path, check).map_err(|reason| unusable(&path.display().to_string(), &*reason))
}

/// Checks the contents of an open file.
pub(super) fn check(connection: &Connection) -> Result<(), StoreError> {
    check_integrity(connection).map_err(|reason| unusable(connection.path().unwrap_or_default(), &*reason))
}

fn unusable(place: &str, reason: &dyn Error) -> StoreError {
    StoreError::Unusable { place: place.to_owned(), reason: reason.to_string() }
}

/// Creates an empty database in memory.
pub(super) fn open_in_memory() -> Connection {
    let open = || -> OpenResult<Connection> {
        let mut connection = Connection::open_in_memory()?;
        configure(&connection)?;
        migrate(&mut connection)?;
        Ok(connection)
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
        return Err("the file is read-only".into());
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
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    fs::metadata(log).is_ok_and(|metadata| metadata.len() > 0)
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
        return Err("not a regular file".into());
    }
    if (1..MIN_DATABASE_BYTES).contains(&metadata.len()) {
        return Err("file is not a database".into());
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
            Ok(FileContents::Older { version: usize::try_from(older)? })
        }
        (APPLICATION_ID, newer) if newer > SCHEMA_VERSION => {
            let reason = format!(
                "written by a newer version of Pegboard (schema version {newer}, this one supports {SCHEMA_VERSION}); \
                 use that version, or another file"
            );
            Err(reason.into())
        }
        _ => Err("the file is the database of another program; use another file".into()),
    }
}

/// Checks the whole file, so that damage is found here and not in the middle of a call.
fn check_integrity(connection: &Connection) -> OpenResult<()> {
    let found: String = connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0))?;
    if found == "ok" {
        return Ok(());
    }
    let damage = found.lines().find(|line| !line.starts_with("***")).unwrap_or_default();
    Err(format!("the file is damaged ({damage}); restore it, or move it away to start afresh").into())
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
        return Err(
            format!("the file system does not support a write-ahead log (SQLite reports '{mode}')").into()
        );
    }
    connection.pragma_update_and_check(None, "journal_size_limit", MAX_WAL_BYTES, |_| Ok(()))?;
    Ok(())
}

/// Retries while the database is busy, where SQLite does not do so itself.
fn retry_while_busy<T>(attempt: impl Fn() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    const PAUSE: Duration = Duration::from_millis(10);
    let mut waited = Duration::ZERO;
    loop {
        match attempt() {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && waited < BUSY_TIMEOUT =>
            {
                thread::sleep(PAUSE);
                waited += PAUSE;
            }
            ended => return ended,
        }
    }
}
