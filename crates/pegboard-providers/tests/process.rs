//! Start, supervision and shutdown of programs.
//!
//! The programs are the example `test_program`, with a role as argument.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

use std::collections::BTreeSet;
use std::future::Future;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pegboard_core::secret::Secret;
use pegboard_core::settings::mcp::ServerProgram;
use pegboard_providers::process::{
    CommandSpec, GracePeriods, Process, ProcessExit, ShutdownOutcome, SpawnError, Stdin, Stdout,
    SupervisorCommand,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// Time limit for every wait, generous enough for a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for processes that must end by themselves. Three seconds are promised; a loaded machine may
/// need more.
const END_TIMEOUT: Duration = Duration::from_secs(20);
const SHORT_GRACE: GracePeriods =
    GracePeriods { close: Duration::from_millis(200), terminate: Duration::from_millis(300) };

// Test helpers.

const MARK: &str = "PEGBOARD_TEST_MARK";

fn test_program() -> PathBuf {
    pegboard_testkit::example::path("test_program")
}

#[derive(Clone, Copy, Debug)]
enum WatchMode {
    Direct,
    Supervised,
}

const WATCH_MODES: [WatchMode; 2] = [WatchMode::Direct, WatchMode::Supervised];

impl WatchMode {
    fn spec(self, role: &str) -> CommandSpec {
        let program = test_program();
        let supervisor = match self {
            Self::Direct => None,
            Self::Supervised => {
                Some(SupervisorCommand { program: program.clone(), arguments: vec!["supervisor".into()] })
            }
        };
        let program =
            ServerProgram { args: vec![role.to_owned()], ..ServerProgram::new(program.to_str().unwrap()) };
        CommandSpec { program, supervisor, grace: SHORT_GRACE }
    }
}

/// Finds the processes of one program and its descendants by a variable that they inherit.
struct Mark(String);

impl Mark {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self(format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    fn on(&self, mut spec: CommandSpec) -> CommandSpec {
        spec.program.env.insert(MARK.to_owned(), Secret::new(&self.0));
        spec
    }

    fn running(&self) -> BTreeSet<u32> {
        let marked = format!("{MARK}={}", self.0);
        let processes = std::fs::read_dir("/proc").unwrap();
        let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let has_mark = |pid: &u32| {
            let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            variables.split(|&byte| byte == 0).any(|variable| variable == marked.as_bytes())
        };
        pids.filter(has_mark).collect()
    }

    /// Asserts that no process is left, and that none was about to be started.
    async fn assert_gone_within(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let mut n_clear = 0;
        while n_clear < 5 {
            let running = self.running();
            n_clear = if running.is_empty() { n_clear + 1 } else { 0 };
            assert!(Instant::now() < deadline || n_clear > 0, "still running: {running:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Mark {
    /// Kills the processes that a failed test has left.
    fn drop(&mut self) {
        for pid in self.running() {
            let _ = kill_process(to_pid(pid), Signal::KILL);
        }
    }
}

fn to_pid(number: u32) -> Pid {
    Pid::from_raw(number.try_into().unwrap()).unwrap()
}

/// Returns the program's id, which its supervisor may take a moment to report.
async fn pid_of(process: &Process) -> u32 {
    let known = async {
        loop {
            match process.pid() {
                Some(pid) => return pid,
                None => sleep(Duration::from_millis(1)).await,
            }
        }
    };
    within(TEST_TIMEOUT, known).await
}

async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> T {
    timeout(limit, future).await.expect("timed out")
}

async fn wait_for_line(stdout: &mut BufReader<Stdout>, expected: &str) {
    let mut lines = stdout.lines();
    let find = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line == expected {
                return;
            }
        }
        panic!("no line {expected:?} in the output");
    };
    within(TEST_TIMEOUT, find).await;
}

/// Starts a program and waits until it is ready.
async fn start_ready(spec: &CommandSpec) -> (Process, Stdin, BufReader<Stdout>) {
    let (process, stdin, stdout) = Process::start(spec).unwrap();
    let mut stdout = BufReader::new(stdout);
    wait_for_line(&mut stdout, "ready").await;
    (process, stdin, stdout)
}

async fn wait_for_exit(process: &Process) -> ProcessExit {
    within(TEST_TIMEOUT, process.exited().wait_for(Option::is_some)).await.unwrap().unwrap()
}

async fn output_of(spec: &CommandSpec) -> String {
    let (process, _stdin, mut stdout) = Process::start(spec).unwrap();
    let mut output = String::new();
    within(TEST_TIMEOUT, stdout.read_to_string(&mut output)).await.unwrap();
    assert_eq!(wait_for_exit(&process).await.code, Some(0), "{}", process.stderr_tail());
    output
}

// Start.

#[tokio::test]
async fn a_program_reads_and_writes_through_its_pipes() {
    for mode in WATCH_MODES {
        let (process, mut stdin, stdout) = Process::start(&mode.spec("echo")).unwrap();
        let mut stdout = BufReader::new(stdout);
        stdin.write_all(b"hello\nworld\n").await.unwrap();
        wait_for_line(&mut stdout, "hello").await;
        wait_for_line(&mut stdout, "world").await;
        let name = std::fs::read_to_string(format!("/proc/{}/comm", pid_of(&process).await)).unwrap();
        assert_eq!(name.trim(), "test_program");
        let ended = within(TEST_TIMEOUT, process.shut_down()).await;
        // It exits by itself when its stdin closes.
        assert_eq!(
            ended,
            ShutdownOutcome { exit: Some(ProcessExit { code: Some(0), signal: None }), left_running: vec![] }
        );
    }
}

#[tokio::test]
async fn spawn_errors_say_why_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "no program").unwrap();
    let file = file.to_str().unwrap().to_owned();
    let env = |name: &str, value: &str| [(name.to_owned(), Secret::new(value))].into_iter().collect();
    let echo = ServerProgram::new("/bin/sh");
    let programs = [
        ServerProgram::new(""),
        ServerProgram::new("no-such\u{1b}program"),
        ServerProgram::new("/no/such/program"),
        ServerProgram::new(file),
        ServerProgram {
            env: env("PATH", folder.path().to_str().unwrap()),
            ..ServerProgram::new("notes.txt")
        },
        ServerProgram { env: env("PATH", ""), ..ServerProgram::new("sh") },
        ServerProgram { cwd: Some("/no/such/folder".into()), ..echo.clone() },
        ServerProgram { env: env("A=B", "c"), ..echo.clone() },
        ServerProgram { env: env("A", "b\0c"), ..echo.clone() },
        ServerProgram { args: vec!["-c".to_owned(), "\0".to_owned()], ..echo },
    ];
    let folder = folder.path().to_str().unwrap();
    let start = |program| Process::start(&CommandSpec::new(program));
    let texts: Vec<String> = programs
        .into_iter()
        .map(|program| start(program).unwrap_err().to_string().replace(folder, "FOLDER"))
        .collect();
    insta::assert_snapshot!(texts.join("\n"), @r#"
    the command is empty: specify the program to start
    spawn no-such\u{1b}program ENOENT: 'no-such\u{1b}program' not found in PATH; install it, or specify its full path
    spawn /no/such/program ENOENT: /no/such/program does not exist; install the program, or correct the path
    spawn FOLDER/notes.txt EACCES: FOLDER/notes.txt is not executable; make it executable, or specify its interpreter
    spawn notes.txt EACCES: FOLDER/notes.txt is not executable; make it executable, or specify its interpreter
    spawn sh ENOENT: 'sh' not found in PATH; install it, or specify its full path
    directory /no/such/folder does not exist; create it, or correct `cwd`
    invalid environment variable name "A=B": it is empty or contains '='
    the environment variable "A" contains a NUL character; remove it
    argument 2 contains a NUL character; remove it
    "#);
}

#[tokio::test]
async fn a_missing_supervisor_is_an_error() {
    let supervisor = SupervisorCommand { program: "/no/such/supervisor".into(), arguments: vec![] };
    let spec = CommandSpec { supervisor: Some(supervisor), ..WatchMode::Direct.spec("echo") };
    assert!(matches!(Process::start(&spec), Err(SpawnError::Supervisor { .. })));
}

#[tokio::test]
async fn names_are_searched_in_path_and_paths_resolved_from_cwd() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    std::os::unix::fs::symlink(test_program(), folder.join("my-server")).unwrap();
    let path = format!("/no/such/folder::{}", folder.display());
    for mode in WATCH_MODES {
        let spec = mode.spec("directory");
        let mut by_name = spec.clone();
        "my-server".clone_into(&mut by_name.program.command);
        by_name.program.env.insert("PATH".to_owned(), Secret::new(&path));
        output_of(&by_name).await;
        let mut by_path = spec;
        "./my-server".clone_into(&mut by_path.program.command);
        by_path.program.cwd = Some(folder.clone());
        let directory = output_of(&by_path).await;
        assert!(directory.contains(folder.to_str().unwrap()), "{directory}");
    }
}

#[tokio::test]
async fn a_program_gets_allowed_and_configured_variables_only() {
    // Cargo sets it for every test.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    for mode in WATCH_MODES {
        let mut spec = mode.spec("environment");
        spec.program.env.insert("HOME".to_owned(), Secret::new("/somewhere"));
        spec.program.env.insert("API_KEY".to_owned(), Secret::new("given"));
        let seen = output_of(&spec).await;
        let seen: Vec<&str> = seen.lines().collect();
        assert!(seen.contains(&"HOME=/somewhere") && seen.contains(&"API_KEY=given"), "{seen:?}");
        assert!(seen.iter().any(|line| line.starts_with("PATH=")), "{seen:?}");
        assert!(!seen.iter().any(|line| line.starts_with("CARGO")), "{seen:?}");
    }
}

