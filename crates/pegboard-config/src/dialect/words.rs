//! The words of other programs for what a server is, as a table.
//!
//! A file is first recognised by what is in it, and then read by the row of its dialect: the same word means seconds to
//! one program and milliseconds to another, and nobody can tell from the number.

use super::Dialect;
use super::syntax::Syntax;

/// The words of one dialect.
pub(super) struct Words {
    /// The keys that lead to the servers, of which the first that is there counts.
    pub(super) ways: &'static [&'static [&'static str]],
    /// What a server's words mean, before those that mean the same to all.
    pub(super) fields: &'static [(&'static str, Field)],
    /// How variables are written.
    pub(super) syntax: Syntax,
    /// What a number under `timeout` counts.
    pub(super) timeout: Unit,
    /// What an address is that nobody says more about.
    pub(super) address: Address,
    /// What else is in the file.
    pub(super) root: Root,
}

/// What becomes of a word and its value.
#[derive(Clone, Copy)]
pub(super) enum Field {
    /// Ours is called otherwise.
    Is(&'static str),
    /// The program: a text, a list with its arguments, or an object of a path, arguments and an environment.
    Command,
    /// How it is reached.
    Transport,
    /// The address of a server of this kind.
    Address(&'static str),
    /// Variables: an object, a list of `NAME=value`, or a list of names and values.
    Environment,
    /// Names of variables that the program gets if they are set.
    Passed,
    /// Names of variables that must be set.
    Needed,
    /// Headers: an object, or a list of names and values.
    Headers,
    /// Headers, each with the name of the variable that holds its value.
    HeaderVariables,
    /// The name of the variable that holds the token.
    TokenVariable,
    /// The token itself, or a word for how to get one.
    Token,
    /// A time.
    Time(&'static str, Unit),
    /// A time in the unit of the dialect.
    Timeout(&'static str),
    /// The only tools, as a list; or what holds for single ones, as an object.
    Tools,
    /// `{mode: allow, list: […]}`, or `block`.
    Filter,
    /// An object whose words are words of the server.
    Inside(&'static [(&'static str, Field)]),
    /// An address in parts: `host`, `port` and `path`.
    Host(&'static str),
    /// It is nothing that concerns us, and stays in the file as it is.
    Kept,
    /// We have nothing like it, for this reason.
    Lost(&'static str),
}

/// What a number counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Milliseconds,
    Seconds,
    /// Programs that write such files do not agree.
    Unsaid,
}

impl From<crate::clients::Unit> for Unit {
    fn from(unit: crate::clients::Unit) -> Self {
        match unit {
            crate::clients::Unit::Milliseconds => Self::Milliseconds,
            crate::clients::Unit::Seconds => Self::Seconds,
        }
    }
}

/// What an address is that nobody says more about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Address {
    /// Whatever answers there.
    Open,
    /// HTTP+SSE.
    Sse,
}

/// What else is in a file than servers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    /// Perhaps something of ours. What is not is told.
    Servers,
    /// The same, but what is not ours is the client's.
    Client,
    /// The settings of a whole program, which are not about tools.
    Program,
}

const OAUTH: &str = "signing in with OAuth is not done for servers: give the token in headers";
const HELPER: &str = "no command is run to get headers: give them in headers";

/// What a word means to all that do not mean something else by it.
pub(super) const COMMON: &[(&str, Field)] = &[
    ("command", Field::Command),
    ("cmd", Field::Command),
    ("type", Field::Transport),
    ("transport", Field::Transport),
    ("transportType", Field::Transport),
    ("transport_type", Field::Transport),
    ("serverUrl", Field::Is("url")),
    ("server_url", Field::Is("url")),
    ("uri", Field::Is("url")),
    ("httpUrl", Field::Address("http")),
    ("env", Field::Environment),
    ("environment", Field::Environment),
    ("envs", Field::Environment),
    ("env_vars", Field::Passed),
    ("env_keys", Field::Needed),
    ("env_file", Field::Is("envFile")),
    ("headers", Field::Headers),
    ("http_headers", Field::Headers),
    ("env_http_headers", Field::HeaderVariables),
    ("bearer_token_env_var", Field::TokenVariable),
    ("auth", Field::Token),
    ("headersHelper", Field::Lost(HELPER)),
    ("http_headers_helper", Field::Lost(HELPER)),
    ("oauth", Field::Lost(OAUTH)),
    ("oauth_resource", Field::Lost(OAUTH)),
    ("oauth_client_id", Field::Lost(OAUTH)),
    ("oauth_client_secret", Field::Lost(OAUTH)),
    ("authProviderType", Field::Lost(OAUTH)),
    ("oauthScopes", Field::Lost(OAUTH)),
    ("scopes", Field::Lost(OAUTH)),
    ("authentication", Field::Lost(OAUTH)),
    ("isActive", Field::Is("enabled")),
    ("Disabled", Field::Is("disabled")),
    ("includeTools", Field::Is("toolFilters")),
    ("enabled_tools", Field::Is("toolFilters")),
    ("enabledTools", Field::Is("toolFilters")),
    ("allowedTools", Field::Is("toolFilters")),
    ("excludeTools", Field::Is("toolsDenied")),
    ("disabled_tools", Field::Is("toolsDenied")),
    ("disabledTools", Field::Is("toolsDenied")),
    ("tools", Field::Tools),
    ("toolFilter", Field::Filter),
    ("timeout", Field::Timeout("requestTimeoutMs")),
    ("requestTimeout", Field::Time("requestTimeoutMs", Unit::Milliseconds)),
    ("tool_timeout_sec", Field::Time("requestTimeoutMs", Unit::Seconds)),
    ("connectionTimeout", Field::Time("startTimeout", Unit::Milliseconds)),
    ("startup_timeout_sec", Field::Time("startTimeout", Unit::Seconds)),
    ("startup_timeout_ms", Field::Time("startTimeout", Unit::Milliseconds)),
    ("options", Field::Inside(OPTIONS)),
    // Whether a person is asked before a call is a matter of the client's.
    ("trust", Field::Kept),
    ("alwaysAllow", Field::Kept),
    ("autoApprove", Field::Kept),
    ("default_tools_approval_mode", Field::Kept),
    ("required", Field::Kept),
    ("supports_parallel_tool_calls", Field::Kept),
    // What a client shows, and where it got the server from.
    ("name", Field::Kept),
    ("title", Field::Kept),
    ("displayName", Field::Kept),
    ("display_name", Field::Kept),
    ("description", Field::Kept),
    ("icon", Field::Kept),
    ("iconUrl", Field::Kept),
    ("faviconUrl", Field::Kept),
    ("version", Field::Kept),
    ("gallery", Field::Kept),
    ("source", Field::Kept),
    ("bundled", Field::Kept),
    ("remote", Field::Kept),
    ("dev", Field::Kept),
    ("owner", Field::Kept),
    ("tags", Field::Kept),
    // Programs are restarted here, and never inherit more than they are given.
    ("clear_env", Field::Kept),
    ("inheritParentEnv", Field::Kept),
    ("envFilter", Field::Kept),
    ("restartOnExit", Field::Kept),
    ("maxRestarts", Field::Kept),
    ("restartDelay", Field::Kept),
    ("keepAliveInterval", Field::Kept),
    ("enableKeepAlive", Field::Kept),
];

/// What proxies put under `options`.
const OPTIONS: &[(&str, Field)] = &[
    ("disabled", Field::Is("disabled")),
    ("Disabled", Field::Is("disabled")),
    ("toolFilter", Field::Filter),
    ("timeout", Field::Time("requestTimeoutMs", Unit::Milliseconds)),
    ("panicIfInvalid", Field::Kept),
    ("logEnabled", Field::Kept),
    ("resetTimeoutOnProgress", Field::Kept),
    ("maxTotalTimeout", Field::Kept),
    ("authTokens", Field::Lost("nobody is asked for a token of a single server here")),
];

/// A file of servers of which more is not known.
const SERVERS: Words = Words {
    ways: &[&["mcpServers"]],
    fields: &[],
    syntax: Syntax::Braces,
    timeout: Unit::Unsaid,
    address: Address::Open,
    root: Root::Servers,
};

const EDITOR: Words = Words {
    ways: &[&["servers"], &["mcp", "servers"]],
    fields: &[("sandboxEnabled", Field::Lost(SANDBOX)), ("sandbox", Field::Kept)],
    timeout: Unit::Milliseconds,
    root: Root::Program,
    ..SERVERS
};

const SANDBOX: &str = "programs are not run in a sandbox";

const ZED: Words = Words {
    ways: &[&["context_servers"]],
    fields: &[],
    syntax: Syntax::Plain,
    timeout: Unit::Seconds,
    root: Root::Program,
    ..SERVERS
};

const CODEX: Words = Words {
    ways: &[&["mcp_servers"]],
    // What stands there is whether a person is asked before a call.
    fields: &[
        ("tools", Field::Kept),
        ("experimental_environment", Field::Kept),
        ("environment_id", Field::Kept),
    ],
    syntax: Syntax::Plain,
    timeout: Unit::Seconds,
    root: Root::Program,
    ..SERVERS
};

const OPENCODE: Words = Words {
    ways: &[&["mcp", "servers"], &["mcp"]],
    // It is how long the server may take to tell its tools.
    fields: &[("timeout", Field::Timeout("startTimeout"))],
    syntax: Syntax::Curly,
    timeout: Unit::Milliseconds,
    root: Root::Program,
    ..SERVERS
};

const CRUSH: Words = Words {
    ways: &[&["mcp"]],
    // It is for connections.
    fields: &[("timeout", Field::Timeout("startTimeout"))],
    syntax: Syntax::Script,
    timeout: Unit::Seconds,
    root: Root::Program,
    ..SERVERS
};

const GOOSE: Words = Words {
    ways: &[&["extensions"]],
    fields: &[("available_tools", Field::Is("toolsAllowed")), ("socket", Field::Lost(SOCKET))],
    syntax: Syntax::Plain,
    timeout: Unit::Seconds,
    root: Root::Program,
    ..SERVERS
};

const SOCKET: &str = "servers at sockets of this machine are not reached";

const CONTINUE: Words = Words {
    fields: &[("requestOptions", Field::Inside(REQUEST)), ("apiKey", Field::Token)],
    syntax: Syntax::Template,
    timeout: Unit::Milliseconds,
    root: Root::Program,
    ..SERVERS
};

/// What Continue puts under `requestOptions`.
const REQUEST: &[(&str, Field)] = &[
    ("headers", Field::Headers),
    ("timeout", Field::Time("requestTimeoutMs", Unit::Milliseconds)),
    ("verifySsl", Field::Lost("certificates are always checked")),
    ("caBundlePath", Field::Lost("there are no certificates of single servers")),
    ("proxy", Field::Lost("there is no proxy of single servers")),
];

const GATEWAY: Words = Words {
    fields: &[
        ("stdio", Field::Inside(COMMON)),
        ("mcp", Field::Host("http")),
        ("sse", Field::Host("sse")),
        ("policies", Field::Lost("who may use what is said otherwise here")),
    ],
    syntax: Syntax::Plain,
    ..SERVERS
};

const CATALOGUE: Words =
    Words { syntax: Syntax::Plain, timeout: Unit::Seconds, root: Root::Program, ..SERVERS };

/// The words of a dialect; `None` for those that have no servers with words of their own.
pub(super) fn words(dialect: Dialect) -> Option<Words> {
    let row = match dialect {
        Dialect::Native
        | Dialect::Workbench
        | Dialect::OpenApi
        | Dialect::FastMcp
        | Dialect::Agent
        | Dialect::Chain => return None,
        Dialect::McpServers => SERVERS,
        Dialect::Bare => Words { ways: &[&[]], ..SERVERS },
        Dialect::ClaudeCode => Words { timeout: Unit::Milliseconds, root: Root::Program, ..SERVERS },
        Dialect::Cline => Words { timeout: Unit::Seconds, ..SERVERS },
        Dialect::Gemini => Words {
            syntax: Syntax::Shell,
            timeout: Unit::Milliseconds,
            address: Address::Sse,
            root: Root::Program,
            ..SERVERS
        },
        Dialect::McpHub => Words { syntax: Syntax::Capitals, timeout: Unit::Milliseconds, ..SERVERS },
        Dialect::McpProxy => {
            Words { syntax: Syntax::Plain, timeout: Unit::Milliseconds, address: Address::Sse, ..SERVERS }
        }
        Dialect::Continue => CONTINUE,
        Dialect::VsCode => EDITOR,
        Dialect::Zed => ZED,
        Dialect::Codex => CODEX,
        Dialect::OpenCode => OPENCODE,
        Dialect::Crush => CRUSH,
        Dialect::Goose => GOOSE,
        Dialect::AgentGateway => GATEWAY,
        Dialect::Registry | Dialect::DockerCatalog => CATALOGUE,
    };
    Some(row)
}
