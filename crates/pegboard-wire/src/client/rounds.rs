//! Requests that come back with questions: they are answered, and the request is made again.

use ::http::HeaderMap;
use futures_util::future::join_all;

use super::{Client, RequestOptions};
use crate::connection::Inbound;
use crate::exchange::Failure;
use crate::link::TransportError;
use crate::message::{Id, Request};
use pegboard_json::RawJson;

/// How often one request may come back with questions.
const MAX_ROUNDS: usize = 20;

pub(super) async fn call(client: &Client, method: &str, params: Option<RawJson>) -> Result<RawJson, Failure> {
    let params = params.unwrap_or_else(RawJson::empty_object);
    let mut asked_with = params.clone();
    for _ in 0..MAX_ROUNDS {
        let exchange = client.request(method, Some(asked_with), RequestOptions::default()).await?;
        let id = exchange.id();
        let result = exchange.answer().await?;
        let kind = result.get("resultType");
        match kind.as_ref().and_then(RawJson::text).as_deref() {
            Some("input_required") => asked_with = with_answers(client, &params, &result, &id).await,
            // What a task gives is told by its own methods.
            None | Some("complete" | "task") => return Ok(result),
            Some(unknown) => {
                let what = format!("a result of the unknown kind '{unknown}'");
                return Err(TransportError::protocol(what).into());
            }
        }
    }
    Err(TransportError::protocol("the server kept asking without an end").into())
}

/// The request with the answers to all questions, and the server's state exactly as it came.
async fn with_answers(client: &Client, params: &RawJson, result: &RawJson, id: &Id) -> RawJson {
    let questions = result.get("inputRequests").unwrap_or_else(RawJson::empty_object);
    let names = questions.names();
    let answers = join_all(names.iter().map(|name| answer(client, &questions, name, id))).await;
    let answers = names.iter().zip(answers).filter_map(|(name, answer)| Some((name, answer?)));
    let answers = answers.fold(RawJson::empty_object(), |all, (name, answer)| all.with(name, &answer));
    let params = params.with("inputResponses", &answers);
    match result.get("requestState") {
        Some(state) => params.with("requestState", &state),
        None => params,
    }
}

/// What the receiver says to one question; nothing if it refuses.
async fn answer(client: &Client, questions: &RawJson, name: &str, about: &Id) -> Option<RawJson> {
    let question = questions.get(name)?;
    let method = question.get("method")?.text()?.into_owned();
    let request = Request::new(Id::Text(name.into()), method, question.get("params"));
    let connection = client.connection.downgrade();
    let inbound = Inbound { request, about: Some(about.clone()), headers: HeaderMap::new(), connection };
    client.receiver.request(inbound).await.ok()
}
