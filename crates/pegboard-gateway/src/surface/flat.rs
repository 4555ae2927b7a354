//! The `flat` surface: lists every tool.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use pegboard_core::call::ToolRef;
use pegboard_core::id::ToolId;
use pegboard_core::settings::gateway::Expose;
use pegboard_json::RawJson;
use pegboard_runtime::SessionMode;
use pegboard_runtime::catalogue::{ListFormat, Snapshot};

use super::named_tools::NamedTools;
use super::{ListRequest, ReplyFuture, Surface, append, call_by_name, call_tool};
use crate::catalogue_memo::CatalogueMemo;
use crate::client_request::ClientRequest;
use crate::meta;
use crate::profile::{ActiveProfile, Naming};

/// Lists every tool.
pub(super) struct FlatSurface {
    profile: Arc<ActiveProfile>,
    tools: CatalogueMemo<NamedTools>,
}

impl FlatSurface {
    pub(super) fn new(profile: Arc<ActiveProfile>) -> Self {
        Self { profile, tools: CatalogueMemo::default() }
    }

    fn tools(&self, snapshot: &Snapshot) -> Arc<NamedTools> {
        self.tools
            .get(snapshot, |snapshot| NamedTools::new(&self.profile, snapshot, &self.profile.tools(snapshot)))
    }

    /// Returns `true` if tools are listed as in the catalogue: under their flat names, with the URIs of their
    /// servers.
    fn lists_catalogue(&self, snapshot: &Snapshot) -> bool {
        let view = self.profile.view();
        match view.naming {
            Naming::Flat => !view.resource_index(snapshot).has_renamed_views(),
            Naming::Transparent => false,
        }
    }

    fn format(&self) -> ListFormat {
        ListFormat { output_schemas: self.profile.output_schemas(), ..ListFormat::default() }
    }
}

impl Surface for FlatSurface {
    fn session_mode(&self) -> SessionMode {
        SessionMode::AllOpen
    }

    fn instructions(&self) -> Option<String> {
        let snapshot = self.profile.runtime.catalogue();
        Some(self.profile.with_scope(|scope| snapshot.instructions(scope))).filter(|text| !text.is_empty())
    }

    fn expose(&self) -> Expose {
        Expose::Flat
    }

    fn list(&self, request: &ListRequest<'_>) -> RawJson {
        let snapshot = self.profile.runtime.catalogue();
        let list = if self.lists_catalogue(&snapshot) {
            self.profile.with_scope(|scope| snapshot.list(self.format(), scope))
        } else {
            self.tools(&snapshot).list.clone()
        };
        match meta::TOOL_OUTPUT.definition_for(request) {
            Some(tool_output) => append(&list, [tool_output]),
            None => list,
        }
    }

    fn list_digest(&self, request: &ListRequest<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        let snapshot = self.profile.runtime.catalogue();
        if self.lists_catalogue(&snapshot) {
            self.profile.with_scope(|scope| snapshot.list_digest(self.format(), scope)).hash(&mut hasher);
        } else {
            self.tools(&snapshot).list.hash(&mut hasher);
        }
        meta::TOOL_OUTPUT.is_listed(request).hash(&mut hasher);
        hasher.finish()
    }

    fn follows_catalogue(&self) -> bool {
        true
    }

    fn find_listed(&self, name: &str) -> Option<ToolId> {
        match self.profile.view().naming {
            Naming::Flat => None,
            Naming::Transparent => self.tools(&self.profile.runtime.catalogue()).find(name),
        }
    }

    fn call(&self, request: ClientRequest, name: &str, arguments: RawJson) -> ReplyFuture {
        match self.find_listed(name) {
            Some(found) => call_tool(request, ToolRef::Id(found), arguments),
            None => call_by_name(request, name, arguments),
        }
    }
}
