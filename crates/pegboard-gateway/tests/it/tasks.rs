//! Tool calls as tasks, in both protocol forms.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::ValidCall;
use pegboard_core::client::{InputRequest, InputRequests, Notice, ProgressUpdate};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, ProtocolError, ToolError};
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::task::{ServerTask, TaskRefresher};
use pegboard_gateway::Gateway;
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use pegboard_wire::client::{Era, McpClient, RequestOptions};
use pegboard_wire::{RequestError, RpcError};
use serde_json::{Value, json};
use tokio::time::{self, Duration};

use crate::fixture::{ClientRecorder, connect, connect_as, gateway, mcp_server, text, text_output};

/// A tool with a server that creates a ten-minute task for every call.
struct TaskTool {
    behaviour: TaskBehaviour,
    n_running: Arc<AtomicUsize>,
}

#[derive(Clone, Copy)]
enum TaskBehaviour {
    /// Takes a minute.
    Slow,
    /// Fails with an RPC error.
    Refuse,
    /// Returns an error result.
    Fail,
    /// Asks for a name, twice.
    Ask,
    /// Finishes before anything else happens.
    Immediate,
    /// Never finishes.
    Endless,
    /// Finishes when the server is asked for the status a second time.
    Refreshed,
}

struct RunningGuard<'t>(&'t AtomicUsize);

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Handler for TaskTool {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            self.n_running.fetch_add(1, Ordering::SeqCst);
            let _guard = RunningGuard(&self.n_running);
            let client = call.context().client();
            let (refresher, mut status_requests) = TaskRefresher::new();
            client.notify(Notice::Task(ServerTask {
                time_to_live: Some(Duration::from_mins(10)),
                poll_interval: Some(Duration::from_millis(200)),
                message: Some("queued".to_owned()),
                refresher: matches!(self.behaviour, TaskBehaviour::Refreshed).then_some(refresher),
            }));
            match self.behaviour {
                TaskBehaviour::Slow => {
                    time::sleep(Duration::from_secs(30)).await;
                    client.notify(Notice::Progress(ProgressUpdate {
                        done: 1.0,
                        total: None,
                        message: Some("half".to_owned()),
                        params: None,
                    }));
                    time::sleep(Duration::from_secs(30)).await;
                    Ok(text_output("done"))
                }
                TaskBehaviour::Refuse => {
                    time::sleep(Duration::from_secs(1)).await;
                    let data = Some(RawJson::from(json!({"day": "today"})));
                    let protocol = ProtocolError { code: -32_050, message: "not today".to_owned(), data };
                    Err(CallError::Failed(
                        ToolError::new("MCP error -32050: not today").with_protocol_error(protocol),
                    ))
                }
                TaskBehaviour::Fail => {
                    time::sleep(Duration::from_secs(1)).await;
                    let result = json!({"content": [{"type": "text", "text": "no"}], "isError": true});
                    Ok(Output::result(RawJson::from(result)))
                }
                TaskBehaviour::Ask => {
                    let mut names = Vec::new();
                    for _ in 0..2 {
                        let params = RawJson::from(json!({"message": "Who?"}));
                        let question = InputRequest { method: "elicitation/create".to_owned(), params };
                        let answers = client.ask(InputRequests::from([("who".to_owned(), question)])).await;
                        names.push(match answers {
                            Ok(answers) => answers["who"].to_value()["content"]["name"].to_string(),
                            Err(error) => error.to_string(),
                        });
                    }
                    Ok(text_output(&names.join(", ")))
                }
                TaskBehaviour::Immediate => Ok(text_output("done")),
                TaskBehaviour::Endless => std::future::pending().await,
                TaskBehaviour::Refreshed => {
                    status_requests.requested().await;
                    status_requests.report_running();
                    status_requests.requested().await;
                    Ok(text_output("done"))
                }
            }
        }
        .boxed()
    }
}

