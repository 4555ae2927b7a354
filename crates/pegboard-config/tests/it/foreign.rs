//! Files of other programs that are invalid, unusual or ambiguous.

use std::fs;
use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use pegboard_config::{ConfigProblem, ConfigurationError};
use serde_json::{Value, json};

use super::dialects::summarize;
use super::{environment, load_text};

/// Loads a text as a file with this name and summarizes it.
fn read(name: &str, text: &str) -> String {
    match load_text(name, text) {
        Ok(configuration) => summarize(&configuration),
        Err(error) => {
            let messages = error.problems().iter().map(|problem| problem.message.clone());
            messages.collect::<Vec<_>>().join("\n")
        }
    }
}

/// Returns all fixtures.
fn fixtures() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if !["txt", "env"]
                .iter()
                .any(|ending| path.extension().is_some_and(|found| found == *ending))
            {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(Path::new("tests/fixtures"), &mut found);
    found.sort();
    assert!(found.len() > 30);
    found
}

#[test]
fn secrets_are_in_no_message() {
    let secrets = [
        "secret-token",
        "another-secret",
        "hf_0123456789",
        "abcdef",
        "pa$$word",
        "a-token-of-mine",
        "2b$10$hash",
        "ghp_0123456789",
        "sk-from-outside",
        "from-a-file",
        "typed-by-ada",
        "12345",
    ];
    for path in fixtures() {
        let configuration = pegboard_config::load(&path, &environment).unwrap();
        for rendered in configuration.problems.iter().map(ConfigProblem::render) {
            assert_eq!(secrets.iter().find(|secret| rendered.contains(*secret)), None, "{rendered}");
        }
    }
}

#[test]
fn a_value_of_the_wrong_type_never_panics() {
    let wrong = [json!(null), json!(-7.5), json!("${"), json!({"a": {"b": [[]]}})];
    let folder = tempfile::tempdir().unwrap();
    for path in fixtures() {
        let text = fs::read_to_string(&path).unwrap();
        let Ok(root) = serde_json::from_str::<Value>(&text) else { continue };
        let target = folder.path().join(path.file_name().unwrap());
        for pointer in pointers(&root) {
            for value in &wrong {
                let mut changed = root.clone();
                *changed.pointer_mut(&pointer).unwrap() = value.clone();
                fs::write(&target, changed.to_string()).unwrap();
                match pegboard_config::load(&target, &environment) {
                    Ok(_) => {}
                    Err(ConfigurationError::Invalid { problems }) => assert!(!problems.is_empty()),
                    Err(other) => panic!("{} {pointer} {value}: {other}", path.display()),
                }
            }
        }
    }
}

/// Returns the JSON pointers of all values.
fn pointers(root: &Value) -> Vec<String> {
    let inner: Vec<(String, &Value)> = match root {
        Value::Object(entries) => {
            let step = |key: &str| key.replace('~', "~0").replace('/', "~1");
            entries.iter().map(|(key, value)| (step(key), value)).collect()
        }
        Value::Array(items) => items.iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect(),
        _ => Vec::new(),
    };
    let below = inner.into_iter().flat_map(|(step, value)| {
        pointers(value).into_iter().map(move |pointer| format!("/{step}{pointer}"))
    });
    std::iter::once(String::new()).chain(below).collect()
}

#[test]
fn servers_in_two_sections_are_reported() {
    let text = r#"{"mcpServers": {"a": {"command": "a"}}, "servers": {"b": {"command": "b"}},
                   "mcp": {"c": {"type": "local", "command": ["c"]}}}"#;
    assert_snapshot!(read("two.json", text), @"
    mcpServers
    a: a
    warning 1 servers: these servers are ignored: the file also has mcpServers [merge them, or use two files]
    warning 2 mcp: these servers are ignored: the file also has mcpServers [merge them, or use two files]
    ");
}

