//! Provider for the agents of a toolbox.

use std::sync::Arc;

use indexmap::IndexMap;
use pegboard_config::{AgentEntry, ModelProviderEntry};
use pegboard_core::id::{ToolName, ToolboxName};
use pegboard_core::model::{ModelName, ModelProviderName};
use pegboard_core::provider::{LocalProvider, Provider, ServerOffering};
use pegboard_core::settings::agent::AgentSettings;
use pegboard_core::settings::model::ModelProviderSettings;
use pegboard_providers::agent::AgentRegistry;
use pegboard_providers::model::Models;
use pegboard_runtime::RuntimePlan;

use super::reuse_cache::ReuseCache;

/// Name of the server that lists agents.
pub const SERVER: &str = "agent";

/// Models of a configuration, and the providers that can be used.
pub(super) struct ModelResolver {
    models: Arc<Models>,
    /// Usable providers only.
    usable: Arc<IndexMap<ModelProviderName, ModelProviderSettings>>,
    providers: IndexMap<ModelProviderName, ModelProviderEntry>,
}

impl ModelResolver {
    /// Creates a resolver for these providers.
    pub(super) fn with(providers: IndexMap<ModelProviderName, ModelProviderEntry>) -> Self {
        let usable = providers.iter().filter_map(|(name, provider)| match provider {
            ModelProviderEntry::Usable(settings) => Some((name.clone(), (**settings).clone())),
            ModelProviderEntry::Unusable(_) => None,
        });
        let usable: IndexMap<_, _> = usable.collect();
        Self { models: Arc::new(Models::new(&usable)), usable: Arc::new(usable), providers }
    }

    /// Returns the agent with its usable models. Adds a warning for each unusable one.
    fn with_usable_models(
        &self,
        mut agent: AgentSettings,
        warnings: &mut Vec<String>,
    ) -> Option<AgentSettings> {
        let name = agent.name.clone();
        agent.models.retain(|model| match obstacle(model, &self.providers) {
            None => true,
            Some(why) => {
                warnings.push(format!("agent '{name}' cannot use model '{model}': {why}"));
                false
            }
        });
        (!agent.models.is_empty()).then_some(agent)
    }
}

/// Returns the reason why a model cannot be used; `None` if it can, as far as is known without a request.
///
/// ```
/// use indexmap::IndexMap;
///
/// let why = pegboard::wiring::agents::obstacle(&"cloud/large".parse()?, &IndexMap::new()).unwrap();
/// assert_eq!(why, "no provider 'cloud'");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn obstacle(
    model: &ModelName,
    providers: &IndexMap<ModelProviderName, ModelProviderEntry>,
) -> Option<String> {
    let name = model.provider();
    let Some(provider) = providers.get(name) else { return Some(format!("no provider '{name}'")) };
    let entry = provider.unusable()?;
    Some(format!("provider '{name}' cannot be used: {}", entry.reason()))
}

/// Creates the agent providers of toolboxes, and reuses unchanged ones.
#[derive(Default)]
pub(super) struct AgentProviders(ReuseCache<AgentProviderInputs>);

impl AgentProviders {
    /// Adds the agents to the plan, if there are any. An unusable agent is left out with a warning.
    pub(super) fn provide(
        &self,
        plan: RuntimePlan,
        toolbox: &ToolboxName,
        agents: impl IntoIterator<Item = (ToolName, AgentEntry)>,
        resolver: &ModelResolver,
    ) -> RuntimePlan {
        let (mut usable, mut warnings) = (IndexMap::new(), Vec::new());
        for (name, entry) in agents {
            let reason = entry.unusable_reason().unwrap_or_default();
            match entry {
                AgentEntry::Usable(settings) => {
                    if let Some(settings) = resolver.with_usable_models(*settings, &mut warnings) {
                        usable.insert(name, settings);
                    }
                }
                AgentEntry::Unusable { .. } => {
                    warnings.push(format!("agent '{name}' cannot be used: {reason}"));
                }
            }
        }
        remove_dependents_of_missing(&mut usable, &mut warnings);
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        if usable.is_empty() && warnings.is_empty() {
            return plan;
        }
        let description = AgentProviderInputs {
            toolbox: toolbox.clone(),
            agents: usable.into_values().collect(),
            providers: Arc::clone(&resolver.usable),
            warnings,
        };
        let provider = self.0.get(description, |description| description.provider(resolver));
        plan.provide(SERVER, provider)
    }
}

/// All inputs that the agent provider of a toolbox is built from.
#[derive(PartialEq)]
struct AgentProviderInputs {
    toolbox: ToolboxName,
    agents: Vec<AgentSettings>,
    providers: Arc<IndexMap<ModelProviderName, ModelProviderSettings>>,
    warnings: Vec<String>,
}

impl AgentProviderInputs {
    fn provider(&self, resolver: &ModelResolver) -> LocalProvider {
        let mut warnings = self.warnings.clone();
        let tools = match AgentRegistry::new(self.agents.iter().cloned(), Arc::clone(&resolver.models)) {
            Ok(agents) => agents.provider(),
            Err(invalid) => {
                warnings.push(invalid.to_string());
                LocalProvider::new([])
            }
        };
        let offering = tools.offering().borrow().as_ref().clone();
        tools.replace(ServerOffering { warnings, ..offering });
        tools
    }
}

/// Removes agents that refer to a missing agent, transitively.
fn remove_dependents_of_missing(usable: &mut IndexMap<ToolName, AgentSettings>, warnings: &mut Vec<String>) {
    loop {
        let dependent = usable.values().find_map(|agent| {
            let mut named = agent.agents.iter().chain(&agent.destinations).chain(&agent.handoff);
            let missing = named.find(|name| !usable.contains_key(*name))?;
            Some((agent.name.clone(), missing.clone()))
        });
        let Some((name, missing)) = dependent else { return };
        warnings.push(format!(
            "agent '{name}' cannot be used: it refers to agent '{missing}', which is unusable"
        ));
        usable.shift_remove(&name);
    }
}
