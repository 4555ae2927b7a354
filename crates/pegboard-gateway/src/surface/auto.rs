//! Which surface suits a client, and why.

use pegboard_core::settings::gateway::Expose;
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_wire::server::ClientDescription;
use serde_json::json;

/// Where a client may say which surface it wants, among its experimental capabilities.
const WISH: &str = "pegboard/expose";
/// How much of a client's name is said again.
const MAX_NAME_BYTES: usize = 80;

/// What is known of clients, by how their names begin in lower case.
const KNOWN: [(&str, Trait); 5] = [
    ("claude-code", Trait::SearchesTools),
    ("cursor", Trait::FewTools(40)),
    ("visual studio code", Trait::FewTools(128)),
    ("vscode", Trait::FewTools(128)),
    ("windsurf", Trait::FewTools(100)),
];

/// What a client does with a long list of tools.
#[derive(Clone, Copy)]
enum Trait {
    /// It looks tools up when it needs them, so that a long list costs it nothing.
    SearchesTools,
    /// It takes so many and no more.
    FewTools(usize),
}

/// A surface that suits a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The surface: `Meta` or `Flat`.
    pub(crate) expose: Expose,
    /// In a sentence.
    pub(crate) why: String,
}

impl Choice {
    /// What suits a client.
    pub(crate) fn of(client: &ClientDescription) -> Self {
        let wish = client.capabilities.at(&["experimental", WISH]);
        match wish.as_ref().and_then(RawJson::text).as_deref() {
            Some("flat") => return Self::new(Expose::Flat, "the client asks for it".to_owned()),
            Some("meta") => return Self::new(Expose::Meta, "the client asks for it".to_owned()),
            Some(_) | None => {}
        }
        let name = client.info.as_ref().and_then(|info| info.get("name"));
        let name = name.as_ref().and_then(RawJson::text).unwrap_or_default();
        let said = clipped(&name, MAX_NAME_BYTES);
        let lower = name.to_lowercase();
        match KNOWN.iter().find(|(begins, _)| lower.starts_with(begins)) {
            Some((_, Trait::SearchesTools)) => {
                Self::new(Expose::Flat, format!("'{said}' searches long lists of tools itself"))
            }
            Some((_, Trait::FewTools(most))) => {
                Self::new(Expose::Meta, format!("'{said}' takes at most {most} tools"))
            }
            None => Self::new(Expose::Meta, "nothing is known of the client".to_owned()),
        }
    }

    fn new(expose: Expose, why: String) -> Self {
        Self { expose, why }
    }

    /// The choice as a client is told it, in `_meta`.
    pub(crate) fn as_meta(&self) -> RawJson {
        RawJson::from(json!({WISH: {"chosen": self.expose, "why": self.why}}))
    }
}
