use futures_util::future::{BoxFuture, FutureExt, ready};
use pegboard_json::RawJson;
use serde_json::json;

use tokio::net::TcpListener;

use super::*;
use crate::server::{McpService, ServerRequest, ServiceDescription, ServiceReply};

/// Answers every request with the id of its session.
struct SessionIdEcho;

impl McpService for SessionIdEcho {
    fn describe(&self, _revision: Revision) -> ServiceDescription {
        let info = RawJson::from(json!({"name": "echo", "version": "1"}));
        ServiceDescription { info, capabilities: RawJson::empty_object(), instructions: None }
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        let session = request.session.map(|session| session.as_str().to_owned());
        ready(Ok(RawJson::from(json!({"session": session})).into())).boxed()
    }
}

#[tokio::test]
async fn a_service_sees_the_session_id_of_the_header() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = ServiceServer::new(Arc::new(SessionIdEcho));
    tokio::spawn(serve(listener, endpoint(server, HttpServerOptions::default())));
    let post = |body: serde_json::Value| {
        let request = reqwest::Client::new().post(&url).header(header::CONTENT_TYPE, "application/json");
        request.body(body.to_string())
    };
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let opened = post(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}));
    let opened = opened.send().await.unwrap();
    let id = opened.headers()[headers::SESSION_ID].to_str().unwrap().to_owned();
    let call = post(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}));
    let answer = call.header(headers::SESSION_ID, &id).send().await.unwrap().text().await.unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["result"]["session"], id.as_str());
}
