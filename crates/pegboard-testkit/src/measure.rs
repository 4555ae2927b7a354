//! How much longer a gateway takes for its first answers when most of its servers hang.

use std::io::{Error, Result};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use pegboard_wire::client::{Client, ClientOptions, Era};
use pegboard_wire::link::InputLimits;
use pegboard_wire::stdio::lines;
use pegboard_wire::{Id, Inbound, Notification, RawJson, Receiver, RpcError};
use serde_json::{Map, Value, json};
use tokio::process::Command;

/// How many servers hang.
const N_HANGING: usize = 49;

/// How long first answers take: the list of tools, and a call of the server that works.
#[derive(Clone, Copy, Debug)]
pub struct FirstAnswers {
    /// The list of tools, from the start of the process on.
    pub list: Duration,
    /// The call, from the list on.
    pub call: Duration,
}

/// What a measurement found: the medians of both.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// With one server.
    pub alone: FirstAnswers,
    /// With forty-nine more that hang.
    pub in_a_crowd: FirstAnswers,
}

impl Measured {
    /// How much longer the list takes in a crowd.
    pub fn list_ratio(&self) -> f64 {
        self.in_a_crowd.list.as_secs_f64() / self.alone.list.as_secs_f64()
    }

    /// How much longer the call takes in a crowd.
    pub fn call_ratio(&self) -> f64 {
        self.in_a_crowd.call.as_secs_f64() / self.alone.call.as_secs_f64()
    }
}

/// Measures both by turns, so that whatever else the machine does slows both.
pub async fn first_answers(program: &Path, n_rounds: usize) -> Result<Measured> {
    let (mut alone, mut in_a_crowd) = (Vec::new(), Vec::new());
    for _ in 0..n_rounds.max(1) {
        alone.push(once(program, 0).await?);
        in_a_crowd.push(once(program, N_HANGING).await?);
    }
    Ok(Measured { alone: median(&alone), in_a_crowd: median(&in_a_crowd) })
}

fn median(all: &[FirstAnswers]) -> FirstAnswers {
    let of = |part: fn(&FirstAnswers) -> Duration| {
        let mut times: Vec<Duration> = all.iter().map(part).collect();
        times.sort_unstable();
        times[times.len() / 2]
    };
    FirstAnswers { list: of(|answers| answers.list), call: of(|answers| answers.call) }
}

async fn once(program: &Path, n_hanging: usize) -> Result<FirstAnswers> {
    let server = |mode: &str| json!({"command": program, "args": ["hostile", mode]});
    let mut servers: Map<String, Value> =
        (0..n_hanging).map(|number| (format!("hanging_{number}"), server("never-initialize"))).collect();
    servers.insert("good".to_owned(), server("decent"));
    let file = std::env::temp_dir().join(format!("pegboard-measure-{}-{n_hanging}", std::process::id()));
    std::fs::write(&file, json!({"mcpServers": servers}).to_string())?;

    let begun = Instant::now();
    let mut host = Command::new(program)
        .arg("host")
        .arg(&file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let missing = || Error::other("the host has no pipes");
    let (stdin, stdout) = (host.stdin.take().ok_or_else(missing)?, host.stdout.take().ok_or_else(missing)?);
    let (link, _pump) = lines(stdout, stdin, InputLimits::client());
    let options = ClientOptions { era: Some(Era::Session), ..ClientOptions::new("measure", "1") };
    let client = Client::connect(link, Arc::new(Silent), options).await.map_err(Error::other)?;
    client.call("tools/list", None).await.map_err(Error::other)?;
    let list = begun.elapsed();

    let begun = Instant::now();
    let params = json!({"name": "good__echo", "arguments": {"text": "hello"}});
    let answer = client.call("tools/call", Some(RawJson::from(params))).await.map_err(Error::other)?;
    let call = begun.elapsed();
    if answer.to_value()["content"][0]["text"] != "hello" {
        return Err(Error::other(format!("the server that works answered {}", answer.as_str())));
    }
    drop(client);
    // So that the next one does not run beside what is left of this one.
    host.wait().await?;
    std::fs::remove_file(&file)?;
    Ok(FirstAnswers { list, call })
}

/// A client that nobody may ask anything.
struct Silent;

impl Receiver for Silent {
    fn request(&self, inbound: Inbound) -> BoxFuture<'static, std::result::Result<RawJson, RpcError>> {
        ready(Err(RpcError::method_not_found(&inbound.request.method))).boxed()
    }

    fn notification(&self, _notification: Notification, _about: Option<Id>) {}
}
