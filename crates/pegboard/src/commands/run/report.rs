//! Report on an agent run.

use std::fmt::Write;

use pegboard::call::CallResult;
use pegboard::error::ErrorKind;
use pegboard::output::Output;
use pegboard::runtime::optree::{SessionNode, Totals};
use pegboard::settings::agent::AgentSettings;
use serde_json::{Value, json};

use crate::cli::format::plural;

/// Report on an agent run.
pub(super) struct AgentRunReport<'r> {
    agent: &'r AgentSettings,
    session: &'r SessionNode,
    ended: &'r CallResult,
    /// Report metadata of the answer.
    about: Option<Value>,
}

impl<'r> AgentRunReport<'r> {
    pub(super) fn new(agent: &'r AgentSettings, session: &'r SessionNode, ended: &'r CallResult) -> Self {
        let about = |output: &Output| {
            output.to_result().get("_meta").and_then(|meta| Some(meta.get("pegboard/report")?.to_value()))
        };
        Self { agent, session, ended, about: ended.result.as_ref().ok().and_then(about) }
    }

    /// Text of the answer, even if the agent reports a failure.
    pub(super) fn answer(&self) -> Option<String> {
        let output = self.ended.result.as_ref().ok()?;
        (self.about.is_some() || !output.is_error()).then(|| output.text().into_owned())
    }

    /// Error of the run, or the failure that the agent reported.
    pub(super) fn error(&self) -> Option<(ErrorKind, String)> {
        match &self.ended.result {
            Err(error) => Some((error.kind(), error.text())),
            Ok(output) if output.is_error() => {
                let text = output.text();
                Some(match (&self.about, text.strip_prefix("invalid_parameters: ")) {
                    (None, Some(why)) => (ErrorKind::InvalidParameters, why.to_owned()),
                    (None, None) => (ErrorKind::ExecutionError, text.into_owned()),
                    (Some(_), _) => {
                        (ErrorKind::ExecutionError, format!("agent '{}' reported a failure", self.agent.name))
                    }
                })
            }
            Ok(_) => None,
        }
    }

    /// One-line summary.
    pub(super) fn summary(&self) -> String {
        let totals = self.totals();
        let tokens_in = totals.tokens_in + totals.tokens_cache_read + totals.tokens_cache_write;
        let mut line = format!(
            "{}  {}: {}, {}, {tokens_in} tokens in, {} out",
            if self.error().is_none() { "Done" } else { "Failed" },
            self.agent.name,
            plural(u64::try_from(self.n_turns()).unwrap_or(u64::MAX), "turn"),
            plural(totals.tools_run, "tool"),
            totals.tokens_out,
        );
        if totals.cost_usd > 0.0 {
            let _ = write!(line, ", ${:.4}", totals.cost_usd);
        }
        line
    }

    /// Renders the report as JSON.
    pub(super) fn document(&self) -> Value {
        let about = |key: &str| self.about.as_ref().map_or(Value::Null, |about| about[key].clone());
        let metadata = about("metadata");
        let status = match metadata["status"].as_str() {
            Some(status) => status,
            None if self.error().is_some() => "error",
            None => "success",
        };
        let structured = self.ended.result.as_ref().ok().filter(|_| about("format") == "json");
        let answer = match structured.and_then(Output::structured) {
            Some(structured) => structured.into_owned(),
            None => self.answer().map_or(Value::Null, Value::String),
        };
        let totals = self.totals();
        let mut document = json!({
            "agent": self.agent.name,
            "status": status,
            "format": about("format"),
            "answer": answer,
            "metadata": metadata,
            "turns": self.n_turns(),
            "tools": totals.tools_run,
            "tokens": {
                "input": totals.tokens_in,
                "output": totals.tokens_out,
                "cacheRead": totals.tokens_cache_read,
                "cacheWrite": totals.tokens_cache_write,
            },
            "costUsd": totals.cost_usd,
            "opTree": self.session,
        });
        if let Some((kind, message)) = self.error() {
            document["error"] = json!({"code": kind.as_str(), "message": message});
        }
        document
    }

    /// Session of the agent itself, if it started.
    fn agent_session(&self) -> Option<&SessionNode> {
        let mut calls = self.session.turns.iter().flat_map(|turn| &turn.ops);
        calls.find_map(|call| call.child_session.as_deref())
    }

    /// Totals of the agent and its sub-agents.
    fn totals(&self) -> &Totals {
        self.agent_session().map_or(&self.session.totals, |session| &session.totals)
    }

    /// Number of turns of the agent itself.
    fn n_turns(&self) -> usize {
        self.agent_session().map_or(0, |session| session.turns.len())
    }
}
