//! The few tools that find and call all others.

use pegboard_json::RawJson;
use pegboard_runtime::{Caller, CallerOptions, Runtime};

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

    /// The tool as a list has it; `None` if the runtime does not have what it needs.
    fn definition(&self, caller: &Caller) -> Option<RawJson>;

    /// The same for somebody; `None` if they have no use for it yet.
    fn listed(&self, viewer: &Viewer<'_>) -> Option<RawJson> {
        self.definition(viewer.caller)
    }

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

/// The gateway's own tools as lists have them, whether anybody has a use for each yet or not.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use pegboard_runtime::Runtime;
///
/// let runtime = Runtime::builder().start().await?;
/// let tools = pegboard_gateway::meta_tools(&runtime);
/// assert_eq!(tools[0].to_value()["name"], "open_toolbox");
/// # Ok::<(), pegboard_runtime::StartError>(())
/// # }).unwrap();
/// ```
pub fn meta_tools(runtime: &Runtime) -> Vec<RawJson> {
    let caller = runtime.caller(CallerOptions::default());
    ALL.iter().filter_map(|tool| tool.definition(&caller)).collect()
}

/// The tool of this name.
pub(crate) fn find(name: &str) -> Option<&'static dyn MetaTool> {
    ALL.into_iter().find(|tool| tool.name() == name)
}
