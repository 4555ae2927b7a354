//! How much longer a gateway takes for its answers when most of its servers hang, and how long commands take.

use std::io::{Error, Result};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all, ready};
use pegboard_wire::client::{Client, ClientOptions, Era};
use pegboard_wire::link::InputLimits;
use pegboard_wire::stdio::lines;
use pegboard_wire::{Id, Inbound, Notification, RawJson, Receiver, RpcError};
use serde_json::{Map, Value, json};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time;

use crate::hostile::journal::JOURNAL;

mod commands;

pub use commands::{Taken, commands};

/// How many servers hang.
const N_HANGING: usize = 49;

/// How many calls are made while they hang.
const N_LATER: usize = 101;

/// How long answers take.
#[derive(Clone, Copy, Debug)]
pub struct Answers {
    /// The list of tools, from the start of the process on.
    pub list: Duration,
    /// The first call of the server that works, from the start of the process on.
    pub first: Duration,
    /// A call of it while all others hang.
    pub later: Duration,
}

/// What a measurement found: medians.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// With one server.
    pub alone: Answers,
    /// With forty-nine more that hang.
    pub in_a_crowd: Answers,
}

impl Measured {
    /// How much longer the list, the first call and a later call take in a crowd.
    pub fn ratios(&self) -> [f64; 3] {
        let Self { alone, in_a_crowd: crowd } = self;
        [(crowd.list, alone.list), (crowd.first, alone.first), (crowd.later, alone.later)]
            .map(|(crowd, alone)| crowd.as_secs_f64() / alone.as_secs_f64())
    }
}

/// Measures both by turns, so that whatever else the machine does slows both.
///
/// `gateway` is Pegboard, and `program` the hostile server.
pub async fn answers(gateway: &Path, program: &Path, n_rounds: usize) -> Result<Measured> {
    let (mut alone, mut in_a_crowd) = (Vec::new(), Vec::new());
    for _ in 0..n_rounds.max(1) {
        alone.push(once(gateway, program, 0).await?);
        in_a_crowd.push(once(gateway, program, N_HANGING).await?);
    }
    Ok(Measured { alone: median(&alone), in_a_crowd: median(&in_a_crowd) })
}

fn median(all: &[Answers]) -> Answers {
    let of = |part: fn(&Answers) -> Duration| {
        let mut times: Vec<Duration> = all.iter().map(part).collect();
        times.sort_unstable();
        times[times.len() / 2]
    };
    Answers { list: of(|all| all.list), first: of(|all| all.first), later: of(|all| all.later) }
}

async fn once(gateway: &Path, program: &Path, n_hanging: usize) -> Result<Answers> {
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

    let begun = Instant::now();
    let (mut host, client) = start(gateway, &file).await?;
    client.call("tools/list", None).await.map_err(Error::other)?;
    let list = begun.elapsed();
    call(&client, "good").await?;
    let first = begun.elapsed();

    // They end with the host.
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
        let begun = Instant::now();
        call(&client, "good").await?;
        later.push(begun.elapsed());
    }
    later.sort_unstable();
    let later = later[N_LATER / 2];

    hanging.iter().for_each(JoinHandle::abort);
    join_all(hanging).await;
    drop(client);
    // So that the next one does not run beside what is left of this one.
    host.wait().await?;
    std::fs::remove_dir_all(&folder)?;
    Ok(Answers { list, first, later })
}

async fn start(gateway: &Path, file: &Path) -> Result<(Child, Client)> {
    let mut host = Command::new(gateway)
        .arg("serve")
        .arg(file)
        .args(["--stdio", "--state"])
        // A new one each time, so that nobody knows what the servers have.
        .arg(file.with_file_name("state"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let missing = || Error::other("the host has no pipes");
    let (stdin, stdout) = (host.stdin.take().ok_or_else(missing)?, host.stdout.take().ok_or_else(missing)?);
    let (link, _pump) = lines(stdout, stdin, InputLimits::client());
    let options = ClientOptions { era: Some(Era::Stateless), ..ClientOptions::new("measure", "1") };
    let client = Client::connect(link, Arc::new(Silent), options).await.map_err(Error::other)?;
    Ok((host, client))
}

async fn call(client: &Client, server: &str) -> Result<()> {
    let params = json!({"name": format!("{server}__echo"), "arguments": {"text": "hello"}});
    let answer = client.call("tools/call", Some(RawJson::from(params))).await.map_err(Error::other)?;
    if answer.to_value()["content"][0]["text"] == "hello" {
        return Ok(());
    }
    Err(Error::other(format!("{server} answered {}", answer.as_str())))
}

/// A client that nobody may ask anything.
struct Silent;

impl Receiver for Silent {
    fn request(&self, inbound: Inbound) -> BoxFuture<'static, std::result::Result<RawJson, RpcError>> {
        ready(Err(RpcError::method_not_found(&inbound.request.method))).boxed()
    }

    fn notification(&self, _notification: Notification, _about: Option<Id>) {}
}
