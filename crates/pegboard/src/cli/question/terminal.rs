//! The person at the terminal.

use std::io::{self, BufRead, IsTerminal, Write};
#[cfg(unix)]
use std::sync::{Mutex, PoisonError};

use super::{Echo, Person};

/// The person at the terminal that standard input comes from. What it is asked is written to standard error.
#[derive(Debug)]
pub(crate) struct Terminal(());

impl Terminal {
    /// The person, if there is one.
    pub(crate) fn find() -> Option<Self> {
        (io::stdin().is_terminal() && io::stderr().is_terminal()).then_some(Self(()))
    }
}

impl Person for Terminal {
    fn say(&mut self, text: &str) {
        let _ = writeln!(anstream::stderr(), "{text}");
    }

    fn ask(&mut self, prompt: &str, echo: Echo) -> Option<String> {
        let _ = write!(anstream::stderr(), "{prompt}").and_then(|()| anstream::stderr().flush());
        let hidden = match echo {
            Echo::Shown => None,
            Echo::Hidden => Some(Hidden::begin()?),
        };
        let mut line = String::new();
        let n_bytes = io::stdin().lock().read_line(&mut line).ok()?;
        if hidden.is_some() || n_bytes == 0 {
            let _ = writeln!(anstream::stderr());
        }
        drop(hidden);
        (n_bytes > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
    }
}

/// How the terminal was before what is typed there was hidden.
#[cfg(unix)]
static BEFORE: Mutex<Option<rustix::termios::Termios>> = Mutex::new(None);

/// Has the terminal show again what is typed, if it does not. Whoever is asked may be left in the middle of an answer.
#[cfg(unix)]
pub(crate) fn restore() {
    use rustix::termios::{OptionalActions, tcsetattr};

    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

/// Nothing is ever hidden there.
#[cfg(not(unix))]
pub(crate) fn restore() {}

/// A terminal that does not show what is typed, until this is dropped.
struct Hidden;

impl Hidden {
    /// `None` where what is typed would be seen: then nobody is asked.
    #[cfg(unix)]
    fn begin() -> Option<Self> {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

        let before = tcgetattr(io::stdin()).ok()?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        tcsetattr(io::stdin(), OptionalActions::Now, &silent).ok()?;
        Some(Self)
    }

    #[cfg(not(unix))]
    fn begin() -> Option<Self> {
        None
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        restore();
    }
}
