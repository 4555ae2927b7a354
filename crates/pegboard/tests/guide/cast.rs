//! Check of the terminal drawing in the README.

use std::path::Path;
use std::process::Command;

use crate::compare::is_as_shown;

/// Text lines of the drawing.
fn shown(drawing: &Path) -> String {
    let drawing = std::fs::read_to_string(drawing).expect("the drawing can be read");
    let lines = drawing.lines().filter(|line| line.starts_with("<text"));
    lines.map(without_tags).collect::<Vec<_>>().join("\n")
}

fn without_tags(line: &str) -> String {
    let parts = line.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
    let text: String = parts.collect();
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

#[test]
fn the_terminal_drawing_matches_the_demo() {
    let shown = shown(&crate::root().join("docs/demo.svg"));
    let (typed, shown) = shown.split_once('\n').expect("it shows more than one line");
    assert_eq!(typed, "$ cargo run -- demo");
    let output =
        Command::new(env!("CARGO_BIN_EXE_pegboard")).arg("demo").output().expect("it was just built");
    let seen = String::from_utf8_lossy(&output.stdout);
    assert!(
        is_as_shown(shown, &seen),
        "correct the lines of docs/demo.svg\n--- shown\n{shown}\n--- seen\n{seen}"
    );
}
