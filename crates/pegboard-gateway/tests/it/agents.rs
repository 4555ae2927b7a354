//! The `agent` profile: one tool per server, its modes, and the session and workspace of a call.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pegboard_core::call::ValidCall;
use pegboard_core::entry::{ToolAnnotations, ToolEntry};
use pegboard_core::output::Output;
use pegboard_core::owner::OwnerScope;
use pegboard_core::settings::RuntimeSettings;
use pegboard_core::store::{
    CallLog, CallQuery, CallSummary, FinishedCall, LogBatch, RefusedEntries, SessionStore, SessionSummary,
    StoreError, StoreFuture, TraceQuery, TraceRecord,
};
use pegboard_gateway::{Gateway, serve};
use pegboard_json::RawJson;
use pegboard_runtime::wall_clock::WallClock;
use pegboard_runtime::{Runtime, RuntimeBuilder};
use pegboard_stores::sqlite::Database;
use pegboard_wire::client::{Era, McpClient};
use pegboard_wire::http;
use pegboard_wire::http::client::HttpOptions;
use pegboard_wire::http::server::HttpServerOptions;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::fixture::{
    ERAS, LazyServer, call, connect, connect_over, echo_tool, gateway, mcp_server, scripted_tool, text,
    text_output, tool_failure, tool_names,
};

fn read() -> ToolEntry {
    let schema = json!({
        "type": "object",
        "properties": {
            "filePath": {"type": "string", "description": "What to read", "x-mcp-header": "Path"},
            "limit": {"type": "integer"},
        },
        "required": ["filePath"],
    });
    echo_tool("contentManager", "readContent").with_input_schema(schema)
}

fn replace() -> ToolEntry {
    let schema = json!({
        "type": "object",
        "properties": {
            "filePath": {"type": "string", "description": "What to change"},
            "limit": {"type": "string"},
            "edit": {"$ref": "#/$defs/edit", "description": "What to put where"},
            "mode": {"enum": ["first", "all"]},
        },
        "$defs": {"edit": {"type": "object"}},
        "required": ["filePath", "edit"],
    });
    echo_tool("contentManager", "replace.text").with_input_schema(schema)
}

/// Returns its `answer` argument.
fn parrot() -> ToolEntry {
    scripted_tool("parrot", |call: &ValidCall| match call.arguments().get("answer") {
        Some(Value::String(text)) => Err(tool_failure(text)),
        Some(answer) => Ok(Output::result(RawJson::of(answer))),
        None => Ok(text_output("nothing to say")),
    })
}

fn runtime_builder() -> RuntimeBuilder {
    let read_only = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
    Runtime::builder()
        .sessions(Arc::new(Database::in_memory()))
        .toolbox("vault", "Notes and files.")
        .provide("contentManager", mcp_server([read(), replace()]))
        .provide("my_git", LazyServer::new([echo_tool("my_git", "log").with_annotations(read_only)]))
        .provide("odd", mcp_server([parrot(), echo_tool("odd", "my_gits")]))
        .toolbox("other", "")
        .provide("odd", mcp_server([echo_tool("other odd", "alone")]))
}

async fn agent_gateway() -> Gateway {
    gateway(&runtime_builder().start().await.unwrap(), json!({"expose": "agent"}))
}

/// Session, workspace and workspace source of a call.
fn session_note(result: &Value) -> [String; 3] {
    let note = &result["_meta"]["pegboard/session"];
    ["sessionId", "workspaceId", "workspaceSource"]
        .map(|name| note[name].as_str().unwrap_or_default().to_owned())
}

/// The text item that announces a session, if there is one.
fn session_line(result: &Value) -> Option<String> {
    result["content"].as_array().unwrap().last().unwrap()["text"]
        .as_str()
        .filter(|text| text.starts_with("Session s-"))
        .map(str::to_owned)
}

