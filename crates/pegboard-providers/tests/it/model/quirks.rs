//! Quirks of chat completions servers.

use std::sync::atomic::{AtomicBool, Ordering};

use pegboard_core::model::{Delivery, ReplyEvent};
use pegboard_core::settings::model::ModelProviderKind::{Anthropic, OpenAiCompatible};
use pegboard_testkit::model_server::{Quirk, ScriptAction, ScriptedCall, ScriptedReply};
use serde_json::json;

use crate::model::harness::{DELIVERIES, check_single, describe, request, start_server};

fn two_calls(quirks: &[Quirk]) -> ScriptAction {
    let call = |a: u8| ScriptedCall { id: None, name: "add".to_owned(), arguments: json!({"a": a}) };
    ScriptAction::Answer(ScriptedReply {
        tool_calls: vec![call(1), call(2)],
        quirks: quirks.to_vec(),
        ..ScriptedReply::default()
    })
}

#[tokio::test]
async fn calls_are_distinguished_despite_odd_ids_and_indices() {
    let odd: [&[Quirk]; 9] = [
        &[Quirk::NoIds],
        &[Quirk::SameIds],
        &[Quirk::SameIndex],
        &[Quirk::NoIndex],
        &[Quirk::NoIndex, Quirk::NoIds],
        &[Quirk::ObjectArguments],
        &[Quirk::ObjectArguments, Quirk::NoIds, Quirk::NoIndex],
        &[Quirk::StopsForCalls],
        &[Quirk::NotStreamed],
    ];
    for (quirks, delivery) in odd.into_iter().flat_map(|quirks| DELIVERIES.map(|delivery| (quirks, delivery)))
    {
        let expected = r#""" [add({"a":1}), add({"a":2})] ToolCalls"#;
        check_single(OpenAiCompatible, delivery, two_calls(quirks), expected).await;
    }
}

#[tokio::test]
async fn text_is_read_despite_odd_endings_and_wrappers() {
    let odd: [&[Quirk]; 6] = [
        &[Quirk::NoUsage],
        &[Quirk::NoDone],
        &[Quirk::NoDone, Quirk::NoUsage],
        &[Quirk::NotStreamed],
        &[Quirk::NullChoices],
        &[Quirk::ListContent],
    ];
    for (quirks, delivery) in odd.into_iter().flat_map(|quirks| DELIVERIES.map(|delivery| (quirks, delivery)))
    {
        let act =
            ScriptAction::Answer(ScriptedReply { quirks: quirks.to_vec(), ..ScriptedReply::text("three") });
        check_single(OpenAiCompatible, delivery, act, r#""three" [] EndOfTurn"#).await;
    }
}

#[tokio::test]
async fn a_refusal_is_read_from_its_own_field() {
    for delivery in DELIVERIES {
        let reply = ScriptedReply { quirks: vec![Quirk::RefusalField], ..ScriptedReply::text("I cannot") };
        let expected = r#""I cannot" [] Refused"#;
        check_single(OpenAiCompatible, delivery, ScriptAction::Answer(reply), expected).await;
    }
}

#[tokio::test]
async fn messages_may_arrive_unstreamed_and_without_ids() {
    for quirk in [Quirk::NotStreamed, Quirk::NoIds, Quirk::NoUsage] {
        let expected = r#""" [add({"a":1}), add({"a":2})] ToolCalls"#;
        check_single(Anthropic, Delivery::Streamed, two_calls(&[quirk]), expected).await;
    }
}

#[tokio::test]
async fn a_finished_reply_does_not_wait_for_an_open_connection() {
    let answer =
        ScriptedReply { quirks: vec![Quirk::KeepsOpen, Quirk::NoUsage], ..ScriptedReply::text("three") };
    let (_server, model) = start_server(OpenAiCompatible, [ScriptAction::Answer(answer)]).await;
    let is_paused = AtomicBool::new(false);
    let listener = |_piece: ReplyEvent<'_>| {
        // From here on, time advances whenever all tasks are idle.
        if !is_paused.swap(true, Ordering::Relaxed) {
            tokio::time::pause();
        }
    };
    let reply = model.answer(&request(Delivery::Streamed), &listener).await;
    assert_eq!(describe(&reply), r#""three" [] EndOfTurn"#);
}
