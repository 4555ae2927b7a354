//! Chat completions: OpenAI, and with quirks Ollama, vLLM, llama.cpp and OpenRouter.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::model::{
    Model, ModelError, ModelInfo, ModelName, ModelProviderName, ModelReply, ModelRequest, ReplyListener,
};
use pegboard_core::settings::model::ModelProviderSettings;
use tokio::time;

use super::endpoint::{
    InvalidModelProvider, KeyHeader, LazyHttpClient, ModelEndpoint, ModelEventStream, ModelResponse,
    endpoint_url,
};
use super::with_cost;
use reply::{ChatReplyBuilder, ChunkOutcome};
use request::TokenLimitField;

mod reply;
mod request;

/// Timeout for token usage after the reply is complete.
const USAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Model behind chat completions.
///
/// ```
/// use pegboard_core::model::Model;
/// use pegboard_core::settings::model::{ModelProviderKind, ModelProviderSettings};
/// use pegboard_providers::model::OpenAiModel;
///
/// let settings = ModelProviderSettings {
///     base_url: Some("http://127.0.0.1:11434/v1".to_owned()),
///     ..ModelProviderSettings::new(ModelProviderKind::OpenAiCompatible)
/// };
/// let model = OpenAiModel::new(&"local/qwen3:8b".parse().unwrap(), &settings).unwrap();
/// assert_eq!(model.info().name.model(), "qwen3:8b");
/// ```
#[derive(Debug)]
pub struct OpenAiModel {
    endpoint: Arc<ModelEndpoint>,
    info: ModelInfo,
}

impl OpenAiModel {
    /// Creates a model of a provider.
    pub fn new(name: &ModelName, settings: &ModelProviderSettings) -> Result<Self, InvalidModelProvider> {
        let endpoint = endpoint(name.provider(), settings, Arc::default())?;
        Ok(Self::with_endpoint(Arc::new(endpoint), settings.model_info(name)))
    }

    /// Creates a model that shares an endpoint.
    pub(super) fn with_endpoint(endpoint: Arc<ModelEndpoint>, info: ModelInfo) -> Self {
        Self { endpoint, info }
    }

    /// Returns the field for the token limit: OpenAI has renamed it, but most other servers only know the old
    /// name.
    fn token_limit_field(&self) -> TokenLimitField {
        let is_theirs =
            self.endpoint.is_hosted_at("api.openai.com") || self.endpoint.is_hosted_at("openai.azure.com");
        if is_theirs { TokenLimitField::MaxCompletionTokens } else { TokenLimitField::MaxTokens }
    }

    async fn query(
        &self,
        request: &ModelRequest,
        listener: ReplyListener<'_>,
    ) -> Result<ModelReply, ModelError> {
        let body = request::body(&self.info.name, request, self.token_limit_field());
        let answer = self.endpoint.post(&self.info.name, body).await?;
        let builder = ChatReplyBuilder::new(&self.info.name, self.endpoint.redactor());
        let reply = if answer.is_stream() {
            read_stream(answer.events(), builder, listener).await
        } else {
            read_whole(answer, builder, listener).await
        };
        Ok(with_cost(&self.info, reply?))
    }
}

impl Model for OpenAiModel {
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
    let base = base.ok_or_else(|| InvalidModelProvider::MissingUrl { provider: provider.clone() })?;
    let url = endpoint_url(provider, base, |base| {
        if base.ends_with("/chat/completions") { "" } else { "/chat/completions" }
    })?;
    ModelEndpoint::new(provider, settings, url, KeyHeader::Bearer, http)
}

async fn read_whole(
    answer: ModelResponse<'_>,
    mut builder: ChatReplyBuilder<'_>,
    listener: ReplyListener<'_>,
) -> Result<ModelReply, ModelError> {
    let malformed = answer.malformed(&format!("not a JSON reply (content type '{}')", answer.content_type()));
    let body = answer.body().await?;
    match builder.apply_chunk(&body, listener)? {
        ChunkOutcome::Accepted if builder.has_choice() => builder.finish(),
        ChunkOutcome::Accepted | ChunkOutcome::Malformed => Err(malformed),
    }
}

async fn read_stream(
    mut events: ModelEventStream<'_>,
    mut builder: ChatReplyBuilder<'_>,
    listener: ReplyListener<'_>,
) -> Result<ModelReply, ModelError> {
    loop {
        let next = events.next();
        let event = if builder.is_finished() {
            // The reply is complete: a server that keeps the connection open or drops it does not matter.
            match time::timeout(USAGE_TIMEOUT, next).await {
                Ok(Ok(event)) => event,
                Ok(Err(_)) | Err(_) => None,
            }
        } else {
            next.await?
        };
        let Some(event) = event else { break };
        if event.data.is_empty() {
            continue;
        }
        if event.data.trim_ascii() == b"[DONE]" {
            if builder.has_choice() {
                return builder.finish();
            }
            break;
        }
        match builder.apply_chunk(&event.data, listener)? {
            ChunkOutcome::Accepted => {}
            ChunkOutcome::Malformed => return Err(events.malformed("a stream event is malformed")),
        }
    }
    if builder.is_finished() { builder.finish() } else { Err(events.truncated()) }
}

#[cfg(test)]
mod tests {
    use pegboard_core::settings::model::ModelProviderKind;

    use super::*;

    #[test]
    fn the_token_limit_field_depends_on_the_host() {
        let sent = |base_url: &str| {
            let settings = ModelProviderSettings {
                base_url: Some(base_url.to_owned()),
                ..ModelProviderSettings::new(ModelProviderKind::OpenAiCompatible)
            };
            let model = OpenAiModel::new(&"p/m".parse().unwrap(), &settings).unwrap();
            let request = ModelRequest { max_output_tokens: Some(7), ..ModelRequest::default() };
            let body = request::body(&model.info.name, &request, model.token_limit_field());
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            (body["max_tokens"].as_u64(), body["max_completion_tokens"].as_u64())
        };
        let theirs = (None, Some(7));
        let others = (Some(7), None);
        assert_eq!(sent("https://api.openai.com/v1"), theirs);
        assert_eq!(sent("https://eu.api.openai.com/v1"), theirs);
        assert_eq!(sent("https://mine.openai.azure.com/openai/v1"), theirs);
        assert_eq!(sent("http://127.0.0.1:11434/v1"), others);
        assert_eq!(sent("https://notapi.openai.com.example.org/v1"), others);
    }
}
