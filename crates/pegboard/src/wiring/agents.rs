//! The agents of a toolbox as one server of it.

use std::sync::Arc;

use indexmap::IndexMap;
use pegboard_config::{AgentEntry, ModelProvider};
use pegboard_core::id::{ToolName, ToolboxName};
use pegboard_core::model::{ModelName, ModelProviderName};
use pegboard_core::provider::{Local, Offer, Provider};
use pegboard_core::settings::ServerSettings;
use pegboard_core::settings::agent::AgentSettings;
use pegboard_core::settings::model::ModelProviderSettings;
use pegboard_providers::agent::Agents;
use pegboard_providers::model::Models;
use pegboard_runtime::Plan;

use super::kept::Kept;

/// The server that agents belong to.
pub const SERVER: &str = "agent";

/// The models that the agents of a configuration think with.
pub(super) struct Thinking {
    models: Arc<Models>,
    /// Those that can be used.
    usable: Arc<IndexMap<ModelProviderName, ModelProviderSettings>>,
    providers: IndexMap<ModelProviderName, ModelProvider>,
}

impl Thinking {
    /// With these providers.
    pub(super) fn with(providers: IndexMap<ModelProviderName, ModelProvider>) -> Self {
        let usable = providers.iter().filter_map(|(name, provider)| match provider {
            ModelProvider::Usable(settings) => Some((name.clone(), (**settings).clone())),
            ModelProvider::Unusable { .. } => None,
        });
        let usable: IndexMap<_, _> = usable.collect();
        Self { models: Arc::new(Models::new(&usable)), usable: Arc::new(usable), providers }
    }

    /// An agent with those of its models that can be used. What is wrong with the others is added to the warnings.
    fn equip(&self, mut agent: AgentSettings, warnings: &mut Vec<String>) -> Option<AgentSettings> {
        let name = agent.name.clone();
        agent.models.retain(|model| match obstacle(model, &self.providers) {
            None => true,
            Some(why) => {
                warnings.push(format!("the agent '{name}' cannot use the model '{model}': {why}"));
                false
            }
        });
        (!agent.models.is_empty()).then_some(agent)
    }
}

/// Why a model cannot be used with these providers; `None` if it can, as far as anybody knows before it is asked.
///
/// ```
/// use indexmap::IndexMap;
///
/// let why = pegboard::wiring::agents::obstacle(&"cloud/large".parse()?, &IndexMap::new()).unwrap();
/// assert_eq!(why, "there is no provider 'cloud'");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn obstacle(model: &ModelName, providers: &IndexMap<ModelProviderName, ModelProvider>) -> Option<String> {
    let name = model.provider();
    match providers.get(name).map(ModelProvider::obstacle) {
        None => Some(format!("there is no provider '{name}'")),
        Some(Some(why)) => Some(format!("the provider '{name}' cannot be used: {why}")),
        Some(None) => None,
    }
}

/// What makes agents, and keeps those that are described as before.
#[derive(Default)]
pub(super) struct Workbench(Kept<Description>);

impl Workbench {
    /// With the agents, if there are any. One that cannot be used is left out, and the server says why.
    pub(super) fn provide(
        &self,
        plan: Plan,
        toolbox: &ToolboxName,
        agents: impl IntoIterator<Item = (ToolName, AgentEntry)>,
        thinking: &Thinking,
    ) -> Plan {
        let (mut usable, mut warnings) = (IndexMap::new(), Vec::new());
        for (name, entry) in agents {
            let obstacle = entry.obstacle().unwrap_or_default();
            match entry {
                AgentEntry::Usable(settings) => {
                    if let Some(settings) = thinking.equip(*settings, &mut warnings) {
                        usable.insert(name, settings);
                    }
                }
                AgentEntry::Unusable { .. } => {
                    warnings.push(format!("the agent '{name}' cannot be used: {obstacle}"));
                }
            }
        }
        leave_out_needy(&mut usable, &mut warnings);
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        if usable.is_empty() && warnings.is_empty() {
            return plan;
        }
        let description = Description {
            toolbox: toolbox.clone(),
            agents: usable.into_values().collect(),
            providers: Arc::clone(&thinking.usable),
            warnings,
        };
        let provider = self.0.get(description, |description| description.provider(thinking));
        plan.provide_with(SERVER, provider, ServerSettings::default())
    }
}

/// All that the agents of a toolbox were made from.
#[derive(PartialEq)]
struct Description {
    toolbox: ToolboxName,
    agents: Vec<AgentSettings>,
    providers: Arc<IndexMap<ModelProviderName, ModelProviderSettings>>,
    warnings: Vec<String>,
}

impl Description {
    fn provider(&self, thinking: &Thinking) -> Local {
        let mut warnings = self.warnings.clone();
        let tools = match Agents::new(self.agents.iter().cloned(), Arc::clone(&thinking.models)) {
            Ok(agents) => agents.provider(),
            Err(invalid) => {
                warnings.push(invalid.to_string());
                Local::new([])
            }
        };
        let offer = tools.offer().borrow().as_ref().clone();
        tools.replace(Offer { warnings, ..offer });
        tools
    }
}

/// Leaves out the agents that need one which is left out, and those that need these.
fn leave_out_needy(usable: &mut IndexMap<ToolName, AgentSettings>, warnings: &mut Vec<String>) {
    loop {
        let needy = usable.values().find_map(|agent| {
            let mut named = agent.agents.iter().chain(&agent.destinations).chain(&agent.handoff);
            let missing = named.find(|name| !usable.contains_key(*name))?;
            Some((agent.name.clone(), missing.clone()))
        });
        let Some((name, missing)) = needy else { return };
        warnings.push(format!(
            "the agent '{name}' cannot be used: the agent '{missing}' that it names is left out"
        ));
        usable.shift_remove(&name);
    }
}
