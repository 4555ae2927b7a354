//! Both eras over every transport: the same calls, the same answers.

use pegboard_wire::client::{Era, McpClient, RequestOptions};
use pegboard_wire::transport::TransportHandle;
use pegboard_wire::{RawJson, RequestError, ResponseEvent, code};
use serde_json::json;

use crate::wire::support::{call, connect, http, legacy, pipe, websocket};

const ERAS: [Era; 2] = [Era::Session, Era::Stateless];

#[tokio::test]
async fn the_newer_era_is_preferred() {
    for transport in [pipe(), http().await, websocket().await] {
        let (client, _) = connect(transport, None).await;
        assert_eq!(client.era(), Era::Stateless);
        assert_eq!(client.server().info.as_ref().unwrap().to_value()["name"], "pegboard-fixture");
        assert_eq!(client.server().instructions.as_deref(), Some("A server for tests."));
    }
}

#[tokio::test]
async fn a_server_with_only_http_sse_is_detected() {
    let url =
        crate::wire::support::serve_http(pegboard_wire::http::server::HttpServerOptions::default()).await;
    let http =
        pegboard_wire::http::client::HttpOptions::new(url.replace("/mcp", "/legacy/sse").parse().unwrap());
    let handler = std::sync::Arc::new(crate::wire::support::AnsweringHandler::default());
    let client = McpClient::connect_http(http, handler, crate::wire::support::options(None)).await.unwrap();
    assert_eq!(client.era(), Era::Session);
    assert_eq!(
        call(&client, "test_simple_text", json!({})).await,
        "This is a simple text response for testing."
    );
}

async fn every_transport() -> Vec<(TransportHandle, Era)> {
    let mut transports = Vec::new();
    for era in ERAS {
        transports.push((pipe(), era));
        transports.push((http().await, era));
        transports.push((websocket().await, era));
    }
    // The HTTP+SSE transport has no stateless form.
    transports.push((legacy().await, Era::Session));
    transports
}

#[tokio::test]
async fn tools_answer_in_both_eras_over_every_transport() {
    for (transport, era) in every_transport().await {
        let (client, _) = connect(transport, Some(era)).await;
        assert_eq!(client.era(), era);
        let text = call(&client, "test_simple_text", json!({})).await;
        assert_eq!(text, "This is a simple text response for testing.");
        let unknown = client.call("no/such/method", None).await.unwrap_err();
        assert!(
            matches!(unknown, RequestError::Rpc(ref error) if error.code == code::METHOD_NOT_FOUND),
            "{unknown:?}"
        );
    }
}

#[tokio::test]
async fn input_requests_are_answered_in_both_eras() {
    for (transport, era) in every_transport().await {
        let (client, handler) = connect(transport, Some(era)).await;
        assert_eq!(call(&client, "test_input_required_result_elicitation", json!({})).await, "Hello, Ada!");
        assert_eq!(call(&client, "test_sampling", json!({"prompt": "?"})).await, "LLM response: Paris");
        assert_eq!(
            call(&client, "test_input_required_result_multi_round", json!({})).await,
            "Your favorite color is green."
        );
        assert_eq!(
            call(&client, "test_input_required_result_multiple_inputs", json!({})).await,
            "All answers are here."
        );
        assert_eq!(call(&client, "test_input_required_result_request_state", json!({})).await, "state-ok");
        let asked = handler.requests.lock().unwrap().clone();
        assert_eq!(asked.iter().filter(|method| *method == "elicitation/create").count(), 5, "{asked:?}");
    }
}

#[tokio::test]
async fn arguments_are_mirrored_in_headers() {
    let (client, _) = connect(http().await, Some(Era::Stateless)).await;
    let arguments = json!({"region": "Größe 😀"});
    let params = RawJson::from(json!({"name": "test_header_parameter", "arguments": arguments}));
    let refused = client.call("tools/call", Some(params.clone())).await.unwrap_err();
    assert!(
        matches!(refused, RequestError::Rpc(ref error) if error.code == code::HEADER_MISMATCH),
        "{refused:?}"
    );
    let list = client.call("tools/list", None).await.unwrap();
    let (good, refused) = client.register_tools(&list);
    assert!(good.len() > 20 && refused.is_empty(), "{refused:?}");
    assert_eq!(call(&client, "test_header_parameter", arguments).await, r#"Region: "Größe 😀""#);
}

/// Waits for a change notification, in the form of the client's era.
async fn expect_tools_changed(client: &McpClient, handler: &crate::wire::support::AnsweringHandler) {
    let trigger = RawJson::from(json!({"name": "test_trigger_tool_change"}));
    match client.era() {
        Era::Session => {
            client.call("tools/call", Some(trigger)).await.unwrap();
            while !handler
                .notifications
                .lock()
                .unwrap()
                .contains(&"notifications/tools/list_changed".to_owned())
            {
                tokio::task::yield_now().await;
            }
        }
        Era::Stateless => {
            let filter = RawJson::from(json!({"notifications": {"toolsListChanged": true}}));
            let mut listening = client
                .request("subscriptions/listen", Some(filter), RequestOptions::default())
                .await
                .unwrap();
            let id = listening.id();
            let ResponseEvent::Notification(first) = listening.next_event().await else {
                panic!("the subscription ended")
            };
            assert_eq!(&*first.method, "notifications/subscriptions/acknowledged");
            client.call("tools/call", Some(trigger)).await.unwrap();
            let ResponseEvent::Notification(second) = listening.next_event().await else {
                panic!("the subscription ended")
            };
            assert_eq!(&*second.method, "notifications/tools/list_changed");
            let tagged = second.params.unwrap().at(&["_meta", "io.modelcontextprotocol/subscriptionId"]);
            assert_eq!(tagged, Some(RawJson::of(&id)));
        }
    }
}

#[tokio::test]
async fn change_notifications_arrive_in_each_era_over_http() {
    for era in ERAS {
        let (client, handler) = connect(http().await, Some(era)).await;
        expect_tools_changed(&client, &handler).await;
    }
}

#[tokio::test]
async fn change_notifications_arrive_in_a_session_over_every_other_transport() {
    for transport in [pipe(), websocket().await, legacy().await] {
        let (client, handler) = connect(transport, Some(Era::Session)).await;
        expect_tools_changed(&client, &handler).await;
    }
}

#[tokio::test]
async fn a_task_belongs_to_the_session_that_made_it() {
    let url =
        crate::wire::support::serve_http(pegboard_wire::http::server::HttpServerOptions::default()).await;
    let transport = || {
        let http = pegboard_wire::http::client::HttpOptions::new(url.parse().unwrap());
        pegboard_wire::http::client::connect(http).unwrap()
    };
    let (mine, _) = connect(transport(), Some(Era::Session)).await;
    let (other, _) = connect(transport(), Some(Era::Session)).await;
    let params = json!({"name": "slow_compute", "arguments": {"seconds": 60}, "task": {}});
    let created = mine.call("tools/call", Some(RawJson::from(params))).await.unwrap().to_value();
    let id = RawJson::from(json!({"taskId": created["task"]["taskId"]}));
    let got = mine.call("tasks/get", Some(id.clone())).await.unwrap().to_value();
    assert_eq!(got["status"], "working");
    assert!(other.call("tasks/get", Some(id.clone())).await.is_err());
    assert_eq!(other.call("tasks/list", None).await.unwrap().to_value()["tasks"], json!([]));
    assert_eq!(mine.call("tasks/cancel", Some(id)).await.unwrap().to_value()["status"], "cancelled");
}
