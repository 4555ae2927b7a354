//! Hostile servers over standard input and output.

use std::io::{self, BufRead, Write};
use std::time::Duration;

use serde_json::{Value, json};

use self::framing::FrameWriter;
use super::journal::Journal;
use super::{modes, secret, well_behaved};

mod framing;
mod lists;
mod process_tree;

modes! {
    /// Fault mode of a program.
    pub enum StdioFault {
        /// No fault.
        Decent = "decent",
        /// Prints its secret to standard error and exits.
        ExitAtOnce = "exit-at-once",
        /// Exits right after listing its tools, every time.
        CrashLoop = "crash-loop",
        /// Never answers `initialize`, nor anything before.
        NeverInitialize = "never-initialize",
        /// Takes a second for `initialize`.
        LateInitialize = "late-initialize",
        /// Answers with an unknown protocol version.
        WrongVersion = "wrong-version",
        /// Answers `initialize` with a number.
        NonsenseInitialize = "nonsense-initialize",
        /// Crashes in the middle of a call.
        CrashDuringCall = "crash-during-call",
        /// Answers a call and exits.
        AnswerAndExit = "answer-and-exit",
        /// Never answers a call.
        HangCall = "hang-call",
        /// Answers a call only after it is cancelled.
        LateAnswer = "late-answer",
        /// Answers a call byte by byte, slowly.
        Drip = "drip",
        /// Spins in a busy loop.
        Spin = "spin",
        /// Stops reading its input.
        StopReading = "stop-reading",
        /// Closes its standard input and keeps running.
        CloseStdin = "close-stdin",
        /// Closes its standard output and keeps running.
        CloseStdout = "close-stdout",
        /// Exits while its child keeps its standard output open.
        GrandchildHoldsStdout = "grandchild-holds-stdout",
        /// Keeps running after its input ends and after SIGTERM.
        IgnoreSigterm = "ignore-sigterm",
        /// Like `IgnoreSigterm`, with children in sessions of their own, some of them orphaned.
        ForksSetsid = "forks-setsid",
        /// Prints text between messages.
        Garbage = "garbage",
        /// Prints a banner first.
        Banner = "banner",
        /// Prints binary data between messages.
        Binary = "binary",
        /// Writes UTF-16.
        Utf16 = "utf-16",
        /// Ends lines with CRLF.
        Crlf = "crlf",
        /// Writes each message in pieces.
        SplitWrites = "split-writes",
        /// The response to a call is the last line, without a line feed.
        NoNewline = "no-newline",
        /// Every message is a batch of one.
        Batch = "batch",
        /// Answers a call with 64 MiB.
        HugeLine = "huge-line",
        /// Answers a call with an endless line.
        EndlessLine = "endless-line",
        /// Answers a call with endless notifications.
        StdoutFlood = "stdout-flood",
        /// Writes endlessly to standard error.
        StderrFlood = "stderr-flood",
        /// Answers an unknown request before the call.
        UnknownId = "unknown-id",
        /// Answers a call with both a result and an error.
        ResultAndError = "result-and-error",
        /// Answers a call with neither a result nor an error.
        NeitherResultNorError = "neither-result-nor-error",
        /// The result of a call is a string.
        WrongShape = "wrong-shape",
        /// The result of a call contains a number that JSON does not have.
        NotJson = "not-json",
        /// Like `NotJson`, and the response has no id.
        NotJsonWithoutId = "not-json-without-id",
        /// The content of a result is a number.
        InvalidContent = "invalid-content",
        /// The error flag of a result is a string.
        InvalidIsError = "invalid-is-error",
        /// Answers a call twice.
        AnswerTwice = "answer-twice",
        /// Never lists its tools.
        ListNever = "list-never",
        /// Its list has endless pages.
        ListEndless = "list-endless",
        /// Its list of tools loops.
        ListLoop = "list-loop",
        /// Its list has twenty thousand tools.
        ListHuge = "list-huge",
        /// Its list has every tool three times.
        ListDuplicates = "list-duplicates",
        /// Its list has malformed entries.
        ListMalformed = "list-malformed",
        /// Sends twenty thousand list change notifications during a call.
        ListChangedStorm = "list-changed-storm",
        /// Reports progress of other requests during a call.
        ForeignProgress = "foreign-progress",
        /// Sends an elicitation during a call.
        Asks = "asks",
    }
}

