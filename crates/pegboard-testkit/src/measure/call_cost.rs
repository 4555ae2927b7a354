//! Cost of a call: instructions and allocations of a gateway, counted by callgrind and compared with a baseline.
//!
//! Counts do not depend on the load of the machine, so that a difference of a few percent means something.

use std::io::{Error, Result};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pegboard_wire::client::{ClientOptions, Era, McpClient};
use pegboard_wire::http::client::HttpOptions;
use pegboard_wire::http::server::HttpServerOptions;
use pegboard_wire::{RawJson, http};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::RejectingHandler;
use crate::echo_server::echo_server;
use crate::serve::all_transports;
use baseline::Baseline;
use callgrind::{GatewayOptions, ProfiledGateway};

mod baseline;
mod callgrind;

/// Text that the tool returns.
const TEXT: &str = "The quick brown fox jumps over the lazy dog.";
/// Variable with the token of clients, where one is needed.
const TOKEN_VARIABLE: &str = "PEGBOARD_BENCH_TOKEN";
const TOKEN: &str = "secret-of-the-benchmark";
/// Number of measurements per scenario, of which the lowest counts: a busy machine can only add work.
const N_ROUNDS: usize = 2;
/// Number of tools in the list, besides `echo`.
const N_LISTED: usize = 1_000;

/// Cost of one request, on average.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CallCost {
    /// Instructions of the busiest thread, which serves the request.
    pub serving: f64,
    /// Instructions of all other threads, such as that of the database.
    pub other_threads: f64,
    /// Calls of `malloc`, `calloc` and `realloc` in all threads.
    pub allocations: f64,
}

impl CallCost {
    /// Returns the instructions of all threads.
    fn instructions(&self) -> f64 {
        self.serving + self.other_threads
    }
}

