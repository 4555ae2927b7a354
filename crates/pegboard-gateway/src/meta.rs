//! The few tools that find and call all others.

use pegboard_json::RawJson;

use crate::surface::{Answering, Viewer};
use crate::visit::Visit;

mod batch;
mod get_tools;
mod input;
mod open_toolbox;
mod run_chain;
mod tool_output;
mod use_tool;

/// One of the gateway's own tools.
pub(crate) trait MetaTool: Send + Sync + 'static {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// The tool as a list has it; `None` if there is no use for it yet.
    fn listed(&self, viewer: &Viewer<'_>) -> Option<RawJson>;

    /// Carries out a call of it.
    fn call(&self, visit: Visit, arguments: RawJson) -> Answering;
}

/// All of them, in the order in which they are listed.
pub(crate) static ALL: [&dyn MetaTool; 6] = [
    &open_toolbox::OpenToolbox,
    &use_tool::UseTool,
    &get_tools::GetTools,
    &batch::Batch,
    &run_chain::RunChain,
    TOOL_OUTPUT,
];

/// The one that reads back what was stored, which every surface needs.
pub(crate) static TOOL_OUTPUT: &dyn MetaTool = &tool_output::ToolOutput;

/// The tool of this name.
pub(crate) fn find(name: &str) -> Option<&'static dyn MetaTool> {
    ALL.into_iter().find(|tool| tool.name() == name)
}
