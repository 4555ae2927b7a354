//! Run times of interactive commands, compared with a program that does nothing.

use std::io::{Error, Result};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The measured commands, by label.
const COMMANDS: [(&str, &[&str]); 5] = [
    ("--help", &["--help"]),
    ("status", &["status"]),
    ("ls", &["ls"]),
    ("call", &["call", "price", "item=lamp"]),
    ("demo", &["demo"]),
];
/// Time limit for the gateway to become ready.
const READY_TIMEOUT: &str = "30s";

/// Run time of a command.
#[derive(Clone, Debug)]
pub struct CommandTime {
    /// Label of the command.
    pub command: String,
    /// Median run time.
    pub median: Duration,
}

/// Measures commands alternately, so that other load on the machine slows all of them. The first is a program
/// that does nothing.
pub fn commands(pegboard: &Path, n_rounds: usize) -> Result<Vec<CommandTime>> {
    let folder = std::env::temp_dir().join(format!("pegboard-measure-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let measured = measure_in_folder(&pegboard.canonicalize()?, &folder, n_rounds.max(1));
    std::fs::remove_dir_all(&folder)?;
    measured
}

fn measure_in_folder(pegboard: &Path, folder: &Path, n_rounds: usize) -> Result<Vec<CommandTime>> {
    let command = |arguments: &[&str]| {
        let mut command = Command::new(pegboard);
        command.args(arguments).current_dir(folder).env("HOME", folder).env("PEGBOARD_STATE", folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let mut serve = command(&["serve", "--http", "127.0.0.1:0", "--"]);
    let _gateway = GatewayGuard(serve.arg(pegboard).args(["demo-server", "shop"]).spawn()?);
    run_timed(&mut command(&["status", "--wait", READY_TIMEOUT]))?;
    run_timed(&mut command(&["call", "price", "item=lamp"]))?;
    let mut times = vec![Vec::new(); COMMANDS.len() + 1];
    for _ in 0..n_rounds {
        times[0].push(run_timed(Command::new("true").stdout(Stdio::null()))?);
        for ((_, arguments), times) in COMMANDS.iter().zip(&mut times[1..]) {
            times.push(run_timed(&mut command(arguments))?);
        }
    }
    let names = std::iter::once("nothing").chain(COMMANDS.map(|(name, _)| name));
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    Ok(names
        .zip(times)
        .map(|(command, times)| CommandTime { command: command.to_owned(), median: median(times) })
        .collect())
}

/// Runs a command to success and returns its run time.
fn run_timed(command: &mut Command) -> Result<Duration> {
    let started_at = Instant::now();
    let status = command.status()?;
    if status.success() {
        Ok(started_at.elapsed())
    } else {
        Err(Error::other(format!("{command:?}: {status}")))
    }
}

/// Kills the gateway when dropped.
struct GatewayGuard(Child);

impl Drop for GatewayGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
