//! Outputs that were too large to hand over.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::FutureExt;
use pegboard_core::store::{
    OutputHandle, OutputQuery, OutputStore, OutputSummary, StoreError, Stored, StoredOutput, Usage,
};

use super::lock;
use super::shelf::{Shelf, Thing};
use crate::limits::{OutputLimits, output_len};

/// Outputs in memory.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use pegboard_core::store::{OutputStore, Usage};
/// use pegboard_stores::limits::OutputLimits;
/// use pegboard_stores::memory::Outputs;
///
/// let outputs = Outputs::new(OutputLimits::default());
/// assert_eq!(outputs.usage().await.unwrap(), Usage { n_kept: 0, n_bytes: 0 });
/// # });
/// ```
#[derive(Debug)]
pub struct Outputs {
    limits: OutputLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    outputs: Shelf<OutputHandle, StoredOutput>,
    sessions: HashMap<String, SessionOutputs>,
}

#[derive(Debug, Default)]
struct SessionOutputs {
    handles: HashSet<OutputHandle>,
    n_bytes: u64,
}

impl Outputs {
    /// A store without outputs.
    pub fn new(limits: OutputLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    fn keep(
        &self,
        handle: OutputHandle,
        mut output: StoredOutput,
        now: SystemTime,
    ) -> Result<(), StoreError> {
        // A slice would keep alive the whole that it was cut from.
        output.body = Bytes::copy_from_slice(&output.body);
        let mut state = lock(&self.state);
        state.drop_expired(now);
        state.admit(self.limits, &handle, &output)?;
        state.take(&handle);
        state.put(handle, output);
        Ok(())
    }
}

impl State {
    /// Whether an output fits, in place of the one under the same handle.
    fn admit(
        &self,
        limits: OutputLimits,
        handle: &OutputHandle,
        output: &StoredOutput,
    ) -> Result<(), StoreError> {
        let mut all = self.outputs.usage();
        let mut session = self.session_usage(&output.session);
        if let Some(replaced) = self.outputs.any(handle) {
            all.n_kept -= 1;
            all.n_bytes -= replaced.n_bytes;
            if replaced.value.session == output.session {
                session.n_bytes -= replaced.n_bytes;
            }
        }
        limits.admit(all, session, output_len(output))
    }

    fn session_usage(&self, session: &str) -> Usage {
        self.sessions.get(session).map_or_else(Usage::default, |outputs| Usage {
            n_kept: u64::try_from(outputs.handles.len()).unwrap_or(u64::MAX),
            n_bytes: outputs.n_bytes,
        })
    }

    fn put(&mut self, handle: OutputHandle, output: StoredOutput) {
        let n_bytes = output_len(&output);
        let session = self.sessions.entry(output.session.clone()).or_default();
        session.handles.insert(handle.clone());
        session.n_bytes += n_bytes;
        let (since, expires) = (output.made, output.expires);
        self.outputs.put(handle, Thing { value: output, since, expires, n_bytes });
    }

    fn take(&mut self, handle: &OutputHandle) {
        if let Some(output) = self.outputs.take(handle) {
            self.forget(handle, &output);
        }
    }

    fn drop_expired(&mut self, now: SystemTime) {
        while let Some((handle, output)) = self.outputs.take_expired(now) {
            self.forget(&handle, &output);
        }
    }

    /// Takes an output that is gone off the count of its session.
    fn forget(&mut self, handle: &OutputHandle, output: &StoredOutput) {
        let Some(session) = self.sessions.get_mut(&output.session) else { return };
        session.handles.remove(handle);
        session.n_bytes -= output_len(output);
        if session.handles.is_empty() {
            self.sessions.remove(&output.session);
        }
    }
}

fn summary(handle: &OutputHandle, output: &StoredOutput) -> OutputSummary {
    OutputSummary {
        handle: handle.clone(),
        n_bytes: u64::try_from(output.body.len()).unwrap_or(u64::MAX),
        content_type: output.content_type.clone(),
        tool: output.tool.clone(),
        session: output.session.clone(),
        principal: output.principal.clone(),
        made: output.made,
        expires: output.expires,
    }
}

impl OutputStore for Outputs {
    fn put(&self, handle: OutputHandle, output: StoredOutput, now: SystemTime) -> Stored<'_, ()> {
        async move { self.keep(handle, output, now) }.boxed()
    }

    fn get(&self, handle: OutputHandle, now: SystemTime) -> Stored<'_, Option<StoredOutput>> {
        async move { Ok(lock(&self.state).outputs.alive(&handle, now).cloned()) }.boxed()
    }

    fn list(&self, query: OutputQuery, now: SystemTime) -> Stored<'_, Vec<OutputSummary>> {
        async move {
            let state = lock(&self.state);
            let is_wanted = |output: &StoredOutput| {
                query.principal.as_ref().is_none_or(|principal| *principal == output.principal)
            };
            let wanted = state.outputs.youngest_first_by_key(now).filter(|(_, output)| is_wanted(output));
            Ok(wanted.take(query.n_most).map(|(handle, output)| summary(handle, output)).collect())
        }
        .boxed()
    }

    fn remove(&self, handle: OutputHandle) -> Stored<'_, bool> {
        async move {
            let mut state = lock(&self.state);
            let is_there = state.outputs.any(&handle).is_some();
            state.take(&handle);
            Ok(is_there)
        }
        .boxed()
    }

    fn remove_session(&self, session: String) -> Stored<'_, ()> {
        async move {
            let mut state = lock(&self.state);
            let removed = state.sessions.remove(&session).unwrap_or_default();
            for handle in &removed.handles {
                state.outputs.take(handle);
            }
            Ok(())
        }
        .boxed()
    }

    fn usage(&self) -> Stored<'_, Usage> {
        async move { Ok(lock(&self.state).outputs.usage()) }.boxed()
    }
}
