//! Answers that are too large to hand over: stored, read back, and fed to other tools by their handles.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use pegboard_core::arguments::Arguments;
use pegboard_core::error::CallError;
use pegboard_core::output::Output;
use pegboard_core::store::{OutputHandle, OutputStore, StoreError, StoredOutput};
use pegboard_core::text::clipped;
use pegboard_core::validation::Violation;
use pegboard_json::RawJson;
use serde_json::{Map, Value, json};
use tracing::warn;
use uuid::Uuid;

use crate::caller::Caller;
use crate::event::{Event, StoreReason};
use crate::flight::Flight;
use crate::reading::{self, JsonPath, Stats};

mod model;
mod tool;

pub(crate) use tool::tool_output;

/// What an argument that stands for a stored output has as its only member.
const REFERENCE: &str = "$output";
/// How many stored outputs one call may be given.
const MAX_REFERENCES: usize = 32;
/// How many bytes of stored outputs one call may be given in all.
const MAX_FILLED_BYTES: usize = 16 << 20;
/// How much of a reference that leads nowhere is said again.
const MAX_SAID_BYTES: usize = 256;
/// How much a server may say beside its answer.
const MAX_META_BYTES: usize = 4_096;
/// The least that is left of an answer when it has to be cut.
const MIN_CUT_BYTES: usize = 256;

/// The stored outputs.
#[derive(Default)]
pub(crate) struct Outputs {
    store: Option<Arc<dyn OutputStore>>,
}

/// An answer as it is stored.
pub(crate) struct Body {
    pub(crate) bytes: Bytes,
    pub(crate) content_type: &'static str,
}

impl Body {
    /// What of an answer somebody would want to read: its text, its structured content, or all of it.
    pub(crate) fn of(output: &Output) -> Self {
        let result = output.is_from_server().then(|| output.to_result());
        let (bytes, is_json) = match result {
            None => (Bytes::from(output.text().into_owned()), false),
            Some(result) => match (result.get("structuredContent"), has_only_text(&result)) {
                (None, true) => (Bytes::from(output.text().into_owned()), false),
                (Some(structured), true) if is_same(&output.text(), &structured) => {
                    (structured.into_bytes(), true)
                }
                _ => (result.into_bytes(), true),
            },
        };
        let is_json = is_json || looks_like_json(&bytes);
        Self { bytes, content_type: if is_json { "application/json" } else { "text/plain" } }
    }

    /// The whole answer, with everything beside its text.
    pub(crate) fn whole(output: &Output) -> Self {
        Self { bytes: output.to_result().into_bytes(), content_type: "application/json" }
    }

    /// How many tokens it is, roughly.
    pub(crate) fn n_tokens(&self) -> u64 {
        Stats::of(&self.bytes).n_tokens as u64
    }
}

