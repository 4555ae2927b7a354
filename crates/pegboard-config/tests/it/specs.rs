//! What somebody types to say where servers are.

use std::fs;
use std::path::Path;

use insta::assert_snapshot;
use pegboard_config::clients::System;
use pegboard_config::{Around, ConfigurationError, Layers, Spec, load_layers, load_spec};
use tempfile::TempDir;

use super::dialects::line;
use super::environment;

/// A folder with these files in it.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// What a text names in the folder `work`, where the user's own folder is `home`.
fn named(folder: &TempDir, text: &str) -> String {
    let work = folder.path().join("work");
    let told = Spec::parse(text, &work).and_then(|spec| loaded(folder, &spec, None));
    let told = told.unwrap_or_else(|error| error.to_string());
    told.replace(&folder.path().display().to_string(), "HERE")
}

fn loaded(folder: &TempDir, spec: &Spec, toolbox: Option<&str>) -> Result<String, ConfigurationError> {
    let home = folder.path().join("home").display().to_string();
    let environment = |name: &str| if name == "HOME" { Some(home.clone()) } else { environment(name) };
    let work = folder.path().join("work");
    let around = Around { folder: &work, environment: &environment, system: System::Linux, toolbox };
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
fn a_file_is_read_whoevers_it_is() {
    let folder = folder(&[("work/any.json", r#"{"servers": {"a": {"command": "a"}}}"#)]);
    assert_eq!(named(&folder, "any.json"), "default/a: a");
    assert_eq!(named(&folder, "./any.json"), "default/a: a");
}

#[test]
fn a_folder_is_our_file_in_it_or_else_those_of_clients() {
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
    assert_snapshot!(named(&folder, "."), @"
    default/a: other
    default/b: b
    default/c: c
    ");
    assert_snapshot!(named(&folder, "ours"), @"default/d: d");
    assert_snapshot!(named(&folder, "none"), @r#"there is no configuration in HERE/work/none. Write a pegboard.yaml: {"mcpServers": {"files": {"command": "my-server"}}}"#);
}

#[test]
fn a_client_is_its_files_here_and_those_of_the_user() {
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
    assert_snapshot!(named(&folder, "cursor"), @"
    default/weather: w
    default/notes: here
    default/my-tool: t
    ");
    assert_snapshot!(named(&folder, "cursor:weather"), @"default/weather: w");
    assert_snapshot!(named(&folder, "Cursor:my tool"), @"default/my-tool: t");
    assert_snapshot!(named(&folder, "cursor:wether"), @"Cursor has no server 'wether'. Did you mean cursor:weather?");
    assert_snapshot!(named(&folder, "kiro"), @"Kiro has no file with servers here. These were looked for: HERE/work/.kiro/settings/mcp.json, HERE/home/.kiro/settings/mcp.json");
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
        assert_eq!(named(&folder, client), "", "{client}");
    }
}

#[test]
fn servers_of_one_folder_count_there() {
    let folder = folder(&[("work/readme.txt", "")]);
    let work = folder.path().join("work").display().to_string();
    let text = serde_json::json!({
        "mcpServers": {"all": {"command": "all"}},
        "projects": {work: {"mcpServers": {"here": {"command": "here"}}}, "/elsewhere": {"mcpServers": {"no": {"command": "no"}}}}
    });
    fs::create_dir(folder.path().join("home")).unwrap();
    fs::write(folder.path().join("home/.claude.json"), text.to_string()).unwrap();
    assert_snapshot!(named(&folder, "claude-code"), @"
    default/all: all
    default/here: here
    ");
}

#[test]
fn what_is_there_counts_before_the_name_of_a_client() {
    let folder = folder(&[("work/zed", r#"{"mcpServers": {"a": {"command": "a"}}}"#)]);
    assert_eq!(named(&folder, "zed"), "default/a: a");
}

#[test]
fn what_names_nothing_is_told_with_what_was_meant() {
    let folder = folder(&[("work/servers.json", "{}")]);
    assert_snapshot!(named(&folder, "claude-cod"), @"there is no file, folder or client 'claude-cod'. Did you mean claude-code?");
    assert_snapshot!(named(&folder, "curser:weather"), @"there is no file, folder or client 'curser:weather'. Did you mean cursor:weather?");
    assert_snapshot!(named(&folder, "server.json"), @"there is no file, folder or client 'server.json'. Did you mean servers.json?");
    assert_snapshot!(named(&folder, "teapot"), @"there is no file, folder or client 'teapot'. Name a file, a folder, an address, or a client such as claude-code");
    assert_snapshot!(named(&folder, "gone/file.json"), @r#"HERE/work/gone/file.json: there is no such file. Check the path, or write one: {"mcpServers": {"files": {"command": "my-server"}}}"#);
}

#[test]
fn an_address_is_a_server_called_after_its_host() {
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
        assert_eq!(named(&folder, url), expected);
    }
}

#[test]
fn a_command_is_a_server_called_after_what_it_runs() {
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
        let spec = Spec::Command(command.split(' ').map(str::to_owned).collect());
        let told = loaded(&folder, &spec, None).unwrap();
        assert!(told.starts_with(&format!("default/{name}: ")), "{command}: {told}");
    }
}

#[test]
fn nothing_in_a_command_is_a_variable() {
    let spec = Spec::Command(["sh", "-c", "echo ${X} $Y"].map(str::to_owned).to_vec());
    assert_eq!(loaded(&folder(&[]), &spec, Some("dev")).unwrap(), r#"dev/sh: sh "-c" "echo ${X} $Y""#);
}

#[test]
fn an_agent_is_a_source_of_its_own() {
    let folder = folder(&[("work/helper.ai", "---\ndescription: Helps\nmodels: test/any\n---\nBe kind.\n")]);
    assert_eq!(named(&folder, "helper.ai"), "default/agent helper");
}

#[test]
fn several_sources_go_into_one_toolbox_if_somebody_wants_that() {
    let folder = folder(&[
        ("work/a.json", r#"{"mcpServers": {"a": {"command": "a"}}}"#),
        ("work/b.toml", "[mcp_servers.b]\ncommand = 'b'"),
    ]);
    let work = folder.path().join("work");
    let around =
        Around { folder: &work, environment: &environment, system: System::Linux, toolbox: Some("dev") };
    let mut layers = Layers::new(&work);
    for text in ["a.json", "b.toml", "https://example.com/mcp"] {
        layers = Spec::parse(text, &work).unwrap().add_to(layers, &around).unwrap();
    }
    let configuration = load_layers(&layers, &environment).unwrap();
    let names: Vec<String> = configuration.toolboxes["dev"].servers.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["a", "b", "example-com"]);
    assert_eq!(configuration.toolboxes.len(), 1);
}

#[test]
fn every_file_that_could_say_something_is_known() {
    let around = Around {
        folder: Path::new("/work"),
        environment: &environment,
        system: System::Linux,
        toolbox: None,
    };
    let cursor = Spec::parse("cursor", Path::new("/gone")).unwrap().candidates(&around);
    assert_eq!(cursor, [Path::new("/work/.cursor/mcp.json"), Path::new("/home/ada/.cursor/mcp.json")]);
    let folder = Spec::Folder("/work".into()).candidates(&around);
    assert!(
        folder.contains(&"/work/pegboard.yaml".into()) && folder.contains(&"/work/.zed/settings.json".into())
    );
    assert!(Spec::Url("https://example.com".to_owned()).candidates(&around).is_empty());
}
