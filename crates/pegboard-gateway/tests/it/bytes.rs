//! Results pass from server to client byte for byte, however the tool is called.

use pegboard_core::output::Output;
use pegboard_gateway::Gateway;
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use pegboard_wire::client::{Era, McpClient};
use pegboard_wire::era::meta;
use serde_json::json;

use crate::fixture::{ERAS, connect, gateway, mcp_server, raw_call, scripted_tool};

/// Results that a re-serializing proxy would change.
fn unusual_results() -> Vec<RawJson> {
    let large = format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "0123456789".repeat(500_000));
    let texts = [
        r#"{"content":[]}"#,
        "{}",
        r#"{"content":[{"type":"text","text":""}]}"#,
        r#"{"isError":true,"content":[{"type":"text","text":"no"}],"z":null}"#,
        r#"{"zeta":1,"alpha":{"y":[],"x":{}},"content":[],"content2":[[[]]]}"#,
        r#"{"content":[],"n":[1.0,1.50,1e2,1E+2,-0,0.1e-7,12345678901234567890123,1e400]}"#,
        r#"{ "content" : [ { "type" : "text" , "text" : "spaces" } ] }"#,
        r#"{"content":[{"type":"text","text":"é\u00e9 😀 \ud83d\ude00 \u2028 \/ \" \\ \t"}]}"#,
        r#"{"content":[{"type":"novel","data":{"deep":[1,[2,[3]]]}}],"_meta":{"a/b":1,"c":"d"}}"#,
        r#"{"content":[],"structuredContent":{"b":1,"a":2,"big":18446744073709551616}}"#,
        r#"{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"},{"type":"text","text":"x"}]}"#,
        &large,
    ];
    texts.iter().map(|text| RawJson::parse(text.to_string().into()).unwrap()).collect()
}

async fn start_gateway() -> Gateway {
    let answers = unusual_results();
    let odd = scripted_tool("odd", move |call| {
        let index = call.raw_arguments().get("i").unwrap().read::<usize>().unwrap();
        Ok(Output::result(answers[index].clone()))
    });
    let runtime = Runtime::builder().toolbox("t", "").provide("s", mcp_server([odd])).start().await.unwrap();
    gateway(&runtime, json!({}))
}

/// Returns `true` if a result is the server's. In the stateless era the protocol adds members of its own.
fn is_unchanged(result: &RawJson, expected: &RawJson, era: Era) -> bool {
    if era == Era::Session {
        return result == expected;
    }
    let own = result.get("_meta").unwrap().without(meta::SERVER_INFO);
    let result = result.without("resultType");
    let result = if own.names().is_empty() { result.without("_meta") } else { result.with("_meta", &own) };
    result.names() == expected.names()
        && expected.names().iter().all(|name| result.get(name) == expected.get(name))
}

async fn check(client: &McpClient, tool: &str, arguments: impl Fn(usize) -> RawJson, era: Era) {
    for (index, expected) in unusual_results().iter().enumerate() {
        let result = raw_call(client, tool, arguments(index)).await;
        // Not `assert_eq`: it would print five megabytes.
        let shown: String = result.as_str().chars().take(200).collect();
        assert!(is_unchanged(&result, expected, era), "answer {index} by {tool}, {era:?}: {shown}");
    }
}

#[tokio::test]
async fn unusual_results_pass_unchanged() {
    let gateway = start_gateway().await;
    for era in ERAS {
        let (client, _) = connect(&gateway, Some("flat"), era).await;
        check(&client, "s__odd", |index| RawJson::from(json!({"i": index})), era).await;
        let tool = json!({"toolbox": "t", "server": "s", "name": "odd"});
        check(
            &client,
            "use_tool",
            |index| RawJson::from(json!({"tool": tool, "arguments": {"i": index}})),
            era,
        )
        .await;
    }
}

#[tokio::test]
async fn unusual_arguments_pass_unchanged() {
    let echo = scripted_tool("echo", |call| Ok(crate::fixture::text_output(call.raw_arguments().as_str())));
    let runtime = Runtime::builder().toolbox("t", "").provide("s", mcp_server([echo])).start().await.unwrap();
    let gateway = gateway(&runtime, json!({}));
    let odd = RawJson::parse(r#"{ "z":1.0, "a" : [1e2,-0], "é":"\u00e9", "n":18446744073709551616 }"#.into())
        .unwrap();
    for era in ERAS {
        let (client, _) = connect(&gateway, Some("flat"), era).await;
        let result = raw_call(&client, "s__echo", odd.clone()).await.to_value();
        assert_eq!(result["content"][0]["text"], odd.as_str());
        let tool = RawJson::from(json!({"toolbox": "t", "server": "s", "name": "echo"}));
        let arguments = RawJson::empty_object().with("tool", &tool).with("arguments", &odd);
        let result = raw_call(&client, "use_tool", arguments).await.to_value();
        assert_eq!(result["content"][0]["text"], odd.as_str());
    }
}
