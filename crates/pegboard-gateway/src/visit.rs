//! One request of a client, from its call to the runtime's and back.

use std::sync::Arc;

use bytes::Bytes;
use pegboard_core::call::{Call, CallContext, Ended, Invoker, Origin, Running};
use pegboard_core::provider::Request;
use pegboard_core::trace::TraceParent;
use pegboard_json::RawJson;
use pegboard_runtime::Caller;
use pegboard_runtime::requests::ServerId;
use pegboard_wire::server::{ClientDescription, Peer, Reply};
use pegboard_wire::{RpcError, code};

use crate::profile::Board;
use crate::surface::Life;
use conversation::{Conversation, Turn};
use desk::Desk;

mod conversation;
pub(crate) mod desk;

/// One request of a client that wants a tool called.
pub(crate) struct Visit {
    pub(crate) board: Arc<Board>,
    pub(crate) caller: Caller,
    pub(crate) life: Life,
    pub(crate) client: ClientDescription,
    pub(crate) peer: Peer,
    /// What the client answered to questions of this call.
    pub(crate) answers: Option<RawJson>,
    /// What it was given with the questions.
    pub(crate) state: Option<Bytes>,
    pub(crate) trace_parent: Option<TraceParent>,
    /// What came along for whoever carries it out.
    pub(crate) remarks: RawJson,
    pub(crate) desk: Arc<Desk>,
    /// What the tool is called to whoever watches, if the client called it by way of another.
    pub(crate) label: Option<Arc<str>>,
}

impl Visit {
    /// Carries a call out, and puts its end into words. Dropping the future cancels the call.
    pub(crate) async fn call(
        self,
        call: Call,
        words: impl FnOnce(&Ended) -> RawJson,
    ) -> Result<Reply, RpcError> {
        self.call_as_is(call, |ended| Ok(words(ended))).await
    }

    /// The same where the end may be an error of the protocol.
    pub(crate) async fn call_as_is(
        self,
        call: Call,
        words: impl FnOnce(&Ended) -> Result<RawJson, RpcError>,
    ) -> Result<Reply, RpcError> {
        let start = |caller: &Caller, mut context: CallContext| {
            context.options = call.context.options;
            caller.start(Call { context, ..call })
        };
        self.accompany(start, words).await
    }

    /// Asks a server for something that is no call of a tool.
    pub(crate) async fn request(
        self,
        server: &ServerId,
        request: Request,
        words: impl FnOnce(&Ended) -> Result<RawJson, RpcError>,
    ) -> Result<Reply, RpcError> {
        let start = |caller: &Caller, context: CallContext| caller.request(server, request, context);
        self.accompany(start, words).await
    }

    /// The context of something that nobody needs to be asked about.
    pub(crate) fn context(&self) -> CallContext {
        let mut context = CallContext::default();
        context.origin = Origin::Client;
        context.trace_parent = self.trace_parent;
        context
    }

    async fn accompany(
        self,
        start: impl FnOnce(&Caller, CallContext) -> Running,
        words: impl FnOnce(&Ended) -> Result<RawJson, RpcError>,
    ) -> Result<Reply, RpcError> {
        let had_stored = self.caller.has_stored_output();
        let (conversation, running) = if let Some(state) = &self.state {
            self.desk.resume(&self.caller, state, self.answers.as_ref())?
        } else {
            let conversation = Conversation::begin(&self);
            let mut context = self.context();
            context.client = Some(Arc::clone(&conversation) as _);
            (conversation, start(&self.caller, context))
        };
        match conversation.accompany(running, &self.peer).await {
            Turn::Ended(ended) => {
                // From now on there is something to read back, and the tool for it is listed.
                if self.life == Life::Session && !had_stored && self.caller.has_stored_output() {
                    self.peer.notify("notifications/tools/list_changed", RawJson::empty_object()).await;
                }
                let result = words(&ended).map_err(|error| match conversation.lack() {
                    // A client that comes with every request anew can say the next time that it can.
                    Some(lack) if self.life == Life::Stateless => lack.missing(),
                    _ => error,
                })?;
                Ok(Reply::Result(match self.life {
                    Life::Session => result,
                    // A server that says so of its answer would have its questions put to the client as if they were
                    // the gateway's.
                    Life::Stateless => result.without("resultType"),
                }))
            }
            Turn::Asked(running, round) => {
                let questions = round.as_json();
                let state = self
                    .desk
                    .park(&self.caller, running, conversation, round)
                    .map_err(|error| RpcError::new(code::INTERNAL_ERROR, error.to_string()))?;
                Ok(Reply::InputRequired { questions, state: Some(state) })
            }
        }
    }
}
