//! The `flat` surface: lists every tool.

use std::sync::Arc;

use pegboard_json::RawJson;
use pegboard_runtime::SessionMode;
use pegboard_runtime::catalogue::ListFormat;

use super::named_tools::NamedTools;
use super::{CatalogueMemo, ListRequest, ReplyFuture, Surface, append, call_by_name, call_tool};
use crate::client_request::ClientRequest;
use crate::meta;
use crate::profile::{ActiveProfile, Naming};
use crate::resource_index::ResourceIndex;

/// Lists every tool.
pub(super) struct FlatSurface {
    profile: Arc<ActiveProfile>,
    tools: CatalogueMemo<NamedTools>,
    index: CatalogueMemo<ResourceIndex>,
}

impl FlatSurface {
    pub(super) fn new(profile: Arc<ActiveProfile>) -> Self {
        Self { profile, tools: CatalogueMemo::default(), index: CatalogueMemo::default() }
    }

    /// Returns `true` if a listed tool may have to rename its UI resource.
    fn has_renamed(&self) -> bool {
        let snapshot = self.profile.runtime.catalogue();
        self.index.get(snapshot, |snapshot| ResourceIndex::build(&self.profile, snapshot)).has_renamed()
    }

    fn tools(&self) -> Arc<NamedTools> {
        let profile = &self.profile;
        self.tools.get(profile.runtime.catalogue(), |snapshot| {
            let tools = profile.tools(snapshot);
            NamedTools::new(profile, &tools, &tools)
        })
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

    fn list(&self, request: &ListRequest<'_>) -> RawJson {
        let list = match self.profile.view().naming {
            Naming::Flat if self.has_renamed() => self.tools().list.clone(),
            Naming::Flat => {
                let view =
                    ListFormat { output_schemas: self.profile.output_schemas(), ..ListFormat::default() };
                let snapshot = self.profile.runtime.catalogue();
                self.profile.with_scope(|scope| snapshot.list(view, scope))
            }
            Naming::Transparent => self.tools().list.clone(),
        };
        match meta::TOOL_OUTPUT.definition_for(request) {
            Some(tool_output) => append(&list, [tool_output]),
            None => list,
        }
    }

    fn follows_catalogue(&self) -> bool {
        true
    }

    fn call(&self, request: ClientRequest, name: &str, arguments: RawJson) -> ReplyFuture {
        let found = match self.profile.view().naming {
            Naming::Flat => None,
            Naming::Transparent => self.tools().find(name),
        };
        match found {
            Some(found) => call_tool(request, found, arguments),
            None => call_by_name(request, name, arguments),
        }
    }
}
