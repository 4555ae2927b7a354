//! The MCP servers of the demo: this program, started once for each.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use pegboard::call::{Call, Invoker};
use pegboard::json::RawJson;
use pegboard::prelude::*;
use pegboard::projection::mcp_result;
use pegboard_wire::client::Era;
use pegboard_wire::era::Revision;
use pegboard_wire::server::{McpService, ServerRequest, ServiceDescription, ServiceReply, ServiceServer};
use pegboard_wire::stdio::{line_transport, standard_input, standard_output};
use pegboard_wire::transport::InputLimits;
use pegboard_wire::{RpcError, code};
use tokio::sync::Semaphore;

use super::BoxFuture;
use crate::cli::print;

/// One of the demo's servers.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum DemoServer {
    /// Tells the time, to clients of both eras of MCP.
    Clock,
    /// Stores notes; speaks only the session era.
    Notes,
    /// Sells things; speaks only the stateless era.
    Shop,
}

impl DemoServer {
    /// Serves the parent process over stdio until it disconnects.
    pub(crate) fn run(self) -> ExitCode {
        let served = tokio::runtime::Builder::new_current_thread().enable_all().build().map(|runtime| {
            let served = runtime.block_on(self.serve());
            // The input is closed, but a read may still be blocked.
            runtime.shutdown_background();
            served
        });
        match served.map_err(ToolError::from).flatten() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                print::error_line(&format!("error: {error}"));
                ExitCode::FAILURE
            }
        }
    }

    async fn serve(self) -> Result<()> {
        let service = Arc::new(DemoService { server: self, tools: self.tools()? });
        let (transport, pump) = line_transport(standard_input(), standard_output(), InputLimits::server());
        let server = ServiceServer::new(service);
        let server = match self {
            Self::Clock => server,
            Self::Notes => server.serving_only(Era::Session),
            Self::Shop => server.serving_only(Era::Stateless),
        };
        server.serve(transport).await;
        Ok(pump.await?)
    }

    /// Name of the server.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::Notes => "notes",
            Self::Shop => "shop",
        }
    }

    fn tools(self) -> Result<ToolRegistry> {
        let registry = ToolRegistry::new();
        Ok(match self {
            Self::Clock => registry.with(tools![now, snooze])?,
            Self::Notes => registry.with(tools![add, archive, crash])?,
            Self::Shop => registry.with(tools![price, order, deliver, clear_road])?,
        })
    }

    /// Tools that are not plain functions: they interact with the client, or return exact bytes.
    fn interactive_tools(self) -> Vec<RawJson> {
        let tools: &[[&str; 2]] = match self {
            Self::Clock | Self::Notes => &[],
            Self::Shop => &[
                ["gift", "Wrap something up, and ask whom it is for"],
                ["stocktake", "Count what there is, and tell how far the count is"],
                ["barcode", "Read a number that no float can hold"],
            ],
        };
        let described = |[name, description]: &[&str; 2]| json!({"name": name, "description": description, "inputSchema": {"type": "object"}});
        tools.iter().map(described).map(RawJson::from).collect()
    }
}

/// Number of calls of `now`.
static N_LOOKS: AtomicU64 = AtomicU64::new(0);
/// Number of notes.
static N_NOTES: AtomicU64 = AtomicU64::new(0);
/// Number of parcels in delivery, and its maximum.
static N_PARCELS: AtomicU64 = AtomicU64::new(0);
static MOST_PARCELS: AtomicU64 = AtomicU64::new(0);
/// Blocks deliveries until the road is clear.
static ROAD: Semaphore = Semaphore::const_new(0);

/// Tell the time. It advances by a second with every call.
#[tool(read_only)]
fn now(
    /// A city
    city: String,
) -> String {
    let second = N_LOOKS.fetch_add(1, Ordering::Relaxed) + 1;
    format!("12:00:{second:02} in {city}")
}

/// Sleep for an hour.
#[tool]
async fn snooze() -> Result<String> {
    tokio::time::sleep(Duration::from_hours(1)).await;
    Ok("rested".to_owned())
}

/// Keep a note.
#[tool]
fn add(
    /// What to remember
    text: String,
) -> Value {
    let id = N_NOTES.fetch_add(1, Ordering::Relaxed) + 1;
    json!({"id": id, "text": text})
}

