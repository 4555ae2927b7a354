//! Stored form of a trace record: metadata is text, so that its accounted size is its real size.

use pegboard_core::store::{StoreError, TraceRecord};
use serde_json::Value;

use crate::limits::{TraceLimits, total_len};

/// Maximum nesting depth of metadata. Deeper values could be written, but not read back.
const MAX_DEPTH: usize = 100;

#[derive(Clone, Debug)]
pub(crate) struct StoredTrace {
    pub(crate) workspace: String,
    pub(crate) session: String,
    pub(crate) kind: String,
    pub(crate) content: String,
    pub(crate) timestamp: u64,
    pub(crate) metadata: String,
}

impl StoredTrace {
    /// Converts a record, if it is small and flat enough to be stored.
    pub(crate) fn new(record: TraceRecord, limits: TraceLimits) -> Result<Self, StoreError> {
        if is_deeper_than(&record.metadata, MAX_DEPTH) {
            let reason =
                format!("the metadata of a trace record is nested more than {MAX_DEPTH} levels deep");
            return Err(StoreError::Failed { reason });
        }
        let trace = Self {
            workspace: record.workspace_id,
            session: record.session_id,
            kind: record.kind,
            content: record.content,
            timestamp: record.timestamp,
            metadata: record.metadata.to_string(),
        };
        limits.admit(trace.n_bytes())?;
        Ok(trace)
    }

    /// Returns the accounted size of the record.
    pub(crate) fn n_bytes(&self) -> u64 {
        let texts = [&self.workspace, &self.session, &self.kind, &self.content, &self.metadata];
        total_len(texts.map(String::len))
    }

    pub(crate) fn into_record(self) -> Result<TraceRecord, StoreError> {
        let metadata = serde_json::from_str(&self.metadata).map_err(|error| StoreError::Failed {
            reason: format!("cannot parse the metadata of a trace record: {error}"),
        })?;
        Ok(TraceRecord {
            workspace_id: self.workspace,
            session_id: self.session,
            kind: self.kind,
            content: self.content,
            timestamp: self.timestamp,
            metadata,
        })
    }
}

/// Checks without recursion, so that no value is too deep to be checked.
fn is_deeper_than(value: &Value, max_depth: usize) -> bool {
    let mut open = vec![(value, 0)];
    while let Some((value, depth)) = open.pop() {
        if depth > max_depth {
            return true;
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(members) => open.extend(members.values().map(|member| (member, depth + 1))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    false
}
