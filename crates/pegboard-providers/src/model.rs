//! Models of several providers, each a [`Model`].
//!
//! [`Models`] creates them from settings: models behind chat completions or the Messages API, and
//! [`SamplingModel`] for the model of the calling client. A [`FallbackModel`] tries several of them in order,
//! with retries; use it for conversations.
//!
//! A model keeps nothing between two requests but its connections. Dropping a request closes its connection,
//! so the provider stops generating.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use indexmap::IndexMap;
use pegboard_core::client::Client;
use pegboard_core::model::{
    Model, ModelError, ModelInfo, ModelName, ModelProviderName, ModelReply, ModelRequest, ReplyListener,
};
use pegboard_core::settings::model::{ModelProviderKind, ModelProviderSettings};
use pegboard_wire::http::client::LazyHttpClient;

pub use endpoint::InvalidModelProvider;
pub use fallback::{FallbackModel, ModelRetryPolicy};
pub use sampling::SamplingModel;

use anthropic::MessageReplyBuilder;
use endpoint::{ModelEndpoint, ProviderApi};
use openai::ChatReplyBuilder;

mod anthropic;
mod api_error;
mod endpoint;
mod fallback;
mod openai;
mod sampling;

/// Models of all configured providers.
///
/// ```
/// use std::sync::Arc;
///
/// use indexmap::IndexMap;
/// use pegboard_core::client::{Client, NoClient};
/// use pegboard_core::model::{Model, ModelProviderName};
/// use pegboard_core::settings::model::{ModelProviderKind, ModelProviderSettings};
/// use pegboard_providers::model::{Models, ModelRetryPolicy};
///
/// let local = ModelProviderSettings {
///     base_url: Some("http://127.0.0.1:11434/v1".to_owned()),
///     ..ModelProviderSettings::new(ModelProviderKind::OpenAiCompatible)
/// };
/// let models = Models::new(&IndexMap::from([(ModelProviderName::new("local")?, local)]));
/// let client: Arc<dyn Client> = Arc::new(NoClient);
/// let names = ["local/small".parse()?, "local/smaller".parse()?];
/// let model = models.fallback(&names, &client, ModelRetryPolicy::default())?;
/// assert_eq!(model.info().name, names[0]);
/// assert!(models.find(&"cloud/large".parse()?, &client).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Models(IndexMap<ModelProviderName, ConfiguredProvider>);

#[derive(Debug)]
struct ConfiguredProvider {
    settings: ModelProviderSettings,
    backend: ModelBackend,
}

/// Backend that serves the models of a provider.
#[derive(Debug)]
enum ModelBackend {
    Http(Arc<ModelEndpoint>),
    Sampling,
    /// The settings are invalid.
    Invalid(InvalidModelProvider),
}

impl Models {
    /// Creates the models of these providers. Invalid settings are reported when one of their models is
    /// looked up.
    pub fn new(providers: &IndexMap<ModelProviderName, ModelProviderSettings>) -> Self {
        let http = LazyHttpClient::default();
        let provider = |(name, settings): (&ModelProviderName, &ModelProviderSettings)| {
            let backend = backend(name, settings, &http).unwrap_or_else(ModelBackend::Invalid);
            (name.clone(), ConfiguredProvider { settings: settings.clone(), backend })
        };
        Self(providers.iter().map(provider).collect())
    }

    /// Returns a model. `client` is the caller that the model works for.
    pub fn find(
        &self,
        name: &ModelName,
        client: &Arc<dyn Client>,
    ) -> Result<Arc<dyn Model>, ModelLookupError> {
        let provider = self.0.get(name.provider()).ok_or_else(|| ModelLookupError::UnknownProvider {
            model: name.clone(),
            available: self.0.keys().cloned().collect(),
        })?;
        let info = provider.settings.model_info(name);
        Ok(match &provider.backend {
            ModelBackend::Http(endpoint) => Arc::new(HttpModel { endpoint: Arc::clone(endpoint), info }),
            ModelBackend::Sampling => Arc::new(SamplingModel::new(info, Arc::clone(client))),
            ModelBackend::Invalid(reason) => {
                return Err(ModelLookupError::InvalidProvider {
                    model: name.clone(),
                    reason: reason.clone(),
                });
            }
        })
    }

