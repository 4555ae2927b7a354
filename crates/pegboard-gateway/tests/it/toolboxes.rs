//! `open_toolbox` and `use_tool`: lists, results and errors.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use pegboard_core::entry::ToolEntry;
use pegboard_core::output::Output;
use pegboard_core::settings::ServerSettings;
use pegboard_gateway::Gateway;
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use pegboard_wire::client::Era;
use serde_json::{Value, json};

use crate::fixture::{
    ERAS, LazyServer, call, connect, echo_tool, gateway, mcp_server, scripted_tool, text, text_output,
    tool_failure, tool_names, use_tool,
};

/// Two toolboxes: `dev` with servers `b` and `a`, and `prod` with another `a`.
async fn start_gateway() -> Gateway {
    let filtered: ServerSettings =
        serde_json::from_value(json!({"toolFilters": ["alpha", "ghost"]})).unwrap();
    let b = [
        echo_tool("b", "zeta"),
        echo_tool("b", "alpha"),
        echo_tool("b", "echo__x-1.y"),
        echo_tool("b", "b"),
        scripted_tool("rpcerr", |_| Err(tool_failure("MCP error -32602: bad args"))),
        scripted_tool("iserr", |_| {
            let raw = json!({"content": [{"type": "text", "text": "no"}], "isError": true, "odd": 1});
            Ok(Output::result(RawJson::from(raw)))
        }),
    ];
    let runtime = Runtime::builder()
        .toolbox("dev", "For development")
        .provide("b", LazyServer::new(b))
        .provide("a", LazyServer::new([echo_tool("a", "alpha"), echo_tool("a", "zeta")]))
        .server_settings(filtered)
        .toolbox("prod", "Handle with care")
        .provide("a", mcp_server([scripted_tool("alpha", |_| Ok(text_output("prod")))]))
        .start()
        .await
        .unwrap();
    gateway(&runtime, json!({}))
}

#[tokio::test]
async fn instructions_list_every_toolbox_with_an_example() {
    let gateway = start_gateway().await;
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        // A1
        insta::allow_duplicates! {
            insta::assert_snapshot!(client.server().instructions.as_deref().unwrap(), @r#"
            Tools come in toolboxes:
            - dev (2 servers: b, a) For development
            - prod (1 server: a) Handle with care

            1. See the tools of a toolbox: open_toolbox {"toolbox":"dev"}; or look for tools: get_tools
            2. Call one of them: use_tool {"tool":{"toolbox":"dev","server":"b","name":"TOOL"},"arguments":{}}
            "#);
        }
    }
}

#[tokio::test]
async fn without_toolboxes_the_instructions_say_so() {
    let runtime = Runtime::builder().start().await.unwrap();
    let (client, _) = connect(&gateway(&runtime, json!({})), None, Era::Session).await;
    insta::assert_snapshot!(client.server().instructions.as_deref().unwrap(), @"No toolboxes are configured, so there are no tools to use. Add a toolbox with at least one server to the configuration.");
}

#[tokio::test]
async fn the_default_surface_is_small_and_strict() {
    let gateway = start_gateway().await;
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        assert_eq!(
            tool_names(&client).await,
            ["open_toolbox", "use_tool", "get_tools", "batch", "run_chain"]
        );
        let list = client.call("tools/list", None).await.unwrap();
        let tools = list.get("tools").unwrap();
        let n_chars = tools.as_str().len() + client.server().instructions.as_deref().unwrap().len();
        assert!(n_chars / 4 < 900, "{} tokens", n_chars / 4);
        // A2
        let list = list.to_value();
        for tool in list["tools"].as_array().unwrap().iter().take(2) {
            assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{tool}");
        }
        let use_tool = &list["tools"][1]["inputSchema"];
        assert_eq!(use_tool["required"], json!(["tool"]));
        assert_eq!(use_tool["properties"]["arguments"]["default"], json!({}));
        assert_eq!(use_tool["properties"]["tool"]["additionalProperties"], false);
    }
}

