//! Answer of a tool: printed, or saved to files.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pegboard::json::RawJson;
use serde_json::Value;

use super::super::output::short;
use super::super::trace::TRACE_DIGITS;
use crate::api_client::{ApiClient, ApiPath};
use crate::cli::format::{DIM, GREEN, PLAIN, RED, format_millis, json_millis, one_line, size};
use crate::cli::{CliError, print};

/// API response to a completed call.
pub(in crate::commands) struct ToolAnswer {
    response: RawJson,
    value: Value,
    /// Full text, if the output was stored because of its size.
    whole: Option<String>,
}

/// Part of an answer.
#[derive(Debug, PartialEq)]
enum AnswerPart {
    Text(String),
    Json(String),
    /// Binary data and its MIME type.
    Bytes {
        bytes: Vec<u8>,
        kind: String,
    },
    /// Link to a resource.
    Link(String),
}

impl ToolAnswer {
    pub(in crate::commands) fn new(response: RawJson) -> Self {
        let value = response.to_value();
        Self { response, value, whole: None }
    }

    /// Returns `true` if the tool reported an error.
    pub(in crate::commands) fn is_error(&self) -> bool {
        self.value["isError"] == true
    }

    /// The response as JSON.
    pub(in crate::commands) fn document(&self) -> &Value {
        &self.value
    }

    /// The response verbatim.
    pub(super) fn response(&self) -> &RawJson {
        &self.response
    }

    /// The tool's result verbatim.
    pub(super) fn raw_result(&self) -> RawJson {
        self.response.get("result").unwrap_or_else(RawJson::empty_object)
    }

