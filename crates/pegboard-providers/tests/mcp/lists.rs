//! What a server offers, and what becomes of it when that changes.

use std::sync::atomic::Ordering;

use pegboard_core::call::CallContext;
use pegboard_core::entry::Annotations;
use pegboard_core::provider::{Provider, ToolKind};
use serde_json::json;
use tokio::time;

use crate::stage::{ERAS, Stage, become_true, call, names, settle};

const TOOL: &str = r#"{"name":"add","title":"Sum","description":"Adds","inputSchema":{"type":"object","b":1.0,"a":2},
    "outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"title":"other"},"_meta":{"x":1e2}}"#;

#[tokio::test(start_paused = true)]
async fn a_server_offers_its_tools_as_it_wrote_them() {
    for era in ERAS {
        let stage = Stage::new();
        stage.list_pages(vec![format!(r#"{{"tools":[{TOOL}]}}"#)]);
        let server = stage.opened(era).await;
        let offer = server.offer().borrow().clone();
        let [tool] = &offer.tools[..] else { panic!("{:?}", names(&offer)) };
        assert_eq!((tool.name(), tool.title(), tool.description()), ("add", Some("Sum"), "Adds"));
        // A line holds no line break.
        assert_eq!(tool.definition().as_str(), TOOL.replace('\n', " "));
        assert_eq!(*tool.input_schema().as_json(), json!({"type": "object", "b": 1.0, "a": 2}));
        assert_eq!(*tool.output_schema().as_json(), json!({"type": "object"}));
        assert_eq!(*tool.annotations(), Annotations { read_only: Some(true), ..Annotations::default() });
        assert_eq!(offer.instructions.as_deref(), Some("Break a leg."));
        assert_eq!((server.kind(), offer.warnings.len()), (ToolKind::Mcp, 0));
        assert_eq!(offer.fingerprint, server.settings().fingerprint());
    }
}

#[tokio::test(start_paused = true)]
async fn all_pages_are_read() {
    for era in ERAS {
        let stage = Stage::new();
        let page =
            |name: &str, next: &str| format!(r#"{{"tools":[{{"name":"{name}"}}],"nextCursor":"{next}"}}"#);
        stage.list_pages(vec![page("a", "1"), page("b", "2"), page("c", "")]);
        let server = stage.opened(era).await;
        assert_eq!(names(&server.offer().borrow()), ["a", "b", "c"]);
        assert!(server.offer().borrow().warnings.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn pages_that_lead_in_a_circle_end() {
    let stage = Stage::new();
    let page = |name: &str, next: &str| format!(r#"{{"tools":[{{"name":"{name}"}}],"nextCursor":"{next}"}}"#);
    stage.list_pages(vec![page("a", "1"), page("b", "2"), page("c", "1")]);
    let server = stage.opened(ERAS[0]).await;
    let offer = server.offer().borrow().clone();
    assert_eq!(names(&offer), ["a", "b", "c"]);
    assert_eq!(offer.warnings, ["the pages of the list of tools lead in a circle; the rest is left out"]);
    assert_eq!(stage.n_lists.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn pages_and_tools_without_an_end_end() {
    let stage = Stage::new();
    let page = |number: usize| {
        let tools: Vec<_> = (0..30).map(|tool| json!({"name": format!("t{number}_{tool}")})).collect();
        json!({"tools": tools, "nextCursor": (number + 1).to_string()}).to_string()
    };
    stage.list_pages((0..1_002).map(page).collect());
    let server = stage.opened(ERAS[0]).await;
    assert_eq!(server.offer().borrow().tools.len(), 20_000);
    assert_eq!(
        server.offer().borrow().warnings,
        ["the list of tools has more than 20000 entries or 16 MiB; the rest is left out"]
    );

    let page = |number: usize| json!({"tools": [], "nextCursor": (number + 1).to_string()}).to_string();
    stage.list_pages((0..1_002).map(page).collect());
    let server = stage.opened(ERAS[0]).await;
    assert_eq!(
        server.offer().borrow().warnings,
        ["the list of tools has more than 1000 pages; the rest is left out"]
    );
}

#[tokio::test(start_paused = true)]
async fn entries_that_make_no_sense_are_left_out_and_named() {
    let stage = Stage::new();
    let long = "x".repeat(300);
    let tools = json!([
        5, {}, {"name": ""}, {"name": 7}, {"name": long}, {"name": "a\u{1}b"},
        {"name": "one", "inputSchema": true}, {"name": "two", "inputSchema": {}, "outputSchema": "x"},
        {"name": "good", "description": 5, "annotations": []}, {"name": "good"},
        {"name": "old", "parameters": {"type": "object", "properties": {}}}
    ]);
    stage.list_pages(vec![json!({"tools": tools}).to_string()]);
    for era in ERAS {
        let server = stage.opened(era).await;
        let offer = server.offer().borrow().clone();
        assert_eq!(names(&offer), ["good", "old"]);
        assert_eq!(
            offer.tools[1].definition().as_str(),
            r#"{"name":"old","inputSchema":{"type":"object","properties":{}}}"#
        );
        insta::allow_duplicates! {
            insta::assert_snapshot!(offer.warnings.join("\n"), @r#"
            entry 1 of the list of tools is left out: it has no name, or one that is no text
            entry 2 of the list of tools is left out: it has no name, or one that is no text
            entry 3 of the list of tools is left out: Tool names must be non-empty strings.
            entry 4 of the list of tools is left out: it has no name, or one that is no text
            tool "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…" is left out: Tool names may have at most 256 bytes, not 300
            tool "a\u{1}b" is left out: Tool names must not contain control characters: "a\u{1}b"
            tool "one" is left out: its `inputSchema` is no object, or cannot be read
            tool "two" is left out: its `outputSchema` is no object, or cannot be read
            tool "good" is left out: one of this name comes before it
            "#);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_changes_is_offered() {
    for era in ERAS {
        let stage = Stage::new();
        let server = stage.opened(era).await;
        settle().await;
        stage.list(&["new"]);
        stage.change();
        become_true(server.offer(), |offer| names(offer) == ["new"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_changes_is_a_few_readings() {
    for era in ERAS {
        let stage = Stage::new();
        let server = stage.opened(era).await;
        call(&server, "storm", json!({}), CallContext::default()).await.unwrap();
        time::sleep(time::Duration::from_mins(1)).await;
        let n_lists = stage.n_lists.load(Ordering::SeqCst);
        assert!((2..=50).contains(&n_lists), "{n_lists}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_cannot_be_read_again_stays_as_it_was() {
    let stage = Stage::new();
    let server = stage.opened(ERAS[0]).await;
    let offer = server.offer();
    stage.list_pages(Vec::new());
    stage.change();
    become_true(server.offer(), |offer| !offer.warnings.is_empty()).await;
    assert_eq!(names(&offer.borrow()).len(), 9);
    assert_eq!(
        offer.borrow().warnings,
        ["the list of tools may not be the newest; reading it ended with: out of pages"]
    );
    stage.list(&["new"]);
    stage.change();
    become_true(server.offer(), |offer| names(offer) == ["new"] && offer.warnings.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_list_cannot_be_read_cannot_be_used() {
    let stage = Stage::new();
    stage.list_pages(Vec::new());
    let error = stage.provider(ERAS[0]).open().await.unwrap_err();
    assert_eq!(error.text(), "MCP server 'stage' did not start: it does not list its tools: out of pages");
}
