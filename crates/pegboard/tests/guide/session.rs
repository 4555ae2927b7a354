//! Runs the commands of a page in a shell with an empty home directory.

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};

use crate::page::{Page, Seen};

/// Timeout of a page.
const PATIENCE: Duration = Duration::from_mins(2);
/// Separator between the output of commands.
const MARK: char = '\u{1e}';
/// Sequence that clears a line.
const ERASE: &str = "\r\u{1b}[2K";

/// Runs all commands of a page in one shell and returns their results.
///
/// The shell has its own home and working directory, the program on its `PATH`, and prints to a terminal without
/// input. Its background processes end with it.
pub(crate) fn follow(page: &Page) -> Vec<Seen> {
    if page.commands.is_empty() {
        return Vec::new();
    }
    let folder = tempfile::tempdir().expect("there is room");
    let script: String = page.commands.iter().fold(String::new(), |mut script, command| {
        let _ = writeln!(script, "{}\nprintf '{MARK}%s{MARK}' $?", command.typed);
        script
    });
    let printed = run(&script, folder.path());
    // Shorten the home directory to `/home/me`.
    let printed = printed.replace(&folder.path().display().to_string(), "");
    let programs = Path::new(env!("CARGO_BIN_EXE_pegboard")).parent().expect("it is in a folder");
    let printed = printed.replace(&programs.display().to_string(), "/usr/local/bin");
    let mut parts = printed.split(MARK);
    let mut seen = Vec::new();
    while let (Some(printed), Some(code)) = (parts.next(), parts.next()) {
        seen.push(Seen { printed: as_it_stays(printed), code: code.parse().unwrap_or(-1) });
    }
    seen
}

/// Runs a script and returns its output.
fn run(script: &str, folder: &Path) -> String {
    let home = folder.join("home/me");
    let project = home.join("project");
    std::fs::create_dir_all(&project).expect("there is room");
    let path = folder.join("script");
    std::fs::write(&path, script).expect("there is room");
    let program = Path::new(env!("CARGO_BIN_EXE_pegboard"));
    let programs = program.parent().expect("it is in a folder").display();
    let (ours, theirs) = terminal();
    let mut shell = Command::new("sh");
    shell
        .arg(&path)
        .current_dir(&project)
        .env_clear()
        .env("PATH", format!("{programs}:/usr/local/bin:/usr/bin:/bin"))
        .env("HOME", &home)
        .env("TMPDIR", folder)
        .env("LANG", "C.UTF-8")
        .env("TERM", "xterm")
        .env("PEGBOARD_KEYRING", "off")
        .stdin(Stdio::null())
        .stdout(theirs.try_clone().expect("the system has room"))
        .stderr(theirs)
        .process_group(0);
    let mut child = shell.spawn().expect("there is a shell");
    // Drop the command, which holds the other end of the terminal.
    drop(shell);
    let group = Pid::from_child(&child);
    let (finished, wait) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // An error means that the shell has exited.
            let _ = wait.recv_timeout(PATIENCE);
            let _ = kill_process_group(group, Signal::TERM);
        });
        let reading = scope.spawn(move || read(ours));
        child.wait().expect("it was started");
        let _ = finished.send(());
        reading.join().expect("it does not panic")
    })
}

/// Opens a pseudoterminal of 100 columns; returns both ends.
fn terminal() -> (OwnedFd, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("the system has terminals");
    grantpt(&ours).expect("it is ours");
    unlockpt(&ours).expect("it is ours");
    let name = ptsname(&ours, Vec::new()).expect("it has a name");
    let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("it is there");
    let mut attributes = tcgetattr(&theirs).expect("it is a terminal");
    attributes.make_raw();
    tcsetattr(&theirs, OptionalActions::Now, &attributes).expect("it is a terminal");
    let size = Winsize { ws_row: 50, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&theirs, size).expect("it is a terminal");
    (ours, theirs)
}

/// Reads a terminal until its other end is closed, which is a read error.
fn read(terminal: OwnedFd) -> String {
    let mut terminal = File::from(terminal);
    let (mut printed, mut some) = (Vec::new(), [0; 4096]);
    while let Ok(n_read @ 1..) = terminal.read(&mut some) {
        printed.extend_from_slice(&some[..n_read]);
    }
    String::from_utf8_lossy(&printed).into_owned()
}

/// Final content of the terminal without color codes.
fn as_it_stays(printed: &str) -> String {
    let lines = printed.split('\n').map(|line| line.rsplit(ERASE).next().unwrap_or_default());
    anstream::adapter::strip_str(&lines.collect::<Vec<_>>().join("\n")).to_string()
}
