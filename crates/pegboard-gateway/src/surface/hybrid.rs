//! The `hybrid` surface: pinned tools, and meta-tools for the rest.

use std::sync::Arc;

use indexmap::IndexMap;
use pegboard_core::call::ToolRef;
use pegboard_core::id::ToolId;
use pegboard_core::settings::gateway::Expose;
use pegboard_json::RawJson;
use pegboard_runtime::SessionMode;
use pegboard_runtime::catalogue::{CatalogueTool, Snapshot};
use pegboard_runtime::filter::ToolFilter;

use super::named_tools::NamedTools;
use super::{ListRequest, ReplyFuture, Surface, append, call_by_name, call_tool};
use crate::catalogue_memo::CatalogueMemo;
use crate::client_request::ClientRequest;
use crate::profile::ActiveProfile;
use crate::{instructions, meta};

/// Lists pinned tools, and meta-tools for the rest.
pub(super) struct HybridSurface {
    profile: Arc<ActiveProfile>,
    pinned: CatalogueMemo<NamedTools>,
}

impl HybridSurface {
    pub(super) fn new(profile: Arc<ActiveProfile>) -> Self {
        Self { profile, pinned: CatalogueMemo::default() }
    }

    fn pinned(&self) -> Arc<NamedTools> {
        let profile = &self.profile;
        self.pinned.get(&profile.runtime.catalogue(), |snapshot| {
            NamedTools::new(profile, snapshot, &pinned_tools(profile, snapshot))
        })
    }
}

/// Returns the tools of listed toolboxes and the pinned tools, in the order of the profile; unknown ones are
/// skipped.
fn pinned_tools(profile: &ActiveProfile, snapshot: &Snapshot) -> Vec<Arc<CatalogueTool>> {
    let view = profile.view();
    let mut tools: IndexMap<ToolId, Arc<CatalogueTool>> = IndexMap::new();
    for tool in profile.tools(snapshot).iter().filter(|tool| view.listed.contains(&tool.id.toolbox)) {
        tools.insert(tool.id.clone(), Arc::clone(tool));
    }
    for name in &view.pinned {
        let found = if name.contains('*') {
            matching(profile, snapshot, name)
        } else {
            by_name(profile, snapshot, name)
        };
        if found.is_empty() {
            tracing::debug!(profile = profile.name, tool = name, "Pinned tool not found.");
        }
        for tool in found {
            tools.entry(tool.id.clone()).or_insert(tool);
        }
    }
    tools.into_values().collect()
}

/// Returns the tool with this name, if any.
fn by_name(profile: &ActiveProfile, snapshot: &Snapshot, name: &str) -> Vec<Arc<CatalogueTool>> {
    let found = profile.with_scope(|scope| {
        let found = snapshot.resolve(name, scope).ok()?;
        Some(Arc::clone(found.tool))
    });
    found.into_iter().collect()
}

/// Returns the tools with a flat name matching a glob.
fn matching(profile: &ActiveProfile, snapshot: &Snapshot, glob: &str) -> Vec<Arc<CatalogueTool>> {
    let tools = profile.tools(snapshot);
    let filter = ToolFilter::allowing([glob]);
    let filter = filter.compile(tools.iter().map(|tool| &*tool.flat_name));
    tools.iter().filter(|tool| filter.permits(&tool.flat_name)).cloned().collect()
}

impl Surface for HybridSurface {
    fn session_mode(&self) -> SessionMode {
        SessionMode::AllOpen
    }

    fn instructions(&self) -> Option<String> {
        Some(instructions::for_profile(&self.profile))
    }

    fn expose(&self) -> Expose {
        Expose::Hybrid
    }

    fn list(&self, request: &ListRequest<'_>) -> RawJson {
        append(&self.pinned().list, meta::META_TOOLS.iter().filter_map(|tool| tool.definition_for(request)))
    }

    fn follows_catalogue(&self) -> bool {
        let view = self.profile.view();
        !view.pinned.is_empty() || !view.listed.is_empty()
    }

    fn find_listed(&self, name: &str) -> Option<ToolId> {
        self.pinned().find(name)
    }

    fn call(&self, request: ClientRequest, name: &str, arguments: RawJson) -> ReplyFuture {
        match self.find_listed(name) {
            Some(found) => call_tool(request, ToolRef::Id(found), arguments),
            None => call_by_name(request, name, arguments),
        }
    }
}
