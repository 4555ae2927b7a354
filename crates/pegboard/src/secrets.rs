//! The user's secrets, as the configuration refers to them: `${keyring:NAME}` and `${cmd:COMMAND}`.

use std::collections::{BTreeSet, HashMap, HashSet};
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
use pegboard_auth::secret_storage::{
    KeyringError, SecretName, SecretPlace, SecretStorage, SecretStorageError,
};

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

/// Secrets of one load of the configuration. A command runs once, and the keyring is asked once for a name, however often
/// they are referred to.
pub(crate) struct UserSecrets {
    state: Option<PathBuf>,
    storage: OnceLock<Result<SecretStorage, String>>,
    stored: Mutex<HashMap<String, Option<Secret>>>,
    /// Error of a keyring that is locked. It is not asked again: each question may wait for an answer of the user.
    keyring_error: Mutex<Option<String>>,
    printed: Mutex<HashMap<Vec<String>, Result<Secret, String>>>,
    /// Commands that may run; all if absent.
    allowed: Option<HashSet<Vec<String>>>,
    /// Commands that were not allowed to run.
    refused: Mutex<BTreeSet<Vec<String>>>,
}

impl UserSecrets {
    /// Creates the secrets in a state folder, or in the default one.
    pub(crate) fn new(state: Option<&Path>) -> Self {
        Self {
            state: state.map(Path::to_owned),
            storage: OnceLock::new(),
            stored: Mutex::default(),
            keyring_error: Mutex::default(),
            printed: Mutex::default(),
            allowed: None,
            refused: Mutex::default(),
        }
    }

    /// Lets these commands run and no others.
    pub(crate) fn with_allowed_commands(self, allowed: HashSet<Vec<String>>) -> Self {
        Self { allowed: Some(allowed), ..self }
    }

    /// Returns the commands that have run.
    pub(crate) fn commands(&self) -> HashSet<Vec<String>> {
        self.printed.lock().keys().cloned().collect()
    }

    /// Returns the commands that were not allowed to run.
    pub(crate) fn refused_commands(&self) -> BTreeSet<Vec<String>> {
        self.refused.lock().clone()
    }
}

impl UserSecrets {
    /// Asks for a secret, unless the answer is known, or the keyring that has it gave none before.
    fn ask_once(
        &self,
        name: &str,
        is_in_file: impl FnOnce() -> bool,
        ask: impl FnOnce() -> Result<Option<Secret>, SecretStorageError>,
    ) -> Result<Option<Secret>, String> {
        if let Some(known) = self.stored.lock().get(name) {
            return Ok(known.clone());
        }
        let mut keyring_error = self.keyring_error.lock();
        if let Some(error) = keyring_error.as_ref().filter(|_| !is_in_file()) {
            return Err(error.clone());
        }
        match ask() {
            Ok(secret) => {
                self.stored.lock().insert(name.to_owned(), secret.clone());
                Ok(secret)
            }
            Err(error) => {
                let text = error.to_string();
                if let SecretStorageError::Keyring(KeyringError::TimedOut | KeyringError::Refused(_)) = error
                {
                    *keyring_error = Some(text.clone());
                }
                Err(text)
            }
        }
    }
}

impl SecretSource for UserSecrets {
    fn keyring(&self, name: &str) -> Result<Option<Secret>, String> {
        let open = || open_storage(self.state.as_deref()).map_err(|error| error.message().to_owned());
        let storage = self.storage.get_or_init(open).as_ref().map_err(Clone::clone)?;
        let wanted = SecretName::new(name).map_err(|error| error.to_string())?;
        // What is in the file needs no keyring.
        let is_in_file = || {
            let is_it =
                |(name, place): &(SecretName, SecretPlace)| *name == wanted && *place == SecretPlace::File;
            storage.list().is_ok_and(|all| all.iter().any(is_it))
        };
        self.ask_once(name, is_in_file, || storage.get(&wanted))
    }

    fn command(&self, words: &[String]) -> Result<Secret, String> {
        if self.allowed.as_ref().is_some_and(|allowed| !allowed.contains(words)) {
            self.refused.lock().insert(words.to_vec());
            return Err("has not run before".to_owned());
        }
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
    // As the servers of the same file: a relative path must not lead into whatever folder the user is in.
    if let Some(home) = environment::var("HOME").filter(|home| Path::new(home).is_dir()) {
        command.current_dir(home);
    }
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
    fn a_locked_keyring_is_asked_once_and_the_file_still_has_its_secrets() {
        let secrets = UserSecrets::new(None);
        let asked = std::cell::RefCell::new(Vec::new());
        let ask = |name: &'static str, is_in_file: bool, answer: Result<Option<&str>, KeyringError>| {
            let answer = answer.map(|found| found.map(Secret::new)).map_err(SecretStorageError::from);
            let found = secrets.ask_once(
                name,
                || is_in_file,
                || {
                    asked.borrow_mut().push(name);
                    answer
                },
            );
            found.map(|secret| secret.map(|secret| secret.reveal().to_owned())).ok()
        };
        for _ in 0..2 {
            assert_eq!(ask("a", false, Ok(Some("value"))), Some(Some("value".to_owned())));
            assert_eq!(ask("b", false, Ok(None)), Some(None));
        }
        // It is not there at all: others may be in the file.
        assert_eq!(ask("c", false, Err(KeyringError::Missing)), None);
        for name in ["d", "e"] {
            assert_eq!(ask(name, false, Err(KeyringError::TimedOut)), None);
        }
        assert_eq!(ask("f", true, Ok(Some("sealed"))), Some(Some("sealed".to_owned())));
        assert_eq!(ask("a", false, Err(KeyringError::TimedOut)), Some(Some("value".to_owned())));
        assert_eq!(*asked.borrow(), ["a", "b", "c", "d", "f"]);
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
