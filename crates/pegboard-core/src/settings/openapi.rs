//! Settings of web services with an OpenAPI document.

use std::fmt;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::fingerprint::Fingerprint;
use crate::secret::Secret;

/// A web service with operations that become tools.
///
/// ```
/// use pegboard_core::settings::openapi::{OpenApiSettings, References};
///
/// let settings: OpenApiSettings =
///     serde_json::from_str(r#"{"spec": "catalog.yaml", "includeMethods": ["get"]}"#).unwrap();
/// assert_eq!(settings.include_methods.unwrap(), ["get"]);
/// assert_eq!(settings.references, References::Near);
/// ```
#[derive(Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OpenApiSettings {
    /// OpenAPI document: a file, or an http:// or https:// URL.
    pub spec: String,
    /// Base URL; overrides the document.
    pub base_url: Option<String>,
    /// Server of the document to use: a part of its URL or description. The first by default.
    pub server: Option<String>,
    /// Values for the variables of the server URL.
    pub server_variables: IndexMap<String, String>,
    /// HTTP headers sent with every request, unless the operation has a parameter of that name and it is
    /// given.
    pub headers: IndexMap<String, Secret>,
    /// Credentials by security scheme of the document.
    pub credentials: IndexMap<String, Credential>,
    /// Methods that become tools. Default: get, post, put, patch, delete and query.
    #[serde(deserialize_with = "super::string_or_list::strings")]
    #[schemars(schema_with = "super::string_or_list::schema")]
    pub include_methods: Option<Vec<String>>,
    /// Tags that become tools; an operation needs one of them.
    #[serde(deserialize_with = "super::string_or_list::strings")]
    #[schemars(schema_with = "super::string_or_list::schema")]
    pub tag_filter: Option<Vec<String>>,
    /// Operations that become tools: ids and globs. All by default.
    #[serde(deserialize_with = "super::string_or_list::strings")]
    #[schemars(schema_with = "super::string_or_list::schema")]
    pub include: Option<Vec<String>>,
    /// Operations to exclude: ids and globs. Takes precedence over all other filters.
    #[serde(deserialize_with = "super::string_or_list::strings")]
    #[schemars(schema_with = "super::string_or_list::schema")]
    pub exclude: Option<Vec<String>>,
    /// Tool names by operation id.
    pub rename: IndexMap<String, String>,
    /// Other documents that it may refer to.
    pub references: References,
    /// Enables the service; `true` by default.
    pub enabled: Option<bool>,
}

/// Omits secrets.
impl fmt::Debug for OpenApiSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenApiSettings").field("enabled", &self.enabled).finish_non_exhaustive()
    }
}

impl OpenApiSettings {
    /// Returns a hash of the settings. Reveals no secrets.
    pub fn fingerprint(&self) -> String {
        let Self {
            spec,
            base_url,
            server,
            server_variables,
            headers,
            credentials,
            include_methods,
            tag_filter,
            include,
            exclude,
            rename,
            references,
            enabled: _,
        } = self;
        let mut fingerprint = Fingerprint::default();
        fingerprint.add(spec);
        fingerprint.add_all(base_url);
        fingerprint.add_all(server);
        fingerprint.add_all(server_variables.iter().flat_map(|(name, value)| [name, value]));
        fingerprint.add_all(headers.iter().flat_map(|(name, value)| [name, value.reveal()]));
        fingerprint.add_all(credentials.keys());
        for credential in credentials.values() {
            credential.add_to(&mut fingerprint);
        }
        for filter in [include_methods, tag_filter, include, exclude] {
            fingerprint.add([u8::from(filter.is_some())]);
            fingerprint.add_all(filter.iter().flatten());
        }
        fingerprint.add_all(rename.iter().flat_map(|(name, value)| [name, value]));
        fingerprint.add([*references as u8]);
        fingerprint.finish()
    }
}

/// Credentials for a web service.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Credential {
    /// API key or bearer token.
    pub value: Option<Secret>,
    /// User name.
    pub username: Option<Secret>,
    /// Password.
    pub password: Option<Secret>,
    /// OAuth client id.
    pub client_id: Option<Secret>,
    /// OAuth client secret.
    pub client_secret: Option<Secret>,
    /// OAuth token URL; overrides the document.
    pub token_url: Option<Secret>,
    /// OAuth scopes. By default, those that an operation requires.
    pub scopes: Option<Vec<String>>,
}

/// Omits secrets.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").finish_non_exhaustive()
    }
}

impl Credential {
    fn add_to(&self, fingerprint: &mut Fingerprint) {
        let Self { value, username, password, client_id, client_secret, token_url, scopes } = self;
        for secret in [value, username, password, client_id, client_secret, token_url] {
            fingerprint.add_all(secret.as_ref().map(Secret::reveal));
        }
        fingerprint.add([u8::from(scopes.is_some())]);
        fingerprint.add_all(scopes.iter().flatten());
    }
}

/// Other documents that a document may refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum References {
    /// Documents in the same directory and below: files for a file, and URLs for a URL.
    #[default]
    Near,
    /// All files and URLs.
    Anywhere,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_setting_but_enabled_changes_the_fingerprint() {
        let fingerprint = |text: &str| serde_json::from_str::<OpenApiSettings>(text).unwrap().fingerprint();
        let different = [
            "{}",
            r#"{"spec": "a"}"#,
            r#"{"baseUrl": "a"}"#,
            r#"{"baseUrl": ""}"#,
            r#"{"server": "a"}"#,
            r#"{"serverVariables": {"a": "b"}}"#,
            r#"{"headers": {"a": "b"}}"#,
            r#"{"headers": {"a": "b", "c": "d"}}"#,
            r#"{"headers": {"a": "b"}, "serverVariables": {"c": "d"}}"#,
            r#"{"rename": {"a": "b"}}"#,
            r#"{"credentials": {"a": {"value": "b"}}}"#,
            r#"{"credentials": {"a": {"username": "b"}}}"#,
            r#"{"credentials": {"a": {"scopes": ["b"]}}}"#,
            r#"{"credentials": {"a": {}}}"#,
            r#"{"includeMethods": ["a"]}"#,
            r#"{"includeMethods": []}"#,
            r#"{"tagFilter": ["a"]}"#,
            r#"{"include": ["a"]}"#,
            r#"{"exclude": ["a"]}"#,
            r#"{"references": "anywhere"}"#,
        ];
        let all: HashSet<String> = different.iter().map(|text| fingerprint(text)).collect();
        assert_eq!(all.len(), different.len());
        assert_eq!(fingerprint(r#"{"enabled": false}"#), fingerprint("{}"));
    }
}
