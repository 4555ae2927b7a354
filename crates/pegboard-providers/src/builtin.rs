//! Built-in tools of every agent: task status and final report.
//!
//! They exist for one session and record what they receive in its [`AgentProgress`].

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, ready};
use parking_lot::Mutex;
use pegboard_core::call::{PrivateTool, ValidCall};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::id::{ServerName, ToolName};
use pegboard_core::output::Output;
use serde_json::{Value, json};

pub(crate) use report::{AgentReport, ReportContent, ReportSpec, ReportStatus};

mod report;

/// Name of the server of the built-in tools.
pub(crate) const SERVER: &str = "agent";
/// Name of the final report tool.
pub(crate) const FINAL_REPORT: &str = "final_report";
/// Name of the task status tool.
pub(crate) const TASK_STATUS: &str = "task_status";
/// Name of the batch tool.
pub(crate) const BATCH: &str = "batch";

/// Tool names of the server `agent` that no agent may use.
pub(crate) const RESERVED_NAMES: [&str; 3] = [FINAL_REPORT, TASK_STATUS, BATCH];

/// Returns `true` if `word` names the task status tool.
pub(crate) fn is_task_status(word: &str) -> bool {
    [TASK_STATUS, "agent__task_status"].contains(&word)
}

/// Progress of one agent session, as reported through its built-in tools.
#[derive(Debug)]
pub(crate) struct AgentProgress {
    report_spec: ReportSpec,
    state: Mutex<ProgressState>,
}

#[derive(Debug, Default)]
struct ProgressState {
    report: Option<AgentReport>,
    handoff: Option<Handoff>,
    status: Option<String>,
    unpublished: Vec<String>,
    is_completed: bool,
}

/// Hand-off to another agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handoff {
    /// Name of the destination.
    pub(crate) agent: ToolName,
    /// Message for the destination.
    pub(crate) message: Option<String>,
}

impl AgentProgress {
    pub(crate) fn new(report_spec: ReportSpec) -> Arc<Self> {
        Arc::new(Self { report_spec, state: Mutex::default() })
    }

    /// Returns the requirements for the final report.
    pub(crate) fn report_spec(&self) -> &ReportSpec {
        &self.report_spec
    }

    /// Records the final report. Only the first valid one counts.
    pub(crate) fn set_report(&self, report: AgentReport) {
        self.state.lock().report.get_or_insert(report);
    }

    /// Returns the final report.
    pub(crate) fn report(&self) -> Option<AgentReport> {
        self.state.lock().report.clone()
    }

    /// Records a hand-off. Only the first one counts.
    pub(crate) fn set_handoff(&self, handoff: Handoff) {
        self.state.lock().handoff.get_or_insert(handoff);
    }

    /// Returns the recorded hand-off.
    pub(crate) fn handoff(&self) -> Option<Handoff> {
        self.state.lock().handoff.clone()
    }

    /// Returns `true` if the agent declared that only the final report is left.
    pub(crate) fn is_completed(&self) -> bool {
        self.state.lock().is_completed
    }

    /// Takes the status lines that have not been published.
    pub(crate) fn take_statuses(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unpublished)
    }

    /// Records a status line. Consecutive duplicates are published once.
    fn record_status(&self, TaskUpdate { line, is_completed }: TaskUpdate) {
        let mut state = self.state.lock();
        state.is_completed = is_completed;
        if state.status.as_deref() != Some(line.as_str()) {
            state.status = Some(line.clone());
            state.unpublished.push(line);
        }
    }
}

/// Creates the final report tool.
pub(crate) fn final_report(progress: &Arc<AgentProgress>) -> PrivateTool {
    let schema = progress.report_spec.input_schema();
    let progress = Arc::clone(progress);
    let handler = BuiltinHandler(move |arguments: &Value| {
        progress.set_report(progress.report_spec.read(arguments)?);
        Ok(json!({"ok": true}))
    });
    let description = "Deliver your final answer. It ends your work.";
    let entry = ToolEntry::from_handler(FINAL_REPORT, description, Arc::new(handler));
    private_tool(SERVER, entry.with_title("Final report").with_input_schema(schema))
}

