//! Variables in files.

use pegboard_config::ServerEntry;
use pegboard_core::settings::mcp::McpTarget;

use super::load_text;

#[test]
fn an_unset_variable_leaves_out_its_server_alone() {
    let text = r#"{"mcpServers": {
        "a": {"command": "x", "env": {"K": "${UNSET} ${UNSET} ${OTHER}"}},
        "b": {"command": "x"},
        "c": {"command": "x", "env": {"K": "${UNSET}"}, "enabled": false}
    }}"#;
    let configuration = load_text("pegboard.json", text).unwrap();
    let servers = &configuration.toolboxes["default"].servers;
    assert_eq!(servers["a"].unusable().unwrap().reason(), "needs: UNSET, OTHER");
    assert!(servers["b"].unusable().is_none());
    assert!(servers["c"].unusable().is_none());
}

#[test]
fn an_unset_variable_is_distinguished_from_other_problems() {
    let text = r#"{"mcpServers": {"a": {"command": 7, "env": {"K": "${UNSET}", "L": "${file:nowhere}"}}}}"#;
    let configuration = load_text("pegboard.json", text).unwrap();
    let needs: Vec<Option<&str>> =
        configuration.problems.iter().map(|problem| problem.needs.as_deref()).collect();
    assert_eq!(needs, [None, Some("UNSET"), None], "{:?}", configuration.problems);
}

#[test]
fn an_unset_variable_in_a_description_rejects_the_file() {
    for (name, path) in [
        ("pegboard.json", "toolboxes.t.description"),
        ("workbench-config.json", "config.toolboxes.t.description"),
    ] {
        let text =
            r#"{"toolboxes": {"t": {"description": "${UNSET}", "mcpServers": {"a": {"command": "x"}}}}}"#;
        let error = load_text(name, text).unwrap_err();
        let problem = &error.problems()[0];
        assert_eq!(
            (problem.path.as_str(), problem.message.as_str()),
            (path, "the variable UNSET is not set")
        );
    }
}

#[test]
fn keys_are_expanded_and_numbers_are_kept() {
    let text =
        r#"{"mcpServers": {"${A}k": {"command": "x", "env": {"${A}k": 5, "T": true}, "priority": 3}}}"#;
    let configuration = load_text("pegboard.json", text).unwrap();
    let ServerEntry::Mcp { connection, tools } = &configuration.toolboxes["default"].servers["1k"] else {
        panic!("the server is not usable")
    };
    let McpTarget::Program(program) = &connection.target else { panic!("the server is no program") };
    let env: Vec<(&str, &str)> =
        program.env.iter().map(|(name, value)| (name.as_str(), value.reveal())).collect();
    assert_eq!((env, tools.priority), (vec![("1k", "5"), ("T", "true")], 3));
}

#[test]
fn models_see_no_secret() {
    let written = "${API_TOKEN} ${file:f} ${keyring:k} ${cmd:c} ${input:i} ${UNSET:-${API_TOKEN}} ${A} $${A}";
    let text = format!(
        r#"{{"toolboxes": {{"b": {{
            "description": "{written}",
            "mcpServers": {{"x": {{
                "command": "x", "env": {{"${{A}}": "${{A}}"}},
                "tools": {{"t": {{"tags": ["${{API_TOKEN}}"]}}}}
            }}}}
        }}}}}}"#
    );
    let configuration = load_text("pegboard.json", &text).unwrap();
    let shown = &configuration.toolboxes["b"];
    assert_eq!(shown.description, written);
    let ServerEntry::Mcp { connection, .. } = &shown.servers["x"] else { panic!("{:?}", shown.servers["x"]) };
    let McpTarget::Program(program) = &connection.target else { panic!("it is a program") };
    assert_eq!(program.env["1"].reveal(), "1", "what is only sent is expanded");
    let paths: Vec<&str> = configuration.problems.iter().map(|problem| problem.path.as_str()).collect();
    let x = "toolboxes.b.mcpServers.x";
    let expected = ["toolboxes.b.description".to_owned(), format!("{x}.tools.t.tags[0]")];
    assert_eq!(paths, expected, "{:?}", configuration.problems);

    for name in ["${keyring:k}", "x${API_TOKEN}", "${file:f}", "${OPENAI_KEY}", "${GITHUB_PAT}"] {
        let text = format!("mcpServers: {{'{name}': {{command: x}}}}");
        let configuration = load_text("pegboard.yaml", &text).unwrap();
        let problems: Vec<&str> =
            configuration.problems.iter().map(|problem| problem.message.as_str()).collect();
        assert!(problems.iter().any(|problem| problem.contains("is not replaced here")), "{problems:?}");
    }
    // Names may be any word.
    let text = r#"{
        "mcpServers": {"title": {"command": "x", "env": {"description": "${UNSET_TOKEN:-x}"}}},
        "restTools": {"tags": {"description": "T", "url": "https://a.example", "headers": {"title": "${UNSET_TOKEN:-x}"}}}
    }"#;
    let problems = load_text("pegboard.json", text).unwrap().problems;
    assert!(problems.is_empty(), "{problems:?}");
    let text = r#"{"toolboxes": {"b": {"description": "For ${A}", "mcpServers": {}}}}"#;
    assert_eq!(load_text("pegboard.json", text).unwrap().toolboxes["b"].description, "For 1");
}

#[test]
fn a_referenced_file_may_hold_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "from-a-file\n").unwrap();
    let path = folder.path().join("pegboard.yaml");
    std::fs::write(&path, "mcpServers: {a: {command: x, args: ['${file:token}', '${file:gone}']}}").unwrap();
    let configuration = pegboard_config::load(&path, &|_| None).unwrap();
    assert_eq!(configuration.secrets[0].reveal(), "from-a-file");
    let [problem] = configuration.problems.as_slice() else { panic!("{:?}", configuration.problems) };
    assert_eq!(problem.path, "mcpServers.a.args[1]");
    assert!(problem.message.contains("cannot read"), "{}", problem.message);
}

#[test]
fn a_variable_may_be_a_number_or_boolean() {
    let text = "
toolNameMaxLength: ${LENGTH:-40}
tracePayloads: ${TRACE:-true}
profiles: {p: {toolboxes: ['${BOX:-default}']}}
mcpServers:
  a: {command: x, priority: '${A}', enabled: '${ON:-false}'}
  b: {command: x, priority: '5'}
";
    let configuration = load_text("pegboard.yaml", text).unwrap();
    assert_eq!(
        (configuration.settings.tool_name_max_length, configuration.settings.trace_payloads),
        (40, true)
    );
    let servers = &configuration.toolboxes["default"].servers;
    let ServerEntry::Mcp { connection, tools } = &servers["a"] else {
        panic!("{:?}", configuration.problems)
    };
    assert_eq!((connection.is_enabled, tools.priority), (false, 1));
    assert_eq!(
        servers["b"].unusable().unwrap().reason(),
        "mcpServers.b.priority: expected an integer, not a string"
    );
}
