//! What is waited for, shown on a terminal while it lasts.

use std::future::Future;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Globals;
use super::words::{DIM, PLAIN, one_line, seconds};

/// Who waits for no longer than this need not be told.
const PATIENCE: Duration = Duration::from_millis(300);
/// How often it is shown anew.
const PACE: Duration = Duration::from_millis(100);
/// What turns.
const TURNS: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
/// How wide a bar is.
const BAR: usize = 20;
/// How many characters of what is said are shown.
const MAX_CHARACTERS: usize = 60;
/// Takes back the line that the cursor is in.
const ERASE: &str = "\r\u{1b}[2K";

/// Something that is waited for. It is shown on standard error, if that is a terminal, from the first moment on that
/// somebody may wonder about.
pub(crate) struct Waiting {
    begun: Instant,
    is_shown: bool,
    state: Mutex<State>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    what: String,
    /// How much of it is done, from 0 to 1.
    share: Option<f64>,
}

impl Waiting {
    /// Waits for something from now on.
    pub(crate) fn new(globals: &Globals, what: impl Into<String>) -> Self {
        let is_shown = !globals.quiet && std::io::stderr().is_terminal();
        Self { begun: Instant::now(), is_shown, state: Mutex::new(State { what: what.into(), share: None }) }
    }

    /// Says what is waited for now.
    pub(crate) fn say(&self, what: impl Into<String>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).what = what.into();
    }

    /// Says how far it is.
    pub(crate) fn advance(&self, done: f64, total: Option<f64>) {
        let share = total.filter(|total| *total > 0.0).map(|total| (done / total).clamp(0.0, 1.0));
        self.state.lock().unwrap_or_else(PoisonError::into_inner).share = share;
    }

    /// Shows it while something is done.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        if !self.is_shown {
            return work.await;
        }
        let mut work = std::pin::pin!(work);
        let first = (self.begun + PATIENCE).max(Instant::now());
        let mut pace = tokio::time::interval_at(first, PACE);
        // Whatever becomes of the work, the line is taken back.
        let mut line = Line { is_drawn: false };
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = pace.tick() => line.draw(&self.text()),
            }
        }
    }

    fn text(&self) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        state.text(self.begun.elapsed())
    }
}

impl State {
    fn text(&self, waited: Duration) -> String {
        let turns = usize::try_from(waited.as_millis() / PACE.as_millis()).unwrap_or_default();
        let what = one_line(&self.what, MAX_CHARACTERS);
        let waited = seconds(waited);
        match self.share {
            None => format!("{} {what}  {DIM}{waited}{PLAIN}", TURNS[turns % TURNS.len()]),
            Some(share) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    clippy::cast_precision_loss,
                    reason = "a share is from 0 to 1, and a bar is short"
                )]
                let n_full = (share * BAR as f64).round() as usize;
                let bar: String = "█".repeat(n_full) + &" ".repeat(BAR - n_full);
                format!("{what} ▕{bar}▏  {DIM}{waited}{PLAIN}")
            }
        }
    }
}

/// A line of a terminal that is drawn again and again.
struct Line {
    is_drawn: bool,
}

impl Line {
    fn draw(&mut self, text: &str) {
        self.is_drawn = true;
        let _ = write!(anstream::stderr(), "{ERASE}{text}");
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.is_drawn {
            let _ = write!(anstream::stderr(), "{ERASE}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_is_told_with_how_far_it_is() {
        let text = |share, millis| {
            let state = State { what: "notes\nadd".to_owned(), share };
            anstream::adapter::strip_str(&state.text(Duration::from_millis(millis))).to_string()
        };
        assert_eq!(text(None, 350), "⠸ notes add  0 s");
        assert_eq!(text(Some(0.5), 12_345), "notes add ▕██████████          ▏  12 s");
    }
}