/// Returns a gateway to such tools, and the number of their running calls.
async fn start_gateway() -> (Runtime, Gateway, Arc<AtomicUsize>) {
    let n_running = Arc::new(AtomicUsize::new(0));
    let tool = |name: &'static str, behaviour: TaskBehaviour| {
        let support = if name == "slow" { "required" } else { "optional" };
        let definition = json!({
            "name": name, "inputSchema": {"type": "object"}, "execution": {"taskSupport": support},
        });
        let handler = TaskTool { behaviour, n_running: Arc::clone(&n_running) };
        ToolEntry::from_handler(name, "", Arc::new(handler))
            .with_input_schema(json!({"type": "object"}))
            .with_definition(RawJson::from(definition))
    };
    let tools = [
        tool("slow", TaskBehaviour::Slow),
        tool("refuse", TaskBehaviour::Refuse),
        tool("fail", TaskBehaviour::Fail),
        tool("ask", TaskBehaviour::Ask),
        tool("immediate", TaskBehaviour::Immediate),
        tool("endless", TaskBehaviour::Endless),
        tool("refreshed", TaskBehaviour::Refreshed),
        crate::fixture::echo_tool("s", "plain"),
    ];
    let runtime = Runtime::builder()
        .settings(serde_json::from_value(json!({"toolTimeout": "5m"})).unwrap())
        .toolbox("t", "")
        .provide("s", mcp_server(tools))
        .start()
        .await
        .unwrap();
    let gateway = gateway(&runtime, json!({"expose": "flat"}));
    (runtime, gateway, n_running)
}

/// A stateless client with task support.
async fn task_client(gateway: &Gateway) -> (McpClient, Arc<ClientRecorder>) {
    let extension = json!({"io.modelcontextprotocol/tasks": {}});
    let capabilities = json!({"elicitation": {}, "extensions": extension});
    connect_as(gateway, None, Era::Stateless, "taker", capabilities).await
}

async fn ask(client: &McpClient, method: &str, params: Value) -> Result<Value, RpcError> {
    let sent = client.request(method, Some(RawJson::from(params)), RequestOptions::default()).await;
    match sent.unwrap().response().await {
        Ok(result) => Ok(result.without("_meta").to_value()),
        Err(RequestError::Rpc(error)) => Err(error),
        Err(failure) => panic!("{failure}"),
    }
}

/// Calls a tool as a task; returns the task id.
async fn start_task(client: &McpClient, tool: &str) -> String {
    let params = json!({"name": tool, "arguments": {}, "task": {"ttl": 600_000}});
    let created = ask(client, "tools/call", params).await.unwrap();
    let task = if created["task"].is_object() { &created["task"] } else { &created };
    assert_eq!(task["status"], "working", "{created}");
    task["taskId"].as_str().unwrap_or_else(|| panic!("{created}")).to_owned()
}

async fn get(client: &McpClient, id: &str) -> Result<Value, RpcError> {
    ask(client, "tasks/get", json!({"taskId": id})).await
}

/// Polls a task until it has this status.
async fn wait_for_status(client: &McpClient, id: &str, status: &str) -> Value {
    let waiting = async {
        loop {
            let task = get(client, id).await.unwrap();
            if task["status"] == status {
                return task;
            }
            time::sleep(Duration::from_millis(200)).await;
        }
    };
    time::timeout(Duration::from_mins(5), waiting).await.unwrap()
}

/// A task without ids and timestamps.
fn without_ids(mut task: Value) -> Value {
    let one = if task["task"].is_object() { &mut task["task"] } else { &mut task };
    for name in ["taskId", "createdAt", "lastUpdatedAt"] {
        assert!(one[name].is_string(), "{one}");
        one.as_object_mut().unwrap().shift_remove(name);
    }
    task
}

