//! Valid files.

use insta::assert_snapshot;
use pegboard_config::{ConfigDialect, RestEntry};
use pegboard_core::settings::cache::{CacheBackend, CacheSettings};
use pegboard_core::settings::telemetry::LogFormat;
use pegboard_core::settings::{StartRule, ValidatedBy};

use super::{load_text, summarize_file};

#[test]
fn a_workbench_file_is_read() {
    assert_snapshot!(summarize_file("good/workbench-config.json"), @r#"
    workbench-config.json Json Workbench
    dev: Development tools: files, memory and the API
      filesystem: npx ["-y", "@modelcontextprotocol/server-filesystem", "/srv/work"] [] toolFilters=["read_file","write_file","list_directory"]
      memory: npx ["-y", "@modelcontextprotocol/server-memory"] [] toolFilters=["*"]
      api: node ["api.js"] ["API_KEY=key-of-the-api", "STAGE=development"]
    prod: Production: look, do not touch
      api: http https://api.example.com/mcp {"Authorization": ***} toolFilters=["get_users"]
      database: db-server [] [] toolFilters=[]
    "#);
}

#[test]
fn a_client_file_is_the_default_toolbox() {
    assert_snapshot!(summarize_file("good/mcp.json"), @r#"
    mcp.json Json McpServers
    default:
      github: http https://api.example.com/mcp/ {"Authorization": ***}
      search: uvx ["search-server"] ["SEARCH_KEY="] (off)
      files: npx ["-y", "files-server", "/home/ada/notes"] []
    "#);
}

#[test]
fn every_setting_of_a_native_file_is_read() {
    assert_snapshot!(summarize_file("good/pegboard.yaml"), @r#"
    pegboard.yaml Yaml Native
    toolTimeout="1m30s"
    progress={"extendsUpTo":"10m"}
    questionTimeout="2m"
    toolResponseMaxBytes=12288
    toolOutput={"enabled":true,"expiresAfter":"1h","sessionTokenBudget":null,"maxChunks":1,"overlapPercent":20,"avgLineBytesThreshold":1000}
    queues={"web":{"maxConcurrency":4,"maxWaiting":10000,"waitTimeoutMs":"30s","defaultTimeoutMs":null,"shared":false,"ageing":"5s"},"slow":{"maxConcurrency":1,"maxWaiting":10,"waitTimeoutMs":null,"defaultTimeoutMs":"1m","shared":false,"ageing":"0s"}}
    autoOpen="always"
    start="eager"
    mcpInitConcurrency=4
    threads=2
    toolNameMaxLength=60
    expose="hybrid"
    pinned=["github__search_*"]
    profiles={"editor":{"expose":"flat","toolboxes":["dev"],"pinned":[],"transparent":true,"corrections":false},"helper":{"expose":"agent","toolboxes":null,"pinned":[],"transparent":false,"corrections":false}}
    default:
      notes: notes-server ["--quiet", "--port", "8080"] []
      chain digest: 2 steps
    dev: Code and issues
      github: http https://example.com/mcp {"Authorization": ***} toolsDenied=["delete_*"] queue="web" priority=-2 cache="5m" toolsCache={"create_issue":"off"} tools={"search_code":{"aliases":["find"],"queue":null,"priority":null,"cache":null,"timeout":"10s","toolResponseMaxBytes":null,"validateArguments":null,"instructions":null,"tags":["code"]}}
      legacy: sse https://example.com/sse {"Authorization": ***} (off) toolsDenied=["delete_*"] queue="web" priority=-2 cache="5m" toolsCache={"create_issue":"off"} tools={"search_code":{"aliases":["find"],"queue":null,"priority":null,"cache":null,"timeout":"10s","toolResponseMaxBytes":null,"validateArguments":null,"instructions":null,"tags":["code"]}}
      database: HERE/bin/db [] ["PGPORT=5432", "PGSSLMODE=no", "VERSION=1.10"] cacheScope="session" requestTimeoutMs="5s" validateArguments="pegboard" output="strict" start="lazy" toolSchemas={"query":{"type":"object","properties":{"sql":{"type":"string","pattern":"^${"}}}}
    "#);
}

#[test]
fn toml_keeps_the_order_of_the_file() {
    assert_snapshot!(summarize_file("good/pegboard.toml"), @r#"
    pegboard.toml Toml Native
    toolTimeout="45s"
    queues={"web":{"maxConcurrency":2,"maxWaiting":10000,"waitTimeoutMs":null,"defaultTimeoutMs":null,"shared":false,"ageing":"5s"}}
    expose="flat"
    default:
      files: files-server ["--root", "/srv"] [] queue="web"
      search: (needs: SEARCH_KEY)
    extra: More of them
      clock: clock [] []
    warning: pegboard.toml:15:10  mcpServers.search.headers.X-Key
      15 | X-Key = "${SEARCH_KEY}"
         |          ^^^^^^^^^^^^^ the variable SEARCH_KEY is not set
      help: export SEARCH_KEY=…, or add a default: ${SEARCH_KEY:-}
    "#);
}

#[test]
fn the_format_without_an_extension_is_detected_by_content() {
    assert_snapshot!(summarize_file("good/plain"), @r#"
    plain Yaml McpServers
    default:
      clock: clock [] [] cache="off"
    "#);
}

#[test]
fn fractional_concurrency_is_rounded_up() {
    let configuration = load_text("pegboard.yaml", "queues: {one: {concurrent: 0.5}}").unwrap();
    assert_eq!(configuration.settings.queues["one"].max_concurrency, Some(1));
}

#[test]
fn the_root_and_the_default_toolbox_are_merged() {
    let text = "
mcpServers: {a: {command: x}}
toolboxes:
  default: {description: All of it, mcpServers: {b: {command: x}, a: {command: y}}}
";
    let configuration = load_text("pegboard.yaml", text).unwrap();
    let toolbox = &configuration.toolboxes["default"];
    assert_eq!(toolbox.description, "All of it");
    assert_eq!(toolbox.servers.keys().map(ToString::to_string).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(configuration.problems[0].message, "duplicate server name 'a' in the toolbox");
}

#[test]
fn a_null_section_is_empty() {
    let configuration =
        load_text("pegboard.yaml", "mcpServers:\ntoolboxes:\n  dev:\n    mcpServers:\n").unwrap();
    assert!(configuration.toolboxes.values().all(|toolbox| toolbox.servers.is_empty()));
}

#[test]
fn global_settings_may_be_under_defaults() {
    let text =
        r#"{"defaults": {"toolTimeout": "1m", "start": "eager"}, "toolTimeout": "2m", "mcpServers": {}}"#;
    let settings = load_text("pegboard.json", text).unwrap().settings;
    assert_eq!((settings.tool_timeout.to_string().as_str(), settings.start), ("2m", StartRule::Eager));
    let error =
        load_text("pegboard.json", r#"{"defaults": {"toolTimeuot": "1m"}, "mcpServers": {}}"#).unwrap_err();
    let [problem] = error.problems() else { panic!("{error}") };
    assert_eq!(
        (problem.path.as_str(), problem.help.as_deref()),
        ("defaults.toolTimeuot", Some("did you mean toolTimeout?"))
    );
}

#[test]
fn a_toolbox_may_be_flat() {
    let text = r#"{"toolboxes": {"dev": {"expose": "flat"}, "ops": {"expose": "meta"}, "web": {}}}"#;
    let gateway = load_text("pegboard.json", text).unwrap().gateway;
    assert_eq!(gateway.listed.iter().map(ToString::to_string).collect::<Vec<_>>(), ["dev"]);
    let error = load_text("pegboard.json", r#"{"toolboxes": {"dev": {"expose": "agent"}}}"#).unwrap_err();
    assert_eq!(error.problems()[0].message, "a toolbox must be flat or meta");
}

#[test]
fn a_chain_file_is_named_by_itself_or_its_file_name() {
    let steps = "steps: [{tool: ask, as: answer}, {tool: write, with: {text: answer}}]";
    for (name, text, expected) in [
        ("a.yaml", format!("chain: report\n{steps}"), "report"),
        ("a.yaml", format!("name: report\n{steps}"), "report"),
        ("weekly report.yaml", steps.to_owned(), "weekly-report"),
    ] {
        let configuration = load_text(name, &text).unwrap();
        let chains = &configuration.toolboxes["default"].chains;
        assert_eq!(configuration.sources[0].dialect, ConfigDialect::Chain);
        assert_eq!((chains.len(), chains[expected].steps.len()), (1, 2), "{name}: {text}");
        assert!(configuration.problems.is_empty(), "{:?}", configuration.problems);
    }
}

#[test]
fn telemetry_and_cache_settings_are_read() {
    let text = "
traceMCP: true
validateArguments: pegboard
cache: {backend: memory, maxEntries: 10}
telemetry:
  otlpEndpoint: https://ada:${KEY}@collector.example.com
  serviceName: desk
  labels: {team: search}
  traces: {ratio: 0.25}
  logging: {level: 'pegboard::tool=debug,warn', format: json}
";
    let configuration = load_text("pegboard.yaml", text).unwrap();
    assert!(configuration.settings.trace_mcp);
    assert_eq!(configuration.settings.validate_arguments, Some(ValidatedBy::Pegboard));
    assert_eq!(
        configuration.cache,
        CacheSettings { backend: CacheBackend::Memory, max_entries: 10, ..CacheSettings::default() }
    );
    let telemetry = &configuration.telemetry;
    assert_eq!((telemetry.service_name.as_deref(), telemetry.traces.ratio), (Some("desk"), 0.25));
    assert_eq!((telemetry.labels["team"].as_str(), telemetry.logging.format), ("search", LogFormat::Json));
    assert!(!format!("{configuration:?}").contains("sk-from-outside"));
}

#[test]
fn invalid_telemetry_and_cache_settings_are_reported() {
    let text = "
defaults: {traceMcp: true}
validateArguments: nobody
cache: {backend: redis, sqlite: {path: x}}
telemetry: {otlpEndpoint: 'localhost:4318', traces: {ratio: 2}, prometheus: {}}
";
    let error = load_text("pegboard.yaml", text).unwrap_err();
    let reported: Vec<String> = error
        .problems()
        .iter()
        .map(|problem| {
            format!("{}: {} ({})", problem.path, problem.message, problem.help.as_deref().unwrap_or("-"))
        })
        .collect();
    assert_snapshot!(reported.join("\n"), @r#"
    defaults.traceMcp: unknown setting (did you mean traceMCP?)
    validateArguments: unknown value 'nobody', expected one of server, pegboard (-)
    cache.backend: unknown value 'redis', expected one of sqlite, memory (-)
    cache.sqlite: unknown setting (valid settings: backend, maxEntries, maxBytes, maxEntryBytes)
    telemetry.otlpEndpoint: invalid collector URL (use a URL such as http://localhost:4318)
    telemetry.traces.ratio: expected a number from 0 to 1 (-)
    telemetry.prometheus: unknown setting (valid settings: enabled, otlpEndpoint, serviceName, labels, traces, logging)
    "#);
    // In a foreign file the keys may mean something else.
    let configuration =
        load_text("mcp.json", r#"{"mcpServers": {}, "cache": true, "telemetry": "off"}"#).unwrap();
    assert_eq!(configuration.problems.len(), 2);
}

#[test]
fn a_disabled_rest_tool_needs_no_variables() {
    let text = "restTools: {a: {description: x, url: 'https://x.org/${GONE}', enabled: false}}";
    let configuration = load_text("pegboard.yaml", text).unwrap();
    assert_eq!(configuration.problems, []);
    let tool = &configuration.toolboxes["default"].rest_tools["a"];
    assert!(matches!(tool, RestEntry::Usable { is_enabled: false, .. }), "{tool:?}");
}
