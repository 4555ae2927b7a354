//! Security schemes of a document, resolved to the configured credentials.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use pegboard_core::secret::Secret;
use pegboard_core::settings::openapi::{Credential, OpenApiSettings};
use reqwest::Url;

use super::document_set::{DocumentLocation, DocumentNode, DocumentSet, OpenApiVersion, clip};
use super::parameter::{OperationParameter, ParameterLocation};
use super::server::{OriginSource, source_of};
use super::token::TokenSource;
use pegboard_http::{has_credentials, origin, without_trailing_dot};

/// Credential of a request.
pub(super) enum AppliedCredential {
    Header(String, Secret),
    Query(String, Secret),
    Cookie(String, Secret),
    /// A token that is requested first.
    Token(Box<TokenSource>),
}

impl AppliedCredential {
    /// Returns `true` if the credential is sent in the place of this parameter.
    pub(super) fn replaces(&self, parameter: &OperationParameter) -> bool {
        let named = parameter.name.as_str();
        match (self, parameter.location) {
            (Self::Header(name, _), ParameterLocation::Header) => name.eq_ignore_ascii_case(named),
            (Self::Cookie(..), ParameterLocation::Header) => named.eq_ignore_ascii_case("cookie"),
            (Self::Cookie(name, _), ParameterLocation::Cookie)
            | (Self::Query(name, _), ParameterLocation::Query) => name == named,
            (Self::Header(..) | Self::Query(..) | Self::Cookie(..) | Self::Token(_), _) => false,
        }
    }
}

/// Resolver for the security requirements of operations.
pub(super) struct SecurityResolver<'l> {
    documents: &'l DocumentSet,
    settings: &'l OpenApiSettings,
    /// By scheme and scopes, so that operations with equal requirements share a token.
    credentials: HashMap<(String, Vec<String>), Result<Arc<AppliedCredential>, String>>,
    /// Missing credentials, with the number of affected operations.
    pub(super) missing: BTreeMap<String, usize>,
}

impl<'l> SecurityResolver<'l> {
    pub(super) fn of(documents: &'l DocumentSet, settings: &'l OpenApiSettings) -> Self {
        Self { documents, settings, credentials: HashMap::new(), missing: BTreeMap::new() }
    }

