//! The user's secrets, as the configuration refers to them: `${keyring:NAME}` and `${cmd:COMMAND}`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pegboard::config::{SecretSource, assumed_secret};
use pegboard::providers::process::is_inherited_name;
use pegboard::secret::Secret;
use pegboard_auth::secret_storage::{SecretName, SecretStorage};

use crate::cli::CliError;
use crate::environment;
use crate::paths;

/// Variable that keeps secrets out of the keyring of the system, with the value `off`.
pub(crate) const KEYRING_VARIABLE: &str = "PEGBOARD_KEYRING";

/// Time limit of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Variables that it gets besides those of every program, with which password managers find their agents. Others may be
/// keys, which programs of this user could read.
const COMMAND_VARIABLES: [&str; 4] =
    ["DBUS_SESSION_BUS_ADDRESS", "GNUPGHOME", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR"];
/// Interval of looking if it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum size of what it prints.
const MAX_OUTPUT_BYTES: u64 = 64 * 1024;

/// Opens the secrets in a state folder, or in the default one.
pub(crate) fn open_storage(state: Option<&Path>) -> Result<SecretStorage, CliError> {
    let folder = paths::state_dir(state)
        .ok_or_else(|| CliError::system("no state directory for secrets").hint("set one with --state"))?;
    match environment::var(KEYRING_VARIABLE).as_deref() {
        None | Some("" | "on") => Ok(SecretStorage::open(&folder)),
        Some("off") => Ok(SecretStorage::with_keyring(&folder, None)),
        Some(_) => Err(CliError::usage(format!("{KEYRING_VARIABLE}: unknown value")).hint("use on or off")),
    }
}

/// Secrets of one load of the configuration. A command runs once, however often it is referred to.
pub(crate) struct UserSecrets {
    state: Option<PathBuf>,
    storage: OnceLock<Result<SecretStorage, String>>,
    printed: Mutex<HashMap<Vec<String>, Result<Secret, String>>>,
}

impl UserSecrets {
    /// Creates the secrets in a state folder, or in the default one.
    pub(crate) fn new(state: Option<&Path>) -> Self {
        Self { state: state.map(Path::to_owned), storage: OnceLock::new(), printed: Mutex::default() }
    }
}

impl SecretSource for UserSecrets {
    fn keyring(&self, name: &str) -> Result<Option<Secret>, String> {
        let open = || open_storage(self.state.as_deref()).map_err(|error| error.message().to_owned());
        let storage = self.storage.get_or_init(open).as_ref().map_err(Clone::clone)?;
        let name = SecretName::new(name).map_err(|error| error.to_string())?;
        storage.get(&name).map_err(|error| error.to_string())
    }

    fn command(&self, words: &[String]) -> Result<Secret, String> {
        let mut printed = self.printed.lock();
        if let Some(known) = printed.get(words) {
            return known.clone();
        }
        let output = output_of(words, COMMAND_TIMEOUT);
        printed.insert(words.to_vec(), output.clone());
        output
    }
}

/// The same secrets for looking at the configuration: tells which ones exist, but reads none, so that neither the keyring
/// asks nor a command runs.
pub(crate) struct AssumedUserSecrets {
    state: Option<PathBuf>,
}

impl AssumedUserSecrets {
    /// Creates the secrets in a state folder, or in the default one.
    pub(crate) fn new(state: Option<&Path>) -> Self {
        Self { state: state.map(Path::to_owned) }
    }
}

impl SecretSource for AssumedUserSecrets {
    fn keyring(&self, name: &str) -> Result<Option<Secret>, String> {
        // A store that cannot be read is reported when it is used.
        let known = open_storage(self.state.as_deref()).ok().and_then(|storage| storage.list().ok());
        let exists = known.is_none_or(|known| known.iter().any(|(known, _)| known.as_str() == name));
        Ok(exists.then(assumed_secret))
    }

    fn command(&self, _words: &[String]) -> Result<Secret, String> {
        Ok(assumed_secret())
    }
}

/// Runs a program without a shell and returns what it prints, without the end of the last line. Its standard error is
/// not kept: it may contain the secret.
fn output_of(words: &[String], limit: Duration) -> Result<Secret, String> {
    let deadline = Instant::now() + limit;
    let (program, arguments) = words.split_first().ok_or("has no program")?;
    let mut command = Command::new(program);
    let is_passed = |name: &OsStr| {
        name.to_str().is_some_and(|name| is_inherited_name(name) || COMMAND_VARIABLES.contains(&name))
    };
    command.args(arguments).env_clear();
    command.envs(environment::vars_os().filter(|(name, _)| is_passed(name)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "was not found in PATH".to_owned(),
        _ => format!("cannot be started: {error}"),
    })?;
    let output = child.stdout.take().map(read_in_thread).ok_or("has no output")?;
    let bytes = output.recv_timeout(limit).map_err(|_| ());
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) if bytes.is_ok() => break status,
            Ok(_) if bytes.is_ok() && Instant::now() < deadline => thread::sleep(POLL_INTERVAL),
            Ok(_) | Err(_) => {
                kill_group(&mut child);
                return Err(format!("did not end within {} s", limit.as_secs()));
            }
        }
    };
    let bytes = bytes.map_err(|()| "printed nothing")?.map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_OUTPUT_BYTES {
        return Err(format!("printed more than {} KiB", MAX_OUTPUT_BYTES / 1024));
    }
    // Checked last: a program with too long an output fails, because it is not read to the end.
    if !status.success() {
        return Err(format!("failed ({status})"));
    }
    let text = String::from_utf8(bytes).map_err(|_| "printed something that is not UTF-8")?;
    Ok(Secret::new(text.trim_end_matches(['\r', '\n'])))
}

