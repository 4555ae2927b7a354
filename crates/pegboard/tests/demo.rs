//! The demo, as a newcomer runs it.

use std::process::{Command, Output};

fn demo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pegboard"))
        .arg("demo")
        .args(arguments)
        .output()
        .expect("the binary was just built")
}

#[test]
fn every_check_of_the_demo_passes() {
    let output = demo(&[]);
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().collect();
    let (summary, lines) = lines.split_last().expect("the demo prints a summary");
    // What is drawn below a check is indented.
    let (drawn, checks): (Vec<&str>, Vec<&str>) = lines.iter().partition(|line| line.starts_with("  "));
    assert!(drawn.iter().any(|line| line.contains("chain/chain__forecast")), "{text}");
    assert!(checks.iter().all(|line| line.starts_with('✓') && line.ends_with(" ms")), "{text}");
    assert!(summary.starts_with(&format!("All {} checks passed in ", checks.len())), "{text}");
    assert!(output.status.success());
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_report_can_be_had_as_json() {
    let output = demo(&["--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
    assert_eq!(report["ok"], true);
    assert!(report["checks"].as_array().is_some_and(|checks| checks.len() >= 8), "{report:#}");
    assert!(report["checks"][0]["duration_ms"].is_number());
}
