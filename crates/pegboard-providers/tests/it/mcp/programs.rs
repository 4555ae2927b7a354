//! Servers that are child processes, and pools of them.
//!
//! The programs are the example `test_program`, with a role as argument.

#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pegboard_core::call::CallContext;
use pegboard_core::id::ServerName;
use pegboard_core::provider::{
    ProcessInfo, Provider, ProviderMethod, ProviderRequest, ServerState, TransportKind,
};
use pegboard_core::secret::Secret;
use pegboard_core::settings::mcp::{McpTarget, ResolvedMcpServer, ServerProgram};
use pegboard_providers::mcp::{Health, PoolOptions, ServerPool};
use pegboard_providers::process::SupervisorCommand;
use serde_json::json;
use tokio::time;

use crate::mcp::scripted::{call, outcome_text, wait_until};

/// Time limit for the exit of a program.
const EXIT_TIMEOUT: Duration = Duration::from_mins(1);

fn test_program() -> PathBuf {
    pegboard_testkit::example::path("test_program")
}

/// Returns a pool with a supervisor process.
fn pool() -> ServerPool {
    let supervisor = SupervisorCommand { program: test_program(), arguments: vec!["supervisor".into()] };
    ServerPool::new(PoolOptions { supervisor: Some(supervisor), ..PoolOptions::default() })
}

/// Returns unique settings, and the mark by which their processes are found.
fn settings(role: &str) -> (ResolvedMcpServer, String) {
    static N_MARKS: AtomicU32 = AtomicU32::new(0);
    let mark = format!("{}-{}", std::process::id(), N_MARKS.fetch_add(1, Ordering::Relaxed));
    let path = test_program().to_str().unwrap().to_owned();
    let mut program = ServerProgram { args: vec![role.to_owned()], ..ServerProgram::new(path) };
    program.env.insert("PEGBOARD_TEST_MARK".to_owned(), Secret::new(&mark));
    program.env.insert("TOKEN".to_owned(), Secret::new("hush-hush-1"));
    (ResolvedMcpServer::new(ServerName::new("acting").unwrap(), McpTarget::Program(program)), mark)
}

/// Returns the processes with a mark, except for supervisors.
fn processes(mark: &str) -> BTreeSet<u32> {
    let has = |pid: u32, file: &str, text: &str| {
        let read = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        read.split(|byte| *byte == 0).any(|part| part == text.as_bytes())
    };
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        has(*pid, "environ", &format!("PEGBOARD_TEST_MARK={mark}")) && !has(*pid, "cmdline", "supervisor")
    })
    .collect()
}

async fn wait_until_gone(mark: &str) {
    let gone = async {
        while !processes(mark).is_empty() {
            time::sleep(Duration::from_millis(20)).await;
        }
    };
    time::timeout(EXIT_TIMEOUT, gone).await.unwrap();
}

async fn call_simple_tool(server: &dyn Provider) -> String {
    outcome_text(&call(server, "test_simple_text", json!({}), CallContext::default()).await)
}

#[tokio::test]
async fn a_program_is_started_used_and_shut_down() {
    let (settings, mark) = settings("server");
    let pool = pool();
    let server = pool.server(settings).unwrap();
    assert!(processes(&mark).is_empty());
    server.open().await.unwrap();
    assert_eq!(call_simple_tool(&server).await, "This is a simple text response for testing.");
    assert_eq!(processes(&mark).len(), 1);
    server.shut_down().await;
    wait_until_gone(&mark).await;
}

#[tokio::test]
async fn the_reported_pid_is_that_of_the_program_while_it_runs() {
    for pool in [pool(), ServerPool::default()] {
        let (settings, mark) = settings("server");
        let (one, other) = (pool.server(settings.clone()).unwrap(), pool.server(settings).unwrap());
        assert_eq!(
            (one.process_info().transport, one.process_info().pid),
            (Some(TransportKind::Stdio), None)
        );
        one.open().await.unwrap();
        let pid = one.process_info().pid;
        assert_eq!(pid.into_iter().collect::<BTreeSet<u32>>(), processes(&mark));
        assert_eq!(one.process_info(), other.process_info());
        one.shut_down().await;
        assert_eq!(other.process_info().pid, pid, "another holder uses it");
        other.shut_down().await;
        assert_eq!(other.process_info().pid, None);
    }
}

#[tokio::test]
async fn equal_settings_share_a_server_until_the_last_holder_is_gone() {
    let (settings, mark) = settings("server");
    let pool = pool();
    let (one, other) = (pool.server(settings.clone()).unwrap(), pool.server(settings.clone()).unwrap());
    let patient = ResolvedMcpServer { start_timeout: Duration::from_mins(2), ..settings.clone() };
    let third = pool.server(patient).unwrap();
    assert!(one.is_same(&other) && !one.is_same(&third));
    one.open().await.unwrap();
    other.open().await.unwrap();
    assert_eq!(processes(&mark).len(), 1);

    one.shut_down().await;
    drop(one);
    assert_eq!((other.probe().await, processes(&mark).len()), (Health::Responsive, 1));
    drop(other);
    wait_until_gone(&mark).await;
    // A later holder starts it again.
    let again = pool.server(settings).unwrap();
    again.open().await.unwrap();
    assert_eq!(call_simple_tool(&again).await, "This is a simple text response for testing.");
}

