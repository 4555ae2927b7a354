//! Errors of models and their messages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use insta::assert_snapshot;
use pegboard_core::model::{Delivery, Model, ModelErrorKind};
use pegboard_core::settings::model::ModelProviderKind::{Anthropic, OpenAiCompatible};
use pegboard_core::settings::model::ModelProviderSettings;
use pegboard_providers::model::{FallbackModel, ModelRetryPolicy};
use pegboard_testkit::model_server::{ModelServer, Script, ScriptAction, ScriptedError, ScriptedReply};
use tokio::net::TcpListener;

use crate::model::harness::{
    DELIVERIES, KINDS, ask, check, check_single, describe, model, request, settings, start_server,
};

#[tokio::test]
async fn error_responses_map_to_error_kinds() {
    let cases = [
        (401, "authentication_error", "no such key", "Unauthorized: no such key (status 401)"),
        (403, "permission_error", "not for you", "Unauthorized: not for you (status 403)"),
        (400, "invalid_request_error", "what is x?", "Refused: what is x? (status 400)"),
        (404, "not_found_error", "no model m", "Refused: no model m (status 404)"),
        (400, "context_length_exceeded", "too long", "ContextTooLong: too long (status 400)"),
        (
            400,
            "invalid_request_error",
            "prompt is too long: 9 > 8",
            "ContextTooLong: prompt is too long: 9 > 8 (status 400)",
        ),
        (413, "request_too_large", "too large", "ContextTooLong: too large (status 413)"),
        (429, "rate_limit_error", "slow down", "RateLimited { retry_after: None }: slow down (status 429)"),
        (500, "api_error", "oops", "Overloaded { retry_after: None }: oops (status 500)"),
        (529, "overloaded_error", "Overloaded", "Overloaded { retry_after: None }: Overloaded (status 529)"),
    ];
    for (status, kind, message, expected) in cases {
        check(ScriptAction::refusal(status, kind, message), expected).await;
    }
}

#[tokio::test]
async fn an_error_in_a_successful_response_is_an_error() {
    let late = |kind: &str| {
        ScriptAction::RefuseLate(ScriptedError {
            kind: kind.to_owned(),
            message: "sorry".to_owned(),
            ..ScriptedError::default()
        })
    };
    check(late("overloaded_error"), "Overloaded { retry_after: None }: sorry").await;
    check(late("rate_limit_error"), "RateLimited { retry_after: None }: sorry").await;
    check(late("authentication_error"), "Unauthorized: sorry").await;
    check(late("context_length_exceeded"), "ContextTooLong: sorry").await;
}

#[tokio::test]
async fn malformed_replies_are_rejected() {
    check(ScriptAction::Page, "MalformedReply: not a JSON reply (content type 'text/html')").await;
    for kind in KINDS {
        let expected = "MalformedReply: not a JSON reply (content type 'application/json')";
        check_single(kind, Delivery::Whole, ScriptAction::Garbage, expected).await;
        check_single(kind, Delivery::Whole, ScriptAction::Nonsense, expected).await;
        check_single(
            kind,
            Delivery::Whole,
            ScriptAction::EndEarly(ScriptedReply::text("Well, I think")),
            expected,
        )
        .await;
        let expected = "MalformedReply: a stream event is malformed";
        check_single(kind, Delivery::Streamed, ScriptAction::Garbage, expected).await;
    }
    let expected = "Unreachable: the reply ended early";
    check_single(OpenAiCompatible, Delivery::Streamed, ScriptAction::Nonsense, expected).await;
}

#[tokio::test]
async fn a_truncated_reply_is_an_error() {
    for kind in KINDS {
        let early = ScriptAction::EndEarly(ScriptedReply::text("Well, I think so"));
        let expected = "Unreachable: the reply ended early";
        check_single(kind, Delivery::Streamed, early, expected).await;
        for delivery in DELIVERIES {
            let (_server, model) =
                start_server(kind, [ScriptAction::Cut(ScriptedReply::text("Well, I think so"))]).await;
            let error = ask(&*model, &request(delivery)).await.0.unwrap_err();
            assert_eq!(error.kind, ModelErrorKind::Unreachable, "{kind:?} {delivery:?} {error}");
        }
    }
}

#[tokio::test]
async fn an_oversized_reply_is_rejected() {
    check(ScriptAction::Huge, "MalformedReply: the reply exceeds 16 MiB").await;
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let elsewhere = ModelServer::start(Script::of([ScriptAction::text("mine now")])).await.unwrap();
    let redirect = ScriptAction::Redirect(format!("{}/chat/completions", elsewhere.chat_url()));
    check(redirect, "Unreachable: redirects are not followed (status 307)").await;
    assert_eq!(elsewhere.requests(), []);
}