#[tokio::test]
async fn a_supervised_program_gets_three_descriptors() {
    let seen = output_of(&WatchMode::Supervised.spec("descriptors")).await;
    let seen: Vec<&str> = seen.lines().filter(|line| line.starts_with("fd ")).collect();
    // The fourth is the directory that it reads.
    assert_eq!(seen, ["fd 0", "fd 1", "fd 2", "fd 3"]);
}

// Supervision.

#[tokio::test]
async fn the_exit_is_reported_with_the_stderr_tail() {
    for mode in WATCH_MODES {
        for (role, expected, stderr) in [
            ("exit", ProcessExit { code: Some(3), signal: None }, "something is wrong"),
            ("crash", ProcessExit { code: None, signal: Some(9) }, ""),
        ] {
            let (process, _stdin, _stdout) = Process::start(&mode.spec(role)).unwrap();
            assert_eq!(wait_for_exit(&process).await, expected, "{mode:?}");
            assert_eq!(process.stderr_tail(), stderr, "{mode:?}");
        }
    }
}

#[tokio::test]
async fn a_program_that_fails_to_exec_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).unwrap();

    let script = script.to_str().unwrap().to_owned();
    let mut supervised = WatchMode::Supervised.spec("echo");
    supervised.program.command.clone_from(&script);
    let (process, _stdin, _stdout) = Process::start(&supervised).unwrap();
    within(TEST_TIMEOUT, process.exited().wait_for(Option::is_some)).await.unwrap();
    let tail = process.stderr_tail();
    assert!(tail.contains("it or its interpreter does not exist"), "{tail}");
    assert!(matches!(
        Process::start(&CommandSpec::new(ServerProgram::new(script))),
        Err(SpawnError::Refused { .. })
    ));
}

