//! The demo, as a newcomer runs it.

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
    // What is drawn below a check is indented.
    let (drawn, told): (Vec<&str>, Vec<&str>) = lines.iter().partition(|line| line.starts_with("  "));
    let n_checks = told.iter().filter(|line| line.starts_with('✓')).count();
    let without_times: Vec<&str> = told.iter().map(|line| without_time(line)).collect();
    insta::assert_snapshot!(without_times.join("\n"), @r#"
    Your functions are tools
    ✓ 4 Rust functions, found by name and tag: fahrenheit(21.5) → 70.7
    ✓ one that fails or panics is an error for its caller, and the program goes on
    ✓ all that is wrong with arguments is told at once: $.user.id, $.user.mail
    ✓ a chain that can never work is refused before its first step
    3 MCP servers, a web service and an agent behind one MCP endpoint
    ✓ a client's list is short: open_toolbox, use_tool, get_tools, batch, run_chain
    ✓ it is told of 3 toolboxes, office, market and town, and what each is for
    ✓ open_toolbox: 5 tools in office, 7 in market, 4 in town
    ✓ get_tools "write a note" finds notes_add, ready for use_tool
    ✓ or, as profile flat, all 16 tools by name: shop__price → 400 cents
    A model calls them
    ✓ use_tool office/notes/add → {"id":1,"text":"buy a lamp"}
    ✓ an OpenAPI document is a server: GET /forecast/S%C3%A3o%2FPaulo?days=2
    ✓ a request written down is a tool: POST /reports → Oslo, clear
    ✓ a wrong name is explained: Tool 'ad' not found in … Did you mean 'add'?
    ✓ a bad argument never reaches the server: $.count: value 10 > maximum 9
    Nothing floods, hangs or dies for long
    ✓ a repeated call is answered from the cache: still 12:00:01 in Oslo
    ✓ 6 calls go through a queue of 2: never more than 2 run, 4 wait
    ✓ a call that hangs is cut at 100 ms, its server is still well: 12:00:02 in Rome
    ✓ an answer of 229 KB is stored for the model: tool_output greps line 3141
    ✓ a server that dies in mid-call is started again, and its notes begin at 1
    Many tools, one call
    ✓ run_chain: price → order → note, in 2 toolboxes → 2 × lamp for 800 cents
    ✓ batch: one call answers, the other is told: did you mean clock__now?
    ✓ an agent is a tool that uses tools and a model: Leave the umbrella at home.
    Any client with any server, whichever MCP they speak
    ✓ a client of 2025-11-25 is asked by shop, a server of 2026-07-28: a gift for Ada
    ✓ a client of 2026-07-28 uses notes, a server of 2025-11-25: note 3
    ✓ progress of a call comes through in order, and before its result
    ✓ answers come through byte for byte: 12345678901234567890123
    Everything is on record
    ✓ all servers have ended
    ✓ all 29 calls of the first client; two of them, with the calls that they made:
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

/// A line without how long its check took; what is no check is a heading.
fn without_time(line: &str) -> &str {
    if !line.starts_with('✓') {
        return line;
    }
    let number = line.strip_suffix(" ms").expect("a check says how long it took");
    number.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.').trim_end()
}

#[test]
fn the_report_can_be_had_as_json() {
    let output = demo(env!("CARGO_BIN_EXE_pegboard"), &["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
    assert_eq!(report["ok"], true, "{report:#}");
    let checks = report["checks"].as_array().expect("a list of checks");
    assert!(checks.iter().all(|check| check["ok"] == true && check["duration_ms"].is_number()), "{report:#}");
    assert!(checks.iter().any(|check| check["drawing"].is_string()), "{report:#}");
}

/// The servers are this program, so that under a name of its own all its processes can be told from others.
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

/// The demo, kept up, and the report that it began with.
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

    /// What it answers to a client that says hello. From then on it also hears Ctrl-C.
    async fn hello(&self) -> String {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
        });
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).to_string();
        let request = reqwest::Client::new().post(self.endpoint()).header("content-type", "application/json");
        let request = request.header("accept", "application/json, text/event-stream").body(hello);
        request.send().await.expect("somebody answers").text().await.expect("it is a text")
    }

    /// Ends it as Ctrl-C does, and gives what it said.
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
async fn the_endpoint_can_be_kept_for_other_clients() {
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
async fn a_port_that_is_taken_is_left_alone_and_the_next_one_used() {
    let other = TcpListener::bind("127.0.0.1:0").expect("there are ports");
    let taken = other.local_addr().expect("it has an address").to_string();
    let kept = Kept::at(&taken);
    let endpoint = kept.endpoint().to_owned();
    assert!(!endpoint.contains(&taken), "{endpoint}");
    kept.hello().await;
    let said = kept.interrupt();
    assert!(
        said.starts_with(&format!("Ready  MCP {endpoint}   (something else listens at {taken})")),
        "{said}"
    );
}

#[test]
fn the_demo_is_not_shown_to_others() {
    let output = demo(env!("CARGO_BIN_EXE_pegboard"), &["--keep", "--http", "0.0.0.0:0"]);
    insta::assert_snapshot!(
        String::from_utf8_lossy(&output.stderr),
        @r"
    error[usage]: 0.0.0.0:0 can be reached by others
      help: the demo has no tokens: use 127.0.0.1, or pegboard serve
    "
    );
    assert_eq!(output.status.code(), Some(2));
}