#[tokio::test]
async fn opening_lists_all_tools_in_order_and_unchanged() {
    let gateway = start_gateway().await;
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        let result = call(&client, "open_toolbox", json!({"toolbox": "dev"})).await;
        // A3, A9, A15
        let opened: Value = serde_json::from_str(&text(&result)).unwrap();
        let tools: Vec<String> =
            opened["tools"].as_array().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!((&opened["toolbox"], &opened["servers_connected"]), (&json!("dev"), &json!(2)));
        insta::allow_duplicates! {
            insta::assert_snapshot!(tools.join("\n"), @r#"
            {"name":"zeta","description":"The tool zeta","inputSchema":{"type":"object"},"server":"b","toolbox":"dev"}
            {"name":"alpha","description":"The tool alpha","inputSchema":{"type":"object"},"server":"b","toolbox":"dev"}
            {"name":"echo__x-1.y","description":"The tool echo__x-1.y","inputSchema":{"type":"object"},"server":"b","toolbox":"dev"}
            {"name":"b","description":"The tool b","inputSchema":{"type":"object"},"server":"b","toolbox":"dev"}
            {"name":"rpcerr","description":"The tool rpcerr","inputSchema":{"type":"object"},"server":"b","toolbox":"dev"}
            {"name":"iserr","description":"The tool iserr","inputSchema":{"type":"object"},"server":"b","toolbox":"dev"}
            {"name":"alpha","description":"The tool alpha","inputSchema":{"type":"object"},"server":"a","toolbox":"dev"}
            "#);
        }
        assert!(text(&result).starts_with(r#"{"toolbox":"dev","description":"For development","#));
    }
}

#[tokio::test]
async fn repeated_and_concurrent_opens_start_a_server_once() {
    let server = LazyServer::new([echo_tool("s", "x")]);
    let n_opened = Arc::clone(&server.n_opened);
    let runtime = Runtime::builder().toolbox("dev", "").provide("s", server).start().await.unwrap();
    let gateway = gateway(&runtime, json!({}));
    let (client, _) = connect(&gateway, None, Era::Session).await;
    assert_eq!(n_opened.load(Ordering::SeqCst), 0, "servers start on first use");
    // A8
    let open = || call(&client, "open_toolbox", json!({"toolbox": "dev"}));
    let opened = join_all((0..3).map(|_| open())).await;
    // A4
    let again = open().await;
    assert!(opened.iter().all(|opened| *opened == again));
    assert_eq!(n_opened.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_server_that_fails_does_not_hide_the_others() {
    let runtime = Runtime::builder()
        .toolbox("dev", "")
        .provide("bad", LazyServer::broken("spawn x ENOENT"))
        .provide("good", LazyServer::new([echo_tool("good", "x")]))
        .toolbox("worse", "")
        .provide("x", LazyServer::broken("spawn x ENOENT"))
        .start()
        .await
        .unwrap();
    let (client, _) = connect(&gateway(&runtime, json!({})), None, Era::Session).await;
    // A7
    let opened = call(&client, "open_toolbox", json!({"toolbox": "dev"})).await;
    let opened: Value = serde_json::from_str(&text(&opened)).unwrap();
    assert_eq!(opened["servers_connected"], 1);
    assert_eq!(opened["servers_failed"], json!([{"server": "bad", "error": "spawn x ENOENT"}]));
    let result = use_tool(&client, ["dev", "good", "x"], json!({})).await;
    assert_eq!(text(&result), "good/x {}");
    let result = call(&client, "open_toolbox", json!({"toolbox": "worse"})).await;
    insta::assert_snapshot!(result, @r#"{"content":[{"type":"text","text":"Error opening toolbox 'worse': Failed to connect to MCP server 'x': spawn x ENOENT"}],"isError":true,"structuredContent":{"error":{"kind":"server_unavailable","message":"Error opening toolbox 'worse': Failed to connect to MCP server 'x': spawn x ENOENT","executed":false,"toolbox":"worse"}}}"#);
}

#[tokio::test]
async fn open_errors_are_readable() {
    let gateway = start_gateway().await;
    let (client, _) = connect(&gateway, None, Era::Session).await;
    // A5, A6
    let mut texts = Vec::new();
    for arguments in [
        json!({"toolbox": "nope"}),
        json!({"toolbox": "DEV"}),
        json!({"toolbox": ""}),
        json!({"toolbox": 7}),
        json!({}),
        json!({"toolbox": "dev", "extra": 1}),
        json!({"toolbox_name": "dev"}),
        json!([]),
    ] {
        texts.push(text(&call(&client, "open_toolbox", arguments).await));
    }
    insta::assert_snapshot!(texts.join("\n"), @r"
    isError: Error: Toolbox 'nope' not found. Available toolboxes: dev, prod
    isError: Error: Toolbox 'DEV' not found. Available toolboxes: dev, prod
    isError: Invalid parameters: toolbox: Toolbox name cannot be empty
    isError: Invalid parameters: toolbox: Expected string, received number
    isError: Invalid parameters: toolbox: Required
    isError: Invalid parameters: Unrecognized key(s) in object: 'extra'
    isError: Invalid parameters: toolbox: Required; Unrecognized key(s) in object: 'toolbox_name' (did you mean 'toolbox'?)
    -32602: Invalid params: arguments must be an object
    ");
}

#[tokio::test]
async fn use_tool_errors_are_readable() {
    let gateway = start_gateway().await;
    let (client, _) = connect(&gateway, None, Era::Session).await;
    let mut texts = vec![text(&use_tool(&client, ["dev", "b", "zeta"], json!({})).await)];
    call(&client, "open_toolbox", json!({"toolbox": "dev"})).await;
    // A10 to A13, A19
    for tool in [
        ["nope", "b", "zeta"],
        ["DEV", "b", "zeta"],
        ["prod", "a", "alpha"],
        ["dev", "zz", "zeta"],
        ["dev", "not a name", "zeta"],
        ["dev", "a", "zeta"],
        ["dev", "b", "zet"],
        ["dev", "b", "rpcerr"],
    ] {
        texts.push(text(&use_tool(&client, tool, json!({})).await));
    }
    insta::assert_snapshot!(texts.join("\n"), @r#"
    isError: Error executing tool: Toolbox 'dev' is not open. Call open_toolbox with {"toolbox": "dev"} first
    isError: Error executing tool: Toolbox 'nope' is not open: Toolbox 'nope' not found. Available toolboxes: dev, prod
    isError: Error executing tool: Toolbox 'DEV' is not open: Toolbox 'DEV' not found. Available toolboxes: dev, prod. Did you mean 'dev'?
    isError: Error executing tool: Toolbox 'prod' is not open. Call open_toolbox with {"toolbox": "prod"} first
    isError: Error executing tool: Server 'zz' not found in toolbox 'dev'. Available servers: b, a
    isError: Error executing tool: Server 'not a name' not found in toolbox 'dev'. Available servers: b, a
    isError: Error executing tool: Tool 'zeta' not found in server 'a' (toolbox 'dev')
    isError: Error executing tool: Tool 'zet' not found in server 'b' (toolbox 'dev'). Did you mean 'zeta'?
    isError: Error executing tool 'rpcerr' in server 'b' (toolbox 'dev'): MCP error -32602: bad args
    "#);
}

#[tokio::test]
async fn errors_are_also_machine_readable() {
    let gateway = start_gateway().await;
    let (client, _) = connect(&gateway, None, Era::Stateless).await;
    let mut errors = Vec::new();
    for tool in [["nope", "b", "zeta"], ["dev", "zz", "zeta"], ["dev", "b", "zet"], ["dev", "b", "rpcerr"]] {
        let result = use_tool(&client, tool, json!({})).await;
        let mut error = result["structuredContent"]["error"].clone();
        assert_eq!(error["message"], result["content"][0]["text"]);
        error.as_object_mut().unwrap().shift_remove("message");
        errors.push(error.to_string());
    }
    let result = call(&client, "use_tool", json!({})).await;
    errors.push(result["structuredContent"]["error"].to_string());
    insta::assert_snapshot!(errors.join("\n"), @r#"
    {"kind":"unknown_toolbox","executed":false,"toolbox":"nope","available":["dev","prod"],"server":"b","name":"zeta"}
    {"kind":"unknown_server","executed":false,"available":["b","a"],"toolbox":"dev","server":"zz","name":"zeta"}
    {"kind":"unknown_tool","executed":false,"nearest":["zeta"],"toolbox":"dev","server":"b","name":"zet"}
    {"kind":"execution_error","executed":true,"toolbox":"dev","server":"b","name":"rpcerr"}
    {"kind":"invalid_parameters","message":"Invalid tool invocation parameters: tool: Required","executed":false,"violations":["tool: Required"]}
    "#);
}

#[tokio::test]
async fn an_invalid_invocation_reports_every_problem() {
    let gateway = start_gateway().await;
    let (client, _) = connect(&gateway, None, Era::Session).await;
    let tool = json!({"toolbox": "dev", "server": "b", "name": "zeta"});
    // A21 to A24
    let cases = [
        json!({"tool": {"toolbox": "", "server": "", "name": ""}}),
        json!({"tool": {"toolbox": "dev", "server": "b", "tool": "zeta"}}),
        json!({"tool": {"toolbox": "dev", "server": "b", "name": "zeta", "extra": 1}}),
        json!({"tool": tool, "extra_field": 1}),
        json!({"tool": tool, "parameters": {}}),
        json!({"tool": tool, "arguments": "str"}),
        json!({"tool": tool, "arguments": null}),
        json!({"tool": "dev/b/zeta"}),
        json!({"tool": {"toolbox": 1, "server": null, "name": ["zeta"]}}),
        json!({}),
        json!("use it"),
    ];
    let mut texts = Vec::new();
    for arguments in cases {
        texts.push(text(&call(&client, "use_tool", arguments).await));
    }
    insta::assert_snapshot!(texts.join("\n"), @r"
    isError: Invalid tool invocation parameters: tool.toolbox: Toolbox name cannot be empty; tool.server: Server name cannot be empty; tool.name: Tool name cannot be empty
    isError: Invalid tool invocation parameters: tool.name: Required; tool: Unrecognized key(s) in object: 'tool' (did you mean 'name'?)
    isError: Invalid tool invocation parameters: tool: Unrecognized key(s) in object: 'extra'
    isError: Invalid tool invocation parameters: Unrecognized key(s) in object: 'extra_field'
    isError: Invalid tool invocation parameters: Unrecognized key(s) in object: 'parameters' (did you mean 'arguments'?)
    isError: Invalid tool invocation parameters: arguments: Expected object, received string
    isError: Invalid tool invocation parameters: arguments: Expected object, received null
    isError: Invalid tool invocation parameters: tool: Expected object, received string
    isError: Invalid tool invocation parameters: tool.toolbox: Expected string, received number; tool.server: Expected string, received null; tool.name: Expected string, received array
    isError: Invalid tool invocation parameters: tool: Required
    -32602: Invalid params: arguments must be an object
    ");
}

#[tokio::test]
async fn arguments_and_results_pass_unchanged() {
    let gateway = start_gateway().await;
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        if era == Era::Session {
            call(&client, "open_toolbox", json!({"toolbox": "dev"})).await;
            call(&client, "open_toolbox", json!({"toolbox": "prod"})).await;
        }
        let identity = json!({"toolbox": "dev", "server": "b", "name": "zeta"});
        // A14
        let without = call(&client, "use_tool", json!({"tool": identity})).await;
        assert_eq!(text(&without), "b/zeta {}");
        // A14 to A17, A25
        for (tool, arguments, expected) in [
            (["dev", "b", "zeta"], json!({}), "b/zeta {}"),
            (["dev", "b", "echo__x-1.y"], json!({"n": 1}), r#"b/echo__x-1.y {"n":1}"#),
            (["dev", "b", "alpha"], json!({}), "b/alpha {}"),
            (["dev", "a", "alpha"], json!({}), "a/alpha {}"),
            (["prod", "a", "alpha"], json!({}), "prod"),
            (["dev", "b", "b"], json!({}), "b/b {}"),
            (["dev", "b", "iserr"], json!({}), "isError: no"),
        ] {
            assert_eq!(text(&use_tool(&client, tool, arguments).await), expected);
        }
        // A18
        let result = use_tool(&client, ["dev", "b", "iserr"], json!({})).await;
        assert_eq!((&result["odd"], result.get("structuredContent")), (&json!(1), None));
    }
}

#[tokio::test]
async fn open_toolboxes_are_private_to_a_session() {
    let gateway = start_gateway().await;
    let (one, _) = connect(&gateway, None, Era::Session).await;
    let (other, _) = connect(&gateway, None, Era::Session).await;
    call(&one, "open_toolbox", json!({"toolbox": "dev"})).await;
    assert_eq!(text(&use_tool(&one, ["dev", "b", "zeta"], json!({})).await), "b/zeta {}");
    let refused = text(&use_tool(&other, ["dev", "b", "zeta"], json!({})).await);
    assert!(refused.starts_with("isError: Error executing tool: Toolbox 'dev' is not open"), "{refused}");
}

/// A toolbox of `n_tools` tools with definitions of about 300 bytes.
async fn start_large_gateway(n_tools: usize, settings: Value) -> Gateway {
    let tool = |number: usize| {
        let name = format!("find_{number}");
        let description = format!("Finds entries of book {number}. {}", "Sorted by date. ".repeat(15));
        ToolEntry::from_fn(&*name, &description, |arguments: Value| async move { Ok(arguments) })
    };
    let runtime = Runtime::builder()
        .settings(serde_json::from_value(settings).unwrap())
        .toolbox("books", "")
        .provide("library", mcp_server((0..n_tools).map(tool)))
        .start()
        .await
        .unwrap();
    gateway(&runtime, json!({}))
}

#[tokio::test]
async fn a_large_toolbox_is_summarized_within_the_limit() {
    let cases = [
        // Number of tools, limit, detail; whether definitions are listed.
        (10, json!({}), Value::Null, true),
        (10, json!({"openToolboxMaxBytes": 1_000}), Value::Null, false),
        (10, json!({}), json!("compact"), false),
        (100, json!({}), Value::Null, false),
        (100, json!({}), json!("full"), true),
        (1_000, json!({}), Value::Null, false),
        (3_000, json!({}), Value::Null, false),
    ];
    for (n_tools, settings, detail, has_definitions) in cases {
        let gateway = start_large_gateway(n_tools, settings).await;
        let (client, _) = connect(&gateway, None, Era::Session).await;
        let mut arguments = json!({"toolbox": "books"});
        if !detail.is_null() {
            arguments["detail"] = detail;
        }
        let text = text(&call(&client, "open_toolbox", arguments).await);
        let opened: Value = serde_json::from_str(&text).unwrap();
        assert!(!text.contains('\n'), "{text}");
        if has_definitions {
            assert_eq!(opened["tools"].as_array().unwrap().len(), n_tools);
            continue;
        }
        assert_eq!((&opened["tools"], &opened["tool_count"]), (&Value::Null, &json!(n_tools)));
        assert!(text.len() < 20_500, "{} bytes", text.len());
        let tools = &opened["summaries"]["library"];
        let n_listed =
            tools.as_object().map_or_else(|| tools.as_array().unwrap().len(), serde_json::Map::len);
        assert_eq!(n_listed as u64 + opened["left_out"].as_u64().unwrap_or(0), n_tools as u64);
        let used = use_tool(&client, ["books", "library", "find_7"], json!({"a": 1})).await;
        assert_eq!(used["isError"], Value::Null, "{used}");
    }
}

#[tokio::test]
async fn a_summary_has_one_line_per_tool() {
    let gateway = start_large_gateway(2, json!({})).await;
    let (client, _) = connect(&gateway, None, Era::Session).await;
    let opened = call(&client, "open_toolbox", json!({"toolbox": "books", "detail": "compact"})).await;
    insta::assert_snapshot!(text(&opened), @r#"{"toolbox":"books","description":"","servers_connected":1,"tool_count":2,"summaries":{"library":{"find_0":"Finds entries of book 0","find_1":"Finds entries of book 1"}},"instruction":"Many tools: only summaries are listed. Find tools with their input schemas: get_tools {\"query\": WORDS} or get_tools {\"tools\": {SERVER: [NAME, …]}}. Then call them with use_tool."}"#);
}

#[tokio::test]
async fn with_many_tools_the_instructions_lead_to_a_search() {
    let gateway = start_large_gateway(30, json!({})).await;
    let (client, _) = connect(&gateway, None, Era::Session).await;
    insta::assert_snapshot!(client.server().instructions.as_deref().unwrap(), @r#"
    30 tools in toolboxes:
    - books (1 server: library) find_0, find_1, find_2, find_3, find_4 and 25 more

    1. Find tools by what they do: get_tools {"query":"WORDS"}; or see all of a toolbox: open_toolbox {"toolbox":"books"}
    2. Call one of them: use_tool {"tool":{"toolbox":"books","server":"library","name":"TOOL"},"arguments":{}}
    "#);
}

#[tokio::test]
async fn descriptions_of_many_toolboxes_are_shortened() {
    for (n_toolboxes, max_bytes) in [(10, 12_000), (30, 6_000), (200, 9_000)] {
        let mut builder = Runtime::builder();
        for number in 0..n_toolboxes {
            let name = format!("box{number}");
            builder = builder
                .toolbox(&name, "Long words. ".repeat(80))
                .provide(&name, mcp_server([echo_tool("s", "x")]));
        }
        let runtime = builder.start().await.unwrap();
        let (client, _) = connect(&gateway(&runtime, json!({})), None, Era::Session).await;
        let instructions = client.server().instructions.clone().unwrap();
        assert!(instructions.len() < max_bytes, "{n_toolboxes}: {}", instructions.len());
        for number in 0..n_toolboxes {
            assert!(instructions.contains(&format!("- box{number}")), "{instructions}");
        }
    }
}
