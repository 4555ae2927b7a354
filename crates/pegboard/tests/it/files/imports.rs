//! Import of clients' servers.

use insta::assert_snapshot;
use pegboard::config::clients::clients;

use crate::files::clients::{fixture, place, variants};
use crate::files::stage::Stage;

const CURSOR: &str = r#"{
  // what I use every day
  "mcpServers": {
    "github": {"url": "https://api.example.com/mcp", "headers": {"Authorization": "Bearer sk-1"}},
    "my files": {"command": "npx", "args": ["-y", "files-server", "."], "disabled": true}
  }
}
"#;
const CODEX: &str = r#"model = "o5"

[mcp_servers.files]
command = "npx"
args = ["-y", "files-server", "."]

[mcp_servers.github]
url = "https://other.example.com/mcp"
bearer_token_env_var = "GITHUB_TOKEN"
"#;
const VSCODE: &str = r#"{
  "servers": {
    "gh": {"type": "http", "url": "https://api.example.com/mcp/", "headers": {"Authorization": "Bearer sk-1"}},
    "asks": {"command": "asks-server", "args": ["${command:extension.pick}"]},
    "keyed": {"command": "keyed-server", "env": {"KEY": "${input:key}"}}
  },
  "inputs": [{"id": "key", "type": "promptString", "description": "The key", "password": true}]
}
"#;

