//! Servers behind the gateway, which count their calls.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, FutureExt};
use pegboard::wire::client::Era;
use pegboard::wire::era::Revision;
use pegboard::wire::http::server::{self, HttpServerOptions};
use pegboard::wire::server::{McpService, ServerRequest, ServiceDescription, ServiceReply, ServiceServer};
use pegboard::wire::{RawJson, RpcError};
use pegboard_testkit::serve::all_transports;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Shared call counts of all servers.
#[derive(Clone, Default)]
pub(super) struct Backend {
    under_way: Arc<AtomicUsize>,
    /// Number of executions of each call, by tag.
    begun: Arc<Mutex<HashMap<String, usize>>>,
}

impl Backend {
    /// Starts a server for one era and returns its address.
    pub(super) async fn serve(&self, era: Era) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let service = ServiceServer::new(Arc::new(self.clone())).serving_only(era);
        let application = all_transports(&service, &HttpServerOptions::default());
        tokio::spawn(async move { server::serve(listener, application).await });
        url
    }

    /// Number of calls in flight.
    pub(super) fn n_in_flight(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }

    /// Checks that no call was executed twice.
    pub(super) fn check(&self) {
        let begun = self.begun.lock().unwrap();
        let twice: Vec<_> = begun.iter().filter(|(_, times)| **times != 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
        // Calls canceled immediately may not have reached the server.
        assert!(begun.len() > 9_000, "{} calls", begun.len());
    }
}

/// Guard of a call in flight.
struct UnderWay(Arc<AtomicUsize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl McpService for Backend {
    fn describe(&self, _revision: Revision) -> ServiceDescription {
        ServiceDescription {
            info: RawJson::from(json!({"name": "storm", "version": "1"})),
            capabilities: RawJson::from(json!({"tools": {}})),
            instructions: None,
        }
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
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
                    Ok(run_tool(&request, &begun).await)
                }
                .boxed()
            }
            method => futures_util::future::ready(Err(RpcError::method_not_found(method))).boxed(),
        }
    }
}

async fn run_tool(request: &ServerRequest, begun: &Mutex<HashMap<String, usize>>) -> ServiceReply {
    let params = request.params.to_value();
    let arguments = &params["arguments"];
    let tag = arguments["tag"].as_str().unwrap().to_owned();
    if request.input_responses.is_none() {
        *begun.lock().unwrap().entry(tag.clone()).or_default() += 1;
    }
    let said = match params["name"].as_str().unwrap() {
        "ask" => match &request.input_responses {
            None => {
                let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
                let form = json!({"mode": "form", "message": tag, "requestedSchema": schema});
                let questions = json!({"who": {"method": "elicitation/create", "params": form}});
                return ServiceReply::InputRequired { input_requests: RawJson::from(questions), state: None };
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
