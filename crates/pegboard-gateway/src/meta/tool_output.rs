//! `tool_output`: reads back what was too large to hand over.

use futures_util::future::FutureExt;
use pegboard_core::arguments::Arguments;
use pegboard_core::call::{Call, Invoker};
use pegboard_json::RawJson;
use pegboard_runtime::Caller;

use super::MetaTool;
use crate::result;
use crate::surface::{Answering, Life, Viewer};
use crate::visit::Visit;

/// Reads back what was too large to hand over; the runtime keeps it.
pub(super) struct ToolOutput;

impl MetaTool for ToolOutput {
    fn name(&self) -> &'static str {
        "tool_output"
    }

    fn definition(&self, caller: &Caller) -> Option<RawJson> {
        caller.find("tool_output").map(|entry| entry.definition())
    }

    fn listed(&self, viewer: &Viewer<'_>) -> Option<RawJson> {
        let is_of_use = match viewer.life {
            Life::Session => viewer.caller.has_stored_output(),
            // Its list must not change after a call, so the tool is there before there is anything to read.
            Life::Stateless => viewer.caller.runtime().may_store_outputs(),
        };
        if is_of_use { self.definition(viewer.caller) } else { None }
    }

    fn call(&self, visit: Visit, arguments: RawJson) -> Answering {
        let call = Call::new("tool_output", Arguments::from(arguments));
        async move { visit.call(call, result::of_own_tool).await }.boxed()
    }
}
