//! What comes of several sources.

use std::fs;
use std::path::Path;

use insta::assert_snapshot;
use pegboard_config::{Configuration, ConfigurationError, Layers, load_layers};
use tempfile::TempDir;

use super::{environment, summary};

/// A folder with these files in it.
pub(super) fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn told(folder: &Path, loaded: Result<Configuration, ConfigurationError>) -> String {
    let text = loaded.map_or_else(|error| error.to_string(), |configuration| summary(&configuration));
    text.replace(&format!("{}/", folder.display()), "")
}

/// What comes of the file of a user and that of a project.
fn both(user: &str, project: &str) -> String {
    let folder = folder(&[("user/pegboard.yaml", user), ("pegboard.yaml", project)]);
    let layers = Layers::new(folder.path())
        .project(&folder.path().join("pegboard.yaml"))
        .user(&folder.path().join("user/pegboard.yaml"));
    told(folder.path(), load_layers(&layers, &environment))
}

/// What comes of a file with these settings upon it.
fn set(file: &str, settings: &[&str]) -> String {
    let folder = folder(&[("pegboard.yaml", file)]);
    let layers = Layers::new(folder.path()).file(&folder.path().join("pegboard.yaml"));
    let layers = settings.iter().fold(layers, |layers, setting| layers.set(*setting));
    told(folder.path(), load_layers(&layers, &environment))
}

/// What comes of a file with these variables upon it.
fn vary(file: &str, variables: &[(&str, &str)]) -> String {
    let folder = folder(&[("pegboard.yaml", file)]);
    let layers = Layers::new(folder.path())
        .file(&folder.path().join("pegboard.yaml"))
        .environment(variables.iter().copied());
    told(folder.path(), load_layers(&layers, &environment))
}

