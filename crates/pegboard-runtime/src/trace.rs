//! Trace records of calls, for people and models to review later.
//!
//! A record states the tool, the purpose and the outcome of a call, and its arguments where payloads are recorded.
//! Every part is bounded in size, and secrets are redacted.

use std::time::{SystemTime, UNIX_EPOCH};

use indexmap::{IndexMap, IndexSet};
use pegboard_core::store::TraceRecord;
use serde_json::{Map, Value, json};

use crate::sessions::{CallPurpose, non_blank_text, without_context};
use pegboard_core::redact::{redacted, redacted_members};

/// Maximum size of the recorded arguments, in bytes of JSON; larger ones are omitted.
const MAX_ARGUMENTS: usize = 16 * 1024;
/// Maximum size of each free-form context value, in bytes of JSON.
const MAX_CONTEXT_VALUE: usize = 4 * 1024;
/// Maximum length of each context string and of an error message, in characters.
const MAX_TEXT: usize = 1_000;
/// Maximum length of the summary sentence, in characters.
const MAX_CONTENT: usize = 500;
/// Maximum length of a name given by the caller, in characters.
const MAX_NAME: usize = 200;
/// Maximum number of files listed in a record.
const MAX_FILES: usize = 100;
/// Maximum total length of their paths, in bytes.
const MAX_FILES_BYTES: usize = 16 * 1024;

/// A finished call to be recorded.
///
/// ```
/// use pegboard_runtime::sessions::CallPurpose;
/// use pegboard_runtime::trace::{RecordedPayload, TracedCall};
/// use serde_json::json;
/// use std::time::UNIX_EPOCH;
///
/// let arguments = json!({"filePath": "notes/a.md"});
/// let call = TracedCall {
///     session: Some("s-20260102030405"),
///     workspace: "default",
///     purpose: CallPurpose::default(),
///     agent: "files",
///     mode: Some("read"),
///     arguments: arguments.as_object().unwrap(),
///     response: None,
///     payload: RecordedPayload::Full,
///     outcome: Ok(()),
///     now: UNIX_EPOCH,
/// };
/// assert_eq!(call.record().unwrap().content, "Successfully executed files.read on file: notes/a.md");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TracedCall<'a> {
    /// Session in which it was made. Without one there is no record.
    pub session: Option<&'a str>,
    /// Workspace in which it was made.
    pub workspace: &'a str,
    /// Purpose of the call.
    pub purpose: CallPurpose<'a>,
    /// Server of the tool.
    pub agent: &'a str,
    /// Name of the tool; `None` if the caller chose it by a `mode` argument.
    pub mode: Option<&'a str>,
    /// Arguments as received.
    pub arguments: &'a Map<String, Value>,
    /// Structured content of the answer, if any.
    pub response: Option<&'a Value>,
    /// Treatment of the arguments and of the files in the answer.
    pub payload: RecordedPayload,
    /// Success, or the failure.
    pub outcome: Result<(), CallFailure<'a>>,
    /// End time.
    pub now: SystemTime,
}

/// Treatment of arguments and answers in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedPayload {
    /// The arguments are recorded, and the files that the call concerned.
    Full,
    /// Neither arguments nor what derives from them or from the answer is recorded.
    Omitted,
}

/// Details of a failed call, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallFailure<'a> {
    /// Error kind.
    pub kind: Option<&'a str>,
    /// Error message.
    pub message: Option<&'a str>,
    /// Error code.
    pub code: Option<&'a str>,
}

