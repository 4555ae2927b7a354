//! The `providers` section: model providers for agents.

use pegboard_core::model::ModelProviderName;
use pegboard_core::redact::is_secret_name;
use pegboard_core::settings::model::{ModelProviderKind, ModelProviderSettings};

use super::native::object_entries;
use super::server::{collect_secrets, scalars_to_text};
use crate::configuration::{Configuration, ModelProviderEntry};
use crate::path::KeyPath;
use crate::read::{ConfigReader, OnUnsetVariable};
use crate::tree::{Node, Span, TreeEntry, Value, ValueOrigin};

/// Settings of providers with an endpoint, which sampling does not have.
const ENDPOINT_SETTINGS: [&str; 3] = ["baseUrl", "apiKey", "headers"];

/// Reads all providers. A problem leaves out only that provider.
pub(super) fn read(reader: &mut ConfigReader<'_>, root: &Node, configuration: &mut Configuration) {
    let Some(providers) = root.get("providers") else { return };
    let key_path = KeyPath::default().key("providers");
    for entry in object_entries(reader, providers, &key_path) {
        read_provider(reader, entry, &key_path, configuration);
    }
}

fn read_provider(
    reader: &mut ConfigReader<'_>,
    entry: &TreeEntry,
    key_path: &KeyPath,
    configuration: &mut Configuration,
) {
    let key_path = key_path.key(&entry.key);
    reader.begin_part();
    let name = reader.valid_name(ModelProviderName::new(&entry.key), entry.key_span, &key_path);
    let settings = describe(reader, &entry.key, &entry.value, &key_path);
    let part = reader.end_part(&key_path);
    // A duplicate was reported already.
    let Some(name) = name else { return };
    let provider = match part.entry(settings) {
        Ok(settings) => ModelProviderEntry::Usable(Box::new(settings)),
        Err(unusable) => ModelProviderEntry::Unusable(unusable),
    };
    configuration.providers.entry(name).or_insert(provider);
}

fn describe(
    reader: &mut ConfigReader<'_>,
    name: &str,
    node: &Node,
    key_path: &KeyPath,
) -> Option<ModelProviderSettings> {
    let mut entries = reader.object(node, key_path, "a provider", None)?.to_vec();
    for entry in &mut entries {
        scalars_to_text(reader, entry);
        let key_path = key_path.key(&entry.key);
        reader.expand(&mut entry.value, &key_path, OnUnsetVariable::Report);
        warn_about_secrets(reader, name, entry, &key_path);
        collect_secrets(reader, entry);
        if entry.key == "apiKey" {
            entry.value.origin = ValueOrigin::Secret;
        }
    }
    let filled = Node { value: Value::Map(entries), ..node.clone() };
    let settings: ModelProviderSettings = reader.read(&filled, key_path, &[])?;
    check_address(reader, &settings, node, key_path);
    check_prices(reader, &settings, node, key_path);
    Some(settings)
}

/// Warns about literal secrets: they belong in the environment, since files are shared, backed up and pasted.
fn warn_about_secrets(reader: &mut ConfigReader<'_>, provider: &str, entry: &TreeEntry, key_path: &KeyPath) {
    let mut check = |name: &str, variable: &str, node: &Node, key_path: &KeyPath| {
        let Value::Text(text) = &node.value else { return };
        reader.add_certain_secret(text, node.span, key_path);
        if node.origin != ValueOrigin::Secret && !text.trim().is_empty() {
            let variable = format!("{provider}_{variable}").to_uppercase().replace(['-', '.', ' '], "_");
            let help = format!("use {name}: ${{{variable}}} and set that variable");
            reader.warn(node.span, key_path, "secret in plain text", Some(help));
        }
    };
    match (&entry.value.value, entry.key.as_str()) {
        (_, "apiKey") => check("apiKey", "API_KEY", &entry.value, key_path),
        (Value::Map(headers), "headers") => {
            for header in headers.iter().filter(|header| is_secret_name(&header.key)) {
                check(&header.key, &header.key, &header.value, &key_path.key(&header.key));
            }
        }
        _ => {}
    }
}

fn check_address(
    reader: &mut ConfigReader<'_>,
    settings: &ModelProviderSettings,
    node: &Node,
    key_path: &KeyPath,
) {
    let span = |key: &str| node.get(key).map_or(node.span, |found| found.span);
    let url = settings.base_url.as_deref().map(str::trim).filter(|url| !url.is_empty());
    match (settings.kind, url) {
        (ModelProviderKind::Sampling, _) => {
            for key in ENDPOINT_SETTINGS.iter().filter(|key| node.get(key).is_some()) {
                let help = Some("remove it, or change the provider's type".to_owned());
                let message = "not supported by sampling providers";
                reader.error(span(key), &key_path.key(key), message, help);
            }
        }
        (ModelProviderKind::OpenAiCompatible, None) => {
            let help = "use a URL such as https://api.openai.com/v1 or http://127.0.0.1:11434/v1".to_owned();
            reader.error(
                span("baseUrl"),
                &key_path.key("baseUrl"),
                "the provider has no baseUrl",
                Some(help),
            );
        }
        (ModelProviderKind::Anthropic, None) => {}
        (_, Some(url)) if ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) => {}
        (_, Some(_)) => {
            let help = Some("use a URL such as https://api.openai.com/v1".to_owned());
            reader.error(span("baseUrl"), &key_path.key("baseUrl"), "invalid provider URL", help);
        }
    }
}

fn check_prices(
    reader: &mut ConfigReader<'_>,
    settings: &ModelProviderSettings,
    node: &Node,
    key_path: &KeyPath,
) {
    for (name, model) in &settings.models {
        let Some(pricing) = model.pricing else { continue };
        let prices = [Some(pricing.input), Some(pricing.output), pricing.cache_read, pricing.cache_write];
        if !prices.into_iter().flatten().all(|price| price.is_finite() && price >= 0.0) {
            let written =
                node.get("models").and_then(|models| models.get(name)).and_then(|model| model.get("pricing"));
            let span: Span = written.unwrap_or(node).span;
            let help = Some("set the price per million tokens in US dollars".to_owned());
            let key_path = key_path.key("models").key(name).key("pricing");
            reader.error(span, &key_path, "a price must be 0 or more", help);
        }
    }
}
