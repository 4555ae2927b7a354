//! Notifications and requests of a server during a call reach the client.

use pegboard::wire::client::{Era, RequestOptions};
use pegboard::wire::{RawJson, RequestError, ResponseEvent};
use serde_json::{Value, json};

use crate::harness::{TestEnvironment, call, text, with_every_client};

fn talkative(environment: &TestEnvironment) -> Value {
    let server = environment.server("s", &["ask", "step"]);
    json!({"toolboxes": {"t": {"description": "Talks", "mcpServers": {"s": server}}}})
}

#[tokio::test]
async fn an_elicitation_is_answered_by_the_client() {
    with_every_client(talkative, Some("flat"), async |connected| {
        let said = text(&call(&connected.client, "s__ask", json!({})).await);
        assert_eq!(said, r#"asked and heard {"action":"accept","content":{"name":"Ada"}}"#);
        assert_eq!(
            connected.handler.recorded().iter().filter(|heard| *heard == "elicitation/create").count(),
            1
        );
    })
    .await;
}

#[tokio::test]
async fn a_url_elicitation_error_becomes_an_elicitation_for_stateless_clients() {
    let configuration = |environment: &TestEnvironment| {
        let server = environment.server("s", &["elsewhere"]);
        json!({"toolboxes": {"t": {"description": "Sends away", "mcpServers": {"s": server}}}})
    };
    with_every_client(configuration, Some("flat"), async |connected| {
        let params = Some(RawJson::from(json!({"name": "s__elsewhere", "arguments": {}})));
        let said = connected.client.call("tools/call", params).await;
        match connected.era {
            Era::Stateless => assert_eq!(text(&said.unwrap().to_value()), "been there"),
            // This client resends the request by itself.
            Era::Session => {
                let Err(RequestError::Rpc(refusal)) = said else { panic!("{said:?}") };
                let elicitations = refusal.data.unwrap().to_value()["elicitations"].clone();
                assert_eq!((refusal.code, &elicitations[0]["elicitationId"]), (-32_042, &json!("e")));
            }
        }
    })
    .await;
}

#[tokio::test]
async fn progress_reaches_the_client_under_its_own_token() {
    with_every_client(talkative, Some("flat"), async |connected| {
        let params = json!({"name": "s__step", "arguments": {}, "_meta": {"progressToken": "mine"}});
        let params = Some(RawJson::from(params));
        let mut exchange =
            connected.client.request("tools/call", params, RequestOptions::default()).await.unwrap();
        let mut heard = Vec::new();
        let end = loop {
            match exchange.next_event().await {
                ResponseEvent::Notification(notice) => heard.push(notice),
                ResponseEvent::End(end) => break end.unwrap().to_value(),
            }
        };
        assert_eq!(text(&end), "stepped");
        let params = heard[0].params.as_ref().unwrap().to_value();
        assert_eq!((heard.len(), &params["progressToken"]), (1, &json!("mine")));
        assert_eq!((&params["progress"], &params["total"]), (&json!(1), &json!(2)));
    })
    .await;
}
