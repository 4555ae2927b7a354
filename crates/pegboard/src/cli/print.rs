//! Results on standard output.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pegboard::json::RawJson;
use serde::Serialize;
use serde_json::Value;

use super::{Failure, Format};

/// Whoever reads results has gone away.
static IS_UNREAD: AtomicBool = AtomicBool::new(false);
/// Why results could not be written, if nobody has gone away.
static UNWRITTEN: OnceLock<String> = OnceLock::new();

/// Prints a result and ends its line. Whoever has stopped reading does not want it.
pub(crate) fn text(text: &str) {
    let mut output = anstream::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    note(&write!(output, "{text}{end}").and_then(|()| output.flush()));
}

/// Whether whoever reads results has gone away, so that nothing that goes on for long need go on.
pub(crate) fn is_unread() -> bool {
    IS_UNREAD.load(Ordering::Relaxed)
}

/// Why results could not be written, though somebody reads them: a disk may be full.
pub(crate) fn failure() -> Option<Failure> {
    let why = UNWRITTEN.get()?;
    Some(Failure::system(format!("not all could be written to standard output: {why}")))
}

fn note(written: &std::io::Result<()>) {
    if let Err(error) = written {
        IS_UNREAD.store(true, Ordering::Relaxed);
        if error.kind() != ErrorKind::BrokenPipe {
            UNWRITTEN.get_or_init(|| error.to_string());
        }
    }
}

/// Whether results are read by people rather than by programs.
pub(crate) fn is_for_people() -> bool {
    std::io::stdout().is_terminal()
}

/// Prints a result as it is, and ends its line.
pub(crate) fn exactly(bytes: &[u8]) {
    let mut output = std::io::stdout().lock();
    let end: &[u8] = if bytes.ends_with(b"\n") { b"" } else { b"\n" };
    note(&output.write_all(bytes).and_then(|()| output.write_all(end)).and_then(|()| output.flush()));
}

/// Prints bytes and nothing else.
pub(crate) fn bytes(bytes: &[u8]) {
    let mut output = std::io::stdout().lock();
    note(&output.write_all(bytes).and_then(|()| output.flush()));
}

/// Prints a list: each of it on a line of its own if that is wanted, and as one document otherwise.
pub(crate) fn list(format: Format, list: &Value) {
    match (format, list) {
        (Format::Ndjson, Value::Array(items)) => items.iter().for_each(|item| text(&item.to_string())),
        (format, list) => document(format, list, || list.to_string()),
    }
}

/// Prints a result as a document; `as_text` says how people want it.
pub(crate) fn document(format: Format, document: &impl Serialize, as_text: impl FnOnce() -> String) {
    match format {
        Format::Text => {
            // Of nothing there is not even a line.
            let as_text = as_text();
            if !as_text.is_empty() {
                text(&as_text);
            }
        }
        Format::Json => text(&format!("{:#}", value(document))),
        Format::Ndjson => text(&value(document).to_string()),
        Format::Yaml => text(&serde_saphyr::to_string(&value(document)).unwrap_or_default()),
    }
}

/// Prints a result of somebody else as a document, to the last digit where the format can say so.
pub(crate) fn raw(format: Format, document: &RawJson) {
    match format {
        Format::Text | Format::Json => text(&document.indented()),
        Format::Ndjson => exactly(document.as_bytes()),
        Format::Yaml => self::document(format, &document.to_value(), String::new),
    }
}

fn value(document: &impl Serialize) -> Value {
    serde_json::to_value(document).unwrap_or_default()
}
