//! Behaviour specific to a file: persistence, sharing, and damage.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::FutureExt;
use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::store::{
    CacheKey, CacheStore, CachedResult, CallLog, CallQuery, CallSummary, CatalogueStore, LogEntry,
    OutputQuery, OutputStore, OwnedTrace, SessionHandle, SessionRecord, SessionStore, SlotStore, StoreError,
    StoreUsage, TraceQuery, TraceRecord,
};
use pegboard_stores::limits::{DatabaseLimits, OutputLimits};
use pegboard_stores::sqlite::Database;
use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use crate::numbered_outputs::{N_WRITES, at, child_body, output, output_handle, patterned};

fn temp_database_path() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    (directory, path)
}

fn answer(body: &'static str) -> CachedResult {
    CachedResult {
        body: Bytes::from_static(body.as_bytes()),
        tool: "add".to_owned(),
        created: at(0),
        expires: at(10),
    }
}

fn session(id: &str) -> SessionRecord {
    SessionRecord {
        id: id.to_owned(),
        name: "Default Session".to_owned(),
        owner: Owner::local(),
        workspace: None,
        created: at(0),
        used: at(0),
        expires: at(10),
    }
}

fn record() -> TraceRecord {
    TraceRecord {
        workspace_id: "default".to_owned(),
        session_id: "a".to_owned(),
        kind: "tool_call".to_owned(),
        content: "Successfully executed files.read".to_owned(),
        timestamp: 5,
        metadata: json!({"schemaVersion": 1}),
    }
}

fn all_traces() -> TraceQuery {
    TraceQuery { scope: OwnerScope::All, workspace: None, session: None, limit: 10 }
}

fn session_handle(name: &str) -> SessionHandle {
    SessionHandle { owner: Owner::local(), workspace: "default".to_owned(), name: name.to_owned() }
}

fn reason(path: &Path) -> String {
    match Database::open(path) {
        Ok(_) => "opened".to_owned(),
        Err(StoreError::Unusable { place, reason }) => {
            assert_eq!(place, path.display().to_string());
            reason
        }
        Err(StoreError::Full { reason } | StoreError::Failed { reason }) => panic!("{reason}"),
    }
}

async fn put_one_of_each(database: &Database) {
    CacheStore::put(database, CacheKey([1; 32]), answer("42"), at(0)).await.unwrap();
    OutputStore::put(database, output_handle(1), output(b"text".to_vec()), at(0)).await.unwrap();
    assert!(database.create(session("a"), at(0)).await.unwrap());
    assert_eq!(database.bind(session_handle("it"), "a".to_owned(), at(0)).await.unwrap(), "a");
    let trace = OwnedTrace { owner: Owner::local(), record: record() };
    database.append(Box::new([LogEntry::Trace(trace)].into_iter()), at(0)).await.unwrap();
    assert!(database.lease("browser".to_owned(), 1, at(0), at(10)).await.unwrap().is_some());
    database.save("f00d".to_owned(), "offer".into(), at(0)).await.unwrap();
}

async fn expect_one_of_each(database: &Database) {
    let cached = CacheStore::get(database, CacheKey([1; 32]), at(1)).await.unwrap();
    assert_eq!(cached, Some(answer("42")));
    let kept = OutputStore::get(database, OwnerScope::All, output_handle(1), at(1)).await.unwrap();
    assert_eq!(kept, Some(output(b"text".to_vec())));
    assert_eq!(database.usage().await.unwrap().n_entries, 1);
    assert_eq!(
        SessionStore::get(database, Owner::local(), "a".to_owned(), at(1)).await.unwrap(),
        Some(session("a"))
    );
    let found = SessionStore::find(database, session_handle("it"), at(1)).await.unwrap();
    assert_eq!(found, Some(session("a")));
    assert_eq!(database.traces(all_traces()).await.unwrap(), [record()]);
    assert_eq!(database.lease("browser".to_owned(), 1, at(1), at(10)).await.unwrap(), None);
    assert_eq!(database.load("f00d".to_owned()).await.unwrap(), Some("offer".into()));
}

