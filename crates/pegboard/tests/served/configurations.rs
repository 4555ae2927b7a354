//! Configurations: variables, and errors.

use std::path::Path;

use pegboard::wire::client::Era;
use serde_json::{Value, json};

use crate::harness::{CLIENT_KINDS, ConnectedClient, TestEnvironment, Transport, open, text, use_tool};

/// Serves an invalid file; returns the output and exit code.
async fn refused(
    environment: &TestEnvironment,
    name: &str,
    content: &str,
    variables: &[(&str, &str)],
) -> String {
    let file = environment.write(name, content);
    exit_of(environment, Some(&file), variables).await
}

async fn exit_of(environment: &TestEnvironment, file: Option<&Path>, variables: &[(&str, &str)]) -> String {
    let mut command = environment.command(crate::harness::PROGRAM);
    command.arg("serve").args(file).args(["--stdio", "--no-daemon"]).envs(variables.iter().copied());
    let output = command.stdin(std::process::Stdio::null()).output().await.unwrap();
    assert!(output.stdout.is_empty(), "standard output is for the protocol alone");
    let said = String::from_utf8(output.stderr).unwrap();
    let said = said.replace(&environment.folder().display().to_string(), "FOLDER");
    format!("{}exit {}\n", said, output.status.code().unwrap())
}

fn toolbox(description: &str, servers: &Value) -> String {
    json!({"toolboxes": {"t": {"description": description, "mcpServers": servers}}}).to_string()
}

/// Value that a server sees for a variable in the configuration.
async fn filled_in(written: Value, variables: &[(&str, &str)]) -> Value {
    let mut heard = Vec::new();
    for kind in [CLIENT_KINDS[0], CLIENT_KINDS[3]] {
        let environment = TestEnvironment::new();
        let mut server = environment.server("s", &["environment"]);
        server["env"] = written.clone();
        let file = environment.write("workbench-config.json", &toolbox("T", &json!({"s": server})));
        let connected = ConnectedClient::connect_with(environment, &file, None, kind, variables).await;
        open(&connected.client, "t").await;
        let said = text(&use_tool(&connected.client, ["t", "s", "environment"], json!({})).await);
        heard.push(serde_json::from_str::<Value>(&said).unwrap());
    }
    assert_eq!(heard[0], heard[1]);
    heard.remove(0)
}

#[tokio::test]
async fn variables_are_filled_in_once() {
    let written = json!({
        // A26
        "SAID_BOTH": "${A}:${B}",
        "SAID_DEFAULT": "${UNSET:-def}",
        "SAID_EMPTY": "${EMPTY:-def}",
        "SAID_NOTHING": "${UNSET:-}",
        // A29
        "SAID_DOLLARS": "${PASSWORD}",
        "SAID_AMPERSAND": "${AMPERSAND}",
        "SAID_LINES": "${LINES_OF_TEXT}",
        "SAID_NEST": "${NEST}",
        // A30
        "SAID_${A}k": "key",
        "SAID_NUMBER": 5,
        "SAID_TRUE": true,
    });
    let variables = [
        ("A", "1"),
        ("B", "2"),
        ("EMPTY", ""),
        ("PASSWORD", "p@$$w0rd!"),
        ("AMPERSAND", "$&x"),
        ("LINES_OF_TEXT", "one\ntwo"),
        ("NEST", "${A}"),
    ];
    let expected = json!({
        "SAID_BOTH": "1:2",
        "SAID_DEFAULT": "def",
        "SAID_EMPTY": "",
        "SAID_NOTHING": "",
        "SAID_DOLLARS": "p@$$w0rd!",
        "SAID_AMPERSAND": "$&x",
        "SAID_LINES": "one\ntwo",
        "SAID_NEST": "${A}",
        "SAID_1k": "key",
        "SAID_NUMBER": "5",
        "SAID_TRUE": "true",
    });
    assert_eq!(filled_in(written, &variables).await, expected);
}

