//! The REST tools of a toolbox as one server of it.

use std::sync::Arc;

use pegboard_config::RestEntry;
use pegboard_core::id::ToolName;
use pegboard_core::settings::ServerSettings;
use pegboard_providers::rest;
use pegboard_runtime::Plan;

/// With the tools, if there are any. One that cannot be used is left out, and the server says why.
pub(super) fn provide(plan: Plan, tools: impl IntoIterator<Item = (ToolName, RestEntry)>) -> Plan {
    let mut settings = ServerSettings::default();
    let (mut usable, mut warnings) = (Vec::new(), Vec::new());
    for (name, tool) in tools {
        let obstacle = tool.obstacle().unwrap_or_default();
        match tool {
            RestEntry::Usable { request, settings: its } => {
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
    plan.provide_with(rest::SERVER, Arc::new(rest::provider(usable, warnings)), settings)
}
