//! Notifications and input requests of running tools, and cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{BoxFuture, FutureExt, ready};
use pegboard_core::call::ValidCall;
use pegboard_core::client::{ClientSession, InputRequest, InputRequests, Notice, ProgressUpdate};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, ToolError};
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::settings::RuntimeSettings;
use pegboard_gateway::Gateway;
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use pegboard_wire::ResponseEvent;
use pegboard_wire::client::{Era, McpClient, RequestOptions};
use pegboard_wire::era::LogLevel;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::{self, Duration};

use crate::fixture::{ERAS, call, connect, connect_as, gateway, mcp_server, text, text_output, use_tool};

/// Sends two progress notifications and a log message before it answers.
struct NotifyingTool;

impl Handler for NotifyingTool {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let client = call.context().client();
            let progress = |done, message: Option<&str>| {
                Notice::Progress(ProgressUpdate {
                    done,
                    total: Some(2.0),
                    message: message.map(str::to_owned),
                    params: None,
                })
            };
            client.notify(progress(1.0, Some("half")));
            client.notify(Notice::Log(RawJson::from(json!({"level": "warning", "data": {"n": 1}}))));
            client.notify(progress(2.0, None));
            Ok(text_output("done"))
        }
        .boxed()
    }
}

/// Sends notifications with members that only its server knows.
struct UnusualNotifier;

const UNUSUAL_PROGRESS: &str =
    r#"{"progressToken":"mine", "progress": 1.0,"total":2e0,"own":[1],"_meta":{"a/b":1}}"#;
const UNUSUAL_LOG: &str = r#"{"level":"warning", "data":1.50,"_meta":{"a":{}},"own":null}"#;

impl Handler for UnusualNotifier {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let client = call.context().client();
            let params = Some(RawJson::parse(UNUSUAL_PROGRESS.into()).unwrap());
            let progress = ProgressUpdate { done: 1.0, total: Some(2.0), message: None, params };
            client.notify(Notice::Progress(progress));
            client.notify(Notice::Log(RawJson::parse(UNUSUAL_LOG.into()).unwrap()));
            Ok(text_output("done"))
        }
        .boxed()
    }
}

/// Asks for a name, twice.
struct AskingTool;

impl Handler for AskingTool {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let mut names = Vec::new();
            for _ in 0..2 {
                let params = json!({"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}});
                let question = InputRequest { method: "elicitation/create".to_owned(), params: RawJson::from(params) };
                let answers = call.context().client().ask(InputRequests::from([("who".to_owned(), question)])).await;
                names.push(match answers {
                    Ok(answers) => answers["who"].to_value()["content"]["name"].to_string(),
                    Err(error) => error.to_string(),
                });
            }
            Ok(text_output(&names.join(", ")))
        }
        .boxed()
    }
}

/// Asks two things at once, and gives up as soon as it is refused one.
struct ImpatientTool;

