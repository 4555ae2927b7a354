//! What a server offers beside its tools.

use std::time::Duration;

use pegboard_core::provider::{Features, Offer, Provider};
use pegboard_json::RawJson;
use pegboard_wire::server::Change;
use serde_json::json;
use tokio::time::Instant;

use crate::stage::{Act, ERAS, Stage, become_true, line, settle};

const PROMPT: &str = r#"{"name":"greet", "description":"Says\n hello","x":1e2}"#;

/// A server that has everything.
fn rich() -> Stage {
    let stage = Stage::new();
    stage.can("prompts", json!({"listChanged": true}));
    stage.can("resources", json!({"listChanged": true, "subscribe": true}));
    stage.can("completions", json!({}));
    stage.can("logging", json!({}));
    stage.on("prompts/list", Act::Say(format!(r#"{{"prompts":[{PROMPT},{{"name":"bye"}}]}}"#)));
    stage.on("resources/list", Act::say(&json!({"resources": [{"uri": "file:///a", "name": "a"}]})));
    let template = json!({"uriTemplate": "file:///{x}", "name": "any"});
    stage.on("resources/templates/list", Act::say(&json!({"resourceTemplates": [template]})));
    stage
}

fn written(items: &[RawJson]) -> Vec<&str> {
    items.iter().map(RawJson::as_str).collect()
}

fn is_whole(offer: &Offer) -> bool {
    [&offer.prompts, &offer.resources, &offer.templates].iter().all(|list| !list.is_empty())
}

#[tokio::test(start_paused = true)]
async fn a_server_offers_everything_it_lists_as_it_wrote_it() {
    for era in ERAS {
        let server = rich().opened(era).await;
        become_true(server.offer(), |offer| is_whole(offer)).await;
        let offer = server.offer().borrow().clone();
        assert_eq!(written(&offer.prompts), [PROMPT, r#"{"name":"bye"}"#]);
        assert_eq!(written(&offer.resources), [r#"{"uri":"file:///a","name":"a"}"#]);
        assert_eq!(written(&offer.templates), [r#"{"uriTemplate":"file:///{x}","name":"any"}"#]);
        assert_eq!(offer.features, Features { completions: true, subscriptions: true, logging: true });
        assert_eq!((offer.warnings.len(), offer.is_stale), (0, false));
        insta::allow_duplicates! {
            insta::assert_snapshot!(offer.instructions.as_deref().unwrap(), @r"
            Break a leg.

            Prompts of this server:
            - greet: Says hello
            - bye
            ");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_server_does_not_claim_to_have_is_not_asked_for() {
    for era in ERAS {
        let stage = Stage::new();
        let server = stage.opened(era).await;
        settle().await;
        let asked: Vec<String> =
            stage.requests.lock().unwrap().iter().map(|(method, _)| method.clone()).collect();
        assert!(asked.iter().all(|method| method == "subscriptions/listen"), "{asked:?}");
        assert_eq!(server.offer().borrow().features, Features::default());
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_claimed_and_not_there_is_empty() {
    for era in ERAS {
        let stage = Stage::new();
        stage.can("resources", json!({}));
        let server = stage.opened(era).await;
        settle().await;
        assert_eq!(stage.n_requests("resources/list"), 1);
        assert_eq!(stage.n_requests("resources/templates/list"), 1);
        assert!(server.offer().borrow().warnings.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_hangs_delays_nothing_else() {
    for era in ERAS {
        let stage = rich();
        stage.on("resources/list", Act::Hang);
        let begun = Instant::now();
        let server = stage.opened(era).await;
        assert_eq!((line(&server, "echo").await.as_str(), begun.elapsed()), ("{}", Duration::ZERO));
        become_true(server.offer(), |offer| !offer.prompts.is_empty() && !offer.templates.is_empty()).await;
        assert!(begun.elapsed() < Duration::from_secs(1));

        become_true(server.offer(), |offer| !offer.warnings.is_empty()).await;
        assert_eq!(
            server.offer().borrow().warnings,
            ["the list of resources may not be the newest; reading it ended with: the server took too long"]
        );
        stage.on("resources/list", Act::say(&json!({"resources": [{"uri": "file:///late"}]})));
        stage.tell(Change::Resources);
        become_true(server.offer(), |offer| is_whole(offer) && offer.warnings.is_empty()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_changes_is_read_again_and_no_other() {
    for era in ERAS {
        let stage = rich();
        let server = stage.opened(era).await;
        become_true(server.offer(), |offer| is_whole(offer)).await;
        settle().await;
        stage.on("prompts/list", Act::say(&json!({"prompts": [{"name": "new"}]})));
        stage.tell(Change::Prompts);
        become_true(server.offer(), |offer| written(&offer.prompts) == [r#"{"name":"new"}"#]).await;
        let instructions = server.offer().borrow().instructions.clone().unwrap();
        assert!(instructions.ends_with("\n- new"), "{instructions}");
        assert_eq!((stage.n_requests("prompts/list"), stage.n_requests("resources/list")), (2, 1));

        stage.on("resources/templates/list", Act::say(&json!({"resourceTemplates": []})));
        stage.tell(Change::Resources);
        become_true(server.offer(), |offer| offer.templates.is_empty()).await;
        assert_eq!((stage.n_requests("prompts/list"), stage.n_requests("resources/list")), (2, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn entries_that_make_no_sense_are_left_out_and_named() {
    let stage = rich();
    let prompts = json!([{"name": "a"}, 5, {"name": ""}, {"name": 7}, {"name": "a"}]);
    stage.on("prompts/list", Act::say(&json!({"prompts": prompts})));
    let resources = json!([{"name": "x"}, {"uri": "x:a"}, {"uri": "x:a"}, {"uri": null}]);
    stage.on("resources/list", Act::say(&json!({"resources": resources})));
    let templates = json!([{"uriTemplate": "x:{a}"}, {"uriTemplate": "x:{b}", "name": "b"}, {"name": "c"}]);
    stage.on("resources/templates/list", Act::say(&json!({"resourceTemplates": templates})));
    let server = stage.opened(ERAS[0]).await;
    become_true(server.offer(), |offer| is_whole(offer)).await;
    let offer = server.offer().borrow().clone();
    assert_eq!(written(&offer.prompts), [r#"{"name":"a"}"#]);
    assert_eq!(written(&offer.resources), [r#"{"uri":"x:a"}"#]);
    assert_eq!(written(&offer.templates), [r#"{"uriTemplate":"x:{b}","name":"b"}"#]);
    insta::assert_snapshot!(offer.warnings.join("\n"), @r#"
    entry 2 of the list of prompts is left out: it has no name, or one that is no text
    entry 3 of the list of prompts is left out: it has no name
    entry 4 of the list of prompts is left out: it has no name, or one that is no text
    prompt "a" is left out: one of this name comes before it
    entry 1 of the list of resources is left out: it has no uri, or one that is no text
    resource "x:a" is left out: one of this uri comes before it
    entry 4 of the list of resources is left out: it has no uri, or one that is no text
    template "x:{a}" is left out: it has no name
    entry 3 of the list of templates of resources is left out: it has no uriTemplate, or one that is no text
    "#);
}

#[tokio::test(start_paused = true)]
async fn every_list_is_read_to_its_end_but_not_without_one() {
    let stage = rich();
    let server = stage.opened(ERAS[0]).await;
    become_true(server.offer(), |offer| is_whole(offer)).await;
    let page = json!({"prompts": [{"name": "a"}], "nextCursor": "again"});
    stage.on("prompts/list", Act::say(&page));
    stage.tell(Change::Prompts);
    become_true(server.offer(), |offer| offer.warnings.len() == 2).await;
    assert_eq!(
        server.offer().borrow().warnings,
        [
            "the pages of the list of prompts lead in a circle; the rest is left out",
            "prompt \"a\" is left out: one of this name comes before it",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn many_prompts_are_few_lines() {
    let stage = rich();
    let prompts: Vec<_> = (0..1_000)
        .map(|number| json!({"name": format!("p{number}"), "description": "x".repeat(1_000)}))
        .collect();
    stage.on("prompts/list", Act::say(&json!({"prompts": prompts})));
    let server = stage.opened(ERAS[0]).await;
    become_true(server.offer(), |offer| offer.prompts.len() == 1_000).await;
    let instructions = server.offer().borrow().instructions.clone().unwrap();
    assert!(instructions.len() < 10_000);
    assert!(instructions.ends_with("\n- and 985 more"), "{}", &instructions[instructions.len() - 20..]);
}
