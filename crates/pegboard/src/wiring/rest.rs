//! The REST tools of a toolbox as one server of it.

use pegboard_config::RestEntry;
use pegboard_core::id::{ToolName, ToolboxName};
use pegboard_core::settings::ServerSettings;
use pegboard_core::settings::rest::RestTool;
use pegboard_providers::rest;
use pegboard_runtime::Plan;

use super::kept::Kept;

/// What makes REST tools, and keeps those that are described as before.
#[derive(Default)]
pub(super) struct Workbench(Kept<(ToolboxName, Vec<RestTool>, Vec<String>)>);

impl Workbench {
    /// With the tools, if there are any. One that cannot be used is left out, and the server says why.
    pub(super) fn provide(
        &self,
        plan: Plan,
        toolbox: &ToolboxName,
        tools: impl IntoIterator<Item = (ToolName, RestEntry)>,
    ) -> Plan {
        let mut settings = ServerSettings::default();
        let (mut usable, mut warnings) = (Vec::new(), Vec::new());
        for (name, tool) in tools {
            let obstacle = tool.obstacle().unwrap_or_default();
            match tool {
                RestEntry::Usable { is_enabled: false, .. } => {}
                RestEntry::Usable { request, settings: its, .. } => {
                    settings.tools.insert(name.to_string(), *its);
                    usable.push(*request);
                }
                RestEntry::Unusable { .. } => {
                    warnings.push(format!("REST tool '{name}' cannot be used: {obstacle}"));
                }
            }
        }
        if usable.is_empty() && warnings.is_empty() {
            return plan;
        }
        let description = (toolbox.clone(), usable, warnings);
        let provider =
            self.0.get(description, |(_, tools, warnings)| rest::provider(tools.clone(), warnings.clone()));
        plan.provide_with(rest::SERVER, provider, settings)
    }
}
