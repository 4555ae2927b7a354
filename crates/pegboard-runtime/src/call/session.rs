//! Calls with arguments that name a session and a workspace.

use std::sync::Arc;

use pegboard_core::arguments::CallArguments;
use pegboard_core::call::{Call, SessionInfo};
use pegboard_core::error::CallError;
use pegboard_core::output::Output;
use pegboard_core::store::OwnedTrace;
use pegboard_core::validation::Violation;
use pegboard_json::RawJson;
use serde_json::{Map, Value};
use tracing::warn;

use super::active::ActiveCall;
use crate::call_log::UnwrittenEntry;
use crate::catalogue::CatalogueTool;
use crate::sessions::{BindOutcome, CallerContext, EnteredSession, runtime_keys};
use crate::trace::{CallFailure, RecordedPayload, TracedCall};

/// A call within a session named by its arguments or assigned to it. A trace record is written however the
/// call ends.
pub(crate) struct SessionCall {
    active_call: Arc<ActiveCall>,
    tool: Arc<CatalogueTool>,
    /// Arguments as received.
    arguments: Map<String, Value>,
    entered: EnteredSession,
    payload: RecordedPayload,
    is_recorded: bool,
}

impl SessionCall {
    /// Enters the session, and removes the runtime's keys from the arguments.
    pub(crate) async fn enter(
        active_call: &Arc<ActiveCall>,
        tool: &Arc<CatalogueTool>,
        call: &mut Call,
    ) -> Result<Option<Self>, CallError> {
        let shared = active_call.caller().shared();
        let (context, stripped) = split_context(&call.arguments, tool);
        let Some(sessions) = &shared.sessions else {
            // The runtime's keys are removed even if there is no session store to use them.
            call.arguments = stripped;
            return Ok(None);
        };
        let bound = active_call.caller().bound_session();
        let entered = sessions
            .enter(
                &CallerContext::of(&context),
                active_call.caller().owner(),
                bound.as_ref(),
                shared.wall.now(),
            )
            .await
            .map_err(|error| {
                let text = format!("$.context.sessionId: {error}");
                let violation = Violation::new(text, "$.context.sessionId: not a valid session");
                CallError::InvalidParameters { violations: vec![violation] }
            })?;
        active_call.caller().bind_session(&entered.id);
        active_call
            .recorder
            .with_operation(|operation| operation.set_attribute("session", entered.id.as_str()));
        active_call.recorder.add_warnings(entered.warning.clone());
        active_call.recorder.meta().session = Some(SessionInfo {
            id: entered.id.to_string(),
            workspace: entered.workspace.id.clone(),
            workspace_source: entered.workspace.source,
            notice: entered.notice.clone(),
        });
        let mut arguments = call.arguments.value().as_object().cloned().unwrap_or_default();
        // If the arguments cannot be read as a tree, the runtime's keys are still recorded.
        for (name, value) in context {
            arguments.entry(name).or_insert(value);
        }
        call.arguments = stripped;
        let has_payload = call.context.options.trace || shared.settings().trace_payloads;
        let payload = if has_payload { RecordedPayload::Full } else { RecordedPayload::Omitted };
        let (active_call, tool) = (Arc::clone(active_call), Arc::clone(tool));
        Ok(Some(Self { active_call, tool, arguments, entered, payload, is_recorded: false }))
    }

    /// Binds the session to its workspace and writes the trace record.
    pub(crate) async fn finish(mut self, result: &Result<Output, CallError>) {
        let shared = self.active_call.caller().shared();
        let answer = result.as_ref().ok().filter(|output| !output.is_error());
        let data = answer.and_then(Output::structured);
        if let Some(sessions) = &shared.sessions {
            let end =
                if answer.is_some() { BindOutcome::Succeeded(data.as_deref()) } else { BindOutcome::Failed };
            if let Err(error) = sessions.bind(&self.entered, end, shared.wall.now()).await {
                warn!(%error, "Cannot bind a session to its workspace.");
            }
        }
        self.is_recorded = true;
        let failure = failure_of(result);
        self.write_trace(data.as_deref(), failure.as_ref().map(|(kind, text)| (*kind, text.as_deref())));
    }

    fn write_trace(&self, response: Option<&Value>, failure: Option<(&str, Option<&str>)>) {
        let shared = self.active_call.caller().shared();
        let Some(log) = &shared.call_log else { return };
        let redacted = failure.and_then(|(_, text)| text).map(|text| shared.redactor.load().text(text));
        let call = TracedCall {
            session: Some(self.entered.id.as_str()),
            workspace: &self.entered.workspace.id,
            purpose: CallerContext::of(&self.arguments).purpose,
            agent: self.tool.id.server.as_str(),
            mode: Some(self.tool.id.name.as_str()),
            arguments: &self.arguments,
            response,
            payload: self.payload,
            outcome: failure.map_or(Ok(()), |(kind, _)| {
                Err(CallFailure { kind: Some(kind), message: redacted.as_deref(), code: None })
            }),
            now: shared.wall.now(),
        };
        if let Some(record) = call.record() {
            let owner = self.active_call.caller().owner().clone();
            log.push(UnwrittenEntry::Trace(Box::new(OwnedTrace { owner, record })));
        }
    }
}

impl Drop for SessionCall {
    fn drop(&mut self) {
        if !self.is_recorded {
            self.write_trace(None, Some(("canceled", Some("the call was cancelled before it finished"))));
        }
    }
}

/// Splits the arguments into the runtime's keys and the rest.
fn split_context(arguments: &CallArguments, tool: &CatalogueTool) -> (Map<String, Value>, CallArguments) {
    let raw = arguments.raw();
    let (mut context, mut rest) = (Map::new(), raw.clone());
    for name in runtime_keys(tool.entry.input_schema().as_json()) {
        if let Some(value) = raw.get(name) {
            context.insert(name.to_owned(), value.to_value());
            rest = rest.without(name);
        }
    }
    let stripped = if context.is_empty() { arguments.clone() } else { CallArguments::from(rest) };
    (context, stripped)
}

/// Returns the error kind and message of a failed call.
fn failure_of(result: &Result<Output, CallError>) -> Option<(&'static str, Option<String>)> {
    match result {
        Ok(output) if output.is_error() => {
            let text = output.text();
            let has_message = !text.trim().is_empty() && !has_no_content(output);
            Some(("tool_error", has_message.then(|| text.into_owned())))
        }
        Ok(_) => None,
        // `Display` gives the masked form: a record is kept for long and read by others.
        Err(error) => Some((error.kind().as_str(), Some(error.to_string()))),
    }
}

/// Returns `true` if a result has no content apart from its error flag.
fn has_no_content(output: &Output) -> bool {
    let result = output.to_result();
    let is_empty = |content: RawJson| content.as_str().starts_with('[') && content.items().next().is_none();
    output.structured().is_none() && result.get("content").is_none_or(is_empty)
}
