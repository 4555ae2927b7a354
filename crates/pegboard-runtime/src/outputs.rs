//! Stored outputs: answers too large to return, read back and passed to other tools by handle.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use pegboard_core::arguments::CallArguments;
use pegboard_core::error::CallError;
use pegboard_core::output::Output;
use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::store::{OutputHandle, OutputStore, StoreError, StoredOutput};
use pegboard_core::text::clipped;
use pegboard_core::validation::Violation;
use pegboard_json::RawJson;
use serde_json::{Map, Value, json};
use tracing::warn;

use crate::call::admit::AdmittedCall;
use crate::caller::Caller;
use crate::event::{RuntimeEvent, StoreReason};
use crate::output_query::{self, JsonPath, OutputStats};
use crate::random;

mod extract;
mod tool;

pub(crate) use tool::tool_output;

/// Key of an argument object that refers to a stored output.
const REFERENCE: &str = "$output";
/// Maximum number of references per call.
const MAX_REFERENCES: usize = 32;
/// Maximum total size of the referenced outputs per call, in bytes.
const MAX_REFERENCED_BYTES: usize = 16 << 20;
/// Maximum length of an invalid reference repeated in an error.
const MAX_ECHOED_BYTES: usize = 256;
/// Maximum size of the metadata passed on with a stored answer.
const MAX_META_BYTES: usize = 4_096;
/// Minimum size to which an answer is truncated.
const MIN_TRUNCATED_BYTES: usize = 256;

/// Access to the output store.
#[derive(Default)]
pub(crate) struct OutputStorage {
    store: Option<Arc<dyn OutputStore>>,
}

/// The body of an answer, as stored.
pub(crate) struct OutputBody {
    pub(crate) bytes: Bytes,
    pub(crate) content_type: &'static str,
}

impl OutputBody {
    /// Selects the readable part of an answer: its text, its structured content, or the whole result.
    pub(crate) fn of(output: &Output) -> Self {
        let result = output.is_from_server().then(|| output.to_result());
        let (bytes, is_json) = match result {
            None => (Bytes::from(output.text().into_owned()), false),
            Some(result) => match (result.get("structuredContent"), has_only_text(&result)) {
                (None, true) => (Bytes::from(output.text().into_owned()), false),
                (Some(structured), true) if is_same_json(&output.text(), &structured) => {
                    (structured.into_bytes(), true)
                }
                _ => (result.into_bytes(), true),
            },
        };
        let is_json = is_json || looks_like_json(&bytes);
        Self { bytes, content_type: if is_json { "application/json" } else { "text/plain" } }
    }

    /// Takes the whole result.
    pub(crate) fn whole(output: &Output) -> Self {
        Self { bytes: output.to_result().into_bytes(), content_type: "application/json" }
    }

    /// Returns the approximate number of tokens.
    pub(crate) fn n_tokens(&self) -> u64 {
        OutputStats::of(&self.bytes).n_tokens as u64
    }
}

