//! The tools that every agent has of its own: to say how far it is, and to give its final report.
//!
//! They exist for one session alone, and what they are told lies on its [`Desk`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{BoxFuture, FutureExt, ready};
use pegboard_core::call::{OwnTool, ValidCall};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::id::{ServerName, ToolName};
use pegboard_core::output::Output;
use serde_json::{Value, json};

pub(crate) use report::{Content, Report, ReportStatus, Wanted};

mod report;

/// The server of these tools.
pub(crate) const SERVER: &str = "agent";
/// The tool that takes the final report.
pub(crate) const FINAL_REPORT: &str = "final_report";
/// The tool that says how far an agent is.
pub(crate) const TASK_STATUS: &str = "task_status";
/// The tool that makes several calls.
pub(crate) const BATCH: &str = "batch";

/// The names that are taken by tools of the server `agent`, so that no agent can have them.
pub(crate) const TAKEN: [&str; 3] = [FINAL_REPORT, TASK_STATUS, BATCH];

/// What an agent has said of its work so far.
#[derive(Debug)]
pub(crate) struct Desk {
    wanted: Wanted,
    papers: Mutex<Papers>,
}

#[derive(Debug, Default)]
struct Papers {
    report: Option<Report>,
    handoff: Option<Handoff>,
    status: Option<String>,
    unshown: Vec<String>,
    is_completed: bool,
}

/// Whom an agent hands its session over to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handoff {
    /// The agent.
    pub(crate) agent: ToolName,
    /// What it should know.
    pub(crate) message: Option<String>,
}

impl Desk {
    pub(crate) fn new(wanted: Wanted) -> Arc<Self> {
        Arc::new(Self { wanted, papers: Mutex::default() })
    }

    /// What the final report must be.
    pub(crate) fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Takes a final report. The first that is right is the one that counts.
    pub(crate) fn take_report(&self, report: Report) {
        self.papers().report.get_or_insert(report);
    }

    /// The final report, if there is one.
    pub(crate) fn report(&self) -> Option<Report> {
        self.papers().report.clone()
    }

    /// Takes a hand-off. The first counts.
    pub(crate) fn hand_off(&self, handoff: Handoff) {
        self.papers().handoff.get_or_insert(handoff);
    }

    /// Whom the session is handed over to, if to anybody.
    pub(crate) fn handoff(&self) -> Option<Handoff> {
        self.papers().handoff.clone()
    }

    /// Whether the agent says that nothing is left to do but the final report.
    pub(crate) fn is_completed(&self) -> bool {
        self.papers().is_completed
    }

    /// The lines of status that nobody has been shown yet.
    pub(crate) fn take_statuses(&self) -> Vec<String> {
        std::mem::take(&mut self.papers().unshown)
    }

    /// Takes a line of status. One that is the same as the one before is not shown again.
    fn take_status(&self, TaskUpdate { line, is_completed }: TaskUpdate) {
        let mut papers = self.papers();
        papers.is_completed = is_completed;
        if papers.status.as_deref() != Some(line.as_str()) {
            papers.status = Some(line.clone());
            papers.unshown.push(line);
        }
    }

    fn papers(&self) -> MutexGuard<'_, Papers> {
        self.papers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tool that takes the final report.
pub(crate) fn final_report(desk: &Arc<Desk>) -> OwnTool {
    let entry = ToolEntry::from_handler(
        FINAL_REPORT,
        "Deliver your final answer. It ends your work.",
        Arc::new(FinalReport(Arc::clone(desk))),
    );
    own(entry.with_title("Final report").with_input_schema(desk.wanted.input_schema()))
}

/// The tool that says how far an agent is.
pub(crate) fn task_status(desk: &Arc<Desk>) -> OwnTool {
    let entry = ToolEntry::from_handler(
        TASK_STATUS,
        include_str!("builtin/task_status.md").trim_end(),
        Arc::new(TaskStatus(Arc::clone(desk))),
    );
    let text = |description: &str| json!({"type": "string", "description": description});
    let flag = |description: &str| json!({"type": "boolean", "description": description});
    own(entry.with_title("Task status").with_input_schema(json!({
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
    })))
}

/// A tool of the server `agent` that does no work of its own and says itself what is wrong with its arguments.
fn own(entry: ToolEntry) -> OwnTool {
    let server = ServerName::new(SERVER).expect("it is neither empty nor long");
    OwnTool { server, entry: Arc::new(entry.unmanaged().judging_itself()), fingerprint: String::new() }
}

struct FinalReport(Arc<Desk>);

impl Handler for FinalReport {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        let answer = match self.0.wanted.read(call.arguments()) {
            Ok(report) => {
                self.0.take_report(report);
                Output::new(json!({"ok": true}))
            }
            Err(problem) => Output::failure(problem),
        };
        ready(Ok(answer)).boxed()
    }
}

/// How a task can stand.
const STATUSES: [&str; 3] = ["starting", "in-progress", "completed"];
const TASK_STATUS_FIELDS: [&str; 6] =
    ["status", "done", "pending", "now", "ready_for_final_report", "need_to_run_more_tools"];

struct TaskStatus(Arc<Desk>);

impl Handler for TaskStatus {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        let answer = match TaskUpdate::read(call.arguments()) {
            Ok(update) => {
                self.0.take_status(update);
                Output::new("status shown to user".into())
            }
            Err(problem) => Output::failure(problem),
        };
        ready(Ok(answer)).boxed()
    }
}

/// What an agent says of how far it is.
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
        if let Some(extra) = extra(arguments) {
            return Err(format!(
                "agent__task_status takes no '{extra}'; it takes {}.",
                TASK_STATUS_FIELDS.join(", ")
            ));
        }
        let line: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Ok(Self { line: line.join(" | "), is_completed: status == "completed" && is_ready && !needs_more })
    }
}

fn extra(arguments: &Value) -> Option<String> {
    let names = arguments.as_object()?.keys();
    let extra = names.into_iter().find(|name| !TASK_STATUS_FIELDS.contains(&name.as_str()))?;
    Some(extra.chars().take(40).collect())
}
