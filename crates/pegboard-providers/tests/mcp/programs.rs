//! Servers that are programs, and pools of them.
//!
//! The programs are this test binary again, which plays a role if it is told to: see [`actor`].

#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pegboard_core::call::CallContext;
use pegboard_core::id::ServerName;
use pegboard_core::provider::{Method, Particulars, Provider, Request, ServerState, Transport};
use pegboard_core::settings::mcp::{Program, Secret, Settings, Target};
use pegboard_providers::mcp::{Health, Pool, PoolOptions};
use pegboard_providers::process::Supervisor;
use pegboard_testkit::fixture::Fixture;
use pegboard_wire::link::InputLimits;
use pegboard_wire::server::Server;
use pegboard_wire::stdio::lines;
use serde_json::json;
use tokio::time;

use crate::stage::{become_true, call, said};

/// Who waits for so long has failed.
const LONG: Duration = Duration::from_mins(1);

/// What the tests start. It is not a test.
#[test]
#[ignore = "what other tests start"]
fn actor() {
    let arguments: Vec<String> = std::env::args().collect();
    let Some(role) = arguments.iter().find_map(|argument| argument.strip_prefix("as:")) else { return };
    match role {
        "server" => serve(),
        "broken" => {
            eprintln!("cannot log in with {}", std::env::var("TOKEN").unwrap());
            std::process::exit(3);
        }
        "silent" => {
            eprintln!("still loading");
            std::thread::park();
        }
        "secretive" => {
            eprintln!("the diary of {}", std::process::id());
            std::thread::park();
        }
        "supervisor" => {
            let program = arguments.iter().skip_while(|argument| *argument != "--");
            let _ = pegboard_providers::process::supervise(program.map(Into::into));
        }
        other => panic!("there is no role {other}"),
    }
    std::process::exit(0);
}

fn serve() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (link, pump) = lines(tokio::io::stdin(), tokio::io::stdout(), InputLimits::server());
        Server::new(Arc::new(Fixture::new())).serve(link).await;
        let _ = pump.await;
    });
}

fn this_program() -> String {
    std::env::current_exe().unwrap().to_str().unwrap().to_owned()
}

/// The arguments that make this program play a role.
fn playing(role: &str) -> Vec<String> {
    ["programs::actor", "--exact", "--ignored", "--nocapture", &format!("as:{role}")]
        .map(str::to_owned)
        .to_vec()
}

/// A pool whose programs are watched by a supervisor.
fn pool() -> Pool {
    let arguments = playing("supervisor").into_iter().map(Into::into).collect();
    Pool::new(PoolOptions { supervisor: Some(Supervisor { program: this_program().into(), arguments }) })
}

/// Settings that nobody else has, and the mark by which its processes are found.
fn settings(role: &str) -> (Settings, String) {
    static N_MARKS: AtomicU32 = AtomicU32::new(0);
    let mark = format!("{}-{}", std::process::id(), N_MARKS.fetch_add(1, Ordering::Relaxed));
    let mut program = Program { args: playing(role), ..Program::new(this_program()) };
    program.env.insert("PEGBOARD_TEST_MARK".to_owned(), Secret::new(&mark));
    program.env.insert("TOKEN".to_owned(), Secret::new("hush-hush-1"));
    (Settings::new(ServerName::new("acting").unwrap(), Target::Program(program)), mark)
}

/// The processes of a mark that play a role.
fn processes(mark: &str) -> BTreeSet<u32> {
    let has = |pid: u32, file: &str, text: &str| {
        let read = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        read.split(|byte| *byte == 0).any(|part| part == text.as_bytes())
    };
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        has(*pid, "environ", &format!("PEGBOARD_TEST_MARK={mark}")) && !has(*pid, "cmdline", "as:supervisor")
    })
    .collect()
}

