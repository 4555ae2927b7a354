//! The handshake of a client over stdio with the gateway that serves it, before the first message.
//!
//! The client sends `GET /api/stdio` to the local socket with an upgrade, and a document about itself in a header. The
//! gateway answers with a document about itself. Then the connection carries the messages of stdio, line by line.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use pegboard_core::fingerprint::sha256_hex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::environment;

/// Path of the route.
pub(crate) const PATH: &str = "/api/stdio";
/// Protocol of the upgrade.
pub(crate) const PROTOCOL: &str = "pegboard-stdio";
/// Header with a document.
const HEADER: HeaderName = HeaderName::from_static("pegboard-attachment");
/// Prefix of variables that are settings.
const SETTING_PREFIX: &str = "PEGBOARD__";

/// Facts about a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AttachRequest {
    /// Version of Pegboard.
    pub(crate) version: String,
    /// Digest of the configuration that it wants to be served.
    pub(crate) identity: String,
    /// Profile; `None` for the default.
    pub(crate) profile: Option<String>,
    /// Process id.
    pub(crate) pid: u32,
    /// Name and id of the process that started it.
    pub(crate) program: String,
    /// Variables that its configuration refers to.
    pub(crate) variables: VariableDigests,
}

/// Facts about a gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AttachReply {
    /// Version of Pegboard.
    pub(crate) version: String,
    /// Process id.
    pub(crate) pid: u32,
    /// Names of the variables with other values.
    pub(crate) differing: Vec<String>,
}

/// Digests of the values of variables, so that they can be compared without being sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct VariableDigests {
    salt: String,
    /// Digests by name; `None` for those that are not set.
    digests: BTreeMap<String, Option<String>>,
}

impl VariableDigests {
    /// Digests these variables of this process, and those that are settings.
    pub(crate) fn new(names: impl IntoIterator<Item = String>) -> Self {
        let salt = format!("{:032x}", rand::random::<u128>());
        let names = names.into_iter().chain(setting_variables());
        let digests = names.map(|name| (name.clone(), digest(&salt, &name))).collect();
        Self { salt, digests }
    }

    /// Returns the names of the variables with other values in this process.
    pub(crate) fn differing(&self) -> Vec<String> {
        let own = setting_variables().filter(|name| !self.digests.contains_key(name));
        let others = self.digests.iter().filter(|(name, theirs)| digest(&self.salt, name) != **theirs);
        own.chain(others.map(|(name, _)| name.clone())).collect()
    }
}

/// Names of the variables of this process that are settings.
fn setting_variables() -> impl Iterator<Item = String> {
    let names = environment::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| name.starts_with(SETTING_PREFIX))
}

fn digest(salt: &str, name: &str) -> Option<String> {
    let value = environment::var(name)?;
    Some(sha256_hex(format!("{salt}\0{name}\0{value}")))
}

/// Writes a document into headers.
pub(crate) fn write_header(document: &impl Serialize) -> Option<(HeaderName, HeaderValue)> {
    let text = serde_json::to_vec(document).ok()?;
    Some((HEADER, HeaderValue::from_bytes(&text).ok()?))
}

/// Reads a document from headers.
pub(crate) fn read_header<T: DeserializeOwned>(headers: &HeaderMap) -> Option<T> {
    serde_json::from_slice(headers.get(HEADER)?.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_with_other_values_are_named() {
        let mut variables =
            VariableDigests::new(["PATH".to_owned(), "HOME".to_owned(), "SET_BY_NOBODY".to_owned()]);
        assert_eq!(variables.differing(), Vec::<String>::new());
        let text = serde_json::to_string(&variables).unwrap();
        assert!(!text.contains(&environment::var("PATH").unwrap()), "{text}");
        variables.digests.insert("PATH".to_owned(), None);
        variables.digests.insert("SET_BY_NOBODY".to_owned(), Some("00".to_owned()));
        assert_eq!(variables.differing(), ["PATH", "SET_BY_NOBODY"]);
    }
}
