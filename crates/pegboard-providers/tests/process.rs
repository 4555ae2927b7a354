//! Programs that are started, watched and ended.
//!
//! The programs are this test binary again, which plays a role if it is told to: see [`actor`].

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::collections::BTreeSet;
use std::future::Future;
use std::io::{BufRead, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pegboard_providers::process::{
    Ended, Exit, Grace, Launch, LaunchError, Process, Stdin, Stdout, Supervisor,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::time::{Instant, sleep, timeout};

/// Longer than anything takes on a busy machine; who waits for so long has failed.
const LONG: Duration = Duration::from_secs(30);
/// How long what must end by itself may take. Three seconds are promised; a loaded machine may need more.
const SOON: Duration = Duration::from_secs(20);
const SHORT: Grace = Grace { close: Duration::from_millis(200), terminate: Duration::from_millis(300) };

// Roles.

/// What the tests start. It is not a test.
#[test]
#[ignore = "what other tests start"]
fn actor() {
    let arguments: Vec<String> = std::env::args().collect();
    let Some(role) = arguments.iter().find_map(|argument| argument.strip_prefix("as:")) else { return };
    match role {
        "supervisor" => {
            let program = arguments.iter().skip_while(|argument| *argument != "--");
            let _ = pegboard_providers::process::supervise(program.map(Into::into));
            std::process::exit(0);
        }
        "gateway" => play_gateway(),
        "echo" => std::io::stdin().lines().for_each(|line| say(&line.unwrap())),
        "environment" => std::env::vars().for_each(|(name, value)| say(&format!("{name}={value}"))),
        "descriptors" => {
            let opened = std::fs::read_dir("/proc/self/fd").unwrap();
            opened.for_each(|entry| say(&format!("fd {}", entry.unwrap().file_name().display())));
        }
        "directory" => say(std::env::current_dir().unwrap().to_str().unwrap()),
        "exit" => {
            eprintln!("something is wrong");
            std::process::exit(3);
        }
        "crash" => kill_process(rustix::process::getpid(), Signal::KILL).unwrap(),
        "flood" => {
            let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
            (0..100 * 1024).for_each(|_| std::io::stderr().write_all(&line).unwrap());
            eprintln!("the end");
        }
        "deaf" => wait_long(),
        "stubborn" => ignore_everything(),
        "parent" => {
            start_and_hear(&["as:stubborn"]);
            start_and_hear(&["as:stubborn"]);
            ignore_everything();
        }
        "daemon" => {
            let _ = rustix::process::setsid();
            start_and_hear(&["as:stubborn"]);
            say("ready");
        }
        "hostile" => {
            start_and_hear(&["as:parent"]);
            start_and_hear(&["as:daemon"]);
            ignore_everything();
        }
        "leaver" => {
            // Its child has its pipes.
            playing(&["as:stubborn"]).spawn().unwrap();
            wait_long_for_line();
            std::process::exit(5);
        }
        "hopper" => hop(),
        other => panic!("there is no role {other}"),
    }
    std::process::exit(0);
}

fn say(line: &str) {
    // The harness may have begun a line of its own.
    std::io::stdout().write_all(format!("\n{line}\n").as_bytes()).unwrap();
}

/// Long enough for any test, and an end in case that one fails.
fn wait_long() {
    std::thread::sleep(Duration::from_mins(2));
}

fn wait_long_for_line() {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
}

/// Leaves its session, its group and its standard input alone, and does not terminate.
fn ignore_everything() {
    let _ = rustix::process::setsid();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // To listen is to survive.
        let _deaf = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
        say("ready");
        sleep(Duration::from_mins(2)).await;
    });
}

/// Starts the next of its kind and ends, again and again, though not for ever, in case that a test fails.
#[expect(clippy::zombie_processes, reason = "it means no good")]
fn hop() {
    let last = std::env::args().next_back().unwrap();
    let n_hops: u32 = last.parse().unwrap_or(0);
    if n_hops < 5000 {
        playing(&["as:hopper", &(n_hops + 1).to_string()]).stdout(Stdio::null()).spawn().unwrap();
    }
    if n_hops == 0 {
        say("ready");
        wait_long();
    }
}

fn playing(role: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(HARNESS).args(role);
    command
}

#[expect(clippy::zombie_processes, reason = "it means no good")]
fn start_and_hear(role: &[&str]) {
    let child = playing(role).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let heard = std::io::BufReader::new(child.stdout.unwrap()).lines().any(|line| line.unwrap() == "ready");
    assert!(heard, "{role:?} did not start");
}

