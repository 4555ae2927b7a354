//! A page with console blocks: commands and their expected output.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::compare::is_as_shown;

/// A Markdown page.
pub(crate) struct Page {
    path: PathBuf,
    lines: Vec<String>,
    /// Commands in order.
    pub(crate) commands: Vec<Command>,
}

/// A command of a page.
pub(crate) struct Command {
    /// Input lines without prompts.
    pub(crate) typed: String,
    /// Lines of the page with the expected output.
    first: usize,
    end: usize,
}

/// Result of a command.
pub(crate) struct Seen {
    /// Output.
    pub(crate) printed: String,
    pub(crate) code: i32,
}

impl Seen {
    /// Formats the result as on a page, with a last line for a nonzero exit code.
    fn shown(&self) -> String {
        let mut shown = self.printed.trim_end().to_owned();
        if self.code != 0 {
            let end = if shown.is_empty() { "" } else { "\n" };
            let _ = write!(shown, "{end}? {}", self.code);
        }
        shown
    }
}

impl Page {
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("the page can be read");
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut commands: Vec<Command> = Vec::new();
        let mut is_console = false;
        let mut is_fenced = false;
        for (number, line) in lines.iter().enumerate() {
            if let Some(fence) = line.trim_start().strip_prefix("```") {
                is_console = !is_fenced && fence == "console";
                is_fenced = !is_fenced;
            } else if is_console && let Some(typed) = line.strip_prefix("$ ") {
                commands.push(Command { typed: typed.to_owned(), first: number + 1, end: number + 1 });
            } else if is_console && let Some(command) = commands.last_mut() {
                match line.strip_prefix("> ").or_else(|| (line == ">").then_some("")) {
                    Some(typed) if command.first == number => {
                        command.typed = format!("{}\n{typed}", command.typed);
                        command.first = number + 1;
                    }
                    _ => {}
                }
                command.end = number + 1;
            }
        }
        Self { path: path.to_owned(), lines, commands }
    }

    /// Differences between the page and the results.
    pub(crate) fn differences(&self, seen: &[Seen]) -> Vec<String> {
        let mut differences = Vec::new();
        for (command, seen) in self.commands.iter().zip(seen) {
            let (shown, seen) = (self.shown(command), seen.shown());
            if !is_as_shown(&shown, &seen) {
                let place = format!("{}:{}", self.path.display(), command.first);
                let typed = &command.typed;
                differences.push(format!(
                    "{place}: $ {typed}\n--- the page shows\n{shown}\n--- what came\n{seen}\n"
                ));
            }
        }
        if seen.len() != self.commands.len() {
            let (n_seen, n_commands) = (seen.len(), self.commands.len());
            differences.push(format!("{}: {n_seen} of {n_commands} commands ended", self.path.display()));
        }
        differences
    }

    /// The page with the actual output in place of differing output.
    pub(crate) fn with(&self, seen: &[Seen]) -> String {
        let mut text = String::new();
        let mut next = 0;
        for (command, seen) in self.commands.iter().zip(seen) {
            let (shown, seen) = (self.shown(command), seen.shown());
            let lines = if is_as_shown(&shown, &seen) { shown } else { brief(&command.typed, seen) };
            for line in self.lines[next..command.first].iter().map(String::as_str).chain(lines.lines()) {
                let _ = writeln!(text, "{}", line.trim_end());
            }
            next = command.first
                + self.lines[command.first..command.end]
                    .iter()
                    .rposition(|line| !line.is_empty())
                    .map_or(0, |last| last + 1);
        }
        for line in &self.lines[next..] {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// Expected output of a command.
    fn shown(&self, command: &Command) -> String {
        self.lines[command.first..command.end].join("\n").trim_end().to_owned()
    }
}

/// Cuts the global options from the help of a command.
fn brief(typed: &str, seen: String) -> String {
    match seen.split_once("\nGlobal options:\n") {
        Some((own, _)) if typed.ends_with(" --help") && typed != "pegboard --help" => format!("{own}\n…"),
        _ => seen,
    }
}

#[test]
fn a_page_is_read_and_written() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("page.md");
    let text = "# A\n\n```console\n$ cat <<END\n> one\n> END\none\n\n$ false\n? 1\n$ true\n```\n\n```sh\n$ never\n```\n";
    std::fs::write(&path, text).expect("there is room");
    let page = Page::read(&path);
    let typed: Vec<&str> = page.commands.iter().map(|command| &*command.typed).collect();
    assert_eq!(typed, ["cat <<END\none\nEND", "false", "true"]);
    let seen = |printed: &str, code| Seen { printed: printed.to_owned(), code };
    let as_shown = [seen("one\n", 0), seen("", 1), seen("", 0)];
    assert_eq!(page.differences(&as_shown), [""; 0]);
    assert_eq!(page.with(&as_shown), text);
    let other = [seen("two\n", 0), seen("", 1), seen("", 70)];
    assert_eq!(page.differences(&other).len(), 2);
    let expected = text.replace("\none\n\n", "\ntwo\n\n").replace("$ true\n", "$ true\n? 70\n");
    assert_eq!(page.with(&other), expected);
    assert_eq!(page.differences(&as_shown[..2]).len(), 1);
}
