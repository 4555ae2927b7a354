//! Results reach the client byte for byte.

use pegboard::wire::RawJson;
use pegboard::wire::client::Era;
use pegboard::wire::era::meta;
use serde_json::{Value, json};

use crate::actor::corpus;
use crate::stage::{Seat, Stage, everywhere, open, raw_call};

fn odd(stage: &Stage) -> Value {
    json!({"toolboxes": {"t": {"description": "Odd", "mcpServers": {"s": stage.server("s", &["odd", "echo"])}}}})
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

async fn check(seat: &Seat, tool: &str, arguments: impl Fn(usize) -> Value) {
    for (index, expected) in corpus().into_iter().enumerate() {
        let expected = RawJson::parse(expected.into()).unwrap();
        let result = raw_call(&seat.client, tool, RawJson::from(arguments(index))).await;
        // Not `assert_eq`: five megabytes would be printed.
        let shown: String = result.as_str().chars().take(200).collect();
        assert!(is_same(&result, &expected, seat.era), "answer {index} by {tool}, {:?}: {shown}", seat.era);
    }
}

#[tokio::test]
async fn unusual_results_pass_through_unchanged() {
    everywhere(odd, Some("flat"), async |seat| check(seat, "s__odd", |index| json!({"i": index})).await)
        .await;
    let tool = json!({"toolbox": "t", "server": "s", "name": "odd"});
    everywhere(odd, None, async |seat| {
        open(&seat.client, "t").await;
        check(seat, "use_tool", |index| json!({"tool": tool, "arguments": {"i": index}})).await;
    })
    .await;
}

#[tokio::test]
async fn unusual_arguments_pass_through_unchanged() {
    let odd_arguments = r#"{ "z":1.0, "a" : [1e2,-0], "é":"\u00e9", "n":18446744073709551616 }"#;
    let odd_arguments = RawJson::parse(odd_arguments.into()).unwrap();
    everywhere(odd, Some("flat"), async |seat| {
        let result = raw_call(&seat.client, "s__echo", odd_arguments.clone()).await.to_value();
        assert_eq!(result["content"][0]["text"], format!("s/echo {}", odd_arguments.as_str()));
        let tool = RawJson::from(json!({"toolbox": "t", "server": "s", "name": "echo"}));
        let arguments = RawJson::empty_object().with("tool", &tool).with("arguments", &odd_arguments);
        let result = raw_call(&seat.client, "use_tool", arguments).await.to_value();
        assert_eq!(result["content"][0]["text"], format!("s/echo {}", odd_arguments.as_str()));
    })
    .await;
}
