//! What nobody should see.

use std::sync::Arc;

use indexmap::IndexMap;
use insta::assert_snapshot;
use pegboard_core::client::{Client, NoClient};
use pegboard_core::model::{Delivery, ModelProviderName};
use pegboard_core::settings::mcp::Secret;
use pegboard_core::settings::model::ModelProviderKind::{Anthropic, OpenAiCompatible, Sampling};
use pegboard_core::settings::model::{ModelProviderKind, ModelProviderSettings};
use pegboard_providers::model::Models;
use pegboard_testkit::model_server::{Act, ModelServer, Refusal, Script};

use crate::stage::{KEY, KINDS, ask, model, request, settings};

#[tokio::test]
async fn a_key_is_in_no_error_and_no_debug_output() {
    let header = "Bearer another-secret-of-ours";
    let told = format!("wrong key {KEY} and another-secret-of-ours");
    let late = Refusal { kind: "api_error".to_owned(), message: told.clone(), ..Refusal::default() };
    for kind in KINDS {
        let acts =
            [Act::refusal(401, "authentication_error", &told), Act::RefuseLate(late.clone()), Act::Page];
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
fn what_is_wrong_with_a_provider_is_told_without_its_secrets() {
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
    let nobody: Arc<dyn Client> = Arc::new(NoClient);
    let told = ["nowhere/m", "strange/m", "broken/m", "odd/m", "missing/m"]
        .map(|name| models.find(&name.parse().unwrap(), &nobody).unwrap_err().to_string());
    assert!(models.find(&"client/default".parse().unwrap(), &nobody).is_ok());
    assert_snapshot!(told.join("\n"), @"
    the model 'nowhere/m' cannot be used: the provider 'nowhere' has no baseUrl. Give it one like https://api.openai.com/v1
    the model 'strange/m' cannot be used: the baseUrl of the provider 'strange' is no address. Write one that begins with http:// or https://
    the model 'broken/m' cannot be used: the apiKey of the provider 'broken' has characters that no header may have. Check it for line breaks
    the model 'odd/m' cannot be used: the header 'X Team' of the provider 'odd' has characters that no header may have. Check it for line breaks
    there is no provider for the model 'missing/m'. Add it under providers; there are: nowhere, strange, broken, odd, client
    ");
}