fn has_only_text(result: &RawJson) -> bool {
    let is_text = |part: RawJson| part.get("type").is_some_and(|kind| kind.as_str() == r#""text""#);
    result.get("content").is_some_and(|content| content.items().all(is_text))
}

fn is_same(text: &str, structured: &RawJson) -> bool {
    text.is_empty()
        || RawJson::parse(Bytes::copy_from_slice(text.as_bytes()))
            .is_ok_and(|text| pegboard_json::canonical(&text) == pegboard_json::canonical(structured))
}

fn looks_like_json(bytes: &Bytes) -> bool {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    matches!(first, Some(b'{' | b'[')) && RawJson::parse(bytes.clone()).is_ok()
}

impl Outputs {
    pub(crate) fn new(store: Option<Arc<dyn OutputStore>>) -> Self {
        Self { store }
    }

    /// Whether answers can be stored at all.
    pub(crate) fn is_on(&self) -> bool {
        self.store.is_some()
    }

    async fn keep(&self, flight: &Flight, body: &Body) -> Result<OutputHandle, StoreError> {
        let shared = flight.runtime();
        let is_stored = shared.settings().tool_output.enabled && !flight.call.context().options.cuts_output;
        let (store, true) = (self.store.as_deref(), is_stored) else {
            return Err(StoreError::Failed { reason: "outputs are not stored".to_owned() });
        };
        let store = store.ok_or_else(|| StoreError::Failed { reason: "there is no store".to_owned() })?;
        let caller = &flight.track.caller;
        let handle = OutputHandle(format!("{}/{}", caller.id(), Uuid::new_v4()));
        let now = shared.wall.now();
        let output = StoredOutput {
            body: body.bytes.clone(),
            content_type: body.content_type.to_owned(),
            tool: flight.tool.flat_name.to_string(),
            session: caller.id().to_owned(),
            principal: caller.owner().to_owned(),
            made: now,
            expires: now.checked_add(shared.settings().tool_output.expires_after.into()).unwrap_or(now),
        };
        store.put(handle.clone(), output, now).await?;
        caller.note_stored();
        Ok(handle)
    }

    /// The output under a handle, if this caller may read it.
    pub(crate) async fn fetch(&self, caller: &Caller, handle: &str) -> Result<StoredOutput, FetchError> {
        let missing = || FetchError::Missing { handle: handle.chars().take(200).collect() };
        let store = self.store.as_deref().ok_or_else(missing)?;
        let now = caller.shared().wall.now();
        let output = store.get(OutputHandle(handle.to_owned()), now).await.map_err(FetchError::Store)?;
        // Whether there is one for somebody else is nobody's business.
        output
            .filter(|output| output.session == caller.id() && output.principal == caller.owner())
            .ok_or_else(missing)
    }

    /// Forgets what was stored for a session.
    pub(crate) async fn forget(&self, session: String) {
        if let Some(store) = &self.store
            && let Err(error) = store.remove_session(session).await
        {
            warn!(%error, "Stored outputs could not be removed; they go when they expire.");
        }
    }

    /// The arguments with every `{"$output": "<handle>#<json path>"}` replaced by what it stands for.
    pub(crate) async fn filled(&self, caller: &Caller, arguments: Arguments) -> Result<Arguments, CallError> {
        if !self.is_on() || !arguments.may_mention(REFERENCE) {
            return Ok(arguments);
        }
        let raw = arguments.raw();
        let references = raw.lone_texts(REFERENCE);
        if references.is_empty() {
            return Ok(arguments);
        }
        if references.len() > MAX_REFERENCES {
            return Err(refused(format!(
                "$: at most {MAX_REFERENCES} stored outputs can be given to one call"
            )));
        }
        let mut parts = Vec::with_capacity(references.len());
        let mut n_bytes = 0;
        for (span, reference) in references {
            let filled = self.resolve(caller, &reference).await;
            let filled = filled.map_err(|problem| {
                refused(format!("{{\"$output\": \"{}\"}}: {problem}", clipped(&reference, MAX_SAID_BYTES)))
            })?;
            n_bytes += filled.as_bytes().len();
            if n_bytes > MAX_FILLED_BYTES {
                let most = format!(
                    "$: stored outputs of more than {MAX_FILLED_BYTES} bytes are too much for one call"
                );
                return Err(refused(most));
            }
            parts.push((span, filled));
        }
        Ok(Arguments::from(raw.spliced(&parts)))
    }

    async fn resolve(&self, caller: &Caller, reference: &str) -> Result<RawJson, String> {
        let (handle, path) = reference.split_once('#').unwrap_or((reference, ""));
        let output = self.fetch(caller, handle).await.map_err(|error| error.to_string())?;
        if path.is_empty() {
            // The whole of it: data if it is JSON, else text.
            let data = Some(&output.body).filter(|_| output.content_type == "application/json");
            return Ok(match data.and_then(|body| RawJson::parse(body.clone()).ok()) {
                Some(data) => data,
                None => RawJson::of(&String::from_utf8_lossy(&output.body)),
            });
        }
        let path = JsonPath::parse(path).map_err(|error| error.to_string())?;
        let found = tool::aside(move |_| reading::select_one(&output.body, &path)).await;
        let found = found.map_err(|error| error.to_string())?;
        found.map(RawJson::from).map_err(|error| error.to_string())
    }
}

fn refused(text: String) -> CallError {
    let violations = vec![Violation::new(text, "$: a stored output cannot be filled in")];
    CallError::InvalidParameters { violations }
}

/// Why a stored output cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// There is none, none any more, or none for this caller.
    #[error("No output is stored under the handle '{handle}' for this session; it may have expired")]
    Missing {
        /// The handle.
        handle: String,
    },
    /// The store does not answer.
    #[error("{0}")]
    Store(StoreError),
}

/// What a caller gets in place of an answer that is too large: a handle if it could be stored, else the ends of it.
pub(crate) async fn replace(
    flight: &Flight,
    output: &Output,
    body: Body,
    reason: StoreReason,
    max_bytes: usize,
) -> Output {
    let shared = flight.runtime();
    let stats = Stats::of(&body.bytes);
    let kept = shared.outputs.keep(flight, &body).await;
    shared.events.emit(|| Event::OutputStored {
        call: flight.subject(),
        handle: kept.as_ref().ok().cloned(),
        reason,
        n_bytes: stats.n_bytes,
        n_lines: stats.n_lines,
        n_tokens: stats.n_tokens,
    });
    let result = match kept {
        Ok(handle) => {
            let result = handed(&handle, &stats, body.content_type, &flight.tool.flat_name);
            flight.track.journey().stored = Some(handle);
            result
        }
        Err(error) => {
            let is_wanted = !flight.call.context().options.cuts_output;
            if shared.settings().tool_output.enabled && shared.outputs.is_on() && is_wanted {
                warn!(%error, "An output could not be stored; it is cut instead.");
            }
            let text = String::from_utf8_lossy(&body.bytes);
            let target = max_bytes.clamp(MIN_CUT_BYTES, text.len().max(MIN_CUT_BYTES));
            json!({"content": [{"type": "text", "text": cut(&text, target, reason)}]})
        }
    };
    let Value::Object(mut result) = result else { return output.clone() };
    if output.is_error() {
        result.insert("isError".to_owned(), true.into());
    }
    keep_meta(output, &mut result);
    Output::result(RawJson::of(&result))
}

/// The answer cut to what may be handed over; if it is the budget that is used up, almost nothing of it.
fn cut(text: &str, target: usize, reason: StoreReason) -> Cow<'_, str> {
    match reason {
        StoreReason::SizeCap => reading::truncated(text, target).into(),
        StoreReason::TokenBudget | StoreReason::ReserveFailed => {
            Cow::Borrowed("(tool failed: context window budget exceeded)")
        }
    }
}

/// What a server says beside its answer goes along, unless that is large, too.
fn keep_meta(output: &Output, result: &mut Map<String, Value>) {
    if output.is_from_server()
        && let Some(meta) = output.to_result().get("_meta")
        && meta.as_bytes().len() <= MAX_META_BYTES
    {
        result.insert("_meta".to_owned(), meta.to_value());
    }
}

/// The words that a model gets in place of the answer, and a link for its client.
fn handed(handle: &OutputHandle, stats: &Stats, content_type: &str, tool: &str) -> Value {
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