/// A measured use of the gateway.
struct Scenario {
    name: &'static str,
    era: Era,
    request: RequestKind,
    backend: BackendKind,
    /// Settings of the server, besides its address.
    settings: fn() -> Value,
    access: ClientAccess,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    /// `tools/call` with the flat name of the tool.
    FlatCall,
    /// `tools/call` with the meta-tool `use_tool`.
    UseTool,
    /// `tools/list` of the flat profile.
    FlatList,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BackendKind {
    Http { n_others: usize },
    Stdio,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientAccess {
    Open,
    Token,
}

/// A call of `echo` over HTTP in the session era; the scenarios are variations of it.
const ECHO: Scenario = Scenario {
    name: "echo",
    era: Era::Session,
    request: RequestKind::FlatCall,
    backend: BackendKind::Http { n_others: 0 },
    settings: || json!({}),
    access: ClientAccess::Open,
};

const SCENARIOS: [Scenario; 7] = [
    ECHO,
    Scenario { name: "use_tool", request: RequestKind::UseTool, ..ECHO },
    Scenario { name: "stateless echo", era: Era::Stateless, ..ECHO },
    Scenario { name: "stdio echo", backend: BackendKind::Stdio, ..ECHO },
    Scenario {
        name: "list of 1,000 tools",
        request: RequestKind::FlatList,
        backend: BackendKind::Http { n_others: N_LISTED },
        ..ECHO
    },
    Scenario { name: "cached echo", settings: || json!({"cache": "1d"}), ..ECHO },
    Scenario {
        name: "limits and policy",
        settings: || {
            json!({
                "queue": "bench",
                "priority": 3,
                "requestTimeoutMs": "30s",
                "toolResponseMaxBytes": 65_536,
                "validateArguments": "pegboard",
                "output": "strict",
                "toolsAllowed": ["echo", "search_*"],
                "toolsDenied": ["delete_*"],
            })
        },
        access: ClientAccess::Token,
        ..ECHO
    },
];

/// Measures the scenarios with these names, or all if there are none, and prints a comparison with the baseline
/// in `file`. It is an error if a scenario got worse.
pub async fn check(gateway: &Path, file: &Path, names: &[&str]) -> Result<()> {
    let baseline = Baseline::read(file)?;
    let report = baseline.compare(&measure(gateway, names).await?);
    print!("{report}");
    report.verdict()
}

/// Measures scenarios and writes them to the baseline in `file`, with the reason for the change.
pub async fn update(gateway: &Path, file: &Path, reason: &str, names: &[&str]) -> Result<()> {
    let mut baseline = Baseline::read(file).unwrap_or_default();
    let measured = measure(gateway, names).await?;
    print!("{}", baseline.compare(&measured));
    baseline.update(&measured, reason);
    baseline.write(file)
}

async fn measure(gateway: &Path, names: &[&str]) -> Result<Vec<(&'static str, CallCost)>> {
    if let Some(unknown) = names.iter().find(|name| SCENARIOS.iter().all(|known| known.name != **name)) {
        return Err(Error::other(format!("there is no scenario '{unknown}'")));
    }
    let chosen = SCENARIOS.iter().filter(|scenario| names.is_empty() || names.contains(&scenario.name));
    let mut measured = Vec::new();
    for scenario in chosen {
        let mut cost = scenario.measure(gateway).await?;
        for _ in 1..N_ROUNDS {
            let again = scenario.measure(gateway).await?;
            cost = if again.instructions() < cost.instructions() { again } else { cost };
        }
        measured.push((scenario.name, cost));
    }
    Ok(measured)
}

impl Scenario {
    async fn measure(&self, gateway: &Path) -> Result<CallCost> {
        let backend = EchoBackend::start(self.backend).await?;
        let folder = std::env::temp_dir().join(format!("pegboard-cost-{}", std::process::id()));
        let options = GatewayOptions {
            program: gateway,
            configuration: self.configuration(&backend),
            token: (self.access == ClientAccess::Token).then_some((TOKEN_VARIABLE, TOKEN)),
        };
        let gateway = ProfiledGateway::start(&folder, options).await?;
        let client = self.connect(gateway.url()).await?;
        let n_requests = self.n_requests();
        self.send(&client, n_requests / 5 + 1).await?;
        gateway.begin().await?;
        self.send(&client, n_requests).await?;
        gateway.end().await?;
        drop(client);
        gateway.cost(n_requests).await
    }

    /// Number of measured requests: enough that work outside of requests does not count.
    fn n_requests(&self) -> usize {
        match self.request {
            RequestKind::FlatCall | RequestKind::UseTool => 1_000,
            RequestKind::FlatList => 100,
        }
    }

    fn configuration(&self, backend: &EchoBackend) -> Value {
        let mut server = (self.settings)();
        match &backend.address {
            BackendAddress::Url(url) => server["url"] = json!(url),
            BackendAddress::Program(program) => {
                server["command"] = json!(program);
                server["args"] = json!(["echo-server"]);
            }
        }
        json!({
            "queues": {"bench": {"maxConcurrency": 8, "maxWaiting": 100, "waitTimeoutMs": "10s"}},
            "mcpServers": {"backend": server},
        })
    }

    async fn connect(&self, gateway: &str) -> Result<McpClient> {
        let profile = match self.request {
            RequestKind::FlatCall | RequestKind::FlatList => "/flat",
            RequestKind::UseTool => "",
        };
        let mut options = HttpOptions::new(format!("{gateway}{profile}").parse().map_err(Error::other)?);
        if self.access == ClientAccess::Token {
            let value = format!("Bearer {TOKEN}").parse().map_err(Error::other)?;
            options.headers.insert("authorization", value);
        }
        let transport = http::client::connect(options).map_err(Error::other)?;
        let options = ClientOptions { era: Some(self.era), ..ClientOptions::new("bench", "1") };
        let client = McpClient::connect(transport, Arc::new(RejectingHandler), options).await;
        let client = client.map_err(Error::other)?;
        match self.request {
            RequestKind::FlatCall => {}
            RequestKind::UseTool => {
                let params = json!({"name": "open_toolbox", "arguments": {"toolbox": "default"}});
                client.call("tools/call", Some(params.into())).await.map_err(Error::other)?;
            }
            // The list is complete once the server is connected.
            RequestKind::FlatList => ECHO.send(&client, 1).await?,
        }
        Ok(client)
    }

    /// Sends requests one after the other and checks their results.
    async fn send(&self, client: &McpClient, n_requests: usize) -> Result<()> {
        let arguments = json!({"text": TEXT});
        let tool = json!({"toolbox": "default", "server": "backend", "name": "echo"});
        let (method, params, n_expected) = match self.request {
            RequestKind::FlatCall => {
                ("tools/call", Some(json!({"name": "backend__echo", "arguments": arguments})), 1)
            }
            RequestKind::UseTool => {
                let arguments = json!({"tool": tool, "arguments": arguments});
                ("tools/call", Some(json!({"name": "use_tool", "arguments": arguments})), 1)
            }
            RequestKind::FlatList => ("tools/list", None, N_LISTED),
        };
        let expected = if self.request == RequestKind::FlatList { "backend__search_" } else { TEXT };
        let params = params.map(RawJson::from);
        for _ in 0..n_requests {
            let result = client.call(method, params.clone()).await.map_err(Error::other)?;
            if result.as_str().matches(expected).count() != n_expected {
                let result: String = result.as_str().chars().take(400).collect();
                return Err(Error::other(format!("{}: unexpected result {result}", self.name)));
            }
        }
        Ok(())
    }
}

/// The server behind the gateway.
struct EchoBackend {
    address: BackendAddress,
    serving: Option<JoinHandle<Result<()>>>,
}

enum BackendAddress {
    Url(String),
    Program(PathBuf),
}

impl EchoBackend {
    async fn start(kind: BackendKind) -> Result<Self> {
        let BackendKind::Http { n_others } = kind else {
            return Ok(Self { address: BackendAddress::Program(std::env::current_exe()?), serving: None });
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}/mcp", listener.local_addr()?);
        let routes = all_transports(&echo_server(n_others), &HttpServerOptions::default());
        let serving = tokio::spawn(http::server::serve(listener, routes));
        Ok(Self { address: BackendAddress::Url(url), serving: Some(serving) })
    }
}

impl Drop for EchoBackend {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}
