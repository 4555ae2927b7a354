//! Where the service is: what the person says, or else what the document says.

use std::net::IpAddr;

use pegboard_core::settings::openapi::OpenApiSettings;
use reqwest::Url;
use serde_json::Value;

use super::library::{Library, Location, Part, Version, clip};

/// The address that the paths of an operation are put behind. It has no `/` at its end, and nothing behind its path.
pub(super) fn base(
    library: &Library,
    settings: &OpenApiSettings,
    levels: [Option<Part<'_>>; 2],
) -> Result<Url, String> {
    if let Some(written) = &settings.base_url {
        return checked(Url::parse(written).map_err(|error| format!("baseUrl is no address: {error}"))?);
    }
    let url = match library.version {
        Version::V2 => v2(library, levels)?,
        Version::V30 | Version::V31 => v3(library, settings, levels)?,
    };
    let url = checked(url)?;
    // Somebody else's document must not send requests, with what is shown at the door, into this network.
    if let Location::Web(document) = library.location()
        && document.origin() != url.origin()
        && is_private(&url)
    {
        return Err(format!(
            "the document says that the service is at {}, in a private network; write baseUrl if that is meant",
            url.origin().ascii_serialization()
        ));
    }
    Ok(url)
}

fn v3(library: &Library, settings: &OpenApiSettings, levels: [Option<Part<'_>>; 2]) -> Result<Url, String> {
    let levels = levels.into_iter().flatten().chain([library.root()]);
    let servers: Vec<Part<'_>> = levels
        .filter_map(|level| level.get("servers"))
        .map(|servers| servers.items().collect())
        .find(|servers: &Vec<Part<'_>>| !servers.is_empty())
        .unwrap_or_default();
    let is_meant = |server: &&Part<'_>| {
        let says = |word: &str| {
            settings
                .server
                .as_deref()
                .is_some_and(|meant| server.text(word).is_some_and(|text| text.contains(meant)))
        };
        says("url") || says("description")
    };
    let Some(server) = servers.iter().find(is_meant).or(servers.first()) else {
        return absolute(library, "/");
    };
    let mut url = server.text("url").unwrap_or("/").to_owned();
    for (name, variable) in server.get("variables").into_iter().flat_map(Part::members) {
        let value = variable_value(name, variable, settings)?;
        url = url.replace(&format!("{{{name}}}"), &value);
    }
    if let Some((_, rest)) = url.split_once('{') {
        let name = rest.split('}').next().unwrap_or_default();
        let value = settings.server_variables.get(name).ok_or_else(|| missing(name))?;
        url = url.replace(&format!("{{{name}}}"), value);
    }
    absolute(library, &url)
}

fn variable_value(name: &str, variable: Part<'_>, settings: &OpenApiSettings) -> Result<String, String> {
    let choices: Vec<&str> = variable
        .get("enum")
        .into_iter()
        .flat_map(Part::items)
        .filter_map(|choice| choice.value.as_str())
        .collect();
    match settings.server_variables.get(name) {
        Some(value) if choices.is_empty() || choices.contains(&value.as_str()) => Ok(value.clone()),
        Some(_) => Err(format!("serverVariables.{} is none of {}", clip(name), choices.join(", "))),
        None => match variable.value.get("default") {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Number(number)) => Ok(number.to_string()),
            _ => choices.first().map(|first| (*first).to_owned()).ok_or_else(|| missing(name)),
        },
    }
}

fn missing(name: &str) -> String {
    let name = clip(name);
    format!(
        "the address of the service has a variable '{name}' without a value; write serverVariables: {{{name}: …}}"
    )
}

fn v2(library: &Library, levels: [Option<Part<'_>>; 2]) -> Result<Url, String> {
    let root = library.root();
    let path = root.text("basePath").unwrap_or("/");
    let Some(host) = root.text("host").filter(|host| !host.is_empty()) else {
        return absolute(library, path);
    };
    let levels = levels.into_iter().flatten().chain([root]);
    let schemes =
        levels.filter_map(|level| level.get("schemes")).find(|schemes| schemes.items().next().is_some());
    let schemes: Vec<&str> =
        schemes.into_iter().flat_map(Part::items).filter_map(|scheme| scheme.value.as_str()).collect();
    let is_plain = !schemes.is_empty() && !schemes.contains(&"https");
    let document = match library.location() {
        Location::Web(document) if schemes.is_empty() => Some(document.scheme()),
        Location::Web(_) | Location::File(_) => None,
    };
    let scheme = document.unwrap_or(if is_plain { "http" } else { "https" });
    absolute(library, &format!("{scheme}://{host}/{}", path.trim_start_matches('/')))
}

/// An address that may be written relative to the document's.
fn absolute(library: &Library, written: &str) -> Result<Url, String> {
    let url = match (Url::parse(written), library.location()) {
        (Ok(url), _) => Ok(url),
        (Err(_), Location::Web(document)) => document.join(written),
        (Err(_), Location::File(_)) => {
            return Err(format!(
                "the document does not say where the service is ('{}'); write baseUrl",
                clip(written)
            ));
        }
    };
    url.map_err(|error| format!("the address of the service is none: {error}; write baseUrl"))
}

fn checked(mut url: Url) -> Result<Url, String> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "the service is at a {}: address; only http: and https: can be used",
            url.scheme()
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "the address of the service has a name or password in it; use credentials for that".to_owned()
        );
    }
    url.set_query(None);
    url.set_fragment(None);
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}

/// Whether an address says by itself that it is not for everybody.
pub(super) fn is_private(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            let [first, second, ..] = address.octets();
            address.is_private()
                || address.is_loopback()
                || address.is_link_local()
                || address.is_unspecified()
                || (first == 100 && (64..128).contains(&second))
        }
        Ok(IpAddr::V6(address)) => {
            address.is_loopback()
                || address.is_unspecified()
                || address.is_unique_local()
                || address.is_unicast_link_local()
                || address.to_ipv4_mapped().is_some()
        }
        Err(_) => match host.rsplit_once('.') {
            Some((_, last)) => ["localhost", "internal", "local"].contains(&last),
            None => true,
        },
    }
}