/// Read all notes of many years.
#[tool(read_only)]
fn archive(
    /// How many
    notes: usize,
) -> String {
    let notes: Vec<String> = (1..=notes).map(|note| format!("note {note}: all is well")).collect();
    notes.join("\n")
}

/// End this server at once, as a bug would.
#[tool]
fn crash() -> String {
    std::process::exit(70)
}

/// Tell what something costs.
#[tool(read_only)]
fn price(
    /// What to buy
    item: String,
) -> Value {
    json!({"item": item, "cents": item.len() * 100})
}

/// Buy something.
#[tool]
fn order(
    /// What to buy
    item: String,
    /// What it may cost
    cents: u64,
    /// How many
    #[schemars(range(min = 1, max = 9))]
    count: u64,
) -> Value {
    json!({"receipt": format!("{count} × {item} for {} cents", count * cents)})
}

/// Bring a parcel, once the road is clear.
#[tool]
async fn deliver(
    /// Its number
    parcel: u64,
) -> Result<Value> {
    let n_parcels = N_PARCELS.fetch_add(1, Ordering::Relaxed) + 1;
    MOST_PARCELS.fetch_max(n_parcels, Ordering::Relaxed);
    drop(ROAD.acquire().await?);
    N_PARCELS.fetch_sub(1, Ordering::Relaxed);
    Ok(json!({"parcel": parcel, "most_at_once": MOST_PARCELS.load(Ordering::Relaxed)}))
}

/// Clear the road for parcels.
#[tool]
fn clear_road() -> String {
    ROAD.add_permits(1);
    "go".to_owned()
}

/// Result with a number and a format that a JSON parser would not preserve.
pub(super) const BARCODE: &str =
    r#"{"content":[],"structuredContent":{"b":12345678901234567890123, "a":1e2}}"#;

/// MCP service for a registry of functions.
struct DemoService {
    server: DemoServer,
    tools: ToolRegistry,
}

impl McpService for DemoService {
    fn describe(&self, _revision: Revision) -> ServiceDescription {
        ServiceDescription {
            info: RawJson::from(json!({"name": self.server.name(), "version": env!("CARGO_PKG_VERSION")})),
            capabilities: RawJson::from(json!({"tools": {}})),
            instructions: None,
        }
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<Result<ServiceReply, RpcError>> {
        let (server, tools) = (self.server, self.tools.clone());
        Box::pin(async move {
            match &*request.method {
                "tools/list" => {
                    let mut list: Vec<RawJson> = tools.list().iter().map(|tool| tool.definition()).collect();
                    list.extend(server.interactive_tools());
                    Ok(RawJson::empty_object().with("tools", &RawJson::of(&list)).into())
                }
                "tools/call" => answer(&tools, &request).await,
                method => Err(RpcError::method_not_found(method)),
            }
        })
    }
}

async fn answer(tools: &ToolRegistry, request: &ServerRequest) -> Result<ServiceReply, RpcError> {
    let name = request.params.get("name");
    let name = name.as_ref().and_then(RawJson::text).unwrap_or_default();
    match &*name {
        "gift" => Ok(wrap_gift(request)),
        "stocktake" => {
            for shelf in [1.0, 2.0, 3.0] {
                request.peer.progress(shelf, Some(3.0), None).await;
            }
            Ok(text("3 shelves counted"))
        }
        "barcode" => RawJson::parse(BARCODE.into())
            .map(ServiceReply::Result)
            .map_err(|error| RpcError::new(code::INTERNAL_ERROR, error.to_string())),
        name => {
            let arguments = request.params.get("arguments").unwrap_or_else(RawJson::empty_object);
            Ok(mcp_result(&tools.start(Call::new(name, arguments)).await).into())
        }
    }
}

/// Asks for the recipient of a gift, and wraps it up once that is known.
fn wrap_gift(request: &ServerRequest) -> ServiceReply {
    let name = request.input_responses.as_ref().and_then(|answers| answers.at(&["whom", "content", "name"]));
    if let Some(name) = name.as_ref().and_then(RawJson::text) {
        return text(&format!("a gift for {name}"));
    }
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    let params = json!({"mode": "form", "message": "Whom is it for?", "requestedSchema": schema});
    let question = json!({"whom": {"method": "elicitation/create", "params": params}});
    ServiceReply::InputRequired { input_requests: RawJson::from(question), state: None }
}

fn text(text: &str) -> ServiceReply {
    ServiceReply::Result(RawJson::from(json!({"content": [{"type": "text", "text": text}]})))
}
