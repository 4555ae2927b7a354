//! Runs the official Rust SDK's client through the gateway: `rmcp_client PLAN ERA URL`, or `PLAN ERA PEGBOARD
//! FILE`.
//!
//! Executes the plan of every server, each at a profile of the same name. `scripts/bridge.sh` runs it.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]
#![expect(deprecated, reason = "many servers still use sampling")]

use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult,
    ElicitRequestParams, ElicitResult, ElicitationAction, GetPromptRequestParams, Implementation,
    ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams, ResourceUpdatedNotificationParam,
    SubscribeRequestParams, SubscriptionFilter,
};
use rmcp::service::{NotificationContext, RequestContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient};
use serde_json::{Map, Value, json};
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tokio::time;

/// Long enough for a busy machine; anything slower is an error.
const TIMEOUT: Duration = Duration::from_secs(20);

type Connected = RunningService<RoleClient, AcceptingClient>;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [plan, era, target @ ..] = arguments.as_slice() else { panic!("usage: PLAN ERA TARGET…") };
    let plans: Map<String, Value> = serde_json::from_str(&std::fs::read_to_string(plan).unwrap()).unwrap();
    for (profile, steps) in &plans {
        // A string refers to the plan of another server.
        let steps = steps.as_str().map_or(steps, |name| &plans[name]).as_array().unwrap();
        let label = format!("{profile}, {era}");
        let (client, _program) = connect(target, profile, era).await;
        check_lists(&client, steps).await;
        println!("ok {label}: lists");
        for step in steps {
            let text = execute_step(&client, era, step).await;
            let expected = step["says"].as_str().or(step["refuses"].as_str()).unwrap();
            assert!(text.contains(expected), "{label}: {}: {text}", step["what"]);
            assert_eq!(text.starts_with("refused: "), step["refuses"].is_string(), "{label}: {text}");
            println!("ok {label}: {}", step["what"].as_str().unwrap());
        }
        client.cancel().await.unwrap();
    }
}

async fn connect(target: &[String], profile: &str, era: &str) -> (Connected, Option<Child>) {
    let (lifecycle, revision) = if era == "session" {
        (ClientLifecycleMode::Initialize, "2025-11-25")
    } else {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        (ClientLifecycleMode::Auto { preferred_versions, legacy_version: None }, "2026-07-28")
    };
    let answering = AcceptingClient::default();
    let (client, program) = match target {
        [url] => {
            let transport = StreamableHttpClientTransport::from_uri(format!("{url}/{profile}"));
            (answering.serve_with_lifecycle(transport, lifecycle).await.unwrap(), None)
        }
        [program, file] => {
            let mut child = Command::new(program)
                .args(["serve", file, "--stdio", "--no-daemon", "--no-watch", "--profile", profile])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .unwrap();
            let pipes = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
            (answering.serve_with_lifecycle(pipes, lifecycle).await.unwrap(), Some(child))
        }
        _ => panic!("usage: PLAN ERA URL, or PLAN ERA PEGBOARD FILE"),
    };
    assert_eq!(client.peer_info().unwrap().protocol_version.as_str(), revision);
    (client, program)
}

async fn check_lists(client: &Connected, steps: &[Value]) {
    let mut listed: Vec<String> = Vec::new();
    listed.extend(client.list_all_tools().await.unwrap().into_iter().map(|tool| tool.name.to_string()));
    listed.extend(client.list_all_prompts().await.unwrap().into_iter().map(|prompt| prompt.name));
    let resources = serde_json::to_value(client.list_all_resources().await.unwrap()).unwrap();
    listed
        .extend(resources.as_array().unwrap().iter().map(|found| found["uri"].as_str().unwrap().to_owned()));
    for step in steps {
        let name = ["tool", "prompt", "resource"].iter().find_map(|kind| step[kind].as_str()).unwrap();
        let is_listed = listed.iter().any(|listed| listed == name);
        assert_eq!(is_listed, step["refuses"].is_null(), "{name} in {listed:?}");
    }
}