    /// Returns the credentials of the first alternative that is fully configured, or none.
    pub(super) fn credentials(&mut self, operation: DocumentNode<'l>) -> Vec<Arc<AppliedCredential>> {
        let wanted = operation.get("security").or_else(|| self.documents.root().get("security"));
        let Some(wanted) = wanted else { return Vec::new() };
        let alternatives: Vec<DocumentNode<'l>> = wanted.items().collect();
        let mut problem = None;
        // The empty alternative comes last: configured credentials are used.
        for alternative in alternatives.iter().filter(|each| each.members().next().is_some()) {
            let all: Result<Vec<Arc<AppliedCredential>>, String> = alternative
                .members()
                .map(|(scheme, scopes)| {
                    let scopes =
                        scopes.items().filter_map(|scope| scope.value.as_str()).map(str::to_owned).collect();
                    self.credential(scheme, scopes)
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

    fn credential(&mut self, scheme: &str, scopes: Vec<String>) -> Result<Arc<AppliedCredential>, String> {
        let key = (scheme.to_owned(), scopes);
        if let Some(known) = self.credentials.get(&key) {
            return known.clone();
        }
        let credential = self.resolve(scheme, &key.1).map(Arc::new);
        self.credentials.insert(key, credential.clone());
        credential
    }

    fn resolve(&self, name: &str, scopes: &[String]) -> Result<AppliedCredential, String> {
        let root = self.documents.root();
        let schemes = match self.documents.version {
            OpenApiVersion::V2 => root.get("securityDefinitions"),
            OpenApiVersion::V30 | OpenApiVersion::V31 => {
                root.get("components").and_then(|part| part.get("securitySchemes"))
            }
        };
        let shown = clip(name);
        let scheme = schemes.and_then(|schemes| schemes.get(name));
        let scheme = scheme.ok_or_else(|| format!("the document does not describe the scheme '{shown}'"))?;
        let scheme = self.documents.follow(scheme)?;
        let kind = scheme.text("type").unwrap_or_default();
        let credential = self.settings.credentials.get(name);
        let credential = credential.ok_or_else(|| format!("scheme '{shown}' ({kind}) has no credentials"))?;
        let value = || {
            credential
                .value
                .clone()
                .ok_or_else(|| format!("the credentials of scheme '{shown}' ({kind}) have no 'value'"))
        };
        let bearer = |value: Secret| {
            AppliedCredential::Header(
                "authorization".to_owned(),
                Secret::new(format!("Bearer {}", value.reveal())),
            )
        };
        match kind {
            "apiKey" => {
                let key = scheme
                    .text("name")
                    .ok_or_else(|| format!("scheme '{shown}' has no name for its key"))?
                    .to_owned();
                match scheme.text("in") {
                    Some("header") => Ok(AppliedCredential::Header(key, value()?)),
                    Some("query") => Ok(AppliedCredential::Query(key, value()?)),
                    Some("cookie") => Ok(AppliedCredential::Cookie(key, value()?)),
                    _ => Err(format!("scheme '{shown}' has no valid location for its key")),
                }
            }
            "basic" => basic_credential(shown, credential),
            "http" => match scheme.text("scheme").unwrap_or_default().to_ascii_lowercase().as_str() {
                "basic" => basic_credential(shown, credential),
                "bearer" => value().map(bearer),
                other => Err(format!("scheme '{shown}' (http {}) is not supported", clip(other))),
            },
            "oauth2" | "openIdConnect" if credential.value.is_some() => value().map(bearer),
            "oauth2" => self.token_source(shown, scheme, credential, scopes),
            other => Err(format!("scheme '{shown}' ({}) is not supported", clip(other))),
        }
    }

    fn token_source(
        &self,
        name: &str,
        scheme: DocumentNode<'_>,
        credential: &Credential,
        scopes: &[String],
    ) -> Result<AppliedCredential, String> {
        let (Some(id), Some(secret)) = (&credential.client_id, &credential.client_secret) else {
            return Err(format!(
                "the credentials of scheme '{name}' (oauth2) need 'value', or 'clientId' and 'clientSecret'"
            ));
        };
        let flow = scheme.get("flows").and_then(|flows| flows.get("clientCredentials")).unwrap_or(scheme);
        let written = credential.token_url.as_ref().map(Secret::reveal);
        let url = written.or_else(|| flow.text("tokenUrl"));
        let url =
            url.ok_or_else(|| format!("scheme '{name}' (oauth2) has no tokenUrl for client credentials"))?;
        let url = match (Url::parse(url), self.documents.location()) {
            (Err(_), DocumentLocation::Remote(document)) => document.join(url),
            (parsed, _) => parsed,
        };
        let url = url.map_err(|_| format!("scheme '{name}' (oauth2) has an invalid tokenUrl"))?;
        let url = without_trailing_dot(url);
        // The author of the document must not choose the receiver of the client secret.
        let is_configured = written.is_some()
            || source_of(&url, self.documents, self.settings)? == OriginSource::Configuration
                && !has_credentials(&url);
        if !is_configured {
            return Err(format!(
                "only the document names the tokenUrl of scheme '{name}' (oauth2), at {}; set tokenUrl to send \
                 the client secret there",
                origin(&url)
            ));
        }
        let scopes = credential.scopes.clone().unwrap_or_else(|| scopes.to_vec());
        let token_source = TokenSource::new(name, url, id, secret, scopes)
            .map_err(|error| format!("scheme '{name}' (oauth2): {error}"))?;
        Ok(AppliedCredential::Token(Box::new(token_source)))
    }
}

fn basic_credential(name: &str, credential: &Credential) -> Result<AppliedCredential, String> {
    let Some(username) = &credential.username else {
        return Err(format!("the credentials of scheme '{name}' (basic) have no 'username'"));
    };
    let password = credential.password.as_ref().map_or("", Secret::reveal);
    let coded = BASE64.encode(format!("{}:{password}", username.reveal()));
    Ok(AppliedCredential::Header("authorization".to_owned(), Secret::new(format!("Basic {coded}"))))
}
