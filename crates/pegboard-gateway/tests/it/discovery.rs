//! `get_tools`: search, level of detail, and unknown names.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pegboard_core::entry::ToolEntry;
use pegboard_gateway::Gateway;
use pegboard_runtime::Runtime;
use pegboard_wire::client::{Era, McpClient};
use serde_json::{Value, json};

use crate::fixture::{
    ERAS, LazyServer, call, connect, echo_tool, gateway, mcp_server, text, tool_names, use_tool,
};

fn read() -> ToolEntry {
    let schema = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "context": {"type": "object", "properties": {"sessionId": {"type": "string"}}},
            "workspaceContext": {"type": "object"},
        },
        "required": ["path", "context"],
    });
    echo_tool("contentManager", "readContent").with_input_schema(schema)
}

fn list() -> ToolEntry {
    let schema = json!({
        "type": "object",
        "properties": {"context": {"type": "object"}},
        "required": ["context"],
    });
    echo_tool("contentManager", "listContent").with_input_schema(schema)
}

fn diff() -> ToolEntry {
    let schema = json!({"type": "object", "properties": {"context": {"type": "integer"}}});
    echo_tool("my_git", "diff").with_input_schema(schema)
}

/// A toolbox with two running servers, and one with a server that is started on demand.
async fn start_gateway() -> (Gateway, Arc<AtomicUsize>) {
    let lazy = LazyServer::new([echo_tool("web", "fetch"), echo_tool("web", "search")]);
    let n_opened = Arc::clone(&lazy.n_opened);
    let runtime = Runtime::builder()
        .toolbox("vault", "Notes and their history")
        .provide("contentManager", mcp_server([read(), list()]))
        .provide("my_git", mcp_server([diff(), echo_tool("my_git", "log")]))
        .toolbox("net", "The world outside")
        .provide("web", lazy)
        .start()
        .await
        .unwrap();
    let profiles = json!({"profiles": {"inside": {"toolboxes": ["vault"]}}});
    (gateway(&runtime, profiles), n_opened)
}

/// The answer of `get_tools`.
async fn get_tools(client: &McpClient, arguments: Value) -> Value {
    let result = call(client, "get_tools", arguments).await;
    serde_json::from_str(text(&result).trim_start_matches("isError: ")).unwrap()
}

