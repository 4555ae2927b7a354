//! The live table of `serve` on a terminal.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};

use crate::harness::{PROGRAM, testkit};
use crate::terminal::terminal;

/// What a terminal shows: its lines, with the cursor below the last one.
#[derive(Default)]
struct Screen(Vec<String>);

impl Screen {
    /// Shows what a program has written. Knows the sequences that the table needs, and colors.
    fn of(written: &str) -> Self {
        let mut screen = Self(vec![String::new()]);
        let mut rest = written;
        while let Some(letter) = rest.chars().next() {
            rest = &rest[letter.len_utf8()..];
            match letter {
                '\n' => screen.0.push(String::new()),
                '\r' => screen.last().clear(),
                '\u{1b}' => {
                    let end = rest.find(|letter: char| letter.is_ascii_alphabetic()).unwrap();
                    let (number, kind) = (&rest[1..end], &rest[end..=end]);
                    match kind {
                        "A" => {
                            let n_lines = screen.0.len() - number.parse::<usize>().unwrap();
                            screen.0.truncate(n_lines);
                        }
                        "J" | "K" => screen.last().clear(),
                        "m" => {}
                        _ => panic!("unknown sequence in {written:?}"),
                    }
                    rest = &rest[end + 1..];
                }
                _ => screen.last().push(letter),
            }
        }
        screen
    }

    fn last(&mut self) -> &mut String {
        self.0.last_mut().unwrap()
    }

    fn count(&self, text: &str) -> usize {
        self.0.iter().filter(|line| line.contains(text)).count()
    }
}

/// Serves a server that works and one that does not at a terminal, until both have settled; then reloads another
/// configuration, if there is one. Returns what it writes.
fn served_at_terminal(
    columns: u16,
    variables: &[(&str, &str)],
    settled: &str,
    mut reloaded: Option<&Value>,
) -> String {
    let home = tempfile::tempdir().unwrap();
    let configuration = json!({"mcpServers": {
        "works": {"command": testkit(), "args": ["hostile-text"]},
        "missing": {"command": "./no-such-program"},
    }});
    std::fs::write(home.path().join("pegboard.json"), configuration.to_string()).unwrap();
    let (ours, theirs) = terminal();
    tcsetwinsize(&theirs, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let mut command = Command::new(PROGRAM);
    command
        .args(["--config", "pegboard.json", "serve", "--http", "127.0.0.1:0", "--profile", "flat"])
        .current_dir(home.path())
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home.path())
        .env("PEGBOARD_STATE", home.path().join("state"))
        .env("TERM", "xterm")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(theirs.try_clone().unwrap())
        .stderr(theirs);
    let mut child = command.spawn().unwrap();
    // The program holds the other end of the terminal.
    drop(command);
    let mut output = File::from(ours);
    let (mut written, mut some) = (Vec::new(), [0; 4096]);
    let (mut wanted, mut is_stopped) = (settled, false);
    while let Ok(n_read @ 1..) = output.read(&mut some) {
        written.extend_from_slice(&some[..n_read]);
        let text = String::from_utf8_lossy(&written);
        if is_stopped || !text.contains("Ready") || !wanted.split('|').all(|part| text.contains(part)) {
            continue;
        }
        if let Some(reloaded) = reloaded.take() {
            std::fs::write(home.path().join("pegboard.json"), reloaded.to_string()).unwrap();
            wanted = "Reloaded";
        } else {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            is_stopped = true;
        }
    }
    child.wait().unwrap();
    String::from_utf8(written).unwrap()
}

#[test]
fn serve_shows_a_live_table_at_the_bottom_of_a_terminal() {
    for (columns, variables) in [(80, None), (80, Some(("NO_COLOR", "1"))), (30, None)] {
        let written = served_at_terminal(columns, variables.as_slice(), "1 ready, 1 failed", None);
        assert_eq!(written.contains("\u{1b}[32m"), variables.is_none(), "{written:?}");
        let screen = Screen::of(&written);
        let lines = &screen.0;
        // Whatever was printed in the meantime stands above the table, once and whole.
        assert_eq!(screen.count("Ready  MCP http://127.0.0.1:"), 1, "{lines:#?}");
        assert_eq!(screen.count("  help: "), 1, "{lines:#?}");
        assert_eq!(screen.count("servers, "), 1, "{lines:#?}");
        let [.., summary, works, missing, last] = lines.as_slice() else { panic!("{lines:#?}") };
        assert_eq!(summary, "2 servers, 1 ready, 1 failed");
        assert!(works.starts_with("✓ ") && works.contains(" tools"), "{works}");
        assert!(missing.starts_with("✗ "), "{missing}");
        assert_eq!(last, "");
        for line in [summary, works, missing] {
            assert!(line.chars().count() <= columns.into(), "{line}");
        }
    }
}

#[test]
fn a_dumb_terminal_gets_lines() {
    let written = served_at_terminal(80, &[("TERM", "dumb")], "✓ |✗ ", None);
    assert!(!written.contains('\u{1b}') && !written.contains('\r'), "{written:?}");
    assert_eq!(Screen::of(&written).count("✓ "), 1, "{written}");
}

#[test]
fn warnings_of_a_reload_stand_above_the_table() {
    let reloaded = json!({"mcpServers": {
        "works": {"command": testkit(), "args": ["hostile-text"]},
        "missing": {"command": "./no-such-program"},
        "new": {"url": "http://127.0.0.1:9/mcp", "headers": {"X-Key": "${NO_SUCH_KEY}"}},
    }});
    let written = served_at_terminal(80, &[], "1 ready, 1 failed", Some(&reloaded));
    let screen = Screen::of(&written);
    let lines = &screen.0;
    assert_eq!(screen.count("the variable NO_SUCH_KEY is not set"), 1, "{lines:#?}");
    assert_eq!(screen.count("Reloaded  "), 1, "{lines:#?}");
    assert_eq!(screen.count("Ready  MCP http://127.0.0.1:"), 1, "{lines:#?}");
    assert_eq!(screen.count(" servers, "), 1, "{lines:#?}");
    let below = lines.iter().rev().take_while(|line| !line.contains(" servers, "));
    assert!(
        below.clone().count() >= 3 && below.clone().all(|line| !line.contains("NO_SUCH_KEY")),
        "{lines:#?}"
    );
}
