//! The `meta` surface: a few tools that find and call all others.

use std::sync::Arc;

use pegboard_core::settings::gateway::Expose;
use pegboard_json::RawJson;
use pegboard_runtime::SessionMode;

use super::{ListRequest, Surface, json_array};
use crate::profile::ActiveProfile;
use crate::{instructions, meta};

/// Lists the meta-tools only.
pub(super) struct MetaSurface {
    profile: Arc<ActiveProfile>,
}

impl MetaSurface {
    pub(super) fn new(profile: Arc<ActiveProfile>) -> Self {
        Self { profile }
    }
}

impl Surface for MetaSurface {
    fn session_mode(&self) -> SessionMode {
        SessionMode::Session
    }

    fn instructions(&self) -> Option<String> {
        Some(instructions::for_profile(&self.profile))
    }

    fn expose(&self) -> Expose {
        Expose::Meta
    }

    fn list(&self, request: &ListRequest<'_>) -> RawJson {
        json_array(meta::META_TOOLS.iter().filter_map(|tool| tool.definition_for(request)))
    }

    fn follows_catalogue(&self) -> bool {
        false
    }
}