fn play_gateway() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mark = std::env::var(MARK).unwrap();
        let mut launch = Watch::Supervisor.launch("hostile");
        launch.env.insert(MARK.to_owned(), mark);
        let (_process, _stdin, stdout) = Process::start(&launch).unwrap();
        line_of(&mut BufReader::new(stdout), "ready").await;
        say("ready");
        sleep(Duration::from_mins(2)).await;
    });
}

// What the tests use.

const HARNESS: [&str; 4] = ["--ignored", "--exact", "--nocapture", "actor"];
const MARK: &str = "PEGBOARD_TEST_MARK";

#[derive(Clone, Copy, Debug)]
enum Watch {
    Here,
    Supervisor,
}

const BOTH: [Watch; 2] = [Watch::Here, Watch::Supervisor];

impl Watch {
    fn launch(self, role: &str) -> Launch {
        let exe = std::env::current_exe().unwrap();
        let supervisor = match self {
            Self::Here => None,
            Self::Supervisor => {
                let arguments = HARNESS.into_iter().chain(["as:supervisor"]).map(Into::into).collect();
                Some(Supervisor { program: exe.clone(), arguments })
            }
        };
        // The supervisor would find its own role first.
        let role = format!("as:{role}");
        Launch {
            args: HARNESS.into_iter().chain([role.as_str()]).map(str::to_owned).collect(),
            supervisor,
            grace: SHORT,
            ..Launch::new(exe.to_str().unwrap())
        }
    }
}

/// Finds the processes of one program, and all they started, by a variable that they inherit.
struct Mark(String);

impl Mark {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self(format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    fn on(&self, mut launch: Launch) -> Launch {
        launch.env.insert(MARK.to_owned(), self.0.clone());
        launch
    }

    fn running(&self) -> BTreeSet<u32> {
        let wanted = format!("{MARK}={}", self.0);
        let processes = std::fs::read_dir("/proc").unwrap();
        let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let has_mark = |pid: &u32| {
            let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            variables.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
        };
        pids.filter(has_mark).collect()
    }

    /// Nothing runs any more, and nothing that was just about to be started does.
    async fn is_gone_within(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
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
    /// Whatever a test that failed has left.
    fn drop(&mut self) {
        for pid in self.running() {
            let _ = kill_process(id(pid), Signal::KILL);
        }
    }
}

fn id(number: u32) -> Pid {
    Pid::from_raw(number.try_into().unwrap()).unwrap()
}

/// The program's id, which its supervisor may take a moment to say.
async fn pid_of(process: &Process) -> u32 {
    let known = async {
        loop {
            match process.pid() {
                Some(pid) => return pid,
                None => sleep(Duration::from_millis(1)).await,
            }
        }
    };
    within(LONG, known).await
}

async fn within<T>(patience: Duration, future: impl Future<Output = T>) -> T {
    timeout(patience, future).await.expect("it took too long")
}

async fn line_of(stdout: &mut BufReader<Stdout>, expected: &str) {
    let mut lines = stdout.lines();
    let find = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line == expected {
                return;
            }
        }
        panic!("it never said {expected:?}");
    };
    within(LONG, find).await;
}

/// Starts a program and waits until it is ready.
async fn started(launch: &Launch) -> (Process, Stdin, BufReader<Stdout>) {
    let (process, stdin, stdout) = Process::start(launch).unwrap();
    let mut stdout = BufReader::new(stdout);
    line_of(&mut stdout, "ready").await;
    (process, stdin, stdout)
}

async fn exit_of(process: &Process) -> Exit {
    within(LONG, process.exited().wait_for(Option::is_some)).await.unwrap().unwrap()
}

async fn output_of(launch: &Launch) -> String {
    let (process, _stdin, mut stdout) = Process::start(launch).unwrap();
    let mut output = String::new();
    within(LONG, stdout.read_to_string(&mut output)).await.unwrap();
    assert_eq!(exit_of(&process).await.code, Some(0), "{}", process.stderr_tail());
    output
}

// Starting.

