//! Hostile programs that are spoken to over their standard input and output.

use std::io::{self, BufRead, Write};
use std::time::Duration;

use serde_json::{Value, json};

use self::mouth::Mouth;
use super::journal::Journal;
use super::{manners, modes, secret};

mod family;
mod lists;
mod mouth;

modes! {
    /// How a program misbehaves.
    pub enum Mode {
        /// Not at all.
        Decent = "decent",
        /// It tells its secret on standard error, and ends.
        ExitAtOnce = "exit-at-once",
        /// It ends as soon as it has listed its tools, every time.
        CrashLoop = "crash-loop",
        /// It never answers `initialize`, nor anything before.
        NeverInitialize = "never-initialize",
        /// It takes a second for `initialize`.
        LateInitialize = "late-initialize",
        /// It speaks a version that nobody knows.
        WrongVersion = "wrong-version",
        /// It answers `initialize` with a number.
        NonsenseInitialize = "nonsense-initialize",
        /// It dies in the middle of a call.
        CrashDuringCall = "crash-during-call",
        /// It answers a call, and is gone.
        AnswerAndExit = "answer-and-exit",
        /// It never answers a call.
        HangCall = "hang-call",
        /// It answers a call only when it is cancelled.
        LateAnswer = "late-answer",
        /// It answers a call byte by byte, and takes its time.
        Drip = "drip",
        /// It does nothing but use the processor.
        Spin = "spin",
        /// It reads nothing more.
        StopReading = "stop-reading",
        /// It closes its standard input and runs on.
        CloseStdin = "close-stdin",
        /// It closes its standard output and runs on.
        CloseStdout = "close-stdout",
        /// It dies, and its child keeps its standard output open.
        GrandchildHoldsStdout = "grandchild-holds-stdout",
        /// It runs on when its input ends and when it is told to terminate.
        IgnoreSigterm = "ignore-sigterm",
        /// So do its children, in sessions of their own, some without a parent.
        ForksSetsid = "forks-setsid",
        /// Between its messages there is text.
        Garbage = "garbage",
        /// It introduces itself to a person first.
        Banner = "banner",
        /// Between its messages there are bytes that are no text.
        Binary = "binary",
        /// It writes UTF-16.
        Utf16 = "utf-16",
        /// Its lines end as they do elsewhere.
        Crlf = "crlf",
        /// It writes each message in pieces.
        SplitWrites = "split-writes",
        /// Its answer to a call is its last line, and has no end.
        NoNewline = "no-newline",
        /// Every message is a list of one.
        Batch = "batch",
        /// It answers a call with 64 MiB.
        HugeLine = "huge-line",
        /// It answers a call with a line without an end.
        EndlessLine = "endless-line",
        /// It answers a call with notifications without an end.
        StdoutFlood = "stdout-flood",
        /// It never stops writing to its standard error.
        StderrFlood = "stderr-flood",
        /// Before a call it answers a request that nobody made.
        UnknownId = "unknown-id",
        /// A call has a result and an error.
        ResultAndError = "result-and-error",
        /// A call has neither a result nor an error.
        NeitherResultNorError = "neither-result-nor-error",
        /// The result of a call is a text.
        WrongShape = "wrong-shape",
        /// It answers a call twice.
        AnswerTwice = "answer-twice",
        /// It never lists its tools.
        ListNever = "list-never",
        /// Its list goes on and on.
        ListEndless = "list-endless",
        /// Its list begins again.
        ListLoop = "list-loop",
        /// Its list has twenty thousand tools.
        ListHuge = "list-huge",
        /// Its list has every tool three times.
        ListDuplicates = "list-duplicates",
        /// Its list has entries that are no tools.
        ListMalformed = "list-malformed",
        /// During a call it says twenty thousand times that its list changed.
        ListChangedStorm = "list-changed-storm",
        /// During a call it tells the progress of others.
        ForeignProgress = "foreign-progress",
        /// During a call it asks for a name.
        Asks = "asks",
    }
}

/// How long a server goes on that nobody ends, in case that a test fails.
const LONG: Duration = Duration::from_mins(2);

/// Misbehaves until the input ends, or longer.
pub fn serve(mode: Mode) -> io::Result<()> {
    let journal = Journal::from_environment();
    journal.note("start");
    let mut server = Server { mode, journal, mouth: Mouth::new(mode) };
    server.begin()?;
    // Bytes, since nobody says that it is text.
    for line in io::stdin().lock().split(b'\n') {
        if let Ok(message) = serde_json::from_slice(&line?) {
            server.hear(&message)?;
        }
    }
    server.end();
    Ok(())
}

/// Is a child of a hostile server, which may have children itself.
pub fn loiter(arguments: &[&str]) -> io::Result<()> {
    family::loiter(arguments)
}

struct Server {
    mode: Mode,
    journal: Journal,
    mouth: Mouth,
}

impl Server {
    /// What it does before anybody speaks to it.
    fn begin(&mut self) -> io::Result<()> {
        match self.mode {
            Mode::ExitAtOnce => {
                eprintln!("There is no account for the key {}.", secret());
                std::process::exit(3);
            }
            Mode::Banner => self.mouth.bytes(b"Hostile 1.0\n\n  Listening on standard input.\n"),
            Mode::StderrFlood => {
                std::thread::spawn(flood_stderr);
                Ok(())
            }
            Mode::IgnoreSigterm => family::ignore_sigterm(),
            Mode::ForksSetsid => {
                family::ignore_sigterm()?;
                family::fork()
            }
            _ => Ok(()),
        }
    }

