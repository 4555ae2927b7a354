//! Anthropic Messages API.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use http::{HeaderName, HeaderValue};
use pegboard_core::model::{
    Model, ModelError, ModelInfo, ModelName, ModelProviderName, ModelReply, ModelRequest, ReplyListener,
};
use pegboard_core::settings::model::ModelProviderSettings;

use super::endpoint::{
    InvalidModelProvider, KeyHeader, LazyHttpClient, ModelEndpoint, ModelEventStream, ModelResponse,
    endpoint_url,
};
use super::with_cost;
use reply::{EventOutcome, MessageReplyBuilder};

mod reply;
mod request;

/// API version sent with every request.
const VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// Model behind the Messages API.
///
/// Reasoning: an effort level enables adaptive thinking, which newer models support; a number of tokens sets
/// a thinking budget, which only older models accept. Thinking excludes temperature and forced tools: with a
/// forced tool, the model replies without thinking.
///
/// ```
/// use pegboard_core::model::Model;
/// use pegboard_core::settings::mcp::Secret;
/// use pegboard_core::settings::model::{ModelProviderKind, ModelProviderSettings};
/// use pegboard_providers::model::AnthropicModel;
///
/// let settings = ModelProviderSettings {
///     api_key: Some(Secret::new("the key")),
///     ..ModelProviderSettings::new(ModelProviderKind::Anthropic)
/// };
/// let model = AnthropicModel::new(&"claude/some-model".parse().unwrap(), &settings).unwrap();
/// assert_eq!(model.info().name.to_string(), "claude/some-model");
/// ```
#[derive(Debug)]
pub struct AnthropicModel {
    endpoint: Arc<ModelEndpoint>,
    info: ModelInfo,
}

impl AnthropicModel {
    /// Creates a model of a provider.
    pub fn new(name: &ModelName, settings: &ModelProviderSettings) -> Result<Self, InvalidModelProvider> {
        let endpoint = endpoint(name.provider(), settings, Arc::default())?;
        Ok(Self::with_endpoint(Arc::new(endpoint), settings.model_info(name)))
    }

    /// Creates a model that shares an endpoint.
    pub(super) fn with_endpoint(endpoint: Arc<ModelEndpoint>, info: ModelInfo) -> Self {
        Self { endpoint, info }
    }

    async fn query(
        &self,
        request: &ModelRequest,
        listener: ReplyListener<'_>,
    ) -> Result<ModelReply, ModelError> {
        let answer = self.endpoint.post(&self.info.name, request::body(&self.info.name, request)).await?;
        let builder = MessageReplyBuilder::new(&self.info.name, self.endpoint.redactor());
        let reply = if answer.is_stream() {
            read_stream(answer.events(), builder, listener).await
        } else {
            read_whole(answer, builder, listener).await
        };
        Ok(with_cost(&self.info, reply?))
    }
}

impl Model for AnthropicModel {
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

/// Creates the endpoint of a provider.
pub(super) fn endpoint(
    provider: &ModelProviderName,
    settings: &ModelProviderSettings,
    http: Arc<LazyHttpClient>,
) -> Result<ModelEndpoint, InvalidModelProvider> {
    let base = settings.base_url.as_deref().map(str::trim).filter(|url| !url.is_empty());
    let base = base.unwrap_or(ModelProviderSettings::ANTHROPIC_URL);
    let url = endpoint_url(provider, base, |base| match base {
        base if base.ends_with("/v1/messages") => "",
        base if base.ends_with("/v1") => "/messages",
        _ => "/v1/messages",
    })?;
    let key = KeyHeader::Named(HeaderName::from_static("x-api-key"));
    let endpoint = ModelEndpoint::new(provider, settings, url, key, http)?;
    Ok(endpoint.with_header(HeaderName::from_static("anthropic-version"), VERSION))
}

async fn read_whole(
    answer: ModelResponse<'_>,
    mut builder: MessageReplyBuilder<'_>,
    listener: ReplyListener<'_>,
) -> Result<ModelReply, ModelError> {
    let malformed = answer.malformed(&format!("not a JSON reply (content type '{}')", answer.content_type()));
    let body = answer.body().await?;
    match builder.apply_whole(&body, listener)? {
        EventOutcome::Accepted => builder.finish(),
        EventOutcome::Malformed => Err(malformed),
    }
}

async fn read_stream(
    mut events: ModelEventStream<'_>,
    mut builder: MessageReplyBuilder<'_>,
    listener: ReplyListener<'_>,
) -> Result<ModelReply, ModelError> {
    while let Some(event) = events.next().await? {
        if event.data.is_empty() {
            continue;
        }
        match builder.apply_event(&event.data, listener)? {
            EventOutcome::Accepted if builder.is_finished() => return builder.finish(),
            EventOutcome::Accepted => {}
            EventOutcome::Malformed => return Err(events.malformed("a stream event is malformed")),
        }
    }
    Err(events.truncated())
}