#[tokio::test]
async fn every_server_is_one_tool_with_all_modes() {
    let gateway = agent_gateway().await;
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        // D5, D28
        assert_eq!(tool_names(&client).await, ["contentManager", "my_git", "vault__odd", "other__odd"]);
        let list = client.call("tools/list", None).await.unwrap().to_value();
        let lines = [&list["tools"][0], &list["tools"][1]].map(ToString::to_string).join("\n");
        insta::allow_duplicates! { insta::assert_snapshot!(lines, @r#"
        {"name":"contentManager","title":"Content Manager","description":"Notes and files. Give the name of a tool as `mode`, and its arguments beside it. Modes, with the arguments that each needs:\n- readContent(filePath) The tool readContent\n- replace.text(filePath, edit) The tool replace.text","inputSchema":{"type":"object","properties":{"mode":{"type":"string","enum":["readContent","replace.text"]},"sessionId":{"type":"string","description":"The session: an id you were given, or a name of your own"},"context":{"type":"object","properties":{"sessionId":{"type":"string"},"workspaceId":{"type":"string"}},"description":"Where the call belongs"},"arguments":{"type":"object","description":"The arguments of a tool that has a `mode` of its own"},"filePath":{"type":"string","description":"What to read"},"limit":{"anyOf":[{"type":"integer"},{"type":"string"}]},"edit":{"description":"What to put where"}},"required":["mode","sessionId"]}}
        {"name":"my_git","title":"My Git","description":"Notes and files. Give the name of a tool as `mode`, and its arguments beside it. Modes, with the arguments that each needs:\n- log() The tool log","inputSchema":{"type":"object","properties":{"mode":{"type":"string","enum":["log"]},"sessionId":{"type":"string","description":"The session: an id you were given, or a name of your own"},"context":{"type":"object","properties":{"sessionId":{"type":"string"},"workspaceId":{"type":"string"}},"description":"Where the call belongs"}},"required":["mode","sessionId"]},"annotations":{"readOnlyHint":true}}
        "#); }
    }
}

/// Names and arguments of calls.
fn spellings() -> Vec<(&'static str, Value)> {
    vec![
        // D1, D4
        ("contentManager", json!({"mode": "readContent", "filePath": "a"})),
        ("contentManager", json!({})),
        ("contentManager", json!({"mode": " "})),
        ("contentManager", json!({"mode": 5})),
        ("contentManager", json!({"mode": "readContents"})),
        ("contentManager", json!({"mode": "ReadContent"})),
        ("contentManager", json!({"mode": "replace_text"})),
        // D2
        ("contentManager_my_vault", json!({"mode": "readContent", "n": 1})),
        ("contentManager_my_vault", json!({})),
        ("contentManager_", json!({})),
        ("contentManager__readContents", json!({})),
        // D3
        ("contentManager_readContent", json!({"mode": "replace.text"})),
        ("contentManager_readContent", json!({"mode": ""})),
        ("contentManager_readContent", json!({})),
        // D27
        ("my_git_log", json!({})),
        ("my_git", json!({"mode": "log"})),
        ("my_git_of_mine", json!({"mode": "log"})),
        // Every other spelling of a tool's name is still accepted.
        ("my_git__log", json!({"mode": "own"})),
        ("readContent", json!({"filePath": "a"})),
        ("my_gits", json!({})),
        // A server name that is used twice is qualified with its toolbox.
        ("vault__odd", json!({"mode": "parrot"})),
        ("other__odd", json!({"mode": "alone"})),
        // A tool with a `mode` parameter of its own.
        ("contentManager", json!({"mode": "replace.text", "n": 1, "arguments": {"mode": "all", "n": 2}})),
        ("contentManager_replace_text", json!({"mode": "all"})),
        ("contentManger", json!({"mode": "readContent"})),
        ("nothing", json!({"mode": "readContent"})),
    ]
}

#[tokio::test]
async fn a_name_and_a_mode_select_the_tool() {
    let gateway = agent_gateway().await;
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        tool_names(&client).await;
        let mut lines = Vec::new();
        for (name, arguments) in spellings() {
            let shown = arguments.to_string();
            lines.push(format!("{name} {shown} -> {}", text(&call(&client, name, arguments).await)));
        }
        insta::allow_duplicates! { insta::assert_snapshot!(lines.join("\n"), @r#"
        contentManager {"mode":"readContent","filePath":"a"} -> contentManager/readContent {"filePath":"a"}
        contentManager {} -> isError: Agent 'contentManager' needs a mode. Give `mode`: one of readContent, replace.text.
        contentManager {"mode":" "} -> isError: Agent 'contentManager' needs a mode. Give `mode`: one of readContent, replace.text.
        contentManager {"mode":5} -> isError: Agent 'contentManager' needs a mode. Give `mode`: one of readContent, replace.text.
        contentManager {"mode":"readContents"} -> isError: Agent 'contentManager' has no mode 'readContents'. Did you mean one of: readContent?
        contentManager {"mode":"ReadContent"} -> isError: Agent 'contentManager' has no mode 'ReadContent'. Did you mean one of: readContent, replace.text?
        contentManager {"mode":"replace_text"} -> contentManager/replace.text {}
        contentManager_my_vault {"mode":"readContent","n":1} -> contentManager/readContent {"n":1}
        contentManager_my_vault {} -> isError: Agent 'contentManager' has no mode 'my_vault'. Give `mode`: one of readContent, replace.text.
        contentManager_ {} -> isError: Agent 'contentManager' needs a mode. Give `mode`: one of readContent, replace.text.
        contentManager__readContents {} -> isError: Agent 'contentManager' has no mode 'readContents'. Did you mean one of: readContent?
        contentManager_readContent {"mode":"replace.text"} -> contentManager/replace.text {}
        contentManager_readContent {"mode":""} -> contentManager/readContent {}
        contentManager_readContent {} -> contentManager/readContent {}
        my_git_log {} -> my_git/log {}
        my_git {"mode":"log"} -> my_git/log {}
        my_git_of_mine {"mode":"log"} -> my_git/log {}
        my_git__log {"mode":"own"} -> my_git/log {"mode":"own"}
        readContent {"filePath":"a"} -> contentManager/readContent {"filePath":"a"}
        my_gits {} -> odd/my_gits {}
        vault__odd {"mode":"parrot"} -> nothing to say
        other__odd {"mode":"alone"} -> other odd/alone {}
        contentManager {"mode":"replace.text","n":1,"arguments":{"mode":"all","n":2}} -> contentManager/replace.text {"mode":"all","n":2}
        contentManager_replace_text {"mode":"all"} -> contentManager/replace.text {"mode":"all"}
        contentManger {"mode":"readContent"} -> -32602: There is no agent 'contentManger'. Did you mean one of: contentManager?
        nothing {"mode":"readContent"} -> -32602: Unknown tool: nothing
        "#); }
    }
}

#[tokio::test]
async fn servers_named_like_meta_tools_are_renamed() {
    let runtime = Runtime::builder()
        .toolbox("t", "")
        .provide("batch", mcp_server([echo_tool("batch", "run")]))
        .provide("tool_output", mcp_server([echo_tool("tool_output", "read")]))
        .provide(&"long".repeat(30), mcp_server([echo_tool("long", "x")]))
        .start()
        .await
        .unwrap();
    let gateway = gateway(&runtime, json!({"expose": "agent"}));
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        let names = tool_names(&client).await;
        assert_eq!((names[0].as_str(), names[1].as_str(), names[2].len()), ("batch_2", "tool_output_2", 64));
        for (name, mode, expected) in [
            ("batch_2", "run", "batch/run {}"),
            ("tool_output_2", "read", "tool_output/read {}"),
            (&names[2], "x", "long/x {}"),
        ] {
            assert_eq!(text(&call(&client, name, json!({"mode": mode})).await), expected);
        }
    }
}

#[tokio::test]
async fn an_agent_does_not_require_the_headers_of_its_tools() {
    let query = json!({"type": "string", "x-mcp-header": "Query"});
    let search = echo_tool("search", "search")
        .with_input_schema(json!({"type": "object", "properties": {"query": query}}));
    let runtime = Runtime::builder().provide("search", mcp_server([search])).start().await.unwrap();
    let gateway = gateway(&runtime, json!({"expose": "agent"}));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/mcp/agent", listener.local_addr().unwrap());
    tokio::spawn(async move { serve::http(&gateway, listener, &HttpServerOptions::default()).await });
    for era in ERAS {
        let transport = http::client::connect(HttpOptions::new(url.parse().unwrap())).unwrap();
        let (client, _) = connect_over(transport, era).await;
        assert_eq!(tool_names(&client).await, ["search"]);
        let result = call(&client, "search", json!({"mode": "search", "query": "x"})).await;
        assert_eq!(text(&result), r#"search/search {"query":"x"}"#);
    }
}

#[tokio::test]
async fn a_profile_without_a_toolbox_has_none_of_its_agents() {
    let profiles = json!({"profiles": {"inside": {"expose": "agent", "toolboxes": ["other"]}}});
    let gateway = gateway(&runtime_builder().start().await.unwrap(), profiles);
    for era in ERAS {
        let (client, _) = connect(&gateway, Some("inside"), era).await;
        // With a single toolbox, names are not qualified.
        assert_eq!(tool_names(&client).await, ["odd"]);
        assert_eq!(text(&call(&client, "odd", json!({"mode": "alone"})).await), "other odd/alone {}");
        let refused = text(&call(&client, "contentManager", json!({"mode": "readContent"})).await);
        assert_eq!(refused, "-32602: Unknown tool: contentManager");
        let refused = text(&call(&client, "contentManager_readContent", json!({})).await);
        assert_eq!(refused, "-32602: Unknown tool: contentManager_readContent");
    }
}

#[tokio::test]
async fn errors_are_also_machine_readable() {
    let gateway = agent_gateway().await;
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        // D4, D25
        let result = call(&client, "contentManager", json!({"filePath": "a"})).await;
        assert_eq!(result["isError"], true);
        insta::allow_duplicates! { insta::assert_snapshot!(result["_meta"]["pegboard/error"], @r#"{"kind":"invalid_parameters","message":"Agent 'contentManager' needs a mode. Give `mode`: one of readContent, replace.text.","executed":false,"agent":"contentManager","modes":["readContent","replace.text"]}"#); }
        let result = call(&client, "vault__odd", json!({"mode": "parrot", "answer": "no"})).await;
        assert_eq!(text(&result), "isError: no");
        assert_eq!(result["_meta"]["pegboard/error"]["kind"], "execution_error");
        assert!(session_note(&result)[0].starts_with("s-"));
    }
}

#[tokio::test]
async fn a_call_without_a_session_gets_one_hidden_from_the_tool() {
    let gateway = agent_gateway().await;
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        // D10, D19
        let context = json!({"workspaceId": "w", "primaryGoal": "save"});
        let arguments =
            json!({"mode": "readContent", "filePath": "a", "context": context, "workspaceContext": {}});
        let first = call(&client, "contentManager", arguments).await;
        assert_eq!(text(&first), r#"contentManager/readContent {"filePath":"a"}"#);
        let [session, workspace, _] = session_note(&first);
        let stamp = session.strip_prefix("s-").unwrap();
        assert!(stamp.len() >= 14 && stamp[..14].bytes().all(|byte| byte.is_ascii_digit()), "{session}");
        assert_eq!(workspace, "w");
        assert_eq!(session_line(&first), None);
        let second = call(&client, "contentManager", json!({"mode": "readContent"})).await;
        match era {
            // The connection is the session until another one is named.
            Era::Session => assert_eq!((&session_note(&second)[0], session_line(&second)), (&session, None)),
            Era::Stateless => assert!(session_note(&second)[0] != session && session_line(&second).is_none()),
        }
    }
}

/// Calls an agent with context arguments.
async fn call_parrot(client: &McpClient, mut arguments: Value) -> Value {
    arguments["mode"] = "parrot".into();
    call(client, "vault__odd", arguments).await
}

#[tokio::test]
async fn sessions_are_found_by_id_or_name() {
    for era in ERAS {
        let gateway = agent_gateway().await;
        let (client, _) = connect(&gateway, None, era).await;
        // D11
        let named = || json!({"context": {"sessionId": "budget work"}});
        let (first, second) = (call_parrot(&client, named()).await, call_parrot(&client, named()).await);
        let [id, ..] = session_note(&first);
        assert_eq!(
            session_line(&first).unwrap(),
            format!(
                r#"Session {id} has begun for "budget work"; pass {id} as context.sessionId from now on."#
            )
        );
        assert_eq!((session_note(&second)[0].as_str(), session_line(&second)), (id.as_str(), None));
        let by_id = call_parrot(&client, json!({"context": {"sessionId": id}})).await;
        assert_eq!((session_note(&by_id)[0].as_str(), session_line(&by_id)), (id.as_str(), None));
        // D12
        let unknown = json!({"context": {"sessionId": "s-20200102030405"}});
        assert_eq!(session_note(&call_parrot(&client, unknown).await)[0], "s-20200102030405");
        // D13
        let above = json!({"sessionId": "s-20200102030405", "context": {"workspaceId": "w"}});
        assert_eq!(session_note(&call_parrot(&client, above).await)[0], "s-20200102030405");
        let both = json!({"sessionId": "s-20200102030405", "context": {"sessionId": "budget work"}});
        assert_eq!(session_note(&call_parrot(&client, both).await)[0], id);
        let refused = call_parrot(&client, json!({"sessionId": "x".repeat(200)})).await;
        assert!(text(&refused).starts_with("isError: Invalid arguments: $.context.sessionId:"), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_started_in_the_same_second_are_distinct() {
    // D18
    for era in ERAS {
        let clock = WallClock::starting_at(UNIX_EPOCH + Duration::from_hours(490_922));
        let runtime = runtime_builder().wall_clock(clock).start().await.unwrap();
        let gateway = gateway(&runtime, json!({"expose": "agent"}));
        let mut ids = Vec::new();
        for _ in 0..2 {
            let (client, _) = connect(&gateway, None, era).await;
            ids.push(session_note(&call_parrot(&client, json!({})).await)[0].clone());
        }
        assert_eq!(ids[0], "s-20260102020000");
        let tag = ids[1].strip_prefix("s-20260102020000-").unwrap();
        assert_eq!(tag.len(), 4, "{ids:?}");
    }
}

#[tokio::test]
async fn the_closest_workspace_wins_and_is_kept_by_the_session() {
    for era in ERAS {
        let (client, _) = connect(&agent_gateway().await, None, era).await;
        let mut lines = Vec::new();
        for arguments in [
            json!({}),
            // D14
            json!({"workspaceContext": {"workspaceId": "a"}, "context": {"workspaceId": "b"}}),
            json!({}),
            json!({"context": {"workspaceId": "b"}}),
            json!({}),
            // D15
            json!({"workspaceContext": r#"{"workspaceId": "c"}"#}),
            json!({"workspaceContext": "{", "context": {"workspaceId": "d"}}),
            // D16
            json!({"workspaceContext": {"workspaceId": ""}, "context": {"workspaceId": " "}}),
            // D17
            json!({"answer": {"content": [], "structuredContent": {"workspaceContext": {"workspaceId": "e"}}}}),
            json!({}),
            // Failed calls bind nothing.
            json!({"answer": "no", "context": {"workspaceId": "f"}}),
            json!({"answer": {"content": [], "isError": true}, "context": {"workspaceId": "f"}}),
            json!({}),
        ] {
            let shown = arguments.to_string();
            let mut arguments = arguments;
            arguments["sessionId"] = "s-20200102030405".into();
            let [_, workspace, source] = session_note(&call_parrot(&client, arguments).await);
            lines.push(format!("{shown} -> {workspace} ({source})"));
        }
        insta::allow_duplicates! { insta::assert_snapshot!(lines.join("\n"), @r#"
        {} -> default (default)
        {"workspaceContext":{"workspaceId":"a"},"context":{"workspaceId":"b"}} -> a (workspaceContext)
        {} -> a (session)
        {"context":{"workspaceId":"b"}} -> b (context)
        {} -> b (session)
        {"workspaceContext":"{\"workspaceId\": \"c\"}"} -> c (workspaceContext)
        {"workspaceContext":"{","context":{"workspaceId":"d"}} -> d (context)
        {"workspaceContext":{"workspaceId":""},"context":{"workspaceId":" "}} -> d (session)
        {"answer":{"content":[],"structuredContent":{"workspaceContext":{"workspaceId":"e"}}}} -> d (session)
        {} -> e (session)
        {"answer":"no","context":{"workspaceId":"f"}} -> f (context)
        {"answer":{"content":[],"isError":true},"context":{"workspaceId":"f"}} -> f (context)
        {} -> e (session)
        "#); }
    }
}

#[tokio::test]
async fn results_pass_unchanged_except_for_the_session_note() {
    let (client, _) = connect(&agent_gateway().await, None, Era::Session).await;
    let answer = json!({"content": [], "odd": 1.50, "_meta": {"own": true}});
    let first = call_parrot(&client, json!({"answer": answer, "sessionId": "s-20200102030405"})).await;
    insta::assert_snapshot!(first, @r#"{"content":[],"odd":1.5,"_meta":{"own":true,"pegboard/session":{"sessionId":"s-20200102030405","workspaceId":"default","workspaceSource":"default"}}}"#);
    let second = call_parrot(&client, json!({"answer": answer, "sessionId": "s-20200102030405"})).await;
    insta::assert_snapshot!(second, @r#"{"content":[],"odd":1.5,"_meta":{"own":true,"pegboard/session":{"sessionId":"s-20200102030405","workspaceId":"default","workspaceSource":"default"}}}"#);
}

fn all_traces() -> TraceQuery {
    TraceQuery { scope: OwnerScope::All, workspace: None, session: None, limit: 100 }
}

async fn trace_records(era: Era, calls: Vec<Value>, trace_payloads: bool) -> Vec<TraceRecord> {
    let traces = Arc::new(Database::in_memory());
    let settings = RuntimeSettings { trace_payloads, ..RuntimeSettings::default() };
    let builder = runtime_builder().settings(settings).call_log(Arc::clone(&traces) as _);
    let runtime = builder.start().await.unwrap();
    let (client, _) = connect(&gateway(&runtime, json!({"expose": "agent"})), None, era).await;
    for arguments in calls {
        call(&client, "vault__odd", arguments).await;
    }
    runtime.shut_down(Duration::from_secs(1)).await;
    let mut records = traces.traces(all_traces()).await.unwrap();
    records.reverse();
    records
}

#[tokio::test]
async fn calls_are_recorded_as_traces() {
    for era in ERAS {
        let context = json!({"sessionId": "s-20200102030405", "workspaceId": "w", "primaryGoal": "save"});
        let error_result = json!({"content": [], "isError": true});
        let with_files = json!({"content": [], "structuredContent": {"files": ["b.md", "a.md"]}});
        let calls = vec![
            json!({"mode": "parrot", "filePath": "a.md", "paths": ["a.md", " "], "answer": with_files, "context": context}),
            json!({"mode": "parrot", "query": "cheap", "answer": "no money", "context": context}),
            json!({"mode": "parrot", "answer": error_result, "context": context}),
        ];
        let records = trace_records(era, calls, true).await;
        // D20
        let contents: Vec<&str> = records.iter().map(|record| record.content.as_str()).collect();
        assert_eq!(
            contents,
            [
                "Successfully executed odd.parrot on file: a.md",
                r#"Failed to execute odd.parrot with query: "cheap""#,
                "Failed to execute odd.parrot",
            ]
        );
        let first = &records[0];
        assert_eq!(
            (&*first.session_id, &*first.workspace_id, &*first.kind),
            ("s-20200102030405", "w", "tool_call")
        );
        // D21, D23, D24
        insta::allow_duplicates! {
            insta::assert_snapshot!(first.metadata, @r#"{"schemaVersion":1,"tool":{"id":"odd.parrot","agent":"odd","mode":"parrot"},"context":{"workspaceId":"w","sessionId":"s-20200102030405","primaryGoal":"save"},"input":{"arguments":{"filePath":"a.md","paths":["a.md"," "],"answer":{"content":[],"structuredContent":{"files":["b.md","a.md"]}}},"files":["a.md","b.md"]},"outcome":{"success":true}}"#);
            insta::assert_snapshot!(records[1].metadata["outcome"], @r#"{"success":false,"error":{"type":"execution_error","message":"no money"}}"#);
            insta::assert_snapshot!(records[2].metadata["outcome"], @r#"{"success":false,"error":{"type":"tool_error","message":"Unknown error"}}"#);
        }
    }
}

#[tokio::test]
async fn without_payloads_a_record_has_nothing_of_the_arguments_and_the_answer() {
    for era in ERAS {
        let context = json!({"sessionId": "s-20200102030405", "primaryGoal": "save"});
        let answer = json!({"content": [], "structuredContent": {"files": ["secret-4.md"]}});
        let calls = vec![
            json!({"mode": "parrot", "filePath": "secret-1.md", "paths": ["secret-2.md"], "note": "secret-3", "answer": answer, "context": context}),
            json!({"mode": "parrot", "query": "secret-5", "answer": answer, "context": context}),
        ];
        for record in trace_records(era, calls, false).await {
            let record = serde_json::to_string(&record).unwrap();
            assert!(!record.contains("secret"), "{record}");
            assert!(
                record.contains(r#""input":{"arguments":{"omitted":"tracePayloads is off"},"files":[]}"#)
            );
            assert!(record.contains("Successfully executed odd.parrot\"") && record.contains("save"));
        }
    }
}

/// A log that cannot be written.
struct BrokenLog;

impl CallLog for BrokenLog {
    fn append(&self, _batch: LogBatch, _now: SystemTime) -> StoreFuture<'_, RefusedEntries> {
        Box::pin(async { Err(StoreError::Failed { reason: "it is broken".to_owned() }) })
    }

    fn calls_by_id(
        &self,
        _: OwnerScope,
        _: Vec<String>,
        _: SystemTime,
    ) -> StoreFuture<'_, Vec<FinishedCall>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn calls(&self, _: CallQuery, _: SystemTime) -> StoreFuture<'_, Vec<CallSummary>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn sessions(&self, _: OwnerScope, _: usize, _: SystemTime) -> StoreFuture<'_, Vec<SessionSummary>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn traces(&self, _query: TraceQuery) -> StoreFuture<'_, Vec<TraceRecord>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

#[tokio::test]
async fn a_failing_call_log_does_not_fail_the_call() {
    // D22
    for era in ERAS {
        let runtime = runtime_builder().call_log(Arc::new(BrokenLog)).start().await.unwrap();
        let (client, _) = connect(&gateway(&runtime, json!({"expose": "agent"})), None, era).await;
        assert_eq!(text(&call_parrot(&client, json!({})).await), "nothing to say");
    }
}

#[tokio::test]
async fn a_call_outside_a_session_is_not_traced() {
    // D22
    let traces = Arc::new(Database::in_memory());
    let runtime = runtime_builder().call_log(Arc::clone(&traces) as _).start().await.unwrap();
    let gateway = gateway(&runtime, json!({"expose": "flat"}));
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        let context = json!({"sessionId": "budget work"});
        // Under a flat name, all arguments are the tool's own.
        let result = call(&client, "my_git__log", json!({"context": context})).await;
        assert_eq!(text(&result), r#"my_git/log {"context":{"sessionId":"budget work"}}"#);
        assert_eq!(session_note(&result), ["", "", ""]);
        let result = call(&client, "my_git_log", json!({})).await;
        assert_eq!((text(&result).as_str(), session_line(&result)), ("my_git/log {}", None));
    }
    runtime.shut_down(Duration::from_secs(1)).await;
    let query = all_traces();
    assert_eq!(traces.traces(query).await.unwrap(), []);
}

#[tokio::test]
async fn context_arguments_work_on_every_surface_under_agent_mode_names() {
    let traces = Arc::new(Database::in_memory());
    let runtime = runtime_builder().call_log(Arc::clone(&traces) as _).start().await.unwrap();
    let gateway = gateway(&runtime, json!({}));
    for era in ERAS {
        for profile in ["flat", "hybrid", "agent"] {
            let (client, _) = connect(&gateway, Some(profile), era).await;
            let context = json!({"sessionId": "budget work", "workspaceId": "w"});
            let result = call(&client, "my_git_log", json!({"n": 1, "context": context})).await;
            assert_eq!(text(&result), r#"my_git/log {"n":1}"#);
            assert_eq!(session_note(&result)[1..], ["w", "context"]);
        }
    }
    runtime.shut_down(Duration::from_secs(1)).await;
    let query = TraceQuery { workspace: Some("w".to_owned()), ..all_traces() };
    assert_eq!(traces.traces(query).await.unwrap().len(), 6);
}

#[tokio::test]
async fn an_unknown_tool_creates_no_session() {
    let sessions = Arc::new(Database::in_memory());
    let runtime = runtime_builder().sessions(Arc::clone(&sessions) as _).start().await.unwrap();
    let (client, _) = connect(&gateway(&runtime, json!({"expose": "agent"})), None, Era::Session).await;
    call(&client, "contentManager", json!({"mode": "nope", "sessionId": "budget work"})).await;
    let now = SystemTime::now();
    assert_eq!(sessions.list(OwnerScope::All, 10, now).await.unwrap(), []);
}
