//! Requests with input rounds: the client answers the server's input requests and retries.

use futures_util::future::join_all;

use super::{McpClient, RequestOptions};
use crate::MAX_INPUT_REQUESTS;
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
                let requests = input_requests(&result).map_err(TransportError::protocol)?;
                let responses = input_responses(client, requests, &id).await;
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

/// A result has more than [`MAX_INPUT_REQUESTS`] input requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {MAX_INPUT_REQUESTS} input requests in one result")]
pub struct TooManyInputRequests;

/// Returns the input requests of a result or of a task, by name.
pub fn input_requests(result: &RawJson) -> Result<Vec<(String, RawJson)>, TooManyInputRequests> {
    let Some(requests) = result.get("inputRequests") else { return Ok(Vec::new()) };
    let requests: Vec<_> = requests.members().take(MAX_INPUT_REQUESTS + 1).collect();
    if requests.len() > MAX_INPUT_REQUESTS { Err(TooManyInputRequests) } else { Ok(requests) }
}

/// Returns the handler's responses to input requests, by name.
async fn input_responses(client: &McpClient, requests: Vec<(String, RawJson)>, id: &Id) -> RawJson {
    let answering = requests.into_iter().map(|(name, request)| async move {
        let answer = answer_input_request(client, &request, &name, id).await?;
        Some((name, answer))
    });
    let answers = join_all(answering).await;
    answers
        .into_iter()
        .flatten()
        .fold(RawJson::empty_object(), |all, (name, answer)| all.with(&name, &answer))
}

/// Returns the handler's response to one input request; `None` if it refuses.
async fn answer_input_request(
    client: &McpClient,
    input_request: &RawJson,
    name: &str,
    related_request: &Id,
) -> Option<RawJson> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_with_too_many_input_requests_is_refused() {
        for (n_requests, is_accepted) in
            [(0, true), (MAX_INPUT_REQUESTS, true), (MAX_INPUT_REQUESTS + 1, false), (400_000, false)]
        {
            let requests: Vec<_> =
                (0..n_requests).map(|n| format!(r#""{n}":{{"method":"roots/list"}}"#)).collect();
            let text = format!(r#"{{"inputRequests":{{{}}}}}"#, requests.join(","));
            let accepted = input_requests(&RawJson::parse(text.into()).unwrap());
            assert_eq!(accepted.map(|requests| requests.len()).ok(), is_accepted.then_some(n_requests));
        }
    }
}
