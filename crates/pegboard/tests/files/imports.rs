//! What clients have, brought into our file.

use insta::assert_snapshot;
use pegboard::config::clients::clients;

use crate::clients::{fixture, place, variants};
use crate::stage::Stage;

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

/// A user with three clients, of which some have the same.
fn three_clients() -> Stage {
    let stage = Stage::with(".vscode/mcp.json", VSCODE);
    stage.write("~/.cursor/mcp.json", CURSOR);
    stage.write("~/.codex/config.toml", CODEX);
    // Settings without servers are nobody's source.
    stage.write("~/.gemini/settings.json", r#"{"theme": "dark"}"#);
    stage
}

/// Our file, without the two lines that every new one begins with.
fn below_heading(stage: &Stage) -> String {
    stage.read("pegboard.yaml").lines().skip(2).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_all_clients_have_becomes_one_file() {
    let stage = three_clients();
    assert_snapshot!(stage.run("import"), @r#"
    SOURCE  NAME      KIND
    vscode  gh        http   new
    vscode  asks      stdio  left out: servers.asks.args[0]: only an editor could fill this in
    vscode  keyed     stdio  new, needs: PEGBOARD_INPUT_KEY
    cursor  github    http   the same as gh
    cursor  my-files  stdio  new
    codex   files     stdio  the same as my-files
    codex   github    http   new, needs: GITHUB_TOKEN
    3 sources: 4 new, 2 found twice, 1 left out → pegboard.yaml
    (stderr) warning: ~/.cursor/mcp.json:5:5  mcpServers["my files"]
       5 |     "my files": {"command": "npx", "args": ["-y", "files-server", "."], "d…
         |     ^^^^^^^^^^ the server is called my-files here: names have letters, digits, '-' and '_'
    pegboard.yaml has keys in it as they are: gh (headers.Authorization). Keep it out of version control, or put ${NAME} in their place and set the variable
    Next: pegboard ls   or   pegboard connect CLIENT, to have a client use it
    "#);
    assert_snapshot!(stage.without_paths(&stage.read("pegboard.yaml")), @r#"
    # yaml-language-server: $schema=~/.config/pegboard/pegboard.schema.json
    # The tools of this folder, for every client:  pegboard serve
    mcpServers:
      gh:
        type: http
        url: https://api.example.com/mcp/
        headers:
          Authorization: Bearer sk-1
      keyed:
        command: keyed-server
        env:
          KEY: ${input:key}
      my-files:
        command: npx
        args: [-y, files-server, "."]
      github:
        url: https://other.example.com/mcp
        headers:
          Authorization: Bearer ${GITHUB_TOKEN}
    inputs:
      key:
        description: The key
        password: true
    "#);
    assert_snapshot!(stage.run("import"), @r#"
    SOURCE  NAME      KIND
    vscode  gh        http   there already
    vscode  asks      stdio  left out: servers.asks.args[0]: only an editor could fill this in
    vscode  keyed     stdio  there already
    cursor  github    http   there already, as gh
    cursor  my-files  stdio  there already, off
    codex   files     stdio  there already, as my-files
    codex   github    http   there already
    3 sources: 6 there already, 1 left out
    (stderr) warning: ~/.cursor/mcp.json:5:5  mcpServers["my files"]
       5 |     "my files": {"command": "npx", "args": ["-y", "files-server", "."], "d…
         |     ^^^^^^^^^^ the server is called my-files here: names have letters, digits, '-' and '_'
    "#);
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR);
}

#[test]
fn what_would_be_done_is_shown_and_not_done() {
    let stage = three_clients();
    assert_snapshot!(stage.run("import cursor codex:files --take-over --dry-run -q"), @r#"
    SOURCE  NAME      KIND
    cursor  github    http   new
    cursor  my-files  stdio  new
    codex   files     stdio  the same as my-files
    2 sources: 2 new, 1 found twice → pegboard.yaml

    --- pegboard.yaml
    +++ pegboard.yaml
    @@ -0,0 +1,10 @@
    +# yaml-language-server: $schema=~/.config/pegboard/pegboard.schema.json
    +# The tools of this folder, for every client:  pegboard serve
    +mcpServers:
    +  github:
    +    url: https://api.example.com/mcp
    +    headers:
    +      Authorization: ****** **-*
    +  my-files:
    +    command: npx
    +    args: [-y, files-server, "."]

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
fn programs_are_told_the_same() {
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
          "toolbox": "default",
          "name": "files",
          "transport": "stdio",
          "status": "new",
          "as": "files",
          "reason": null,
          "enabled": true,
          "obstacle": null
        }
      ],
      "unread": [],
      "takenOver": []
    }
    "#);
}

#[test]
fn clients_use_us_instead_until_their_files_are_put_back() {
    let stage = three_clients();
    assert_snapshot!(stage.run("import --take-over -q"), @"
    SOURCE  NAME      KIND
    vscode  gh        http   new
    vscode  asks      stdio  left out: servers.asks.args[0]: only an editor could fill this in
    vscode  keyed     stdio  new, needs: PEGBOARD_INPUT_KEY
    cursor  github    http   the same as gh
    cursor  my-files  stdio  new
    codex   files     stdio  the same as my-files
    codex   github    http   new, needs: GITHUB_TOKEN
    3 sources: 4 new, 2 found twice, 1 left out → pegboard.yaml
    VS Code uses us instead of gh, keyed: .vscode/mcp.json
    Cursor uses us instead of github, my-files: ~/.cursor/mcp.json
    Codex uses us instead of files, github: ~/.codex/config.toml
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
    // What nobody else can use stays where it can be used.
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
fn every_client_is_taken_over_and_put_back_byte_for_byte() {
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
            let said = stage.run(&format!("import {name} --take-over"));
            assert!(said.contains("uses us instead of"), "{name}: {said}");
            let taken = std::fs::read_to_string(&path).unwrap();
            assert!(taken.contains("pegboard.yaml"), "{name}: {taken}");
            // What it has now is us, and what could not be brought.
            let again = stage.run(&format!("import {name} --into other.yaml --dry-run --json"));
            assert!(!again.contains("\"status\": \"new\""), "{name}: {again}");
            assert!(stage.run(&format!("restore {name}")).starts_with("Restored "), "{name}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{name}");
        }
    }
    assert!(n_clients > 15, "{n_clients}");
}

#[test]
fn what_is_for_one_folder_is_taken_over_there_alone() {
    let stage = Stage::new();
    let folder = stage.project().display().to_string();
    let text = format!(
        r#"{{"n": 1, "mcpServers": {{"notes": {{"command": "notes"}}}}, "projects": {{"{folder}": {{"mcpServers": {{"notes": {{"command": "own"}}}}}}}}}}"#
    );
    stage.write("~/.claude.json", &text);
    stage.run("import claude-code --take-over --http");
    assert_snapshot!(stage.without_paths(&stage.read("~/.claude.json")), @r#"{"n": 1, "mcpServers": {"notes": {"command": "notes"}}, "projects": {"~/project": {"mcpServers": {"pegboard": {"type": "http", "url": "http://127.0.0.1:7332/mcp"}}}}}"#);
    assert_snapshot!(below_heading(&stage), @"
    mcpServers:
      notes:
        command: own
    ");
}

#[test]
fn what_is_off_in_one_folder_alone_stays_for_the_others() {
    let stage = Stage::new();
    let folder = stage.project().display().to_string();
    let text = format!(
        r#"{{"mcpServers": {{"g": {{"command": "g"}}, "h": {{"command": "h"}}}}, "projects": {{"{folder}": {{"disabledMcpServers": ["g"]}}}}}}"#
    );
    stage.write("~/.claude.json", &text);
    assert!(stage.run("import claude-code --take-over").contains("Claude Code uses us instead of h:"));
    let taken = stage.read("~/.claude.json");
    assert!(taken.contains(r#""g": {"command": "g"}"#) && !taken.contains(r#""h""#), "{taken}");
}

#[test]
fn two_of_one_name_have_two_names_and_one_of_two_names_has_one() {
    let stage = Stage::with("pegboard.yaml", "mcpServers:\n  a: {command: first} # mine\n");
    stage.write(
        "one.json",
        r#"{"mcpServers": {"a": {"command": "second"}, "b": {"command": "third", "env": {"X": "1"}}}}"#,
    );
    stage.write("two.json", r#"{"mcpServers": {"a": {"command": "fourth"}, "c": {"command": "third", "env": {"X": "1", "Y": "2"}}, "d": {"command": "third", "env": {"X": "9"}}}}"#);
    assert_snapshot!(stage.run("import one.json two.json"), @"
    SOURCE    NAME  KIND
    one.json  a     stdio  new, as a-2
    one.json  b     stdio  new
    two.json  a     stdio  new, as a-3
    two.json  c     stdio  the same as b
    two.json  d     stdio  new
    2 sources: 4 new, 1 found twice → pegboard.yaml
    (stderr) Next: pegboard ls   or   pegboard connect CLIENT, to have a client use it
    ");
    assert_snapshot!(stage.without_paths(&stage.read("pegboard.yaml")), @r#"
    mcpServers:
      a: {command: first} # mine
      a-2:
        command: second
      b:
        command: third
        env:
          X: "1"
          "Y": "2"
      a-3:
        command: fourth
      d:
        command: third
        env:
          X: "9"
    "#);
}

#[test]
fn queues_toolboxes_and_questions_come_along() {
    let stage = Stage::new();
    stage.write(
        "theirs/pegboard.yaml",
        "toolTimeout: 5s\nqueues: {slow: {concurrent: 1}, other: {concurrent: 2}}\ntoolboxes:\n  dev:\n    description: Code\n    mcpServers: {a: {command: a, queue: slow}}\nrestTools:\n  ping: {description: Pings, url: https://example.com/ping}\n",
    );
    assert_snapshot!(stage.run("import theirs"), @"
    SOURCE                NAME   KIND
    theirs/pegboard.yaml  ping   rest   new
    theirs/pegboard.yaml  dev/a  stdio  new
    1 source: 2 new → pegboard.yaml
    (stderr) theirs/pegboard.yaml also sets toolTimeout, which was left there
    Next: pegboard ls   or   pegboard connect CLIENT, to have a client use it
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
    queues:
      slow:
        concurrent: 1
    ");
}

#[test]
fn a_file_that_cannot_be_read_keeps_nothing_else_away() {
    let stage = three_clients();
    stage.write("~/.cursor/mcp.json", "{\"mcpServers\": {\"a\": ");
    stage.write(
        "~/.kiro/settings/mcp.json",
        r#"{"mcpServers": {"bad": {"command": 5}, "good": {"command": "good"}}}"#,
    );
    assert_snapshot!(stage.run("import"), @r#"
    SOURCE  NAME    KIND
    vscode  gh      http   new
    vscode  asks    stdio  left out: servers.asks.args[0]: only an editor could fill this in
    vscode  keyed   stdio  new, needs: PEGBOARD_INPUT_KEY
    codex   files   stdio  new
    codex   github  http   new, needs: GITHUB_TOKEN
    kiro    bad     stdio  left out: mcpServers.bad.command: expected a command, or a list of a command and its arguments, not a number
    kiro    good    stdio  new
    3 sources: 5 new, 2 left out → pegboard.yaml
    (stderr) ~/.cursor/mcp.json is left out: error[config_invalid]: ~/.cursor/mcp.json:1:22
       1 | {"mcpServers": {"a": 
         |                      ^ Invalid JSON in config file: Expected value after colon in object property
    1 error: nothing of this file is used
    pegboard.yaml has keys in it as they are: gh (headers.Authorization). Keep it out of version control, or put ${NAME} in their place and set the variable
    Next: pegboard ls   or   pegboard connect CLIENT, to have a client use it
    "#);
    assert_snapshot!(stage.run("import cursor"), @r#"
    (stderr) error[config_invalid]: ~/.cursor/mcp.json:1:22
       1 | {"mcpServers": {"a": 
         |                      ^ Invalid JSON in config file: Expected value after colon in object property
    1 error: nothing of this file is used
    (exit 3)
    "#);
    assert_snapshot!(stage.run("import cursr"), @"
    (stderr) error[not_found]: there is no file, folder or client 'cursr'. Did you mean cursor?
    (exit 4)
    ");
}

#[test]
fn who_has_no_client_is_told_what_to_do() {
    let stage = Stage::new();
    assert_snapshot!(stage.run("import"), @"
    No servers were found
    (stderr) Add one: pegboard add NAME URL   or   pegboard add NAME -- COMMAND
    ");
    assert!(!stage.path("pegboard.yaml").exists());
}

#[test]
fn a_file_can_begin_with_what_a_client_has() {
    let stage = three_clients();
    assert_snapshot!(stage.run("init --from cursor --from https://example.com/docs/mcp"), @r#"
    SOURCE                      NAME              KIND
    cursor                      github            http   new
    cursor                      my-files          stdio  new, off
    the address at example.com  example-com-docs  http   new
    2 sources: 3 new → pegboard.yaml
    (stderr) warning: ~/.cursor/mcp.json:5:5  mcpServers["my files"]
       5 |     "my files": {"command": "npx", "args": ["-y", "files-server", "."], "d…
         |     ^^^^^^^^^^ the server is called my-files here: names have letters, digits, '-' and '_'
    pegboard.yaml has keys in it as they are: github (headers.Authorization). Keep it out of version control, or put ${NAME} in their place and set the variable
    Next: pegboard ls   or   pegboard connect CLIENT, to have a client use it
    "#);
    assert_snapshot!(below_heading(&stage), @r#"
    mcpServers:
      github:
        url: https://api.example.com/mcp
        headers:
          Authorization: Bearer sk-1
      my-files:
        command: npx
        args: [-y, files-server, "."]
        disabled: true
      example-com-docs:
        url: https://example.com/docs/mcp
    "#);
    let before = stage.read("pegboard.yaml");
    assert!(stage.run("init --from cursor").contains("error[file_there]"));
    stage.run("init --from cursor --from https://example.com/docs/mcp --force");
    assert_eq!(stage.read("pegboard.yaml"), before);
}

#[cfg(unix)]
#[test]
fn a_new_file_with_keys_in_it_is_for_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let stage = three_clients();
    stage.run("import cursor");
    let mode = std::fs::metadata(stage.path("pegboard.yaml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[cfg(unix)]
#[test]
fn a_client_that_cannot_be_taken_over_keeps_nobody_else_from_it() {
    use std::os::unix::fs::PermissionsExt;
    let stage = three_clients();
    let path = stage.path("~/.cursor/mcp.json");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    let said = stage.run("import cursor codex --take-over -q");
    assert!(said.contains("Codex uses us instead of"), "{said}");
    assert!(said.contains("the file is read-only, so it was not changed"), "{said}");
    assert!(said.ends_with("(exit 1)"), "{said}");
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR);
    assert_snapshot!(stage.run("restore"), @"codex  ~/.codex/config.toml");
}

#[test]
fn what_only_looks_the_same_is_two_things() {
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
    assert_snapshot!(stage.run("import one.json two.yaml -q"), @"
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
fn what_is_off_or_told_less_does_not_stand_for_what_works() {
    let stage = Stage::with(
        "pegboard.yaml",
        "mcpServers: {gh: {command: gh, enabled: false}, wiki: {command: wiki}}\n",
    );
    let text =
        r#"{"mcpServers": {"gh": {"command": "gh"}, "wiki": {"command": "wiki", "env": {"LANG": "C"}}}}"#;
    stage.write("~/.cursor/mcp.json", text);
    assert_snapshot!(stage.run("import cursor -q"), @"
    SOURCE  NAME  KIND
    cursor  gh    stdio  new, as gh-cursor
    cursor  wiki  stdio  new, as wiki-cursor
    1 source: 2 new → pegboard.yaml
    ");
}

#[test]
fn two_parts_of_one_file_are_taken_over_at_once() {
    let stage = Stage::with("~/.cursor/mcp.json", CURSOR);
    assert_snapshot!(stage.run_of(&["import", "cursor:github", "cursor:my files", "cursor", "--take-over", "-q"]), @"
    SOURCE  NAME      KIND
    cursor  github    http   new
    cursor  my-files  stdio  new, off
    cursor  github    http   the same as github
    cursor  my-files  stdio  the same as my-files, off
    3 sources: 2 new, 2 found twice → pegboard.yaml
    Cursor uses us instead of github, my-files: ~/.cursor/mcp.json
    ");
    stage.run("restore cursor");
    assert_eq!(stage.read("~/.cursor/mcp.json"), CURSOR);
}

#[test]
fn a_file_does_not_begin_anew_with_nothing() {
    let ours = "toolTimeout: 5s\nmcpServers: {mine: {command: mine}}\n";
    let stage = Stage::with("pegboard.yaml", ours);
    stage.write("~/.cursor/mcp.json", r#"{"mcpServers": {}}"#);
    assert_snapshot!(stage.run("init --force --from cursor"), @"
    (stderr) error[unknown_server]: there are no servers to begin with
      help: leave out --from, or name another source
    (exit 4)
    ");
    assert_snapshot!(stage.run("init --force --from pegboard.yaml"), @"
    (stderr) error[usage]: a file cannot begin with what it says itself
      help: name another source
    (exit 2)
    ");
    assert_eq!(stage.read("pegboard.yaml"), ours);
}

#[test]
fn keys_among_arguments_and_in_addresses_are_keys() {
    let stage = Stage::new();
    let text = r#"{"mcpServers": {
        "a": {"command": "a", "args": ["--api-key=S1-secret"]},
        "b": {"url": "https://ada:S2-secret@example.com/mcp?token=S3-secret"}, "c": {"command": "c", "args": ["--token", "S4-secret"]}
    }}"#;
    stage.write("theirs.json", text);
    let said = stage.run("import theirs.json");
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
fn what_is_no_file_is_not_made_one() {
    let stage = Stage::with("~/.cursor/mcp.json", CURSOR);
    assert_snapshot!(stage.run("--config cursor add z https://example.com"), @"
    (stderr) error[usage]: cursor is no file, and only files can be changed
      help: name a file, such as pegboard.yaml
    (exit 2)
    ");
    assert!(stage.run("import --into cursor").contains("is no file"));
    assert!(stage.run("init --config https://example.com/x").contains("is no file"));
    assert_snapshot!(stage.run("--config cursor --set toolTimeout=5s export --to codex"), @r#"
    [mcp_servers.pegboard]
    command = "/bin/pegboard"
    args = ["serve", "--stdio", "--config", "cursor", "--set", "toolTimeout=5s"]
    "#);
    assert_snapshot!(stage.run("--config gone.yaml connect codex"), @r#"
    (stderr) error[config_invalid]: gone.yaml: there is no such file. Check the path, or write one: {"mcpServers": {"files": {"command": "my-server"}}}
    (exit 3)
    "#);
}

#[test]
fn what_is_the_same_as_what_is_left_out_is_left_out_too() {
    let stage = Stage::new();
    let text = r#"{"mcpServers": {"b": {"command": "b"}},
        "restTools": {"ping": {"description": "Pings", "url": "https://example.com/ping", "colour": "red"}}}"#;
    stage.write("one.json", text);
    stage.write("two.json", text);
    assert_snapshot!(stage.run("import one.json two.json -q"), @"
    SOURCE    NAME  KIND
    one.json  b     stdio  new
    one.json  ping  rest   left out: restTools.ping.colour: unknown setting
    two.json  b     stdio  the same as b
    two.json  ping  rest   left out: restTools.ping.colour: unknown setting
    2 sources: 1 new, 1 found twice, 2 left out → pegboard.yaml
    ");
}