/// Time that a server keeps running if it is not stopped, in case a test fails.
const SAFETY_TIMEOUT: Duration = Duration::from_mins(2);

/// Serves until the input ends, or longer.
pub fn serve(mode: StdioFault) -> io::Result<()> {
    let journal = Journal::from_environment();
    journal.note("start");
    let mut server = HostileStdioServer { mode, journal, writer: FrameWriter::new(mode) };
    server.begin()?;
    // Read as bytes, since the input need not be text.
    for line in io::stdin().lock().split(b'\n') {
        if let Ok(message) = serde_json::from_slice(&line?) {
            server.handle_message(&message)?;
        }
    }
    server.end();
    Ok(())
}

/// Runs as a child of a hostile server, possibly with children of its own.
pub fn run_child(arguments: &[&str]) -> io::Result<()> {
    process_tree::run_child(arguments)
}

struct HostileStdioServer {
    mode: StdioFault,
    journal: Journal,
    writer: FrameWriter,
}

impl HostileStdioServer {
    /// Runs the faults that occur before the first message.
    fn begin(&mut self) -> io::Result<()> {
        match self.mode {
            StdioFault::ExitAtOnce => {
                eprintln!("There is no account for the key {}.", secret());
                std::process::exit(3);
            }
            StdioFault::Banner => self.writer.write_bytes(b"Hostile 1.0\n\n  Listening on standard input.\n"),
            StdioFault::StderrFlood => {
                std::thread::spawn(flood_stderr);
                Ok(())
            }
            StdioFault::IgnoreSigterm => process_tree::ignore_sigterm(),
            StdioFault::ForksSetsid => {
                process_tree::ignore_sigterm()?;
                process_tree::fork()
            }
            _ => Ok(()),
        }
    }

    /// Runs the faults that occur when the input ends.
    fn end(&self) {
        if matches!(self.mode, StdioFault::IgnoreSigterm | StdioFault::ForksSetsid) {
            std::thread::sleep(SAFETY_TIMEOUT);
        }
    }

    fn handle_message(&mut self, message: &Value) -> io::Result<()> {
        if self.mode == StdioFault::LateAnswer && message["method"] == "notifications/cancelled" {
            self.journal.note("notifications/cancelled");
            return self
                .writer
                .write_message(&well_behaved::text(&message["params"]["requestId"], "too late"));
        }
        if let Some(name) = message["result"]["content"]["name"].as_str() {
            return self
                .writer
                .write_message(&well_behaved::text(&message["id"], &format!("Hello, {name}!")));
        }
        let Some(answer) = well_behaved::answer(message, &self.journal) else { return Ok(()) };
        match message["method"].as_str().unwrap_or_default() {
            "tools/list" => self.list(message, &answer),
            "initialize" | "server/discover" => self.initialize(message, answer),
            _ if well_behaved::is_count(message) => self.count(message, &answer),
            _ => self.writer.write_message(&answer),
        }
    }

    fn initialize(&mut self, message: &Value, mut answer: Value) -> io::Result<()> {
        match self.mode {
            StdioFault::NeverInitialize => return Ok(()),
            _ if message["method"] != "initialize" => {}
            StdioFault::LateInitialize => std::thread::sleep(Duration::from_secs(1)),
            StdioFault::WrongVersion => answer["result"]["protocolVersion"] = "1999-12-31".into(),
            StdioFault::NonsenseInitialize => answer["result"] = 42.into(),
            _ => {}
        }
        self.writer.write_message(&answer)
    }

    fn list(&mut self, message: &Value, answer: &Value) -> io::Result<()> {
        match lists::answer(self.mode, message, answer) {
            Some(answer) => self.writer.write_message(&answer)?,
            None => return Ok(()),
        }
        if self.mode == StdioFault::CrashLoop {
            eprintln!("Something is wrong, and {} is not to blame.", secret());
            std::process::exit(4);
        }
        Ok(())
    }

