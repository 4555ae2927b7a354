//! Tools that are listed by themselves, and what each is called.

use std::collections::HashMap;
use std::sync::Arc;

use pegboard_core::call::ToolRef;
use pegboard_core::id::ToolId;
use pegboard_json::RawJson;
use pegboard_runtime::catalogue::{Tool, View};

use super::array;
use crate::library::Library;
use crate::meta;
use crate::profile::{Board, Naming};

/// How long a name may be that all clients take.
const MAX_NAME_BYTES: usize = 64;

/// Tools that are listed by themselves, and what each is called.
pub(super) struct Named {
    /// As a JSON array.
    pub(super) list: RawJson,
    /// Those that go by another name than their flat one.
    by_plain_name: HashMap<String, ToolId>,
}

impl Named {
    /// These tools among all of a board, under the names that the board gives them.
    pub(super) fn new(board: &Board, tools: &[Arc<Tool>], all: &[Arc<Tool>]) -> Self {
        let view = View { output_schemas: board.output_schemas(), ..View::default() };
        let plain = match board.view().naming {
            Naming::Flat => HashMap::new(),
            Naming::Transparent => plain_names(tools, all),
        };
        let library = Library::of(board, &board.runtime.catalogue());
        let mut by_plain_name = HashMap::new();
        let list = array(tools.iter().map(|tool| {
            let listed = library.with_address(&tool.id, tool.listed(view));
            let name = tool.id.name.as_str();
            if plain.get(name) == Some(&1) {
                by_plain_name.insert(name.to_owned(), tool.id.clone());
                listed.with("name", &RawJson::of(name))
            } else {
                listed
            }
        }));
        Self { list, by_plain_name }
    }

    /// The tool of a name that only stands in this list.
    pub(super) fn find(&self, name: &str) -> Option<ToolRef> {
        self.by_plain_name.get(name).cloned().map(ToolRef::Id)
    }
}

/// How many names there are of each spelling that every client takes. A name that means something else counts twice,
/// listed or not: no server may answer for another by what it calls its tools.
fn plain_names<'t>(tools: &'t [Arc<Tool>], all: &[Arc<Tool>]) -> HashMap<&'t str, usize> {
    let mut counts = HashMap::new();
    for tool in tools {
        let name = tool.id.name.as_str();
        if is_usable(name) {
            *counts.entry(name).or_default() += 1;
        }
    }
    let taken =
        all.iter().flat_map(|tool| tool.aliases.iter().chain([&tool.flat_name, &tool.agent_mode_name]));
    for name in taken.map(|name| &**name).chain(meta::ALL.iter().map(|tool| tool.name())) {
        if let Some(count) = counts.get_mut(name) {
            *count += 1;
        }
    }
    counts
}

fn is_usable(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    name.len() <= MAX_NAME_BYTES && name.bytes().all(is_plain)
}