#[tokio::test]
async fn a_slow_reply_succeeds() {
    check(ScriptAction::Slow(ScriptedReply::text("three")), r#""three" [] EndOfTurn"#).await;
}

#[tokio::test]
async fn a_hanging_request_times_out_and_closes_its_connection() {
    for (kind, delivery) in KINDS.into_iter().flat_map(|kind| DELIVERIES.map(|delivery| (kind, delivery))) {
        for act in [ScriptAction::Hang, ScriptAction::Stall(ScriptedReply::text("Well, I think so"))] {
            let (server, model) = start_server(kind, [act]).await;
            let limit = Duration::from_millis(100);
            let retry_policy =
                ModelRetryPolicy { timeout: limit, max_retries: 0, ..ModelRetryPolicy::default() };
            let fallback = FallbackModel::new(model, Vec::new(), retry_policy);
            let (reply, ..) = ask(&fallback, &request(delivery)).await;
            assert_eq!(describe(&reply), "TimedOut { limit: 100ms }: no complete reply within 100ms");
            server.wait_until_hanging(0).await;
        }
    }
}

#[tokio::test]
async fn dropping_a_request_closes_its_connection() {
    for kind in KINDS {
        let (server, model) = start_server(kind, [ScriptAction::Hang]).await;
        let asking = tokio::spawn(async move { model.answer(&request(Delivery::Streamed), &|_| {}).await });
        server.wait_until_hanging(1).await;
        asking.abort();
        server.wait_until_hanging(0).await;
    }
}

#[tokio::test]
async fn a_rate_limited_request_is_retried() {
    for (kind, delivery) in KINDS.into_iter().flat_map(|kind| DELIVERIES.map(|delivery| (kind, delivery))) {
        let limited = ScriptAction::Refuse(ScriptedError {
            status: 429,
            kind: "rate_limit_error".to_owned(),
            message: "slow down".to_owned(),
            headers: BTreeMap::from([("retry-after".to_owned(), "0.01".to_owned())]),
        });
        let (server, model) = start_server(kind, [limited.clone(), limited, ScriptAction::text("3")]).await;
        let fallback = FallbackModel::new(model, Vec::new(), ModelRetryPolicy::default());
        let (reply, ..) = ask(&fallback, &request(delivery)).await;
        assert_eq!(describe(&reply), r#""3" [] EndOfTurn"#);
        assert_eq!((server.requests().len(), server.violations()), (3, Vec::new()));
    }
}

#[tokio::test]
async fn a_truncated_reply_is_retried_from_the_start() {
    for kind in KINDS {
        let acts =
            [ScriptAction::EndEarly(ScriptedReply::text("Well, I think so")), ScriptAction::text("three")];
        let (server, model) = start_server(kind, acts).await;
        let other = model.clone();
        let fallback = FallbackModel::new(model, vec![other], ModelRetryPolicy::default());
        let (reply, streamed, _) = ask(&fallback, &request(Delivery::Streamed)).await;
        assert_eq!((describe(&reply).as_str(), streamed.as_str()), (r#""three" [] EndOfTurn"#, "three"));
        assert_eq!(server.requests()[0].body, server.requests()[1].body);
    }
}

#[tokio::test]
async fn a_refused_connection_is_not_tried_again_and_hides_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = Some(format!("http://{}", listener.local_addr().unwrap()));
    drop(listener);
    for kind in KINDS {
        let model =
            model(ModelProviderSettings { base_url: base_url.clone(), ..ModelProviderSettings::new(kind) });
        let error = ask(&*model, &request(Delivery::Streamed)).await.0.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::NotListening);
        assert!(!error.kind.is_transient());
        assert!(!error.reason.contains("127.0.0.1"), "the address may hold a secret: {error}");
    }
}

#[tokio::test]
async fn error_messages_say_what_to_do() {
    let refusals = [
        ScriptAction::refusal(401, "authentication_error", "invalid x-api-key."),
        ScriptAction::refusal(429, "rate_limit_error", "slow down"),
        ScriptAction::refusal(400, "invalid_request_error", "prompt is too long"),
        ScriptAction::refusal(404, "not_found_error", "model: m"),
        ScriptAction::refusal(529, "overloaded_error", "Overloaded"),
        ScriptAction::Page,
    ];
    let server = ModelServer::start(Script::of(refusals.clone())).await.unwrap();
    let model: Arc<dyn Model> = model(settings(Anthropic, &server));
    let mut lines = Vec::new();
    for _ in refusals {
        lines.push(ask(&*model, &request(Delivery::Whole)).await.0.unwrap_err().to_string());
    }
    assert_snapshot!(lines.join("\n"), @"
    model 'p/m' rejected the API key: invalid x-api-key (status 401). Check apiKey of provider 'p' and the variable it refers to
    model 'p/m' is rate limited: slow down (status 429). Retry later, or configure a fallback model
    model 'p/m' exceeded its context window: prompt is too long (status 400). Shorten the conversation, or use a model with a larger context window
    model 'p/m' rejected the request: model: m (status 404). Change the request or the model
    model 'p/m' is overloaded: Overloaded (status 529). Retry later, or configure a fallback model
    model 'p/m' sent an invalid reply: not a JSON reply (content type 'text/html'). Check that baseUrl and type of provider 'p' match
    ");
}
