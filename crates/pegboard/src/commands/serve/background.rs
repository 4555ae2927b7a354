//! Start of a gateway in the background.

use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitCode, Stdio};

use super::ServeArgs;
use super::gateway_lock::GatewayLock;
use super::log_file::LogFile;
use crate::cli::{CliError, Globals};
use crate::environment;

/// Hidden command that starts a program in the background.
const COMMAND: &str = "background";

/// Starts a gateway in the background, with the lock of its configuration. It outlives this process and its terminal.
pub(super) fn start(
    serve: &ServeArgs,
    globals: &Globals,
    lock: GatewayLock,
    log: &LogFile,
) -> io::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(COMMAND).args(arguments(serve, globals)).env_clear().envs(environment::vars_os());
    command.stdout(Stdio::null()).stderr(log.begin()?).stdin(lock.pass_on()?);
    let status = command.spawn()?.wait()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("the start ended with {status}"))) }
}

/// Runs the hidden command: starts this program with these arguments, detached from the process that started it.
pub(crate) fn detach(arguments: &[OsString]) -> Result<ExitCode, CliError> {
    let system = |error: io::Error| CliError::system(error.to_string());
    close_inherited();
    // Neither a signal of the terminal nor its end reaches the new session.
    rustix::process::setsid().map_err(|error| system(error.into()))?;
    // The child is adopted by the system, so that it does not end with the processes of the client.
    let program = std::env::current_exe().map_err(system)?;
    Command::new(program).args(arguments).spawn().map_err(system)?;
    Ok(ExitCode::SUCCESS)
}

/// Closes all files but the standard streams. Those that a client has left open would stay open with the gateway.
fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/dev/fd") else { return };
    let names = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // The directory itself is among them, and closed by now.
    for file in names.collect::<Vec<_>>().into_iter().filter(|file| *file > 2) {
        let _ = nix::unistd::close(file);
    }
}

/// Arguments of a gateway that serves the same configuration in the background.
fn arguments(serve: &ServeArgs, globals: &Globals) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["serve".into(), "--no-input".into()];
    let mut option = |name: &str, value: OsString| arguments.extend([name.into(), value]);
    globals.config.iter().for_each(|source| option("--config", source.into()));
    globals.set.iter().for_each(|setting| option("--set", setting.into()));
    globals.state.iter().for_each(|state| option("--state", state.into()));
    serve.toolbox.iter().for_each(|toolbox| option("--toolbox", toolbox.into()));
    option("--background", client_process().into());
    let flags = [(globals.trust, "--trust"), (globals.quiet, "--quiet"), (serve.no_watch, "--no-watch")];
    arguments.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| OsString::from(flag)));
    arguments.extend((0..globals.verbose).map(|_| OsString::from("--verbose")));
    arguments.extend(serve.sources.iter().map(OsString::from));
    if !serve.command.is_empty() {
        arguments.push("--".into());
        arguments.extend(serve.command.iter().map(OsString::from));
    }
    arguments
}

/// Name and id of the process that started this one.
pub(super) fn client_process() -> String {
    let Some(parent) = rustix::process::getppid() else { return "an unknown process".to_owned() };
    let pid = parent.as_raw_nonzero();
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("{} (pid {pid})", name.trim()),
        Err(_) => format!("pid {pid}"),
    }
}
