//! The demo as users run it.

use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

fn demo(program: impl AsRef<Path>, arguments: &[&str]) -> Output {
    Command::new(program.as_ref()).arg("demo").args(arguments).output().expect("the binary was just built")
}

#[test]
fn every_check_of_the_demo_passes() {
    let output = demo(env!("CARGO_BIN_EXE_pegboard"), &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() <= 50, "it must fit into a terminal\n{text}");
    let widest = lines.iter().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|width| width <= 92), "it must fit into a terminal\n{text}");
    let (summary, lines) = lines.split_last().expect("the demo prints a summary");
    // Lines below a check are indented.
    let (drawn, told): (Vec<&str>, Vec<&str>) = lines.iter().partition(|line| line.starts_with("  "));
    let n_checks = told.iter().filter(|line| line.starts_with('✓')).count();
    let without_times: Vec<&str> = told.iter().map(|line| without_time(line)).collect();
    insta::assert_snapshot!(without_times.join("\n"), @r#"
    Rust functions as tools
    ✓ 4 Rust functions, found by name and tag: fahrenheit(21.5) → 70.7
    ✓ a function that fails or panics returns an error; the process survives
    ✓ validation reports all violations at once: $.user.id, $.user.mail
    ✓ an invalid chain is rejected before its first step
    3 MCP servers, a web service and an agent behind one MCP endpoint
    ✓ clients list five tools: open_toolbox, use_tool, get_tools, batch, run_chain
    ✓ the instructions describe 3 toolboxes: office, market and town
    ✓ open_toolbox: 5 tools in office, 7 in market, 4 in town
    ✓ get_tools "write a note" finds notes_add, ready for use_tool
    ✓ profile flat lists all 16 tools by name: shop__price → 400 cents
    Tool calls
    ✓ use_tool office/notes/add → {"id":1,"text":"buy a lamp"}
    ✓ an OpenAPI document becomes a server: GET /forecast/S%C3%A3o%2FPaulo?days=2
    ✓ a request template becomes a tool: POST /reports → Oslo, clear
    ✓ unknown names get suggestions: Tool 'ad' not found in … Did you mean 'add'?
    ✓ an invalid argument never reaches the server: $.count: value 10 > maximum 9
    Queues, caches, timeouts and restarts
    ✓ a repeated call is answered from the cache: still 12:00:01 in Oslo
    ✓ 6 calls share a queue with 2 slots: 2 run, 4 wait
    ✓ a hanging call times out at 100 ms, its server keeps running: 12:00:02 in Rome
    ✓ a 229 KB output is stored: tool_output greps line 3141
    ✓ a server that crashes mid-call is restarted: its notes start at 1 again
    Chains, batches and agents
    ✓ run_chain: price → order → note, in 2 toolboxes → 2 × lamp for 800 cents
    ✓ batch: one call succeeds, the other gets: did you mean clock__now?
    ✓ an agent is a tool that uses tools and a model: Leave the umbrella at home.
    Any client with any server, across MCP revisions
    ✓ shop (2026-07-28) sends an elicitation to a 2025-11-25 client: a gift for Ada
    ✓ a 2026-07-28 client calls notes (2025-11-25): note 3
    ✓ progress notifications arrive in order, before the result
    ✓ results pass through byte for byte: 12345678901234567890123
    Every call is recorded
    ✓ all servers have stopped
    ✓ all 29 calls of the first client; two of them with their subcalls:
    "#);
    for call in [
        "shop/shop__price",
        "notes/notes__add",
        "agent/agent__guide",
        "llm scripted/model",
        "weather/weather__forecast",
    ] {
        assert!(drawn.iter().any(|line| line.contains(call)), "{text}");
    }
    assert!(summary.starts_with(&format!("{n_checks} checks ✓ in ")), "{text}");
    assert!(summary.ends_with("Next: pegboard import · pegboard serve · pegboard demo --keep"), "{text}");
    assert!(output.status.success());
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Removes the duration from the line of a check; other lines are headings.
fn without_time(line: &str) -> &str {
    if !line.starts_with('✓') {
        return line;
    }
    let number = line.strip_suffix(" ms").expect("a check says how long it took");
    number.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.').trim_end()
}

#[test]
fn the_demo_writes_no_files() {
    let home = tempfile::tempdir().expect("there is room");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pegboard"));
    command.args(["demo", "--json"]).current_dir(home.path()).env("HOME", home.path());
    command.env_remove("XDG_STATE_HOME").env_remove("PEGBOARD_STATE");
    assert!(command.output().expect("the binary was just built").status.success());
    let left: Vec<_> = std::fs::read_dir(home.path()).expect("it is still there").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_report_is_available_as_json() {
    let output = demo(env!("CARGO_BIN_EXE_pegboard"), &["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
    assert_eq!(report["ok"], true, "{report:#}");
    let checks = report["checks"].as_array().expect("a list of checks");
    assert!(checks.iter().all(|check| check["ok"] == true && check["duration_ms"].is_number()), "{report:#}");
    assert!(checks.iter().any(|check| check["drawing"].is_string()), "{report:#}");
}

/// The demo's servers are this program, so a copy under a unique name identifies all of its processes.
#[cfg(target_os = "linux")]
#[test]
fn the_demo_leaves_no_process_behind() {
    let program =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pegboard-demo-{}", std::process::id()));
    std::fs::hard_link(env!("CARGO_BIN_EXE_pegboard"), &program).expect("both are in the target folder");
    let output = demo(&program, &["--json"]);
    let processes = std::fs::read_dir("/proc").expect("there is a list of processes");
    let left: Vec<_> = processes
        .flatten()
        .filter(|process| std::fs::read_link(process.path().join("exe")).is_ok_and(|exe| exe == program))
        .map(|process| process.file_name())
        .collect();
    std::fs::remove_file(&program).expect("it is still there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(left.is_empty(), "{left:?}");
}

/// A demo started with `--keep`, and its report.
#[cfg(unix)]
struct Kept {
    child: Child,
    report: Value,
}

#[cfg(unix)]
impl Kept {
    fn at(address: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_pegboard"))
            .args(["demo", "--keep", "--json", "--http", address])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary was just built");
        let output = child.stdout.take().expect("it is a pipe");
        let report = serde_json::Deserializer::from_reader(output).into_iter().next();
        let report = report.expect("there is a report").expect("the report is JSON");
        Self { child, report }
    }

    fn endpoint(&self) -> &str {
        self.report["mcp"].as_str().expect("it says where it is")
    }

    /// Returns the response to `initialize`. From then on the signal handler is installed.
    async fn hello(&self) -> String {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
        });
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).to_string();
        let request = reqwest::Client::new().post(self.endpoint()).header("content-type", "application/json");
        let request = request.header("accept", "application/json, text/event-stream").body(hello);
        request.send().await.expect("somebody answers").text().await.expect("it is a text")
    }

    /// Interrupts the process and returns its standard error.
    fn interrupt(mut self) -> String {
        use rustix::process::{Pid, Signal, kill_process};

        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::INT).expect("it still runs");
        let mut said = String::new();
        let errors = self.child.stderr.as_mut().expect("it is a pipe");
        errors.read_to_string(&mut said).expect("it says texts");
        assert!(self.child.wait().expect("it was started").success(), "{said}");
        said
    }
}

#[cfg(unix)]
#[tokio::test]
async fn keep_leaves_the_endpoint_running() {
    let kept = Kept::at("127.0.0.1:0");
    assert_eq!(kept.report["ok"], true, "{:#}", kept.report);
    let answer = kept.hello().await;
    assert!(answer.contains("- office (2 servers: clock, notes) Time and notes"), "{answer}");
    let endpoint = kept.endpoint().to_owned();
    let said = kept.interrupt();
    assert!(said.starts_with(&format!("Ready  MCP {endpoint}\n")), "{said}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_port_in_use_is_skipped() {
    let other = TcpListener::bind("127.0.0.1:0").expect("there are ports");
    let taken = other.local_addr().expect("it has an address").to_string();
    let kept = Kept::at(&taken);
    let endpoint = kept.endpoint().to_owned();
    assert!(!endpoint.contains(&taken), "{endpoint}");
    kept.hello().await;
    let said = kept.interrupt();
    assert!(said.starts_with(&format!("Ready  MCP {endpoint}   ({taken} is in use)")), "{said}");
}

#[test]
fn the_demo_refuses_a_public_address() {
    let output = demo(env!("CARGO_BIN_EXE_pegboard"), &["--keep", "--http", "0.0.0.0:0"]);
    insta::assert_snapshot!(
        String::from_utf8_lossy(&output.stderr),
        @r"
    error[usage]: refusing to listen on 0.0.0.0:0: the demo is for this machine only
      help: use a loopback address such as 127.0.0.1, or pegboard serve with --token-env
    "
    );
    assert_eq!(output.status.code(), Some(2));
}
