//! Agents and their modes, sessions, workspaces and traces through the program.

use pegboard::owner::OwnerScope;
use pegboard::store::{CallLog, TraceQuery, TraceRecord};
use pegboard::stores::sqlite::Database;
use pegboard::wire::client::{Era, McpClient};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time;

use crate::harness::{
    CLIENT_KINDS, ConnectedClient, TEST_TIMEOUT, TestEnvironment, Transport, call, listed_once, text,
    with_every_client,
};
use crate::lifecycle::signal;

fn agents(environment: &TestEnvironment) -> Value {
    let servers = json!({
        "contentManager": environment.server("contentManager", &["readContent", "listContent"]),
        "my_git": environment.server("my_git", &["log", "git_log"]),
        "odd": environment.server("odd", &["parrot", "rpcerr"]),
    });
    json!({"toolboxes": {"vault": {"description": "Notes and files.", "mcpServers": servers}}})
}

/// Session and workspace of a call, and their source.
fn place(result: &Value) -> [String; 3] {
    let note = &result["_meta"]["pegboard/session"];
    ["sessionId", "workspaceId", "workspaceSource"]
        .map(|name| note[name].as_str().unwrap_or_default().to_owned())
}

/// Line of a text that names the session.
fn notice(result: &Value) -> Option<&str> {
    let last = result["content"].as_array().unwrap().last()?;
    last["text"].as_str().filter(|text| text.starts_with("Session s-"))
}

/// Calls an agent that echoes its input.
async fn parrot(client: &McpClient, mut arguments: Value) -> Value {
    arguments["mode"] = "parrot".into();
    call(client, "odd", arguments).await
}

