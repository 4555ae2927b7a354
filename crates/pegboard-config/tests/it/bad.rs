//! Invalid files and their diagnostics.

use insta::assert_snapshot;

use super::{load_text, summarize_file};

#[test]
fn a_missing_comma_is_shown() {
    assert_snapshot!(summarize_file("bad/comma.json"), @r#"
    error[config_invalid]: comma.json:1:37
       1 | {"mcpServers": {"a": {"command": "*" "args": []}}}
         |                                     ^ Invalid JSON in config file: Expected comma
      help: add a comma before this
    1 error: this file was not loaded
    "#);
}

#[test]
fn an_unclosed_string_is_shown_without_its_secret() {
    assert_snapshot!(summarize_file("bad/unclosed-text.json"), @r#"
    error[config_invalid]: unclosed-text.json:1:56
       1 | {"mcpServers": {"a": {"command": "*", "env": {"TOKEN": "***_**********}}}}
         |                                                        ^^^^^^^^^^^^^^^^^^^ Invalid JSON in config file: Unterminated string literal
    1 error: this file was not loaded
    "#);
}

#[test]
fn a_missing_bracket_in_yaml_is_shown() {
    assert_snapshot!(summarize_file("bad/flow.yaml"), @r#"
    error[config_invalid]: flow.yaml:3:4
       3 |   b: {command: *}
         |    ^ Invalid YAML in config file: while parsing a flow mapping, did not find expected ',' or '}'
    1 error: this file was not loaded
    "#);
}

#[test]
fn tabs_in_yaml_are_reported() {
    assert_snapshot!(summarize_file("bad/tabs.yaml"), @r#"
    error[config_invalid]: tabs.yaml:2:2
       2 | 	a:
         | 	^ Invalid YAML in config file: tabs disallowed within this context (block indentation)
      help: indent with spaces, not tabs
    1 error: this file was not loaded
    "#);
}

#[test]
fn a_missing_value_in_toml_is_shown() {
    assert_snapshot!(summarize_file("bad/value.toml"), @r#"
    error[config_invalid]: value.toml:2:11
       2 | command = 
         |           ^ Invalid TOML in config file: string values must be quoted, expected literal string
    1 error: this file was not loaded
    "#);
}

#[test]
fn a_list_is_not_a_configuration() {
    assert_snapshot!(summarize_file("bad/list.json"), @r#"
    error[config_invalid]: list.json:1:1
       1 | [1, 2]
         | ^^^^^^ a configuration must be an object of settings, not a list
    1 error: this file was not loaded
    "#);
}

#[test]
fn an_unrelated_file_is_not_a_configuration() {
    assert_snapshot!(summarize_file("bad/package.json"), @r#"
    error[config_invalid]: package.json:1:1
       1 | {"name": "some-package", "version": "1.0.0", "dependencies": …
         | ^ not a configuration: no mcpServers, restTools, toolboxes, chains or agents
      help: if it is one, name it pegboard.* or add pegboard: 1
    1 error: this file was not loaded
    "#);
}

#[test]
fn an_empty_file_is_reported_with_an_example() {
    assert_snapshot!(summarize_file("bad/empty.json"), @r#"empty.json: the file is empty. A minimal example: {"mcpServers": {"files": {"command": "my-server"}}}"#);
}

#[test]
fn a_file_with_only_comments_is_empty() {
    assert_snapshot!(summarize_file("bad/empty.yaml"), @r#"empty.yaml: the file is empty. A minimal example: {"mcpServers": {"files": {"command": "my-server"}}}"#);
}

#[test]
fn another_encoding_is_reported() {
    assert_snapshot!(summarize_file("bad/latin1.json"), @r#"latin1.json: invalid UTF-8 at byte 34. Save the file as UTF-8"#);
}

#[test]
fn all_problems_of_a_file_are_reported_at_once() {
    assert_snapshot!(summarize_file("bad/pegboard.unknown.yaml"), @r#"
    error[config_invalid]: pegboard.unknown.yaml:1:1  toolTimeOut
       1 | toolTimeOut: 5m
         | ^^^^^^^^^^^ unknown setting
      help: did you mean toolTimeout?
    error[config_invalid]: pegboard.unknown.yaml:3:9  queues.web.concurent
       3 |   web: {concurent: 4, maxWaiting: lots}
         |         ^^^^^^^^^ unknown setting
      help: did you mean concurrent?
    error[config_invalid]: pegboard.unknown.yaml:3:35  queues.web.maxWaiting
       3 |   web: {concurent: 4, maxWaiting: lots}
         |                                   ^^^^ expected a non-negative integer, not a string
    error[config_invalid]: pegboard.unknown.yaml:4:26  queues.slow.maxConcurrency
       4 |   slow: {maxConcurrency: 0}
         |                          ^ a queue needs at least one slot: use a number above 0
    error[config_invalid]: pegboard.unknown.yaml:5:30  toolOutput.overlapPercent
       5 | toolOutput: {overlapPercent: 80}
         |                              ^^ expected a number from 0 to 50, not 80
    error[config_invalid]: pegboard.unknown.yaml:6:11  autoOpen
       6 | autoOpen: allways
         |           ^^^^^^^ unknown value 'allways', expected one of never, stateless, always
      help: did you mean always?
    error[config_invalid]: pegboard.unknown.yaml:7:20  toolNameMaxLength
       7 | toolNameMaxLength: 5
         |                    ^ expected a number from 20 to 200, not 5
    error[config_invalid]: pegboard.unknown.yaml:8:9  expose
       8 | expose: 7
         |         ^ expected one of meta, flat, agent, hybrid, auto, not a number
    error[config_invalid]: pegboard.unknown.yaml:10:24  profiles.editor.toolboxes[0]
      10 |   editor: {toolboxes: [deb]}
         |                        ^^^ unknown toolbox 'deb'
      help: did you mean dev?
    error[config_invalid]: pegboard.unknown.yaml:11:11  profiles.broken
      11 |   broken: [flat]
         |           ^^^^^^ expected an object, not a list
    error[config_invalid]: pegboard.unknown.yaml:14:5  toolboxes.dev.descripton
      14 |     descripton: Code
         |     ^^^^^^^^^^ unknown setting
      help: did you mean description?
    error[config_invalid]: pegboard.unknown.yaml:16:3  toolboxes[""]
      16 |   "":
         |   ^^ Toolbox names must be non-empty strings.
    error[config_invalid]: pegboard.unknown.yaml:18:8  toolboxes.odd
      18 |   odd: 5
         |        ^ expected an object, not a number
    13 errors: this file was not loaded
    "#);
}

#[test]
fn an_invalid_server_is_left_out_alone() {
    assert_snapshot!(summarize_file("bad/pegboard.servers.json"), @r#"
    pegboard.servers.json Json Native
    default:
      good: fine [] []
      nothing: (mcpServers.nothing: Stdio MCP server 'nothing' requires a string 'command')
      misspelt: (mcpServers.misspelt.comand: unknown setting)
      agent: (mcpServers.agent: 'agent' is a reserved name)
      text: (mcpServers.text: a server must be an object, not a string)
      both: (mcpServers.both.transport: 'type' is set twice, under two of its names)
      nowhere: (mcpServers.nowhere.url: invalid server URL)
      remote: (mcpServers.remote: SSE MCP server 'remote' requires a 'url')
      twice: (mcpServers.twice.command: duplicate key 'command', first defined in line 12)
    error[config_invalid]: pegboard.servers.json:4:5  mcpServers.nothing
       4 |     "nothing": {},
         |     ^^^^^^^^^ Stdio MCP server 'nothing' requires a string 'command'
      help: set command or url
    error[config_invalid]: pegboard.servers.json:5:18  mcpServers.misspelt.comand
       5 |     "misspelt": {"comand": "x", "agrs": ["-y"]},
         |                  ^^^^^^^^ unknown setting
      help: did you mean command?
    error[config_invalid]: pegboard.servers.json:5:33  mcpServers.misspelt.agrs
       5 |     "misspelt": {"comand": "x", "agrs": ["-y"]},
         |                                 ^^^^^^ unknown setting
      help: did you mean args?
    error[config_invalid]: pegboard.servers.json:6:5  mcpServers["two words"]
       6 |     "two words": {"command": "x"},
         |     ^^^^^^^^^^^ MCP server names may only contain letters, digits, '-' or '_': two words
      help: choose another name
    error[config_invalid]: pegboard.servers.json:7:5  mcpServers.agent
       7 |     "agent": {"command": "x"},
         |     ^^^^^^^ 'agent' is a reserved name
      help: use a name such as my-agent
    error[config_invalid]: pegboard.servers.json:8:13  mcpServers.text
       8 |     "text": "npx -y server",
         |             ^^^^^^^^^^^^^^^ a server must be an object, not a string
    error[config_invalid]: pegboard.servers.json:9:47  mcpServers.both.transport
       9 |     "both": {"command": "x", "type": "stdio", "transport": "stdio"},
         |                                               ^^^^^^^^^^^ 'type' is set twice, under two of its names
    error[config_invalid]: pegboard.servers.json:10:24  mcpServers.nowhere.url
      10 |     "nowhere": {"url": "example.com/mcp"},
         |                        ^^^^^^^^^^^^^^^^^ invalid server URL
      help: use a URL such as https://example.com/mcp
    error[config_invalid]: pegboard.servers.json:11:5  mcpServers.remote
      11 |     "remote": {"type": "sse"},
         |     ^^^^^^^^ SSE MCP server 'remote' requires a 'url'
      help: set url
    error[config_invalid]: pegboard.servers.json:12:31  mcpServers.twice.command
      12 |     "twice": {"command": "x", "command": "y"}
         |                               ^^^^^^^^^ duplicate key 'command', first defined in line 12
      help: remove one of them
    "#);
}

#[test]
fn every_invalid_value_of_a_server_is_reported() {
    assert_snapshot!(summarize_file("bad/pegboard.types.json"), @r#"
    pegboard.types.json Json Native
    default:
      types: (mcpServers.types.command: expected a command, or a list of a command and its arguments, not a number)
    error[config_invalid]: pegboard.types.json:4:18  mcpServers.types.command
       4 |       "command": 5,
         |                  ^ expected a command, or a list of a command and its arguments, not a number
    error[config_invalid]: pegboard.types.json:5:15  mcpServers.types.args
       5 |       "args": "-y",
         |               ^^^^ expected a list, not a string
    error[config_invalid]: pegboard.types.json:6:14  mcpServers.types.env
       6 |       "env": ["*=*"],
         |              ^^^^^^^ expected an object, not a list
    error[config_invalid]: pegboard.types.json:7:16  mcpServers.types.cache
       7 |       "cache": "sometimes",
         |                ^^^^^^^^^^^ cache duration must be 'off', a millisecond number, or a duration like 5m/2h/1d, not 'sometimes'
    error[config_invalid]: pegboard.types.json:8:15  mcpServers.types.type
       8 |       "type": "htpp",
         |               ^^^^^^ unknown value 'htpp', expected one of local, stdio, websocket, ws, http, streamable-http, streamableHttp, streamable_http, sse, remote
      help: did you mean http?
    error[config_invalid]: pegboard.types.json:9:19  mcpServers.types.priority
       9 |       "priority": 99,
         |                   ^^ expected a number from -10 to 10, not 99
    error[config_invalid]: pegboard.types.json:10:18  mcpServers.types.enabled
      10 |       "enabled": "yes",
         |                  ^^^^^ expected true or false, not a string
    error[config_invalid]: pegboard.types.json:11:23  mcpServers.types.toolsDenied[0]
      11 |       "toolsDenied": [["a"], "b", {"c": 1}],
         |                       ^^^^^ expected a string, not a list
    error[config_invalid]: pegboard.types.json:11:35  mcpServers.types.toolsDenied[2]
      11 |       "toolsDenied": [["a"], "b", {"c": 1}],
         |                                   ^^^^^^^^ expected a string, not an object
    error[config_invalid]: pegboard.types.json:12:39  mcpServers.types.tools.search.timeout
      12 |       "tools": {"search": {"timeout": true, "aliases": "find"}}
         |                                       ^^^^ expected a millisecond number, or a duration like 5m/2h/1d, not a boolean
    error[config_invalid]: pegboard.types.json:12:56  mcpServers.types.tools.search.aliases
      12 |       "tools": {"search": {"timeout": true, "aliases": "find"}}
         |                                                        ^^^^^^ expected a list, not a string
    "#);
}

#[test]
fn every_unset_variable_is_reported() {
    assert_snapshot!(summarize_file("bad/pegboard.missing.json"), @r#"
    pegboard.missing.json Json Native
    default:
      missing: (needs: NOT_SET, ALSO_NOT_SET)
      nameless: (mcpServers.nameless.command: Malformed syntax: not a variable reference)
    warning: pegboard.missing.json:3:47  mcpServers.missing.env.A
       3 |     "missing": {"command": "x", "env": {"A": "${NOT_SET}", "B": "${ALSO_NOT_SET:?*** *** *****}", "C": "${oops"}},
         |                                               ^^^^^^^^^^ the variable NOT_SET is not set
      help: export NOT_SET=…, or add a default: ${NOT_SET:-}
    warning: pegboard.missing.json:3:66  mcpServers.missing.env.B
       3 | …missing": {"command": "x", "env": {"A": "${NOT_SET}", "B": "${ALSO_NOT_SET:?*** *** *****}", "C": "${oops"}},
         |                                                              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ the variable ALSO_NOT_SET is not set: ask the owner
      help: export ALSO_NOT_SET=…, or add a default: ${ALSO_NOT_SET:-}
    error[config_invalid]: pegboard.missing.json:3:105  mcpServers.missing.env.C
       3 | … "${NOT_SET}", "B": "${ALSO_NOT_SET:?*** *** *****}", "C": "${oops"}},
         |                                                              ^^^^^^ Malformed syntax: unclosed brace
      help: close it with }, or use $${ for a literal ${
    error[config_invalid]: pegboard.missing.json:4:30  mcpServers.nameless.command
       4 |     "nameless": {"command": "${}", "args": ["${A:default}"]}
         |                              ^^^ Malformed syntax: not a variable reference
      help: use ${NAME}, ${NAME:-default}, ${NAME:?message}, ${env:NAME}, ${file:PATH}, ${input:ID}, ${keyring:NAME}, ${cmd:COMMAND}, ${userHome}, ${configDir}, ${workspaceFolder} or ${workspaceFolderBasename}, or $${ for a literal ${
    error[config_invalid]: pegboard.missing.json:4:46  mcpServers.nameless.args[0]
       4 |     "nameless": {"command": "${}", "args": ["${A:default}"]}
         |                                              ^^^^^^^^^^^^ Malformed syntax: not a variable reference
      help: use ${NAME}, ${NAME:-default}, ${NAME:?message}, ${env:NAME}, ${file:PATH}, ${input:ID}, ${keyring:NAME}, ${cmd:COMMAND}, ${userHome}, ${configDir}, ${workspaceFolder} or ${workspaceFolderBasename}, or $${ for a literal ${
    "#);
}

#[test]
fn an_invalid_chain_is_left_out_alone() {
    assert_snapshot!(summarize_file("bad/pegboard.chains.json"), @r#"
    pegboard.chains.json Json Native
    default:
      chain good: 1 steps
    error[config_invalid]: pegboard.chains.json:4:17  chains.stepless
       4 |     "stepless": {"description": "nothing"},
         |                 ^^^^^^^^^^^^^^^^^^^^^^^^^^ 'steps' is missing
    error[config_invalid]: pegboard.chains.json:5:5  chains.wrong
       5 |     "wrong": {"chain": "other", "steps": [{"tol": "x"}, {"tool": "y", "…
         |     ^^^^^^^ the chain is named 'wrong' here but 'other' inside
      help: remove one of the names
    error[config_invalid]: pegboard.chains.json:5:44  chains.wrong.steps[0].tol
       5 |     "wrong": {"chain": "other", "steps": [{"tol": "x"}, {"tool": "y", "with": {"a": {"const": 1}}}]}
         |                                            ^^^^^ unknown setting
      help: did you mean tool?
    error[config_invalid]: pegboard.chains.json:5:85  chains.wrong.steps[1].with.a
       5 | …other", "steps": [{"tol": "x"}, {"tool": "y", "with": {"a": {"const": 1}}}]}
         |                                                              ^^^^^^^^^^^^ expected a path such as page.body, a number, a boolean, {"$const": …}, {"$path": …} or {"$template": …}, found {"const":1}
    "#);
}

#[test]
fn duplicate_keys_are_rejected() {
    assert_snapshot!(summarize_file("bad/pegboard.twins.json"), @r#"
    error[config_invalid]: pegboard.twins.json:3:41  mcpServers.a
       3 |   "mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}},
         |                                         ^^^ duplicate key 'a', first defined in line 3
      help: remove one of them
    error[config_invalid]: pegboard.twins.json:4:3  toolTimeout
       4 |   "toolTimeout": "6m"
         |   ^^^^^^^^^^^^^ duplicate key 'toolTimeout', first defined in line 2
      help: remove one of them
    2 errors: this file was not loaded
    "#);
}

#[test]
fn an_unknown_queue_rejects_the_file() {
    assert_snapshot!(summarize_file("bad/pegboard.queue.json"), @r#"
    error[config_invalid]: pegboard.queue.json:3:49  mcpServers.x.queue
       3 |   "mcpServers": {"x": {"command": "x", "queue": "slwo", "tools": {"y": {"queue": "default"}}}}
         |                                                 ^^^^^^ MCP server 'x' references unknown queue 'slwo'. Add it under configuration.queues.
      help: did you mean slow?
    1 error: this file was not loaded
    "#);
}

#[test]
fn another_version_is_rejected() {
    assert_snapshot!(summarize_file("bad/version.json"), @r#"
    error[config_invalid]: version.json:1:14  pegboard
       1 | {"pegboard": 2, "mcpServers": {}}
         |              ^ unsupported version: this program reads version 1
      help: set pegboard: 1
    1 error: this file was not loaded
    "#);
}

#[test]
fn a_workbench_file_is_rejected_in_its_own_words() {
    assert_snapshot!(summarize_file("bad/workbench.json"), @r#"
    error[config_invalid]: workbench.json:2:15  config.toolMode
       2 |   "toolMode": "dynamic",
         |               ^^^^^^^^^ toolMode 'dynamic' was removed: use open_toolbox and use_tool
      help: remove toolMode; to list every tool, use a pegboard.json with expose: flat
    warning: workbench.json:3:3  config.extra
       3 |   "extra": 1,
         |   ^^^^^^^ unknown setting, ignored
      help: valid settings: toolboxes, toolMode
    error[config_invalid]: workbench.json:5:5  config.toolboxes.mute.description
       5 |     "mute": {"mcpServers": {"a": {"command": "x"}}},
         |     ^^^^^^ Toolbox 'mute' must have a description
      help: describe its purpose in a sentence: models choose by it
    error[config_invalid]: workbench.json:6:30  config.toolboxes.blank.description
       6 |     "blank": {"description": "", "mcpServers": {"a": {"command": "x"}}},
         |                              ^^ Toolbox 'blank' must have a description
      help: describe its purpose in a sentence: models choose by it
    error[config_invalid]: workbench.json:7:5  config.toolboxes.bare.mcpServers
       7 |     "bare": {"description": "No servers at all"},
         |     ^^^^^^ Toolbox 'bare' must have an 'mcpServers' object
    error[config_invalid]: workbench.json:8:71  config.toolboxes.none.mcpServers
       8 | …: {"description": "An empty list of servers", "mcpServers": {}},
         |                                                              ^^ Toolbox 'none' must have at least one MCP server
    error[config_invalid]: workbench.json:9:92  config.toolboxes.shapes.mcpServers.s.args
       9 | …Wrong shapes", "mcpServers": {"s": {"command": "x", "args": "-y", "env": []}}},
         |                                                              ^^^^ Server 's' in toolbox 'shapes': 'args' must be an array
    error[config_invalid]: workbench.json:9:105  config.toolboxes.shapes.mcpServers.s.env
       9 | …, "mcpServers": {"s": {"command": "x", "args": "-y", "env": []}}},
         |                                                              ^^ Server 's' in toolbox 'shapes': 'env' must be an object
    error[config_invalid]: workbench.json:10:35  config.toolboxes.unset.description
      10 |     "unset": {"description": "For ${TEAM}", "mcpServers": {"a": {"command": "x"}}}
         |                                   ^^^^^^^ the variable TEAM is not set
      help: export TEAM=…, or add a default: ${TEAM:-}
    8 errors: this file was not loaded
    "#);
}

#[test]
fn a_workbench_file_needs_toolboxes() {
    assert_snapshot!(summarize_file("bad/workbench-config.json"), @r#"
    error[config_invalid]: workbench-config.json:1:1  config.toolboxes
       1 | {"_comment": "nothing else"}
         | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ Configuration must have a 'toolboxes' object
    1 error: this file was not loaded
    "#);
}

#[test]
fn secrets_are_redacted() {
    assert_snapshot!(summarize_file("bad/secrets.json"), @r#"
    secrets.json Json McpServers
    default:
      a: (mcpServers.a.env.L: expected a string, not a list)
    error[config_invalid]: secrets.json:1:116  mcpServers.a.env.L
       1 | …*** **-*******-***"}, "env": {"K": "${KEY:-********}", "L": ["**-****-****"]}, "comand": "x", "requestTimeoutMs": "${KEY}"}}}
         |                                                              ^^^^^^^^^^^^^^^^ expected a string, not a list
    warning: secrets.json:1:135  mcpServers.a.comand
       1 | …}, "env": {"K": "${KEY:-********}", "L": ["**-****-****"]}, "comand": "x", "requestTimeoutMs": "${KEY}"}}}
         |                                                              ^^^^^^^^ unknown setting, ignored
      help: did you mean command?
    error[config_invalid]: secrets.json:1:170  mcpServers.a.requestTimeoutMs
       1 | … "L": ["**-****-****"]}, "comand": "x", "requestTimeoutMs": "${KEY}"}}}
         |                                                              ^^^^^^^^ duration must be a millisecond number, or a duration like 5m/2h/1d, not '***'
    "#);
}

#[test]
fn a_missing_file_is_reported() {
    assert_snapshot!(summarize_file("bad/nowhere.json"), @r#"nowhere.json: no such file. Check the path, or create it: {"mcpServers": {"files": {"command": "my-server"}}}"#);
}

#[test]
fn a_directory_is_not_a_file() {
    assert_snapshot!(summarize_file("bad/."), @r#".: this is a directory. Use a file in it"#);
}

#[test]
fn a_chain_that_cannot_work_is_left_out() {
    assert_snapshot!(summarize_file("bad/pegboard.flaws.yaml"), @r#"
    pegboard.flaws.yaml Yaml Native
    default:
      chain fine: 1 steps
    error[config_invalid]: pegboard.flaws.yaml:2:10  chains.empty
       2 |   empty: {steps: []}
         |          ^^^^^^^^^^^ the chain has no steps
    error[config_invalid]: pegboard.flaws.yaml:6:13  chains.report.output
       6 |     output: 'answer['
         |             ^^^^^^^^^ a bracket must contain an index or a quoted name, such as [0] or ["name"]
    error[config_invalid]: pegboard.flaws.yaml:8:9  chains.report.steps[0]
       8 |       - {tool: ask, with: {question: town}, as: answer}
         |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ input 'question': 'town' can never be in the context
    error[config_invalid]: pegboard.flaws.yaml:9:9  chains.report.steps[1]
       9 |       - {tool: write, with: {text: answer}, concurrency: 0}
         |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ concurrency must be between 1 and 64
    "#);
}

#[test]
fn a_chain_file_is_strict_whatever_its_name() {
    assert_snapshot!(summarize_file("bad/chain.yaml"), @"
    chain.yaml Yaml Chain
    default:
    error[config_invalid]: chain.yaml:3:17  steps[0].wiht
       3 |   - {tool: ask, wiht: {question: town}}
         |                 ^^^^ unknown setting
      help: did you mean with?
    ");
}

#[test]
fn allowed_hosts_and_origins_have_the_form_in_which_requests_name_them() {
    let found = |key: &str, value: &str| {
        let loaded = load_text("pegboard.yaml", &format!("{key}: ['{value}']\n"));
        let problems = loaded.map_or_else(|error| error.problems().to_vec(), |loaded| loaded.problems);
        problems.first().map(|problem| format!("{} {}", problem.path, problem.message))
    };
    for valid in ["tools.example.com", "nas", "a-1.example"] {
        assert_eq!(found("allowedHosts", valid), None, "{valid}");
    }
    for invalid in ["*", "", "http://tools.example.com", "tools.example.com:7332", "a/b"] {
        let problem = Some("allowedHosts[0] expected a host name".to_owned());
        assert_eq!(found("allowedHosts", invalid), problem, "{invalid}");
    }
    for valid in ["http://localhost:3000", "https://app.example.com"] {
        assert_eq!(found("allowedOrigins", valid), None, "{valid}");
    }
    for invalid in
        ["*", "null", "localhost:3000", "http://localhost:3000/", "https://a@b", "ftp://a", "http://a:x"]
    {
        let problem = Some("allowedOrigins[0] expected an origin".to_owned());
        assert_eq!(found("allowedOrigins", invalid), problem, "{invalid}");
    }
}
