//! Calls with session and workspace context in their arguments.

use futures_util::future::FutureExt;
use pegboard_core::call::{Call, CallResult};
use pegboard_json::RawJson;
use pegboard_runtime::sessions::runtime_keys;
use pegboard_wire::RpcError;
use serde_json::Value;

use super::ReplyFuture;
use crate::client_request::ClientRequest;

/// Executes a call with session and workspace context in its arguments.
pub(super) fn call(
    request: ClientRequest,
    mut call: Call,
    render: impl FnOnce(&CallResult) -> Result<RawJson, RpcError> + Send + 'static,
) -> ReplyFuture {
    call.context.options.reads_context = true;
    async move { request.call_with_rpc_errors(call, render).await }.boxed()
}

/// Returns `true` if a tool is called by its agent-mode name with context arguments.
///
/// Only that name promises context arguments. Under every other name, all arguments are the tool's own.
pub(super) fn has_call_context(request: &ClientRequest, name: &str, arguments: &RawJson) -> bool {
    // Fast path: flat names, which most calls use.
    if name.contains("__") || !runtime_keys(&Value::Null).any(|key| arguments.get(key).is_some()) {
        return false;
    }
    let snapshot = request.profile.runtime.catalogue();
    request.profile.with_scope(|scope| {
        let found = snapshot.resolve(name, scope);
        found.is_ok_and(|found| *found.tool.agent_mode_name == *name)
    })
}
