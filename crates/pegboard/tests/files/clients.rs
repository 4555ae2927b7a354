//! Commands that change the files of clients, and put them back.

use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use pegboard::config::clients::{Client, System, clients};

use crate::stage::Stage;

/// A file of a client as somebody may have it.
pub(crate) fn fixture(client: &Client) -> Option<String> {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../pegboard-config/tests/fixtures").join(client.name());
    let of_user = client.user_places(&|_| Some("/anywhere".to_owned()), System::here());
    let names = of_user.iter().filter_map(|path| Some(PathBuf::from(path.file_name()?)));
    let mut paths = names.chain(client.project_places(Path::new(""))).map(|name| folder.join(name));
    paths.find(|path| path.is_file()).map(|path| std::fs::read_to_string(path).unwrap())
}

/// The client's file of the user, or else of the project, in the home of a test.
pub(crate) fn place(stage: &Stage, client: &Client) -> (PathBuf, &'static str) {
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
    match client.user_places(&environment, System::here()).first() {
        Some(path) => (path.clone(), "--user"),
        None => (client.project_places(&stage.project())[0].clone(), "--project"),
    }
}

/// A text as it is, and as it is on another system or in another editor.
pub(crate) fn variants(text: &str, number: usize) -> [String; 2] {
    let text = text.replace("\r\n", "\n");
    let others = [text.replace('\n', "\r\n"), text.trim_end().to_owned(), format!("\u{feff}{text}")];
    [text, others[number % others.len()].clone()]
}

#[test]
fn every_client_is_connected_and_put_back_byte_for_byte() {
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
            assert!(stage.run(&format!("connect {name} {scope}")).contains("is connected already"));
            assert!(stage.run(&format!("restore {name}")).starts_with("Restored "), "{name}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{name}");
        }
    }
    assert!(n_clients > 15, "{n_clients}");
}

