//! The list of tools and its changes.

use std::sync::atomic::Ordering;

use pegboard_core::call::CallContext;
use pegboard_core::entry::ToolAnnotations;
use pegboard_core::provider::{Provider, ToolKind};
use serde_json::json;
use tokio::time;

use crate::mcp::scripted::{ERAS, ScriptedServer, call, settle, tool_names, wait_until};

const TOOL: &str = r#"{"name":"add","title":"Sum","description":"Adds","inputSchema":{"type":"object","b":1.0,"a":2},
    "outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"title":"other"},"_meta":{"x":1e2}}"#;

#[tokio::test(start_paused = true)]
async fn a_server_offers_its_tools_as_it_wrote_them() {
    for era in ERAS {
        let scripted = ScriptedServer::new();
        scripted.set_tool_pages(vec![format!(r#"{{"tools":[{TOOL}]}}"#)]);
        let server = scripted.open_provider(era).await;
        let offering = server.offering().borrow().clone();
        let [tool] = &offering.tools[..] else { panic!("{:?}", tool_names(&offering)) };
        assert_eq!((tool.name(), tool.title(), tool.description()), ("add", Some("Sum"), "Adds"));
        // A message is one line, so line breaks are replaced.
        assert_eq!(tool.definition().as_str(), TOOL.replace('\n', " "));
        assert_eq!(*tool.input_schema().as_json(), json!({"type": "object", "b": 1.0, "a": 2}));
        assert_eq!(*tool.output_schema().as_json(), json!({"type": "object"}));
        assert_eq!(
            *tool.annotations(),
            ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() }
        );
        assert_eq!(offering.instructions.as_deref(), Some("Break a leg."));
        assert_eq!((server.kind(), offering.warnings.len()), (ToolKind::Mcp, 0));
        assert_eq!(offering.fingerprint, server.settings().fingerprint());
    }
}

#[tokio::test(start_paused = true)]
async fn all_pages_are_read() {
    for era in ERAS {
        let scripted = ScriptedServer::new();
        let page =
            |name: &str, next: &str| format!(r#"{{"tools":[{{"name":"{name}"}}],"nextCursor":"{next}"}}"#);
        scripted.set_tool_pages(vec![page("a", "1"), page("b", "2"), page("c", "")]);
        let server = scripted.open_provider(era).await;
        assert_eq!(tool_names(&server.offering().borrow()), ["a", "b", "c"]);
        assert!(server.offering().borrow().warnings.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_cycle_of_page_cursors_is_broken() {
    let scripted = ScriptedServer::new();
    let page = |name: &str, next: &str| format!(r#"{{"tools":[{{"name":"{name}"}}],"nextCursor":"{next}"}}"#);
    scripted.set_tool_pages(vec![page("a", "1"), page("b", "2"), page("c", "1")]);
    let server = scripted.open_provider(ERAS[0]).await;
    let offering = server.offering().borrow().clone();
    assert_eq!(tool_names(&offering), ["a", "b", "c"]);
    assert_eq!(offering.warnings, ["the pages of the list of tools repeat; the rest is skipped"]);
    assert_eq!(scripted.n_list_requests.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_pages_and_tools_is_bounded() {
    let scripted = ScriptedServer::new();
    let page = |number: usize| {
        let tools: Vec<_> = (0..30).map(|tool| json!({"name": format!("t{number}_{tool}")})).collect();
        json!({"tools": tools, "nextCursor": (number + 1).to_string()}).to_string()
    };
    scripted.set_tool_pages((0..1_002).map(page).collect());
    let server = scripted.open_provider(ERAS[0]).await;
    assert_eq!(server.offering().borrow().tools.len(), 20_000);
    assert_eq!(
        server.offering().borrow().warnings,
        ["the list of tools has more than 20000 entries or 16 MiB; the rest is skipped"]
    );

    let page = |number: usize| json!({"tools": [], "nextCursor": (number + 1).to_string()}).to_string();
    scripted.set_tool_pages((0..1_002).map(page).collect());
    let server = scripted.open_provider(ERAS[0]).await;
    assert_eq!(
        server.offering().borrow().warnings,
        ["the list of tools has more than 1000 pages; the rest is skipped"]
    );
}

#[tokio::test(start_paused = true)]
async fn invalid_entries_are_skipped_with_a_warning() {
    let scripted = ScriptedServer::new();
    let long = "x".repeat(300);
    let tools = json!([
        5, {}, {"name": ""}, {"name": 7}, {"name": long}, {"name": "a\u{1}b"},
        {"name": "one", "inputSchema": true}, {"name": "two", "inputSchema": {}, "outputSchema": "x"},
        {"name": "good", "description": 5, "annotations": []}, {"name": "good"},
        {"name": "old", "parameters": {"type": "object", "properties": {}}}
    ]);
    scripted.set_tool_pages(vec![json!({"tools": tools}).to_string()]);
    for era in ERAS {
        let server = scripted.open_provider(era).await;
        let offering = server.offering().borrow().clone();
        assert_eq!(tool_names(&offering), ["good", "old"]);
        assert_eq!(
            offering.tools[1].definition().as_str(),
            r#"{"name":"old","inputSchema":{"type":"object","properties":{}}}"#
        );
        insta::allow_duplicates! {
            insta::assert_snapshot!(offering.warnings.join("\n"), @r#"
            entry 1 of the list of tools is skipped: `name` is missing or not a string
            entry 2 of the list of tools is skipped: `name` is missing or not a string
            entry 3 of the list of tools is skipped: Tool names must be non-empty strings.
            entry 4 of the list of tools is skipped: `name` is missing or not a string
            tool "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…" is skipped: Tool names may have at most 256 bytes, not 300
            tool "a\u{1}b" is skipped: Tool names must not contain control characters: "a\u{1}b"
            tool "one" is skipped: `inputSchema` is not a valid object
            tool "two" is skipped: `outputSchema` is not a valid object
            tool "good" is skipped: duplicate `name`
            "#);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_list_is_published() {
    for era in ERAS {
        let scripted = ScriptedServer::new();
        let server = scripted.open_provider(era).await;
        settle().await;
        scripted.set_tools(&["new"]);
        scripted.notify_tools_changed();
        wait_until(server.offering(), |offering| tool_names(offering) == ["new"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_change_notifications_causes_few_reads() {
    for era in ERAS {
        let scripted = ScriptedServer::new();
        let server = scripted.open_provider(era).await;
        call(&server, "storm", json!({}), CallContext::default()).await.unwrap();
        time::sleep(time::Duration::from_mins(1)).await;
        let n_list_requests = scripted.n_list_requests.load(Ordering::SeqCst);
        assert!((2..=50).contains(&n_list_requests), "{n_list_requests}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_refresh_keeps_the_previous_list() {
    let scripted = ScriptedServer::new();
    let server = scripted.open_provider(ERAS[0]).await;
    let offering = server.offering();
    scripted.set_tool_pages(Vec::new());
    scripted.notify_tools_changed();
    wait_until(server.offering(), |offering| !offering.warnings.is_empty()).await;
    assert_eq!(tool_names(&offering.borrow()).len(), 9);
    assert_eq!(
        offering.borrow().warnings,
        ["the list of tools may be outdated; reading it failed: out of pages"]
    );
    scripted.set_tools(&["new"]);
    scripted.notify_tools_changed();
    wait_until(server.offering(), |offering| tool_names(offering) == ["new"] && offering.warnings.is_empty())
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_readable_tool_list_fails_to_start() {
    let scripted = ScriptedServer::new();
    scripted.set_tool_pages(Vec::new());
    let error = scripted.provider(ERAS[0]).open().await.unwrap_err();
    assert_eq!(error.text(), "MCP server 'scripted' did not start: tools/list failed: out of pages");
}
