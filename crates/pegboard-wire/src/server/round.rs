//! Questions to the client: which it can answer, and the rounds that carry them.

use futures_util::future::try_join_all;

use super::{ClientDescription, Peer};
use crate::exchange::Failure;
use crate::message::{RpcError, code};
use pegboard_json::RawJson;

/// Refuses questions that the client did not say it can answer.
pub(super) fn check_capabilities(client: &ClientDescription, questions: &RawJson) -> Result<(), RpcError> {
    for name in questions.names() {
        let method = questions.at(&[&name, "method"]);
        let method = method.as_ref().and_then(RawJson::text).unwrap_or_default();
        if let Some(lacking) = client.lacks(&method, questions.at(&[&name, "params"]).as_ref()) {
            return Err(lacking.missing());
        }
    }
    Ok(())
}

impl ClientDescription {
    /// The capability that a question needs and the client has not. What is no question for clients needs one that
    /// nobody has.
    pub fn lacks(&self, method: &str, params: Option<&RawJson>) -> Option<Capability> {
        let has = |path: &[&str]| self.capabilities.at(path).is_some();
        let says = |name: &str| params.and_then(|params| params.get(name));
        let needed: &[&str] = match method {
            "elicitation/create" => {
                let is_at_address = says("mode").is_some_and(|mode| mode.text().as_deref() == Some("url"));
                if is_at_address {
                    &["elicitation", "url"]
                } else if has(&["elicitation", "url"]) {
                    &["elicitation", "form"]
                } else {
                    // Who names no mode knows forms, as everybody once did.
                    &["elicitation"]
                }
            }
            "sampling/createMessage" if says("tools").is_some() => &["sampling", "tools"],
            "sampling/createMessage" => &["sampling"],
            "roots/list" => &["roots"],
            _ => return Some(Capability(&["experimental"])),
        };
        (!has(needed)).then_some(Capability(needed))
    }
}

/// Something that a client can do, as the way to it among its capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability(&'static [&'static str]);

impl Capability {
    /// The error that says that the client lacks it.
    pub fn missing(self) -> RpcError {
        let Self(path) = self;
        let needed =
            path.iter().rev().fold(serde_json::json!({}), |inner, name| serde_json::json!({*name: inner}));
        let message = format!("The client lacks the capability '{}' that this request needs", path.join("."));
        let data = serde_json::json!({"requiredCapabilities": needed});
        RpcError::new(code::MISSING_CAPABILITY, message).with_data(data)
    }
}

/// Asks a client with a session all questions at once, and gives its answers by name.
pub(super) async fn ask_all(peer: &Peer, questions: &RawJson) -> Result<RawJson, RpcError> {
    let names = questions.names();
    let asked = names.iter().map(|name| async {
        let method = questions.at(&[name, "method"]);
        let method = method.as_ref().and_then(RawJson::text).unwrap_or_default().into_owned();
        peer.ask(&method, questions.at(&[name, "params"])).await
    });
    let answers = try_join_all(asked).await.map_err(|failure| match failure {
        Failure::Refused(error) => error,
        other => RpcError::new(code::INTERNAL_ERROR, format!("The client did not answer: {other}")),
    })?;
    let with_all = names.iter().zip(&answers);
    Ok(with_all.fold(RawJson::empty_object(), |all, (name, answer)| all.with(name, answer)))
}
