//! The surface `meta`: a few tools that find and call all others.

use std::sync::Arc;

use pegboard_json::RawJson;
use pegboard_runtime::Memory;

use super::{Surface, Viewer, array};
use crate::profile::Board;
use crate::{instructions, meta};

/// A few tools that find and call all others.
pub(super) struct MetaTools {
    board: Arc<Board>,
}

impl MetaTools {
    pub(super) fn new(board: Arc<Board>) -> Self {
        Self { board }
    }
}

impl Surface for MetaTools {
    fn memory(&self) -> Memory {
        Memory::Session
    }

    fn instructions(&self) -> Option<String> {
        Some(instructions::of(&self.board.toolboxes()))
    }

    fn list(&self, viewer: &Viewer<'_>) -> RawJson {
        array(meta::ALL.iter().filter_map(|tool| tool.listed(viewer)))
    }

    fn follows_catalogue(&self) -> bool {
        false
    }
}