#[test]
fn native_keys_of_the_wrong_type_are_ignored() {
    let text = r#"{
        "name": "tools of a team", "version": "2", "description": "What we use",
        "mcpServers": {
            "//": "a remark", "_note": {"by": "ada"},
            "_off": {"command": "off", "disabled": true},
            "a": {"command": "a", "args": ["${input:key}"]}
        },
        "inputs": [{"type": "promptString", "id": "key", "description": "Your key", "password": true}],
        "profiles": ["work"], "defaults": true, "chains": "none", "theme": "dark"
    }"#;
    assert_snapshot!(read("mcp.json", text), @"
    mcpServers
    _off: off (off)
    a: (needs: PEGBOARD_INPUT_KEY)
    warning 6 mcpServers.a.args[0]: the variable PEGBOARD_INPUT_KEY is not set [export PEGBOARD_INPUT_KEY=…]
    warning 9 profiles: ignored unknown settings: profiles, defaults, chains, theme
    ");
    let wanted = load_text("mcp.json", text).unwrap().missing_inputs;
    assert_eq!(wanted[0].description.as_deref(), Some("Your key"));
}

#[test]
fn other_settings_of_a_client_are_not_reported() {
    let text = r#"{"preferences": {"menuBar": false}, "mcpServers": {"a": {"command": "a"}}}"#;
    assert_snapshot!(read("claude_desktop_config.json", text), @"
    mcpServers
    a: a
    ");
    assert_snapshot!(read("servers.json", text), @"
    mcpServers
    a: a
    warning 1 preferences: ignored unknown setting: preferences
    ");
}

#[test]
fn timeouts_are_in_the_unit_of_the_program() {
    for (text, expected) in [
        (r#"{"context_servers": {"a": {"command": "a", "timeout": 60}}}"#, "1m"),
        (r#"{"mcp_servers": {"a": {"command": "a", "tool_timeout_sec": 60}}}"#, "1m"),
        (r#"{"extensions": {"a": {"type": "stdio", "cmd": "a", "timeout": 60}}}"#, "1m"),
        (r#"{"mcpServers": {"a": {"command": "a", "timeout": 60}}, "mcp": {"excluded": []}}"#, "60ms"),
        (r#"{"mcpServers": {"a": {"command": "a", "timeout": 6000}}}"#, "6s"),
        (r#"{"mcpServers": {"a": {"command": "a", "timeout": "6000"}}}"#, "6s"),
        (r#"{"mcpServers": {"a": {"command": "a", "timeout": "60s"}}}"#, "1m"),
        (r#"{"context_servers": {"a": {"command": "a", "timeout": "90"}}}"#, "1m30s"),
        (r#"{"context_servers": {"a": {"command": "a", "timeout": "90ms"}}}"#, "90ms"),
    ] {
        let read = read("file.json", text);
        assert!(read.contains(&format!("requestTimeoutMs=\"{expected}\"")), "{text}: {read}");
    }
}

#[test]
fn the_unit_of_a_timeout_is_inferred_from_the_path() {
    let folder = tempfile::tempdir().unwrap();
    for (name, expected) in [
        (".mcp.json", "requestTimeoutMs=\"90ms\""),
        (".kiro/settings/mcp.json", "requestTimeoutMs=\"90ms\""),
        (".amazonq/mcp.json", "requestTimeoutMs=\"90ms\""),
        (".copilot/mcp-config.json", "requestTimeoutMs=\"90ms\""),
        (".lmstudio/mcp.json", "requestTimeoutMs=\"90ms\""),
        (".roo/mcp.json", "requestTimeoutMs=\"1m30s\""),
    ] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, r#"{"mcpServers": {"a": {"command": "a", "timeout": 90}}}"#).unwrap();
        let read = summarize(&pegboard_config::load(&path, &environment).unwrap());
        assert_eq!(read.lines().nth(1), Some(format!("a: a {expected}").as_str()), "{name}");
        assert_eq!(read.lines().count(), 2, "{name}: {read}");
    }
}

#[test]
fn an_ambiguous_timeout_is_reported_once() {
    let text = r#"{"mcpServers": {
        "a": {"command": "a", "timeout": 120000},
        "b": {"command": "b", "timeout": 30000},
        "c": {"command": "c", "timeout": 600},
        "d": {"command": "d", "timeout": "60s"}
    }}"#;
    assert_snapshot!(read(".cursor-mcp.json", text), @r#"
    mcpServers
    a: a requestTimeoutMs="2m"
    b: b requestTimeoutMs="30s"
    c: c
    d: d requestTimeoutMs="1m"
    warning 2 mcpServers.a.timeout: ambiguous unit: assuming milliseconds [set it in a pegboard.yaml with a unit, such as requestTimeoutMs: 60s]
    warning 4 mcpServers.c.timeout: ambiguous unit: the value is ignored [set it in a pegboard.yaml with a unit, such as requestTimeoutMs: 60s]
    "#);
}

#[test]
fn the_dialect_is_detected_by_content() {
    for (text, dialect) in [
        (r#"{"mcpServers": {}}"#, "mcpServers"),
        (r#"{"mcpServers": []}"#, "Continue"),
        (r#"{"servers": {}, "inputs": []}"#, "VS Code"),
        (r#"{"mcp": {"servers": {"a": {"command": "a"}}}}"#, "VS Code"),
        (r#"{"mcp": {"servers": {"a": {"command": ["a"]}}}}"#, "OpenCode"),
        (r#"{"mcp": {"a": {"type": "remote", "url": "https://a.example.com"}}}"#, "OpenCode"),
        (r#"{"mcp": {"a": {"type": "sse", "url": "https://a.example.com"}}}"#, "Crush"),
        (r#"{"mcp": {}, "$schema": "https://charm.land/crush.json"}"#, "Crush"),
        (r#"{"mcp": {}, "$schema": "https://opencode.ai/config.json"}"#, "OpenCode"),
        (r#"{"mcp": {"targets": []}}"#, "agentgateway"),
        (r#"{"binds": []}"#, "agentgateway"),
        (r#"{"context_servers": {}}"#, "Zed"),
        (r#"{"mcp_servers": {}}"#, "Codex"),
        (r#"{"name": "a/b", "remotes": [{"url": "https://a.example.com"}]}"#, "registry"),
        (r#"{"server": {"name": "a/b", "remotes": [{"url": "https://a.example.com"}]}}"#, "registry"),
        (r#"{"swagger": "2.0", "info": {}, "paths": {}}"#, "OpenAPI"),
        (r#"{"a": {"command": "a"}, "b": {"url": "https://b.example.com"}}"#, "servers by name"),
        (r#"{"toolboxes": {"a": {"description": "A", "mcpServers": {"a": {"command": "a"}}}}}"#, "workbench"),
        (r#"{"toolboxes": {"a": {"agents": []}}}"#, "pegboard"),
        (r#"{"pegboard": 1, "mcpServers": {}}"#, "pegboard"),
    ] {
        let read = read("file.json", text);
        assert_eq!(read.lines().next(), Some(dialect), "{text}");
    }
}

#[test]
fn the_dialect_of_an_ambiguous_file_is_detected_by_path() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text, dialect) in [
        (".vscode/mcp.json", r#"{"servers": {}}"#, "VS Code"),
        ("mcp.json", r#"{"servers": {}}"#, "VS Code"),
        ("opencode.json", r#"{"mcp": {}}"#, "OpenCode"),
        ("opencode.jsonc", r#"{"theme": "dark", "mcp": {"a": {"enabled": false}}}"#, "OpenCode"),
        ("crush.json", r#"{"lsp": {}}"#, "Crush"),
        (".gemini/settings.json", r#"{"theme": "dark"}"#, "Gemini CLI"),
        (".qwen/settings.json", "{}", "Gemini CLI"),
        (".continue/config.yaml", "models: []", "Continue"),
        (".config/goose/config.yaml", "extensions: {}", "Goose"),
        (".codex/config.toml", "[agents]\nmax_threads = 4", "Codex"),
        (".cursor/mcp.json", "{}", "mcpServers"),
        (".claude.json", r#"{"theme": "dark"}"#, "Claude Code"),
    ] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let read = summarize(&pegboard_config::load(&path, &environment).unwrap());
        assert!(read.starts_with(dialect), "{name}: {read}");
        assert!(!read.contains("error"), "{name}: {read}");
    }
}

#[test]
fn unrelated_files_are_rejected() {
    for text in [
        r#"{"name": "a-package", "version": "1.0.0", "dependencies": {}}"#,
        r#"{"servers": [{"url": "https://a.example.com"}]}"#,
        r#"{"mcp": {"port": 5}}"#,
        r#"{"extensions": {"recommendations": []}}"#,
        r#"{"version": "2", "agents": {"root": {"model": "large", "instruction": "Help"}}}"#,
        r#"{"a": {"command": "a"}, "b": 5}"#,
    ] {
        assert!(read("file.json", text).starts_with("not a configuration"), "{text}");
    }
}

#[test]
fn sections_of_the_wrong_type_are_reported() {
    for (text, expected) in [
        (r#"{"mcpServers": 5}"#, "expected an object, not a number"),
        (r#"{"context_servers": "a"}"#, "expected an object, not a string"),
        (r#"{"mcp_servers": true}"#, "expected an object, not a boolean"),
    ] {
        assert_eq!(read("file.json", text), expected, "{text}");
    }
}

#[test]
fn an_invalid_server_is_left_out_alone() {
    let text = r#"{"mcp": {
        "good": {"type": "local", "command": ["good"]},
        "number": 5,
        "empty": {"type": "local", "command": []},
        "agent": {"type": "local", "command": ["agent"]},
        "two words": {"type": "local", "command": ["two"]},
        "two/words": {"type": "local", "command": ["more"]},
        "Files - Read & Write": {"type": "local", "command": ["files"]},
        "shape": {"type": "local", "command": ["shape"], "environment": 5, "timeout": "soon"}
    }}"#;
    assert_snapshot!(read("file.json", text), @r#"
    OpenCode
    good: good
    number: (mcp.number: a server must be an object, not a number)
    empty: (mcp.empty: Stdio MCP server 'empty' requires a string 'command')
    my-agent: agent
    two-words: two
    two-words-2: more
    Files-Read-Write: files
    shape: (mcp.shape.environment: expected an object, not a number)
    error 3 mcp.number: a server must be an object, not a number
    error 4 mcp.empty: Stdio MCP server 'empty' requires a string 'command' [set command or url]
    warning 5 mcp.agent: server renamed to my-agent: the name is reserved
    warning 6 mcp["two words"]: server renamed to two-words: names may contain letters, digits, '-' and '_'
    warning 7 mcp["two/words"]: server renamed to two-words-2: the name is taken
    warning 8 mcp["Files - Read & Write"]: server renamed to Files-Read-Write: names may contain letters, digits, '-' and '_'
    error 9 mcp.shape.environment: expected an object, not a number
    error 9 mcp.shape.timeout: duration must be a millisecond number, or a duration like 5m/2h/1d, not 'soon'
    "#);
}

#[test]
fn a_list_of_tool_descriptions_is_not_a_filter() {
    let text = r#"{"mcpServers": {
        "named": {"command": "a", "tools": ["read", "list"]},
        "described": {"command": "b", "tools": [{"name": "read", "description": "Reads"}, {"name": "list"}]}
    }}"#;
    assert_snapshot!(read("mcp.json", text), @r#"
    mcpServers
    named: a toolFilters=["read","list"]
    described: b
    "#);
}

#[test]
fn the_transport_is_inferred_from_the_url() {
    for (entry, expected) in [
        (r#""url": "https://a.example.com/mcp""#, "http https://a.example.com/mcp"),
        (r#""url": "https://a.example.com/sse""#, "sse https://a.example.com/sse"),
        (r#""url": "wss://a.example.com/mcp""#, "websocket wss://a.example.com/mcp"),
        (r#""serverUrl": "https://a.example.com/mcp""#, "http https://a.example.com/mcp"),
        (r#""url": "https://a.example.com/mcp", "type": "SSE""#, "sse https://a.example.com/mcp"),
        (
            r#""url": "https://a.example.com/sse", "type": "streamable_http""#,
            "http https://a.example.com/sse",
        ),
        (
            r#""url": "https://a.example.com/sse", "transportType": "streamableHttp""#,
            "http https://a.example.com/sse",
        ),
        (
            r#""url": "https://a.example.com/sse", "transport_type": "Streamable-HTTP""#,
            "http https://a.example.com/sse",
        ),
    ] {
        let text = format!(r#"{{"mcpServers": {{"a": {{{entry}}}}}}}"#);
        assert_eq!(read("file.json", &text), format!("mcpServers\na: {expected}"));
    }
}

#[test]
fn a_server_gets_passed_variables_and_an_env_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("more.env"), "A=from the file\nB=2\n").unwrap();
    let path = folder.path().join("pegboard.yaml");
    let text = "mcpServers: {a: {command: a, env: {A: '0'}, envFile: more.env, passEnv: [KEY, B, NOT_SET]}}";
    fs::write(&path, text).unwrap();
    let configuration = pegboard_config::load(&path, &environment).unwrap();
    assert_eq!(summarize(&configuration), "pegboard\na: a A=\"0\" B=\"2\" KEY=\"sk-from-outside\"");
    assert!(configuration.secrets.iter().any(|secret| secret.reveal() == "sk-from-outside"));
}

#[test]
fn a_missing_env_file_is_reported_unless_the_server_is_disabled() {
    for (more, expected) in [("", "cannot read"), (", enabled: false", "a: a (off)")] {
        let text = format!("mcpServers: {{a: {{command: a, envFile: gone.env{more}}}}}");
        let read = read("pegboard.yaml", &text);
        assert!(read.contains(expected), "{read}");
    }
}

#[test]
fn unset_variables_of_gemini_are_left_to_the_shell() {
    let text = r#"{"ui": {}, "mcpServers": {"a": {
        "command": "sh", "args": ["-c", "for each in $NAMES; do echo $each ${KEY}; done"],
        "env": {"PACKAGES": "a,$TMP_ONE"}
    }}}"#;
    assert_snapshot!(read("settings.json", text), @r#"
    Gemini CLI
    a: sh "-c" "for each in $NAMES; do echo $each sk-from-outside; done" PACKAGES="a,"
    "#);
}

#[test]
fn inputs_of_an_editor_are_missing_inputs() {
    let text = r#"{"inputs": [
            {"type": "promptString", "id": "token", "description": "Your token", "password": true},
            {"type": "pickString", "id": "stage", "description": "Where", "options": ["test", {"label": "Live", "value": "live"}]},
            {"type": "promptString", "id": "name", "description": "Who", "default": "ada"}
        ],
        "servers": {"a": {"command": "a", "args": ["${input:token}", "${input:stage}", "${input:name}", "${input:other}"]}}}"#;
    let wanted = load_text("mcp.json", text).unwrap().missing_inputs;
    let wanted: Vec<String> = wanted
        .iter()
        .map(|input| format!("{} {:?} {} {:?}", input.id, input.description, input.is_secret, input.options))
        .collect();
    assert_snapshot!(wanted.join("\n"), @r#"
    token Some("Your token") true []
    stage Some("Where") false ["test", "live"]
    other None true []
    "#);
}

#[test]
fn an_openapi_server_of_mcphub_is_a_service() {
    let text = r#"{"mcpServers": {
        "notes": {"type": "stdio", "command": "notes-server"},
        "shop": {"type": "openapi", "enabled": true, "openapi": {
            "url": "https://shop.example.com/openapi.json", "version": "3.1.0",
            "security": {"type": "http", "http": {"scheme": "bearer", "credentials": "${KEY}"}}}},
        "weather": {"type": "openapi", "disabled": true, "openapi": {
            "url": "https://weather.example.com/openapi.json",
            "security": {"type": "apiKey", "apiKey": {"name": "key", "in": "query", "value": "k-1"}}}},
        "inside": {"type": "openapi", "openapi": {"schema": {"openapi": "3.1.0"}}}
    }, "users": []}"#;
    assert_snapshot!(read("mcp_settings.json", text), @"
    mcphub
    notes: notes-server
    shop: openapi https://shop.example.com/openapi.json
    weather: openapi https://weather.example.com/openapi.json
    inside: (mcpServers.inside: the service has no OpenAPI document)
    warning 8 mcpServers.weather.openapi.security: not supported: this authentication scheme; set headers instead
    error 9 mcpServers.inside: the service has no OpenAPI document [set spec to the path or URL of the document]
    warning 9 mcpServers.inside.openapi.schema: inline documents are not supported [move it to a file and reference that under openapiSpecs in a pegboard.yaml]
    warning 10 users: ignored unknown setting: users
    ");
}

#[test]
fn gateway_policies_are_reported_once() {
    let text = "
binds:
- listeners:
  - routes:
    - policies: {cors: {}}
      backends: [{host: localhost:9000}]
    - policies: {mcpAuthorization: {rules: []}}
      backends: [{mcp: {targets: [{name: notes, stdio: {cmd: notes-server}}]}}]
    - policies: {mcpAuthorization: {rules: []}}
      backends: [{mcp: {targets: [{name: shop, mcp: {host: shop.example.com, port: 443, path: /mcp}}]}}]
";
    assert_snapshot!(read("config.yaml", text), @"
    agentgateway
    notes: notes-server
    shop: http https://shop.example.com/mcp
    warning 6 binds[0].listeners[0].routes[0].backends[0]: ignored: not an MCP target
    warning 7 binds[0].listeners[0].routes[1].policies: not supported: access policies
    ");
}

#[test]
fn pegboard_itself_is_skipped() {
    let text = r#"{"mcpServers": {
        "pegboard": {"command": "/usr/bin/pegboard", "args": ["serve", "--stdio"]},
        "other": {"command": "pegboard-like", "args": ["serve"]}
    }}"#;
    assert_snapshot!(read("mcp.json", text), @r#"
    mcpServers
    other: pegboard-like "serve"
    warning 2 mcpServers.pegboard: skipped pegboard: this is Pegboard itself
    "#);
    let text = r#"{"mcpServers": {
        "pegboard": {"url": "http://127.0.0.1:7332/mcp"},
        "other": {"url": "http://127.0.0.1:7332/mcp"},
        "away": {"url": "https://pegboard.example.com/mcp"}
    }}"#;
    assert_snapshot!(read("mcp.json", text), @"
    mcpServers
    other: http http://127.0.0.1:7332/mcp
    away: http https://pegboard.example.com/mcp
    warning 2 mcpServers.pegboard: skipped pegboard: this is Pegboard itself
    ");
    let text = r#"{"mcp": {"pegboard": {"type": "local", "command": ["C:\\bin\\pegboard.exe", "serve"]}}}"#;
    assert_snapshot!(read("opencode.json", text), @"
    OpenCode
    warning 1 mcp.pegboard: skipped pegboard: this is Pegboard itself
    ");
}

#[test]
fn servers_skipped_for_the_same_reason_are_reported_once() {
    let text = r#"{"context_servers": {
        "one": {"settings": {}},
        "pegboard": {"command": "pegboard", "args": ["serve"]},
        "two": {"settings": {}}
    }}"#;
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("zed")).unwrap();
    let path = folder.path().join("zed/settings.json");
    std::fs::write(&path, text).unwrap();
    let problems = pegboard_config::load(&path, &environment).unwrap().problems;
    let messages: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(
        messages,
        ["skipped one, two: provided by a Zed extension", "skipped pegboard: this is Pegboard itself"]
    );
}
