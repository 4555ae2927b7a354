//! The supervisor process: runs one program, and exits when no process of it is left.
//!
//! On Linux the supervisor is a subreaper, so orphans become its children whatever their session. No process
//! is left exactly when it has no children. The program is killed if its supervisor is killed.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{WaitOptions, WaitStatus, setsid, wait};
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use super::control::{SupervisorReport, SupervisorSetup, receive_setup};
use super::tree::ProcessTree;
use super::waiter::LEFTOVER_GRACE;

/// Grace period for SIGTERM after the parent of the supervisor is gone.
const ORPHANED_GRACE: Duration = Duration::from_secs(1);
/// Time limit for killing processes that do not exit.
const KILL_TIMEOUT: Duration = Duration::from_mins(1);
/// Interval between searches for new processes to terminate.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Initial and maximum interval between kills.
const KILL_INTERVALS: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];
/// Time limit for receiving the setup, which is sent before the supervisor starts.
const SETUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs as a supervisor (see [`SupervisorCommand`](super::SupervisorCommand)) and returns the exit code for
/// the process.
///
/// The arguments are the program and its arguments, optionally after a `--`. This blocks until the program
/// and all its descendants are gone. It reaps all children of this process, so the process must not do
/// anything else.
///
/// On Linux it starts this program once more, with the same arguments up to the `--`. That process asks to be
/// killed together with the supervisor and becomes the supervised program. A program with more privileges than
/// its parent, such as a setuid one, cannot be killed so.
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
    #[cfg(target_os = "linux")]
    if let Some(supervisor) = exec::supervisor_of(&arguments) {
        return spawn_failure_code(&exec::become_program(supervisor, &arguments[1..]));
    }
    // The caller may be inside a runtime, where no other may be entered.
    let thread = std::thread::spawn(move || run(&arguments));
    match thread.join() {
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
        return Err(io::Error::other("missing program to run"));
    };
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    control
        .set_read_timeout(Some(SETUP_TIMEOUT))
        .and_then(|()| receive_setup(&control))
        .map_err(|error| {
            io::Error::other(format!("this command is only for internal use by Pegboard ({error})"))
        })
        .and_then(|setup| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(supervise_program(control, program, arguments, setup))
        })
}

async fn supervise_program(
    control: UnixStream,
    program: &OsStr,
    arguments: &[OsString],
    setup: SupervisorSetup,
) -> io::Result<ExitCode> {
    let grace = setup.grace;
    let mut signals = Signals::listen()?;
    // Fails for a process group leader, which needs no new session.
    let _ = setsid();
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    control.set_nonblocking(true)?;
    let control = tokio::net::UnixStream::from_std(control)?;
    let dev_null = OpenOptions::new().write(true).open("/dev/null")?;
    let program = match start(program, arguments, setup.pipes) {
        Ok(program) => program,
        Err(error) => return Ok(spawn_failure_code(&error)),
    };
    let mut supervision = Supervision { control, program, exit: None };
    supervision.report(SupervisorReport::Started(program));
    // From now on only the program holds the pipe, so that its end is meaningful. Nothing may fail any more.
    let _ = rustix::stdio::dup2_stderr(dev_null);

    let grace_period = match supervision.wait_for_end(&mut signals).await {
        EndCause::Exited => LEFTOVER_GRACE,
        EndCause::Requested => grace,
        EndCause::Orphaned => grace.min(ORPHANED_GRACE),
    };
    supervision.end_all(&mut signals, grace_period).await;
    Ok(supervision.exit.map_or(ExitCode::FAILURE, exit_code))
}

/// Starts the program in its own process group, on a thread that lives as long as this process: the
/// parent-death signal of a process follows the thread that has started it.
fn start(program: &OsStr, arguments: &[OsString], pipes: [OwnedFd; 3]) -> io::Result<u32> {
    // Inherited file descriptors are not for the program.
    close_fds::set_fds_cloexec_threadsafe(3, &[]);
    let [stdin, stdout, stderr] = pipes;
    let spawn = |command: &mut Command| {
        let [stdin, stdout, stderr] = [stdin.try_clone()?, stdout.try_clone()?, stderr.try_clone()?];
        let child = command.stdin(stdin).stdout(stdout).stderr(stderr).process_group(0).spawn()?;
        Ok(child.id())
    };
    #[cfg(target_os = "linux")]
    if let Some(mut command) = exec::command()
        && let Ok(program) = spawn(command.arg(program).args(arguments))
    {
        return Ok(program);
    }
    spawn(Command::new(program).args(arguments))
}

/// The process between the supervisor and the program, which becomes the program.
#[cfg(target_os = "linux")]
mod exec {
    use std::ffi::{OsStr, OsString};
    use std::io;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

    /// First argument of such a process, followed by the id of its supervisor. A supervised program has an
    /// absolute path.
    const EXEC_FOR: &str = "exec-for=";

