//! Source arguments of the command line.

use std::fs;
use std::path::Path;

use insta::assert_snapshot;
use pegboard_config::clients::Platform;
use pegboard_config::{ConfigurationError, Layers, SourceSpec, SpecContext, load_layers, load_spec};
use tempfile::TempDir;

use super::dialects::line;
use super::environment;

/// Creates a directory with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// Loads a source from the directory `work`, with `home` as the home directory.
fn load_summary(folder: &TempDir, text: &str) -> String {
    let work = folder.path().join("work");
    let summary = SourceSpec::parse(text, &work).and_then(|spec| try_load_summary(folder, &spec, None));
    let summary = summary.unwrap_or_else(|error| error.to_string());
    summary.replace(&folder.path().display().to_string(), "HERE")
}

fn try_load_summary(
    folder: &TempDir,
    spec: &SourceSpec,
    toolbox: Option<&str>,
) -> Result<String, ConfigurationError> {
    let home = folder.path().join("home").display().to_string();
    let environment = |name: &str| if name == "HOME" { Some(home.clone()) } else { environment(name) };
    let work = folder.path().join("work");
    let around = SpecContext { folder: &work, environment: &environment, platform: Platform::Linux, toolbox };
    let configuration = load_spec(spec, &around)?;
    let toolboxes = configuration.toolboxes.iter();
    let lines = toolboxes.flat_map(|(toolbox, content)| {
        let servers =
            content.servers.iter().map(move |(name, server)| format!("{toolbox}/{name}: {}", line(server)));
        servers.chain(content.agents.keys().map(move |name| format!("{toolbox}/agent {name}")))
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_file_of_any_dialect_is_read() {
    let folder = folder(&[("work/any.json", r#"{"servers": {"a": {"command": "a"}}}"#)]);
    assert_eq!(load_summary(&folder, "any.json"), "default/a: a in HERE/work");
    assert_eq!(load_summary(&folder, "./any.json"), "default/a: a in HERE/work");
}

#[test]
fn a_directory_is_its_native_file_or_else_the_files_of_clients() {
    let folder = folder(&[
        (
            "work/.mcp.json",
            r#"{"mcpServers": {"a": {"command": "a", "env": {"X": "1"}}, "b": {"command": "b"}}}"#,
        ),
        ("work/.vscode/mcp.json", r#"{"servers": {"a": {"command": "other"}, "c": {"command": "c"}}}"#),
        ("work/ours/pegboard.yaml", "mcpServers: {d: {command: d}}"),
        ("work/ours/.mcp.json", "{"),
        ("work/none/readme.txt", ""),
    ]);
    assert_snapshot!(load_summary(&folder, "."), @"
    default/a: other in HERE/work
    default/b: b in HERE/work
    default/c: c in HERE/work
    ");
    assert_snapshot!(load_summary(&folder, "ours"), @"default/d: d in HERE/work/ours");
    assert_snapshot!(load_summary(&folder, "none"), @r#"no configuration found in HERE/work/none. Create a pegboard.yaml: {"mcpServers": {"files": {"command": "my-server"}}}"#);
}

#[test]
fn a_client_is_its_project_and_user_files() {
    let folder = folder(&[
        (
            "home/.cursor/mcp.json",
            r#"{"mcpServers": {"weather": {"command": "w"}, "notes": {"command": "n"}}}"#,
        ),
        (
            "work/.cursor/mcp.json",
            r#"{"mcpServers": {"notes": {"command": "here"}, "my tool": {"command": "t"}}}"#,
        ),
        ("home/.claude.json", ""),
    ]);
    assert_snapshot!(load_summary(&folder, "cursor"), @"
    default/weather: w in HERE/home
    default/notes: here in HERE/work
    default/my-tool: t in HERE/work
    ");
    assert_snapshot!(load_summary(&folder, "cursor:weather"), @"default/weather: w in HERE/home");
    assert_snapshot!(load_summary(&folder, "Cursor:my tool"), @"default/my-tool: t in HERE/work");
    assert_snapshot!(load_summary(&folder, "cursor:wether"), @"Cursor has no server 'wether'. Did you mean cursor:weather?");
    assert_snapshot!(load_summary(&folder, "kiro"), @"Kiro has no configuration file. Searched: HERE/work/.kiro/settings/mcp.json, HERE/home/.kiro/settings/mcp.json");
}

#[test]
fn a_client_may_have_no_servers_yet() {
    let folder = folder(&[
        ("home/.codex/config.toml", "model = 'any'"),
        ("home/.config/zed/settings.json", r#"{"theme": "dark"}"#),
        ("home/.config/opencode/opencode.json", r#"{"$schema": "https://opencode.ai/config.json"}"#),
        ("home/.config/goose/config.yaml", "GOOSE_MODEL: any"),
        ("home/.gemini/settings.json", r#"{"theme": "dark"}"#),
        ("home/.claude.json", ""),
        ("work/.mcp.json", r#"{"mcpServers": {}}"#),
    ]);
    for client in ["codex", "zed", "opencode", "goose", "gemini", "claude-code"] {
        assert_eq!(load_summary(&folder, client), "", "{client}");
    }
}

#[test]
fn servers_of_a_directory_apply_there() {
    let folder = folder(&[("work/readme.txt", "")]);
    let work = folder.path().join("work").display().to_string();
    let text = serde_json::json!({
        "mcpServers": {"all": {"command": "all"}},
        "projects": {work: {"mcpServers": {"here": {"command": "here"}}}, "/elsewhere": {"mcpServers": {"no": {"command": "no"}}}}
    });
    fs::create_dir(folder.path().join("home")).unwrap();
    fs::write(folder.path().join("home/.claude.json"), text.to_string()).unwrap();
    assert_snapshot!(load_summary(&folder, "claude-code"), @"
    default/all: all in HERE/home
    default/here: here in HERE/work
    ");
}

#[test]
fn existing_files_take_precedence_over_client_names() {
    let folder = folder(&[("work/zed", r#"{"mcpServers": {"a": {"command": "a"}}}"#)]);
    assert_eq!(load_summary(&folder, "zed"), "default/a: a in HERE/work");
}

#[test]
fn an_unknown_source_is_reported_with_a_suggestion() {
    let folder = folder(&[("work/servers.json", "{}")]);
    assert_snapshot!(load_summary(&folder, "claude-cod"), @"no file, directory or client named 'claude-cod'. Did you mean claude-code?");
    assert_snapshot!(load_summary(&folder, "curser:weather"), @"no file, directory or client named 'curser:weather'. Did you mean cursor:weather?");
    assert_snapshot!(load_summary(&folder, "server.json"), @"no file, directory or client named 'server.json'. Did you mean servers.json?");
    assert_snapshot!(load_summary(&folder, "teapot"), @"no file, directory or client named 'teapot'. Use a file, a directory, a URL, or a client such as claude-code");
    assert_snapshot!(load_summary(&folder, "gone/file.json"), @r#"HERE/work/gone/file.json: no such file. Check the path, or create it: {"mcpServers": {"files": {"command": "my-server"}}}"#);
}

#[test]
fn a_url_is_a_server_named_after_its_host() {
    let folder = folder(&[]);
    for (url, expected) in [
        ("https://mcp.example.com/mcp", "default/mcp-example-com: http https://mcp.example.com/mcp"),
        ("http://127.0.0.1:8080/sse", "default/127-0-0-1: sse http://127.0.0.1:8080/sse"),
        ("wss://www.example.com", "default/example-com: websocket wss://www.example.com"),
        ("https://example.com/github/mcp", "default/example-com-github: http https://example.com/github/mcp"),
        (
            "https://example.com/v1/openapi.json",
            "default/example-com: openapi https://example.com/v1/openapi.json ",
        ),
        (
            "https://ada:secret@example.com/${x}?key=1",
            "default/example-com-x: http https://ada:secret@example.com/${x}?key=1",
        ),
    ] {
        assert_eq!(load_summary(&folder, url), expected);
    }
}

#[test]
fn a_command_is_a_server_named_after_its_program() {
    let folder = folder(&[]);
    for (command, name) in [
        ("notes-server --quiet", "notes-server"),
        ("/usr/bin/notes", "notes"),
        ("npx -y @scope/server-files@1.2.3 /srv", "server-files"),
        ("uvx fetch-server==2", "fetch-server-2"),
        ("node build/index.js", "index"),
        ("python -m weather", "weather"),
        ("deno run -A server.ts", "server"),
        ("docker run -i --rm -e TOKEN ghcr.io/example/github:1.0", "github"),
        ("npx", "npx"),
        ("agent", "my-agent"),
    ] {
        let spec = SourceSpec::Command(command.split(' ').map(str::to_owned).collect());
        let summary = try_load_summary(&folder, &spec, None).unwrap();
        assert!(summary.starts_with(&format!("default/{name}: ")), "{command}: {summary}");
    }
}

#[test]
fn a_command_is_not_expanded() {
    let spec = SourceSpec::Command(["sh", "-c", "echo ${X} $Y"].map(str::to_owned).to_vec());
    let summary = try_load_summary(&folder(&[]), &spec, Some("dev")).unwrap();
    assert!(summary.starts_with(r#"dev/sh: sh "-c" "echo ${X} $Y" in "#), "{summary}");
}

#[test]
fn an_agent_file_is_a_source() {
    let folder = folder(&[("work/helper.ai", "---\ndescription: Helps\nmodels: test/any\n---\nBe kind.\n")]);
    assert_eq!(load_summary(&folder, "helper.ai"), "default/agent helper");
}

#[test]
fn several_sources_may_share_a_toolbox() {
    let folder = folder(&[
        ("work/a.json", r#"{"mcpServers": {"a": {"command": "a"}}}"#),
        ("work/b.toml", "[mcp_servers.b]\ncommand = 'b'"),
    ]);
    let work = folder.path().join("work");
    let around = SpecContext {
        folder: &work,
        environment: &environment,
        platform: Platform::Linux,
        toolbox: Some("dev"),
    };
    let mut layers = Layers::new(&work);
    for text in ["a.json", "b.toml", "https://example.com/mcp"] {
        layers = SourceSpec::parse(text, &work).unwrap().add_to(layers, &around).unwrap();
    }
    let configuration = load_layers(&layers, &environment).unwrap();
    let names: Vec<String> = configuration.toolboxes["dev"].servers.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["a", "b", "example-com"]);
    assert_eq!(configuration.toolboxes.len(), 1);
}

#[test]
fn all_candidate_files_are_listed() {
    let around = SpecContext {
        folder: Path::new("/work"),
        environment: &environment,
        platform: Platform::Linux,
        toolbox: None,
    };
    let cursor = SourceSpec::parse("cursor", Path::new("/gone")).unwrap().candidates(&around);
    assert_eq!(cursor, [Path::new("/work/.cursor/mcp.json"), Path::new("/home/ada/.cursor/mcp.json")]);
    let folder = SourceSpec::Folder("/work".into()).candidates(&around);
    assert!(
        folder.contains(&"/work/pegboard.yaml".into()) && folder.contains(&"/work/.zed/settings.json".into())
    );
    assert!(SourceSpec::Url("https://example.com".to_owned()).candidates(&around).is_empty());
}
