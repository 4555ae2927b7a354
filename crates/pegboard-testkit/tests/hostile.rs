//! Servers that misbehave really do, and each only as its mode says.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use pegboard_testkit::hostile::SECRET;
use pegboard_testkit::hostile::{http, stdio};

const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
const COUNT: &str = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"count"}}"#;
const ECHO: &str =
    r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}"#;
const COUNTED: &str = r#"{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"counted"}]}}"#;
const ECHOED: &str = r#"{"jsonrpc":"2.0","id":4,"result":{"content":[{"type":"text","text":"hello"}]}}"#;

/// A program under way, killed when it is dropped.
struct Program {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Program {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_pegboard-testkit"))
            .args(arguments)
            .env(SECRET, "hush")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    fn tell(&mut self, line: &str) {
        // One that does not listen is a case of its own.
        let _ = writeln!(self.child.stdin.as_ref().unwrap(), "{line}");
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.stdout.read_until(b'\n', &mut line).unwrap();
        String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned()
    }

    /// Closes the input, and gives everything that comes and how it ends.
    fn rest(&mut self) -> (String, ExitStatus) {
        drop(self.child.stdin.take());
        let mut rest = Vec::new();
        self.stdout.read_to_end(&mut rest).unwrap();
        (String::from_utf8_lossy(&rest).into_owned(), self.child.wait().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(mode: stdio::Mode) -> Program {
    Program::start(&["hostile", mode.name()])
}

/// What a program says to these lines until it has nothing more to say, and how it ends.
fn said(mode: stdio::Mode, lines: &[&str]) -> (Vec<String>, ExitStatus) {
    let mut program = start(mode);
    for line in lines {
        program.tell(line);
    }
    let (text, exit) = program.rest();
    (text.split_terminator('\n').map(str::to_owned).collect(), exit)
}

#[test]
fn a_decent_server_answers_everything() {
    let (lines, exit) = said(stdio::Mode::Decent, &[INITIALIZE, LIST, COUNT, ECHO]);
    assert_eq!((&lines[2..], exit.code()), (&[COUNTED.to_owned(), ECHOED.to_owned()][..], Some(0)));
}

#[test]
fn every_mode_says_what_it_should_to_a_call() {
    use stdio::Mode;
    let cases: &[(Mode, &[&str])] = &[
        (Mode::HangCall, &[ECHOED]),
        (Mode::CloseStdout, &[]),
        (Mode::NoNewline, &[COUNTED]),
        (Mode::AnswerAndExit, &[COUNTED]),
        (Mode::CrashDuringCall, &[]),
        (Mode::NeitherResultNorError, &[r#"{"jsonrpc":"2.0","id":3}"#, ECHOED]),
        (Mode::WrongShape, &[r#"{"jsonrpc":"2.0","id":3,"result":"counted"}"#, ECHOED]),
        (Mode::AnswerTwice, &[COUNTED, &COUNTED.replace("counted", "counted again"), ECHOED]),
        (Mode::StderrFlood, &[COUNTED, ECHOED]),
    ];
    for (mode, expected) in cases {
        let mut program = start(*mode);
        // So that it does not matter how full the pipe is.
        let mut stderr = program.child.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        program.tell(COUNT);
        program.tell(ECHO);
        let text = program.rest().0;
        let lines: Vec<&str> = text.split_terminator('\n').collect();
        assert_eq!(lines, *expected, "{}", mode.name());
    }
}

#[test]
fn odd_framing_is_odd() {
    use stdio::Mode;
    let bytes = |mode: Mode| {
        let mut program = start(mode);
        program.tell(ECHO);
        drop(program.child.stdin.take());
        let mut all = Vec::new();
        program.stdout.read_to_end(&mut all).unwrap();
        all
    };
    assert_eq!(bytes(Mode::Crlf), format!("{ECHOED}\r\n\r\n").into_bytes());
    assert_eq!(bytes(Mode::Batch), format!("[{ECHOED}]\n").into_bytes());
    assert_eq!(bytes(Mode::SplitWrites), format!("{ECHOED}\n").into_bytes());
    assert!(bytes(Mode::Garbage).starts_with(b"DEBUG answering {\n{"));
    assert!(bytes(Mode::Banner).starts_with(b"Hostile 1.0\n\n"));
    assert!(bytes(Mode::Binary).starts_with(&[0, 1, 2]));
    assert!(bytes(Mode::Utf16).starts_with(b"{\0\"\0j\0"));
}

#[test]
fn a_server_that_does_not_start_says_so_or_nothing() {
    use stdio::Mode;
    let mut program = start(Mode::ExitAtOnce);
    let (text, exit) = program.rest();
    let mut stderr = String::new();
    program.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((text.as_str(), exit.code()), ("", Some(3)));
    assert_eq!(stderr, "There is no account for the key hush.\n");

    assert_eq!(said(Mode::NeverInitialize, &[INITIALIZE, ECHO]).0, [ECHOED]);
    assert!(said(Mode::WrongVersion, &[INITIALIZE]).0[0].contains(r#""protocolVersion":"1999-12-31""#));
    assert_eq!(said(Mode::NonsenseInitialize, &[INITIALIZE]).0, [r#"{"jsonrpc":"2.0","id":1,"result":42}"#]);
    assert_eq!(said(Mode::ListNever, &[LIST, ECHO]).0, [ECHOED]);
    let (lines, exit) = said(Mode::CrashLoop, &[INITIALIZE, LIST]);
    assert_eq!((lines.len(), exit.code()), (2, Some(4)));
}

#[test]
fn lists_are_as_long_as_they_say() {
    use stdio::Mode;
    let n_tools = |mode: Mode| said(mode, &[LIST]).0[0].matches(r#""inputSchema""#).count();
    assert_eq!(n_tools(Mode::ListHuge), 20_002);
    assert_eq!(n_tools(Mode::ListDuplicates), 6);
    let next = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"7"}}"#;
    assert!(said(Mode::ListEndless, &[next]).0[0].contains(r#""nextCursor":"8""#));
    assert!(said(Mode::ListLoop, &[next]).0[0].contains(r#""nextCursor":"1""#));
    let storm = said(Mode::ListChangedStorm, &[COUNT]).0;
    assert_eq!((storm.len(), storm.last().unwrap().as_str()), (20_001, COUNTED));
}

#[test]
fn floods_have_no_end() {
    use stdio::Mode;
    for mode in [Mode::EndlessLine, Mode::StdoutFlood, Mode::HugeLine] {
        let mut program = start(mode);
        program.tell(COUNT);
        let n_read = std::io::copy(&mut (&mut program.stdout).take(32 << 20), &mut std::io::sink()).unwrap();
        assert_eq!(n_read, 32 << 20, "{}", mode.name());
    }
}

#[test]
fn what_a_server_left_behind_keeps_its_output_open() {
    let mut program = start(stdio::Mode::GrandchildHoldsStdout);
    program.tell(COUNT);
    assert_eq!(program.child.wait().unwrap().code(), Some(5));
    let mut stderr = String::new();
    program.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    let child = stderr.trim_start_matches("My child ").split(' ').next().unwrap().parse().unwrap();
    let child = rustix::process::Pid::from_raw(child).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::TERM).expect("it runs on");
    assert_eq!(program.line(), "");
}

/// A call of a server behind HTTP, and the first bytes of what comes back.
fn answered(mode: http::Mode, n_bytes: usize) -> String {
    let mut program = Program::start(&["hostile-http", mode.name()]);
    let url = program.line();
    let address = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "POST /mcp HTTP/1.1\r\nContent-Length: {}\r\n\r\n{COUNT}", COUNT.len()).unwrap();
    let mut bytes = vec![0; n_bytes];
    let mut n_read = 0;
    while n_read < n_bytes {
        match stream.read(&mut bytes[n_read..]) {
            Ok(0) => break,
            Ok(n) => n_read += n,
            Err(error) => return format!("{:?}", error.kind()),
        }
    }
    String::from_utf8_lossy(&bytes[..n_read]).into_owned()
}

#[test]
fn an_address_answers_as_its_mode_says() {
    use http::Mode;
    let cases = [
        (Mode::Reset, "ConnectionReset"),
        (Mode::Status500, "HTTP/1.1 500 "),
        (Mode::Status502, "HTTP/1.1 502 "),
        (Mode::Status503, "HTTP/1.1 503 "),
        (Mode::Status429, "HTTP/1.1 429 "),
        (Mode::Always401, "HTTP/1.1 401 "),
        (Mode::Late401, "HTTP/1.1 401 "),
        (Mode::Accepted, "HTTP/1.1 202 "),
        (Mode::NoContent, "HTTP/1.1 204 "),
        (Mode::Session404, "HTTP/1.1 404 "),
        (Mode::Session400, "HTTP/1.1 400 "),
        (Mode::Redirect, "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:"),
        (Mode::WrongType, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"),
        (Mode::GzipBomb, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"),
        (Mode::SseHugeEvent, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"),
        (Mode::Decent, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"),
    ];
    for (mode, expected) in cases {
        assert_eq!(answered(mode, expected.len()), expected, "{}", mode.name());
    }
    assert!(answered(Mode::HalfBody, 1000).ends_with(&COUNTED[..COUNTED.len() / 2]));
    assert!(answered(Mode::SseCut, 1000).ends_with("data: {\"jsonrpc\":\"2.0\",\"id\r\n"));
    assert!(answered(Mode::ChunkJunk, 1000).ends_with("zebra\r\nthis is no chunk\r\n"));
}
