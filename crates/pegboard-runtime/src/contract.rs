//! Calls whose arguments say in which session and workspace they are made.

use std::sync::Arc;

use pegboard_core::arguments::Arguments;
use pegboard_core::call::{Call, SessionNote};
use pegboard_core::error::CallError;
use pegboard_core::output::Output;
use pegboard_core::validation::Violation;
use pegboard_json::RawJson;
use serde_json::{Map, Value};
use tracing::warn;

use crate::catalogue::Tool;
use crate::flight::Track;
use crate::sessions::{CallEnd, Entered, Said, for_the_runtime};
use crate::trace::{Facts, Failure};

/// A call in a session that its arguments named, or that it was given. However it ends, it is written down.
pub(crate) struct Contract {
    track: Arc<Track>,
    tool: Arc<Tool>,
    /// The arguments as they came.
    arguments: Map<String, Value>,
    entered: Entered,
    is_written: bool,
}

impl Contract {
    /// Enters the session, and takes out of the arguments what is not for the tool.
    pub(crate) async fn enter(
        track: &Arc<Track>,
        tool: &Arc<Tool>,
        call: &mut Call,
    ) -> Result<Option<Self>, CallError> {
        if !call.context.options.reads_context {
            return Ok(None);
        }
        let shared = track.caller.shared();
        let (said, stripped) = parted(&call.arguments, tool);
        let Some(sessions) = &shared.sessions else {
            // What is for the runtime is not for the tool, even if there is nobody to read it.
            call.arguments = stripped;
            return Ok(None);
        };
        let bound = track.caller.bound_session();
        let entered = sessions
            .enter(&Said::of(&said), track.caller.owner(), bound.as_ref(), shared.wall.now())
            .await
            .map_err(|error| {
                let text = format!("$.context.sessionId: {error}");
                let violation = Violation::new(text, "$.context.sessionId: it is no session");
                CallError::InvalidParameters { violations: vec![violation] }
            })?;
        track.caller.bind_session(&entered.id);
        track.with_operation(|operation| operation.set_attribute("session", entered.id.as_str()));
        track.warn(entered.warning.clone());
        track.journey().session = Some(SessionNote {
            id: entered.id.to_string(),
            workspace: entered.workspace.id.clone(),
            workspace_source: entered.workspace.source,
            notice: entered.notice.clone(),
        });
        let mut arguments = call.arguments.value().as_object().cloned().unwrap_or_default();
        // Where no tree can hold the arguments, what was said is known all the same.
        for (name, value) in said {
            arguments.entry(name).or_insert(value);
        }
        call.arguments = stripped;
        let (track, tool) = (Arc::clone(track), Arc::clone(tool));
        Ok(Some(Self { track, tool, arguments, entered, is_written: false }))
    }

    /// Binds the session to its workspace, and writes down what was done.
    pub(crate) async fn leave(mut self, result: &Result<Output, CallError>) {
        let shared = self.track.caller.shared();
        let answer = result.as_ref().ok().filter(|output| !output.is_error());
        let data = answer.and_then(Output::structured);
        if let Some(sessions) = &shared.sessions {
            let end = if answer.is_some() { CallEnd::Succeeded(data.as_deref()) } else { CallEnd::Failed };
            if let Err(error) = sessions.bind(&self.entered, end, shared.wall.now()).await {
                warn!(%error, "A session could not be bound to its workspace.");
            }
        }
        self.is_written = true;
        let failure = failure_of(result);
        self.write(data.as_deref(), failure.as_ref().map(|(kind, text)| (*kind, text.as_deref())));
    }

    fn write(&self, response: Option<&Value>, failure: Option<(&str, Option<&str>)>) {
        let shared = self.track.caller.shared();
        let Some(traces) = &shared.traces else { return };
        let redacted = failure.and_then(|(_, text)| text).map(|text| shared.redactor.load().text(text));
        let facts = Facts {
            session: Some(self.entered.id.as_str()),
            workspace: &self.entered.workspace.id,
            purpose: Said::of(&self.arguments).purpose,
            agent: self.tool.id.server.as_str(),
            mode: Some(self.tool.id.name.as_str()),
            arguments: &self.arguments,
            response,
            outcome: failure.map_or(Ok(()), |(kind, _)| {
                Err(Failure { kind: Some(kind), message: redacted.as_deref(), code: None })
            }),
            now: shared.wall.now(),
        };
        if let Some(record) = facts.record() {
            traces.write(record);
        }
    }
}

impl Drop for Contract {
    fn drop(&mut self) {
        if !self.is_written {
            self.write(None, Some(("canceled", Some("the call was given up before its end"))));
        }
    }
}

/// What the arguments say to the runtime, and the arguments without it.
fn parted(arguments: &Arguments, tool: &Tool) -> (Map<String, Value>, Arguments) {
    let raw = arguments.raw();
    let (mut said, mut rest) = (Map::new(), raw.clone());
    for name in for_the_runtime(tool.entry.input_schema().as_json()) {
        if let Some(value) = raw.get(name) {
            said.insert(name.to_owned(), value.to_value());
            rest = rest.without(name);
        }
    }
    let stripped = if said.is_empty() { arguments.clone() } else { Arguments::from(rest) };
    (said, stripped)
}

/// Why a call did not go well: a word, and a sentence if there is one.
fn failure_of(result: &Result<Output, CallError>) -> Option<(&'static str, Option<String>)> {
    match result {
        Ok(output) if output.is_error() => {
            let said = output.text();
            let is_said = !said.trim().is_empty() && !is_wordless(output);
            Some(("tool_error", is_said.then(|| said.into_owned())))
        }
        Ok(_) => None,
        // The masked words: a record is kept for long and read by others.
        Err(error) => Some((error.kind().as_str(), Some(error.to_string()))),
    }
}

/// Whether a result has nothing in it but that it is no good.
fn is_wordless(output: &Output) -> bool {
    let result = output.to_result();
    let is_empty = |content: RawJson| content.as_str().starts_with('[') && content.items().next().is_none();
    output.structured().is_none() && result.get("content").is_none_or(is_empty)
}
