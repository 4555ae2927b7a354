//! What each profile lists, what its calls mean, and which client gets which.

use std::sync::Arc;

use pegboard_core::entry::ToolEntry;
use pegboard_core::id::ToolboxName;
use pegboard_core::provider::Offer;
use pegboard_core::settings::ServerSettings;
use pegboard_core::settings::gateway::GatewaySettings;
use pegboard_gateway::Gateway;
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use pegboard_wire::client::{Client, Era};
use serde_json::{Value, json};
use tokio::time::{self, Duration};

use crate::stage::{
    ERAS, Lazy, call, connect, connect_as, gateway, listed, mcp, said, scripted, tells, text, use_tool,
};

async fn board() -> Runtime {
    let aliased: ServerSettings =
        serde_json::from_value(json!({"tools": {"read.file": {"aliases": ["cat"]}}})).unwrap();
    Runtime::builder()
        .toolbox("dev", "For development")
        .provide_with("files", Arc::new(mcp([tells("files", "read.file"), tells("files", "list")])), aliased)
        .provide("my_git", Lazy::new([tells("my_git", "log"), tells("my_git", "list")]))
        .toolbox("prod", "Handle with care")
        .provide("db", mcp([tells("db", "query"), tells("db", "batch")]))
        .start()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_flat_profile_lists_every_tool_by_its_flat_name() {
    let gateway = gateway(&board().await, json!({"expose": "flat"}));
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        assert_eq!(
            listed(&client).await,
            ["files__read_file", "files__list", "my_git__log", "my_git__list", "db__query", "db__batch"]
        );
    }
}

#[tokio::test]
async fn every_spelling_of_a_name_means_the_tool() {
    let gateway = gateway(&board().await, json!({}));
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
            insta::assert_snapshot!(lines.join("\n"), @r"
            files__read_file: files/read.file {} (-)
            cat: files/read.file {} (-)
            files_read_file: files/read.file {} (-)
            read.file: files/read.file {} (read.file)
            my_git_log: my_git/log {} (-)
            log: my_git/log {} (log)
            <|x|>db__query: db/query {} (<|x|>db__query)
            ");
        }
    }
}

