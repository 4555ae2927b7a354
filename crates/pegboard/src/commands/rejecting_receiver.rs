//! A client of MCP servers that answers none of their requests.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use pegboard::json::RawJson;
use pegboard::wire::{Id, InboundHandler, InboundRequest, Notification, RpcError};

/// A client that answers no requests of servers.
pub(super) struct RejectingReceiver;

impl InboundHandler for RejectingReceiver {
    fn request(&self, inbound: InboundRequest) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        ready(Err(RpcError::method_not_found(&inbound.request.method))).boxed()
    }

    fn notification(&self, _notification: Notification, _related_request: Option<Id>) {}
}
