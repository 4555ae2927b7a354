//! Output of results to standard output.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pegboard::json::RawJson;
use serde::Serialize;
use serde_json::Value;

use super::{CliError, Globals, OutputFormat, notice};

/// Set once writing to standard output failed.
static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);
/// Error of writing to standard output, unless the pipe was closed.
static WRITE_ERROR: OnceLock<String> = OnceLock::new();

/// Prints a result and ends its line. Write errors are recorded, not returned.
pub(crate) fn text(text: &str) {
    let mut output = anstream::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    record_error(&write!(output, "{text}{end}").and_then(|()| output.flush()));
}

/// Returns `true` once standard output is closed, so that long-running commands can stop.
pub(crate) fn is_stdout_closed() -> bool {
    STDOUT_CLOSED.load(Ordering::Relaxed)
}

/// Error of writing to standard output other than a closed pipe, such as a full disk.
pub(crate) fn write_error() -> Option<CliError> {
    let why = WRITE_ERROR.get()?;
    Some(CliError::system(format!("cannot write to standard output: {why}")))
}

fn record_error(written: &std::io::Result<()>) {
    if let Err(error) = written {
        STDOUT_CLOSED.store(true, Ordering::Relaxed);
        if error.kind() != ErrorKind::BrokenPipe {
            WRITE_ERROR.get_or_init(|| error.to_string());
        }
    }
}

/// Returns `true` if standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Prints bytes verbatim and ends the line.
pub(crate) fn bytes_line(bytes: &[u8]) {
    let mut output = std::io::stdout().lock();
    let end: &[u8] = if bytes.ends_with(b"\n") { b"" } else { b"\n" };
    record_error(&output.write_all(bytes).and_then(|()| output.write_all(end)).and_then(|()| output.flush()));
}

/// Prints bytes verbatim.
pub(crate) fn bytes(bytes: &[u8]) {
    let mut output = std::io::stdout().lock();
    record_error(&output.write_all(bytes).and_then(|()| output.flush()));
}

/// Prints a list: one item per line as NDJSON, or else one document.
pub(crate) fn list(format: OutputFormat, list: &Value) {
    match (format, list) {
        (OutputFormat::Ndjson, Value::Array(items)) => items.iter().for_each(|item| text(&item.to_string())),
        (format, list) => document(format, list, || list.to_string()),
    }
}

/// Prints the list that a response holds under `key`, with `when_empty` as a notice if there is none: one item
/// per line as NDJSON, or else the whole response.
pub(crate) fn listing(
    globals: &Globals,
    response: &Value,
    key: &str,
    as_text: impl FnOnce(&Value) -> String,
    when_empty: &str,
) {
    match globals.data_format() {
        OutputFormat::Ndjson => list(OutputFormat::Ndjson, &response[key]),
        format @ (OutputFormat::Text | OutputFormat::Json | OutputFormat::Yaml) => {
            document(format, response, || as_text(&response[key]));
        }
    }
    if response[key].as_array().is_none_or(Vec::is_empty) {
        notice(globals, when_empty);
    }
}

/// Prints a document; `as_text` renders it for the text format.
pub(crate) fn document(format: OutputFormat, document: &impl Serialize, as_text: impl FnOnce() -> String) {
    match format {
        OutputFormat::Text => {
            // An empty text prints nothing, not even a line break.
            let as_text = as_text();
            if !as_text.is_empty() {
                text(&as_text);
            }
        }
        OutputFormat::Json => text(&format!("{:#}", value(document))),
        OutputFormat::Ndjson => text(&value(document).to_string()),
        OutputFormat::Yaml => text(&serde_saphyr::to_string(&value(document)).unwrap_or_default()),
    }
}

/// Prints JSON from a server or tool without loss of precision, where the format allows it.
pub(crate) fn raw_json(format: OutputFormat, document: &RawJson) {
    match format {
        OutputFormat::Text | OutputFormat::Json => text(&document.indented()),
        OutputFormat::Ndjson => bytes_line(document.as_bytes()),
        OutputFormat::Yaml => self::document(format, &document.to_value(), String::new),
    }
}

fn value(document: &impl Serialize) -> Value {
    serde_json::to_value(document).unwrap_or_default()
}