#[tokio::test]
async fn every_server_is_one_tool_with_all_modes() {
    with_every_client(agents, Some("agent"), async |connected| {
        // D5, D28
        let tools = listed_once(&connected.client, 3).await;
        let of_each: Vec<String> = tools
            .iter()
            .map(|tool| {
                format!("{} {} {}", tool["name"], tool["title"], tool["inputSchema"]["properties"]["mode"])
            })
            .collect();
        insta::allow_duplicates! {
            insta::assert_snapshot!(of_each.join("\n"), @r#"
            "contentManager" "Content Manager" {"type":"string","enum":["readContent","listContent"]}
            "my_git" "My Git" {"type":"string","enum":["log","git_log"]}
            "odd" "Odd" {"type":"string","enum":["parrot","rpcerr"]}
            "#);
        }
    })
    .await;
}

#[tokio::test]
async fn a_name_and_a_mode_select_the_tool() {
    let spellings = [
        // D1, D4
        ("contentManager", json!({"mode": "listContent", "n": 1})),
        ("contentManager", json!({})),
        // D2
        ("contentManager_my_vault", json!({"mode": "listContent"})),
        ("contentManager_my_vault", json!({})),
        // D3
        ("contentManager_readContent", json!({"mode": "listContent"})),
        ("contentManager_readContent", json!({"mode": " "})),
        ("contentManager_readContent", json!({})),
        // D27: the longest server name wins.
        ("my_git_log", json!({})),
        ("my_git_git_log", json!({})),
        ("my_git", json!({"mode": "log"})),
    ];
    with_every_client(agents, Some("agent"), async |connected| {
        let mut lines = Vec::new();
        for (name, arguments) in &spellings {
            let said = text(&call(&connected.client, name, arguments.clone()).await);
            lines.push(format!("{name} {arguments} -> {said}"));
        }
        insta::allow_duplicates! {
            insta::assert_snapshot!(lines.join("\n"), @r#"
            contentManager {"mode":"listContent","n":1} -> contentManager/listContent {"n":1}
            contentManager {} -> isError: Agent 'contentManager' needs a mode. Give `mode`: one of readContent, listContent.
            contentManager_my_vault {"mode":"listContent"} -> contentManager/listContent {}
            contentManager_my_vault {} -> isError: Agent 'contentManager' has no mode 'my_vault'. Give `mode`: one of readContent, listContent.
            contentManager_readContent {"mode":"listContent"} -> contentManager/listContent {}
            contentManager_readContent {"mode":" "} -> contentManager/readContent {}
            contentManager_readContent {} -> contentManager/readContent {}
            my_git_log {} -> my_git/log {}
            my_git_git_log {} -> my_git/git_log {}
            my_git {"mode":"log"} -> my_git/log {}
            "#);
        }
        // D25
        for (name, arguments) in [("contentManager", json!({})), ("odd", json!({"mode": "rpcerr"}))] {
            let result = call(&connected.client, name, arguments).await;
            assert_eq!(result["isError"], true, "{result}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_without_a_session_gets_one_and_its_tool_does_not_see_it() {
    with_every_client(agents, Some("agent"), async |connected| {
        // D10, D19
        let arguments =
            json!({"mode": "log", "n": 1, "context": {"workspaceId": "w"}, "workspaceContext": {}});
        let first = call(&connected.client, "my_git", arguments).await;
        assert_eq!(text(&first), r#"my_git/log {"n":1}"#);
        let [session, ..] = place(&first);
        let stamp = session.strip_prefix("s-").unwrap();
        assert!(stamp.len() >= 14 && stamp[..14].bytes().all(|byte| byte.is_ascii_digit()), "{session}");
        assert_eq!(notice(&first), None, "only a name of the caller's own is answered with an id");
        // D18: sessions started in the same second are distinct.
        let second = call(&connected.client, "my_git", json!({"mode": "log", "sessionId": "another"})).await;
        let [other, ..] = place(&second);
        assert!(other.starts_with("s-") && other != session, "{other}");
    })
    .await;
}

#[tokio::test]
async fn sessions_are_named_by_id_or_label() {
    with_every_client(agents, Some("agent"), async |connected| {
        // D11
        let named = || json!({"context": {"sessionId": "budget work"}});
        let (first, second) =
            (parrot(&connected.client, named()).await, parrot(&connected.client, named()).await);
        let [id, ..] = place(&first);
        assert!(notice(&first).unwrap().contains(r#"for "budget work""#), "{first}");
        assert_eq!((&place(&second)[0], notice(&second)), (&id, None));
        // D12
        let unknown = json!({"context": {"sessionId": "s-20200102030405"}});
        assert_eq!(place(&parrot(&connected.client, unknown).await)[0], "s-20200102030405");
        // D13
        let above = json!({"sessionId": "s-20200102030405", "context": {"workspaceId": "w"}});
        assert_eq!(place(&parrot(&connected.client, above).await)[0], "s-20200102030405");
        let both = json!({"sessionId": "s-20200102030405", "context": {"sessionId": "budget work"}});
        assert_eq!(place(&parrot(&connected.client, both).await)[0], id);
    })
    .await;
}

#[tokio::test]
async fn the_most_specific_workspace_wins_and_stays_with_the_session() {
    let cases = [
        (json!({}), ["default", "default"]),
        // D14
        (
            json!({"workspaceContext": {"workspaceId": "a"}, "context": {"workspaceId": "b"}}),
            ["a", "workspaceContext"],
        ),
        (json!({"context": {"workspaceId": "b"}}), ["b", "context"]),
        (json!({}), ["b", "session"]),
        // D15
        (json!({"workspaceContext": r#"{"workspaceId": "c"}"#}), ["c", "workspaceContext"]),
        (json!({"workspaceContext": "{", "context": {"workspaceId": "d"}}), ["d", "context"]),
        // D16
        (json!({"workspaceContext": {"workspaceId": ""}, "context": {"workspaceId": ""}}), ["d", "session"]),
        // D17
        (
            json!({"answer": {"content": [], "structuredContent": {"workspaceContext": {"workspaceId": "e"}}}}),
            ["d", "session"],
        ),
        (json!({}), ["e", "session"]),
    ];
    with_every_client(agents, Some("agent"), async |connected| {
        for (arguments, expected) in &cases {
            let mut said = arguments.clone();
            said["sessionId"] = "s-20200102030405".into();
            let [_, workspace, source] = place(&parrot(&connected.client, said).await);
            assert_eq!([workspace.as_str(), source.as_str()], *expected, "{arguments}");
        }
    })
    .await;
}

/// Makes calls, shuts down the gateway, and returns the recorded trace.
async fn traced(profile: &str, kind: (Transport, Era), calls: &[(&str, Value)]) -> Vec<TraceRecord> {
    let environment = TestEnvironment::new();
    let mut configuration = agents(&environment);
    (configuration["pegboard"], configuration["tracePayloads"]) = (1.into(), true.into());
    let file = environment.write("workbench-config.json", &configuration.to_string());
    let connected = ConnectedClient::connect(environment, &file, Some(profile), kind).await;
    for (name, arguments) in calls {
        call(&connected.client, name, arguments.clone()).await;
    }
    let ConnectedClient { client: _client, environment, mut gateway, .. } = connected;
    signal(&gateway, Signal::TERM);
    time::timeout(TEST_TIMEOUT, gateway.wait()).await.unwrap().unwrap();
    let traces = Database::open(&environment.folder().join("state").join("pegboard.db")).unwrap();
    let query = TraceQuery { scope: OwnerScope::All, workspace: None, session: None, limit: 100 };
    let mut records = traces.traces(query).await.unwrap();
    records.reverse();
    records
}

#[tokio::test]
async fn calls_of_a_session_are_recorded() {
    let context = json!({"sessionId": "s-20200102030405", "workspaceId": "w", "primaryGoal": "save"});
    let with_files = json!({"content": [], "structuredContent": {"files": ["b.md", "a.md"]}});
    let calls = [
        (
            "odd",
            json!({"mode": "parrot", "filePath": "a.md", "paths": ["a.md"], "answer": with_files, "context": context}),
        ),
        ("odd", json!({"mode": "rpcerr", "query": "cheap", "context": context})),
        ("odd", json!({"mode": "parrot", "answer": {"content": [], "isError": true}, "context": context})),
    ];
    // A shared gateway outlives its client.
    for kind in CLIENT_KINDS.into_iter().filter(|(transport, _)| *transport != Transport::Shared) {
        let records = traced("agent", kind, &calls).await;
        // D20
        let contents: Vec<&str> = records.iter().map(|record| record.content.as_str()).collect();
        assert_eq!(
            contents,
            [
                "Successfully executed odd.parrot on file: a.md",
                r#"Failed to execute odd.rpcerr with query: "cheap""#,
                "Failed to execute odd.parrot",
            ]
        );
        // D21, D23, D24
        insta::allow_duplicates! {
            insta::assert_snapshot!(records[0].metadata, @r#"{"schemaVersion":1,"tool":{"id":"odd.parrot","agent":"odd","mode":"parrot"},"context":{"workspaceId":"w","sessionId":"s-20200102030405","primaryGoal":"save"},"input":{"arguments":{"filePath":"a.md","paths":["a.md"],"answer":{"content":[],"structuredContent":{"files":["b.md","a.md"]}}},"files":["a.md","b.md"]},"outcome":{"success":true}}"#);
            insta::assert_snapshot!(records[2].metadata["outcome"], @r#"{"success":false,"error":{"type":"tool_error","message":"Unknown error"}}"#);
        }
    }
}

#[tokio::test]
async fn calls_without_a_session_are_not_recorded() {
    // D22
    for kind in CLIENT_KINDS {
        assert_eq!(traced("flat", kind, &[("my_git__log", json!({}))]).await, []);
    }
}

#[tokio::test]
async fn calls_work_without_a_state_directory() {
    // D22
    for kind in CLIENT_KINDS {
        let environment = TestEnvironment::new();
        let file = environment.write("workbench-config.json", &agents(&environment).to_string());
        environment.write("no-folder", "");
        let place = environment.folder().join("no-folder").display().to_string();
        let connected = ConnectedClient::connect_with(
            environment,
            &file,
            Some("agent"),
            kind,
            &[("PEGBOARD_STATE", &place)],
        )
        .await;
        let said = parrot(&connected.client, json!({"context": {"sessionId": "budget work"}})).await;
        assert_eq!(text(&said), "nothing to say");
    }
}
