//! Measurements: response times of a gateway with hanging servers, run times of commands, and context of models.

use std::io::{Error, Result};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all, ready};
use pegboard_wire::client::{ClientOptions, Era, McpClient};
use pegboard_wire::stdio::line_transport;
use pegboard_wire::transport::InputLimits;
use pegboard_wire::{Id, InboundHandler, InboundRequest, Notification, RawJson, RpcError};
use serde_json::{Map, Value, json};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time;

use crate::hostile::journal::JOURNAL;

pub mod call_cost;
mod commands;
pub mod context_cost;

pub use commands::{CommandTime, commands};

/// Number of hanging servers.
const N_HANGING: usize = 49;

/// Number of calls made while they hang.
const N_LATER: usize = 101;

/// Response times of a gateway.
#[derive(Clone, Copy, Debug)]
pub struct ResponseTimes {
    /// Time from process start to the list of tools.
    pub list: Duration,
    /// Time from process start to the first result of the working server.
    pub first: Duration,
    /// Time of a call to it while all others hang.
    pub later: Duration,
}

/// Result of a measurement: medians.
#[derive(Clone, Copy, Debug)]
pub struct LoadComparison {
    /// With one server.
    pub alone: ResponseTimes,
    /// With forty-nine more that hang.
    pub under_load: ResponseTimes,
}

impl LoadComparison {
    /// Returns the slowdown of the list, the first call and a later call under load.
    pub fn ratios(&self) -> [f64; 3] {
        let Self { alone, under_load: loaded } = self;
        [(loaded.list, alone.list), (loaded.first, alone.first), (loaded.later, alone.later)]
            .map(|(loaded, alone)| loaded.as_secs_f64() / alone.as_secs_f64())
    }
}

/// Measures the response times with one server and under load, alternately, so that other load on the machine
/// affects both.
///
/// `gateway` is the Pegboard binary, and `program` the hostile server.
pub async fn answers(gateway: &Path, program: &Path, n_rounds: usize) -> Result<LoadComparison> {
    let (mut alone, mut under_load) = (Vec::new(), Vec::new());
    for _ in 0..n_rounds.max(1) {
        alone.push(measure_once(gateway, program, 0).await?);
        under_load.push(measure_once(gateway, program, N_HANGING).await?);
    }
    Ok(LoadComparison { alone: median(&alone), under_load: median(&under_load) })
}

fn median(all: &[ResponseTimes]) -> ResponseTimes {
    let of = |part: fn(&ResponseTimes) -> Duration| {
        let mut times: Vec<Duration> = all.iter().map(part).collect();
        times.sort_unstable();
        times[times.len() / 2]
    };
    ResponseTimes { list: of(|all| all.list), first: of(|all| all.first), later: of(|all| all.later) }
}

async fn measure_once(gateway: &Path, program: &Path, n_hanging: usize) -> Result<ResponseTimes> {
    let folder = std::env::temp_dir().join(format!("pegboard-measure-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (file, journal) = (folder.join("servers.json"), folder.join("journal"));
    std::fs::write(&journal, "")?;
    let server =
        |mode: &str| json!({"command": program, "args": ["hostile", mode], "env": {JOURNAL: journal}});
    let mut servers: Map<String, Value> =
        (0..n_hanging).map(|number| (format!("hanging_{number}"), server("never-initialize"))).collect();
    servers.insert("good".to_owned(), json!({"command": program, "args": ["hostile", "decent"]}));
    std::fs::write(&file, json!({"mcpServers": servers}).to_string())?;

    let started_at = Instant::now();
    let (mut child, client) = start(gateway, &file, Era::Stateless, &[]).await?;
    client.call("tools/list", None).await.map_err(Error::other)?;
    let list = started_at.elapsed();
    call(&client, "good").await?;
    let first = started_at.elapsed();

    // They end with the gateway.
    let hanging = (0..n_hanging).map(|number| {
        let client = client.clone();
        tokio::spawn(async move { call(&client, &format!("hanging_{number}")).await })
    });
    let hanging: Vec<_> = hanging.collect();
    while std::fs::read_to_string(&journal)?.matches("server/discover").count() < n_hanging {
        time::sleep(Duration::from_millis(5)).await;
    }
    let mut later = Vec::new();
    for _ in 0..N_LATER {
        let started_at = Instant::now();
        call(&client, "good").await?;
        later.push(started_at.elapsed());
    }
    later.sort_unstable();
    let later = later[N_LATER / 2];

    hanging.iter().for_each(JoinHandle::abort);
    join_all(hanging).await;
    drop(client);
    // So that the next run does not overlap with the end of this one.
    child.wait().await?;
    std::fs::remove_dir_all(&folder)?;
    Ok(ResponseTimes { list, first, later })
}

/// Starts a gateway with its state beside the file, and connects to it.
async fn start(gateway: &Path, file: &Path, era: Era, arguments: &[&str]) -> Result<(Child, McpClient)> {
    let mut child = Command::new(gateway)
        .arg("serve")
        .arg(file)
        .args(arguments)
        .args(["--stdio", "--no-daemon", "--state"])
        .arg(file.with_file_name("state"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let missing = || Error::other("the gateway has no pipes");
    let (stdin, stdout) = (child.stdin.take().ok_or_else(missing)?, child.stdout.take().ok_or_else(missing)?);
    let (transport, _pump) = line_transport(stdout, stdin, InputLimits::client());
    let options = ClientOptions { era: Some(era), ..ClientOptions::new("measure", "1") };
    let client =
        McpClient::connect(transport, Arc::new(RejectingHandler), options).await.map_err(Error::other)?;
    Ok((child, client))
}

async fn call(client: &McpClient, server: &str) -> Result<()> {
    let params = json!({"name": format!("{server}__echo"), "arguments": {"text": "hello"}});
    let answer = client.call("tools/call", Some(RawJson::from(params))).await.map_err(Error::other)?;
    if answer.to_value()["content"][0]["text"] == "hello" {
        return Ok(());
    }
    Err(Error::other(format!("{server} answered {}", answer.as_str())))
}

/// A client that rejects all requests of the server.
struct RejectingHandler;

impl InboundHandler for RejectingHandler {
    fn request(&self, inbound: InboundRequest) -> BoxFuture<'static, std::result::Result<RawJson, RpcError>> {
        ready(Err(RpcError::method_not_found(&inbound.request.method))).boxed()
    }

    fn notification(&self, _notification: Notification, _related_request: Option<Id>) {}
}
