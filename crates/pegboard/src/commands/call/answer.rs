//! The answer of a tool, as people, programs and files get it.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pegboard::json::RawJson;
use serde_json::Value;

use super::super::output::short;
use super::super::trace::TRACE_DIGITS;
use crate::cli::words::{DIM, GREEN, PLAIN, RED, harmless, millis, one_line, size, took};
use crate::cli::{Failure, print};
use crate::desk::{Address, Desk};

/// What a gateway told of a call that has been answered.
pub(in crate::commands) struct Answer {
    told: RawJson,
    value: Value,
    /// All of the text, if it was stored because it is long.
    whole: Option<String>,
}

/// A piece of an answer.
#[derive(Debug, PartialEq)]
enum Piece {
    Text(String),
    /// Bytes that are no text, and what they are.
    Bytes {
        bytes: Vec<u8>,
        kind: String,
    },
    /// Something that is elsewhere.
    Link(String),
}

impl Answer {
    pub(in crate::commands) fn new(told: RawJson) -> Self {
        let value = told.to_value();
        Self { told, value, whole: None }
    }

    /// Whether the tool reports a failure.
    pub(in crate::commands) fn is_error(&self) -> bool {
        self.value["isError"] == true
    }

    /// What the gateway told.
    pub(in crate::commands) fn document(&self) -> &Value {
        &self.value
    }

    /// The same as it was told.
    pub(super) fn told(&self) -> &RawJson {
        &self.told
    }

    /// The answer as the tool gave it.
    pub(super) fn raw(&self) -> RawJson {
        self.told.get("result").unwrap_or_else(RawJson::empty_object)
    }

    /// What else should be known.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        let warnings = self.value["warnings"].as_array().into_iter().flatten();
        warnings.filter_map(Value::as_str).map(|warning| one_line(warning, 400))
    }

    /// The trace of the call.
    pub(in crate::commands) fn trace(&self) -> &str {
        self.value["traceId"].as_str().unwrap_or("last")
    }

    /// Has the whole text, if it was too large to hand over: it was stored, and is read back.
    pub(super) async fn complete(&mut self, desk: &Desk) {
        if let Some(handle) = self.value["storedAs"].as_str()
            // Without it there is still what the gateway handed over.
            && let Ok(bytes) = desk.bytes(&Address::of(&["outputs", handle])).await
        {
            self.whole = Some(String::from_utf8_lossy(&bytes).into_owned());
        }
    }

    /// Prints it: for programs every text as it is; for people without what a terminal would obey, and with a line for
    /// what is no text.
    pub(super) fn print(&self) {
        for piece in self.pieces() {
            match (piece, print::is_for_people()) {
                (Piece::Text(text), true) => print::text(&harmless(&text)),
                (Piece::Text(text), false) => print::exactly(text.as_bytes()),
                (Piece::Link(link), _) => print::text(&link),
                (Piece::Bytes { bytes, kind }, true) => print::text(&note(&bytes, &kind)),
                (Piece::Bytes { bytes, kind }, false) => anstream::eprintln!("{}", note(&bytes, &kind)),
            }
        }
    }

    /// Keeps it in files, and tells in which: what is no text, or else the text.
    pub(super) fn save(&self, path: &Path) -> Result<Vec<String>, Failure> {
        let mut files = Vec::new();
        let mut texts = Vec::new();
        for piece in self.pieces() {
            match piece {
                Piece::Bytes { bytes, kind } => files.push((bytes, kind)),
                Piece::Text(text) | Piece::Link(text) => texts.push(text),
            }
        }
        if files.is_empty() {
            files.push((texts.join("\n").into_bytes(), "text".to_owned()));
        }
        let mut saved = Vec::new();
        for (place, (bytes, kind)) in files.iter().enumerate() {
            let path = numbered(path, place);
            std::fs::write(&path, bytes)
                .map_err(|error| Failure::system(format!("{} cannot be written: {error}", path.display())))?;
            saved.push(format!("{}  {}  {kind}", path.display(), size(bytes.len() as u64)));
        }
        Ok(saved)
    }

    /// How it went, in one line.
    pub(in crate::commands) fn footer(&self) -> String {
        let number = |name: &str| self.value[name].as_u64().unwrap_or_default();
        let mark = if self.is_error() { format!("{RED}✗{PLAIN}") } else { format!("{GREEN}✓{PLAIN}") };
        let mut parts =
            vec![format!("{mark} {}", took(millis(&self.value["durationMs"]))), size(number("bytes"))];
        if self.value["cached"] == true {
            parts.push("from the cache".to_owned());
        }
        if let Some(tool) = self.value["correctedFrom"].as_str() {
            parts.push(format!("meant by {}", one_line(tool, 80)));
        }
        if let Some(handle) = self.value["storedAs"].as_str() {
            parts.push(format!("stored: pegboard output cat {}", short(handle)));
        }
        if let Some(trace) = self.value["traceId"].as_str() {
            let trace: String = trace.chars().take(TRACE_DIGITS).collect();
            parts.push(format!("{DIM}trace {trace} (pegboard trace last){PLAIN}"));
        }
        parts.join("  ")
    }

    fn pieces(&self) -> Vec<Piece> {
        if let Some(whole) = &self.whole {
            return vec![Piece::Text(whole.clone())];
        }
        let result = &self.value["result"];
        let content = result["content"].as_array().into_iter().flatten();
        let pieces: Vec<Piece> = content.map(piece).collect();
        if pieces.is_empty()
            && let Some(structured) = self.raw().get("structuredContent")
        {
            return vec![Piece::Text(structured.as_str().to_owned())];
        }
        pieces
    }
}

