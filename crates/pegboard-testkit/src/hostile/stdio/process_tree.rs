//! Servers with several processes.

use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};

use tokio::signal::unix::{SignalKind, signal};

use super::SAFETY_TIMEOUT;

/// The subcommand that runs [`run_child`].
const CHILD_COMMAND: &str = "hostile-child";

/// Ignores SIGTERM.
pub(super) fn ignore_sigterm() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _guard = runtime.enter();
    // A registered handler replaces the default action, even after the runtime is gone.
    signal(SignalKind::terminate()).map(drop)
}

/// Starts children and grandchildren in sessions of their own, some of which become orphans.
pub(super) fn fork() -> io::Result<()> {
    start(&["parent"])?;
    start(&["orphan-maker"])
}

/// Starts a child that inherits the standard output, and exits.
pub(super) fn leave_child_behind() -> io::Result<()> {
    let child = own_command(&["heir"])?.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
    eprintln!("My child {} has it now.", child.id());
    std::process::exit(5)
}

/// Runs a child process in the given role.
pub(super) fn run_child(arguments: &[&str]) -> io::Result<()> {
    match arguments {
        ["heir"] => {}
        ["stubborn"] => detach()?,
        ["parent"] => {
            detach()?;
            start(&["stubborn"])?;
        }
        ["orphan-maker"] => {
            detach()?;
            start(&["stubborn"])?;
            println!("ready");
            return Ok(());
        }
        _ => return Err(io::Error::other("there is no such child")),
    }
    if arguments != ["heir"] {
        println!("ready");
    }
    std::thread::sleep(SAFETY_TIMEOUT);
    Ok(())
}

/// Leaves the session and ignores SIGTERM.
fn detach() -> io::Result<()> {
    // Fails if this process already leads a group.
    let _ = rustix::process::setsid();
    ignore_sigterm()
}

/// Starts a child and waits until it is ready.
fn start(role: &[&str]) -> io::Result<()> {
    let mut child =
        own_command(role)?.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let stdout = child.stdout.take().expect("it is a pipe");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    Ok(())
}

fn own_command(role: &[&str]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(CHILD_COMMAND).args(role);
    Ok(command)
}
