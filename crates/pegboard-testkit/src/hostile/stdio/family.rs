//! Servers that are more than one process.

use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};

use tokio::signal::unix::{SignalKind, signal};

use super::LONG;

/// The subcommand that is [`loiter`].
const LOITER: &str = "hostile-child";

/// Is told to terminate, and does not.
pub(super) fn ignore_sigterm() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _guard = runtime.enter();
    // To listen is to survive, also when nobody hears it any more.
    signal(SignalKind::terminate()).map(drop)
}

/// Starts children and children of children in sessions of their own, some of which lose their parents.
pub(super) fn fork() -> io::Result<()> {
    start(&["parent"])?;
    start(&["orphan-maker"])
}

/// Starts a child that keeps the standard output, and dies.
pub(super) fn leave_a_child() -> io::Result<()> {
    let child = itself(&["heir"])?.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
    eprintln!("My child {} has it now.", child.id());
    std::process::exit(5)
}

/// What a child does.
pub(super) fn loiter(arguments: &[&str]) -> io::Result<()> {
    match arguments {
        ["heir"] => {}
        ["stubborn"] => leave()?,
        ["parent"] => {
            leave()?;
            start(&["stubborn"])?;
        }
        ["orphan-maker"] => {
            leave()?;
            start(&["stubborn"])?;
            println!("ready");
            return Ok(());
        }
        _ => return Err(io::Error::other("there is no such child")),
    }
    if arguments != ["heir"] {
        println!("ready");
    }
    std::thread::sleep(LONG);
    Ok(())
}

/// Leaves the session, and stays when it is told to go.
fn leave() -> io::Result<()> {
    // Who leads a group already has left.
    let _ = rustix::process::setsid();
    ignore_sigterm()
}

/// Starts a child and waits until it is what it should be.
fn start(role: &[&str]) -> io::Result<()> {
    let mut child =
        itself(role)?.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let stdout = child.stdout.take().expect("it is a pipe");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    Ok(())
}

fn itself(role: &[&str]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(LOITER).args(role);
    Ok(command)
}