async fn execute_step(client: &Connected, era: &str, step: &Value) -> String {
    if let Some(uri) = step["updates"].as_str() {
        return call_and_expect_update(client, era, step, uri).await;
    }
    if step["tool"].is_string() {
        return call(client, step).await;
    }
    if let Some(prompt) = step["prompt"].as_str() {
        let got = client.get_prompt(GetPromptRequestParams::new(prompt)).await.unwrap();
        let message = serde_json::to_value(&got.messages[0]).unwrap();
        return message["content"]["text"].as_str().unwrap().to_owned();
    }
    let uri = step["resource"].as_str().unwrap();
    match client.read_resource(ReadResourceRequestParams::new(uri)).await {
        Ok(read) => {
            let contents = serde_json::to_value(&read.contents).unwrap();
            contents[0]["text"].as_str().unwrap().to_owned()
        }
        Err(error) => format!("refused: {error}"),
    }
}

async fn call(client: &Connected, step: &Value) -> String {
    client.service().progress.lock().unwrap().clear();
    let arguments = step["arguments"].as_object().cloned().unwrap_or_default();
    let params = CallToolRequestParams::new(step["tool"].as_str().unwrap().to_owned());
    let result = client.call_tool(params.with_arguments(arguments)).await.unwrap();
    if let Some(expected) = step["progress"].as_array() {
        // The SDK delivers each notification on a separate task, so that one may arrive after the result, and
        // out of order.
        let all_reported = async {
            while client.service().progress.lock().unwrap().len() < expected.len() {
                client.service().updates.notified().await;
            }
        };
        time::timeout(TIMEOUT, all_reported).await.unwrap();
        let mut reported = client.service().progress.lock().unwrap().clone();
        reported.sort_by(f64::total_cmp);
        let expected: Vec<f64> = expected.iter().map(|done| done.as_f64().unwrap()).collect();
        assert_eq!(reported, expected);
    }
    let texts = result.content.iter().filter_map(|content| Some(content.as_text()?.text.as_str()));
    texts.collect::<Vec<_>>().join("\n")
}

async fn call_and_expect_update(client: &Connected, era: &str, step: &Value, uri: &str) -> String {
    if era == "stateless" {
        let filter: SubscriptionFilter =
            serde_json::from_value(json!({"resourceSubscriptions": [uri]})).unwrap();
        let mut changes = client.listen(filter).await.unwrap();
        let text = call(client, step).await;
        let updates = time::timeout(TIMEOUT, changes.next()).await.unwrap().unwrap();
        let updates = serde_json::to_value(updates).unwrap();
        assert_eq!(updates["params"]["uri"], uri, "{updates}");
        return text;
    }
    client.subscribe(SubscribeRequestParams::new(uri)).await.unwrap();
    let text = call(client, step).await;
    let updated = async {
        while !client.service().updated.lock().unwrap().iter().any(|updated| updated == uri) {
            client.service().updates.notified().await;
        }
    };
    time::timeout(TIMEOUT, updated).await.unwrap();
    text
}

/// A client that answers every input request and records notifications.
#[derive(Default)]
struct AcceptingClient {
    progress: Mutex<Vec<f64>>,
    updated: Mutex<Vec<String>>,
    updates: Notify,
}

impl ClientHandler for AcceptingClient {
    fn get_info(&self) -> ClientConfig {
        let capabilities = json!({"elicitation": {}, "sampling": {}});
        let capabilities: ClientCapabilities = serde_json::from_value(capabilities).unwrap();
        ClientConfig::new(capabilities, Implementation::new("rmcp", "1"))
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let asked = serde_json::to_value(request).unwrap();
        let names = asked["requestedSchema"]["required"].as_array().unwrap().iter().filter_map(Value::as_str);
        let value = |name: &str| {
            let article = if name.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" };
            json!(format!("{article} {name}"))
        };
        let content: Map<String, Value> = names.map(|name| (name.to_owned(), value(name))).collect();
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content.into()))
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let message = serde_json::to_value(&params.messages[0]).unwrap();
        let content = message["content"].get(0).unwrap_or(&message["content"]);
        let text = format!("I heard: {}", content["text"].as_str().unwrap());
        let content = json!({"type": "text", "text": text});
        let result = json!({"role": "assistant", "model": "none", "content": content});
        Ok(serde_json::from_value(result).unwrap())
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.progress.lock().unwrap().push(params.progress);
        self.updates.notify_one();
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.updated.lock().unwrap().push(params.uri.clone());
        self.updates.notify_one();
    }
}
