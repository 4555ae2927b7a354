//! Options of a caller: its identity, the state it keeps, and its limits.

use std::collections::BTreeSet;

use pegboard_core::id::ToolboxName;
use pegboard_core::owner::Owner;

use crate::catalogue::NameCorrections;

/// Identity and limits of a new [`Caller`](crate::Caller).
#[derive(Clone, Debug, Default)]
pub struct CallerOptions {
    /// Owner of what it leaves behind: its principal.
    pub owner: Owner,
    /// State kept between calls.
    pub session_mode: SessionMode,
    /// Toolboxes that are visible to the caller; `None` for all.
    pub toolboxes: Option<BTreeSet<ToolboxName>>,
    /// Treatment of tool names that no tool has.
    pub corrections: NameCorrections,
    /// Maximum number of calls per turn.
    pub max_calls_per_turn: Option<u32>,
    /// Retention of stored outputs after the caller is gone.
    pub output_retention: OutputRetention,
    /// Calls that are served by the same instance of a server.
    pub affinity: ServerAffinity,
}

/// Calls that are served by the same instance of a server that needs one for each of its users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerAffinity {
    /// Those of the caller. Stateless callers have no session, so theirs are those of the principal.
    #[default]
    Session,
    /// Those of all callers of the principal without a session: the caller makes one request.
    Principal,
}

/// Retention of the outputs stored for a caller after the caller is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputRetention {
    /// They are removed with the caller. Other callers cannot read them.
    #[default]
    RemoveWithCaller,
    /// They are kept until they expire, for readers with another way to reach them.
    UntilExpiry,
}

/// State that a caller keeps between its calls.
///
/// This is not the protocol era of a client, and cannot be derived from it: a program that calls the runtime
/// has no era, a client of either era can have every toolbox open, and a client of the stateless era may have
/// a caller that keeps state for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionMode {
    /// A session: the caller opens the toolboxes that it needs.
    Session,
    /// No state between calls.
    Stateless,
    /// A session in which every toolbox is open.
    #[default]
    AllOpen,
}