impl TracedCall<'_> {
    /// Builds the record of the call, if it was made in a session.
    pub fn record(&self) -> Option<TraceRecord> {
        let session = self.session?;
        let (agent, mode) = (truncate_chars(self.agent, MAX_NAME), truncate_chars(self.mode(), MAX_NAME));
        let id = format!("{agent}.{mode}");
        Some(TraceRecord {
            workspace_id: self.workspace.to_owned(),
            session_id: session.to_owned(),
            kind: "tool_call".to_owned(),
            content: self.content(&id),
            timestamp: millis(self.now),
            metadata: json!({
                "schemaVersion": 1,
                "tool": {"id": id, "agent": agent, "mode": mode},
                "context": self.context(session),
                "input": self.input(),
                "outcome": self.outcome(),
            }),
        })
    }

    fn mode(&self) -> &str {
        let inner = |key: &str| member(self.arguments.get(key), "mode").and_then(non_blank_text);
        self.mode
            .or_else(|| self.arguments.get("mode").and_then(non_blank_text))
            .or_else(|| inner("params"))
            .or_else(|| inner("arguments"))
            .unwrap_or("unknown")
    }

    fn input(&self) -> Value {
        match self.payload {
            RecordedPayload::Full => json!({"arguments": self.bounded_arguments(), "files": self.files()}),
            RecordedPayload::Omitted => {
                json!({"arguments": {"omitted": "tracePayloads is off"}, "files": []})
            }
        }
    }

    fn content(&self, id: &str) -> String {
        let done = if self.outcome.is_ok() { "Successfully executed" } else { "Failed to execute" };
        if self.payload == RecordedPayload::Omitted {
            return truncate_chars(&format!("{done} {id}"), MAX_CONTENT);
        }
        let text_of = |key: &str| {
            let inner = || member(self.arguments.get("params"), key);
            self.arguments.get(key).and_then(non_blank_text).or_else(|| inner().and_then(non_blank_text))
        };
        let object = match (text_of("filePath"), text_of("query")) {
            (Some(file), _) => format!(" on file: {}", truncate_chars(file, MAX_CONTENT)),
            (None, Some(query)) => format!(" with query: \"{}\"", truncate_chars(query, MAX_CONTENT)),
            (None, None) => String::new(),
        };
        truncate_chars(&format!("{done} {id}{object}"), MAX_CONTENT)
    }

    fn context(&self, session: &str) -> Map<String, Value> {
        let purpose = &self.purpose;
        let text_of = |text: Option<&str>| text.map(|text| truncate_chars(text, MAX_TEXT).into());
        let free =
            |value: Option<&Value>| value.map(|value| value_or_omitted(redacted(value), MAX_CONTEXT_VALUE));
        let members = [
            ("workspaceId", Some(self.workspace.into())),
            ("sessionId", Some(session.into())),
            ("sessionDescription", text_of(purpose.session_description)),
            ("sessionMemory", text_of(purpose.session_memory)),
            ("toolContext", text_of(purpose.tool_context)),
            ("primaryGoal", text_of(purpose.primary_goal)),
            ("subgoal", text_of(purpose.subgoal)),
            ("tags", free(purpose.tags)),
            ("additionalContext", free(purpose.additional_context)),
        ];
        members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }

    fn bounded_arguments(&self) -> Value {
        value_or_omitted(Value::Object(redacted_members(without_context(self.arguments))), MAX_ARGUMENTS)
    }

    fn outcome(&self) -> Value {
        let Err(failure) = &self.outcome else { return json!({"success": true}) };
        let message = failure.message.map(str::trim).filter(|message| !message.is_empty());
        let members = [
            ("type", failure.kind),
            ("message", Some(message.unwrap_or("Unknown error"))),
            ("code", failure.code),
        ];
        let known =
            members.into_iter().filter_map(|(key, value)| Some((key, truncate_chars(value?, MAX_TEXT))));
        json!({"success": false, "error": known.collect::<IndexMap<_, _>>()})
    }

    /// Returns the distinct files that the call concerned, in order of appearance.
    fn files(&self) -> Vec<&str> {
        let (arguments, params) = (self.arguments, self.arguments.get("params"));
        let named = [arguments.get("filePath"), member(params, "filePath"), arguments.get("paths")];
        let operations = arguments.get("operations").and_then(Value::as_array).into_iter().flatten();
        let changed = operations.flat_map(|operation| {
            let params = operation.get("params");
            [
                member(params, "filePath"),
                member(params, "path"),
                operation.get("filePath"),
                operation.get("path"),
            ]
        });
        let answered = ["filePath", "files", "affectedFiles", "createdFiles", "modifiedFiles"]
            .map(|key| member(self.response, key));
        let mut files = IndexSet::new();
        let mut room = MAX_FILES_BYTES;
        for file in named.into_iter().chain(changed).chain(answered).flatten().flat_map(texts) {
            if files.len() == MAX_FILES || file.len() > room {
                break;
            }
            if files.insert(file) {
                room -= file.len();
            }
        }
        files.into_iter().collect()
    }
}

fn member<'a>(value: Option<&'a Value>, key: &str) -> Option<&'a Value> {
    value?.get(key)
}

/// Returns the string of a value, or the strings of a list.
fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice).iter().filter_map(non_blank_text)
}

/// Returns the value, or a placeholder with its size if it is too large.
fn value_or_omitted(value: Value, max_bytes: usize) -> Value {
    let n_bytes = value.to_string().len();
    if n_bytes > max_bytes { json!({"omitted": "too large", "bytes": n_bytes}) } else { value }
}

/// Truncates a text to a number of characters.
fn truncate_chars(text: &str, max_characters: usize) -> String {
    match text.char_indices().nth(max_characters) {
        None => text.to_owned(),
        Some(_) => text.chars().take(max_characters - 1).chain(['…']).collect(),
    }
}

fn millis(moment: SystemTime) -> u64 {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
