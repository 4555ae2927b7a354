//! How a person describes a web service that has an OpenAPI document.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::mcp::Secret;

/// A web service whose operations become tools, as a person writes it down.
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
    /// The OpenAPI document: a file, or an address that begins with http:// or https://.
    pub spec: String,
    /// Where the service is, whatever the document says.
    pub base_url: Option<String>,
    /// Which of the document's servers is meant: a part of its address or of its description. Without it, the first.
    pub server: Option<String>,
    /// Values for the variables of the server's address.
    pub server_variables: IndexMap<String, String>,
    /// Headers of every request, unless the operation has a parameter of that name and it is given.
    pub headers: IndexMap<String, Secret>,
    /// What to show at the door, by the names that the document gives its security schemes.
    pub credentials: IndexMap<String, Credential>,
    /// Which methods become tools. Without it: get, post, put, patch, delete and query.
    #[serde(deserialize_with = "super::words::words")]
    #[schemars(schema_with = "super::words::schema")]
    pub include_methods: Option<Vec<String>>,
    /// Which tags become tools; an operation needs one of them.
    #[serde(deserialize_with = "super::words::words")]
    #[schemars(schema_with = "super::words::schema")]
    pub tag_filter: Option<Vec<String>>,
    /// Which operations become tools: ids and globs. Without it, all.
    #[serde(deserialize_with = "super::words::words")]
    #[schemars(schema_with = "super::words::schema")]
    pub include: Option<Vec<String>>,
    /// Which operations do not, whatever else says otherwise: ids and globs.
    #[serde(deserialize_with = "super::words::words")]
    #[schemars(schema_with = "super::words::schema")]
    pub exclude: Option<Vec<String>>,
    /// Other names for single operations, by their ids.
    pub rename: IndexMap<String, String>,
    /// Which other documents it may refer to.
    pub references: References,
    /// Whether it is used; it is unless this says no.
    pub enabled: Option<bool>,
}

impl OpenApiSettings {
    /// What the settings are called where a person writes them.
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

    /// Tells these settings from all others. It says nothing of the secrets in them.
    pub fn fingerprint(&self) -> String {
        let mut digest = Sha256::new();
        let mut add = |part: &str| {
            // With its length, so that no two lists of parts are written alike.
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

/// What to show at the door of a web service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Credential {
    /// An API key, or a bearer token.
    pub value: Option<Secret>,
    /// The name of a user.
    pub username: Option<Secret>,
    /// The password of the user.
    pub password: Option<Secret>,
    /// The name of this client, where tokens are issued.
    pub client_id: Option<Secret>,
    /// The password of this client.
    pub client_secret: Option<Secret>,
    /// Where tokens are issued, whatever the document says.
    pub token_url: Option<Secret>,
    /// What the token is for. Without it, all that an operation asks for.
    pub scopes: Option<Vec<String>>,
}

impl Credential {
    fn secrets(&self) -> [Option<&Secret>; 6] {
        [&self.value, &self.username, &self.password, &self.client_id, &self.client_secret, &self.token_url]
            .map(Option::as_ref)
    }
}

/// Which other documents a document may refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum References {
    /// Those in its own folder and below: files for a file, and addresses for an address.
    #[default]
    Near,
    /// All files and addresses.
    Anywhere,
}
