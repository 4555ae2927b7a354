//! Calls that wait until their clients return with answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use pegboard_core::call::CallHandle;
use pegboard_core::owner::Owner;
use pegboard_json::RawJson;
use pegboard_runtime::Caller;
use pegboard_runtime::suspended::{ResumeToken, SuspendError};
use pegboard_wire::RpcError;
use tokio::time::Instant;

use super::bridge::{ClientBridge, InputBatch};

/// Time that a call waits beyond the timeout of its questions.
const RESUME_GRACE: Duration = Duration::from_secs(30);

/// Bridges of suspended calls. The calls themselves are suspended in the runtime.
#[derive(Default)]
pub(crate) struct SuspendedCalls(Mutex<HashMap<ResumeToken, SuspendedCall>>);

struct SuspendedCall {
    owner: Owner,
    bridge: Arc<ClientBridge>,
    batch: InputBatch,
    /// Time at which the call is abandoned.
    expires: Instant,
}

impl SuspendedCalls {
    /// Suspends a call; returns the request state for the client.
    pub(super) fn suspend(
        &self,
        caller: &Caller,
        running: CallHandle,
        bridge: Arc<ClientBridge>,
        batch: InputBatch,
    ) -> Result<Bytes, SuspendError> {
        let runtime = caller.runtime();
        let timeout = Duration::from(runtime.settings().question_timeout) + RESUME_GRACE;
        let token = runtime.suspended_calls().suspend(running, caller.owner(), timeout)?;
        let (state, now) = (RawJson::of(&token).into_bytes(), Instant::now());
        let mut calls = self.0.lock();
        // Calls of clients that never returned have been abandoned.
        calls.retain(|_, call| call.expires > now);
        let owner = caller.owner().clone();
        calls.insert(token, SuspendedCall { owner, bridge, batch, expires: now + timeout });
        Ok(state)
    }

    /// Resumes the call of a client that has returned with answers.
    pub(super) fn resume(
        &self,
        caller: &Caller,
        state: &Bytes,
        answers: Option<&RawJson>,
    ) -> Result<(Arc<ClientBridge>, CallHandle), RpcError> {
        let token: ResumeToken = RawJson::parse(state.clone())
            .ok()
            .and_then(|state| state.read().ok())
            .ok_or_else(|| RpcError::invalid_params("requestState belongs to another request"))?;
        let mut calls = self.0.lock();
        let missing = || RpcError::invalid_params(SuspendError::Missing);
        // The token of another principal neither reads nor ends its call.
        let call = calls.get(&token).filter(|call| call.owner == *caller.owner()).ok_or_else(missing)?;
        if let Some(name) = call.batch.unanswered(answers) {
            return Err(RpcError::invalid_params(format_args!("inputResponses has no answer to '{name}'")));
        }
        let call = calls.remove(&token).ok_or_else(missing)?;
        drop(calls);
        let running = caller.runtime().suspended_calls().resume(&token, caller.owner());
        let running = running.map_err(RpcError::invalid_params)?;
        call.batch.answer(answers);
        Ok((call.bridge, running))
    }
}
