//! Files of other programs and the resulting configurations.

use std::path::Path;

use insta::assert_snapshot;
use pegboard_config::{ConfigProblem, Configuration, ServerEntry};
use pegboard_core::secret::Secret;
use pegboard_core::settings::ServerSettings;
use pegboard_core::settings::mcp::{McpTarget, ResolvedMcpServer};
use serde_json::json;

use super::{changes, environment};

/// Loads a fixture and summarizes each server in a few lines.
fn read(name: &str) -> String {
    let path = Path::new("tests/fixtures").join(name);
    let text = match pegboard_config::load(&path, &environment) {
        Ok(configuration) => summarize(&configuration),
        Err(error) => error.to_string(),
    };
    let here = std::env::current_dir().unwrap().display().to_string();
    text.replace(&here, "HERE").replace("tests/fixtures/", "")
}

pub(super) fn summarize(configuration: &Configuration) -> String {
    let mut lines = vec![configuration.sources[0].dialect.title().to_owned()];
    for toolbox in configuration.toolboxes.values() {
        for (name, server) in &toolbox.servers {
            lines.push(without_default_dir(&format!("{name}: {}", line(server)), configuration));
        }
        lines.extend(toolbox.rest_tools.keys().map(|name| format!("tool {name}")));
    }
    lines.extend(configuration.problems.iter().map(short));
    lines.join("\n")
}

/// Omits the working directory of programs that run in the project of the file.
fn without_default_dir(line: &str, configuration: &Configuration) -> String {
    let path = std::path::absolute(&configuration.sources[0].path).unwrap();
    let mut line = format!("{line} ");
    for folder in path.ancestors().skip(1).take(3) {
        line = line.replace(&format!(" in {} ", folder.display()), " ");
    }
    line.trim_end().to_owned()
}

/// Formats a problem without the affected line.
fn short(problem: &ConfigProblem) -> String {
    let ConfigProblem { line, path, message, .. } = problem;
    let kind = format!("{:?}", problem.severity).to_lowercase();
    let help = problem.help.as_ref().map(|help| format!(" [{help}]")).unwrap_or_default();
    format!("{kind} {line} {path}: {message}{help}")
}

pub(super) fn line(server: &ServerEntry) -> String {
    match server {
        ServerEntry::Mcp { connection, tools } => described(connection, tools),
        ServerEntry::OpenApi { service, .. } => {
            format!("openapi {} {}", service.spec, service.base_url.as_deref().unwrap_or_default())
        }
        ServerEntry::Unusable(entry) => format!("({})", entry.reason()),
    }
}

fn described(connection: &ResolvedMcpServer, tools: &ServerSettings) -> String {
    let mut words = Vec::new();
    match &connection.target {
        McpTarget::Program(program) => {
            words.push(program.command.clone());
            words.extend(program.args.iter().map(|argument| format!("{argument:?}")));
            words.extend(program.env.iter().map(shown));
            words.extend(program.cwd.iter().map(|cwd| format!("in {}", cwd.display())));
        }
        McpTarget::WebSocket(address) => words.extend(["websocket".to_owned(), address.url.clone()]),
        McpTarget::Http(address) | McpTarget::Sse(address) => {
            let kind = if matches!(connection.target, McpTarget::Sse(_)) { "sse" } else { "http" };
            words.extend([kind.to_owned(), address.url.clone()]);
            words.extend(address.headers.iter().map(shown));
        }
        McpTarget::Embedded => words.push("embedded".to_owned()),
    }
    if connection.start_timeout != ResolvedMcpServer::START_TIMEOUT {
        words.push(format!("start={:?}", connection.start_timeout));
    }
    words.extend((!connection.is_enabled).then(|| "(off)".to_owned()));
    words.extend(changes(&json!(tools), &json!(ServerSettings::default())));
    words.join(" ")
}

fn shown((name, value): (&String, &Secret)) -> String {
    format!("{name}={:?}", value.reveal())
}

