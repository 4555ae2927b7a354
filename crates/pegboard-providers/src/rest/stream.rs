//! Line-delimited streaming responses.

use pegboard_core::client::{Client, Notice, ProgressUpdate};
use pegboard_core::output::Output;
use pegboard_core::settings::rest::{StreamMode, StreamingSettings};
use pegboard_json::RawJson;
use tokio::time::{Duration, Instant};

use super::parameters::scalar_text;
use pegboard_http::{StreamingResponse, WebError};

/// Minimum interval between progress notifications.
const NOTICE_INTERVAL: Duration = Duration::from_millis(100);

/// End marker of some services, which is not JSON.
const END_MARK: &str = "[DONE]";

/// Reads a stream up to its end or its final line, and notifies the caller of progress.
pub(super) async fn read(
    mut response: StreamingResponse,
    settings: &StreamingSettings,
    client: &dyn Client,
) -> Result<Output, WebError> {
    let StreamMode::JsonStream = settings.mode;
    let mut reader = StreamReader::new(settings, client);
    let mut buffer = Vec::new();
    while let Some(piece) = response.next().await? {
        // Earlier bytes contain no line end, so only new ones are scanned.
        let scanned = buffer.len();
        buffer.extend_from_slice(&piece);
        let mut begin = 0;
        while let Some(end) = line_end(&buffer, scanned.max(begin)) {
            if let Some(response) = reader.read_line(&buffer[begin..end]) {
                return Ok(response);
            }
            begin = end + 1;
        }
        buffer.drain(..begin);
    }
    // The last line may lack a line end.
    Ok(reader.read_line(&buffer).unwrap_or_else(|| reader.finish()))
}

/// Returns the position of the next line end.
fn line_end(bytes: &[u8], from: usize) -> Option<usize> {
    bytes[from..].iter().position(|byte| *byte == b'\n').map(|at| from + at)
}

/// State of a stream that is being read.
struct StreamReader<'r> {
    settings: &'r StreamingSettings,
    client: &'r dyn Client,
    /// Tokens received so far.
    text: String,
    n_tokens: u32,
    /// Number of bytes of `text` sent as progress.
    n_notified: usize,
    notified_at: Option<Instant>,
}

impl<'r> StreamReader<'r> {
    fn new(settings: &'r StreamingSettings, client: &'r dyn Client) -> Self {
        Self { settings, client, text: String::new(), n_tokens: 0, n_notified: 0, notified_at: None }
    }

    /// Reads a line. Returns the output if it is the final line.
    fn read_line(&mut self, line: &[u8]) -> Option<Output> {
        let line = String::from_utf8_lossy(line);
        let line = line.trim();
        let line = line.strip_prefix(self.settings.line_prefix.trim()).unwrap_or(line).trim();
        if line.is_empty() || line == END_MARK {
            return None;
        }
        // Other lines are comments or event names.
        let line = RawJson::parse(line.to_owned().into()).ok()?;
        let kind = line.get(&self.settings.discriminator_field)?;
        let kind = scalar_text(&kind)?;
        if kind == self.settings.done_value {
            return Some(match line.get(&self.settings.answer_field) {
                Some(response) if response.as_str().starts_with('"') => {
                    self.notify_progress();
                    Output::new(response.text().unwrap_or_default().into_owned().into())
                }
                Some(response) if self.n_tokens == 0 => pegboard_http::json_output(&response, None),
                Some(_) | None => self.finish(),
            });
        }
        if kind == self.settings.token_value {
            self.push_token(&line);
        }
        None
    }

    fn push_token(&mut self, line: &RawJson) {
        let Some(token) = line.get(&self.settings.token_field) else { return };
        if let Some(token) = scalar_text(&token) {
            self.text.push_str(&token);
            self.n_tokens += 1;
            if self.notified_at.is_none_or(|at| at.elapsed() >= NOTICE_INTERVAL) {
                self.notify_progress();
            }
        }
    }

    /// Sends the text that has not been sent yet.
    fn notify_progress(&mut self) {
        let news = self.text.get(self.n_notified..).unwrap_or_default();
        if !news.is_empty() {
            let message = Some(news.to_owned());
            self.client.notify(Notice::Progress(ProgressUpdate {
                done: f64::from(self.n_tokens),
                total: None,
                message,
                params: None,
            }));
            self.n_notified = self.text.len();
            self.notified_at = Some(Instant::now());
        }
    }

    /// Returns the output at the end of the stream.
    fn finish(&mut self) -> Output {
        self.notify_progress();
        if self.text.is_empty() {
            return Output::failure("The stream ended without any of the configured fields.");
        }
        Output::new(std::mem::take(&mut self.text).into())
    }
}
