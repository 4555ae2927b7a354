//! Commands that edit and restore the files of clients.

use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use pegboard::config::clients::{KnownClient, Platform, clients};

use crate::files::stage::Stage;

/// Example file of a client.
pub(crate) fn fixture(client: &KnownClient) -> Option<String> {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../pegboard-config/tests/fixtures").join(client.name());
    let of_user = client.user_paths(&|_| Some("/anywhere".to_owned()), Platform::current());
    let names = of_user.iter().filter_map(|path| Some(PathBuf::from(path.file_name()?)));
    let mut paths = names.chain(client.project_paths(Path::new(""))).map(|name| folder.join(name));
    let text = paths.find(|path| path.is_file()).map(|path| std::fs::read_to_string(path).unwrap());
    // A file of the user belongs to no project.
    text.map(|text| text.replace("${workspaceFolder}", "/srv"))
}

/// Path of a client's user-level file, or else its project-level file.
pub(crate) fn place(stage: &Stage, client: &KnownClient) -> (PathBuf, &'static str) {
    let home = stage.home();
    let environment = |name: &str| {
        let path = match name {
            "HOME" | "USERPROFILE" => home.clone(),
            "XDG_CONFIG_HOME" => home.join(".config"),
            "APPDATA" => home.join("AppData"),
            "LOCALAPPDATA" => home.join("LocalAppData"),
            _ => return None,
        };
        Some(path.display().to_string())
    };
    match client.user_paths(&environment, Platform::current()).first() {
        Some(path) => (path.clone(), "--user"),
        None => (client.project_paths(&stage.project())[0].clone(), "--project"),
    }
}

/// Variants of a text: with other line endings, a byte order mark, and so on.
pub(crate) fn variants(text: &str, number: usize) -> [String; 2] {
    let text = text.replace("\r\n", "\n");
    let others = [text.replace('\n', "\r\n"), text.trim_end().to_owned(), format!("\u{feff}{text}")];
    [text, others[number % others.len()].clone()]
}

#[test]
fn every_client_is_connected_and_restored_byte_for_byte() {
    let mut n_clients = 0;
    for client in clients() {
        let Some(text) = fixture(client) else { continue };
        n_clients += 1;
        for text in variants(&text, n_clients) {
            let stage = Stage::with("pegboard.yaml", "mcpServers: {}\n");
            let (path, scope) = place(&stage, client);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
            let name = client.name();
            let said = stage.run(&format!("connect {name} {scope}"));
            assert!(said.starts_with("Connected "), "{name}: {said}");
            let connected = std::fs::read_to_string(&path).unwrap();
            assert!(connected.contains("pegboard.yaml"), "{name}: {connected}");
            for line in text.lines().filter(|line| line.trim_start().starts_with(['#', '/'])) {
                assert!(connected.contains(line), "{name}: {connected}");
            }
            assert!(stage.run(&format!("connect {name} {scope}")).contains("is already connected"));
            assert!(stage.run(&format!("restore {name}")).starts_with("Restored "), "{name}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{name}");
        }
    }
    assert!(n_clients > 15, "{n_clients}");
}

