//! The program that tests of processes start, with a role as argument.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

/// The tests run on Linux only.
#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{BufRead, Write};
    use std::process::{Command, Stdio};
    use std::sync::Arc;
    use std::time::Duration;

    use pegboard_core::secret::Secret;
    use pegboard_core::settings::mcp::ServerProgram;
    use pegboard_providers::process::{CommandSpec, GracePeriods, Process, SupervisorCommand};
    use pegboard_testkit::fixture::Fixture;
    use pegboard_wire::server::ServiceServer;
    use pegboard_wire::stdio::line_transport;
    use pegboard_wire::transport::InputLimits;
    use rustix::process::{Signal, kill_process};
    use tokio::io::AsyncBufReadExt;
    use tokio::time;

    /// Time that a role waits: longer than any test, but not forever in case a test fails.
    const LIFETIME: Duration = Duration::from_mins(2);

    pub(super) fn main() {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        match arguments[0].as_str() {
            "supervisor" => {
                let program = arguments.iter().skip_while(|argument| *argument != "--");
                let _ = pegboard_providers::process::supervise(program.map(Into::into));
            }
            "gateway" => block_on(run_gateway(&arguments[1])),
            "server" => block_on(serve()),
            "echo" => std::io::stdin().lines().for_each(|line| println!("{}", line.unwrap())),
            "environment" => std::env::vars().for_each(|(name, value)| println!("{name}={value}")),
            "descriptors" => {
                let opened = std::fs::read_dir("/proc/self/fd").unwrap();
                opened.for_each(|entry| println!("fd {}", entry.unwrap().file_name().display()));
            }
            "directory" => println!("{}", std::env::current_dir().unwrap().display()),
            "exit" => {
                eprintln!("something is wrong");
                std::process::exit(3);
            }
            "broken" => {
                eprintln!("cannot log in with {}", std::env::var("TOKEN").unwrap());
                std::process::exit(3);
            }
            "silent" => {
                eprintln!("still loading");
                std::thread::park();
            }
            "secretive" => {
                eprintln!("the diary of {}", std::process::id());
                std::thread::park();
            }
            "crash" => kill_process(rustix::process::getpid(), Signal::KILL).unwrap(),
            "flood" => flood_stderr(),
            "deaf" => std::thread::sleep(LIFETIME),
            "stubborn" => block_on(ignore_everything()),
            "parent" => {
                start_and_wait_ready("stubborn");
                start_and_wait_ready("stubborn");
                block_on(ignore_everything());
            }
            "daemon" => {
                let _ = rustix::process::setsid();
                start_and_wait_ready("stubborn");
                println!("ready");
            }
            "hostile" => {
                start_and_wait_ready("parent");
                start_and_wait_ready("daemon");
                block_on(ignore_everything());
            }
            "leaver" => {
                // The child inherits its pipes.
                role_command("stubborn").spawn().unwrap();
                std::io::stdin().lock().read_line(&mut String::new()).unwrap();
                std::process::exit(5);
            }
            "hopper" => hop(arguments.get(1).map_or(0, |n_hops| n_hops.parse().unwrap())),
            other => panic!("unknown role {other}"),
        }
    }

    fn block_on(role: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(role);
    }

    /// Writes 32 MiB.
    fn flood_stderr() {
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
        (0..32 * 1024).for_each(|_| std::io::stderr().write_all(&line).unwrap());
        eprintln!("the end");
    }

    /// Ignores its session, its group, its stdin and SIGTERM.
    async fn ignore_everything() {
        let _ = rustix::process::setsid();
        // A signal with a listener does not terminate the process.
        let _signal = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
        println!("ready");
        time::sleep(LIFETIME).await;
    }

    /// Keeps starting a copy of itself and exiting, for a bounded number of times in case a test fails.
    #[expect(clippy::zombie_processes, reason = "misbehaves on purpose")]
    fn hop(n_hops: u32) {
        if n_hops < 5000 {
            role_command("hopper").arg((n_hops + 1).to_string()).stdout(Stdio::null()).spawn().unwrap();
        }
        if n_hops == 0 {
            println!("ready");
            std::thread::sleep(LIFETIME);
        }
    }

    fn role_command(role: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(role);
        command
    }

    #[expect(clippy::zombie_processes, reason = "misbehaves on purpose")]
    fn start_and_wait_ready(role: &str) {
        let child = role_command(role).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufReader::new(child.stdout.unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "ready"), "{role} did not start");
    }

    /// Starts a supervised program with a role.
    async fn run_gateway(role: &str) {
        let program = std::env::current_exe().unwrap();
        let mark = "PEGBOARD_TEST_MARK";
        let spec = CommandSpec {
            program: ServerProgram {
                args: vec![role.to_owned()],
                env: [(mark.to_owned(), Secret::new(std::env::var(mark).unwrap()))].into_iter().collect(),
                ..ServerProgram::new(program.to_str().unwrap())
            },
            supervisor: Some(SupervisorCommand {
                program: program.clone(),
                arguments: vec!["supervisor".into()],
            }),
            grace: GracePeriods { close: Duration::from_millis(200), terminate: Duration::from_millis(300) },
        };
        let (_process, _stdin, stdout) = Process::start(&spec).unwrap();
        let mut lines = tokio::io::BufReader::new(stdout).lines();
        while lines.next_line().await.unwrap().expect("the server starts") != "ready" {}
        println!("ready");
        time::sleep(LIFETIME).await;
    }

    /// Serves the conformance fixture over stdio.
    async fn serve() {
        let (transport, pump) =
            line_transport(tokio::io::stdin(), tokio::io::stdout(), InputLimits::server());
        ServiceServer::new(Arc::new(Fixture::new())).serve(transport).await;
        let _ = pump.await;
    }
}
