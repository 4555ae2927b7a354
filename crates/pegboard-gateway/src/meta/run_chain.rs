//! `run_chain`: several tools in sequence, in one call.

use futures_util::future::FutureExt;
use pegboard_core::arguments::CallArguments;
use pegboard_core::call::{Call, Invoker};
use pegboard_json::RawJson;
use pegboard_runtime::Caller;

use super::MetaTool;
use crate::client_request::ClientRequest;
use crate::result;
use crate::surface::ReplyFuture;

/// The `run_chain` tool, executed by the runtime.
pub(super) struct RunChainMetaTool;

impl MetaTool for RunChainMetaTool {
    fn name(&self) -> &'static str {
        "run_chain"
    }

    fn definition(&self, caller: &Caller) -> Option<RawJson> {
        caller.find("run_chain").map(|entry| entry.definition())
    }

    fn call(&self, request: ClientRequest, arguments: RawJson) -> ReplyFuture {
        async move {
            request
                .call(Call::new("run_chain", CallArguments::from(arguments)), result::meta_tool_result)
                .await
        }
        .boxed()
    }
}
