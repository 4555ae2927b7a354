//! Destination of log lines, with redaction.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use pegboard_core::printable::{printable, printable_json};
use pegboard_core::redact::Redactor;
use tracing_subscriber::fmt::MakeWriter;

use super::Format;

/// Destination of log lines. Clones share it.
#[derive(Clone)]
pub(super) struct LogSink(Arc<LogSinkInner>);

struct LogSinkInner {
    writer: Mutex<Box<dyn Write + Send>>,
    /// Makes a line printable in its format.
    escape: fn(&str) -> Cow<'_, str>,
    redactor: ArcSwapOption<Redactor>,
}

impl LogSink {
    pub(super) fn new(writer: Box<dyn Write + Send>, format: Format) -> Self {
        let escape = match format {
            Format::Text => printable,
            Format::Json => printable_json,
        };
        Self(Arc::new(LogSinkInner { writer: Mutex::new(writer), escape, redactor: ArcSwapOption::empty() }))
    }

    pub(super) fn redact(&self, secrets: impl IntoIterator<Item = impl AsRef<str>>) {
        self.0.redactor.store(Some(Arc::new(Redactor::with_escapes(secrets))));
    }
}

impl<'a> MakeWriter<'a> for LogSink {
    type Writer = LogLineWriter<'a>;

    fn make_writer(&'a self) -> LogLineWriter<'a> {
        LogLineWriter(&self.0)
    }
}

/// Writer of one line. A line is written in one call, so that a secret is never split.
pub(super) struct LogLineWriter<'a>(&'a LogSinkInner);

impl Write for LogLineWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let redactor = self.0.redactor.load();
        let text = String::from_utf8_lossy(bytes);
        let text = match &*redactor {
            Some(redactor) => redactor.text(&text),
            None => text.as_ref().into(),
        };
        let mut writer = self.0.writer.lock();
        // A line that cannot be written is lost: logging must not fail the caller.
        let _ = writer.write_all((self.0.escape)(&text).as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.writer.lock().flush();
        Ok(())
    }
}
