//! Profiles: listed tools, calls, and the choice by client.

use std::sync::Arc;

use pegboard_core::entry::ToolEntry;
use pegboard_core::id::ToolboxName;
use pegboard_core::provider::ServerOffering;
use pegboard_core::settings::ServerSettings;
use pegboard_core::settings::gateway::GatewaySettings;
use pegboard_gateway::Gateway;
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use pegboard_wire::client::{Era, McpClient};
use serde_json::{Value, json};
use tokio::time::{self, Duration};

use crate::fixture::{
    ERAS, LazyServer, call, connect, connect_as, echo_tool, gateway, mcp_server, scripted_tool, text,
    text_output, tool_names, use_tool,
};

async fn start_runtime() -> Runtime {
    let aliased: ServerSettings =
        serde_json::from_value(json!({"tools": {"read.file": {"aliases": ["cat"]}}})).unwrap();
    Runtime::builder()
        .toolbox("dev", "For development")
        .provide("files", mcp_server([echo_tool("files", "read.file"), echo_tool("files", "list")]))
        .server_settings(aliased)
        .provide("my_git", LazyServer::new([echo_tool("my_git", "log"), echo_tool("my_git", "list")]))
        .toolbox("prod", "Handle with care")
        .provide("db", mcp_server([echo_tool("db", "query"), echo_tool("db", "batch")]))
        .start()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_flat_profile_lists_every_tool_by_its_flat_name() {
    let gateway = gateway(&start_runtime().await, json!({"expose": "flat"}));
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        assert_eq!(
            tool_names(&client).await,
            ["files__read_file", "files__list", "my_git__log", "my_git__list", "db__query", "db__batch"]
        );
    }
}

