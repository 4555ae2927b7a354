//! URL elicitations that a server with sessions requires before it executes a request.
//!
//! Such a server answers with an error that lists the URLs. Stateless callers do not know this error: they
//! are asked to open the URLs, and the request is sent again.

use pegboard_core::call::CallContext;
use pegboard_core::client::{InputRequest, InputRequests};
use pegboard_json::RawJson;
use pegboard_wire::{RpcError, code};

/// Maximum number of URLs per error.
const MAX_URLS: usize = 16;

/// Asks a stateless caller to open the URLs that an error lists. Returns `true` if all were accepted, so that
/// the request can be sent again: the server has not executed it yet.
pub(super) async fn complete_url_elicitations(context: &CallContext, error: &RpcError) -> bool {
    let client = context.client();
    if error.code != code::URL_ELICITATION_REQUIRED || !client.needs_input_rounds() {
        return false;
    }
    let elicitations = elicitations(error);
    if elicitations.is_empty() {
        return false;
    }
    let has_accepted = |answer: &RawJson| {
        answer.get("action").is_some_and(|action| action.text().as_deref() == Some("accept"))
    };
    client.ask(elicitations).await.is_ok_and(|answers| answers.values().all(has_accepted))
}

fn elicitations(error: &RpcError) -> InputRequests {
    let Some(listed) = error.data.as_ref().and_then(|data| data.get("elicitations")) else {
        return InputRequests::default();
    };
    let has_url = |params: &RawJson| params.get("url").is_some_and(|url| url.text().is_some());
    let with_urls = listed.items().filter(has_url).take(MAX_URLS);
    let elicitation = |params: RawJson| InputRequest { method: "elicitation/create".to_owned(), params };
    with_urls
        .enumerate()
        .map(|(number, params)| (format!("address-{}", number + 1), elicitation(params)))
        .collect()
}
