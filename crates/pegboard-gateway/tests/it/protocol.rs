//! Details of the protocol that differ by era, and errors that all surfaces share.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::ValidCall;
use pegboard_core::client::{InputRequest, InputRequests};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, ToolError};
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::provider::{ProviderRequest, ProviderUpdate, ServerOffering};
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use pegboard_wire::client::{Era, McpClient};
use pegboard_wire::{RequestError, RpcError};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::fixture::{ERAS, LazyServer, call, connect, connect_as, echo_tool, gateway, mcp_server};
use crate::recording_server::RecordingServer;

/// A tool that ends without a result if its caller cannot be asked, as a stateless server's tool does.
struct NeedsInput;

impl Handler for NeedsInput {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let question = InputRequest {
                method: "elicitation/create".to_owned(),
                params: json!({"message": "Who?"}).into(),
            };
            let asked =
                call.context().client().ask(InputRequests::from([("who".to_owned(), question)])).await;
            let answers = asked.map_err(|error| {
                CallError::Failed(ToolError::new(format_args!("it needs input, but {error}")))
            })?;
            Ok(Output::result(json!({"content": [], "structuredContent": answers["who"].to_value()}).into()))
        }
        .boxed()
    }
}

async fn runtime() -> Runtime {
    let needs_input =
        ToolEntry::from_handler("ask", "", Arc::new(NeedsInput)).with_input_schema(json!({"type": "object"}));
    let server = mcp_server([echo_tool("files", "read"), needs_input]);
    Runtime::builder().toolbox("t", "").provide("files", server).start().await.unwrap()
}

async fn refusal(client: &McpClient, method: &str, params: Value) -> RpcError {
    match client.call(method, Some(RawJson::from(params))).await {
        Err(RequestError::Rpc(error)) => error,
        other => panic!("{method}: {other:?}"),
    }
}

#[tokio::test]
async fn the_server_declares_logging_in_both_eras() {
    let gateway = gateway(&runtime().await, json!({}));
    for era in ERAS {
        let (client, _) = connect(&gateway, Some("flat"), era).await;
        assert!(client.server().capabilities.get("logging").is_some(), "{era:?}");
    }
}

