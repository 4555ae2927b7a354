//! How long commands take that people wait for, beside a program that does nothing.

use std::io::{Error, Result};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What is asked of a gateway that runs, and of none.
const COMMANDS: [(&str, &[&str]); 5] = [
    ("--help", &["--help"]),
    ("status", &["status"]),
    ("ls", &["ls"]),
    ("call", &["call", "price", "item=lamp"]),
    ("demo", &["demo"]),
];
/// How long a gateway may take to be there.
const READY: &str = "30s";

/// How long a command takes.
#[derive(Clone, Debug)]
pub struct Taken {
    /// What it is.
    pub command: String,
    /// The median.
    pub median: Duration,
}

/// Measures commands by turns, so that whatever else the machine does slows all of them. The first is a program that does
/// nothing.
pub fn commands(pegboard: &Path, n_rounds: usize) -> Result<Vec<Taken>> {
    let folder = std::env::temp_dir().join(format!("pegboard-measure-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let measured = in_folder(&pegboard.canonicalize()?, &folder, n_rounds.max(1));
    std::fs::remove_dir_all(&folder)?;
    measured
}

fn in_folder(pegboard: &Path, folder: &Path, n_rounds: usize) -> Result<Vec<Taken>> {
    let command = |arguments: &[&str]| {
        let mut command = Command::new(pegboard);
        command.args(arguments).current_dir(folder).env("HOME", folder).env("PEGBOARD_STATE", folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let mut serve = command(&["serve", "--http", "127.0.0.1:0", "--"]);
    let _gateway = Gateway(serve.arg(pegboard).args(["demo-server", "shop"]).spawn()?);
    run(&mut command(&["status", "--wait", READY]))?;
    run(&mut command(&["call", "price", "item=lamp"]))?;
    let mut times = vec![Vec::new(); COMMANDS.len() + 1];
    for _ in 0..n_rounds {
        times[0].push(run(Command::new("true").stdout(Stdio::null()))?);
        for ((_, arguments), times) in COMMANDS.iter().zip(&mut times[1..]) {
            times.push(run(&mut command(arguments))?);
        }
    }
    let names = std::iter::once("nothing").chain(COMMANDS.map(|(name, _)| name));
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    Ok(names
        .zip(times)
        .map(|(command, times)| Taken { command: command.to_owned(), median: median(times) })
        .collect())
}

/// How long a command takes that ends well.
fn run(command: &mut Command) -> Result<Duration> {
    let begun = Instant::now();
    let status = command.status()?;
    if status.success() { Ok(begun.elapsed()) } else { Err(Error::other(format!("{command:?}: {status}"))) }
}

/// A gateway that ends with the measurement.
struct Gateway(Child);

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
