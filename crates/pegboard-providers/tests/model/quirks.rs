//! What servers do that claim to speak chat completions.

use std::sync::atomic::{AtomicBool, Ordering};

use pegboard_core::model::{Delivery, Piece};
use pegboard_core::settings::model::ModelProviderKind::{Anthropic, OpenAiCompatible};
use pegboard_testkit::model_server::{Act, Answer, Call, Quirk};
use serde_json::json;

use crate::stage::{DELIVERIES, check_one, request, scene, told};

fn two_calls(quirks: &[Quirk]) -> Act {
    let call = |a: u8| Call { id: None, name: "add".to_owned(), arguments: json!({"a": a}) };
    Act::Answer(Answer { tool_calls: vec![call(1), call(2)], quirks: quirks.to_vec(), ..Answer::default() })
}

#[tokio::test]
async fn calls_are_told_apart_however_they_are_numbered() {
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
        check_one(OpenAiCompatible, delivery, two_calls(quirks), expected).await;
    }
}

#[tokio::test]
async fn a_text_is_a_text_however_it_ends_or_is_wrapped() {
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
        let act = Act::Answer(Answer { quirks: quirks.to_vec(), ..Answer::text("three") });
        check_one(OpenAiCompatible, delivery, act, r#""three" [] EndOfTurn"#).await;
    }
}

#[tokio::test]
async fn messages_may_come_as_a_whole_though_they_were_to_be_streamed_and_without_ids() {
    for quirk in [Quirk::NotStreamed, Quirk::NoIds, Quirk::NoUsage] {
        let expected = r#""" [add({"a":1}), add({"a":2})] ToolCalls"#;
        check_one(Anthropic, Delivery::Streamed, two_calls(&[quirk]), expected).await;
    }
}

#[tokio::test]
async fn a_reply_that_is_there_does_not_wait_for_a_server_that_keeps_the_line_open() {
    let answer = Answer { quirks: vec![Quirk::KeepsOpen, Quirk::NoUsage], ..Answer::text("three") };
    let (_server, model) = scene(OpenAiCompatible, [Act::Answer(answer)]).await;
    let is_paused = AtomicBool::new(false);
    let listener = |_piece: Piece<'_>| {
        // From here on time passes as soon as nobody has anything to do.
        if !is_paused.swap(true, Ordering::Relaxed) {
            tokio::time::pause();
        }
    };
    let reply = model.answer(&request(Delivery::Streamed), &listener).await;
    assert_eq!(told(&reply), r#""three" [] EndOfTurn"#);
}
