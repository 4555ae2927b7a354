//! One request of a client, from its call to the runtime's and back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pegboard_core::call::{Call, CallContext, Ended, Invoker, Origin, Running};
use pegboard_core::provider::Request;
use pegboard_core::task::{ServerTask, TaskUse};
use pegboard_core::trace::TraceParent;
use pegboard_json::RawJson;
use pegboard_runtime::Caller;
use pegboard_runtime::requests::ServerId;
use pegboard_wire::server::{ClientDescription, Peer, Reply, SessionId};
use pegboard_wire::{RpcError, code};

use crate::profile::Board;
use crate::result;
use crate::surface::Life;
use crate::tasks::{Form, Job, Table, Words, takes_tasks, wanted};
use conversation::{Conversation, Round, Turn};
use desk::Desk;

pub(crate) mod conversation;
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
    pub(crate) tasks: Arc<Table>,
    /// The session that it belongs to; none if it stands alone.
    pub(crate) session: Option<SessionId>,
    /// For how long the client wants the call kept as a task, if it does.
    pub(crate) task: Option<Duration>,
    /// What the tool is called to whoever watches, if the client called it by way of another.
    pub(crate) label: Option<Arc<str>>,
}

impl Visit {
    /// Carries a call out, and puts its end into words. Dropping the future cancels the call, unless its client has it
    /// kept as a task.
    pub(crate) async fn call(
        self,
        call: Call,
        words: impl FnOnce(&Ended) -> RawJson + Send + 'static,
    ) -> Result<Reply, RpcError> {
        self.call_as_is(call, |ended| Ok(words(ended))).await
    }

    /// The same where the end may be an error of the protocol.
    pub(crate) async fn call_as_is(
        self,
        call: Call,
        words: impl FnOnce(&Ended) -> Result<RawJson, RpcError> + Send + 'static,
    ) -> Result<Reply, RpcError> {
        let start = |caller: &Caller, mut context: CallContext| {
            context.options = call.context.options;
            caller.start(Call { context, ..call })
        };
        let (conversation, mut running) = self.begin(start)?;
        if let Some(time_to_live) = self.task {
            let job = Job { running, conversation, words: Box::new(words) };
            return match self.keep(&wanted(time_to_live), job) {
                Ok(told) => Ok(Reply::Result(told)),
                Err(_job) => Err(RpcError::new(
                    code::INTERNAL_ERROR,
                    "Too many tasks are kept already; try again when one has expired, or call without `task`",
                )),
            };
        }
        let had_stored = self.caller.has_stored_output();
        let mut words: Words = Box::new(words);
        loop {
            match conversation.accompany(running, &self.peer).await {
                Turn::Ended(ended) => {
                    if let Some(gate) = self.gate(&ended) {
                        return Err(gate);
                    }
                    return self.finished(had_stored, &conversation, words(&ended)).await;
                }
                Turn::Asked(running, round) => return self.park(running, conversation, round),
                Turn::Task(still, made) => {
                    let job = Job { running: still, conversation: Arc::clone(&conversation), words };
                    match self.keep(&made, job) {
                        Ok(told) => return Ok(Reply::Result(told)),
                        Err(job) => {
                            conversation.decline_task();
                            (running, words) = (job.running, job.words);
                        }
                    }
                }
            }
        }
    }

    /// Asks a server for something that is no call of a tool.
    pub(crate) async fn request(
        self,
        server: &ServerId,
        request: Request,
        words: impl FnOnce(&Ended) -> Result<RawJson, RpcError>,
    ) -> Result<Reply, RpcError> {
        let start = |caller: &Caller, context: CallContext| caller.request(server, request, context);
        let (conversation, mut running) = self.begin(start)?;
        let had_stored = self.caller.has_stored_output();
        loop {
            match conversation.accompany(running, &self.peer).await {
                Turn::Ended(ended) => return self.finished(had_stored, &conversation, words(&ended)).await,
                Turn::Asked(running, round) => return self.park(running, conversation, round),
                // Only calls of tools are kept.
                Turn::Task(still, _) => {
                    conversation.decline_task();
                    running = still;
                }
            }
        }
    }

    /// What its client has to do with tasks.
    fn task_use(&self) -> TaskUse {
        match (self.life, self.task) {
            (Life::Session, None) => TaskUse::Hidden,
            (Life::Session, Some(time_to_live)) => TaskUse::Wanted(time_to_live),
            (Life::Stateless, _) if takes_tasks(&self.client) => TaskUse::Taken,
            (Life::Stateless, _) => TaskUse::Declined,
        }
    }

    /// The context of something that nobody needs to be asked about.
    pub(crate) fn context(&self) -> CallContext {
        let mut context = CallContext::default();
        context.origin = Origin::Client;
        context.trace_parent = self.trace_parent;
        context
    }

    /// The call and its conversation: a new one, or the one that the client has come back to.
    fn begin(
        &self,
        start: impl FnOnce(&Caller, CallContext) -> Running,
    ) -> Result<(Arc<Conversation>, Running), RpcError> {
        if let Some(state) = &self.state {
            return self.desk.resume(&self.caller, state, self.answers.as_ref());
        }
        let conversation = Conversation::begin(self);
        let mut context = self.context();
        context.client = Some(Arc::clone(&conversation) as _);
        let running = start(&self.caller, context);
        Ok((conversation, running))
    }

    /// The reply to a call that has ended.
    async fn finished(
        &self,
        had_stored: bool,
        conversation: &Conversation,
        result: Result<RawJson, RpcError>,
    ) -> Result<Reply, RpcError> {
        let result = result.map_err(|error| match conversation.lack() {
            // A client that comes with every request anew can say the next time that it can.
            Some(lack) if self.life == Life::Stateless => lack.missing(),
            _ => error,
        })?;
        // From now on there is something to read back, and the tool for it is listed.
        if self.life == Life::Session && !had_stored && self.caller.has_stored_output() {
            self.peer.notify("notifications/tools/list_changed", RawJson::empty_object()).await;
        }
        Ok(Reply::Result(match self.life {
            Life::Session => result,
            // A server that says so of its answer would have its questions put to the client as if they were the
            // gateway's.
            Life::Stateless => result.without("resultType"),
        }))
    }

    /// Lets a call wait until its client comes back with answers.
    fn park(
        &self,
        running: Running,
        conversation: Arc<Conversation>,
        round: Round,
    ) -> Result<Reply, RpcError> {
        let questions = round.as_json();
        let state = self
            .desk
            .park(&self.caller, running, conversation, round)
            .map_err(|error| RpcError::new(code::INTERNAL_ERROR, error.to_string()))?;
        Ok(Reply::InputRequired { questions, state: Some(state) })
    }

    /// Keeps a call as a task; gives it back if there are too many.
    fn keep(&self, made: &ServerTask, job: Job) -> Result<RawJson, Box<Job>> {
        let form = match &self.session {
            Some(session) => Form::Session(session.clone()),
            None => Form::Extension { owner: self.caller.owner().to_owned() },
        };
        self.tasks.keep(form, made, job)
    }

    /// What a client is told whose server wants more of it than it can do, in the words of that server.
    fn gate(&self, ended: &Ended) -> Option<RpcError> {
        let gate = result::refused(ended).filter(|error| error.code == code::MISSING_CAPABILITY)?;
        (self.life == Life::Stateless).then_some(gate)
    }
}
