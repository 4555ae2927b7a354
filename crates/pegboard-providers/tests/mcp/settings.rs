//! How people describe servers.

use pegboard_core::id::ServerName;
use pegboard_providers::mcp::{Address, Http, McpServerSettings, Settings, Target};

fn read(text: &str) -> Result<Settings, String> {
    let written: McpServerSettings = serde_json::from_str(text).map_err(|error| error.to_string())?;
    written.normalise(ServerName::new("x").unwrap()).map_err(|error| error.to_string())
}

/// What settings come to, in a line.
fn summary(text: &str) -> String {
    let settings = match read(text) {
        Ok(settings) => settings,
        Err(problem) => return problem,
    };
    let target = match &settings.target {
        Target::Program(program) => format!("stdio {} {:?}", program.command, program.args),
        Target::WebSocket(address) => format!("websocket {}", address.url),
        Target::Http(address) => format!("http {}", address.url),
        Target::Sse(address) => format!("sse {}", address.url),
        Target::Embedded => "embedded".to_owned(),
    };
    if settings.is_enabled { target } else { format!("{target} (disabled)") }
}

#[test]
fn settings_come_to_one_of_four_ways() {
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
fn what_cannot_be_read_is_named() {
    let cases = [
        r#"{"comand": "a"}"#,
        r#"{"type": "carrier pigeon"}"#,
        r#"{"command": 5}"#,
        r#"{"command": "a", "startTimeout": "soon"}"#,
        r#"{"command": "a", "healthProbe": "knock"}"#,
    ];
    insta::assert_snapshot!(cases.map(|text| read(text).unwrap_err()).join("\n"), @"
    unknown field `comand`, expected one of `type`, `command`, `args`, `url`, `headers`, `env`, `environment`, `enabled`, `disabled`, `cwd`, `shared`, `healthProbe`, `startTimeout`, `idleStop`, `lazy` at line 1 column 9
    unknown variant `carrier pigeon`, expected one of `local`, `stdio`, `websocket`, `ws`, `http`, `streamable-http`, `streamableHttp`, `streamable_http`, `sse`, `remote` at line 1 column 25
    invalid type: integer `5`, expected a command, or a list of a command and its arguments at line 1 column 13
    duration must be a millisecond number, or a duration like 5m/2h/1d, not 'soon' at line 1 column 39
    unknown variant `knock`, expected `ping` or `listTools` at line 1 column 39
    ");
}

#[test]
fn what_was_left_open_is_filled_in() {
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
    let Target::Http(address) = &settings.target else { panic!("no address") };
    let printed = format!("{settings:?} {:?}", Http::new(address).unwrap());
    assert!(!printed.contains("hush"), "{printed}");
    let mut address = Address::new("http://h");
    address.headers.insert("X".to_owned(), pegboard_providers::mcp::Secret::new("hush\nhush"));
    insta::assert_snapshot!(
        Http::new(&address).unwrap_err(),
        @"the header 'X' cannot be sent: its value has characters that no header may have. Check it for line breaks"
    );
    insta::assert_snapshot!(
        Http::new(&Address::new("file:///etc/passwd")).unwrap_err(),
        @"the address of the server is none: it must begin with http:// or https://. Write one like https://example.org/mcp"
    );
}

#[test]
fn a_fingerprint_tells_servers_apart_and_nothing_else() {
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
