//! Results on standard output.

use std::io::Write;

use serde::Serialize;
use serde_json::Value;

use super::Format;

/// Prints a result and ends its line. Whoever has stopped reading does not want it.
pub(crate) fn text(text: &str) {
    let mut output = anstream::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let _ = write!(output, "{text}{end}").and_then(|()| output.flush());
}

/// Prints a result as a document; `as_text` says how people want it.
pub(crate) fn document(format: Format, document: &impl Serialize, as_text: impl FnOnce() -> String) {
    match format {
        Format::Text => text(&as_text()),
        Format::Json => text(&format!("{:#}", value(document))),
        Format::Ndjson => text(&value(document).to_string()),
        Format::Yaml => text(&serde_saphyr::to_string(&value(document)).unwrap_or_default()),
    }
}

fn value(document: &impl Serialize) -> Value {
    serde_json::to_value(document).unwrap_or_default()
}
