//! Directly listed tools and their names.

use std::collections::HashMap;
use std::sync::Arc;

use pegboard_core::id::ToolId;
use pegboard_json::RawJson;
use pegboard_runtime::catalogue::{CatalogueTool, ListFormat, Snapshot};

use super::json_array;
use crate::meta;
use crate::profile::{ActiveProfile, Naming};

/// Maximum length of a name that the protocol permits for all clients.
const MAX_NAME_BYTES: usize = 64;

/// Directly listed tools and their names.
pub(super) struct NamedTools {
    /// The list as a JSON array.
    pub(super) list: RawJson,
    /// Tools listed under a name other than their flat one.
    by_plain_name: HashMap<String, ToolId>,
}

impl NamedTools {
    /// Lists `tools` under the naming scheme of the profile. A tool keeps the name that its server gave it only
    /// if that means nothing else: no server may shadow another's tool by the choice of a name.
    pub(super) fn new(profile: &ActiveProfile, snapshot: &Snapshot, tools: &[Arc<CatalogueTool>]) -> Self {
        let view = ListFormat { output_schemas: profile.output_schemas(), ..ListFormat::default() };
        let naming = profile.view().naming;
        let has_plain_name = |tool: &CatalogueTool| {
            let name = tool.id.name.as_str();
            naming == Naming::Transparent
                && is_portable_name(name)
                && meta::find(name).is_none()
                && profile.with_scope(|scope| snapshot.is_unique_name(tool, scope))
        };
        let index = profile.view().resource_index(snapshot);
        let mut by_plain_name = HashMap::new();
        let list = json_array(tools.iter().map(|tool| {
            let listed = index.with_view_uri(&tool.id, tool.listed(view));
            let name = tool.id.name.as_str();
            if has_plain_name(tool) {
                by_plain_name.insert(name.to_owned(), tool.id.clone());
                listed.with("name", &RawJson::of(name))
            } else {
                listed
            }
        }));
        Self { list, by_plain_name }
    }

    /// Returns the tool of a name that exists only in this list.
    pub(super) fn find(&self, name: &str) -> Option<ToolId> {
        self.by_plain_name.get(name).cloned()
    }
}

fn is_portable_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/');
    name.len() <= MAX_NAME_BYTES && name.bytes().all(is_plain)
}
