//! Consent to what project files start, and permissions of files with keys.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use insta::assert_snapshot;
use pegboard::config::clients::{KnownClient, clients};
use serde_json::{Value, json};

use crate::files::stage::Stage;

mod keys;
mod owners;
mod terminal;

/// Files that are found in a project directory.
const PROJECT_FILES: [&str; 7] = [
    "pegboard.yaml",
    "pegboard.yml",
    "pegboard.json",
    "pegboard.jsonc",
    "pegboard.toml",
    "workbench-config.json",
    "workbench.json",
];

/// Commands that start servers or send their requests.
const STARTING_COMMANDS: [&str; 19] = [
    "ls",
    "ls .",
    "tools touch",
    "call evil/touch",
    "schema tool evil/touch",
    "chain ls",
    "chain check steps.json",
    "chain run steps.json",
    "batch calls.jsonl",
    "bench evil/touch",
    "run helper.md hello",
    "agent run helper.md hello",
    "serve --stdio",
    "serve --http 127.0.0.1:0",
    "serve . --stdio",
    "--config . ls",
    "doctor",
    "connect cursor",
    "export --to cursor --expand --write",
];

/// An entry of a server that leaves a mark when it is started.
fn evil(stage: &Stage) -> Value {
    json!({"command": "/bin/sh", "args": ["-c", format!("echo ran >> {}", mark(stage).display())]})
}

fn mark(stage: &Stage) -> std::path::PathBuf {
    stage.home().join("ran")
}

fn has_run(stage: &Stage) -> bool {
    mark(stage).exists()
}

