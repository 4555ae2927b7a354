//! The browser of the user.

use std::process::{Command, Stdio};

use pegboard_auth::oauth::Url;

/// Opens a page in the browser; returns `false` if no program for it was found. No shell sees the URL, which is one of
/// the web.
pub(super) fn open(url: &Url) -> bool {
    if !matches!(url.scheme(), "http" | "https") {
        return false;
    }
    let mut command = command();
    command.arg(url.as_str()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // It must not end with the terminal's job, and prints into no output of ours.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.spawn().is_ok()
}

#[cfg(target_os = "macos")]
fn command() -> Command {
    Command::new("/usr/bin/open")
}

#[cfg(windows)]
fn command() -> Command {
    let mut command = Command::new("rundll32.exe");
    command.arg("url.dll,FileProtocolHandler");
    command
}

#[cfg(not(any(target_os = "macos", windows)))]
fn command() -> Command {
    Command::new("xdg-open")
}