#[tokio::test]
async fn overlapping_holders_keep_the_same_process() {
    let (settings, mark) = settings("server");
    let pool = pool();
    let mut shared = pool.server(settings.clone()).unwrap();
    shared.open().await.unwrap();
    let before = processes(&mark);
    for _ in 0..100 {
        let next = pool.server(settings.clone()).unwrap();
        assert!(
            next.offering().same_channel(&shared.offering()) && *next.state().borrow() == ServerState::Ready
        );
        assert_eq!(next.offering().borrow().tools.len(), shared.offering().borrow().tools.len());
        shared.shut_down().await;
        shared = next;
    }
    assert_eq!(call_simple_tool(&shared).await, "This is a simple text response for testing.");
    assert_eq!(processes(&mark), before);

    // A changed variable makes it another server.
    let mut changed = settings;
    let McpTarget::Program(program) = &mut changed.target else { panic!("it is a program") };
    program.env.insert("TOKEN".to_owned(), Secret::new("hush-hush-2"));
    let other = pool.server(changed).unwrap();
    other.open().await.unwrap();
    assert!(!other.offering().same_channel(&shared.offering()));
    let both = processes(&mark);
    assert!(both.len() == 2 && both.is_superset(&before));
    shared.shut_down().await;
    assert_eq!(processes(&mark), &both - &before);
    other.shut_down().await;
    wait_until_gone(&mark).await;
}

#[tokio::test]
async fn a_killed_program_is_restarted() {
    let (settings, mark) = settings("server");
    let server = pool().server(settings).unwrap();
    server.open().await.unwrap();
    for n_restarts in 1..=2 {
        let before = processes(&mark);
        let pid = rustix::process::Pid::from_raw(i32::try_from(*before.first().unwrap()).unwrap()).unwrap();
        let mut state = server.state();
        state.borrow_and_update();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        // The loss is noticed, and then the server is ready again.
        state.changed().await.unwrap();
        wait_until(state, |state| *state == ServerState::Ready).await;
        assert_eq!(call_simple_tool(&server).await, "This is a simple text response for testing.");
        assert!(processes(&mark).is_disjoint(&before));
        let ProcessInfo { pid, n_restarts: reported, .. } = server.process_info();
        assert_eq!((pid, reported), (processes(&mark).first().copied(), Some(n_restarts)));
    }
}

#[tokio::test]
async fn start_errors_contain_the_redacted_stderr_tail() {
    let (broken, _) = settings("broken");
    let server = pool().server(broken).unwrap();
    let error = server.open().await.unwrap_err().to_string();
    insta::assert_snapshot!(error, @"MCP server 'acting' did not start: the program exited with code 3. Stderr: cannot log in with [redacted]");

    let (mut silent, mark) = settings("silent");
    silent.start_timeout = Duration::from_secs(2);
    let server = pool().server(silent).unwrap();
    let error = server.open().await.unwrap_err().to_string();
    assert!(error.starts_with("MCP server 'acting' initialization timed out after 2s. Stderr: "), "{error}");
    assert!(error.ends_with("still loading"), "{error}");
    server.shut_down().await;
    wait_until_gone(&mark).await;

    let missing = McpTarget::Program(ServerProgram::new("no-such-program"));
    let server = pool().server(ResolvedMcpServer::new(ServerName::new("missing").unwrap(), missing)).unwrap();
    insta::assert_snapshot!(server.open().await.unwrap_err(), @"MCP server 'missing' did not start: spawn no-such-program ENOENT: 'no-such-program' not found in PATH; install it, or specify its full path");
}

#[tokio::test]
async fn stderr_of_a_dedicated_instance_is_not_shown_to_others() {
    let (mut settings, mark) = settings("secretive");
    settings.is_shared = false;
    settings.start_timeout = Duration::from_secs(3);
    let server = pool().server(settings).unwrap();
    let request =
        ProviderRequest { method: ProviderMethod::GetPrompt, params: json!({"name": "any"}).into() };
    // Callers without a session each get a dedicated instance.
    let request_prompt =
        async || server.request(&request, &CallContext::default()).await.unwrap_err().to_string();
    let request_prompt_later = async {
        time::sleep(Duration::from_millis(300)).await;
        request_prompt().await
    };
    let (one, other) = tokio::join!(request_prompt(), request_prompt_later);
    assert!(one.contains("the diary of") && other.contains("the diary of"), "{one}\n{other}");
    assert_ne!(one, other);
    server.shut_down().await;
    wait_until_gone(&mark).await;
}

#[tokio::test]
async fn an_old_stderr_tail_is_not_reported_for_a_missing_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server");
    std::fs::write(&path, "#!/bin/sh\necho out of luck >&2\nexit 3\n").unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let target = McpTarget::Program(ServerProgram::new(path.to_str().unwrap()));
    let server = ServerPool::default()
        .server(ResolvedMcpServer::new(ServerName::new("lucky").unwrap(), target))
        .unwrap();
    assert!(server.open().await.unwrap_err().to_string().ends_with("Stderr: out of luck"));
    std::fs::remove_file(&path).unwrap();
    let is_missing =
        |state: &ServerState| matches!(state, ServerState::Failed { why, .. } if why.contains("ENOENT"));
    wait_until(server.state(), is_missing).await;
    let state = server.state().borrow().clone();
    let ServerState::Failed { why, .. } = state else { panic!("{state:?}") };
    assert!(!why.contains("out of luck"), "{why}");
}
