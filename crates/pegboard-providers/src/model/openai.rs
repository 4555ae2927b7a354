//! Chat completions: OpenAI, and with quirks Ollama, vLLM, llama.cpp and OpenRouter.

use pegboard_core::model::{ModelName, ModelRequest};

use super::endpoint::ModelEndpoint;
use request::TokenLimitField;

mod reply;
mod request;

pub(super) use reply::ChatReplyBuilder;

/// Serializes a request for an endpoint.
pub(super) fn body(endpoint: &ModelEndpoint, name: &ModelName, request: &ModelRequest) -> Vec<u8> {
    // OpenAI has renamed the field for the token limit, but most other servers only know the old name.
    let is_theirs = endpoint.is_hosted_at("api.openai.com") || endpoint.is_hosted_at("openai.azure.com");
    let limit = if is_theirs { TokenLimitField::MaxCompletionTokens } else { TokenLimitField::MaxTokens };
    request::body(name, request, limit)
}

#[cfg(test)]
mod tests {
    use pegboard_core::settings::model::{ModelProviderKind, ModelProviderSettings};
    use pegboard_wire::http::client::LazyHttpClient;

    use super::*;
    use crate::model::endpoint::ProviderApi;

    #[test]
    fn the_token_limit_field_depends_on_the_host() {
        let sent = |base_url: &str| {
            let settings = ModelProviderSettings {
                base_url: Some(base_url.to_owned()),
                ..ModelProviderSettings::new(ModelProviderKind::OpenAiCompatible)
            };
            let name: ModelName = "p/m".parse().unwrap();
            let api = ProviderApi::ChatCompletions;
            let endpoint =
                ModelEndpoint::new(name.provider(), &settings, api, LazyHttpClient::default()).unwrap();
            let request = ModelRequest { max_output_tokens: Some(7), ..ModelRequest::default() };
            let body = body(&endpoint, &name, &request);
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
