//! Where log lines go, without the secrets.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use pegboard_core::redact::Redactor;
use tracing_subscriber::fmt::MakeWriter;

/// Where log lines go. Clones are the same place.
#[derive(Clone)]
pub(super) struct Sink(Arc<Shared>);

struct Shared {
    writer: Mutex<Box<dyn Write + Send>>,
    redactor: ArcSwapOption<Redactor>,
}

impl Sink {
    pub(super) fn new(writer: Box<dyn Write + Send>) -> Self {
        Self(Arc::new(Shared { writer: Mutex::new(writer), redactor: ArcSwapOption::empty() }))
    }

    pub(super) fn redact(&self, secrets: impl IntoIterator<Item = impl AsRef<str>>) {
        let known: BTreeSet<String> =
            secrets.into_iter().flat_map(|secret| spellings(secret.as_ref())).collect();
        self.0.redactor.store(Some(Arc::new(Redactor::new(known))));
    }
}

/// Every way in which a line may spell a text: as it is, with its control characters escaped, quoted, and each of
/// them in JSON.
fn spellings(text: &str) -> Vec<String> {
    let escaped = text.chars().map(|character| match character {
        _ if character.is_control() => character.escape_default().to_string(),
        _ => character.to_string(),
    });
    let plain = [text.to_owned(), escaped.collect(), text.escape_debug().to_string()];
    let in_json = plain.clone().map(|text| {
        let quoted = serde_json::Value::from(text).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    });
    plain.into_iter().chain(in_json).collect()
}

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(&self.0)
    }
}

/// One line on its way. It is written at once and whole, so no secret is ever cut in two.
pub(super) struct Line<'a>(&'a Shared);

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let redactor = self.0.redactor.load();
        let text = String::from_utf8_lossy(bytes);
        let text = match &*redactor {
            Some(redactor) => redactor.text(&text),
            None => text.as_ref().into(),
        };
        let mut writer = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner);
        // A line that cannot be written is lost: whoever logged it has better things to do than to hear of it.
        let _ = writer.write_all(text.as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner).flush();
        Ok(())
    }
}
