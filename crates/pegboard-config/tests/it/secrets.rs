//! What nobody should see.

use pegboard_core::settings::mcp::Secret;

use super::{load, load_text};

#[test]
fn what_came_from_outside_and_what_is_sent_is_known_as_secret() {
    let configuration = load("good/workbench-config.json").unwrap();
    let secrets: Vec<&str> = configuration.secrets.iter().map(Secret::reveal).collect();
    assert_eq!(secrets, ["Bearer key-of-the-api", "key-of-the-api", "development"]);
}

#[test]
fn no_secret_is_printed() {
    let texts = [
        ("pegboard.json", r#"{"mcpServers": {"a": {"command": "x", "args": ["--key=${KEY}"]}}}"#),
        ("pegboard.json", r#"{"mcpServers": {"a": {"url": "https://x/?key=${KEY}"}}}"#),
        (
            "pegboard.json",
            r#"{"mcpServers": {"a": {"command": "x", "env": {"A": "sk-from-outside"}, "b": 1}}}"#,
        ),
        ("pegboard.json", r#"{"mcpServers": {"a": {"command": "x", "cache": "${KEY}"}}}"#),
        ("pegboard.json", r#"{"mcpServers": {"a": {"command": "x", "type": "${KEY}"}}}"#),
        ("pegboard.json", r#"{"mcpServers": {"a": {"command": "x", "${KEY}": 1}}}"#),
        ("pegboard.json", r#"{"mcpServers": {"${KEY} x": {"command": "x"}}}"#),
        ("pegboard.json", r#"{"mcpServers": {"a": {"headers": {"X": "sk-from-outside"} "url": 1}}}"#),
        ("pegboard.yaml", "mcpServers:\n  a:\n    env: {X: sk-from-outside\n"),
        ("pegboard.toml", "mcpServers.a.env.X = 'sk-from-outside"),
        ("pegboard.yaml", "toolTimeout: ${KEY}"),
        ("pegboard.yaml", "autoOpen: ${KEY}"),
    ];
    for (name, text) in texts {
        let printed = match load_text(name, text) {
            Ok(configuration) => {
                let problems: Vec<String> = configuration.problems.iter().map(ToString::to_string).collect();
                format!("{configuration:?} {}", problems.join(" "))
            }
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!printed.contains("sk-from-outside") && !printed.contains("outside"), "{text}: {printed}");
    }
}
