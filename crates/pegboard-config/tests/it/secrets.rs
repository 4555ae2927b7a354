//! Redaction of secrets.

use pegboard_core::secret::Secret;

use super::{load, load_text};

#[test]
fn expanded_values_and_headers_are_secrets() {
    let configuration = load("good/workbench-config.json").unwrap();
    let secrets: Vec<&str> = configuration.secrets.iter().map(Secret::reveal).collect();
    assert_eq!(secrets, ["Bearer key-of-the-api", "key-of-the-api", "development"]);
}

#[test]
fn secrets_in_arguments_and_urls_are_collected() {
    let text = "mcpServers:\n  a: {command: [a, --api-key=first-key], args: [--token, second-key, --port, '1234']}\n  \
                b: {url: 'https://ada:third-key@example.com/mcp?access_token=fourth-key&page=12'}\n";
    let configuration = load_text("pegboard.yaml", text).unwrap();
    let mut secrets: Vec<&str> = configuration.secrets.iter().map(Secret::reveal).collect();
    secrets.sort_unstable();
    assert_eq!(secrets, ["first-key", "fourth-key", "second-key", "third-key"]);
}

#[test]
fn a_short_value_is_refused_only_where_nothing_but_a_secret_can_be() {
    let names = [
        "AUTH_ENABLED",
        "USE_AUTH",
        "TOKEN_LIMIT",
        "ACCESS_TOKEN_TTL",
        "PASSWORD_MIN_LENGTH",
        "API_KEY_VERSION",
        "COOKIE_SECURE",
        "CLIENT_SECRET_REQUIRED",
        "PRIVATE_KEY_ID",
        "PGPASSWORD",
    ];
    for name in names {
        for text in [
            format!("mcpServers: {{a: {{command: x, env: {{{name}: '1'}}}}}}"),
            format!("mcpServers: {{a: {{url: 'https://a.example', headers: {{{name}: on}}}}}}"),
        ] {
            let configuration = load_text("pegboard.yaml", &text).unwrap();
            assert!(configuration.problems.is_empty(), "{text}: {:?}", configuration.problems);
        }
    }
    for text in [
        "providers: {p: {type: anthropic, apiKey: abc}}",
        "openapiSpecs: {a: {spec: 'https://a.example', credentials: {k: {value: abc}}}}",
    ] {
        let configuration = load_text("pegboard.yaml", text).unwrap();
        let mut problems = configuration.problems.iter().map(|problem| &problem.message);
        assert!(
            problems.any(|problem| problem.contains("fewer than")),
            "{text}: {:?}",
            configuration.problems
        );
    }
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
        ("pegboard.yaml", "providers: {p: {type: anthropic, apiKey: sk-from-outside, b: 1}}"),
        ("pegboard.yaml", "providers: {p: {type: anthropic, apiKey: [sk-from-outside]}}"),
        ("pegboard.yaml", "providers: {p: {type: '${KEY}', baseUrl: '${KEY}', apiKey: '${KEY}'}}"),
        ("pegboard.yaml", "providers: {'${KEY}': {type: anthropic}}"),
        (
            "pegboard.yaml",
            "providers: {p: {type: anthropic, models: {'${KEY}': {pricing: {input: -1, output: 1}}}}}",
        ),
        ("pegboard.yaml", "providers:\n  p:\n    apiKey: sk-from-outside\n    type: [\n"),
        ("pegboard.yaml", "mcpServers: {a: {command: x, passwd: sk-from-outside, nonsense: 1}}"),
        ("pegboard.yaml", "mcpServers: {a: {command: x, githubtoken: sk-from-outside, nonsense: 1}}"),
        ("pegboard.yaml", "mcpServers: {a: {command: x, refreshTokens: sk-from-outside, nonsense: 1}}"),
        ("pegboard.yaml", "mcpServers: {a: {command: x, private_key: sk-from-outside, nonsense: 1}}"),
        ("pegboard.yaml", "mcpServers: {a: {command: x, Authorization: sk-from-outside, nonsense: 1}}"),
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

#[test]
fn no_part_of_a_secret_is_printed_in_any_spelling() {
    let secrets = [
        format!("hush-{}-hush", "0123456789".repeat(8)),
        "hush \"quoted\" hush".to_owned(),
        "hush\nin two lines, hush".to_owned(),
        "hush\\'\t'hush".to_owned(),
    ];
    let texts = [
        ("pegboard.json", r#"{"mcpServers": {"a": {"command": "x", "cache": "${SECRET}"}}}"#),
        ("pegboard.json", r#"{"mcpServers": {"a": {"command": "x", "type": "${SECRET}"}}}"#),
        ("pegboard.json", r#"{"mcpServers": {"a": {"command": "x", "${SECRET}": 1}}}"#),
        ("pegboard.json", r#"{"mcpServers": {"${SECRET} x": {"command": "x"}}}"#),
        (
            "pegboard.json",
            r#"{"mcpServers": {"a": {"command": "x", "tools": {"${SECRET}": {"nonsense": 1}}}}}"#,
        ),
        ("pegboard.json", r#"{"toolboxes": {"${SECRET}": {"mcpServers": {"a": {"nonsense": 1}}}}}"#),
        ("pegboard.json", r#"{"gateway": {"expose": "${SECRET}"}}"#),
        ("pegboard.json", r#"{"gateway": {"profiles": {"${SECRET}": {"expose": "nonsense"}}}}"#),
        (
            "pegboard.json",
            r#"{"gateway": {"profiles": {"p": {"expose": "flat", "toolboxes": ["${SECRET}"]}}}}"#,
        ),
        ("pegboard.yaml", "toolTimeout: ${SECRET}"),
        ("pegboard.yaml", "autoOpen: ${SECRET}"),
        ("pegboard.yaml", "mcpServers: {a: {url: '${SECRET}'}}"),
        ("pegboard.yaml", "mcpServers: {a: {command: x, cwd: '${SECRET}', timeout: '${SECRET}'}}"),
        (
            "pegboard.yaml",
            "mcpServers: {a: {command: x, env: {'${SECRET}': 5}, headers: {'${SECRET}': [1]}}}",
        ),
        ("pegboard.yaml", "${SECRET}: 1"),
    ];
    for (secret, (name, text)) in secrets.iter().flat_map(|secret| texts.map(|text| (secret, text))) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let environment = |name: &str| (name == "SECRET").then(|| secret.clone());
        let printed = match pegboard_config::load(&path, &environment) {
            Ok(configuration) => {
                let problems: Vec<String> = configuration.problems.iter().map(ToString::to_string).collect();
                problems.join(" ")
            }
            Err(error) => error.to_string(),
        };
        assert!(!printed.contains("hush"), "{text}: {printed}");
    }
}
