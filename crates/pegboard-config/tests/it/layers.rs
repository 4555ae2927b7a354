//! Merging of several sources.

use std::fs;
use std::path::Path;

use insta::assert_snapshot;
use pegboard_config::{Configuration, ConfigurationError, Layers, load_layers};
use tempfile::TempDir;

use super::{environment, summary};

/// Creates a directory with these files.
pub(super) fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn summarize_result(folder: &Path, loaded: Result<Configuration, ConfigurationError>) -> String {
    let text = loaded.map_or_else(|error| error.to_string(), |configuration| summary(&configuration));
    text.replace(&format!("{}/", folder.display()), "")
}

/// Merges a user's file and a project's file.
fn merge_user_and_project(user: &str, project: &str) -> String {
    let folder = folder(&[("user/pegboard.yaml", user), ("pegboard.yaml", project)]);
    let layers = Layers::new(folder.path())
        .project(&folder.path().join("pegboard.yaml"))
        .user(&folder.path().join("user/pegboard.yaml"));
    summarize_result(folder.path(), load_layers(&layers, &environment))
}

/// Merges a file with `--set` settings.
fn merge_with_settings(file: &str, settings: &[&str]) -> String {
    let folder = folder(&[("pegboard.yaml", file)]);
    let layers = Layers::new(folder.path()).file(&folder.path().join("pegboard.yaml"));
    let layers = settings.iter().fold(layers, |layers, setting| layers.set(*setting));
    summarize_result(folder.path(), load_layers(&layers, &environment))
}

/// Merges a file with environment variables.
fn merge_with_variables(file: &str, variables: &[(&str, &str)]) -> String {
    let folder = folder(&[("pegboard.yaml", file)]);
    let layers = Layers::new(folder.path())
        .file(&folder.path().join("pegboard.yaml"))
        .environment(variables.iter().copied());
    summarize_result(folder.path(), load_layers(&layers, &environment))
}