/// Creates the task status tool.
pub(crate) fn task_status(progress: &Arc<AgentProgress>) -> PrivateTool {
    let progress = Arc::clone(progress);
    let handler = BuiltinHandler(move |arguments: &Value| {
        progress.record_status(TaskUpdate::read(arguments)?);
        Ok("status shown to user".into())
    });
    let description = include_str!("builtin/task_status.md").trim_end();
    let entry = ToolEntry::from_handler(TASK_STATUS, description, Arc::new(handler));
    let text = |description: &str| json!({"type": "string", "description": description});
    let flag = |description: &str| json!({"type": "boolean", "description": description});
    let schema = json!({
        "type": "object",
        "properties": {
            "status": {"type": "string", "enum": STATUSES, "description": "How the task stands."},
            "done": text("What has been completed."),
            "pending": text("What remains to be done."),
            "now": text("The step you take now."),
            "ready_for_final_report": flag("Whether you know enough for the final report."),
            "need_to_run_more_tools": flag("Whether more tools have to be run.")
        },
        "required": TASK_STATUS_FIELDS,
        "additionalProperties": false
    });
    private_tool(SERVER, entry.with_title("Task status").with_input_schema(schema))
}

/// Creates a tool of one session, which is not queued and validates its own arguments.
pub(crate) fn private_tool(server: &str, entry: ToolEntry) -> PrivateTool {
    let server = ServerName::new(server).expect("it is neither empty nor long");
    PrivateTool {
        server,
        entry: Arc::new(entry.unmanaged().validating_own_arguments()),
        fingerprint: String::new(),
    }
}

/// Handler that answers at once, with a result or a message for the model.
pub(crate) struct BuiltinHandler<F>(pub(crate) F);

impl<F: Fn(&Value) -> Result<Value, String> + Send + Sync + 'static> Handler for BuiltinHandler<F> {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        let answer = (self.0)(call.arguments()).map_or_else(Output::failure, Output::new);
        ready(Ok(answer)).boxed()
    }
}

/// Allowed values of `status`.
const STATUSES: [&str; 3] = ["starting", "in-progress", "completed"];
const TASK_STATUS_FIELDS: [&str; 6] =
    ["status", "done", "pending", "now", "ready_for_final_report", "need_to_run_more_tools"];

/// Arguments of the task status tool.
struct TaskUpdate {
    line: String,
    is_completed: bool,
}

impl TaskUpdate {
    fn read(arguments: &Value) -> Result<Self, String> {
        let text = |name: &str| {
            let text = arguments[name].as_str();
            text.map(str::trim).ok_or_else(|| format!("agent__task_status requires {name} (string)."))
        };
        let flag = |name: &str| {
            arguments[name].as_bool().ok_or_else(|| format!("agent__task_status requires {name} (boolean)."))
        };
        let status = text("status")?;
        if !STATUSES.contains(&status) {
            let status: String = status.chars().take(40).collect();
            return Err(format!("Invalid status '{status}'. Must be one of: {}", STATUSES.join(", ")));
        }
        let parts = [status, text("done")?, text("pending")?, text("now")?];
        let (is_ready, needs_more) = (flag("ready_for_final_report")?, flag("need_to_run_more_tools")?);
        if let Some(extra) = unknown_argument(arguments) {
            return Err(format!(
                "agent__task_status takes no '{extra}'; it takes {}.",
                TASK_STATUS_FIELDS.join(", ")
            ));
        }
        let line: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Ok(Self { line: line.join(" | "), is_completed: status == "completed" && is_ready && !needs_more })
    }
}

fn unknown_argument(arguments: &Value) -> Option<String> {
    let names = arguments.as_object()?.keys();
    let extra = names.into_iter().find(|name| !TASK_STATUS_FIELDS.contains(&name.as_str()))?;
    Some(extra.chars().take(40).collect())
}