    /// Returns a model that tries these names in order.
    pub fn fallback(
        &self,
        names: &[ModelName],
        client: &Arc<dyn Client>,
        retry_policy: ModelRetryPolicy,
    ) -> Result<FallbackModel, ModelLookupError> {
        let [first, others @ ..] = names else { return Err(ModelLookupError::NoModels) };
        let first = self.find(first, client)?;
        let others = others.iter().map(|name| self.find(name, client)).collect::<Result<_, _>>()?;
        Ok(FallbackModel::new(first, others, retry_policy))
    }
}

fn backend(
    name: &ModelProviderName,
    settings: &ModelProviderSettings,
    http: &LazyHttpClient,
) -> Result<ModelBackend, InvalidModelProvider> {
    let api = match settings.kind {
        ModelProviderKind::OpenAiCompatible => ProviderApi::ChatCompletions,
        ModelProviderKind::Anthropic => ProviderApi::Messages,
        ModelProviderKind::Sampling => return Ok(ModelBackend::Sampling),
    };
    Ok(ModelBackend::Http(Arc::new(ModelEndpoint::new(name, settings, api, http.clone())?)))
}

/// Model behind an HTTP API.
struct HttpModel {
    endpoint: Arc<ModelEndpoint>,
    info: ModelInfo,
}

impl HttpModel {
    async fn query(
        &self,
        request: &ModelRequest,
        listener: ReplyListener<'_>,
    ) -> Result<ModelReply, ModelError> {
        let (endpoint, name) = (&self.endpoint, &self.info.name);
        let reply = match endpoint.api() {
            ProviderApi::ChatCompletions => {
                let response = endpoint.post(name, openai::body(endpoint, name, request)).await?;
                response.read(ChatReplyBuilder::new(name, endpoint.redactor()), listener).await
            }
            ProviderApi::Messages => {
                let response = endpoint.post(name, anthropic::body(name, request)).await?;
                response.read(MessageReplyBuilder::new(name, endpoint.redactor()), listener).await
            }
        };
        Ok(with_cost(&self.info, reply?))
    }
}

impl Model for HttpModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn answer<'a>(
        &'a self,
        request: &'a ModelRequest,
        listener: ReplyListener<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        self.query(request, listener).boxed()
    }
}

/// A model that is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelLookupError {
    /// The provider is not configured.
    #[error(
        "no provider for model '{model}': add it under providers (configured: {})",
        join_names(available)
    )]
    UnknownProvider {
        /// The requested model.
        model: ModelName,
        /// The configured providers.
        available: Vec<ModelProviderName>,
    },
    /// The settings of the provider are invalid.
    #[error("cannot use model '{model}': {reason}")]
    InvalidProvider {
        /// The requested model.
        model: ModelName,
        /// The problem with the settings.
        reason: InvalidModelProvider,
    },
    /// The list of models is empty.
    #[error("no model specified: use PROVIDER/model")]
    NoModels,
}

fn join_names(names: &[ModelProviderName]) -> String {
    let names: Vec<&str> = names.iter().map(ModelProviderName::as_str).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Adds the cost to a reply, if prices and usage are known.
fn with_cost(info: &ModelInfo, reply: ModelReply) -> ModelReply {
    let cost_usd = info.pricing.zip(reply.usage).map(|(pricing, usage)| pricing.cost(&usage));
    ModelReply { cost_usd, ..reply }
}

/// Assigns ids to calls with a missing or duplicate id: results refer to them.
fn assign_call_ids(reply: &mut ModelReply) {
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
