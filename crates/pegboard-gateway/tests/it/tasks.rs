//! Calls that clients have kept as tasks, in both forms.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::ValidCall;
use pegboard_core::client::{Notice, Progress, Question, Questions};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, ProtocolError, ToolError};
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::task::ServerTask;
use pegboard_gateway::Gateway;
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use pegboard_wire::client::{Client, Era, RequestOptions};
use pegboard_wire::{Failure, RpcError};
use serde_json::{Value, json};
use tokio::time::{self, Duration};

use crate::stage::{Ears, connect, connect_as, gateway, mcp, said, text};

/// A tool whose server makes a task of every call, for ten minutes.
struct Tasked {
    does: Does,
    n_under_way: Arc<AtomicUsize>,
}

#[derive(Clone, Copy)]
enum Does {
    /// Takes a minute.
    Slow,
    /// Refuses in the words of the protocol.
    Refuse,
    /// Answers that it could not do it.
    Fail,
    /// Asks for a name, twice.
    Ask,
    /// Goes on for ever.
    Endless,
}

struct UnderWay<'t>(&'t AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Handler for Tasked {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            self.n_under_way.fetch_add(1, Ordering::SeqCst);
            let _under_way = UnderWay(&self.n_under_way);
            let client = call.context().client();
            client.notify(Notice::Task(ServerTask {
                time_to_live: Some(Duration::from_mins(10)),
                poll_interval: Some(Duration::from_millis(200)),
                message: Some("queued".to_owned()),
            }));
            match self.does {
                Does::Slow => {
                    time::sleep(Duration::from_secs(30)).await;
                    let message = Some("half".to_owned());
                    client.notify(Notice::Progress(Progress { done: 1.0, total: None, message }));
                    time::sleep(Duration::from_secs(30)).await;
                    Ok(said("done"))
                }
                Does::Refuse => {
                    time::sleep(Duration::from_secs(1)).await;
                    let data = Some(RawJson::from(json!({"day": "today"})));
                    let protocol = ProtocolError { code: -32_050, message: "not today".to_owned(), data };
                    Err(CallError::Failed(ToolError::new("MCP error -32050: not today").refused(protocol)))
                }
                Does::Fail => {
                    time::sleep(Duration::from_secs(1)).await;
                    let result = json!({"content": [{"type": "text", "text": "no"}], "isError": true});
                    Ok(Output::result(RawJson::from(result)))
                }
                Does::Ask => {
                    let mut names = Vec::new();
                    for _ in 0..2 {
                        let params = RawJson::from(json!({"message": "Who?"}));
                        let question = Question { method: "elicitation/create".to_owned(), params };
                        let answers = client.ask(Questions::from([("who".to_owned(), question)])).await;
                        names.push(match answers {
                            Ok(answers) => answers["who"].to_value()["content"]["name"].to_string(),
                            Err(error) => error.to_string(),
                        });
                    }
                    Ok(said(&names.join(", ")))
                }
                Does::Endless => std::future::pending().await,
            }
        }
        .boxed()
    }
}

/// A gateway to such tools, and how many of their calls are under way.
async fn stage() -> (Runtime, Gateway, Arc<AtomicUsize>) {
    let n_under_way = Arc::new(AtomicUsize::new(0));
    let tool = |name: &'static str, does: Does| {
        let support = if name == "slow" { "required" } else { "optional" };
        let definition = json!({
            "name": name, "inputSchema": {"type": "object"}, "execution": {"taskSupport": support},
        });
        let handler = Tasked { does, n_under_way: Arc::clone(&n_under_way) };
        ToolEntry::from_handler(name, "", Arc::new(handler))
            .with_input_schema(json!({"type": "object"}))
            .with_definition(RawJson::from(definition))
    };
    let tools = [
        tool("slow", Does::Slow),
        tool("refuse", Does::Refuse),
        tool("fail", Does::Fail),
        tool("ask", Does::Ask),
        tool("endless", Does::Endless),
        crate::stage::tells("s", "plain"),
    ];
    let runtime = Runtime::builder()
        .settings(serde_json::from_value(json!({"toolTimeout": "5m"})).unwrap())
        .toolbox("t", "")
        .provide("s", mcp(tools))
        .start()
        .await
        .unwrap();
    let gateway = gateway(&runtime, json!({"expose": "flat"}));
    (runtime, gateway, n_under_way)
}

