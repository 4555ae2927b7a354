//! Input requests to the client: required capabilities, and delivery in a session.

use futures_util::future::try_join_all;

use super::{ClientDescription, Peer};
use crate::message::{RpcError, code};
use crate::pending_request::RequestError;
use pegboard_json::RawJson;

/// Rejects input requests that need a capability the client has not declared.
pub(super) fn check_capabilities(
    client: &ClientDescription,
    input_requests: &RawJson,
) -> Result<(), RpcError> {
    for (_name, request) in input_requests.members() {
        let [method, params] = request.get_all(["method", "params"]);
        let method = method.as_ref().and_then(RawJson::text).unwrap_or_default();
        if let Some(missing) = client.missing_capability(&method, params.as_ref()) {
            return Err(missing.missing_error());
        }
    }
    Ok(())
}

impl ClientDescription {
    fn has_custom_features(&self) -> bool {
        let declared = self.capabilities.get_all(["experimental", "extensions"]);
        let names = declared.iter().flatten().flat_map(RawJson::names);
        names.into_iter().any(|name| !name.starts_with("io.modelcontextprotocol/"))
    }

    /// Returns the capability that an input request needs and the client lacks.
    pub fn missing_capability(&self, method: &str, params: Option<&RawJson>) -> Option<ClientCapability> {
        let has = |path: &[&str]| self.capabilities.at(path).is_some();
        let param = |name: &str| params.and_then(|params| params.get(name));
        let needed: &[&str] = match method {
            "elicitation/create" => {
                let is_url_mode = param("mode").is_some_and(|mode| mode.text().as_deref() == Some("url"));
                if is_url_mode {
                    &["elicitation", "url"]
                } else if has(&["elicitation", "url"]) {
                    &["elicitation", "form"]
                } else {
                    // A client that declares no mode supports forms, as in older revisions.
                    &["elicitation"]
                }
            }
            "sampling/createMessage" if param("tools").is_some() => &["sampling", "tools"],
            "sampling/createMessage" => &["sampling"],
            "roots/list" => &["roots"],
            // What the protocol does not define is for clients that declare such features.
            _ if self.has_custom_features() => return None,
            _ => return Some(ClientCapability(&["experimental"])),
        };
        (!has(needed)).then_some(ClientCapability(needed))
    }
}

/// A client capability, as its path in the capabilities object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientCapability(&'static [&'static str]);

impl ClientCapability {
    /// Returns the error for a client that lacks it.
    pub fn missing_error(self) -> RpcError {
        let Self(path) = self;
        let needed =
            path.iter().rev().fold(serde_json::json!({}), |inner, name| serde_json::json!({*name: inner}));
        let message = format!("The client lacks the capability '{}' that this request needs", path.join("."));
        let data = serde_json::json!({"requiredCapabilities": needed});
        RpcError::new(code::MISSING_CAPABILITY, message).with_data(data)
    }
}

/// Sends all input requests to a client with a session at once, and returns its responses by name.
pub(super) async fn send_input_requests(peer: &Peer, input_requests: &RawJson) -> Result<RawJson, RpcError> {
    let requests = input_requests.members().map(|(name, request)| async move {
        let [method, params] = request.get_all(["method", "params"]);
        let method = method.as_ref().and_then(RawJson::text).unwrap_or_default().into_owned();
        Ok((name, peer.request(&method, params).await?))
    });
    let answers = try_join_all(requests).await.map_err(|failure| match failure {
        RequestError::Rpc(error) => error,
        other => RpcError::new(code::INTERNAL_ERROR, format!("The client did not answer: {other}")),
    })?;
    Ok(answers.iter().fold(RawJson::empty_object(), |all, (name, answer)| all.with(name, answer)))
}