#[tokio::test]
async fn every_spelling_of_a_name_resolves_to_the_tool() {
    let gateway = gateway(&start_runtime().await, json!({}));
    for (profile, era) in [("flat", Era::Session), ("flat", Era::Stateless), ("hybrid", Era::Session)] {
        let (client, _) = connect(&gateway, Some(profile), era).await;
        let mut lines = Vec::new();
        for name in
            ["files__read_file", "cat", "files_read_file", "read.file", "my_git_log", "log", "<|x|>db__query"]
        {
            let result = call(&client, name, json!({})).await;
            let corrected = result["_meta"]["pegboard/corrected_from"].as_str().unwrap_or("-");
            lines.push(format!("{name}: {} ({corrected})", text(&result)));
        }
        insta::allow_duplicates! {
            insta::assert_snapshot!(lines.join("\n"), @"
            files__read_file: files/read.file {} (-)
            cat: files/read.file {} (-)
            files_read_file: files/read.file {} (-)
            read.file: files/read.file {} (read.file)
            my_git_log: my_git/log {} (-)
            log: my_git/log {} (log)
            <|x|>db__query: -32602: Unknown tool: <|x|>db__query. Did you mean 'db__query'? (-)
            ");
        }
    }
}

#[tokio::test]
async fn an_unknown_name_gets_suggestions() {
    let gateway = gateway(&start_runtime().await, json!({}));
    let (client, _) = connect(&gateway, Some("flat"), Era::Session).await;
    tool_names(&client).await;
    let result = call(&client, "files__red_file", json!({})).await;
    insta::assert_snapshot!(result["rpcError"], @r#"{"code":-32602,"message":"Unknown tool: files__red_file. Did you mean one of: files__read_file, files__list?","data":{"kind":"unknown_tool","message":"Unknown tool: files__red_file. Did you mean one of: files__read_file, files__list?","executed":false,"nearest":["files__read_file","files__list"]}}"#);
    let error = client.call("tools/call", Some(RawJson::from(json!({"arguments": {}})))).await.unwrap_err();
    assert!(error.to_string().contains("name must be the name of a tool"), "{error}");
}

#[tokio::test]
async fn a_transparent_profile_omits_the_prefix_of_unique_names() {
    let profiles = json!({"profiles": {"plain": {"expose": "flat", "transparent": true}}});
    let gateway = gateway(&start_runtime().await, profiles);
    for era in ERAS {
        let (client, _) = connect(&gateway, Some("plain"), era).await;
        assert_eq!(
            tool_names(&client).await,
            ["read.file", "files__list", "log", "my_git__list", "query", "db__batch"]
        );
        for (name, answer) in [("log", "my_git/log {}"), ("read.file", "files/read.file {}")] {
            let result = call(&client, name, json!({})).await;
            let corrected = result.pointer("/_meta/pegboard~1corrected_from");
            assert_eq!((text(&result).as_str(), corrected), (answer, None));
        }
    }
}

#[tokio::test]
async fn a_hybrid_profile_lists_pinned_tools_and_meta_tools() {
    let profiles = json!({"profiles": {"some": {
        "expose": "hybrid", "pinned": ["my_git_log", "db__q*", "nowhere", "no*where", "my_git__log"],
    }}});
    let gateway = gateway(&start_runtime().await, profiles);
    for era in ERAS {
        let (client, _) = connect(&gateway, Some("some"), era).await;
        assert_eq!(
            tool_names(&client).await,
            ["my_git__log", "db__query", "open_toolbox", "use_tool", "get_tools", "batch", "run_chain"]
        );
        assert_eq!(text(&call(&client, "my_git__log", json!({})).await), "my_git/log {}");
        // All toolboxes are open here.
        assert_eq!(text(&use_tool(&client, ["prod", "db", "query"], json!({})).await), "db/query {}");
    }
}

#[tokio::test]
async fn toolboxes_outside_a_profile_do_not_exist_in_it() {
    let profiles = json!({"profiles": {
        "dev": {"expose": "flat", "toolboxes": ["dev"]},
        "safe": {"toolboxes": ["dev"]},
    }});
    let gateway = gateway(&start_runtime().await, profiles);
    let (flat, _) = connect(&gateway, Some("dev"), Era::Session).await;
    assert_eq!(tool_names(&flat).await, ["files__read_file", "files__list", "my_git__log", "my_git__list"]);
    assert!(text(&call(&flat, "db__query", json!({})).await).starts_with("-32602: Unknown tool: db__query"));
    let (meta, _) = connect(&gateway, Some("safe"), Era::Session).await;
    assert!(!meta.server().instructions.as_deref().unwrap().contains("prod"));
    assert_eq!(
        text(&call(&meta, "open_toolbox", json!({"toolbox": "prod"})).await),
        "isError: Error: Toolbox 'prod' not found. Available toolboxes: dev"
    );
    assert_eq!(
        text(&use_tool(&meta, ["prod", "db", "query"], json!({})).await),
        "isError: Error executing tool: Toolbox 'prod' is not open: Toolbox 'prod' not found. Available toolboxes: dev"
    );
}

#[tokio::test]
async fn invalid_profiles_are_rejected() {
    let runtime = start_runtime().await;
    let mut problems = Vec::new();
    for profiles in
        [json!({"x": {"toolboxes": ["nope"]}}), json!({"ws": {}}), json!({"a/b": {}}), json!({"": {}})]
    {
        let settings: GatewaySettings = serde_json::from_value(json!({"profiles": profiles})).unwrap();
        problems.push(Gateway::new(&runtime, &settings).unwrap_err().to_string());
    }
    problems.push(gateway(&runtime, json!({})).server(Some("nope")).map(drop).unwrap_err().to_string());
    insta::assert_snapshot!(problems.join("\n"), @r"
    profile 'x' refers to unknown toolbox 'nope': configure or remove it
    invalid profile name 'ws': use letters, digits, '-' and '_', and none of: ws, sse, message
    invalid profile name 'a/b': use letters, digits, '-' and '_', and none of: ws, sse, message
    invalid profile name '': use letters, digits, '-' and '_', and none of: ws, sse, message
    unknown profile 'nope'; available: meta, flat, agent, hybrid, auto
    ");
}

/// The chosen surface with its reason, and the first listed tool.
async fn first_list(client: &McpClient) -> (String, Vec<String>) {
    let discovered = match client.era() {
        Era::Stateless => client.call("server/discover", None).await.unwrap().to_value(),
        // The result of `initialize` is not available any more.
        Era::Session => Value::Null,
    };
    let chosen = &discovered["_meta"]["pegboard/expose"];
    (chosen.to_string(), tool_names(client).await.into_iter().take(1).collect())
}

#[tokio::test]
async fn auto_chooses_by_client_and_reports_the_reason() {
    let gateway = gateway(&start_runtime().await, json!({"expose": "auto"}));
    let mut lines = Vec::new();
    for (name, capabilities) in [
        ("claude-code", json!({})),
        ("Cursor-vscode", json!({})),
        ("unheard of", json!({})),
        ("unheard of", json!({"experimental": {"pegboard/expose": "flat"}})),
    ] {
        for era in ERAS {
            let (client, _) = connect_as(&gateway, None, era, name, capabilities.clone()).await;
            let (chosen, first) = first_list(&client).await;
            lines.push(format!("{name}: {} {chosen}", first[0]));
        }
    }
    insta::assert_snapshot!(lines.join("\n"), @r#"
    claude-code: files__read_file null
    claude-code: files__read_file {"chosen":"flat","why":"'claude-code' searches long tool lists itself"}
    Cursor-vscode: open_toolbox null
    Cursor-vscode: open_toolbox {"chosen":"meta","why":"'Cursor-vscode' accepts at most 40 tools"}
    unheard of: open_toolbox null
    unheard of: open_toolbox {"chosen":"meta","why":"unknown client"}
    unheard of: files__read_file null
    unheard of: files__read_file {"chosen":"flat","why":"requested by the client"}
    "#);
}

#[tokio::test]
async fn clients_of_a_flat_list_are_notified_of_changes() {
    let local = Arc::new(mcp_server([echo_tool("s", "old")]));
    let runtime = Runtime::builder()
        .toolbox("t", "")
        .provide("s", Arc::clone(&local))
        .toolbox("other", "")
        .start()
        .await
        .unwrap();
    let gateway =
        gateway(&runtime, json!({"profiles": {"other": {"expose": "flat", "toolboxes": ["other"]}}}));
    let (flat, notifications) = connect(&gateway, Some("flat"), Era::Session).await;
    let (meta, meta_notifications) = connect(&gateway, None, Era::Session).await;
    let (other, other_notifications) = connect(&gateway, Some("other"), Era::Session).await;
    assert_eq!(tool_names(&flat).await, ["s__old"]);
    assert!(tool_names(&other).await.is_empty());
    tool_names(&meta).await;
    notifications.take();
    let new: ToolEntry = scripted_tool("new", |_| Ok(text_output("new")));
    local.replace(ServerOffering { tools: vec![Arc::new(new)], ..ServerOffering::default() });
    let method = time::timeout(Duration::from_secs(10), notifications.next()).await.unwrap();
    assert_eq!(method, "notifications/tools/list_changed");
    assert_eq!(tool_names(&flat).await, ["s__new"]);
    tool_names(&meta).await;
    tool_names(&other).await;
    let unexpected = [meta_notifications.take(), other_notifications.take()].concat();
    assert!(unexpected.is_empty(), "their lists have not changed: {unexpected:?}");
}

#[tokio::test]
async fn listed_toolboxes_appear_beside_the_meta_tools() {
    let runtime = Runtime::builder()
        .toolbox("dev", "")
        .provide("s", mcp_server([echo_tool("s", "x")]))
        .toolbox("ops", "")
        .provide("o", mcp_server([echo_tool("o", "y")]))
        .start()
        .await
        .unwrap();
    let mut settings = GatewaySettings::default();
    settings.listed.insert(ToolboxName::new("dev").unwrap());
    let gateway = Gateway::new(&runtime, &settings).unwrap();
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        let names = tool_names(&client).await;
        assert!(names.contains(&"s__x".to_owned()) && names.contains(&"use_tool".to_owned()), "{names:?}");
        assert!(!names.contains(&"o__y".to_owned()), "{names:?}");
        assert_eq!(text(&call(&client, "s__x", json!({})).await), "s/x {}");
        assert_eq!(text(&use_tool(&client, ["ops", "o", "y"], json!({})).await), "o/y {}");
    }
}
