//! Settings of MCP servers.

use std::time::Duration;

use pegboard_config::ServerEntry;
use pegboard_config::settings::McpServerSettings;
use pegboard_core::id::ServerName;
use pegboard_core::settings::mcp::{EraChoice, HealthProbe, McpTarget, ResolvedMcpServer, RestartPolicy};
use pegboard_core::settings::{CacheScope, ServerSettings};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::schema::names_of;

/// Resolves an entry with the settings of a connection and of its tools.
fn resolve(text: &str) -> Result<(ResolvedMcpServer, ServerSettings), String> {
    let entry: Map<String, Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let fields = names_of::<McpServerSettings>();
    let (connection, tools): (Map<_, _>, Map<_, _>) =
        entry.into_iter().partition(|(name, _)| fields.contains(name));
    let connection =
        McpServerSettings::deserialize(Value::Object(connection)).map_err(|error| error.to_string())?;
    let tools = ServerSettings::deserialize(Value::Object(tools)).map_err(|error| error.to_string())?;
    let name = ServerName::new("x").unwrap();
    match connection.resolve(name, tools).map_err(|error| error.to_string())? {
        ServerEntry::Mcp { connection, tools } => Ok((*connection, *tools)),
        other => panic!("{other:?}"),
    }
}

fn read(text: &str) -> Result<ResolvedMcpServer, String> {
    resolve(text).map(|(connection, _)| connection)
}

/// Formats resolved settings in one line.
fn summary(text: &str) -> String {
    let settings = match read(text) {
        Ok(settings) => settings,
        Err(problem) => return problem,
    };
    let target = match &settings.target {
        McpTarget::Program(program) => format!("stdio {} {:?}", program.command, program.args),
        McpTarget::WebSocket(endpoint) => format!("websocket {}", endpoint.url),
        McpTarget::Http(endpoint) => format!("http {}", endpoint.url),
        McpTarget::Sse(endpoint) => format!("sse {}", endpoint.url),
        McpTarget::Embedded => "embedded".to_owned(),
    };
    if settings.is_enabled { target } else { format!("{target} (disabled)") }
}

