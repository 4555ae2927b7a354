//! What was done, for people and models that look back.

use std::collections::BTreeMap;
use std::sync::Mutex;

use futures_util::FutureExt;
use pegboard_core::store::{StoreError, Stored, TraceQuery, TraceRecord, TraceStore, Usage};

use super::lock;
use crate::limits::TraceLimits;
use crate::trace_text::TraceText;

/// Trace records in memory.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use pegboard_core::store::{TraceQuery, TraceStore};
/// use pegboard_stores::limits::TraceLimits;
/// use pegboard_stores::memory::Traces;
///
/// let traces = Traces::new(TraceLimits::default());
/// assert_eq!(traces.find(TraceQuery { n_most: 10, ..TraceQuery::default() }).await.unwrap(), []);
/// # });
/// ```
#[derive(Debug)]
pub struct Traces {
    limits: TraceLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By when they were done, and among those of one moment by when they came.
    records: BTreeMap<(u64, u64), TraceText>,
    n_bytes: u64,
    n_arrived: u64,
}

impl Traces {
    /// A store without records.
    pub fn new(limits: TraceLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    fn keep(&self, record: TraceRecord) -> Result<(), StoreError> {
        let text = TraceText::new(record, self.limits)?;
        let mut state = lock(&self.state);
        let place = (text.timestamp, state.n_arrived);
        state.n_arrived += 1;
        state.n_bytes += text.n_bytes();
        state.records.insert(place, text);
        while self.limits.are_exceeded_by(state.usage()) {
            let Some((_, oldest)) = state.records.pop_first() else { break };
            state.n_bytes -= oldest.n_bytes();
        }
        Ok(())
    }
}

impl State {
    fn usage(&self) -> Usage {
        Usage { n_kept: u64::try_from(self.records.len()).unwrap_or(u64::MAX), n_bytes: self.n_bytes }
    }
}

/// Whether a record is among those that are wanted.
fn is_wanted(text: &TraceText, query: &TraceQuery) -> bool {
    query.workspace.as_ref().is_none_or(|workspace| *workspace == text.workspace)
        && query.session.as_ref().is_none_or(|session| *session == text.session)
}

impl TraceStore for Traces {
    fn append(&self, record: TraceRecord) -> Stored<'_, ()> {
        async move { self.keep(record) }.boxed()
    }

    fn find(&self, query: TraceQuery) -> Stored<'_, Vec<TraceRecord>> {
        async move {
            let found: Vec<TraceText> = {
                let state = lock(&self.state);
                let wanted = state.records.values().rev().filter(|text| is_wanted(text, &query));
                wanted.take(query.n_most).cloned().collect()
            };
            found.into_iter().map(TraceText::into_record).collect()
        }
        .boxed()
    }
}