#[tokio::test]
async fn an_unset_variable_outside_servers_rejects_the_file() {
    let environment = TestEnvironment::new();
    let server = json!({"s": {"command": "x"}});
    // A27, A28
    let mut said = String::new();
    for description in ["For ${UNSET}", "${A", "${A} and ${B"] {
        said +=
            &refused(&environment, "workbench-config.json", &toolbox(description, &server), &[("A", "1")])
                .await;
    }
    insta::assert_snapshot!(said, @r#"
    error[config_invalid]: FOLDER/workbench-config.json:1:39  config.toolboxes.t.description
       1 | {"toolboxes":{"t":{"description":"For ${UNSET}","mcpServers":{"s":{"command":"x"}}}}}
         |                                       ^^^^^^^^ the variable UNSET is not set
      help: export UNSET=…, or add a default: ${UNSET:-}
    1 error: this file was not loaded
    exit 3
    error[config_invalid]: FOLDER/workbench-config.json:1:35  config.toolboxes.t.description
       1 | {"toolboxes":{"t":{"description":"${A","mcpServers":{"s":{"command":"x"}}}}}
         |                                   ^^^ Malformed syntax: unclosed brace
      help: close it with }, or use $${ for a literal ${
    1 error: this file was not loaded
    exit 3
    error[config_invalid]: FOLDER/workbench-config.json:1:44  config.toolboxes.t.description
       1 | {"toolboxes":{"t":{"description":"${A} and ${B","mcpServers":{"s":{"command":"x"}}}}}
         |                                            ^^^ Malformed syntax: unclosed brace
      help: close it with }, or use $${ for a literal ${
    1 error: this file was not loaded
    exit 3
    "#);
}

#[tokio::test]
async fn an_unset_variable_disables_only_its_server() {
    // A27
    for kind in [CLIENT_KINDS[0], CLIENT_KINDS[2]] {
        let environment = TestEnvironment::new();
        let servers = json!({
            "lacking": {"command": "x", "env": {"TOKEN": "${UNSET}"}},
            "whole": environment.server("whole", &["x"]),
        });
        let file = environment.write("workbench-config.json", &toolbox("T", &servers));
        let connected = ConnectedClient::connect(environment, &file, None, kind).await;
        let opened = open(&connected.client, "t").await;
        assert_eq!(
            (&opened["servers_connected"], &opened["tools"][0]["server"]),
            (&json!(1), &json!("whole"))
        );
        insta::allow_duplicates! {
            insta::assert_snapshot!(opened["servers_failed"], @r#"[{"server":"lacking","error":"MCP server 'lacking' cannot be used: needs: UNSET"}]"#);
        }
    }
}

/// Files that are invalid as a whole.
fn wrong_files() -> Vec<String> {
    let server = r#"{"s": {"command": "x"}}"#;
    vec![
        r#"{"_comment": "nothing else"}"#.to_owned(),
        format!(r#"{{"toolboxes": {{"t": {{"mcpServers": {server}}}}}}}"#),
        r#"{"toolboxes": {"t": {"description": "T"}}}"#.to_owned(),
        r#"{"toolboxes": {"t": {"description": "T", "mcpServers": {}}}}"#.to_owned(),
        r#"{"toolboxes": {"t": {"description": "T", "mcpServers": {"s": {"command": "x", "args": "-y"}}}}}"#
            .to_owned(),
        r#"{"toolboxes": {"t": {"description": "T", "mcpServers": {"s": {"command": "x", "env": []}}}}}"#
            .to_owned(),
        format!(
            r#"{{"toolMode": "dynamic", "toolboxes": {{"t": {{"description": "T", "mcpServers": {server}}}}}}}"#
        ),
        r#"{"toolboxes": "#.to_owned(),
    ]
}

#[tokio::test]
async fn an_invalid_file_is_reported_before_serving() {
    let environment = TestEnvironment::new();
    // A31
    let mut said = String::new();
    for case in wrong_files() {
        said += &refused(&environment, "workbench-config.json", &case, &[]).await;
    }
    insta::assert_snapshot!(said, @r#"
    error[config_invalid]: FOLDER/workbench-config.json:1:1  config.toolboxes
       1 | {"_comment": "nothing else"}
         | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ Configuration must have a 'toolboxes' object
    1 error: this file was not loaded
    exit 3
    error[config_invalid]: FOLDER/workbench-config.json:1:16  config.toolboxes.t.description
       1 | {"toolboxes": {"t": {"mcpServers": {"s": {"command": "x"}}}}}
         |                ^^^ Toolbox 't' must have a description
      help: describe its purpose in a sentence: models choose by it
    1 error: this file was not loaded
    exit 3
    error[config_invalid]: FOLDER/workbench-config.json:1:16  config.toolboxes.t.mcpServers
       1 | {"toolboxes": {"t": {"description": "T"}}}
         |                ^^^ Toolbox 't' must have an 'mcpServers' object
    1 error: this file was not loaded
    exit 3
    error[config_invalid]: FOLDER/workbench-config.json:1:56  config.toolboxes.t.mcpServers
       1 | {"toolboxes": {"t": {"description": "T", "mcpServers": {}}}}
         |                                                        ^^ Toolbox 't' must have at least one MCP server
    1 error: this file was not loaded
    exit 3
    error[config_invalid]: FOLDER/workbench-config.json:1:87  config.toolboxes.t.mcpServers.s.args
       1 | …ription": "T", "mcpServers": {"s": {"command": "x", "args": "-y"}}}}}
         |                                                              ^^^^ Server 's' in toolbox 't': 'args' must be an array
    1 error: this file was not loaded
    exit 3
    error[config_invalid]: FOLDER/workbench-config.json:1:86  config.toolboxes.t.mcpServers.s.env
       1 | …cription": "T", "mcpServers": {"s": {"command": "x", "env": []}}}}}
         |                                                              ^^ Server 's' in toolbox 't': 'env' must be an object
    1 error: this file was not loaded
    exit 3
    error[config_invalid]: FOLDER/workbench-config.json:1:14  config.toolMode
       1 | {"toolMode": "dynamic", "toolboxes": {"t": {"description": "T", "mcpServers": {"s"…
         |              ^^^^^^^^^ toolMode 'dynamic' was removed: use open_toolbox and use_tool
      help: remove toolMode; to list every tool, use a pegboard.json with expose: flat
    1 error: this file was not loaded
    exit 3
    error[config_invalid]: FOLDER/workbench-config.json:1:15
       1 | {"toolboxes": 
         |               ^ Invalid JSON in config file: Expected value after colon in object property
    1 error: this file was not loaded
    exit 3
    "#);
}

#[tokio::test]
async fn a_server_without_a_command_is_skipped_and_an_empty_file_is_valid() {
    // A31
    let environment = TestEnvironment::new();
    let servers =
        json!({"bare": {}, "far": {"transport": "http"}, "whole": environment.server("whole", &["x"])});
    let file = environment.write("workbench-config.json", &toolbox("T", &servers));
    let connected =
        ConnectedClient::connect(environment, &file, None, (Transport::Stdio, Era::Session)).await;
    let opened = open(&connected.client, "t").await;
    assert_eq!(opened["servers_connected"], 1);
    let failed = opened["servers_failed"].as_array().unwrap();
    let failed: Vec<&str> = failed.iter().map(|failed| failed["error"].as_str().unwrap()).collect();
    insta::assert_snapshot!(failed.join("\n"), @r#"
    MCP server 'bare' cannot be used: config.toolboxes.t.mcpServers.bare: Stdio MCP server 'bare' requires a string 'command'
    MCP server 'far' cannot be used: config.toolboxes.t.mcpServers.far: HTTP MCP server 'far' requires a 'url'
    "#);

    let environment = TestEnvironment::new();
    let file = environment.write("workbench-config.json", r#"{"toolMode": "proxy", "toolboxes": {}}"#);
    let connected =
        ConnectedClient::connect(environment, &file, None, (Transport::Stdio, Era::Session)).await;
    insta::assert_snapshot!(connected.client.server().instructions.as_deref().unwrap(), @r#"No toolboxes are configured, so there are no tools to use. Add a toolbox with at least one server to the configuration."#);
}

#[tokio::test]
async fn the_file_is_found_by_variable_or_name() {
    // A31
    let environment = TestEnvironment::new();
    let mut said = exit_of(&environment, None, &[("WORKBENCH_CONFIG", "nowhere.json")]).await;
    environment.write("workbench-config.json", "[]");
    environment.write("mine.json", "5");
    said += &exit_of(&environment, None, &[]).await;
    said += &exit_of(&environment, None, &[("WORKBENCH_CONFIG", "mine.json")]).await;
    insta::assert_snapshot!(said, @r#"
    error[not_found]: FOLDER/nowhere.json: no such file. Check the path, or create it: {"mcpServers": {"files": {"command": "my-server"}}}
    exit 4
    error[config_invalid]: FOLDER/workbench-config.json:1:1  config
       1 | []
         | ^^ a configuration must be an object of settings, not a list
    1 error: this file was not loaded
    exit 3
    error[config_invalid]: FOLDER/mine.json:1:1
       1 | 5
         | ^ a configuration must be an object of settings, not a number
    1 error: this file was not loaded
    exit 3
    "#);
}