/// A client without a session that takes tasks.
async fn taker(gateway: &Gateway) -> (Client, Arc<Ears>) {
    let extension = json!({"io.modelcontextprotocol/tasks": {}});
    let capabilities = json!({"elicitation": {}, "extensions": extension});
    connect_as(gateway, None, Era::Stateless, "taker", capabilities).await
}

async fn ask(client: &Client, method: &str, params: Value) -> Result<Value, RpcError> {
    let sent = client.request(method, Some(RawJson::from(params)), RequestOptions::default()).await;
    match sent.unwrap().answer().await {
        Ok(result) => Ok(result.without("_meta").to_value()),
        Err(Failure::Refused(error)) => Err(error),
        Err(failure) => panic!("{failure}"),
    }
}

/// Calls a tool of which a task is made, and gives its id.
async fn begin(client: &Client, tool: &str) -> String {
    let params = json!({"name": tool, "arguments": {}, "task": {"ttl": 600_000}});
    let created = ask(client, "tools/call", params).await.unwrap();
    let task = if created["task"].is_object() { &created["task"] } else { &created };
    assert_eq!(task["status"], "working", "{created}");
    task["taskId"].as_str().unwrap_or_else(|| panic!("{created}")).to_owned()
}

async fn get(client: &Client, id: &str) -> Result<Value, RpcError> {
    ask(client, "tasks/get", json!({"taskId": id})).await
}

