//! What models reply.

use pegboard_core::model::{Pricing, StopReason, Usage};
use pegboard_core::settings::model::{ModelProviderKind, ModelSettings};
use pegboard_testkit::model_server::{Act, Answer, Call, ModelServer, Quirk, Script, Tokens};
use serde_json::json;

use crate::stage::{DELIVERIES, KINDS, ask, check, check_one, model, request, scene, settings};

#[tokio::test]
async fn a_text_is_heard_as_it_comes_and_replied_as_a_whole() {
    check(Act::text("Grüße, 世界! \"3\""), r#""Grüße, 世界! \"3\"" [] EndOfTurn"#).await;
    check(Act::text(""), r#""" [] EndOfTurn"#).await;
}

#[tokio::test]
async fn tools_that_are_to_be_called_come_in_order_with_their_arguments() {
    let one = || ("add", json!({"a": 1, "b": 2}));
    check(Act::calls([one()]), r#""" [add({"a":1,"b":2})] ToolCalls"#).await;
    check(
        Act::calls([one(), ("add", json!({"a": "ü"})), ("subtract", json!({"a": [1]}))]),
        r#""" [add({"a":1,"b":2}), add({"a":"ü"}), subtract({"a":[1]})] ToolCalls"#,
    )
    .await;
    let call = Call { id: None, name: "add".to_owned(), arguments: json!({"a": 1}) };
    let with_text = Answer { tool_calls: vec![call], ..Answer::text("Let me see.") };
    check(Act::Answer(with_text), r#""Let me see." [add({"a":1})] ToolCalls"#).await;
}

#[tokio::test]
async fn a_call_without_arguments_is_one_with_none() {
    for (kind, delivery) in KINDS.into_iter().flat_map(|kind| DELIVERIES.map(|delivery| (kind, delivery))) {
        let (_server, model) = scene(kind, [Act::calls([("add", json!(null))])]).await;
        let reply = ask(&*model, &request(delivery)).await.0.unwrap();
        assert_eq!(reply.tool_calls[0].json().unwrap().as_str(), "{}", "{kind:?} {delivery:?}");
    }
}

#[tokio::test]
async fn arguments_that_are_no_json_are_kept_as_they_were_written() {
    let broken = Act::calls([("add", json!("{\"a\": "))]);
    for delivery in DELIVERIES {
        let expected = "\"\" [add({\"a\": )] ToolCalls";
        check_one(ModelProviderKind::OpenAiCompatible, delivery, broken.clone(), expected).await;
    }
}

#[tokio::test]
async fn why_a_model_stopped_is_told_in_the_same_words() {
    let cases = [
        ("length", "max_tokens", StopReason::MaxTokens),
        ("content_filter", "refusal", StopReason::Refused),
        ("stop", "end_turn", StopReason::EndOfTurn),
        ("something_new", "something_new", StopReason::EndOfTurn),
    ];
    for (chat, messages, expected) in cases {
        for (kind, delivery) in KINDS.into_iter().flat_map(|kind| DELIVERIES.map(|delivery| (kind, delivery)))
        {
            let stop = if kind == ModelProviderKind::Anthropic { messages } else { chat };
            let answer = Answer { stop: Some(stop.to_owned()), ..Answer::text("Well") };
            let (_server, model) = scene(kind, [Act::Answer(answer)]).await;
            assert_eq!(ask(&*model, &request(delivery)).await.0.unwrap().stop, expected, "{stop}");
        }
    }
}

#[tokio::test]
async fn thoughts_are_heard_and_are_no_part_of_the_text() {
    for (kind, delivery) in KINDS.into_iter().flat_map(|kind| DELIVERIES.map(|delivery| (kind, delivery))) {
        let answer = Answer { thoughts: "1 and 2 …".to_owned(), ..Answer::text("3") };
        let (_server, model) = scene(kind, [Act::Answer(answer)]).await;
        let (reply, heard, thoughts) = ask(&*model, &request(delivery)).await;
        assert_eq!((reply.unwrap().text.as_str(), heard.as_str()), ("3", "3"), "{kind:?} {delivery:?}");
        assert_eq!(thoughts, "1 and 2 …", "{kind:?} {delivery:?}");
    }
}

#[tokio::test]
async fn every_token_is_counted_once_and_paid_for() {
    for (kind, delivery) in KINDS.into_iter().flat_map(|kind| DELIVERIES.map(|delivery| (kind, delivery))) {
        let usage = Tokens { input: 1_000, output: 200, cache_read: 10_000, cache_write: 0 };
        let answers = [vec![], vec![Quirk::NoUsage]]
            .map(|quirks| Act::Answer(Answer { usage, quirks, ..Answer::text("3") }));
        let server = ModelServer::start(Script::of(answers)).await.unwrap();
        let mut settings = settings(kind, &server);
        let pricing = Pricing { input: 3.0, output: 15.0, cache_read: Some(0.3), cache_write: None };
        let known = ModelSettings { pricing: Some(pricing), context_window: Some(8_000) };
        settings.models.insert("m".to_owned(), known);
        let model = model(settings);
        assert_eq!(model.facts().context_window, Some(8_000));
        let reply = ask(&*model, &request(delivery)).await.0.unwrap();
        let counted = Usage { input: 1_000, output: 200, cache_read: 10_000, cache_write: 0 };
        assert_eq!(reply.usage, Some(counted), "{kind:?} {delivery:?}");
        assert!((reply.cost_usd.unwrap() - 0.009).abs() < 1e-9);
        let uncounted = ask(&*model, &request(delivery)).await.0.unwrap();
        assert_eq!((uncounted.usage, uncounted.cost_usd), (None, None), "{kind:?} {delivery:?}");
    }
}
