//! Calls whose arguments say in which session and workspace they are made.

use std::borrow::Cow;

use pegboard_core::arguments::Arguments;
use pegboard_core::call::{Call, SessionNote};
use pegboard_core::error::CallError;
use pegboard_core::output::Output;
use pegboard_core::validation::Violation;
use serde_json::{Map, Value};
use tracing::warn;

use crate::catalogue::Tool;
use crate::flight::Track;
use crate::sessions::{self, CallEnd, Entered, Said};
use crate::trace::{Facts, Failure};

/// A call in a session that its arguments named, or that it was given.
pub(crate) struct Contract {
    /// The arguments as they came.
    arguments: Map<String, Value>,
    entered: Entered,
}

impl Contract {
    /// Enters the session, and takes out of the arguments what is not for the tool.
    pub(crate) async fn enter(
        track: &Track,
        tool: &Tool,
        call: &mut Call,
    ) -> Result<Option<Self>, CallError> {
        let shared = track.caller.shared();
        let Some(sessions) = shared.sessions.as_ref().filter(|_| call.context.options.reads_context) else {
            return Ok(None);
        };
        let arguments = call.arguments.value().as_object().cloned().unwrap_or_default();
        let bound = track.caller.bound_session();
        let now = shared.wall.now();
        let entered = sessions
            .enter(&Said::of(&arguments), track.caller.principal(), bound.as_ref(), now)
            .await
            .map_err(|error| {
                let violation = Violation::new(
                    format!("$.context.sessionId: {error}"),
                    "$.context.sessionId: it is no session",
                );
                CallError::InvalidParameters { violations: vec![violation] }
            })?;
        track.caller.bind_session(&entered.id);
        track.warn(entered.warning.clone());
        track.journey().session = Some(SessionNote {
            id: entered.id.to_string(),
            workspace: entered.workspace.id.clone(),
            notice: entered.notice.clone(),
        });
        if let Cow::Owned(stripped) = sessions::stripped(&arguments, tool.entry.input_schema().as_json()) {
            call.arguments = Arguments::from(Value::Object(stripped));
        }
        Ok(Some(Self { arguments, entered }))
    }

    /// Binds the session to its workspace, and writes down what was done.
    pub(crate) async fn leave(self, track: &Track, tool: &Tool, result: &Result<Output, CallError>) {
        let shared = track.caller.shared();
        let now = shared.wall.now();
        let answer = result.as_ref().ok().filter(|output| !output.is_error());
        let data = answer.and_then(Output::structured);
        if let Some(sessions) = &shared.sessions {
            let end = if answer.is_some() { CallEnd::Succeeded(data.as_deref()) } else { CallEnd::Failed };
            if let Err(error) = sessions.bind(&self.entered, end, now).await {
                warn!(%error, "A session could not be bound to its workspace.");
            }
        }
        let Some(traces) = &shared.traces else { return };
        let failure = failure_of(result);
        let facts = Facts {
            session: Some(self.entered.id.as_str()),
            workspace: &self.entered.workspace.id,
            purpose: Said::of(&self.arguments).purpose,
            agent: tool.id.server.as_str(),
            mode: Some(tool.id.name.as_str()),
            arguments: &self.arguments,
            response: data.as_deref(),
            outcome: failure.as_ref().map_or(Ok(()), |(kind, message)| {
                Err(Failure { kind: Some(kind), message: message.as_deref(), code: None })
            }),
            now,
        };
        if let Some(record) = facts.record() {
            traces.write(record);
        }
    }
}

/// Why a call did not go well: a word, and a sentence if there is one.
fn failure_of(result: &Result<Output, CallError>) -> Option<(&'static str, Option<String>)> {
    match result {
        Ok(output) if output.is_error() => {
            let said = output.text();
            Some(("tool_error", (!said.trim().is_empty()).then(|| said.into_owned())))
        }
        Ok(_) => None,
        // The masked words: a record is kept for long and read by others.
        Err(error) => Some((error.kind().as_str(), Some(error.to_string()))),
    }
}
