//! What a tool says and asks while it runs, and what becomes of it when its client leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::ValidCall;
use pegboard_core::client::{Notice, Progress, Question, Questions};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::settings::RuntimeSettings;
use pegboard_gateway::Gateway;
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use pegboard_wire::Happening;
use pegboard_wire::client::{Client, Era, RequestOptions};
use pegboard_wire::era::LogLevel;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{self, Duration};

use crate::stage::{ERAS, call, connect, connect_as, gateway, mcp, said, text, use_tool};

/// Says two things of its progress and one to its log, before it answers.
struct Chatty;

impl Handler for Chatty {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let client = call.context().client();
            let progress = |done, message: Option<&str>| {
                Notice::Progress(Progress { done, total: Some(2.0), message: message.map(str::to_owned) })
            };
            client.notify(progress(1.0, Some("half")));
            client.notify(Notice::Log(RawJson::from(json!({"level": "warning", "data": {"n": 1}}))));
            client.notify(progress(2.0, None));
            Ok(said("done"))
        }
        .boxed()
    }
}

/// Asks for a name, twice.
struct Curious;

impl Handler for Curious {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let mut names = Vec::new();
            for _ in 0..2 {
                let params = json!({"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}});
                let question = Question { method: "elicitation/create".to_owned(), params: RawJson::from(params) };
                let answers = call.context().client().ask(Questions::from([("who".to_owned(), question)])).await;
                names.push(match answers {
                    Ok(answers) => answers["who"].to_value()["content"]["name"].to_string(),
                    Err(error) => error.to_string(),
                });
            }
            Ok(said(&names.join(", ")))
        }
        .boxed()
    }
}

/// Says what its client lends.
struct Borrower;

impl Handler for Borrower {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move { Ok(said(&format!("{:?}", call.context().client().lends()))) }.boxed()
    }
}

/// Runs until it is dropped.
#[derive(Clone, Default)]
struct Endless {
    begun: Arc<Notify>,
    dropped: Arc<Notify>,
    n_dropped: Arc<AtomicUsize>,
}

struct Guard(Endless);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.n_dropped.fetch_add(1, Ordering::SeqCst);
        self.0.dropped.notify_one();
    }
}

impl Handler for Endless {
    fn call<'a>(&'a self, _call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let _guard = Guard(self.clone());
            self.begun.notify_one();
            std::future::pending().await
        }
        .boxed()
    }
}

async fn stage(endless: &Endless) -> (Runtime, Gateway) {
    stage_with(endless, RuntimeSettings::default()).await
}

async fn stage_with(endless: &Endless, settings: RuntimeSettings) -> (Runtime, Gateway) {
    let entry = |name: &'static str, handler: Arc<dyn Handler>| {
        ToolEntry::from_handler(name, "", handler).with_input_schema(json!({"type": "object"}))
    };
    let tools = [
        entry("chatty", Arc::new(Chatty)),
        entry("curious", Arc::new(Curious)),
        entry("endless", Arc::new(endless.clone())),
    ];
    let runtime = Runtime::builder()
        .settings(settings)
        .toolbox("t", "")
        .provide("s", mcp(tools))
        .start()
        .await
        .unwrap();
    let gateway = gateway(&runtime, json!({"expose": "hybrid"}));
    (runtime, gateway)
}

/// What a call says on its way, a line for each, and its end.
async fn story(client: &Client, name: &str, arguments: Value) -> Vec<String> {
    let params = json!({"name": name, "arguments": arguments, "_meta": {"progressToken": "mine"}});
    let options = RequestOptions { log_level: Some(LogLevel::Info), ..RequestOptions::default() };
    let mut exchange = client.request("tools/call", Some(RawJson::from(params)), options).await.unwrap();
    let mut lines = Vec::new();
    loop {
        match exchange.next().await {
            Happening::Notice(notice) => {
                lines.push(format!("{} {}", notice.method, notice.params.unwrap().as_str()));
            }
            Happening::End(end) => {
                lines.push(text(&end.unwrap().to_value()));
                return lines;
            }
        }
    }
}

