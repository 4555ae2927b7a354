//! Commands that edit Pegboard's configuration file.

use insta::assert_snapshot;

use crate::files::stage::Stage;

#[test]
fn servers_are_added_with_every_supported_syntax() {
    let stage = Stage::new();
    for line in [
        "add github https://api.example.com/mcp -H Authorization:${TOKEN} -t http --deny delete_* --cache 5m",
        "add -e ROOT=/srv -e KEY files -- npx -y server-files /srv",
        "add -t sse old https://example.com/sse --disabled --user",
        "add --url https://example.com/codex codex --bearer-token-env-var CODEX_TOKEN -b dev",
        "add ws wss://example.com/ws -t ws --allow a,b",
    ] {
        stage.run(line);
    }
    assert_snapshot!(stage.run("add github https://api.example.com/mcp"), @"
    (stderr) error[name_taken]: server 'github' already exists in pegboard.yaml
      help: choose another name, or replace it with --force
    (exit 2)
    ");
    assert_snapshot!(stage.run("add github https://api.example.com/v2 --force"), @"Replaced server github: pegboard.yaml");
    assert_snapshot!(stage.run_of(&["add", "json", "notes", r#"{"command": "notes", "args": ["--quiet"]}"#]), @"Added server notes: pegboard.yaml");
    assert_snapshot!(stage.run("add late -e LATE_TOKEN -- late-server"), @"
    Added server late: pegboard.yaml
    (stderr) late is not usable yet: needs: LATE_TOKEN
      help: export LATE_TOKEN=…
    ");
    assert_snapshot!(stage.read("pegboard.yaml"), @"
    mcpServers:
      github:
        url: https://api.example.com/v2
      files:
        command: npx
        args: [-y, server-files, /srv]
        env:
          ROOT: /srv
          KEY: ${KEY}
      ws:
        type: websocket
        url: wss://example.com/ws
        toolsAllowed: [a, b]
      notes:
        command: notes
        args: [--quiet]
      late:
        command: late-server
        env:
          LATE_TOKEN: ${LATE_TOKEN}
    toolboxes:
      dev:
        mcpServers:
          codex:
            url: https://example.com/codex
            headers:
              Authorization: Bearer ${CODEX_TOKEN}
    ");
    assert_snapshot!(stage.read("~/.config/pegboard/pegboard.yaml"), @"
    mcpServers:
      old:
        type: sse
        url: https://example.com/sse
        enabled: false
    ");
}

/// Runs commands in order and returns their output.
fn said(stage: &Stage, lines: &[&str]) -> String {
    let told: Vec<String> = lines.iter().map(|line| format!("$ {line}\n{}", stage.run(line))).collect();
    told.join("\n")
}

#[test]
fn invalid_arguments_get_a_hint() {
    let lines = [
        "add",
        "add b",
        "add b npx",
        "add b https://x -- npx",
        "add b https://x -e A=1",
        "add b -H A:1 -- npx",
        "add b https://x -t stdio",
        "add b c! https://x",
        "add json b [1]",
    ];
    assert_snapshot!(said(&Stage::new(), &lines), @r#"
    $ add
    (stderr) error: the following required arguments were not provided:
      <NAME>

    Usage: pegboard add [OPTIONS] <NAME> <URL>
           pegboard add [OPTIONS] <NAME> -- <COMMAND>...
           pegboard add <KIND> ...

    For more information, try '--help'.
    (exit 2)
    $ add b
    (stderr) error[usage]: missing URL or command for 'b'
      help: pegboard add b URL   or   pegboard add b -- COMMAND
    (exit 2)
    $ add b npx
    (stderr) error[usage]: invalid URL 'npx'
      help: a URL starts with http:// or https://; for a program use: pegboard add b -- npx
    (exit 2)
    $ add b https://x -- npx
    (stderr) error[usage]: a server is either a URL or a program, not both
      help: remove one of them
    (exit 2)
    $ add b https://x -e A=1
    (stderr) error[usage]: --env applies only to a program
    (exit 2)
    $ add b -H A:1 -- npx
    (stderr) error[usage]: --header applies only to a URL
    (exit 2)
    $ add b https://x -t stdio
    (stderr) error[usage]: the stdio transport needs a program, not a URL
      help: pegboard add b -- COMMAND
    (exit 2)
    $ add b c! https://x
    (stderr) error: unexpected argument 'https://x' found

    Usage: pegboard add [OPTIONS] <NAME> <URL>
           pegboard add [OPTIONS] <NAME> -- <COMMAND>...
           pegboard add <KIND> ...

    For more information, try '--help'.
    (exit 2)
    $ add json b [1]
    (stderr) error[usage]: a server must be a JSON object
      help: pegboard add json b '{"command": "my-server"}'
    (exit 2)
    "#);
}

#[test]
fn an_edit_that_breaks_the_file_is_rejected() {
    let stage = Stage::with("pegboard.yaml", "mcpServers: {a: {command: a}}\n");
    let lines = [
        "add c! https://example.com",
        "add agent -- npx",
        "add json b {\"comand\":\"x\"}",
        "add b https://example.com --queue nowhere",
        "add b https://example.com --cache soon",
    ];
    assert_snapshot!(said(&stage, &lines), @r#"
    $ add c! https://example.com
    (stderr) error[config_invalid]: ~/project/pegboard.yaml:1:31  mcpServers["c!"]
       1 | mcpServers: {a: {command: a}, "c!": {url: https://example.com}}
         |                               ^^^^ MCP server names may only contain letters, digits, '-' or '_': c!
      help: choose another name
    ~/project/pegboard.yaml was not changed
    (exit 3)
    $ add agent -- npx
    (stderr) error[config_invalid]: ~/project/pegboard.yaml:2:10  agents[0]
       2 | agents: [npx]
         |          ^^^ no such agent file: ~/project/npx
      help: check the path; it is relative to the directory of this file
    ~/project/pegboard.yaml was not changed
    (exit 3)
    $ add json b {"comand":"x"}
    (stderr) error[config_invalid]: ~/project/pegboard.yaml:1:35  mcpServers.b.comand
       1 | mcpServers: {a: {command: a}, b: {comand: x}}
         |                                   ^^^^^^ unknown setting
      help: did you mean command?
    ~/project/pegboard.yaml was not changed
    (exit 3)
    $ add b https://example.com --queue nowhere
    (stderr) error[config_invalid]: ~/project/pegboard.yaml:1:68  mcpServers.b.queue
       1 | …ers: {a: {command: a}, b: {url: https://example.com, queue: nowhere}}
         |                                                              ^^^^^^^ MCP server 'b' references unknown queue 'nowhere'. Add it under configuration.queues.
    ~/project/pegboard.yaml was not changed
    (exit 3)
    $ add b https://example.com --cache soon
    (stderr) error[config_invalid]: ~/project/pegboard.yaml:1:68  mcpServers.b.cache
       1 | …ers: {a: {command: a}, b: {url: https://example.com, cache: soon}}
         |                                                              ^^^^ cache duration must be 'off', a millisecond number, or a duration like 5m/2h/1d, not 'soon'
    ~/project/pegboard.yaml was not changed
    (exit 3)
    "#);
    assert_eq!(stage.read("pegboard.yaml"), "mcpServers: {a: {command: a}}\n");
}

#[test]
fn tools_services_and_agents_are_added() {
    let stage = Stage::with("pegboard.yaml", "# Mine\nmcpServers: {}\n");
    stage.write("api.yaml", "openapi: 3.1.0\ninfo: {title: It, version: '1'}\npaths: {}\n");
    stage.write(
        "agents/terse.md",
        "---\ndescription: Says it briefly\nmodels: [local/small]\n---\nBe brief.\n",
    );
    assert_snapshot!(stage.run_of(&["add", "rest", "get_user", "https://api.example.org/users/{id}", "-d", "One user", "--param", "verbose:boolean?"]), @"Added tool get_user: pegboard.yaml");
    assert_snapshot!(stage.run_of(&["add", "rest", "make", "https://api.example.org/users?k=${KEY:-1}", "-X", "post", "--param", "name", "--param", "age:integer?"]), @"Added tool make: pegboard.yaml");
    assert_snapshot!(stage.run("add rest bad https://x --param a:strin"), @"
    (stderr) error[usage]: unknown type 'strin'
      help: did you mean string?
    (exit 2)
    ");
    assert_snapshot!(stage.run("add openapi it api.yaml --method GET --tag a,b"), @"Added service it: pegboard.yaml");
    assert_snapshot!(stage.run("add agent agents/terse.md"), @"Added agent agents/terse.md: pegboard.yaml");
    assert_snapshot!(stage.run("add agent agents/terse.md"), @"
    (stderr) error[name_taken]: agent agents/terse.md is already in pegboard.yaml
    (exit 2)
    ");
    assert_snapshot!(stage.read("pegboard.yaml"), @"
    # Mine
    mcpServers: {}
    restTools:
      get_user:
        description: One user
        url: https://api.example.org/users/${parameters.id}
        parametersSchema:
          type: object
          properties:
            verbose:
              type: boolean
            id:
              type: string
          required: [id]
        queryParamNames: [verbose]
      make:
        description: POST https://api.example.org/users?k=${KEY:-1}
        method: POST
        url: https://api.example.org/users?k=${KEY:-1}
        parametersSchema:
          type: object
          properties:
            name:
              type: string
            age:
              type: integer
          required: [name]
        bodyTemplate:
          name: ${parameters.name}
          age: ${parameters.age}
    openapiSpecs:
      it:
        spec: api.yaml
        tagFilter: [a, b]
        includeMethods: [get]
    agents: [agents/terse.md]
    ");
}

#[test]
fn a_dry_run_shows_the_diff_and_writes_nothing() {
    let stage = Stage::with("pegboard.yaml", "# Mine\nmcpServers:\n  a: {command: a} # first\n");
    assert_snapshot!(stage.run("add b --dry-run -e TOKEN=abcd -- b"), @"
    --- pegboard.yaml
    +++ pegboard.yaml
    @@ -1,3 +1,7 @@
     # Mine
     mcpServers:
       a: {command: a} # first
    +  b:
    +    command: b
    +    env:
    +      TOKEN: ****
    ");
    assert_snapshot!(stage.run("rm a --dry-run --json"), @r#"
    {
      "removed": [
        {
          "name": "a",
          "section": "mcpServers",
          "toolbox": "default"
        }
      ],
      "file": "~/project/pegboard.yaml",
      "changed": false,
      "diff": "--- pegboard.yaml\n+++ pegboard.yaml\n@@ -1,3 +1,2 @@\n # Mine\n-mcpServers:\n-  a: {command: a} # first\n+mcpServers: {}\n"
    }
    "#);
    assert_snapshot!(stage.run("disable a --dry-run"), @"
    --- pegboard.yaml
    +++ pegboard.yaml
    @@ -1,3 +1,3 @@
     # Mine
     mcpServers:
    -  a: {command: a} # first
    +  a: {command: a, enabled: false} # first
    ");
    assert_snapshot!(stage.run("enable a --dry-run"), @"No changes");
    assert_eq!(stage.read("pegboard.yaml"), "# Mine\nmcpServers:\n  a: {command: a} # first\n");
}

const MIXED: &str = "# Mine
toolboxes:
  dev:
    mcpServers:
      # For code
      github: # the big one
        url: https://example.com/mcp
        toolsDenied: [delete_*, push]
  ops:
    mcpServers:
      github: {url: https://example.com/ops, disabled: false}
      files: {command: files, toolsAllowed: [read]}
";

#[test]
fn a_toolbox_goes_with_its_last_entry_unless_something_else_names_it_or_is_in_it() {
    let text = "pegboard: 1
profiles: {p: {toolboxes: [named]}}
toolboxes:
  plain: {mcpServers: {a: {command: a}}}
  told: {description: Mine, mcpServers: {b: {command: b}}}
  named: {mcpServers: {c: {command: c}}}
";
    let stage = Stage::with("pegboard.yaml", text);
    assert_snapshot!(stage.run("rm a b c"), @"Removed server a, server b, server c: pegboard.yaml");
    assert_snapshot!(stage.read("pegboard.yaml"), @"
    pegboard: 1
    profiles: {p: {toolboxes: [named]}}
    toolboxes:
      told: {description: Mine, mcpServers: {}}
      named: {mcpServers: {}}
    ");
}

#[test]
fn removing_an_entry_removes_its_comments() {
    let stage = Stage::with("pegboard.yaml", MIXED);
    assert_snapshot!(stage.run("rm github"), @"
    (stderr) error[ambiguous]: 'github' is ambiguous
      help: use one of dev/github, ops/github
    (exit 2)
    ");
    assert_snapshot!(stage.run("rm fils"), @"
    (stderr) error[unknown_server]: no 'fils' in the configuration
      help: did you mean files?
    (exit 4)
    ");
    assert_snapshot!(stage.run("rm files/read"), @"
    (stderr) error[usage]: 'read' is a tool of a server, not an entry of the file
      help: disable it: pegboard disable files/read
    (exit 2)
    ");
    assert_snapshot!(stage.run("rm dev/github files"), @"Removed server github, server files: pegboard.yaml");
    assert_snapshot!(stage.read("pegboard.yaml"), @"
    # Mine
    toolboxes:
      ops:
        mcpServers:
          github: {url: https://example.com/ops, disabled: false}
    ");
    assert_snapshot!(stage.run("rm github -o json"), @r#"
    {
      "removed": [
        {
          "name": "github",
          "section": "mcpServers",
          "toolbox": "ops"
        }
      ],
      "file": "~/project/pegboard.yaml",
      "changed": true
    }
    "#);
    assert_snapshot!(stage.run("rm github"), @"
    (stderr) error[unknown_server]: no 'github' in the configuration
      help: it is empty; add an entry: pegboard add NAME URL
    (exit 4)
    ");
}

#[test]
fn enable_and_disable_use_the_keys_of_the_file() {
    let stage = Stage::with("pegboard.yaml", MIXED);
    for line in [
        "disable dev/github",
        "disable ops/github",
        "disable ops/github",
        "disable files/write files/read",
        "enable dev/github/push",
        "enable files/write",
    ] {
        stage.run(line);
    }
    assert_snapshot!(stage.run("enable dev/github/delete_all"), @"
    (stderr) error[usage]: 'delete_all' is denied by the pattern 'delete_*'
      help: edit toolsDenied of github in pegboard.yaml
    (exit 2)
    ");
    assert_snapshot!(stage.run("disable ops/github"), @"Already disabled ops/github: pegboard.yaml");
    assert_snapshot!(stage.run("enable ops/github"), @"
    Enabled ops/github: pegboard.yaml
    (stderr) pegboard.yaml would connect to ops/github: https://example.com/ops
    Not trusted yet: review it, then run pegboard trust pegboard.yaml
    ");
    assert_snapshot!(stage.run("disable nothing"), @"
    (stderr) error[unknown_server]: no 'nothing' in the configuration
      help: expected one of github, github, files
    (exit 4)
    ");
    assert_snapshot!(stage.read("pegboard.yaml"), @"
    # Mine
    toolboxes:
      dev:
        mcpServers:
          # For code
          github: # the big one
            url: https://example.com/mcp
            toolsDenied: [delete_*]
            enabled: false
      ops:
        mcpServers:
          github: {url: https://example.com/ops, disabled: false}
          files: {command: files, toolsAllowed: [read, write], toolsDenied: [read]}
    ");
}

#[test]
fn a_file_is_begun_once() {
    let stage = Stage::new();
    assert_snapshot!(stage.run("init"), @"
    Wrote pegboard.yaml, for this folder; --user is for every folder
    (stderr) Next: pegboard add NAME URL   or   pegboard import
    ");
    assert_snapshot!(stage.without_paths(&stage.read("pegboard.yaml")), @r#"
    # yaml-language-server: $schema=file://~/.config/pegboard/pegboard.schema.json
    # The tools of this folder, for every client:  pegboard serve
    #
    # mcpServers:
    #   files:
    #     command: npx
    #     args: [-y, "@modelcontextprotocol/server-filesystem", .]
    #   github:
    #     url: https://api.githubcopilot.com/mcp/
    #     headers: {Authorization: "Bearer ${GITHUB_TOKEN}"}
    mcpServers: {}
    "#);
    assert_snapshot!(stage.run("init"), @"
    (stderr) error[file_exists]: pegboard.yaml already exists
      help: add entries with pegboard add, or replace it with --force
    (exit 2)
    ");
    stage.run("add files -- my-server");
    assert_snapshot!(stage.without_paths(&stage.read("pegboard.yaml")), @r#"
    # yaml-language-server: $schema=file://~/.config/pegboard/pegboard.schema.json
    # The tools of this folder, for every client:  pegboard serve
    #
    # mcpServers:
    #   files:
    #     command: npx
    #     args: [-y, "@modelcontextprotocol/server-filesystem", .]
    #   github:
    #     url: https://api.githubcopilot.com/mcp/
    #     headers: {Authorization: "Bearer ${GITHUB_TOKEN}"}
    mcpServers:
      files:
        command: my-server
    "#);
    stage.run("init --force");
    assert!(!stage.read("pegboard.yaml").contains("my-server"));
    for name in ["pegboard.json", "pegboard.toml"] {
        let stage = Stage::new();
        stage.run(&format!("init --config {name}"));
        stage.run(&format!("add files --config {name} -- my-server"));
        assert!(stage.read(name).contains("my-server"), "{}", stage.read(name));
        assert!(stage.read(name).contains("schema"));
    }
    assert!(stage.path("~/.config/pegboard/pegboard.schema.json").is_file());
}

#[test]
fn an_invalid_file_is_not_edited() {
    let stage = Stage::with("pegboard.yaml", "mcpServrs: {}\n");
    assert_snapshot!(stage.run("add a -- a"), @"
    (stderr) error[config_invalid]: ~/project/pegboard.yaml:1:1  mcpServrs
       1 | mcpServrs: {}
         | ^^^^^^^^^ unknown setting
      help: did you mean mcpServers?
    1 error: this file was not loaded
    fix this first; the file was not changed
    (exit 3)
    ");
    let aliases = "base: &base {command: a}\nmcpServers: {a: *base}\npegboard: 1\n";
    stage.write("mine.yaml", &format!("_{aliases}"));
    assert_snapshot!(stage.run("disable a --config mine.yaml"), @"
    (stderr) error[config_invalid]: mine.yaml:2:17  mcpServers.a.enabled
       2 | mcpServers: {a: *base}
         |                 ^^^^^ the value is an alias, defined elsewhere
      help: the file was not changed; edit mcpServers.a.enabled by hand
    (exit 3)
    ");
}
