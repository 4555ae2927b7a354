//! What goes wrong with models, and what is told of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use insta::assert_snapshot;
use pegboard_core::model::{Delivery, Model, ModelErrorKind};
use pegboard_core::settings::model::ModelProviderKind::{Anthropic, OpenAiCompatible};
use pegboard_core::settings::model::ModelProviderSettings;
use pegboard_providers::model::{Fallback, Patience};
use pegboard_testkit::model_server::{Act, Answer, ModelServer, Refusal, Script};
use tokio::net::TcpListener;

use crate::stage::{DELIVERIES, KINDS, ask, check, check_one, model, request, scene, settings, told};

#[tokio::test]
async fn refusals_become_kinds_that_a_caller_can_tell_apart() {
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
        check(Act::refusal(status, kind, message), expected).await;
    }
}

#[tokio::test]
async fn an_error_after_success_is_an_error() {
    let late = |kind: &str| {
        Act::RefuseLate(Refusal { kind: kind.to_owned(), message: "sorry".to_owned(), ..Refusal::default() })
    };
    check(late("overloaded_error"), "Overloaded { retry_after: None }: sorry").await;
    check(late("rate_limit_error"), "RateLimited { retry_after: None }: sorry").await;
    check(late("authentication_error"), "Unauthorized: sorry").await;
    check(late("context_length_exceeded"), "ContextTooLong: sorry").await;
}

#[tokio::test]
async fn what_is_no_reply_is_not_taken_for_one() {
    check(Act::Page, "Garbage: it is no JSON of a reply (content type 'text/html')").await;
    for kind in KINDS {
        let expected = "Garbage: it is no JSON of a reply (content type 'application/json')";
        check_one(kind, Delivery::Whole, Act::Garbage, expected).await;
        check_one(kind, Delivery::Whole, Act::Nonsense, expected).await;
        check_one(kind, Delivery::Whole, Act::EndEarly(Answer::text("Well, I think")), expected).await;
        let expected = "Garbage: an event of it is no JSON of a reply";
        check_one(kind, Delivery::Streamed, Act::Garbage, expected).await;
    }
    let expected = "Unreachable: the reply broke off before its end";
    check_one(OpenAiCompatible, Delivery::Streamed, Act::Nonsense, expected).await;
}

#[tokio::test]
async fn half_a_reply_is_none() {
    for kind in KINDS {
        let early = Act::EndEarly(Answer::text("Well, I think so"));
        let expected = "Unreachable: the reply broke off before its end";
        check_one(kind, Delivery::Streamed, early, expected).await;
        for delivery in DELIVERIES {
            let (_server, model) = scene(kind, [Act::Cut(Answer::text("Well, I think so"))]).await;
            let error = ask(&*model, &request(delivery)).await.0.unwrap_err();
            assert_eq!(error.kind, ModelErrorKind::Unreachable, "{kind:?} {delivery:?} {error}");
        }
    }
}

#[tokio::test]
async fn more_than_anybody_reads_is_not_read() {
    check(Act::Huge, "Garbage: it has more than 16 MiB").await;
}

#[tokio::test]
async fn nobody_is_sent_elsewhere() {
    let elsewhere = ModelServer::start(Script::of([Act::text("mine now")])).await.unwrap();
    let redirect = Act::Redirect(format!("{}/chat/completions", elsewhere.chat_url()));
    check(redirect, "Unreachable: it sends elsewhere (status 307), and that is not followed").await;
    assert_eq!(elsewhere.requests(), []);
}