#[tokio::test]
async fn what_a_tool_says_comes_in_order_before_its_answer() {
    let (_, gateway) = stage(&Endless::default()).await;
    for era in ERAS {
        let (client, heard) = connect(&gateway, None, era).await;
        let story = story(&client, "s__chatty", json!({})).await.join("\n");
        let line = heard.next().await;
        assert_eq!(line, r#"notifications/message {"level":"warning","logger":"","data":{"n":1}}"#);
        insta::allow_duplicates! {
            insta::assert_snapshot!(story, @r#"
            notifications/progress {"progress":1,"total":2,"message":"half","progressToken":"mine"}
            notifications/progress {"progress":2,"total":2,"progressToken":"mine"}
            done
            "#);
        }
    }
}

#[tokio::test]
async fn a_tool_that_is_used_by_way_of_another_is_named() {
    let (_, gateway) = stage(&Endless::default()).await;
    for era in ERAS {
        let (client, heard) = connect(&gateway, None, era).await;
        let tool = json!({"tool": {"toolbox": "t", "server": "s", "name": "chatty"}});
        let story = story(&client, "use_tool", tool).await.join("\n");
        let line = heard.next().await;
        assert_eq!(line, r#"notifications/message {"level":"warning","logger":"s__chatty","data":{"n":1}}"#);
        insta::allow_duplicates! {
            insta::assert_snapshot!(story, @r#"
            notifications/progress {"progress":1,"total":2,"message":"s__chatty: half","progressToken":"mine"}
            notifications/progress {"progress":2,"total":2,"message":"s__chatty","progressToken":"mine"}
            done
            "#);
        }
    }
}

#[tokio::test]
async fn a_tool_knows_what_its_client_lends() {
    let tool = ToolEntry::from_handler("borrower", "", Arc::new(Borrower))
        .with_input_schema(json!({"type": "object"}));
    let runtime = Runtime::builder().toolbox("t", "").provide("s", mcp([tool])).start().await.unwrap();
    let gateway = gateway(&runtime, json!({"expose": "flat"}));
    let cases = [
        (json!({"elicitation": {}}), "Nothing"),
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
async fn the_op_tree_has_the_tool_and_nothing_for_the_way_to_it() {
    let (runtime, gateway) = stage(&Endless::default()).await;
    let (client, _) = connect(&gateway, None, Era::Session).await;
    use_tool(&client, ["t", "s", "chatty"], json!({})).await;
    let callers = runtime.callers();
    let trees: Vec<String> = callers.iter().map(|caller| caller.tree().snapshot().to_string()).collect();
    let text = trees.join("\n");
    assert_eq!((text.matches("s__chatty").count(), text.matches("use_tool").count()), (1, 0), "{text}");
}

#[tokio::test]
async fn a_tool_may_ask_the_client_in_the_middle_of_its_call() {
    let (runtime, gateway) = stage(&Endless::default()).await;
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
            "the caller cannot be asked, the caller cannot be asked",
            "{era:?}"
        );
    }
    assert!(runtime.parking().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_too_late_to_answer_still_gets_the_result() {
    let settings: RuntimeSettings = serde_json::from_value(json!({"questionTimeout": "10s"})).unwrap();
    let (runtime, gateway) = stage_with(&Endless::default(), settings).await;
    let (client, _) = connect(&gateway, None, Era::Stateless).await;
    let round = async |params: Value| {
        let sent = client.request("tools/call", Some(RawJson::from(params)), RequestOptions::default()).await;
        sent.unwrap().answer().await
    };
    let params = json!({"name": "s__curious", "arguments": {}});
    let first = round(params.clone()).await.unwrap().to_value();
    time::sleep(Duration::from_secs(25)).await;
    // Somebody else comes, and is asked as well.
    round(params.clone()).await.unwrap();
    let mut again = params;
    again["inputResponses"] = json!({"who": {"action": "accept", "content": {"name": "Bob"}}});
    again["requestState"] = first["requestState"].clone();
    let end = round(again.clone()).await.unwrap().to_value();
    assert_eq!(text(&end), "the caller did not answer within 10s, the caller did not answer within 10s");
    // Who never comes back is not waited for.
    time::sleep(Duration::from_mins(1)).await;
    assert!(runtime.parking().is_empty());
    assert!(round(again).await.unwrap_err().to_string().contains("no call waits under this ticket"));
}

#[tokio::test]
async fn answers_that_are_not_all_there_are_refused_and_the_call_waits_on() {
    let (_, gateway) = stage(&Endless::default()).await;
    let (client, _) = connect(&gateway, None, Era::Stateless).await;
    let ask = |params: Value| {
        let client = client.clone();
        async move {
            let exchange =
                client.request("tools/call", Some(RawJson::from(params)), RequestOptions::default()).await;
            exchange.unwrap().answer().await
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
    assert!(error.contains("no call waits under this ticket"), "{error}");
    let end = again(answer, &second["requestState"]).await.unwrap().to_value();
    assert_eq!(text(&end), r#""Bob", "Bob""#);
}

#[tokio::test]
async fn a_request_that_is_given_up_ends_the_call() {
    let endless = Endless::default();
    let (_, gateway) = stage(&endless).await;
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        let params = RawJson::from(json!({"name": "s__endless", "arguments": {}}));
        let exchange = client.request("tools/call", Some(params), RequestOptions::default()).await.unwrap();
        endless.begun.notified().await;
        drop(exchange);
        time::timeout(Duration::from_secs(10), endless.dropped.notified()).await.unwrap();
    }
    assert_eq!(endless.n_dropped.load(Ordering::SeqCst), 2);
}
