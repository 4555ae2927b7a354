//! The surface `hybrid`: pinned tools by themselves, the rest behind the few.

use std::sync::Arc;

use indexmap::IndexMap;
use pegboard_core::id::ToolId;
use pegboard_json::RawJson;
use pegboard_runtime::Memory;
use pegboard_runtime::catalogue::{Snapshot, Tool};
use pegboard_runtime::filter::ToolFilter;

use super::named::Named;
use super::{Answering, Derived, Surface, Viewer, by_any_name, followed_by, tool};
use crate::profile::Board;
use crate::visit::Visit;
use crate::{instructions, meta};

/// Pinned tools by themselves, the rest behind the few.
pub(super) struct Hybrid {
    board: Arc<Board>,
    pinned: Derived<Named>,
}

impl Hybrid {
    pub(super) fn new(board: Arc<Board>) -> Self {
        Self { board, pinned: Derived::default() }
    }

    fn pinned(&self) -> Arc<Named> {
        let board = &self.board;
        self.pinned.get(board.runtime.catalogue(), |snapshot| {
            Named::new(board, &pinned(board, snapshot), &board.tools(snapshot))
        })
    }
}

/// The tools of toolboxes that are listed, and those that the profile pins, in its order; what is not there yet is
/// left out.
fn pinned(board: &Board, snapshot: &Snapshot) -> Vec<Arc<Tool>> {
    let view = board.view();
    let mut tools: IndexMap<ToolId, Arc<Tool>> = IndexMap::new();
    for tool in board.tools(snapshot).iter().filter(|tool| view.listed.contains(&tool.id.toolbox)) {
        tools.insert(tool.id.clone(), Arc::clone(tool));
    }
    for name in &view.pinned {
        let found =
            if name.contains('*') { matching(board, snapshot, name) } else { of(board, snapshot, name) };
        if found.is_empty() {
            tracing::debug!(profile = board.name, tool = name, "A pinned tool is not there.");
        }
        for tool in found {
            tools.entry(tool.id.clone()).or_insert(tool);
        }
    }
    tools.into_values().collect()
}

/// The tool of a name, if there is one.
fn of(board: &Board, snapshot: &Snapshot, name: &str) -> Vec<Arc<Tool>> {
    let found = board.with_scope(|scope| {
        let found = snapshot.resolve(name, scope, &|_| true).ok()?;
        Some(Arc::clone(found.tool))
    });
    found.into_iter().collect()
}

/// The tools whose flat names a glob means.
fn matching(board: &Board, snapshot: &Snapshot, glob: &str) -> Vec<Arc<Tool>> {
    let tools = board.tools(snapshot);
    let filter = ToolFilter::allowing([glob]);
    let filter = filter.among(tools.iter().map(|tool| &*tool.flat_name));
    tools.iter().filter(|tool| filter.permits(&tool.flat_name)).cloned().collect()
}

impl Surface for Hybrid {
    fn memory(&self) -> Memory {
        Memory::Everything
    }

    fn instructions(&self) -> Option<String> {
        Some(instructions::of(&self.board.toolboxes()))
    }

    fn list(&self, viewer: &Viewer<'_>) -> RawJson {
        followed_by(&self.pinned().list, meta::ALL.iter().filter_map(|tool| tool.listed(viewer)))
    }

    fn follows_catalogue(&self) -> bool {
        let view = self.board.view();
        !view.pinned.is_empty() || !view.listed.is_empty()
    }

    fn call(&self, visit: Visit, name: &str, arguments: RawJson) -> Answering {
        match self.pinned().find(name) {
            Some(found) => tool(visit, found, arguments),
            None => by_any_name(visit, name, arguments),
        }
    }
}
