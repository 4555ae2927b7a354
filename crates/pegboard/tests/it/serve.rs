//! Shutdown and reload of `pegboard serve`.

#![cfg(unix)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Timeout after which a test fails.
const LONG: Duration = Duration::from_secs(30);

/// Starts a gateway over stdio and waits for its first response.
fn serving(folder: &tempfile::TempDir) -> Child {
    let file = folder.path().join("pegboard.yaml");
    std::fs::write(&file, "toolboxes: {}\n").expect("the folder was just made");
    let mut gateway = Command::new(env!("CARGO_BIN_EXE_pegboard"))
        .args(["serve", "--stdio", "--no-daemon", "--state"])
        .arg(folder.path().join("state"))
        .arg(&file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was just built");
    ping(&mut gateway);
    gateway
}

fn end_of(mut gateway: Child) -> ExitStatus {
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        if let Some(status) = gateway.try_wait().expect("nobody else waits for it") {
            return status;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    gateway.kill().expect("it runs");
    panic!("the gateway does not end");
}

/// Sends a signal to a gateway.
fn tell(gateway: &Child, signal: &str) {
    let told = Command::new("kill").args([signal, &gateway.id().to_string()]).status();
    assert!(told.is_ok_and(|told| told.success()));
}

/// Sends a ping and waits for the response.
fn ping(gateway: &mut Child) {
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let stdin = gateway.stdin.as_mut().expect("it was asked for");
    writeln!(stdin, "{ping}").expect("the gateway reads");
    let mut answer = String::new();
    let stdout = gateway.stdout.as_mut().expect("it was asked for");
    BufReader::new(stdout).read_line(&mut answer).expect("the gateway answers");
    assert!(answer.contains(r#""id":1"#), "{answer}");
}

#[test]
fn sighup_reloads_the_configuration() {
    let folder = tempfile::tempdir().expect("there is room");
    let mut gateway = serving(&folder);
    let mut said = BufReader::new(gateway.stderr.take().expect("it was asked for"));
    for _ in 0..3 {
        tell(&gateway, "-HUP");
        let mut line = String::new();
        said.read_line(&mut line).expect("the gateway says what it did");
        assert!(line.ends_with("pegboard.yaml: no changes\n"), "{line}");
        ping(&mut gateway);
    }
    tell(&gateway, "-TERM");
    assert!(end_of(gateway).success());
}

#[test]
fn a_signal_stops_the_gateway_while_a_client_is_connected() {
    for signal in ["-INT", "-TERM"] {
        let folder = tempfile::tempdir().expect("there is room");
        let gateway = serving(&folder);
        tell(&gateway, signal);
        assert!(end_of(gateway).success(), "{signal}");
    }
}

#[test]
fn a_client_that_does_not_read_stderr_blocks_nothing() {
    let folder = tempfile::tempdir().expect("there is room");
    let mut gateway = serving(&folder);
    let stdout = gateway.stdout.take().expect("it was asked for");
    let (sender, answers) = std::sync::mpsc::channel();
    std::thread::spawn(move || BufReader::new(stdout).lines().try_for_each(|line| sender.send(line)));
    let mut stdin = gateway.stdin.take().expect("it was asked for");
    let mut ask = |request: &str| {
        writeln!(stdin, "{request}").expect("the gateway reads");
        answers.recv_timeout(LONG).expect("the gateway answers").expect("it is text")
    };
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",
        "capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;
    ask(&initialize.replace('\n', ""));
    // Each call logs a line; together they exceed the capacity of a pipe.
    for id in 2..1_000 {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"nobody_has_this","arguments":{{}}}}}}"#
        );
        let answer = ask(&call);
        assert!(answer.contains("nobody_has_this"), "{answer}");
    }
    let mut said = gateway.stderr.take().expect("it was asked for");
    tell(&gateway, "-TERM");
    assert!(end_of(gateway).success());
    let mut log = String::new();
    std::io::Read::read_to_string(&mut said, &mut log).expect("it is text");
    assert!(log.len() > 50_000, "so little was logged that nobody can have waited: {} bytes", log.len());
}

#[test]
fn without_a_configuration_the_onboarding_toolbox_is_served_until_the_first_file() {
    let folder = tempfile::tempdir().expect("there is room");
    let mut gateway = Command::new(env!("CARGO_BIN_EXE_pegboard"))
        .args(["serve", "--http", "127.0.0.1:0", "--state"])
        .arg(folder.path().join("state"))
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .env_remove("XDG_CONFIG_HOME")
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was just built");
    let stderr = gateway.stderr.take().expect("it was asked for");
    let mut lines = BufReader::new(stderr).lines().map(|line| line.expect("it is text"));
    let said: Vec<String> = lines.by_ref().take(6).collect();
    assert!(said[0].starts_with("Token  ") && said[1].starts_with("Ready  "), "{said:?}");
    insta::assert_snapshot!(said[2..].join("\n"), @r#"
    No configuration found; serving a toolbox with the first steps:
      pegboard import                             import the servers of your clients
      pegboard add time -- uvx mcp-server-time    add a server
      pegboard connect claude-code                connect a client (or cursor, vscode, codex, …)
    "#);
    std::fs::write(folder.path().join("pegboard.yaml"), "mcpServers: {}\n").expect("there is room");
    let reloaded = lines.next().expect("the file is read");
    assert!(reloaded.ends_with("pegboard.yaml: - welcome/pegboard  ~ settings"), "{reloaded}");
    tell(&gateway, "-TERM");
    assert!(end_of(gateway).success());
}
