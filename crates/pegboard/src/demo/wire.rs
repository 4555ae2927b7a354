//! MCP at work: an embedded server, spoken to in both eras over a pipe.

use std::sync::{Arc, Mutex, PoisonError};

use pegboard::prelude::*;
use pegboard_wire::client::{Client, ClientOptions, Era, RequestOptions};
use pegboard_wire::era::Revision;
use pegboard_wire::link::InputLimits;
use pegboard_wire::server::{Description, Reply, Server, ServerRequest, Service};
use pegboard_wire::stdio::lines;
use pegboard_wire::{Happening, Id, Inbound, Notification, RawJson, Receiver, RpcError};

use super::{Checks, expect};

/// What a future that is boxed looks like.
type Boxed<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

/// An answer with a number that no float can hold, in a spelling that a parser would lose.
const EXACT: &str = r#"{"content":[],"structuredContent":{"b":12345678901234567890123, "a":1e2}}"#;

pub(super) async fn run(checks: &mut Checks) {
    for era in [Era::Stateless, Era::Session] {
        checks.add(speak(era)).await;
    }
    checks.add(hear_progress()).await;
    checks.add(pass_bytes()).await;
}

async fn speak(era: Era) -> Result<String> {
    let (client, asked) = connect(Some(era)).await?;
    let greeted = client.call("tools/call", Some(RawJson::from(json!({"name": "greet"})))).await?.to_value();
    expect(greeted["content"][0]["text"] == "Hello, Ada!", &greeted)?;
    let asked = asked.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    expect(asked == ["elicitation/create"], format_args!("the client was asked {asked:?}"))?;
    Ok(format!("mcp {}: the server asks for a name in mid-call, and greets Ada", client.server().revision))
}

async fn hear_progress() -> Result<String> {
    let (client, _) = connect(None).await?;
    let params = RawJson::from(json!({"name": "count", "_meta": {"progressToken": "mine"}}));
    let mut exchange = client.request("tools/call", Some(params), RequestOptions::default()).await?;
    let mut heard = Vec::new();
    while let Happening::Notice(notice) = exchange.next().await {
        heard.push(notice.params.map(|params| params.to_value()["progress"].clone()).unwrap_or_default());
    }
    expect(heard == [1.0, 2.0, 3.0], format_args!("the progress heard is {heard:?}"))?;
    Ok("mcp: progress arrives in order, and before the result".to_owned())
}

async fn pass_bytes() -> Result<String> {
    let (client, _) = connect(Some(Era::Session)).await?;
    let answer = client.call("tools/call", Some(RawJson::from(json!({"name": "exact"})))).await?;
    expect(answer.as_str() == EXACT, answer.as_str())?;
    Ok("mcp: an answer passes through byte for byte".to_owned())
}

/// A client of an embedded server of its own.
async fn connect(era: Option<Era>) -> Result<(Client, Arc<Answering>)> {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(far);
    let (link, _) = lines(reader, writer, InputLimits::server());
    tokio::spawn(async move { Server::new(Arc::new(Greeter)).serve(link).await });
    let (reader, writer) = tokio::io::split(near);
    let (link, _) = lines(reader, writer, InputLimits::client());
    let answering = Arc::new(Answering::default());
    let capabilities = RawJson::from(json!({"elicitation": {}}));
    let options =
        ClientOptions { era, capabilities, ..ClientOptions::new("pegboard-demo", env!("CARGO_PKG_VERSION")) };
    Ok((Client::connect(link, Arc::clone(&answering) as Arc<dyn Receiver>, options).await?, answering))
}

/// A client that tells its name to whoever asks.
#[derive(Default)]
struct Answering(Mutex<Vec<String>>);

impl Receiver for Answering {
    fn request(&self, inbound: Inbound) -> Boxed<Result<RawJson, RpcError>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(inbound.request.method.to_string());
        let answer = RawJson::from(json!({"action": "accept", "content": {"name": "Ada"}}));
        Box::pin(std::future::ready(Ok(answer)))
    }

    fn notification(&self, _notification: Notification, _about: Option<Id>) {}
}

/// A server that greets, counts, and answers exactly.
struct Greeter;

impl Service for Greeter {
    fn describe(&self, _revision: Revision) -> Description {
        Description {
            info: RawJson::from(json!({"name": "greeter", "version": env!("CARGO_PKG_VERSION")})),
            capabilities: RawJson::from(json!({"tools": {}})),
            instructions: None,
        }
    }

    fn call(&self, request: ServerRequest) -> Boxed<Result<Reply, RpcError>> {
        Box::pin(async move {
            let tool =
                request.params.get("name").and_then(|name| name.read::<String>().ok()).unwrap_or_default();
            match tool.as_str() {
                "greet" => Ok(greet(&request)),
                "count" => {
                    for step in [1.0, 2.0, 3.0] {
                        request.peer.progress(step, Some(3.0), None).await;
                    }
                    Ok(Reply::Result(RawJson::from(json!({"content": []}))))
                }
                "exact" => RawJson::parse(EXACT.into()).map(Reply::Result).map_err(RpcError::invalid_params),
                _ => Err(RpcError::invalid_params(format_args!("there is no tool '{tool}'"))),
            }
        })
    }
}

fn greet(request: &ServerRequest) -> Reply {
    let name = request.answers.as_ref().and_then(|answers| answers.at(&["name", "content", "name"]));
    if let Some(name) = name.as_ref().and_then(RawJson::text) {
        let text = format!("Hello, {name}!");
        return Reply::Result(RawJson::from(json!({"content": [{"type": "text", "text": text}]})));
    }
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    let params = json!({"mode": "form", "message": "What is your name?", "requestedSchema": schema});
    let question = json!({"name": {"method": "elicitation/create", "params": params}});
    Reply::InputRequired { questions: RawJson::from(question), state: None }
}
