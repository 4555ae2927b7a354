//! Hostile servers misbehave exactly as their mode says.

#![cfg(unix)]
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

/// A running program, killed when it is dropped.
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

    fn send_line(&mut self, line: &str) {
        // A program that does not read is a case of its own.
        let _ = writeln!(self.child.stdin.as_ref().unwrap(), "{line}");
    }

    fn read_line(&mut self) -> String {
        let mut line = Vec::new();
        self.stdout.read_until(b'\n', &mut line).unwrap();
        String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned()
    }

    /// Closes the input, and returns the remaining output and the exit status.
    fn finish(&mut self) -> (String, ExitStatus) {
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

fn start(mode: stdio::StdioFault) -> Program {
    Program::start(&["hostile", mode.name()])
}

/// Returns the output of a program for these lines, and its exit status.
fn output_of(mode: stdio::StdioFault, lines: &[&str]) -> (Vec<String>, ExitStatus) {
    let mut program = start(mode);
    for line in lines {
        program.send_line(line);
    }
    let (text, exit) = program.finish();
    (text.split_terminator('\n').map(str::to_owned).collect(), exit)
}

#[test]
fn a_decent_server_answers_everything() {
    let (lines, exit) = output_of(stdio::StdioFault::Decent, &[INITIALIZE, LIST, COUNT, ECHO]);
    assert_eq!((&lines[2..], exit.code()), (&[COUNTED.to_owned(), ECHOED.to_owned()][..], Some(0)));
}

#[test]
fn every_mode_answers_a_call_as_specified() {
    use stdio::StdioFault;
    let cases: &[(StdioFault, &[&str])] = &[
        (StdioFault::HangCall, &[ECHOED]),
        (StdioFault::CloseStdout, &[]),
        (StdioFault::NoNewline, &[COUNTED]),
        (StdioFault::AnswerAndExit, &[COUNTED]),
        (StdioFault::CrashDuringCall, &[]),
        (StdioFault::NeitherResultNorError, &[r#"{"jsonrpc":"2.0","id":3}"#, ECHOED]),
        (StdioFault::WrongShape, &[r#"{"jsonrpc":"2.0","id":3,"result":"counted"}"#, ECHOED]),
        (StdioFault::NotJson, &[r#"{"jsonrpc":"2.0","id":3,"result":{"content":[],"n":NaN}}"#, ECHOED]),
        (
            StdioFault::NotJsonWithoutId,
            &[r#"{"jsonrpc":"2.0","result":{"content":[],"n":Infinity}}"#, ECHOED],
        ),
        (StdioFault::InvalidContent, &[r#"{"jsonrpc":"2.0","id":3,"result":{"content":42}}"#, ECHOED]),
        (StdioFault::AnswerTwice, &[COUNTED, &COUNTED.replace("counted", "counted again"), ECHOED]),
        (StdioFault::StderrFlood, &[COUNTED, ECHOED]),
    ];
    for (mode, expected) in cases {
        let mut program = start(*mode);
        // So that a full pipe does not matter.
        let mut stderr = program.child.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        program.send_line(COUNT);
        program.send_line(ECHO);
        let text = program.finish().0;
        let lines: Vec<&str> = text.split_terminator('\n').collect();
        assert_eq!(lines, *expected, "{}", mode.name());
    }
}

#[test]
fn framing_faults_are_visible() {
    use stdio::StdioFault;
    let bytes = |mode: StdioFault| {
        let mut program = start(mode);
        program.send_line(ECHO);
        drop(program.child.stdin.take());
        let mut all = Vec::new();
        program.stdout.read_to_end(&mut all).unwrap();
        all
    };
    assert_eq!(bytes(StdioFault::Crlf), format!("{ECHOED}\r\n\r\n").into_bytes());
    assert_eq!(bytes(StdioFault::Batch), format!("[{ECHOED}]\n").into_bytes());
    assert_eq!(bytes(StdioFault::SplitWrites), format!("{ECHOED}\n").into_bytes());
    assert!(bytes(StdioFault::Garbage).starts_with(b"DEBUG answering {\n{"));
    assert!(bytes(StdioFault::Banner).starts_with(b"Hostile 1.0\n\n"));
    assert!(bytes(StdioFault::Binary).starts_with(&[0, 1, 2]));
    assert!(bytes(StdioFault::Utf16).starts_with(b"{\0\"\0j\0"));
}

#[test]
fn startup_faults_are_visible() {
    use stdio::StdioFault;
    let mut program = start(StdioFault::ExitAtOnce);
    let (text, exit) = program.finish();
    let mut stderr = String::new();
    program.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((text.as_str(), exit.code()), ("", Some(3)));
    assert_eq!(stderr, "There is no account for the key hush.\n");

    assert_eq!(output_of(StdioFault::NeverInitialize, &[INITIALIZE, ECHO]).0, [ECHOED]);
    assert!(
        output_of(StdioFault::WrongVersion, &[INITIALIZE]).0[0].contains(r#""protocolVersion":"1999-12-31""#)
    );
    assert_eq!(
        output_of(StdioFault::NonsenseInitialize, &[INITIALIZE]).0,
        [r#"{"jsonrpc":"2.0","id":1,"result":42}"#]
    );
    assert_eq!(output_of(StdioFault::ListNever, &[LIST, ECHO]).0, [ECHOED]);
    let (lines, exit) = output_of(StdioFault::CrashLoop, &[INITIALIZE, LIST]);
    assert_eq!((lines.len(), exit.code()), (2, Some(4)));
}

#[test]
fn faulty_lists_have_the_documented_size() {
    use stdio::StdioFault;
    let n_tools = |mode: StdioFault| output_of(mode, &[LIST]).0[0].matches(r#""inputSchema""#).count();
    assert_eq!(n_tools(StdioFault::ListHuge), 20_002);
    assert_eq!(n_tools(StdioFault::ListDuplicates), 6);
    let next = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"7"}}"#;
    assert!(output_of(StdioFault::ListEndless, &[next]).0[0].contains(r#""nextCursor":"8""#));
    assert!(output_of(StdioFault::ListLoop, &[next]).0[0].contains(r#""nextCursor":"1""#));
    let storm = output_of(StdioFault::ListChangedStorm, &[COUNT]).0;
    assert_eq!((storm.len(), storm.last().unwrap().as_str()), (20_001, COUNTED));
}

#[test]
fn floods_are_endless() {
    use stdio::StdioFault;
    for mode in [StdioFault::EndlessLine, StdioFault::StdoutFlood, StdioFault::HugeLine] {
        let mut program = start(mode);
        program.send_line(COUNT);
        let n_read = std::io::copy(&mut (&mut program.stdout).take(32 << 20), &mut std::io::sink()).unwrap();
        assert_eq!(n_read, 32 << 20, "{}", mode.name());
    }
}

#[test]
fn an_orphaned_child_keeps_the_output_open() {
    let mut program = start(stdio::StdioFault::GrandchildHoldsStdout);
    program.send_line(COUNT);
    assert_eq!(program.child.wait().unwrap().code(), Some(5));
    let mut stderr = String::new();
    program.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    let child = stderr.trim_start_matches("My child ").split(' ').next().unwrap().parse().unwrap();
    let child = rustix::process::Pid::from_raw(child).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::TERM).expect("it runs on");
    assert_eq!(program.read_line(), "");
}

/// Sends a call to a hostile HTTP server and returns the first bytes of the response.
fn first_bytes(mode: http::HttpFault, n_bytes: usize) -> String {
    let mut program = Program::start(&["hostile-http", mode.name()]);
    let url = program.read_line();
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
fn http_faults_answer_as_specified() {
    use http::HttpFault;
    let cases = [
        (HttpFault::Reset, "ConnectionReset"),
        (HttpFault::Status500, "HTTP/1.1 500 "),
        (HttpFault::Status502, "HTTP/1.1 502 "),
        (HttpFault::Status503, "HTTP/1.1 503 "),
        (HttpFault::Status429, "HTTP/1.1 429 "),
        (HttpFault::Always401, "HTTP/1.1 401 "),
        (HttpFault::Late401, "HTTP/1.1 401 "),
        (HttpFault::Accepted, "HTTP/1.1 202 "),
        (HttpFault::NoContent, "HTTP/1.1 204 "),
        (HttpFault::Session404, "HTTP/1.1 404 "),
        (HttpFault::Session400, "HTTP/1.1 400 "),
        (HttpFault::Redirect, "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:"),
        (HttpFault::WrongType, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"),
        (
            HttpFault::GzipBomb,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n",
        ),
        (HttpFault::SseHugeEvent, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"),
        (HttpFault::Decent, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"),
    ];
    for (mode, expected) in cases {
        assert_eq!(first_bytes(mode, expected.len()), expected, "{}", mode.name());
    }
    assert!(first_bytes(HttpFault::HalfBody, 1000).ends_with(&COUNTED[..COUNTED.len() / 2]));
    assert!(first_bytes(HttpFault::SseCut, 1000).ends_with("data: {\"jsonrpc\":\"2.0\",\"id\r\n"));
    assert!(first_bytes(HttpFault::ChunkJunk, 1000).ends_with("zebra\r\nthis is no chunk\r\n"));
}
