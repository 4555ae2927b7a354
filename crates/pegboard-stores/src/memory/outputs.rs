//! Outputs too large to return directly, in memory.

use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::FutureExt;
use parking_lot::Mutex;
use pegboard_core::store::{
    OutputHandle, OutputQuery, OutputStore, OutputSummary, StoreError, StoreFuture, StoreUsage, StoredOutput,
};

use super::ttl_map::{TtlEntry, TtlMap};
use crate::limits::{OutputLimits, output_len};

/// An in-memory store of outputs.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use pegboard_core::store::{OutputStore, StoreUsage};
/// use pegboard_stores::limits::OutputLimits;
/// use pegboard_stores::memory::MemoryOutputs;
///
/// let outputs = MemoryOutputs::new(OutputLimits::default());
/// assert_eq!(outputs.usage().await.unwrap(), StoreUsage { n_entries: 0, n_bytes: 0 });
/// # });
/// ```
#[derive(Debug)]
pub struct MemoryOutputs {
    limits: OutputLimits,
    state: Mutex<OutputStoreState>,
}

#[derive(Debug, Default)]
struct OutputStoreState {
    outputs: TtlMap<OutputHandle, StoredOutput>,
    sessions: HashMap<String, SessionOutputs>,
}

#[derive(Debug, Default)]
struct SessionOutputs {
    handles: HashSet<OutputHandle>,
    n_bytes: u64,
}

impl MemoryOutputs {
    /// Creates an empty store.
    pub fn new(limits: OutputLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    fn insert(
        &self,
        handle: OutputHandle,
        mut output: StoredOutput,
        now: SystemTime,
    ) -> Result<(), StoreError> {
        // A slice would keep its whole source buffer alive.
        output.body = Bytes::copy_from_slice(&output.body);
        let mut state = self.state.lock();
        state.drop_expired(now);
        state.admit(self.limits, &handle, &output)?;
        state.remove(&handle);
        state.put(handle, output);
        Ok(())
    }
}

impl OutputStoreState {
    /// Checks that an output fits, in place of the one under the same handle.
    fn admit(
        &self,
        limits: OutputLimits,
        handle: &OutputHandle,
        output: &StoredOutput,
    ) -> Result<(), StoreError> {
        let mut all = self.outputs.usage();
        let mut session = self.session_usage(&output.session);
        if let Some(replaced) = self.outputs.get_any(handle) {
            all.n_entries -= 1;
            all.n_bytes -= replaced.n_bytes;
            if replaced.value.session == output.session {
                session.n_bytes -= replaced.n_bytes;
            }
        }
        limits.admit(all, session, output_len(output))
    }

    fn session_usage(&self, session: &str) -> StoreUsage {
        self.sessions.get(session).map_or_else(StoreUsage::default, |outputs| StoreUsage {
            n_entries: u64::try_from(outputs.handles.len()).unwrap_or(u64::MAX),
            n_bytes: outputs.n_bytes,
        })
    }

    fn put(&mut self, handle: OutputHandle, output: StoredOutput) {
        let n_bytes = output_len(&output);
        let session = self.sessions.entry(output.session.clone()).or_default();
        session.handles.insert(handle.clone());
        session.n_bytes += n_bytes;
        let (created, expires) = (output.created, output.expires);
        self.outputs.put(handle, TtlEntry { value: output, created, expires, n_bytes });
    }

    fn remove(&mut self, handle: &OutputHandle) {
        if let Some(output) = self.outputs.remove(handle) {
            self.uncount(handle, &output);
        }
    }

    fn drop_expired(&mut self, now: SystemTime) {
        while let Some((handle, output)) = self.outputs.pop_expired(now) {
            self.uncount(&handle, &output);
        }
    }

    /// Subtracts a removed output from the usage of its session.
    fn uncount(&mut self, handle: &OutputHandle, output: &StoredOutput) {
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
        created: output.created,
        expires: output.expires,
    }
}

impl OutputStore for MemoryOutputs {
    fn put(&self, handle: OutputHandle, output: StoredOutput, now: SystemTime) -> StoreFuture<'_, ()> {
        async move { self.insert(handle, output, now) }.boxed()
    }

    fn get(&self, handle: OutputHandle, now: SystemTime) -> StoreFuture<'_, Option<StoredOutput>> {
        async move { Ok(self.state.lock().outputs.get_live(&handle, now).cloned()) }.boxed()
    }

    fn list(&self, query: OutputQuery, now: SystemTime) -> StoreFuture<'_, Vec<OutputSummary>> {
        async move {
            let state = self.state.lock();
            let matches_query = |output: &StoredOutput| {
                query.principal.as_ref().is_none_or(|principal| *principal == output.principal)
            };
            let wanted =
                state.outputs.newest_first_with_keys(now).filter(|(_, output)| matches_query(output));
            Ok(wanted.take(query.limit).map(|(handle, output)| summary(handle, output)).collect())
        }
        .boxed()
    }

    fn remove(&self, handle: OutputHandle) -> StoreFuture<'_, bool> {
        async move {
            let mut state = self.state.lock();
            let is_there = state.outputs.get_any(&handle).is_some();
            state.remove(&handle);
            Ok(is_there)
        }
        .boxed()
    }

    fn remove_session(&self, session: String) -> StoreFuture<'_, ()> {
        async move {
            let mut state = self.state.lock();
            let removed = state.sessions.remove(&session).unwrap_or_default();
            for handle in &removed.handles {
                state.outputs.remove(handle);
            }
            Ok(())
        }
        .boxed()
    }

    fn usage(&self) -> StoreFuture<'_, StoreUsage> {
        async move { Ok(self.state.lock().outputs.usage()) }.boxed()
    }
}