fn error_of(answer: Result<Value, RpcError>) -> (i64, String) {
    let error = answer.unwrap_err();
    (error.code, error.message)
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ends_at_once_is_still_a_task() {
    let (_runtime, gateway, _) = start_gateway().await;
    let (client, _) = task_client(&gateway).await;
    let id = start_task(&client, "s__immediate").await;
    let task = wait_for_status(&client, &id, "completed").await;
    assert_eq!(text(&task["result"]), "done");
    // A client without task support gets the result.
    let (client, _) = connect(&gateway, None, Era::Stateless).await;
    let result = ask(&client, "tools/call", json!({"name": "s__immediate", "arguments": {}})).await.unwrap();
    assert_eq!((&result["resultType"], text(&result)), (&json!("complete"), "done".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_stateless_client_gets_a_task_if_the_server_creates_one() {
    let (_runtime, gateway, _) = start_gateway().await;
    let (client, _) = task_client(&gateway).await;
    let created = ask(&client, "tools/call", json!({"name": "s__slow", "arguments": {}})).await.unwrap();
    let id = created["taskId"].as_str().unwrap().to_owned();
    insta::assert_snapshot!(without_ids(created), @r#"{"status":"working","ttlMs":600000,"pollIntervalMs":200,"resultType":"task"}"#);
    insta::assert_snapshot!(without_ids(get(&client, &id).await.unwrap()), @r#"{"status":"working","statusMessage":"queued","ttlMs":600000,"pollIntervalMs":200,"resultType":"complete"}"#);
    time::sleep(Duration::from_secs(40)).await;
    assert_eq!(get(&client, &id).await.unwrap()["statusMessage"], "half");
    insta::assert_snapshot!(without_ids(wait_for_status(&client, &id, "completed").await), @r#"{"status":"completed","ttlMs":600000,"pollIntervalMs":200,"result":{"content":[{"type":"text","text":"done"}]},"resultType":"complete"}"#);
    // The result is available until the task expires.
    time::sleep(Duration::from_mins(8)).await;
    assert_eq!(get(&client, &id).await.unwrap()["status"], "completed");
    time::sleep(Duration::from_mins(1)).await;
    assert_eq!(
        error_of(get(&client, &id).await),
        (
            -32_602,
            "Invalid params: unknown task: it may have expired, or the gateway was restarted".to_owned()
        )
    );
    // Without a task of the server there is none.
    let plain = ask(&client, "tools/call", json!({"name": "s__plain", "arguments": {}})).await.unwrap();
    assert_eq!((&plain["resultType"], text(&plain)), (&json!("complete"), "s/plain {}".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_session_client_gets_a_task_on_request() {
    let (_runtime, gateway, _) = start_gateway().await;
    let (client, notifications) = connect(&gateway, None, Era::Session).await;
    let params = json!({"name": "s__slow", "arguments": {}, "task": {"ttl": 120_000}});
    let created = ask(&client, "tools/call", params).await.unwrap();
    let id = created["task"]["taskId"].as_str().unwrap().to_owned();
    insta::assert_snapshot!(without_ids(created), @r#"{"task":{"status":"working","ttl":120000,"pollInterval":1000}}"#);
    insta::assert_snapshot!(without_ids(get(&client, &id).await.unwrap()), @r#"{"status":"working","ttl":120000,"pollInterval":1000}"#);
    notifications.take();
    let result = client.call("tasks/result", Some(RawJson::from(json!({"taskId": id})))).await.unwrap();
    let result = result.to_value();
    let related = &result["_meta"]["io.modelcontextprotocol/related-task"]["taskId"];
    assert_eq!((text(&result), related), ("done".to_owned(), &json!(id)));
    assert_eq!(notifications.next().await, "notifications/tasks/status");
    insta::assert_snapshot!(without_ids(get(&client, &id).await.unwrap()), @r#"{"status":"completed","ttl":120000,"pollInterval":1000}"#);
    let listed = ask(&client, "tasks/list", json!({})).await.unwrap();
    assert_eq!(listed["tasks"][0]["taskId"], json!(id));
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_without_task_support_gets_the_result() {
    let (_runtime, gateway, _) = start_gateway().await;
    for era in [Era::Session, Era::Stateless] {
        let (client, _) = connect(&gateway, None, era).await;
        for (tool, expected) in
            [("s__slow", "done"), ("s__fail", "isError: no"), ("s__ask", r#""Ada", "Ada""#)]
        {
            let params = RawJson::from(json!({"name": tool, "arguments": {}}));
            let result = client.call("tools/call", Some(params)).await.unwrap().to_value();
            assert_eq!(text(&result), expected, "{era:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_has_the_outcome_of_its_call() {
    let (_runtime, gateway, _) = start_gateway().await;
    let (client, _) = task_client(&gateway).await;
    let id = start_task(&client, "s__refuse").await;
    insta::assert_snapshot!(without_ids(wait_for_status(&client, &id, "failed").await), @r#"{"status":"failed","statusMessage":"not today","ttlMs":600000,"pollIntervalMs":200,"error":{"code":-32050,"message":"not today","data":{"day":"today"}},"resultType":"complete"}"#);
    let id = start_task(&client, "s__fail").await;
    insta::assert_snapshot!(without_ids(wait_for_status(&client, &id, "completed").await), @r#"{"status":"completed","ttlMs":600000,"pollIntervalMs":200,"result":{"content":[{"type":"text","text":"no"}],"isError":true},"resultType":"complete"}"#);

    let (client, _) = connect(&gateway, None, Era::Session).await;
    let id = start_task(&client, "s__refuse").await;
    insta::assert_snapshot!(without_ids(wait_for_status(&client, &id, "failed").await), @r#"{"status":"failed","statusMessage":"not today","ttl":600000,"pollInterval":1000}"#);
    let error = ask(&client, "tasks/result", json!({"taskId": id})).await.unwrap_err();
    assert_eq!((error.code, &*error.message), (-32_050, "not today"));
    assert_eq!(error.data.unwrap().as_str(), r#"{"day":"today"}"#);
    let id = start_task(&client, "s__fail").await;
    insta::assert_snapshot!(without_ids(wait_for_status(&client, &id, "failed").await), @r#"{"status":"failed","statusMessage":"no","ttl":600000,"pollInterval":1000}"#);
    let result = ask(&client, "tasks/result", json!({"taskId": id})).await.unwrap();
    assert_eq!(text(&result), "isError: no");
}

#[tokio::test(start_paused = true)]
async fn a_task_requests_input_and_continues() {
    let (_runtime, gateway, _) = start_gateway().await;
    let (client, _) = task_client(&gateway).await;
    let id = start_task(&client, "s__ask").await;
    let task = wait_for_status(&client, &id, "input_required").await;
    assert_eq!(
        task["inputRequests"].to_string(),
        r#"{"who":{"method":"elicitation/create","params":{"message":"Who?"}}}"#
    );
    let answer = |name: &str, key: &str| {
        let answers = json!({key: {"action": "accept", "content": {"name": name}}, "nobody": {}});
        json!({"taskId": id, "inputResponses": answers})
    };
    // A task may wait longer for an answer than an ordinary call.
    time::sleep(Duration::from_mins(6)).await;
    assert_eq!(
        ask(&client, "tasks/update", answer("Ann", "who")).await.unwrap(),
        json!({"resultType": "complete"})
    );
    time::sleep(Duration::from_secs(1)).await;
    // A key is never reused.
    let task = wait_for_status(&client, &id, "input_required").await;
    let names: Vec<&String> = task["inputRequests"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["who#1"]);
    ask(&client, "tasks/update", answer("Eve", "who")).await.unwrap();
    ask(&client, "tasks/update", answer("Bob", "who#1")).await.unwrap();
    let done = wait_for_status(&client, &id, "completed").await;
    assert_eq!(text(&done["result"]), r#""Ann", "Bob""#);

    let (client, _) = connect(&gateway, None, Era::Session).await;
    let id = start_task(&client, "s__ask").await;
    wait_for_status(&client, &id, "input_required").await;
    let result = ask(&client, "tasks/result", json!({"taskId": id})).await.unwrap();
    assert_eq!(text(&result), r#""Ada", "Ada""#);
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_task_cancels_its_call() {
    let (_runtime, gateway, n_running) = start_gateway().await;
    let (task_client, _) = task_client(&gateway).await;
    let (session, _) = connect(&gateway, None, Era::Session).await;
    for (client, is_session) in [(&task_client, false), (&session, true)] {
        let id = start_task(client, "s__endless").await;
        crate::fixture::wait_until(|| n_running.load(Ordering::SeqCst) == 1).await;
        let cancel = || ask(client, "tasks/cancel", json!({"taskId": id}));
        let cancelled = cancel().await.unwrap();
        crate::fixture::wait_until(|| n_running.load(Ordering::SeqCst) == 0).await;
        assert_eq!(get(client, &id).await.unwrap()["status"], "cancelled");
        if is_session {
            assert_eq!(cancelled["status"], "cancelled");
            let over = "Invalid params: the task has already ended with status 'cancelled'";
            assert_eq!(error_of(cancel().await), (-32_602, over.to_owned()));
            let result = ask(client, "tasks/result", json!({"taskId": id})).await;
            assert_eq!(error_of(result), (-32_603, "the task was cancelled".to_owned()));
        } else {
            assert_eq!(cancelled, json!({"resultType": "complete"}));
            assert_eq!(cancel().await.unwrap(), cancelled);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_task_is_cancelled_and_removed() {
    let (_runtime, gateway, n_running) = start_gateway().await;
    let (task_client, _) = task_client(&gateway).await;
    let (session, _) = connect(&gateway, None, Era::Session).await;
    for client in [&task_client, &session] {
        let id = start_task(client, "s__endless").await;
        time::sleep(Duration::from_mins(9)).await;
        assert_eq!(get(client, &id).await.unwrap()["status"], "working");
        assert_eq!(n_running.load(Ordering::SeqCst), 1);
        time::sleep(Duration::from_mins(2)).await;
        assert_eq!(n_running.load(Ordering::SeqCst), 0);
        assert_eq!(error_of(get(client, &id).await).0, -32_602);
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_are_private_to_their_owner() {
    let (_runtime, gateway, n_running) = start_gateway().await;
    let (task_client, _) = task_client(&gateway).await;
    let (ann, _) = connect(&gateway, None, Era::Session).await;
    let (bob, _) = connect(&gateway, None, Era::Session).await;
    let (id_of_task_client, id_of_ann) =
        (start_task(&task_client, "s__endless").await, start_task(&ann, "s__endless").await);
    for (client, id) in [(&bob, &id_of_ann), (&task_client, &id_of_ann), (&ann, &id_of_task_client)] {
        for method in ["tasks/get", "tasks/cancel"] {
            assert_eq!(error_of(ask(client, method, json!({"taskId": id})).await).0, -32_602, "{method}");
        }
    }
    assert_eq!(ask(&bob, "tasks/list", json!({})).await.unwrap(), json!({"tasks": []}));
    assert_eq!(error_of(ask(&bob, "tasks/list", json!({"cursor": id_of_ann})).await).0, -32_602);
    // The tasks of a session end with it.
    drop(ann);
    crate::fixture::wait_until(|| n_running.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test(start_paused = true)]
async fn task_methods_need_the_extension() {
    let (_runtime, gateway, _) = start_gateway().await;
    let (client, _) = connect(&gateway, None, Era::Stateless).await;
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let error = ask(&client, method, json!({"taskId": "x", "inputResponses": {}})).await.unwrap_err();
        assert_eq!(error.code, -32_021, "{method}");
        let data = r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
        assert_eq!(error.data.unwrap().as_str(), data);
    }
    let (task_client, _) = task_client(&gateway).await;
    let (session, _) = connect(&gateway, None, Era::Session).await;
    // Each form has its own methods.
    for (client, method) in
        [(&task_client, "tasks/list"), (&task_client, "tasks/result"), (&session, "tasks/update")]
    {
        assert_eq!(error_of(ask(client, method, json!({"taskId": "x"})).await).0, -32_601, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_without_task_support_is_rejected() {
    let (_runtime, gateway, _) = start_gateway().await;
    let (client, _) = connect(&gateway, None, Era::Session).await;
    for tool in ["s__plain", "use_tool", "nothing"] {
        let answer = ask(&client, "tools/call", json!({"name": tool, "arguments": {}, "task": {}})).await;
        let text = "this tool does not support tasks; call it without `task`";
        assert_eq!(error_of(answer), (-32_601, text.to_owned()), "{tool}");
    }
    for task in [json!(true), json!({"ttl": "long"}), json!({"ttl": -1})] {
        let answer = ask(&client, "tools/call", json!({"name": "s__slow", "task": task})).await;
        assert_eq!(error_of(answer).0, -32_602, "{task}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_number_of_tasks_is_limited() {
    let (_runtime, gateway, _) = start_gateway().await;
    let (session, _) = connect(&gateway, None, Era::Session).await;
    for _ in 0..100 {
        start_task(&session, "s__ask").await;
    }
    let params = json!({"name": "s__slow", "arguments": {}, "task": {}});
    let text = "too many tasks; retry when one has expired, or call without `task`";
    assert_eq!(error_of(ask(&session, "tools/call", params).await), (-32_603, text.to_owned()));
    let (task_client, _) = task_client(&gateway).await;
    for _ in 0..900 {
        start_task(&task_client, "s__ask").await;
    }
    // A client that did not request a task waits for the result instead.
    let result = ask(&task_client, "tools/call", json!({"name": "s__slow", "arguments": {}})).await.unwrap();
    assert_eq!(
        (&result["resultType"], crate::fixture::text(&result)),
        (&json!("complete"), "done".to_owned())
    );
    let page = ask(&session, "tasks/list", json!({})).await.unwrap();
    assert_eq!((page["tasks"].as_array().unwrap().len(), &page["nextCursor"]), (100, &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn subscribers_are_notified_of_task_changes() {
    let (_runtime, gateway, _) = start_gateway().await;
    let (client, notifications) = task_client(&gateway).await;
    let id = start_task(&client, "s__slow").await;
    let other = start_task(&client, "s__refuse").await;
    let filter = RawJson::from(json!({"notifications": {"taskIds": [id]}}));
    let listening = client.request("subscriptions/listen", Some(filter), RequestOptions::default()).await;
    assert_eq!(notifications.next().await, "notifications/subscriptions/acknowledged");
    let notification = time::timeout(Duration::from_mins(5), notifications.next()).await.unwrap();
    let task: Value =
        serde_json::from_str(notification.strip_prefix("notifications/tasks ").unwrap()).unwrap();
    assert_eq!((&task["taskId"], &task["status"]), (&json!(id), &json!("completed")));
    assert_eq!(text(&task["result"]), "done");
    drop(listening);
    assert_eq!(get(&client, &other).await.unwrap()["status"], "failed");
}

#[tokio::test]
async fn each_era_advertises_tasks_in_its_own_form() {
    let (_runtime, gateway, _) = start_gateway().await;
    let (session, _) = connect(&gateway, None, Era::Session).await;
    let session_capabilities = session.server().capabilities.to_value();
    assert_eq!(
        session_capabilities["tasks"].to_string(),
        r#"{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#
    );
    let (stateless, _) = connect(&gateway, None, Era::Stateless).await;
    let capabilities = stateless.server().capabilities.to_value();
    assert_eq!(capabilities["extensions"].to_string(), r#"{"io.modelcontextprotocol/tasks":{}}"#);
    assert_eq!((session_capabilities.get("extensions"), capabilities.get("tasks")), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_tool_called_through_a_meta_tool_becomes_a_task() {
    let (_runtime, gateway, _) = start_gateway().await;
    let capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let (client, _) = connect_as(&gateway, Some("meta"), Era::Stateless, "taker", capabilities).await;
    let tool = json!({"tool": {"toolbox": "t", "server": "s", "name": "slow"}});
    let calls = json!({"calls": [{"id": 1, "tool": "s__slow", "parameters": {}}]});
    for (name, arguments) in [("use_tool", tool), ("batch", calls)] {
        let params = json!({"name": name, "arguments": arguments});
        let created = ask(&client, "tools/call", params).await.unwrap();
        assert_eq!(created["resultType"], "task", "{created}");
        let done = wait_for_status(&client, created["taskId"].as_str().unwrap(), "completed").await;
        assert!(text(&done["result"]).contains("done"), "{done}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_task_is_that_of_the_server() {
    let (_runtime, gateway, _) = start_gateway().await;
    let (session, _) = connect(&gateway, None, Era::Session).await;
    for client in [session, task_client(&gateway).await.0] {
        let id = start_task(&client, "s__refreshed").await;
        wait_for_status(&client, &id, "completed").await;
    }
}
