//! Entries of `providers`.

use insta::assert_snapshot;
use pegboard_config::{ConfigProblem, Configuration, ModelProviderEntry, native_schema};
use pegboard_core::secret::Secret;
use serde_json::Value;

use super::{hidden, load_text};

const GOOD: &str = r#"
providers:
  local: {type: openai-compatible, baseUrl: "http://127.0.0.1:11434/v1"}
  router:
    type: openai-compatible
    baseUrl: https://router.example.com/api/v1
    apiKey: ${KEY}
    headers: {X-Title: pegboard, X-Number: 1}
    models:
      meta/llama-4: {contextWindow: 128000, pricing: {input: 0.5, output: 2, cacheRead: 0.05}}
  claude: {type: anthropic, apiKey: "${API_KEY}"}
  client: {type: sampling, models: {default: {contextWindow: 100000}}}
"#;

/// Lists every provider and all problems.
fn summarize(configuration: &Configuration) -> String {
    let line = |provider: &ModelProviderEntry| match provider {
        ModelProviderEntry::Usable(settings) => {
            let url = settings.base_url.as_deref().unwrap_or("-");
            let key = settings.api_key.as_ref().map_or("None", |_| "Some(***)");
            let (headers, models) = (hidden(&settings.headers), &settings.models);
            format!("{:?} {url} {key} {headers} {models:?}", settings.kind)
        }
        ModelProviderEntry::Unusable(entry) => format!("({})", entry.reason()),
    };
    let lines = configuration.providers.iter().map(|(name, provider)| format!("{name}: {}", line(provider)));
    let problems = configuration.problems.iter().map(ConfigProblem::render);
    let folder = configuration.sources[0].path.parent().unwrap().display().to_string();
    lines.chain(problems).collect::<Vec<_>>().join("\n").replace(&format!("{folder}/"), "")
}