#[test]
fn the_entry_is_printed_in_the_format_of_the_client() {
    let stage = Stage::with("pegboard.yaml", "mcpServers: {}\n");
    assert_snapshot!(stage.run("export --to cursor -o json"), @r#"
    {
      "mcpServers": {
        "pegboard": {
          "command": "/bin/pegboard",
          "args": [
            "serve",
            "--stdio",
            "--config",
            "~/project/pegboard.yaml"
          ]
        }
      }
    }
    "#);
    assert_snapshot!(stage.run("export --to codex --http=http://127.0.0.1:7332/mcp"), @r#"
    [mcp_servers.pegboard]
    url = "http://127.0.0.1:7332/mcp"
    (stderr) No gateway of yours is running at http://127.0.0.1:7332/mcp: if it needs a token, start it first, or add --token-env VARIABLE
    "#);
    // Another machine has another token.
    assert_snapshot!(stage.run("export --to continue --http=https://tools.example/mcp"), @"
    mcpServers:
      - name: pegboard
        type: streamable-http
        url: https://tools.example/mcp
    ");
    assert_snapshot!(stage.run("export --to opencode --http=http://localhost:1/mcp -o json"), @r#"
    {
      "mcp": {
        "pegboard": {
          "type": "remote",
          "url": "http://localhost:1/mcp",
          "enabled": true
        }
      }
    }
    (stderr) No gateway of yours is running at http://localhost:1/mcp: if it needs a token, start it first, or add --token-env VARIABLE
    "#);
}

#[test]
fn an_entry_that_is_not_possible_is_explained() {
    let stage = Stage::with("pegboard.yaml", "mcpServers: {}\n");
    assert_snapshot!(stage.run("export --to claude-desktop --http=http://127.0.0.1:7332/mcp"), @"
    (stderr) No gateway of yours is running at http://127.0.0.1:7332/mcp: if it needs a token, start it first, or add --token-env VARIABLE
    error[usage]: Claude Desktop does not support servers with a URL
      help: remove --http to have it start a program
    (exit 2)
    ");
    assert_snapshot!(stage.run("export --to cursr"), @"
    (stderr) error[unknown_client]: unknown client 'cursr'
      help: did you mean cursor?
    (exit 4)
    ");
    assert_snapshot!(stage.run("export --to teapot"), @"
    (stderr) error[unknown_client]: unknown client 'teapot'
      help: expected one of claude-desktop, claude-code, vscode, copilot, cursor, windsurf, zed, gemini, codex, opencode, lmstudio, cline, roo, continue, goose, kiro, crush, amazonq, qwen, ai-agent, inspector
    (exit 4)
    ");
    assert_snapshot!(stage.run("connect claude-desktop --project"), @"
    (stderr) error[usage]: Claude Desktop has no project-level file here
      help: try --user
    (exit 2)
    ");
}

const OURS: &str = "
mcpServers:
  files: {command: [npx, -y, files-server], args: ['.'], env: {KEY: sk-1, OTHER: '${OTHER}'}}
  wiki: {url: https://wiki.example.com/mcp, headers: {Authorization: 'Bearer ${WIKI_TOKEN}'}}
  off: {command: off-server, enabled: false}
  chat: {url: wss://chat.example.com}
  home: {command: home-server, args: ['${HOME_OF_IT:-/srv}']}
restTools:
  ping: {description: Pings, url: https://example.com/ping}
toolboxes:
  dev: {mcpServers: {files: {command: dev-files}}}
";

#[test]
fn servers_are_exported_in_the_format_of_a_client() {
    let stage = Stage::with("pegboard.yaml", OURS);
    assert_snapshot!(stage.run("export --to vscode --expand"), @r#"
    {
      "servers": {
        "files": {
          "type": "stdio",
          "command": "npx",
          "args": ["-y", "files-server", "."],
          "env": {
            "KEY": "***",
            "OTHER": "${env:OTHER}"
          }
        },
        "wiki": {
          "type": "http",
          "url": "https://wiki.example.com/mcp",
          "headers": {
            "Authorization": "***${env:WIKI_TOKEN}"
          }
        },
        "dev-files": {
          "type": "stdio",
          "command": "dev-files",
          "args": []
        }
      }
    }
    (stderr) chat was skipped: VS Code does not support WebSocket servers
    home was skipped: VS Code cannot express a default for the variable HOME_OF_IT
    ping was skipped: it is not an MCP server
    Secrets are redacted here; --write writes them
    "#);
}

#[test]
fn variables_are_exported_in_the_syntax_of_a_client() {
    let stage = Stage::with("pegboard.yaml", OURS);
    assert_snapshot!(stage.run("export --to opencode --expand -q"), @r#"
    {
      "mcp": {
        "files": {
          "type": "local",
          "command": ["npx", "-y", "files-server", "."],
          "enabled": true,
          "environment": {
            "KEY": "***",
            "OTHER": "{env:OTHER}"
          }
        },
        "wiki": {
          "type": "remote",
          "url": "https://wiki.example.com/mcp",
          "enabled": true,
          "headers": {
            "Authorization": "***{env:WIKI_TOKEN}"
          }
        },
        "dev-files": {
          "type": "local",
          "command": ["dev-files"],
          "enabled": true
        }
      }
    }
    (stderr) chat was skipped: OpenCode does not support WebSocket servers
    home was skipped: OpenCode cannot express a default for the variable HOME_OF_IT
    ping was skipped: it is not an MCP server
    "#);
}

#[test]
fn settings_a_client_does_not_support_are_skipped() {
    let stage = Stage::with("pegboard.yaml", OURS);
    assert_snapshot!(stage.run("export --to codex --expand -q"), @r#"
    [mcp_servers.files]
    command = "dev-files"
    args = []
    (stderr) files was skipped: Codex cannot express the variable OTHER
    wiki was skipped: Codex cannot express the variable WIKI_TOKEN
    chat was skipped: Codex does not support WebSocket servers
    home was skipped: Codex cannot express a default for the variable HOME_OF_IT
    ping was skipped: it is not an MCP server
    "#);
    assert_snapshot!(stage.run("export --to continue --expand -q"), @r#"
    mcpServers:
      - name: files
        type: stdio
        command: npx
        args: [-y, files-server, "."]
        env:
          KEY: "***"
          OTHER: ${{ secrets.OTHER }}
      - name: wiki
        type: streamable-http
        url: https://wiki.example.com/mcp
        requestOptions:
          headers:
            Authorization: "***${{ secrets.WIKI_TOKEN }}"
      - name: dev-files
        type: stdio
        command: dev-files
        args: []
    (stderr) chat was skipped: Continue does not support WebSocket servers
    home was skipped: Continue cannot express a default for the variable HOME_OF_IT
    ping was skipped: it is not an MCP server
    "#);
}

#[test]
fn expanded_servers_are_written_to_the_file_of_a_client() {
    let stage = Stage::with("pegboard.yaml", OURS);
    assert_snapshot!(stage.run("--trust export --to cursor --expand --write"), @"
    Connected Cursor: ~/.cursor/mcp.json (files, wiki, dev-files)
    (stderr) chat was skipped: Cursor does not support WebSocket servers
    home was skipped: Cursor cannot express a default for the variable HOME_OF_IT
    ping was skipped: it is not an MCP server
    Undo with: pegboard restore cursor
    ");
    assert_snapshot!(stage.read("~/.cursor/mcp.json"), @r#"
    {
      "mcpServers": {
        "files": {
          "command": "npx",
          "args": ["-y", "files-server", "."],
          "env": {
            "KEY": "sk-1",
            "OTHER": "${env:OTHER}"
          }
        },
        "wiki": {
          "url": "https://wiki.example.com/mcp",
          "headers": {
            "Authorization": "Bearer ${env:WIKI_TOKEN}"
          }
        },
        "dev-files": {
          "command": "dev-files",
          "args": []
        }
      }
    }
    "#);
    assert_snapshot!(stage.run("restore cursor"), @"Removed ~/.cursor/mcp.json, which did not exist before");
}

#[cfg(unix)]
#[test]
fn clients_start_the_program_by_its_path() {
    let stage = Stage::with("pegboard.yaml", "mcpServers: {}\n");
    std::fs::create_dir_all(stage.path("~/bin")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_pegboard"), stage.path("~/bin/pegboard")).unwrap();
    let entry = |line: &str| stage.told(stage.command(line).env("PATH", stage.path("~/bin")));
    // Clients may have another `PATH`; the link may outlive the file behind it.
    assert_snapshot!(entry("export --to codex"), @r#"
    [mcp_servers.pegboard]
    command = "~/bin/pegboard"
    args = ["serve", "--stdio", "--config", "~/project/pegboard.yaml"]
    "#);
    // Others have the program elsewhere.
    assert_snapshot!(entry("export --to codex --project"), @r#"
    [mcp_servers.pegboard]
    command = "pegboard"
    args = ["serve", "--stdio", "--config", "~/project/pegboard.yaml"]
    "#);
    assert_snapshot!(entry("export --to codex --state state --profile flat"), @r#"
    [mcp_servers.pegboard]
    command = "~/bin/pegboard"
    args = ["serve", "--stdio", "--config", "~/project/pegboard.yaml", "--state", "~/project/state", "--profile", "flat"]
    "#);
}

#[cfg(unix)]
#[test]
fn a_client_of_a_project_has_the_servers_of_the_user_too() {
    let stage = Stage::with("pegboard.yaml", "mcpServers: {}\n").configured();
    std::fs::create_dir_all(stage.path("deep/down")).unwrap();
    let mut command = stage.command("export --to codex");
    assert_snapshot!(stage.told(command.current_dir(stage.path("deep/down"))), @r#"
    [mcp_servers.pegboard]
    command = "/bin/pegboard"
    args = ["serve", "--stdio", "--directory", "~/project"]
    "#);
    // The user named the file, and wants its servers only.
    assert_snapshot!(stage.run("export --to codex --config pegboard.yaml"), @r#"
    [mcp_servers.pegboard]
    command = "/bin/pegboard"
    args = ["serve", "--stdio", "--config", "~/project/pegboard.yaml"]
    "#);
    assert_snapshot!(stage.run("--directory gone export --to codex"), @r"
    (stderr) error[not_found]: no such folder: gone
    (exit 4)
    ");
}

#[test]
fn nothing_is_written_without_a_configuration() {
    let stage = Stage::with("~/.cursor/mcp.json", CURSOR);
    for command in ["connect cursor", "export --to cursor", "export --to cursor --write"] {
        let said = stage.run(command);
        assert!(said.contains("no configuration found") && said.ends_with("(exit 3)"), "{command}: {said}");
    }
    for command in ["connect cursor --http", "connect cursor --http=http://127.0.0.1:9/mcp"] {
        let said = stage.run(command);
        assert!(said.ends_with("(exit 5)"), "{command}: {said}");
    }
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR);
    assert!(!stage.path("~/state/pegboard/backups").exists());
}

const CURSOR: &str =
    "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"a\", \"env\": {\"KEY\": \"sk-1\"}} // mine\n  }\n}\n";

#[test]
fn connect_writes_the_selected_file_of_a_client() {
    let stage = Stage::with("pegboard.yaml", "mcpServers: {}\n");
    stage.write("~/.cursor/mcp.json", CURSOR);
    assert_snapshot!(stage.run("connect cursor --no-check --http=http://127.0.0.1:7332/mcp --dry-run"), @r#"
    --- ~/.cursor/mcp.json
    +++ ~/.cursor/mcp.json
    @@ -1,5 +1,8 @@
     {
       "mcpServers": {
    -    "a": {"command": "a", "env": {"KEY": "**-*"}} // mine
    +    "a": {"command": "a", "env": {"KEY": "**-*"}}, // mine
    +    "pegboard": {
    +      "url": "http://127.0.0.1:7332/mcp"
    +    }
       }
     }
    (stderr) No gateway of yours is running at http://127.0.0.1:7332/mcp: if it needs a token, start it first, or add --token-env VARIABLE
    "#);
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR);
    assert_snapshot!(stage.run("connect cursor --project --no-check --http=http://127.0.0.1:7332/mcp"), @"
    Connected Cursor: .cursor/mcp.json
    (stderr) Undo with: pegboard restore cursor
    ");
    assert_snapshot!(stage.read(".cursor/mcp.json"), @r#"
    {
      "mcpServers": {
        "pegboard": {
          "url": "http://127.0.0.1:7332/mcp"
        }
      }
    }
    "#);
    assert_snapshot!(stage.run("connect cursor --no-check -o json"), @r#"
    {
      "client": "cursor",
      "file": "~/.cursor/mcp.json",
      "changed": true,
      "entry": {
        "command": "/bin/pegboard",
        "args": [
          "serve",
          "--stdio",
          "--config",
          "~/project/pegboard.yaml"
        ]
      }
    }
    "#);
    restores_one_of_two(&stage);
}

fn restores_one_of_two(stage: &Stage) {
    assert_snapshot!(stage.run("restore"), @"
    cursor  .cursor/mcp.json
    cursor  ~/.cursor/mcp.json
    ");
    assert_snapshot!(stage.run("restore cursor"), @"
    (stderr) error[usage]: several files of Cursor were changed: ~/.cursor/mcp.json, .cursor/mcp.json
      help: choose with --user, --project or --all
    (exit 2)
    ");
    assert_snapshot!(stage.run("restore cursor --project"), @"Removed .cursor/mcp.json, which did not exist before");
    assert!(!stage.path(".cursor/mcp.json").exists());
    stage.run("restore cursor --user");
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR);
    assert_snapshot!(stage.run("restore"), @"Pegboard has changed no files of clients");
    assert_snapshot!(stage.run("restore cursor"), @"
    (stderr) error[no_backup]: Pegboard has changed no file of Cursor
      help: list changed files with pegboard restore
    (exit 4)
    ");
}

#[test]
fn later_changes_of_a_client_are_kept() {
    let stage = Stage::with("~/.cursor/mcp.json", CURSOR).configured();
    stage.run("connect cursor --no-check --http=http://127.0.0.1:7332/mcp");
    let edited = stage.read("~/.cursor/mcp.json").replace("// mine", "// ours");
    stage.write("~/.cursor/mcp.json", &edited);
    assert_snapshot!(stage.run("restore cursor"), @"
    Took Pegboard out of ~/.cursor/mcp.json, and kept what has changed there since
    (stderr) The previous content is in ~/state/pegboard/backups/0001.1.aside
    ");
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR.replace("// mine", "// ours"));
}

#[test]
fn a_changed_entry_is_restored_only_with_force() {
    let stage = Stage::with("~/.cursor/mcp.json", CURSOR).configured();
    stage.run("connect cursor --no-check --http=http://127.0.0.1:7332/mcp");
    let edited = stage.read("~/.cursor/mcp.json").replace("7332", "7333");
    stage.write("~/.cursor/mcp.json", &edited);
    assert_snapshot!(stage.run("restore cursor"), @"
    (stderr) error[file_changed]: ~/.cursor/mcp.json has changed since
      what Pegboard wrote there is no longer as it was, so the changes would be lost
      help: review with --dry-run, then use --force; the current content is backed up
    (exit 2)
    ");
    assert_snapshot!(stage.run("restore cursor --dry-run"), @r#"
    --- ~/.cursor/mcp.json
    +++ ~/.cursor/mcp.json
    @@ -1,8 +1,5 @@
     {
       "mcpServers": {
    -    "a": {"command": "a", "env": {"KEY": "**-*"}}, // mine
    -    "pegboard": {
    -      "url": "http://127.0.0.1:7333/mcp"
    -    }
    +    "a": {"command": "a", "env": {"KEY": "**-*"}} // mine
       }
     }
    "#);
    assert_eq!(stage.read("~/.cursor/mcp.json"), edited);
    assert_snapshot!(stage.run("restore cursor --force"), @"
    Restored ~/.cursor/mcp.json
    (stderr) The previous content is in ~/state/pegboard/backups/0001.1.aside
    ");
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR);
    assert_eq!(stage.read("~/state/pegboard/backups/0001.1.aside"), edited);
}

#[test]
fn consecutive_changes_are_undone_together() {
    let stage = Stage::with("~/.cursor/mcp.json", CURSOR).configured();
    stage.run("connect cursor");
    stage.run("connect cursor --no-check --http=http://localhost:1/mcp");
    assert!(stage.read("~/.cursor/mcp.json").contains("localhost:1"));
    stage.run("restore cursor");
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR);
}

#[cfg(unix)]
#[test]
fn permissions_of_files_and_backups_are_kept() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::with("~/.cursor/mcp.json", CURSOR).configured();
    let mode = |name: &str| std::fs::metadata(stage.path(name)).unwrap().permissions().mode() & 0o777;
    let set = |mode| {
        std::fs::set_permissions(stage.path("~/.cursor/mcp.json"), PermissionsExt::from_mode(mode)).unwrap();
    };
    set(0o640);
    stage.run("connect cursor");
    assert_eq!(mode("~/.cursor/mcp.json"), 0o640);
    assert_eq!(mode("~/state/pegboard/backups"), 0o700);
    assert_eq!(mode("~/state/pegboard/backups/0001.before"), 0o600);
    set(0o666);
    stage.run("restore cursor");
    assert_eq!(mode("~/.cursor/mcp.json"), 0o640);
}

#[test]
fn concurrent_writers_do_not_lose_backups() {
    let stage = Stage::new();
    let clients = ["cursor/mcp.json", "gemini/settings.json", "lmstudio/mcp.json", "qwen/settings.json"];
    let text = |file: &str| format!("{{\"mcpServers\": {{\"{file}\": {{\"command\": \"own\"}}}}}}");
    for file in clients {
        stage.write(&format!("~/.{file}"), &text(file));
    }
    let mut running: Vec<_> = clients
        .iter()
        .map(|file| {
            stage
                .command(&format!(
                    "connect {} --no-check --http=http://127.0.0.1:7332/mcp",
                    file.split('/').next().unwrap()
                ))
                .spawn()
                .unwrap()
        })
        .collect();
    assert!(running.iter_mut().all(|one| one.wait().unwrap().success()));
    assert_eq!(stage.run("restore --all").lines().filter(|line| line.starts_with("Restored ")).count(), 4);
    for file in clients {
        assert_eq!(stage.read(&format!("~/.{file}")), text(file));
    }
}

#[test]
fn a_file_changed_since_does_not_block_other_restores() {
    let stage = Stage::with("~/.cursor/mcp.json", CURSOR).configured();
    stage.write("~/.codex/config.toml", "");
    stage.run("connect cursor");
    stage.run("connect codex");
    stage.write("~/.codex/config.toml", "# mine\n");
    let said = stage.run("restore --all");
    assert!(said.contains("Restored ~/.cursor/mcp.json") && said.contains("has changed since"), "{said}");
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR);
    assert_eq!(stage.read("~/.codex/config.toml"), "# mine\n");
}

#[test]
fn in_the_home_directory_project_and_user_files_are_the_same() {
    let stage = Stage::with("~/.cursor/mcp.json", CURSOR).configured();
    let at_home = |line: &str| stage.told(stage.command(line).current_dir(stage.home()));
    at_home("connect cursor");
    assert_snapshot!(at_home("restore cursor"), @"Restored .cursor/mcp.json");
}

#[cfg(unix)]
#[test]
fn a_dangling_symlink_is_restored() {
    let stage = Stage::with("~/.cursor/note", "").configured();
    std::os::unix::fs::symlink(stage.path("~/real.json"), stage.path("~/.cursor/mcp.json")).unwrap();
    stage.run("connect cursor");
    assert!(stage.path("~/real.json").exists());
    stage.run("restore cursor");
    assert!(!stage.path("~/real.json").exists() && stage.path("~/.cursor/mcp.json").is_symlink());
}

#[test]
fn servers_that_would_behave_differently_are_not_exported() {
    let text = "
toolboxes:
  one: {mcpServers: {x: {command: a1}, two-x: {command: a2}}}
  two: {mcpServers: {x: {command: a3}, safe: {command: s, toolsDenied: [delete_all]}}}
";
    let stage = Stage::with("pegboard.yaml", text);
    stage.write("~/.cursor/mcp.json", r#"{"mcpServers": {"x": {"command": "mine"}}}"#);
    stage.run("connect cursor");
    assert_snapshot!(stage.run("--trust export --to cursor --expand --write"), @"
    Connected Cursor: ~/.cursor/mcp.json (x, two-x, x-2)
    (stderr) safe was skipped: Cursor cannot express toolsDenied
    Replaced x in ~/.cursor/mcp.json
    Undo with: pegboard restore cursor
    ");
    assert_snapshot!(stage.read("~/.cursor/mcp.json"), @r#"{"mcpServers": {"x": {"command": "a1", "args": []}, "two-x": {"command": "a2", "args": []}, "x-2": {"command": "a3", "args": []}}}"#);
}

#[cfg(unix)]
#[test]
fn a_token_is_written_only_to_files_that_nobody_else_reads() {
    use std::os::unix::fs::PermissionsExt;

    let stage = Stage::with("pegboard.yaml", "mcpServers: {}\n");
    stage.write("~/.cursor/mcp.json", CURSOR);
    let mode = |name: &str| stage.path(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("~/.cursor/mcp.json") & 0o044, 0o044);
    let run = |arguments: &str| {
        let mut command = stage.command(arguments);
        stage.told(command.env("GATE", "a-token-of-the-gateway"))
    };
    run("connect cursor --no-check --http=http://127.0.0.1:7332/mcp --token-env GATE");
    let written = stage.read("~/.cursor/mcp.json");
    assert!(written.contains(r#""Authorization": "Bearer a-token-of-the-gateway""#), "{written}");
    assert_eq!(mode("~/.cursor/mcp.json"), 0o600);
    run("connect windsurf --no-check --http=http://localhost:9000/mcp --token-env GATE");
    assert_eq!(mode("~/.codeium/windsurf/mcp_config.json"), 0o600);
    // The file of a project is shared with others.
    run("connect cursor --project --no-check --http=http://127.0.0.1:7332/mcp --token-env GATE");
    assert!(!stage.read(".cursor/mcp.json").contains("Authorization"));
}