/// Creates a user with three clients that share some servers.
fn three_clients() -> Stage {
    let stage = Stage::with(".vscode/mcp.json", VSCODE);
    stage.write("~/.cursor/mcp.json", CURSOR);
    stage.write("~/.codex/config.toml", CODEX);
    // A file without servers is not a source.
    stage.write("~/.gemini/settings.json", r#"{"theme": "dark"}"#);
    stage
}

/// The configuration file without its two header lines.
fn below_heading(stage: &Stage) -> String {
    let text = stage.without_paths(&stage.read("pegboard.yaml"));
    text.lines().skip(2).collect::<Vec<_>>().join("\n")
}

#[test]
#[expect(clippy::too_many_lines, reason = "the file and the report are compared as a whole")]
fn servers_of_all_clients_are_merged_into_one_file() {
    let stage = three_clients();
    assert_snapshot!(stage.run("import --into pegboard.yaml"), @r#"
    SOURCE  NAME      KIND
    vscode  gh        http   new
    vscode  asks      stdio  skipped: servers.asks.args[0]: only an editor can resolve this reference
    vscode  keyed     stdio  new, needs: PEGBOARD_INPUT_KEY
    cursor  github    http   same as gh
    cursor  my-files  stdio  new
    codex   files     stdio  same as my-files
    codex   github    http   new, needs: GITHUB_TOKEN
    3 sources: 4 new, 2 duplicate, 1 skipped → pegboard.yaml
    (stderr) warning: ~/.cursor/mcp.json:5:5  mcpServers["my files"]
       5 |     "my files": {"command": "npx", "args": ["-y", "files-server", "."], "d…
         |     ^^^^^^^^^^ server renamed to my-files: names may contain letters, digits, '-' and '_'
    pegboard.yaml contains plaintext keys: gh (headers.Authorization). Keep it out of version control, or store each with pegboard secret set NAME and write ${keyring:NAME}; import --store-keys does both
    Not trusted yet, since files of this project define them: gh/gh, keyed/keyed. Review them, then run: pegboard trust pegboard.yaml
    Next: pegboard ls   or   pegboard connect CLIENT
    "#);
    assert_snapshot!(stage.without_paths(&stage.read("pegboard.yaml")), @r#"
    # yaml-language-server: $schema=file://~/.config/pegboard/pegboard.schema.json
    # The tools of this folder, for every client:  pegboard serve
    toolboxes:
      gh:
        mcpServers:
          gh:
            type: http
            url: https://api.example.com/mcp/
            headers:
              Authorization: Bearer sk-1
      keyed:
        mcpServers:
          keyed:
            command: keyed-server
            env:
              KEY: ${input:key}
      my-files:
        mcpServers:
          my-files:
            command: npx
            args: [-y, files-server, "."]
      github:
        mcpServers:
          github:
            url: https://other.example.com/mcp
            headers:
              Authorization: Bearer ${GITHUB_TOKEN}
    inputs:
      key:
        description: The key
        password: true
    "#);
    assert_snapshot!(stage.run("import --into pegboard.yaml"), @r#"
    SOURCE  NAME      KIND
    vscode  gh        http   already present
    vscode  asks      stdio  skipped: servers.asks.args[0]: only an editor can resolve this reference
    vscode  keyed     stdio  already present, needs: PEGBOARD_INPUT_KEY
    cursor  github    http   already present as gh
    cursor  my-files  stdio  already present, disabled
    codex   files     stdio  already present as my-files
    codex   github    http   already present, needs: GITHUB_TOKEN
    3 sources: 6 already present, 1 skipped
    (stderr) warning: ~/.cursor/mcp.json:5:5  mcpServers["my files"]
       5 |     "my files": {"command": "npx", "args": ["-y", "files-server", "."], "d…
         |     ^^^^^^^^^^ server renamed to my-files: names may contain letters, digits, '-' and '_'
    "#);
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR);
}

#[test]
fn a_dry_run_of_import_changes_nothing() {
    let stage = three_clients();
    assert_snapshot!(stage.run("import --into pegboard.yaml cursor codex:files --take-over --dry-run -q"), @r#"
    SOURCE  NAME      KIND
    cursor  github    http   new
    cursor  my-files  stdio  new
    codex   files     stdio  same as my-files
    2 sources: 2 new, 1 duplicate → pegboard.yaml

    --- pegboard.yaml
    +++ pegboard.yaml
    @@ -0,0 +1,14 @@
    +# yaml-language-server: $schema=file://~/.config/pegboard/pegboard.schema.json
    +# The tools of this folder, for every client:  pegboard serve
    +toolboxes:
    +  github:
    +    mcpServers:
    +      github:
    +        url: https://api.example.com/mcp
    +        headers:
    +          Authorization: ****** **-*
    +  my-files:
    +    mcpServers:
    +      my-files:
    +        command: npx
    +        args: [-y, files-server, "."]

    --- ~/.cursor/mcp.json
    +++ ~/.cursor/mcp.json
    @@ -1,7 +1,9 @@
     {
       // what I use every day
       "mcpServers": {
    -    "github": {"url": "https://api.example.com/mcp", "headers": {"Authorization": "****** **-*"}},
    -    "my files": {"command": "npx", "args": ["-y", "files-server", "."], "disabled": true}
    +    "pegboard": {
    +      "command": "/bin/pegboard",
    +      "args": ["serve", "--stdio", "--config", "~/project/pegboard.yaml"]
    +    }
       }
     }

    --- ~/.codex/config.toml
    +++ ~/.codex/config.toml
    @@ -1,9 +1,9 @@
     model = "o5"
     
    -[mcp_servers.files]
    -command = "npx"
    -args = ["-y", "files-server", "."]
    -
     [mcp_servers.github]
     url = "https://other.example.com/mcp"
     bearer_token_env_var = "GITHUB_TOKEN"
    +
    +[mcp_servers.pegboard]
    +command = "/bin/pegboard"
    +args = ["serve", "--stdio", "--config", "~/project/pegboard.yaml"]
    "#);
    assert!(!stage.path("pegboard.yaml").exists());
    assert!(!stage.path("~/.config/pegboard").exists());
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR);
}

#[test]
fn json_output_has_the_same_report() {
    let stage = three_clients();
    assert_snapshot!(stage.run("import codex:files --into tools.toml --json"), @r#"
    {
      "file": "tools.toml",
      "changed": true,
      "diff": null,
      "sources": [
        {
          "source": "codex",
          "file": "~/.codex/config.toml",
          "dialect": "Codex",
          "parts": 1
        }
      ],
      "parts": [
        {
          "source": "codex",
          "section": "mcpServers",
          "toolbox": "files",
          "name": "files",
          "transport": "stdio",
          "status": "new",
          "as": "files",
          "reason": null,
          "enabled": true,
          "obstacle": null,
          "stays": null
        }
      ],
      "unreadable": [],
      "untrusted": [],
      "takenOver": []
    }
    "#);
}

#[test]
fn a_takeover_lasts_until_the_files_are_restored() {
    let stage = three_clients();
    assert_snapshot!(stage.run("--trust import --into pegboard.yaml --take-over --force -q"), @"
    SOURCE  NAME      KIND
    vscode  gh        http   new
    vscode  asks      stdio  skipped: servers.asks.args[0]: only an editor can resolve this reference
    vscode  keyed     stdio  new, needs: PEGBOARD_INPUT_KEY
    cursor  github    http   same as gh
    cursor  my-files  stdio  new
    codex   files     stdio  same as my-files
    codex   github    http   new, needs: GITHUB_TOKEN
    3 sources: 4 new, 2 duplicate, 1 skipped → pegboard.yaml
    VS Code now uses Pegboard instead of gh, keyed: .vscode/mcp.json
    Cursor now uses Pegboard instead of github, my-files: ~/.cursor/mcp.json
    Codex now uses Pegboard instead of files, github: ~/.codex/config.toml
    ");
    assert_snapshot!(stage.without_paths(&stage.read("~/.cursor/mcp.json")), @r#"
    {
      // what I use every day
      "mcpServers": {
        "pegboard": {
          "command": "/bin/pegboard",
          "args": ["serve", "--stdio", "--config", "~/project/pegboard.yaml"]
        }
      }
    }
    "#);
    assert_snapshot!(stage.without_paths(&stage.read("~/.codex/config.toml")), @r#"
    model = "o5"

    [mcp_servers.pegboard]
    command = "/bin/pegboard"
    args = ["serve", "--stdio", "--config", "~/project/pegboard.yaml"]
    "#);
    // Servers that only the client can use stay in its file.
    assert_snapshot!(stage.without_paths(&stage.read(".vscode/mcp.json")), @r#"
    {
      "servers": {
        "asks": {"command": "asks-server", "args": ["${command:extension.pick}"]},
        "pegboard": {
          "type": "stdio",
          "command": "/bin/pegboard",
          "args": ["serve", "--stdio", "--config", "~/project/pegboard.yaml"]
        }
      },
      "inputs": [{"id": "key", "type": "promptString", "description": "The key", "password": true}]
    }
    "#);
    assert_snapshot!(stage.run("restore --all"), @"
    Restored ~/.codex/config.toml
    Restored ~/.cursor/mcp.json
    Restored .vscode/mcp.json
    ");
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR);
    assert_eq!(stage.read("~/.codex/config.toml"), CODEX);
    assert_eq!(stage.read(".vscode/mcp.json"), VSCODE);
}

#[test]
fn every_client_is_taken_over_and_restored_byte_for_byte() {
    let mut n_clients = 0;
    for client in clients() {
        let Some(text) = fixture(client) else { continue };
        n_clients += 1;
        for text in variants(&text, n_clients) {
            let stage = Stage::new();
            let (path, _) = place(&stage, client);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
            let name = client.name();
            let said = stage.run(&format!("import --into pegboard.yaml {name} --take-over --force"));
            assert!(said.contains("now uses Pegboard instead of"), "{name}: {said}");
            let taken = std::fs::read_to_string(&path).unwrap();
            assert!(taken.contains("pegboard.yaml"), "{name}: {taken}");
            // The file now has Pegboard and the skipped servers.
            let again = stage.run(&format!("import {name} --into other.yaml --dry-run --json"));
            assert!(!again.contains("\"status\": \"new\""), "{name}: {again}");
            assert!(stage.run(&format!("restore {name}")).starts_with("Restored "), "{name}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{name}");
        }
    }
    assert!(n_clients > 15, "{n_clients}");
}

#[test]
fn per_folder_servers_are_taken_over_only_there() {
    let stage = Stage::new();
    let folder = stage.project().display().to_string();
    let text = format!(
        r#"{{"n": 1, "mcpServers": {{"notes": {{"command": "notes"}}}}, "projects": {{"{folder}": {{"mcpServers": {{"notes": {{"command": "own"}}}}}}}}}}"#
    );
    stage.write("~/.claude.json", &text);
    stage.run("import --into pegboard.yaml claude-code --take-over --http=http://127.0.0.1:7332/mcp");
    assert_snapshot!(stage.without_paths(&stage.read("~/.claude.json")), @r#"{"n": 1, "mcpServers": {"notes": {"command": "notes"}}, "projects": {"~/project": {"mcpServers": {"pegboard": {"type": "http", "url": "http://127.0.0.1:7332/mcp"}}}}}"#);
    assert_snapshot!(below_heading(&stage), @"
    toolboxes:
      notes:
        mcpServers:
          notes:
            command: own
    ");
}

#[test]
fn servers_disabled_in_one_folder_stay_for_others() {
    let stage = Stage::new();
    let folder = stage.project().display().to_string();
    let text = format!(
        r#"{{"mcpServers": {{"g": {{"command": "g"}}, "h": {{"command": "h"}}}}, "projects": {{"{folder}": {{"disabledMcpServers": ["g"]}}}}}}"#
    );
    stage.write("~/.claude.json", &text);
    assert!(
        stage
            .run("import --into pegboard.yaml claude-code --take-over")
            .contains("Claude Code now uses Pegboard instead of h:")
    );
    let taken = stage.read("~/.claude.json");
    assert!(taken.contains(r#""g": {"command": "g"}"#) && !taken.contains(r#""h""#), "{taken}");
}

#[test]
fn name_conflicts_are_renamed_and_duplicates_merged() {
    let stage = Stage::with("pegboard.yaml", "mcpServers:\n  a: {command: first} # mine\n");
    stage.write(
        "one.json",
        r#"{"mcpServers": {"a": {"command": "second"}, "b": {"command": "third", "env": {"X": "1"}}}}"#,
    );
    stage.write("two.json", r#"{"mcpServers": {"a": {"command": "fourth"}, "c": {"command": "third", "env": {"X": "1", "Y": "2"}}, "d": {"command": "third", "env": {"X": "9"}}}}"#);
    assert_snapshot!(stage.run("import --into pegboard.yaml one.json two.json"), @"
    SOURCE    NAME  KIND
    one.json  a     stdio  new as a-2
    one.json  b     stdio  new
    two.json  a     stdio  new as a-3
    two.json  c     stdio  new
    two.json  d     stdio  new
    2 sources: 5 new → pegboard.yaml
    (stderr) Next: pegboard ls   or   pegboard connect CLIENT
    ");
    assert_snapshot!(stage.without_paths(&stage.read("pegboard.yaml")), @r#"
    mcpServers:
      a: {command: first} # mine
    toolboxes:
      a-2:
        mcpServers:
          a-2:
            command: second
      b:
        mcpServers:
          b:
            command: third
            env:
              X: "1"
      a-3:
        mcpServers:
          a-3:
            command: fourth
      c:
        mcpServers:
          c:
            command: third
            env:
              X: "1"
              "Y": "2"
      d:
        mcpServers:
          d:
            command: third
            env:
              X: "9"
    "#);
}

#[test]
fn queues_toolboxes_and_inputs_are_imported_too() {
    let stage = Stage::new();
    stage.write(
        "theirs/pegboard.yaml",
        "toolTimeout: 5s\nqueues: {slow: {concurrent: 1}, other: {concurrent: 2}}\ntoolboxes:\n  dev:\n    description: Code\n    mcpServers: {a: {command: a, queue: slow}}\nrestTools:\n  ping: {description: Pings, url: https://example.com/ping}\n",
    );
    assert_snapshot!(stage.run("import --into pegboard.yaml theirs"), @"
    SOURCE                NAME   KIND
    theirs/pegboard.yaml  ping   rest   new
    theirs/pegboard.yaml  dev/a  stdio  new
    1 source: 2 new → pegboard.yaml
    (stderr) theirs/pegboard.yaml also sets toolTimeout, which was not imported
    Not trusted yet, since files of this project define them: ping, dev/a. Review them, then run: pegboard trust pegboard.yaml
    Next: pegboard ls   or   pegboard connect CLIENT
    ");
    assert_snapshot!(below_heading(&stage), @"
    restTools:
      ping:
        description: Pings
        url: https://example.com/ping
    toolboxes:
      dev:
        description: Code
        mcpServers:
          a:
            command: a
            queue: slow
            cwd: ~/project/theirs
    queues:
      slow:
        concurrent: 1
    ");
}

#[test]
fn an_unreadable_file_does_not_stop_the_import() {
    let stage = three_clients();
    stage.write("~/.cursor/mcp.json", "{\"mcpServers\": {\"a\": ");
    stage.write(
        "~/.kiro/settings/mcp.json",
        r#"{"mcpServers": {"bad": {"command": 5}, "good": {"command": "good"}}}"#,
    );
    assert_snapshot!(stage.run("import --into pegboard.yaml"), @r#"
    SOURCE  NAME    KIND
    vscode  gh      http   new
    vscode  asks    stdio  skipped: servers.asks.args[0]: only an editor can resolve this reference
    vscode  keyed   stdio  new, needs: PEGBOARD_INPUT_KEY
    codex   files   stdio  new
    codex   github  http   new, needs: GITHUB_TOKEN
    kiro    bad     stdio  skipped: mcpServers.bad.command: expected a command, or a list of a command and its arguments, not a number
    kiro    good    stdio  new
    3 sources: 5 new, 2 skipped → pegboard.yaml
    (stderr) ~/.cursor/mcp.json was skipped: error[config_invalid]: ~/.cursor/mcp.json:1:22
       1 | {"mcpServers": {"a": 
         |                      ^ Invalid JSON in config file: Expected value after colon in object property
    1 error: this file was not loaded
    pegboard.yaml contains plaintext keys: gh (headers.Authorization). Keep it out of version control, or store each with pegboard secret set NAME and write ${keyring:NAME}; import --store-keys does both
    Not trusted yet, since files of this project define them: gh/gh, keyed/keyed. Review them, then run: pegboard trust pegboard.yaml
    Next: pegboard ls   or   pegboard connect CLIENT
    "#);
    assert_snapshot!(stage.run("import --into pegboard.yaml cursor"), @r#"
    (stderr) error[config_invalid]: ~/.cursor/mcp.json:1:22
       1 | {"mcpServers": {"a": 
         |                      ^ Invalid JSON in config file: Expected value after colon in object property
    1 error: this file was not loaded
    (exit 3)
    "#);
    assert_snapshot!(stage.run("import --into pegboard.yaml cursr"), @"
    (stderr) error[not_found]: no file, directory or client named 'cursr'. Did you mean cursor?
    (exit 4)
    ");
}

#[test]
fn importing_without_clients_suggests_add() {
    let stage = Stage::new();
    assert_snapshot!(stage.run("import --into pegboard.yaml"), @"
    No servers found
    (stderr) Add one: pegboard add NAME URL   or   pegboard add NAME -- COMMAND
    ");
    assert!(!stage.path("pegboard.yaml").exists());
}

#[test]
fn init_can_start_from_a_client() {
    let stage = three_clients();
    assert_snapshot!(stage.run("init --from cursor --from https://example.com/docs/mcp"), @r#"
    SOURCE                      NAME              KIND
    cursor                      github            http   new
    cursor                      my-files          stdio  new, disabled
    the address at example.com  example-com-docs  http   new
    2 sources: 3 new → pegboard.yaml
    (stderr) warning: ~/.cursor/mcp.json:5:5  mcpServers["my files"]
       5 |     "my files": {"command": "npx", "args": ["-y", "files-server", "."], "d…
         |     ^^^^^^^^^^ server renamed to my-files: names may contain letters, digits, '-' and '_'
    pegboard.yaml contains plaintext keys: github (headers.Authorization). Keep it out of version control, or store each with pegboard secret set NAME and write ${keyring:NAME}; import --store-keys does both
    Next: pegboard ls   or   pegboard connect CLIENT
    "#);
    assert_snapshot!(below_heading(&stage), @r#"
    toolboxes:
      github:
        mcpServers:
          github:
            url: https://api.example.com/mcp
            headers:
              Authorization: Bearer sk-1
      my-files:
        mcpServers:
          my-files:
            command: npx
            args: [-y, files-server, "."]
            disabled: true
    mcpServers:
      example-com-docs:
        url: https://example.com/docs/mcp
    "#);
    let before = stage.read("pegboard.yaml");
    assert!(stage.run("init --from cursor").contains("error[file_exists]"));
    stage.run("init --from cursor --from https://example.com/docs/mcp --force");
    assert_eq!(stage.read("pegboard.yaml"), before);
}

#[cfg(unix)]
#[test]
fn a_new_file_with_keys_is_readable_only_by_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let stage = three_clients();
    stage.run("import --into pegboard.yaml cursor");
    let mode = std::fs::metadata(stage.path("pegboard.yaml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[cfg(unix)]
#[test]
fn a_failed_takeover_does_not_affect_other_clients() {
    use std::os::unix::fs::PermissionsExt;
    let stage = three_clients();
    let path = stage.path("~/.cursor/mcp.json");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    let said = stage.run("import --into pegboard.yaml cursor codex --take-over -q");
    assert!(said.contains("Codex now uses Pegboard instead of"), "{said}");
    assert!(said.contains("the file is read-only and was not changed"), "{said}");
    assert!(said.ends_with("(exit 1)"), "{said}");
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR);
    assert_snapshot!(stage.run("restore"), @"codex  ~/.codex/config.toml");
}

#[test]
fn similar_servers_are_not_merged() {
    let stage = Stage::new();
    let text = r#"{"mcpServers": {
        "here": {"command": "sed", "cwd": "/a"}, "there": {"command": "sed", "cwd": "/b"},
        "all": {"command": "db"}, "some": {"command": "db", "toolsDenied": ["write*"]}
    }}"#;
    stage.write("one.json", text);
    let asks = |body: &str| {
        format!(
            "{{description: Asks, method: POST, url: https://x.example.com/graphql, parametersSchema: {{}}, bodyTemplate: {body}}}"
        )
    };
    let (users, orders) = (asks("users"), asks("orders"));
    stage.write("two.yaml", &format!("restTools: {{users: {users}, orders: {orders}}}\n"));
    assert_snapshot!(stage.run("import --into pegboard.yaml one.json two.yaml -q"), @"
    SOURCE    NAME    KIND
    one.json  here    stdio  new
    one.json  there   stdio  new
    one.json  all     stdio  new
    one.json  some    stdio  new
    two.yaml  users   rest   new
    two.yaml  orders  rest   new
    2 sources: 6 new → pegboard.yaml
    ");
}

#[test]
fn a_disabled_or_incomplete_entry_does_not_replace_a_working_one() {
    let stage = Stage::with(
        "pegboard.yaml",
        "mcpServers: {gh: {command: gh, enabled: false}, wiki: {command: wiki}}\n",
    );
    let text =
        r#"{"mcpServers": {"gh": {"command": "gh"}, "wiki": {"command": "wiki", "env": {"LANG": "C"}}}}"#;
    stage.write("~/.cursor/mcp.json", text);
    assert_snapshot!(stage.run("import --into pegboard.yaml cursor -q"), @"
    SOURCE  NAME  KIND
    cursor  gh    stdio  new as gh-cursor
    cursor  wiki  stdio  new as wiki-cursor
    1 source: 2 new → pegboard.yaml
    ");
}

#[test]
fn two_sources_in_one_file_are_taken_over_together() {
    let stage = Stage::with("~/.cursor/mcp.json", CURSOR);
    assert_snapshot!(stage.run_of(&["import", "--into", "pegboard.yaml", "cursor:github", "cursor:my files", "cursor", "--take-over", "-q"]), @"
    SOURCE  NAME      KIND
    cursor  github    http   new
    cursor  my-files  stdio  new, disabled
    cursor  github    http   same as github
    cursor  my-files  stdio  same as my-files, disabled
    3 sources: 2 new, 2 duplicate → pegboard.yaml
    Cursor now uses Pegboard instead of github, my-files: ~/.cursor/mcp.json
    ");
    stage.run("restore cursor");
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR);
}

#[test]
fn init_from_an_empty_source_is_an_error() {
    let ours = "toolTimeout: 5s\nmcpServers: {mine: {command: mine}}\n";
    let stage = Stage::with("pegboard.yaml", ours);
    stage.write("~/.cursor/mcp.json", r#"{"mcpServers": {}}"#);
    assert_snapshot!(stage.run("init --force --from cursor"), @"
    (stderr) error[unknown_server]: no servers to import
      help: remove --from, or use another source
    (exit 4)
    ");
    assert_snapshot!(stage.run("init --force --from pegboard.yaml"), @"
    (stderr) error[usage]: cannot import a file into itself
      help: use another source
    (exit 2)
    ");
    assert_eq!(stage.read("pegboard.yaml"), ours);
}

#[test]
fn keys_in_arguments_and_urls_are_redacted() {
    let stage = Stage::new();
    let text = r#"{"mcpServers": {
        "a": {"command": "a", "args": ["--api-key=S1-secret"]},
        "b": {"url": "https://ada:S2-secret@example.com/mcp?token=S3-secret"}, "c": {"command": "c", "args": ["--token", "S4-secret"]}
    }}"#;
    stage.write("theirs.json", text);
    let said = stage.run("import --into pegboard.yaml theirs.json");
    assert!(said.contains("a (args), b (url), c (args)") && !said.contains("-secret"), "{said}");
    stage.write(
        "pegboard.yaml",
        &stage.read("pegboard.yaml").replace("command: a", "command: a\n    cwd: [1]"),
    );
    stage.write(
        "bad.json",
        &text.replace(r#""command": "a""#, r#""command": "a", "cwd": [1]"#).replace("https", "htp"),
    );
    let said = stage.run("validate pegboard.yaml bad.json");
    assert!(said.contains("cwd") && !said.contains("-secret"), "{said}");
}

#[test]
fn a_source_that_is_not_a_file_is_not_edited() {
    let stage = Stage::with("~/.cursor/mcp.json", CURSOR);
    assert_snapshot!(stage.run("--config cursor add z https://example.com"), @"
    (stderr) error[usage]: cursor is not a file; only files can be edited
      help: pass a file, such as pegboard.yaml
    (exit 2)
    ");
    assert!(stage.run("import --into cursor").contains("is not a file"));
    assert!(stage.run("init --config https://example.com/x").contains("is not a file"));
    assert_snapshot!(stage.run("--config cursor --set toolTimeout=5s export --to codex"), @r#"
    [mcp_servers.pegboard]
    command = "/bin/pegboard"
    args = ["serve", "--stdio", "--config", "cursor", "--set", "toolTimeout=5s"]
    "#);
    assert_snapshot!(stage.run("--config gone.yaml connect codex"), @r#"
    (stderr) error[not_found]: gone.yaml: no such file. Check the path, or create it: {"mcpServers": {"files": {"command": "my-server"}}}
    (exit 4)
    "#);
}

#[test]
fn duplicates_of_skipped_servers_are_skipped() {
    let stage = Stage::new();
    let text = r#"{"mcpServers": {"b": {"command": "b"}},
        "restTools": {"ping": {"description": "Pings", "url": "https://example.com/ping", "colour": "red"}}}"#;
    stage.write("one.json", text);
    stage.write("two.json", text);
    assert_snapshot!(stage.run("import --into pegboard.yaml one.json two.json -q"), @"
    SOURCE    NAME  KIND
    one.json  b     stdio  new
    one.json  ping  rest   skipped: restTools.ping.colour: unknown setting
    two.json  b     stdio  same as b
    two.json  ping  rest   skipped: restTools.ping.colour: unknown setting
    2 sources: 1 new, 1 duplicate, 2 skipped → pegboard.yaml
    ");
}

#[test]
fn files_of_the_user_are_imported_into_the_users_configuration() {
    let stage = Stage::with(
        ".vscode/mcp.json",
        r#"{"servers": {"here": {"command": "here-server", "args": ["."]}}}"#,
    );
    stage.write("~/.cursor/mcp.json", r#"{"mcpServers": {"mine": {"command": "my-server", "args": ["."]}}}"#);
    let said = stage.run("import");
    assert!(said.contains("1 source: 1 new → ~/.config/pegboard/pegboard.yaml"), "{said}");
    assert!(said.contains("Not imported: .vscode/mcp.json"), "{said}");
    assert!(!stage.path("pegboard.yaml").exists());
    let users = stage.read("~/.config/pegboard/pegboard.yaml");
    assert!(users.contains("mine:") && !users.contains("here:") && !users.contains("cwd"), "{users}");
    assert!(users.contains("$schema=./pegboard.schema.json"), "{users}");

    let said = stage.run("import vscode");
    assert!(said.contains("1 source: 1 new → pegboard.yaml"), "{said}");
    let project = stage.read("pegboard.yaml");
    assert!(project.contains("here:") && project.contains("$schema=file:///"), "{project}");
    assert!(!project.contains("cwd"), "{project}");

    // Elsewhere the directory of the project is written down, and found again.
    for _ in 0..2 {
        stage.run("--trust import vscode --into ../other/pegboard.yaml");
        let other = stage.without_paths(&stage.read("../other/pegboard.yaml"));
        assert!(other.contains("cwd: ~/project") && other.matches("here-server").count() == 1, "{other}");
    }
}

#[test]
fn servers_that_may_work_only_in_their_client_stay_there() {
    let cursor = r#"{
  "mcpServers": {
    "open": {"command": "open-server"},
    "unset": {"command": "unset-server", "env": {"KEY": "${UNSET_KEY}"}},
    "login": {"url": "https://example.com/mcp"},
    "keyed": {"url": "https://example.com/keyed", "headers": {"X-Api-Key": "k3y-k3y"}},
    "local": {"url": "http://127.0.0.1:7777/mcp"}
  }
}
"#;
    let stage = Stage::new();
    stage.write("~/.cursor/mcp.json", cursor);
    assert_snapshot!(stage.run("import --take-over"), @"
    SOURCE  NAME   KIND
    cursor  open   stdio  new
    cursor  unset  stdio  new, needs: UNSET_KEY, stays in cursor
    cursor  login  http   new, may need a login, stays in cursor
    cursor  keyed  http   new
    cursor  local  http   new
    1 source: 5 new → ~/.config/pegboard/pegboard.yaml
    Cursor now uses Pegboard instead of open, keyed, local: ~/.cursor/mcp.json
    (stderr) ~/.config/pegboard/pegboard.yaml contains plaintext keys: keyed (headers.X-Api-Key). Keep it out of version control, or store each with pegboard secret set NAME and write ${keyring:NAME}; import --store-keys does both
    Not taken over: unset, login. Set what they need and run the command again, or add --force
    Undo with: pegboard restore --all cursor
    ");
    let left = stage.read("~/.cursor/mcp.json");
    let stays =
        ["open", "unset", "login", "keyed", "local"].map(|name| left.contains(&format!("\"{name}\"")));
    assert_eq!(stays, [false, true, true, false, false], "{left}");
    // Once the variable is set, the server comes along.
    let said = stage.told(stage.command("import --take-over").env("UNSET_KEY", "k"));
    assert!(said.contains("already present") && said.contains("instead of unset"), "{said}");
    stage.run("import --take-over --force");
    let left = stage.read("~/.cursor/mcp.json");
    assert!(!left.contains("example.com"), "{left}");
    stage.run("restore --all");
    assert_eq!(stage.read("~/.cursor/mcp.json"), cursor);
}

#[test]
fn a_server_with_other_variables_is_another_server() {
    let stage = Stage::new();
    stage
        .write("~/.cursor/mcp.json", r#"{"mcpServers": {"a": {"command": "a", "env": {"TOKEN": "t0ken"}}}}"#);
    stage.write("~/.codex/config.toml", "[mcp_servers.a]\ncommand = \"a\"\n");
    let said = stage.run("import");
    assert!(said.contains("2 sources: 2 new"), "{said}");
}

#[test]
fn a_dry_run_masks_values_and_not_descriptions() {
    let stage = Stage::new();
    stage.write(
        "~/.config/Code/User/mcp.json",
        r#"{"servers": {"token-store": {"command": "store", "env": {"K": "${input:api_token}", "L": "sk-1"}}},
            "inputs": [{"id": "api_token", "type": "promptString", "description": "Token of the store", "password": true}]}"#,
    );
    let said = stage.run("import --dry-run");
    for (shown, is_shown) in [("Token of the store", true), ("command: store", true), ("sk-1", false)] {
        assert_eq!(said.contains(shown), is_shown, "{shown}: {said}");
    }
}