#[test]
fn only_the_settings_of_the_users_file_apply_beside_named_files() {
    let folder = folder(&[("user.yaml", ""), ("project.yaml", "")]);
    let (user, project) = (folder.path().join("user.yaml"), folder.path().join("project.yaml"));
    let layers = || Layers::new(folder.path()).user(&user);
    assert_eq!(layers().project(&project).files_of_settings(), [] as [&Path; 0]);
    assert_eq!(layers().file(&project).files_of_settings(), [user.as_path()]);
    assert_eq!(layers().file(&user).file(&project).files_of_settings(), [] as [&Path; 0]);
    assert_eq!(Layers::new(folder.path()).file(&project).files_of_settings(), [] as [&Path; 0]);
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
    assert_snapshot!(merge_user_and_project(user, project), @r#"
    user/pegboard.yaml Yaml Native
    pegboard.yaml Yaml Native
    toolTimeout="2m"
    toolOutput={"enabled":true,"expiresAfter":"1d","sessionTokenBudget":null,"maxChunks":4,"overlapPercent":20,"avgLineBytesThreshold":1000}
    pinned=["c"]
    default:
      clock: clock-server ["--local"] []
      notes: notes-server [] []
      files: files-server [] []
    "#);
}

#[test]
fn null_removes_a_key_but_an_empty_section_does_not() {
    let user = "toolTimeout: 1m\nmcpServers: {clock: {command: c}, notes: {command: n, env: {A: b}}}";
    assert_snapshot!(merge_user_and_project(user, "toolTimeout: null\nmcpServers: {clock: null, notes: {env: ~}}"), @r#"
    user/pegboard.yaml Yaml Native
    pegboard.yaml Yaml Native
    default:
      notes: n [] []
    "#);
    assert_snapshot!(merge_user_and_project(user, "mcpServers:\n"), @r#"
    user/pegboard.yaml Yaml Native
    pegboard.yaml Yaml Native
    toolTimeout="1m"
    default:
      clock: c [] []
      notes: n [] ["A=b"]
    "#);
}

#[test]
fn aliases_are_merged_across_sources() {
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
    assert_snapshot!(merge_user_and_project(user, project), @r#"
    user/pegboard.yaml Yaml Native
    pegboard.yaml Yaml Native
    queues={"web":{"maxConcurrency":3,"maxWaiting":10000,"waitTimeoutMs":null,"defaultTimeoutMs":null,"shared":false,"ageing":"5s"}}
    default:
      api: sse https://example.com/a {}
      job: j [] ["A=1", "B=2"]
    "#);
}

#[test]
fn a_url_replaces_a_command_and_vice_versa() {
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
    assert_snapshot!(merge_user_and_project(user, project), @r#"
    user/pegboard.yaml Yaml Native
    pegboard.yaml Yaml Native
    default:
      api: http http://127.0.0.1:3000/mcp {} cache="5m"
      job: job-server [] []
    "#);
}

#[test]
fn the_users_file_is_read_once_if_it_is_named() {
    let folder = folder(&[("user.yaml", "pegboard: 1\ntoolTimeout: 1m\nmcpServers: {mine: {command: m}}")]);
    let path = folder.path().join("user.yaml");
    let layers = Layers::new(folder.path()).user(&path).file(&path);
    assert_eq!(layers.files(), [&path]);
    assert_eq!(layers.files_of_settings(), <[&std::path::Path; 0]>::default());
    assert_snapshot!(summarize_result(folder.path(), load_layers(&layers, &environment)), @r#"
    user.yaml Yaml Native
    toolTimeout="1m"
    default:
      mine: m [] []
    "#);
}

#[test]
fn named_files_replace_the_tools_but_not_the_settings_of_the_user() {
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
    assert_snapshot!(summarize_result(folder.path(), load_layers(&layers, &environment)), @r#"
    user.yaml Yaml Native
    one.yaml Yaml McpServers
    two.json Json McpServers
    toolTimeout="3m"
    start="eager"
    default:
      a: a [] []
      b: b [] []
    "#);
}

#[test]
fn problems_are_reported_with_their_source() {
    let user = "toolTimeuot: 1m\nmcpServers: {clock: {command: c, queue: web}}";
    let project = "mcpServers: {clock: {shared: maybe, env: {A: '${GONE}'}}}";
    assert_snapshot!(merge_user_and_project(user, project), @"
    error[config_invalid]: user/pegboard.yaml:1:1  toolTimeuot
       1 | toolTimeuot: 1m
         | ^^^^^^^^^^^ unknown setting
      help: did you mean toolTimeout?
    error[config_invalid]: user/pegboard.yaml:2:41  mcpServers.clock.queue
       2 | mcpServers: {clock: {command: c, queue: web}}
         |                                         ^^^ MCP server 'clock' references unknown queue 'web'. Add it under configuration.queues.
    error[config_invalid]: pegboard.yaml:1:30  mcpServers.clock.shared
       1 | mcpServers: {clock: {shared: maybe, env: {A: '${GONE}'}}}
         |                              ^^^^^ expected true or false, not a string
    warning: pegboard.yaml:1:47  mcpServers.clock.env.A
       1 | mcpServers: {clock: {shared: maybe, env: {A: '${GONE}'}}}
         |                                               ^^^^^^^ the variable GONE is not set
      help: export GONE=…, or add a default: ${GONE:-}
    3 errors: these files were not loaded
    ");
    assert_snapshot!(merge_user_and_project("a: [", "b: ["), @r#"
    error[config_invalid]: user/pegboard.yaml:1:4
       1 | a: [
         |    ^ Invalid YAML in config file: unclosed bracket '['
    error[config_invalid]: pegboard.yaml:1:4
       1 | b: [
         |    ^ Invalid YAML in config file: unclosed bracket '['
    2 errors: these files were not loaded
    "#);
}

#[test]
fn a_foreign_file_stays_lenient_beside_a_native_one() {
    let folder = folder(&[
        ("pegboard.yaml", "mcpServers: {a: {command: a}}"),
        ("mcp.json", r#"{"mcpServers": {"a": {"flavour": ["x"]}}, "theme": "dark"}"#),
    ]);
    let layers = Layers::new(folder.path())
        .file(&folder.path().join("pegboard.yaml"))
        .file(&folder.path().join("mcp.json"));
    assert_snapshot!(summarize_result(folder.path(), load_layers(&layers, &environment)), @r#"
    pegboard.yaml Yaml Native
    mcp.json Json McpServers
    default:
      a: a [] []
    warning: mcp.json:1:23  mcpServers.a.flavour
       1 | {"mcpServers": {"a": {"flavour": ["x"]}}, "theme": "dark"}
         |                       ^^^^^^^^^ unknown setting, ignored
    warning: mcp.json:1:43  theme
       1 | {"mcpServers": {"a": {"flavour": ["x"]}}, "theme": "dark"}
         |                                           ^^^^^^^ ignored unknown setting: theme
    "#);
}

#[test]
fn a_single_setting_overrides_every_file() {
    let file = "toolTimeout: 1m\nmcpServers: {clock: {command: c, args: [1.10], enabled: true}}";
    assert_snapshot!(merge_with_settings(
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
    default:
      clock: c ["1.10"] [] (off)
      notes: n ["1.10"] ["KEY=sk-from-outside"]
    "#);
}

#[test]
fn an_invalid_setting_is_reported_by_its_name() {
    let settings = [
        "toolTimeuot=30s",
        "toolTimeout=soon",
        "toolTimeout",
        "=3",
        "mcpServers.clock.env.KEY=${GONE}",
        "mcpServers.clock.shared=perhaps",
        "mcpServers={",
    ];
    let summaries =
        settings.map(|setting| merge_with_settings("mcpServers: {clock: {command: c}}", &[setting]));
    assert_snapshot!(summaries.join("\n\n"), @"
    error[config_invalid]: --set toolTimeuot  toolTimeuot
         | toolTimeuot=30s
         | ^^^^^^^^^^^ unknown setting
      help: did you mean toolTimeout?
    1 error: this configuration was not loaded

    error[config_invalid]: --set toolTimeout  toolTimeout
         | toolTimeout=soon
         |             ^^^^ duration must be a millisecond number, or a duration like 5m/2h/1d, not 'soon'
    1 error: this configuration was not loaded

    error[config_invalid]: --set toolTimeout
         | ***********
         | ^^^^^^^^^^^ expected NAME=VALUE
      help: use --set toolTimeout=30s or --set mcpServers.github.enabled=false
    1 error: this configuration was not loaded

    error[config_invalid]: --set
         | =*
         | ^^ expected NAME=VALUE
      help: use --set toolTimeout=30s or --set mcpServers.github.enabled=false
    1 error: this configuration was not loaded

    pegboard.yaml Yaml Native
    default:
      clock: (needs: GONE)
    warning: --set mcpServers.clock.env.KEY  mcpServers.clock.env.KEY
         | mcpServers.clock.env.KEY=${GONE}
         |                          ^^^^^^^ the variable GONE is not set
      help: export GONE=…, or add a default: ${GONE:-}

    pegboard.yaml Yaml Native
    default:
      clock: (mcpServers.clock.shared: expected true or false, not a string)
    error[config_invalid]: --set mcpServers.clock.shared  mcpServers.clock.shared
         | mcpServers.clock.shared=perhaps
         |                         ^^^^^^^ expected true or false, not a string

    error[config_invalid]: --set mcpServers  mcpServers
         | mcpServers={
         |            ^ expected an object, not a string
    1 error: this configuration was not loaded
    ");
}

#[test]
fn null_removes_a_key_that_may_not_exist() {
    assert_snapshot!(merge_with_settings("toolTimeout: 1m", &["toolTimeout=null", "start=null", "mcpServers.clock=null"]), @r#"
    pegboard.yaml Yaml Native
    default:
    "#);
}

#[test]
fn a_variable_is_a_setting_in_any_spelling() {
    let file = "mcpServers: {my-clock: {command: c}}";
    assert_snapshot!(merge_with_variables(
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
    default:
      my-clock: c [] ["API_KEY=secret-of-the-clock"]
      api: http https://example.com/mcp {"X-API-KEY": ***}
    "#);
}

#[test]
fn an_unknown_variable_is_reported_with_a_suggestion() {
    assert_snapshot!(merge_with_variables(
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
         | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ unknown setting 'CONCURENT'
      help: did you mean PEGBOARD__QUEUES__SLOW__CONCURRENT?
    error[config_invalid]: PEGBOARD__TOOL_TIMEUOT
         | PEGBOARD__TOOL_TIMEUOT=***
         | ^^^^^^^^^^^^^^^^^^^^^^ unknown setting 'TOOL_TIMEUOT'
      help: did you mean PEGBOARD__TOOL_TIMEOUT?
    error[config_invalid]: PEGBOARD____
         | PEGBOARD____=*
         | ^^^^^^^^^^^^ unknown setting ''
    4 errors: this configuration was not loaded
    "#);
}

#[test]
fn a_value_is_a_source() {
    let folder = folder(&[]);
    let value = serde_json::json!({"mcpServers": {"web": {"url": "https://example.com/mcp", "headers": {"A": "secret-word"}, "qeue": "x"}}});
    let layers =
        Layers::new(folder.path()).value("https://example.com", value).set("mcpServers.web.cache=5m");
    assert_snapshot!(summarize_result(folder.path(), load_layers(&layers, &environment)), @r#"
    default:
      web: (mcpServers.web.qeue: unknown setting)
    error[config_invalid]: https://example.com  mcpServers.web.qeue
         |       "qeue": "x"
         |       ^^^^^^ unknown setting
      help: did you mean queue?
    "#);
}

#[test]
fn a_text_is_a_source() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pegboard.yaml");
    let layers = Layers::new(folder.path()).text(&path, "toolTimeOut: 30s");
    let error = pegboard_config::load_layers(&layers, &|_| None).unwrap_err();
    assert_eq!((error.problems()[0].file.as_path(), error.problems()[0].line), (path.as_path(), 1));
    assert!(!path.exists());
}

/// A project file with secrets.
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

/// A file of a client, which is read after that of the project.
const CLIENT_FILE: &str =
    r#"{"mcpServers": {"files": {"alwaysAllow": ["x"], "queue": "slow"}}, "theme": "dark"}"#;

#[test]
#[expect(clippy::too_many_lines, reason = "a line per setting")]
fn every_setting_has_a_source() {
    let folder = folder(&[
        ("user/pegboard.toml", "toolTimeout = '1m'\nstart = 'eager'\n[toolOutput]\nmaxChunks = 3\n"),
        ("pegboard.yaml", PROJECT),
        ("mcp.json", CLIENT_FILE),
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
        .effective_settings()
        .into_iter()
        .map(|setting| format!("{} = {}    {}", setting.key_path, setting.value, setting.origin));
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
    openToolboxMaxBytes = 20000    built-in
    start = "eager"    user/pegboard.toml:2:9
    listTimeout = "10s"    built-in
    daemon = "auto"    built-in
    daemonIdleTimeout = "10m"    built-in
    toolNameMaxLength = 64    built-in
    tracePayloads = false    built-in
    traceMCP = false    built-in
    expose = "meta"    built-in
    pinned = ["a","b"]    pegboard.yaml:4:9
    transparent = false    built-in
    corrections = false    built-in
    messageLimits.maxBytes = 16777216    built-in
    messageLimits.maxDepth = 128    built-in
    "#);
}

#[test]
fn every_dependency_is_watched() {
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
fn missing_inputs_are_listed() {
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
    assert_snapshot!(format!("{:#?}", configuration.missing_inputs), @r#"
    [
        MissingInput {
            id: "api-key",
            variable: "PEGBOARD_INPUT_API_KEY",
            description: Some(
                "The key of the API",
            ),
            is_secret: true,
            options: [],
        },
        MissingInput {
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
        MissingInput {
            id: "stage",
            variable: "PEGBOARD_INPUT_STAGE",
            description: None,
            is_secret: true,
            options: [],
        },
    ]
    "#);
    let answered = |name: &str| name.starts_with("PEGBOARD_INPUT_").then(|| "answer".to_owned());
    let configuration = load_layers(&layers, &answered).unwrap();
    assert_eq!(configuration.missing_inputs, []);
    assert!(configuration.toolboxes["default"].servers.values().all(|server| server.unusable().is_none()));
}