#[test]
fn settings_resolve_to_a_transport() {
    let cases = [
        (r#"{"command": "npx", "args": ["-y", "a"]}"#, r#"stdio npx ["-y", "a"]"#),
        (r#"{"command": ["npx", "-y"], "args": ["a"]}"#, r#"stdio npx ["-y", "a"]"#),
        (r#"{"type": "local", "command": "a"}"#, "stdio a []"),
        (r#"{"type": "stdio", "command": "a", "url": "http://h/sse"}"#, "stdio a []"),
        (r#"{"url": "http://h/mcp"}"#, "http http://h/mcp"),
        (r#"{"url": "http://h/sse"}"#, "sse http://h/sse"),
        (r#"{"url": "wss://h/mcp"}"#, "websocket wss://h/mcp"),
        (r#"{"type": "remote", "url": "http://h/sse/x"}"#, "sse http://h/sse/x"),
        (r#"{"type": "remote", "url": "http://h/mcp"}"#, "http http://h/mcp"),
        (r#"{"type": "http", "url": "http://h/sse"}"#, "http http://h/sse"),
        (r#"{"type": "streamable-http", "url": "http://h"}"#, "http http://h"),
        (r#"{"type": "streamableHttp", "url": "http://h"}"#, "http http://h"),
        (r#"{"type": "sse", "url": " http://h "}"#, "sse http://h"),
        (r#"{"type": "ws", "url": "ws://h"}"#, "websocket ws://h"),
        (r#"{"type": "websocket", "url": "ws://h", "enabled": false}"#, "websocket ws://h (disabled)"),
        (r#"{"command": "a", "disabled": true}"#, "stdio a [] (disabled)"),
        (r#"{"command": "a", "disabled": false, "environment": {"A": "b"}}"#, "stdio a []"),
        ("{}", "Stdio MCP server 'x' requires a string 'command'"),
        (r#"{"command": null}"#, "Stdio MCP server 'x' requires a string 'command'"),
        (r#"{"command": " "}"#, "Stdio MCP server 'x' requires a string 'command'"),
        (r#"{"command": []}"#, "Stdio MCP server 'x' requires a string 'command'"),
        (r#"{"type": "http"}"#, "HTTP MCP server 'x' requires a 'url'"),
        (r#"{"type": "remote"}"#, "HTTP MCP server 'x' requires a 'url'"),
        (r#"{"type": "sse", "url": ""}"#, "SSE MCP server 'x' requires a 'url'"),
        (r#"{"type": "ws"}"#, "WebSocket MCP server 'x' requires a 'url'"),
    ];
    for (text, expected) in cases {
        assert_eq!(summary(text), expected, "{text}");
    }
}

#[test]
fn parse_errors_name_the_problem() {
    let cases = [
        r#"{"comand": "a"}"#,
        r#"{"type": "carrier pigeon"}"#,
        r#"{"command": 5}"#,
        r#"{"command": "a", "startTimeout": "soon"}"#,
        r#"{"command": "a", "healthProbe": "knock"}"#,
        r#"{"command": "a", "era": "modern"}"#,
    ];
    insta::assert_snapshot!(cases.map(|text| read(text).unwrap_err()).join("\n"), @"
    unknown field `comand`, expected one of `toolsAllowed`, `toolFilters`, `toolsDenied`, `queue`, `priority`, `cache`, `toolsCache`, `cacheScope`, `requestTimeoutMs`, `toolResponseMaxBytes`, `validateArguments`, `output`, `start`, `toolSchemas`, `tools`
    unknown variant `carrier pigeon`, expected one of `local`, `stdio`, `websocket`, `ws`, `http`, `streamable-http`, `streamableHttp`, `streamable_http`, `sse`, `remote`
    invalid type: integer `5`, expected a command, or a list of a command and its arguments
    duration must be a millisecond number, or a duration like 5m/2h/1d, not 'soon'
    unknown variant `knock`, expected `ping` or `listTools`
    unknown variant `modern`, expected one of `auto`, `session`, `stateless`
    ");
}

#[test]
fn defaults_are_filled_in() {
    let settings = read(r#"{"command": "a", "startTimeout": "2m", "idleStop": 0, "shared": false}"#).unwrap();
    assert_eq!(
        (settings.start_timeout.as_secs(), settings.idle_stop, settings.is_shared),
        (120, None, false)
    );
    let settings = read(r#"{"command": "a", "startTimeout": 0, "idleStop": "5m"}"#).unwrap();
    assert_eq!((settings.start_timeout.as_secs(), settings.is_shared), (60, true));
    assert_eq!(settings.idle_stop.map(|idle| idle.as_secs()), Some(300));
}

#[test]
fn secrets_are_not_printed() {
    let settings = read(r#"{"url": "http://h", "headers": {"Authorization": "Bearer hush"}}"#).unwrap();
    let printed = format!("{settings:?}");
    assert!(!printed.contains("hush"), "{printed}");
}

/// Covers every field of the configuration entry.
#[test]
fn an_entry_holds_connection_and_tool_settings() {
    let (settings, tools) = resolve(
        r#"{
            "type": "stdio", "command": "npx", "args": ["-y", "github"], "url": "http://unused", "headers": {"A": "b"},
            "env": {"TOKEN": "hush"}, "enabled": true, "toolSchemas": {"search": {"type": "object"}},
            "toolsAllowed": ["search"], "toolsDenied": ["delete"], "cache": "5m", "toolsCache": {"search": 1000},
            "queue": "slow", "shared": false, "healthProbe": "listTools", "era": "session", "requestTimeoutMs": "30s", "start": "lazy",
            "startTimeout": "20s", "idleStop": "5m", "healthInterval": 0, "cwd": "/tmp"
        }"#,
    )
    .unwrap();
    assert!(!settings.is_shared && settings.is_enabled);
    assert_eq!((settings.health_probe, settings.era), (HealthProbe::ListTools, EraChoice::Session));
    assert_eq!((settings.health_interval, settings.restart), (None, RestartPolicy::OnDemand));
    assert_eq!((settings.start_timeout.as_secs(), settings.idle_stop.unwrap().as_secs()), (20, 300));
    assert_eq!(tools.queue.as_deref(), Some("slow"));
    assert_eq!(tools.cache_scope, CacheScope::Session, "unshared servers do not share cached results");
    assert_eq!(tools.request_timeout_ms.map(Duration::from), Some(Duration::from_secs(30)));
    assert_eq!(
        (tools.tools_allowed, tools.tools_denied),
        (Some(vec!["search".into()]), vec!["delete".into()])
    );
}

#[test]
fn a_fingerprint_depends_only_on_the_identity_of_the_server() {
    let fingerprint = |text: &str| read(text).unwrap().fingerprint();
    let base = fingerprint(r#"{"command": "a", "args": ["b"], "env": {"K": "v", "L": "w"}}"#);
    let same = [
        r#"{"command": ["a", "b"], "env": {"L": "w", "K": "v"}}"#,
        r#"{"command": "a", "args": ["b"], "env": {"K": "v", "L": "w"}, "startTimeout": "2m", "idleStop": "1m"}"#,
    ];
    let others = [
        r#"{"command": "a b", "env": {"K": "v", "L": "w"}}"#,
        r#"{"command": "a", "args": ["b"], "env": {"K": "x", "L": "w"}}"#,
        r#"{"command": "a", "args": ["b"], "env": {"K": "v", "L": "w"}, "cwd": "/"}"#,
        r#"{"url": "http://h"}"#,
        r#"{"url": "http://h", "headers": {"A": "b"}}"#,
        r#"{"type": "sse", "url": "http://h"}"#,
    ];
    assert!(same.iter().all(|text| fingerprint(text) == base));
    let mut all: Vec<String> = others.iter().map(|text| fingerprint(text)).collect();
    all.push(base);
    all.sort();
    all.dedup();
    assert_eq!((all.len(), all[0].len()), (others.len() + 1, 64));
}