fn has_only_text(result: &RawJson) -> bool {
    let is_text = |part: RawJson| part.get("type").is_some_and(|kind| kind.as_str() == r#""text""#);
    result.get("content").is_some_and(|content| content.items().all(is_text))
}

fn is_same_json(text: &str, structured: &RawJson) -> bool {
    text.is_empty()
        || RawJson::parse(Bytes::copy_from_slice(text.as_bytes()))
            .is_ok_and(|text| pegboard_json::canonical(&text) == pegboard_json::canonical(structured))
}

fn looks_like_json(bytes: &Bytes) -> bool {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    matches!(first, Some(b'{' | b'[')) && RawJson::parse(bytes.clone()).is_ok()
}

impl OutputStorage {
    pub(crate) fn new(store: Option<Arc<dyn OutputStore>>) -> Self {
        Self { store }
    }

    /// Returns `true` if there is an output store.
    pub(crate) fn is_enabled(&self) -> bool {
        self.store.is_some()
    }

    async fn store_output(
        &self,
        admitted: &AdmittedCall,
        body: &OutputBody,
    ) -> Result<OutputHandle, StoreError> {
        let shared = admitted.shared();
        let is_stored = shared.settings().tool_output.enabled && !admitted.call.context().options.cuts_output;
        let (store, true) = (self.store.as_deref(), is_stored) else {
            return Err(StoreError::Failed { reason: "storing outputs is disabled".to_owned() });
        };
        let store =
            store.ok_or_else(|| StoreError::Failed { reason: "no output store is configured".to_owned() })?;
        let caller = admitted.active_call.caller();
        let handle = OutputHandle(format!("{}/{}", caller.id(), random::uuid()));
        let now = shared.wall.now();
        let output = StoredOutput {
            body: body.bytes.clone(),
            content_type: body.content_type.to_owned(),
            tool: admitted.tool.flat_name.to_string(),
            session: caller.id().to_owned(),
            owner: caller.owner().clone(),
            created: now,
            expires: now.checked_add(shared.settings().tool_output.expires_after.into()).unwrap_or(now),
        };
        store.put(handle.clone(), output, now).await?;
        caller.mark_output_stored();
        Ok(handle)
    }

    /// Returns the output with a handle, if this caller may read it.
    pub(crate) async fn fetch(&self, caller: &Caller, handle: &str) -> Result<StoredOutput, FetchError> {
        let missing = || FetchError::Missing { handle: handle.chars().take(200).collect() };
        let store = self.store.as_deref().ok_or_else(missing)?;
        let now = caller.shared().wall.now();
        let (scope, key) = (OwnerScope::Only(caller.owner().clone()), OutputHandle(handle.to_owned()));
        let output = store.get(scope, key, now).await.map_err(FetchError::Store)?;
        // A caller must not learn whether a handle of another caller exists.
        output.filter(|output| output.session == caller.id()).ok_or_else(missing)
    }

    /// Removes the outputs stored for a session.
    pub(crate) async fn remove_session(&self, owner: Owner, session: String) {
        if let Some(store) = &self.store
            && let Err(error) = store.remove_session(owner, session).await
        {
            warn!(%error, "Cannot remove stored outputs; they expire later.");
        }
    }

    /// Returns `true` if the arguments may refer to stored outputs.
    pub(crate) fn may_refer(&self, arguments: &CallArguments) -> bool {
        self.is_enabled() && arguments.may_contain_key(REFERENCE)
    }

    /// Replaces every `{"$output": "<handle>#<json path>"}` in the arguments by the referenced value.
    pub(crate) async fn resolve_references(
        &self,
        caller: &Caller,
        arguments: CallArguments,
    ) -> Result<CallArguments, CallError> {
        let raw = arguments.raw();
        let references = raw.single_string_members(REFERENCE);
        if references.is_empty() {
            return Ok(arguments);
        }
        if references.len() > MAX_REFERENCES {
            return Err(invalid_reference(format!(
                "$: at most {MAX_REFERENCES} stored outputs can be referenced per call"
            )));
        }
        let mut parts = Vec::with_capacity(references.len());
        let mut n_bytes = 0;
        for (span, reference) in references {
            let filled = self.resolve_reference(caller, &reference).await;
            let filled = filled.map_err(|problem| {
                invalid_reference(format!(
                    "{{\"$output\": \"{}\"}}: {problem}",
                    clipped(&reference, MAX_ECHOED_BYTES)
                ))
            })?;
            n_bytes += filled.as_bytes().len();
            if n_bytes > MAX_REFERENCED_BYTES {
                let problem = format!("$: referenced outputs exceed {MAX_REFERENCED_BYTES} bytes");
                return Err(invalid_reference(problem));
            }
            parts.push((span, filled));
        }
        Ok(CallArguments::from(raw.spliced(&parts)))
    }

    async fn resolve_reference(&self, caller: &Caller, reference: &str) -> Result<RawJson, String> {
        let (handle, path) = reference.split_once('#').unwrap_or((reference, ""));
        let output = self.fetch(caller, handle).await.map_err(|error| error.to_string())?;
        if path.is_empty() {
            // Without a path: the parsed document if it is JSON, otherwise the text.
            let data = Some(&output.body).filter(|_| output.content_type == "application/json");
            return Ok(match data.and_then(|body| RawJson::parse(body.clone()).ok()) {
                Some(data) => data,
                None => RawJson::of(&String::from_utf8_lossy(&output.body)),
            });
        }
        let path = JsonPath::parse(path).map_err(|error| error.to_string())?;
        let found = tool::run_blocking(move |_| output_query::select_one(&output.body, &path)).await;
        let found = found.map_err(|error| error.to_string())?;
        found.map(RawJson::from).map_err(|error| error.to_string())
    }
}

fn invalid_reference(text: String) -> CallError {
    let violations = vec![Violation::new(text, "$: invalid reference to a stored output")];
    CallError::InvalidParameters { violations }
}

/// Error of reading a stored output.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// It does not exist, has expired, or belongs to another caller.
    #[error("No output is stored under the handle '{handle}' for this session; it may have expired")]
    Missing {
        /// The handle.
        handle: String,
    },
    /// The store failed.
    #[error("{0}")]
    Store(StoreError),
}