#[test]
fn every_setting_of_a_provider_is_read() {
    let configuration = load_text("pegboard.yaml", GOOD).unwrap();
    assert_snapshot!(summarize(&configuration), @r#"
    local: OpenAiCompatible http://127.0.0.1:11434/v1 None {} {}
    router: OpenAiCompatible https://router.example.com/api/v1 Some(***) {"X-Title": ***, "X-Number": ***} {"meta/llama-4": ModelSettings { context_window: Some(128000), pricing: Some(Pricing { input: 0.5, output: 2.0, cache_read: Some(0.05), cache_write: None }) }}
    claude: Anthropic - Some(***) {} {}
    client: Sampling - None {} {"default": ModelSettings { context_window: Some(100000), pricing: None }}
    "#);
    let secrets: Vec<&str> = configuration.secrets.iter().map(Secret::reveal).collect();
    assert!(secrets.contains(&"sk-from-outside") && secrets.contains(&"key-of-the-api"), "{secrets:?}");
}

#[test]
fn the_schema_validates_providers() {
    let validator = jsonschema::validator_for(&native_schema()).unwrap();
    let check = |text: &str| validator.is_valid(&serde_saphyr::from_str::<Value>(text).unwrap());
    assert!(check(GOOD));
    for wrong in ["{type: openai}", "{type: anthropic, baseURL: x}", "{type: anthropic, transport: x}"] {
        assert!(!check(&format!("providers: {{p: {wrong}}}")), "{wrong}");
    }
}

#[test]
fn a_literal_key_causes_a_warning_and_is_redacted() {
    let text = r#"
providers:
  my-cloud:
    type: anthropic
    apiKey: sk-written-down
    headers: {X-Api-Key: sk-written-too, X-Title: pegboard}
  other: {type: anthropic, apiKey: "${NOT_SET:-sk-by-default}"}
"#;
    let configuration = load_text("pegboard.yaml", text).unwrap();
    assert_snapshot!(summarize(&configuration), @r#"
    my-cloud: Anthropic - Some(***) {"X-Api-Key": ***, "X-Title": ***} {}
    other: Anthropic - Some(***) {} {}
    warning: pegboard.yaml:5:13  providers.my-cloud.apiKey
       5 |     apiKey: **-*******-****
         |             ^^^^^^^^^^^^^^^ secret in plain text
      help: use apiKey: ${MY_CLOUD_API_KEY} and set that variable
    warning: pegboard.yaml:6:26  providers.my-cloud.headers.X-Api-Key
       6 |     headers: {X-Api-Key: **-*******-***, X-Title: ********}
         |                          ^^^^^^^^^^^^^^ secret in plain text
      help: use X-Api-Key: ${MY_CLOUD_X_API_KEY} and set that variable
    warning: pegboard.yaml:7:36  providers.other.apiKey
       7 |   other: {type: anthropic, apiKey: "${NOT_SET:-**-**-*******}"}
         |                                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^ secret in plain text
      help: use apiKey: ${OTHER_API_KEY} and set that variable
    "#);
}

#[test]
fn an_invalid_provider_is_left_out_alone() {
    let text = r#"
providers:
  nowhere: {type: openai-compatible}
  strange: {type: openai-compatible, baseUrl: "example.com/v1"}
  typo: {type: antropic}
  missing: {type: anthropic, apiKey: "${OPENAI_API_KEY}"}
  client: {type: sampling, apiKey: "${KEY}"}
  dear: {type: anthropic, models: {m: {pricing: {input: -1, output: 2}}}}
  fine: {type: anthropic}
"#;
    let configuration = load_text("pegboard.yaml", text).unwrap();
    assert_snapshot!(summarize(&configuration), @r#"
    nowhere: (providers.nowhere.baseUrl: the provider has no baseUrl)
    strange: (providers.strange.baseUrl: invalid provider URL)
    typo: (providers.typo.type: unknown value 'antropic', expected one of openai-compatible, anthropic, sampling)
    missing: (needs: OPENAI_API_KEY)
    client: (providers.client.apiKey: not supported by sampling providers)
    dear: (providers.dear.models.m.pricing: a price must be 0 or more)
    fine: Anthropic - None {} {}
    error[config_invalid]: pegboard.yaml:3:12  providers.nowhere.baseUrl
       3 |   nowhere: {type: openai-compatible}
         |            ^^^^^^^^^^^^^^^^^^^^^^^^^ the provider has no baseUrl
      help: use a URL such as https://api.openai.com/v1 or http://127.0.0.1:11434/v1
    error[config_invalid]: pegboard.yaml:4:47  providers.strange.baseUrl
       4 |   strange: {type: openai-compatible, baseUrl: "example.com/v1"}
         |                                               ^^^^^^^^^^^^^^^^ invalid provider URL
      help: use a URL such as https://api.openai.com/v1
    error[config_invalid]: pegboard.yaml:5:16  providers.typo.type
       5 |   typo: {type: antropic}
         |                ^^^^^^^^ unknown value 'antropic', expected one of openai-compatible, anthropic, sampling
      help: did you mean anthropic?
    warning: pegboard.yaml:6:39  providers.missing.apiKey
       6 |   missing: {type: anthropic, apiKey: "${OPENAI_API_KEY}"}
         |                                       ^^^^^^^^^^^^^^^^^ the variable OPENAI_API_KEY is not set
      help: export OPENAI_API_KEY=…, or add a default: ${OPENAI_API_KEY:-}
    error[config_invalid]: pegboard.yaml:7:36  providers.client.apiKey
       7 |   client: {type: sampling, apiKey: "${KEY}"}
         |                                    ^^^^^^^^ not supported by sampling providers
      help: remove it, or change the provider's type
    error[config_invalid]: pegboard.yaml:8:49  providers.dear.models.m.pricing
       8 |   dear: {type: anthropic, models: {m: {pricing: {input: -1, output: 2}}}}
         |                                                 ^^^^^^^^^^^^^^^^^^^^^^ a price must be 0 or more
      help: set the price per million tokens in US dollars
    "#);
}

#[test]
fn invalid_providers_are_reported() {
    let text = r#"
providers:
  unknown: {type: anthropic, baseURL: "https://example.com"}
  kindless: {apiKey: "${KEY}"}
  two words: {type: anthropic}
  word: anthropic
"#;
    let configuration = load_text("pegboard.yaml", text).unwrap();
    assert_snapshot!(summarize(&configuration), @r#"
    unknown: (providers.unknown.baseURL: unknown setting)
    kindless: (providers.kindless: 'type' is missing)
    word: (providers.word: a provider must be an object, not a string)
    error[config_invalid]: pegboard.yaml:3:30  providers.unknown.baseURL
       3 |   unknown: {type: anthropic, baseURL: "https://example.com"}
         |                              ^^^^^^^ unknown setting
      help: did you mean baseUrl?
    error[config_invalid]: pegboard.yaml:4:13  providers.kindless
       4 |   kindless: {apiKey: "${KEY}"}
         |             ^^^^^^^^^^^^^^^^^^ 'type' is missing
    error[config_invalid]: pegboard.yaml:5:3  providers["two words"]
       5 |   two words: {type: anthropic}
         |   ^^^^^^^^^ invalid provider name 'two words': use letters, digits, '.', '-' and '_'
      help: choose another name
    error[config_invalid]: pegboard.yaml:6:9  providers.word
       6 |   word: anthropic
         |         ^^^^^^^^^ a provider must be an object, not a string
    "#);
}
