//! Addresses that a person must visit before a server with a session does what it is asked.
//!
//! Such a server refuses, and names them. Clients that come with every request anew do not know this refusal: they are
//! asked to have the addresses visited, and the server is asked again.

use pegboard_core::call::CallContext;
use pegboard_core::client::{Question, Questions};
use pegboard_json::RawJson;
use pegboard_wire::{RpcError, code};

/// How many addresses one refusal may name.
const MAX_ADDRESSES: usize = 16;

/// Has the caller visit the addresses that a refusal names, if it does and the caller does not know such refusals.
/// Whether all were visited, so that the server may be asked again: it has done nothing yet.
pub(super) async fn visited(context: &CallContext, refusal: &RpcError) -> bool {
    let client = context.client();
    if refusal.code != code::URL_ELICITATION_REQUIRED || !client.is_asked_in_rounds() {
        return false;
    }
    let questions = questions(refusal);
    if questions.is_empty() {
        return false;
    }
    let has_accepted = |answer: &RawJson| {
        answer.get("action").is_some_and(|action| action.text().as_deref() == Some("accept"))
    };
    client.ask(questions).await.is_ok_and(|answers| answers.values().all(has_accepted))
}

fn questions(refusal: &RpcError) -> Questions {
    let Some(named) = refusal.data.as_ref().and_then(|data| data.get("elicitations")) else {
        return Questions::default();
    };
    let is_address = |params: &RawJson| params.get("url").is_some_and(|url| url.text().is_some());
    let addresses = named.items().filter(is_address).take(MAX_ADDRESSES);
    let question = |params: RawJson| Question { method: "elicitation/create".to_owned(), params };
    addresses
        .enumerate()
        .map(|(number, params)| (format!("address-{}", number + 1), question(params)))
        .collect()
}
