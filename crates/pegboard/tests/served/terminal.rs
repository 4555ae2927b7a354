//! Text of a hostile server on the terminal and in pipes.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use pegboard::printable::printable;
use pegboard_testkit::hostile_text::HOSTILE_TEXT;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use serde_json::{Value, json};

use crate::harness::{PROGRAM, testkit};

/// A part of the hostile text, which stays as it is.
const QUOTED: &str = "]0;owned";
/// Sequences that Pegboard itself writes: styles, and the line of the spinner.
const OWN_SEQUENCES: [&str; 7] =
    ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m", "\r\u{1b}[2K"];

/// Occurrence of the server's text in the output of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    Yes,
    No,
}

/// A directory with a configuration.
struct Desk(tempfile::TempDir);

impl Desk {
    fn new(configuration: &Value) -> Self {
        let desk = Self(tempfile::tempdir().unwrap());
        std::fs::write(desk.path().join("pegboard.json"), configuration.to_string()).unwrap();
        desk
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(["--config", "pegboard.json"])
            .args(arguments)
            .current_dir(self.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.path())
            .env("PEGBOARD_STATE", self.path().join("state"))
            .env("TERM", "xterm");
        command
    }

    /// Runs a command at a terminal with these lines of input, and returns everything that it writes.
    fn at_terminal(&self, arguments: &[&str], input: &str) -> String {
        let (ours, theirs) = terminal();
        let mut typed = File::from(ours.try_clone().unwrap());
        let mut command = self.command(arguments);
        command.stdin(theirs.try_clone().unwrap()).stdout(theirs.try_clone().unwrap()).stderr(theirs);
        let mut child = command.spawn().unwrap();
        // The command holds the other end of the terminal.
        drop(command);
        typed.write_all(input.as_bytes()).unwrap();
        let printed = read(ours);
        child.wait().unwrap();
        printed
    }

    /// Runs a command without a terminal, and returns everything that it writes.
    fn piped(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).stdin(Stdio::null()).output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    }

    /// Checks the output of a command at a terminal, in a pipe, and in every format.
    fn check(&self, arguments: &[&str], input: &str, quotes: Quotes) {
        let mut at_terminal = self.at_terminal(arguments, input);
        for own in OWN_SEQUENCES {
            at_terminal = at_terminal.replace(own, "");
        }
        assert_printable(arguments, "terminal", &at_terminal);
        assert_eq!(at_terminal.contains(QUOTED), quotes == Quotes::Yes, "{arguments:?}: {at_terminal}");
        for format in ["text", "json", "ndjson", "yaml"] {
            let printed = self.piped(&[arguments, &["--output", format]].concat());
            assert_printable(arguments, format, &printed);
            if quotes == Quotes::Yes {
                assert!(printed.contains(QUOTED), "{arguments:?} as {format}: {printed}");
            }
        }
    }
}

fn assert_printable(arguments: &[&str], place: &str, text: &str) {
    assert_eq!(printable(text), text, "{arguments:?} ({place}) prints controls: {text:?}");
}

/// Opens a pseudoterminal that changes nothing; returns both ends.
pub(crate) fn terminal() -> (OwnedFd, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let mut attributes = tcgetattr(&theirs).unwrap();
    attributes.make_raw();
    tcsetattr(&theirs, OptionalActions::Now, &attributes).unwrap();
    (ours, theirs)
}

/// Reads a terminal until its other end is closed, which is a read error.
fn read(terminal: OwnedFd) -> String {
    let mut terminal = File::from(terminal);
    let (mut printed, mut some) = (Vec::new(), [0; 4096]);
    while let Ok(n_read @ 1..) = terminal.read(&mut some) {
        printed.extend_from_slice(&some[..n_read]);
    }
    String::from_utf8(printed).unwrap()
}

fn hostile_configuration() -> Value {
    json!({
        "mcpServers": {"evil": {"command": testkit(), "args": ["hostile-text"]}},
        "chains": {"both": {"steps": [{"tool": "evil__say"}, {"tool": "evil__refuse"}]}},
    })
}