impl Handler for ImpatientTool {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let client = call.context().client();
            let ask = |method: &str, params: Value| {
                let question = InputRequest { method: method.to_owned(), params: RawJson::from(params) };
                client.ask(InputRequests::from([(method.to_owned(), question)]))
            };
            let sampling = ask("sampling/createMessage", json!({"messages": [], "maxTokens": 1}));
            let elicitation = async {
                // The second message of the server arrives a moment later.
                time::sleep(Duration::from_millis(50)).await;
                let schema = json!({"type": "object", "properties": {}});
                ask("elicitation/create", json!({"message": "Who?", "requestedSchema": schema})).await
            };
            let refused = |error| CallError::Failed(ToolError::new(error));
            futures_util::future::try_join(sampling, elicitation).await.map_err(refused)?;
            Ok(text_output("both"))
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_question_does_not_keep_another_from_being_asked() {
    let tool = ToolEntry::from_handler("impatient", "", Arc::new(ImpatientTool))
        .with_input_schema(json!({"type": "object"}));
    let runtime = Runtime::builder().toolbox("t", "").provide("s", mcp_server([tool])).start().await.unwrap();
    let gateway = gateway(&runtime, json!({"expose": "flat"}));
    let ask = async |client: &McpClient, retry: Value| {
        let params = RawJson::from(json!({"name": "s__impatient", "arguments": {}}));
        let params = retry
            .as_object()
            .unwrap()
            .iter()
            .fold(params, |params, (name, value)| params.with(name, &RawJson::from(value.clone())));
        client.request("tools/call", Some(params), RequestOptions::default()).await.unwrap().response().await
    };
    let capabilities = json!({"elicitation": {}});
    let (client, _) = connect_as(&gateway, None, Era::Stateless, "test", capabilities).await;
    let asked = ask(&client, json!({})).await.unwrap().to_value();
    assert_eq!(asked["resultType"], "input_required");
    let names: Vec<&String> = asked["inputRequests"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["elicitation/create"]);
    // The refusal follows the answer.
    let answers = json!({"elicitation/create": {"action": "accept", "content": {}}});
    let retry = json!({"inputResponses": answers, "requestState": asked["requestState"]});
    let error = ask(&client, retry).await.unwrap_err().to_string();
    assert!(error.contains("sampling"), "{error}");
    // Without another question there is nothing to wait for.
    let (client, _) = connect_as(&gateway, None, Era::Stateless, "test", json!({})).await;
    assert!(ask(&client, json!({})).await.is_err());
}

/// Reports progress while its client is asked, and right after the answer.
struct ReportingTool;

impl Handler for ReportingTool {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let client = call.context().client();
            let report = |done| {
                client.notify(Notice::Progress(ProgressUpdate {
                    done,
                    total: None,
                    message: None,
                    params: None,
                }));
            };
            report(1.0);
            let schema = json!({"type": "object", "properties": {}});
            let params = RawJson::from(json!({"message": "Who?", "requestedSchema": schema}));
            let question = InputRequest { method: "elicitation/create".to_owned(), params };
            let asking = client.ask(InputRequests::from([("who".to_owned(), question)]));
            let reporting = async {
                time::sleep(Duration::from_secs(1)).await;
                report(2.0);
            };
            let (answers, ()) = tokio::join!(asking, reporting);
            answers.unwrap();
            report(3.0);
            Ok(text_output("done"))
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn progress_of_a_suspended_call_follows_with_the_answers() {
    let tool = ToolEntry::from_handler("reporter", "", Arc::new(ReportingTool))
        .with_input_schema(json!({"type": "object"}));
    let runtime = Runtime::builder().toolbox("t", "").provide("s", mcp_server([tool])).start().await.unwrap();
    let gateway = gateway(&runtime, json!({"expose": "flat"}));
    let (client, _) = connect_as(&gateway, None, Era::Stateless, "test", json!({"elicitation": {}})).await;
    let call = async |params: Value| {
        let options = RequestOptions { has_progress: true, ..RequestOptions::default() };
        let sent = client.request("tools/call", Some(RawJson::from(params)), options).await;
        let (mut pending, mut progress) = (sent.unwrap(), Vec::new());
        loop {
            match pending.next_event().await {
                ResponseEvent::Notification(notice) => {
                    progress.push(notice.params.unwrap().get("progress").unwrap().as_str().to_owned());
                }
                ResponseEvent::End(end) => return (progress, end.unwrap().to_value()),
            }
        }
    };
    let (progress, asked) = call(json!({"name": "s__reporter", "arguments": {}})).await;
    assert_eq!((progress, &asked["resultType"]), (vec!["1".to_owned()], &json!("input_required")));
    time::sleep(Duration::from_secs(2)).await;
    let answers = json!({"who": {"action": "accept", "content": {}}});
    let state = &asked["requestState"];
    let retry =
        json!({"name": "s__reporter", "arguments": {}, "inputResponses": answers, "requestState": state});
    let (progress, result) = call(retry).await;
    assert_eq!((progress.join(" "), text(&result)), ("2 3".to_owned(), "done".to_owned()));
}

/// Returns the sampling support of its client.
struct SamplingReporter;

impl Handler for SamplingReporter {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move { Ok(text_output(&format!("{:?}", call.context().client().sampling_support()))) }.boxed()
    }
}

/// Runs until it is dropped.
#[derive(Clone, Default)]
struct EndlessTool {
    started: Arc<Notify>,
    dropped: Arc<Notify>,
    n_dropped: Arc<AtomicUsize>,
}

struct DropGuard(EndlessTool);

impl Drop for DropGuard {
    fn drop(&mut self) {
        self.0.n_dropped.fetch_add(1, Ordering::SeqCst);
        self.0.dropped.notify_one();
    }
}

impl Handler for EndlessTool {
    fn call<'a>(&'a self, _call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let _guard = DropGuard(self.clone());
            self.started.notify_one();
            std::future::pending().await
        }
        .boxed()
    }
}