#[tokio::test]
async fn a_program_reads_and_writes_through_its_pipes() {
    for watch in BOTH {
        let (process, mut stdin, stdout) = Process::start(&watch.launch("echo")).unwrap();
        let mut stdout = BufReader::new(stdout);
        stdin.write_all(b"hello\nworld\n").await.unwrap();
        line_of(&mut stdout, "hello").await;
        line_of(&mut stdout, "world").await;
        let name = std::fs::read_to_string(format!("/proc/{}/comm", pid_of(&process).await)).unwrap();
        assert!(std::env::current_exe().unwrap().to_str().unwrap().contains(name.trim()), "{name}");
        let ended = within(LONG, process.end()).await;
        // It ends by itself when its standard input does.
        assert_eq!(ended, Ended { exit: Some(Exit { code: Some(0), signal: None }), left_running: vec![] });
    }
}

#[tokio::test]
async fn what_cannot_be_started_says_why_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "no program").unwrap();
    let file = file.to_str().unwrap().to_owned();
    let env = |name: &str, value: &str| [(name.to_owned(), value.to_owned())].into_iter().collect();
    let echo = Launch::new("/bin/sh");
    let launches = [
        Launch::new(""),
        Launch::new("no-such\u{1b}program"),
        Launch::new("/no/such/program"),
        Launch::new(file),
        Launch { env: env("PATH", folder.path().to_str().unwrap()), ..Launch::new("notes.txt") },
        Launch { env: env("PATH", ""), ..Launch::new("sh") },
        Launch { cwd: Some("/no/such/folder".into()), ..echo.clone() },
        Launch { env: env("A=B", "c"), ..echo.clone() },
        Launch { env: env("A", "b\0c"), ..echo.clone() },
        Launch { args: vec!["-c".to_owned(), "\0".to_owned()], ..echo },
    ];
    let folder = folder.path().to_str().unwrap();
    let texts: Vec<String> = launches
        .iter()
        .map(|launch| Process::start(launch).unwrap_err().to_string().replace(folder, "FOLDER"))
        .collect();
    insta::assert_snapshot!(texts.join("\n"), @r#"
    the command is empty: name the program to start
    spawn no-such\u{1b}program ENOENT: no program called 'no-such\u{1b}program' in PATH; install it, or give its full path
    spawn /no/such/program ENOENT: there is no file /no/such/program; install the program, or correct the path
    spawn FOLDER/notes.txt EACCES: FOLDER/notes.txt may not be run; make it executable, or name the program that runs it
    spawn notes.txt EACCES: FOLDER/notes.txt may not be run; make it executable, or name the program that runs it
    spawn sh ENOENT: no program called 'sh' in PATH; install it, or give its full path
    there is no directory /no/such/folder to start in; create it, or correct `cwd`
    an environment variable cannot be called "A=B": its name is empty or has a '=' in it
    the environment variable "A" has a NUL character in it, which no program can be given; remove it
    argument 2 has a NUL character in it, which no program can be given; remove it
    "#);
}

#[tokio::test]
async fn a_supervisor_that_is_not_there_is_an_error() {
    let supervisor = Supervisor { program: "/no/such/supervisor".into(), arguments: vec![] };
    let launch = Launch { supervisor: Some(supervisor), ..Watch::Here.launch("echo") };
    assert!(matches!(Process::start(&launch), Err(LaunchError::Supervisor { .. })));
}

#[tokio::test]
async fn a_name_is_looked_for_in_the_path_and_a_path_from_its_directory() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    std::os::unix::fs::symlink(std::env::current_exe().unwrap(), folder.join("my-server")).unwrap();
    let path = format!("/no/such/folder::{}", folder.display());
    for watch in BOTH {
        let launch = watch.launch("directory");
        let by_name = Launch {
            command: "my-server".to_owned(),
            env: [("PATH".to_owned(), path.clone())].into_iter().collect(),
            ..launch.clone()
        };
        output_of(&by_name).await;
        let by_path = Launch { command: "./my-server".to_owned(), cwd: Some(folder.clone()), ..launch };
        let directory = output_of(&by_path).await;
        assert!(directory.contains(folder.to_str().unwrap()), "{directory}");
    }
}

#[tokio::test]
async fn a_program_sees_few_variables_and_those_it_is_given() {
    // Cargo gives it to every test.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    for watch in BOTH {
        let mut launch = watch.launch("environment");
        launch.env.insert("HOME".to_owned(), "/somewhere".to_owned());
        launch.env.insert("API_KEY".to_owned(), "given".to_owned());
        let seen = output_of(&launch).await;
        let seen: Vec<&str> = seen.lines().collect();
        assert!(seen.contains(&"HOME=/somewhere") && seen.contains(&"API_KEY=given"), "{seen:?}");
        assert!(seen.iter().any(|line| line.starts_with("PATH=")), "{seen:?}");
        assert!(!seen.iter().any(|line| line.starts_with("CARGO")), "{seen:?}");
    }
}

