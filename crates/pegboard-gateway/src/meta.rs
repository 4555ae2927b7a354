//! The meta-tools: a few tools that find and call all others.

use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_runtime::{Caller, CallerOptions, Runtime};

use crate::client_request::ClientRequest;
use crate::surface::{ListRequest, ReplyFuture};

mod batch;
mod get_tools;
mod input;
mod open_toolbox;
mod run_chain;
mod tool_output;
mod use_tool;

/// One of the gateway's own tools.
pub(crate) trait MetaTool: Send + Sync + 'static {
    /// Tool name.
    fn name(&self) -> &'static str;

    /// Definition of the tool; `None` if the runtime lacks what it needs.
    fn definition(&self, caller: &Caller) -> Option<RawJson>;

    /// Returns `true` if the tool is of use to the caller of a list.
    fn is_listed(&self, _request: &ListRequest<'_>) -> bool {
        true
    }

    /// Definition of the tool for a list.
    fn definition_for(&self, request: &ListRequest<'_>) -> Option<RawJson> {
        if self.is_listed(request) { self.definition(request.caller) } else { None }
    }

    /// Executes a call of the tool.
    fn call(&self, request: ClientRequest, arguments: RawJson) -> ReplyFuture;
}

/// All meta-tools, in list order.
pub(crate) static META_TOOLS: [&dyn MetaTool; 6] = [
    &open_toolbox::OpenToolbox,
    &use_tool::UseTool,
    &get_tools::GetTools,
    &batch::BatchMetaTool,
    &run_chain::RunChainMetaTool,
    TOOL_OUTPUT,
];

/// The tool that reads stored outputs; listed on every surface.
pub(crate) static TOOL_OUTPUT: &dyn MetaTool = &tool_output::ToolOutput;

/// Returns the definitions of all meta-tools, whether or not a caller has a use for each yet.
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
    META_TOOLS.iter().filter_map(|tool| tool.definition(&caller)).collect()
}

/// Returns the meta-tool with this name.
pub(crate) fn find(name: &str) -> Option<&'static dyn MetaTool> {
    META_TOOLS.into_iter().find(|tool| tool.name() == name)
}

/// First sentence of a description, on one line.
fn summary_line(description: &str, max_bytes: usize) -> String {
    let words = description.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = words.split_once(". ").map_or(words.as_str(), |(first, _)| first);
    clipped(sentence.trim_end_matches('.'), max_bytes).into_owned()
}