/// Reads a pipe in a thread: a program may keep it open, or print nothing.
fn read_in_thread(pipe: impl Read + Send + 'static) -> mpsc::Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = pipe.take(MAX_OUTPUT_BYTES + 1).read_to_end(&mut bytes);
        sender.send(read.map(|_| bytes))
    });
    receiver
}

/// Ends a program and its children.
fn kill_group(child: &mut Child) {
    #[cfg(unix)]
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn run(command: &str, limit: Duration) -> Result<String, String> {
        let words = ["sh", "-c", command].map(str::to_owned);
        output_of(&words, limit).map(|secret| secret.reveal().to_owned())
    }

    #[test]
    fn a_command_returns_what_it_prints_or_why_it_does_not() {
        let limit = Duration::from_secs(20);
        for (command, expected) in [
            ("echo canary", Ok("canary")),
            ("printf 'two\\nlines\\r\\n'", Ok("two\nlines")),
            ("echo canary >&2", Ok("")),
            ("echo canary; exit 3", Err("failed (exit status: 3)")),
            ("head -c 70000 /dev/zero", Err("printed more than 64 KiB")),
            ("printf '\\377'", Err("printed something that is not UTF-8")),
        ] {
            assert_eq!(run(command, limit), expected.map(str::to_owned).map_err(str::to_owned), "{command}");
        }
        let missing = output_of(&["no-such-program-at-all".to_owned()], limit).err();
        assert_eq!(missing.as_deref(), Some("was not found in PATH"));
    }

    #[test]
    fn a_command_that_hangs_is_ended_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let command = format!("sleep 1000 & echo $! > {0}; echo $$ >> {0}; wait", pids.display());
        assert_eq!(run(&command, Duration::from_secs(1)).unwrap_err(), "did not end within 1 s");
        for pid in std::fs::read_to_string(&pids).unwrap().lines() {
            let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let is_gone = || state().is_empty() || state().contains(") Z ");
            // A process that was killed may have to be scheduled to end.
            let deadline = Instant::now() + Duration::from_secs(20);
            while !is_gone() {
                assert!(Instant::now() < deadline, "process {pid} is left: {}", state());
                thread::sleep(POLL_INTERVAL);
            }
        }
    }
}
