//! Chooses a surface for a client.

use pegboard_core::settings::gateway::Expose;
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_wire::server::ClientDescription;
use serde_json::json;

/// Key of the experimental capability with which a client requests a surface.
const EXPOSE_KEY: &str = "pegboard/expose";
/// Maximum length of an echoed client name.
const MAX_NAME_BYTES: usize = 80;

/// Known clients, by lower-case name prefix.
const KNOWN_CLIENTS: [(&str, ClientTrait); 5] = [
    ("claude-code", ClientTrait::SearchesTools),
    ("cursor", ClientTrait::MaxTools(40)),
    ("visual studio code", ClientTrait::MaxTools(128)),
    ("vscode", ClientTrait::MaxTools(128)),
    ("windsurf", ClientTrait::MaxTools(100)),
];

/// Behaviour of a client with long tool lists.
#[derive(Clone, Copy)]
enum ClientTrait {
    /// Searches tools on demand, so a long list costs no context.
    SearchesTools,
    /// Accepts at most this many tools.
    MaxTools(usize),
}

/// Surface chosen for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SurfaceChoice {
    /// The surface: `Meta` or `Flat`.
    pub(crate) expose: Expose,
    /// Reason, for people.
    pub(crate) reason: String,
}

impl SurfaceChoice {
    /// Chooses a surface for a client.
    pub(crate) fn for_client(client: &ClientDescription) -> Self {
        let requested = client.capabilities.at(&["experimental", EXPOSE_KEY]);
        match requested.as_ref().and_then(RawJson::text).as_deref() {
            Some("flat") => return Self::new(Expose::Flat, "requested by the client".to_owned()),
            Some("meta") => return Self::new(Expose::Meta, "requested by the client".to_owned()),
            Some(_) | None => {}
        }
        let name = client.info.as_ref().and_then(|info| info.get("name"));
        let name = name.as_ref().and_then(RawJson::text).unwrap_or_default();
        let shown = clipped(&name, MAX_NAME_BYTES);
        let lower = name.to_lowercase();
        match KNOWN_CLIENTS.iter().find(|(prefix, _)| lower.starts_with(prefix)) {
            Some((_, ClientTrait::SearchesTools)) => {
                Self::new(Expose::Flat, format!("'{shown}' searches long tool lists itself"))
            }
            Some((_, ClientTrait::MaxTools(most))) => {
                Self::new(Expose::Meta, format!("'{shown}' accepts at most {most} tools"))
            }
            None => Self::new(Expose::Meta, "unknown client".to_owned()),
        }
    }

    fn new(expose: Expose, reason: String) -> Self {
        Self { expose, reason }
    }

    /// Returns the choice as `_meta` for the client.
    pub(crate) fn as_meta(&self) -> RawJson {
        RawJson::from(json!({EXPOSE_KEY: {"chosen": self.expose, "why": self.reason}}))
    }
}
