//! What a supervisor does: it starts one program, and ends when nothing of it is left.
//!
//! On Linux whoever loses its parent becomes a child of the supervisor, whatever session it made for itself. So there is
//! nothing left exactly when the supervisor has no children.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{WaitOptions, WaitStatus, setsid, wait};
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use super::control::{Handover, Report, take_over};
use super::keeper::AFTERMATH;
use super::tree::Tree;

/// How long everything may take to terminate if nobody is there any more who would wait.
const DESERTED: Duration = Duration::from_secs(1);
/// How long the supervisor goes on killing what does not die.
const KILLING: Duration = Duration::from_mins(1);
/// How often it looks for new processes to tell.
const LOOK: Duration = Duration::from_millis(100);
/// How often it kills, at first and at last.
const KILL_EVERY: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];
/// How long it waits for its orders, which are there before it starts.
const ORDERS: Duration = Duration::from_secs(10);

/// Does what a [`Supervisor`](super::Supervisor) does, and gives the exit code for the process.
///
/// The arguments are the program and its own, after a `--` or not. This blocks until the program and everything it
/// started is gone, and takes charge of all children of this process, so a process that calls it does nothing else.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     // pegboard supervise -- program arguments…
///     pegboard_providers::process::supervise(std::env::args_os().skip(2))
/// }
/// ```
pub fn supervise(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    if arguments.first().is_some_and(|first| first == "--") {
        arguments.remove(0);
    }
    // The caller may be in the middle of a runtime, where no other may be entered.
    let supervising = std::thread::spawn(move || run(&arguments));
    match supervising.join() {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => {
            eprintln!("supervise: {error}");
            ExitCode::from(2)
        }
        Err(_) => ExitCode::from(70),
    }
}

fn run(arguments: &[OsString]) -> io::Result<ExitCode> {
    let Some((program, arguments)) = arguments.split_first() else {
        return Err(io::Error::other("there is no program to start"));
    };
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    control
        .set_read_timeout(Some(ORDERS))
        .and_then(|()| take_over(&control))
        .map_err(|error| {
            io::Error::other(format!("this is not for people, only for Pegboard itself ({error})"))
        })
        .and_then(|handover| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let mut command = Command::new(program);
            command.args(arguments);
            runtime.block_on(watch(control, command, handover))
        })
}

async fn watch(control: UnixStream, command: Command, handover: Handover) -> io::Result<ExitCode> {
    let grace = handover.grace;
    let mut signals = Signals::listen()?;
    // Who leads a process group already cannot make a session, and needs none.
    let _ = setsid();
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    control.set_nonblocking(true)?;
    let control = tokio::net::UnixStream::from_std(control)?;
    let nowhere = OpenOptions::new().write(true).open("/dev/null")?;
    let program = match start(command, handover) {
        Ok(program) => program,
        Err(error) => return Ok(not_started(&error)),
    };
    let mut watch = Watch { control, program, exit: None };
    watch.report(Report::Started(program));
    // From now on only the program holds the pipe, so that its end means something. Nothing may fail any more.
    let _ = rustix::stdio::dup2_stderr(nowhere);

    let patience = match watch.wait(&mut signals).await {
        End::Exited => AFTERMATH,
        End::Asked => grace,
        End::Deserted => grace.min(DESERTED),
    };
    watch.clear(&mut signals, patience).await;
    Ok(watch.exit.map_or(ExitCode::FAILURE, exit_code))
}

/// Starts the program in a process group of its own.
fn start(mut command: Command, handover: Handover) -> io::Result<u32> {
    let [stdin, stdout, stderr] = handover.pipes;
    // Whatever this process was born with is not for the program.
    close_fds::set_fds_cloexec_threadsafe(3, &[]);
    let child = command.stdin(stdin).stdout(stdout).stderr(stderr).process_group(0).spawn()?;
    Ok(child.id())
}

/// What a shell would give.
fn not_started(error: &io::Error) -> ExitCode {
    if error.kind() == io::ErrorKind::NotFound {
        eprintln!("the program cannot be run: it, or what its first line says runs it, is not there");
        ExitCode::from(127)
    } else {
        eprintln!("the program cannot be run: {error}");
        ExitCode::from(126)
    }
}

/// Why to end everything.
enum End {
    /// The program ended.
    Exited,
    /// Somebody wants it.
    Asked,
    /// Whoever started the supervisor is gone.
    Deserted,
}

/// Whether there is anybody to wait for.
#[derive(PartialEq, Eq)]
enum Children {
    Some,
    None,
}

struct Watch {
    control: tokio::net::UnixStream,
    program: u32,
    exit: Option<WaitStatus>,
}

impl Watch {
    /// Waits for a reason to end everything.
    async fn wait(&mut self, signals: &mut Signals) -> End {
        let mut order = [0];
        loop {
            if self.reap() == Children::None || self.exit.is_some() {
                return End::Exited;
            }
            tokio::select! {
                _ = signals.child.recv() => {}
                () = signals.stop.recv() => return End::Asked,
                read = self.control.read(&mut order) => match read {
                    Ok(1..) => return End::Asked,
                    Ok(0) | Err(_) => return End::Deserted,
                },
            }
        }
    }

    /// Ends everything: tells all to terminate, and kills what is left after `patience`.
    async fn clear(&mut self, signals: &mut Signals, patience: Duration) {
        let mut tree = Tree::below_this(self.program);
        let kill_from = Instant::now() + patience;
        let [mut pause, longest] = KILL_EVERY;
        loop {
            if self.reap() == Children::None && (cfg!(target_os = "linux") || tree.look().is_empty()) {
                return;
            }
            let now = Instant::now();
            let next = if now < kill_from {
                tree.terminate();
                kill_from.min(now + LOOK)
            } else if now < kill_from + KILLING {
                tree.kill();
                pause = longest.min(pause * 2);
                now + pause
            } else {
                return;
            };
            tokio::select! {
                _ = signals.child.recv() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Takes note of everyone who ended, the program and those that lost their parents.
    fn reap(&mut self) -> Children {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if u32::try_from(pid.as_raw_nonzero().get()) == Ok(self.program) {
                        self.exit = Some(status);
                        self.report(Report::Exited(status.as_raw()));
                    }
                }
                Ok(None) => return Children::Some,
                Err(Errno::INTR) => {}
                Err(_) => return Children::None,
            }
        }
    }

    /// Says so to whoever is there to hear it.
    fn report(&self, report: Report) {
        let _ = rustix::io::write(&self.control, &report.to_bytes());
    }
}

/// The program's code, or as a shell says which signal ended it.
fn exit_code(status: WaitStatus) -> ExitCode {
    let signalled = || status.terminating_signal().map(|signal| signal + 128);
    let code = status.exit_status().or_else(signalled);
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The signals that mean something here. That they are listened to also keeps them from ending the supervisor.
struct Signals {
    child: Signal,
    stop: Stop,
}

/// The signals that want the supervisor to stop.
struct Stop {
    hangup: Signal,
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let stop = Stop {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            terminate: signal(SignalKind::terminate())?,
        };
        Ok(Self { child: signal(SignalKind::child())?, stop })
    }
}

impl Stop {
    async fn recv(&mut self) {
        tokio::select! {
            _ = self.hangup.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.quit.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
