//! Provider for the REST tools of a toolbox.

use pegboard_config::RestEntry;
use pegboard_core::id::{ToolName, ToolboxName};
use pegboard_core::settings::ServerSettings;
use pegboard_core::settings::rest::RestTool;
use pegboard_providers::rest;
use pegboard_runtime::RuntimePlan;

use super::reuse_cache::ReuseCache;

/// Creates the REST providers of toolboxes, and reuses unchanged ones.
#[derive(Default)]
pub(super) struct RestProviders(ReuseCache<(ToolboxName, Vec<RestTool>, Vec<String>)>);

impl RestProviders {
    /// Adds the REST tools to the plan, if there are any. An unusable tool is left out with a warning.
    pub(super) fn provide(
        &self,
        plan: RuntimePlan,
        toolbox: &ToolboxName,
        tools: impl IntoIterator<Item = (ToolName, RestEntry)>,
    ) -> RuntimePlan {
        let mut settings = ServerSettings::default();
        let (mut usable, mut warnings) = (Vec::new(), Vec::new());
        for (name, tool) in tools {
            match tool {
                RestEntry::Usable { is_enabled: false, .. } => {}
                RestEntry::Usable { request, settings: its, .. } => {
                    settings.tools.insert(name.to_string(), *its);
                    usable.push(*request);
                }
                RestEntry::Unusable(entry) => {
                    warnings.push(format!("REST tool '{name}' cannot be used: {}", entry.reason()));
                }
            }
        }
        if usable.is_empty() && warnings.is_empty() {
            return plan;
        }
        let description = (toolbox.clone(), usable, warnings);
        let provider =
            self.0.get(description, |(_, tools, warnings)| rest::provider(tools.clone(), warnings.clone()));
        plan.provide(rest::SERVER, provider).server_settings(settings)
    }
}
