//! The providers of models, which agents think with.

use pegboard_core::model::ModelProviderName;
use pegboard_core::redact::is_secret_name;
use pegboard_core::settings::model::{ModelProviderKind, ModelProviderSettings};

use super::native::entries;
use super::server::{as_texts, veil};
use crate::configuration::{Configuration, ModelProvider};
use crate::path::Path;
use crate::read::{Missing, Reader};
use crate::tree::{Entry, Node, Origin, Span, Value};

/// What a provider that has an address may have, and one that is the client itself may not.
const OF_ADDRESS: [&str; 3] = ["baseUrl", "apiKey", "headers"];

/// Reads all providers. What is wrong with one leaves out that one alone.
pub(super) fn read(reader: &mut Reader<'_>, root: &Node, configuration: &mut Configuration) {
    let Some(providers) = root.get("providers") else { return };
    let way = Path::default().key("providers");
    for entry in entries(reader, providers, &way) {
        read_one(reader, entry, &way, configuration);
    }
}

fn read_one(reader: &mut Reader<'_>, entry: &Entry, way: &Path, configuration: &mut Configuration) {
    let way = way.key(&entry.key);
    reader.begin_part();
    let name = ModelProviderName::new(&entry.key);
    if let Err(invalid) = &name {
        reader.error(entry.key_span, &way, invalid.to_string(), Some("call it something else".to_owned()));
    }
    let settings = describe(reader, &entry.key, &entry.value, &way);
    let part = reader.end_part(&way);
    // One that is there twice was told already.
    let Ok(name) = name else { return };
    let provider = match settings.filter(|_| !part.is_wrong) {
        Some(settings) => ModelProvider::Usable(Box::new(settings)),
        None => ModelProvider::Unusable { needs: part.needs, problems: part.problems },
    };
    configuration.providers.entry(name).or_insert(provider);
}

fn describe(reader: &mut Reader<'_>, name: &str, node: &Node, way: &Path) -> Option<ModelProviderSettings> {
    let Value::Map(entries) = &node.value else {
        reader.error(node.span, way, format!("a provider is an object, not {}", node.kind()), None);
        return None;
    };
    let mut entries = entries.clone();
    for entry in &mut entries {
        as_texts(reader, entry);
        let way = way.key(&entry.key);
        reader.fill(&mut entry.value, &way, Missing::Told);
        warn_of_secrets(reader, name, entry, &way);
        veil(reader, entry);
        if entry.key == "apiKey" {
            entry.value.origin = Origin::Secret;
        }
    }
    let filled = Node { value: Value::Map(entries), ..node.clone() };
    let settings: ModelProviderSettings = reader.read(&filled, way, &[])?;
    check_address(reader, &settings, node, way);
    check_prices(reader, &settings, node, way);
    Some(settings)
}

/// Keys belong into the environment: files are shared, backed up and pasted.
fn warn_of_secrets(reader: &mut Reader<'_>, provider: &str, entry: &Entry, way: &Path) {
    let mut check = |name: &str, variable: &str, node: &Node, way: &Path| {
        let Value::Text(text) = &node.value else { return };
        reader.keep_secret(text);
        if node.origin != Origin::Secret && !text.trim().is_empty() {
            let variable = format!("{provider}_{variable}").to_uppercase().replace(['-', '.', ' '], "_");
            let help = format!("write {name}: ${{{variable}}}, and set that variable");
            reader.warn(node.span, way, "this is a secret, and it stands in the file", Some(help));
        }
    };
    match (&entry.value.value, entry.key.as_str()) {
        (_, "apiKey") => check("apiKey", "API_KEY", &entry.value, way),
        (Value::Map(headers), "headers") => {
            for header in headers.iter().filter(|header| is_secret_name(&header.key)) {
                check(&header.key, &header.key, &header.value, &way.key(&header.key));
            }
        }
        _ => {}
    }
}

fn check_address(reader: &mut Reader<'_>, settings: &ModelProviderSettings, node: &Node, way: &Path) {
    let span = |key: &str| node.get(key).map_or(node.span, |found| found.span);
    let url = settings.base_url.as_deref().map(str::trim).filter(|url| !url.is_empty());
    match (settings.kind, url) {
        (ModelProviderKind::Sampling, _) => {
            for key in OF_ADDRESS.iter().filter(|key| node.get(key).is_some()) {
                let help = Some("take it away, or give the provider another type".to_owned());
                let message = "the client that lends its model is asked without it";
                reader.error(span(key), &way.key(key), message, help);
            }
        }
        (ModelProviderKind::OpenAiCompatible, None) => {
            let help = "write one like https://api.openai.com/v1 or http://127.0.0.1:11434/v1".to_owned();
            reader.error(span("baseUrl"), &way.key("baseUrl"), "the provider has no baseUrl", Some(help));
        }
        (ModelProviderKind::Anthropic, None) => {}
        (_, Some(url)) if ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) => {}
        (_, Some(_)) => {
            let help = Some("write one like https://api.openai.com/v1".to_owned());
            reader.error(span("baseUrl"), &way.key("baseUrl"), "this is no address of a provider", help);
        }
    }
}

fn check_prices(reader: &mut Reader<'_>, settings: &ModelProviderSettings, node: &Node, way: &Path) {
    for (name, model) in &settings.models {
        let Some(pricing) = model.pricing else { continue };
        let prices = [Some(pricing.input), Some(pricing.output), pricing.cache_read, pricing.cache_write];
        if !prices.into_iter().flatten().all(|price| price.is_finite() && price >= 0.0) {
            let written =
                node.get("models").and_then(|models| models.get(name)).and_then(|model| model.get("pricing"));
            let span: Span = written.unwrap_or(node).span;
            let help = Some("give what a million tokens cost, in US dollars".to_owned());
            let way = way.key("models").key(name).key("pricing");
            reader.error(span, &way, "a price is a number from 0 on", help);
        }
    }
}