#[tokio::test]
async fn a_flood_of_stderr_does_not_block_and_is_bounded() {
    for mode in WATCH_MODES {
        let (process, _stdin, _stdout) = Process::start(&mode.spec("flood")).unwrap();
        assert_eq!(wait_for_exit(&process).await.code, Some(0));
        let tail = process.stderr_tail();
        assert!(tail.ends_with("\nthe end"), "{}", &tail[tail.len() - 100..]);
        assert!(tail.len() <= 64 * 1024);
    }
}

#[tokio::test]
async fn an_exit_is_noticed_while_a_child_holds_the_pipes() {
    for mode in WATCH_MODES {
        let mark = Mark::new();
        let (process, mut stdin, _stdout) = start_ready(&mark.on(mode.spec("leaver"))).await;
        stdin.write_all(b"go\n").await.unwrap();
        assert_eq!(wait_for_exit(&process).await.code, Some(5));
        let _ = within(TEST_TIMEOUT, process.shut_down()).await;
        // Without a supervisor, a child with its own session may be missed.
        if matches!(mode, WatchMode::Supervised) {
            assert_eq!(mark.running(), BTreeSet::new());
        }
    }
}

#[tokio::test]
async fn writing_to_an_exited_program_is_an_error() {
    for mode in WATCH_MODES {
        let (process, mut stdin, _stdout) = Process::start(&mode.spec("crash")).unwrap();
        wait_for_exit(&process).await;
        let written = stdin.write_all(b"hello\n").await;
        assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    }
}