#[test]
fn objects_are_merged_and_everything_else_is_replaced() {
    let user = "
toolTimeout: 1m
toolOutput: {maxChunks: 3, overlapPercent: 20}
pinned: [a, b]
mcpServers:
  clock: {command: clock-server, args: [--utc]}
  notes: {command: notes-server}
";
    let project = "
toolTimeout: 2m
toolOutput: {maxChunks: 4}
pinned: [c]
mcpServers:
  clock: {args: [--local]}
  files: {command: files-server}
";
    assert_snapshot!(both(user, project), @r#"
    user/pegboard.yaml Yaml Native
    pegboard.yaml Yaml Native
    toolTimeout="2m"
    toolOutput={"enabled":true,"expiresAfter":"1d","sessionTokenBudget":null,"maxChunks":4,"overlapPercent":20,"avgLineBytesThreshold":1000}
    pinned=["c"]
    default: Default toolbox
      clock: clock-server ["--local"] []
      notes: notes-server [] []
      files: files-server [] []
    "#);
}

#[test]
fn null_takes_away_and_a_section_with_nothing_in_it_does_not() {
    let user = "toolTimeout: 1m\nmcpServers: {clock: {command: c}, notes: {command: n, env: {A: b}}}";
    assert_snapshot!(both(user, "toolTimeout: null\nmcpServers: {clock: null, notes: {env: ~}}"), @r#"
    user/pegboard.yaml Yaml Native
    pegboard.yaml Yaml Native
    default: Default toolbox
      notes: n [] []
    "#);
    assert_snapshot!(both(user, "mcpServers:\n"), @r#"
    user/pegboard.yaml Yaml Native
    pegboard.yaml Yaml Native
    toolTimeout="1m"
    default: Default toolbox
      clock: c [] []
      notes: n [] ["A=b"]
    "#);
}

#[test]
fn a_setting_may_have_another_name_in_another_source() {
    let user = "
queues: {web: {concurrent: 2}}
mcpServers:
  api: {transport: http, url: 'https://example.com/a', disabled: true}
  job: {command: j, env: {A: '1'}}
";
    let project = "
queues: {web: {maxConcurrency: 3}}
mcpServers:
  api: {type: sse, enabled: true}
  job: {environment: {B: '2'}}
";
    assert_snapshot!(both(user, project), @r#"
    user/pegboard.yaml Yaml Native
    pegboard.yaml Yaml Native
    queues={"web":{"maxConcurrency":3,"maxWaiting":10000,"waitTimeoutMs":null,"defaultTimeoutMs":null,"shared":false,"ageing":"5s"}}
    default: Default toolbox
      api: sse https://example.com/a {}
      job: j [] ["A=1", "B=2"]
    "#);
}

#[test]
fn a_server_that_is_somewhere_else_is_no_program_any_more() {
    let user = "
mcpServers:
  api: {command: api-server, args: [x], env: {A: b}, type: stdio, cache: 5m}
  job: {url: 'https://example.com/mcp', headers: {X-Key: k}}
";
    let project = "
mcpServers:
  api: {url: 'http://127.0.0.1:3000/mcp'}
  job: {command: job-server}
";
    assert_snapshot!(both(user, project), @r#"
    user/pegboard.yaml Yaml Native
    pegboard.yaml Yaml Native
    default: Default toolbox
      api: http http://127.0.0.1:3000/mcp {} cache="5m"
      job: job-server [] []
    "#);
}

#[test]
fn whoever_names_files_gets_the_tools_of_these_and_the_settings_of_the_user() {
    let folder = folder(&[
        (
            "user.yaml",
            "pegboard: 1\ntoolTimeout: 1m\nstart: eager\nmcpServers: {mine: {command: m}}\ntoolboxes: {dev: {}}\nprofiles: {p: {toolboxes: [dev]}}",
        ),
        ("one.yaml", "mcpServers: {a: {command: a}}\ntoolTimeout: 2m"),
        ("two.json", r#"{"mcpServers": {"b": {"command": "b"}}, "toolTimeout": "3m"}"#),
    ]);
    let at = |name: &str| folder.path().join(name);
    let layers =
        Layers::new(folder.path()).user(&at("user.yaml")).file(&at("one.yaml")).file(&at("two.json"));
    assert_snapshot!(told(folder.path(), load_layers(&layers, &environment)), @r#"
    user.yaml Yaml Native
    one.yaml Yaml McpServers
    two.json Json McpServers
    toolTimeout="3m"
    start="eager"
    default: Default toolbox
      a: a [] []
      b: b [] []
    "#);
}

#[test]
fn problems_are_told_with_the_source_that_they_are_in() {
    let user = "toolTimeuot: 1m\nmcpServers: {clock: {command: c, queue: web}}";
    let project = "mcpServers: {clock: {shared: maybe, env: {A: '${GONE}'}}}";
    assert_snapshot!(both(user, project), @r#"
    error[config_invalid]: user/pegboard.yaml:1:1  toolTimeuot
       1 | toolTimeuot: 1m
         | ^^^^^^^^^^^ unknown setting
      help: did you mean toolTimeout?
    error[config_invalid]: user/pegboard.yaml:2:41  mcpServers.clock.queue
       2 | mcpServers: {clock: {command: c, queue: web}}
         |                                         ^^^ MCP server 'clock' references unknown queue 'web'. Add it under configuration.queues.
    error[config_invalid]: pegboard.yaml:1:30  mcpServers.clock.shared
       1 | mcpServers: {clock: {shared: maybe, env: {A: '${GONE}'}}}
         |                              ^^^^^ expected true or false, not a text
    error[config_invalid]: pegboard.yaml:1:47  mcpServers.clock.env.A
       1 | mcpServers: {clock: {shared: maybe, env: {A: '${GONE}'}}}
         |                                               ^^^^^^^ the variable GONE is not set
      help: export GONE=…   or give a default: ${GONE:-}
    4 errors: nothing of these files is used
    "#);
    assert_snapshot!(both("a: [", "b: ["), @r#"
    error[config_invalid]: user/pegboard.yaml:1:4
       1 | a: [
         |    ^ Invalid YAML in config file: unclosed bracket '['
    error[config_invalid]: pegboard.yaml:1:4
       1 | b: [
         |    ^ Invalid YAML in config file: unclosed bracket '['
    2 errors: nothing of these files is used
    "#);
}

#[test]
fn a_foreign_file_stays_lenient_beside_one_of_ours() {
    let folder = folder(&[
        ("pegboard.yaml", "mcpServers: {a: {command: a}}"),
        ("mcp.json", r#"{"mcpServers": {"a": {"flavour": ["x"]}}, "theme": "dark"}"#),
    ]);
    let layers = Layers::new(folder.path())
        .file(&folder.path().join("pegboard.yaml"))
        .file(&folder.path().join("mcp.json"));
    assert_snapshot!(told(folder.path(), load_layers(&layers, &environment)), @r#"
    pegboard.yaml Yaml Native
    mcp.json Json McpServers
    default: Default toolbox
      a: a [] []
    warning: mcp.json:1:23  mcpServers.a.flavour
       1 | {"mcpServers": {"a": {"flavour": ["x"]}}, "theme": "dark"}
         |                       ^^^^^^^^^ unknown setting, which is left alone
    warning: mcp.json:1:43  theme
       1 | {"mcpServers": {"a": {"flavour": ["x"]}}, "theme": "dark"}
         |                                           ^^^^^^^ theme is no setting of ours, and left alone
    "#);
}

#[test]
fn a_single_setting_counts_before_every_file() {
    let file = "toolTimeout: 1m\nmcpServers: {clock: {command: c, args: [1.10], enabled: true}}";
    assert_snapshot!(set(
        file,
        &[
            "toolTimeout=30s",
            "toolResponseMaxBytes=65536",
            "mcpServers.clock.enabled=false",
            r#"mcpServers.notes={"command": "n", "env": {"KEY": "${KEY}"}}"#,
            "mcpServers.notes.args=[1.10]",
            "defaults.start=eager",
            "queues.\"a.b\".concurrent=2",
            "toolTimeout=45s",
        ]
    ), @r#"
    pegboard.yaml Yaml Native
    toolTimeout="45s"
    toolResponseMaxBytes=65536
    queues={"a.b":{"maxConcurrency":2,"maxWaiting":10000,"waitTimeoutMs":null,"defaultTimeoutMs":null,"shared":false,"ageing":"5s"}}
    start="eager"
    default: Default toolbox
      clock: c ["1.10"] [] (off)
      notes: n ["1.10"] ["KEY=sk-from-outside"]
    "#);
}

#[test]
fn a_single_setting_that_is_wrong_is_told_by_its_name() {
    let settings = [
        "toolTimeuot=30s",
        "toolTimeout=soon",
        "toolTimeout",
        "=3",
        "mcpServers.clock.env.KEY=${GONE}",
        "mcpServers.clock.shared=perhaps",
        "mcpServers={",
    ];
    let told = settings.map(|setting| set("mcpServers: {clock: {command: c}}", &[setting]));
    assert_snapshot!(told.join("\n\n"), @r#"
    error[config_invalid]: --set toolTimeuot  toolTimeuot
         | toolTimeuot=30s
         | ^^^^^^^^^^^ unknown setting
      help: did you mean toolTimeout?
    1 error: nothing of this configuration is used

    error[config_invalid]: --set toolTimeout  toolTimeout
         | toolTimeout=soon
         |             ^^^^ duration must be a millisecond number, or a duration like 5m/2h/1d, not 'soon'
    1 error: nothing of this configuration is used

    error[config_invalid]: --set toolTimeout
         | ***********
         | ^^^^^^^^^^^ this is no setting and its value
      help: write --set toolTimeout=30s, or --set mcpServers.github.enabled=false
    1 error: nothing of this configuration is used

    error[config_invalid]: --set
         | =*
         | ^^ this is no setting and its value
      help: write --set toolTimeout=30s, or --set mcpServers.github.enabled=false
    1 error: nothing of this configuration is used

    pegboard.yaml Yaml Native
    default: Default toolbox
      clock: (needs: GONE)
    error[config_invalid]: --set mcpServers.clock.env.KEY  mcpServers.clock.env.KEY
         | mcpServers.clock.env.KEY=${GONE}
         |                          ^^^^^^^ the variable GONE is not set
      help: export GONE=…   or give a default: ${GONE:-}

    pegboard.yaml Yaml Native
    default: Default toolbox
      clock: (mcpServers.clock.shared: expected true or false, not a text)
    error[config_invalid]: --set mcpServers.clock.shared  mcpServers.clock.shared
         | mcpServers.clock.shared=perhaps
         |                         ^^^^^^^ expected true or false, not a text

    error[config_invalid]: --set mcpServers  mcpServers
         | mcpServers={
         |            ^ expected an object, not a text
    1 error: nothing of this configuration is used
    "#);
}

#[test]
fn null_takes_away_what_may_not_be_there() {
    assert_snapshot!(set("toolTimeout: 1m", &["toolTimeout=null", "start=null", "mcpServers.clock=null"]), @r#"
    pegboard.yaml Yaml Native
    default: Default toolbox
    "#);
}

#[test]
fn a_variable_is_a_setting_however_its_name_is_spelled() {
    let file = "mcpServers: {my-clock: {command: c}}";
    assert_snapshot!(vary(
        file,
        &[
            ("PEGBOARD__TOOL_TIMEOUT", "30s"),
            ("PEGBOARD__toolresponsemaxbytes", "1000"),
            ("PEGBOARD__MCP_SERVERS__MY_CLOCK__ENV__API_KEY", "secret-of-the-clock"),
            ("PEGBOARD__MCP_SERVERS__API__URL", "https://example.com/mcp"),
            ("PEGBOARD__MCP_SERVERS__API__HEADERS__X_API_KEY", "12345"),
            ("PEGBOARD__QUEUES__SLOW__CONCURRENT", "2"),
            ("PEGBOARD__TOOL_OUTPUT__MAX_CHUNKS", "7"),
            ("PEGBOARD_LOG", "debug"),
            ("PATH", "/bin"),
        ]
    ), @r#"
    pegboard.yaml Yaml Native
    toolTimeout="30s"
    toolResponseMaxBytes=1000
    toolOutput={"enabled":true,"expiresAfter":"1d","sessionTokenBudget":null,"maxChunks":7,"overlapPercent":10,"avgLineBytesThreshold":1000}
    queues={"slow":{"maxConcurrency":2,"maxWaiting":10000,"waitTimeoutMs":null,"defaultTimeoutMs":null,"shared":false,"ageing":"5s"}}
    default: Default toolbox
      my-clock: c [] ["API_KEY=secret-of-the-clock"]
      api: http https://example.com/mcp {"X-API-KEY": ***}
    "#);
}

#[test]
fn a_variable_that_is_no_setting_is_told_with_the_one_that_was_meant() {
    assert_snapshot!(vary(
        "mcpServers: {clock: {command: c}}",
        &[
            ("PEGBOARD__TOOL_TIMEUOT", "30s"),
            ("PEGBOARD__QUEUES__SLOW__CONCURENT", "2"),
            ("PEGBOARD__MCP_SERVERS__CLOCK__CACHE", "never"),
            ("PEGBOARD____", "1"),
        ]
    ), @r#"
    error[config_invalid]: PEGBOARD__MCP_SERVERS__CLOCK__CACHE  mcpServers.clock.cache
         | PEGBOARD__MCP_SERVERS__CLOCK__CACHE=never
         |                                     ^^^^^ cache duration must be 'off', a millisecond number, or a duration like 5m/2h/1d, not 'never'
    error[config_invalid]: PEGBOARD__QUEUES__SLOW__CONCURENT  queues.slow
         | PEGBOARD__QUEUES__SLOW__CONCURENT=*
         | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ there is no setting 'CONCURENT'
      help: did you mean PEGBOARD__QUEUES__SLOW__CONCURRENT?
    error[config_invalid]: PEGBOARD__TOOL_TIMEUOT
         | PEGBOARD__TOOL_TIMEUOT=***
         | ^^^^^^^^^^^^^^^^^^^^^^ there is no setting 'TOOL_TIMEUOT'
      help: did you mean PEGBOARD__TOOL_TIMEOUT?
    error[config_invalid]: PEGBOARD____
         | PEGBOARD____=*
         | ^^^^^^^^^^^^ there is no setting ''
    4 errors: nothing of this configuration is used
    "#);
}

#[test]
fn what_is_in_no_file_is_a_source_too() {
    let folder = folder(&[]);
    let value = serde_json::json!({"mcpServers": {"web": {"url": "https://example.com/mcp", "headers": {"A": "secret-word"}, "qeue": "x"}}});
    let layers =
        Layers::new(folder.path()).value("https://example.com", value).set("mcpServers.web.cache=5m");
    assert_snapshot!(told(folder.path(), load_layers(&layers, &environment)), @r#"
    default: Default toolbox
      web: (mcpServers.web.qeue: unknown setting)
    error[config_invalid]: https://example.com  mcpServers.web.qeue
         |       "qeue": "x"
         |       ^^^^^^ unknown setting
      help: did you mean queue?
    "#);
}

#[test]
fn a_text_is_read_as_if_it_were_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pegboard.yaml");
    let layers = Layers::new(folder.path()).text(&path, "toolTimeOut: 30s");
    let error = pegboard_config::load_layers(&layers, &|_| None).unwrap_err();
    assert_eq!((error.problems()[0].file.as_path(), error.problems()[0].line), (path.as_path(), 1));
    assert!(!path.exists());
}

/// The file of a project with secrets in it.
const PROJECT: &str = "
_remark: nothing
toolTimeout: 2m
pinned: [a, b]
mcpServers:
  github:
    url: https://ada:pass-word@example.com/mcp?token=abcdef
    headers: {Authorization: 'Bearer ${GITHUB_TOKEN}', X-Plain: visible}
  files: {command: f, args: [--api-key, letmein, '${ROOT:-/srv}'], env: {PASS: opensesame}}
providers:
  local: {type: openai-compatible, baseUrl: 'http://127.0.0.1:1/v1', apiKey: '${KEY:-none}'}
";

#[test]
fn every_value_knows_where_it_is_from() {
    let folder = folder(&[
        ("user/pegboard.toml", "toolTimeout = '1m'\nstart = 'eager'\n[toolOutput]\nmaxChunks = 3\n"),
        ("pegboard.yaml", PROJECT),
        (
            "mcp.json",
            r#"{"mcpServers": {"files": {"alwaysAllow": ["x"], "queue": "slow"}}, "theme": "dark"}"#,
        ),
    ]);
    let at = |name: &str| folder.path().join(name);
    let layers = Layers::new(folder.path())
        .user(&at("user/pegboard.toml"))
        .project(&at("pegboard.yaml"))
        .file(&at("mcp.json"))
        .environment([("PEGBOARD__QUEUES__SLOW__CONCURRENT", "2")])
        .set("mcpServers.files.cache=5m");
    let configuration = load_layers(&layers, &environment).unwrap();
    let lines = configuration
        .origins()
        .into_iter()
        .map(|setting| format!("{} = {}    {}", setting.way, setting.value, setting.origin));
    let lines: Vec<String> = lines.collect();
    let text = lines.join("\n").replace(&format!("{}/", folder.path().display()), "");
    assert_snapshot!(text, @r#"
    mcpServers.github.url = "https://ada:***@example.com/mcp?token=***"    pegboard.yaml:7:10
    mcpServers.github.headers.Authorization = "***${GITHUB_TOKEN}"    pegboard.yaml:8:30
    mcpServers.github.headers.X-Plain = "***"    pegboard.yaml:8:65
    mcpServers.files.command = "f"    pegboard.yaml:9:20
    mcpServers.files.args = ["--api-key","***","${ROOT:-/srv}"]    pegboard.yaml:9:29
    mcpServers.files.env.PASS = "***"    pegboard.yaml:9:80
    mcpServers.files.queue = "slow"    mcp.json:1:58
    mcpServers.files.cache = "5m"    --set mcpServers.files.cache
    providers.local.type = "openai-compatible"    pegboard.yaml:11:17
    providers.local.baseUrl = "http://127.0.0.1:1/v1"    pegboard.yaml:11:45
    providers.local.apiKey = "${KEY:***}"    pegboard.yaml:11:78
    cache.backend = "sqlite"    built-in
    cache.maxEntries = 5000    built-in
    cache.maxBytes = 67108864    built-in
    cache.maxEntryBytes = 8388608    built-in
    telemetry.enabled = true    built-in
    telemetry.traces.enabled = true    built-in
    telemetry.traces.ratio = 1.0    built-in
    telemetry.logging.format = "text"    built-in
    toolTimeout = "2m"    pegboard.yaml:3:14
    questionTimeout = "5m"    built-in
    toolOutput.maxChunks = 3    user/pegboard.toml:4:13
    toolOutput.enabled = true    built-in
    toolOutput.expiresAfter = "1d"    built-in
    toolOutput.overlapPercent = 10    built-in
    toolOutput.avgLineBytesThreshold = 1000    built-in
    queues.slow.concurrent = 2    PEGBOARD__QUEUES__SLOW__CONCURRENT
    autoOpen = "stateless"    built-in
    start = "eager"    user/pegboard.toml:2:9
    toolNameMaxLength = 64    built-in
    tracePayloads = false    built-in
    traceMCP = false    built-in
    expose = "meta"    built-in
    pinned = ["a","b"]    pegboard.yaml:4:9
    transparent = false    built-in
    "#);
}

#[test]
fn every_file_that_something_depends_on_is_known() {
    let folder = folder(&[
        (
            "pegboard.yaml",
            "mcpServers: {a: {command: a, env: {K: '${file:key.txt}', L: '${file:gone.txt}'}}}\nagents: [agents/*.md, missing.md]",
        ),
        ("key.txt", "k"),
        (
            "agents/one.md",
            "---\ndescription: One\nmodels: [a/b]\nagents: [../two.md]\noutput: {format: json, schemaRef: out.json}\n---\nDo it. ${include:rules.txt}",
        ),
        ("agents/rules.txt", "Be kind."),
        ("agents/out.json", r#"{"type": "object"}"#),
        ("two.md", "---\ndescription: Two\nmodels: [a/b]\n---\nDo it."),
        ("other.yaml", "pegboard: 1\ntoolTimeout: 1m"),
    ]);
    let at = |name: &str| folder.path().join(name);
    let layers = Layers::new(folder.path()).file(&at("pegboard.yaml")).file(&at("other.yaml"));
    let configuration = load_layers(&layers, &environment).unwrap();
    let shown = |path: &std::path::PathBuf| path.strip_prefix(folder.path()).unwrap().display().to_string();
    let watched: Vec<String> = configuration.watched.iter().map(shown).collect();
    assert_snapshot!(watched.join("\n"), @r#"
    pegboard.yaml
    other.yaml
    key.txt
    gone.txt
    agents/one.md
    agents/../two.md
    agents/rules.txt
    agents/out.json
    missing.md
    "#);
}

#[test]
fn what_only_a_person_can_tell_is_asked_for() {
    let file = "
inputs:
  api-key: {description: The key of the API, password: true}
  region: {description: Where, options: [eu, us]}
mcpServers:
  a: {command: a, env: {K: '${input:api-key}', R: '${input:region}', S: '${input:stage}'}}
  b: {command: b, enabled: false, env: {K: '${input:other}'}}
  c: {command: c, env: {K: '${input:api-key}'}}
";
    let folder = folder(&[("pegboard.yaml", file)]);
    let layers = Layers::new(folder.path()).file(&folder.path().join("pegboard.yaml"));
    let configuration = load_layers(&layers, &environment).unwrap();
    assert_snapshot!(format!("{:#?}", configuration.wants_inputs), @r#"
    [
        WantedInput {
            id: "api-key",
            variable: "PEGBOARD_INPUT_API_KEY",
            description: Some(
                "The key of the API",
            ),
            is_secret: true,
            options: [],
        },
        WantedInput {
            id: "region",
            variable: "PEGBOARD_INPUT_REGION",
            description: Some(
                "Where",
            ),
            is_secret: false,
            options: [
                "eu",
                "us",
            ],
        },
        WantedInput {
            id: "stage",
            variable: "PEGBOARD_INPUT_STAGE",
            description: None,
            is_secret: true,
            options: [],
        },
    ]
    "#);
    let answered = |name: &str| {
        assert!(name.starts_with("PEGBOARD_INPUT_"), "{name}");
        Some("answer".to_owned())
    };
    let configuration = load_layers(&layers, &answered).unwrap();
    assert_eq!(configuration.wants_inputs, []);
    assert!(configuration.toolboxes["default"].servers.values().all(|server| server.obstacle().is_none()));
}
