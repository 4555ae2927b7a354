//! A gateway as small as can be: MCP servers in a runtime, served over standard input and output by their flat names.

use std::io::{Error, Result};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use indexmap::IndexMap;
use pegboard_core::call::{Call, Invoker};
use pegboard_core::client::{Answers, AskError, Client, Notice, Questions};
use pegboard_core::id::ServerName;
use pegboard_core::projection::mcp_result;
use pegboard_core::settings::mcp::McpServerEntry;
use pegboard_providers::mcp::{Pool, PoolOptions};
use pegboard_providers::process::Supervisor;
use pegboard_runtime::catalogue::{Scope, View};
use pegboard_runtime::log::Log;
use pegboard_runtime::{Caller, CallerOptions, Runtime};
use pegboard_wire::era::{LogLevel, Revision};
use pegboard_wire::link::InputLimits;
use pegboard_wire::server::{Description, Peer, Reply, Server, ServerRequest, Service};
use pegboard_wire::stdio::lines;
use pegboard_wire::{RawJson, RpcError};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// How long calls under way may take to end.
const GRACE: Duration = Duration::from_millis(100);
/// How many notices of one call may wait to be passed on; more are lost.
const MAX_NOTICES: usize = 64;

/// Serves the `mcpServers` of a file until the input ends.
pub async fn serve(file: &Path) -> Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let runtime = start(file).await?;
    let caller = runtime.caller(CallerOptions::default());
    let (link, pump) = lines(tokio::io::stdin(), tokio::io::stdout(), InputLimits::server());
    Server::new(Arc::new(Host(caller))).serve(link).await;
    runtime.shut_down(GRACE).await;
    let _ = pump.await;
    Ok(())
}

async fn start(file: &Path) -> Result<Runtime> {
    let written: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let servers: IndexMap<String, McpServerEntry> = serde_json::from_value(written["mcpServers"].clone())?;
    let supervisor = Supervisor { program: std::env::current_exe()?, arguments: vec!["supervise".into()] };
    let pool = Pool::new(PoolOptions { supervisor: Some(supervisor) });
    let mut builder = Runtime::builder().observe(Arc::new(Log));
    for (name, entry) in servers {
        let secrets = entry.connection.env.values().chain(entry.connection.headers.values());
        let secrets: Vec<String> = secrets.map(|secret| secret.reveal().to_owned()).collect();
        let server = ServerName::new(&name).map_err(Error::other)?;
        let (settings, tools) = entry.normalise(server).map_err(Error::other)?;
        let server = pool.server(settings).map_err(Error::other)?;
        builder = builder.secrets(secrets).provide_with(&name, Arc::new(server), tools);
    }
    builder.start().await.map_err(Error::other)
}

struct Host(Caller);

impl Service for Host {
    fn describe(&self, _revision: Revision) -> Description {
        Description {
            info: RawJson::from(json!({"name": "host", "version": env!("CARGO_PKG_VERSION")})),
            capabilities: RawJson::from(json!({"tools": {}})),
            instructions: None,
        }
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, std::result::Result<Reply, RpcError>> {
        let caller = self.0.clone();
        async move {
            match &*request.method {
                "tools/list" => {
                    let tools = caller.runtime().catalogue().list(View::default(), Scope::All);
                    Ok(RawJson::empty_object().with("tools", &tools).into())
                }
                "tools/call" => call(&caller, request).await.map(Reply::Result),
                method => Err(RpcError::method_not_found(method)),
            }
        }
        .boxed()
    }
}

/// Makes a call, and passes on what is said about it before its end.
async fn call(caller: &Caller, request: ServerRequest) -> std::result::Result<RawJson, RpcError> {
    let name = request.params.get("name").and_then(|name| name.read::<String>().ok());
    let name = name.ok_or_else(|| RpcError::invalid_params("name is missing"))?;
    let arguments = request.params.get("arguments").unwrap_or_else(RawJson::empty_object);
    let (notices, mut heard) = mpsc::channel(MAX_NOTICES);
    let mut call = Call::new(name, arguments);
    call.context.client = Some(Arc::new(Whoever { peer: request.peer.clone(), notices }));
    let mut running = caller.start(call);
    let ended = loop {
        tokio::select! {
            biased;
            Some(notice) = heard.recv() => tell(&request.peer, notice).await,
            ended = &mut running => break ended,
        }
    };
    while let Ok(notice) = heard.try_recv() {
        tell(&request.peer, notice).await;
    }
    Ok(mcp_result(&ended))
}

async fn tell(peer: &Peer, notice: Notice) {
    match notice {
        Notice::Progress(progress) => {
            peer.progress(progress.done, progress.total, progress.message.as_deref()).await;
        }
        Notice::Log(line) => peer.log(LogLevel::Info, "server", &line).await,
    }
}

/// Whoever made a call.
struct Whoever {
    peer: Peer,
    notices: mpsc::Sender<Notice>,
}

impl Client for Whoever {
    fn notify(&self, notice: Notice) {
        // What is too much is lost.
        let _ = self.notices.try_send(notice);
    }

    fn ask(&self, questions: Questions) -> BoxFuture<'_, std::result::Result<Answers, AskError>> {
        let asking = questions.into_iter().map(async |(name, question)| {
            let answer = self.peer.ask(&question.method, Some(question.params)).await;
            Ok((name, answer.map_err(|failure| AskError::Refused(failure.to_string()))?))
        });
        let asking = join_all(asking);
        async move { asking.await.into_iter().collect() }.boxed()
    }
}