#[tokio::test]
async fn a_blocked_writer_is_released_when_the_shutdown_begins() {
    for mode in WATCH_MODES {
        let (process, mut stdin, _stdout) = Process::start(&mode.spec("deaf")).unwrap();
        let writing = tokio::spawn(async move { stdin.write_all(&vec![b'x'; 1 << 20]).await });
        let ended = within(TEST_TIMEOUT, process.shut_down()).await;
        let written = within(TEST_TIMEOUT, writing).await.unwrap();
        assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
        assert_eq!(ended.exit, Some(ProcessExit { code: None, signal: Some(15) }));
    }
}

// Shutdown.

#[tokio::test]
async fn a_program_that_ignores_signals_is_killed_with_its_children() {
    for mode in WATCH_MODES {
        let mark = Mark::new();
        let (process, _stdin, _stdout) = start_ready(&mark.on(mode.spec("parent"))).await;
        assert!(mark.running().len() >= 3);
        let ended = within(TEST_TIMEOUT, process.shut_down()).await;
        let exit = Some(ProcessExit { code: None, signal: Some(9) });
        assert_eq!(ended, ShutdownOutcome { exit, left_running: vec![] }, "{mode:?}");
        assert_eq!(mark.running(), BTreeSet::new(), "{mode:?}");
    }
}

#[tokio::test]
async fn no_process_escapes_a_supervisor() {
    for role in ["hostile", "hopper"] {
        let mark = Mark::new();
        let (process, _stdin, _stdout) = start_ready(&mark.on(WatchMode::Supervised.spec(role))).await;
        let ended = within(TEST_TIMEOUT, process.shut_down()).await;
        assert_eq!(ended.left_running, [0; 0], "{role}");
        assert_eq!(mark.running(), BTreeSet::new(), "{role}");
    }
}

#[tokio::test]
async fn dropping_a_process_ends_its_whole_tree() {
    for mode in WATCH_MODES {
        let mark = Mark::new();
        let (process, _stdin, _stdout) = start_ready(&mark.on(mode.spec("parent"))).await;
        drop(process);
        mark.assert_gone_within(END_TIMEOUT).await;
    }
}

#[tokio::test]
async fn a_shutdown_continues_when_its_future_is_dropped() {
    for mode in WATCH_MODES {
        let mark = Mark::new();
        let (process, _stdin, _stdout) = start_ready(&mark.on(mode.spec("parent"))).await;
        let _ = timeout(Duration::from_millis(1), process.shut_down()).await;
        mark.assert_gone_within(END_TIMEOUT).await;
    }
}

#[tokio::test]
async fn shutting_down_an_exited_program_reports_its_exit() {
    for mode in WATCH_MODES {
        let (process, _stdin, _stdout) = Process::start(&mode.spec("exit")).unwrap();
        wait_for_exit(&process).await;
        let exit = Some(ProcessExit { code: Some(3), signal: None });
        assert_eq!(
            within(TEST_TIMEOUT, process.shut_down()).await,
            ShutdownOutcome { exit, left_running: vec![] }
        );
    }
}

