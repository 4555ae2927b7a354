//! Toolboxes, end to end.

use std::path::Path;

use futures_util::future::join_all;
use pegboard::wire::client::Era;
use pegboard_testkit::measure::context_cost;
use serde_json::{Value, json};

use crate::harness::{TestEnvironment, call, listed, open, testkit, text, use_tool, with_every_client};

/// Two toolboxes with unusual names.
fn workbench(environment: &TestEnvironment) -> Value {
    let tools = ["zeta", "alpha", "echo__x-1.y", "b", "rpcerr", "iserr", "structured"];
    let filtered = |called: &str, filters: Value| {
        let mut server = environment.server(called, &["zeta", "alpha"]);
        server["toolFilters"] = filters;
        server
    };
    json!({"toolboxes": {
        "dev": {"description": "For development", "mcpServers": {
            "b": environment.server("b", &tools),
            "a": filtered("a", json!(["alpha", "ghost"])),
        }},
        "prod": {"description": "Handle with care", "mcpServers": {"a": filtered("prod", json!(["*"]))}},
        "none": {"description": "Nothing left", "mcpServers": {"a": filtered("none", json!([]))}},
    }})
}

#[tokio::test]
async fn instructions_describe_toolboxes_and_meta_tools() {
    with_every_client(workbench, None, async |connected| {
        // A1
        insta::allow_duplicates! {
            insta::assert_snapshot!(connected.client.server().instructions.as_deref().unwrap(), @r#"
            Tools come in toolboxes:
            - dev (2 servers: b, a) For development
            - prod (1 server: a) Handle with care
            - none (1 server: a) Nothing left

            1. See the tools of a toolbox: open_toolbox {"toolbox":"dev"}; or look for tools: get_tools
            2. Call one of them: use_tool {"tool":{"toolbox":"dev","server":"b","name":"TOOL"},"arguments":{}}
            "#);
        }
        // A2
        let tools = listed(&connected.client).await;
        assert_eq!((&tools[0]["name"], &tools[1]["name"]), (&json!("open_toolbox"), &json!("use_tool")));
        for tool in &tools[..2] {
            assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{tool}");
        }
        let schema = &tools[1]["inputSchema"];
        assert_eq!(schema["required"], json!(["tool"]));
        assert_eq!(schema["properties"]["arguments"]["default"], json!({}));
        assert_eq!(connected.environment.n_started(), 0, "servers start on first use");
    })
    .await;
}

#[tokio::test]
async fn a_toolbox_opens_with_the_tools_of_its_servers_in_order() {
    with_every_client(workbench, None, async |connected| {
        // A3, A9
        let opened = open(&connected.client, "dev").await;
        assert_eq!((&opened["toolbox"], &opened["servers_connected"]), (&json!("dev"), &json!(2)));
        assert_eq!(opened["description"], "For development");
        let tools: Vec<String> =
            opened["tools"].as_array().unwrap().iter().map(ToString::to_string).collect();
        insta::allow_duplicates! {
            insta::assert_snapshot!(tools.join("\n"), @r#"
            {"name":"zeta","description":"The tool zeta","inputSchema":{"type":"object"},"server":"b","toolbox":"dev"}
            {"name":"alpha","description":"The tool alpha","inputSchema":{"type":"object"},"server":"b","toolbox":"dev"}
            {"name":"echo__x-1.y","description":"The tool echo__x-1.y","inputSchema":{"type":"object"},"server":"b","toolbox":"dev"}
            {"name":"b","description":"The tool b","inputSchema":{"type":"object"},"server":"b","toolbox":"dev"}
            {"name":"rpcerr","description":"The tool rpcerr","inputSchema":{"type":"object"},"server":"b","toolbox":"dev"}
            {"name":"iserr","description":"The tool iserr","inputSchema":{"type":"object"},"server":"b","toolbox":"dev"}
            {"name":"structured","description":"The tool structured","inputSchema":{"type":"object"},"server":"b","toolbox":"dev"}
            {"name":"alpha","description":"The tool alpha","inputSchema":{"type":"object"},"server":"a","toolbox":"dev"}
            "#);
        }
        // A4
        assert_eq!(open(&connected.client, "dev").await, opened);
        assert_eq!(connected.environment.n_started(), 2);
        // A9
        assert_eq!(open(&connected.client, "prod").await["tools"].as_array().unwrap().len(), 2);
        assert_eq!(open(&connected.client, "none").await["tools"], json!([]));
    })
    .await;
}

#[tokio::test]
async fn concurrent_opens_start_a_server_once() {
    let one = |environment: &TestEnvironment| json!({"toolboxes": {"dev": {"description": "One", "mcpServers": {"s": environment.server("s", &["x"])}}}});
    with_every_client(one, None, async |connected| {
        // A8
        let opened = join_all((0..3).map(|_| open(&connected.client, "dev"))).await;
        assert!(opened.iter().all(|other| *other == opened[0]));
        assert_eq!(opened[0]["servers_connected"], 1);
        assert_eq!((connected.environment.n_started(), connected.environment.n_running()), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn a_server_that_cannot_start_is_reported_and_leaves_no_process() {
    let broken = |environment: &TestEnvironment| {
        let bad = json!({"command": "no-such-program"});
        json!({"toolboxes": {
            "dev": {"description": "Half", "mcpServers": {"bad": bad, "good": environment.server("good", &["x"])}},
            "worse": {"description": "None", "mcpServers": {"x": bad}},
        }})
    };
    with_every_client(broken, None, async |connected| {
        // A7
        for _ in 0..2 {
            let opened = open(&connected.client, "dev").await;
            assert_eq!((&opened["servers_connected"], &opened["tools"][0]["name"]), (&json!(1), &json!("x")));
            let failed = opened["servers_failed"].as_array().unwrap();
            assert_eq!((failed.len(), &failed[0]["server"]), (1, &json!("bad")));
            let why = "MCP server 'bad' did not start: spawn no-such-program ENOENT";
            assert!(failed[0]["error"].as_str().unwrap().contains(why), "{failed:?}");
        }
        assert_eq!(text(&use_tool(&connected.client, ["dev", "good", "x"], json!({})).await), "good/x {}");
        assert_eq!((connected.environment.n_started(), connected.environment.n_running()), (1, 1));
        let worse = open(&connected.client, "worse").await;
        insta::allow_duplicates! {
            insta::assert_snapshot!(worse, @r#""isError: Error opening toolbox 'worse': Failed to connect to MCP server 'x': MCP server 'x' did not start: spawn no-such-program ENOENT: 'no-such-program' not found in PATH; install it, or specify its full path""#);
        }
    })
    .await;
}

#[tokio::test]
async fn opening_an_unknown_toolbox_explains_why() {
    with_every_client(workbench, None, async |connected| {
        // A5, A6
        let mut texts = Vec::new();
        for arguments in [
            json!({"toolbox": "nope"}),
            json!({"toolbox": ""}),
            json!({}),
            json!({"toolbox": "dev", "extra": 1}),
        ] {
            texts.push(text(&call(&connected.client, "open_toolbox", arguments).await));
        }
        insta::allow_duplicates! {
            insta::assert_snapshot!(texts.join("\n"), @r#"
            isError: Error: Toolbox 'nope' not found. Available toolboxes: dev, prod, none
            isError: Invalid parameters: toolbox: Toolbox name cannot be empty
            isError: Invalid parameters: toolbox: Required
            isError: Invalid parameters: Unrecognized key(s) in object: 'extra'
            "#);
        }
    })
    .await;
}

#[tokio::test]
async fn calling_an_unusable_tool_explains_why() {
    with_every_client(workbench, None, async |connected| {
        // A10: without a session open toolboxes are not remembered.
        let refused = text(&use_tool(&connected.client, ["dev", "b", "zeta"], json!({})).await);
        match connected.era {
            Era::Session => assert_eq!(
                refused,
                "isError: Error executing tool: Toolbox 'dev' is not open. Call open_toolbox with {\"toolbox\": \"dev\"} first"
            ),
            Era::Stateless => assert_eq!(refused, "b/zeta {}"),
        }
        open(&connected.client, "dev").await;
        // A11, A12, A13, A19
        let mut texts = Vec::new();
        for tool in [
            ["dev", "zz", "zeta"],
            ["dev", "a", "zeta"],
            ["DEV", "b", "zeta"],
            ["nope", "b", "zeta"],
            ["dev", "b", "rpcerr"],
        ] {
            texts.push(text(&use_tool(&connected.client, tool, json!({})).await));
        }
        insta::allow_duplicates! {
            insta::assert_snapshot!(texts.join("\n"), @r#"
            isError: Error executing tool: Server 'zz' not found in toolbox 'dev'. Available servers: b, a
            isError: Error executing tool: Tool 'zeta' not found in server 'a' (toolbox 'dev')
            isError: Error executing tool: Toolbox 'DEV' is not open: Toolbox 'DEV' not found. Available toolboxes: dev, prod, none. Did you mean 'dev'?
            isError: Error executing tool: Toolbox 'nope' is not open: Toolbox 'nope' not found. Available toolboxes: dev, prod, none. Did you mean 'none'?
            isError: Error executing tool 'rpcerr' in server 'b' (toolbox 'dev'): MCP error -32602: bad args
            "#);
        }
    })
    .await;
}

#[tokio::test]
async fn an_invalid_invocation_reports_all_violations() {
    let tool = json!({"toolbox": "dev", "server": "b", "name": "zeta"});
    // A21 to A24
    let cases = [
        json!({"tool": {"toolbox": "", "server": "b", "name": "zeta"}}),
        json!({"tool": {"toolbox": "dev", "server": "", "name": ""}}),
        json!({"tool": {"toolbox": "dev", "server": "b", "tool": "zeta"}}),
        json!({"tool": {"toolbox": "dev", "server": "b", "name": "zeta", "extra": 1}}),
        json!({"tool": tool, "extra_field": 1}),
        json!({"tool": tool, "arguments": "str"}),
        json!({"tool": "dev/b/zeta"}),
        json!({}),
    ];
    with_every_client(workbench, None, async |connected| {
        let mut texts = Vec::new();
        for arguments in &cases {
            texts.push(text(&call(&connected.client, "use_tool", arguments.clone()).await));
        }
        insta::allow_duplicates! {
            insta::assert_snapshot!(texts.join("\n"), @r#"
            isError: Invalid tool invocation parameters: tool.toolbox: Toolbox name cannot be empty
            isError: Invalid tool invocation parameters: tool.server: Server name cannot be empty; tool.name: Tool name cannot be empty
            isError: Invalid tool invocation parameters: tool.name: Required; tool: Unrecognized key(s) in object: 'tool' (did you mean 'name'?)
            isError: Invalid tool invocation parameters: tool: Unrecognized key(s) in object: 'extra'
            isError: Invalid tool invocation parameters: Unrecognized key(s) in object: 'extra_field'
            isError: Invalid tool invocation parameters: arguments: Expected object, received string
            isError: Invalid tool invocation parameters: tool: Expected object, received string
            isError: Invalid tool invocation parameters: tool: Required
            "#);
        }
        assert_eq!(connected.environment.n_started(), 0, "what is not right reaches no server");
    })
    .await;
}

#[tokio::test]
async fn arguments_and_results_pass_through() {
    with_every_client(workbench, None, async |connected| {
        open(&connected.client, "dev").await;
        open(&connected.client, "prod").await;
        let identity = json!({"toolbox": "dev", "server": "b", "name": "zeta"});
        // A14
        let without = call(&connected.client, "use_tool", json!({"tool": identity})).await;
        assert_eq!(text(&without), "b/zeta {}");
        // A14 to A18, A25
        for (tool, arguments, expected) in [
            (["dev", "b", "zeta"], json!({}), "b/zeta {}"),
            (["dev", "b", "echo__x-1.y"], json!({"n": 1}), r#"b/echo__x-1.y {"n":1}"#),
            (["dev", "b", "alpha"], json!({}), "b/alpha {}"),
            (["dev", "a", "alpha"], json!({}), "a/alpha {}"),
            (["prod", "a", "alpha"], json!({}), "prod/alpha {}"),
            (["dev", "b", "b"], json!({}), "b/b {}"),
            (["dev", "b", "iserr"], json!({}), "isError: no"),
        ] {
            assert_eq!(text(&use_tool(&connected.client, tool, arguments).await), expected);
        }
        // A18, A20
        let result = use_tool(&connected.client, ["dev", "b", "iserr"], json!({})).await;
        assert_eq!((&result["odd"], result.get("structuredContent")), (&json!(1), None));
        let result = use_tool(&connected.client, ["dev", "b", "structured"], json!({})).await;
        assert_eq!(
            (&result["structuredContent"], &result["_meta"]["x/y"]),
            (&json!({"b": 1, "a": 2}), &json!(1))
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_way_to_a_right_call_is_short_with_any_number_of_tools() {
    let costs = context_cost::measure(Path::new(env!("CARGO_BIN_EXE_pegboard")), &testkit()).await.unwrap();
    for cost in &costs {
        println!("{cost:?}");
        // Four characters are about one token.
        assert!(cost.search < 4 * 2_000, "{cost:?}");
        assert!(cost.open < 4 * 4_000, "{cost:?}");
    }
    assert!(costs[2].flat > 20 * costs[2].search, "{costs:?}");
}
