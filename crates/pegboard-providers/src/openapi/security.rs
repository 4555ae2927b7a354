//! What is shown at the door of a service: the schemes of the document, bound to what the person configured.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use pegboard_core::settings::mcp::Secret;
use pegboard_core::settings::openapi::{Credential, OpenApiSettings};
use reqwest::Url;

use super::library::{Library, Location, Part, Version, clip};
use super::server::is_private;
use super::token::Issuer;

/// One thing that is shown.
#[derive(Debug)]
pub(super) enum Proof {
    Header(String, Secret),
    Query(String, Secret),
    Cookie(String, Secret),
    /// A token that is asked for first.
    Token(Box<Issuer>),
}

/// What the operations of a service show.
pub(super) struct Security<'l> {
    library: &'l Library,
    settings: &'l OpenApiSettings,
    /// By scheme and scopes, so that operations that ask for the same share a token.
    proofs: HashMap<(String, Vec<String>), Result<Arc<Proof>, String>>,
    /// What is missing, and for how many operations.
    pub(super) missing: BTreeMap<String, usize>,
}

impl<'l> Security<'l> {
    pub(super) fn of(library: &'l Library, settings: &'l OpenApiSettings) -> Self {
        Self { library, settings, proofs: HashMap::new(), missing: BTreeMap::new() }
    }

    /// What an operation shows: all of the first alternative for which everything is there, and nothing if there is no
    /// such alternative.
    pub(super) fn proofs(&mut self, operation: Part<'l>) -> Vec<Arc<Proof>> {
        let wanted = operation.get("security").or_else(|| self.library.root().get("security"));
        let Some(wanted) = wanted else { return Vec::new() };
        let alternatives: Vec<Part<'l>> = wanted.items().collect();
        let mut problem = None;
        // What asks for nothing comes last: whoever has a key shows it.
        for alternative in alternatives.iter().filter(|each| each.members().next().is_some()) {
            let all: Result<Vec<Arc<Proof>>, String> = alternative
                .members()
                .map(|(scheme, scopes)| {
                    let scopes =
                        scopes.items().filter_map(|scope| scope.value.as_str()).map(str::to_owned).collect();
                    self.proof(scheme, scopes)
                })
                .collect();
            match all {
                Ok(all) => return all,
                Err(why) => problem = problem.or(Some(why)),
            }
        }
        let is_open = alternatives.iter().any(|each| each.members().next().is_none());
        if let Some(why) = problem.filter(|_| !is_open) {
            *self.missing.entry(why).or_default() += 1;
        }
        Vec::new()
    }

    fn proof(&mut self, scheme: &str, scopes: Vec<String>) -> Result<Arc<Proof>, String> {
        let key = (scheme.to_owned(), scopes);
        if let Some(known) = self.proofs.get(&key) {
            return known.clone();
        }
        let proof = self.bind(scheme, &key.1).map(Arc::new);
        self.proofs.insert(key, proof.clone());
        proof
    }

    fn bind(&self, name: &str, scopes: &[String]) -> Result<Proof, String> {
        let root = self.library.root();
        let schemes = match self.library.version {
            Version::V2 => root.get("securityDefinitions"),
            Version::V30 | Version::V31 => {
                root.get("components").and_then(|part| part.get("securitySchemes"))
            }
        };
        let shown = clip(name);
        let scheme = schemes.and_then(|schemes| schemes.get(name));
        let scheme = scheme.ok_or_else(|| format!("'{shown}', which the document does not describe"))?;
        let scheme = self.library.follow(scheme)?;
        let kind = scheme.text("type").unwrap_or_default();
        let credential = self.settings.credentials.get(name);
        let credential =
            credential.ok_or_else(|| format!("'{shown}' ({kind}), for which there are no credentials"))?;
        let value = || {
            credential
                .value
                .clone()
                .ok_or_else(|| format!("'{shown}' ({kind}), whose credentials have no 'value'"))
        };
        let bearer = |value: Secret| {
            Proof::Header("authorization".to_owned(), Secret::new(format!("Bearer {}", value.reveal())))
        };
        match kind {
            "apiKey" => {
                let key = scheme
                    .text("name")
                    .ok_or_else(|| format!("'{shown}', which has no name for its key"))?
                    .to_owned();
                match scheme.text("in") {
                    Some("header") => Ok(Proof::Header(key, value()?)),
                    Some("query") => Ok(Proof::Query(key, value()?)),
                    Some("cookie") => Ok(Proof::Cookie(key, value()?)),
                    _ => Err(format!("'{shown}', whose key stands nowhere")),
                }
            }
            "basic" => basic(shown, credential),
            "http" => match scheme.text("scheme").unwrap_or_default().to_ascii_lowercase().as_str() {
                "basic" => basic(shown, credential),
                "bearer" => value().map(bearer),
                other => Err(format!("'{shown}' (http {}), which is not supported", clip(other))),
            },
            "oauth2" | "openIdConnect" if credential.value.is_some() => value().map(bearer),
            "oauth2" => self.issuer(shown, scheme, credential, scopes),
            other => Err(format!("'{shown}' ({}), which is not supported", clip(other))),
        }
    }

    fn issuer(
        &self,
        name: &str,
        scheme: Part<'_>,
        credential: &Credential,
        scopes: &[String],
    ) -> Result<Proof, String> {
        let (Some(id), Some(secret)) = (&credential.client_id, &credential.client_secret) else {
            return Err(format!(
                "'{name}' (oauth2), whose credentials have neither 'value' nor 'clientId' and 'clientSecret'"
            ));
        };
        let flow = scheme.get("flows").and_then(|flows| flows.get("clientCredentials")).unwrap_or(scheme);
        let written = credential.token_url.as_ref().map(Secret::reveal);
        let url = written.or_else(|| flow.text("tokenUrl"));
        let url =
            url.ok_or_else(|| format!("'{name}' (oauth2), which has no tokenUrl for client credentials"))?;
        let url = match (Url::parse(url), self.library.location()) {
            (Err(_), Location::Web(document)) => document.join(url),
            (parsed, _) => parsed,
        };
        let url = url.map_err(|_| format!("'{name}' (oauth2), whose tokenUrl is no address"))?;
        let is_elsewhere = match self.library.location() {
            Location::Web(document) => written.is_none() && document.origin() != url.origin(),
            Location::File(_) => false,
        };
        if is_elsewhere && is_private(&url) {
            return Err(format!(
                "'{name}' (oauth2), whose tokenUrl is in a private network; write tokenUrl if that is meant"
            ));
        }
        let scopes = credential.scopes.clone().unwrap_or_else(|| scopes.to_vec());
        let issuer = Issuer::new(name, url, id, secret, scopes)
            .map_err(|error| format!("'{name}' (oauth2): {error}"))?;
        Ok(Proof::Token(Box::new(issuer)))
    }
}

fn basic(name: &str, credential: &Credential) -> Result<Proof, String> {
    let Some(username) = &credential.username else {
        return Err(format!("'{name}' (basic), whose credentials have no 'username'"));
    };
    let password = credential.password.as_ref().map_or("", Secret::reveal);
    let coded = BASE64.encode(format!("{}:{password}", username.reveal()));
    Ok(Proof::Header("authorization".to_owned(), Secret::new(format!("Basic {coded}"))))
}