async fn none_left(mark: &str) {
    let gone = async {
        while !processes(mark).is_empty() {
            time::sleep(Duration::from_millis(20)).await;
        }
    };
    time::timeout(LONG, gone).await.unwrap();
}

async fn simple(server: &dyn Provider) -> String {
    said(&call(server, "test_simple_text", json!({}), CallContext::default()).await)
}

#[tokio::test]
async fn a_program_is_started_used_and_ended() {
    let (settings, mark) = settings("server");
    let pool = pool();
    let server = pool.server(settings).unwrap();
    assert!(processes(&mark).is_empty());
    server.open().await.unwrap();
    assert_eq!(simple(&server).await, "This is a simple text response for testing.");
    assert_eq!(processes(&mark).len(), 1);
    server.shut_down().await;
    none_left(&mark).await;
}

#[tokio::test]
async fn a_program_tells_its_process_while_it_runs_and_not_that_of_its_supervisor() {
    for pool in [pool(), Pool::default()] {
        let (settings, mark) = settings("server");
        let (one, other) = (pool.server(settings.clone()).unwrap(), pool.server(settings).unwrap());
        assert_eq!((one.particulars().transport, one.particulars().pid), (Some(Transport::Stdio), None));
        one.open().await.unwrap();
        let pid = one.particulars().pid;
        assert_eq!(pid.into_iter().collect::<BTreeSet<u32>>(), processes(&mark));
        assert_eq!(one.particulars(), other.particulars());
        one.shut_down().await;
        assert_eq!(other.particulars().pid, pid, "somebody else uses it");
        other.shut_down().await;
        assert_eq!(other.particulars().pid, None);
    }
}

#[tokio::test]
async fn whoever_has_the_same_settings_has_the_same_server_until_the_last_one_goes() {
    let (settings, mark) = settings("server");
    let pool = pool();
    let (one, other) = (pool.server(settings.clone()).unwrap(), pool.server(settings.clone()).unwrap());
    let patient = Settings { start_timeout: Duration::from_mins(2), ..settings.clone() };
    let third = pool.server(patient).unwrap();
    assert!(one.is_same(&other) && !one.is_same(&third));
    one.open().await.unwrap();
    other.open().await.unwrap();
    assert_eq!(processes(&mark).len(), 1);

    one.shut_down().await;
    drop(one);
    assert_eq!((other.probe().await, processes(&mark).len()), (Health::Answers, 1));
    drop(other);
    none_left(&mark).await;
    // It is there again for who comes later.
    let again = pool.server(settings).unwrap();
    again.open().await.unwrap();
    assert_eq!(simple(&again).await, "This is a simple text response for testing.");
}

#[tokio::test]
async fn who_takes_a_lease_before_another_is_given_up_finds_the_same_process() {
    let (settings, mark) = settings("server");
    let pool = pool();
    let mut lease = pool.server(settings.clone()).unwrap();
    lease.open().await.unwrap();
    let before = processes(&mark);
    for _ in 0..100 {
        let next = pool.server(settings.clone()).unwrap();
        assert!(next.offer().same_channel(&lease.offer()) && *next.state().borrow() == ServerState::Ready);
        assert_eq!(next.offer().borrow().tools.len(), lease.offer().borrow().tools.len());
        lease.shut_down().await;
        lease = next;
    }
    assert_eq!(simple(&lease).await, "This is a simple text response for testing.");
    assert_eq!(processes(&mark), before);

    // Another variable makes it another server.
    let mut changed = settings;
    let Target::Program(program) = &mut changed.target else { panic!("it is a program") };
    program.env.insert("TOKEN".to_owned(), Secret::new("hush-hush-2"));
    let other = pool.server(changed).unwrap();
    other.open().await.unwrap();
    assert!(!other.offer().same_channel(&lease.offer()));
    let both = processes(&mark);
    assert!(both.len() == 2 && both.is_superset(&before));
    lease.shut_down().await;
    assert_eq!(processes(&mark), &both - &before);
    other.shut_down().await;
    none_left(&mark).await;
}