#[tokio::test]
async fn a_supervised_program_gets_three_descriptors() {
    let seen = output_of(&Watch::Supervisor.launch("descriptors")).await;
    let seen: Vec<&str> = seen.lines().filter(|line| line.starts_with("fd ")).collect();
    // The fourth is the one that it looks with.
    assert_eq!(seen, ["fd 0", "fd 1", "fd 2", "fd 3"]);
}

// Watching.

#[tokio::test]
async fn how_a_program_ended_is_known_with_its_last_words() {
    for watch in BOTH {
        for (role, expected, last_words) in [
            ("exit", Exit { code: Some(3), signal: None }, "something is wrong"),
            ("crash", Exit { code: None, signal: Some(9) }, ""),
        ] {
            let (process, _stdin, _stdout) = Process::start(&watch.launch(role)).unwrap();
            assert_eq!(exit_of(&process).await, expected, "{watch:?}");
            assert_eq!(process.stderr_tail(), last_words, "{watch:?}");
        }
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_run_after_all_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).unwrap();

    let script = script.to_str().unwrap().to_owned();
    let supervised = Launch { command: script.clone(), ..Watch::Supervisor.launch("echo") };
    let (process, _stdin, _stdout) = Process::start(&supervised).unwrap();
    within(LONG, process.exited().wait_for(Option::is_some)).await.unwrap();
    let tail = process.stderr_tail();
    assert!(tail.contains("what its first line says runs it, is not there"), "{tail}");
    assert!(matches!(Process::start(&Launch::new(script)), Err(LaunchError::Refused { .. })));
}

#[tokio::test]
async fn a_flood_of_errors_holds_nobody_up_and_is_bounded() {
    for watch in BOTH {
        let (process, _stdin, _stdout) = Process::start(&watch.launch("flood")).unwrap();
        assert_eq!(exit_of(&process).await.code, Some(0));
        let tail = process.stderr_tail();
        assert!(tail.ends_with("\nthe end"), "{}", &tail[tail.len() - 100..]);
        assert!(tail.len() <= 64 * 1024);
    }
}

#[tokio::test]
async fn a_death_is_noticed_though_a_child_holds_the_pipes() {
    for watch in BOTH {
        let mark = Mark::new();
        let (process, mut stdin, _stdout) = started(&mark.on(watch.launch("leaver"))).await;
        stdin.write_all(b"go\n").await.unwrap();
        assert_eq!(exit_of(&process).await.code, Some(5));
        let _ = within(LONG, process.end()).await;
        // Without a supervisor a child that made a session of its own may be missed.
        if matches!(watch, Watch::Supervisor) {
            assert_eq!(mark.running(), BTreeSet::new());
        }
    }
}

#[tokio::test]
async fn writing_to_a_program_that_is_gone_is_an_error() {
    for watch in BOTH {
        let (process, mut stdin, _stdout) = Process::start(&watch.launch("crash")).unwrap();
        exit_of(&process).await;
        let written = stdin.write_all(b"hello\n").await;
        assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    }
}

#[tokio::test]
async fn a_writer_that_waits_for_room_is_released_when_the_ending_begins() {
    for watch in BOTH {
        let (process, mut stdin, _stdout) = Process::start(&watch.launch("deaf")).unwrap();
        let writing = tokio::spawn(async move { stdin.write_all(&vec![b'x'; 1 << 20]).await });
        let ended = within(LONG, process.end()).await;
        let written = within(LONG, writing).await.unwrap();
        assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
        assert_eq!(ended.exit, Some(Exit { code: None, signal: Some(15) }));
    }
}

// Ending.

#[tokio::test]
async fn who_ignores_everything_is_killed_with_its_children() {
    for watch in BOTH {
        let mark = Mark::new();
        let (process, _stdin, _stdout) = started(&mark.on(watch.launch("parent"))).await;
        assert!(mark.running().len() >= 3);
        let ended = within(LONG, process.end()).await;
        let exit = Some(Exit { code: None, signal: Some(9) });
        assert_eq!(ended, Ended { exit, left_running: vec![] }, "{watch:?}");
        assert_eq!(mark.running(), BTreeSet::new(), "{watch:?}");
    }
}

