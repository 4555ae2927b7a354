//! `tool_output`: reads stored outputs that were too large to return.

use futures_util::future::FutureExt;
use pegboard_core::arguments::CallArguments;
use pegboard_core::call::{Call, Invoker};
use pegboard_json::RawJson;
use pegboard_runtime::Caller;
use pegboard_wire::era::Era;

use super::MetaTool;
use crate::client_request::ClientRequest;
use crate::result;
use crate::surface::{ListRequest, ReplyFuture};

/// The `tool_output` tool, executed by the runtime.
pub(super) struct ToolOutput;

impl MetaTool for ToolOutput {
    fn name(&self) -> &'static str {
        "tool_output"
    }

    fn definition(&self, caller: &Caller) -> Option<RawJson> {
        caller.find("tool_output").map(|entry| entry.definition())
    }

    fn is_listed(&self, request: &ListRequest<'_>) -> bool {
        match request.era {
            Era::Session => request.caller.has_stored_output(),
            // The list of a stateless client must not change after a call, so the tool is listed in advance.
            Era::Stateless => request.caller.runtime().may_store_outputs(),
        }
    }

    fn call(&self, request: ClientRequest, arguments: RawJson) -> ReplyFuture {
        let call = Call::new("tool_output", CallArguments::from(arguments));
        async move { request.call(call, result::meta_tool_result).await }.boxed()
    }
}
