//! Translation rules of the dialects: field names, variable syntax and units, as a table.
//!
//! A file is first recognized by its contents and then translated with the rules of its dialect: the same key
//! means seconds to one program and milliseconds to another, which the number alone does not reveal.

use super::ConfigDialect;
use super::variable_syntax::VariableSyntax;

/// Translation rules of one dialect.
pub(super) struct DialectRules {
    /// Key paths to the servers; the first that exists counts.
    pub(super) server_paths: &'static [&'static [&'static str]],
    /// Field rules that take precedence over the common ones.
    pub(super) fields: &'static [(&'static str, FieldRule)],
    /// Variable syntax.
    pub(super) syntax: VariableSyntax,
    /// Unit of a number under `timeout`.
    pub(super) timeout: DurationUnit,
    /// Transport of a URL without a type.
    pub(super) address: UrlTransport,
    /// Other contents of the file.
    pub(super) root: RootContent,
}

/// Translation rule of one field.
#[derive(Clone, Copy)]
pub(super) enum FieldRule {
    /// Renames the field.
    Rename(&'static str),
    /// The command: a string, a list with its arguments, or an object with a path, arguments and an
    /// environment.
    Command,
    /// The transport.
    Transport,
    /// The URL of a server with this transport.
    UrlTransport(&'static str),
    /// Environment variables: an object, a list of `NAME=value`, or a list of names and values.
    Environment,
    /// Names of variables to pass through if they are set.
    PassedVariables,
    /// Names of variables that must be set.
    RequiredVariables,
    /// Headers: an object, or a list of names and values.
    Headers,
    /// Headers, each with the name of the variable that holds its value.
    HeaderVariables,
    /// Name of the variable that holds the bearer token.
    TokenVariable,
    /// The bearer token itself, or `oauth`.
    Token,
    /// A duration in this unit.
    Duration(&'static str, DurationUnit),
    /// A duration in the unit of the dialect.
    Timeout(&'static str),
    /// Tool names as a list, or settings of single tools as an object.
    Tools,
    /// `{mode: allow, list: […]}`, or `block`.
    Filter,
    /// An object with further fields of the server.
    Nested(&'static [(&'static str, FieldRule)]),
    /// A URL in parts: `host`, `port` and `path`.
    HostAndPort(&'static str),
    /// Not relevant here; ignored without a warning.
    Ignored,
    /// Not supported, for this reason.
    Unsupported(&'static str),
}

/// Unit of a duration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DurationUnit {
    Milliseconds,
    Seconds,
    /// Unknown: programs with this format disagree.
    Unknown,
}

impl From<crate::clients::TimeoutUnit> for DurationUnit {
    fn from(unit: crate::clients::TimeoutUnit) -> Self {
        match unit {
            crate::clients::TimeoutUnit::Milliseconds => Self::Milliseconds,
            crate::clients::TimeoutUnit::Seconds => Self::Seconds,
        }
    }
}

/// Transport of a URL without a type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UrlTransport {
    /// Detected when connecting.
    Detect,
    /// HTTP+SSE.
    Sse,
}

/// Contents of a file beside the servers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RootContent {
    /// Possibly native settings. Other keys are reported.
    Servers,
    /// Possibly native settings. Other keys belong to the client.
    Client,
    /// The settings of a whole program, which are ignored.
    Program,
}

const OAUTH: &str = "OAuth sign-in; set a token in headers";
const HEADERS_HELPER: &str = "commands that produce headers; set them in headers";

/// Field rules common to all dialects, unless overridden.
pub(super) const COMMON_FIELDS: &[(&str, FieldRule)] = &[
    ("command", FieldRule::Command),
    ("cmd", FieldRule::Command),
    ("type", FieldRule::Transport),
    ("transport", FieldRule::Transport),
    ("transportType", FieldRule::Transport),
    ("transport_type", FieldRule::Transport),
    ("serverUrl", FieldRule::Rename("url")),
    ("server_url", FieldRule::Rename("url")),
    ("uri", FieldRule::Rename("url")),
    ("httpUrl", FieldRule::UrlTransport("http")),
    ("env", FieldRule::Environment),
    ("environment", FieldRule::Environment),
    ("envs", FieldRule::Environment),
    ("env_vars", FieldRule::PassedVariables),
    ("env_keys", FieldRule::RequiredVariables),
    ("env_file", FieldRule::Rename("envFile")),
    ("headers", FieldRule::Headers),
    ("http_headers", FieldRule::Headers),
    ("env_http_headers", FieldRule::HeaderVariables),
    ("bearer_token_env_var", FieldRule::TokenVariable),
    ("auth", FieldRule::Token),
    ("headersHelper", FieldRule::Unsupported(HEADERS_HELPER)),
    ("http_headers_helper", FieldRule::Unsupported(HEADERS_HELPER)),
    ("oauth", FieldRule::Unsupported(OAUTH)),
    ("oauth_resource", FieldRule::Unsupported(OAUTH)),
    ("oauth_client_id", FieldRule::Unsupported(OAUTH)),
    ("oauth_client_secret", FieldRule::Unsupported(OAUTH)),
    ("authProviderType", FieldRule::Unsupported(OAUTH)),
    ("oauthScopes", FieldRule::Unsupported(OAUTH)),
    ("scopes", FieldRule::Unsupported(OAUTH)),
    ("authentication", FieldRule::Unsupported(OAUTH)),
    ("isActive", FieldRule::Rename("enabled")),
    ("Disabled", FieldRule::Rename("disabled")),
    ("includeTools", FieldRule::Rename("toolFilters")),
    ("enabled_tools", FieldRule::Rename("toolFilters")),
    ("enabledTools", FieldRule::Rename("toolFilters")),
    ("allowedTools", FieldRule::Rename("toolFilters")),
    ("excludeTools", FieldRule::Rename("toolsDenied")),
    ("disabled_tools", FieldRule::Rename("toolsDenied")),
    ("disabledTools", FieldRule::Rename("toolsDenied")),
    ("tools", FieldRule::Tools),
    ("toolFilter", FieldRule::Filter),
    ("timeout", FieldRule::Timeout("requestTimeoutMs")),
    ("requestTimeout", FieldRule::Duration("requestTimeoutMs", DurationUnit::Milliseconds)),
    ("tool_timeout_sec", FieldRule::Duration("requestTimeoutMs", DurationUnit::Seconds)),
    ("connectionTimeout", FieldRule::Duration("startTimeout", DurationUnit::Milliseconds)),
    ("startup_timeout_sec", FieldRule::Duration("startTimeout", DurationUnit::Seconds)),
    ("startup_timeout_ms", FieldRule::Duration("startTimeout", DurationUnit::Milliseconds)),
    ("options", FieldRule::Nested(OPTIONS)),
    // Approval of calls is up to the client.
    ("trust", FieldRule::Ignored),
    ("alwaysAllow", FieldRule::Ignored),
    ("autoApprove", FieldRule::Ignored),
    ("default_tools_approval_mode", FieldRule::Ignored),
    ("required", FieldRule::Ignored),
    ("supports_parallel_tool_calls", FieldRule::Ignored),
    // Display metadata and provenance.
    ("name", FieldRule::Ignored),
    ("title", FieldRule::Ignored),
    ("displayName", FieldRule::Ignored),
    ("display_name", FieldRule::Ignored),
    ("description", FieldRule::Ignored),
    ("icon", FieldRule::Ignored),
    ("iconUrl", FieldRule::Ignored),
    ("faviconUrl", FieldRule::Ignored),
    ("version", FieldRule::Ignored),
    ("gallery", FieldRule::Ignored),
    ("source", FieldRule::Ignored),
    ("bundled", FieldRule::Ignored),
    ("remote", FieldRule::Ignored),
    ("dev", FieldRule::Ignored),
    ("owner", FieldRule::Ignored),
    ("tags", FieldRule::Ignored),
    // Pegboard restarts servers itself and passes only the configured environment.
    ("clear_env", FieldRule::Ignored),
    ("inheritParentEnv", FieldRule::Ignored),
    ("envFilter", FieldRule::Ignored),
    ("restartOnExit", FieldRule::Ignored),
    ("maxRestarts", FieldRule::Ignored),
    ("restartDelay", FieldRule::Ignored),
    ("keepAliveInterval", FieldRule::Ignored),
    ("enableKeepAlive", FieldRule::Ignored),
];

/// Fields under a proxy's `options`.
const OPTIONS: &[(&str, FieldRule)] = &[
    ("disabled", FieldRule::Rename("disabled")),
    ("Disabled", FieldRule::Rename("disabled")),
    ("toolFilter", FieldRule::Filter),
    ("timeout", FieldRule::Duration("requestTimeoutMs", DurationUnit::Milliseconds)),
    ("panicIfInvalid", FieldRule::Ignored),
    ("logEnabled", FieldRule::Ignored),
    ("resetTimeoutOnProgress", FieldRule::Ignored),
    ("maxTotalTimeout", FieldRule::Ignored),
    ("authTokens", FieldRule::Unsupported("tokens for single servers")),
];

/// A file of servers without further knowledge.
const SERVERS: DialectRules = DialectRules {
    server_paths: &[&["mcpServers"]],
    fields: &[],
    syntax: VariableSyntax::Braces,
    timeout: DurationUnit::Unknown,
    address: UrlTransport::Detect,
    root: RootContent::Servers,
};

const VSCODE: DialectRules = DialectRules {
    server_paths: &[&["servers"], &["mcp", "servers"]],
    fields: &[("sandboxEnabled", FieldRule::Unsupported(SANDBOX)), ("sandbox", FieldRule::Ignored)],
    timeout: DurationUnit::Milliseconds,
    root: RootContent::Program,
    ..SERVERS
};

const SANDBOX: &str = "sandboxes";

const ZED: DialectRules = DialectRules {
    server_paths: &[&["context_servers"]],
    fields: &[],
    syntax: VariableSyntax::Plain,
    timeout: DurationUnit::Seconds,
    root: RootContent::Program,
    ..SERVERS
};

const CODEX: DialectRules = DialectRules {
    server_paths: &[&["mcp_servers"]],
    // Approval of single tools.
    fields: &[
        ("tools", FieldRule::Ignored),
        ("experimental_environment", FieldRule::Ignored),
        ("environment_id", FieldRule::Ignored),
    ],
    syntax: VariableSyntax::Plain,
    timeout: DurationUnit::Seconds,
    root: RootContent::Program,
    ..SERVERS
};

const OPENCODE: DialectRules = DialectRules {
    server_paths: &[&["mcp", "servers"], &["mcp"]],
    // Timeout for listing the tools.
    fields: &[("timeout", FieldRule::Timeout("startTimeout"))],
    syntax: VariableSyntax::Curly,
    timeout: DurationUnit::Milliseconds,
    root: RootContent::Program,
    ..SERVERS
};

const CRUSH: DialectRules = DialectRules {
    server_paths: &[&["mcp"]],
    // Timeout of the connection.
    fields: &[("timeout", FieldRule::Timeout("startTimeout"))],
    syntax: VariableSyntax::ShellWithCommands,
    timeout: DurationUnit::Seconds,
    root: RootContent::Program,
    ..SERVERS
};

const GOOSE: DialectRules = DialectRules {
    server_paths: &[&["extensions"]],
    fields: &[
        ("available_tools", FieldRule::Rename("toolsAllowed")),
        ("socket", FieldRule::Unsupported(SOCKET)),
    ],
    syntax: VariableSyntax::Plain,
    timeout: DurationUnit::Seconds,
    root: RootContent::Program,
    ..SERVERS
};

const SOCKET: &str = "Unix sockets";

const CONTINUE: DialectRules = DialectRules {
    fields: &[("requestOptions", FieldRule::Nested(REQUEST_OPTIONS)), ("apiKey", FieldRule::Token)],
    syntax: VariableSyntax::Template,
    timeout: DurationUnit::Milliseconds,
    root: RootContent::Program,
    ..SERVERS
};

/// Fields under Continue's `requestOptions`.
const REQUEST_OPTIONS: &[(&str, FieldRule)] = &[
    ("headers", FieldRule::Headers),
    ("timeout", FieldRule::Duration("requestTimeoutMs", DurationUnit::Milliseconds)),
    ("verifySsl", FieldRule::Unsupported("certificates are always verified")),
    ("caBundlePath", FieldRule::Unsupported("certificates of single servers")),
    ("proxy", FieldRule::Unsupported("proxies of single servers")),
];

const AGENTGATEWAY: DialectRules = DialectRules {
    fields: &[
        ("stdio", FieldRule::Nested(COMMON_FIELDS)),
        ("mcp", FieldRule::HostAndPort("http")),
        ("sse", FieldRule::HostAndPort("sse")),
        ("policies", FieldRule::Unsupported("access policies")),
    ],
    syntax: VariableSyntax::Plain,
    ..SERVERS
};

const DOCKER_CATALOGUE: DialectRules = DialectRules {
    syntax: VariableSyntax::Plain,
    timeout: DurationUnit::Seconds,
    root: RootContent::Program,
    ..SERVERS
};

/// Returns the rules of a dialect; `None` for those without server entries.
pub(super) fn rules_for(dialect: ConfigDialect) -> Option<DialectRules> {
    let rules = match dialect {
        ConfigDialect::Native
        | ConfigDialect::Workbench
        | ConfigDialect::OpenApi
        | ConfigDialect::FastMcp
        | ConfigDialect::Agent
        | ConfigDialect::Chain => return None,
        ConfigDialect::McpServers => SERVERS,
        ConfigDialect::Bare => DialectRules { server_paths: &[&[]], ..SERVERS },
        ConfigDialect::ClaudeCode => {
            DialectRules { timeout: DurationUnit::Milliseconds, root: RootContent::Program, ..SERVERS }
        }
        ConfigDialect::Cline => DialectRules { timeout: DurationUnit::Seconds, ..SERVERS },
        ConfigDialect::Gemini => DialectRules {
            syntax: VariableSyntax::Shell,
            timeout: DurationUnit::Milliseconds,
            address: UrlTransport::Sse,
            root: RootContent::Program,
            ..SERVERS
        },
        ConfigDialect::McpHub => DialectRules {
            syntax: VariableSyntax::UppercaseNames,
            timeout: DurationUnit::Milliseconds,
            ..SERVERS
        },
        ConfigDialect::McpProxy => DialectRules {
            syntax: VariableSyntax::Plain,
            timeout: DurationUnit::Milliseconds,
            address: UrlTransport::Sse,
            ..SERVERS
        },
        ConfigDialect::Continue => CONTINUE,
        ConfigDialect::VsCode => VSCODE,
        ConfigDialect::Zed => ZED,
        ConfigDialect::Codex => CODEX,
        ConfigDialect::OpenCode => OPENCODE,
        ConfigDialect::Crush => CRUSH,
        ConfigDialect::Goose => GOOSE,
        ConfigDialect::AgentGateway => AGENTGATEWAY,
        ConfigDialect::Registry | ConfigDialect::DockerCatalog => DOCKER_CATALOGUE,
    };
    Some(rules)
}
