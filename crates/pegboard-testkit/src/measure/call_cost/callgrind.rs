//! A gateway under callgrind: started, profiled for a while, stopped and read.

use std::collections::HashMap;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time;

use super::CallCost;

/// Time limit for the gateway to start or stop, and for a command to callgrind.
const TIMEOUT: Duration = Duration::from_mins(2);
/// Time without work after which the gateway is idle: longer than any of its write intervals.
const IDLE_TIME: Duration = Duration::from_secs(1);
/// Interval between two looks at its processor time.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Program, configuration and token of a gateway.
pub(super) struct GatewayOptions<'a> {
    pub(super) program: &'a Path,
    pub(super) configuration: Value,
    /// Variable and value of the token that clients must send.
    pub(super) token: Option<(&'static str, &'static str)>,
}

/// A gateway that runs under callgrind. Its directory is removed when dropped.
pub(super) struct ProfiledGateway {
    child: Child,
    pid: Pid,
    folder: PathBuf,
    url: String,
}

impl ProfiledGateway {
    /// Starts a gateway with a directory of its own, and waits until it listens.
    pub(super) async fn start(folder: &Path, options: GatewayOptions<'_>) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let file = folder.join("pegboard.json");
        std::fs::write(&file, options.configuration.to_string())?;
        let mut command = Command::new("valgrind");
        command
            .args(["--quiet", "--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes"])
            .arg(format!("--callgrind-out-file={}", folder.join("profile").display()))
            .arg(options.program)
            .arg("serve")
            .arg(file)
            .args(["--http", "127.0.0.1:0", "--no-watch", "--state"])
            .arg(folder.join("state"))
            // Neither the user's configuration nor a proxy.
            .env_clear()
            .env("HOME", folder)
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some((variable, token)) = options.token {
            command.env(variable, token).args(["--token-env", variable]);
        }
        let mut child =
            command.spawn().map_err(|error| Error::other(format!("cannot start valgrind: {error}")))?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let pid = pid.ok_or_else(|| Error::other("valgrind exited at once"))?;
        let stderr = child.stderr.take().expect("stderr is piped");
        let mut gateway = Self { child, pid, folder: folder.to_owned(), url: String::new() };
        let mut lines = BufReader::new(stderr).lines();
        gateway.url = within("the gateway to start", async {
            let mut said = String::new();
            while let Some(line) = lines.next_line().await? {
                if let Some((_, url)) = line.split_once("Ready  MCP ") {
                    return Ok(url.trim().to_owned());
                }
                said.push_str(&line);
                said.push('\n');
            }
            Err(Error::other(format!("the gateway did not start:\n{said}")))
        })
        .await?;
        // The pipe must not fill up.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(gateway)
    }

    /// URL of the default profile.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Starts counting, once the gateway is idle.
    pub(super) async fn begin(&self) -> Result<()> {
        self.idle().await?;
        self.control("on").await
    }

    /// Stops counting, once the gateway is idle: entries of the call log are written after their calls.
    pub(super) async fn end(&self) -> Result<()> {
        self.idle().await?;
        self.control("off").await
    }