/// Reports the reason with which its caller cancels it.
struct CancelReporter {
    started: Arc<Notify>,
    reasons: mpsc::UnboundedSender<Option<RawJson>>,
}

struct CancelGuard<'c>(&'c CancelReporter, &'c ValidCall);

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        self.0.reasons.send(self.1.context().client().cancel_reason()).unwrap();
    }
}

impl Handler for CancelReporter {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let _guard = CancelGuard(self, call);
            self.started.notify_one();
            std::future::pending().await
        }
        .boxed()
    }
}

#[tokio::test]
async fn a_tool_learns_why_its_client_has_cancelled_it() {
    let (reasons, mut reported) = mpsc::unbounded_channel();
    let started = Arc::new(Notify::new());
    let handler = CancelReporter { started: Arc::clone(&started), reasons };
    let tool =
        ToolEntry::from_handler("wait", "", Arc::new(handler)).with_input_schema(json!({"type": "object"}));
    let runtime = Runtime::builder().toolbox("t", "").provide("s", mcp_server([tool])).start().await.unwrap();
    let gateway = gateway(&runtime, json!({"expose": "flat"}));
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        for reason in ["no need any more", "another one"] {
            let params = RawJson::from(json!({"name": "s__wait", "arguments": {}}));
            let mut pending =
                client.request("tools/call", Some(params), RequestOptions::default()).await.unwrap();
            started.notified().await;
            pending.set_cancel_reason(RawJson::of(reason));
            drop(pending);
            assert_eq!(reported.recv().await, Some(Some(RawJson::of(reason))), "{era:?}");
        }
    }
}

/// Hands over the session of its caller.
struct SessionReporter(mpsc::UnboundedSender<Arc<dyn ClientSession>>);

impl Handler for SessionReporter {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        self.0.send(call.context().client().session().unwrap()).unwrap();
        ready(Ok(text_output("met"))).boxed()
    }
}

