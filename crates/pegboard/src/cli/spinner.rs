//! Spinner and progress bar on the terminal.

use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::format::{DIM, PLAIN, one_line, seconds};
use super::{Globals, print};

/// Delay before the spinner appears.
const SHOW_AFTER: Duration = Duration::from_millis(300);
/// Interval between frames.
const TICK: Duration = Duration::from_millis(100);
/// Frames of the spinner.
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
/// Width of the progress bar.
const BAR_WIDTH: usize = 20;
/// Number of characters beside the message: the frame, the ends of the bar, and the time.
const TIME_WIDTH: usize = 18;
/// Maximum number of characters of the message.
const MAX_CHARACTERS: usize = 60;

/// Spinner on standard error. It is drawn only on a terminal, and only if the work takes longer than
/// [`SHOW_AFTER`].
pub(crate) struct Spinner {
    begun: Instant,
    is_shown: bool,
    state: Mutex<SpinnerState>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct SpinnerState {
    what: String,
    /// Fraction done, from 0 to 1.
    share: Option<f64>,
}

impl Spinner {
    /// Starts a spinner with a message.
    pub(crate) fn new(globals: &Globals, what: impl Into<String>) -> Self {
        let is_shown = !globals.quiet && print::can_redraw();
        Self {
            begun: Instant::now(),
            is_shown,
            state: Mutex::new(SpinnerState { what: what.into(), share: None }),
        }
    }

    /// Sets the message.
    pub(crate) fn set_message(&self, what: impl Into<String>) {
        self.state.lock().what = what.into();
    }

    /// Sets the progress; without a total the spinner is shown instead of a bar.
    pub(crate) fn set_progress(&self, done: f64, total: Option<f64>) {
        let share = total.filter(|total| *total > 0.0).map(|total| (done / total).clamp(0.0, 1.0));
        self.state.lock().share = share;
    }

    /// Draws the spinner until `work` completes.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        if !self.is_shown {
            return work.await;
        }
        let mut work = std::pin::pin!(work);
        let first = (self.begun + SHOW_AFTER).max(Instant::now());
        let mut pace = tokio::time::interval_at(first, TICK);
        // Clears the line on drop, even if the work is canceled.
        let mut line = SpinnerLine { is_drawn: false };
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = pace.tick() => line.draw(&self.text()),
            }
        }
    }

    fn text(&self) -> String {
        let state = self.state.lock().clone();
        state.text(self.begun.elapsed())
    }
}

impl SpinnerState {
    fn text(&self, waited: Duration) -> String {
        let turns = usize::try_from(waited.as_millis() / TICK.as_millis()).unwrap_or_default();
        // A line that is wrapped cannot be erased.
        let beside = TIME_WIDTH + if self.share.is_some() { BAR_WIDTH } else { 0 };
        let most = print::error_width().map_or(MAX_CHARACTERS, |width| width.saturating_sub(beside));
        let what = one_line(&self.what, most.min(MAX_CHARACTERS));
        let waited = seconds(waited);
        match self.share {
            None => format!("{} {what}  {DIM}{waited}{PLAIN}", FRAMES[turns % FRAMES.len()]),
            Some(share) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    clippy::cast_precision_loss,
                    reason = "a share is from 0 to 1, and a bar is short"
                )]
                let n_full = (share * BAR_WIDTH as f64).round() as usize;
                let bar: String = "█".repeat(n_full) + &" ".repeat(BAR_WIDTH - n_full);
                format!("{what} ▕{bar}▏  {DIM}{waited}{PLAIN}")
            }
        }
    }
}

/// Terminal line that is redrawn in place.
struct SpinnerLine {
    is_drawn: bool,
}

impl SpinnerLine {
    fn draw(&mut self, text: &str) {
        self.is_drawn = true;
        print::redraw(text);
    }
}

impl Drop for SpinnerLine {
    fn drop(&mut self) {
        if self.is_drawn {
            print::redraw("");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spinner_shows_message_and_progress() {
        let text = |share, millis| {
            let state = SpinnerState { what: "notes\nadd".to_owned(), share };
            anstream::adapter::strip_str(&state.text(Duration::from_millis(millis))).to_string()
        };
        assert_eq!(text(None, 350), "⠸ notes add  0 s");
        assert_eq!(text(Some(0.5), 12_345), "notes add ▕██████████          ▏  12 s");
    }
}
