//! Replies of models.

use pegboard_core::model::{Pricing, StopReason, TokenUsage};
use pegboard_core::settings::model::{ModelProviderKind, ModelSettings};
use pegboard_testkit::model_server::{
    ModelServer, Quirk, Script, ScriptAction, ScriptedCall, ScriptedReply, ScriptedUsage,
};
use serde_json::json;

use crate::model::harness::{
    DELIVERIES, KINDS, ask, check, check_single, model, request, settings, start_server,
};

#[tokio::test]
async fn text_is_streamed_and_returned() {
    check(ScriptAction::text("Grüße, 世界! \"3\""), r#""Grüße, 世界! \"3\"" [] EndOfTurn"#).await;
    check(ScriptAction::text(""), r#""" [] EndOfTurn"#).await;
}

#[tokio::test]
async fn tool_calls_keep_their_order_and_arguments() {
    let one = || ("add", json!({"a": 1, "b": 2}));
    check(ScriptAction::calls([one()]), r#""" [add({"a":1,"b":2})] ToolCalls"#).await;
    check(
        ScriptAction::calls([one(), ("add", json!({"a": "ü"})), ("subtract", json!({"a": [1]}))]),
        r#""" [add({"a":1,"b":2}), add({"a":"ü"}), subtract({"a":[1]})] ToolCalls"#,
    )
    .await;
    let call = ScriptedCall { id: None, name: "add".to_owned(), arguments: json!({"a": 1}) };
    let with_text = ScriptedReply { tool_calls: vec![call], ..ScriptedReply::text("Let me see.") };
    check(ScriptAction::Answer(with_text), r#""Let me see." [add({"a":1})] ToolCalls"#).await;
}

#[tokio::test]
async fn missing_arguments_are_an_empty_object() {
    for (kind, delivery) in KINDS.into_iter().flat_map(|kind| DELIVERIES.map(|delivery| (kind, delivery))) {
        let (_server, model) = start_server(kind, [ScriptAction::calls([("add", json!(null))])]).await;
        let reply = ask(&*model, &request(delivery)).await.0.unwrap();
        assert_eq!(reply.tool_calls[0].json().unwrap().as_str(), "{}", "{kind:?} {delivery:?}");
    }
}

#[tokio::test]
async fn invalid_json_arguments_are_kept_verbatim() {
    let broken = ScriptAction::calls([("add", json!("{\"a\": "))]);
    for delivery in DELIVERIES {
        let expected = "\"\" [add({\"a\": )] ToolCalls";
        check_single(ModelProviderKind::OpenAiCompatible, delivery, broken.clone(), expected).await;
    }
}

#[tokio::test]
async fn stop_reasons_are_normalized() {
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
            let answer = ScriptedReply { stop: Some(stop.to_owned()), ..ScriptedReply::text("Well") };
            let (_server, model) = start_server(kind, [ScriptAction::Answer(answer)]).await;
            assert_eq!(ask(&*model, &request(delivery)).await.0.unwrap().stop, expected, "{stop}");
        }
    }
}

#[tokio::test]
async fn thoughts_are_streamed_apart_from_the_text() {
    for (kind, delivery) in KINDS.into_iter().flat_map(|kind| DELIVERIES.map(|delivery| (kind, delivery))) {
        let answer = ScriptedReply { thoughts: "1 and 2 …".to_owned(), ..ScriptedReply::text("3") };
        let (_server, model) = start_server(kind, [ScriptAction::Answer(answer)]).await;
        let (reply, streamed, thoughts) = ask(&*model, &request(delivery)).await;
        assert_eq!((reply.unwrap().text.as_str(), streamed.as_str()), ("3", "3"), "{kind:?} {delivery:?}");
        assert_eq!(thoughts, "1 and 2 …", "{kind:?} {delivery:?}");
    }
}

#[tokio::test]
async fn usage_and_cost_are_reported() {
    for (kind, delivery) in KINDS.into_iter().flat_map(|kind| DELIVERIES.map(|delivery| (kind, delivery))) {
        let usage = ScriptedUsage { input: 1_000, output: 200, cache_read: 10_000, cache_write: 0 };
        let answers = [vec![], vec![Quirk::NoUsage]]
            .map(|quirks| ScriptAction::Answer(ScriptedReply { usage, quirks, ..ScriptedReply::text("3") }));
        let server = ModelServer::start(Script::of(answers)).await.unwrap();
        let mut settings = settings(kind, &server);
        let pricing = Pricing { input: 3.0, output: 15.0, cache_read: Some(0.3), cache_write: None };
        let known = ModelSettings { pricing: Some(pricing), context_window: Some(8_000) };
        settings.models.insert("m".to_owned(), known);
        let model = model(settings);
        assert_eq!(model.info().context_window, Some(8_000));
        let reply = ask(&*model, &request(delivery)).await.0.unwrap();
        let counted = TokenUsage { input: 1_000, output: 200, cache_read: 10_000, cache_write: 0 };
        assert_eq!(reply.usage, Some(counted), "{kind:?} {delivery:?}");
        assert!((reply.cost_usd.unwrap() - 0.009).abs() < 1e-9);
        let uncounted = ask(&*model, &request(delivery)).await.0.unwrap();
        assert_eq!((uncounted.usage, uncounted.cost_usd), (None, None), "{kind:?} {delivery:?}");
    }
}