/// The task, once it is in this state.
async fn become_(client: &Client, id: &str, status: &str) -> Value {
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

/// A task without what differs from one to the next.
fn plain(mut task: Value) -> Value {
    let one = if task["task"].is_object() { &mut task["task"] } else { &mut task };
    for name in ["taskId", "createdAt", "lastUpdatedAt"] {
        assert!(one[name].is_string(), "{one}");
        one.as_object_mut().unwrap().shift_remove(name);
    }
    task
}

fn code(answer: Result<Value, RpcError>) -> (i64, String) {
    let error = answer.unwrap_err();
    (error.code, error.message)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_tasks_is_given_one_where_a_server_makes_one() {
    let (_runtime, gateway, _) = stage().await;
    let (client, _) = taker(&gateway).await;
    let created = ask(&client, "tools/call", json!({"name": "s__slow", "arguments": {}})).await.unwrap();
    let id = created["taskId"].as_str().unwrap().to_owned();
    insta::assert_snapshot!(plain(created), @r#"{"status":"working","ttlMs":600000,"pollIntervalMs":200,"resultType":"task"}"#);
    insta::assert_snapshot!(plain(get(&client, &id).await.unwrap()), @r#"{"status":"working","statusMessage":"queued","ttlMs":600000,"pollIntervalMs":200,"resultType":"complete"}"#);
    time::sleep(Duration::from_secs(40)).await;
    assert_eq!(get(&client, &id).await.unwrap()["statusMessage"], "half");
    insta::assert_snapshot!(plain(become_(&client, &id, "completed").await), @r#"{"status":"completed","ttlMs":600000,"pollIntervalMs":200,"result":{"content":[{"type":"text","text":"done"}]},"resultType":"complete"}"#);
    // The result stays for as long as the task is kept.
    time::sleep(Duration::from_mins(8)).await;
    assert_eq!(get(&client, &id).await.unwrap()["status"], "completed");
    time::sleep(Duration::from_mins(1)).await;
    assert_eq!(
        code(get(&client, &id).await),
        (
            -32_602,
            "Invalid params: there is no such task: it may have expired, or this process was started anew"
                .to_owned()
        )
    );
    // Where no server makes one there is none.
    let plain = ask(&client, "tools/call", json!({"name": "s__plain", "arguments": {}})).await.unwrap();
    assert_eq!((&plain["resultType"], text(&plain)), (&json!("complete"), "s/plain {}".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_client_with_a_session_has_a_task_where_it_asks_for_one() {
    let (_runtime, gateway, _) = stage().await;
    let (client, heard) = connect(&gateway, None, Era::Session).await;
    let params = json!({"name": "s__slow", "arguments": {}, "task": {"ttl": 120_000}});
    let created = ask(&client, "tools/call", params).await.unwrap();
    let id = created["task"]["taskId"].as_str().unwrap().to_owned();
    insta::assert_snapshot!(plain(created), @r#"{"task":{"status":"working","ttl":120000,"pollInterval":1000}}"#);
    insta::assert_snapshot!(plain(get(&client, &id).await.unwrap()), @r#"{"status":"working","ttl":120000,"pollInterval":1000}"#);
    heard.take();
    let result = client.call("tasks/result", Some(RawJson::from(json!({"taskId": id})))).await.unwrap();
    let result = result.to_value();
    let related = &result["_meta"]["io.modelcontextprotocol/related-task"]["taskId"];
    assert_eq!((text(&result), related), ("done".to_owned(), &json!(id)));
    assert_eq!(heard.next().await, "notifications/tasks/status");
    insta::assert_snapshot!(plain(get(&client, &id).await.unwrap()), @r#"{"status":"completed","ttl":120000,"pollInterval":1000}"#);
    let listed = ask(&client, "tasks/list", json!({})).await.unwrap();
    assert_eq!(listed["tasks"][0]["taskId"], json!(id));
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_no_tasks_gets_the_end() {
    let (_runtime, gateway, _) = stage().await;
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
async fn a_task_ends_as_its_call_does() {
    let (_runtime, gateway, _) = stage().await;
    let (client, _) = taker(&gateway).await;
    let id = begin(&client, "s__refuse").await;
    insta::assert_snapshot!(plain(become_(&client, &id, "failed").await), @r#"{"status":"failed","statusMessage":"not today","ttlMs":600000,"pollIntervalMs":200,"error":{"code":-32050,"message":"not today","data":{"day":"today"}},"resultType":"complete"}"#);
    let id = begin(&client, "s__fail").await;
    insta::assert_snapshot!(plain(become_(&client, &id, "completed").await), @r#"{"status":"completed","ttlMs":600000,"pollIntervalMs":200,"result":{"content":[{"type":"text","text":"no"}],"isError":true},"resultType":"complete"}"#);

    let (client, _) = connect(&gateway, None, Era::Session).await;
    let id = begin(&client, "s__refuse").await;
    insta::assert_snapshot!(plain(become_(&client, &id, "failed").await), @r#"{"status":"failed","statusMessage":"not today","ttl":600000,"pollInterval":1000}"#);
    let error = ask(&client, "tasks/result", json!({"taskId": id})).await.unwrap_err();
    assert_eq!((error.code, &*error.message), (-32_050, "not today"));
    assert_eq!(error.data.unwrap().as_str(), r#"{"day":"today"}"#);
    let id = begin(&client, "s__fail").await;
    insta::assert_snapshot!(plain(become_(&client, &id, "failed").await), @r#"{"status":"failed","statusMessage":"no","ttl":600000,"pollInterval":1000}"#);
    let result = ask(&client, "tasks/result", json!({"taskId": id})).await.unwrap();
    assert_eq!(text(&result), "isError: no");
}

#[tokio::test(start_paused = true)]
async fn a_task_asks_its_client_and_goes_on_with_the_answers() {
    let (_runtime, gateway, _) = stage().await;
    let (client, _) = taker(&gateway).await;
    let id = begin(&client, "s__ask").await;
    let asked = become_(&client, &id, "input_required").await;
    assert_eq!(
        asked["inputRequests"].to_string(),
        r#"{"who":{"method":"elicitation/create","params":{"message":"Who?"}}}"#
    );
    let answer = |name: &str, key: &str| {
        let answers = json!({key: {"action": "accept", "content": {"name": name}}, "nobody": {}});
        json!({"taskId": id, "inputResponses": answers})
    };
    // An answer may take longer than a question of an ordinary call would wait.
    time::sleep(Duration::from_mins(6)).await;
    assert_eq!(
        ask(&client, "tasks/update", answer("Ann", "who")).await.unwrap(),
        json!({"resultType": "complete"})
    );
    time::sleep(Duration::from_secs(1)).await;
    // What was answered once is never asked again under its name.
    let asked = become_(&client, &id, "input_required").await;
    let names: Vec<&String> = asked["inputRequests"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["who#1"]);
    ask(&client, "tasks/update", answer("Eve", "who")).await.unwrap();
    ask(&client, "tasks/update", answer("Bob", "who#1")).await.unwrap();
    let done = become_(&client, &id, "completed").await;
    assert_eq!(text(&done["result"]), r#""Ann", "Bob""#);

    let (client, _) = connect(&gateway, None, Era::Session).await;
    let id = begin(&client, "s__ask").await;
    become_(&client, &id, "input_required").await;
    let result = ask(&client, "tasks/result", json!({"taskId": id})).await.unwrap();
    assert_eq!(text(&result), r#""Ada", "Ada""#);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_called_off_ends_its_call() {
    let (_runtime, gateway, n_under_way) = stage().await;
    let (taker, _) = taker(&gateway).await;
    let (session, _) = connect(&gateway, None, Era::Session).await;
    for (client, is_session) in [(&taker, false), (&session, true)] {
        let id = begin(client, "s__endless").await;
        crate::stage::until(|| n_under_way.load(Ordering::SeqCst) == 1).await;
        let cancel = || ask(client, "tasks/cancel", json!({"taskId": id}));
        let cancelled = cancel().await.unwrap();
        crate::stage::until(|| n_under_way.load(Ordering::SeqCst) == 0).await;
        assert_eq!(get(client, &id).await.unwrap()["status"], "cancelled");
        if is_session {
            assert_eq!(cancelled["status"], "cancelled");
            let over = "Invalid params: the task is over already, with status 'cancelled'";
            assert_eq!(code(cancel().await), (-32_602, over.to_owned()));
            let result = ask(client, "tasks/result", json!({"taskId": id})).await;
            assert_eq!(code(result), (-32_603, "The task was cancelled".to_owned()));
        } else {
            assert_eq!(cancelled, json!({"resultType": "complete"}));
            assert_eq!(cancel().await.unwrap(), cancelled);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_expires_ends_its_call_and_is_forgotten() {
    let (_runtime, gateway, n_under_way) = stage().await;
    let (taker, _) = taker(&gateway).await;
    let (session, _) = connect(&gateway, None, Era::Session).await;
    for client in [&taker, &session] {
        let id = begin(client, "s__endless").await;
        time::sleep(Duration::from_mins(9)).await;
        assert_eq!(get(client, &id).await.unwrap()["status"], "working");
        assert_eq!(n_under_way.load(Ordering::SeqCst), 1);
        time::sleep(Duration::from_mins(2)).await;
        assert_eq!(n_under_way.load(Ordering::SeqCst), 0);
        assert_eq!(code(get(client, &id).await).0, -32_602);
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_finds_the_task_of_another() {
    let (_runtime, gateway, n_under_way) = stage().await;
    let (taker, _) = taker(&gateway).await;
    let (ann, _) = connect(&gateway, None, Era::Session).await;
    let (bob, _) = connect(&gateway, None, Era::Session).await;
    let (of_taker, of_ann) = (begin(&taker, "s__endless").await, begin(&ann, "s__endless").await);
    for (client, id) in [(&bob, &of_ann), (&taker, &of_ann), (&ann, &of_taker)] {
        for method in ["tasks/get", "tasks/cancel"] {
            assert_eq!(code(ask(client, method, json!({"taskId": id})).await).0, -32_602, "{method}");
        }
    }
    assert_eq!(ask(&bob, "tasks/list", json!({})).await.unwrap(), json!({"tasks": []}));
    assert_eq!(code(ask(&bob, "tasks/list", json!({"cursor": of_ann})).await).0, -32_602);
    // Whoever leaves leaves nothing behind.
    drop(ann);
    crate::stage::until(|| n_under_way.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test(start_paused = true)]
async fn who_does_not_take_tasks_is_told_so() {
    let (_runtime, gateway, _) = stage().await;
    let (client, _) = connect(&gateway, None, Era::Stateless).await;
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let error = ask(&client, method, json!({"taskId": "x", "inputResponses": {}})).await.unwrap_err();
        assert_eq!(error.code, -32_021, "{method}");
        let data = r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
        assert_eq!(error.data.unwrap().as_str(), data);
    }
    let (taker, _) = taker(&gateway).await;
    let (session, _) = connect(&gateway, None, Era::Session).await;
    // Each form has its own methods.
    for (client, method) in [(&taker, "tasks/list"), (&taker, "tasks/result"), (&session, "tasks/update")] {
        assert_eq!(code(ask(client, method, json!({"taskId": "x"})).await).0, -32_601, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_does_not_run_as_a_task_says_so() {
    let (_runtime, gateway, _) = stage().await;
    let (client, _) = connect(&gateway, None, Era::Session).await;
    for tool in ["s__plain", "use_tool", "nothing"] {
        let answer = ask(&client, "tools/call", json!({"name": tool, "arguments": {}, "task": {}})).await;
        let text = "This tool does not run as a task; call it without `task`";
        assert_eq!(code(answer), (-32_601, text.to_owned()), "{tool}");
    }
    for task in [json!(true), json!({"ttl": "long"}), json!({"ttl": -1})] {
        let answer = ask(&client, "tools/call", json!({"name": "s__slow", "task": task})).await;
        assert_eq!(code(answer).0, -32_602, "{task}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_too_many_tasks_no_more_are_kept() {
    let (_runtime, gateway, _) = stage().await;
    let (session, _) = connect(&gateway, None, Era::Session).await;
    for _ in 0..100 {
        begin(&session, "s__ask").await;
    }
    let params = json!({"name": "s__slow", "arguments": {}, "task": {}});
    let text = "Too many tasks are kept already; try again when one has expired, or call without `task`";
    assert_eq!(code(ask(&session, "tools/call", params).await), (-32_603, text.to_owned()));
    let (taker, _) = taker(&gateway).await;
    for _ in 0..900 {
        begin(&taker, "s__ask").await;
    }
    // Who has not asked for a task waits for the end instead.
    let result = ask(&taker, "tools/call", json!({"name": "s__slow", "arguments": {}})).await.unwrap();
    assert_eq!((&result["resultType"], crate::stage::text(&result)), (&json!("complete"), "done".to_owned()));
    let page = ask(&session, "tasks/list", json!({})).await.unwrap();
    assert_eq!((page["tasks"].as_array().unwrap().len(), &page["nextCursor"]), (100, &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn who_listens_hears_what_becomes_of_a_task() {
    let (_runtime, gateway, _) = stage().await;
    let (client, heard) = taker(&gateway).await;
    let id = begin(&client, "s__slow").await;
    let other = begin(&client, "s__refuse").await;
    let wish = RawJson::from(json!({"notifications": {"taskIds": [id]}}));
    let listening = client.request("subscriptions/listen", Some(wish), RequestOptions::default()).await;
    assert_eq!(heard.next().await, "notifications/subscriptions/acknowledged");
    let told = time::timeout(Duration::from_mins(5), heard.next()).await.unwrap();
    let task: Value = serde_json::from_str(told.strip_prefix("notifications/tasks ").unwrap()).unwrap();
    assert_eq!((&task["taskId"], &task["status"]), (&json!(id), &json!("completed")));
    assert_eq!(text(&task["result"]), "done");
    drop(listening);
    assert_eq!(get(&client, &other).await.unwrap()["status"], "failed");
}

#[tokio::test]
async fn each_era_hears_of_tasks_in_its_own_words() {
    let (_runtime, gateway, _) = stage().await;
    let (session, _) = connect(&gateway, None, Era::Session).await;
    let of_session = session.server().capabilities.to_value();
    assert_eq!(
        of_session["tasks"].to_string(),
        r#"{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#
    );
    let (stateless, _) = connect(&gateway, None, Era::Stateless).await;
    let capabilities = stateless.server().capabilities.to_value();
    assert_eq!(capabilities["extensions"].to_string(), r#"{"io.modelcontextprotocol/tasks":{}}"#);
    assert_eq!((of_session.get("extensions"), capabilities.get("tasks")), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_used_by_way_of_another_becomes_a_task_as_well() {
    let (_runtime, gateway, _) = stage().await;
    let capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let (client, _) = connect_as(&gateway, Some("meta"), Era::Stateless, "taker", capabilities).await;
    let tool = json!({"tool": {"toolbox": "t", "server": "s", "name": "slow"}});
    let calls = json!({"calls": [{"id": 1, "tool": "s__slow", "parameters": {}}]});
    for (name, arguments) in [("use_tool", tool), ("batch", calls)] {
        let params = json!({"name": name, "arguments": arguments});
        let created = ask(&client, "tools/call", params).await.unwrap();
        assert_eq!(created["resultType"], "task", "{created}");
        let done = become_(&client, created["taskId"].as_str().unwrap(), "completed").await;
        assert!(text(&done["result"]).contains("done"), "{done}");
    }
}
