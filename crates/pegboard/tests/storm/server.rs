//! The servers behind the gateway, which keep count of their calls.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, FutureExt};
use pegboard::wire::client::Era;
use pegboard::wire::era::Revision;
use pegboard::wire::http::server::{self, HttpServerOptions};
use pegboard::wire::server::{Description, Reply, Server, ServerRequest, Service};
use pegboard::wire::{RawJson, RpcError};
use pegboard_testkit::serve::everywhere;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// What all servers of the storm have seen. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Backend {
    under_way: Arc<AtomicUsize>,
    /// How often each call has begun, by its tag.
    begun: Arc<Mutex<HashMap<String, usize>>>,
}

impl Backend {
    /// Serves clients of one era; gives the address.
    pub(super) async fn serve(&self, era: Era) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let service = Server::new(Arc::new(self.clone())).speaking(era);
        let application = everywhere(&service, &HttpServerOptions::default());
        tokio::spawn(async move { server::serve(listener, application).await });
        url
    }

    /// How many calls are under way.
    pub(super) fn n_under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }

    /// No call was made twice.
    pub(super) fn check(&self) {
        let begun = self.begun.lock().unwrap();
        let twice: Vec<_> = begun.iter().filter(|(_, times)| **times != 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
        // Those that were given up at once may not have come this far.
        assert!(begun.len() > 9_000, "{} calls", begun.len());
    }
}

/// A call that is under way until this is dropped.
struct UnderWay(Arc<AtomicUsize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Service for Backend {
    fn describe(&self, _revision: Revision) -> Description {
        Description {
            info: RawJson::from(json!({"name": "storm", "version": "1"})),
            capabilities: RawJson::from(json!({"tools": {}})),
            instructions: None,
        }
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<Reply, RpcError>> {
        match &*request.method {
            "tools/list" => {
                let tool = |name| json!({"name": name, "inputSchema": {"type": "object"}});
                let tools: Vec<Value> = ["step", "hang", "ask"].map(tool).into();
                futures_util::future::ready(Ok(RawJson::from(json!({"tools": tools})).into())).boxed()
            }
            "tools/call" => {
                self.under_way.fetch_add(1, Ordering::SeqCst);
                let under_way = UnderWay(Arc::clone(&self.under_way));
                let begun = Arc::clone(&self.begun);
                async move {
                    let _under_way = under_way;
                    Ok(act(&request, &begun).await)
                }
                .boxed()
            }
            method => futures_util::future::ready(Err(RpcError::method_not_found(method))).boxed(),
        }
    }
}

async fn act(request: &ServerRequest, begun: &Mutex<HashMap<String, usize>>) -> Reply {
    let params = request.params.to_value();
    let arguments = &params["arguments"];
    let tag = arguments["tag"].as_str().unwrap().to_owned();
    if request.answers.is_none() {
        *begun.lock().unwrap().entry(tag.clone()).or_default() += 1;
    }
    let said = match params["name"].as_str().unwrap() {
        "ask" => match &request.answers {
            None => {
                let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
                let form = json!({"mode": "form", "message": tag, "requestedSchema": schema});
                let questions = json!({"who": {"method": "elicitation/create", "params": form}});
                return Reply::InputRequired { questions: RawJson::from(questions), state: None };
            }
            Some(answers) => format!("{tag} {}", answers.to_value()["who"]["content"]["name"]),
        },
        "hang" => {
            request.peer.progress(1.0, None, None).await;
            std::future::pending().await
        }
        _ => {
            let n_steps = arguments["n"].as_u64().unwrap();
            for step in 1..=n_steps {
                #[expect(clippy::cast_precision_loss, reason = "there are few steps")]
                request.peer.progress(step as f64, None, None).await;
            }
            tag
        }
    };
    RawJson::from(json!({"content": [{"type": "text", "text": said}]})).into()
}
