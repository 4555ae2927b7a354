//! What servers ask while they work on a call.

use pegboard_core::provider::Provider;
use pegboard_wire::client::Era;
use serde_json::json;

use crate::stage::{ERAS, Person, Stage, become_true, call, line, said};

#[tokio::test(start_paused = true)]
async fn a_question_goes_to_whoever_made_the_call() {
    for era in ERAS {
        let stage = Stage::new();
        let server = stage.opened(era).await;
        let ann = Person::named("Ann");
        assert_eq!(said(&call(&server, "ask", json!({}), ann.context()).await), "Hello, Ann!");
        assert_eq!(ann.heard(), ["elicitation/create"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_can_answer_ends_the_call() {
    let cases = [
        (
            Era::Session,
            "execution_error: MCP error -32603: The question has no answer: the caller cannot be asked",
        ),
        (Era::Stateless, "execution_error: the server asked a question, and the caller cannot be asked"),
    ];
    for (era, expected) in cases {
        let stage = Stage::new();
        let server = stage.opened(era).await;
        let mute = std::sync::Arc::new(Person::default());
        assert_eq!(said(&call(&server, "ask", json!({}), mute.context()).await), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_cannot_be_spoken_to_is_not_asked() {
    let stage = Stage::new();
    let server = stage.opened(Era::Session).await;
    assert_eq!(
        line(&server, "ask").await,
        "execution_error: MCP error -32603: The question has no answer: no call is under way that somebody could be \
         asked about"
    );
    // The server is told beforehand, and does not even ask.
    let server = stage.opened(Era::Stateless).await;
    assert_eq!(
        line(&server, "ask").await,
        "execution_error: MCP error -32021: The client lacks the capability 'elicitation' that this request needs"
    );
}

#[tokio::test(start_paused = true)]
async fn with_several_callers_a_question_without_a_name_is_refused_and_noted() {
    let stage = Stage::new();
    let server = stage.opened(Era::Session).await;
    let offer = server.offer();
    let (ann, bob) = (Person::named("Ann"), Person::named("Bob"));
    let hanging = call(&server, "hang", json!({}), bob.context());
    let asking = async {
        stage.hanging(1).await;
        said(&call(&server, "ask", json!({}), ann.context()).await)
    };
    let asked = tokio::select! {
        result = hanging => panic!("{result:?}"),
        asked = asking => asked,
    };
    assert_eq!(
        asked,
        "execution_error: MCP error -32603: The question has no answer: calls of several callers are under way, and \
         nobody can tell whom the question is for"
    );
    become_true(server.offer(), |offer| !offer.warnings.is_empty()).await;
    insta::assert_snapshot!(offer.borrow().warnings.join("\n"), @"the server asks its callers things and does not say which of them it means, so each session has a server of its own");
    // Without the other one there is no doubt.
    assert_eq!(said(&call(&server, "ask", json!({}), ann.context()).await), "Hello, Ann!");
    assert_eq!((ann.heard().len(), bob.heard().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn where_every_request_stands_alone_questions_never_cross() {
    let stage = Stage::new();
    let server = stage.opened(Era::Stateless).await;
    let (ann, bob) = (Person::named("Ann"), Person::named("Bob"));
    let (to_ann, to_bob) = tokio::join!(
        call(&server, "ask", json!({}), ann.context()),
        call(&server, "ask", json!({}), bob.context())
    );
    assert_eq!((said(&to_ann), said(&to_bob)), ("Hello, Ann!".to_owned(), "Hello, Bob!".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn whoever_cannot_be_asked_has_no_folders() {
    let stage = Stage::new();
    let server = stage.opened(Era::Session).await;
    assert_eq!(line(&server, "roots").await, r#"{"where":{"roots":[]}}"#);
    let mute = std::sync::Arc::new(Person::default());
    assert_eq!(said(&call(&server, "roots", json!({}), mute.context()).await), r#"{"where":{"roots":[]}}"#);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_sent_home_for_folders_that_no_call_asked_for() {
    let stage = Stage::new();
    let server = stage.opened(Era::Session).await;
    let person = Person { name: Some("Ann"), comes_again: true, ..Person::default() };
    let ann = std::sync::Arc::new(person);
    assert_eq!(said(&call(&server, "roots", json!({}), ann.context()).await), r#"{"where":{"roots":[]}}"#);
    assert_eq!(ann.heard(), [""; 0]);
    // What a call cannot do without is worth it.
    assert_eq!(said(&call(&server, "ask", json!({}), ann.context()).await), "Hello, Ann!");
}
