//! Prompts on the terminal.

use std::io::{self, BufRead, IsTerminal};

#[cfg(unix)]
use super::{Echo, Prompter};
use crate::cli::print;
use parking_lot::Mutex;

/// A terminal on standard input. Prompts are written to standard error.
#[derive(Debug)]
pub(crate) struct Terminal(());

impl Terminal {
    /// Returns the terminal, if standard input and standard error are one.
    pub(crate) fn detect() -> Option<Self> {
        (io::stdin().is_terminal() && io::stderr().is_terminal()).then_some(Self(()))
    }
}

impl Prompter for Terminal {
    fn print(&mut self, text: &str) {
        print::error_line(text);
    }

    fn read_line(&mut self, prompt: &str, echo: Echo) -> Option<String> {
        print::prompt(prompt);
        let hidden = match echo {
            Echo::Shown => None,
            Echo::Hidden => Some(HiddenInput::begin()?),
        };
        let mut line = String::new();
        let n_bytes = io::stdin().lock().read_line(&mut line).ok()?;
        if hidden.is_some() || n_bytes == 0 {
            print::error_line("");
        }
        drop(hidden);
        (n_bytes > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
    }
}

/// Terminal attributes from before echo was turned off.
#[cfg(unix)]
static SAVED_TERMIOS: Mutex<Option<rustix::termios::Termios>> = Mutex::new(None);

/// Turns echo on again if a prompt turned it off. A prompt may be abandoned in the middle of an answer.
#[cfg(unix)]
pub(crate) fn restore() {
    use rustix::termios::{OptionalActions, tcsetattr};

    if let Some(before) = SAVED_TERMIOS.lock().take() {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

/// Echo is never turned off on this platform.
#[cfg(not(unix))]
pub(crate) fn restore() {}

/// Guard that keeps echo off until it is dropped.
struct HiddenInput;

impl HiddenInput {
    /// Turns echo off. `None` if that is not possible; then no secret is prompted for.
    #[cfg(unix)]
    fn begin() -> Option<Self> {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

        let before = tcgetattr(io::stdin()).ok()?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        *SAVED_TERMIOS.lock() = Some(before);
        tcsetattr(io::stdin(), OptionalActions::Now, &silent).ok()?;
        Some(Self)
    }

    #[cfg(not(unix))]
    fn begin() -> Option<Self> {
        None
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        restore();
    }
}