#[test]
fn what_a_client_needs_is_printed_in_its_own_words() {
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
    assert_snapshot!(stage.run("export --to codex --http"), @r#"
    [mcp_servers.pegboard]
    url = "http://127.0.0.1:7332/mcp"
    "#);
    assert_snapshot!(stage.run("export --to continue --http"), @"
    mcpServers:
      - name: pegboard
        type: streamable-http
        url: http://127.0.0.1:7332/mcp
    ");
    assert_snapshot!(stage.run("export --to opencode --http http://localhost:1/mcp -o json"), @r#"
    {
      "mcp": {
        "pegboard": {
          "type": "remote",
          "url": "http://localhost:1/mcp",
          "enabled": true
        }
      }
    }
    "#);
    assert_snapshot!(stage.run("export --to claude-desktop --http"), @"
    (stderr) error[usage]: Claude Desktop does not go to addresses that are in its file
      help: leave out --http, and it starts a program instead
    (exit 2)
    ");
    assert_snapshot!(stage.run("export --to cursr"), @"
    (stderr) error[unknown_client]: there is no client 'cursr'
      help: did you mean cursor?
    (exit 4)
    ");
    assert_snapshot!(stage.run("export --to teapot"), @"
    (stderr) error[unknown_client]: there is no client 'teapot'
      help: there are claude-desktop, claude-code, vscode, copilot, cursor, windsurf, zed, gemini, codex, opencode, lmstudio, cline, roo, continue, goose, kiro, crush, amazonq, qwen, ai-agent, inspector
    (exit 4)
    ");
    assert_snapshot!(stage.run("connect claude-desktop --project"), @"
    (stderr) error[usage]: Claude Desktop has no file of folders here
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
fn servers_are_given_back_in_the_words_of_a_client() {
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
    (stderr) chat is left out: VS Code knows no servers that are spoken to over WebSocket
    home is left out: VS Code cannot be told a default for the variable HOME_OF_IT
    ping is left out: only Pegboard can do what it does
    Keys are blotted out here; --write writes them
    "#);
}

#[test]
fn variables_of_ours_are_written_as_a_client_writes_them() {
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
    (stderr) chat is left out: OpenCode knows no servers that are spoken to over WebSocket
    home is left out: OpenCode cannot be told a default for the variable HOME_OF_IT
    ping is left out: only Pegboard can do what it does
    "#);
}

#[test]
fn what_a_client_cannot_be_told_is_left_out() {
    let stage = Stage::with("pegboard.yaml", OURS);
    assert_snapshot!(stage.run("export --to codex --expand -q"), @r#"
    [mcp_servers.files]
    command = "dev-files"
    args = []
    (stderr) files is left out: Codex cannot be told the variable OTHER
    wiki is left out: Codex cannot be told the variable WIKI_TOKEN
    chat is left out: Codex knows no servers that are spoken to over WebSocket
    home is left out: Codex cannot be told a default for the variable HOME_OF_IT
    ping is left out: only Pegboard can do what it does
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
    (stderr) chat is left out: Continue knows no servers that are spoken to over WebSocket
    home is left out: Continue cannot be told a default for the variable HOME_OF_IT
    ping is left out: only Pegboard can do what it does
    "#);
}

#[test]
fn servers_are_written_into_the_file_of_a_client() {
    let stage = Stage::with("pegboard.yaml", OURS);
    assert_snapshot!(stage.run("export --to cursor --expand --write"), @"
    Connected Cursor: ~/.cursor/mcp.json (files, wiki, dev-files)
    (stderr) chat is left out: Cursor knows no servers that are spoken to over WebSocket
    home is left out: Cursor cannot be told a default for the variable HOME_OF_IT
    ping is left out: only Pegboard can do what it does
    To undo it: pegboard restore cursor
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
    assert_snapshot!(stage.run("restore cursor"), @"Removed ~/.cursor/mcp.json, which was not there before");
}

#[cfg(unix)]
#[test]
fn a_program_that_the_shell_finds_is_called_by_its_name() {
    let stage = Stage::new();
    std::fs::create_dir_all(stage.path("~/bin")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_pegboard"), stage.path("~/bin/pegboard")).unwrap();
    let mut command = stage.command("export --to cursor");
    assert_snapshot!(stage.told(command.env("PATH", stage.path("~/bin"))), @r#"
    {
      "mcpServers": {
        "pegboard": {
          "command": "pegboard",
          "args": ["serve", "--stdio"]
        }
      }
    }
    "#);
}

const CURSOR: &str =
    "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"a\", \"env\": {\"KEY\": \"sk-1\"}} // mine\n  }\n}\n";

#[test]
fn a_client_is_connected_in_the_file_that_is_meant() {
    let stage = Stage::with("pegboard.yaml", "mcpServers: {}\n");
    stage.write("~/.cursor/mcp.json", CURSOR);
    assert_snapshot!(stage.run("connect cursor --http --dry-run"), @r#"
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
    "#);
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR);
    assert_snapshot!(stage.run("connect cursor --project --http"), @"
    Connected Cursor: .cursor/mcp.json
    (stderr) To undo it: pegboard restore cursor
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
    assert_snapshot!(stage.run("connect cursor -o json"), @r#"
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
      help: say which: --user, --project or --all
    (exit 2)
    ");
    assert_snapshot!(stage.run("restore cursor --project"), @"Removed .cursor/mcp.json, which was not there before");
    assert!(!stage.path(".cursor/mcp.json").exists());
    stage.run("restore cursor --user");
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR);
    assert_snapshot!(stage.run("restore"), @"No file of a client was changed from here");
    assert_snapshot!(stage.run("restore cursor"), @"
    (stderr) error[no_backup]: no file of Cursor was changed from here
      help: pegboard restore lists those that were
    (exit 4)
    ");
}

#[test]
fn a_file_that_was_changed_since_is_put_back_only_by_force() {
    let stage = Stage::with("~/.cursor/mcp.json", CURSOR);
    stage.run("connect cursor --http");
    let edited = stage.read("~/.cursor/mcp.json").replace("// mine", "// ours");
    stage.write("~/.cursor/mcp.json", &edited);
    assert_snapshot!(stage.run("restore cursor"), @"
    (stderr) error[file_changed]: ~/.cursor/mcp.json was changed since
      what was changed would be lost
      help: look at it with --dry-run, and put it back with --force: what it says now is kept aside
    (exit 2)
    ");
    assert_snapshot!(stage.run("restore cursor --dry-run"), @r#"
    --- ~/.cursor/mcp.json
    +++ ~/.cursor/mcp.json
    @@ -1,8 +1,5 @@
     {
       "mcpServers": {
    -    "a": {"command": "a", "env": {"KEY": "**-*"}}, // ours
    -    "pegboard": {
    -      "url": "http://127.0.0.1:7332/mcp"
    -    }
    +    "a": {"command": "a", "env": {"KEY": "**-*"}} // mine
       }
     }
    "#);
    assert_eq!(stage.read("~/.cursor/mcp.json"), edited);
    assert_snapshot!(stage.run("restore cursor --force"), @"
    Restored ~/.cursor/mcp.json
    (stderr) What it said is kept in ~/state/pegboard/backups/0001.1.aside
    ");
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR);
    assert_eq!(stage.read("~/state/pegboard/backups/0001.1.aside"), edited);
}

#[test]
fn changes_that_follow_each_other_are_undone_at_once() {
    let stage = Stage::with("~/.cursor/mcp.json", CURSOR);
    stage.run("connect cursor");
    stage.run("connect cursor --http http://localhost:1/mcp");
    assert!(stage.read("~/.cursor/mcp.json").contains("localhost:1"));
    stage.run("restore cursor");
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR);
}

#[cfg(unix)]
#[test]
fn who_may_read_a_file_and_its_backup_stays_as_it_was() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::with("~/.cursor/mcp.json", CURSOR);
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
fn several_at_once_take_nothing_from_each_other() {
    let stage = Stage::new();
    let clients = ["cursor/mcp.json", "gemini/settings.json", "lmstudio/mcp.json", "qwen/settings.json"];
    let text = |file: &str| format!("{{\"mcpServers\": {{\"{file}\": {{\"command\": \"own\"}}}}}}");
    for file in clients {
        stage.write(&format!("~/.{file}"), &text(file));
    }
    let mut running: Vec<_> = clients
        .iter()
        .map(|file| {
            stage.command(&format!("connect {} --http", file.split('/').next().unwrap())).spawn().unwrap()
        })
        .collect();
    assert!(running.iter_mut().all(|one| one.wait().unwrap().success()));
    assert_eq!(stage.run("restore --all").lines().filter(|line| line.starts_with("Restored ")).count(), 4);
    for file in clients {
        assert_eq!(stage.read(&format!("~/.{file}")), text(file));
    }
}

#[test]
fn one_that_was_changed_since_keeps_no_other_from_coming_back() {
    let stage = Stage::with("~/.cursor/mcp.json", CURSOR);
    stage.write("~/.codex/config.toml", "");
    stage.run("connect cursor");
    stage.run("connect codex");
    stage.write("~/.codex/config.toml", "# mine\n");
    let said = stage.run("restore --all");
    assert!(said.contains("Restored ~/.cursor/mcp.json") && said.contains("was changed since"), "{said}");
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR);
    assert_eq!(stage.read("~/.codex/config.toml"), "# mine\n");
}

#[test]
fn at_home_the_file_of_the_folder_is_that_of_the_user() {
    let stage = Stage::with("~/.cursor/mcp.json", CURSOR);
    let at_home = |line: &str| stage.told(stage.command(line).current_dir(stage.home()));
    at_home("connect cursor");
    assert_snapshot!(at_home("restore cursor"), @"Restored .cursor/mcp.json");
}

#[cfg(unix)]
#[test]
fn a_link_that_led_nowhere_leads_there_again() {
    let stage = Stage::with("~/.cursor/note", "");
    std::os::unix::fs::symlink(stage.path("~/real.json"), stage.path("~/.cursor/mcp.json")).unwrap();
    stage.run("connect cursor");
    assert!(stage.path("~/real.json").exists());
    stage.run("restore cursor");
    assert!(!stage.path("~/real.json").exists() && stage.path("~/.cursor/mcp.json").is_symlink());
}

#[test]
fn what_would_be_another_server_is_not_exported() {
    let text = "
toolboxes:
  one: {mcpServers: {x: {command: a1}, two-x: {command: a2}}}
  two: {mcpServers: {x: {command: a3}, safe: {command: s, toolsDenied: [delete_all]}}}
";
    let stage = Stage::with("pegboard.yaml", text);
    stage.write("~/.cursor/mcp.json", r#"{"mcpServers": {"x": {"command": "mine"}}}"#);
    stage.run("connect cursor");
    assert_snapshot!(stage.run("export --to cursor --expand --write"), @"
    Connected Cursor: ~/.cursor/mcp.json (x, two-x, x-2)
    (stderr) safe is left out: Cursor cannot be told its toolsDenied
    x is replaced in ~/.cursor/mcp.json
    To undo it: pegboard restore cursor
    ");
    assert_snapshot!(stage.read("~/.cursor/mcp.json"), @r#"{"mcpServers": {"x": {"command": "a1", "args": []}, "two-x": {"command": "a2", "args": []}, "x-2": {"command": "a3", "args": []}}}"#);
}