#[tokio::test]
async fn under_a_supervisor_nobody_gets_away() {
    for role in ["hostile", "hopper"] {
        let mark = Mark::new();
        let (process, _stdin, _stdout) = started(&mark.on(Watch::Supervisor.launch(role))).await;
        let ended = within(LONG, process.end()).await;
        assert_eq!(ended.left_running, [0; 0], "{role}");
        assert_eq!(mark.running(), BTreeSet::new(), "{role}");
    }
}

#[tokio::test]
async fn dropping_a_process_ends_everything() {
    for watch in BOTH {
        let mark = Mark::new();
        let (process, _stdin, _stdout) = started(&mark.on(watch.launch("parent"))).await;
        drop(process);
        mark.is_gone_within(SOON).await;
    }
}

#[tokio::test]
async fn an_ending_goes_on_when_nobody_waits_for_it() {
    for watch in BOTH {
        let mark = Mark::new();
        let (process, _stdin, _stdout) = started(&mark.on(watch.launch("parent"))).await;
        let _ = timeout(Duration::from_millis(1), process.end()).await;
        mark.is_gone_within(SOON).await;
    }
}

#[tokio::test]
async fn ending_what_has_ended_says_how_it_did() {
    for watch in BOTH {
        let (process, _stdin, _stdout) = Process::start(&watch.launch("exit")).unwrap();
        exit_of(&process).await;
        let exit = Some(Exit { code: Some(3), signal: None });
        assert_eq!(within(LONG, process.end()).await, Ended { exit, left_running: vec![] });
    }
}

#[test]
fn nothing_outlives_the_runtime() {
    for watch in BOTH {
        let mark = Mark::new();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let running = runtime.block_on(started(&mark.on(watch.launch("parent"))));
        drop(runtime);
        drop(running);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(mark.is_gone_within(SOON));
    }
}

#[tokio::test]
async fn a_supervisor_that_is_told_to_stop_ends_everything_first() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mark = Mark::new();
        let (process, _stdin, _stdout) = started(&mark.on(Watch::Supervisor.launch("hostile"))).await;
        kill_process(id(parent_of(pid_of(&process).await)), signal).unwrap();
        assert_eq!(exit_of(&process).await.signal, Some(9));
        mark.is_gone_within(SOON).await;
    }
}

#[tokio::test]
async fn what_a_killed_supervisor_watched_is_ended_from_here() {
    let mark = Mark::new();
    let (process, _stdin, _stdout) = started(&mark.on(Watch::Supervisor.launch("parent"))).await;
    kill_process(id(parent_of(pid_of(&process).await)), Signal::KILL).unwrap();
    assert_eq!(exit_of(&process).await, Exit { code: None, signal: None });
    assert_eq!(within(LONG, process.end()).await.left_running, [0; 0]);
    mark.is_gone_within(SOON).await;
}

#[tokio::test]
async fn a_supervisor_that_was_stopped_goes_on_to_end_everything() {
    let mark = Mark::new();
    let (process, _stdin, _stdout) = started(&mark.on(Watch::Supervisor.launch("hostile"))).await;
    kill_process(id(parent_of(pid_of(&process).await)), Signal::STOP).unwrap();
    assert_eq!(within(LONG, process.end()).await.left_running, [0; 0]);
    assert_eq!(mark.running(), BTreeSet::new());
}

#[test]
fn a_launch_is_shown_without_the_values_of_its_variables() {
    let env = [("API_KEY".to_owned(), "sk-1".to_owned())].into_iter().collect();
    let shown = format!("{:?}", Launch { env, ..Launch::new("npx") });
    assert!(shown.contains("API_KEY") && !shown.contains("sk-1"), "{shown}");
}

fn parent_of(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
}

#[tokio::test]
async fn killing_this_process_outright_leaves_nothing() {
    // Before, while and after the server and its children start.
    for attempt in 0..20_u64 {
        let mark = Mark::new();
        let mut gateway = playing(&["as:gateway"]);
        gateway.env(MARK, &mark.0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut gateway = tokio::process::Command::from(gateway).spawn().unwrap();
        let mut lines = BufReader::new(gateway.stdout.take().unwrap()).lines();
        let ready = async { while lines.next_line().await.unwrap().is_some_and(|line| line != "ready") {} };
        let moment = if attempt % 4 == 3 { LONG } else { Duration::from_millis(attempt * attempt % 97) };
        let _ = timeout(moment, ready).await;
        gateway.kill().await.unwrap();
        mark.is_gone_within(SOON).await;
    }
}