#[test]
fn no_command_prints_controls_of_a_server() {
    let desk = Desk::new(&hostile_configuration());
    let batch = ["say", "refuse", "fail"].map(|tool| format!("{{\"tool\": \"evil__{tool}\"}}\n")).concat();
    std::fs::write(desk.path().join("calls.json"), batch).unwrap();
    let yes = Quotes::Yes;
    let cases: [(&[&str], &str, Quotes); 12] = [
        (&["ls"], "", Quotes::No),
        (&["ls", "--long"], "", yes),
        (&["tools", "--schema"], "", yes),
        (&["call", "evil/say"], "", yes),
        (&["call", "evil/structure"], "", yes),
        (&["call", "evil/fail"], "", yes),
        (&["call", "evil/refuse"], "", yes),
        (&["call", "evil/ask"], "\n1\nx\ny\n", yes),
        (&["call", "evil/say", "choice=c"], "", yes),
        (&["batch", "calls.json"], "", yes),
        (&["chain", "run", "both"], "", yes),
        (&["doctor"], "", yes),
    ];
    for (arguments, input, quotes) in cases {
        desk.check(arguments, input, quotes);
    }
}

/// A gateway that runs until it is dropped.
struct RunningGateway(Child);

impl Drop for RunningGateway {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn no_record_of_a_gateway_prints_controls_of_a_server() {
    let desk = Desk::new(&hostile_configuration());
    let mut serve = desk.command(&["serve", "--http", "127.0.0.1:0", "--no-watch", "-vv"]);
    let mut gateway = RunningGateway(serve.stderr(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(gateway.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.by_ref().any(|line| line.starts_with("Ready  ")), "it does not start");
    // The pipe must not fill up.
    let reading = std::thread::spawn(move || said.collect::<Vec<String>>());
    for tool in ["say", "refuse", "fail"] {
        desk.piped(&["call", &format!("evil/{tool}")]);
    }
    for (arguments, quotes) in [
        (&["logs", "evil"][..], Quotes::Yes),
        (&["status"], Quotes::No),
        (&["trace", "last"], Quotes::No),
        (&["trace", "ls"], Quotes::No),
        (&["sessions", "ls"], Quotes::No),
        (&["ls", "--long"], Quotes::Yes),
        (&["call", "evil/refuse"], Quotes::Yes),
    ] {
        let mut printed = desk.at_terminal(arguments, "");
        for own in OWN_SEQUENCES {
            printed = printed.replace(own, "");
        }
        assert_printable(arguments, "terminal", &printed);
        assert!(!printed.contains("not_running"), "{arguments:?}: {printed}");
        if quotes == Quotes::Yes {
            assert!(printed.contains(QUOTED), "{arguments:?}: {printed}");
        }
        for format in ["text", "json", "ndjson", "yaml"] {
            let piped = desk.piped(&[arguments, &["--output", format]].concat());
            assert_printable(arguments, format, &piped);
        }
    }
    drop(gateway);
    for line in reading.join().unwrap() {
        assert_printable(&["serve"], "log", &line);
    }
}

#[test]
fn no_challenge_of_a_remote_server_prints_controls() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            // A header cannot contain the other controls.
            let text = "\u{9b}2J\u{202e}\u{200b}owned\u{e0041}";
            let response = format!(
                "HTTP/1.1 401 {text}\r\nWWW-Authenticate: Bearer realm=\"{text}\", error=\"{text}\", \
                 error_description=\"{text}\", scope=\"{text}\", resource_metadata=\"http://{text}/\"\r\n\
                 Content-Type: text/plain; {text}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
                text.len()
            );
            let _ = stream.write_all(response.as_bytes());
        }
    });
    let desk = Desk::new(&json!({"mcpServers": {"evil": {"url": url}}}));
    for arguments in [&["ls"][..], &["ls", "--long"], &["call", "evil/say"], &["doctor"]] {
        desk.check(arguments, "", Quotes::No);
    }
}

#[test]
fn no_document_prints_controls() {
    let desk = Desk::new(&json!({}));
    let operation = json!({"operationId": "a", "summary": HOSTILE_TEXT, "description": HOSTILE_TEXT,
        "parameters": [{"name": HOSTILE_TEXT, "in": "query", "schema": {"type": HOSTILE_TEXT}}]});
    let document = json!({"openapi": "3.0.0", "info": {"title": HOSTILE_TEXT, "version": HOSTILE_TEXT},
        "servers": [{"url": "https://example.org"}],
        "paths": {"/a": {"get": operation}, (HOSTILE_TEXT): {"post": {"operationId": HOSTILE_TEXT}}}});
    std::fs::write(desk.path().join("api.json"), document.to_string()).unwrap();
    desk.check(&["openapi", "api.json"], "", Quotes::Yes);
}
