//! How a database is found, made and looked over.

use std::error::Error;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pegboard_core::store::StoreError;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

/// What the header of our files says, so that no other program's database is taken for ours.
const APPLICATION: i64 = 0x5045_4742; // "PEGB"
/// How the tables came to be: each layout is what it adds to the one before it, from layout 1 on. What was written down
/// here once stays as it is; a change is a new layout.
const LAYOUTS: [&str; 3] =
    [include_str!("schema.sql"), include_str!("catalogue.sql"), include_str!("history.sql")];
/// The newest layout of the tables.
const LAYOUT: i64 = 3;
/// How long one process waits for another that writes.
const PATIENCE: Duration = Duration::from_secs(5);
/// How large the log may stay after a large output went through it.
const LOG_BYTES: i64 = 16 * 1024 * 1024;
/// How many prepared statements are kept; there are fewer.
const STATEMENTS: usize = 64;

type Opened<T> = Result<T, Box<dyn Error>>;

/// A connection to the database at a path, which is made if there is none. What is no database of ours stays as it is.
pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    try_open(path).map_err(|reason| StoreError::Unusable {
        place: path.display().to_string(),
        reason: reason.to_string(),
    })
}

fn try_open(path: &Path) -> Opened<Connection> {
    // The engine gives names such as `:memory:` a meaning of their own, but no path that begins at the root.
    let path = std::path::absolute(path)?;
    create(&path)?;
    recognise(&path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(&path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    if connection.is_readonly("main")? {
        return Err("the file may not be written to".into());
    }
    let found = contents(&connection.transaction()?)?;
    match found {
        Contents::Ours => look_over(&connection)?,
        Contents::Older { .. } => {
            look_over(&connection)?;
            lay_out(&mut connection)?;
        }
        Contents::Nothing => lay_out(&mut connection)?,
    }
    connection.pragma_update(None, "foreign_keys", "ON")?;
    // Only some systems know the difference: there a sync without it does not reach the disk.
    connection.pragma_update(None, "fullfsync", "ON")?;
    write_ahead(&connection)?;
    Ok(connection)
}

/// Makes the file and the directories before it, for nobody else to read, unless they are there.
fn create(path: &Path) -> io::Result<()> {
    /// To close a file takes away the locks that this process has on it, so nobody gets any before it is closed.
    static CREATING: Mutex<()> = Mutex::new(());

    let mut directory = DirBuilder::new();
    directory.recursive(true);
    let mut file = OpenOptions::new();
    file.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        directory.mode(0o700);
        // The engine gives the files beside this one the same mode.
        file.mode(0o600);
    }
    if let Some(parent) = path.parent() {
        directory.create(parent).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("the directory {} cannot be made: {error}", parent.display()),
            )
        })?;
    }
    let _creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    match file.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Refuses what the engine would get wrong: it takes a very short file for an empty one, and writes over it.
///
/// The file is not opened for this: to close it again would take away the locks that this process has on it.
fn recognise(path: &Path) -> Opened<()> {
    /// The size of the smallest database.
    const SHORTEST: u64 = 512;
    let about = fs::metadata(path)?;
    if !about.is_file() {
        return Err("it is not a file".into());
    }
    if (1..SHORTEST).contains(&about.len()) {
        return Err("file is not a database".into());
    }
    Ok(())
}

/// What is in a file that can be used.
enum Contents {
    Nothing,
    /// Tables of an earlier version of this program.
    Older {
        layout: usize,
    },
    Ours,
}

/// What is in the file; in a transaction, so that what is read together belongs together.
fn contents(reading: &Transaction<'_>) -> Opened<Contents> {
    let header = |name: &str| reading.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, layout) = (header("application_id")?, header("user_version")?);
    let n_tables: i64 = reading.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
    match (application, layout) {
        (0, 0) if n_tables == 0 => Ok(Contents::Nothing),
        (APPLICATION, LAYOUT) => Ok(Contents::Ours),
        (APPLICATION, older @ 1..LAYOUT) => Ok(Contents::Older { layout: usize::try_from(older)? }),
        (APPLICATION, newer) if newer > LAYOUT => {
            let reason = format!(
                "it was written by a newer version of this program (layout {newer}, this one knows {LAYOUT}); \
                 use that version, or another file"
            );
            Err(reason.into())
        }
        _ => Err("it is the database of another program; use another file".into()),
    }
}

/// Reads the whole file once: what is damaged is found here, and not by a caller in the middle of its work.
fn look_over(connection: &Connection) -> Opened<()> {
    let found: String = connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0))?;
    if found == "ok" {
        return Ok(());
    }
    let damage = found.lines().find(|line| !line.starts_with("***")).unwrap_or_default();
    Err(format!("the file is damaged ({damage}); restore it, or move it away to begin anew").into())
}

/// Makes the tables that are missing, all of them or none, unless another process was faster.
fn lay_out(connection: &mut Connection) -> Opened<()> {
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let n_there = match contents(&change)? {
        Contents::Nothing => 0,
        Contents::Older { layout } => layout,
        Contents::Ours => return Ok(()),
    };
    for tables in LAYOUTS.iter().skip(n_there) {
        change.execute_batch(tables)?;
    }
    change.pragma_update(None, "application_id", APPLICATION)?;
    change.pragma_update(None, "user_version", LAYOUT)?;
    Ok(change.commit()?)
}

/// Has changes written to a log first, so that readers and a writer do not wait for each other.
fn write_ahead(connection: &Connection) -> Opened<()> {
    let mode = patiently(|| {
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))
    })?;
    if mode != "wal" {
        return Err(format!("its disk cannot keep a log beside it (the engine says '{mode}')").into());
    }
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    Ok(())
}

/// Waits for other processes where the engine does not do so by itself.
fn patiently<T>(attempt: impl Fn() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    const PAUSE: Duration = Duration::from_millis(10);
    let mut waited = Duration::ZERO;
    loop {
        match attempt() {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && waited < PATIENCE => {
                thread::sleep(PAUSE);
                waited += PAUSE;
            }
            ended => return ended,
        }
    }
}