    /// What it does when its input ends.
    fn end(&self) {
        if matches!(self.mode, Mode::IgnoreSigterm | Mode::ForksSetsid) {
            std::thread::sleep(LONG);
        }
    }

    fn hear(&mut self, message: &Value) -> io::Result<()> {
        if self.mode == Mode::LateAnswer && message["method"] == "notifications/cancelled" {
            self.journal.note("notifications/cancelled");
            return self.mouth.say(&manners::text(&message["params"]["requestId"], "too late"));
        }
        if let Some(name) = message["result"]["content"]["name"].as_str() {
            return self.mouth.say(&manners::text(&message["id"], &format!("Hello, {name}!")));
        }
        let Some(answer) = manners::answer(message, &self.journal) else { return Ok(()) };
        match message["method"].as_str().unwrap_or_default() {
            "tools/list" => self.list(message, &answer),
            "initialize" | "server/discover" => self.initialize(message, answer),
            _ if manners::is_count(message) => self.count(message, &answer),
            _ => self.mouth.say(&answer),
        }
    }

    fn initialize(&mut self, message: &Value, mut answer: Value) -> io::Result<()> {
        match self.mode {
            Mode::NeverInitialize => return Ok(()),
            _ if message["method"] != "initialize" => {}
            Mode::LateInitialize => std::thread::sleep(Duration::from_secs(1)),
            Mode::WrongVersion => answer["result"]["protocolVersion"] = "1999-12-31".into(),
            Mode::NonsenseInitialize => answer["result"] = 42.into(),
            _ => {}
        }
        self.mouth.say(&answer)
    }

    fn list(&mut self, message: &Value, answer: &Value) -> io::Result<()> {
        match lists::answer(self.mode, message, answer) {
            Some(answer) => self.mouth.say(&answer)?,
            None => return Ok(()),
        }
        if self.mode == Mode::CrashLoop {
            eprintln!("Something is wrong, and {} is not to blame.", secret());
            std::process::exit(4);
        }
        Ok(())
    }

    /// Answers the call that the faults are of.
    fn count(&mut self, message: &Value, answer: &Value) -> io::Result<()> {
        match self.mode {
            Mode::CrashDuringCall => std::process::abort(),
            Mode::HangCall | Mode::LateAnswer => Ok(()),
            Mode::Drip => self.mouth.drip(answer),
            Mode::Spin => loop {
                std::hint::spin_loop();
            },
            Mode::StopReading => {
                std::thread::sleep(LONG);
                std::process::exit(0)
            }
            Mode::CloseStdin => {
                rustix::stdio::dup2_stdin(nowhere()?)?;
                std::thread::sleep(LONG);
                std::process::exit(0)
            }
            Mode::CloseStdout => Ok(rustix::stdio::dup2_stdout(nowhere()?)?),
            Mode::GrandchildHoldsStdout => family::leave_a_child(),
            Mode::AnswerAndExit | Mode::NoNewline => {
                self.mouth.say_last(answer)?;
                std::process::exit(0)
            }
            Mode::HugeLine => self.mouth.huge_line(answer),
            Mode::EndlessLine => self.mouth.endless_line(),
            Mode::StdoutFlood => self.mouth.flood(),
            Mode::Asks => self.ask(&message["id"]),
            Mode::ListChangedStorm => {
                let storm = manners::notification("notifications/tools/list_changed", &json!({}));
                self.mouth.say_often(&storm, 20_000)?;
                self.mouth.say(answer)
            }
            Mode::ForeignProgress => {
                self.tell_progress(message)?;
                self.mouth.say(answer)
            }
            _ => self.lie(answer),
        }
    }

    /// Answers with something that is no answer, or not to this.
    fn lie(&mut self, answer: &Value) -> io::Result<()> {
        let id = &answer["id"];
        match self.mode {
            Mode::UnknownId => {
                for stray in [json!(9_000_000), json!("stray"), Value::Null] {
                    self.mouth.say(&manners::text(&stray, "not yours"))?;
                }
                self.mouth.say(answer)
            }
            Mode::ResultAndError => {
                let mut both = manners::error(id, -32000, "and an error");
                both["result"] = answer["result"].clone();
                self.mouth.say(&both)
            }
            Mode::NeitherResultNorError => self.mouth.say(&json!({"jsonrpc": "2.0", "id": id})),
            Mode::WrongShape => self.mouth.say(&manners::result(id, &json!("counted"))),
            Mode::AnswerTwice => {
                self.mouth.say(answer)?;
                self.mouth.say(&manners::text(id, "counted again"))
            }
            _ => self.mouth.say(answer),
        }
    }

    fn tell_progress(&mut self, message: &Value) -> io::Result<()> {
        let own = &message["params"]["_meta"]["progressToken"];
        for token in [&json!("somebody-else"), &json!(9_000_000), own] {
            let message = if token == own { "mine" } else { "not yours" };
            let params = json!({"progressToken": token, "progress": 1, "message": message});
            self.mouth.say(&manners::notification("notifications/progress", &params))?;
        }
        Ok(())
    }

    /// Asks for a name in the middle of a call.
    fn ask(&mut self, id: &Value) -> io::Result<()> {
        let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
        let params = json!({"message": "What is your name?", "requestedSchema": schema});
        // The question has the id of the call, so that whoever answers it says which call it was for.
        self.mouth.say(&json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params}))
    }
}

/// A file that takes everything and has nothing.
fn nowhere() -> io::Result<std::fs::File> {
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")
}

/// Writes to standard error for as long as somebody reads it.
fn flood_stderr() {
    let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
    while io::stderr().write_all(&line).is_ok() {}
}
