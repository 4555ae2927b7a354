//! `batch`: several calls in one.

use futures_util::future::FutureExt;
use pegboard_core::arguments::CallArguments;
use pegboard_core::call::{Call, Invoker};
use pegboard_json::RawJson;
use pegboard_runtime::Caller;

use super::MetaTool;
use crate::client_request::ClientRequest;
use crate::result;
use crate::surface::ReplyFuture;

/// The `batch` tool, executed by the runtime.
pub(super) struct BatchMetaTool;

impl MetaTool for BatchMetaTool {
    fn name(&self) -> &'static str {
        "batch"
    }

    fn definition(&self, caller: &Caller) -> Option<RawJson> {
        caller.find("batch").map(|entry| entry.definition())
    }

    fn call(&self, request: ClientRequest, arguments: RawJson) -> ReplyFuture {
        async move {
            request.call(Call::new("batch", CallArguments::from(arguments)), result::meta_tool_result).await
        }
        .boxed()
    }
}
