//! A shell that does what a page shows, for a user who has nothing yet.

use std::fmt::Write;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::page::{Page, Seen};

/// How long a page may take.
const PATIENCE: Duration = Duration::from_mins(2);
/// What separates what commands print; no command prints it.
const MARK: char = '\u{1e}';

/// Types all commands of a page into one shell, and gives what came of each.
///
/// The shell has a home and a folder of its own, the program on its path, and no terminal. What it started in the
/// background ends with it.
pub(crate) fn follow(page: &Page) -> Vec<Seen> {
    if page.commands.is_empty() {
        return Vec::new();
    }
    let folder = tempfile::tempdir().expect("there is room");
    let home = folder.path().join("home/me");
    let project = home.join("project");
    std::fs::create_dir_all(&project).expect("there is room");
    let mut script = String::new();
    for command in &page.commands {
        let _ = writeln!(script, "{}\nprintf '{MARK}%s{MARK}' $?", command.typed);
    }
    let path = folder.path().join("script");
    std::fs::write(&path, script).expect("there is room");
    let program = Path::new(env!("CARGO_BIN_EXE_pegboard"));
    let programs = program.parent().expect("it is in a folder").display();
    let (mut reader, writer) = std::io::pipe().expect("the system has pipes");
    let mut shell = Command::new("sh");
    shell
        .arg(&path)
        .current_dir(&project)
        .env_clear()
        .env("PATH", format!("{programs}:/usr/local/bin:/usr/bin:/bin"))
        .env("HOME", &home)
        .env("TMPDIR", folder.path())
        .env("LANG", "C.UTF-8")
        .env("COLUMNS", "100")
        .stdin(Stdio::null())
        .stdout(writer.try_clone().expect("the system has pipes"))
        .stderr(writer)
        .process_group(0);
    let mut child = shell.spawn().expect("there is a shell");
    // It holds the ends of the pipe that it gives away.
    drop(shell);
    let group = Pid::from_child(&child);
    let (finished, wait) = mpsc::channel();
    let printed = std::thread::scope(|scope| {
        scope.spawn(move || {
            // Whoever waits no longer has heard of the end.
            let _ = wait.recv_timeout(PATIENCE);
            let _ = kill_process_group(group, Signal::TERM);
        });
        let reading = scope.spawn(move || {
            let mut printed = Vec::new();
            reader.read_to_end(&mut printed).expect("pipes can be read");
            String::from_utf8_lossy(&printed).into_owned()
        });
        child.wait().expect("it was started");
        let _ = finished.send(());
        reading.join().expect("it does not panic")
    });
    // The user's home is where everybody's is.
    let printed = printed.replace(&folder.path().display().to_string(), "");
    let mut parts = printed.split(MARK);
    let mut seen = Vec::new();
    while let (Some(printed), Some(code)) = (parts.next(), parts.next()) {
        seen.push(Seen { printed: printed.to_owned(), code: code.parse().unwrap_or(-1) });
    }
    seen
}