    /// Returns the command of such a process, which expects the program and its arguments. `None` if this
    /// process was not started as a supervisor is.
    pub(super) fn command() -> Option<Command> {
        let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        let separator = arguments.iter().position(|argument| argument == "--")?;
        // The same program, even if its file has been replaced.
        let mut command = Command::new("/proc/self/exe");
        command.args(&arguments[..=separator]).arg(format!("{EXEC_FOR}{}", getpid()));
        Some(command)
    }

    /// Returns the supervisor if this process was started by [`command`].
    pub(super) fn supervisor_of(arguments: &[OsString]) -> Option<Pid> {
        let supervisor = arguments.first().and_then(|first| first.to_str()?.strip_prefix(EXEC_FOR));
        supervisor.and_then(|pid| Pid::from_raw(pid.parse().ok()?))
    }

    /// Replaces this process by the program, which is killed together with its supervisor; returns only on an
    /// error.
    pub(super) fn become_program(supervisor: Pid, arguments: &[OsString]) -> io::Error {
        let Some((program, arguments)) = arguments.split_first() else {
            return io::Error::other("missing program to run");
        };
        if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
            return error.into();
        }
        // The supervisor may have been killed before it could be followed.
        if getppid() != Some(supervisor) {
            return io::Error::other("its supervisor was killed");
        }
        Command::new::<&OsStr>(program).args(arguments).exec()
    }
}

/// Prints the error and returns the exit code that a shell would.
fn spawn_failure_code(error: &io::Error) -> ExitCode {
    if error.kind() == io::ErrorKind::NotFound {
        eprintln!("cannot run the program: it or its interpreter does not exist");
        ExitCode::from(127)
    } else {
        eprintln!("cannot run the program: {error}");
        ExitCode::from(126)
    }
}

/// The reason to end everything.
enum EndCause {
    /// The program exited.
    Exited,
    /// A stop was requested.
    Requested,
    /// The parent of the supervisor is gone.
    Orphaned,
}

/// Result of reaping.
#[derive(PartialEq, Eq)]
enum RemainingChildren {
    Some,
    None,
}

struct Supervision {
    control: tokio::net::UnixStream,
    program: u32,
    exit: Option<WaitStatus>,
}

impl Supervision {
    /// Waits for a reason to end everything.
    async fn wait_for_end(&mut self, signals: &mut Signals) -> EndCause {
        let mut byte = [0];
        loop {
            if self.reap() == RemainingChildren::None || self.exit.is_some() {
                return EndCause::Exited;
            }
            tokio::select! {
                _ = signals.child.recv() => {}
                () = signals.stop.recv() => return EndCause::Requested,
                read = self.control.read(&mut byte) => match read {
                    Ok(1..) => return EndCause::Requested,
                    Ok(0) | Err(_) => return EndCause::Orphaned,
                },
            }
        }
    }

    /// Ends everything: sends SIGTERM to all processes, and SIGKILL after the grace period.
    async fn end_all(&mut self, signals: &mut Signals, grace_period: Duration) {
        let mut tree = ProcessTree::descendants_of_self(self.program);
        let kill_from = Instant::now() + grace_period;
        let [mut pause, max_pause] = KILL_INTERVALS;
        loop {
            if self.reap() == RemainingChildren::None
                && (cfg!(target_os = "linux") || tree.refresh().is_empty())
            {
                return;
            }
            let now = Instant::now();
            let next = if now < kill_from {
                tree.terminate();
                kill_from.min(now + POLL_INTERVAL)
            } else if now < kill_from + KILL_TIMEOUT {
                tree.kill();
                pause = max_pause.min(pause * 2);
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

    /// Reaps all exited children, the program as well as adopted orphans.
    fn reap(&mut self) -> RemainingChildren {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if u32::try_from(pid.as_raw_nonzero().get()) == Ok(self.program) {
                        self.exit = Some(status);
                        self.report(SupervisorReport::Exited(status.as_raw()));
                    }
                }
                Ok(None) => return RemainingChildren::Some,
                Err(Errno::INTR) => {}
                Err(_) => return RemainingChildren::None,
            }
        }
    }

    /// Sends a report to the parent, if it is still there.
    fn report(&self, report: SupervisorReport) {
        let _ = rustix::io::write(&self.control, &report.to_bytes());
    }
}

/// Returns the program's exit code, or 128 plus the signal that killed it, as a shell does.
fn exit_code(status: WaitStatus) -> ExitCode {
    let signalled = || status.terminating_signal().map(|signal| signal + 128);
    let code = status.exit_status().or_else(signalled);
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Signals of interest. Listening to them also keeps them from killing the supervisor.
struct Signals {
    child: Signal,
    stop: StopSignals,
}

/// Signals that stop the supervisor.
struct StopSignals {
    hangup: Signal,
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let stop = StopSignals {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            terminate: signal(SignalKind::terminate())?,
        };
        Ok(Self { child: signal(SignalKind::child())?, stop })
    }
}

impl StopSignals {
    async fn recv(&mut self) {
        tokio::select! {
            _ = self.hangup.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.quit.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
