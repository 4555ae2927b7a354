//! Models of several providers, each a [`Model`].
//!
//! [`Models`] makes them from settings: [`OpenAi`] for everybody who speaks chat completions, [`Anthropic`] for
//! messages, and [`Sampling`] for the model of the client that made the call. A [`Fallback`] is several of them in
//! order, with retries; it is what a conversation should be held with.
//!
//! None of them keeps anything between two requests but its connections, and dropping a request closes its connection,
//! so that a provider stops writing what nobody reads.

use std::sync::Arc;

use indexmap::IndexMap;
use pegboard_core::client::Client;
use pegboard_core::model::{Model, ModelFacts, ModelName, ModelProviderName, ModelReply};
use pegboard_core::settings::model::{ModelProviderKind, ModelProviderSettings};

pub use anthropic::Anthropic;
pub use fallback::{Fallback, Patience};
pub use openai::OpenAi;
pub use sampling::Sampling;
pub use site::InvalidModelProvider;

use site::{Connections, Site};

mod anthropic;
mod fallback;
mod openai;
mod refusal;
mod sampling;
mod site;

/// The models of all providers that somebody described.
///
/// ```
/// use std::sync::Arc;
///
/// use indexmap::IndexMap;
/// use pegboard_core::client::{Client, NoClient};
/// use pegboard_core::model::{Model, ModelProviderName};
/// use pegboard_core::settings::model::{ModelProviderKind, ModelProviderSettings};
/// use pegboard_providers::model::{Models, Patience};
///
/// let local = ModelProviderSettings {
///     base_url: Some("http://127.0.0.1:11434/v1".to_owned()),
///     ..ModelProviderSettings::new(ModelProviderKind::OpenAiCompatible)
/// };
/// let models = Models::new(&IndexMap::from([(ModelProviderName::new("local")?, local)]));
/// let nobody: Arc<dyn Client> = Arc::new(NoClient);
/// let names = ["local/small".parse()?, "local/smaller".parse()?];
/// let model = models.fallback(&names, &nobody, Patience::default())?;
/// assert_eq!(model.facts().name, names[0]);
/// assert!(models.find(&"cloud/large".parse()?, &nobody).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Models(IndexMap<ModelProviderName, Provider>);

#[derive(Debug)]
struct Provider {
    settings: ModelProviderSettings,
    way: Way,
}

/// How the models of a provider are reached.
#[derive(Debug)]
enum Way {
    OpenAi(Arc<Site>),
    Anthropic(Arc<Site>),
    Sampling,
    /// Not at all: what it is described by is wrong.
    Unusable(InvalidModelProvider),
}

impl Models {
    /// The models of these providers. One whose description is wrong says so when a model of it is wanted.
    pub fn new(providers: &IndexMap<ModelProviderName, ModelProviderSettings>) -> Self {
        let connections = Arc::new(Connections::default());
        let provider = |(name, settings): (&ModelProviderName, &ModelProviderSettings)| {
            let way = way(name, settings, &connections).unwrap_or_else(Way::Unusable);
            (name.clone(), Provider { settings: settings.clone(), way })
        };
        Self(providers.iter().map(provider).collect())
    }

    /// One model. `client` is whoever made the call that the model is wanted for.
    pub fn find(&self, name: &ModelName, client: &Arc<dyn Client>) -> Result<Arc<dyn Model>, NoModel> {
        let provider = self.0.get(name.provider()).ok_or_else(|| NoModel::NoProvider {
            model: name.clone(),
            available: self.0.keys().cloned().collect(),
        })?;
        let facts = provider.settings.facts(name);
        Ok(match &provider.way {
            Way::OpenAi(site) => Arc::new(OpenAi::at(Arc::clone(site), facts)),
            Way::Anthropic(site) => Arc::new(Anthropic::at(Arc::clone(site), facts)),
            Way::Sampling => Arc::new(Sampling::new(facts, Arc::clone(client))),
            Way::Unusable(why) => return Err(NoModel::Unusable { model: name.clone(), why: why.clone() }),
        })
    }

    /// Several models that are tried in order.
    pub fn fallback(
        &self,
        names: &[ModelName],
        client: &Arc<dyn Client>,
        patience: Patience,
    ) -> Result<Fallback, NoModel> {
        let [first, others @ ..] = names else { return Err(NoModel::NoneNamed) };
        let first = self.find(first, client)?;
        let others = others.iter().map(|name| self.find(name, client)).collect::<Result<_, _>>()?;
        Ok(Fallback::new(first, others, patience))
    }
}

fn way(
    name: &ModelProviderName,
    settings: &ModelProviderSettings,
    connections: &Arc<Connections>,
) -> Result<Way, InvalidModelProvider> {
    Ok(match settings.kind {
        ModelProviderKind::OpenAiCompatible => {
            Way::OpenAi(Arc::new(openai::site(name, settings, Arc::clone(connections))?))
        }
        ModelProviderKind::Anthropic => {
            Way::Anthropic(Arc::new(anthropic::site(name, settings, Arc::clone(connections))?))
        }
        ModelProviderKind::Sampling => Way::Sampling,
    })
}

/// Why there is no such model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoModel {
    /// Nobody described the provider.
    #[error(
        "there is no provider for the model '{model}'. Add it under providers; there are: {}",
        listed(available)
    )]
    NoProvider {
        /// The model.
        model: ModelName,
        /// The providers there are.
        available: Vec<ModelProviderName>,
    },
    /// The provider is described, but wrong.
    #[error("the model '{model}' cannot be used: {why}")]
    Unusable {
        /// The model.
        model: ModelName,
        /// What is wrong.
        why: InvalidModelProvider,
    },
    /// No model was named at all.
    #[error("no model is named. Name at least one as PROVIDER/model")]
    NoneNamed,
}

fn listed(names: &[ModelProviderName]) -> String {
    let names: Vec<&str> = names.iter().map(ModelProviderName::as_str).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The reply with what it cost, as far as that is known.
fn accounted(facts: &ModelFacts, reply: ModelReply) -> ModelReply {
    let cost_usd = facts.pricing.zip(reply.usage).map(|(pricing, usage)| pricing.cost(&usage));
    ModelReply { cost_usd, ..reply }
}

/// Ids for those calls that have none, or one that another has already: results are given back under them.
fn with_own_ids(reply: &mut ModelReply) {
    for at in 0..reply.tool_calls.len() {
        let (before, rest) = reply.tool_calls.split_at_mut(at);
        let is_taken = |id: &str| before.iter().any(|call| call.id == id);
        let call = &mut rest[0];
        let mut n_tried = at;
        while call.id.is_empty() || is_taken(&call.id) {
            n_tried += 1;
            call.id = format!("call_{n_tried}");
        }
    }
}