#[tokio::test]
async fn a_client_gets_what_belongs_to_no_call_at_its_log_level() {
    let (sessions, mut reported) = mpsc::unbounded_channel();
    let tool = ToolEntry::from_handler("meet", "", Arc::new(SessionReporter(sessions)))
        .with_input_schema(json!({"type": "object"}));
    let runtime = Runtime::builder().toolbox("t", "").provide("s", mcp_server([tool])).start().await.unwrap();
    let gateway = gateway(&runtime, json!({"expose": "flat"}));
    let (client, notifications) = connect(&gateway, None, Era::Session).await;
    call(&client, "s__meet", json!({})).await;
    let session = reported.recv().await.unwrap();
    for (set_level, expected) in [(None, "info"), (Some("error"), "error"), (Some("debug"), "debug")] {
        if let Some(level) = set_level {
            client.call("logging/setLevel", Some(json!({"level": level}).into())).await.unwrap();
        }
        for level in ["debug", "info", "error"] {
            session.notify(Notice::Log(
                RawJson::parse(format!(r#"{{"level":"{level}","data":1.50}}"#).into()).unwrap(),
            ));
        }
        session.notify(Notice::Custom { method: "notifications/acme/tick".into(), params: None });
        let mut received = Vec::new();
        while received.last().is_none_or(|last| last != "notifications/acme/tick") {
            received.push(notifications.next().await);
        }
        assert_eq!(received[0], format!(r#"notifications/message {{"level":"{expected}","data":1.50}}"#));
    }
}

async fn start_gateway(endless: &EndlessTool) -> (Runtime, Gateway) {
    start_gateway_with(endless, RuntimeSettings::default()).await
}

async fn start_gateway_with(endless: &EndlessTool, settings: RuntimeSettings) -> (Runtime, Gateway) {
    let entry = |name: &'static str, handler: Arc<dyn Handler>| {
        ToolEntry::from_handler(name, "", handler).with_input_schema(json!({"type": "object"}))
    };
    let tools = [
        entry("chatty", Arc::new(NotifyingTool)),
        entry("unusual", Arc::new(UnusualNotifier)),
        entry("curious", Arc::new(AskingTool)),
        entry("endless", Arc::new(endless.clone())),
    ];
    let runtime = Runtime::builder()
        .settings(settings)
        .toolbox("t", "")
        .provide("s", mcp_server(tools))
        .start()
        .await
        .unwrap();
    let gateway = gateway(&runtime, json!({"expose": "hybrid"}));
    (runtime, gateway)
}

/// Notifications of a call and its result, one line each.
async fn transcript(client: &McpClient, name: &str, arguments: Value) -> Vec<String> {
    let params = json!({"name": name, "arguments": arguments, "_meta": {"progressToken": "mine"}});
    let options = RequestOptions { log_level: Some(LogLevel::Info), ..RequestOptions::default() };
    let mut pending = client.request("tools/call", Some(RawJson::from(params)), options).await.unwrap();
    let mut lines = Vec::new();
    loop {
        match pending.next_event().await {
            ResponseEvent::Notification(notice) => {
                lines.push(format!("{} {}", notice.method, notice.params.unwrap().as_str()));
            }
            ResponseEvent::End(end) => {
                lines.push(text(&end.unwrap().to_value()));
                return lines;
            }
        }
    }
}

#[tokio::test]
async fn notifications_arrive_in_order_before_the_result() {
    let (_, gateway) = start_gateway(&EndlessTool::default()).await;
    for era in ERAS {
        let (client, notifications) = connect(&gateway, None, era).await;
        let transcript = transcript(&client, "s__chatty", json!({})).await.join("\n");
        let line = notifications.next().await;
        assert_eq!(line, r#"notifications/message {"level":"warning","data":{"n":1}}"#);
        insta::allow_duplicates! {
            insta::assert_snapshot!(transcript, @r#"
            notifications/progress {"progress":1,"total":2,"message":"half","progressToken":"mine"}
            notifications/progress {"progress":2,"total":2,"progressToken":"mine"}
            done
            "#);
        }
    }
}

#[tokio::test]
async fn notifications_of_servers_pass_unchanged() {
    let (_, gateway) = start_gateway(&EndlessTool::default()).await;
    for era in ERAS {
        let (client, notifications) = connect(&gateway, None, era).await;
        let transcript = transcript(&client, "s__unusual", json!({})).await;
        assert_eq!(transcript, [format!("notifications/progress {UNUSUAL_PROGRESS}"), "done".to_owned()]);
        assert_eq!(notifications.next().await, format!("notifications/message {UNUSUAL_LOG}"));
    }
}

#[tokio::test]
async fn notifications_of_a_tool_called_through_use_tool_name_it() {
    let (_, gateway) = start_gateway(&EndlessTool::default()).await;
    for era in ERAS {
        let (client, notifications) = connect(&gateway, None, era).await;
        let tool = json!({"tool": {"toolbox": "t", "server": "s", "name": "chatty"}});
        let transcript = transcript(&client, "use_tool", tool).await.join("\n");
        let line = notifications.next().await;
        assert_eq!(line, r#"notifications/message {"level":"warning","data":{"n":1},"logger":"s__chatty"}"#);
        insta::allow_duplicates! {
            insta::assert_snapshot!(transcript, @r#"
            notifications/progress {"progress":1,"total":2,"message":"s__chatty: half","progressToken":"mine"}
            notifications/progress {"progress":2,"total":2,"message":"s__chatty","progressToken":"mine"}
            done
            "#);
        }
    }
}

#[tokio::test]
async fn a_tool_sees_the_sampling_support_of_its_client() {
    let tool = ToolEntry::from_handler("borrower", "", Arc::new(SamplingReporter))
        .with_input_schema(json!({"type": "object"}));
    let runtime = Runtime::builder().toolbox("t", "").provide("s", mcp_server([tool])).start().await.unwrap();
    let gateway = gateway(&runtime, json!({"expose": "flat"}));
    let cases = [
        (json!({"elicitation": {}}), "None"),
        (json!({"sampling": {}}), "Text"),
        (json!({"sampling": {"tools": {}}}), "Tools"),
    ];
    for (era, (capabilities, expected)) in
        ERAS.into_iter().flat_map(|era| cases.clone().map(|case| (era, case)))
    {
        let (client, _) = connect_as(&gateway, None, era, "test", capabilities).await;
        let answer = call(&client, "s__borrower", json!({})).await;
        assert_eq!(text(&answer), expected, "{era:?}");
    }
}

#[tokio::test]
async fn the_op_tree_contains_the_tool_but_not_use_tool() {
    let (runtime, gateway) = start_gateway(&EndlessTool::default()).await;
    let (client, _) = connect(&gateway, None, Era::Session).await;
    use_tool(&client, ["t", "s", "chatty"], json!({})).await;
    let callers = runtime.callers();
    let trees: Vec<String> = callers.iter().map(|caller| caller.tree().snapshot().to_string()).collect();
    let text = trees.join("\n");
    assert_eq!((text.matches("s__chatty").count(), text.matches("use_tool").count()), (1, 0), "{text}");
}

#[tokio::test]
async fn a_tool_may_request_input_during_its_call() {
    let (runtime, gateway) = start_gateway(&EndlessTool::default()).await;
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        assert_eq!(
            text(&use_tool(&client, ["t", "s", "curious"], json!({})).await),
            r#""Ada", "Ada""#,
            "{era:?}"
        );
        let (client, _) = connect_as(&gateway, None, era, "mute", json!({})).await;
        assert_eq!(
            text(&use_tool(&client, ["t", "s", "curious"], json!({})).await),
            "the caller does not support input requests, the caller does not support input requests",
            "{era:?}"
        );
    }
    assert!(runtime.suspended_calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_answers_too_late_still_gets_the_result() {
    let settings: RuntimeSettings = serde_json::from_value(json!({"questionTimeout": "10s"})).unwrap();
    let (runtime, gateway) = start_gateway_with(&EndlessTool::default(), settings).await;
    let (client, _) = connect(&gateway, None, Era::Stateless).await;
    let round = async |params: Value| {
        let sent = client.request("tools/call", Some(RawJson::from(params)), RequestOptions::default()).await;
        sent.unwrap().response().await
    };
    let params = json!({"name": "s__curious", "arguments": {}});
    let first = round(params.clone()).await.unwrap().to_value();
    time::sleep(Duration::from_secs(25)).await;
    // Another client comes, and is asked too.
    round(params.clone()).await.unwrap();
    let mut again = params;
    again["inputResponses"] = json!({"who": {"action": "accept", "content": {"name": "Bob"}}});
    again["requestState"] = first["requestState"].clone();
    let end = round(again.clone()).await.unwrap().to_value();
    assert_eq!(text(&end), "the caller did not respond within 10s, the caller did not respond within 10s");
    // A client that never returns is not waited for.
    time::sleep(Duration::from_mins(1)).await;
    assert!(runtime.suspended_calls().is_empty());
    assert!(round(again).await.unwrap_err().to_string().contains("no suspended call for this token"));
}

#[tokio::test]
async fn incomplete_answers_are_rejected_and_the_call_stays_suspended() {
    let (_, gateway) = start_gateway(&EndlessTool::default()).await;
    let (client, _) = connect(&gateway, None, Era::Stateless).await;
    let ask = |params: Value| {
        let client = client.clone();
        async move {
            let pending =
                client.request("tools/call", Some(RawJson::from(params)), RequestOptions::default()).await;
            pending.unwrap().response().await
        }
    };
    let first = ask(json!({"name": "s__curious", "arguments": {}})).await.unwrap().to_value();
    assert_eq!(first["resultType"], "input_required");
    assert_eq!(first["inputRequests"]["who"]["method"], "elicitation/create");
    let again = |answers: Value, state: &Value| {
        ask(json!({"name": "s__curious", "arguments": {}, "inputResponses": answers, "requestState": state}))
    };
    let state = &first["requestState"];
    let error = again(json!({}), state).await.unwrap_err().to_string();
    assert!(error.contains("inputResponses has no answer to 'who'"), "{error}");
    let answer = json!({"who": {"action": "accept", "content": {"name": "Bob"}}});
    let second = again(answer.clone(), state).await.unwrap().to_value();
    let error = again(answer.clone(), state).await.unwrap_err().to_string();
    assert!(error.contains("no suspended call for this token"), "{error}");
    let end = again(answer, &second["requestState"]).await.unwrap().to_value();
    assert_eq!(text(&end), r#""Bob", "Bob""#);
}

#[tokio::test]
async fn dropping_a_request_cancels_the_call() {
    let endless = EndlessTool::default();
    let (_, gateway) = start_gateway(&endless).await;
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        let params = RawJson::from(json!({"name": "s__endless", "arguments": {}}));
        let pending = client.request("tools/call", Some(params), RequestOptions::default()).await.unwrap();
        endless.started.notified().await;
        drop(pending);
        time::timeout(Duration::from_secs(10), endless.dropped.notified()).await.unwrap();
    }
    assert_eq!(endless.n_dropped.load(Ordering::SeqCst), 2);
}
