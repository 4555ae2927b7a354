//! Files of other programs, and what they come to.

use std::path::Path;

use insta::assert_snapshot;
use pegboard_config::{Configuration, Problem, Server};
use pegboard_core::settings::ServerSettings;
use pegboard_core::settings::mcp::{Secret, Settings, Target};
use serde_json::json;

use super::{changes, environment};

/// What a file of the fixtures comes to, in a few lines for each server.
fn read(name: &str) -> String {
    let path = Path::new("tests/fixtures").join(name);
    let text = match pegboard_config::load(&path, &environment) {
        Ok(configuration) => told(&configuration),
        Err(error) => error.to_string(),
    };
    let here = std::env::current_dir().unwrap().display().to_string();
    text.replace(&here, "HERE").replace("tests/fixtures/", "")
}

pub(super) fn told(configuration: &Configuration) -> String {
    let mut lines = vec![configuration.sources[0].dialect.title().to_owned()];
    for toolbox in configuration.toolboxes.values() {
        for (name, server) in &toolbox.servers {
            lines.push(format!("{name}: {}", line(server)));
        }
        lines.extend(toolbox.rest_tools.keys().map(|name| format!("tool {name}")));
    }
    lines.extend(configuration.problems.iter().map(short));
    lines.join("\n")
}

/// A problem without the line that it is in.
fn short(problem: &Problem) -> String {
    let Problem { line, path, message, .. } = problem;
    let kind = format!("{:?}", problem.severity).to_lowercase();
    let help = problem.help.as_ref().map(|help| format!(" [{help}]")).unwrap_or_default();
    format!("{kind} {line} {path}: {message}{help}")
}

pub(super) fn line(server: &Server) -> String {
    match server {
        Server::Mcp { connection, tools } => described(connection, tools),
        Server::OpenApi { service, .. } => {
            format!("openapi {} {}", service.spec, service.base_url.as_deref().unwrap_or_default())
        }
        Server::Unusable { .. } => format!("({})", server.obstacle().unwrap()),
    }
}