#[tokio::test]
async fn a_slow_reply_is_a_reply() {
    check(Act::Slow(Answer::text("three")), r#""three" [] EndOfTurn"#).await;
}

#[tokio::test]
async fn a_model_that_never_replies_is_given_up_and_left_alone() {
    for (kind, delivery) in KINDS.into_iter().flat_map(|kind| DELIVERIES.map(|delivery| (kind, delivery))) {
        for act in [Act::Hang, Act::Stall(Answer::text("Well, I think so"))] {
            let (server, model) = scene(kind, [act]).await;
            let limit = Duration::from_millis(100);
            let patience = Patience { timeout: limit, max_retries: 0, ..Patience::default() };
            let fallback = Fallback::new(model, Vec::new(), patience);
            let (reply, ..) = ask(&fallback, &request(delivery)).await;
            assert_eq!(told(&reply), "TimedOut { limit: 100ms }: no whole reply within 100ms");
            server.until_hanging(0).await;
        }
    }
}

#[tokio::test]
async fn dropping_a_request_calls_it_off() {
    for kind in KINDS {
        let (server, model) = scene(kind, [Act::Hang]).await;
        let asking = tokio::spawn(async move { model.answer(&request(Delivery::Streamed), &|_| {}).await });
        server.until_hanging(1).await;
        asking.abort();
        server.until_hanging(0).await;
    }
}

#[tokio::test]
async fn a_rate_limit_is_waited_for() {
    for (kind, delivery) in KINDS.into_iter().flat_map(|kind| DELIVERIES.map(|delivery| (kind, delivery))) {
        let limited = Act::Refuse(Refusal {
            status: 429,
            kind: "rate_limit_error".to_owned(),
            message: "slow down".to_owned(),
            headers: BTreeMap::from([("retry-after".to_owned(), "0.01".to_owned())]),
        });
        let (server, model) = scene(kind, [limited.clone(), limited, Act::text("3")]).await;
        let fallback = Fallback::new(model, Vec::new(), Patience::default());
        let (reply, ..) = ask(&fallback, &request(delivery)).await;
        assert_eq!(told(&reply), r#""3" [] EndOfTurn"#);
        assert_eq!((server.requests().len(), server.violations()), (3, Vec::new()));
    }
}

#[tokio::test]
async fn a_reply_that_broke_off_is_asked_for_again_as_a_whole() {
    for kind in KINDS {
        let acts = [Act::EndEarly(Answer::text("Well, I think so")), Act::text("three")];
        let (server, model) = scene(kind, acts).await;
        let other = model.clone();
        let fallback = Fallback::new(model, vec![other], Patience::default());
        let (reply, heard, _) = ask(&fallback, &request(Delivery::Streamed)).await;
        assert_eq!((told(&reply).as_str(), heard.as_str()), (r#""three" [] EndOfTurn"#, "three"));
        assert_eq!(server.requests()[0].body, server.requests()[1].body);
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_cannot_be_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = Some(format!("http://{}", listener.local_addr().unwrap()));
    drop(listener);
    for kind in KINDS {
        let model =
            model(ModelProviderSettings { base_url: base_url.clone(), ..ModelProviderSettings::new(kind) });
        let error = ask(&*model, &request(Delivery::Streamed)).await.0.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Unreachable);
        assert!(!error.reason.contains("127.0.0.1"), "the address may hold a secret: {error}");
    }
}

#[tokio::test]
async fn what_a_person_reads_says_what_to_do() {
    let refusals = [
        Act::refusal(401, "authentication_error", "invalid x-api-key."),
        Act::refusal(429, "rate_limit_error", "slow down"),
        Act::refusal(400, "invalid_request_error", "prompt is too long"),
        Act::refusal(404, "not_found_error", "model: m"),
        Act::refusal(529, "overloaded_error", "Overloaded"),
        Act::Page,
    ];
    let server = ModelServer::start(Script::of(refusals.clone())).await.unwrap();
    let model: Arc<dyn Model> = model(settings(Anthropic, &server));
    let mut lines = Vec::new();
    for _ in refusals {
        lines.push(ask(&*model, &request(Delivery::Whole)).await.0.unwrap_err().to_string());
    }
    assert_snapshot!(lines.join("\n"), @"
    model 'p/m' does not take the key: invalid x-api-key (status 401). Check apiKey of the provider 'p', and that the variable it names is set
    model 'p/m' has been asked too often: slow down (status 429). Try again later, or name a second model
    model 'p/m' cannot read so much: prompt is too long (status 400). Give it less to read, or a model with a larger context window
    model 'p/m' refuses the request: model: m (status 404). Change what it is asked, or the model
    model 'p/m' has trouble of its own: Overloaded (status 529). Try again later, or name a second model
    model 'p/m' replied with what is no reply: it is no JSON of a reply (content type 'text/html'). Check that baseUrl and type of the provider 'p' belong together
    ");
}