/// Project with one file that starts a server.
fn project(file: &str) -> Stage {
    let stage = Stage::new();
    write_servers(&stage, file, &json!({"evil": evil(&stage)}));
    stage.write("steps.json", r#"{"steps": [{"tool": "evil/touch"}]}"#);
    stage.write("calls.jsonl", "{\"tool\": \"evil/touch\"}\n");
    stage.write("helper.md", "---\nmodels: [none/none]\n---\nHelp.\n");
    stage
}

/// Writes servers in the format of a file.
fn write_servers(stage: &Stage, file: &str, servers: &Value) {
    let configuration = match file {
        "workbench.json" | "workbench-config.json" => {
            json!({"toolboxes": {"t": {"description": "T", "mcpServers": servers}}})
        }
        _ => json!({"mcpServers": servers}),
    };
    let text = if file == "pegboard.toml" {
        let servers = servers.as_object().unwrap().iter();
        let table = |(name, server): (&String, &Value)| {
            format!("[mcpServers.{name}]\ncommand = {}\nargs = {}\n", server["command"], server["args"])
        };
        servers.map(table).collect()
    } else {
        // YAML includes JSON.
        configuration.to_string()
    };
    stage.write(file, &text);
}

#[test]
fn no_command_starts_what_an_untrusted_project_file_names() {
    for file in PROJECT_FILES {
        let stage = project(file);
        for command in STARTING_COMMANDS {
            let said = stage.run(command);
            assert!(said.contains("not trusted"), "{file}: {command}: {said}");
            assert!(said.contains(&format!("pegboard trust {file}")), "{file}: {command}: {said}");
            assert!(!has_run(&stage), "{file}: {command} ran it");
        }
        stage.run("trust");
        stage.run("ls");
        assert!(has_run(&stage), "{file}: it is trusted");
    }
}

#[test]
fn project_files_of_clients_need_trust_too() {
    let mut n_files = 0;
    for client in clients() {
        for path in client.project_paths(Path::new("")) {
            let file = path.to_str().unwrap();
            let stage = Stage::new();
            stage.write(file, &client_text(client, &stage));
            n_files += 1;
            let name = client.name();
            for command in [
                format!("serve {name} --stdio"),
                format!("serve {name}:evil --stdio"),
                format!("serve {name} --toolbox dev --stdio"),
                format!("--config {name} ls"),
                format!("ls {name}"),
                format!("--config {name} doctor"),
                "--config . ls".to_owned(),
            ] {
                let said = stage.run(&command);
                assert!(said.contains("not trusted"), "{file}: {command}: {said}");
                assert!(!has_run(&stage), "{file}: {command} ran it");
            }
            stage.run("import --into pegboard.yaml --dry-run");
            stage.run("import --into pegboard.yaml");
            stage.run("ls");
            assert!(!has_run(&stage), "{file}: an import does not make it trusted");
            stage.run(&format!("trust {file}"));
            stage.run(&format!("--config {name}:evil ls"));
            assert!(has_run(&stage), "{file}: it is trusted");
            std::fs::remove_file(mark(&stage)).unwrap();
            stage.run(&format!("untrust {file}"));
            stage.run(&format!("--config {name} ls"));
            assert!(!has_run(&stage), "{file}: it is no longer trusted");
        }
    }
    assert!(n_files >= 10, "only {n_files} files");
}

/// Text of a client's file with one server.
fn client_text(client: &KnownClient, stage: &Stage) -> String {
    let server = evil(stage);
    let args: Vec<String> =
        server["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect();
    let entry = client.entry_for_program("evil", server["command"].as_str().unwrap(), &args);
    let servers = if client.lists_servers() { json!([entry]) } else { json!({"evil": entry}) };
    let root = client.key_path().iter().rev().fold(servers, |inner, key| json!({key.as_str(): inner}));
    match client.format() {
        // YAML includes JSON.
        pegboard::config::ConfigFormat::Json | pegboard::config::ConfigFormat::Yaml => root.to_string(),
        pegboard::config::ConfigFormat::Toml => {
            let path = client.key_path().join(".");
            format!("[{path}.evil]\ncommand = {}\nargs = {}\n", entry["command"], entry["args"])
        }
    }
}

#[test]
fn a_refusal_shows_the_file_the_command_and_the_remedy() {
    let stage = Stage::with(
        "pegboard.yaml",
        r#"mcpServers:
  files: {command: npx, args: [-y, server-files, "my folder", --token, s3cret], env: {API_KEY: s3cret, ROOT: /}, cwd: sub}
  shell: {command: sh, args: [-c, "printf '\u001b[2Jx'; rm -rf ~"], passEnv: [HOME], envFile: .env}
  hub: {url: "https://ada:s3cret@example.com/mcp?token=s3cret", headers: {Authorization: "Bearer ${GITHUB_TOKEN}"}}
  off: {command: never, enabled: false}
openapiSpecs: {shop: {spec: shop.yaml, baseUrl: "https://shop.example.com", credentials: {key: {value: "${SHOP_KEY}"}}}}
restTools: {post: {description: Posts, method: POST, url: "https://example.com/${TOKEN}"}}
chains: {both: {steps: [{tool: files/read}]}}
agents: [agents/*.md]
providers: {local: {type: openai-compatible, baseUrl: "https://models.example.com/v1", apiKey: "${OPENAI_API_KEY}"}}
telemetry: {otlpEndpoint: "https://collector.example.com"}
toolboxes: {dev: {description: Dev, mcpServers: {clock: {command: clock-server}}}}
"#,
    );
    stage.write(".env", "SECRET=s3cret\n");
    stage.write("agents/one.md", "---\nmodels: [local/small]\n---\nHelp.\n");
    assert_snapshot!(stage.run("ls"), @r#"
    (stderr) error[not_trusted]: pegboard.yaml is not trusted
      would run files: npx -y server-files 'my folder' --token *** (in sub) (env API_KEY, ROOT)
      would run shell: sh -c 'printf '\''␛[2Jx'\''; rm -rf ~' (env from .env, HOME), which sets SECRET
      would connect to hub: https://ada:***@example.com/mcp?token=*** (sends Authorization from ${GITHUB_TOKEN})
      would connect to shop: https://shop.example.com (sends key from ${SHOP_KEY})
      would connect to post: POST https://example.com/${TOKEN}
      would run dev/clock: clock-server
      would connect to provider local: https://models.example.com/v1 (sends apiKey from ${OPENAI_API_KEY})
      would connect to telemetry: https://collector.example.com
      would offer chains and agents: both, agents/*.md
      help: review it, then run: pegboard trust pegboard.yaml; or add --trust to use it once
    (exit 3)
    "#);
    let document = stage.run("ls --json");
    assert!(document.contains(r#""code":"not_trusted""#), "{document}");
    assert!(!document.contains("s3cret"), "{document}");
}

#[test]
fn only_changes_of_what_would_run_need_trust_again() {
    let check = |change: &dyn Fn(&mut Value), is_trusted: bool| {
        let stage = Stage::new();
        stage.write(".env", "A=1\n");
        let mut server = evil(&stage);
        server["env"] = json!({"LEVEL": "info"});
        server["envFile"] = json!(".env");
        let mut file =
            json!({"mcpServers": {"evil": server}, "chains": {"c": {"steps": [{"tool": "evil/x"}]}}});
        stage.write("pegboard.json", &file.to_string());
        stage.run("trust");
        change(&mut file);
        if let Some(text) = file.as_object_mut().unwrap().remove("envFileText") {
            stage.write(".env", text.as_str().unwrap());
        }
        stage.write("pegboard.json", &file.to_string());
        let said = stage.run("ls");
        assert_eq!(!said.contains("not trusted"), is_trusted, "{file}: {said}");
        assert_eq!(has_run(&stage), is_trusted, "{file}: {said}");
    };
    let server = |key: &'static str, value: Value| {
        move |file: &mut Value| file["mcpServers"]["evil"][key] = value.clone()
    };
    check(&|_| {}, true);
    check(&server("startTimeout", json!("5s")), true);
    check(&server("start", json!("eager")), true);
    check(&|file| file["toolTimeout"] = json!("7s"), true);
    check(&|file| file["chains"]["d"] = json!({"steps": [{"tool": "evil/y"}]}), true);
    check(&|file| file["chains"] = json!({}), true);
    // An entry of a project file may change one of the user's own file.
    check(&server("toolsDenied", json!(["x"])), false);
    check(&|file| file["allowedOrigins"] = json!(["http://localhost:3000"]), false);
    check(&server("env", json!({"LEVEL": "debug"})), false);
    check(&server("env", json!({"LEVEL": "info", "LD_PRELOAD": "x.so"})), false);
    check(&|file| file["envFileText"] = json!("A=2\n"), false);
    check(&server("passEnv", json!(["HOME"])), false);
    check(&server("cwd", json!("sub")), false);
    check(&server("command", json!("/bin/bash")), false);
    check(&|file| file["mcpServers"]["evil"]["args"][0] = json!("-ec"), false);
    check(&|file| file["mcpServers"]["other"] = json!({"command": "other"}), false);
    check(&|file| file["mcpServers"]["hub"] = json!({"url": "https://example.com/mcp"}), false);
    check(
        &|file| {
            file["restTools"] =
                json!({"r": {"description": "R", "method": "GET", "url": "https://example.com/${HOME}"}});
        },
        false,
    );
    check(&|file| file["openapiSpecs"] = json!({"o": {"spec": "https://example.com/openapi.json"}}), false);
    check(
        &|file| {
            file["providers"] = json!({"p": {"type": "openai-compatible", "baseUrl": "https://example.com"}});
        },
        false,
    );
    check(&|file| file["telemetry"] = json!({"otlpEndpoint": "https://example.com"}), false);
}

#[cfg(unix)]
#[test]
fn a_pipe_in_a_project_keeps_no_command_waiting() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    let include = "---\nmodels: [p/m]\n---\n${include:pipe}\n";
    for (name, text) in [
        ("pegboard.yaml", "agents: [pipe]"),
        ("pegboard.yaml", "agents: [helper.md]"),
        ("pegboard.yaml", "mcpServers: {a: {command: x, envFile: pipe}}"),
        ("pegboard.yaml", "mcpServers: {a: {command: '${file:pipe}'}}"),
        ("pegboard.yaml", "openapiSpecs: {a: {spec: pipe}}"),
        ("pegboard.yaml", ""),
    ] {
        let stage = Stage::with("helper.md", include);
        let pipe = |name: &str| {
            mknodat(CWD, stage.path(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        };
        pipe("pipe");
        if text.is_empty() {
            pipe(name);
        } else {
            stage.write(name, text);
        }
        for command in ["ls", "--trust ls", "validate", "trust"] {
            stage.run(command);
        }
    }
}

#[test]
fn a_file_that_starts_nothing_needs_no_trust() {
    let stage =
        Stage::with("pegboard.yaml", "toolTimeout: 7s\nmcpServers: {off: {command: x, enabled: false}}\n");
    assert_snapshot!(stage.run("ls"), @"
    default
    └ · off  disabled; pegboard enable off
    ");
    assert_snapshot!(stage.run("trust"), @"Nothing to trust: no file of this project starts a program or sends a request");
}

#[test]
fn a_partial_entry_that_redirects_a_users_server_needs_trust() {
    for entry in
        [json!({"url": "https://example.com/"}), json!({"enabled": true}), json!({"headers": {"A": "b"}})]
    {
        let stage = Stage::new();
        stage.write(
            "~/.config/pegboard/pegboard.yaml",
            "mcpServers: {hub: {url: 'http://127.0.0.1:9/', enabled: false}}",
        );
        write_servers(&stage, "pegboard.json", &json!({"hub": entry}));
        let said = stage.run("ls");
        assert!(said.contains("not trusted"), "{entry}: {said}");
    }
}

#[test]
fn an_entry_that_its_file_disables_needs_trust_once_it_is_enabled_elsewhere() {
    for (command, variable) in [
        ("--set mcpServers.evil.enabled=true ls", None),
        ("--set mcpServers.evil.disabled=false tools evil", None),
        ("ls", Some(("PEGBOARD__MCP_SERVERS__EVIL__ENABLED", "true"))),
        ("--config . --config own.json ls", None),
    ] {
        let stage = Stage::new();
        let mut entry = evil(&stage);
        entry["enabled"] = json!(false);
        write_servers(&stage, "pegboard.json", &json!({"evil": entry}));
        write_servers(&stage, "own.json", &json!({"evil": {"enabled": true}}));
        assert!(!stage.run("ls").contains("not trusted"), "nothing would be started");
        let said = stage.told(stage.command(command).envs(variable));
        assert!(said.contains("not trusted") && said.contains("/bin/sh"), "{command}: {said}");
        assert!(!has_run(&stage), "{command}");
    }
}

#[test]
fn files_that_the_user_names_are_trusted() {
    for (command, variable) in [
        ("--config pegboard.json ls", None),
        ("ls pegboard.json", None),
        ("--trust ls", None),
        ("ls", Some(("WORKBENCH_CONFIG", "pegboard.json"))),
    ] {
        let stage = project("pegboard.json");
        let mut command = stage.command(command);
        command.envs(variable);
        let said = stage.told(&mut command);
        assert!(has_run(&stage), "{said}");
        assert_eq!(stage.run("trust --list"), "No trusted files\n");
    }
}

#[test]
fn the_users_own_file_needs_no_trust() {
    let stage = Stage::new();
    write_servers(&stage, "~/.config/pegboard/pegboard.json", &json!({"evil": evil(&stage)}));
    stage.run("ls");
    assert!(has_run(&stage));
    let stage = Stage::new();
    write_servers(&stage, "~/.cursor/mcp.json", &json!({"evil": evil(&stage)}));
    stage.run("--config cursor ls");
    assert!(has_run(&stage));
}

#[test]
fn commands_that_start_nothing_need_no_trust() {
    let stage = project("pegboard.json");
    stage.write(".cursor/mcp.json", r#"{"mcpServers": {"other": {"command": "other"}}}"#);
    for command in [
        "validate",
        "validate --origins mcpServers",
        "import --into pegboard.yaml --dry-run",
        "import --into pegboard.yaml",
        "export --to cursor",
        "connect cursor --dry-run",
        "disable evil",
        "doctor --no-start",
        "schema config",
        "trust --list",
        "output ls",
        "sessions ls",
    ] {
        let said = stage.run(command);
        assert!(!said.contains("error[not_trusted]"), "{command}: {said}");
        assert!(!has_run(&stage), "{command} ran it");
    }
}

#[test]
fn edits_of_the_user_are_trusted_and_nothing_else_is() {
    let stage = Stage::new();
    let script = format!("echo ran >> {}", mark(&stage).display());
    stage.run_of(&["add", "mine", "--", "/bin/sh", "-c", &script]);
    let said = stage.run("ls");
    assert!(has_run(&stage), "{said}");
    stage.run("disable mine");
    stage.run("enable mine");
    assert!(!stage.run("ls").contains("not trusted"));

    let text =
        stage.read("pegboard.yaml").replace("mcpServers:\n", "mcpServers:\n  evil: {command: evil-server}\n");
    stage.write("pegboard.yaml", &text);
    stage.run("add more https://example.com/mcp");
    assert_snapshot!(stage.run("ls"), @"
    (stderr) error[not_trusted]: pegboard.yaml is not trusted: it has changed
      would run evil: evil-server
      help: review it, then run: pegboard trust pegboard.yaml; or add --trust to use it once
    (exit 3)
    ");
    assert_snapshot!(stage.run("trust"), @"
    Trusted pegboard.yaml
      evil  evil-server
      mine  /bin/sh -c 'echo ran >> ~/ran'
      more  https://example.com/mcp
    ");
    assert_snapshot!(stage.run("trust --list"), @"~/project/pegboard.yaml  evil, mine, more");
    assert_snapshot!(stage.run("untrust"), @"No longer trusted: pegboard.yaml");
    assert_snapshot!(stage.run("untrust"), @"
    (stderr) error[not_found]: pegboard.yaml is not trusted
      help: list the trusted files with pegboard trust --list
    (exit 4)
    ");
    assert_snapshot!(stage.run("untrust --all"), @"No files were trusted");
}

#[test]
fn switching_an_entry_of_a_repository_is_no_consent() {
    let stage = Stage::with(
        "pegboard.yaml",
        "mcpServers:\n  evil: {command: evil-server, disabled: true}\n  bad: {command: bad-server, toolsDenied: [x]}\n",
    );
    for (command, shown) in [
        ("enable evil", "pegboard.yaml would run evil: evil-server"),
        ("enable bad/x", "pegboard.yaml would run bad: bad-server"),
        ("disable bad/y", "pegboard.yaml would run bad: bad-server"),
    ] {
        let said = stage.run(command);
        assert!(said.contains(shown) && said.contains("Not trusted yet"), "{command}: {said}");
    }
    assert_snapshot!(stage.run("trust --list"), @"No trusted files");
    assert!(stage.run("ls").contains("error[not_trusted]"));
    // What is trusted stays so.
    stage.run("trust");
    assert!(!stage.run("disable bad/x").contains("Not trusted"));
    stage.run("disable evil");
    assert!(!stage.run("enable evil").contains("Not trusted"));
    assert!(!stage.run("ls").contains("error[not_trusted]"));
}

#[test]
fn entries_of_project_files_are_imported_without_trust() {
    let stage = Stage::new();
    write_servers(&stage, ".cursor/mcp.json", &json!({"evil": evil(&stage)}));
    write_servers(&stage, "~/.cursor/mcp.json", &json!({"mine": {"command": "/bin/true"}}));
    assert_snapshot!(stage.run("import --user"), @"
    (stderr) error[not_trusted]: .cursor/mcp.json is not trusted
      would run evil: /bin/sh -c 'echo ran >> ~/ran'
      help: review it, then run: pegboard trust .cursor/mcp.json; or add --trust to use it once
    (exit 3)
    ");
    assert_snapshot!(stage.run("import --into pegboard.yaml --take-over"), @"
    (stderr) error[not_trusted]: .cursor/mcp.json is not trusted
      would run evil: /bin/sh -c 'echo ran >> ~/ran'
      help: review it, then run: pegboard trust .cursor/mcp.json; or add --trust to use it once
    (exit 3)
    ");
    assert!(!stage.path("pegboard.yaml").exists());
    assert_snapshot!(stage.run("import --into pegboard.yaml"), @"
    SOURCE  NAME  KIND
    cursor  mine  stdio  new
    cursor  evil  stdio  new
    2 sources: 2 new → pegboard.yaml
    (stderr) Not trusted yet, since files of this project define them: evil/evil. Review them, then run: pegboard trust pegboard.yaml
    Next: pegboard ls   or   pegboard connect CLIENT
    ");
    assert_snapshot!(stage.run("ls"), @"
    (stderr) error[not_trusted]: pegboard.yaml is not trusted: it has changed
      would run evil/evil: /bin/sh -c 'echo ran >> ~/ran'
      help: review it, then run: pegboard trust pegboard.yaml; or add --trust to use it once
    (exit 3)
    ");
    assert!(!has_run(&stage));
    stage.run("trust cursor");
    assert!(stage.run("import --user").contains("new"));
}

#[test]
fn an_invalid_record_of_trusted_files_is_an_error() {
    let stage = project("pegboard.json");
    stage.run("trust");
    stage.write("~/state/pegboard/trust.json", "{\"version\": 1, \"files\": [{\"path\"");
    assert_snapshot!(stage.run("ls"), @"
    (stderr) error[system]: cannot read the trusted files in ~/state/pegboard/trust.json: EOF while parsing an object at line 1 column 32
      help: remove it, and trust your files again with pegboard trust
    (exit 1)
    ");
    assert_snapshot!(stage.run("trust"), @"
    (stderr) error[system]: cannot read the trusted files in ~/state/pegboard/trust.json: EOF while parsing an object at line 1 column 32
      help: remove it, and trust your files again with pegboard trust
    (exit 1)
    ");
    assert!(!has_run(&stage));
    stage.write("~/state/pegboard/trust.json", "{\"version\": 7, \"files\": []}");
    assert!(stage.run("ls").contains("unknown version 7"));
}

/// Permission bits of a file.
fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}