#[tokio::test]
async fn data_survives_reopening_the_file() {
    let (_directory, path) = temp_database_path();
    let database = Database::open(&path).unwrap();
    put_one_of_each(&database).await;
    drop(database);
    expect_one_of_each(&Database::open(&path).unwrap()).await;
}

#[tokio::test]
async fn two_databases_on_one_file_see_each_others_writes() {
    let (_directory, path) = temp_database_path();
    let (one, other) = (Database::open(&path).unwrap(), Database::open(&path).unwrap());
    put_one_of_each(&one).await;
    expect_one_of_each(&other).await;
    assert!(!other.create(session("a"), at(1)).await.unwrap());
    assert!(other.create(session("b"), at(1)).await.unwrap());
    assert_eq!(other.bind(session_handle("it"), "b".to_owned(), at(1)).await.unwrap(), "a");
}

#[tokio::test]
async fn databases_on_one_file_never_exceed_the_slot_capacity() {
    let (_directory, path) = temp_database_path();
    let databases: Vec<Database> = (0..4).map(|_| Database::open(&path).unwrap()).collect();
    let requests = databases.iter().flat_map(|database| {
        (0..10).map(|_| {
            let database = database.clone();
            tokio::spawn(async move { database.lease("q".to_owned(), 7, at(0), at(10)).await.unwrap() })
        })
    });
    let leases = futures_util::future::join_all(requests.collect::<Vec<_>>()).await;
    let acquired: Vec<_> = leases.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(acquired.len(), 7);
    databases[0].release(acquired[3].clone()).await.unwrap();
    assert!(databases[3].lease("q".to_owned(), 7, at(1), at(10)).await.unwrap().is_some());
    assert_eq!(databases[1].lease("q".to_owned(), 7, at(1), at(10)).await.unwrap(), None);
}

#[tokio::test]
async fn a_new_file_can_be_opened_by_many_at_once() {
    for _ in 0..5 {
        let (_directory, path) = temp_database_path();
        let opening: Vec<_> = (0..6)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || Database::open(&path))
            })
            .collect();
        for opened in opening {
            let database = opened.join().unwrap().unwrap();
            assert_eq!(database.usage().await.unwrap(), StoreUsage::default());
        }
    }
}

#[tokio::test]
async fn a_queued_write_completes_after_its_future_and_the_last_clone_are_dropped() {
    let (_directory, path) = temp_database_path();
    let database = Database::open(&path).unwrap();
    for number in 0..20 {
        // After one poll the future has queued its job; then it is dropped.
        assert_eq!(SessionStore::put(&database, session(&format!("s{number}")), at(0)).now_or_never(), None);
    }
    drop(database);
    let database = Database::open(&path).unwrap();
    // The other thread needs some time, but not for ever.
    let all_written = async {
        while SessionStore::list(&database, OwnerScope::All, 100, at(0)).await.unwrap().len() < 20 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), all_written).await.unwrap();
}