#[tokio::test]
async fn a_program_that_is_killed_is_started_again() {
    let (settings, mark) = settings("server");
    let server = pool().server(settings).unwrap();
    server.open().await.unwrap();
    for n_restarts in 1..=2 {
        let before = processes(&mark);
        let pid = rustix::process::Pid::from_raw(i32::try_from(*before.first().unwrap()).unwrap()).unwrap();
        let mut state = server.state();
        state.borrow_and_update();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        // Somebody notices, and then it is ready again.
        state.changed().await.unwrap();
        become_true(state, |state| *state == ServerState::Ready).await;
        assert_eq!(simple(&server).await, "This is a simple text response for testing.");
        assert!(processes(&mark).is_disjoint(&before));
        let Particulars { pid, n_restarts: told, .. } = server.particulars();
        assert_eq!((pid, told), (processes(&mark).first().copied(), Some(n_restarts)));
    }
}

#[tokio::test]
async fn what_a_program_said_last_is_told_without_its_secrets() {
    let (broken, _) = settings("broken");
    let server = pool().server(broken).unwrap();
    let error = server.open().await.unwrap_err().to_string();
    insta::assert_snapshot!(error, @"MCP server 'acting' did not start: the program exited with code 3. It wrote: cannot log in with [redacted]");

    let (mut silent, mark) = settings("silent");
    silent.start_timeout = Duration::from_secs(2);
    let server = pool().server(silent).unwrap();
    let error = server.open().await.unwrap_err().to_string();
    assert!(
        error.starts_with("MCP server 'acting' initialization timed out after 2s. It wrote: "),
        "{error}"
    );
    assert!(error.ends_with("still loading"), "{error}");
    server.shut_down().await;
    none_left(&mark).await;

    let missing = Target::Program(Program::new("no-such-program"));
    let server = pool().server(Settings::new(ServerName::new("missing").unwrap(), missing)).unwrap();
    insta::assert_snapshot!(server.open().await.unwrap_err(), @"MCP server 'missing' did not start: spawn no-such-program ENOENT: no program called 'no-such-program' in PATH; install it, or give its full path");
}

#[tokio::test]
async fn what_the_program_of_one_session_says_is_told_to_no_other() {
    let (mut settings, mark) = settings("secretive");
    settings.is_shared = false;
    settings.start_timeout = Duration::from_secs(3);
    let server = pool().server(settings).unwrap();
    let request = Request { method: Method::GetPrompt, params: json!({"name": "any"}).into() };
    // Nobody remembers them, so each has a server of its own.
    let ask = async || server.request(&request, &CallContext::default()).await.unwrap_err().to_string();
    let ask_later = async {
        time::sleep(Duration::from_millis(300)).await;
        ask().await
    };
    let (one, other) = tokio::join!(ask(), ask_later);
    assert!(one.contains("the diary of") && other.contains("the diary of"), "{one}\n{other}");
    assert_ne!(one, other);
    server.shut_down().await;
    none_left(&mark).await;
}

#[tokio::test]
async fn what_a_program_said_once_is_not_told_of_one_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server");
    std::fs::write(&path, "#!/bin/sh\necho out of luck >&2\nexit 3\n").unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let target = Target::Program(Program::new(path.to_str().unwrap()));
    let server = Pool::default().server(Settings::new(ServerName::new("lucky").unwrap(), target)).unwrap();
    assert!(server.open().await.unwrap_err().to_string().ends_with("It wrote: out of luck"));
    std::fs::remove_file(&path).unwrap();
    let is_missing =
        |state: &ServerState| matches!(state, ServerState::Failed { why, .. } if why.contains("ENOENT"));
    become_true(server.state(), is_missing).await;
    let state = server.state().borrow().clone();
    let ServerState::Failed { why, .. } = state else { panic!("{state:?}") };
    assert!(!why.contains("out of luck"), "{why}");
}
