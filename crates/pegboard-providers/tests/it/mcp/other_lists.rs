//! Lists of prompts, resources and templates.

use std::time::Duration;

use pegboard_core::provider::{Provider, ServerFeatures, ServerOffering};
use pegboard_json::RawJson;
use pegboard_wire::server::ServiceChange;
use serde_json::json;
use tokio::time::Instant;

use crate::mcp::scripted::{ERAS, ScriptedReply, ScriptedServer, call_text, settle, wait_until};

const PROMPT: &str = r#"{"name":"greet", "description":"Says\n hello","x":1e2}"#;

/// Returns a server with all lists and capabilities.
fn full_server() -> ScriptedServer {
    let scripted = ScriptedServer::new();
    scripted.add_capability("prompts", json!({"listChanged": true}));
    scripted.add_capability("resources", json!({"listChanged": true, "subscribe": true}));
    scripted.add_capability("completions", json!({}));
    scripted.add_capability("logging", json!({}));
    scripted.respond_to(
        "prompts/list",
        ScriptedReply::Raw(format!(r#"{{"prompts":[{PROMPT},{{"name":"bye"}}]}}"#)),
    );
    scripted.respond_to(
        "resources/list",
        ScriptedReply::json(&json!({"resources": [{"uri": "file:///a", "name": "a"}]})),
    );
    let template = json!({"uriTemplate": "file:///{x}", "name": "any"});
    scripted.respond_to(
        "resources/templates/list",
        ScriptedReply::json(&json!({"resourceTemplates": [template]})),
    );
    scripted
}

fn as_strings(items: &[RawJson]) -> Vec<&str> {
    items.iter().map(RawJson::as_str).collect()
}

fn is_complete(offering: &ServerOffering) -> bool {
    [&offering.prompts, &offering.resources, &offering.templates].iter().all(|list| !list.is_empty())
}

#[tokio::test(start_paused = true)]
async fn all_lists_are_published_as_the_server_wrote_them() {
    for era in ERAS {
        let server = full_server().open_provider(era).await;
        wait_until(server.offering(), |offering| is_complete(offering)).await;
        let offering = server.offering().borrow().clone();
        assert_eq!(as_strings(&offering.prompts), [PROMPT, r#"{"name":"bye"}"#]);
        assert_eq!(as_strings(&offering.resources), [r#"{"uri":"file:///a","name":"a"}"#]);
        assert_eq!(as_strings(&offering.templates), [r#"{"uriTemplate":"file:///{x}","name":"any"}"#]);
        assert_eq!(
            offering.features,
            ServerFeatures { completions: true, subscriptions: true, logging: true }
        );
        assert_eq!((offering.warnings.len(), offering.is_stale), (0, false));
        insta::allow_duplicates! {
            insta::assert_snapshot!(offering.instructions.as_deref().unwrap(), @r"
            Break a leg.

            Prompts of this server:
            - greet: Says hello
            - bye
            ");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lists_without_a_capability_are_not_requested() {
    for era in ERAS {
        let scripted = ScriptedServer::new();
        let server = scripted.open_provider(era).await;
        settle().await;
        let asked: Vec<String> =
            scripted.requests.lock().unwrap().iter().map(|(method, _)| method.clone()).collect();
        assert!(asked.iter().all(|method| method == "subscriptions/listen"), "{asked:?}");
        assert_eq!(server.offering().borrow().features, ServerFeatures::default());
    }
}

#[tokio::test(start_paused = true)]
async fn a_declared_but_missing_list_is_empty() {
    for era in ERAS {
        let scripted = ScriptedServer::new();
        scripted.add_capability("resources", json!({}));
        let server = scripted.open_provider(era).await;
        settle().await;
        assert_eq!(scripted.n_requests("resources/list"), 1);
        assert_eq!(scripted.n_requests("resources/templates/list"), 1);
        assert!(server.offering().borrow().warnings.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_list_does_not_delay_the_others() {
    for era in ERAS {
        let scripted = full_server();
        scripted.respond_to("resources/list", ScriptedReply::Hang);
        let started_at = Instant::now();
        let server = scripted.open_provider(era).await;
        assert_eq!((call_text(&server, "echo").await.as_str(), started_at.elapsed()), ("{}", Duration::ZERO));
        wait_until(server.offering(), |offering| {
            !offering.prompts.is_empty() && !offering.templates.is_empty()
        })
        .await;
        assert!(started_at.elapsed() < Duration::from_secs(1));

        wait_until(server.offering(), |offering| !offering.warnings.is_empty()).await;
        assert_eq!(
            server.offering().borrow().warnings,
            ["the list of resources may be outdated; reading it failed: the request timed out"]
        );
        scripted.respond_to(
            "resources/list",
            ScriptedReply::json(&json!({"resources": [{"uri": "file:///late"}]})),
        );
        scripted.notify_change(ServiceChange::Resources);
        wait_until(server.offering(), |offering| is_complete(offering) && offering.warnings.is_empty()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_changed_list_is_read_again() {
    for era in ERAS {
        let scripted = full_server();
        let server = scripted.open_provider(era).await;
        wait_until(server.offering(), |offering| is_complete(offering)).await;
        settle().await;
        scripted.respond_to("prompts/list", ScriptedReply::json(&json!({"prompts": [{"name": "new"}]})));
        scripted.notify_change(ServiceChange::Prompts);
        wait_until(server.offering(), |offering| as_strings(&offering.prompts) == [r#"{"name":"new"}"#])
            .await;
        let instructions = server.offering().borrow().instructions.clone().unwrap();
        assert!(instructions.ends_with("\n- new"), "{instructions}");
        assert_eq!((scripted.n_requests("prompts/list"), scripted.n_requests("resources/list")), (2, 1));

        scripted
            .respond_to("resources/templates/list", ScriptedReply::json(&json!({"resourceTemplates": []})));
        scripted.notify_change(ServiceChange::Resources);
        wait_until(server.offering(), |offering| offering.templates.is_empty()).await;
        assert_eq!((scripted.n_requests("prompts/list"), scripted.n_requests("resources/list")), (2, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_entries_are_skipped_with_a_warning() {
    let scripted = full_server();
    let prompts = json!([{"name": "a"}, 5, {"name": ""}, {"name": 7}, {"name": "a"}]);
    scripted.respond_to("prompts/list", ScriptedReply::json(&json!({"prompts": prompts})));
    let resources = json!([{"name": "x"}, {"uri": "x:a"}, {"uri": "x:a"}, {"uri": null}]);
    scripted.respond_to("resources/list", ScriptedReply::json(&json!({"resources": resources})));
    let templates = json!([{"uriTemplate": "x:{a}"}, {"uriTemplate": "x:{b}", "name": "b"}, {"name": "c"}]);
    scripted.respond_to(
        "resources/templates/list",
        ScriptedReply::json(&json!({"resourceTemplates": templates})),
    );
    let server = scripted.open_provider(ERAS[0]).await;
    wait_until(server.offering(), |offering| is_complete(offering)).await;
    let offering = server.offering().borrow().clone();
    assert_eq!(as_strings(&offering.prompts), [r#"{"name":"a"}"#]);
    assert_eq!(as_strings(&offering.resources), [r#"{"uri":"x:a"}"#]);
    assert_eq!(as_strings(&offering.templates), [r#"{"uriTemplate":"x:{b}","name":"b"}"#]);
    insta::assert_snapshot!(offering.warnings.join("\n"), @r#"
    entry 2 of the list of prompts is skipped: `name` is missing or not a string
    entry 3 of the list of prompts is skipped: `name` is missing
    entry 4 of the list of prompts is skipped: `name` is missing or not a string
    prompt "a" is skipped: duplicate `name`
    entry 1 of the list of resources is skipped: `uri` is missing or not a string
    resource "x:a" is skipped: duplicate `uri`
    entry 4 of the list of resources is skipped: `uri` is missing or not a string
    template "x:{a}" is skipped: `name` is missing
    entry 3 of the list of resource templates is skipped: `uriTemplate` is missing or not a string
    "#);
}

#[tokio::test(start_paused = true)]
async fn every_list_is_paged_until_a_cursor_repeats() {
    let scripted = full_server();
    let server = scripted.open_provider(ERAS[0]).await;
    wait_until(server.offering(), |offering| is_complete(offering)).await;
    let page = json!({"prompts": [{"name": "a"}], "nextCursor": "again"});
    scripted.respond_to("prompts/list", ScriptedReply::json(&page));
    scripted.notify_change(ServiceChange::Prompts);
    wait_until(server.offering(), |offering| offering.warnings.len() == 2).await;
    assert_eq!(
        server.offering().borrow().warnings,
        [
            "the pages of the list of prompts repeat; the rest is skipped",
            "prompt \"a\" is skipped: duplicate `name`",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_prompt_summary_is_bounded() {
    let scripted = full_server();
    let prompts: Vec<_> = (0..1_000)
        .map(|number| json!({"name": format!("p{number}"), "description": "x".repeat(1_000)}))
        .collect();
    scripted.respond_to("prompts/list", ScriptedReply::json(&json!({"prompts": prompts})));
    let server = scripted.open_provider(ERAS[0]).await;
    wait_until(server.offering(), |offering| offering.prompts.len() == 1_000).await;
    let instructions = server.offering().borrow().instructions.clone().unwrap();
    assert!(instructions.len() < 10_000);
    assert!(instructions.ends_with("\n- and 985 more"), "{}", &instructions[instructions.len() - 20..]);
}
