//! Settings of web services with an OpenAPI document.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::mcp::Secret;

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
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

impl OpenApiSettings {
    /// Names of the fields as written.
    pub const FIELDS: [&str; 13] = [
        "spec",
        "baseUrl",
        "server",
        "serverVariables",
        "headers",
        "credentials",
        "includeMethods",
        "tagFilter",
        "include",
        "exclude",
        "rename",
        "references",
        "enabled",
    ];

    /// Returns a hash of the settings. Reveals no secrets.
    pub fn fingerprint(&self) -> String {
        let mut digest = Sha256::new();
        let mut add = |part: &str| {
            // Length-prefixed, so that different lists never hash alike.
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        };
        add(&self.spec);
        add(self.base_url.as_deref().unwrap_or_default());
        add(self.server.as_deref().unwrap_or_default());
        self.server_variables
            .iter()
            .for_each(|(name, value)| [name, value].into_iter().for_each(|part| add(part)));
        for (name, value) in &self.headers {
            add(name);
            add(value.reveal());
        }
        for (name, credential) in &self.credentials {
            add(name);
            for secret in credential.secrets() {
                add(secret.map_or("", Secret::reveal));
            }
        }
        self.rename.iter().for_each(|(name, value)| [name, value].into_iter().for_each(|part| add(part)));
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
    }
}

/// Credentials for a web service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
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

impl Credential {
    fn secrets(&self) -> [Option<&Secret>; 6] {
        [&self.value, &self.username, &self.password, &self.client_id, &self.client_secret, &self.token_url]
            .map(Option::as_ref)
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
