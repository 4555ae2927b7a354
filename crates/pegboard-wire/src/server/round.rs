//! Questions to the client: which it can answer, and the rounds that carry them.

use futures_util::future::try_join_all;
use serde::Serialize;

use super::{ClientDescription, Peer};
use crate::exchange::Failure;
use crate::message::{RpcError, code};
use pegboard_json::RawJson;

/// Refuses questions that the client did not say it can answer.
pub(super) fn check_capabilities(client: &ClientDescription, questions: &RawJson) -> Result<(), RpcError> {
    for name in questions.names() {
        let method = questions.at(&[&name, "method"]);
        let method = method.as_ref().and_then(RawJson::text).unwrap_or_default();
        let capability = match &*method {
            "elicitation/create" => "elicitation",
            "sampling/createMessage" => "sampling",
            "roots/list" => "roots",
            _ => continue,
        };
        if client.capabilities.get(capability).is_none() {
            return Err(missing_capability(capability));
        }
    }
    Ok(())
}

/// The error that says which capability the client lacks.
fn missing_capability(capability: &str) -> RpcError {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Data {
        required_capabilities: serde_json::Value,
    }
    let data = Data { required_capabilities: serde_json::json!({capability: {}}) };
    let message = format!("The client lacks the capability '{capability}' that this request needs");
    RpcError::new(code::MISSING_CAPABILITY, message).with_data(RawJson::of(&data))
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