fn piece(content: &Value) -> Piece {
    let text = |name: &str| content[name].as_str();
    match text("type") {
        Some("text") => Piece::Text(text("text").unwrap_or_default().to_owned()),
        Some("image" | "audio") => bytes(&content["data"], &content["mimeType"]),
        Some("resource_link") => {
            let name = text("title").or(text("name")).unwrap_or_default();
            Piece::Link(format!(
                "{}  {}",
                one_line(name, 200),
                one_line(text("uri").unwrap_or_default(), 2_000)
            ))
        }
        Some("resource") => {
            let resource = &content["resource"];
            match resource["text"].as_str() {
                Some(text) => Piece::Text(text.to_owned()),
                None => bytes(&resource["blob"], &resource["mimeType"]),
            }
        }
        _ => Piece::Text(content.to_string()),
    }
}

fn bytes(data: &Value, kind: &Value) -> Piece {
    let bytes = STANDARD.decode(data.as_str().unwrap_or_default()).unwrap_or_default();
    Piece::Bytes { bytes, kind: one_line(kind.as_str().unwrap_or("bytes of no known kind"), 100) }
}

/// A line in the place of what a terminal cannot show.
fn note(bytes: &[u8], kind: &str) -> String {
    format!("[{kind}, {}: --save FILE keeps it]", size(bytes.len() as u64))
}

/// A name for one of several files: `a.png`, `a-2.png`, …
fn numbered(path: &Path, place: usize) -> PathBuf {
    if place == 0 {
        return path.to_owned();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut name = format!("{stem}-{}", place + 1);
    if let Some(extension) = path.extension() {
        name = format!("{name}.{}", extension.to_string_lossy());
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(result: &str) -> Answer {
        let told = json!({"callId": "1", "traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "isError": false, "durationMs": 411.7,
            "bytes": 9_849, "cached": true, "storedAs": "session-1/d33d49fc-069c", "warnings": ["late"]});
        Answer::new(RawJson::from(told).with("result", &RawJson::parse(result.to_owned().into()).unwrap()))
    }

    #[test]
    fn an_answer_ends_with_how_it_went() {
        let footer = answer("{}").footer();
        let footer = anstream::adapter::strip_str(&footer).to_string();
        insta::assert_snapshot!(footer, @"✓ 412 ms  9.8 kB  from the cache  stored: pegboard output cat d33d49fc  trace 4bf92f35 (pegboard trace last)");
    }

    #[test]
    fn every_kind_of_content_is_a_piece() {
        let answer = answer(
            r#"{"content": [
                {"type": "text", "text": "Hi"},
                {"type": "image", "data": "AAEC", "mimeType": "image/png"},
                {"type": "resource_link", "uri": "file:///a", "name": "a"},
                {"type": "resource", "resource": {"uri": "b", "text": "inside"}},
                {"type": "resource", "resource": {"uri": "c", "blob": "AA=="}},
                {"type": "hologram", "x": 1}
            ]}"#,
        );
        insta::assert_debug_snapshot!(answer.pieces(), @r#"
        [
            Text(
                "Hi",
            ),
            Bytes {
                bytes: [
                    0,
                    1,
                    2,
                ],
                kind: "image/png",
            },
            Link(
                "a  file:///a",
            ),
            Text(
                "inside",
            ),
            Bytes {
                bytes: [
                    0,
                ],
                kind: "bytes of no known kind",
            },
            Text(
                "{\"type\":\"hologram\",\"x\":1}",
            ),
        ]
        "#);
    }

    #[test]
    fn numbers_that_no_float_holds_stay_as_they_are() {
        let answer = answer(r#"{"content":[],"structuredContent":{"b":12345678901234567890123, "a":1e2}}"#);
        assert_eq!(answer.pieces(), [Piece::Text(r#"{"b":12345678901234567890123, "a":1e2}"#.to_owned())]);
    }

    #[test]
    fn what_is_no_text_is_kept_in_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        let images = r#"{"content": [{"type": "text", "text": "Two"}, {"type": "image", "data": "AAEC", "mimeType": "image/png"}, {"type": "image", "data": "AA==", "mimeType": "image/png"}]}"#;
        assert_eq!(answer(images).save(&path).unwrap().len(), 2);
        assert_eq!(std::fs::read(&path).unwrap(), [0, 1, 2]);
        assert_eq!(std::fs::read(folder.path().join("a-2.png")).unwrap(), [0]);
        answer(r#"{"content": [{"type": "text", "text": "One"}]}"#).save(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"One");
    }
}