#[tokio::test]
async fn a_quota_holds_across_processes() {
    let (_directory, path) = temp_database_path();
    let outputs = OutputLimits { max_bytes: 100, ..OutputLimits::default() };
    let limits = DatabaseLimits { outputs, ..DatabaseLimits::default() };
    let one = Database::open_with(&path, limits).unwrap();
    let other = Database::open_with(&path, limits).unwrap();
    OutputStore::put(&one, output_handle(1), output(vec![0; 60]), at(0)).await.unwrap();
    let refused = OutputStore::put(&other, output_handle(2), output(vec![0; 60]), at(0)).await;
    assert!(matches!(refused, Err(StoreError::Full { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_large_output_round_trips() {
    let (_directory, path) = temp_database_path();
    let database = Arc::new(Database::open(&path).unwrap());
    let body = patterned(3, 40 * 1024 * 1024);
    OutputStore::put(&*database, output_handle(1), output(body.clone()), at(0)).await.unwrap();
    let kept = OutputStore::get(&*database, OwnerScope::All, output_handle(1), at(0)).await.unwrap().unwrap();
    assert!(kept.body == body, "{} bytes came back", kept.body.len());
}

/// Kills a child once it has reported this many writes; returns the last reported number.
fn write_and_kill(path: &Path, first: usize, n_writes: usize) -> usize {
    let test = std::env::current_exe().unwrap();
    let mut child = Command::new(test.ancestors().nth(2).unwrap().join("examples/output_writer"))
        .arg(path)
        .arg(first.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let numbers = lines.filter_map(|line| line.unwrap().strip_prefix("written ")?.parse::<usize>().ok());
    let last = numbers.take(n_writes).last().unwrap();
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success(), "the child was killed in the middle of its work");
    last
}

#[tokio::test]
async fn a_killed_writer_leaves_complete_outputs_and_loses_no_acknowledged_one() {
    let (_directory, path) = temp_database_path();
    for (round, n_writes) in [1, 40, 97].into_iter().enumerate() {
        let first = round * N_WRITES;
        let last = write_and_kill(&path, first, n_writes);
        assert_eq!(last, first + n_writes - 1);
        let database = Database::open(&path).unwrap();
        for number in first..first + N_WRITES {
            let kept =
                OutputStore::get(&database, OwnerScope::All, output_handle(number), at(1)).await.unwrap();
            match kept {
                Some(kept) => assert!(kept.body == child_body(number), "output {number} is whole"),
                None => assert!(number > last, "output {number} was written"),
            }
        }
    }
    let counted: (u64, u64) = Connection::open(&path)
        .unwrap()
        .query_row("SELECT count(*), sum(n_bytes) FROM outputs", (), |row| {
            Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get::<_, i64>(1)?.unsigned_abs()))
        })
        .unwrap();
    let usage = Database::open(&path).unwrap().usage().await.unwrap();
    assert_eq!((usage.n_entries, usage.n_bytes), counted);
}

#[test]
fn a_file_that_is_not_a_database_is_refused_and_left_untouched() {
    let (_directory, path) = temp_database_path();
    let long = b"A diary. ".repeat(5_000);
    for contents in [&b"x"[..], b"SQLite format 3\0", &long] {
        fs::write(&path, contents).unwrap();
        assert_eq!(
            reason(&path),
            "the file is damaged (file is not a database); restore it, or move it away to start afresh"
        );
        assert_eq!(fs::read(&path).unwrap(), contents);
    }
}

/// Creates a closed database with 20 outputs; returns its bytes.
async fn write_outputs(path: &Path) -> Vec<u8> {
    let original = path.with_file_name("original.db");
    let database = Database::open(&original).unwrap();
    for number in 0..20 {
        OutputStore::put(&database, output_handle(number), output(child_body(number)), at(0)).await.unwrap();
    }
    Connection::open(&original).unwrap().execute("VACUUM INTO ?1", [path.to_str()]).unwrap();
    fs::read(path).unwrap()
}

fn scribbled(whole: &[u8]) -> Vec<u8> {
    let mut scribbled = whole.to_vec();
    scribbled[4_096..60_000].fill(0xff);
    scribbled
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_left_untouched() {
    let (_directory, path) = temp_database_path();
    let whole = write_outputs(&path).await;
    let truncated = whole[..whole.len() / 2].to_vec();
    for damaged in [scribbled(&whole), truncated] {
        fs::write(&path, &damaged).unwrap();
        let reason = reason(&path);
        assert!(reason.contains("damaged") || reason.contains("malformed"), "{reason}");
        assert!(fs::read(&path).unwrap() == damaged, "nothing was written");
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(Database::open(&path).unwrap().usage().await.unwrap().n_entries, 20);
}

/// Returns the names of the files beside a database that begin with its name, in order.
fn names_beside(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path.parent().unwrap()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let stem = path.file_name().unwrap().to_str().unwrap();
    let mut names: Vec<String> = names.filter(|name| name.starts_with(stem)).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_damaged_file_is_set_aside_and_a_new_one_begun() {
    let (_directory, path) = temp_database_path();
    let whole = write_outputs(&path).await;
    let cases = [
        // A file that was not closed is checked in the background.
        ("crashed", whole.clone(), true, false),
        ("scribbled", scribbled(&whole), true, true),
        // Nothing reads a whole file that the last process has closed.
        ("unread", scribbled(&whole), false, false),
        // This is noticed without reading it.
        ("truncated", whole[..whole.len() / 2].to_vec(), false, true),
        ("no-database", b"A diary. ".repeat(5_000), false, true),
        ("short", b"x".to_vec(), false, true),
    ];
    for (name, contents, is_left_open, is_replaced) in cases {
        let path = path.with_file_name(format!("{name}.db"));
        fs::write(&path, &contents).unwrap();
        let log = path.with_extension("db-wal");
        fs::write(&log, if is_left_open { vec![0; 100] } else { Vec::new() }).unwrap();
        let database = Database::open_in_background(&path, DatabaseLimits::default());
        assert_eq!(database.problem().await, None, "{name}");
        let aside = path.with_file_name(format!("{name}.db.damaged-1"));
        assert_eq!(aside.exists(), is_replaced, "{name}: {:?}", names_beside(&path));
        if is_replaced {
            assert!(fs::read(&aside).unwrap() == contents, "{name}: nothing was written");
            put_one_of_each(&database).await;
            expect_one_of_each(&Database::open(&path).unwrap()).await;
        }
    }
}

#[tokio::test]
async fn a_file_that_a_job_finds_damaged_is_set_aside() {
    let (_directory, path) = temp_database_path();
    let whole = write_outputs(&path).await;
    fs::write(&path, scribbled(&whole)).unwrap();
    let database = Database::open_in_background(&path, DatabaseLimits::default());
    // The contents are read only now.
    let mut n_failed = 0;
    for number in 0..20 {
        n_failed += usize::from(
            OutputStore::get(&database, OwnerScope::All, output_handle(number), at(0)).await.is_err(),
        );
    }
    assert_eq!(n_failed, 1, "the job that met the damage");
    assert!(names_beside(&path).contains(&"state.db.damaged-1".to_owned()), "{:?}", names_beside(&path));
    put_one_of_each(&database).await;
    expect_one_of_each(&Database::open(&path).unwrap()).await;
}

#[tokio::test]
async fn many_processes_set_a_damaged_file_aside_once() {
    let (_directory, path) = temp_database_path();
    fs::write(&path, b"A diary. ".repeat(5_000)).unwrap();
    let databases: Vec<Database> =
        (0..6).map(|_| Database::open_in_background(&path, DatabaseLimits::default())).collect();
    for database in &databases {
        assert_eq!(database.problem().await, None);
    }
    put_one_of_each(&databases[0]).await;
    expect_one_of_each(&databases[5]).await;
    let aside: Vec<String> =
        names_beside(&path).into_iter().filter(|name| name.contains("damaged")).collect();
    assert_eq!(aside, ["state.db.damaged-1"]);
}

#[tokio::test]
async fn damaged_files_are_kept_up_to_a_limit() {
    let (_directory, path) = temp_database_path();
    for _ in 0..9 {
        fs::write(&path, "A diary.").unwrap();
        assert_eq!(Database::open_in_background(&path, DatabaseLimits::default()).problem().await, None);
    }
    fs::write(&path, "A diary.").unwrap();
    let database = Database::open_in_background(&path, DatabaseLimits::default());
    let problem = database.problem().await.unwrap().to_string();
    assert!(problem.contains("9 damaged files"), "{problem}");
    assert_eq!(fs::read(&path).unwrap(), b"A diary.");
    put_one_of_each(&database).await;
    expect_one_of_each(&database).await;
}

/// Released schemas, from version 1.
const SCHEMAS: [&str; 5] = [
    include_str!("../../src/sqlite/schema.sql"),
    include_str!("../../src/sqlite/catalogue.sql"),
    include_str!("../../src/sqlite/history.sql"),
    include_str!("../../src/sqlite/call_log.sql"),
    include_str!("../../src/sqlite/call_heads.sql"),
];

/// Creates the tables of an earlier version.
fn create_schema(path: &Path, version: usize) -> Connection {
    let file = Connection::open(path).unwrap();
    for schema in &SCHEMAS[..version] {
        file.execute_batch(schema).unwrap();
    }
    file.pragma_update(None, "application_id", 0x5045_4742).unwrap();
    file.pragma_update(None, "user_version", i64::try_from(version).unwrap()).unwrap();
    file
}

/// Creates a file as a version up to 3 wrote it, with one trace record and, since version 3, 200 calls.
fn create_older(path: &Path, version: usize) {
    let file = create_schema(path, version);
    let TraceRecord { workspace_id, session_id, kind, content, timestamp, metadata } = record();
    file.execute(
        "INSERT INTO traces (workspace_id, session_id, kind, done_at, n_bytes, content, metadata) \
         VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6)",
        (workspace_id, session_id, kind, i64::try_from(timestamp).unwrap(), content, metadata.to_string()),
    )
    .unwrap();
    for n in 0..if version >= 3 { 200 } else { 0 } {
        let (id, body) = (format!("call-{n}"), format!("{{\"\u{e9}\":{n}}}"));
        let started = 1_000_000_000 + i64::from(n);
        file.execute(
            "INSERT INTO history VALUES (?1, 's', 'ann', 'notes\u{e9}', ?2, ?3, 1234, 9, 1000010000, ?4)",
            (id, (n % 2 == 1).then_some("timeout"), started, body.as_bytes()),
        )
        .unwrap();
    }
}

#[tokio::test]
async fn a_file_of_an_older_version_is_migrated() {
    for version in 1..=3 {
        let (_directory, path) = temp_database_path();
        create_older(&path, version);
        let opening: Vec<_> = (0..4)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || Database::open(&path))
            })
            .collect();
        let opened: Vec<Database> =
            opening.into_iter().map(|opened| opened.join().unwrap().unwrap()).collect();
        assert_eq!(opened[0].traces(all_traces()).await.unwrap(), [record()]);
        let n_calls = if version >= 3 { 200 } else { 0 };
        let calls = opened[1].calls(CallQuery::newest(OwnerScope::All, 1_000), at(0)).await.unwrap();
        assert_eq!(calls.len(), n_calls);
        let ids = calls.iter().map(|call| call.id.clone()).collect();
        for (place, found) in
            opened[2].calls_by_id(OwnerScope::All, ids, at(0)).await.unwrap().into_iter().enumerate()
        {
            let n = n_calls - 1 - place;
            assert_eq!(found.summary, calls[place]);
            assert_eq!(found.body, format!("{{\"\u{e9}\":{n}}}"));
            assert_eq!(&*found.summary.tool, "notes\u{e9}");
            assert_eq!(found.summary.error.as_deref(), (n % 2 == 1).then_some("timeout"));
        }
        assert_eq!(opened[3].calls(CallQuery::newest(OwnerScope::All, 1), at(10)).await.unwrap(), []);
    }
}

#[tokio::test]
async fn calls_that_version_4_wrote_are_found_beside_later_ones() {
    let (_directory, path) = temp_database_path();
    create_schema(&path, 4).execute_batch(include_str!("version-4.sql")).unwrap();
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_794_985_003_400);
    let database = Database::open(&path).unwrap();
    let find = async |database: &Database, id_prefix: Option<&str>| {
        let query =
            CallQuery { id_prefix: id_prefix.map(str::to_owned), ..CallQuery::newest(OwnerScope::All, 10) };
        database.calls(query, now).await.unwrap()
    };
    let before = find(&database, None).await;
    let told = |call: &CallSummary| {
        format!("{} {} {} {} {:?}", call.id, call.session, call.owner.as_str(), call.tool, call.error)
    };
    assert_eq!(
        before.iter().map(told).collect::<Vec<_>>(),
        [
            "6a505773f5fe1fc0cc35926855b92625 session-9559a553-46a6-4bbc-9ce3-8cdbcf29b2eb 0::local chain__twice Some(\"execution_error\")",
            "7e61876b404afd0fae6d243ab1ca63b7 session-493ab665-220a-4a2e-ac9b-b79219e74d6f 0::local chain__twice Some(\"execution_error\")",
            "3e1f3d94c10d221b23ddd63f5bbb1898 session-e31ca855-824e-40ef-9dec-88f57ccc3e26 0::local s0__echo None",
            "50ba99c7b7a7bc386342ed3c585a91d7 session-690e1968-fe48-4d38-9eb0-baeb74993162 0::local s0__echo None",
        ]
    );
    assert_eq!(before[2].duration, Duration::from_micros(4_287));
    let by_id = database
        .calls_by_id(OwnerScope::All, before.iter().map(|call| call.id.clone()).collect(), now)
        .await
        .unwrap();
    for (summary, found) in before.iter().zip(&by_id) {
        assert_eq!(found.summary, *summary);
        let operation: serde_json::Value = serde_json::from_str(&found.body).unwrap();
        assert_eq!(operation["name"], *summary.tool);
        assert_eq!(operation["accounting"][0]["txnId"], *summary.session);
    }
    assert_eq!(find(&database, Some("3e1f")).await, before[2..3]);

    // A later call extends the segment.
    let mut later = by_id[0].clone();
    (later.summary.id, later.summary.started) = ("later".to_owned(), now);
    database.append(Box::new([LogEntry::Call(later.clone())].into_iter()), now).await.unwrap();
    assert_eq!(find(&database, None).await[1..], before);
    assert_eq!(database.calls_by_id(OwnerScope::All, vec!["later".to_owned()], now).await.unwrap(), [later]);
    let n_segments: i64 = Connection::open(&path)
        .unwrap()
        .query_row("SELECT count(*) FROM log_segments", (), |row| row.get(0))
        .unwrap();
    assert_eq!(n_segments, 1);
}

/// Fills a file with something that this version cannot use; returns what keeps it so.
type MakeUnusable = fn(&Path) -> Option<Connection>;

#[tokio::test]
async fn what_version_5_kept_without_an_owner_belongs_to_the_local_principal() {
    let (_directory, path) = temp_database_path();
    create_schema(&path, 5).execute_batch(include_str!("version-5.sql")).unwrap();
    let database = Database::open(&path).unwrap();
    let now = at(0);
    let only = |name: &str| OwnerScope::Only(Owner::new(name));
    let told = async |scope: OwnerScope| {
        let sessions = SessionStore::list(&database, scope.clone(), 10, now).await.unwrap();
        let sessions = sessions.iter().map(|session| session.id.clone()).collect::<Vec<_>>();
        let query = OutputQuery { scope: scope.clone(), limit: 10 };
        let outputs = OutputStore::list(&database, query, now).await.unwrap();
        let outputs = outputs.iter().map(|output| output.handle.to_string()).collect::<Vec<_>>();
        let calls = database.calls(CallQuery::newest(scope.clone(), 10), now).await.unwrap();
        let calls = calls.iter().map(|call| call.id.clone()).collect::<Vec<_>>();
        let records = database.traces(TraceQuery { scope, ..all_traces() }).await.unwrap();
        let records = records.iter().map(|record| record.content.clone()).collect::<Vec<_>>();
        [sessions, outputs, calls, records].map(|each| each.join(" ")).join(" | ")
    };
    assert_eq!(told(only("local")).await, "s-1 | session-1/a | c c1 | of bob of someone");
    // Its session had another owner before, so the owner of the record is unknown.
    assert_eq!(told(only("bob")).await, "s-2 | session-2/b | c2 | ");
    assert_eq!(
        told(OwnerScope::All).await,
        "s-2 s-1 | session-2/b session-1/a | c2 c c1 | of bob of someone"
    );
    for (owner, expected) in [("local", "s-1"), ("bob", "s-2")] {
        let workspace = "default".to_owned();
        let handle = SessionHandle { owner: Owner::new(owner), workspace, name: "it".to_owned() };
        assert_eq!(database.find(handle, now).await.unwrap().unwrap().id, expected);
    }
    // The counters still agree with the tables.
    assert_eq!(database.usage().await.unwrap(), StoreUsage { n_entries: 2, n_bytes: 2 });
    SessionStore::put(&database, session("s-3"), now).await.unwrap();
    assert!(SessionStore::remove(&database, Owner::new("bob"), "s-2".to_owned()).await.unwrap());
    let n_sessions: i64 = Connection::open(&path)
        .unwrap()
        .query_row("SELECT n_kept FROM tallies WHERE subject = 'sessions'", (), |row| row.get(0))
        .unwrap();
    assert_eq!(n_sessions, 2);
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_left_alone_and_replaced_by_memory() {
    let (_directory, path) = temp_database_path();
    let usable = Database::open_in_background(&path, DatabaseLimits::default());
    put_one_of_each(&usable).await;
    assert_eq!(usable.problem().await, None);
    expect_one_of_each(&Database::open(&path).unwrap()).await;

    let cases: [(&str, MakeUnusable, &str); 3] = [
        (
            "newer",
            |path| {
                drop(Database::open(path).unwrap());
                Connection::open(path).unwrap().pragma_update(None, "user_version", 1_000).unwrap();
                None
            },
            "written by a newer version of Pegboard",
        ),
        (
            "others",
            |path| {
                let file = Connection::open(path).unwrap();
                file.execute_batch("CREATE TABLE notes (text TEXT)").unwrap();
                None
            },
            "the database of another program",
        ),
        (
            "locked",
            |path| {
                let file = Connection::open(path).unwrap();
                file.execute_batch("CREATE TABLE notes (text TEXT); BEGIN EXCLUSIVE").unwrap();
                Some(file)
            },
            "locked by another program for 5 s; end that program, then restart Pegboard",
        ),
    ];
    for (name, make_unusable, expected) in cases {
        let path = path.with_file_name(format!("{name}.db"));
        let lock = make_unusable(&path);
        let replaced = Database::open_in_background(&path, DatabaseLimits::default());
        put_one_of_each(&replaced).await;
        expect_one_of_each(&replaced).await;
        let problem = replaced.problem().await.unwrap().to_string();
        assert!(problem.contains(expected) && problem.contains(path.to_str().unwrap()), "{problem}");
        assert!(!names_beside(&path).iter().any(|name| name.contains("damaged")), "{name}");
        drop(lock);
    }
}

#[test]
fn a_file_of_a_newer_version_or_of_another_program_is_refused() {
    let (_directory, path) = temp_database_path();
    drop(Database::open(&path).unwrap());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 9).unwrap();
    assert_eq!(
        reason(&path),
        "written by a newer version of Pegboard (schema version 9, this one supports 8); use that version, or \
         another file"
    );

    let others = path.with_file_name("others.db");
    Connection::open(&others).unwrap().execute_batch("CREATE TABLE notes (text TEXT)").unwrap();
    let before = fs::read(&others).unwrap();
    assert_eq!(reason(&others), "the file is the database of another program; use another file");
    assert_eq!(fs::read(&others).unwrap(), before);
}

#[test]
fn an_unusable_path_reports_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    for (path, expected) in [
        (file.join("state.db"), "the directory"),
        (file.join("deep").join("state.db"), "the directory"),
        (directory.path().to_owned(), "not a regular file"),
        (PathBuf::new(), "cannot make an empty path absolute"),
    ] {
        let reason = reason(&path);
        assert!(reason.contains(expected), "{}: {reason}", path.display());
    }
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_private_to_the_user() {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().unwrap();
    let (outer, inner) = (directory.path().join("outer"), directory.path().join("outer/inner"));
    let path = inner.join(":memory:");
    let database = Database::open(&path).unwrap();
    put_one_of_each(&database).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for (path, expected) in [
        (outer, 0o700),
        (inner.clone(), 0o700),
        (path, 0o600),
        (inner.join(":memory:-wal"), 0o600),
        (inner.join(":memory:-shm"), 0o600),
    ] {
        assert_eq!(mode(&path), expected, "{}", path.display());
    }
}
