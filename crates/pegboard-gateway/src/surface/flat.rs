//! The surface `flat`: every tool by a name of its own.

use std::sync::Arc;

use pegboard_json::RawJson;
use pegboard_runtime::Memory;
use pegboard_runtime::catalogue::View;

use super::named::Named;
use super::{Answering, Derived, Surface, Viewer, by_any_name, followed_by, tool};
use crate::library::Library;
use crate::meta;
use crate::profile::{Board, Naming};
use crate::visit::Visit;

/// Every tool by a name of its own.
pub(super) struct Flat {
    board: Arc<Board>,
    named: Derived<Named>,
    library: Derived<Library>,
}

impl Flat {
    pub(super) fn new(board: Arc<Board>) -> Self {
        Self { board, named: Derived::default(), library: Derived::default() }
    }

    /// Whether some tool may have to name its resource otherwise than its server does.
    fn has_renamed(&self) -> bool {
        let snapshot = self.board.runtime.catalogue();
        self.library.get(snapshot, |snapshot| Library::of(&self.board, snapshot)).has_renamed()
    }

    fn named(&self) -> Arc<Named> {
        let board = &self.board;
        self.named.get(board.runtime.catalogue(), |snapshot| {
            let tools = board.tools(snapshot);
            Named::new(board, &tools, &tools)
        })
    }
}

impl Surface for Flat {
    fn memory(&self) -> Memory {
        Memory::Everything
    }

    fn instructions(&self) -> Option<String> {
        let snapshot = self.board.runtime.catalogue();
        Some(self.board.with_scope(|scope| snapshot.instructions(scope))).filter(|text| !text.is_empty())
    }

    fn list(&self, viewer: &Viewer<'_>) -> RawJson {
        let list = match self.board.view().naming {
            Naming::Flat if self.has_renamed() => self.named().list.clone(),
            Naming::Flat => {
                let view = View { output_schemas: self.board.output_schemas(), ..View::default() };
                let snapshot = self.board.runtime.catalogue();
                self.board.with_scope(|scope| snapshot.list(view, scope))
            }
            Naming::Transparent => self.named().list.clone(),
        };
        match meta::TOOL_OUTPUT.listed(viewer) {
            Some(tool_output) => followed_by(&list, [tool_output]),
            None => list,
        }
    }

    fn follows_catalogue(&self) -> bool {
        true
    }

    fn call(&self, visit: Visit, name: &str, arguments: RawJson) -> Answering {
        let found = match self.board.view().naming {
            Naming::Flat => None,
            Naming::Transparent => self.named().find(name),
        };
        match found {
            Some(found) => tool(visit, found, arguments),
            None => by_any_name(visit, name, arguments),
        }
    }
}
