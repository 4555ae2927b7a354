//! Requests with input rounds: the client answers the server's input requests and retries.

use futures_util::future::join_all;

use super::{McpClient, RequestOptions};
use crate::connection::InboundRequest;
use crate::http::received_headers::ReceivedHeaders;
use crate::message::{Id, Request};
use crate::pending_request::RequestError;
use crate::transport::TransportError;
use pegboard_json::RawJson;

pub(super) async fn call(
    client: &McpClient,
    method: &str,
    params: Option<RawJson>,
) -> Result<RawJson, RequestError> {
    let params = params.unwrap_or_else(RawJson::empty_object);
    let mut attempt_params = params.clone();
    for _ in 0..crate::MAX_INPUT_ROUNDS {
        let pending = client.request(method, Some(attempt_params), RequestOptions::default()).await?;
        let id = pending.id();
        let result = pending.response().await?;
        let kind = result.get("resultType");
        match kind.as_ref().and_then(RawJson::text).as_deref() {
            Some("input_required") => {
                let responses = input_responses(client, &result, &id).await;
                attempt_params = next_round_params(&params, &result, &responses);
            }
            // The result of a task is fetched by its own methods.
            None | Some("complete" | "task") => return Ok(result),
            Some(unknown) => {
                let what = format!("unknown result type '{unknown}'");
                return Err(TransportError::protocol(what).into());
            }
        }
    }
    Err(TransportError::protocol("too many input rounds").into())
}

/// Returns the parameters of the next input round: with the responses to the input requests of `result`, and
/// with its state unchanged.
pub fn next_round_params(params: &RawJson, result: &RawJson, responses: &RawJson) -> RawJson {
    let params = params.with("inputResponses", responses);
    match result.get("requestState") {
        Some(state) => params.with("requestState", &state),
        None => params,
    }
}

/// Returns the handler's responses to all input requests of a result, by name.
async fn input_responses(client: &McpClient, result: &RawJson, id: &Id) -> RawJson {
    let input_requests = result.get("inputRequests").unwrap_or_else(RawJson::empty_object);
    let names = input_requests.names();
    let answers =
        join_all(names.iter().map(|name| answer_input_request(client, &input_requests, name, id))).await;
    let answers = names.iter().zip(answers).filter_map(|(name, answer)| Some((name, answer?)));
    answers.fold(RawJson::empty_object(), |all, (name, answer)| all.with(name, &answer))
}

/// Returns the handler's response to one input request; `None` if it refuses.
async fn answer_input_request(
    client: &McpClient,
    input_requests: &RawJson,
    name: &str,
    related_request: &Id,
) -> Option<RawJson> {
    let input_request = input_requests.get(name)?;
    let method = input_request.get("method")?.text()?.into_owned();
    let request = Request::new(Id::Text(name.into()), method, input_request.get("params"));
    let connection = client.connection.downgrade();
    let inbound = InboundRequest {
        request,
        related_request: Some(related_request.clone()),
        headers: ReceivedHeaders::default(),
        connection,
    };
    client.handler.request(inbound).await.ok()
}