#[test]
fn nothing_outlives_the_runtime() {
    for mode in WATCH_MODES {
        let mark = Mark::new();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let running = runtime.block_on(start_ready(&mark.on(mode.spec("parent"))));
        drop(runtime);
        drop(running);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(mark.assert_gone_within(END_TIMEOUT));
    }
}

#[tokio::test]
async fn a_signalled_supervisor_ends_everything_before_it_exits() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mark = Mark::new();
        let (process, _stdin, _stdout) = start_ready(&mark.on(WatchMode::Supervised.spec("hostile"))).await;
        kill_process(to_pid(parent_of(pid_of(&process).await)), signal).unwrap();
        assert_eq!(wait_for_exit(&process).await.signal, Some(9));
        mark.assert_gone_within(END_TIMEOUT).await;
    }
}

#[tokio::test]
async fn processes_of_a_killed_supervisor_are_ended_directly() {
    let mark = Mark::new();
    let (process, _stdin, _stdout) = start_ready(&mark.on(WatchMode::Supervised.spec("parent"))).await;
    kill_process(to_pid(parent_of(pid_of(&process).await)), Signal::KILL).unwrap();
    assert_eq!(wait_for_exit(&process).await, ProcessExit { code: None, signal: None });
    assert_eq!(within(TEST_TIMEOUT, process.shut_down()).await.left_running, [0; 0]);
    mark.assert_gone_within(END_TIMEOUT).await;
}

#[tokio::test]
async fn a_stopped_supervisor_is_continued_to_end_everything() {
    let mark = Mark::new();
    let (process, _stdin, _stdout) = start_ready(&mark.on(WatchMode::Supervised.spec("hostile"))).await;
    kill_process(to_pid(parent_of(pid_of(&process).await)), Signal::STOP).unwrap();
    assert_eq!(within(TEST_TIMEOUT, process.shut_down()).await.left_running, [0; 0]);
    assert_eq!(mark.running(), BTreeSet::new());
}

#[test]
fn debug_output_hides_variable_values() {
    let env = [("API_KEY".to_owned(), Secret::new("sk-1"))].into_iter().collect();
    let shown = format!("{:?}", CommandSpec::new(ServerProgram { env, ..ServerProgram::new("npx") }));
    assert!(shown.contains("npx") && !shown.contains("sk-1"), "{shown}");
}

fn parent_of(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
}

/// Starts a gateway with a program of this role, and waits until it is ready or a time has passed.
async fn start_gateway(role: &str, mark: &Mark, limit: Duration) -> Child {
    let mut gateway = Command::new(test_program())
        .args(["gateway", role])
        .env(MARK, &mark.0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(gateway.stdout.take().unwrap()).lines();
    let ready = async { while lines.next_line().await.unwrap().is_some_and(|line| line != "ready") {} };
    let _ = timeout(limit, ready).await;
    gateway
}

/// Returns the delay of an attempt to kill a gateway: before, during or after the start of its program.
fn delay_of(attempt: u64) -> Duration {
    if attempt % 4 == 3 { TEST_TIMEOUT } else { Duration::from_millis(attempt * attempt % 97) }
}

#[tokio::test]
async fn killing_the_gateway_leaves_no_processes() {
    for attempt in 0..20_u64 {
        let mark = Mark::new();
        let mut gateway = start_gateway("hostile", &mark, delay_of(attempt)).await;
        gateway.kill().await.unwrap();
        mark.assert_gone_within(END_TIMEOUT).await;
    }
}

#[tokio::test]
async fn killing_the_gateway_with_its_supervisors_leaves_no_program() {
    for attempt in 0..20_u64 {
        let mark = Mark::new();
        let mut gateway = start_gateway("stubborn", &mark, delay_of(attempt)).await;
        let is_ours = |pid: &u32| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            command
                .split(|byte| *byte == 0)
                .any(|argument| [&b"gateway"[..], b"supervisor"].contains(&argument))
        };
        for pid in mark.running().into_iter().filter(is_ours) {
            let _ = kill_process(to_pid(pid), Signal::KILL);
        }
        gateway.kill().await.unwrap();
        mark.assert_gone_within(END_TIMEOUT).await;
    }
}