fn lines(tools: &Value) -> String {
    tools.as_array().unwrap().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn without_arguments_it_returns_an_overview_and_starts_no_server() {
    let (gateway, n_opened) = start_gateway().await;
    for era in ERAS {
        // D6
        for arguments in [json!({}), json!({"tools": []}), json!({"tools": {}}), json!({"query": " "})] {
            let (client, _) = connect(&gateway, None, era).await;
            let overview = get_tools(&client, arguments).await;
            insta::allow_duplicates! { insta::assert_snapshot!(overview, @r#"{"success":true,"overview":{"contentManager":{"toolbox":"vault","description":"Notes and their history","modes":["readContent","listContent"]},"my_git":{"toolbox":"vault","description":"Notes and their history","modes":["diff","log"]},"web":{"toolbox":"net","description":"The world outside","modes":[],"note":"not started yet: open_toolbox {\"toolbox\": \"net\"}, or name it in `tools` with connect: true"}},"workspaceId":"default","instruction":"Ask for the schemas of the tools you need, several at once: get_tools {\"tools\": {SERVER: [MODE, …]}}. Do not ask for the overview again."}"#); }
        }
    }
    assert_eq!(n_opened.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_overview_echoes_the_context_without_binding_it() {
    let (gateway, _) = start_gateway().await;
    let (client, _) = connect(&gateway, None, Era::Session).await;
    let context = json!({"sessionId": "budget work", "workspaceId": "w"});
    let answer = get_tools(&client, json!({"context": context})).await;
    assert_eq!((&answer["sessionId"], &answer["workspaceId"]), (&json!("budget work"), &json!("w")));
    assert_eq!(get_tools(&client, json!({})).await["workspaceId"], "default");
}

#[tokio::test]
async fn grouped_and_flat_names_are_equivalent_and_schemas_omit_context() {
    let (gateway, _) = start_gateway().await;
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        let grouped =
            json!({"tools": {"contentManager": ["readContent", "listContent"], "my_git": ["diff"]}});
        let flat =
            json!({"tools": ["contentManager_readContent", "contentManager_listContent", "my_git_diff"]});
        let (grouped, flat) = (get_tools(&client, grouped).await, get_tools(&client, flat).await);
        // D7
        assert_eq!(grouped, flat);
        assert_eq!(grouped["toolCount"], 3);
        // D8, D27, D28
        insta::allow_duplicates! {
            insta::assert_snapshot!(lines(&grouped["tools"]), @r#"
            {"name":"contentManager_readContent","title":"Read Content","description":"The tool readContent","inputSchema":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]},"tool":{"toolbox":"vault","server":"contentManager","name":"readContent"}}
            {"name":"contentManager_listContent","title":"List Content","description":"The tool listContent","inputSchema":{"type":"object","properties":{}},"tool":{"toolbox":"vault","server":"contentManager","name":"listContent"}}
            {"name":"my_git_diff","title":"Diff","description":"The tool diff","inputSchema":{"type":"object","properties":{"context":{"type":"integer"}}},"tool":{"toolbox":"vault","server":"my_git","name":"diff"}}
            "#);
            insta::assert_snapshot!(grouped["instruction"].as_str().unwrap(), @r#"Call a tool with use_tool {"tool": its `tool`, "arguments": what its inputSchema asks for}; or by its `name`, with `context` {"sessionId", "workspaceId"} beside the arguments."#);
        }
        assert_eq!(grouped["openFirst"], Value::Null, "the toolbox opens on use");
    }
}

#[tokio::test]
async fn found_tools_can_be_called() {
    let (gateway, _) = start_gateway().await;
    for profile in [None, Some("hybrid")] {
        for era in ERAS {
            let (client, _) = connect(&gateway, profile, era).await;
            let found = get_tools(&client, json!({"tools": ["my_git_log"]})).await;
            let tool = &found["tools"][0];
            let used = call(&client, "use_tool", json!({"tool": tool["tool"], "arguments": {"n": 1}})).await;
            assert_eq!(text(&used), r#"my_git/log {"n":1}"#);
            let arguments = json!({"n": 1, "context": {"sessionId": "budget work"}});
            let called = call(&client, tool["name"].as_str().unwrap(), arguments).await;
            // D19
            assert_eq!(text(&called), r#"my_git/log {"n":1}"#);
        }
    }
}

#[tokio::test]
async fn unknown_names_get_suggestions() {
    let (gateway, _) = start_gateway().await;
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        // D9
        let mut answers = Vec::new();
        for tools in [
            json!(["my_git_log", "my_git_lug"]),
            json!({"my_git": ["log"], "contentManager": ["readContents"], "contentManger": ["readContent"]}),
            json!(["my_git_log", "web_fetch"]),
            json!([{"toolbox": "vault", "server": "my_git", "name": "log"}, "nothing_of_the_kind"]),
        ] {
            let answer = get_tools(&client, json!({"tools": tools})).await;
            assert_eq!((&answer["success"], &answer["toolCount"]), (&json!(true), &json!(1)));
            answers.push(lines(&answer["notFound"]));
        }
        let result = call(&client, "get_tools", json!({"tools": ["my_git_lug", "x"]})).await;
        assert_eq!(result["structuredContent"]["error"]["kind"], "unknown_tool");
        insta::allow_duplicates! {
            insta::assert_snapshot!(answers.join("\n"), @r#"
            {"name":"my_git_lug","nearest":["my_git_log","my_git_diff"]}
            {"name":"contentManager_readContents","nearest":["contentManager_readContent","contentManager_listContent"]}
            {"name":"contentManger_readContent","nearest":["contentManager"]}
            {"name":"web_fetch","why":"server 'web': not started yet: open_toolbox {\"toolbox\": \"net\"}, or name it in `tools` with connect: true"}
            {"name":"nothing_of_the_kind"}
            "#);
            insta::assert_snapshot!(text(&result), @r#"isError: {"success":false,"error":"No valid tools found for: my_git_lug, x","notFound":[{"name":"my_git_lug","nearest":["my_git_log","my_git_diff"]},{"name":"x"}]}"#);
        }
    }
}

#[tokio::test]
async fn a_whole_server_or_toolbox_is_listed_compactly() {
    let (gateway, _) = start_gateway().await;
    let (client, _) = connect(&gateway, None, Era::Session).await;
    let server = get_tools(&client, json!({"tools": {"my_git": []}})).await;
    insta::assert_snapshot!(server, @r#"{"success":true,"requestedTools":["my_git"],"tools":[{"name":"my_git_diff","description":"The tool diff","tool":{"toolbox":"vault","server":"my_git","name":"diff"}},{"name":"my_git_log","description":"The tool log","tool":{"toolbox":"vault","server":"my_git","name":"log"}}],"toolCount":2,"instruction":"For their input schemas: get_tools {\"tools\": [NAME, …]}. Then call them with use_tool {\"tool\": its `tool`, \"arguments\": {…}}."}"#);
    let toolbox = get_tools(&client, json!({"tools": "vault"})).await;
    assert_eq!((&toolbox["toolCount"], &toolbox["tools"][0]["inputSchema"]), (&json!(4), &Value::Null));
    let full = get_tools(&client, json!({"tools": ["my_git"], "detail": "full"})).await;
    assert_eq!(full["tools"][1]["inputSchema"], json!({"type": "object"}));
}

#[tokio::test]
async fn a_query_searches_tools() {
    let (gateway, n_opened) = start_gateway().await;
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        let found = get_tools(&client, json!({"query": "read content"})).await;
        assert_eq!(found["notSearched"]["servers"], json!(["web"]));
        insta::allow_duplicates! { insta::assert_snapshot!(lines(&found["tools"]), @r#"
        {"name":"contentManager_readContent","title":"Read Content","description":"The tool readContent","inputSchema":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]},"tool":{"toolbox":"vault","server":"contentManager","name":"readContent"}}
        {"name":"contentManager_listContent","title":"List Content","description":"The tool listContent","inputSchema":{"type":"object","properties":{}},"tool":{"toolbox":"vault","server":"contentManager","name":"listContent"}}
        "#); }
        let full = get_tools(&client, json!({"query": "git log", "detail": "full"})).await;
        assert_eq!(full["tools"][0]["tool"]["name"], "log");
        assert_eq!(full["tools"][0]["inputSchema"], json!({"type": "object"}));
    }
    assert_eq!(n_opened.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_query_without_a_hit_starts_the_servers_that_were_never_listed() {
    for era in ERAS {
        let (gateway, n_opened) = start_gateway().await;
        let (client, _) = connect(&gateway, None, era).await;
        let found = get_tools(&client, json!({"query": "fetch"})).await;
        assert_eq!(found["tools"][0]["tool"]["name"], "fetch");
        assert_eq!(found["notSearched"], Value::Null);
        let nothing = get_tools(&client, json!({"query": "zzz"})).await;
        assert_eq!((&nothing["success"], &nothing["toolCount"]), (&json!(true), &json!(0)));
        assert!(nothing["instruction"].as_str().unwrap().starts_with("No known tool matches."), "{nothing}");
        assert_eq!(n_opened.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn connect_starts_the_named_servers() {
    for era in ERAS {
        let (gateway, n_opened) = start_gateway().await;
        let (client, _) = connect(&gateway, None, era).await;
        let before = call(&client, "get_tools", json!({"tools": {"web": ["fetch"]}})).await;
        assert!(text(&before).contains("server 'web': not started yet: open_toolbox"), "{before}");
        let after = get_tools(&client, json!({"tools": {"web": ["fetch"]}, "connect": true})).await;
        assert_eq!((&after["toolCount"], &after["openFirst"]), (&json!(1), &Value::Null));
        assert_eq!(text(&use_tool(&client, ["net", "web", "fetch"], json!({})).await), "web/fetch {}");
        assert_eq!(n_opened.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn a_failed_server_is_reported_with_the_reason() {
    let runtime = Runtime::builder()
        .toolbox("t", "")
        .provide("ok", mcp_server([echo_tool("ok", "x")]))
        .provide("bad", LazyServer::broken("no such program"))
        .start()
        .await
        .unwrap();
    let gateway = gateway(&runtime, json!({}));
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        let answer = get_tools(&client, json!({"tools": {"bad": ["x"]}, "connect": true})).await;
        assert_eq!(answer["success"], false);
        assert_eq!(answer["serversFailed"], json!([{"server": "bad", "error": "no such program"}]));
        let answer = get_tools(&client, json!({"tools": ["ok_x", "bad_x"], "connect": true})).await;
        assert_eq!((&answer["toolCount"], &answer["serversFailed"][0]["server"]), (&json!(1), &json!("bad")));
    }
}

#[tokio::test]
async fn hidden_toolboxes_are_not_found() {
    let (gateway, n_opened) = start_gateway().await;
    for era in ERAS {
        let (client, _) = connect(&gateway, Some("inside"), era).await;
        assert_eq!(get_tools(&client, json!({})).await["overview"]["web"], Value::Null);
        for tools in [
            json!({"web": []}),
            json!(["net"]),
            json!(["web_fetch"]),
            json!([{"toolbox": "net", "server": "web", "name": "fetch"}]),
        ] {
            let answer = get_tools(&client, json!({"tools": tools, "connect": true})).await;
            assert_eq!((&answer["success"], &answer["notFound"][0]["why"]), (&json!(false), &Value::Null));
        }
    }
    assert_eq!(n_opened.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn the_third_identical_request_gets_a_hint() {
    let (gateway, _) = start_gateway().await;
    let (client, _) = connect(&gateway, Some("hybrid"), Era::Session).await;
    let ask = async |tools: Value| {
        let answer = get_tools(&client, json!({"tools": tools})).await;
        assert_eq!(answer["success"], true);
        answer["hint"].as_str().map(str::to_owned)
    };
    // D26
    let log = || json!(["my_git_log"]);
    assert_eq!(
        [ask(log()).await, ask(log()).await, ask(json!({})).await, ask(log()).await],
        [const { None }; 4]
    );
    assert_eq!(ask(log()).await, None);
    insta::assert_snapshot!(ask(log()).await.unwrap(), @"You have asked this before and the answer is the same. You have what you need: call a tool now with use_tool, or tell the user what is missing.");
    assert!(ask(log()).await.is_some(), "the hint stays until a tool is called");
    call(&client, "my_git_log", json!({})).await;
    assert_eq!(ask(log()).await, None, "a tool was called in between");
    // The caller of a stateless request is unknown.
    let (client, _) = connect(&gateway, Some("hybrid"), Era::Stateless).await;
    for _ in 0..3 {
        assert_eq!(get_tools(&client, json!({})).await["hint"], Value::Null);
    }
}

#[tokio::test]
async fn invalid_requests_report_every_problem() {
    let (gateway, _) = start_gateway().await;
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        let mut answers = Vec::new();
        for arguments in [
            json!({"tools": 5, "detail": "much", "connect": 1, "names": []}),
            json!({"tools": {"my_git": [1]}}),
            json!({"tools": [{"server": "my_git"}]}),
            json!({"tools": ["my_git_log"], "query": "log"}),
            json!({"connect": true}),
            json!({"tools": vec!["x"; 201]}),
        ] {
            answers.push(text(&call(&client, "get_tools", arguments).await));
        }
        insta::allow_duplicates! { insta::assert_snapshot!(answers.join("\n"), @r#"
        isError: Invalid parameters: Unrecognized key(s) in object: 'names' (did you mean 'tools'?); tools: Expected a name, a list of names, or {server: [names]}; detail: Expected compact or full; connect: Expected true or false
        isError: Invalid parameters: tools.my_git: Expected string
        isError: Invalid parameters: tools: Expected a name, or {toolbox, server, name}
        isError: Invalid parameters: query: Give either tools or a query, not both
        isError: Invalid parameters: connect: Name the servers to start in `tools`, such as {"SERVER": []}
        isError: Invalid parameters: tools: Name at most 200 at a time
        "#); }
    }
}

#[tokio::test]
async fn many_long_unknown_names_are_handled() {
    let (gateway, _) = start_gateway().await;
    let (client, _) = connect(&gateway, None, Era::Session).await;
    let tools: Vec<String> = (0..200).map(|n| format!("my_git_lo{n}{}", "g".repeat(n * 50))).collect();
    let answer = get_tools(&client, json!({"tools": tools})).await;
    assert_eq!(answer["notFound"].as_array().unwrap().len(), 200);
    assert!(answer.to_string().len() < 200 * 1_000, "{}", answer.to_string().len());
    let grouped = json!({"my_git": [&tools[199]], &*tools[199]: ["x"]});
    assert_eq!(get_tools(&client, json!({"tools": grouped})).await["success"], false);
}

#[tokio::test]
async fn get_tools_is_listed_where_tools_are_not() {
    let (gateway, _) = start_gateway().await;
    for era in ERAS {
        for (profile, is_listed) in [("meta", true), ("hybrid", true), ("flat", false), ("agent", false)] {
            let (client, _) = connect(&gateway, Some(profile), era).await;
            assert_eq!(tool_names(&client).await.contains(&"get_tools".to_owned()), is_listed, "{profile}");
            assert_eq!(get_tools(&client, json!({})).await["success"], true);
        }
    }
}

#[tokio::test]
async fn the_best_hits_have_schemas_and_can_be_called_at_once() {
    let tool =
        |number: usize| {
            let description = format!("Reads page {number} of the handbook. {}", "Long text. ".repeat(40));
            ToolEntry::from_fn(format!("page_{number}"), &description, |arguments: Value| async move {
                Ok(arguments)
            })
        };
    for (auto_open, is_open) in [("stateless", true), ("never", false)] {
        let settings = serde_json::from_value(json!({"autoOpen": auto_open})).unwrap();
        let builder = Runtime::builder().settings(settings).toolbox("books", "");
        let runtime = builder.provide("shelf", mcp_server((0..12).map(tool))).start().await.unwrap();
        let (client, _) = connect(&gateway(&runtime, json!({})), None, Era::Session).await;
        let found = get_tools(&client, json!({"query": "handbook page"})).await;
        let tools = found["tools"].as_array().unwrap();
        let n_described = tools.iter().filter(|tool| tool.get("inputSchema").is_some()).count();
        assert!((1..10).contains(&n_described) && tools.len() == 10, "{n_described} of {}", tools.len());
        assert!(found.to_string().len() < 5_000, "{}", found.to_string().len());
        assert_eq!(found.get("openFirst").is_none(), is_open, "{auto_open}");
        let used = call(&client, "use_tool", json!({"tool": tools[0]["tool"], "arguments": {"n": 1}})).await;
        assert_eq!(used["isError"].is_null(), is_open, "{auto_open}: {used}");
    }
}

#[tokio::test]
async fn a_found_tool_starts_its_server_with_the_first_call() {
    let (gateway, n_opened) = start_gateway().await;
    let (client, _) = connect(&gateway, None, Era::Session).await;
    get_tools(&client, json!({"tools": ["my_git_log"]})).await;
    assert_eq!(n_opened.load(Ordering::SeqCst), 0);
    let refused = use_tool(&client, ["net", "web", "fetch"], json!({})).await;
    assert!(text(&refused).contains("Toolbox 'net' is not open"), "{refused}");
    let used = use_tool(&client, ["vault", "my_git", "log"], json!({})).await;
    assert_eq!(text(&used), "my_git/log {}");
}
