//! Output to the terminal: the only place that writes text to it, and makes it printable.

use std::collections::BTreeSet;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use pegboard::json::RawJson;
use pegboard::printable::{printable, printable_json};
use pegboard::redact::Redactor;
use pegboard::secret::Secret;
use pegboard::telemetry::{stderr_size, write_above_live_lines};
use serde::Serialize;
use serde_json::Value;

use super::format::fit;
use super::{CliError, Globals, OutputFormat, notice, style};
use crate::environment;

/// Set once writing to standard output failed.
static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);
/// Error of writing to standard output, unless the pipe was closed.
static WRITE_ERROR: OnceLock<String> = OnceLock::new();

/// Set while the current line of standard error is redrawn in place.
static IS_DRAWN: AtomicBool = AtomicBool::new(false);

/// Clears the current line.
const ERASE: &str = "\r\u{1b}[2K";

/// Known secrets, which must not reach standard error: other programs collect it.
static REDACTOR: ArcSwapOption<Redactor> = ArcSwapOption::const_empty();
static SECRETS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Redacts these secrets, and the earlier ones, from everything that is written to standard error from now on: a server
/// may still use a secret that its configuration no longer has.
pub(crate) fn redact<'s>(secrets: impl IntoIterator<Item = &'s Secret>) {
    let mut known = SECRETS.lock();
    let n_before = known.len();
    known.extend(secrets.into_iter().map(|secret| secret.reveal().to_owned()));
    if known.len() > n_before {
        REDACTOR.store(Some(Arc::new(Redactor::with_escapes(&*known))));
    }
}

/// Redacts known secrets from a text.
pub(crate) fn redacted(text: &str) -> String {
    match &*REDACTOR.load() {
        Some(redactor) => redactor.text(text).into_owned(),
        None => text.to_owned(),
    }
}

/// Renders a text for standard error.
fn render_error(text: &str) -> String {
    style::render(&redacted(text))
}

/// Prints a result and ends its line. Write errors are recorded, not returned.
pub(crate) fn text(text: &str) {
    erase_drawn();
    let mut output = anstream::stdout().lock();
    let text = style::render(text);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    record_error(&write!(output, "{text}{end}").and_then(|()| output.flush()));
}

/// Prints a result that is JSON and ends its line.
pub(crate) fn json(json: &str) {
    text(&printable_json(json));
}

/// Prints a result that is JSON as one line.
pub(crate) fn json_line(document: &RawJson) {
    json(&document.single_line());
}

/// Prints a line to standard error.
pub(crate) fn error_line(text: &str) {
    if write_above_live_lines(&format!("{}\n", rendered(text))) {
        return;
    }
    erase_drawn();
    // There is no other place to report the error.
    let _ = writeln!(anstream::stderr().lock(), "{}", render_error(text));
}

/// Prints a line to standard error as it is, for a user at the terminal who decides about what may look like a secret.
pub(crate) fn unredacted_line(text: &str) {
    erase_drawn();
    let _ = writeln!(anstream::stderr().lock(), "{}", style::render(text));
}

/// Prints a line of JSON to standard error.
pub(crate) fn error_json(json: &str) {
    error_line(&printable_json(json));
}

/// Prints a text to standard error, where the answer to it is typed.
pub(crate) fn prompt(text: &str) {
    erase_drawn();
    let mut output = anstream::stderr().lock();
    let _ = write!(output, "{}", render_error(text)).and_then(|()| output.flush());
}

/// Replaces the current line of standard error by a text.
pub(crate) fn redraw(text: &str) {
    IS_DRAWN.store(!text.is_empty(), Ordering::Relaxed);
    // A terminal without colors still knows how to erase.
    let _ = write!(std::io::stderr().lock(), "{ERASE}{}", rendered(text));
}

/// Erases a line that is redrawn in place, so that another text does not begin behind it.
fn erase_drawn() {
    if IS_DRAWN.load(Ordering::Relaxed) {
        redraw("");
    }
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

/// Number of columns of the terminal on standard output, if it is one.
#[cfg(unix)]
pub(crate) fn width() -> Option<usize> {
    width_of(&std::io::stdout())
}

/// Number of columns of the terminal on standard error, if it is one.
pub(crate) fn error_width() -> Option<usize> {
    stderr_size().map(|(columns, _)| columns)
}

/// Returns `true` if lines on standard error can be redrawn: it is a terminal that knows control sequences.
pub(crate) fn can_redraw() -> bool {
    std::io::stderr().is_terminal() && environment::var("TERM").is_none_or(|term| term != "dumb")
}

/// Renders a text for standard error; without colors where they are off.
pub(crate) fn rendered(text: &str) -> String {
    let text = render_error(text);
    match anstream::AutoStream::choice(&std::io::stderr()) {
        anstream::ColorChoice::Never => anstream::adapter::strip_str(&text).to_string(),
        _ => text,
    }
}

#[cfg(unix)]
fn width_of(stream: &impl std::os::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// The size of a terminal is unknown on this platform.
#[cfg(not(unix))]
pub(crate) fn width() -> Option<usize> {
    None
}

/// Writes bytes verbatim to a file or another program, never to a terminal.
pub(crate) fn bytes(bytes: &[u8]) {
    let mut output = std::io::stdout().lock();
    record_error(&output.write_all(bytes).and_then(|()| output.flush()));
}

/// Prints a list: one item per line as NDJSON, or else one document.
pub(crate) fn list(format: OutputFormat, list: &Value) {
    match (format, list) {
        (OutputFormat::Ndjson, Value::Array(items)) => items.iter().for_each(|item| json(&item.to_string())),
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
                text(&fit(&as_text, width()));
            }
        }
        OutputFormat::Json => json(&format!("{:#}", value(document))),
        OutputFormat::Ndjson => json(&value(document).to_string()),
        OutputFormat::Yaml => yaml(&value(document)),
    }
}

/// Prints a document as YAML. With characters that are not printable it is JSON, which is YAML, too: only quoted
/// scalars have escapes.
fn yaml(document: &Value) {
    let yaml = serde_saphyr::to_string(document).unwrap_or_default();
    if printable(&yaml) == yaml { text(&yaml) } else { json(&format!("{document:#}")) }
}

/// Prints JSON from a server or tool without loss of precision, where the format allows it.
pub(crate) fn raw_json(format: OutputFormat, document: &RawJson) {
    match format {
        OutputFormat::Text | OutputFormat::Json => json(&document.indented()),
        OutputFormat::Ndjson => json_line(document),
        OutputFormat::Yaml => self::document(format, &document.to_value(), String::new),
    }
}

fn value(document: &impl Serialize) -> Value {
    serde_json::to_value(document).unwrap_or_default()
}
