//! The demo, as a newcomer runs it.

use std::path::Path;
use std::process::{Command, Output};

fn demo(program: impl AsRef<Path>, arguments: &[&str]) -> Output {
    Command::new(program.as_ref()).arg("demo").args(arguments).output().expect("the binary was just built")
}

#[test]
fn every_check_of_the_demo_passes() {
    let output = demo(env!("CARGO_BIN_EXE_pegboard"), &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() <= 40, "it must fit into a terminal\n{text}");
    let (summary, lines) = lines.split_last().expect("the demo prints a summary");
    // What is drawn below a check is indented.
    let (drawn, checks): (Vec<&str>, Vec<&str>) = lines.iter().partition(|line| line.starts_with("  "));
    let without_times: Vec<&str> = checks.iter().map(|line| without_time(line)).collect();
    insta::assert_snapshot!(without_times.join("\n"), @r#"
    ✓ 4 functions are tools, found by name and tag; fahrenheit(21.5) → 70.7
    ✓ a function that fails or panics is an outcome, not an outage
    ✓ validation tells every violation at once, in the order of the schema
    ✓ a chain that can never work is refused before it runs
    ✓ MCP 2025-11-25: a client sees open_toolbox, use_tool, get_tools, batch, run_chain
    ✓ it is told of 3 toolboxes, office, market and town, and of their servers
    ✓ open_toolbox: 5 tools in office, 7 in market, 3 in town
    ✓ get_tools "write a note" finds notes_add, ready for use_tool
    ✓ use_tool office/notes/add → {"id":1,"text":"buy a lamp"}
    ✓ an OpenAPI document is a server: GET /forecast/S%C3%A3o%2FPaulo?days=2
    ✓ a wrong name is explained: Tool 'ad' not found … Did you mean 'add'?
    ✓ a bad argument never reaches the server: $.count: value 10 > maximum 9
    ✓ a repeat is served from the cache: still 12:00:01 in Oslo
    ✓ 6 calls through a queue of 2: 4 wait, and never more than 2 run
    ✓ a slow call is cut at 100 ms, and its server is still well: 12:00:02 in Rome
    ✓ 229 KB do not flood the model: stored, and tool_output greps line 3141
    ✓ run_chain: 3 steps in 2 toolboxes → 2 × lamp for 800 cents
    ✓ batch: one call answers, the other says: did you mean clock__now?
    ✓ a sub-agent looks at the weather and reports: Leave the umbrella at home.
    ✓ a server may ask in mid-call, and the client answers: a gift for Ada
    ✓ progress comes through in order, and before the result
    ✓ an answer comes through byte for byte: 12345678901234567890123
    ✓ a server that dies in mid-call is started again: its notes begin at 1
    ✓ profile flat: the same 15 tools by name; notes__add → id 2
    ✓ MCP 2026-07-28: without a session all is the same, and nothing to open
    ✓ all 5 servers have ended
    ✓ all 28 calls of the first client are on record; two of them:
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
    assert!(summary.starts_with(&format!("{} checks ✓ in ", checks.len())), "{text}");
    assert!(output.status.success());
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A line without how long its check took.
fn without_time(line: &str) -> &str {
    let number = line.strip_suffix(" ms").expect("a check says how long it took");
    number.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.').trim_end()
}

#[test]
fn the_report_can_be_had_as_json() {
    let output = demo(env!("CARGO_BIN_EXE_pegboard"), &["--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
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