    /// Answers the faulty call.
    fn count(&mut self, message: &Value, answer: &Value) -> io::Result<()> {
        match self.mode {
            StdioFault::CrashDuringCall => std::process::abort(),
            StdioFault::HangCall | StdioFault::LateAnswer => Ok(()),
            StdioFault::Drip => self.writer.write_slowly(answer),
            StdioFault::Spin => loop {
                std::hint::spin_loop();
            },
            StdioFault::StopReading => {
                std::thread::sleep(SAFETY_TIMEOUT);
                std::process::exit(0)
            }
            StdioFault::CloseStdin => {
                rustix::stdio::dup2_stdin(open_null()?)?;
                std::thread::sleep(SAFETY_TIMEOUT);
                std::process::exit(0)
            }
            StdioFault::CloseStdout => Ok(rustix::stdio::dup2_stdout(open_null()?)?),
            StdioFault::GrandchildHoldsStdout => process_tree::leave_child_behind(),
            StdioFault::AnswerAndExit | StdioFault::NoNewline => {
                self.writer.write_last(answer)?;
                std::process::exit(0)
            }
            StdioFault::HugeLine => self.writer.huge_line(answer),
            StdioFault::EndlessLine => self.writer.endless_line(),
            StdioFault::StdoutFlood => self.writer.flood(),
            StdioFault::Asks => self.ask(&message["id"]),
            StdioFault::ListChangedStorm => {
                let storm = well_behaved::notification("notifications/tools/list_changed", &json!({}));
                self.writer.write_repeated(&storm, 20_000)?;
                self.writer.write_message(answer)
            }
            StdioFault::ForeignProgress => {
                self.send_progress(message)?;
                self.writer.write_message(answer)
            }
            _ => self.answer_wrongly(answer),
        }
    }

    /// Answers with an invalid or unrelated response.
    fn answer_wrongly(&mut self, answer: &Value) -> io::Result<()> {
        let id = &answer["id"];
        match self.mode {
            StdioFault::UnknownId => {
                for stray in [json!(9_000_000), json!("stray"), Value::Null] {
                    self.writer.write_message(&well_behaved::text(&stray, "not yours"))?;
                }
                self.writer.write_message(answer)
            }
            StdioFault::ResultAndError => {
                let mut both = well_behaved::error(id, -32000, "and an error");
                both["result"] = answer["result"].clone();
                self.writer.write_message(&both)
            }
            StdioFault::NeitherResultNorError => {
                self.writer.write_message(&json!({"jsonrpc": "2.0", "id": id}))
            }
            StdioFault::WrongShape => self.writer.write_message(&well_behaved::result(id, &json!("counted"))),
            StdioFault::NotJson => self.writer.write_bytes(
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[],\"n\":NaN}}}}\n")
                    .as_bytes(),
            ),
            StdioFault::NotJsonWithoutId => {
                self.writer.write_bytes(b"{\"jsonrpc\":\"2.0\",\"result\":{\"content\":[],\"n\":Infinity}}\n")
            }
            StdioFault::InvalidContent => {
                self.writer.write_message(&well_behaved::result(id, &json!({"content": 42})))
            }
            StdioFault::InvalidIsError => {
                let mut wrong = answer.clone();
                wrong["result"]["isError"] = "maybe".into();
                self.writer.write_message(&wrong)
            }
            StdioFault::AnswerTwice => {
                self.writer.write_message(answer)?;
                self.writer.write_message(&well_behaved::text(id, "counted again"))
            }
            _ => self.writer.write_message(answer),
        }
    }

    fn send_progress(&mut self, message: &Value) -> io::Result<()> {
        let own = &message["params"]["_meta"]["progressToken"];
        for token in [&json!("another-client"), &json!(9_000_000), own] {
            let message = if token == own { "mine" } else { "not yours" };
            let params = json!({"progressToken": token, "progress": 1, "message": message});
            self.writer.write_message(&well_behaved::notification("notifications/progress", &params))?;
        }
        Ok(())
    }

    /// Sends an elicitation in the middle of a call.
    fn ask(&mut self, id: &Value) -> io::Result<()> {
        let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
        let params = json!({"message": "What is your name?", "requestedSchema": schema});
        // The elicitation has the id of the call, so that its response identifies the call.
        self.writer.write_message(
            &json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params}),
        )
    }
}

/// Opens `/dev/null`.
fn open_null() -> io::Result<std::fs::File> {
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")
}

/// Writes to standard error until that fails.
fn flood_stderr() {
    let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
    while io::stderr().write_all(&line).is_ok() {}
}