    /// Stops the gateway and returns the cost per request.
    pub(super) async fn cost(mut self, n_requests: usize) -> Result<CallCost> {
        kill_process(self.pid, Signal::TERM)?;
        within("the gateway to stop", self.child.wait()).await?;
        let mut threads = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            // The file without a number is that of the process as a whole.
            if entry.file_name().to_string_lossy().starts_with("profile-") {
                threads.push(ThreadProfile::parse(&String::from_utf8_lossy(&std::fs::read(entry.path())?)));
            }
        }
        Ok(per_request(&threads, n_requests))
    }

    /// Waits until the gateway uses no more processor time.
    async fn idle(&self) -> Result<()> {
        within("the gateway to become idle", async {
            let (mut last, mut idle_for) = (self.processor_time()?, Duration::ZERO);
            while idle_for < IDLE_TIME {
                time::sleep(POLL_INTERVAL).await;
                let now = self.processor_time()?;
                idle_for = if now == last { idle_for + POLL_INTERVAL } else { Duration::ZERO };
                last = now;
            }
            Ok(())
        })
        .await
    }

    /// Processor time of the process in ticks of 10 ms.
    fn processor_time(&self) -> Result<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_nonzero()))?;
        let fields: Vec<&str> = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ').collect();
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
        ticks(11).zip(ticks(12)).map(|(user, system)| user + system).ok_or_else(|| Error::other(stat))
    }

    /// Switches the counters of callgrind `on` or `off`.
    async fn control(&self, state: &str) -> Result<()> {
        let mut command = Command::new("vgdb");
        command.arg(format!("--pid={}", self.pid.as_raw_nonzero())).args(["instrumentation", state]);
        let output = within("callgrind to answer", command.output()).await?;
        if output.status.success() {
            return Ok(());
        }
        Err(Error::other(format!("vgdb: {}", String::from_utf8_lossy(&output.stderr))))
    }
}

impl Drop for ProfiledGateway {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn within<T>(what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let elapsed = |_| Error::other(format!("waited too long for {what}"));
    time::timeout(TIMEOUT, work).await.map_err(elapsed)?
}

/// Counts of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ThreadProfile {
    instructions: u64,
    allocations: u64,
}

impl ThreadProfile {
    /// Reads a file of callgrind. It names a function once, and refers to it by number later.
    fn parse(text: &str) -> Self {
        let mut names: HashMap<&str, &str> = HashMap::new();
        let (mut callee, mut profile) = ("", Self { instructions: 0, allocations: 0 });
        for line in text.lines() {
            if let Some(total) = line.strip_prefix("totals: ") {
                profile.instructions += total.trim().parse().unwrap_or(0);
            } else if let Some(call) = line.strip_prefix("calls=") {
                if matches!(names.get(callee), Some(&("malloc" | "calloc" | "realloc"))) {
                    profile.allocations += call.split(' ').next().unwrap_or("").parse().unwrap_or(0);
                }
            } else if let Some((kind @ ("fn" | "cfn"), function)) = line.split_once('=') {
                let (number, name) = function.split_once(' ').unwrap_or((function, ""));
                if !name.is_empty() {
                    names.insert(number, name);
                }
                if kind == "cfn" {
                    callee = number;
                }
            }
        }
        profile
    }
}

fn per_request(threads: &[ThreadProfile], n_requests: usize) -> CallCost {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let average = |count: u64| count as f64 / n_requests as f64;
    let total: u64 = threads.iter().map(|thread| thread.instructions).sum();
    let serving = threads.iter().map(|thread| thread.instructions).max().unwrap_or(0);
    CallCost {
        serving: average(serving),
        other_threads: average(total - serving),
        allocations: average(threads.iter().map(|thread| thread.allocations).sum()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "\
# callgrind format
thread: 2
events: Ir
fn=(1) pegboard::call
16 40
cfn=(2) malloc
calls=3 0
16 90
cfn=(3) memcpy
calls=9 0
16 20

fn=(4) hyper::write
cfn=(2)
calls=4 0
16 100
cfn=(5) realloc
calls=1 0
16 10

totals: 1000
";

    #[test]
    fn a_profile_has_instructions_and_calls_of_the_allocator() {
        assert_eq!(ThreadProfile::parse(PROFILE), ThreadProfile { instructions: 1_000, allocations: 8 });
    }

    #[test]
    fn the_busiest_thread_serves_requests() {
        let threads = [(200, 4), (1_000, 8), (0, 0)]
            .map(|(instructions, allocations)| ThreadProfile { instructions, allocations });
        let cost = CallCost { serving: 100.0, other_threads: 20.0, allocations: 1.2 };
        assert_eq!(per_request(&threads, 10), cost);
    }
}
