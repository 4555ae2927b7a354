//! Calls that wait until their clients come back with answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use pegboard_core::call::Running;
use pegboard_json::RawJson;
use pegboard_runtime::Caller;
use pegboard_runtime::park::{ParkError, Ticket};
use pegboard_wire::RpcError;
use tokio::time::Instant;

use super::conversation::{Conversation, Round};

/// How much longer a call waits for its client than its questions wait for answers.
const AFTER_QUESTIONS: Duration = Duration::from_secs(30);

/// What is known of the calls that wait. The calls themselves are parked with the runtime.
#[derive(Default)]
pub(crate) struct Desk(Mutex<HashMap<Ticket, Waiting>>);

struct Waiting {
    conversation: Arc<Conversation>,
    round: Round,
    /// When the call is given up.
    until: Instant,
}

impl Desk {
    /// Lets a call wait for its client; gives what the client must bring along.
    pub(super) fn park(
        &self,
        caller: &Caller,
        running: Running,
        conversation: Arc<Conversation>,
        round: Round,
    ) -> Result<Bytes, ParkError> {
        let runtime = caller.runtime();
        let patience = Duration::from(runtime.settings().question_timeout) + AFTER_QUESTIONS;
        let ticket = runtime.parking().park(running, caller.owner(), patience)?;
        let (state, now) = (RawJson::of(&ticket).into_bytes(), Instant::now());
        let mut waiting = self.waiting();
        // Clients that never came back: their calls have been given up.
        waiting.retain(|_, waiting| waiting.until > now);
        waiting.insert(ticket, Waiting { conversation, round, until: now + patience });
        Ok(state)
    }

    /// The call of a client that has come back, which goes on with its answers.
    pub(super) fn resume(
        &self,
        caller: &Caller,
        state: &Bytes,
        answers: Option<&RawJson>,
    ) -> Result<(Arc<Conversation>, Running), RpcError> {
        let ticket: Ticket = RawJson::parse(state.clone())
            .ok()
            .and_then(|state| state.read().ok())
            .ok_or_else(|| RpcError::invalid_params("requestState is of another request"))?;
        let mut table = self.waiting();
        if let Some(waiting) = table.get(&ticket)
            && let Some(name) = waiting.round.unanswered(answers)
        {
            return Err(RpcError::invalid_params(format_args!("inputResponses has no answer to '{name}'")));
        }
        let waiting = table.remove(&ticket).ok_or_else(|| RpcError::invalid_params(ParkError::Missing))?;
        drop(table);
        let running = caller.runtime().parking().resume(&ticket, caller.owner());
        let running = running.map_err(RpcError::invalid_params)?;
        waiting.round.answer(answers);
        Ok((waiting.conversation, running))
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Ticket, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