fn described(connection: &Settings, tools: &ServerSettings) -> String {
    let mut words = Vec::new();
    match &connection.target {
        Target::Program(program) => {
            words.push(program.command.clone());
            words.extend(program.args.iter().map(|argument| format!("{argument:?}")));
            words.extend(program.env.iter().map(shown));
            words.extend(program.cwd.iter().map(|cwd| format!("in {}", cwd.display())));
        }
        Target::WebSocket(address) => words.extend(["websocket".to_owned(), address.url.clone()]),
        Target::Http(address) | Target::Sse(address) => {
            let kind = if matches!(connection.target, Target::Sse(_)) { "sse" } else { "http" };
            words.extend([kind.to_owned(), address.url.clone()]);
            words.extend(address.headers.iter().map(shown));
        }
        Target::Embedded => words.push("embedded".to_owned()),
    }
    if connection.start_timeout != Settings::START_TIMEOUT {
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
fn claude_desktop_has_programs_alone() {
    assert_snapshot!(read("claude-desktop/claude_desktop_config.json"), @r#"
    mcpServers
    filesystem: npx "-y" "@modelcontextprotocol/server-filesystem" "/srv/notes"
    shell: sh "-c" "echo ${name%%.*} costs $5" TOKEN="pa$$word"
    "#);
}

#[test]
fn claude_code_has_programs_and_addresses() {
    assert_snapshot!(read("claude-code/.mcp.json"), @r#"
    mcpServers
    github: http https://api.example.com/mcp Authorization="Bearer ghp_0123456789"
    events: sse https://events.example.com/stream
    sentry: http https://sentry.example.com/mcp
    database: (needs: DATABASE_URL)
    warning 12 mcpServers.sentry.headersHelper: this is not carried over: no command is run to get headers: give them in headers
    warning 13 mcpServers.sentry.oauth: this is not carried over: signing in with OAuth is not done for servers: give the token in headers
    error 19 mcpServers.database.env.DSN: the variable DATABASE_URL is not set [export DATABASE_URL=…   or give a default: ${DATABASE_URL:-}]
    "#);
}

#[test]
fn claude_code_has_servers_of_the_user_and_of_single_folders() {
    assert_snapshot!(read("claude-code/.claude.json"), @r#"
    Claude Code
    notes: notes-server "--all"
    clock: clock-server
    warning 9 projects["/src/rocket"]: the servers of /src/rocket are not used [they are those of claude-code in that folder: go there and name claude-code]
    "#);
}

#[test]
fn vs_code_asks_for_inputs_and_knows_its_folder() {
    assert_snapshot!(read("vscode/.vscode/mcp.json"), @r#"
    VS Code
    api: node "HERE/vscode/api.js" "--stage" "test" "--name" "vscode" API_KEY="typed-by-ada" TOKEN="ghp_0123456789" REGION="north"
    other: (needs: PEGBOARD_INPUT_OTHER)
    docs: http https://docs.example.com/mcp
    asks: (servers.asks.args[0]: only an editor could fill this in)
    boxed: boxed-server
    error 16 servers.other.args[0]: the variable PEGBOARD_INPUT_OTHER is not set [export PEGBOARD_INPUT_OTHER=…]
    error 18 servers.asks.args[0]: only an editor could fill this in [put the value into a variable, and write ${env:NAME}]
    warning 19 servers.boxed.sandboxEnabled: this is not carried over: programs are not run in a sandbox
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
fn cursor_has_a_file_of_variables() {
    assert_snapshot!(read("cursor/.cursor/mcp.json"), @"
    mcpServers
    weather: (mcpServers.weather.envFile: the file HERE/cursor/.cursor/gone.env cannot be filled in: No such file or directory (os error 2))
    board: sse https://board.example.com/sse
    error 7 mcpServers.weather.envFile: the file HERE/cursor/.cursor/gone.env cannot be filled in: No such file or directory (os error 2) [check the path; it begins in the folder of this file]
    warning 9 mcpServers.board.auth: this is not carried over: signing in is not done for servers: give the token in headers
    ");
}

#[test]
fn windsurf_calls_an_address_server_url() {
    assert_snapshot!(read("windsurf/mcp_config.json"), @r#"
    mcpServers
    figma: http https://figma.example.com/mcp Authorization="Bearer from-a-file" toolsDenied=["delete_file"]
    memory: npx "-y" "memory-server" (off)
    "#);
}

#[test]
fn zed_has_its_servers_among_its_settings_and_counts_in_seconds() {
    assert_snapshot!(read("zed/settings.json"), @r#"
    Zed
    postgres: pg-server "postgres://localhost/${DB}" PGUSER="ada" requestTimeoutMs="1m30s"
    older: older-server "--quiet" LEVEL="2"
    remote: http https://remote.example.com/mcp X-Key="abcdef" (off)
    warning 15 context_servers.mcp-server-github: mcp-server-github is left out: a part of an extension of Zed
    "#);
}

#[test]
fn gemini_leaves_out_servers_and_means_sse_by_url() {
    assert_snapshot!(read("gemini/settings.json"), @r#"
    Gemini CLI
    python: python "-m" "tools" API_KEY="key-of-the-api" OTHER="" PRICE="5$" in ./server toolFilters=["safe_tool","file_reader"] toolsDenied=["dangerous_tool"] requestTimeoutMs="15s"
    http: http https://http.example.com/mcp Authorization="Bearer ghp_0123456789"
    old: sse https://old.example.com/events
    typed: http https://typed.example.com/mcp
    slow: slow-server (off)
    warning 18 mcpServers.slow.authProviderType: this is not carried over: signing in with OAuth is not done for servers: give the token in headers
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
fn codex_names_variables_and_counts_in_seconds() {
    assert_snapshot!(read("codex/config.toml"), @r#"
    Codex
    docs: npx "-y" "docs-server" "${literally}" MODE="quiet" GITHUB_TOKEN="ghp_0123456789" KEY="sk-from-outside" start=20s toolFilters=["open","search"] toolsDenied=["search"] requestTimeoutMs="7s500ms"
    figma: http https://figma.example.com/mcp Authorization="Bearer ghp_0123456789" X-Region="north" X-Key="sk-from-outside"
    off: off-server start=500ms (off)
    warning 26 mcp_servers.figma.oauth_resource: this is not carried over: signing in with OAuth is not done for servers: give the token in headers
    "#);
}

#[test]
fn opencode_has_its_command_in_a_list() {
    assert_snapshot!(read("opencode/opencode.jsonc"), @r#"
    OpenCode
    everything: npx "-y" "everything-server" KEY="sk-from-outside" NONE="" start=8s toolsDenied=["*"]
    jira: http https://jira.example.com/mcp Authorization="Bearer from-another-file" (off)
    warning 21 mcp.company: company is left out: described elsewhere
    "#);
}

#[test]
fn opencode_has_its_servers_one_level_deeper_in_its_second_version() {
    assert_snapshot!(read("opencode/version-2.jsonc"), @r#"
    OpenCode
    everything: everything-server LEVEL="1" in .
    away: http https://away.example.com/mcp (off)
    warning 6 mcp.servers.away.oauth: this is not carried over: signing in with OAuth is not done for servers: give the token in headers
    "#);
}

#[test]
fn lm_studio_has_the_plain_file() {
    assert_snapshot!(read("lmstudio/mcp.json"), @r#"
    mcpServers
    hf: http https://models.example.com/mcp Authorization="Bearer hf_0123456789"
    calc: calc-server "--precise" requestTimeoutMs="1m"
    warning 4 mcpServers.calc.timeout: programs do not agree what this number counts: it is taken for milliseconds [say it in a pegboard.yaml, such as requestTimeoutMs: 60s]
    "#);
}

#[test]
fn cline_has_long_names_and_counts_in_seconds() {
    assert_snapshot!(read("cline/cline_mcp_settings.json"), @r#"
    Cline
    github-com-example-servers-tree-main-src-files: files-server requestTimeoutMs="1m"
    web: http https://web.example.com/mcp (off) requestTimeoutMs="30s"
    warning 3 mcpServers["github.com/example/servers/tree/main/src/files"]: the server is called github-com-example-servers-tree-main-src-files here: names have letters, digits, '-' and '_'
    "#);
}

#[test]
fn roo_is_like_cline() {
    assert_snapshot!(read("roo/.roo/mcp.json"), @r#"
    Cline
    notes: notes-server "HERE/roo" toolsDenied=["erase"]
    warning 8 mcpServers.notes.watchPaths: unknown setting, which is left alone
    "#);
}

#[test]
fn continue_has_a_list() {
    assert_snapshot!(read("continue/config.yaml"), @r#"
    Continue
    SQLite-tools: npx "-y" "sqlite-server" "/srv/data.db" KEY="sk-from-outside" LITERAL="${HOME}" start=5s
    remote: http https://remote.example.com/mcp Authorization="Bearer ghp_0123456789" requestTimeoutMs="7s200ms"
    warning 9 mcpServers[0].name: the server is called SQLite-tools here: names have letters, digits, '-' and '_'
    warning 24 mcpServers[2]: server-3 is left out: described elsewhere
    "#);
}

#[test]
fn goose_has_parts_of_its_own_and_counts_in_seconds() {
    assert_snapshot!(read("goose/config.yaml"), @r#"
    Goose
    fetch: (needs: MISSING_KEY)
    maps: http https://maps.example.com/mcp X-Key="12345" (off) requestTimeoutMs="45s"
    warning 4 extensions.developer: developer, todo are left out: each a part of Goose itself
    error 22 extensions.fetch.env_keys[1]: the variable MISSING_KEY is not set [export MISSING_KEY=…   or give a default: ${MISSING_KEY:-}]
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
fn crush_runs_commands_and_we_do_not() {
    assert_snapshot!(read("crush/crush.json"), @r#"
    Crush
    filesystem: node "files.js" HOME_OF="/home/ada" start=120s
    github: (needs: PEGBOARD_INPUT_GH_AUTH_TOKEN)
    events: sse https://events.example.com/sse (off)
    warning 9 mcp.github.headers.Authorization: this is not carried over: no command is run to fill in a text, so somebody must say what it would
    error 9 mcp.github.headers.Authorization: the variable PEGBOARD_INPUT_GH_AUTH_TOKEN is not set [export PEGBOARD_INPUT_GH_AUTH_TOKEN=…]
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
fn ai_agent_has_much_of_what_we_have() {
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
    warning 13 users: users, systemConfig are no settings of ours, and left alone
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
    warning 2 mcpProxy: mcpProxy is no setting of ours, and left alone
    warning 10 mcpServers.github.options.authTokens: this is not carried over: nobody is asked for a token of a single server here
    "#);
}

#[test]
fn agentgateway_has_a_short_form() {
    assert_snapshot!(read("agentgateway/short.yaml"), @r#"
    agentgateway
    everything: npx "everything-server" MODE="quiet"
    remote: http https://remote.example.com/mcp
    parts: sse http://localhost:8080/events
    warning 4 mcp.policies: this is not carried over: who may use what is said otherwise here
    warning 16 mcp.targets[1].policies: this is not carried over: who may use what is said otherwise here
    "#);
}

#[test]
fn agentgateway_has_a_long_form() {
    assert_snapshot!(read("agentgateway/long.yaml"), @r#"
    agentgateway
    time: uvx "time-server"
    time-2: http http://127.0.0.1:8000/mcp
    petstore: openapi agentgateway/./petshop.json https://petshop.example.com
    warning 16 binds[0].listeners[0].routes[1].backends[0]: only targets of MCP are read, not this and 1 more like it
    warning 24 binds[1].listeners[0].routes[0].backends[0].mcp.targets[0].name: the server is called time-2 here: there is another one of its name
    "#);
}

#[test]
fn a_registry_says_how_a_server_is_run() {
    assert_snapshot!(read("registry/server.json"), @r#"
    registry
    weather: (needs: PEGBOARD_INPUT_REGION)
    weather-oci: docker "run" "-i" "--rm" "-e" "KEY" "--mount" "type=bind,src=,dst=/data" "ghcr.io/example/weather:1.0.2" KEY="sk-from-outside" (off)
    weather-pypi: uvx "weather-server@0.9" (off)
    weather-remote: http https://public.example.com/mcp X-API-Key="" (off)
    error 7 packages[0]: the variable PEGBOARD_INPUT_REGION is not set [export PEGBOARD_INPUT_REGION=…]
    warning 35 packages[3]: this package is left out: packages of "mcpb" cannot be run [there are npm, pypi, nuget and oci]
    warning 36 packages[4]: this package is left out: it speaks streamable-http, so something else must start it [start it, and add the server by its url]
    "#);
}

#[test]
fn fastmcp_describes_one_server() {
    assert_snapshot!(read("fastmcp/fastmcp.json"), @r#"
    fastmcp
    my-server: fastmcp "run" "HERE/fastmcp/fastmcp.json" "--transport" "stdio" KEY="sk-from-outside" in HERE/fastmcp
    warning 5 deployment.transport: the server is started here, and spoken to over its input and output
    "#);
}

#[test]
fn fastmcp_has_the_plain_file_with_tokens() {
    assert_snapshot!(read("fastmcp/mcp.json"), @r#"
    mcpServers
    weather: http https://weather.example.com/mcp Authorization="Bearer a-token-of-mine"
    signed: http https://signed.example.com/mcp
    warning 4 mcpServers.signed.auth: this is not carried over: signing in is not done for servers: give the token in headers
    "#);
}

#[test]
fn a_catalogue_has_servers_in_containers() {
    assert_snapshot!(read("docker/catalog.yaml"), @r#"
    Docker catalogue
    github: (needs: PEGBOARD_INPUT_GITHUB_FOLDER, PEGBOARD_INPUT_GITHUB_HOST)
    linear: sse https://linear.example.com/sse X-Key="abcdef"
    error 6 registry.github: the variable PEGBOARD_INPUT_GITHUB_FOLDER is not set [export PEGBOARD_INPUT_GITHUB_FOLDER=…]
    error 13 registry.github.env[0]: the variable PEGBOARD_INPUT_GITHUB_HOST is not set [export PEGBOARD_INPUT_GITHUB_HOST=…]
    warning 18 registry.github.allowHosts: this is not carried over: the container may reach every host
    warning 24 registry.curl: this is left out: each of its tools is a container of its own
    "#);
}

#[test]
fn a_description_of_a_service_is_the_service() {
    assert_snapshot!(read("openapi/petshop.yaml"), @"
    OpenAPI
    pet-shop: openapi openapi/petshop.yaml
    ");
}

#[test]
fn servers_may_have_nothing_around_them() {
    assert_snapshot!(read("bare/servers.json"), @"
    servers by name
    clock: clock-server
    web: http https://web.example.com/mcp
    ");
}