#[test]
fn claude_desktop_has_only_commands() {
    assert_snapshot!(read("claude-desktop/claude_desktop_config.json"), @r#"
    mcpServers
    filesystem: npx "-y" "@modelcontextprotocol/server-filesystem" "/srv/notes"
    shell: sh "-c" "echo ${name%%.*} costs $5" TOKEN="pa$$word"
    "#);
}

#[test]
fn claude_code_has_commands_and_urls() {
    assert_snapshot!(read("claude-code/.mcp.json"), @r#"
    mcpServers
    github: http https://api.example.com/mcp Authorization="Bearer ghp_0123456789"
    events: sse https://events.example.com/stream
    sentry: http https://sentry.example.com/mcp
    database: (needs: DATABASE_URL)
    warning 12 mcpServers.sentry.headersHelper: not supported: commands that produce headers; set them in headers
    warning 13 mcpServers.sentry.oauth: not supported: OAuth sign-in; set a token in headers
    warning 19 mcpServers.database.env.DSN: the variable DATABASE_URL is not set [export DATABASE_URL=…, or add a default: ${DATABASE_URL:-}]
    "#);
}

#[test]
fn claude_code_has_global_and_per_directory_servers() {
    assert_snapshot!(read("claude-code/.claude.json"), @r#"
    Claude Code
    notes: notes-server "--all"
    clock: clock-server
    warning 9 projects["/src/rocket"]: servers of /src/rocket are ignored [to use them, run in that directory with the source claude-code]
    "#);
}

#[test]
fn vs_code_has_inputs_and_workspace_folders() {
    assert_snapshot!(read("vscode/.vscode/mcp.json"), @r#"
    VS Code
    api: node "HERE/vscode/api.js" "--stage" "test" "--name" "vscode" API_KEY="typed-by-ada" TOKEN="ghp_0123456789" REGION="north"
    other: (needs: PEGBOARD_INPUT_OTHER)
    docs: http https://docs.example.com/mcp
    asks: (servers.asks.args[0]: only an editor can resolve this reference)
    boxed: boxed-server
    warning 16 servers.other.args[0]: the variable PEGBOARD_INPUT_OTHER is not set [export PEGBOARD_INPUT_OTHER=…]
    error 18 servers.asks.args[0]: only an editor can resolve this reference [put the value in a variable and use ${env:NAME}]
    warning 19 servers.boxed.sandboxEnabled: not supported: sandboxes
    "#);
}

#[test]
fn vs_code_had_servers_in_its_settings() {
    assert_snapshot!(read("vscode/settings.json"), @"
    VS Code
    clock: clock-server
    ");
}

#[test]
fn copilot_lists_the_tools_of_a_server() {
    assert_snapshot!(read("copilot/mcp-config.json"), @r#"
    mcpServers
    files: files-server "/srv" toolFilters=["*"]
    search: http https://search.example.com/mcp toolFilters=["search","fetch"]
    nothing: nothing-server toolFilters=[]
    "#);
}

#[test]
fn cursor_has_env_files() {
    assert_snapshot!(read("cursor/.cursor/mcp.json"), @"
    mcpServers
    weather: (mcpServers.weather.envFile: cannot read HERE/cursor/.cursor/gone.env: No such file or directory (os error 2))
    board: sse https://board.example.com/sse
    error 7 mcpServers.weather.envFile: cannot read HERE/cursor/.cursor/gone.env: No such file or directory (os error 2) [check the path; it is relative to the directory of this file]
    warning 9 mcpServers.board.auth: not supported: OAuth sign-in; set a token in headers
    ");
}

#[test]
fn windsurf_calls_a_url_server_url() {
    assert_snapshot!(read("windsurf/mcp_config.json"), @r#"
    mcpServers
    figma: http https://figma.example.com/mcp Authorization="Bearer from-a-file" toolsDenied=["delete_file"]
    memory: npx "-y" "memory-server" (off)
    "#);
}

#[test]
fn zed_has_context_servers_with_timeouts_in_seconds() {
    assert_snapshot!(read("zed/settings.json"), @r#"
    Zed
    postgres: pg-server "postgres://localhost/${DB}" PGUSER="ada" requestTimeoutMs="1m30s"
    older: older-server "--quiet" LEVEL="2"
    remote: http https://remote.example.com/mcp X-Key="abcdef" (off)
    warning 15 context_servers.mcp-server-github: skipped mcp-server-github: provided by a Zed extension
    "#);
}

#[test]
fn gemini_excludes_servers_and_url_means_sse() {
    assert_snapshot!(read("gemini/settings.json"), @r#"
    Gemini CLI
    python: python "-m" "tools" API_KEY="key-of-the-api" OTHER="" PRICE="5$" in HERE/gemini/server toolFilters=["safe_tool","file_reader"] toolsDenied=["dangerous_tool"] requestTimeoutMs="15s"
    http: http https://http.example.com/mcp Authorization="Bearer ghp_0123456789"
    old: sse https://old.example.com/events
    typed: http https://typed.example.com/mcp
    slow: slow-server (off)
    warning 18 mcpServers.slow.authProviderType: not supported: OAuth sign-in; set a token in headers
    "#);
}

#[test]
fn qwen_is_like_gemini() {
    assert_snapshot!(read("qwen/settings.json"), @r#"
    Gemini CLI
    notes: notes-server requestTimeoutMs="10m"
    "#);
}

#[test]
fn codex_passes_variables_by_name_with_timeouts_in_seconds() {
    assert_snapshot!(read("codex/config.toml"), @r#"
    Codex
    docs: npx "-y" "docs-server" "${literally}" MODE="quiet" GITHUB_TOKEN="ghp_0123456789" KEY="sk-from-outside" start=20s toolFilters=["open","search"] toolsDenied=["search"] requestTimeoutMs="7s500ms"
    figma: http https://figma.example.com/mcp Authorization="Bearer ghp_0123456789" X-Region="north" X-Key="sk-from-outside"
    off: off-server start=500ms (off)
    warning 26 mcp_servers.figma.oauth_resource: not supported: OAuth sign-in; set a token in headers
    "#);
}

#[test]
fn opencode_has_its_command_in_a_list() {
    assert_snapshot!(read("opencode/opencode.jsonc"), @r#"
    OpenCode
    everything: npx "-y" "everything-server" KEY="sk-from-outside" NONE="" start=8s toolsDenied=["*"]
    jira: http https://jira.example.com/mcp Authorization="Bearer from-another-file" (off)
    warning 21 mcp.company: skipped company: defined elsewhere
    "#);
}

#[test]
fn opencode_2_nests_its_servers_deeper() {
    assert_snapshot!(read("opencode/version-2.jsonc"), @r#"
    OpenCode
    everything: everything-server LEVEL="1"
    away: http https://away.example.com/mcp (off)
    warning 6 mcp.servers.away.oauth: not supported: OAuth sign-in; set a token in headers
    "#);
}

#[test]
fn lm_studio_has_the_plain_file() {
    assert_snapshot!(read("lmstudio/mcp.json"), @r#"
    mcpServers
    hf: http https://models.example.com/mcp Authorization="Bearer hf_0123456789"
    calc: calc-server "--precise" requestTimeoutMs="1m"
    warning 4 mcpServers.calc.timeout: ambiguous unit: assuming milliseconds [set it in a pegboard.yaml with a unit, such as requestTimeoutMs: 60s]
    "#);
}

#[test]
fn cline_has_long_names_and_timeouts_in_seconds() {
    assert_snapshot!(read("cline/cline_mcp_settings.json"), @r#"
    Cline
    github-com-example-servers-tree-main-src-files: files-server requestTimeoutMs="1m"
    web: http https://web.example.com/mcp (off) requestTimeoutMs="30s"
    warning 3 mcpServers["github.com/example/servers/tree/main/src/files"]: server renamed to github-com-example-servers-tree-main-src-files: names may contain letters, digits, '-' and '_'
    "#);
}

#[test]
fn roo_is_like_cline() {
    assert_snapshot!(read("roo/.roo/mcp.json"), @r#"
    Cline
    notes: notes-server "HERE/roo" toolsDenied=["erase"]
    warning 8 mcpServers.notes.watchPaths: unknown setting, ignored
    "#);
}

#[test]
fn continue_has_a_list() {
    assert_snapshot!(read("continue/config.yaml"), @r#"
    Continue
    SQLite-tools: npx "-y" "sqlite-server" "/srv/data.db" KEY="sk-from-outside" LITERAL="${HOME}" start=5s
    remote: http https://remote.example.com/mcp Authorization="Bearer ghp_0123456789" requestTimeoutMs="7s200ms"
    warning 9 mcpServers[0].name: server renamed to SQLite-tools: names may contain letters, digits, '-' and '_'
    warning 24 mcpServers[2]: skipped server-3: defined elsewhere
    "#);
}

#[test]
fn goose_has_built_in_extensions_and_timeouts_in_seconds() {
    assert_snapshot!(read("goose/config.yaml"), @r#"
    Goose
    fetch: (needs: MISSING_KEY)
    maps: http https://maps.example.com/mcp X-Key="12345" (off) requestTimeoutMs="45s"
    warning 4 extensions.developer: skipped developer, todo: built into Goose
    warning 22 extensions.fetch.env_keys[1]: the variable MISSING_KEY is not set [export MISSING_KEY=…, or add a default: ${MISSING_KEY:-}]
    "#);
}

#[test]
fn kiro_has_the_plain_file() {
    assert_snapshot!(read("kiro/.kiro/settings/mcp.json"), @r#"
    mcpServers
    docs: uvx "docs-server@latest" FASTMCP_LOG_LEVEL="ERROR" KEY="sk-from-outside" toolsDenied=["write"]
    "#);
}

#[test]
fn command_substitution_of_crush_becomes_an_input() {
    assert_snapshot!(read("crush/crush.json"), @r#"
    Crush
    filesystem: node "files.js" HOME_OF="/home/ada" start=120s
    github: (needs: PEGBOARD_INPUT_GH_AUTH_TOKEN)
    events: sse https://events.example.com/sse (off)
    warning 9 mcp.github.headers.Authorization: not supported: command substitution; provide the value as an input
    warning 9 mcp.github.headers.Authorization: the variable PEGBOARD_INPUT_GH_AUTH_TOKEN is not set [export PEGBOARD_INPUT_GH_AUTH_TOKEN=…]
    "#);
}

#[test]
fn amazon_q_has_the_plain_file() {
    assert_snapshot!(read("amazonq/mcp.json"), @r#"
    mcpServers
    cdk: uvx "cdk-server" LEVEL="ERROR" requestTimeoutMs="45s"
    "#);
}

#[test]
fn ai_agent_settings_are_native_settings() {
    assert_snapshot!(read("ai-agent/.ai-agent.json"), @r#"
    mcpServers
    github: npx "-y" "github-server" TOKEN="ghp_0123456789" toolsAllowed=["search_code","get_*"] toolsDenied=["get_secret"] queue="slow" cache="5m" toolsCache={"search_code":"1h"} cacheScope="session" requestTimeoutMs="2m"
    socket: websocket wss://socket.example.com/mcp (off)
    tool ping
    "#);
}

#[test]
fn the_inspector_has_the_plain_file() {
    assert_snapshot!(read("inspector/mcp.json"), @r#"
    mcpServers
    default-server: http http://127.0.0.1:3000/mcp
    local: node "build/index.js"
    "#);
}

#[test]
fn mcphub_switches_off_single_tools() {
    assert_snapshot!(read("mcphub/mcp_settings.json"), @r#"
    mcphub
    amap: npx "-y" "maps-server" MAPS_KEY="sk-from-outside" toolsDenied=["maps-taxi"] requestTimeoutMs="1m30s"
    slack: http https://slack.example.com/mcp
    warning 13 users: ignored unknown settings: users, systemConfig
    "#);
}

#[test]
fn one_mcp_has_variables_in_a_list() {
    assert_snapshot!(read("1mcp/mcp.json"), @r#"
    mcpServers
    files: files-server ROOT="/srv" MODE="quiet" start=2s toolsDenied=["erase"] requestTimeoutMs="9s"
    "#);
}

#[test]
fn a_proxy_has_options_for_each_server() {
    assert_snapshot!(read("mcp-proxy/config.json"), @r#"
    mcp-proxy
    github: npx "-y" "github-server" TOKEN="${literal}" toolsDenied=["create_repository"]
    fetch: uvx "fetch-server" (off) toolFilters=["fetch"]
    amap: sse https://maps.example.com/stream?key=abc
    modern: http https://modern.example.com/mcp
    warning 2 mcpProxy: ignored unknown setting: mcpProxy
    warning 10 mcpServers.github.options.authTokens: not supported: tokens for single servers
    "#);
}

#[test]
fn agentgateway_has_a_short_form() {
    assert_snapshot!(read("agentgateway/short.yaml"), @r#"
    agentgateway
    everything: npx "everything-server" MODE="quiet"
    remote: http https://remote.example.com/mcp
    parts: sse http://localhost:8080/events
    warning 4 mcp.policies: not supported: access policies
    warning 16 mcp.targets[1].policies: not supported: access policies
    "#);
}

#[test]
fn agentgateway_has_a_long_form() {
    assert_snapshot!(read("agentgateway/long.yaml"), @r#"
    agentgateway
    time: uvx "time-server"
    time-2: http http://127.0.0.1:8000/mcp
    petstore: openapi agentgateway/./petshop.json https://petshop.example.com
    warning 16 binds[0].listeners[0].routes[1].backends[0]: ignored: not an MCP target (and 1 more)
    warning 24 binds[1].listeners[0].routes[0].backends[0].mcp.targets[0].name: server renamed to time-2: the name is taken
    "#);
}

#[test]
fn a_registry_entry_becomes_commands_and_urls() {
    assert_snapshot!(read("registry/server.json"), @r#"
    registry
    weather: (needs: PEGBOARD_INPUT_REGION)
    weather-oci: docker "run" "-i" "--rm" "-e" "KEY" "--mount" "type=bind,src=,dst=/data" "ghcr.io/example/weather:1.0.2" KEY="sk-from-outside" (off)
    weather-pypi: uvx "weather-server@0.9" (off)
    weather-remote: http https://public.example.com/mcp X-API-Key="" (off)
    warning 7 packages[0]: the variable PEGBOARD_INPUT_REGION is not set [export PEGBOARD_INPUT_REGION=…]
    warning 35 packages[3]: package skipped: unsupported registry "mcpb" [supported registries: npm, pypi, nuget and oci]
    warning 36 packages[4]: package skipped: its transport streamable-http requires a running server [start it yourself and add the server by its URL]
    "#);
}

#[test]
fn fastmcp_describes_one_server() {
    assert_snapshot!(read("fastmcp/fastmcp.json"), @r#"
    fastmcp
    my-server: fastmcp "run" "HERE/fastmcp/fastmcp.json" "--transport" "stdio" KEY="sk-from-outside"
    warning 5 deployment.transport: Pegboard starts the server itself and connects over stdio
    "#);
}

#[test]
fn fastmcp_has_the_plain_file_with_tokens() {
    assert_snapshot!(read("fastmcp/mcp.json"), @r#"
    mcpServers
    weather: http https://weather.example.com/mcp Authorization="Bearer a-token-of-mine"
    signed: http https://signed.example.com/mcp
    warning 4 mcpServers.signed.auth: not supported: OAuth sign-in; set a token in headers
    "#);
}

#[test]
fn a_catalogue_has_servers_in_containers() {
    assert_snapshot!(read("docker/catalog.yaml"), @r#"
    Docker catalogue
    github: (needs: PEGBOARD_INPUT_GITHUB_FOLDER, PEGBOARD_INPUT_GITHUB_HOST)
    linear: sse https://linear.example.com/sse X-Key="abcdef"
    warning 6 registry.github: the variable PEGBOARD_INPUT_GITHUB_FOLDER is not set [export PEGBOARD_INPUT_GITHUB_FOLDER=…]
    warning 13 registry.github.env[0]: the variable PEGBOARD_INPUT_GITHUB_HOST is not set [export PEGBOARD_INPUT_GITHUB_HOST=…]
    warning 18 registry.github.allowHosts: not supported: host allowlists; the container may reach every host
    warning 24 registry.curl: skipped: each of its tools is a separate container
    "#);
}

#[test]
fn an_openapi_document_is_a_service() {
    assert_snapshot!(read("openapi/petshop.yaml"), @"
    OpenAPI
    pet-shop: openapi openapi/petshop.yaml
    ");
}

#[test]
fn servers_may_be_at_the_root() {
    assert_snapshot!(read("bare/servers.json"), @"
    servers by name
    clock: clock-server
    web: http https://web.example.com/mcp
    ");
}