#[tokio::test]
async fn malformed_requests_are_invalid_parameters_on_every_surface() {
    let runtime = runtime().await;
    let profiles = json!({"profiles": {"agents": {"expose": "agent"}, "plain": {"expose": "flat", "transparent": true}}});
    let gateway = gateway(&runtime, profiles);
    let cases = [
        ("tools/call", json!({"name": "files__raed", "arguments": {}})),
        ("tools/call", json!({"name": "nothing_like_it", "arguments": {}})),
        ("tools/call", json!({"name": "files__read", "arguments": [1]})),
        ("tools/call", json!({"name": "files__read", "arguments": "{}"})),
        ("tools/call", json!({"name": "files__read", "arguments": null})),
        ("tools/list", json!({"cursor": "bogus"})),
        ("tools/list", json!({"cursor": 7})),
        ("prompts/list", json!({"cursor": "bogus"})),
        ("resources/list", json!({"cursor": "bogus"})),
        ("resources/templates/list", json!({"cursor": ""})),
    ];
    for era in ERAS {
        for profile in ["flat", "meta", "agents", "plain"] {
            let (client, _) = connect(&gateway, Some(profile), era).await;
            // A toolbox that is not open is a matter for the model.
            call(&client, "open_toolbox", json!({"toolbox": "t"})).await;
            for (method, params) in &cases {
                // A mode is an argument of an agent.
                if profile == "agents" && params["name"] == "files__raed" {
                    continue;
                }
                let error = refusal(&client, method, params.clone()).await;
                assert_eq!(error.code, -32_602, "{profile} {era:?} {method} {params}: {error}");
            }
            client.call("tools/list", Some(json!({"cursor": null}).into())).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_stateless_client_learns_which_capability_a_call_needs() {
    let gateway = gateway(&runtime().await, json!({}));
    let use_tool = json!({"tool": {"toolbox": "t", "server": "files", "name": "ask"}});
    for (profile, name, arguments) in [("flat", "files__ask", json!({})), ("meta", "use_tool", use_tool)] {
        let (client, _) = connect_as(&gateway, Some(profile), Era::Stateless, "test", json!({})).await;
        let error = refusal(&client, "tools/call", json!({"name": name, "arguments": arguments})).await;
        let data = error.data.unwrap().to_value();
        assert_eq!((error.code, &data["requiredCapabilities"]), (-32_021, &json!({"elicitation": {}})));
        // A session has declared its capabilities once and for all, so the model learns of it.
        let (client, _) = connect_as(&gateway, Some(profile), Era::Session, "test", json!({})).await;
        call(&client, "open_toolbox", json!({"toolbox": "t"})).await;
        let params = json!({"name": name, "arguments": arguments});
        let result = client.call("tools/call", Some(params.into())).await.unwrap().to_value();
        assert_eq!(result["isError"], json!(true), "{result}");
    }
}

#[tokio::test]
async fn a_client_may_keep_the_description_while_nothing_changes() {
    let gateway = gateway(&runtime().await, json!({}));
    for profile in ["flat", "meta"] {
        let (client, _) = connect(&gateway, Some(profile), Era::Stateless).await;
        let described = client.call("server/discover", None).await.unwrap().to_value();
        assert_eq!((&described["ttlMs"], &described["cacheScope"]), (&json!(60_000), &json!("private")));
    }
}

/// Returns a server that declares features of its own, and sends the requests that it gets to `requests`.
fn custom_server(
    name: &'static str,
    experimental: Value,
    requests: &mpsc::UnboundedSender<String>,
) -> RecordingServer {
    let offer = ServerOffering { experimental: Some(experimental.into()), ..ServerOffering::default() };
    let requests = requests.clone();
    RecordingServer::new(offer, move |ProviderRequest { method, params }| {
        let params = params.without("_meta");
        requests.send(format!("{name} {} {}", method.as_str(), params.as_str())).unwrap();
        Ok(json!({"from": name}).into())
    })
}

/// Returns a runtime with two such servers and one without, their requests, and the first server.
async fn custom_runtime() -> (Runtime, mpsc::UnboundedReceiver<String>, RecordingServer) {
    let (requests, received) = mpsc::unbounded_channel();
    let acme = custom_server("acme", json!({"acme": {"n": 1}}), &requests);
    let builder = Runtime::builder()
        .toolbox("t", "")
        .provide("acme", acme.clone())
        .provide("other", custom_server("other", json!({"x.y": {}}), &requests))
        .provide("plain", mcp_server([echo_tool("plain", "read")]));
    (builder.start().await.unwrap(), received, acme)
}

#[tokio::test]
async fn methods_that_a_server_declares_are_forwarded_to_it() {
    let (runtime, mut received, acme) = custom_runtime().await;
    let gateway = gateway(&runtime, json!({}));
    for era in ERAS {
        let (client, _) = connect(&gateway, Some("flat"), era).await;
        assert_eq!(client.server().capabilities.at(&["experimental", "acme"]), Some(json!({"n": 1}).into()));
        let named = |server: &str| json!({"a": 1.5, "_meta": {"pegboard/server": server}});
        for (method, params, expected) in [
            ("acme/search", json!({"a": 1.5}), "acme"),
            ("x.y/z", json!({"a": 1.5}), "other"),
            ("search", named("other"), "other"),
            ("acme/search", named("other"), "other"),
        ] {
            let result = client.call(method, Some(params.into())).await.unwrap().to_value();
            assert_eq!(result["from"], expected, "{method}");
            assert_eq!(received.recv().await.unwrap(), format!(r#"{expected} {method} {{"a":1.5}}"#));
        }
        for (method, params, code) in
            [("search", json!({}), -32_601), ("acme/search", named("plain"), -32_602)]
        {
            assert_eq!(refusal(&client, method, params).await.code, code, "{method}");
        }
        client.notify("notifications/acme/ready", Some(json!({"b": 1}).into())).await.unwrap();
        if era == Era::Session {
            assert_eq!(received.recv().await.unwrap(), r#"acme notifications/acme/ready {"b":1}"#);
            let n_of_sessions = acme.n_of_sessions.load(Ordering::SeqCst);
            assert_eq!(n_of_sessions, 2, "the notification is for the instance of the session, too");
        }
    }
}

#[tokio::test]
async fn a_method_of_a_server_that_is_down_reaches_no_other() {
    let (requests, mut received) = mpsc::unbounded_channel();
    let evil = custom_server("evil", json!({"acme": {}, "x": {}}), &requests);
    let builder = Runtime::builder().toolbox("t", "").provide("acme", LazyServer::broken("it is down"));
    let runtime = builder.provide("evil", evil).start().await.unwrap();
    let gateway = gateway(&runtime, json!({}));
    for era in ERAS {
        let (client, _) = connect(&gateway, Some("flat"), era).await;
        let named = |server: &str| json!({"_meta": {"pegboard/server": server}});
        // What the server that is meant says.
        for (method, params, expected) in [
            ("acme/search", json!({}), "is not supported by this server"),
            ("acme/search", named("acme"), "is not supported by this server"),
            ("x/search", named("acme"), "is not supported by this server"),
            // Its features are not known.
            ("x/search", json!({}), "Several servers may have it"),
        ] {
            let refused = refusal(&client, method, params).await.message;
            assert!(refused.contains(expected), "{era:?} {method}: {refused}");
        }
        client.notify("notifications/acme/ready", None).await.unwrap();
        client.notify("notifications/x/ready", None).await.unwrap();
        // A request after the notifications, which are handled in order.
        client.call("x/search", Some(named("evil").into())).await.unwrap();
        assert_eq!(received.recv().await.unwrap(), "evil x/search {}");
        assert!(received.try_recv().is_err());
    }
}

#[tokio::test]
async fn notifications_that_the_protocol_does_not_define_reach_session_clients() {
    let (runtime, _received, acme) = custom_runtime().await;
    let (client, notifications) = connect(&gateway(&runtime, json!({})), Some("flat"), Era::Session).await;
    client.call("tools/list", None).await.unwrap();
    acme.updates
        .send(ProviderUpdate::Custom {
            method: "notifications/acme/tick".into(),
            params: Some(json!({}).into()),
        })
        .unwrap();
    assert_eq!(notifications.next().await, "notifications/acme/tick");
}
