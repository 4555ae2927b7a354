//! Redaction of secrets.

use std::sync::Arc;

use indexmap::IndexMap;
use insta::assert_snapshot;
use pegboard_core::client::{Client, NoClient};
use pegboard_core::model::{Delivery, ModelProviderName};
use pegboard_core::secret::Secret;
use pegboard_core::settings::model::ModelProviderKind::{Anthropic, OpenAiCompatible, Sampling};
use pegboard_core::settings::model::{ModelProviderKind, ModelProviderSettings};
use pegboard_providers::model::Models;
use pegboard_testkit::model_server::{ModelServer, Script, ScriptAction, ScriptedError};

use crate::model::harness::{KEY, KINDS, ask, model, request, settings};

#[tokio::test]
async fn errors_and_debug_output_contain_no_key() {
    let header = "Bearer another-secret-of-ours";
    let message = format!("wrong key {KEY} and another-secret-of-ours");
    let late =
        ScriptedError { kind: "api_error".to_owned(), message: message.clone(), ..ScriptedError::default() };
    for kind in KINDS {
        let acts = [
            ScriptAction::refusal(401, "authentication_error", &message),
            ScriptAction::RefuseLate(late.clone()),
            ScriptAction::Page,
        ];
        let server = ModelServer::start(Script::of(acts)).await.unwrap();
        let mut settings = settings(kind, &server);
        settings.headers.insert("X-Auth".to_owned(), Secret::new(header));
        let providers = IndexMap::from([(ModelProviderName::new("p").unwrap(), settings.clone())]);
        let model = model(settings);
        let mut texts = vec![format!("{providers:?} {:?} {model:?}", Models::new(&providers))];
        for _ in 0..3 {
            let error = ask(&*model, &request(Delivery::Streamed)).await.0.unwrap_err();
            texts.push(format!("{error} {error:?}"));
        }
        let texts = texts.join("\n");
        assert!(!texts.contains(KEY) && !texts.contains("another-secret"), "{texts}");
    }
}

#[test]
fn invalid_providers_are_reported_without_secrets() {
    let named = |name: &str| ModelProviderName::new(name).unwrap();
    let with = |kind: ModelProviderKind, url: &str, key: &str| ModelProviderSettings {
        base_url: Some(url.to_owned()),
        api_key: Some(Secret::new(key)),
        ..ModelProviderSettings::new(kind)
    };
    let mut odd = with(Anthropic, "https://example.org", "key");
    odd.headers.insert("X Team".to_owned(), Secret::new("secret"));
    let models = Models::new(&IndexMap::from([
        (named("nowhere"), with(OpenAiCompatible, " ", "secret")),
        (named("strange"), with(OpenAiCompatible, "ftp://secret@example.org", "secret")),
        (named("broken"), with(Anthropic, "https://example.org", "secret\nsecret")),
        (named("odd"), odd),
        (named("client"), ModelProviderSettings::new(Sampling)),
    ]));
    let client: Arc<dyn Client> = Arc::new(NoClient);
    let errors = ["nowhere/m", "strange/m", "broken/m", "odd/m", "missing/m"]
        .map(|name| models.find(&name.parse().unwrap(), &client).unwrap_err().to_string());
    assert!(models.find(&"client/default".parse().unwrap(), &client).is_ok());
    assert_snapshot!(errors.join("\n"), @"
    cannot use model 'nowhere/m': provider 'nowhere' has no baseUrl: set one such as https://api.openai.com/v1
    cannot use model 'strange/m': invalid baseUrl of provider 'strange': expected a URL that starts with http:// or https://
    cannot use model 'broken/m': apiKey of provider 'broken' contains characters that are not allowed in a header: check for line breaks
    cannot use model 'odd/m': header 'X Team' of provider 'odd' contains characters that are not allowed in a header: check for line breaks
    no provider for model 'missing/m': add it under providers (configured: nowhere, strange, broken, odd, client)
    ");
}
