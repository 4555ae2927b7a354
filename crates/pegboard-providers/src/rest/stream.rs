//! Answers that come line by line.

use pegboard_core::client::{Client, Notice, Progress};
use pegboard_core::output::Output;
use pegboard_core::settings::rest::{StreamMode, StreamingSettings};
use pegboard_json::RawJson;
use tokio::time::{Duration, Instant};

use super::parameters::scalar;
use crate::web::{Incoming, WebError};

/// How often the caller is told what has come, at most.
const NOTICE_INTERVAL: Duration = Duration::from_millis(100);

/// What some services write when they are done, and is no JSON.
const END_MARK: &str = "[DONE]";

/// Reads an answer to its end, or until a line says that it is done, and tells the caller what comes on the way.
pub(super) async fn read(
    mut incoming: Incoming,
    settings: &StreamingSettings,
    client: &dyn Client,
) -> Result<Output, WebError> {
    let StreamMode::JsonStream = settings.mode;
    let mut reading = Reading::new(settings, client);
    let mut waiting = Vec::new();
    while let Some(piece) = incoming.next().await? {
        // What waited has no line end, so only what has come is looked at.
        let looked_at = waiting.len();
        waiting.extend_from_slice(&piece);
        let mut begin = 0;
        while let Some(end) = line_end(&waiting, looked_at.max(begin)) {
            if let Some(answer) = reading.line(&waiting[begin..end]) {
                return Ok(answer);
            }
            begin = end + 1;
        }
        waiting.drain(..begin);
    }
    // A last line counts without a line end too.
    Ok(reading.line(&waiting).unwrap_or_else(|| reading.end()))
}

/// Where the next line ends.
fn line_end(bytes: &[u8], from: usize) -> Option<usize> {
    bytes[from..].iter().position(|byte| *byte == b'\n').map(|at| from + at)
}

/// What has been read of an answer.
struct Reading<'r> {
    settings: &'r StreamingSettings,
    client: &'r dyn Client,
    /// The pieces of the answer, one after another.
    text: String,
    n_tokens: u32,
    /// How much of the text the caller has been told.
    told: usize,
    told_at: Option<Instant>,
}

impl<'r> Reading<'r> {
    fn new(settings: &'r StreamingSettings, client: &'r dyn Client) -> Self {
        Self { settings, client, text: String::new(), n_tokens: 0, told: 0, told_at: None }
    }

    /// Reads a line; the answer, if it is the last.
    fn line(&mut self, line: &[u8]) -> Option<Output> {
        let line = String::from_utf8_lossy(line);
        let line = line.trim();
        let line = line.strip_prefix(self.settings.line_prefix.trim()).unwrap_or(line).trim();
        if line.is_empty() || line == END_MARK {
            return None;
        }
        // What is no JSON is a remark or a name of an event.
        let line = RawJson::parse(line.to_owned().into()).ok()?;
        let kind = line.get(&self.settings.discriminator_field)?;
        let kind = scalar(&kind)?;
        if kind == self.settings.done_value {
            return Some(match line.get(&self.settings.answer_field) {
                Some(answer) if answer.as_str().starts_with('"') => {
                    self.tell();
                    Output::new(answer.text().unwrap_or_default().into_owned().into())
                }
                Some(answer) if self.n_tokens == 0 => crate::web::json_output(&answer, None),
                Some(_) | None => self.end(),
            });
        }
        if kind == self.settings.token_value {
            self.token(&line);
        }
        None
    }

    fn token(&mut self, line: &RawJson) {
        let Some(token) = line.get(&self.settings.token_field) else { return };
        if let Some(token) = scalar(&token) {
            self.text.push_str(&token);
            self.n_tokens += 1;
            if self.told_at.is_none_or(|at| at.elapsed() >= NOTICE_INTERVAL) {
                self.tell();
            }
        }
    }

    /// Tells the caller what it has not been told.
    fn tell(&mut self) {
        let news = self.text.get(self.told..).unwrap_or_default();
        if !news.is_empty() {
            let message = Some(news.to_owned());
            self.client.notify(Notice::Progress(Progress {
                done: f64::from(self.n_tokens),
                total: None,
                message,
            }));
            self.told = self.text.len();
            self.told_at = Some(Instant::now());
        }
    }

    /// The answer when nothing more comes.
    fn end(&mut self) -> Output {
        self.tell();
        if self.text.is_empty() {
            return Output::failure(
                "The service ended its answer without saying anything that streaming looks for.",
            );
        }
        Output::new(std::mem::take(&mut self.text).into())
    }
}
