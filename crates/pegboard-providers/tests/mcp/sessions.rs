//! Servers that sessions share, and those that each has for itself.

use std::sync::Arc;
use std::time::Duration;

use pegboard_core::call::{Call, Invoker};
use pegboard_core::client::Client;
use pegboard_core::provider::{Offer, Provider};
use pegboard_core::settings::mcp::Settings;
use pegboard_runtime::{Caller, CallerOptions, Memory, Runtime};
use pegboard_wire::client::Era;
use serde_json::json;

use crate::stage::{self, Person, Stage, become_true, said};

async fn runtime(stage: &Stage, change: impl FnOnce(&mut Settings)) -> Runtime {
    let server = stage.provider_with(Era::Session, change);
    Runtime::builder().provide("stage", server).start().await.unwrap()
}

async fn call(caller: &Caller, tool: &str, person: &Arc<Person>) -> String {
    let mut call = Call::new(format!("stage__{tool}"), json!({}));
    call.context.client = Some(Arc::clone(person) as Arc<dyn Client>);
    said(&caller.start(call).await.result)
}

#[tokio::test(start_paused = true)]
async fn sessions_share_a_server() {
    let stage = Stage::new();
    let runtime = runtime(&stage, |_| {}).await;
    let person = Person::named("Ann");
    for _ in 0..3 {
        let caller = runtime.caller(CallerOptions::default());
        assert_eq!(call(&caller, "echo", &person).await, "{}");
    }
    assert_eq!(stage.n_started(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_shared_is_there_once_for_each_session() {
    let stage = Stage::new();
    let runtime = runtime(&stage, |settings| settings.is_shared = false).await;
    let person = Person::named("Ann");
    let callers = [(); 3].map(|()| runtime.caller(CallerOptions::default()));
    for _ in 0..2 {
        for caller in &callers {
            assert_eq!(call(caller, "echo", &person).await, "{}");
        }
    }
    // One that was asked what it has, and one for each session.
    assert_eq!((stage.n_started(), stage.n_running()), (4, 4));
    // It ends with the session, and nobody finds what was left behind.
    drop(callers);
    stage.running(1).await;
    let caller = runtime.caller(CallerOptions::default());
    assert_eq!((call(&caller, "echo", &person).await.as_str(), stage.n_running()), ("{}", 2));
    runtime.shut_down(Duration::from_secs(1)).await;
    stage.running(0).await;
}

#[tokio::test(start_paused = true)]
async fn who_is_not_remembered_has_a_server_for_one_call_where_nothing_is_shared() {
    let stage = Stage::new();
    let runtime = runtime(&stage, |settings| settings.is_shared = false).await;
    let person = Person::named("Ann");
    let options = CallerOptions { memory: Memory::Stateless, ..CallerOptions::default() };
    for _ in 0..2 {
        assert_eq!(call(&runtime.caller(options.clone()), "echo", &person).await, "{}");
    }
    // One that was asked what it has, and one for each call.
    assert_eq!(stage.n_started(), 3);
    stage.running(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_its_callers_is_there_for_each_session_from_then_on() {
    let stage = Stage::new();
    let server = stage.provider(Era::Session);
    let offer = server.offer();
    let runtime = Runtime::builder().provide("stage", server).start().await.unwrap();
    let people = [Person::named("Ann"), Person::named("Bob")];
    let callers = [(); 2].map(|()| runtime.caller(CallerOptions::default()));
    assert_eq!(call(&callers[0], "ask", &people[0]).await, "Hello, Ann!");
    assert_eq!(stage.n_started(), 1);

    let (ann, bob) = (call(&callers[0], "hang", &people[0]), call(&callers[1], "ask", &people[1]));
    let asked = tokio::select! {
        said = ann => panic!("{said}"),
        said = bob => said,
    };
    assert_eq!((asked.as_str(), stage.n_started()), ("Hello, Bob!", 2));
    // The first one keeps what it had.
    assert_eq!(call(&callers[0], "ask", &people[0]).await, "Hello, Ann!");
    assert_eq!(stage.n_started(), 2);
    let is_told = |offer: &Arc<Offer>| offer.warnings.iter().any(|warning| warning.contains("of its own"));
    become_true(offer, is_told).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_does_not_move_in_with_a_call_of_somebody_else() {
    let stage = Stage::new();
    let runtime = runtime(&stage, |_| {}).await;
    let people = [Person::named("Ann"), Person::named("Bob")];
    let forgotten = CallerOptions { memory: Memory::Stateless, ..CallerOptions::default() };
    let callers = [runtime.caller(forgotten), runtime.caller(CallerOptions::default())];
    // It begins before anybody knows that the server asks things.
    let ann = call(&callers[0], "hang", &people[0]);
    let bob = async {
        stage.hanging(1).await;
        (call(&callers[1], "ask", &people[1]).await, call(&callers[1], "ask", &people[1]).await)
    };
    let (first, second) = tokio::select! {
        said = ann => panic!("{said}"),
        said = bob => said,
    };
    assert_ne!(first, "Hello, Bob!", "nobody can tell whom it means");
    assert_eq!((second.as_str(), stage.n_started()), ("Hello, Bob!", 2));
}

#[tokio::test]
async fn a_caller_without_a_session_has_a_server_that_asks_to_itself_while_its_call_runs() {
    let stage = Stage::new();
    let server = stage.opened(Era::Session).await;
    let people = [Person::named("Ann"), Person::named("Bob")];
    assert_eq!(line_for(&server, "ask", &people[0]).await, "Hello, Ann!");
    assert_eq!(stage.n_started(), 1);

    let ann = line_for(&server, "hang", &people[0]);
    let bob = async {
        stage.hanging(1).await;
        let first = line_for(&server, "ask", &people[1]).await;
        // What the first call left behind serves the next one.
        (first, line_for(&server, "ask", &people[1]).await)
    };
    let asked = tokio::select! {
        said = ann => panic!("{said}"),
        said = bob => said,
    };
    assert_eq!(asked, ("Hello, Bob!".to_owned(), "Hello, Bob!".to_owned()));
    assert_eq!(stage.n_started(), 2);
    // The server that is there for all is free again.
    assert_eq!(line_for(&server, "ask", &people[0]).await, "Hello, Ann!");
    assert_eq!(stage.n_started(), 2);
    server.shut_down().await;
    stage.running(0).await;
}

/// What a tool says to somebody without a session.
async fn line_for(server: &dyn Provider, tool: &str, person: &Arc<Person>) -> String {
    said(&stage::call(server, tool, json!({}), person.context()).await)
}
