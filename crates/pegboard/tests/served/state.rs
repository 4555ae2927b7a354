//! State files that are damaged or locked, and the local socket.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rusqlite::Connection;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::process::Command;
use tokio::time;

use crate::harness::{PROGRAM, TEST_TIMEOUT, TestEnvironment};

/// Creates a gateway command with one server, and its state directory.
fn gateway(environment: &TestEnvironment) -> (Command, PathBuf) {
    let servers = json!({"s": environment.server("s", &["x"])});
    let file = environment.write("pegboard.json", &json!({"mcpServers": servers}).to_string());
    let state = environment.folder().join("state");
    std::fs::create_dir(&state).unwrap();
    (environment.serving(&file), state)
}

/// Starts a gateway on a free port; returns the lines of its standard error up to one with this text.
async fn stderr_until(mut command: Command, text: &str) -> Vec<String> {
    let mut child =
        command.args(["--http", "127.0.0.1:0"]).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut lines = Vec::new();
    let reading = async {
        while lines.last().is_none_or(|line: &String| !line.contains(text)) {
            lines.push(stderr.next_line().await.unwrap().expect("the gateway runs"));
        }
    };
    let is_written = time::timeout(TEST_TIMEOUT, reading).await.is_ok();
    assert!(is_written, "no line with {text:?}, but {lines:?}");
    lines
}

#[tokio::test]
async fn a_damaged_state_file_is_set_aside_and_logged() {
    let environment = TestEnvironment::new();
    let (command, state) = gateway(&environment);
    let (database, aside) = (state.join("pegboard.db"), state.join("pegboard.db.damaged-1"));
    let contents = b"A diary. ".repeat(1_000);
    std::fs::write(&database, &contents).unwrap();
    let line = stderr_until(command, "damaged").await.pop().unwrap();
    assert!(line.contains(database.to_str().unwrap()) && line.contains(aside.to_str().unwrap()), "{line}");
    assert_eq!(std::fs::read(&aside).unwrap(), contents);
}

#[tokio::test]
async fn a_locked_state_file_does_not_delay_the_start() {
    let environment = TestEnvironment::new();
    let (command, state) = gateway(&environment);
    let _lock = locked_database(&state);
    let lines = stderr_until(command, "State is kept in memory").await;
    assert!(lines.iter().any(|line| line.starts_with("Ready")), "{lines:?}");
    assert!(lines.last().unwrap().contains("locked by another program"), "{lines:?}");
}

/// Creates a database that no other process can open.
fn locked_database(state: &Path) -> Connection {
    let lock = Connection::open(state.join("pegboard.db")).unwrap();
    lock.execute_batch("CREATE TABLE notes (text TEXT); BEGIN EXCLUSIVE").unwrap();
    lock
}

#[tokio::test]
async fn the_local_socket_is_open_no_later_than_the_port() {
    for _ in 0..5 {
        let environment = TestEnvironment::new();
        let (mut command, state) = gateway(&environment);
        // A start that takes a while.
        let _lock = locked_database(&state);
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
        let _gateway = command.args(["--http", &free.to_string()]).stdin(Stdio::null()).spawn().unwrap();
        let connecting = async {
            while TcpStream::connect(free).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        time::timeout(TEST_TIMEOUT, connecting).await.unwrap();
        let sockets = std::fs::read_dir(state.join("run")).unwrap();
        let socket = sockets.map(|entry| entry.unwrap().path()).next().expect("a socket");
        UnixStream::connect(&socket).await.unwrap();
        let status = environment.command(PROGRAM).arg("status").output().await.unwrap();
        assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    }
}