#[tokio::test]
async fn a_name_that_means_nothing_is_answered_with_names_that_do() {
    let gateway = gateway(&board().await, json!({}));
    let (client, _) = connect(&gateway, Some("flat"), Era::Session).await;
    listed(&client).await;
    let result = call(&client, "files__red_file", json!({})).await;
    insta::assert_snapshot!(result, @r#"{"content":[{"type":"text","text":"Unknown tool: files__red_file. Did you mean one of: files__read_file, files__list?"}],"isError":true,"_meta":{"pegboard/error":{"kind":"unknown_tool","message":"Unknown tool: files__red_file. Did you mean one of: files__read_file, files__list?","executed":false}}}"#);
    let error = client.call("tools/call", Some(RawJson::from(json!({"arguments": {}})))).await.unwrap_err();
    assert!(error.to_string().contains("name must be the name of a tool"), "{error}");
}

#[tokio::test]
async fn a_transparent_profile_leaves_out_the_prefix_where_no_two_share_a_name() {
    let profiles = json!({"profiles": {"plain": {"expose": "flat", "transparent": true}}});
    let gateway = gateway(&board().await, profiles);
    for era in ERAS {
        let (client, _) = connect(&gateway, Some("plain"), era).await;
        assert_eq!(
            listed(&client).await,
            ["files__read_file", "files__list", "log", "my_git__list", "query", "db__batch"]
        );
        let result = call(&client, "log", json!({})).await;
        assert_eq!(
            (text(&result).as_str(), result.pointer("/_meta/pegboard~1corrected_from")),
            ("my_git/log {}", None)
        );
    }
}

#[tokio::test]
async fn a_hybrid_profile_lists_pinned_tools_beside_the_few() {
    let profiles = json!({"profiles": {"some": {
        "expose": "hybrid", "pinned": ["my_git_log", "db__q*", "nowhere", "no*where", "my_git__log"],
    }}});
    let gateway = gateway(&board().await, profiles);
    for era in ERAS {
        let (client, _) = connect(&gateway, Some("some"), era).await;
        assert_eq!(
            listed(&client).await,
            ["my_git__log", "db__query", "open_toolbox", "use_tool", "get_tools", "batch", "run_chain"]
        );
        assert_eq!(text(&call(&client, "my_git__log", json!({})).await), "my_git/log {}");
        // Every toolbox is open here.
        assert_eq!(text(&use_tool(&client, ["prod", "db", "query"], json!({})).await), "db/query {}");
    }
}

#[tokio::test]
async fn toolboxes_that_are_not_of_a_profile_do_not_exist_in_it() {
    let profiles = json!({"profiles": {
        "dev": {"expose": "flat", "toolboxes": ["dev"]},
        "safe": {"toolboxes": ["dev"]},
    }});
    let gateway = gateway(&board().await, profiles);
    let (flat, _) = connect(&gateway, Some("dev"), Era::Session).await;
    assert_eq!(listed(&flat).await, ["files__read_file", "files__list", "my_git__log", "my_git__list"]);
    assert!(text(&call(&flat, "db__query", json!({})).await).starts_with("isError: Unknown tool: db__query"));
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
async fn profiles_that_cannot_be_are_refused() {
    let runtime = board().await;
    let mut problems = Vec::new();
    for profiles in
        [json!({"x": {"toolboxes": ["nope"]}}), json!({"ws": {}}), json!({"a/b": {}}), json!({"": {}})]
    {
        let settings: GatewaySettings = serde_json::from_value(json!({"profiles": profiles})).unwrap();
        problems.push(Gateway::new(&runtime, &settings).unwrap_err().to_string());
    }
    problems.push(gateway(&runtime, json!({})).server(Some("nope")).map(drop).unwrap_err().to_string());
    insta::assert_snapshot!(problems.join("\n"), @r"
    Profile 'x' names the toolbox 'nope', which is not configured. Take it out or configure it
    A profile cannot be called 'ws'. Use letters, digits, '-' and '_', and none of: ws, sse, message
    A profile cannot be called 'a/b'. Use letters, digits, '-' and '_', and none of: ws, sse, message
    A profile cannot be called ''. Use letters, digits, '-' and '_', and none of: ws, sse, message
    There is no profile 'nope'. Profiles: meta, flat, agent, hybrid, auto
    ");
}

/// What a client sees first, and why.
async fn first_sight(client: &Client) -> (String, Vec<String>) {
    let discovered = match client.era() {
        Era::Stateless => client.call("server/discover", None).await.unwrap().to_value(),
        // The answer to `initialize` is gone by now.
        Era::Session => Value::Null,
    };
    let chosen = &discovered["_meta"]["pegboard/expose"];
    (chosen.to_string(), listed(client).await.into_iter().take(1).collect())
}

#[tokio::test]
async fn auto_chooses_by_the_client_and_says_why() {
    let gateway = gateway(&board().await, json!({"expose": "auto"}));
    let mut lines = Vec::new();
    for (name, capabilities) in [
        ("claude-code", json!({})),
        ("Cursor-vscode", json!({})),
        ("unheard of", json!({})),
        ("unheard of", json!({"experimental": {"pegboard/expose": "flat"}})),
    ] {
        for era in ERAS {
            let (client, _) = connect_as(&gateway, None, era, name, capabilities.clone()).await;
            let (chosen, first) = first_sight(&client).await;
            lines.push(format!("{name}: {} {chosen}", first[0]));
        }
    }
    insta::assert_snapshot!(lines.join("\n"), @r#"
    claude-code: files__read_file null
    claude-code: files__read_file {"chosen":"flat","why":"'claude-code' searches long lists of tools itself"}
    Cursor-vscode: open_toolbox null
    Cursor-vscode: open_toolbox {"chosen":"meta","why":"'Cursor-vscode' takes at most 40 tools"}
    unheard of: open_toolbox null
    unheard of: open_toolbox {"chosen":"meta","why":"nothing is known of the client"}
    unheard of: files__read_file null
    unheard of: files__read_file {"chosen":"flat","why":"the client asks for it"}
    "#);
}

#[tokio::test]
async fn clients_of_a_flat_list_are_told_when_it_changes() {
    let local = Arc::new(mcp([tells("s", "old")]));
    let runtime = Runtime::builder()
        .toolbox("t", "")
        .provide_with("s", Arc::clone(&local) as _, ServerSettings::default())
        .toolbox("other", "")
        .start()
        .await
        .unwrap();
    let gateway =
        gateway(&runtime, json!({"profiles": {"other": {"expose": "flat", "toolboxes": ["other"]}}}));
    let (flat, heard) = connect(&gateway, Some("flat"), Era::Session).await;
    let (meta, meta_heard) = connect(&gateway, None, Era::Session).await;
    let (other, other_heard) = connect(&gateway, Some("other"), Era::Session).await;
    assert_eq!(listed(&flat).await, ["s__old"]);
    assert!(listed(&other).await.is_empty());
    listed(&meta).await;
    heard.take();
    let new: ToolEntry = scripted("new", |_| Ok(said("new")));
    local.replace(Offer { tools: vec![Arc::new(new)], ..Offer::default() });
    let method = time::timeout(Duration::from_secs(10), heard.next()).await.unwrap();
    assert_eq!(method, "notifications/tools/list_changed");
    assert_eq!(listed(&flat).await, ["s__new"]);
    listed(&meta).await;
    listed(&other).await;
    let heard_elsewhere = [meta_heard.take(), other_heard.take()].concat();
    assert!(heard_elsewhere.is_empty(), "their lists are the same as before: {heard_elsewhere:?}");
}

#[tokio::test]
async fn a_toolbox_that_wants_its_tools_listed_has_them_beside_the_few() {
    let runtime = Runtime::builder()
        .toolbox("dev", "")
        .provide("s", mcp([tells("s", "x")]))
        .toolbox("ops", "")
        .provide("o", mcp([tells("o", "y")]))
        .start()
        .await
        .unwrap();
    let mut settings = GatewaySettings::default();
    settings.listed.insert(ToolboxName::new("dev").unwrap());
    let gateway = Gateway::new(&runtime, &settings).unwrap();
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        let names = listed(&client).await;
        assert!(names.contains(&"s__x".to_owned()) && names.contains(&"use_tool".to_owned()), "{names:?}");
        assert!(!names.contains(&"o__y".to_owned()), "{names:?}");
        assert_eq!(text(&call(&client, "s__x", json!({})).await), "s/x {}");
        assert_eq!(text(&use_tool(&client, ["ops", "o", "y"], json!({})).await), "o/y {}");
    }
}
