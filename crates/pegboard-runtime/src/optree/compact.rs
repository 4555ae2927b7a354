//! The compact form of an operation, for the call log.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::node::{self, OpNode};
use super::operation::EndedOperation;
use super::path::OpSegment;
use super::record::{OpFinish, OpRecord};
use super::{OpKind, OpTree, SessionIdentity};

/// A successful tool call without notes, payloads and nested operations, as most calls are. The names of its
/// session and its tool are stored beside it.
///
/// Written as a JSON array: the node of the operation is ten times as long and takes ten times as long to
/// write.
#[derive(Serialize, Deserialize)]
pub(crate) struct CompactOperation<'a>(
    /// Turn.
    u32,
    /// Index within the turn.
    u32,
    /// Server.
    Option<Cow<'a, str>>,
    /// Start, in nanoseconds since the Unix epoch.
    u64,
    /// Latency in nanoseconds.
    u64,
    /// Time spent waiting in a queue, in nanoseconds.
    u64,
    /// `true` if the response came from a cache.
    bool,
    /// Size of the request in bytes.
    u64,
    /// Size of the response in bytes.
    u64,
);

impl<'a> CompactOperation<'a> {
    /// Returns the compact form of an operation; `None` if there is more to it.
    pub(crate) fn of(operation: &'a EndedOperation) -> Option<Self> {
        let OpRecord { at, kind, name: _, server, started, began: _, size, child, notes, finish } =
            &*operation.record;
        let finish = finish.as_ref()?;
        let has_more = child.is_some() || notes.is_some();
        let is_outermost = operation.tree.0.ancestors.is_none();
        if has_more || !is_outermost || *kind != OpKind::Tool {
            return None;
        }
        finish.result.as_ref().ok()?;
        let started = started.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).ok();
        Some(Self(
            at.turn,
            at.index,
            server.as_deref().map(Cow::Borrowed),
            nanos(started)?,
            nanos(finish.latency)?,
            nanos(finish.waited)?,
            finish.cached,
            *size,
            finish.size,
        ))
    }

    /// Returns the node of the operation.
    pub(crate) fn to_node(&self, session: &str, name: &Arc<str>) -> OpNode {
        let Self(turn, index, server, started, latency, waited, cached, size, response_size) = self;
        let started = SystemTime::UNIX_EPOCH + Duration::from_nanos(*started);
        let finish = OpFinish {
            result: Ok(()),
            size: *response_size,
            cached: *cached,
            waited: Duration::from_nanos(*waited),
            latency: Duration::from_nanos(*latency),
        };
        let record = OpRecord {
            at: OpSegment { turn: *turn, index: *index },
            kind: OpKind::Tool,
            name: Arc::clone(name),
            server: server.as_deref().map(Arc::from),
            started,
            began: Instant::now(),
            size: *size,
            child: None,
            notes: None,
            finish: Some(finish),
        };
        node::operation(&OpTree::new(SessionIdentity::new(session, started)), &record)
    }
}
