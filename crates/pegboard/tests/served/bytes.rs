//! Results reach the client byte for byte.

use pegboard::wire::RawJson;
use pegboard::wire::client::Era;
use pegboard::wire::era::meta;
use pegboard_testkit::scripted_server::unusual_results;
use serde_json::{Value, json};

use crate::harness::{ConnectedClient, TestEnvironment, open, raw_call, with_every_client};

fn odd(environment: &TestEnvironment) -> Value {
    json!({"toolboxes": {"t": {"description": "Odd", "mcpServers": {"s": environment.server("s", &["odd", "echo"])}}}})
}

/// Returns `true` if a result is the server's. The stateless era adds protocol members.
fn is_same(result: &RawJson, expected: &RawJson, era: Era) -> bool {
    if era == Era::Session {
        return result.as_bytes() == expected.as_bytes();
    }
    let own = result.get("_meta").unwrap().without(meta::SERVER_INFO);
    let result = result.without("resultType");
    let result = if own.names().is_empty() { result.without("_meta") } else { result.with("_meta", &own) };
    result.names() == expected.names()
        && expected.names().iter().all(|name| result.get(name) == expected.get(name))
}

async fn check(connected: &ConnectedClient, tool: &str, arguments: impl Fn(usize) -> Value) {
    for (index, expected) in unusual_results().into_iter().enumerate() {
        let expected = RawJson::parse(expected.into()).unwrap();
        let result = raw_call(&connected.client, tool, RawJson::from(arguments(index))).await;
        // Not `assert_eq`: five megabytes would be printed.
        let shown: String = result.as_str().chars().take(200).collect();
        assert!(
            is_same(&result, &expected, connected.era),
            "answer {index} by {tool}, {:?}: {shown}",
            connected.era
        );
    }
}

#[tokio::test]
async fn unusual_results_pass_through_unchanged() {
    with_every_client(odd, Some("flat"), async |connected| {
        check(connected, "s__odd", |index| json!({"i": index})).await;
    })
    .await;
    let tool = json!({"toolbox": "t", "server": "s", "name": "odd"});
    with_every_client(odd, None, async |connected| {
        open(&connected.client, "t").await;
        check(connected, "use_tool", |index| json!({"tool": tool, "arguments": {"i": index}})).await;
    })
    .await;
}

#[tokio::test]
async fn unusual_arguments_pass_through_unchanged() {
    let odd_arguments = r#"{ "z":1.0, "a" : [1e2,-0], "é":"\u00e9", "n":18446744073709551616 }"#;
    let odd_arguments = RawJson::parse(odd_arguments.into()).unwrap();
    with_every_client(odd, Some("flat"), async |connected| {
        let result = raw_call(&connected.client, "s__echo", odd_arguments.clone()).await.to_value();
        assert_eq!(result["content"][0]["text"], format!("s/echo {}", odd_arguments.as_str()));
        let tool = RawJson::from(json!({"toolbox": "t", "server": "s", "name": "echo"}));
        let arguments = RawJson::empty_object().with("tool", &tool).with("arguments", &odd_arguments);
        let result = raw_call(&connected.client, "use_tool", arguments).await.to_value();
        assert_eq!(result["content"][0]["text"], format!("s/echo {}", odd_arguments.as_str()));
    })
    .await;
}
