//! Files that are wrong, and what a person reads about them.

use insta::assert_snapshot;

use super::told;

#[test]
fn a_missing_comma_is_shown() {
    assert_snapshot!(told("bad/comma.json"), @r#"
    error[config_invalid]: comma.json:1:37
       1 | {"mcpServers": {"a": {"command": "*" "args": []}}}
         |                                     ^ Invalid JSON in config file: Expected comma
      help: put a comma before this
    1 error: nothing of this file is used
    "#);
}

#[test]
fn a_text_without_an_end_is_shown_without_its_secret() {
    assert_snapshot!(told("bad/unclosed-text.json"), @r#"
    error[config_invalid]: unclosed-text.json:1:56
       1 | {"mcpServers": {"a": {"command": "*", "env": {"TOKEN": "***_**********}}}}
         |                                                        ^^^^^^^^^^^^^^^^^^^ Invalid JSON in config file: Unterminated string literal
    1 error: nothing of this file is used
    "#);
}

#[test]
fn a_bracket_that_yaml_misses_is_shown() {
    assert_snapshot!(told("bad/flow.yaml"), @r#"
    error[config_invalid]: flow.yaml:3:4
       3 |   b: {command: *}
         |    ^ Invalid YAML in config file: while parsing a flow mapping, did not find expected ',' or '}'
    1 error: nothing of this file is used
    "#);
}

#[test]
fn tabs_in_yaml_are_named() {
    assert_snapshot!(told("bad/tabs.yaml"), @r#"
    error[config_invalid]: tabs.yaml:2:2
       2 | 	a:
         | 	^ Invalid YAML in config file: tabs disallowed within this context (block indentation)
      help: indent with spaces, not with tabs
    1 error: nothing of this file is used
    "#);
}

#[test]
fn a_missing_value_in_toml_is_shown() {
    assert_snapshot!(told("bad/value.toml"), @r#"
    error[config_invalid]: value.toml:2:11
       2 | command = 
         |           ^ Invalid TOML in config file: string values must be quoted, expected literal string
    1 error: nothing of this file is used
    "#);
}

#[test]
fn a_list_is_no_configuration() {
    assert_snapshot!(told("bad/list.json"), @r#"
    error[config_invalid]: list.json:1:1
       1 | [1, 2]
         | ^^^^^^ a configuration is an object of settings, not a list
    1 error: nothing of this file is used
    "#);
}

#[test]
fn a_file_for_something_else_is_no_configuration() {
    assert_snapshot!(told("bad/package.json"), @r#"
    error[config_invalid]: package.json:1:1
       1 | {"name": "some-package", "version": "1.0.0", "dependencies": …
         | ^ this is no configuration: it has no mcpServers, no restTools, no toolboxes, no chains and no agents
      help: name it pegboard.*, or write pegboard: 1 into it, if it is one all the same
    1 error: nothing of this file is used
    "#);
}

#[test]
fn an_empty_file_is_told_how_one_looks() {
    assert_snapshot!(told("bad/empty.json"), @r#"empty.json: the file is empty. The smallest one that does something: {"mcpServers": {"files": {"command": "my-server"}}}"#);
}

#[test]
fn a_file_with_nothing_but_remarks_is_empty() {
    assert_snapshot!(told("bad/empty.yaml"), @r#"empty.yaml: the file is empty. The smallest one that does something: {"mcpServers": {"files": {"command": "my-server"}}}"#);
}

#[test]
fn another_encoding_is_told() {
    assert_snapshot!(told("bad/latin1.json"), @r#"latin1.json: byte 34 is no UTF-8. Save the file as UTF-8"#);
}

#[test]
fn all_that_is_wrong_with_a_file_is_told_at_once() {
    assert_snapshot!(told("bad/pegboard.unknown.yaml"), @r#"
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
         |                                   ^^^^ expected a whole number from 0 on, not a text
    error[config_invalid]: pegboard.unknown.yaml:4:26  queues.slow.maxConcurrency
       4 |   slow: {maxConcurrency: 0}
         |                          ^ a queue has at least one slot: give a number above 0
    error[config_invalid]: pegboard.unknown.yaml:5:30  toolOutput.overlapPercent
       5 | toolOutput: {overlapPercent: 80}
         |                              ^^ expected a number from 0 to 50, not 80
    error[config_invalid]: pegboard.unknown.yaml:6:11  autoOpen
       6 | autoOpen: allways
         |           ^^^^^^^ 'allways' is none of never, stateless, always
      help: did you mean always?
    error[config_invalid]: pegboard.unknown.yaml:7:20  toolNameMaxLength
       7 | toolNameMaxLength: 5
         |                    ^ expected a number from 20 to 200, not 5
    error[config_invalid]: pegboard.unknown.yaml:8:9  expose
       8 | expose: 7
         |         ^ expected one of meta, flat, agent, hybrid, auto, not a number
    error[config_invalid]: pegboard.unknown.yaml:10:24  profiles.editor.toolboxes[0]
      10 |   editor: {toolboxes: [deb]}
         |                        ^^^ there is no toolbox 'deb'
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
    13 errors: nothing of this file is used
    "#);
}

#[test]
fn what_is_wrong_with_a_server_leaves_out_that_server() {
    assert_snapshot!(told("bad/pegboard.servers.json"), @r#"
    pegboard.servers.json Json Native
    default: Default toolbox
      good: fine [] []
      nothing: (mcpServers.nothing: Stdio MCP server 'nothing' requires a string 'command')
      misspelt: (mcpServers.misspelt.comand: unknown setting)
      agent: (mcpServers.agent: 'agent' is the name of a kind of tools)
      text: (mcpServers.text: a server is an object, not a text)
      both: (mcpServers.both.transport: 'type' is set twice, by two of its names)
      nowhere: (mcpServers.nowhere.url: this is no address of a server)
      remote: (mcpServers.remote: SSE MCP server 'remote' requires a 'url')
      twice: (mcpServers.twice.command: 'command' is here twice, first in line 12)
    error[config_invalid]: pegboard.servers.json:4:5  mcpServers.nothing
       4 |     "nothing": {},
         |     ^^^^^^^^^ Stdio MCP server 'nothing' requires a string 'command'
      help: give it the command that starts it, or the url where it is
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
      help: call it something else
    error[config_invalid]: pegboard.servers.json:7:5  mcpServers.agent
       7 |     "agent": {"command": "x"},
         |     ^^^^^^^ 'agent' is the name of a kind of tools
      help: call it something like my-agent
    error[config_invalid]: pegboard.servers.json:8:13  mcpServers.text
       8 |     "text": "npx -y server",
         |             ^^^^^^^^^^^^^^^ a server is an object, not a text
    error[config_invalid]: pegboard.servers.json:9:47  mcpServers.both.transport
       9 |     "both": {"command": "x", "type": "stdio", "transport": "stdio"},
         |                                               ^^^^^^^^^^^ 'type' is set twice, by two of its names
    error[config_invalid]: pegboard.servers.json:10:24  mcpServers.nowhere.url
      10 |     "nowhere": {"url": "example.com/mcp"},
         |                        ^^^^^^^^^^^^^^^^^ this is no address of a server
      help: write one like https://example.com/mcp
    error[config_invalid]: pegboard.servers.json:11:5  mcpServers.remote
      11 |     "remote": {"type": "sse"},
         |     ^^^^^^^^ SSE MCP server 'remote' requires a 'url'
      help: give it the url where it is
    error[config_invalid]: pegboard.servers.json:12:31  mcpServers.twice.command
      12 |     "twice": {"command": "x", "command": "y"}
         |                               ^^^^^^^^^ 'command' is here twice, first in line 12
      help: take one of them away
    "#);
}

#[test]
fn every_wrong_value_of_a_server_is_told() {
    assert_snapshot!(told("bad/pegboard.types.json"), @r#"
    pegboard.types.json Json Native
    default: Default toolbox
      types: (mcpServers.types.command: expected a command, or a list of a command and its arguments, not a number)
    error[config_invalid]: pegboard.types.json:4:18  mcpServers.types.command
       4 |       "command": 5,
         |                  ^ expected a command, or a list of a command and its arguments, not a number
    error[config_invalid]: pegboard.types.json:5:15  mcpServers.types.args
       5 |       "args": "-y",
         |               ^^^^ expected a list, not a text
    error[config_invalid]: pegboard.types.json:6:14  mcpServers.types.env
       6 |       "env": ["*=*"],
         |              ^^^^^^^ expected an object, not a list
    error[config_invalid]: pegboard.types.json:7:16  mcpServers.types.cache
       7 |       "cache": "sometimes",
         |                ^^^^^^^^^^^ cache duration must be 'off', a millisecond number, or a duration like 5m/2h/1d, not 'sometimes'
    error[config_invalid]: pegboard.types.json:8:15  mcpServers.types.type
       8 |       "type": "htpp",
         |               ^^^^^^ 'htpp' is none of local, stdio, websocket, ws, http, streamable-http, streamableHttp, streamable_http, sse, remote
      help: did you mean http?
    error[config_invalid]: pegboard.types.json:9:19  mcpServers.types.priority
       9 |       "priority": 99,
         |                   ^^ expected a number from -10 to 10, not 99
    error[config_invalid]: pegboard.types.json:10:18  mcpServers.types.enabled
      10 |       "enabled": "yes",
         |                  ^^^^^ expected true or false, not a text
    error[config_invalid]: pegboard.types.json:11:23  mcpServers.types.toolsDenied[0]
      11 |       "toolsDenied": [["a"], "b", {"c": 1}],
         |                       ^^^^^ expected a text, not a list
    error[config_invalid]: pegboard.types.json:11:35  mcpServers.types.toolsDenied[2]
      11 |       "toolsDenied": [["a"], "b", {"c": 1}],
         |                                   ^^^^^^^^ expected a text, not an object
    error[config_invalid]: pegboard.types.json:12:39  mcpServers.types.tools.search.timeout
      12 |       "tools": {"search": {"timeout": true, "aliases": "find"}}
         |                                       ^^^^ expected a millisecond number, or a duration like 5m/2h/1d, not true or false
    error[config_invalid]: pegboard.types.json:12:56  mcpServers.types.tools.search.aliases
      12 |       "tools": {"search": {"timeout": true, "aliases": "find"}}
         |                                                        ^^^^^^ expected a list, not a text
    "#);
}

#[test]
fn every_variable_that_is_missing_is_told() {
    assert_snapshot!(told("bad/pegboard.missing.json"), @r#"
    pegboard.missing.json Json Native
    default: Default toolbox
      missing: (needs: NOT_SET, ALSO_NOT_SET)
      nameless: (mcpServers.nameless.command: Malformed syntax: this names no variable)
    error[config_invalid]: pegboard.missing.json:3:47  mcpServers.missing.env.A
       3 |     "missing": {"command": "x", "env": {"A": "${NOT_SET}", "B": "${ALSO_NOT_SET:?*** *** *****}", "C": "${oops"}},
         |                                               ^^^^^^^^^^ the variable NOT_SET is not set
      help: export NOT_SET=…   or give a default: ${NOT_SET:-}
    error[config_invalid]: pegboard.missing.json:3:66  mcpServers.missing.env.B
       3 | …missing": {"command": "x", "env": {"A": "${NOT_SET}", "B": "${ALSO_NOT_SET:?*** *** *****}", "C": "${oops"}},
         |                                                              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ the variable ALSO_NOT_SET is not set: ask the owner
      help: export ALSO_NOT_SET=…   or give a default: ${ALSO_NOT_SET:-}
    error[config_invalid]: pegboard.missing.json:3:105  mcpServers.missing.env.C
       3 | … "${NOT_SET}", "B": "${ALSO_NOT_SET:?*** *** *****}", "C": "${oops"}},
         |                                                              ^^^^^^ Malformed syntax: unclosed brace
      help: close it with }, or write $${ for the characters themselves
    error[config_invalid]: pegboard.missing.json:4:30  mcpServers.nameless.command
       4 |     "nameless": {"command": "${}", "args": ["${A:default}"]}
         |                              ^^^ Malformed syntax: this names no variable
      help: write ${NAME}, ${NAME:-default}, ${NAME:?message}, ${env:NAME}, ${file:PATH}, ${input:ID}, ${userHome}, ${configDir}, ${workspaceFolder} or ${workspaceFolderBasename}, or $${ for the characters themselves
    error[config_invalid]: pegboard.missing.json:4:46  mcpServers.nameless.args[0]
       4 |     "nameless": {"command": "${}", "args": ["${A:default}"]}
         |                                              ^^^^^^^^^^^^ Malformed syntax: this names no variable
      help: write ${NAME}, ${NAME:-default}, ${NAME:?message}, ${env:NAME}, ${file:PATH}, ${input:ID}, ${userHome}, ${configDir}, ${workspaceFolder} or ${workspaceFolderBasename}, or $${ for the characters themselves
    "#);
}

#[test]
fn what_is_wrong_with_a_chain_leaves_out_that_chain() {
    assert_snapshot!(told("bad/pegboard.chains.json"), @r#"
    pegboard.chains.json Json Native
    default: Default toolbox
      chain good: 1 steps
    error[config_invalid]: pegboard.chains.json:4:17  chains.stepless
       4 |     "stepless": {"description": "nothing"},
         |                 ^^^^^^^^^^^^^^^^^^^^^^^^^^ 'steps' is missing
    error[config_invalid]: pegboard.chains.json:5:5  chains.wrong
       5 |     "wrong": {"chain": "other", "steps": [{"tol": "x"}, {"tool": "y", "…
         |     ^^^^^^^ the chain is called 'wrong' here and 'other' inside
      help: take one of the names away
    error[config_invalid]: pegboard.chains.json:5:44  chains.wrong.steps[0].tol
       5 |     "wrong": {"chain": "other", "steps": [{"tol": "x"}, {"tool": "y", "with": {"a": {"const": 1}}}]}
         |                                            ^^^^^ unknown setting
      help: did you mean tool?
    error[config_invalid]: pegboard.chains.json:5:85  chains.wrong.steps[1].with.a
       5 | …other", "steps": [{"tol": "x"}, {"tool": "y", "with": {"a": {"const": 1}}}]}
         |                                                              ^^^^^^^^^^^^ a source is a path like page.body, a number, true or false, {"$const": …}, {"$path": …} or {"$template": …}, not {"const":1}
    "#);
}

#[test]
fn a_key_that_is_there_twice_is_no_choice_of_ours() {
    assert_snapshot!(told("bad/pegboard.twins.json"), @r#"
    error[config_invalid]: pegboard.twins.json:3:41  mcpServers.a
       3 |   "mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}},
         |                                         ^^^ 'a' is here twice, first in line 3
      help: take one of them away
    error[config_invalid]: pegboard.twins.json:4:3  toolTimeout
       4 |   "toolTimeout": "6m"
         |   ^^^^^^^^^^^^^ 'toolTimeout' is here twice, first in line 2
      help: take one of them away
    2 errors: nothing of this file is used
    "#);
}

#[test]
fn a_queue_that_is_not_there_refuses_the_file() {
    assert_snapshot!(told("bad/pegboard.queue.json"), @r#"
    error[config_invalid]: pegboard.queue.json:3:49  mcpServers.x.queue
       3 |   "mcpServers": {"x": {"command": "x", "queue": "slwo", "tools": {"y": {"queue": "default"}}}}
         |                                                 ^^^^^^ MCP server 'x' references unknown queue 'slwo'. Add it under configuration.queues.
      help: did you mean slow?
    1 error: nothing of this file is used
    "#);
}

#[test]
fn another_version_is_refused() {
    assert_snapshot!(told("bad/version.json"), @r#"
    error[config_invalid]: version.json:1:14  pegboard
       1 | {"pegboard": 2, "mcpServers": {}}
         |              ^ this program reads version 1 of the file
      help: write pegboard: 1
    1 error: nothing of this file is used
    "#);
}

#[test]
fn a_workbench_file_is_refused_in_its_own_words() {
    assert_snapshot!(told("bad/workbench.json"), @r#"
    error[config_invalid]: workbench.json:2:15  config.toolMode
       2 |   "toolMode": "dynamic",
         |               ^^^^^^^^^ toolMode 'dynamic' is gone: tools are used through open_toolbox and use_tool
      help: take toolMode away; to list every tool instead, use a pegboard.json with expose: flat
    warning: workbench.json:3:3  config.extra
       3 |   "extra": 1,
         |   ^^^^^^^ unknown setting, which is left alone
      help: there are toolboxes, toolMode
    error[config_invalid]: workbench.json:5:5  config.toolboxes.mute.description
       5 |     "mute": {"mcpServers": {"a": {"command": "x"}}},
         |     ^^^^^^ Toolbox 'mute' must have a description
      help: say in a sentence what it is for: models choose by it
    error[config_invalid]: workbench.json:6:30  config.toolboxes.blank.description
       6 |     "blank": {"description": "", "mcpServers": {"a": {"command": "x"}}},
         |                              ^^ Toolbox 'blank' must have a description
      help: say in a sentence what it is for: models choose by it
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
      help: export TEAM=…   or give a default: ${TEAM:-}
    8 errors: nothing of this file is used
    "#);
}

#[test]
fn a_workbench_file_needs_toolboxes() {
    assert_snapshot!(told("bad/workbench-config.json"), @r#"
    error[config_invalid]: workbench-config.json:1:1  config.toolboxes
       1 | {"_comment": "nothing else"}
         | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ Configuration must have a 'toolboxes' object
    1 error: nothing of this file is used
    "#);
}

#[test]
fn secrets_are_starred_out() {
    assert_snapshot!(told("bad/secrets.json"), @r#"
    secrets.json Json McpServers
    default: Default toolbox
      a: (mcpServers.a.env.L: expected a text, not a list)
    error[config_invalid]: secrets.json:1:116  mcpServers.a.env.L
       1 | …*** **-*******-***"}, "env": {"K": "${KEY:-********}", "L": ["**-****-****"]}, "comand": "x", "requestTimeoutMs": "${KEY}"}}}
         |                                                              ^^^^^^^^^^^^^^^^ expected a text, not a list
    warning: secrets.json:1:135  mcpServers.a.comand
       1 | …}, "env": {"K": "${KEY:-********}", "L": ["**-****-****"]}, "comand": "x", "requestTimeoutMs": "${KEY}"}}}
         |                                                              ^^^^^^^^ unknown setting, which is left alone
      help: did you mean command?
    error[config_invalid]: secrets.json:1:170  mcpServers.a.requestTimeoutMs
       1 | … "L": ["**-****-****"]}, "comand": "x", "requestTimeoutMs": "${KEY}"}}}
         |                                                              ^^^^^^^^ duration must be a millisecond number, or a duration like 5m/2h/1d, not '***'
    "#);
}

#[test]
fn a_file_that_is_not_there_is_told() {
    assert_snapshot!(told("bad/nowhere.json"), @r#"nowhere.json: there is no such file. Check the path, or write one: {"mcpServers": {"files": {"command": "my-server"}}}"#);
}

#[test]
fn a_folder_is_no_file() {
    assert_snapshot!(told("bad/."), @r#".: this is a folder. Name the file in it"#);
}

#[test]
fn a_chain_that_can_never_work_is_left_out_and_shown() {
    assert_snapshot!(told("bad/pegboard.flaws.yaml"), @r#"
    pegboard.flaws.yaml Yaml Native
    default: Default toolbox
      chain fine: 1 steps
    error[config_invalid]: pegboard.flaws.yaml:2:10  chains.empty
       2 |   empty: {steps: []}
         |          ^^^^^^^^^^^ the chain has no steps
    error[config_invalid]: pegboard.flaws.yaml:6:13  chains.report.output
       6 |     output: 'answer['
         |             ^^^^^^^^^ a bracket must hold an index or a quoted name, like [0] or ["name"]
    error[config_invalid]: pegboard.flaws.yaml:8:9  chains.report.steps[0]
       8 |       - {tool: ask, with: {question: town}, as: answer}
         |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ 'town' for 'question' can never be in the context
    error[config_invalid]: pegboard.flaws.yaml:9:9  chains.report.steps[1]
       9 |       - {tool: write, with: {text: answer}, concurrency: 0}
         |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ concurrency must be from 1 to 64
    "#);
}

#[test]
fn a_file_with_one_chain_is_ours_whatever_it_is_called() {
    assert_snapshot!(told("bad/chain.yaml"), @"
    chain.yaml Yaml Chain
    default: Default toolbox
    error[config_invalid]: chain.yaml:3:17  steps[0].wiht
       3 |   - {tool: ask, wiht: {question: town}}
         |                 ^^^^ unknown setting
      help: did you mean with?
    ");
}