/// Replaces an answer that is too large by a handle if it can be stored, otherwise by its beginning and end.
pub(crate) async fn store_or_truncate(
    admitted: &AdmittedCall,
    output: &Output,
    body: OutputBody,
    reason: StoreReason,
    max_bytes: usize,
) -> Output {
    let shared = admitted.shared();
    let stats = OutputStats::of(&body.bytes);
    let stored = shared.outputs.store_output(admitted, &body).await;
    shared.events.emit(|| RuntimeEvent::OutputStored {
        call: admitted.info(),
        handle: stored.as_ref().ok().cloned(),
        reason,
        n_bytes: stats.n_bytes,
        n_lines: stats.n_lines,
        n_tokens: stats.n_tokens,
    });
    let result = match stored {
        Ok(handle) => {
            let result = handle_result(&handle, &stats, body.content_type, &admitted.tool.flat_name);
            admitted.active_call.recorder.meta().stored = Some(handle);
            result
        }
        Err(error) => {
            let is_wanted = !admitted.call.context().options.cuts_output;
            if shared.settings().tool_output.enabled && shared.outputs.is_enabled() && is_wanted {
                warn!(%error, "Cannot store an output; truncating it.");
            }
            let text = String::from_utf8_lossy(&body.bytes);
            let target = max_bytes.clamp(MIN_TRUNCATED_BYTES, text.len().max(MIN_TRUNCATED_BYTES));
            json!({"content": [{"type": "text", "text": truncate_output(&text, target, reason)}]})
        }
    };
    let Value::Object(mut result) = result else { return output.clone() };
    if output.is_error() {
        result.insert("isError".to_owned(), true.into());
    }
    copy_meta(output, &mut result);
    Output::result(RawJson::of(&result))
}

/// Truncates an answer to a size; if the token budget is exhausted, replaces it by a short notice.
fn truncate_output(text: &str, target: usize, reason: StoreReason) -> Cow<'_, str> {
    match reason {
        StoreReason::SizeCap => output_query::truncate_middle(text, target).into(),
        StoreReason::TokenBudget | StoreReason::ReserveFailed => {
            Cow::Borrowed("(tool failed: context window budget exceeded)")
        }
    }
}

/// Copies the server's metadata, unless it is large as well.
fn copy_meta(output: &Output, result: &mut Map<String, Value>) {
    if output.is_from_server()
        && let Some(meta) = output.to_result().get("_meta")
        && meta.as_bytes().len() <= MAX_META_BYTES
    {
        result.insert("_meta".to_owned(), meta.to_value());
    }
}

/// Returns the text that a model receives instead of the answer, and a link for its client.
fn handle_result(handle: &OutputHandle, stats: &OutputStats, content_type: &str, tool: &str) -> Value {
    let text = include_str!("outputs/stored.md")
        .trim_end()
        .replace("{bytes}", &stats.n_bytes.to_string())
        .replace("{lines}", &stats.n_lines.to_string())
        .replace("{tokens}", &stats.n_tokens.to_string())
        .replace("{handle}", &handle.0);
    json!({"content": [
        {"type": "text", "text": text},
        {
            "type": "resource_link",
            "uri": format!("pegboard://outputs/{handle}"),
            "name": format!("Output of {tool}"),
            "mimeType": content_type,
            "size": stats.n_bytes,
        },
    ]})
}