    /// Warnings about the call.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        let warnings = self.value["warnings"].as_array().into_iter().flatten();
        warnings.filter_map(Value::as_str).map(|warning| one_line(warning, 400))
    }

    /// Trace id of the call.
    pub(in crate::commands) fn trace(&self) -> &str {
        self.value["traceId"].as_str().unwrap_or("last")
    }

    /// Loads the full text if the output was stored because of its size.
    pub(super) async fn load_stored(&mut self, api: &ApiClient) {
        if let Some(handle) = self.value["storedAs"].as_str()
            // On an error the preview is used.
            && let Ok(bytes) = api.bytes(&ApiPath::new(&["outputs", handle])).await
        {
            self.whole = Some(String::from_utf8_lossy(&bytes).into_owned());
        }
    }

    /// Prints the answer. Binary data is replaced by a note.
    pub(super) fn print(&self) {
        for part in self.parts() {
            match (part, print::is_terminal()) {
                (AnswerPart::Text(text) | AnswerPart::Link(text), _) => print::text(&text),
                (AnswerPart::Json(json), _) => print::json(&json),
                (AnswerPart::Bytes { bytes, kind }, true) => print::text(&binary_note(&bytes, &kind)),
                (AnswerPart::Bytes { bytes, kind }, false) => print::error_line(&binary_note(&bytes, &kind)),
            }
        }
    }

    /// Saves the answer to files: binary data, or else the text. Returns a line per file.
    pub(super) fn save(&self, path: &Path) -> Result<Vec<String>, CliError> {
        let mut files = Vec::new();
        let mut texts = Vec::new();
        for part in self.parts() {
            match part {
                AnswerPart::Bytes { bytes, kind } => files.push((bytes, kind)),
                AnswerPart::Text(text) | AnswerPart::Json(text) | AnswerPart::Link(text) => texts.push(text),
            }
        }
        if files.is_empty() {
            files.push((texts.join("\n").into_bytes(), "text".to_owned()));
        }
        let mut saved = Vec::new();
        for (index, (bytes, kind)) in files.iter().enumerate() {
            let path = numbered(path, index);
            std::fs::write(&path, bytes)
                .map_err(|error| CliError::system(format!("cannot write {}: {error}", path.display())))?;
            saved.push(format!("{}  {}  {kind}", path.display(), size(bytes.len() as u64)));
        }
        Ok(saved)
    }

    /// One-line summary of the call.
    pub(in crate::commands) fn footer(&self) -> String {
        let number = |name: &str| self.value[name].as_u64().unwrap_or_default();
        let mark = if self.is_error() { format!("{RED}✗{PLAIN}") } else { format!("{GREEN}✓{PLAIN}") };
        let mut parts = vec![
            format!("{mark} {}", format_millis(json_millis(&self.value["durationMs"]))),
            size(number("bytes")),
        ];
        if self.value["cached"] == true {
            parts.push("cached".to_owned());
        }
        if let Some(tool) = self.value["correctedFrom"].as_str() {
            parts.push(format!("resolved from {}", one_line(tool, 80)));
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

    fn parts(&self) -> Vec<AnswerPart> {
        if let Some(whole) = &self.whole {
            return vec![AnswerPart::Text(whole.clone())];
        }
        let result = &self.value["result"];
        let content = result["content"].as_array().into_iter().flatten();
        let parts: Vec<AnswerPart> = content.map(content_part).collect();
        if parts.is_empty()
            && let Some(structured) = self.raw_result().get("structuredContent")
        {
            return vec![AnswerPart::Json(structured.as_str().to_owned())];
        }
        parts
    }
}

fn content_part(content: &Value) -> AnswerPart {
    let text = |name: &str| content[name].as_str();
    match text("type") {
        Some("text") => AnswerPart::Text(text("text").unwrap_or_default().to_owned()),
        Some("image" | "audio") => bytes(&content["data"], &content["mimeType"]),
        Some("resource_link") => {
            let name = text("title").or(text("name")).unwrap_or_default();
            AnswerPart::Link(format!(
                "{}  {}",
                one_line(name, 200),
                one_line(text("uri").unwrap_or_default(), 2_000)
            ))
        }
        Some("resource") => {
            let resource = &content["resource"];
            match resource["text"].as_str() {
                Some(text) => AnswerPart::Text(text.to_owned()),
                None => bytes(&resource["blob"], &resource["mimeType"]),
            }
        }
        _ => AnswerPart::Json(content.to_string()),
    }
}

fn bytes(data: &Value, kind: &Value) -> AnswerPart {
    let bytes = STANDARD.decode(data.as_str().unwrap_or_default()).unwrap_or_default();
    AnswerPart::Bytes { bytes, kind: one_line(kind.as_str().unwrap_or("unknown type"), 100) }
}

/// Note in place of binary data.
fn binary_note(bytes: &[u8], kind: &str) -> String {
    format!("[{kind}, {}: save with --save FILE]", size(bytes.len() as u64))
}

/// File name with a number for all but the first: `a.png`, `a-2.png`, …
fn numbered(path: &Path, index: usize) -> PathBuf {
    if index == 0 {
        return path.to_owned();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut name = format!("{stem}-{}", index + 1);
    if let Some(extension) = path.extension() {
        name = format!("{name}.{}", extension.to_string_lossy());
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(result: &str) -> ToolAnswer {
        let response = json!({"callId": "1", "traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "isError": false, "durationMs": 411.7,
            "bytes": 9_849, "cached": true, "storedAs": "session-1/d33d49fc-069c", "warnings": ["late"]});
        ToolAnswer::new(
            RawJson::from(response).with("result", &RawJson::parse(result.to_owned().into()).unwrap()),
        )
    }

    #[test]
    fn the_footer_summarizes_the_call() {
        let footer = answer("{}").footer();
        let footer = anstream::adapter::strip_str(&footer).to_string();
        insta::assert_snapshot!(footer, @"✓ 412 ms  9.8 kB  cached  stored: pegboard output cat d33d49fc  trace 4bf92f35 (pegboard trace last)");
    }

    #[test]
    fn every_content_type_is_converted() {
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
        insta::assert_debug_snapshot!(answer.parts(), @r#"
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
                kind: "unknown type",
            },
            Json(
                "{\"type\":\"hologram\",\"x\":1}",
            ),
        ]
        "#);
    }

    #[test]
    fn large_numbers_keep_all_digits() {
        let answer = answer(r#"{"content":[],"structuredContent":{"b":12345678901234567890123, "a":1e2}}"#);
        assert_eq!(
            answer.parts(),
            [AnswerPart::Json(r#"{"b":12345678901234567890123, "a":1e2}"#.to_owned())]
        );
    }

    #[test]
    fn binary_content_is_saved_to_files() {
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
